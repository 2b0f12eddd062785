"""What all estimators do alike: parameters validated and not cast, tables from arrays and frames, missing values in new rows."""

from __future__ import annotations

import itertools
import math
import warnings
from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from unpooled import (
    Bounds,
    PrideClassifier,
    PrideGLM,
    PrideRegressor,
    PrivacyLeakWarning,
    PrivateBayesianRegression,
    PrivateGLM,
    PrivateLasso,
    PrivateLassoClassifier,
    PrivateLogisticRegression,
    PrivatePLSRegression,
    PrivateStackingClassifier,
    describe,
)
from unpooled.errors import DataError, UsageError
from unpooled.estimation.parameters import plain
from unpooled.estimation.tables import table_of
from unpooled.privacy.ledger import Entry

RNG = np.random.default_rng(1)
X = RNG.uniform(-1, 1, (80, 6))
Y = X[:, 0] + 0.1 * RNG.normal(size=80)
CLASS = Y > 0
SITES = np.arange(80) % 4
CLASSES: dict[str, Any] = {"classes": (False, True)}
RANGE: dict[str, Any] = {"y_bounds": (-2, 2)}

#: Every estimator: what it needs beside bounds and epsilon, and its target.
ESTIMATORS: dict[str, tuple[type, dict[str, Any], np.ndarray]] = {
    "pride": (PrideRegressor, {"sketch_dim": 2}, Y),
    "pride-classifier": (PrideClassifier, {"sketch_dim": 2, **CLASSES}, CLASS),
    "pride-counts": (PrideGLM, {"family": "poisson", "sketch_dim": 2}, np.floor(1.5 + Y)),
    "pride-quantile": (PrideGLM, {"family": "quantile", "sketch_dim": 2}, Y),
    "bayes": (PrivateBayesianRegression, RANGE, Y),
    "glm": (PrivateGLM, CLASSES, CLASS),
    "glm-counts": (PrivateGLM, {"family": "poisson", "y_bounds": (0, 3)}, np.floor(1.5 + Y)),
    "glm-classes": (PrivateGLM, {"family": "multinomial", **CLASSES}, CLASS),
    "lasso": (PrivateLasso, RANGE, Y),
    "lasso-classifier": (PrivateLassoClassifier, CLASSES, CLASS),
    "pls": (PrivatePLSRegression, {"basis": "none", **RANGE}, Y),
    "logistic": (PrivateLogisticRegression, CLASSES, CLASS),
    "stacking": (PrivateStackingClassifier, CLASSES, CLASS),
    "stacking-rows": (PrivateStackingClassifier, {"split": "samples", **CLASSES}, CLASS),
    "stacking-high": (PrivateStackingClassifier, {"meta": "trusted", **CLASSES}, CLASS),
}
#: Those that take categories and missing values: a spectrum is whole.
MIXED = [name for name in ESTIMATORS if name != "pls"]


def made(name: str, **parameters: Any) -> Any:
    kind, own, _ = ESTIMATORS[name]
    return kind(**{"bounds": (-1, 1), **own, **parameters})


def decided(model: Any, rows: Any) -> np.ndarray:
    if hasattr(model, "linear_predictor"):
        u = model.linear_predictor(rows)
        return u if u.ndim == 1 else u[:, 0]
    return model.decision_function(rows) if hasattr(model, "classes_") else model.predict(rows)


# --- parameters ------------------------------------------------------------------------------------------------------------

