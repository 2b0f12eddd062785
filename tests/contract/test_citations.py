"""Every theorem that code or pages cite is the heading of a page in the package, or a theorem of a paper that the sentence names.

A heading is ``## F.3 Flooring before the noise``. Cited are ``Theorem F.3``, ``F.1 and F.2``, ``F.1 to F.8``; a letter that no heading has is a theorem only
behind the word (``Table D.2`` is none). ``Theorem 1`` and ``Proposition 12`` are a paper's own. Numbers of pages that are not in the repository
(``T002.6``, ``SPEC 3``) are refused.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import unpooled

SOURCE = Path(unpooled.__file__).parent
WORD = r"(?:Theorem|Lemma|Proposition|Corollary)(?:s|'s)?"
NUMBER = r"[A-Z]\.\d+(?:\.\d+)*"
HEADING = re.compile(rf"^#+ ({NUMBER}) \S", re.MULTILINE)
#: A theorem of a paper is told by its number alone.
OF_A_PAPER = re.compile(rf"\b{WORD}\s+\d+")
ELSEWHERE = re.compile(r"\bT00\d\b(?:\.\d+)?|\bSPEC(?:\s+section)?\s+\d+|\bTHEORY\s+00\d")
#: Authors, the names of their methods, and the keys under which a page introduces them: [P], KLS21.
PAPER = re.compile(r"\[[A-Z]\b|\b[A-Z]{2,4}\d\d\b|\bPRIDE\b|Lou & Cheung|Balle|Kairouz|Canonne|Heikkila|Chaudhuri|\bPST\b")


def prose(file: Path) -> Iterator[str]:
    """The text of a page; of a module its strings and comments, neighbouring lines of comments as one."""
    text = file.read_text()
    if file.suffix == ".md":
        yield text
        return
    comments: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string.lstrip("#: "))
        elif token.type not in {tokenize.NL, tokenize.NEWLINE}:
            yield " ".join(comments)
            comments = []
            if token.type == tokenize.STRING:
                yield token.string


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text; a blank line, a row of a table and a bullet end one too."""
    for block in re.split(r"\n\s*\n|\n\s*[-*|] ", text):
        yield from re.split(r"(?<=[.:;])\s+(?=[A-Z*`\[])(?<!al\. )", re.sub(r"\s+", " ", block))


def headings(pages: dict[str, str]) -> set[str]:
    return {number for text in pages.values() for number in HEADING.findall(text)}


def unfounded(text: str, known: set[str]) -> list[str]:
    """What a text cites that is nowhere to be read."""
    letters = "".join(sorted({number[0] for number in known}))
    bare = re.compile(rf"(?<![\w.]){'[' + letters + ']'}\.\d+(?:\.\d+)*(?!\w)")
    wrong = ELSEWHERE.findall(text)
    for sentence in sentences(text):
        cited = {*bare.findall(sentence), *re.findall(rf"\b{WORD}\s+({NUMBER})", sentence)}
        wrong += sorted(cited - known)
        if not PAPER.search(sentence):
            wrong += OF_A_PAPER.findall(sentence)
    return wrong


def pages() -> dict[str, str]:
    return {str(file.relative_to(SOURCE)): file.read_text() for file in sorted(SOURCE.rglob("*.md"))}


def test_every_citation_is_a_heading_or_names_its_paper() -> None:
    known = headings(pages())
    found = {
        str(file.relative_to(SOURCE)): wrong
        for file in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.md")])
        if (wrong := [one for text in prose(file) for one in unfounded(text, known)])
    }
    assert found == {}


def test_no_heading_is_there_twice() -> None:
    numbers = [number for text in pages().values() for number in HEADING.findall(text)]
    assert sorted(numbers) == sorted(set(numbers))


def test_every_mechanism_has_its_page() -> None:
    folder = SOURCE / "privacy" / "mechanisms"
    modules = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert {file.stem for file in folder.glob("*.md")} == modules
    for name in modules:
        text = (folder / f"{name}.md").read_text()
        assert "*Precondition.*" in text, name
        assert "*Theorem.*" in text, name
        assert "*Proof" in text, name


@pytest.mark.parametrize(
    "made_up",
    [
        "as Theorem F.999 says",
        "as F.999 says",
        "by Theorems F.1 and F.999",
        "(Theorem Z.1)",
        "It is T002.6.",
        "see SPEC section 3",
        "This is Theorem 7 of somebody.",
        "the paper's Theorem 1",
        "Balle & Wang 2018 have another. But Theorem 8 is the one meant.",
        "F.9.99 is no part of F.9",
    ],
)
def test_a_made_up_citation_is_found(tmp_path: Path, made_up: str) -> None:
    known = headings(pages())
    assert {"F.1", "F.9", "F.9.1", "S.1", "L.5", "B.1", "P.1"} <= known
    assert unfounded(made_up, known)
    module = tmp_path / "module.py"
    for text in (f'"""{made_up}"""\n', f"x = 1  # {made_up}\n", f"#: {made_up}\nx = 1\n"):
        module.write_text(text)
        assert [one for part in prose(module) for one in unfounded(part, known)], text


@pytest.mark.parametrize(
    "good",
    [
        "Theorem F.1, F.9.1 and S.8",
        "by Theorems F.1 to F.8.",
        "It follows Kairouz, Liu & Steinke 2021, Theorem 1, in part.",
        "PRIDE's Theorem 1",
        "Figures 4 and Table D.2 of section D.1",
        "a scale of 1.5 and n F.",
    ],
)
def test_a_citation_that_can_be_followed_is_none_of_them(good: str) -> None:
    assert unfounded(good, headings(pages())) == []
