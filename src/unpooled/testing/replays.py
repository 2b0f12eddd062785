"""Replays of every case on neighbouring data with the noise frozen: nothing moves farther than declared, and nothing else moves at all."""

from __future__ import annotations

import itertools
import zlib

import msgspec
import pytest

from unpooled.audit.neighbours import read_file
from unpooled.audit.oracle import audit_whole
from unpooled.audit.replay import replay
from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.plan import Study
from unpooled.privacy.unit import Adjacency
from unpooled.protocol.registry import Model
from unpooled.study.made_up import made_up
from unpooled.testing.cases import FULL, Case, sized, units_of


def test_a_case_has_tables_that_fit_its_cards(case: Case) -> None:
    assert {card.name for card in case.study.members} == set(case.tables)


def quick(study: Study) -> Study:
    """Return the study with a fixed penalty if it is a Cox model at reduced size: choosing one takes most of the time."""
    given = {} if FULL or study.parameters.get("family") != "cox" else {"alpha": 1.0}
    return msgspec.structs.replace(study, parameters={**study.parameters, **given})


def test_every_model_passes_on_its_own_data(case: Case, request: pytest.FixtureRequest) -> None:
    """The case's own data are audited under its own unit, kept pairs first; data that are made up under the other one."""
    kept = getattr(request.module, "PAIRS", None)
    for unit in units_of(case.study) if FULL else [case.study.unit]:
        study = quick(msgspec.structs.replace(case.study, unit=str(unit)))
        pairs = read_file(kept, case.name) if kept and study.unit == case.study.unit else None
        report = replay(load(case.model), study, case.tables, registry=load, rounds=sized(8, 2), pairs=pairs)
        assert report.passed, str(report)
        assert not report.slower, "kept pairs move these less than they did: write the file anew if that is meant"
        assert max(report.largest.values()) > 0.3  # the bound is not vacuous


def test_one_person_at_every_party_attains_no_more_than_is_promised(case: Case) -> None:
    """All that the study releases, composed for a person who changes everywhere at once, against its statement and every ledger."""
    found = audit_whole(quick(case.study), rows=20, rounds=sized(6, 1))
    assert found.violations == []
    # One value that may not go missing has no neighbour under zero-out.
    assert found.moved or (case.study.unit, case.study.adjacency) == ("attribute", "zero-out")


def offered(model: Model, study: Study) -> bool:
    """Return True if the model compiles for this unit and adjacency."""
    try:
        model.compile(study)
    except UsageError:
        return False
    return True


def test_every_model_passes_on_data_that_fit_its_cards_and_mean_nothing(case: Case) -> None:
    """Made-up data are audited under the other unit or the other adjacency, in turn from case to case; at full size under all of them."""
    model = load(case.model)
    own = (case.study.unit, case.study.adjacency)
    every = list(itertools.product(units_of(case.study), Adjacency))
    others = every if FULL else [pair for pair in every if sum(a != b for a, b in zip(pair, own, strict=True)) == 1]
    asked = [
        quick(msgspec.structs.replace(case.study, unit=str(unit), adjacency=str(adjacency))) for unit, adjacency in others
    ]
    found = [study for study in asked if offered(model, study)]
    turn = zlib.crc32(case.name.encode()) % max(len(found), 1)
    for study in found if FULL else found[turn : turn + 1]:
        made, tables = made_up(model, study, rows=10)
        assert all(tables[card.name].n_rows == card.rows <= 10 for card in made.parties)
        report = replay(model, made, tables, registry=load, rounds=1)
        assert report.passed, str(report)
        assert report.neighbours > 10
