"""Calibration of stacks whose columns are split: what counts of classes along the parties' scores make of it, beside averages of log odds.

16 normal columns with one common factor are dealt to the parties; a linear predictor of deviation 1.2; base rates of about .5 and .35 in turn; delta
1e-5, replace. Every cell is fitted without these counts (``probabilities_share=0``: log odds are averaged) and as it is by default. The constants were
chosen by ``experiments/stacking/probabilities.py``, on other shapes and seeds: no cell of this table chose anything.
"""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.tuned_peers import losses, slope
from scipy.special import expit

from unpooled import PrivateStackingClassifier
from unpooled.privacy.accounting import budget_mu

PARTIES, CORRELATIONS = (2, 4, 8), (0.0, 0.3, 0.6)
SIZES = ((400, 1.0), (500, 1.0), (2000, 1.0), (5000, 3.0), (20_000, 1.0))
SHARES, COLUMNS, NEW, HALF_RANGE, FULL, REDUCED = (0.0, None), 16, 4000, 4.0, 10, 2
DELTA, FROM, TO, VARIES = 1e-5, 0.8, 1.25, 0.1


def played(parties: int, correlation: float, rows: int, epsilon: float, seed: int) -> list[float]:
    """Return the loss of a released base rate over the best one's; then (loss over the best rate's, slope, deviation of log odds) before and after."""
    rng = np.random.default_rng([seed, parties, rows])
    count = rows + NEW
    X = np.sqrt(1 - correlation) * rng.normal(size=(count, COLUMNS)) + np.sqrt(correlation) * rng.normal(size=(count, 1))
    u = X @ rng.normal(size=COLUMNS)
    u = 1.2 * (u - u.mean()) / u.std() - 0.8 * (seed % 2)
    y, X = (rng.random(count) < expit(u)).astype(int), np.clip(X / HALF_RANGE, -1, 1)
    new = y[rows:]
    best = losses(classes=True, p=np.full(new.size, new.mean()), y=new)
    rate = np.clip(y[:rows].mean() + rng.normal() / budget_mu(epsilon, DELTA) / rows, 1 / (rows + 2), 1 - 1 / (rows + 2))
    found = [losses(classes=True, p=np.full(new.size, rate), y=new) / best]
    for share in SHARES:
        given = {} if share is None else {"probabilities_share": share}
        model = PrivateStackingClassifier(
            parties, epsilon=epsilon, delta=DELTA, bounds=(-1, 1), classes=(0, 1), random_state=seed, **given
        ).fit(X[:rows], y[:rows])
        log_odds = model.decision_function(X[rows:])
        p = expit(log_odds)
        found += [losses(classes=True, p=p, y=new) / best, slope(p, new), float(log_odds.std())]
    return found


def runs_of(cell: tuple[int, float, int, float], often: int) -> np.ndarray:
    """Return a line for every seed, as far as they are not there yet."""
    return np.array([kept([*cell, seed], lambda s=seed: played(*cell, s)) for seed in range(often)])


def main(full: bool) -> None:
    """Write means of losses and medians of slopes over seeds."""
    warnings.simplefilter("ignore")
    lines, slopes, better, close, worst, within = [], {0: [], 1: []}, 0, 0, 0.0, 0
    for parties, correlation, (rows, epsilon) in itertools.product(PARTIES, CORRELATIONS, SIZES):
        runs = runs_of((parties, correlation, rows, epsilon), FULL if full else REDUCED)
        mean, median = (
            runs.mean(axis=0),
            [float(np.nanmedian(runs[:, 2 + 3 * k])) if (runs[:, 3 + 3 * k] > VARIES).any() else math.nan for k in (0, 1)],
        )
        for k, found in slopes.items():
            if mean[3 + 3 * k] > VARIES:
                found.append(median[k])
        better += mean[4] <= mean[1]
        close += mean[4] <= mean[1] + 0.002
        within += mean[4] <= mean[0] + 0.002
        worst = max(worst, mean[4] / mean[0])
        cells = (f"{mean[1 + 3 * k]:.3f} ({median[k]:.2f})" for k in (0, 1))
        lines.append((str(parties), f"{correlation:g}", f"{rows:,}", f"{epsilon:g}", f"{mean[0]:.3f}", *cells))
        print(*lines[-1], flush=True)
    inside = [sum(FROM <= found <= TO for found in slopes[k]) for k in (0, 1)]
    medians = [np.median(slopes[k]) for k in (0, 1)]
    write_table(
        "stacking/calibration",
        "Log-loss over that of the best base rate (calibration slope) of stacks: log odds averaged, and probabilities from counts along scores",
        ("parties", "correlation", "rows", "epsilon", "released rate", "averaged", "from counts"),
        lines,
        f"Cells whose log odds vary by more than {VARIES:g}: slopes between {FROM:g} and {TO:g} in {inside[0]} of {len(slopes[0])} before and "
        f"{inside[1]} of {len(slopes[1])} after; median slope {medians[0]:.2f} before, {medians[1]:.2f} after. The loss is no larger than before in "
        f"{better} of {len(lines)} cells, and by at most .002 larger in {close}; it is at most .002 above that of a base rate released with the whole "
        f"budget in {within}, and at most {worst:.3f} times it in all.",
    )


if __name__ == "__main__":
    run(main)
