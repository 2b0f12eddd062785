"""One way to declare data: bounds hold every column that is read, the response too; columns are taken by name wherever a frame has them."""

from __future__ import annotations

import warnings
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import unpooled
from unpooled import Budget, PrivateGLM, PrivateLinearRegression, PrivateLogisticRegression, describe, survival, tabulate
from unpooled.errors import BudgetRefusal, DataError, PrivacyLeakWarning, UsageError
from unpooled.privacy.bounds import Coding, Column

RNG = np.random.default_rng(0)
N = 600
FRAME = pd.DataFrame(
    {
        "age": RNG.uniform(20, 90, N),
        "arm": RNG.choice(["a", "b"], N),
        "sbp": RNG.normal(140, 15, N).clip(80, 220),
        "died": RNG.integers(0, 2, N),
        "site": RNG.choice(["north", "south"], N),
        "patient": np.arange(N) // 2,
        "days": RNG.uniform(0, 365, N),
        "note": ["nobody declared this"] * N,
    }
)
BOUNDS: dict[str, Any] = {"age": (20, 90), "arm": ["a", "b"], "sbp": (80, 220)}
pytestmark = [pytest.mark.guarantee, pytest.mark.filterwarnings("ignore::unpooled.UtilityWarning")]


@pytest.fixture(autouse=True)
def _no_leak() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        yield


def linear(**more: Any) -> PrivateLinearRegression:
    return PrivateLinearRegression(**{"epsilon": 3.0, "bounds": BOUNDS, "random_state": 0, **more})


@pytest.mark.parametrize(
    "frame", [FRAME, pl.DataFrame({name: FRAME[name].tolist() for name in FRAME})], ids=["pandas", "polars"]
)
def test_the_range_of_the_response_stands_among_the_bounds(frame: Any) -> None:
    """It was ignored there: the range was read off the data, and the guarantee was lost."""
    apart = linear(bounds={"age": (20, 90), "arm": ["a", "b"]}, y_bounds=(80, 220), formula="sbp ~ age + arm").fit(frame)
    by_formula = linear(formula="sbp ~ age + arm").fit(frame)
    by_name = linear().fit(frame, "sbp")
    by_series = linear().fit(frame[["age", "arm"]], frame["sbp"])
    assert apart.plan_.study.derived == ()
    assert by_formula.plan_.hash == apart.plan_.hash
    assert by_name.plan_.hash == by_series.plan_.hash
    assert np.array_equal(by_name.coef_, by_series.coef_)
    assert by_formula.plan_.study.derived == by_name.plan_.study.derived == ()


def test_a_plan_knows_the_response_of_its_formula() -> None:
    model = linear(formula="sbp ~ age + arm")
    assert model.plan(N, 2).hash == model.fit(FRAME).plan_.hash


def test_a_response_that_is_declared_twice_is_declared_alike() -> None:
    linear(y_bounds=(80, 220), formula="sbp ~ age").fit(FRAME)
    with pytest.raises(UsageError, match=r"'sbp' is declared twice: \(80.0, 220.0\) in bounds, \(0, 300\) in y_bounds"):
        linear(y_bounds=(0, 300), formula="sbp ~ age").fit(FRAME)
    with pytest.raises(UsageError, match="'died' is the response, a number here, and bounds declare categories of it"):
        linear(bounds=BOUNDS | {"died": ["no", "yes"]}, formula="died ~ age").fit(FRAME)
    with pytest.raises(UsageError, match="'arm' is declared twice: a, b in bounds, b, c in classes"):
        PrivateGLM("logistic", bounds=BOUNDS, classes=("b", "c"), formula="arm ~ age").fit(FRAME)


def test_a_name_of_another_fit_is_forgotten() -> None:
    model = linear(y_bounds=(-1, 1), bounds={"x0": (-1, 1), "sbp": (80, 220)})
    X = RNG.uniform(-1, 1, (N, 2))
    named = pd.DataFrame(X, columns=["x0", "sbp"])
    with pytest.raises(UsageError, match="declared twice"):
        model.fit(named[["x0"]], named["sbp"])
    model.set_params(bounds={"x0": (-1, 1), "x1": (-1, 1)}).fit(X, X[:, 0])
    assert [column.name for column in model.declared_columns] == ["x0", "x1"]


