"""The index of theorems is what its script writes, holds every theorem, and names code for each of them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import plain
import pytest
from test_citations import headings, pages

PAGE = plain.ROOT / "docs" / "theorems.md"
SCRIPT = PAGE.with_suffix(".py")


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("theorems_of_docs", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


#: C.2 is a measurement and C.4 a description; C.1, P.4 and F.18 refute published forms, by an argument or by runs under ``experiments``.
UNTESTED = {"C.1", "C.2", "C.4", "F.18", "P.4"}
INDEX = loaded()
ROWS = {
    re.match(rf"\[({INDEX.NUMBER}) ", row[0])[1]: row
    for table in plain.read(PAGE.read_text(encoding="utf-8"))[0]
    for row in table.rows
}


@pytest.mark.slow
def test_the_page_is_what_its_script_writes(tmp_path: Path) -> None:
    """If this fails, run `python docs/theorems.py`."""
    subprocess.run([sys.executable, SCRIPT, tmp_path / "theorems.md"], check=True)
    assert (tmp_path / "theorems.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_every_theorem_is_in_it_once() -> None:
    found = {number for number in ROWS if not number.startswith("R.")}  # the example's is none of the package
    assert found == headings(pages())
    assert len(ROWS) == len(INDEX.theorems())


def test_every_theorem_has_a_statement_and_code() -> None:
    for number, (_, statement, code, _) in ROWS.items():
        assert 20 < len(statement) <= INDEX.LONGEST + statement.count("\\"), number
        assert code != "none", f"{number}: no code cites it"


def test_every_statement_written_by_hand_belongs_to_a_theorem() -> None:
    assert set(INDEX.SAID) <= set(ROWS)


def test_theorems_without_a_test_are_known() -> None:
    """A new theorem comes with a test that cites it. Take a theorem off this list when a test cites it."""
    assert {number for number, row in ROWS.items() if row[3] == "none"} == UNTESTED


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Theorem F.1 and F.2", ["F.1", "F.2"]),
        ("Theorems L.7 to L.9.", ["L.7", "L.8", "L.9"]),
        ("F.9.1, not the whole", ["F.9.1"]),
        ("F.999, 1F.2, x.F.3, F.4b and Table D.2", []),
    ],
)
def test_citations_are_read_as_they_are_meant(text: str, cited: list[str]) -> None:
    known = {one.number: one for one in sorted(INDEX.theorems(), key=lambda one: one.order)}
    assert list(INDEX.numbers(text, known)) == cited


def test_a_citation_belongs_to_the_function_that_it_stands_in(tmp_path: Path) -> None:
    known = {one.number: one for one in INDEX.theorems()}
    module = tmp_path / "module.py"
    module.write_text('"""F.1."""\n\n\nclass A:\n    def b(self):\n        """F.2."""\n\n\n# F.3\ndef c(): ...\n')
    assert INDEX.citing([module], tmp_path, known) == {
        "F.1": {"module.py": []},
        "F.2": {"module.py": ["A.b"]},
        "F.3": {"module.py": ["c"]},
    }
