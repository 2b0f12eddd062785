"""Every measured figure that a page quotes stands in a results file: the mark behind it names file and cell, and this test compares them.

``0.744 <!--= pride/figure_4 | global-cv, semi-naive | overall -->`` quotes the cell of ``experiments/results/pride/figure_4.md`` in the row
whose leading cells are "global-cv" and "semi-naive" and in the column "overall". ``<!--= paper -->`` stands behind a number that a
paper prints, ``<!--= given -->`` behind a constant or a parameter in a table.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("THEORY.md"), ROOT / "README.md"])
PAGES = [page for page in PAGES if "_build" not in page.parts]
NUMBER = r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?"
MARK = re.compile(rf"(?P<number>{NUMBER})(?P<unit>\s*%)?\s*<!--=\s*(?P<what>.*?)\s*-->")
DECIMAL = re.compile(r"(?<![\w.])[-+]?\d*\.\d+(?!\w)(?!\s*%?\s*<!--=)")


def tables(text: str) -> list[tuple[list[str], list[list[str]]]]:
    """(header, rows) of every Markdown table."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            found.append((rows[0], rows[2:]))
            rows = []
    return found


def cell(what: str) -> str:
    """The text of the cell that a mark names; exactly one must answer to it."""
    name, row, column = (part.strip() for part in what.split("|"))
    hits = []
    for header, rows in tables((RESULTS / f"{name}.md").read_text()):
        if column in header:
            for cells in rows:
                leading = [", ".join(cells[:k]) for k in range(1, len(cells))]
                if row in leading:
                    hits.append(cells[header.index(column)])
    if len(hits) != 1:
        msg = f"{len(hits)} cells answer to {what!r}"
        raise LookupError(msg)
    return hits[0]


def agrees(quoted: str, stored: str) -> bool:
    """Whether the stored number, rounded to the digits of the quoted one, is the quoted one."""
    first = re.search(NUMBER, stored.replace(",", ""))
    if first is None:
        return False
    digits = len(quoted.partition(".")[2]) if "e" not in quoted else 12
    return abs(float(first.group()) - float(quoted)) <= 0.5001 * 10.0**-digits


def unmarked(text: str) -> list[str]:
    """Decimal numbers in tables that have no mark."""
    lines = [line for line in text.splitlines() if line.startswith("|") and "<!--= given -->" not in line]
    return [number for line in lines for number in DECIMAL.findall(MARK.sub("", re.sub(r"`[^`]*`", "", line)))]


def wrong(text: str) -> list[str]:
    """Marks whose number is not the stored one, or that name no cell."""
    bad = []
    for mark in MARK.finditer(text):
        if mark["what"] in {"paper", "given"}:
            continue
        try:
            if not agrees(mark["number"], cell(mark["what"])):
                bad.append(f"{mark['number']} is {cell(mark['what'])} in {mark['what']}")
        except (LookupError, FileNotFoundError, ValueError) as error:
            bad.append(f"{mark['what']}: {error}")
    return bad


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_quoted_figure_is_the_stored_one(page: Path) -> None:
    text = page.read_text()
    assert wrong(text) == []
    assert unmarked(text) == []
    assert len(MARK.findall(text)) + text.count("<!--= given -->") >= text.count("<!--="), "a mark stands behind no number"


def test_a_wrong_figure_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "table.md").write_text(
        "# made\n\n| a | b | c |\n|---|---|---|\n| x | 1 | .7449 ± .01 |\n| x | 2 | 3 |\n"
    )
    monkeypatch.setitem(globals(), "RESULTS", tmp_path)
    assert wrong("it is .745 <!--= made/table | x, 1 | c --> and 3 <!--= made/table | x, 2 | c -->") == []
    for text in (
        ".746 <!--= made/table | x, 1 | c -->",
        ".745 <!--= made/table | x | c -->",  # two rows
        ".745 <!--= made/table | x, 1 | d -->",
        ".745 <!--= made/other | x, 1 | c -->",
    ):
        assert len(wrong(text)) == 1
    assert unmarked("| 0.5 | .745 <!--= made/table | x, 1 | c --> |\n|---|\nof 0.25 in prose\n") == ["0.5"]