WHOLE = (1.9, "2", None, True, np.float64(2.0))
NUMBER = ("1", None, True, [1.0], np.array([1.0]))
FLAG = ("no", 1, 0.0, None)
WORD = (3, None, ["sound"])
WRONG: dict[str, tuple[Any, ...]] = {
    "epsilon": NUMBER,
    "delta": ("1e-6", True, [1e-6]),
    "bounds": (30, "ab", (1, 2, 3), True),
    "y_bounds": (30, (1,), ("a", "b"), (-1, None), (-1, 0, 1)),
    "unit": WORD,
    "rows_per_household": (*WHOLE, 0, 2),
    "adjacency": WORD,
    "calibration": WORD,
    "parties": ("2", 2.0, None, True, 0, 99),
    "classes": (3, "ab"),
    "fit_intercept": FLAG,
    "response_public": FLAG,
    "aggregation": WORD,
    "family": WORD,
    "dispersion": NUMBER,
    "covariance": WORD,
    "quantile": NUMBER,
    "cap": ("3", True),
    "expected": WHOLE,
    "expected_missing": NUMBER,
    "exposure_bounds": (30, (1,), ("a", "b")),
    "offset_bounds": (30, (1,), ("a", "b")),
    "weights_bounds": (30, (1,), ("a", "b")),
    "cuts": (30, "ab", ("a", "b"), [[1.0]]),
    "ridge": NUMBER,
    "formula": (3, True, ["y ~ a"]),
    "geometry": WORD,
    "posterior": WORD,
    "method": WORD,
    "max_passes": WHOLE,
    "coupling": WORD,
    "noise_model": WORD,
    "others": WORD,
    "sd": WORD,
    "estimating": (3, "ab"),
    "loss": (3, True),
    "threshold": ("3", True),
    "split": WORD,
    "site_effects": WORD,
    "meta": WORD,
    "combiner": WORD,
    "holder": (3, ["a"]),
    "tolerate": WHOLE,
    "rounds": WHOLE,
    "sampled": WHOLE,
    "sketch_rows": WHOLE,
    "folds": WHOLE,
    "basis_size": WHOLE,
    "public_seed": WHOLE,
    "random_state": (1.5, "3", True),
    "n_components": (1.5, None, True),
    "nodes": ("oslo", 3, None),
    "focus": ("x0", 3, None),
    "public": ("x0", 3, None),
    "goal": (3, None, ["table"]),
    "penalty": ("1", None, True, [1.0], "automatic"),
    "noise": WORD,
    "prior": ("0.5", True, ["a", "b"], "ab"),
    "rates": ("0.5", True, ["a", "b"]),
    "multi_class": WORD,
    "falling": ("1", 3, ["a", "b"]),
    "ranking_share": NUMBER,
    "probabilities_share": NUMBER,
    "rows": WORD,
    "high_share": NUMBER,
    "predictions_share": NUMBER,
    "radius": ("1", True, [1.0], np.array([1.0])),
    "clip": NUMBER,
    "refit": NUMBER,
    "publish": NUMBER,
    "projection": ("0.2", True, [0.2], 1.5, -0.1),
    "projection_delta": ("0.2", True, [0.2], 1.5, 0),
    "indefinite": (1, None),
    "parts": (1, None),
    "prior_precision": (None, True, [1.0], "1"),
    "noise_precision": (None, True, [1.0], "1"),
    "multiple": ("3", True),
    "clip_norm": ("3", True),
    "alpha": (None, True, [1.0]),
    "sketch": (3, None),
    "sketch_dim": ("2", None, True, 5000, 1.5, -1, -0.5, math.nan, np.float64(2.0)),
    "grids": (3, "ab"),
    "shares": (0.5, ("a", "b", "c"), None),
    "importance": (3, True),
    "source": (3, "ab"),
    "basis": (3j, None),
    "reference": ("ab",),
    "budget": (1.0, "1"),
    "helpers": WHOLE,
    "check": WORD,
    "response_at": (3, True, ["a"]),
}
NAMES = sorted({parameter for name in ESTIMATORS for parameter in made(name).get_params(deep=False)})


def test_every_parameter_of_every_estimator_is_tried() -> None:
    assert sorted(WRONG) == NAMES


def _refused(name: str, parameter: str, wrong: object) -> None:
    """Hold that a fit and a plan refuse a value by the name of its parameter."""
    model = made(name, **{parameter: wrong})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UsageError, match=rf"\b{parameter}\b") as caught:
            model.fit(X, ESTIMATORS[name][2])
    assert "\n" not in str(caught.value)
    assert " must " in str(caught.value)  # and what it takes
    assert not hasattr(model, "plan_")
    with pytest.raises(UsageError, match=parameter):
        model.plan(80, 6)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(name: str) -> None:
    """Whatever estimator, parameter and value: a declaration of the parameter is what refuses."""
    # Groups of a single row: that is said of the rows. Regression and GLM: None says that rows are split.
    said_elsewhere: set[tuple[str, Any]] = {
        ("stacking-rows", 99),
        *((either, None) for either in ("bayes", "glm", "glm-counts", "glm-classes")),
    }
    # Of families without products that they have none is said first.
    said_elsewhere |= {("glm-classes", number) for number in (0, -1, 7, 99)}
    for parameter, values in WRONG.items():
        if parameter in made(name).get_params(deep=False):
            for wrong in values:
                if parameter != "parties" or (name, wrong) not in said_elsewhere:
                    _refused(name, parameter, wrong)


