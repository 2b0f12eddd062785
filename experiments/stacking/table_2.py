"""Stacking, Table 2 (transfer): from one hospital with heart disease to another, at epsilon = 1."""

from __future__ import annotations

import numpy as np
from experiments.common import run, write_table
from experiments.stacking._protocol import cell, hospitals
from sklearn.metrics import roc_auc_score

from unpooled import PrivateLogisticRegression, PrivateStackingClassifier


def transfer(repetitions: int) -> list[list[str]]:
    """Each hospital in turn as the source of the others: PST-H(W), PST-H(U), and logistic regression on the target alone, at epsilon = 1."""
    data = hospitals()
    importance = np.array([2, 1, 4, 1, 1, 1, 3, 4, 4.0])  # what a cardiologist would say without the data
    rows = []
    for source, (X_source, y_source) in data.items():
        for target, (X, y) in data.items():
            if source == target:
                continue
            found: dict[str, list[float]] = {"PST-H(W)": [], "PST-H(U)": [], "PLR(target)": []}
            for seed in range(repetitions):
                order = np.random.default_rng(seed).permutation(y.size)
                train, test = order[: y.size // 2], order[y.size // 2 :]
                if len(set(y[test])) < 2 or len(set(y[train])) < 2:
                    continue
                shared = {"epsilon": 1.0, "bounds": (-1, 1), "classes": (0, 1), "penalty": 0.03, "random_state": seed}
                for name, weights in (("PST-H(W)", importance), ("PST-H(U)", None)):
                    stack = PrivateStackingClassifier(3, importance=weights, **shared).fit(X_source, y_source)
                    model = PrivateStackingClassifier(3, importance=weights, prior=stack.released_, **shared)
                    found[name].append(roc_auc_score(y[test], model.fit(X[train], y[train]).decision_function(X[test])))
                alone = PrivateLogisticRegression(**shared).fit(X[train], y[train])
                found["PLR(target)"].append(roc_auc_score(y[test], alone.decision_function(X[test])))
            rows.append([source, target, *(cell(np.array(values)) for values in found.values())])
    return rows


def main(full: bool) -> None:
    """The paper's hospital data are not public: four hospitals of the UCI collection stand in for them."""
    repetitions = 50 if full else 10
    write_table(
        "stacking/table_2",
        f"Heart disease: AUC on half of the target, epsilon = 1 (source and target each), {repetitions} repetitions",
        ["source", "target", "PST-H(W)", "PST-H(U)", "PLR(target)"],
        transfer(repetitions),
        "The penalty is fixed beforehand (0.03): these sets are too small for a validation set.",
    )


if __name__ == "__main__":
    run(main)
