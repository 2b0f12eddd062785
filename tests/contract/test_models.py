"""What every registered model must keep: equal bits in process, re-delivered, resumed and replayed; no second noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import CASES

import unpooled.models
from unpooled.errors import (
    StudyAborted,
    UsageError,
)
from unpooled.models import REGISTRY, load, row_names
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Dropped
from unpooled.protocol.party import Party
from unpooled.testing.refusals import *
from unpooled.testing.runs import *

#: Of the tests that are imported, those that the guarantee's coverage needs.
GUARANTEE = (
    "test_a_party_that_dies_between_debit_and_reply_repeats_its_noise",
    "test_a_scale_sent_over_the_wire_is_refused",
    "test_a_seed_is_refused_without_allow_simulation",
    "test_a_step_before_the_study_was_opened_is_refused",
    "test_an_infinite_epsilon_is_refused_by_every_policy_with_a_budget",
    "test_another_number_of_rows_is_refused",
)

SLOW = {
    "test_a_crash_after_any_message_and_a_resume_draw_no_second_noise": ["effects", "analyses"],
    "test_releases_are_equal_under_row_permutation_and_block_size": ["effects"],
}
LONG = {
    "test_a_crash_after_any_message_and_a_resume_draw_no_second_noise": [
        "glm, columns of counts",
        "glm, columns of times",
        "effects, survival",
    ],
    "test_releases_are_equal_under_row_permutation_and_block_size": ["effects, survival"],
}


@pytest.mark.guarantee
def test_every_model_folder_is_registered_and_every_model_has_a_case() -> None:
    folders = {path.parent.name for path in Path(unpooled.models.__file__).parent.glob("*/__init__.py")}
    assert folders == set(REGISTRY) == {name.partition(",")[0] for name in CASES}
    assert set(row_names()) == folders | {f"{name}-published" for name in ("pride", "bayes", "stacking", "lasso", "pls")}
    assert all(load(row).name == row for row in row_names())
    with pytest.raises(UsageError, match="describe"):
        load("no such model")
    with pytest.raises(UsageError, match="no published form"):
        load("describe-published")


@pytest.mark.guarantee
@pytest.mark.parametrize(("name", "unit"), [("stacking", "record"), ("pride", "attribute")])
def test_a_missing_party_aborts_a_study_whose_columns_are_split(name: str, unit: str) -> None:
    cards = tuple(Card(party, 20, (Column(f"x{party}", -1.0, 1.0),), ("y",)) for party in "ab")
    study = Study(name, cards, 1.0, 1e-6, unit=unit, parameters={"sketch_dim": 1} if name == "pride" else {}, derived=())
    values = np.random.default_rng(1).uniform(-1, 1, (20, 2))
    people = {}
    for k, card in enumerate(cards):
        ledger = Ledger.in_memory()
        table = Table({f"x{card.name}": values[:, k], "y": np.where(values[:, 0] > 0, 1.0, -1.0)})
        people[card.name] = Party(card.name, table, card, ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    honest = in_process(people)

    def exchange(batch):
        return [Dropped("b", "gone") if a.to == "b" and a.step != "open" else honest([(a, r)])[0] for a, r in batch]

    with pytest.raises(StudyAborted):
        drive(load(name), load(name).compile(study), exchange)
