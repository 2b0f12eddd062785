"""PLR and stacking on MNIST 0/8, newsgroups sci/talk (Figures 1 to 4) and four heart-disease hospitals (like Table 2).

    python experiments/stacking_tables.py [repetitions]

The first rows are used for a projection to 100 principal components, for their variances (the public importance) and for the bound on row
norms, and are then dropped. Everything else is private at the stated epsilon, but the penalty: the best of four by test AUC is shown for each method,
as the paper does, which no private analysis could do.
"""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
from common import curves, data_file, write_table
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.metrics import roc_auc_score

from unpooled import Bounds, PrivateLogisticRegression, PrivateStackingClassifier

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)
GROUPS = 5

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, np.ndarray]


def mnist() -> Data:
    file = np.load(data_file("mnist_0_8.npz"))
    X, X_test = file["X_train"].astype(float) / 255, file["X_test"].astype(float) / 255
    held, pca = X[:2000], PCA(100, random_state=0).fit(X[:2000])
    y, y_test = file["y_train"][2000:], file["y_test"]
    top = max(np.unique(y))
    return _ready(pca.transform(held), pca.transform(X[2000:]), y == top, pca.transform(X_test), y_test == top)


def newsgroups() -> Data:
    file = np.load(data_file("newsgroups_sci_talk_tfidf.npz"))
    X = csr_matrix((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
    train, y = file["train"].astype(bool), file["y"]
    order = np.random.default_rng(0).permutation(int(train.sum()))
    rows, labels = X[train][order], y[train][order]
    svd = TruncatedSVD(100, random_state=0).fit(rows[:1000])
    centre = svd.transform(rows[:1000]).mean(axis=0)
    held, low, test = (svd.transform(part) - centre for part in (rows[:1000], rows[1000:], X[~train]))
    return _ready(held, low, labels[1000:] > 0, test, y[~train] > 0)


def _ready(held: np.ndarray, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Data:
    norm = float(np.quantile(np.linalg.norm(held, axis=1), 0.95))
    return X, y.astype(int), X_test, y_test.astype(int), norm, held.var(axis=0)


def auc(model, data: Data) -> float:
    X, y, X_test, y_test, _, _ = data
    return roc_auc_score(y_test, model.fit(X, y).decision_function(X_test))


def models(data: Data, epsilon: float, penalty: float, seed: int, groups: int = GROUPS, power: float = 1.0, **extra) -> dict:
    _, _, _, _, norm, variance = data
    shared = {"epsilon": epsilon, "bounds": Bounds(norm=norm), "classes": (0, 1), "penalty": penalty}
    shared |= {"random_state": seed, "public_seed": seed}
    stack = {**shared, **extra}
    return {
        "PLR": lambda: PrivateLogisticRegression(**shared),
        "PST-S": lambda: PrivateStackingClassifier(groups, split="samples", meta="high-level", **shared),
        "PST-S, public weights": lambda: PrivateStackingClassifier(groups, split="samples", **shared),
        "PST-F(U)": lambda: PrivateStackingClassifier(groups, **stack),
        "PST-F(W)": lambda: PrivateStackingClassifier(groups, importance=variance**power, **stack),
        "PST-F(W), trusted": lambda: PrivateStackingClassifier(groups, importance=variance**power, meta="trusted", **shared),
        "PLR, published": lambda: PrivateLogisticRegression(calibration="published", **shared),
        "PST-F(W), trusted, published": lambda: PrivateStackingClassifier(
            groups, importance=variance**power, meta="trusted", calibration="published", **shared
        ),
    }


def best(data: Data, name: str, repetitions: int, epsilon: float, **options) -> np.ndarray:
    """AUC over repetitions at the penalty with the best mean."""
    found = [
        [auc(models(data, epsilon, penalty, seed, **options)[name](), data) for seed in range(repetitions)]
        for penalty in PENALTIES
    ]
    return np.array(max(found, key=np.mean))


def cell(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(values.size):.3f}"


def hospitals() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Age, sex, chest pain, blood pressure, cholesterol, ECG, heart rate, angina, ST: what the four hospitals share, missing ones at the centre."""
    names = {"Cleveland": "cleveland", "Hungary": "hungarian", "Switzerland": "switzerland", "Long Beach": "va"}
    low = np.array([20, 0, 1, 80, 100, 0, 60, 0, -2.0])
    high = np.array([80, 1, 4, 200, 400, 2, 202, 1, 5.0])
    out = {}
    for name, file in names.items():
        frame = pl.read_csv(data_file(f"heart_{file}.data"), has_header=False, null_values="?", infer_schema_length=None)
        table = frame.cast(pl.Float64).to_numpy()
        X = table[:, [0, 1, 2, 3, 4, 6, 7, 8, 9]]
        X[:, 4] = np.where(X[:, 4] == 0, np.nan, X[:, 4])
        coded = np.clip((X - (low + high) / 2) / ((high - low) / 2), -1, 1)
        out[name] = np.nan_to_num(coded), (table[:, 13] > 0).astype(int)
    return out


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
                    model = PrivateStackingClassifier(3, importance=weights, source=stack.released_, **shared)
                    found[name].append(roc_auc_score(y[test], model.fit(X[train], y[train]).decision_function(X[test])))
                alone = PrivateLogisticRegression(**shared).fit(X[train], y[train])
                found["PLR(target)"].append(roc_auc_score(y[test], alone.decision_function(X[test])))
            rows.append([source, target, *(cell(np.array(values)) for values in found.values())])
    return rows


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    sets = {"MNIST 0/8": mnist(), "newsgroups": newsgroups()}
    rows, panels = [], {}
    for label, data in sets.items():
        lines = {}
        exact = auc(models(data, float("inf"), 1e-3, 0)["PLR"](), data)
        rows.append([label, "no noise", f"{exact:.3f}", *[""] * (len(EPSILONS) - 1)])
        for name in models(data, 1.0, 0.1, 0):
            found = [best(data, name, repetitions, epsilon) for epsilon in EPSILONS]
            rows.append([label, name, *map(cell, found)])
            quartiles = np.quantile(found, [0.25, 0.5, 0.75], axis=1)
            lines[name] = (np.array(EPSILONS), quartiles[1], quartiles[[0, 2]])
        panels[label] = lines
    write_table(
        "stacking_epsilon",
        f"Figure 1: AUC against epsilon, K = {GROUPS}, {repetitions} repetitions (mean ± standard error)",
        ["data", "method", *(f"eps = {e:g}" for e in EPSILONS)],
        rows,
    )
    curves("stacking_epsilon", panels, "epsilon")
    rows = []
    for label, data in sets.items():
        for name in ("PST-S", "PST-F(U)", "PST-F(W)"):
            rows.append([label, name, *(cell(best(data, name, repetitions, 1.0, groups=k)) for k in (2, 5, 10, 20))])
    write_table(
        "stacking_groups", "Figure 2: AUC against K at epsilon = 1", ["data", "method", "K = 2", "5", "10", "20"], rows
    )
    powers = (0.0, 0.5, 1.0, 2.0)
    rows = [
        [label, *(cell(best(data, "PST-F(W)", repetitions, 1.0, power=power)) for power in powers)]
        for label, data in sets.items()
    ]
    write_table(
        "stacking_importance",
        "Figure 3: PST-F(W) against the exponent alpha of the importance, epsilon = 1, K = 5",
        ["data", *(f"alpha = {p:g}" for p in powers)],
        rows,
    )
    rows = []
    for label, data in sets.items():
        combined = [
            cell(best(data, "PST-F(W)", repetitions, 1.0, combiner=c))
            for c in ("probability", "majority", "weighted-majority")
        ]
        rows.append([label, *combined, cell(best(data, "PST-F(W), trusted", repetitions, 1.0))])
    write_table(
        "stacking_combiners",
        "Figure 4: combiners of PST-F(W), epsilon = 1, K = 5",
        ["data", "probability (public weights)", "majority", "weighted majority", "high level (trusted)"],
        rows,
    )
    write_table(
        "stacking_transfer",
        f"Heart disease: AUC on half of the target, epsilon = 1 (source and target each), {repetitions} repetitions",
        ["source", "target", "PST-H(W)", "PST-H(U)", "PLR(target)"],
        transfer(repetitions),
    )


if __name__ == "__main__":
    main()
