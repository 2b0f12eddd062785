"""Read pages as a plain Markdown parser does: with tables, and with no other extension."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit

ROOT = Path(__file__).parents[2]
#: Every page that a reader of the repository may open; the built documentation is none of them.
PAGES = sorted(
    page
    for page in [
        *ROOT.glob("*.md"),
        *(p for folder in ("docs", "src", "examples", "benchmarks") for p in (ROOT / folder).rglob("*.md")),
    ]
    if "_build" not in page.parts
)
PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Table:
    """Hold one table of a page: where it stands and the text of its cells. Rows of unequal length keep their length."""

    section: str
    number: int
    header: list[str]
    rows: list[list[str]]


def cells(line: str) -> list[str]:
    """Return the cells of one line. An unescaped bar ends a cell, inside code too."""
    found = [cell.strip() for cell in escapedSplit(line.strip())]
    return found[(not found[0]) : len(found) - (not found[-1])]


def read(text: str) -> tuple[list[Table], str, list[str]]:
    """Return the tables of a page, its text without them, and the lines outside code that look like rows of a table and belong to none."""
    lines, kept, code = text.splitlines(), text.splitlines(), set()
    found: list[Table] = []
    section, number = "", 0
    tokens = PARSER.parse(text)
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            section, number = tokens[place + 1].content, 0
        elif token.type == "fence" and token.map:
            code |= set(range(*token.map))
        elif token.type == "table_open" and token.map:
            number += 1
            first, last = token.map
            body = [cells(line) for line in lines[first:last]]
            found.append(Table(section, number, body[0], body[2:]))
            kept[first:last] = [""] * (last - first)
    stray = [line for place, line in enumerate(kept) if re.match(r"\s*\|.*\|\s*$", line) and place not in code]
    return found, "\n".join(kept), stray


def broken(text: str) -> list[str]:
    """Return the faults of a page's tables: rows that are longer or shorter than their head, comments in cells, lines that form no table."""
    found, _, stray = read(text)
    wrong = [f"belongs to no table: {line}" for line in stray]
    for table in found:
        for row in [table.header, *table.rows]:
            if len(row) != len(table.header):
                wrong.append(f"{len(row)} cells under a head of {len(table.header)}: {' | '.join(row)}")
            if any("<!--" in cell for cell in row):
                wrong.append(f"a comment in a cell: {' | '.join(row)}")
    return wrong
