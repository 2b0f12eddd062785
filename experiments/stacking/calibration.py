"""Calibration of stacks whose columns are split: the combined log odds, times powers of the number of parties.

``combiner="log-odds"`` averages the log odds of K parties, which is right where all know the same; where each knows something of its own they add up.
A power of 0 adds what each says apart from the mean log odds, 1 averages it, and 1/2 lies between. The mean log odds are those of the new rows, which
no release tells: the table says what a release of them could buy, and not what a study gets. 16 normal columns with one common factor, dealt to the
parties; a linear predictor of deviation 1.2; delta 1e-5, replace.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from experiments.common import run, write_table
from experiments.tuned_peers import losses, slope
from scipy.special import expit, logit

from unpooled import PrivateStackingClassifier

PARTIES, CORRELATIONS, SIZES = (2, 4, 8), (0.0, 0.3, 0.6), ((500, 1.0), (2000, 1.0), (5000, 3.0), (20_000, 1.0))
POWERS, COLUMNS, NEW, HALF_RANGE, FULL, REDUCED = (0.0, 0.5, 1.0), 16, 4000, 4.0, 10, 3


def played(parties: int, correlation: float, rows: int, epsilon: float, seed: int) -> list[tuple[float, float]]:
    """Return (log-loss over that of the base rate, calibration slope) for every power."""
    rng = np.random.default_rng([seed, parties, rows])
    count = rows + NEW
    X = np.sqrt(1 - correlation) * rng.normal(size=(count, COLUMNS)) + np.sqrt(correlation) * rng.normal(size=(count, 1))
    u = X @ rng.normal(size=COLUMNS)
    u = 1.2 * (u - u.mean()) / u.std() - 0.8 * (seed % 2)
    y, X = (rng.random(count) < expit(u)).astype(int), np.clip(X / HALF_RANGE, -1, 1)
    model = PrivateStackingClassifier(
        parties, epsilon=epsilon, delta=1e-5, bounds=(-1, 1), classes=(0, 1), random_state=seed
    ).fit(X[:rows], y[:rows])
    low = np.stack(model._low(X[rows:]), axis=1)[:, :, 1]  # noqa: SLF001 - what every party says
    odds, new = logit(np.clip(low, 1e-9, 1 - 1e-9)), y[rows:]
    middle = odds.mean()
    base = losses(classes=True, p=np.full(new.size, new.mean()), y=new)
    found = []
    for power in POWERS:
        p = expit(middle + (odds - middle).sum(axis=1) * parties**-power)
        found.append((losses(classes=True, p=p, y=new) / base, slope(p, new)))
    return found


def main(full: bool) -> None:
    """Write means over seeds."""
    warnings.simplefilter("ignore")
    lines, better = [], 0
    for parties, correlation, (rows, epsilon) in itertools.product(PARTIES, CORRELATIONS, SIZES):
        runs = np.array([played(parties, correlation, rows, epsilon, seed) for seed in range(FULL if full else REDUCED)])
        loss, slopes = runs[..., 0].mean(axis=0), np.nanmedian(runs[..., 1], axis=0)
        better += loss[1] < loss[2]
        cells = (f"{loss[k]:.3f} ({slopes[k]:.2f})" for k in range(len(POWERS)))
        lines.append((str(parties), f"{correlation:g}", f"{rows:,}", f"{epsilon:g}", *cells))
        print(*lines[-1], flush=True)
    write_table(
        "stacking/calibration",
        "Log-loss over that of the base rate (calibration slope) of stacks, by the power of 1/K on what parties say",
        ("parties", "correlation", "rows", "epsilon", *(f"power {power:g}" for power in POWERS)),
        lines,
        f"A power of 1/2 has the smaller loss than an average in {better} of {len(lines)} cells.",
    )


if __name__ == "__main__":
    run(main)
