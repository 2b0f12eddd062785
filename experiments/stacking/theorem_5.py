"""Stacking, Proposition 2 and Theorem 5: the rows they want against d and epsilon, beside the rows at which a model is measured to be as good."""

from __future__ import annotations

import numpy as np
from experiments.common import run, write_table

from unpooled import Bounds, PrivateLogisticRegression
from unpooled.models.stacking.sample_size import rows_wanted

EXCESS, LENGTH, SIZES = 0.05, 3.0, (250, 500, 1000, 2000, 4000, 8000, 16000, 32000)


def loss(model: PrivateLogisticRegression, X: np.ndarray, y: np.ndarray) -> float:
    """Mean logistic loss."""
    return float(np.logaddexp(0, -(2 * y - 1) * model.decision_function(X)).mean())


def needed(columns: int, epsilon: float, seeds: range) -> float:
    """The smallest of the sizes at which 95 % of the runs lose at most so much more than the reference model."""
    for size in SIZES:
        worse = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            truth = rng.normal(size=columns)
            truth *= LENGTH / np.linalg.norm(truth)
            X = rng.normal(size=(size + 4000, columns))
            X /= np.linalg.norm(X, axis=1, keepdims=True)
            y = (rng.random(size + 4000) < 1 / (1 + np.exp(-X @ truth))).astype(int)
            model = PrivateLogisticRegression(
                epsilon=epsilon, bounds=Bounds(norm=1.0), classes=(0, 1), fit_intercept=False, penalty=EXCESS / LENGTH**2,
                random_state=seed,
            ).fit(X[:size], y[:size])  # fmt: skip
            reference = float(np.logaddexp(0, -(2 * y[size:] - 1) * (X[size:] @ truth)).mean())
            worse.append(loss(model, X[size:], y[size:]) - reference > EXCESS)
        if np.mean(worse) <= 0.05:
            return size
    return np.inf


def main(full: bool) -> None:
    """D and epsilon one at a time; both columns relative to the first row, for the constant is unknown."""
    rows, seeds = [], range(100 if full else 20)
    for columns, epsilon in ((5, 1.0), (10, 1.0), (20, 1.0), (40, 1.0), (10, 0.3), (10, 3.0)):
        wanted = rows_wanted(LENGTH, columns, excess=EXCESS, epsilon=epsilon)
        rows.append((columns, epsilon, needed(columns, epsilon, seeds), wanted))
    write_table(
        "stacking/theorem_5",
        f"Rows wanted for an excess loss of {EXCESS} in 95 % of runs: measured (powers of two) and by Proposition 2 with constant 1",
        ["columns", "epsilon", "measured", "theorem", "measured / theorem"],
        [[str(d), f"{e:g}", f"{m:g}", f"{w:.0f}", f"{m / w:.3f}"] for d, e, m, w in rows],
    )


if __name__ == "__main__":
    run(main)