@pytest.mark.parametrize(
    "kind", [PrivateLogisticRegression, lambda **given: PrivateGLM("logistic", **given)], ids=["class", "glm"]
)
def test_0_and_1_are_two_classes_without_a_word(kind: Any) -> None:
    asked: dict[str, Any] = {"epsilon": 3.0, "random_state": 0, "formula": "died ~ age"}
    plain = kind(bounds=BOUNDS, **asked).fit(FRAME)
    said = kind(bounds=BOUNDS, classes=(0, 1), **asked).fit(FRAME)
    among = kind(bounds=BOUNDS | {"died": (0, 1)}, **asked).fit(FRAME)
    truth = kind(bounds=BOUNDS, **asked).fit(FRAME.assign(died=FRAME["died"] == 1))
    assert plain.plan_.study.derived == ()
    assert plain.plan_.hash == said.plan_.hash == among.plan_.hash == truth.plan_.hash
    assert plain.classes_.tolist() == [0, 1]
    assert truth.classes_.tolist() == [False, True]
    with pytest.raises(PrivacyLeakWarning, match="no classes were declared"):
        kind(bounds=BOUNDS, **asked).fit(FRAME.assign(died=FRAME["died"] + 1))


def test_a_budget_counts_no_fit_whose_classes_were_read_off() -> None:
    asked: dict[str, Any] = {"epsilon": 1.0, "bounds": BOUNDS, "formula": "died ~ age"}
    with warnings.catch_warnings(), pytest.raises(BudgetRefusal, match="cannot count a fit that promises nothing"):
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        PrivateGLM("logistic", budget=Budget(5.0, 1e-5), **asked).fit(FRAME.assign(died=FRAME["died"] + 1))


def test_classes_stand_among_the_bounds() -> None:
    model = PrivateGLM("logistic", epsilon=3.0, bounds=BOUNDS, formula="arm ~ age", random_state=0).fit(FRAME)
    assert model.plan_.study.derived == ()
    assert model.classes_.tolist() == ["a", "b"]


def test_rows_say_their_site_and_their_id_by_a_column() -> None:
    by_column = linear(formula="sbp ~ age").fit(FRAME, sites="site")
    by_values = linear(formula="sbp ~ age").fit(FRAME, sites=FRAME["site"])
    assert by_column.plan_.hash == by_values.plan_.hash
    household = linear(unit="household", rows_per_household=2, formula="sbp ~ age")
    assert household.fit(FRAME, unit_id="patient").plan_.study.unit == "household"
    # Without a formula a column that says something of rows is no feature.
    free = PrivateLinearRegression(epsilon=np.inf, bounds=BOUNDS, y_bounds=(80, 220)).fit(
        FRAME[["age", "arm", "site", "sbp"]], "sbp", sites="site"
    )
    assert [column.name for column in free.declared_columns] == ["age", "arm"]
    with pytest.raises(UsageError, match="no column 'ward' in the frame"):
        linear(formula="sbp ~ age").fit(FRAME, sites="ward")
    with pytest.raises(UsageError, match="sites='site' names a column of a frame, and the data are an array"):
        linear(bounds=(0, 1), y_bounds=(0, 1)).fit(np.zeros((9, 1)), np.zeros(9), sites="site")
    known = {"age": (20, 90), "days": (0, 365)}
    times = PrivateGLM("survival", epsilon=9.0, bounds=known, formula="days ~ age", cuts=[], random_state=0)
    assert times.fit(FRAME, event="died").plan_.study.derived == ()


def test_functions_take_declared_columns_and_leave_others() -> None:
    found = describe(FRAME, {"age": (20, 90), "sbp": (80, 220)}, sites="site", random_state=0)
    assert {term.term.partition(":")[0] for term in found.terms} == {"age", "sbp"}
    assert len(found.plan_.study.parties) == 2
    with pytest.raises(UsageError, match="no column 'weight' in the data"):
        describe(FRAME, {"weight": (30, 200)})
    assert len(tabulate(FRAME, ["arm"], BOUNDS, sites="site", random_state=0).plan_.study.parties) == 2
    known = {"days": (0, 365), "died": (0, 1), "arm": ["a", "b"]}
    assert len(survival(FRAME, "days", "died", "arm", known, sites="site", random_state=0).plan_.study.parties) == 2
    with pytest.raises(UsageError, match="sites='site' names a column of a frame, and the data are an array"):
        describe(np.zeros((9, 1)), (0, 1), sites="site")


