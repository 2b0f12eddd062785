"""The section on NIST SP 800-226 names a test behind each line, or none where a line claims nothing; and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence.md"
#: Lines that say what unpooled does not do.
CLAIM_NOTHING = {"synthetic data, unstructured data", "side channels: time"}


def lines(text: str) -> dict[str, str]:
    """The blocks of the tables, each with its cell of tests."""
    rows = re.findall(r"^\| ([^|]+) \|[^|]+\| ([^|]+) \|$", text, flags=re.MULTILINE)
    return {block: tests for block, tests in rows if block not in {"block", "---"}}


def missing(cell: str) -> list[str]:
    """The tests of a cell that are not there."""
    gone = []
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", cell):
        file = ROOT / path
        source = file.read_text() if file.is_file() else ""
        if not source or (name and not re.search(rf"^def {name}\(", source, flags=re.MULTILINE)):
            gone.append(f"{path}::{name}")
    return gone


def test_every_line_has_its_tests() -> None:
    found = lines(PAGE.read_text().partition("\n## NIST SP 800-226")[2])
    assert len(found) > 30
    assert {block for block, cell in found.items() if cell == "none"} == CLAIM_NOTHING
    assert {block for block, cell in found.items() if "`tests/" not in cell} == CLAIM_NOTHING
    assert {block: gone for block, cell in found.items() if (gone := missing(cell))} == {}


def test_a_test_that_is_gone_is_noticed() -> None:
    assert missing("`tests/unit/test_plan.py::test_that_nobody_wrote`, `tests/unit/test_nothing.py`") == [
        "tests/unit/test_plan.py::test_that_nobody_wrote",
        "tests/unit/test_nothing.py::",
    ]