@pytest.mark.parametrize("wrong", ["1", True, [1.0], None])
@pytest.mark.parametrize("parameter", ["epsilon", "confidence"])
def test_describe_validates_too(parameter: str, wrong: object) -> None:
    with pytest.raises(UsageError, match=f"{parameter} must be a number"):
        describe({"x": X[:, 0]}, Bounds(-1, 1), **{parameter: wrong})


NUMPYS: dict[str, tuple[Any, Any]] = {
    "epsilon": (np.float32(2.0), 2.0),
    "delta": (np.float64(1e-6), 1e-6),
    "parties": (np.int64(2), 2),
    "fit_intercept": (np.bool_(0), False),
    "public_seed": (np.int32(5), 5),
    "random_state": (np.int64(3), 3),
    "tolerate": (np.uint8(1), 1),
    "rounds": (np.int64(4), 4),
    "folds": (np.int64(3), 3),
    "sketch_dim": (np.int64(1), 1),
    "alpha": (np.float64(2.0), 2.0),
    "n_components": (np.int64(2), 2),
    "basis_size": (np.int64(3), 3),
    "penalty": (np.float32(0.5), 0.5),
    "radius": (np.float32(2.0), 2),
    "y_bounds": (np.array([0.0, 2.0]), (0, 2)),
    "bounds": (np.array([-1.0, 1.0]), (-1, 1)),
}


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        (n, p)
        for n, p in itertools.product(ESTIMATORS, NUMPYS)
        if p in made(n).get_params(deep=False) and (n, p) != ("glm-classes", "parties")  # a family without products
    ],
)
@pytest.mark.filterwarnings("ignore:radius is in half ranges:FutureWarning")
def test_numpys_numbers_are_numbers(name: str, parameter: str) -> None:
    numpys, pythons = (made(name, **{parameter: value}).plan(80, 6) for value in NUMPYS[parameter])
    assert numpys.hash == pythons.hash


@pytest.mark.minutes
def test_numpys_numbers_are_numbers_in_describe() -> None:
    given = {"random_state": np.int64(3), "epsilon": np.float32(2.0), "confidence": np.float32(0.5)}
    one, other = (
        describe({"x": X[:, 0]}, Bounds(-1, 1), **options)
        for options in (given, {"random_state": 3, "epsilon": 2.0, "confidence": 0.5})
    )
    assert one.plan_.hash == other.plan_.hash
    assert plain(np.int64(3)) == 3


# --- plans without data ------------------------------------------------------------------------------------------------------


@pytest.mark.minutes
@pytest.mark.filterwarnings("ignore:The released (covariance|moments)")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_plan_without_data_is_the_plan_of_the_fit(name: str) -> None:
    planned = made(name).plan(n_samples=80, n_features=6)
    assert planned.hash == made(name).fit(X, ESTIMATORS[name][2]).plan_.hash


@pytest.mark.parametrize("shape", [("80", 6), (80.0, 6), (80, "6"), (True, 6)])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_plan_is_of_whole_numbers_of_rows_and_columns(name: str, shape: tuple[Any, Any]) -> None:
    with pytest.raises(UsageError, match="must be a whole number"):
        made(name).plan(*shape)


# --- missing values in new rows ----------------------------------------------------------------------------------------------


def a_new_row() -> tuple[np.ndarray, np.ndarray]:
    """A row with a missing value, and what "absent" makes of it: the middle of its range."""
    row = X[:1].copy()
    row[0, 1] = np.nan
    return row, np.nan_to_num(row)


@pytest.mark.minutes
@pytest.mark.parametrize("name", MIXED)
def test_a_missing_value_that_is_declared_absent_contributes_nothing(name: str) -> None:
    row, filled = a_new_row()
    model = made(name, epsilon=math.inf, bounds=Bounds(-1, 1, missing="absent")).fit(X, ESTIMATORS[name][2])
    assert decided(model, row) == pytest.approx(decided(model, filled))
    assert model.predict(row) == pytest.approx(model.predict(filled))
    assert np.isfinite(decided(model, row)).all()


