"""New rows by the published form of PRIDE: as sections 5 and 7 of the paper predict them, at a cost that nobody knows, and refused where a party is missing."""

from __future__ import annotations

import csv
import json
import math
import warnings
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from commands import command

import unpooled
from unpooled import PrideClassifier, PrideRegressor
from unpooled.errors import UnpooledError, UsageError
from unpooled.models import load
from unpooled.papers.pride import DEVIATIONS, MEANS, RANGE, published_sigma
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Target, Unit
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import run_in_process
from unpooled.study.files import read_study
from unpooled.study.party import create_party

PAPER = {
    "bounds": (-1, 1),
    "delta": 0.05,
    "calibration": "published",
    "noise_model": "plain",
    "alpha": 3.0,
    "random_state": 0,
}


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.clip(
        (rng.normal(size=(count, 3)) @ np.random.default_rng(9).normal(size=(3, 16)) + rng.normal(size=(count, 16))) / 8,
        -1,
        1,
    )
    return X, 3 * X[:, 0] - 2 * X[:, 9] + 0.1 * rng.normal(size=count)


X, Y = rows(300, 0)
NEW = rows(40, 1)[0]


def standardised(block: np.ndarray, columns: slice) -> np.ndarray:
    return (block[:, columns] - X[:, columns].mean(axis=0)) / X[:, columns].std(axis=0)


def local_design(model: PrideRegressor, k: int, block: np.ndarray) -> np.ndarray:
    """Predictions of party k by the words of section 7, from its own standardised columns and the sketches of the other party's, without noise."""
    kept, other = model.kept_[f"party{k}"], model.plan_.design.parts[1 - k]
    own, others = (standardised(block, slice(8 * j, 8 * j + 8)) for j in (k, 1 - k))
    design = np.hstack([own, others @ other.sketch.srht.matrix()])
    return design @ np.append(kept["coefficients"], kept["received_coefficients"]) + kept["intercept"][0]


@pytest.mark.parametrize("size", [2, 5, 8])
def test_a_party_predicts_with_its_own_local_design(size: int) -> None:
    model = PrideRegressor(epsilon=math.inf, sketch_dim=size, **PAPER).fit(X, Y)
    for k in (0, 1):
        assert model.predict_at(f"party{k}", NEW) == pytest.approx(local_design(model, k, NEW), abs=1e-10)


@pytest.mark.parametrize("epsilon", [2.0, math.inf])
def test_predictions_of_all_columns_are_the_sum_of_the_parties_parts(epsilon: float) -> None:
    """The test errors of section 5: X_1 beta_1 + .. + X_K beta_K, and the mean of the response."""
    model = PrideRegressor(epsilon=epsilon, sketch_dim=3, **PAPER).fit(X, Y)
    parts = [standardised(NEW, slice(8 * k, 8 * k + 8)) @ model.kept_[f"party{k}"]["coefficients"] for k in (0, 1)]
    assert model.predict(NEW) == pytest.approx(Y.mean() + sum(parts), abs=1e-10)


def test_without_loss_and_noise_both_ways_agree() -> None:
    model = PrideRegressor(epsilon=math.inf, sketch_dim=8, **PAPER).fit(X, Y)
    assert model.predict_at("party1", NEW) == pytest.approx(model.predict(NEW), abs=1e-9)


def test_new_sketches_have_the_noise_of_the_fit() -> None:
    """Also where the range of the new rows is another: the deviation of a prediction is sigma_k |b of the received columns|."""
    model = PrideRegressor(epsilon=2.0, sketch_dim=3, **PAPER).fit(X, Y)
    narrow = np.tile(NEW.mean(axis=0), (6000, 1)) + 1e-3 * np.random.default_rng(3).normal(size=(6000, 16))
    missed = model.predict_at("party0", narrow) - local_design(model, 0, narrow)
    theta = np.ptp(standardised(X, slice(8, 16)), axis=0).max()
    assert model._kept_by_senders == {}
    assert model.kept_["party1"][RANGE][0] == pytest.approx(theta)
    size = published_sigma(theta, 2.0, 0.05) * np.linalg.norm(model.kept_["party0"]["received_coefficients"])
    assert missed.std() == pytest.approx(size, rel=0.05)
    assert abs(missed.mean()) < 4 * size / math.sqrt(6000)


def test_the_statement_says_that_nobody_knows_the_cost() -> None:
    model = PrideRegressor(epsilon=2.0, sketch_dim=3, **PAPER).fit(X, Y)
    model.predict_at("party0", NEW)
    plan = model.prediction_plan_
    assert plan.epsilon(0.05) == math.inf
    assert not plan.statement.holds
    assert "nobody can say what the release costs" in str(plan.statement)
    assert "at 'party0'" in str(plan.statement)
    assert [entry.key.name for entry in model.prediction_ledger_ if entry.kind == "charge"] == ["sketch"]
    assert "new rows" not in str(model.statement_)


