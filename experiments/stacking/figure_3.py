"""Figure 3 of the stacking paper: importance alpha^i in place of the variance of the i-th principal component, on both sides of 1.

K = 5, epsilon = 1, half of the training rows for the low level, half for the high level. The penalty is chosen for each method and alpha by the
mean AUC on a validation set (a third of the training rows), never by the test set. Below 1 the first components weigh most; above 1 the last do.
"""

from __future__ import annotations

import numpy as np
from experiments.common import run, write_table
from experiments.stacking._protocol import GROUPS, Data, newsgroups
from sklearn.metrics import roc_auc_score

from unpooled import Bounds, PrivateStackingClassifier

ALPHAS = (0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1)
PENALTIES = (1e-3, 1e-2, 1e-1)


def best(data: Data, repetitions: int, importance: np.ndarray | None, meta: str) -> np.ndarray:
    """Test AUC over repetitions at the penalty of the best mean validation AUC."""
    X, y, X_test, y_test, norm, _ = data
    tested, validated = np.empty((2, len(PENALTIES), repetitions))
    for seed in range(repetitions):
        order = np.random.default_rng(seed).permutation(y.size)
        held, train = order[: y.size // 3], order[y.size // 3 :]
        for p, penalty in enumerate(PENALTIES):
            model = PrivateStackingClassifier(
                GROUPS,
                importance=importance,
                meta=meta,
                high_share=0.5,
                epsilon=1.0,
                bounds=Bounds(norm=float(norm)),
                classes=(0, 1),
                penalty=penalty,
                random_state=seed,
                public_seed=seed,
            ).fit(X[train], y[train])
            validated[p, seed] = roc_auc_score(y[held], model.decision_function(X[held]))
            tested[p, seed] = roc_auc_score(y_test, model.decision_function(X_test))
    return tested[int(validated.mean(axis=1).argmax())]


def main(full: bool) -> None:
    """One row per alpha, and the uniform weights of PST-F(U)."""
    data, repetitions, rows = newsgroups(), 10 if full else 4, []
    for name, importance in [("uniform", None), *((f"{a:g}", a ** np.arange(1, 101)) for a in ALPHAS)]:
        found = [best(data, repetitions, importance, meta) for meta in ("trusted", "public-weights")]
        rows.append([name, *(f"{v.mean():.3f} ± {v.std(ddof=1) / np.sqrt(v.size):.3f}" for v in found)])
        print(rows[-1], flush=True)
    header = ["alpha", "high-level model (paper)", "public weights (ours)"]
    write_table(
        "stacking/figure_3", f"Figure 3: AUC on newsgroups, epsilon = 1, K = 5, {repetitions} repetitions", header, rows
    )


if __name__ == "__main__":
    run(main)