def test_a_missing_value_is_answered_in_our_words() -> None:
    """scikit-learn's advice to impute in a pipeline would void the promise."""
    X = FRAME[["age"]].to_numpy().copy()
    X[3] = np.nan
    with pytest.raises(
        DataError, match=r"holds a missing value .NaN., and its declaration .*In Python: bounds=Bounds"
    ) as caught:
        linear(bounds=(20, 90), y_bounds=(80, 220)).fit(X, FRAME["sbp"].to_numpy())
    assert "pipeline" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "taken"),
    [
        ("binomial", "'logistic'"),
        ("cox", "'survival'"),
        ("negbin", "'negative-binomial'"),
        ("gaussian", "PrivateLinearRegression"),
    ],
)
def test_a_family_of_another_package_names_the_one_to_take(word: str, taken: str) -> None:
    with pytest.raises(UsageError, match=f"family is one of .*survival, not '{word}': take {taken}"):
        PrivateGLM(word, bounds=BOUNDS, classes=(0, 1)).fit(FRAME, "died")


def test_sample_weight_names_what_is_taken() -> None:
    with pytest.raises(UsageError, match="sample_weight is not taken: weights="):
        linear(formula="sbp ~ age").fit(FRAME, sample_weight=np.ones(N))


def test_the_signature_of_a_fit_is_its_own() -> None:
    import inspect

    assert list(inspect.signature(unpooled.PrivateGLM.fit).parameters)[:4] == ["self", "X", "y", "sites"]


def test_dates_are_ranges() -> None:
    """A pair of dates was taken for two categories, without a word."""
    first, days = date(2015, 1, 1), RNG.integers(0, 3000, N)
    dates = [first + timedelta(days=int(day)) for day in days]
    y = np.clip(100 + 0.01 * days, 80, 220)
    bounds = {"seen": (first, date(2024, 12, 31)), "sbp": (80, 220)}
    counted = linear(bounds={"seen": (0, 3652), "sbp": (80, 220)}, formula="sbp ~ seen")
    expected = counted.fit(pd.DataFrame({"seen": days, "sbp": y}))
    frames = {
        "python": pd.DataFrame({"seen": dates, "sbp": y}),
        "pandas": pd.DataFrame({"seen": pd.to_datetime(dates), "sbp": y}),
        "polars": pl.DataFrame({"seen": dates, "sbp": y}),
        "text": pd.DataFrame({"seen": [str(day) for day in dates], "sbp": y}),
    }
    for frame in frames.values():
        model = linear(bounds=bounds, formula="sbp ~ seen").fit(frame)
        (column,) = model.declared_columns
        assert (column.low, column.high, column.dates) == (0.0, 3652.0, "days since 2015-01-01")
        assert model.coef_ == pytest.approx(expected.coef_, rel=0.5)
        assert model.predict(frame)[:5] == pytest.approx(model.intercept_ + model.coef_[0] * days[:5])
    with pytest.raises(DataError, match="'seen' holds something that is no date"):
        linear(bounds=bounds, formula="sbp ~ seen").fit(frames["text"].assign(seen="spring"))
    found = describe(frames["pandas"], bounds, random_state=0)
    assert found["all", "seen"].mean.value == pytest.approx(days.mean(), rel=0.2)
    gaps = frames["python"].assign(seen=[None, *dates[1:]])
    with pytest.raises(DataError, match="holds a missing value"):
        linear(bounds=bounds, formula="sbp ~ seen").fit(gaps)


@pytest.mark.guarantee
def test_a_column_whose_values_are_all_missing_is_one_of_numbers_where_a_range_is_declared() -> None:
    column = Column("age", 20.0, 90.0, missing="absent")
    coded, present = Coding((column,), 16).code((np.array([None, None], dtype=object),))
    assert not coded.any()
    assert not present.any()
    with pytest.raises(DataError, match="of dates the first and the last day"):
        Coding((column,), 16).code((np.array(["2024-05-01", None], dtype=object),))