def test_a_party_that_only_sends_keeps_what_new_rows_need() -> None:
    model = PrideRegressor(epsilon=math.inf, sketch_dim=8, estimating=["party0"], **PAPER).fit(X, Y)
    both = PrideRegressor(epsilon=math.inf, sketch_dim=8, **PAPER).fit(X, Y)
    assert set(model.kept_) == {"party0"}
    assert set(model._kept_by_senders["party1"]) == {MEANS, DEVIATIONS, RANGE}
    assert model.predict_at("party0", NEW) == pytest.approx(both.predict_at("party0", NEW), abs=1e-10)
    secret = model._kept_by_senders["party1"][MEANS].tobytes()
    import pickle

    assert secret in pickle.dumps(model._kept_by_senders)  # the control
    assert secret not in pickle.dumps(model)


def test_a_classifier_predicts_classes_at_a_party() -> None:
    labels = np.where(Y.mean() < Y, "ill", "well")
    model = PrideClassifier(epsilon=math.inf, sketch_dim=8, classes=("ill", "well"), **PAPER).fit(X, labels)
    assert (model.predict_at("party0", NEW) == model.predict(NEW)).all()


def test_a_saved_fit_predicts_and_holds_nothing_of_the_parties(tmp_path: Path) -> None:
    model = PrideRegressor(epsilon=2.0, sketch_dim=3, **PAPER).fit(X, Y)
    model.save(tmp_path / "m")
    back = unpooled.load(tmp_path / "m")
    assert (back.predict(NEW) == model.predict(NEW)).all()
    assert not hasattr(back, "_kept_by_senders")
    with pytest.raises(UsageError, match="fit it here to predict at one"):
        back.predict_at("party0", NEW)


# --- what is refused -------------------------------------------------------------------------------------------------


def finished(names: str = "abc") -> tuple[Study, dict[str, MemoryKeeper]]:
    """A study of three parties that fitted, and what each keeps."""
    columns = {name: tuple(Column(f"x{j}", -1.0, 1.0) for j in range(5 * k, 5 * k + 5)) for k, name in enumerate(names)}
    cards = tuple(Card(name, 300, columns[name], ("y",)) for name in names)
    parameters = {"sketch_dim": 2, "noise_model": "plain", "alpha": 3.0}
    study = Study(
        "pride",
        cards,
        5.0,
        0.05,
        unit="attribute",
        calibration="published",
        parameters=parameters,
        simulation_seed=1,
        derived=(),
    )
    tables = {name: Table({c.name: X[:, int(c.name[1:])] for c in columns[name]} | {"y": Y}) for name in names}
    model = load("pride-published")
    run = run_in_process(model, model.compile(study), tables, Policy.in_process(), load)
    return study, {name: MemoryKeeper(dict(keeper.items())) for name, keeper in run.kept.items()}


def predicted(study: Study, keepers: dict[str, MemoryKeeper], names: str, fitted: str | None = None) -> np.ndarray:
    model = load("pride-published")
    plan = model.compile(study)
    cards = tuple(Card(card.name, len(NEW), card.columns) for card in study.parties if card.name in names)
    sizes = dict.fromkeys(names, 2)
    asked = msgspec.structs.replace(
        study, parties=cards, parameters={**study.parameters, "fitted": fitted or plan.hash, "sketch_dim": sizes}
    )
    tables = {card.name: Table({c.name: NEW[:, int(c.name[1:])] for c in card.columns}) for card in cards}
    new = model.compile(asked)
    run = run_in_process(model, new, tables, Policy.in_process(), load, {name: keepers[name] for name in names})
    return run.kept[names[0]].kept(new.hash, "predictions")


@pytest.mark.guarantee
def test_a_missing_party_is_refused_in_words() -> None:
    study, keepers = finished()
    assert predicted(study, keepers, "abc").shape == (40,)
    with pytest.raises(UnpooledError, match="every party of the study that fitted"):
        predicted(study, keepers, "ab")
    keepers["c"] = MemoryKeeper()  # a party that took no part in the fit, or whose keeper is of an earlier version
    with pytest.raises(UnpooledError, match="run that study again with every party"):
        predicted(study, keepers, "abc")
    with pytest.raises(UnpooledError, match="took no part in it"):
        predicted(study, finished()[1], "abc", fitted="0" * 64)


@pytest.mark.parametrize("delta", [0.0, 0.5, 0.6, 0.99])
def test_a_delta_beyond_theorem_1_is_refused_everywhere(delta: float) -> None:
    options = {**PAPER, "delta": delta, "epsilon": 2.0, "sketch_dim": 2}
    with pytest.raises(UsageError, match="delta above 0 and below 1/2"):
        PrideRegressor(**options).plan(300, 16)
    with pytest.raises(UsageError, match="delta above 0 and below 1/2"):
        PrideRegressor(**options).fit(X, Y)
    with pytest.raises(UsageError, match="delta above 0 and below 1/2"):
        published_sigma(7.4, 1.0, delta)
    study = msgspec.structs.replace(finished_study(), delta=delta)
    with pytest.raises(UsageError, match="delta above 0 and below 1/2"):
        load("pride-published").compile(study)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert PrideRegressor(**{**options, "delta": 0.49}).fit(X, Y).plan_.study.delta == 0.49


