"""Whole studies audited in one run: sums of few and of many columns, and the cases of the contract, at several epsilons.

Canaries are 200 rows of two parties for sums, and up to 100 of a case. Made-up data, seeds that are fixed: a row says what one run said.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from experiments.cells import kept
from experiments.common import run, write_table

from unpooled.audit.one_run import audit_in_one_run
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "contract"))

from cases import CASES

EPSILONS = (1.0, 4.0, 16.0)
WIDTHS = (5, 40, 200)
#: One of every kind of release with Gaussian noise.
NAMES = (
    *("describe, columns", "tables", "bayes", "bayes, robust", "bayes, columns", "glm", "glm, direction"),
    *("pls", "lasso, joint", "pride", "effects", "analyses"),
)


def sums(width: int) -> Study:
    """Sums of so many columns at two parties."""
    columns = tuple(Column(f"x{j}", -1.0, 3.0) for j in range(width))
    cards = tuple(Card(name, 100, columns) for name in ("north", "south"))
    return Study("describe", cards, 1.0, 1e-6, unit="record", adjacency="replace", derived=())


def audited(study: Study, epsilon: float, canaries: int) -> list[Any]:
    """Guesses, right ones, and both bounds."""
    found = audit_in_one_run(load(study.row), msgspec.structs.replace(study, epsilon=epsilon), canaries, registry=load)
    return [found.canaries, found.guesses, found.right, found.audited, found.as_gaussian]


def main(full: bool) -> None:
    """Reduced: without the widest sums."""
    asked = [(f"sums of {width} columns", sums(width), 200) for width in (WIDTHS if full else WIDTHS[:-1])]
    asked += [(name, CASES[name]().study, 100) for name in NAMES]
    rows = []
    for name, study, canaries in asked:
        for epsilon in EPSILONS:
            cells = kept([name, epsilon, canaries], lambda s=study, e=epsilon, c=canaries: audited(s, e, c))
            rows.append([name, f"{epsilon:g}", *map(str, cells[:3]), f"{cells[3]:.2f}", f"{cells[4]:.2f}"])
    header = ["study", "claimed", "canaries", "guesses", "right", "audited", "as Gaussian"]
    write_table(
        "audit/one_run", "One run with many coins", header, rows, "One run each; lower bounds at a confidence of 95 %."
    )


if __name__ == "__main__":
    run(main)
