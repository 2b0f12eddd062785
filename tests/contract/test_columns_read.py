"""The columns that a study reads: whatever stands in any other column, every party answers with the same bytes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import CASES

from unpooled.models import load
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import Study
from unpooled.privacy.table import BoundedTable, Table
from unpooled.protocol.local import run_in_process
from unpooled.study.made_up import columns_read, made_up


def with_another_column(study: Study) -> Study:
    """The study whose cards all declare one more column, which its parameters do not name."""
    column = msgspec.structs.replace(
        study.parties[0].columns[0], name="of no use", low=0.0, high=1.0, categories=None, missing="refuse"
    )
    cards = [msgspec.structs.replace(card, columns=(*card.columns, column)) for card in study.parties]
    return msgspec.structs.replace(study, parties=tuple(cards))


@pytest.mark.slow
@pytest.mark.long_for("analyses", "bayes, sines", "pride")
@pytest.mark.parametrize("row", sorted(CASES))
def test_no_other_column_moves_an_answer(row: str) -> None:
    study = CASES[row]().study
    model = load(study.row)
    found = columns_read(model.compile(study))
    assert found is not None
    assert set(found) == {card.name for card in study.parties}
    assert any(found.values())
    fitted, tables = made_up(model, study, 40)
    if any(isinstance(table, BoundedTable) for table in tables.values()):
        return  # their rows are chosen by all columns
    fitted = msgspec.structs.replace(fitted, simulation_seed=7)
    rng = np.random.default_rng(0)
    changed = {}
    for card in fitted.parties:
        table = tables[card.name]
        unread = {column.name for column in card.columns} - set(found[card.name])
        values = {name: rng.permutation(table[name]) if name in unread else table[name] for name in table.names}
        changed[card.name] = Table(values)
    if all(set(found[card.name]) == {column.name for column in card.columns} for card in fitted.parties):
        return
    results = [
        run_in_process(model, model.compile(fitted), dict(tables) | some, Policy.in_process(), load).outcome
        for some in ({}, changed)
    ]
    assert msgspec.msgpack.encode(msgspec.to_builtins(results[0].result)) == msgspec.msgpack.encode(
        msgspec.to_builtins(results[1].result)
    )


def test_a_column_that_nothing_names_is_not_read_and_one_that_is_summed_up_is() -> None:
    found = {}
    for row in ("tables", "describe"):
        study = CASES[row]().study
        found[row] = columns_read(load(row).compile(with_another_column(study)))
    assert found["tables"]
    assert found["describe"]
    assert all("of no use" not in names and names for names in found["tables"].values())
    assert all("of no use" in names for names in found["describe"].values())  # its study describes every declared column
