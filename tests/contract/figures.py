"""Which result each figure of a page quotes: the side files under ``docs/figures`` and the figures that they point at.

The side file of ``docs/papers/lasso.md`` is ``docs/figures/papers/lasso.toml``, that of ``src/unpooled/models/lasso/THEORY.md`` is
``docs/figures/models/lasso/THEORY.toml``. A figure in running text is named by the words that lead up to it, which must occur once on the page;
a figure in a table by section, table, row (or "head") and column, and by the words that lead up to it if its cell holds several numbers::

    [prose]
    "an error of 0.744" = "pride/figure_4 | global-cv, semi-naive | overall"

    [tables."Real data".1."diabetes, 0.5"]
    "ours" = "pride/real | diabetes, 0.5 | ours"
    "published, range" = { "1.2" = "paper", "to 1.4" = "given" }

The value is a cell of a results file (file, row, column), or ``paper`` for a number that a paper prints, or ``given`` for a constant or a parameter.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plain

FIGURES = plain.ROOT / "docs" / "figures"
NUMBER = r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?"
LAST = re.compile(rf"(?P<number>{NUMBER})(?:\s*%)?$")
#: The place of a table's head among its rows; its entry is named "head".
HEAD = -1
DECIMAL = re.compile(r"(?<![\w.])[-+]?\d*\.\d+(?!\w)")


@dataclass(frozen=True)
class Quote:
    """Hold a number of a page and the result that it quotes. The number is empty where a whole cell is given."""

    number: str
    what: str


class Unfounded(Exception):
    """Raised for an entry of a side file that points at nothing, at several places, or at no number."""


def side_file(page: Path) -> Path:
    """Return the path of the side file of a page."""
    for root in (plain.ROOT / "docs", plain.ROOT / "src" / "unpooled", plain.ROOT):
        if page.is_relative_to(root):
            return FIGURES / page.relative_to(root).with_suffix(".toml")
    raise Unfounded(str(page))


def entries(page: Path) -> dict[str, Any]:
    """Return the side file of a page as it is written; a page without one quotes nothing."""
    file = side_file(page)
    return tomllib.loads(file.read_text()) if file.exists() else {}


def spot(words: str, text: str) -> tuple[int, int]:
    """Return where the number stands that these words lead up to; they must occur exactly once, or begin the text where ``^`` stands before them."""
    start = r"\A" if words.startswith("^") else r"(?<!\S)"
    words = words.removeprefix("^")
    found = [m.end() for m in re.finditer(rf"{start}{re.escape(words)}(?!\.?\d|e[-+]?\d)", text)]
    last = LAST.search(words)
    if len(found) != 1 or last is None:
        msg = f"{words!r} occurs {len(found)} times" if last else f"{words!r} does not end with a number"
        raise Unfounded(msg)
    end = found[0] - len(words)
    return end + last.start("number"), end + last.end("number")


def fragments(said: dict[str, str], text: str) -> tuple[list[Quote], str]:
    """Return the quotes that an entry names by the words before them, and the text with their numbers blanked."""
    quotes, rest = [], list(text)
    for words, what in said.items():
        start, end = spot(words, text)
        if "\0" in rest[start:end]:
            msg = f"{words!r} is bound twice"
            raise Unfounded(msg)
        rest[start:end] = "\0" * (end - start)
        quotes.append(Quote(text[start:end], what))
    return quotes, "".join(rest).replace("\0", " ")


def of_cell(said: str | dict[str, str] | None, text: str) -> tuple[list[Quote], list[str]]:
    """Return the quotes of a cell, and its decimal numbers that quote nothing."""
    if isinstance(said, str):
        numbers = re.findall(NUMBER, text)
        if said != "given" and len(numbers) != 1:
            msg = f"the cell {text!r} holds {len(numbers)} numbers: name one by the words before it"
            raise Unfounded(msg)
        return [Quote(numbers[0] if len(numbers) == 1 else "", said)], []
    quotes, rest = fragments(said or {}, text)
    return quotes, DECIMAL.findall(re.sub(r"`[^`]*`", "", rest))


def row_of(label: str, table: plain.Table) -> int:
    """Return the index of the one row whose leading cells are these."""
    hits = [k for k, row in enumerate(table.rows) if label in [", ".join(row[:j]) for j in range(1, len(row))]]
    if len(hits) != 1:
        msg = f"{len(hits)} rows of table {table.number} under {table.section!r} answer to {label!r}"
        raise Unfounded(msg)
    return hits[0]


def of_table(said: dict[str, dict[str, Any]], table: plain.Table) -> Iterator[tuple[list[Quote], list[str]]]:
    """Yield the quotes and the unbound decimals of every cell of a table."""
    by_row: dict[int, dict[str, Any]] = {}
    for label, columns in said.items():
        place = HEAD if label == "head" else row_of(label, table)
        if place in by_row:
            msg = f"two entries answer to the row of {label!r}"
            raise Unfounded(msg)
        by_row[place] = columns
        if unknown := {column for column in columns if table.header.count(column) != 1}:
            msg = f"no column, or several, of the table under {table.section!r} answer to {sorted(unknown)}"
            raise Unfounded(msg)
    for k, row in enumerate([table.header, *table.rows], HEAD):
        for j, text in enumerate(row):
            yield of_cell(by_row.get(k, {}).get(table.header[j]) if j < len(table.header) else None, text)


def quoted(text: str, said: dict[str, Any]) -> tuple[list[Quote], list[str]]:
    """Return every figure that a page quotes, and the decimal numbers in its tables that quote nothing."""
    tables, prose, _ = plain.read(text)
    quotes, _ = fragments(said.get("prose", {}), re.sub(r"\s+", " ", prose))
    outside = [line for line in prose.splitlines() if line.startswith("|")]  # also in code: what looks like a table
    unbound = [number for line in outside for number in DECIMAL.findall(re.sub(r"`[^`]*`", "", line))]
    known = {(section, number) for section, inner in said.get("tables", {}).items() for number in inner}
    for table in tables:
        own = said.get("tables", {}).get(table.section, {}).get(str(table.number), {})
        if own and (table.section, str(table.number)) not in known:
            msg = f"two tables answer to {table.section!r}, {table.number}"
            raise Unfounded(msg)
        known.discard((table.section, str(table.number)))
        for found, left in of_table(own, table):
            quotes += found
            unbound += left
    if known or set(said) - {"prose", "tables"}:
        msg = f"no table answers to {sorted(known)}; sections of a side file are prose and tables"
        raise Unfounded(msg)
    return quotes, unbound
