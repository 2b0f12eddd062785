"""Complete cases of columns at two parties: coverage of slopes by what the gaps follow, and what the rule costs where nothing is missing.

Declared before any run: party p holds a (normal), s (lognormal, spread .6) and g (two levels, a third of the rows in the rarer one), party q holds c
(normal), t (lognormal, spread .5) and the response, y = .5 a + .3 s - .6 g + .2 c - .3 t + e; a is related to s, g and c. s, g and t have gaps: none; at
random, 20 % of the rows at p and 15 % at q; by a; by s and by t themselves; or, where the rule does not hold, by the response. The targets are the
slopes of complete data. A cell is 100 studies, played on exact totals with planned noise, of 5,000 and 20,000 rows at epsilon 1 and 3. "no rule" is the
study in which no column may be missing, on rows without gaps. Runs are kept cell by cell, and continue where they stopped.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table

from unpooled.models.bayes.columns import SineDesign, design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.design import JointDesign
from unpooled.products.moments import imagine

RUNS, DELTA = 100, 1e-5
ROWS, EPSILONS = (5000, 20_000), (1.0, 3.0)
CAUSES = ("no rule", "none", "nothing", "a", "themselves", "the response")
TRUTH = {"a": 0.5, "s": 0.3, "g: 1 - 0": -0.6, "c": 0.2, "t": -0.3}


def expit(x: np.ndarray) -> np.ndarray:
    """Return the probability of these log odds."""
    return np.asarray(1 / (1 + np.exp(-x)))


def people(cause: str, n: int, rng: np.random.Generator) -> dict[str, Table]:
    """Return made-up rows of both parties."""
    z = rng.normal(size=(n, 5))
    a, c = z[:, 0].clip(-4, 4), (0.5 * z[:, 0] + z[:, 3]).clip(-5, 5)
    s, t = np.exp(0.6 * (z[:, 1] + 0.5 * z[:, 0])).clip(0, 8), np.exp(0.5 * z[:, 4]).clip(0, 8)
    g = z[:, 2] + 0.4 * z[:, 0] > 0.5
    y = (np.column_stack([a, s, g, c, t]) @ list(TRUTH.values()) + rng.normal(size=n)).clip(-8, 8)
    at_p, at_q = {
        "no rule": (0 * y, 0 * y),
        "none": (0 * y, 0 * y),
        "nothing": (0.2 + 0 * y, 0.15 + 0 * y),
        "a": (expit(-1.6 + 0.8 * a), expit(-2.0 + 0.8 * a)),
        "themselves": (expit(-2.1 + 0.5 * s), expit(-2.3 + 0.5 * t)),
        "the response": (expit(-1.6 + 0.8 * y), expit(-2.0 + 0.8 * y)),
    }[cause]
    gone_p, gone_q, first = rng.random(n) < at_p, rng.random(n) < at_q, rng.random(n) < 0.5
    levels = np.where(g, "1", "0").astype(object)
    levels[gone_p & ~first] = None
    return {
        "p": Table({"a": a, "s": np.where(gone_p & first, np.nan, s), "g": levels}),
        "q": Table({"c": c, "t": np.where(gone_q, np.nan, t), "y": y}),
    }


def planned(rule: str, n: int, epsilon: float) -> JointDesign | SineDesign:
    """Return the design of the study in which s, g and t have this rule for missing values."""
    gone = {"missing": rule}
    p = (Column("a", -4.0, 4.0), Column("s", 0.0, 8.0, **gone), Column("g", categories=("0", "1"), **gone))  # type: ignore[arg-type]
    q = (Column("c", -5.0, 5.0), Column("t", 0.0, 8.0, **gone), Column("y", -8.0, 8.0))  # type: ignore[arg-type]
    own = {"response": "y", "split": "columns", "method": "moments"}
    cards = Card("p", n, p), Card("q", n, q)
    return design_of(Study("bayes", cards, epsilon, DELTA, parameters=own, derived=(), helpers=(HelperCard("helper"),)))


def played(design: Any, drawn: Callable[[int], dict[str, Table]], runs: int) -> list[list[float]]:
    """Return (line, whether the interval holds the slope of complete data, its distance in errors, standard error, whole rows) of every line."""
    found = []
    for seed in range(runs):
        moments = imagine(design, drawn(seed), np.random.default_rng([seed, 7]))
        for line in moments.summary().terms:
            if line.term in TRUTH:
                truth = TRUTH[line.term]
                held = float(line.conf_low <= truth <= line.conf_high)
                away = (line.estimate - truth) / line.std_error
                found.append([float(list(TRUTH).index(line.term)), held, away, line.std_error, float(moments.rows)])
    return found


def cell(cause: str, n: int, epsilon: float) -> list[list[float]]:
    """Return the lines of all runs of a cell."""
    design = planned("refuse" if cause == "no rule" else "complete", n, epsilon)
    return played(design, lambda seed: people(cause, n, np.random.default_rng([seed, n])), RUNS)


def row_of(found: np.ndarray, runs: int) -> list[str]:
    """Return the coverage of every slope and of all, how many lines are printed, and the median standard error."""
    lines = [found[found[:, 0] == k] for k in range(len(TRUTH))]
    shown = [f"{own[:, 1].mean():.3f}" if len(own) else "no line" for own in lines]
    printed = len(found) / runs / len(TRUTH)
    return [*shown, f"{found[:, 1].mean():.3f}", f"{printed:.2f}", f"{np.median(found[:, 3]):.4f}"]


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    rows = []
    for n, epsilon, cause in itertools.product(ROWS, EPSILONS, CAUSES):
        found = np.array(kept(["joint gaps", cause, n, epsilon], partial(cell, cause, n, epsilon)))
        rows.append([f"{n:,}", f"{epsilon:g}", cause, f"{found[:, 4].mean() / n:.0%}", *row_of(found, RUNS)])
    head = ["rows", "epsilon", "gaps by", "whole", *TRUTH, "all", "lines printed", "median error"]
    note = f"Share of 95 % intervals that hold the slope of complete data; s, g and t have the gaps. {RUNS} played studies a cell."
    write_table("joint/gaps", "Complete cases of columns at two parties", head, rows, note)


if __name__ == "__main__":
    run(main)
