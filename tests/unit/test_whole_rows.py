"""Complete cases: rows without a needed value count nowhere, fits are those of the whole rows, no unit moves a total farther than planned, and who may not."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest
from commands import PARTIES, approve, command
from sklearn.linear_model import LogisticRegression

import unpooled
from unpooled import Bounds, PrivateGLM, PrivateLinearRegression
from unpooled.audit.replay import replay
from unpooled.errors import DataError, UsageError
from unpooled.linear.moments import Moments
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import Reach
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.study import Household
from unpooled.privacy.table import BoundedTable, Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.totals import rounds
from unpooled.totals.total import COUNT, Summed
from unpooled.totals.whole_rows import WholeRows, leaving_out, moved, needed, whole_rows

N = 2000
RNG = np.random.default_rng(0)
X1 = RNG.normal(size=N)
X2 = 0.5 * X1 + math.sqrt(0.75) * RNG.normal(size=N)
WARD = RNG.choice(["a", "b"], N).astype(object)
Y = X1 + X2 + (WARD == "b") + RNG.normal(size=N)
ILL = (RNG.logistic(size=N) < X1 + X2).astype(int)
WARD[RNG.random(N) < 0.1] = None
FRAME = pd.DataFrame({"x1": X1, "x2": np.where(RNG.random(N) < 0.3, np.nan, X2), "ward": WARD})
WHOLE = ~(FRAME["x2"].isna() | FRAME["ward"].isna()).to_numpy()
BOUNDS = Bounds({"x1": (-4, 4), "x2": (-8, 8), "ward": ["a", "b"]}, missing={"x2": "complete", "ward": "complete"})
FEW = (Column("a", -1, 1, missing="complete"), Column("g", categories=("u", "v"), missing="complete"), Column("y", -1, 1))


def linear(**given: Any) -> PrivateLinearRegression:
    about = {"bounds": BOUNDS, "y_bounds": (-9, 9), "epsilon": math.inf, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrivateLinearRegression(**{**about, **given}).fit(FRAME, Y)


# --- rows ------------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_rows_without_a_value_or_with_an_undeclared_category_are_left_out() -> None:
    table = Table({"a": [0.0, np.nan, 1.0, 0.5], "g": ["u", "u", "w", "v"], "y": [1.0, 2.0, 3.0, 4.0]})
    found = whole_rows(table, FEW[:2])
    assert found["y"].tolist() == [1.0, 4.0]
    assert found.n_rows == 4  # the public number
    assert found.owners.tolist() == [0, 3]
    assert [block[0].tolist() for block in found.blocks(("y",), 2)] == [[1.0], [4.0]]
    assert whole_rows(table, FEW[:2]) is found  # one view, in which rounds find what they remember
    assert whole_rows(found, FEW[:2]) is found
    assert whole_rows(table, ()) is table


def test_ids_of_whole_rows_stay_with_them() -> None:
    table = BoundedTable(Table({"a": [0.0, np.nan, 1.0], "y": [1.0, 2.0, 3.0]}), ["p", "p", "q"], 2)
    found = WholeRows(table, FEW[:1])
    assert found["y"].tolist() == [1.0, 3.0]
    assert found.owners.tolist() == [0, 1]


def test_only_columns_that_the_model_uses_leave_rows_out() -> None:
    assert leaving_out(FEW, {"a", "y"}) == FEW[:1]
    assert needed(FEW[0]).missing == "refuse"
    assert needed(FEW[2]) is FEW[2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = PrivateLinearRegression(bounds=BOUNDS, y_bounds=(-9, 9), epsilon=math.inf).fit(
            FRAME.assign(y=Y), formula="y ~ x1"
        )
    assert fit.moments_.rows == N
    assert COUNT not in fit.plan_.design.totals


# --- fits ------------------------------------------------------------------------------------------------------------------


def test_without_noise_it_is_least_squares_of_the_whole_rows() -> None:
    design = np.column_stack([X1, X2, WARD == "b", np.ones(N)])[WHOLE].astype(float)
    found = linear().summary()
    assert [t.estimate for t in found.terms] == pytest.approx(np.linalg.lstsq(design, Y[WHOLE], rcond=None)[0], abs=1e-4)
    left = Y[WHOLE] - design @ np.linalg.lstsq(design, Y[WHOLE], rcond=None)[0]
    errors = np.sqrt(np.linalg.inv(design.T @ design).diagonal() * (left @ left) / (WHOLE.sum() - 4))
    assert [t.std_error for t in found.terms] == pytest.approx(errors, rel=1e-3)
    assert linear().moments_.rows == WHOLE.sum()


def test_without_noise_it_is_the_likelihood_of_the_whole_rows() -> None:
    fit = PrivateGLM("logistic", epsilon=math.inf, bounds=BOUNDS, classes=(0, 1)).fit(FRAME, ILL)
    design = np.column_stack([X1, X2, WARD == "b"])[WHOLE].astype(float)
    wanted = LogisticRegression(C=1e10, tol=1e-10).fit(design, ILL[WHOLE])
    assert [t.estimate for t in fit.summary().terms][:3] == pytest.approx(wanted.coef_[0], abs=1e-4)


@pytest.mark.parametrize("method", ["refinement", "moments", "gradient", "focus"])
def test_every_way_to_fit_finds_the_slopes_of_the_whole_rows(method: str) -> None:
    given = {"focus": ["x1"]} if method == "focus" else {"method": method}
    fit = linear(epsilon=200.0, **given)
    assert fit.coef_[:2] == pytest.approx([1, 1], abs=0.25)
    count = fit.plan_.design.totals[COUNT]
    assert count.gaps


def test_the_table_says_so_and_a_saved_one_too(tmp_path: Path) -> None:
    fit = linear(epsilon=20.0, method="refinement")
    words = "rows without a value of x2, ward are left out, and n is a noisy count of the others"
    assert words in str(fit.summary())
    fit.moments_.save(tmp_path / "moments")
    assert words in str(Moments.load(tmp_path / "moments").summary())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logistic = PrivateGLM("logistic", epsilon=20.0, bounds=BOUNDS, classes=(0, 1), method="newton").fit(FRAME, ILL)
    assert words in str(logistic.summary())


@pytest.mark.parametrize("rule", ["absent", "indicator"])
def test_a_table_in_which_gaps_count_as_something_says_what_that_does(rule: str) -> None:
    bounds = Bounds({"x1": (-4, 4), "x2": (-8, 8), "ward": ["a", "b"]}, missing={"x2": rule, "ward": "complete"})
    words = "missing values of x2 count as the middle of the range or as a level of their own"
    assert words in str(linear(bounds=bounds).summary())
    logistic = PrivateGLM("logistic", epsilon=math.inf, bounds=bounds, classes=(0, 1)).fit(FRAME, ILL)
    assert words in str(logistic.summary())
    assert "missing values" not in str(linear().summary())


def test_new_rows_without_a_value_have_no_prediction() -> None:
    fit = linear()
    assert (np.isnan(fit.predict(FRAME)) == ~WHOLE).all()
    logistic = PrivateGLM("logistic", epsilon=math.inf, bounds=BOUNDS, classes=(0, 1)).fit(FRAME, ILL)
    assert (np.isnan(logistic.predict_proba(FRAME)[:, 1]) == ~WHOLE).all()
    with pytest.raises(DataError, match="no most likely class"):
        logistic.predict(FRAME)
    assert logistic.predict(FRAME[WHOLE]).size == WHOLE.sum()


def test_a_study_of_next_to_no_whole_rows_prints_no_line() -> None:
    frame = FRAME.assign(x2=np.where(RNG.random(N) < 0.995, np.nan, X2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = PrivateLinearRegression(epsilon=5.0, bounds=BOUNDS, y_bounds=(-9, 9), goal="table", random_state=0).fit(
            frame, Y
        )
    assert fit.moments_.rows < 100
    assert not [t for t in fit.summary().terms if t.term in {"x1", "x2"}]


def test_sites_with_constants_and_rows_of_three_hospitals() -> None:
    sites = np.array(["p", "q", "r"])[np.arange(N) % 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = PrivateLinearRegression(
            epsilon=30.0, bounds=BOUNDS, y_bounds=(-9, 9), site_effects="fixed", random_state=0, method="refinement"
        ).fit(FRAME, Y, sites=sites)
    found = {t.term: t for t in fit.summary().terms}
    assert abs(found["x2"].estimate - 1) < 4 * found["x2"].std_error
    assert abs(fit.moments_.rows - WHOLE.sum()) < 60


# --- reach -----------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_one_value_moves_what_its_record_does() -> None:
    made = {
        how: Summed("t", (), {Unit.RECORD: Reach(far, 3), Unit.ATTRIBUTE: Reach(0.5, 1)}, 1)
        for how, far in ((Adjacency.REPLACE, 2.0), (Adjacency.ZERO_OUT, 3.0))
    }
    for how, record in ((Adjacency.REPLACE, 3.0), (Adjacency.ZERO_OUT, 3.0)):
        found = moved(made[how], made, how).reach
        assert found == {Unit.RECORD: Reach(record, 3), Unit.ATTRIBUTE: Reach(3.0, 3)}


def small(model: str, unit: str, adjacency: str) -> tuple[Study, dict[str, Table]]:
    rng = np.random.default_rng(1)
    response = Column("y", -1, 1, missing="complete") if model == "bayes" else Column("y", categories=("n", "j"))
    columns = (*FEW[:2], response)
    tables = {
        name: Table(
            {
                "a": np.where(rng.random(6) < 0.3, np.nan, rng.uniform(-1, 1, 6)),
                "g": np.array(["u", "v", None], dtype=object)[rng.integers(0, 3, 6)],
                "y": rng.uniform(-1, 1, 6)
                if model == "bayes"
                else np.array(["n", "j"], dtype=object)[rng.integers(0, 2, 6)],
            }
        )
        for name in ("p", "q")
    }
    own = {"response": "y", "max_passes": 9}
    own |= {"method": "refinement"} if model == "bayes" else {"family": "logistic", "method": "newton"}
    cards = tuple(Card(name, 6, columns) for name in tables)
    trust = {"aggregation": "trusted"}
    return Study(
        model, cards, 1.0, 1e-5, unit=unit, adjacency=adjacency, trust=trust, parameters=own, derived=(), simulation_seed=7
    ), tables


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_studies_are_audited_in_every_unit(model: str, adjacency: str) -> None:
    """Theorem B.20: pairs of data in which rows become whole, or lose a value."""
    for unit in ROWWISE:
        asked, tables = small(model, str(unit), adjacency)
        report = replay(load(model), asked, tables, registry=load, rounds=3)
        assert report.passed, str(report)


@pytest.mark.long
@pytest.mark.slow
def test_a_value_that_is_taken_to_move_its_own_column_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, tables = small("bayes", "attribute", "replace")
    assert replay(load("bayes"), asked, tables, registry=load, rounds=3).passed
    monkeypatch.setattr(rounds, "moved_by_gaps", lambda vector, *_: vector)
    assert not replay(load("bayes"), asked, tables, registry=load, rounds=3).passed


# --- who may not -----------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_other_models_and_columns_of_several_parties_refuse_it() -> None:
    bounds, frame = Bounds({"x1": (-4, 4), "x2": (-40, 40)}, missing="complete"), FRAME[["x1", "x2"]]
    with pytest.raises(UsageError, match=r"model 'pls' leaves no rows out.*bayes, glm"):
        unpooled.PrivatePLSRegression(n_components=1, bounds=bounds, y_bounds=(-9, 9)).fit(frame, Y)
    with pytest.raises(
        UsageError, match=r"model 'describe' of columns at several parties leaves no rows out.*the model bayes;"
    ):
        unpooled.describe(frame, bounds, parties={"p": ["x1"], "q": ["x2"]}, epsilon=1.0)


def test_what_nobody_declared_is_refused_with_the_rules_that_there_are() -> None:
    with pytest.raises(DataError, match=r"for a table declare missing = 'complete' .*for predictions 'indicator'"):
        PrivateLinearRegression(bounds={"x1": (-4, 4), "x2": (-40, 40), "ward": ["a", "b"]}, y_bounds=(-9, 9)).fit(FRAME, Y)


@pytest.mark.long
@pytest.mark.slow
def test_a_study_of_files_leaves_rows_out(tmp_path: Path) -> None:
    half = N // 2
    for name, at in (("north", slice(0, half)), ("south", slice(half, N))):
        (tmp_path / name).mkdir()
        FRAME.assign(y=np.where(RNG.random(N) < 0.02, np.nan, Y))[at].to_csv(tmp_path / name / "data.csv", index=False)
        columns = ["x1=-4:4", "x2=-8:8;complete", "ward=a,b;complete", "y=-9:9;complete"]
        command(
            tmp_path,
            *("party", "init", str(tmp_path / name / "data.csv"), "--name", name, "--folder", str(tmp_path / name)),
            *(word for column in columns for word in ("--column", column)),
            *("--epsilon", "20", "--delta", "1e-5"),
        )
    (tmp_path / "study.toml").write_text(
        '[study]\nmodel = "bayes"\n\n[parameters]\nresponse = "y"\nmethod = "refinement"\n\n[privacy]\nepsilon = 10.0\ndelta = 1e-5\n\n'
        '[[party]]\ncard = "north/north.card.toml"\n\n[[party]]\ncard = "south/south.card.toml"\n'
    )
    assert "count" in command(tmp_path, "plan", "study.toml")
    approve(tmp_path)
    command(tmp_path, "run", "study.toml", *PARTIES)
    found = json.loads(command(tmp_path, "result", "study.run", "--json"))
    assert "rows without a value of x2, ward, y are left out" in json.dumps(found)
    line = next(term for term in found["terms"] if term["term"] == "x2")
    assert abs(line["estimate"] - 1) < 5 * line["std_error"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("family", ["logistic", "multinomial", "poisson", "gamma", "survival"])
def test_responses_may_be_missing_in_every_family(family: str) -> None:
    """Theorem B.20: pairs of data in which a response goes missing, or a time, or whether there was an event."""
    rng = np.random.default_rng(0)
    levels = {"logistic": ("n", "j"), "multinomial": ("n", "j", "k")}.get(family, ())
    low = 0.5 if family == "gamma" else 0.0
    columns = [
        *FEW[:2],
        Column("y", categories=levels, missing="complete") if levels else Column("y", low, 5.0, missing="complete"),
    ]
    more: dict[str, Any] = {}
    if family == "survival":
        columns.append(Column("e", categories=("0", "1"), missing="complete"))
        more = {"event": "e", "cuts": [1.0, 2.0]}

    def drawn(words: tuple[str, ...]) -> np.ndarray:
        return np.array([*words, None], dtype=object)[rng.integers(0, len(words) + 1, 6)]

    def values() -> dict[str, Any]:
        numbers = rng.integers(1, 5, 6).astype(float)
        own = {"a": rng.uniform(-1, 1, 6), "g": drawn(("u", "v")), "e": drawn(("0", "1"))}
        own["y"] = drawn(levels) if levels else np.where(rng.random(6) < 0.3, np.nan, numbers)
        return {column.name: own[column.name] for column in columns}

    tables = {name: Table(values()) for name in ("p", "q")}
    cards = tuple(Card(name, 6, tuple(columns)) for name in tables)
    own = {"response": "y", "family": family, "method": "newton", "max_passes": 9, **more}
    asked = Study("glm", cards, 1.0, 1e-5, trust={"aggregation": "trusted"}, parameters=own, derived=())
    report = replay(load("glm"), asked, tables, registry=load, rounds=2)
    assert report.passed, str(report)


# --- responses -------------------------------------------------------------------------------------------------------------

GONE = RNG.random(N) < 0.1
NUMBERS = pd.DataFrame({"x1": X1, "x2": X2})
RANGES = {"x1": (-4, 4), "x2": (-8, 8)}
LABELS = [None if gone else "yes" if ill else "no" for gone, ill in zip(GONE, ILL, strict=True)]


@pytest.mark.guarantee
@pytest.mark.parametrize("held", ["array", "list", "series", "frame", "polars"])
def test_a_missing_response_is_left_out_however_it_is_held(held: str) -> None:
    gone = np.where(GONE, np.nan, Y)
    own = Bounds({**RANGES, "y": (-9, 9)}, missing={"y": "complete"})
    every = Bounds(RANGES, missing="complete")
    frame = NUMBERS.assign(y=gone)
    polars = pl.from_pandas(frame).with_columns(pl.col("y").fill_nan(None))
    listed = [None if g else v for g, v in zip(GONE, Y, strict=True)]
    named = pd.Series(pd.array(listed, dtype="Float64"), name="y")
    bounds, x, y = {
        "array": (every, NUMBERS, gone),
        "list": (every, NUMBERS, listed),
        "series": (own, NUMBERS, named),
        "frame": (own, frame, "y"),
        "polars": (own, polars, "y"),
    }[held]
    given = {} if "y" in bounds.names else {"y_bounds": (-9, 9)}
    fit = PrivateLinearRegression(epsilon=math.inf, bounds=bounds, **given).fit(x, y)
    design = np.column_stack([X1, X2, np.ones(N)])[~GONE]
    assert [t.estimate for t in fit.summary().terms] == pytest.approx(
        np.linalg.lstsq(design, Y[~GONE], rcond=None)[0], abs=1e-3
    )
    assert fit.moments_.rows == (~GONE).sum()


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "labels", [LABELS, np.where(GONE, np.nan, ILL), pd.Series(LABELS)], ids=["texts", "numbers", "series"]
)
@pytest.mark.parametrize("model", ["PrivateGLM", "PrivateLogisticRegression"])
def test_a_missing_class_is_left_out(model: str, labels: Any) -> None:
    first = ("logistic",) if model == "PrivateGLM" else ()
    about = {"bounds": Bounds(RANGES, missing="complete"), "epsilon": math.inf}
    about |= {} if isinstance(labels, np.ndarray) else {"classes": ("no", "yes")}
    fit = getattr(unpooled, model)(*first, **about).fit(NUMBERS, labels)
    wanted = LogisticRegression(C=1e10, tol=1e-10).fit(NUMBERS[~GONE], ILL[~GONE])
    assert np.ravel(fit.coef_) == pytest.approx(wanted.coef_[0], abs=1e-2)
    assert set(fit.classes_) in ({"no", "yes"}, {0, 1})


@pytest.mark.guarantee
def test_times_and_events_may_be_missing() -> None:
    times, later = RNG.exponential(size=N).clip(0, 3), np.roll(GONE, 7)
    about = {"bounds": Bounds(RANGES, missing="complete"), "y_bounds": (0, 3), "cuts": [1.0], "epsilon": math.inf}
    events = [None if gone else bool(time < 3) for gone, time in zip(later, times, strict=True)]
    fit = PrivateGLM("survival", **about).fit(NUMBERS, np.where(GONE, np.nan, times), event=events)
    whole = ~(GONE | later)
    plain = PrivateGLM("survival", **about).fit(NUMBERS[whole], times[whole], event=(times < 3)[whole])
    assert fit.coef_ == pytest.approx(plain.coef_, abs=1e-4)
    with pytest.raises(DataError, match="the response y has missing values"):
        PrivateGLM("survival", **about | {"bounds": RANGES}).fit(NUMBERS, times, event=events)


@pytest.mark.guarantee
def test_a_missing_response_that_nobody_declared_is_refused_in_one_way() -> None:
    gone, bounds = np.where(GONE, np.nan, Y), Bounds({**RANGES, "y": (-9, 9)})
    words = r"'y' has missing values.*declare missing = 'complete'.*missing=\{'y': 'complete'\}.*Do not fill"
    with pytest.raises(DataError, match=words):
        PrivateLinearRegression(bounds=bounds).fit(NUMBERS.assign(y=gone), "y")
    with pytest.raises(DataError, match=words):
        PrivateGLM("logistic", bounds=RANGES, classes=("no", "yes")).fit(NUMBERS, pd.Series(LABELS, name="y"))
    with pytest.raises(DataError, match=r"the response y has missing values.*missing='complete'"):
        unpooled.PrivateLogisticRegression(bounds=RANGES, classes=("no", "yes")).fit(NUMBERS, LABELS)
    with pytest.raises(DataError, match="this model leaves no rows out: leave such rows out of the data"):
        unpooled.PrivatePLSRegression(n_components=1, bounds=RANGES, y_bounds=(-9, 9)).fit(NUMBERS, gone)
    with pytest.raises(
        DataError, match=r"column 'x2' holds a missing value .NaN., and its declaration.*missing=\{'x2': 'complete'\}"
    ):
        PrivateLinearRegression(bounds=RANGES, y_bounds=(-9, 9)).fit(NUMBERS.assign(x2=gone), Y)
    with pytest.raises(DataError, match="column 'x1' holds a missing value"):
        PrivateLinearRegression(bounds=RANGES, y_bounds=(-9, 9)).fit(np.column_stack([X1, gone]), Y)
    with pytest.raises(UsageError, match="'absent' is for other columns"):
        PrivateLinearRegression(bounds=Bounds({**RANGES, "y": (-9, 9)}, missing={"y": "absent"})).fit(
            NUMBERS.assign(y=Y), "y"
        )


@pytest.mark.guarantee
def test_classes_by_perturbation_leave_nothing_out() -> None:
    about = {"bounds": Bounds(RANGES, missing="complete"), "classes": ("no", "yes")}
    with pytest.raises(UsageError, match="'complete' goes with method 'rounds'"):
        unpooled.PrivateLogisticRegression(**about, method="perturbation").fit(NUMBERS, LABELS)
    assert unpooled.PrivateLogisticRegression(**about, delta=1e-5).plan(N, 2).study.model == "glm"


@pytest.mark.parametrize("nothing", [[None] * N, np.full(N, np.nan)], ids=["None", "nan"])
def test_a_study_in_which_every_response_is_missing_prints_no_line(nothing: Any) -> None:
    bounds = Bounds(RANGES, missing="complete")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = (
            PrivateLinearRegression(bounds=bounds, y_bounds=(-9, 9), goal="table", random_state=0).fit(NUMBERS, nothing),
            PrivateGLM("logistic", bounds=bounds, goal="table", random_state=0).fit(NUMBERS, nothing),
        )
    assert not any(fit.summary().terms for fit in fits)


# --- households ------------------------------------------------------------------------------------------------------------


def ids_of(table: Table) -> np.ndarray:
    """The ids of the rows that count, as they are called."""
    return np.asarray(table._owners)


def homes(seed: int, of_first: list[float] | None = None) -> BoundedTable:
    """Rows of five ids, up to six each of which two count, half of them with a gap; ``of_first``: the values of the first id."""
    rng = np.random.default_rng(seed)
    sizes = [len(of_first) if of_first is not None else 6, *rng.integers(1, 7, 4)]
    own = np.where(rng.random(30) < 0.5, np.nan, rng.uniform(-1, 1, 30)).round(6)
    values = [list(own[6 * k : 6 * k + size]) for k, size in enumerate(sizes)]
    if of_first is not None:
        values[0] = of_first
    ids = np.repeat(["a", "b", "c", "d", "e"], sizes)
    return BoundedTable(Table({"a": np.concatenate(values)}), ids, 2)


@pytest.mark.guarantee
def test_the_first_whole_rows_of_every_id_count() -> None:
    values = [math.nan, 1.0, math.nan, 0.5, 0.25]
    table = BoundedTable(Table({"a": values, "b": [1.0, 2.0, 3.0, 4.0, 5.0]}), ["p", "p", "p", "p", "q"], 2)
    found = whole_rows(table, FEW[:1])
    assert sorted(found["a"].tolist()) == [0.25, 0.5, 1.0]
    assert found["b"].tolist() == [2.0, 4.0, 5.0]
    assert found.owners.tolist() == [0, 0, 1]
    assert (found.n_rows, found.household) == (table.n_rows, table.household)
    assert whole_rows(table, FEW[:1]) is found
    assert whole_rows(table, FEW[:0]) is table
    nobody = BoundedTable(Table({"a": [math.nan] * 3}), ["p", "p", "q"], 1)
    assert whole_rows(nobody, FEW[:1])["a"].size == 0


@pytest.mark.guarantee
def test_a_household_that_changes_changes_at_most_its_own_rows() -> None:
    """B.20 with F.19, by brute force: whatever one id's rows become, no other id's rows move, and at most two come or go."""
    rng = np.random.default_rng(0)
    for seed in range(60):
        one = whole_rows(homes(seed), FEW[:1])
        size = int(rng.integers(1, 9))
        other = np.where(rng.random(size) < 0.5, np.nan, rng.uniform(-1, 1, size)).round(6).tolist()
        changed = whole_rows(homes(seed, other), FEW[:1])
        rest = [table["a"][ids_of(table) != "a"].tolist() for table in (one, changed)]
        assert rest[0] == rest[1]
        for table in (one, changed):
            assert (ids_of(table) == "a").sum() <= 2
            assert not np.isnan(table["a"]).any()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_households_with_gaps_are_audited(model: str) -> None:
    asked, tables = small(model, "record", "replace")
    ids = [0, 0, 0, 1, 1, 2]
    bounded = {name: BoundedTable(table, ids, 2) for name, table in tables.items()}
    cards = tuple(Card(card.name, 6, card.columns, household=Household("id", 3, 2)) for card in asked.parties)
    asked = msgspec.structs.replace(asked, unit="household", parties=cards)
    report = replay(load(model), asked, bounded, registry=load, rounds=3)
    assert report.passed, str(report)


def test_a_fit_of_households_has_the_first_whole_rows() -> None:
    ids = np.repeat(np.arange(N // 4), 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateLinearRegression(
            epsilon=math.inf, unit="household", rows_per_household=1, bounds=BOUNDS, y_bounds=(-9, 9)
        ).fit(FRAME, Y, unit_id=ids)
    assert model.moments_.rows == WHOLE.reshape(-1, 4).any(axis=1).sum()


# --- before data -----------------------------------------------------------------------------------------------------------


def asked_for(expected: float, model: str = "bayes", **parameters: Any) -> Study:
    columns = (Column("x1", -4, 4), Column("x2", -8, 8, missing="complete"), Column("y", -9, 9))
    own = {"response": "y", "method": "refinement"} if model == "bayes" else {"response": "y", "family": "logistic"}
    if model == "glm":
        columns = (*columns[:2], Column("y", categories=("n", "j")))
    own |= {"expected_missing": expected} if expected else {}
    return Study(model, (Card("p", 5000, columns),), 1.0, 1e-5, derived=(), parameters=own | parameters)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_plan_and_outlook_say_what_gaps_cost(model: str) -> None:
    plan = load(model).compile(asked_for(0.0, model))
    assert any(
        "n is known after the release" in note and "1.05 to 1.11 at 10%, 1.20 to 1.43 at 30%" in note for note in plan.notes
    )
    row = load(model)
    assert row.outlook is not None
    found = row.outlook(asked_for(0.0, model), quick=True, lines=True)
    line = found.lines[0]
    assert 1.05 <= line.missing_10 / line.std_error <= 1.112
    assert 1.19 <= line.missing_30 / line.std_error <= 1.43
    assert "10% left out" in str(found)
    thirty = row.outlook(asked_for(0.3, model), quick=True, lines=True)
    assert thirty.lines[0].std_error == pytest.approx(thirty.lines[0].missing_30)
    assert "30% of the rows left out" in thirty.assumed
    plain = msgspec.structs.replace(
        asked_for(0.0, model),
        parties=tuple(Card("p", 5000, tuple(needed(c) for c in card.columns)) for card in asked_for(0.0, model).parties),
    )
    assert math.isnan(row.outlook(plain, quick=True, lines=True).lines[0].missing_10)
    assert not any("left out" in note for note in load(model).compile(plain).notes)


@pytest.mark.guarantee
def test_rounds_and_clips_are_those_of_the_rows_that_are_expected() -> None:
    full, part = (rounds.strength(asked_for(m), load("bayes").compile(asked_for(m)).design.aggregation) for m in (0.0, 0.4))
    assert part == pytest.approx(0.6 * full)
    assert load("bayes").compile(asked_for(0.4)).hash != load("bayes").compile(asked_for(0.0)).hash


@pytest.mark.guarantee
@pytest.mark.parametrize("wrong", [1.0, -0.1, 7, "half", True])
def test_an_expected_part_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="expected_missing"):
        load("bayes").compile(asked_for(wrong))


def test_an_expected_part_without_a_column_that_may_miss_is_refused() -> None:
    with pytest.raises(UsageError, match="no column declares that"):
        PrivateLinearRegression(expected_missing=0.2, bounds=(-4, 4), y_bounds=(-9, 9)).plan(2000, 2)
    assert PrivateLinearRegression(expected_missing=0.2, bounds=Bounds(-4, 4, missing="complete"), y_bounds=(-9, 9)).plan(
        2000, 2
    )


@pytest.mark.guarantee
@pytest.mark.parametrize("model", ["linear", "focus", "glm"])
def test_a_table_of_too_few_whole_rows_says_why_it_has_no_line(model: str, tmp_path: Path) -> None:
    frame = FRAME.assign(x2=np.where(np.arange(N) % 12 < 11, np.nan, X2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if model == "glm":
            fit = PrivateGLM("logistic", epsilon=300.0, bounds=BOUNDS, classes=(0, 1), method="newton").fit(frame, ILL)
        else:
            given = {"focus": ["x1"]} if model == "focus" else {"method": "refinement"}
            about = {"bounds": BOUNDS, "y_bounds": (-9, 9), "epsilon": 300.0, "random_state": 0}
            fit = PrivateLinearRegression(**about, **given).fit(frame, Y)
    table = fit.summary()
    assert not table.terms
    assert "not identified: " in str(table)
    assert f"of {N} rows had all columns" in str(table)
    if model == "linear":
        fit.moments_.save(tmp_path / "few")
        assert not Moments.load(tmp_path / "few").summary().terms


# --- gaps that count as something -------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("rule", ["absent", "indicator"])
@pytest.mark.parametrize("model", ["linear", "glm"])
def test_a_table_of_filled_gaps_is_refused_before_it_is_paid_and_predictions_are_not(model: str, rule: str) -> None:
    bounds = Bounds(RANGES, missing={"x2": rule})

    def asked(goal: str, **given: Any) -> Any:
        if model == "linear":
            return PrivateLinearRegression(epsilon=50.0, bounds=bounds, y_bounds=(-9, 9), goal=goal, **given)
        return PrivateGLM("logistic", epsilon=50.0, bounds=bounds, classes=(0, 1), goal=goal, **given)

    budget = unpooled.Budget(100.0, 1e-3)
    with pytest.raises(
        UsageError, match=r"missing values of x2 would count.*missing = \"complete\".*goal = \"predictions\""
    ) as caught:
        asked("table", budget=budget).fit(FRAME[["x1", "x2"]], Y if model == "linear" else ILL)
    assert caught.value.column == "x2"
    assert budget.spent == 0
    assert asked("predictions").plan(N, 2)
    assert any('wrong for a table (goal = "table" refuses it)' in note for note in asked("auto").plan(N, 2).notes)


def test_a_focus_may_have_filled_covariates() -> None:
    bounds = Bounds(RANGES, missing={"x2": "indicator"})
    about = {"bounds": bounds, "y_bounds": (-9, 9), "epsilon": 50.0, "goal": "table"}
    assert PrivateLinearRegression(focus=["x1"], **about).plan(N, 2)
