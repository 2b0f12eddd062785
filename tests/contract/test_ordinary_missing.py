"""An ordinary day with missing values: the committed page is what commands, refusals and tables print today."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ordinary_missing_of_docs", ROOT / "docs/ordinary_missing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_page_is_what_commands_and_tables_print(script: ModuleType) -> None:
    """If this fails, run `python docs/ordinary_missing.py`."""
    assert script.page() == script.PAGE.read_text(encoding="utf-8")


def test_the_page_has_what_its_readers_look_for(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert text.count("REFUSED  ") == 3
    assert text.count("gaps     ") == 2
    assert "30% left out" in text
    assert text.count("Error: ") == 4
    assert text.count("\ntreatment: new - usual ") == 2
    assert text.count("crp under 0.5") == 4
    assert "not identified: " in text
    assert "Traceback" not in text


def test_the_day_is_the_one_that_it_says(script: ModuleType) -> None:
    people = script.people()
    assert len(people) == 5000
    assert people["crp"].null_count() / 5000 == pytest.approx(0.12, abs=0.01)
    gone = {name: own["crp"].null_count() / len(own) for (name,), own in people.group_by("site")}
    assert gone["city"] > 2 * max(gone["coast"], gone["north"])
    assert people["stay"].null_count() / 5000 == pytest.approx(0.02, abs=0.005)
    assert "<0.5" in people["crp"]
