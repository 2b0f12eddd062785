"""Estimators of columns take frames of parties with different people in different orders: linked first, then fitted as if by hand."""

from __future__ import annotations

import inspect
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import unpooled
from unpooled import (
    PrideClassifier,
    PrideGLM,
    PrideRegressor,
    PrivateLasso,
    PrivateLassoClassifier,
    PrivateStackingClassifier,
)
from unpooled.errors import DataError, PlanMismatch, UsageError
from unpooled.estimation.base import run
from unpooled.estimation.columns import link_rows, root_of
from unpooled.privacy.noise import seed_of
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Split

pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")

RNG = np.random.default_rng(8)
N = 90
X = RNG.uniform(-1, 1, (N, 5))
Y = np.clip(X[:, 0] - X[:, 3] + 0.1 * RNG.normal(size=N), -3, 3)
NAMES = ["age", "dose", "stay", "crp", "ldl"]
CLINIC, LAB = RNG.permutation(N)[:80], RNG.permutation(N)[:75]
COMMON = sorted(set(CLINIC.tolist()) & set(LAB.tolist()))
COLUMNS = {"clinic": ["age", "dose", "stay"], "lab": ["crp", "ldl"]}


def name_of(person: int) -> str:
    return f"patient-{person:04d}"


def frames(kind: Any = pl.DataFrame, *, turned: bool = False) -> dict[str, Any]:
    """The clinic has the responses, and some people whom the laboratory has not."""
    order = slice(None, None, -1) if turned else slice(None)
    clinic, lab = CLINIC[order], LAB[order]
    return {
        "clinic": kind(
            {
                "patient": [name_of(k) for k in clinic],
                **{NAMES[j]: X[clinic, j] for j in range(3)},
                "y": Y[clinic],
                "time": np.exp(Y[clinic]),
                "ill": np.where(Y[clinic] > 0, "ill", "well").tolist(),
                "seen": (np.abs(Y[clinic]) > 0.1).astype(float),
            }
        ),
        "lab": kind({"patient": [f" {name_of(k)}" for k in lab], **{NAMES[j]: X[lab, j] for j in (3, 4)}}),
    }


#: An estimator of each kind whose columns are split, and the names of its response and of what belongs to it.
ESTIMATORS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "regressor": (PrideRegressor, {"sketch_dim": 2}, ("y",)),
    "published": (PrideRegressor, {"sketch_dim": 2, "calibration": "published", "alpha": 1.0}, ("y",)),
    "classifier": (PrideClassifier, {"sketch_dim": 2, "classes": ("ill", "well")}, ("ill",)),
    "cox": (PrideGLM, {"family": "cox", "sketch_dim": 2}, ("time", "seen")),
    "lasso": (PrivateLasso, {"y_bounds": (-3, 3)}, ("y",)),
    "rounds": (PrivateLasso, {"y_bounds": (-3, 3), "method": "frank-wolfe", "rounds": 3}, ("y",)),
    "lasso classifier": (PrivateLassoClassifier, {"classes": ("ill", "well"), "radius": 3.0}, ("ill",)),
    "stack": (PrivateStackingClassifier, {"classes": ("ill", "well")}, ("ill",)),
}


def made(name: str, **more: Any) -> Any:
    kind, words, _ = ESTIMATORS[name]
    return kind(**{"parties": COLUMNS, "bounds": (-1, 1), "epsilon": 8.0, "random_state": 4} | words | more)


def learnt(model: Any) -> list[Any]:
    """Everything that a fit gave, as numbers."""
    own = [model.coef_, model.intercept_] if hasattr(model, "coef_") else [list(m.weights) for m in model.models_]
    return [np.asarray(one).tolist() for one in own]


