"""The faults that are kept in lists, breaks on purpose and survivors of mutation, name code that is there."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import unpooled

ROOT, SOURCE = Path(__file__).parents[2], Path(unpooled.__file__).parent
FAULTS = tomllib.loads((ROOT / "tests/audit/breaks.toml").read_text())
SURVIVORS: list[dict[str, Any]] = tomllib.loads((ROOT / "tests/mutation/survivors.toml").read_text())["survivor"]


@pytest.mark.slow
def test_every_break_has_one_place() -> None:
    """A break that fits nowhere, or twice, would stop the campaign after hours."""
    sys.path.insert(0, str(ROOT))
    from experiments.breaks import broken

    faults = [*FAULTS["break"], *FAULTS["rule"]]
    assert len(faults) == 50
    assert all(broken(one)[1] != broken(one)[0].read_text() for one in faults)


def test_every_survivor_names_a_statement_that_is_there() -> None:
    files = {each["file"] for each in SURVIVORS}
    lines = {file: {line.strip() for line in (SOURCE / file).read_text().splitlines()} for file in files}
    assert [each["statement"] for each in SURVIVORS if each["statement"] not in lines[each["file"]]] == []
