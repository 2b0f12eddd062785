"""The trial that ships with unpooled at epsilon 1: every published number, its interval with privacy and the one without.

The study is that of ``docs/tutorial-trial.md``: four centres, 20,000 people, and four analyses that share one budget.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import pandas as pd
from experiments.common import run, write_table

import unpooled
from unpooled.datasets import make_trial
from unpooled.errors import BudgetWarning
from unpooled.models.analyses.fit import terms

BOUNDS: dict[str, Any] = {
    "age": (18, 95),
    "sex": ["female", "male"],
    "severity": ["mild", "moderate", "severe"],
    "arm": ["usual", "new"],
    "complication": ["no", "yes"],
    "days": (0, 365),
    "died": (0, 1),
}
SHARES = {"baseline": 0.2, "complications": 0.2, "adjusted": 0.4, "mortality": 0.2}


def known(*names: str) -> dict[str, Any]:
    """The declarations of these columns."""
    return {name: BOUNDS[name] for name in names}


def study(epsilon: float, trial: pd.DataFrame) -> unpooled.Study:
    """The tutorial's study; noise from a seed, so that the page can be made again."""
    logistic = unpooled.PrivateGLM("logistic", bounds=known("age", "severity", "arm"), classes=["no", "yes"])
    names = ["age", "sex", "severity", "arm"]
    analyses = {
        "baseline": lambda frame, **rows: unpooled.describe(frame[names], known(*names), by="arm", **rows),
        "complications": lambda frame, **rows: unpooled.tabulate(
            frame, ["arm", "complication"], known("arm", "complication"), **rows
        ),
        "adjusted": lambda frame, **rows: logistic.fit(frame, formula="complication ~ arm + age + severity", **rows),
        "mortality": lambda frame, **rows: unpooled.survival(
            frame, "days", "died", "arm", known("days", "died", "arm"), **rows
        ),
    }
    return unpooled.Study(analyses, epsilon=epsilon, shares=SHARES, random_state=0).fit(trial, sites=trial["centre"])


def lines_of(found: unpooled.Study) -> dict[tuple[str, str], tuple[float, float | None, float | None]]:
    """Every number by (analysis and group, name), over all centres where there are figures of single ones."""
    results = {
        "baseline": found["baseline"].table_,
        "complications": found["complications"].table_,
        "mortality": found["mortality"].result_,
    }
    shown = {
        (t.group, t.term): (t.estimate, t.conf_low, t.conf_high)
        for t in terms(found.plan_, results)
        if not any(centre in t.group for centre in make_trial((2, 2, 2, 2)))
    }
    adjusted = {("adjusted", t.term): (t.estimate, t.conf_low, t.conf_high) for t in found["adjusted"].summary().terms}
    return shown | adjusted


def main(full: bool) -> None:  # noqa: ARG001 - there is one size
    """Write both intervals of every number."""
    warnings.simplefilter("ignore", BudgetWarning)
    trial = pd.concat(pd.DataFrame(columns).assign(centre=name) for name, columns in make_trial().items())
    private, exact = lines_of(study(1.0, trial)), lines_of(study(math.inf, trial))

    def words(found: tuple[float, float | None, float | None] | None) -> str:
        if found is None:
            return "not identified"
        value, low, high = found
        return f"{value:.4g}" if low is None or high is None else f"{value:.4g} [{low:.4g}, {high:.4g}]"

    rows = [(group, term, words(private.get((group, term))), words(one)) for (group, term), one in exact.items()]
    write_table(
        "trial",
        "The trial of the tutorial at epsilon 1: every number, and the one without privacy",
        ("analysis", "number", "epsilon 1", "without privacy"),
        rows,
        "Noise is from a seed. Counts hold the noise alone, so that without privacy they have no interval. Without cuts the number of intervals of "
        "survival follows from the budget: 4 at this share of epsilon 1, and 12 without privacy.",
    )


if __name__ == "__main__":
    run(main)