@pytest.mark.parametrize("name", MIXED)
def test_an_indicator_counts_in_new_rows(name: str) -> None:
    row, filled = a_new_row()
    learned = X.copy()
    learned[::3, 1] = np.nan
    model = made(name, epsilon=math.inf, bounds=Bounds(-1, 1, missing={1: "indicator"})).fit(learned, ESTIMATORS[name][2])
    assert np.isfinite(decided(model, row)).all()
    if hasattr(model, "coef_"):
        indicator = 2  # the coded column after the second one's value
        added = decided(model, row) - decided(model, filled)
        assert added == pytest.approx(model.coef_.ravel()[indicator], abs=1e-9)


@pytest.mark.slow_for("pride-counts")
@pytest.mark.filterwarnings("ignore:The released (covariance|moments)")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_missing_value_that_is_not_declared_is_refused_in_new_rows(name: str) -> None:
    row, _ = a_new_row()
    with pytest.warns(PrivacyLeakWarning):
        derived = made(name, bounds=None).fit(X, ESTIMATORS[name][2])
    for model in (made(name).fit(X, ESTIMATORS[name][2]), derived):
        with pytest.raises(ValueError, match="NaN"):
            model.predict(row)


@pytest.mark.minutes
def test_a_missing_value_in_a_sparse_row_contributes_nothing_and_the_callers_matrix_stays() -> None:
    model = made("lasso", epsilon=math.inf, bounds=Bounds(-1, 1, missing="absent")).fit(sp.csr_array(X), Y)
    row, filled = map(sp.csr_array, a_new_row())
    assert model.predict(row) == pytest.approx(model.predict(filled))
    assert np.isnan(row.data).sum() == 1


# --- text, booleans, categories, frames ----------------------------------------------------------------------------------------

SEX = np.where(X[:, 1] > 0, "F", "M")
SMOKES = X[:, 2] > 0
COLUMNS = {"age": 60 * (X[:, 0] + 1), "sex": SEX.tolist(), "smokes": SMOKES.tolist(), "dose": X[:, 3]}
DECLARED = {"sex": ["F", "M"], "age": (0, 120), "dose": [-1.0, 1.0], "smokes": [False, True]}
CODED = np.column_stack([COLUMNS["age"], SEX == "M", SMOKES, COLUMNS["dose"]]).astype(float)
CODED_BOUNDS = Bounds([0, 0, 0, -1], [120, 1, 1, 1], categories={1: [0, 1], 2: [0, 1]})


def frames() -> dict[str, Any]:
    frame = pl.DataFrame(COLUMNS)
    return {
        "frame": frame,
        "enum": frame.with_columns(pl.col("sex").cast(pl.Enum(["M", "F"]))),
        "categorical": frame.with_columns(pl.col("sex").cast(pl.Categorical)),
    }


@pytest.mark.slow_for("glm-classes-frame")
@pytest.mark.parametrize("kind", frames())
@pytest.mark.parametrize("name", MIXED)
def test_text_and_booleans_are_categories(name: str, kind: str) -> None:
    """The same coefficients and predictions as of numbers that stand for the categories."""
    target = ESTIMATORS[name][2]
    frame = frames()[kind]
    exact = {"epsilon": math.inf} | ({"parties": 1} if made(name).get_params(deep=False).get("parties") else {})
    model = made(name, bounds=DECLARED, **exact).fit(frame, target)
    twin = made(name, bounds=CODED_BOUNDS, **exact).fit(CODED, target)
    assert list(model.feature_names_in_) == list(COLUMNS)
    assert decided(model, frame[:5]) == pytest.approx(decided(twin, CODED[:5]), rel=1e-6, abs=1e-9)
    if hasattr(model, "coef_"):
        assert model.coef_ == pytest.approx(twin.coef_, rel=1e-6, abs=1e-9)
    assert decided(model, frame[:1]).shape == (1,)


