"""Test error of joint moments compared with the prototype's, pooled least squares, and each party's own least squares, on the prototype's design.

Two parties hold half of the columns each, the second one the response; with one helper the noise has the variance factor 1.5. The noise is ideal
Gaussian noise of the planned deviations on exact totals, the budget is by mu, and the 50 seeds are the prototype's. The claim: the excess over pooled
least squares is at most 1.15 times the prototype's, or within two paired standard errors of it where it is below .02. The prototype is read from
``UNPOOLED_PROTOTYPES`` (default: ../shared/prototypes next to the repository). Each cell is a file under build/joint, and runs continue there.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
from experiments.common import run, write_table
from experiments.joint.coverage import WHERE, code
from experiments.joint.played import play
from scipy.optimize import brentq
from scipy.stats import norm

from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.design import JointBudget

CELLS = (
    (1000, 8, 1.0),
    (2000, 8, 0.3),
    (2000, 8, 1.0),
    (5000, 8, 0.3),
    (5000, 8, 1.0),
    (20_000, 8, 1.0),
    (5000, 30, 1.0),
    (20_000, 30, 0.3),
)
SEEDS, FEW, TESTED, DELTA, FACTOR = 50, 20, 2000, 1e-5, 1.5
NAMES = ("ours", "ours, least squares", "prototype", "pooled", "party 1 alone", "party 2 alone")
PROTOTYPES = Path(os.environ.get("UNPOOLED_PROTOTYPES", Path(__file__).parents[3] / "shared" / "prototypes"))


def mu_of(epsilon: float) -> float:
    """The mu of Gaussian differential privacy that this epsilon and delta allow."""

    def excess(mu: float) -> float:
        return norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - DELTA

    return float(brentq(excess, 1e-4, 60))


def errors(n: int, d: int, epsilon: float, seed: int) -> list[float]:
    """Test errors over the variance of the response, in the order of ``NAMES``."""
    sys.path.insert(0, str(PROTOTYPES))
    from joint_moments import made_up
    from joint_moments import study as prototype

    rng = np.random.default_rng(seed)
    x, y = made_up(rng, n + TESTED, d)
    half = d // 2
    halves = [list(range(half)), list(range(half, d))]
    own, new, spread = x[:n], x[n:], y[n:].var()

    def error(slopes: np.ndarray, intercept: float) -> float:
        return float(np.mean((y[n:] - new @ slopes - intercept) ** 2) / spread)

    def alone(columns: list[int]) -> float:
        found = np.linalg.lstsq(np.column_stack([own[:, columns], np.ones(n)]), y[:n], rcond=None)[0]
        slopes = np.zeros(d)
        slopes[columns] = found[:-1]
        return error(slopes, found[-1])

    theirs = error(*prototype(own, y[:n], halves, epsilon, DELTA, rng, FACTOR)[:2])
    columns = [Column(f"x{j}", -1.0, 1.0) for j in range(d)]
    cards = (
        Card("one", n, tuple(columns[:half])),
        Card("two", n, (*columns[half:], Column("y", -3.0, 3.0))),
    )
    study = Study(
        "joint",
        cards,
        epsilon,
        DELTA,
        derived=(),
        parameters={"response": "y", "method": "moments"},
        helpers=(HelperCard("helper"),),
    )
    tables = {
        "one": Table({f"x{j}": own[:, j] for j in halves[0]}),
        "two": Table({f"x{j}": own[:, j] for j in halves[1]} | {"y": y[:n]}),
    }
    design = design_of(study, JointBudget(mu_of(epsilon), FACTOR))
    moments = play(design, tables, np.random.default_rng([seed, 7]))
    fits = [moments.posterior(), moments.ols()]
    ours = [error(fit.coef_, fit.intercept_) for fit in fits]
    return [*ours, theirs, alone(list(range(d))), *map(alone, halves)]


def measured(cell: tuple[int, int, float], seeds: int, version: str) -> np.ndarray:
    """Errors of all seeds, those that are there already first."""
    file = WHERE / f"excess-{cell[0]}-{cell[1]}-{cell[2]:g}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    if found.get("code") != version:
        found = {"code": version, "errors": []}
    while len(found["errors"]) < seeds:
        found["errors"].append(errors(*cell, len(found["errors"])))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    return np.array(found["errors"][:seeds])


def main(full: bool) -> None:
    """All cells, and whether the claim holds in each."""
    seeds = SEEDS if full else FEW
    version = code() + hashlib.sha256((PROTOTYPES / "joint_moments.py").read_bytes()).hexdigest()[:12]
    rows, held = [], 0
    for cell in CELLS:
        found = measured(cell, seeds, version)
        ours, theirs, pooled = found[:, 0], found[:, 2], found[:, 3]
        excess, other = float((ours - pooled).mean()), float((theirs - pooled).mean())
        error = float((ours - theirs).std(ddof=1)) / np.sqrt(seeds)
        close = other < 0.02 and excess - other <= 2 * error
        holds = excess <= 1.15 * other or close
        held += holds
        numbers = [f"{value:.3f}" for value in found.mean(axis=0)]
        words = f"{excess / other:.2f}"
        paired = f"{excess - other:+.4f} ({error:.4f})"
        rows.append([f"{cell[0]}, {cell[1]}, {cell[2]:g}", *numbers, words, paired, "yes" if holds else "NO"])
        print(" | ".join(rows[-1]), flush=True)
    head = ("n, columns, epsilon", *NAMES, "excess / prototype's", "difference (paired error)", "claim holds")
    words = (
        f"Mean test error over the variance of the response, {seeds} seeds. The claim holds in {held} of {len(CELLS)} cells."
    )
    write_table("joint/excess", "Joint moments compared with their prototype", head, rows, words)


if __name__ == "__main__":
    run(main)
