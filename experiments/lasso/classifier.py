"""Sparse logistic regression on split columns beside the base rate and scikit-learn without privacy: 20,000 rows, 40 columns, four parties (ours, not the paper's).

Independent normal columns of deviation 0.3 in ranges (-1, 1), four of them with log odds 3, -3, 2, -2; the classes are even, or one in twelve.
"""

from __future__ import annotations

import warnings

import numpy as np
from experiments.common import run, write_table
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from unpooled import PrivateLassoClassifier

ROWS, COLUMNS, PARTIES, RADIUS, DELTA = 20_000, 40, 4, 12.0, 1e-5
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


def drawn(constant: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes."""
    X = 0.3 * rng.normal(size=(ROWS, COLUMNS))
    odds = X[:, [0, 7, 15, 22]] @ [3.0, -3.0, 2.0, -2.0] + constant
    return X, (rng.random(ROWS) < expit(odds)).astype(int)


def main(full: bool) -> None:
    """Three repetitions (ten in the full size)."""
    warnings.simplefilter("ignore", UserWarning)
    rows = []
    for constant in (0.0, -3.0):
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(10 if full else 3):
            rng = np.random.default_rng([seed, int(-constant)])
            (X, y), (new, truth) = drawn(constant, rng), drawn(constant, rng)
            base = log_loss(truth, np.full(ROWS, y.mean()))
            free = LogisticRegression(C=1e6).fit(X, y)
            arms = {"without privacy": free}
            for unit in ("attribute", "record"):
                for epsilon in EPSILONS:
                    model = PrivateLassoClassifier(
                        PARTIES, radius=RADIUS, epsilon=epsilon, delta=DELTA, bounds=(-1, 1), classes=(0, 1), unit=unit
                    )
                    arms[f"{unit}, {epsilon:g}"] = model.fit(X, y)
            for name, model in arms.items():
                measured = (
                    roc_auc_score(truth, model.decision_function(new)),
                    log_loss(truth, model.predict_proba(new)) / base,
                )
                found.setdefault(name, []).append(measured)
        said = "even" if not constant else "one in twelve"
        rows += [[said, name, *(f"{m:.3f}" for m in np.median(pairs, axis=0))] for name, pairs in found.items()]
    header = ["classes", "unit, epsilon", "AUC", "log-loss over the base rate's"]
    write_table(
        "lasso/classifier",
        "Sparse logistic regression on split columns",
        header,
        rows,
        f"{ROWS} x {COLUMNS}, {PARTIES} parties; medians.",
    )


if __name__ == "__main__":
    run(main)