def finished_study() -> Study:
    cards = tuple(Card(name, 300, (Column(f"x{name}", -1.0, 1.0),), ("y",)) for name in "ab")
    return Study(
        "pride", cards, 5.0, 0.05, unit="attribute", calibration="published", parameters={"sketch_dim": 1}, derived=()
    )


@pytest.mark.parametrize(
    ("calibration", "sketch", "wanted"),
    [
        ("sound", "gaussian", 10_000),
        ("sound", "gaussian", {"a": 1, "b": 9}),
        ("published", "srht", 10_000),
        ("published", "srht", {"a": 1, "b": 9}),
    ],
)
def test_sketches_of_more_columns_than_a_transform_has_are_refused(calibration: str, sketch: str, wanted: object) -> None:
    cards = tuple(
        Card(n, 300, tuple(Column(f"{n}{j}", -1.0, 1.0) for j in range(w)), ("y",)) for n, w in (("a", 16), ("b", 5))
    )
    study = Study("pride", cards, 5.0, 0.05, unit="attribute", calibration=calibration, derived=())
    row = load("pride" if calibration == "sound" else "pride-published")
    with pytest.raises(UsageError, match=r"sketch_dim must be at most (16|8), for"):
        row.compile(msgspec.structs.replace(study, parameters={"sketch": sketch, "sketch_dim": wanted}))
    most = row.compile(msgspec.structs.replace(study, parameters={"sketch_dim": 16, "alpha": 1.0}))
    assert [release.size for release in most.releases] == [16 * 300, 8 * 300]


# --- by commands -----------------------------------------------------------------------------------------------------

STUDY = """\
[study]
model = "pride"

[parameters]
response = "y"
alpha = 3.0
noise_model = "plain"
sketch_dim = 2

[privacy]
epsilon = 20.0
delta = 0.05
unit = "attribute"
calibration = "published"
"""
NAMES = ("clinic", "laboratory")


def ran(folder: Path, study: str, homes: tuple[str, ...]) -> None:
    for home in homes:
        command(folder, "party", "check", study, "--config", f"{home}/party.toml", "--approve")
    command(folder, "run", study, "--force", *(word for home in homes for word in ("--party", f"{home}/party.toml")))


@pytest.mark.guarantee
def test_a_finished_study_predicts_by_the_commands_of_the_sound_form(tmp_path: Path) -> None:
    fresh, truth = rows(400, 5)
    study = STUDY
    for k, name in enumerate(NAMES):
        (tmp_path / name).mkdir()
        columns = [f"{name[0]}{j}" for j in range(8)]
        for file, block, labels in (("data", X, {"y": Y}), ("new", fresh, {})):
            values = {column: block[:, 8 * k + j] for j, column in enumerate(columns)}
            ids = {"patient": [f"p{i}" for i in range(len(block))]}
            pl.DataFrame(ids | values | labels).write_csv(tmp_path / name / f"{file}.csv")
        declared = tuple(Column(column, -1.0, 1.0) for column in columns)
        data, budget = tmp_path / name / "data.csv", Target(1000.0, 0.2, Unit.ATTRIBUTE)
        create_party(tmp_path / name, name, data, declared, budget, "patient", ("y",))
        config = tmp_path / name / "party.toml"
        config.write_text(config.read_text().replace('calibrations = ["sound"]', 'calibrations = ["sound", "published"]'))
        study += f'\n[[party]]\ncard = "{name}/{name}.card.toml"\n'
    (tmp_path / "study.toml").write_text(study)
    ran(tmp_path, "study.toml", NAMES)
    cards = []
    for name in NAMES:
        command(tmp_path, "party", "rows", f"{name}/new.csv", "--config", f"{name}/party.toml", "--folder", f"{name}-new")
        cards += ["--card", f"{name}-new/{name}.card.toml"]
    command(tmp_path, "new", "pride", "--fitted", "study.toml", *cards, "--out", "predict.toml")
    assert "nobody knows what that costs, and nothing is promised" in (tmp_path / "predict.toml").read_text()
    assert read_study(tmp_path / "predict.toml").calibration == "published"
    assert "nobody can say what the release costs" in " ".join(command(tmp_path, "plan", "predict.toml").split())
    ran(tmp_path, "predict.toml", tuple(f"{name}-new" for name in NAMES))
    ledger = json.loads(command(tmp_path, "party", "ledger", "--config", "clinic/party.toml", "--json"))
    assert ledger["spent_epsilon"] == "unbounded"
    for name in NAMES:
        command(tmp_path, "party", "export", "predict.toml", "--config", f"{name}-new/party.toml", "--out", f"{name}.csv")
        lines = list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines()))
        found = np.array([float(line["prediction"]) for line in lines])
        assert [line["patient"] for line in lines] == [f"p{i}" for i in range(400)]
        assert np.corrcoef(found, truth)[0, 1] > 0.5
