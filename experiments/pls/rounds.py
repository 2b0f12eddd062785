"""PLS by rounds against its one release, private regression on the same public scores, and the mean, on declared shapes.

Scores are normal with deviations that fall from 1 to ``decay`` (1: whitened) and have signal in each, R^2 .6; R is the length that 95 % of rows stay
below, y has a range of four deviations. Regression gets the same scores, each declared within four deviations of its own (which PLS is not given).
Test error is the root mean square over 2,000 new rows, over the deviation of y: medians of 9 seeds (reduced: 3), and the median ratio of PLS to regression.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from experiments.common import run, write_table

from unpooled import Bounds, PrivateLinearRegression, PrivatePLSRegression

ROWS, EPSILONS, SCORES, DECAYS = (200, 1000, 5000, 20_000), (0.3, 1.0, 3.0, 10.0), (5, 12, 30), (1.0, 0.05)
SEEDS, FEW, NEW, R2 = 9, 3, 2000, 0.6
HEAD = ("rows, scores, decay, epsilon", "k", "method", "PLS", "one release", "regression", "no privacy", "PLS / regression")


def once(n: int, d: int, decay: float, epsilon: float, seed: int) -> tuple[list[float], str, float]:
    """Errors of PLS, its one release, regression and least squares; the method of PLS, and its k."""
    rng = np.random.default_rng([seed, d, n])
    profile = np.geomspace(1.0, decay, d)
    slopes = rng.normal(size=d) / profile
    slopes *= math.sqrt(R2) / np.linalg.norm(slopes * profile)
    x = rng.normal(size=(n + NEW, d)) * profile
    y = np.clip(x @ slopes + math.sqrt(1 - R2) * rng.normal(size=n + NEW), -4, 4)
    bound = math.sqrt(float(np.square(profile).sum())) * (1 + 1.65 / math.sqrt(2 * d))
    given = {"epsilon": epsilon, "delta": 1e-5, "y_bounds": (-4, 4), "random_state": seed}
    spectra = {"basis": "none", "reference": np.zeros(d), "bounds": Bounds(norm=bound)}
    pls = PrivatePLSRegression(**given, **spectra).fit(x[:n], y[:n])
    one = PrivatePLSRegression(**given, **spectra, method="moments").fit(x[:n], y[:n])
    regression = PrivateLinearRegression(**given, bounds=Bounds(-4 * profile, 4 * profile)).fit(x[:n], y[:n])
    free = np.linalg.lstsq(np.column_stack([x[:n], np.ones(n)]), y[:n], rcond=None)[0]
    predicted = [model.predict(x[n:]) for model in (pls, one, regression)] + [x[n:] @ free[:-1] + free[-1]]
    design = pls.plan_.design
    k = n * design.aggregation.multiplier(pls.plan_.study) / (d + 1)
    return [float(np.sqrt(np.mean((p - y[n:]) ** 2)) / y[n:].std()) for p in predicted], pls.method_, k


def main(full: bool) -> None:
    """All cells."""
    warnings.simplefilter("ignore")
    rows = []
    for d in SCORES:
        for decay in DECAYS:
            for n in ROWS:
                for epsilon in EPSILONS:
                    runs = [once(n, d, decay, epsilon, seed) for seed in range(SEEDS if full else FEW)]
                    errors = np.array([errors for errors, _, _ in runs])
                    ratio = float(np.median(errors[:, 0] / errors[:, 2]))
                    numbers = [f"{v:.3f}" for v in (*np.median(errors, axis=0), ratio)]
                    _, method, k = runs[0]
                    rows.append([f"{n}, {d}, {decay:g}, {epsilon:g}", f"{k:.3g}", method, *numbers])
                    print(" | ".join(rows[-1]), flush=True)
    write_table("pls/rounds", "Partial least squares by rounds", HEAD, rows)


if __name__ == "__main__":
    run(main)