def by_hand(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """The people of a linked fit in its order, found without it: their places in ``X``, and those of the clinic's rows."""
    rows = link_rows(frames(), "patient", seed=seed_of(model.random_state)).rows
    assert CLINIC[rows["clinic"]].tolist() == LAB[rows["lab"]].tolist()
    return CLINIC[rows["clinic"]], rows["clinic"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_to_frames_is_that_to_the_same_rows_aligned_by_hand(name: str) -> None:
    """Without noise, for noise is bound to the plan, which names the row map."""
    labels = ESTIMATORS[name][2]
    exact = {"epsilon": math.inf, "delta": 1e-6} | ({"delta": None} if name in {"stack", "published"} else {})
    model = made(name, **exact).fit(frames(), *labels, on="patient")
    people, rows = by_hand(model)
    assert sorted(people.tolist()) == COMMON
    told = [np.asarray(frames()["clinic"][label])[rows] for label in labels]
    aligned = made(name, **exact).fit(pl.DataFrame(X[people], schema=NAMES), *told)
    assert learnt(model) == learnt(aligned)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.plan_.study.ids == model.linkage_.ids
    assert aligned.plan_.study.ids == ""
    assert not hasattr(aligned, "linkage_")


@pytest.mark.slow_for("cox")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_files_in_another_order_give_the_same_bits_with_noise_and_no_id_is_kept(name: str) -> None:
    labels = ESTIMATORS[name][2]
    one = made(name).fit(frames(), *labels, on="patient")
    other = made(name).fit(frames(dict, turned=True), *labels, on="patient")
    assert one.plan_.hash == other.plan_.hash
    assert learnt(one) == learnt(other)
    assert one.plan_.split is Split.VERTICAL
    assert any("told every party, without noise, which of its ids" in line for line in one.statement_.not_protected)
    told = one.linkage_
    assert (told.rows, told.passes, told.handed) == (len(COMMON), (len(COMMON),), ("lab",))
    assert told.guesses == {"clinic": LAB.size, "lab": CLINIC.size}
    assert "by exactly each combination of parties" in str(told)
    assert "handed to lab" in str(told)
    holds = [*vars(one).values(), pickle.dumps(one)]
    assert not any("patient-" in repr(value) or b"patient-" in pickle.dumps(value) for value in holds)
    again = pickle.loads(pickle.dumps(one))
    assert learnt(again) == learnt(one)


@pytest.mark.guarantee
def test_the_run_behind_a_linked_fit_is_that_of_parties_whose_rows_were_put_in_order_by_hand() -> None:
    """With noise too: the same study over tables that are said to be of its row map."""
    model = made("regressor").fit(frames(), "y", on="patient")
    people, _ = by_hand(model)
    tables = {}
    for name, columns in COLUMNS.items():
        own = Table({**{c: X[people, NAMES.index(c)] for c in columns}, "(response)": Y[people]})
        own.linked = model.plan_.study.linked
        tables[name] = own
    roots = {name: root_of(name, model.random_state) for name in tables}
    _, found = run(model._row, model.plan_.study, tables, roots=roots)
    kept = {name: {key: values for (_, key), values in keeper.items()} for name, keeper in found.kept.items()}
    for name, own in model.kept_.items():
        assert {key: values.tolist() for key, values in own.items()} == {k: v.tolist() for k, v in kept[name].items()}
    tables["lab"].linked = ""
    with pytest.raises(PlanMismatch, match="not those of the row map"):
        run(model._row, model.plan_.study, tables)


@pytest.mark.guarantee
def test_without_a_seed_two_fits_have_row_maps_and_noise_of_their_own() -> None:
    one, other = (made("regressor", random_state=None).fit(frames(), "y", on="patient") for _ in range(2))
    assert one.linkage_.ids != other.linkage_.ids
    assert learnt(one) != learnt(other)


def test_what_a_linked_fit_predicts_and_what_it_saves(tmp_path: Path) -> None:
    model = made("regressor").fit(frames(), "y", on="patient")
    new = pl.DataFrame(X[:9], schema=NAMES)
    assert model.predict_at("clinic", new).shape == (9,)
    model.save(tmp_path / "model.bin")
    assert b"patient-" not in (tmp_path / "model.bin").read_bytes()
    again = unpooled.load(tmp_path / "model.bin")
    assert again.predict(new).tolist() == model.predict(new).tolist()
    assert again.linkage_ == model.linkage_
    assert again.plan_.hash == model.plan_.hash


def test_frames_say_who_holds_what_and_a_later_fit_to_one_table_does_not() -> None:
    model = made("stack", parties=2)
    framed = {
        name: frame.select("patient", *COLUMNS[name], *(["ill"] if name == "clinic" else []))
        for name, frame in frames().items()
    }
    model.fit(framed, "ill", on="patient")
    assert {c.name: [one.name for one in c.columns] for c in model.plan_.study.parties} == COLUMNS
    assert model.linkage_.columns == {name: tuple(own) for name, own in COLUMNS.items()}
    assert len(model.plan(50, 4).study.parties) == 2  # other columns: as the parameter says
    model.fit(X, np.where(Y > 0, "ill", "well"))
    assert not hasattr(model, "linkage_")
    assert [card.name for card in model.plan_.study.parties] == ["group0", "group1"]
    assert "_linked_roots" not in vars(model)


def test_a_fit_that_failed_after_linking_leaves_no_key_behind_in_a_file(tmp_path: Path) -> None:
    model = made("regressor").fit(frames(), "y", on="patient")
    broken = frames()
    broken["lab"] = broken["lab"].with_columns(crp=pl.lit(float("nan")))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(broken, "y", on="patient")
    assert "_linked_roots" in vars(model)
    model.save(tmp_path / "model.bin")
    assert b"_linked_roots" not in (tmp_path / "model.bin").read_bytes()
    assert b"_linked_roots" not in pickle.dumps(model)
    model.fit(pl.DataFrame(X, schema=NAMES), Y)
    assert model.plan_.study.ids == ""


def test_frames_of_pandas_and_several_keys() -> None:
    pandas = pytest.importorskip("pandas")
    keys = ["patient", {"name": "digits", "columns": ["patient"], "normalise": ["digits"]}]
    model = made("lasso").fit(frames(pandas.DataFrame), "y", on=keys)
    assert model.linkage_.passes == (len(COMMON), 0)
    assert "size of each pass" in str(model.linkage_)
    twin = made("lasso").fit(frames(), "y", on=keys)
    assert learnt(model) == learnt(twin)


def test_parties_that_only_send_are_handed_no_response() -> None:
    model = made("regressor", estimating=["clinic"]).fit(frames(), "y", on="patient")
    assert model.linkage_.handed == ()
    assert "handed" not in str(model.linkage_)
    assert list(model.kept_) == ["clinic"]


def without(column: str) -> dict[str, Any]:
    return {name: frame.drop(column) if column in frame.columns else frame for name, frame in frames().items()}


def contradicting() -> dict[str, Any]:
    found = frames()
    found["lab"] = found["lab"].with_columns(y=pl.lit(0.5))
    return found


def strangers() -> dict[str, Any]:
    found = frames()
    found["lab"] = found["lab"].with_columns(
        patient=pl.Series([f"other-{k}" for k in range(LAB.size - 1)] + [name_of(COMMON[0])])
    )
    return found


@pytest.mark.parametrize(
    ("given", "response", "words", "match"),
    [
        (frames, "y", {}, "say on="),
        (lambda: X, "y", {"on": "patient"}, "mapping from the parties' names"),
        (frames, Y, {"on": "patient"}, "the name of its column"),
        (frames, "z", {"on": "patient"}, "no frame has a column 'z'"),
        (frames, "y", {"on": "number"}, "no column 'number'"),
        (lambda: without("stay"), "y", {"on": "patient"}, "has no column 'stay'"),
        (lambda: frames() | {"registry": frames()["lab"]}, "y", {"on": "patient"}, "parties names"),
        (contradicting, "y", {"on": "patient"}, "do not tell the same"),
        (strangers, "y", {"on": "patient"}, "1 people in common"),
        (lambda: {"clinic": frames()["clinic"]}, "y", {"on": "patient"}, "parties names"),
    ],
)
def test_what_cannot_be_linked_and_fitted_is_refused_in_words_without_values(
    given: Any, response: Any, words: dict[str, Any], match: str
) -> None:
    model = made("regressor")
    with pytest.raises((UsageError, DataError), match=match) as refused:
        model.fit(given(), response, **words)
    assert "patient-" not in str(refused.value)
    assert not hasattr(model, "coef_")


@pytest.mark.guarantee
def test_columns_of_one_name_in_two_frames_and_frames_without_columns_are_refused() -> None:
    both = frames()
    both["lab"] = both["lab"].with_columns(age=pl.lit(0.0))
    with pytest.raises(UsageError, match="column 'age' stands in two frames"):
        made("stack", parties=2).fit(both, "ill", on="patient")
    made("stack").fit(both, "ill", on="patient")  # parties= says which one
    with pytest.raises(UsageError, match="no column to fit"):
        made("stack", parties=2).fit({**frames(), "lab": frames()["lab"].select("patient")}, "ill", on="patient")
    with pytest.raises(UsageError, match="a frame is one of pandas or polars"):
        link_rows({"clinic": [[1.0]], "lab": [[1.0]]}, "patient")
    with pytest.raises(UsageError, match='split="samples"'):
        made("stack", parties=2, split="samples").fit(frames(), "ill", on="patient")
    with pytest.raises(UsageError, match="between 2 and 10 parties"):
        made("stack", parties=1).fit({"clinic": frames()["clinic"].select("patient", "age", "ill")}, "ill", on="patient")


def test_every_estimator_whose_parties_hold_columns_takes_frames() -> None:
    kinds = [getattr(unpooled, name) for name in unpooled.__all__ if inspect.isclass(getattr(unpooled, name))]
    split = {kind for kind in kinds if hasattr(kind, "fit") and "parties" in inspect.signature(kind).parameters}
    # docs/tutorial-joint.md and docs/tutorial-odds.md
    others = {unpooled.PrivateLinearRegression, unpooled.PrivateGLM}
    assert split == {kind for kind, _, _ in ESTIMATORS.values()} | others
    for kind in split:
        assert inspect.signature(kind.fit).parameters["on"].default is None
