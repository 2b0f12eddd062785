"""The page of the five papers' studies is what its script prints today, but for numbers that follow from noise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/papers/ten-lines.md"


def without_noise(page: str) -> str:
    """Predictions, and how many columns a LASSO chose, follow from noise, whose seed is the plan's with the keys of its folder."""
    page = re.sub(r"^-?\d\.\d+$|(?<=,)\d\.\d+$", "#", page, flags=re.MULTILINE)
    page = re.sub(r"^(yes|no),#$", "label,#", page, flags=re.MULTILINE)
    return re.sub(r"\d+ releases? ", "releases ", page)


@pytest.mark.slow
@pytest.mark.minutes
def test_the_page_is_what_the_commands_and_the_ten_lines_print() -> None:
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "examples/papers.py")],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert without_noise(shown.stdout.rstrip()) == without_noise(PAGE.read_text().rstrip())


def test_every_paper_has_ten_lines_and_every_command_of_its_study() -> None:
    page = PAGE.read_text()
    parts = page.split("\n## ")[1:]
    assert [part.split(" (")[0] for part in parts] == ["PRIDE", "Stacking", "Bayesian regression", "LASSO", "edPLS"]
    for part in parts:
        (lines,) = re.findall(r"```python\n(.*?)\n```", part, re.DOTALL)
        assert len([line for line in lines.splitlines() if line]) <= 10
        commands = re.findall(r"^\$ unpooled (\w+(?: \w+)?)", part, re.MULTILINE)
        assert {"party init", "party check", "party ledger"} <= set(commands)
        assert {"new", "plan", "run", "report"} <= {command.split()[0] for command in commands}
        assert any(command.split()[0] == "predict" or command == "party export" for command in commands)
        assert part.count("NO privacy guarantee holds") == 2
        assert part.count("The paper's own settings are") == 1
