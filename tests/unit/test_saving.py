"""Files of fitted models, results and moments: everything comes back, damage is refused, and nothing in a file runs."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import unpooled
from unpooled.errors import DataError, UsageError
from unpooled.estimation.base import StudyEstimator
from unpooled.inference.saving import FORMAT, model_of, pack, read_saved, unpack, write_saved
from unpooled.study.saved import homes

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (200, 4))
Y = X[:, 0] - X[:, 2]
LABELS = np.where(Y > 0, "ill", "well")
REGRESSION: dict[str, Any] = {"bounds": (-1, 1), "y_bounds": (-2, 2), "random_state": 0}
CLASSES: dict[str, Any] = {"bounds": (-1, 1), "classes": ("ill", "well"), "random_state": 0}
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "pride": ("PrideRegressor", {"bounds": (-1, 1), "random_state": 0}),
    "pride names": ("PrideRegressor", {"parties": {"a": [0, 1], "b": [2, 3]}, "bounds": (-1, 1), "random_state": 0}),
    "pride classes": ("PrideClassifier", CLASSES),
    "pride levels": ("PrideGLM", CLASSES | {"family": "ordinal"}),
    "pride quantile": ("PrideGLM", {"family": "quantile", "bounds": (-1, 1), "random_state": 0}),
    "bayes": ("PrivateBayesianRegression", REGRESSION),
    "bayes moments": ("PrivateBayesianRegression", REGRESSION | {"method": "moments"}),
    "bayes gradient": ("PrivateBayesianRegression", REGRESSION | {"method": "gradient"}),
    "bayes published": (
        "PrivateBayesianRegression",
        REGRESSION | {"method": "moments", "calibration": "published", "projection": 0.0},
    ),
    "glm": ("PrivateGLM", CLASSES),
    "glm newton": ("PrivateGLM", CLASSES | {"method": "newton"}),
    "glm classes": ("PrivateGLM", CLASSES | {"family": "multinomial", "method": "newton"}),
    "lasso": ("PrivateLasso", REGRESSION | {"rounds": 4}),
    "lasso arrays": ("PrivateLasso", REGRESSION | {"bounds": unpooled.Bounds(-np.ones(4), np.ones(4)), "rounds": 2}),
    "logistic": ("PrivateLogisticRegression", CLASSES),
    "logistic unit rows": ("PrivateLogisticRegression", CLASSES | {"rows": "unit"}),
    "pls": ("PrivatePLSRegression", REGRESSION | {"bounds": unpooled.Bounds(norm=2.0)}),
    "stacking": ("PrivateStackingClassifier", CLASSES),
    "stacking rows": ("PrivateStackingClassifier", CLASSES | {"split": "samples", "meta": "high-level"}),
}


def fitted(name: str) -> StudyEstimator:
    kind, parameters = FITS[name]
    estimator = getattr(unpooled, kind)(**parameters)
    with warnings.catch_warnings():
        if name == "pls":  # so few rows may leave it nothing but a mean
            warnings.simplefilter("ignore", UserWarning)
        return estimator.fit(X, LABELS if "classes" in parameters else Y)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a).__name__ in {"Classes", "Levels", "Declared", "LinearFit", "Bounds"}:
        return all(same(getattr(a, field), getattr(b, field)) for field in type(a).__dataclass_fields__)
    if hasattr(a, "hash"):
        return bool(a.hash == b.hash)
    return bool(a == b or (a != a and b != b))  # noqa: PLR0124 - nan


@pytest.mark.slow_for("bayes gradient")
@pytest.mark.parametrize("name", FITS)
def test_an_estimator_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "m")
    back = unpooled.load(tmp_path / "m")
    assert type(back) is type(model)
    assert (back.predict(X) == model.predict(X)).all()
    assert str(back.statement_) == str(model.statement_)
    assert same(vars(back), {key: value for key, value in vars(model).items() if key not in type(model)._unsaved})
    assert same(back.get_params(), model.get_params())
    if hasattr(model, "summary") and hasattr(model, "moments_"):
        assert repr(back.summary()) == repr(model.summary())


def test_what_parties_keep_and_budgets_stay_out_of_files(tmp_path: Path) -> None:
    model = fitted("pride")
    model.save(tmp_path / "m")
    back = unpooled.load(tmp_path / "m")
    assert not hasattr(back, "kept_")
    with pytest.raises(UsageError):
        back.predict_at("party0", X)
    shared = unpooled.PrivateLasso(**FITS["lasso"][1], budget=unpooled.Budget(epsilon=50.0, delta=1e-4))
    shared.set_params(random_state=None).fit(X, Y).save(tmp_path / "m")
    assert unpooled.load(tmp_path / "m").budget is None


@pytest.mark.guarantee
def test_results_and_moments_come_back(tmp_path: Path) -> None:
    model = fitted("bayes moments")
    described = unpooled.describe(X, bounds=(-1, 1), random_state=0)
    ranges = unpooled.describe(np.repeat(X, 20, axis=0), bounds=True, epsilon=8.0, random_state=0)
    for result in (described, ranges, model.summary(), model.moments_):
        result.save(tmp_path / "m")
        back = unpooled.load(tmp_path / "m")
        assert back == result or repr(back) == repr(result)  # a summary may hold nan
    model.ols().save(tmp_path / "m")
    assert same(unpooled.load(tmp_path / "m"), model.ols())
    with pytest.raises(Exception, match="not fitted"):
        unpooled.PrivateLasso().save(tmp_path / "m")


def test_every_home_is_one(tmp_path: Path) -> None:
    import importlib

    for name, home in homes().items():
        assert hasattr(getattr(importlib.import_module(home), name), "save")
    estimators = {
        name
        for name in unpooled.__all__
        if isinstance(thing := getattr(unpooled, name), type) and issubclass(thing, StudyEstimator)
    }
    assert estimators < set(homes())


@pytest.mark.long
@pytest.mark.slow
def test_a_file_imports_the_model_of_its_study_alone(tmp_path: Path) -> None:
    fitted("lasso").save(tmp_path / "m")
    program = f"import sys, unpooled; unpooled.load({str(tmp_path / 'm')!r}); print([name for name in sys.modules if 'unpooled.models.' in name])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert {name.split(".")[2] for name in re.findall(r"'([\w.]+)'", shown)} == {"lasso"}


def test_a_class_is_found_where_the_body_names_no_study(tmp_path: Path) -> None:
    """A body without a study is refused by the class that its kind names, whichever row declares that."""
    for kind in ("PrivateLasso", "PrivateGLM"):
        write_saved(tmp_path / "m", kind, pack({"parameters": {}}))
        assert model_of(pack({"parameters": {}})) == ""
        with pytest.raises(DataError, match="m: "):
            unpooled.load(tmp_path / "m")
    assert model_of(b"\xc1") == ""


# --- files that are not what they should be -----------------------------------------------------------------------------------


def test_damage_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    fitted("logistic").save(path)
    good = path.read_bytes()
    for at in [*range(0, len(good), max(1, len(good) // 300)), len(good) - 1]:
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
        with pytest.raises(DataError, match=r"^m: "):
            unpooled.load(path)
    for content in (b"", good[:-1], good + b"\0", pickle.dumps({"a": 1})):
        path.write_bytes(content)
        with pytest.raises(DataError, match="damaged"):
            unpooled.load(path)
    with pytest.raises(DataError, match="No such file"):
        unpooled.load(tmp_path / "nothing")


@pytest.mark.guarantee
def test_unknown_classes_and_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    fitted("logistic").save(path)
    file = read_saved(path)
    path.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(file, format="unpooled saved 3")))
    with pytest.raises(DataError, match="another format"):
        unpooled.load(path)
    for kind in ("Popen", "os.system", "StudyEstimator", ""):
        write_saved(path, kind, file.body)
        with pytest.raises(DataError, match="does not know"):
            unpooled.load(path)
    write_saved(path, "PrivateLasso", file.body)
    with pytest.raises(DataError, match=r"parameters are not those|does not read it|other form|not what its class holds"):
        unpooled.load(path)
    write_saved(path, "Description", file.body)
    with pytest.raises(DataError):
        unpooled.load(path)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "tree",
    [
        {"record": "Popen", "fields": {"args": "true"}},
        {"record": "x" * 1000, "fields": {}},
        {"record": "Column", "fields": {"name": "a", "sow": 1.0}},
        {"record": "Column", "fields": {"name": "a", "low": 2.0, "high": 1.0}},
        {"enum": "Kind", "value": 99},
        {"enum": "Sys", "value": 1},
        {"array": {"dtype": "|O", "shape": [1], "data": b"12345678"}},
        {"array": {"dtype": "<f8", "shape": [9], "data": b"12345678"}},
        {"array": 3},
        {"items": [1, 2], "dtype": "<U3", "shape": [3]},
        {"items": [1], "dtype": "<M8[s]", "shape": [1]},
        {"items": [1], "dtype": "<U99999999", "shape": [1]},
        {"study": b"", "plan": "0"},
        {"stored": "Column", "data": b""},
        {"stored": "Moments", "data": b""},
        {"pairs": [[{"list": []}, 1]]},
        {"pairs": [[1, 2, 3]]},
        {"tuple": 3},
        {"else": 3},
        [1, 2],
        {"record": "Event", "fields": {"kind": 1}},
    ],
)
def test_made_up_content_is_refused_with_a_typed_error(tree: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        unpack(msgspec.msgpack.encode(tree))
    for kind in ("PrivateLasso", "Description", "LinearSummary", "Moments"):
        write_saved(tmp_path / "m", kind, msgspec.msgpack.encode(tree))
        with pytest.raises(DataError):
            unpooled.load(tmp_path / "m")


def test_a_plan_of_another_version_is_told(tmp_path: Path) -> None:
    model = fitted("logistic")
    model.save(tmp_path / "m")
    body = read_saved(tmp_path / "m").body
    write_saved(tmp_path / "m", type(model).__name__, body.replace(model.plan_.hash.encode(), b"0" * 64))
    with pytest.raises(DataError, match="use the version that saved it"):
        unpooled.load(tmp_path / "m")


def test_plain_values_come_back_and_others_are_refused() -> None:
    deep: Any = None
    for _ in range(5000):
        deep = [deep]
    values = [
        None,
        True,
        3,
        -2.5,
        float("inf"),
        "é",
        b"\0",
        [1, (2, {"a": 1, (1, "b"): [2]})],
        np.arange(3),
        np.array(["a", "bc"]),
    ]
    values += [
        np.array([True, False]),
        np.array(["a", None, 1.5], dtype=object),
        np.zeros((0, 2)),
        np.float64(2.0),
        np.bool_(1),
    ]
    for value in values:
        assert same(unpack(pack(value)), value.item() if isinstance(value, np.generic) else value)
    for value in (object(), {1, 2}, lambda: 1, type, np.datetime64("2020")):
        with pytest.raises(UsageError, match="cannot be saved"):
            pack(value)
    with pytest.raises(DataError):
        unpack(b"\x91" * 100_000 + b"\x00")
    assert FORMAT.startswith("unpooled saved")


# --- scikit-learn ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in FITS if not {"stacking", "unit", "levels", "quantile"} & set(name.split())]
)
def test_the_same_model_in_scikit_learn_predicts_the_same(name: str) -> None:
    model = fitted(name)
    other = model.to_sklearn()
    assert type(other).__module__.startswith("sklearn.")
    assert other.n_features_in_ == 4
    if hasattr(model, "classes_"):
        assert (other.predict(X) == model.predict(X)).all()
        assert other.predict_proba(X) == pytest.approx(model.predict_proba(X))
        assert other.classes_.tolist() == ["ill", "well"]
        assert (other.estimators_[0] if model._lines else other).coef_.shape == (1, 4)
    else:
        assert other.predict(X) == pytest.approx(model.predict(X))


@pytest.mark.parametrize("name", ["bayes", "logistic"])
def test_a_model_in_scikit_learn_becomes_one_in_onnx(name: str) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from skl2onnx.common.data_types import FloatTensorType

    model = fitted(name)
    graph = skl2onnx.to_onnx(model.to_sklearn(), initial_types=[("X", FloatTensorType([None, 4]))])
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = X.astype(np.float32)
    (label, *_) = session.run(None, {"X": rows})
    if hasattr(model, "classes_"):
        certain = np.abs(model.predict_proba(rows)[:, 1] - 0.5) > 1e-3  # ONNX computes in single precision
        assert certain.mean() > 0.9
        assert (label == model.predict(rows))[certain].all()
    else:
        assert label.ravel() == pytest.approx(model.predict(rows), rel=1e-3, abs=1e-3)


def test_names_travel_to_scikit_learn_and_what_does_not_fit_is_refused() -> None:
    import polars as pl

    frame = pl.DataFrame(X, schema=["a", "b", "c", "d"])
    model = unpooled.PrivateLogisticRegression(**CLASSES).fit(frame, LABELS)
    assert model.to_sklearn().feature_names_in_.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(UsageError, match="not linear"):
        fitted("stacking").to_sklearn()
    unit = unpooled.PrivateLogisticRegression(**CLASSES, rows="unit").fit(X, LABELS)
    with pytest.raises(UsageError, match="not linear"):
        unit.to_sklearn()  # every row is scaled to one length first
    bounds = unpooled.Bounds(-1, 1, missing="absent")
    with pytest.raises(UsageError, match="number columns"):
        unpooled.PrivateLogisticRegression(**CLASSES | {"bounds": bounds}).fit(X, LABELS).to_sklearn()
    only = unpooled.PrideRegressor({"a": [0, 1], "b": [2, 3]}, bounds=(-1, 1), estimating=["a"], random_state=0).fit(X, Y)
    with pytest.raises(UsageError, match="only send"):
        only.to_sklearn()
    moments = fitted("bayes moments").moments_
    again = unpooled.PrivateBayesianRegression.from_moments(moments)
    assert again.to_sklearn().predict(X) == pytest.approx(again.predict(X))
