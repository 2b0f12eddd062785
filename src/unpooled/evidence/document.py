"""A document as one list of sections, from which its Markdown and its HTML are made: no sentence is written twice.

A sentence is a fact of the study, or it carries a mark: the reader fills it in, or a lawyer decides it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import TYPE_CHECKING

from unpooled.report.templates import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Mark(StrEnum):
    """The mark of a sentence that is no fact of the study."""

    FILL = "[to be filled in by you]"
    LAWYER = "[for your lawyer]"


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence, or a few that belong together; a marked one is a question to its reader."""

    text: str
    mark: Mark | None = None

    def __str__(self) -> str:
        return f"{self.text} {self.mark}".strip() if self.mark else self.text


def fill(question: str) -> Phrase:
    """Return a line that the reader fills in."""
    return Phrase(question, Mark.FILL)


def lawyer(question: str) -> Phrase:
    """Return a line that a lawyer decides."""
    return Phrase(question, Mark.LAWYER)


def stated(what: str, words: str) -> Phrase:
    """Return a fact under its name; where nobody stated it, a line that the reader fills in.

    >>> print(stated("Contact", "trial@example.org"), "/", stated("Contact", ""))
    Contact: trial@example.org / Contact: [to be filled in by you]
    """
    return Phrase(f"{what}: {words}") if words else fill(f"{what}:")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines that follow each other."""

    lines: tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class Bullets:
    """Lines below each other."""

    lines: tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; columns of numbers are named by their places."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str | Phrase, ...], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Signatures:
    """Lines to sign on, each with the person who signs there."""

    who: tuple[str, ...]


Block = Heading | Paragraph | Bullets | Grid | Signatures


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of a document; a verdict stands out, in the colour of its strength ("good", "caution" or "none")."""

    title: str
    blocks: tuple[Block, ...]
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document."""

    title: str
    under: tuple[Phrase, ...]
    sections: tuple[Chapter, ...]

    def lines(self) -> Iterator[Phrase]:
        """Yield all lines, those in tables too."""
        yield from self.under
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Paragraph | Bullets):
                    yield from block.lines
                elif isinstance(block, Grid):
                    yield from (cell for row in block.rows for cell in row if isinstance(cell, Phrase))

    def marked(self, mark: Mark) -> int:
        """Return the number of lines that carry this mark."""
        return sum(line.mark is mark for line in self.lines())


def paragraph(*lines: str | Phrase) -> Paragraph:
    """Return a paragraph of these lines; plain text is a fact."""
    return Paragraph(tuple(_line(line) for line in lines if line))


def bullets(*lines: str | Phrase) -> Bullets:
    """Return these lines below each other; plain text is a fact."""
    return Bullets(tuple(_line(line) for line in lines if line))


def _line(line: str | Phrase) -> Phrase:
    return line if isinstance(line, Phrase) else Phrase(line)


# --- Markdown ---------------------------------------------------------------------------------------------------------------------

#: Characters that could be markup, and their harmless spelling. A backslash before a letter is no escape in Markdown, so it is spelled out too.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": "&#92;", "$": "&#36;"}
_ESCAPED = re.compile(r"[`*_\[\]|~]")
_BEGINS = re.compile(r"^([-+#=])|^(\d+)([.)])(?=\s|$)")


def plain(text: str) -> str:
    r"""Return text for Markdown in which nothing is markup, in one line.

    >>> print(plain("<b>1</b> | a_b"))
    &lt;b&gt;1&lt;/b&gt; \| a\_b
    """
    one = " ".join(text.split())
    spelled = "".join(_ENTITIES.get(letter, letter) for letter in one)
    return _ESCAPED.sub(lambda found: f"\\{found[0]}", spelled)


def markdown(document: Document) -> str:
    """Return the document as Markdown text."""
    parts = [f"# {plain(document.title)}", *(_begun(_marked(line)) for line in document.under)]
    for section in document.sections:
        parts += [f"## {plain(section.title)}", *map(_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def _begun(text: str) -> str:
    """Return Markdown of which the first letters begin no list, heading or rule."""
    return _BEGINS.sub(lambda found: f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}", text)


def _marked(line: Phrase) -> str:
    return f"{plain(line.text)} **{plain(line.mark)}**".strip() if line.mark else plain(line.text)


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"### {plain(block.text)}"
    if isinstance(block, Paragraph):
        return _begun(" ".join(map(_marked, block.lines)))
    if isinstance(block, Bullets):
        return "\n".join(f"- {_begun(_marked(line))}" for line in block.lines)
    if isinstance(block, Signatures):
        return "\n\n".join(f"{'.' * 40}\n{plain(who)}" for who in block.who)
    marks = ["---:" if place in block.numbers else "---" for place in range(len(block.titles))]
    rows = [map(plain, block.titles), marks, *([_cell(cell) for cell in row] for row in block.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(cell: str | Phrase) -> str:
    return _marked(cell) if isinstance(cell, Phrase) else plain(cell)


# --- HTML -------------------------------------------------------------------------------------------------------------------------


def page(document: Document) -> str:
    """Return the document as one HTML page, in the style of the reports: no script, nothing loaded from elsewhere."""
    source = files("unpooled.evidence").joinpath("document.html").read_text(encoding="utf-8")
    kind = {Heading: "heading", Paragraph: "paragraph", Bullets: "bullets", Grid: "grid", Signatures: "signatures"}
    return environment().from_string(source).render(document=document, kind=lambda block: kind[type(block)])


def counted(words: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> counted(["a"]), counted(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
