"""The paper's protocol: 100 principal components, penalties by a validation set, PST with the paper's halves; and the forms beside it.

The first rows are used for the projection, for the components' variances (the public importance) and for the bound on row norms, and are then
dropped. A third of the training rows is the validation set that chooses the penalty, as in the paper; no private analysis could choose so.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from experiments.common import data_file
from scipy.sparse import csr_matrix
from sklearn.base import ClassifierMixin
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.metrics import roc_auc_score

from unpooled import Bounds, PrivateLogisticRegression, PrivateStackingClassifier

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)
#: The paper's, at either size.
REPETITIONS = 10
NOTE = "The paper's ten repetitions at either size."
GROUPS = 5
#: D_l : D_h, as printed.
HIGH = 0.5

#: Training rows and labels, test rows and labels, the bound on a row's norm, and the components' variances.
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, np.ndarray]


def mnist() -> Data:
    """Digits 0 and 8: 3000 random training rows, as in the paper, and all test rows of the file."""
    file = np.load(data_file("mnist_0_8.npz"))
    X, X_test = file["X_train"].astype(float) / 255, file["X_test"].astype(float) / 255
    order = np.random.default_rng(0).permutation(X.shape[0])
    held, rows = X[order[:2000]], order[2000:5000]
    y, y_test = file["y_train"][rows], file["y_test"]
    pca, top = PCA(100, random_state=0).fit(held), max(np.unique(y))
    return _ready(pca.transform(held), pca.transform(X[rows]), y == top, pca.transform(X_test), y_test == top)


def newsgroups() -> Data:
    """Topics sci.* against talk.*, split by date."""
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


def models(
    data: Data,
    epsilon: float,
    penalty: float,
    seed: int,
    groups: int = GROUPS,
    importance: np.ndarray | None = None,
    **extra: object,
) -> dict:
    """The methods by name; ``importance`` replaces the variances of PST-F(W)."""
    weights = data[5] if importance is None else importance
    shared = {"epsilon": epsilon, "bounds": Bounds(norm=data[4]), "classes": (0, 1), "penalty": penalty}
    shared |= {"random_state": seed, "public_seed": seed}
    trusted, published = {"meta": "trusted", "high_share": HIGH}, {"calibration": "published", **shared}
    return {
        "PLR": lambda: PrivateLogisticRegression(**shared),
        "PST-S": lambda: PrivateStackingClassifier(groups, split="samples", meta="high-level", **shared),
        "PST-F(U)": lambda: PrivateStackingClassifier(groups, **shared, **extra),
        "PST-F(W)": lambda: PrivateStackingClassifier(groups, importance=weights, **shared, **extra),
        "PST-F(W), trusted": lambda: PrivateStackingClassifier(groups, importance=weights, **trusted, **shared),
        "PLR, published": lambda: PrivateLogisticRegression(**published),
        "PST-S, published": lambda: PrivateStackingClassifier(groups, split="samples", meta="high-level", **published),
        "PST-F(U), trusted, published": lambda: PrivateStackingClassifier(groups, **trusted, **published),
        "PST-F(W), trusted, published": lambda: PrivateStackingClassifier(
            groups, importance=weights, **trusted, **published
        ),
    }


def chosen(data: Data, name: str, epsilon: float, seed: int, **options: object) -> ClassifierMixin:
    """A repetition's model of the penalty that its own validation set prefers."""
    X, y = data[:2]
    order = np.random.default_rng(1000 + seed).permutation(y.size)
    held, train = order[: y.size // 3], order[y.size // 3 :]
    fitted = [models(data, epsilon, p, seed, **options)[name]().fit(X[train], y[train]) for p in PENALTIES]
    return max(fitted, key=lambda model: roc_auc_score(y[held], model.decision_function(X[held])))


def scores(data: Data, name: str, repetitions: int, epsilon: float, **options: object) -> np.ndarray:
    """Test AUC over repetitions."""
    found = (chosen(data, name, epsilon, seed, **options).decision_function(data[2]) for seed in range(repetitions))
    return np.array([roc_auc_score(data[3], decision) for decision in found])


def cell(values: np.ndarray) -> str:
    """Mean and standard error."""
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
