"""Stacking, Table 2 (transfer): from one hospital with heart disease to another, at epsilon = 1."""

from __future__ import annotations

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.stacking._protocol import cell, hospitals, verdict
from sklearn.metrics import roc_auc_score

from unpooled import PrivateLogisticRegression, PrivateStackingClassifier

#: What a cardiologist would say without the data.
IMPORTANCE = np.array([2, 1, 4, 1, 1, 1, 3, 4, 4.0])
METHODS = ("PST-H(W)", "PST-H(U)", "PLR(target)")


def transfer(source: str, target: str, seed: int) -> list[float] | None:
    """Test AUC of PST-H(W), of PST-H(U) and of logistic regression on the target alone; None where a half has one class only."""
    (X_source, y_source), (X, y) = hospitals()[source], hospitals()[target]
    order = np.random.default_rng(seed).permutation(y.size)
    train, test = order[: y.size // 2], order[y.size // 2 :]
    if len(set(y[test])) < 2 or len(set(y[train])) < 2:
        return None
    shared = {"epsilon": 1.0, "bounds": (-1, 1), "classes": (0, 1), "penalty": 0.03, "random_state": seed}
    found = []
    for weights in (IMPORTANCE, None):
        stack = PrivateStackingClassifier(3, importance=weights, **shared).fit(X_source, y_source)
        model = PrivateStackingClassifier(3, importance=weights, prior=stack.released_, **shared).fit(X[train], y[train])
        found.append(float(roc_auc_score(y[test], model.decision_function(X[test]))))
    alone = PrivateLogisticRegression(**shared).fit(X[train], y[train])
    return [*found, float(roc_auc_score(y[test], alone.decision_function(X[test])))]


def main(full: bool) -> None:
    """The paper's hospital data are not public: four hospitals of the UCI collection stand in for them."""
    repetitions, rows, names = 50 if full else 10, [], list(hospitals())
    for source in names:
        for target in names:
            if source != target:
                runs = [
                    kept([source, target, s], lambda s=s, a=source, b=target: transfer(a, b, s)) for s in range(repetitions)
                ]
                weighted, uniform, alone = np.array([run for run in runs if run is not None]).T
                pairs = ((weighted, uniform), (weighted, alone), (uniform, alone))
                rows.append([source, target, *map(cell, (weighted, uniform, alone)), *(verdict(*pair) for pair in pairs)])
    write_table(
        "stacking/table_2",
        f"Heart disease: AUC on half of the target, epsilon = 1 (source and target each), {repetitions} repetitions",
        ["source", "target", *METHODS, "(W) above (U)", "(W) above the target alone", "(U) above the target alone"],
        rows,
        "The penalty is fixed beforehand (0.03): these sets are too small for a validation set. Verdicts by two standard errors of paired differences.",
    )


if __name__ == "__main__":
    run(main)