@pytest.mark.slow_for("pride-counts")
@pytest.mark.parametrize("name", MIXED)
def test_an_array_of_objects_holds_text_too(name: str) -> None:
    target, frame = ESTIMATORS[name][2], pl.DataFrame(COLUMNS)
    rows = np.array(list(zip(*COLUMNS.values(), strict=True)), dtype=object)
    names = dict(enumerate(COLUMNS))
    bounds = Bounds({place: DECLARED[column] for place, column in names.items()})
    model = made(name, bounds=bounds, epsilon=math.inf, public_seed=3).fit(rows, target)
    twin = made(name, bounds=DECLARED, epsilon=math.inf, public_seed=3).fit(frame, target)
    assert decided(model, rows[:3]) == pytest.approx(decided(twin, frame[:3]))
    assert decided(model, rows[:3].tolist()) == pytest.approx(decided(twin, frame[:3]))


@pytest.mark.slow_for("pride", "glm-classes")
@pytest.mark.parametrize("name", MIXED)
def test_missing_values_beside_text(name: str) -> None:
    target = ESTIMATORS[name][2]
    bounds = Bounds(DECLARED, missing="absent")
    holes = {
        column: [None if (i + j) % 9 == 0 else value for i, value in enumerate(values)]
        for j, (column, values) in enumerate(COLUMNS.items())
    }
    model = made(name, bounds=bounds, epsilon=math.inf).fit(pl.DataFrame(holes), target)
    nothing = pl.DataFrame({column: [None] for column in COLUMNS}, schema=pl.DataFrame(COLUMNS).schema)
    assert np.isfinite(decided(model, nothing)).all()
    refusing = made(name, bounds=DECLARED)
    with pytest.raises(DataError, match="missing"):
        refusing.fit(pl.DataFrame(holes), target)


@pytest.mark.guarantee
@pytest.mark.parametrize("name", MIXED)
def test_without_bounds_categories_are_read_off_the_data_with_a_warning(name: str) -> None:
    frame = pl.DataFrame({"sex": COLUMNS["sex"], "dose": COLUMNS["dose"]})
    with pytest.warns(PrivacyLeakWarning):
        model = made(name, bounds=None).fit(frame, ESTIMATORS[name][2])
    assert "bounds" in model.plan_.study.derived
    assert np.isfinite(decided(model, frame)).all()
    with pytest.raises(DataError, match="'sex' holds a value outside its declared categories or missing") as caught:
        model.predict(frame[:1].with_columns(sex=pl.lit("SECRET")))
    assert "SECRET" not in str(caught.value)


@pytest.mark.slow
def test_pandas_frames_are_frames() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(COLUMNS)
    for sex in ("object", "string", "category"):
        for smokes in ("object", "boolean", "category", "bool"):
            given = frame.astype({"sex": sex, "smokes": smokes, "age": "Float64"})
            model = made("bayes", bounds=DECLARED, epsilon=math.inf).fit(given, Y)
            twin = made("bayes", bounds=CODED_BOUNDS, epsilon=math.inf).fit(CODED, Y)
            assert model.predict(given[:5]) == pytest.approx(twin.predict(CODED[:5]))
            holes = given.copy()
            for column in ("sex", "smokes", "age"):
                if holes[column].dtype != bool:
                    holes.loc[3, column] = None
            absent = made("bayes", bounds=Bounds(DECLARED, missing="absent"), epsilon=math.inf).fit(holes, Y)
            assert np.isfinite(absent.predict(holes)).all()
    assert describe(frame["sex"], Bounds({"sex": ["F", "M"]}), random_state=0)["all", "sex", "F"].count.value > 0


@pytest.mark.parametrize("name", MIXED)
def test_no_message_holds_a_value_of_the_data(name: str) -> None:
    target, rows = ESTIMATORS[name][2], X.astype(object)
    rows[3, 2] = "SECRET"
    model = made(name).fit(X, target)
    text = np.where(target == target[3], "SECRET", "other")
    attempts = [
        lambda: made(name).fit(rows, target),
        lambda: model.predict(rows[:5]),
        lambda: model.predict(np.array(["SECRET", "SECRET"])),
        lambda: model.predict(np.full(3, 987654.0)),
        lambda: made(name).fit(X + 987654j, target),
        lambda: made(name).fit(np.full(80, 987654.0), target),
        lambda: made(name).fit(X, text),
        lambda: made(name, bounds={f"x{j}": ["a", "b"] for j in range(6)}).fit(np.full((80, 6), "SECRET"), target),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError) as caught:
            attempt()
        assert "SECRET" not in str(caught.value)
        assert "987654" not in str(caught.value)
        assert caught.value.__suppress_context__ or "SECRET" not in str(caught.value.__context__)


