"""Figure 3 of the stacking paper: importance alpha^i in place of the variance of the i-th principal component, on both sides of 1.

K = 5, epsilon = 1, half of the training rows for the low level, half for the high level. The penalty is chosen for each method and alpha by the
mean AUC on a validation set (a third of the training rows), never by the test set. Below 1 the first components weigh most; above 1 the last do.
"""

from __future__ import annotations

import numpy as np
from experiments.common import curves, run, write_table
from experiments.stacking._protocol import GROUPS, NOTE, REPETITIONS, Data, cell, mnist, newsgroups
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


def main(full: bool) -> None:  # noqa: ARG001 - one size, the paper's: ten repetitions
    """One row per data set and alpha, and the uniform weights of PST-F(U)."""
    rows, panels = [], {}
    metas = {"high-level model (paper)": "trusted", "public weights (ours)": "public-weights"}
    for label, data in {"newsgroups": newsgroups(), "MNIST 0/8": mnist()}.items():
        found = {}
        for name, importance in [("uniform", None), *((f"{a:g}", a ** np.arange(1, 101)) for a in ALPHAS)]:
            found[name] = [best(data, REPETITIONS, importance, meta) for meta in metas.values()]
            rows.append([label, name, *map(cell, found[name])])
            print(rows[-1], flush=True)
        lines = {}
        for k, meta in enumerate(metas):
            values = np.array([found[f"{a:g}"][k] for a in ALPHAS])
            middle, spread = values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(REPETITIONS)
            lines[meta] = (np.array(ALPHAS), middle, (middle - spread, middle + spread))
            lines[f"uniform, {meta}"] = (np.array([1.0]), found["uniform"][k].mean(keepdims=True), np.zeros((2, 1)))
        panels[label] = lines
    write_table(
        "stacking/figure_3",
        f"Figure 3: AUC against the exponent's base, epsilon = 1, K = {GROUPS}, {REPETITIONS} repetitions",
        ["data", "alpha", *metas],
        rows,
        NOTE,
    )
    curves("stacking/figure_3", panels, "alpha", log=False, logy=False)


if __name__ == "__main__":
    run(main)
