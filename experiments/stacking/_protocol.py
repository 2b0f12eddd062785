"""The paper's protocol: 100 principal components, penalties by a validation set, half of the rows for the high level; and the forms beside it.

Four forms. "as printed" is the paper's: its noise, no constant, a high level learned from predictions as they are, components, variances and scale read off
the training rows themselves, and every group of columns divided by its longest part and multiplied by its q_k. "shortened" differs in one thing: parts longer
than q_k are shortened to it, and the others stay as they are; PLR and PST-S see the same shortened rows, joined again. "public features" is the printed form
with components, variances and scales from rows that are then dropped. "ours" is the library's default on those features: the sound noise, a constant, parts
that are shortened, and public weights in the place of a learned high level. Only the last one promises anything.
A third of the training rows is the validation set that chooses the penalty, as in the paper; no private analysis could choose so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
from experiments.cells import kept
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
#: D_h, as printed: "50% of the data for D^l and the remaining for D^h", for PST-S as for PST-F.
HIGH = 0.5
PAPERS = ("PLR", "PST-S", "PST-F(U)", "PST-F(W)")
OURS = (*PAPERS, "PST-F(W), trusted")
PRINTED, SHORTENED, PUBLIC = "as printed", "shortened", "public features"
#: "PLR(U)" sees the rows that PST-F(U) sees, PLR and PST-S those of PST-F(W).
OF_SHORTENED = (*PAPERS, "PLR(U)")

#: Training rows and labels, test rows and labels, the bound on a row's norm, and the components' variances.
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, np.ndarray]


class World(NamedTuple):
    """A data set with features from rows that are dropped, and with the paper's, from its own training rows."""

    name: str
    public: Data
    own: Data


def mnist() -> Data:
    """Digits 0 and 8: 3000 random training rows, as in the paper, and all test rows of the file."""
    file = np.load(data_file("mnist_0_8.npz"))
    X, X_test = file["X_train"].astype(float) / 255, file["X_test"].astype(float) / 255
    order = np.random.default_rng(0).permutation(X.shape[0])
    held, rows = X[order[:2000]], order[2000:5000]
    y, y_test = file["y_train"][rows], file["y_test"]
    pca, top = PCA(100, random_state=0).fit(held), max(np.unique(y))
    return _ready(pca.transform(held), pca.transform(X[rows]), y == top, pca.transform(X_test), y_test == top)


def own_mnist() -> Data:
    """The paper's Table 1: 5000 random rows, 3000 of them for training, whose own components they have."""
    file = np.load(data_file("mnist_0_8.npz"))
    X = np.vstack([file["X_train"], file["X_test"]]).astype(float) / 255
    y = np.concatenate([file["y_train"], file["y_test"]])
    order, top = np.random.default_rng(0).permutation(X.shape[0]), max(np.unique(y))
    train, test = order[:3000], order[3000:5000]
    pca = PCA(100, random_state=0).fit(X[train])
    return _own(pca.transform(X[train]), y[train] == top, pca.transform(X[test]), y[test] == top)