# --- columns by name -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow_for("pride-counts")
@pytest.mark.parametrize("name", MIXED)
def test_the_columns_of_a_frame_are_matched_by_name(name: str) -> None:
    target, frame = ESTIMATORS[name][2], pl.DataFrame(COLUMNS)
    turned = frame.select(reversed(frame.columns))
    split = "parties" in made(name).get_params() and not name.startswith("glm")  # tests/unit/test_glm_columns.py
    parties = {"parties": {"a": ["age", "smokes"], "b": ["sex", "dose"]}} if split else {}
    if name == "stacking-rows":
        parties = {"parties": 2}
    one, other = (made(name, bounds=DECLARED, epsilon=math.inf, **parties).fit(data, target) for data in (frame, turned))
    assert decided(one, frame) == pytest.approx(decided(other, turned), abs=1e-3)
    with pytest.raises(ValueError, match="order"):
        one.predict(turned)


@pytest.mark.parametrize("name", MIXED)
def test_a_column_that_nobody_declares_is_named(name: str) -> None:
    frame = pl.DataFrame(COLUMNS)
    with pytest.raises(UsageError, match=r"'weight'.*not among"):
        made(name, bounds={**DECLARED, "weight": (0, 1)}).fit(frame, ESTIMATORS[name][2])
    with pytest.raises(UsageError, match="column dose: no range and no categories"):
        made(name, bounds={k: v for k, v in DECLARED.items() if k != "dose"}).fit(frame, ESTIMATORS[name][2])


@pytest.mark.parametrize("name", MIXED)
def test_a_plan_calls_columns_as_the_bounds_name_them(name: str) -> None:
    frame = pl.DataFrame({column: COLUMNS[column] for column in DECLARED})
    planned = made(name, bounds=DECLARED).plan(80, 4)
    assert planned.hash == made(name, bounds=DECLARED).fit(frame, ESTIMATORS[name][2]).plan_.hash


# --- tables ------------------------------------------------------------------------------------------------------------------------


def test_a_series_is_one_column_under_its_own_name() -> None:
    table = table_of(pl.Series("age", [30.0, 40.0]))
    assert table.names == ("age",)
    assert table_of(pl.Series("age", [30.0, 40.0]), ["years"]).names == ("years",)
    assert table_of(np.array([1.0, 2.0])).names == ("x0",)
    assert table_of([["a", 1.0], ["b", 2.0]])["x1"].tolist() == [1.0, 2.0]


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="there is no column 'agee'"):
        table_of({"age": [1.0, 2.0]}, ["agee"])


def test_columns_that_nobody_declared_are_named_before_what_they_hold() -> None:
    """Y5: a frame with a date was refused for its type, or for the first column alone."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {"age": rng.uniform(20, 80, 50), "seen": [date(2020, 1, 1)] * 50, "id": [f"p{k}" for k in range(50)]}
    )
    for bounds in ({"age": (20, 80)}, Bounds({"age": 20}, {"age": 80}), Bounds(low={"age": (20, 80)})):
        model = PrivateBayesianRegression(bounds=bounds, y_bounds=(-3, 3))
        with pytest.raises(UsageError, match="columns seen, id: no range and no categories are declared"):
            model.fit(frame, np.zeros(50))
    model.fit(frame[["age"]], rng.normal(size=50))


@pytest.mark.guarantee
def test_a_ledger_of_many_lines_prints_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Y5: sixty thousand characters."""
    rng = np.random.default_rng(0)
    model = PrivateBayesianRegression(bounds={"age": (20, 80)}, y_bounds=(-3, 3), method="gradient")
    model.fit(pl.DataFrame({"age": rng.uniform(20, 80, 400)}), rng.normal(size=400))
    print(model.ledger_)
    shown = capsys.readouterr().out
    assert shown.startswith(f"<{len(model.ledger_)} ledger entries; charged: ")
    assert len(shown) < 300
    assert "charged: scales-local, descent-local x " in shown  # a step that was charged once has its name alone
    assert isinstance(model.ledger_[0], Entry)
