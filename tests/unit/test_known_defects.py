"""Defects that a review found and that later issues mend: each test states what is wanted and fails today, strictly, for the stated reason.

When a mend makes one pass, the strict mark fails the suite: take the mark off and move the test to its subject's file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unpooled import (
    Bounds,
    PrideClassifier,
    PrideRegressor,
    PrivateBayesianRegression,
    PrivateLogisticRegression,
    PrivateStackingClassifier,
    describe,
)
from unpooled.errors import ProtocolError, StudyAborted, UsageError
from unpooled.models import load
from unpooled.models.describe.messages import SumsReply
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Array, Dropped, Nothing, Released, encode
from unpooled.protocol.roles import Model, OpenRequest, Party, Step
from unpooled.study.files import read_card, write_card

RNG = np.random.default_rng(1)
X = RNG.uniform(-1, 1, (80, 6))
Y = X[:, 0] + 0.1 * RNG.normal(size=80)
CLASS = Y > 0
ABSENT = Bounds(-1, 1, missing="absent")
EXACT = {"epsilon": math.inf, "bounds": ABSENT}


def known(finding: str, what: str, *, raises: type[BaseException] | tuple[type[BaseException], ...] = AssertionError) -> Any:
    """A strict expected failure that fails for this reason and no other."""
    return pytest.mark.xfail(strict=True, raises=raises, reason=f"{finding}: {what}")


DID_NOT_RAISE = pytest.fail.Exception

# --- C2: a missing value in a new row, where "absent" says that it contributes nothing ---------------------------------------


def a_new_row() -> tuple[np.ndarray, np.ndarray]:
    """A row with a missing value, and what "absent" makes of it: the middle of its range."""
    row = X[:1].copy()
    row[0, 1] = np.nan
    return row, np.nan_to_num(row)


@known("C2", "PrideRegressor predicts nan for a missing value that is declared absent")
def test_pride_predicts_rows_with_a_missing_value() -> None:
    row, filled = a_new_row()
    model = PrideRegressor(2, sketch_dim=2, **EXACT).fit(X, Y)
    assert model.predict(row) == pytest.approx(model.predict(filled))


@known("C2", "PrideClassifier decides nan, and so for classes_[0], for a missing value that is declared absent")
def test_pride_classifies_rows_with_a_missing_value() -> None:
    row, filled = a_new_row()
    model = PrideClassifier(2, sketch_dim=2, classes=(False, True), **EXACT).fit(X, CLASS)
    assert model.decision_function(row) == pytest.approx(model.decision_function(filled))


@known("C2", "PrivateLogisticRegression decides nan, and so for classes_[0], for a missing value that is declared absent")
def test_logistic_classifies_rows_with_a_missing_value() -> None:
    row, filled = a_new_row()
    model = PrivateLogisticRegression(classes=(False, True), **EXACT).fit(X, CLASS)
    assert model.decision_function(row) == pytest.approx(model.decision_function(filled))
    assert model.predict(row) == model.predict(filled)


# --- C3: parameters are validated, not cast -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "target"),
    [
        pytest.param(lambda: PrideRegressor(2, bounds=(-1, 1), fit_intercept="no"), Y, id="pride fit_intercept"),
        pytest.param(lambda: PrideRegressor(2, bounds=(-1, 1), folds=2.9), Y, id="pride folds"),
        pytest.param(lambda: PrideRegressor(2, bounds=(-1, 1), sketch_dim=5000), Y, id="pride sketch_dim of 3 columns"),
        pytest.param(lambda: PrideRegressor(99, bounds=(-1, 1)), Y, id="pride 99 parties of 6 columns"),
        pytest.param(
            lambda: PrivateLogisticRegression(bounds=(-1, 1), classes=(False, True), fit_intercept="no"),
            CLASS,
            id="logistic fit_intercept",
        ),
        pytest.param(
            lambda: PrivateStackingClassifier(99, bounds=(-1, 1), classes=(False, True)), CLASS, id="stacking 99 parties"
        ),
    ],
)
@known("C3", "parameters are cast, not validated", raises=DID_NOT_RAISE)
def test_parameters_that_make_no_sense_are_refused(make, target: np.ndarray) -> None:
    with pytest.raises(UsageError):
        make().fit(X, target)


@known("C3", "tolerate=1.9 becomes 1", raises=DID_NOT_RAISE)
def test_bayes_tolerates_a_whole_number_of_parties() -> None:
    sites = np.arange(80) % 4
    model = PrivateBayesianRegression(bounds=(-1, 1), y_bounds=(-2, 2), tolerate=1.9)
    with pytest.raises(UsageError):
        model.fit(X, Y, sites=sites)


@known("C3", "rounds=2.9 becomes 2", raises=DID_NOT_RAISE)
def test_lasso_makes_a_whole_number_of_rounds() -> None:
    from unpooled import PrivateLasso

    model = PrivateLasso(parties=2, bounds=(-1, 1), y_bounds=(-2, 2), radius=1.0, rounds=2.9)
    with pytest.raises(UsageError):
        model.fit(X, Y)


@known("C3", "random_state=np.int64(3) is a bare TypeError in describe", raises=TypeError)
def test_describe_takes_numpys_integers_as_a_seed() -> None:
    one, other = (describe({"x": X[:, 0]}, Bounds(-1, 1), random_state=seed) for seed in (np.int64(3), 3))
    assert one.plan_.hash == other.plan_.hash


# --- C9 --------------------------------------------------------------------------------------------------------------------------


def test_a_card_with_a_control_character_in_a_name_can_be_read_back(tmp_path: Path) -> None:
    card = Card("one", 10, (Column("a\x7fb", 0.0, 1.0),))
    (tmp_path / "card.toml").write_text(write_card(card))
    assert read_card(tmp_path / "card.toml") == card


def without_the_second(name: str, parameters: dict[str, Any], unit: str) -> None:
    cards = tuple(Card(party, 20, (Column(f"x{party}", -1.0, 1.0),), ("y",)) for party in "ab")
    study = Study(name, cards, 1.0, 1e-6, unit=unit, parameters=parameters, derived=())
    model, people = load(name), {}
    for k, card in enumerate(cards):
        ledger = Ledger.in_memory()
        table = Table({f"x{card.name}": X[:20, k], "y": np.where(X[:20, 0] > 0, 1.0, -1.0)})
        people[card.name] = Party(card.name, table, card, ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    honest = in_process(people)

    def exchange(batch):
        return [Dropped("b", "gone") if a.to == "b" and a.step != "open" else honest([(a, r)])[0] for a, r in batch]

    drive(model, model.compile(study), exchange)


def test_a_missing_party_aborts_a_study_of_stacking() -> None:
    """The control of the next one."""
    with pytest.raises(StudyAborted):
        without_the_second("stacking", {}, "record")


def test_a_missing_party_aborts_a_study_of_pride() -> None:
    with pytest.raises(StudyAborted):
        without_the_second("pride", {"sketch_dim": 1}, "attribute")


@known("C9", "Model.split is read nowhere: a plan has a split of its own")
def test_a_model_has_no_field_that_nobody_reads() -> None:
    assert "split" not in Model.__dataclass_fields__


@known("C9", "PrivateStackingClassifier has no plan", raises=AttributeError)
def test_a_stack_has_a_plan_without_data() -> None:
    model = PrivateStackingClassifier(2, bounds=(-1, 1), classes=(False, True))
    planned = model.plan(n_samples=80, n_features=6)
    assert planned.hash == model.fit(X, CLASS).plan_.hash


# --- G8: a step can send more than its releases ------------------------------------------------------------------------------


def _sent(forge: Callable[[Any], Any]) -> bytes:
    """What a party answers in a step that debits its release and then tries to send something else."""
    columns, table = (Column("age", 0.0, 100.0),), Table({"age": np.arange(20.0)})
    model = load("describe")
    study = Study("describe", (Card("north", 20, columns),), 1.0, 1e-5, derived=())

    def smuggling(context: Any, request: Any) -> Any:
        model.steps[0].answer(context, request)
        return SumsReply(forge(context))

    broken = replace(model, steps=(Step("sums", Nothing, SumsReply, smuggling),))
    ledger = Ledger.in_memory()
    party = Party(
        "north", table, study.parties[0], ledger, KeySource(ledger.root_key), Policy.in_process(), lambda _: broken
    )
    plan = broken.compile(study)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
    return party.answer(encode(plan.hash, "sums", 0, Nothing()))


def _through_the_list(context: Any) -> Released:
    raw = Released("sums", 0, Array.of(context.table["age"].astype(np.int64)))
    context.issued.append(raw)
    return raw


def _through_the_party(context: Any) -> Released:
    other = type(context)(context.party, context.plan, context.step, context.index)
    raw = Released("sums", 0, Array.of(context.table["age"].astype(np.int64)))
    other.issued.append(raw)
    context.issued = other.issued
    return raw


@known("G8", "context.issued is public and context.party holds everything", raises=DID_NOT_RAISE)
@pytest.mark.parametrize("forge", [_through_the_list, _through_the_party])
def test_a_step_cannot_send_what_the_context_did_not_release(forge: Callable[[Any], Any]) -> None:
    with pytest.raises((ProtocolError, AttributeError)):
        _sent(forge)