def _documents() -> tuple[csr_matrix, np.ndarray, np.ndarray]:
    file = np.load(data_file("newsgroups_sci_talk_tfidf.npz"))
    X = csr_matrix((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
    return X, file["y"], file["train"].astype(bool)


def newsgroups() -> Data:
    """Topics sci.* against talk.*, split by date."""
    X, y, train = _documents()
    order = np.random.default_rng(0).permutation(int(train.sum()))
    rows, labels = X[train][order], y[train][order]
    svd = TruncatedSVD(100, random_state=0).fit(rows[:1000])
    centre = svd.transform(rows[:1000]).mean(axis=0)
    held, low, test = (svd.transform(part) - centre for part in (rows[:1000], rows[1000:], X[~train]))
    return _ready(held, low, labels[1000:] > 0, test, y[~train] > 0)


def own_newsgroups() -> Data:
    """All training rows of the split by date (the paper's Table 1 has 4321), with their own components."""
    X, y, train = _documents()
    order = np.random.default_rng(0).permutation(int(train.sum()))
    pca = PCA(100, svd_solver="arpack", random_state=0).fit(X[train])
    return _own(pca.transform(X[train][order]), y[train][order] > 0, pca.transform(X[~train]), y[~train] > 0)


def worlds() -> tuple[World, World]:
    """Both data sets."""
    return World("newsgroups", newsgroups(), own_newsgroups()), World("MNIST 0/8", mnist(), own_mnist())


def _ready(held: np.ndarray, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Data:
    norm = float(np.quantile(np.linalg.norm(held, axis=1), 0.95))
    return X, y.astype(int), X_test, y_test.astype(int), norm, held.var(axis=0)


def _own(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Data:
    """Algorithm 1, step 7: all rows are divided by the largest norm."""
    return X, y.astype(int), X_test, y_test.astype(int), float(np.linalg.norm(X, axis=1).max()), X.var(axis=0)


def form_of(name: str) -> tuple[str, str]:
    """The method and its form: "ours", or one of the printed ones."""
    method, _, form = name.rpartition(", ")
    return (method, form) if form in {PRINTED, SHORTENED, PUBLIC} else (name, "ours")


def data_of(world: World, name: str) -> Data:
    """The features that a method of this name has."""
    return world.own if form_of(name)[1] in {PRINTED, SHORTENED} else world.public


def parted(data: Data, groups: int, importance: np.ndarray | None, seed: int) -> tuple[Data, dict, dict | None]:
    """Groups by falling variance with (6) as q_k, or at random with equal ones; every group is divided by the length of its longest part."""
    X, y, X_test, y_test, _, variances = data
    columns = np.argsort(-variances, kind="stable")
    columns = np.random.default_rng([seed, groups]).permutation(columns) if importance is None else columns
    parts = {f"g{k:02d}": part for k, part in enumerate(np.array_split(columns, groups))}
    scale = np.ones(variances.size)
    for part in parts.values():
        scale[part] = np.linalg.norm(X[:, part], axis=1).max()
    shares = None if importance is None else {name: float(importance[part].sum()) for name, part in parts.items()}
    named = {name: np.sort(part).tolist() for name, part in parts.items()}
    return (X / scale, y, X_test / scale, y_test, 1.0, variances), named, shares


def joined(data: Data, groups: int, importance: np.ndarray | None, seed: int) -> Data:
    """The rows of a stack whose parts are shortened, joined again: what PLR and PST-S see in that arm."""
    (X, y, X_test, y_test, _, variances), named, shares = parted(data, groups, importance, seed)
    q = {name: (1.0 if shares is None else shares[name]) for name in named}
    total, X, X_test = sum(q.values()), X.copy(), X_test.copy()
    for name, columns in named.items():
        for rows in (X, X_test):
            lengths = np.linalg.norm(rows[:, columns], axis=1, keepdims=True)
            rows[:, columns] *= q[name] / total / np.maximum(lengths, q[name] / total)
    return X, y, X_test, y_test, float(np.sqrt(sum((v / total) ** 2 for v in q.values()))), variances


def halves(rows: int, groups: int, seed: int) -> list[str]:
    """PST-S with the paper's halves: "top" learns the high level on one, the groups share the other."""
    names = np.array([f"low{k:02d}" for k in range(groups)])[np.arange(rows) % groups]
    names = names.astype("<U5")
    names[: round(rows * HIGH)] = "top"
    return np.random.default_rng([seed, rows]).permutation(names).tolist()


Fit = Callable[[np.ndarray, np.ndarray], ClassifierMixin]


def weights_of(data: Data, method: str, importance: np.ndarray | None) -> np.ndarray | None:
    """The importance of every column, or None for equal groups at random; PLR and PST-S have that of (W) where they need one."""
    return None if "(U)" in method else data[5] if importance is None else importance


def model_of(
    data: Data, name: str, epsilon: float, penalty: float, seed: int, groups: int, importance: np.ndarray | None
) -> Fit:
    """How a method of this name is fitted to the rows that :func:`seen` gives, at one penalty."""
    method, form = form_of(name)
    norm = seen(data, name, groups, importance, seed)[4]
    given = {"epsilon": epsilon, "bounds": Bounds(norm=norm), "classes": (0, 1), "penalty": penalty}
    given |= {"random_state": seed, "public_seed": seed}
    if form != "ours":
        given |= {"calibration": "published"}
    if method.startswith("PLR"):
        return PrivateLogisticRegression(**given).fit
    if method == "PST-S":
        own = PrivateStackingClassifier(groups, split="samples", meta="high-level", holder="top", **given)
        return lambda X, y: own.fit(X, y, sites=halves(y.size, groups, seed))
    weights = weights_of(data, method, importance)
    if form == "ours":
        learns = {"meta": "trusted", "high_share": HIGH} if method.endswith("trusted") else {}
        return PrivateStackingClassifier(groups, importance=weights, **learns, **given).fit
    _, named, shares = parted(data, groups, weights, seed)
    parts = "shorten" if form == SHORTENED else "auto"
    return PrivateStackingClassifier(named, importance=shares, parts=parts, **given).fit


def seen(data: Data, name: str, groups: int, importance: np.ndarray | None, seed: int) -> Data:
    """The rows as a method of this name sees them."""
    method, form = form_of(name)
    if form == "ours":
        return data
    weights = weights_of(data, method, importance)
    if method.startswith("PST-F"):
        return parted(data, groups, weights, seed)[0]
    return joined(data, groups, weights, seed) if form == SHORTENED else data


def tried(
    world: World, name: str, epsilon: float, seed: int, groups: int = GROUPS, importance: np.ndarray | None = None
) -> tuple[list[ClassifierMixin], list[float], Data]:
    """A repetition's model of every penalty, its AUC on the validation set, and the data as it sees them."""
    data = data_of(world, name)
    X, y, *rest = seen(data, name, groups, importance, seed)
    order = np.random.default_rng(1000 + seed).permutation(y.size)
    held, train = order[: y.size // 3], order[y.size // 3 :]
    models = [model_of(data, name, epsilon, p, seed, groups, importance)(X[train], y[train]) for p in PENALTIES]
    return models, [float(roc_auc_score(y[held], m.decision_function(X[held]))) for m in models], (X, y, *rest)


def chosen(world: World, name: str, epsilon: float, seed: int, groups: int = GROUPS) -> tuple[ClassifierMixin, Data]:
    """A repetition's model of the penalty that its own validation set prefers, and the data as it sees them."""
    models, validated, data = tried(world, name, epsilon, seed, groups)
    return models[int(np.argmax(validated))], data


def scores(world: World, name: str, repetitions: int, epsilon: float, groups: int = GROUPS) -> np.ndarray:
    """Test AUC over repetitions, each a cell that is kept."""

    def once(seed: int) -> float:
        model, data = chosen(world, name, epsilon, seed, groups)
        return float(roc_auc_score(data[3], model.decision_function(data[2])))

    return np.array([kept([world.name, name, epsilon, groups, s], lambda s=s: once(s)) for s in range(repetitions)])


def cell(values: np.ndarray) -> str:
    """Mean and standard error."""
    return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(values.size):.3f}"


def verdict(one: np.ndarray, other: np.ndarray) -> str:
    """Whether one method has the better AUC, over paired repetitions: by two standard errors, or not told apart."""
    difference = one - other
    error = difference.std(ddof=1) / np.sqrt(difference.size)
    return "yes" if difference.mean() > 2 * error else "no" if difference.mean() < -2 * error else "within the errors"


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
