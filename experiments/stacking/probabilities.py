"""What the constants of a stack's probabilities were chosen by: made-up studies of declared shapes, each drawn at random.

A study has 2 to 10 parties of 1 to 4 columns each, 400 to 30,000 rows, epsilon .5 to 4 and delta 1e-5; columns are normal, skewed, copies of each other or
two-valued, with one common factor (correlation 0 to .6), half ranges of 2.5 to 8 deviations; the linear predictor's deviation is .5 to 1.5, the base rate
.2 to .5. Each is fitted with several shares of the budget, and the same releases are read with several beliefs: of slopes of 0, and of how
scores of different parties are correlated.
"""

from __future__ import annotations

import math
import warnings
from unittest import mock

import msgspec
import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.tuned_peers import losses, slope
from scipy.optimize import brentq
from scipy.special import expit

from unpooled import PrivateStackingClassifier
from unpooled.kernels.score_posterior import Slopes
from unpooled.models.stacking import fit, low_level
from unpooled.privacy.accounting import budget_mu

SHARES, MASSES, COMMON = (0.3, 0.4, 0.5, 0.6), (0.5, 0.7), (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
NEW, DELTA, FULL, REDUCED, TYPICAL = 4000, 1e-5, 150, 6, 0.3
SHAPES = ("normal", "skewed", "copies", "two-valued")


def drawn(seed: int) -> tuple[int, int, float, np.ndarray, np.ndarray]:
    """Return (parties, rows, epsilon, coded columns, classes) of one made-up study and its new rows."""
    rng = np.random.default_rng([77, seed])
    parties, rows = int(rng.choice([2, 3, 5, 8, 10])), int(np.exp(rng.uniform(np.log(400), np.log(30_000))))
    epsilon, columns = float(rng.choice([0.5, 1, 2, 4])), parties * int(rng.integers(1, 5))
    common, signal, rate = rng.uniform(0, 0.6), rng.uniform(0.5, 1.5), rng.uniform(0.2, 0.5)
    half, shape, count = rng.uniform(2.5, 8), str(rng.choice(SHAPES)), rows + NEW
    X = np.sqrt(1 - common) * rng.normal(size=(count, columns)) + np.sqrt(common) * rng.normal(size=(count, 1))
    if shape == "copies":
        apart = X[:, : (columns + 2) // 3]
        X = apart[:, rng.integers(0, apart.shape[1], columns)] + 0.1 * rng.normal(size=(count, columns))
    elif shape == "skewed":
        X = (np.exp(0.6 * X) - math.exp(0.18)) / 0.75
    elif shape == "two-valued":
        X = np.where(X > 0.5, 1.0, -1.0)
    u = X @ rng.normal(size=columns)
    u *= signal / u.std()
    u += brentq(lambda a: expit(u + a).mean() - rate, -30, 30)
    coded = X if shape == "two-valued" else np.clip(X / half - 0.5 * (shape == "skewed"), -1, 1)
    return parties, rows, epsilon, coded, (rng.random(count) < expit(u)).astype(int)


def read_again(given: tuple, each: np.ndarray) -> dict[str, np.ndarray]:
    """Return log odds of new rows for every belief, from the same releases."""
    found = {}
    for mass in MASSES:
        with mock.patch.object(low_level, "BELIEVED", Slopes(mass, TYPICAL)):
            made = low_level.calibrated(*given)
        more = (1 / made.factor - 1) / low_level.COMMON  # parties that say something, less one (Theorem S.17)
        for common in COMMON:
            again = msgspec.structs.replace(made, factor=1 / (1 + common * more))
            found[f"{mass:g}, {common:g}"] = again.log_odds(each)
    return found


def played(seed: int) -> dict[str, list[float]]:
    """Return (loss over the best base rate's, slope) of averages, of a released base rate, and of every share with every belief."""
    parties, rows, epsilon, X, y = drawn(seed)
    new = y[rows:]
    best = losses(classes=True, p=np.full(NEW, new.mean()), y=new)
    rng = np.random.default_rng([78, seed])
    rate = np.clip(y[:rows].mean() + rng.normal() / budget_mu(epsilon, DELTA) / rows, 1 / (rows + 2), 1 - 1 / (rows + 2))
    found = {"rate": [losses(classes=True, p=np.full(NEW, rate), y=new) / best, math.nan]}
    for share in (0.0, *SHARES):
        model = PrivateStackingClassifier(
            parties,
            epsilon=epsilon,
            delta=DELTA,
            bounds=(-1, 1),
            classes=(0, 1),
            random_state=seed,
            probabilities_share=share,
        )
        with mock.patch.object(fit, "calibrated", wraps=low_level.calibrated) as seen:
            model.fit(X[:rows], y[:rows])
        if share:
            each = np.hstack(model._decisions(X[rows:]))  # noqa: SLF001 - the scores that were counted
            lines = {f"{share:g}, {belief}": u for belief, u in read_again(seen.call_args.args, each).items()}
        else:
            lines = {"averaged": model.decision_function(X[rows:])}
        found |= {name: [losses(classes=True, p=expit(u), y=new) / best, slope(expit(u), new)] for name, u in lines.items()}
    return found


def main(full: bool) -> None:
    """Write means over the studies for every share and belief."""
    warnings.simplefilter("ignore")
    runs = [kept([seed], lambda s=seed: played(s)) for seed in range(FULL if full else REDUCED)]
    rate = np.array([r["rate"][0] for r in runs])
    lines = []
    for name in [name for name in runs[0] if name != "rate"]:
        loss, slopes = np.array([r[name] for r in runs], dtype=float).T
        known = slopes[~np.isnan(slopes)]
        share, mass, common = name.split(", ") if name != "averaged" else (name, "", "")
        inside = f"{((known >= 0.8) & (known <= 1.25)).mean():.0%}"
        lines.append(
            (share, mass, common, f"{loss.mean():.4f}", f"{(loss / rate).max():.2f}", f"{np.median(known):.2f}", inside)
        )
    write_table(
        "stacking/probabilities",
        "Log-loss over that of the best base rate, and calibration slopes, of made-up stacks by share and beliefs",
        (
            "share",
            "mass at 0",
            "correlation",
            "loss",
            "largest, over a released rate's",
            "median slope",
            "slopes .8 to 1.25",
        ),
        lines,
        f"{len(runs)} studies. Log odds averaged, then probabilities from counts along scores.",
    )


if __name__ == "__main__":
    run(main)
