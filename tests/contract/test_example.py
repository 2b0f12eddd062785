"""The worked example of "Adding a model in an hour": it runs, it is short, and the contract holds for it as for any model."""

from __future__ import annotations

import itertools
import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy import stats

from unpooled.audit.replay import replay
from unpooled.errors import UsageError
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import GaussianRelease, Reach
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party
from unpooled.protocol.step import Model
from unpooled.protocol.transcript import Transcript

EXAMPLES = Path(__file__).parents[2] / "examples"
RNG = np.random.default_rng(0)
COLUMN = Column("age", 18.0, 100.0)
TABLES = {"north": Table({"age": np.linspace(10, 90, 30)}), "south": Table({"age": np.linspace(40, 120, 20)})}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import private_mean

    yield private_mean.MODEL
    for name in [name for name in sys.modules if name.startswith("private_mean")]:
        monkeypatch.delitem(sys.modules, name)


def study(**changes: object) -> Study:
    cards = tuple(Card(name, table.n_rows, (COLUMN,)) for name, table in TABLES.items())
    asked = Study("private_mean", cards, 1.0, 1e-5, parameters={"column": "age"}, derived=())
    return msgspec.structs.replace(asked, **changes)


def parties(model: Model, plan: Plan) -> dict[str, Party]:
    made = {}
    for card in plan.study.parties:
        ledger = Ledger.in_memory()
        keys = KeySource(ledger.root_key)
        made[card.name] = Party(card.name, TABLES[card.name], card, ledger, keys, Policy.in_process(), lambda _: model)
    return made


def test_it_is_short_and_runs(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    files = [*(EXAMPLES / "private_mean").glob("*.py"), EXAMPLES / "run_private_mean.py"]
    assert sum(len(file.read_text().splitlines()) for file in files) < 200
    runpy.run_path(str(EXAMPLES / "run_private_mean.py"))
    shown = capsys.readouterr().out
    assert shown.startswith("mean ")
    assert "Differentially private with epsilon = 1" in shown


def test_equal_bits_from_the_parties_again_and_from_the_transcript(model: Model) -> None:
    plan = model.compile(study())
    people, transcript = parties(model, plan), Transcript()
    first = drive(model, plan, in_process(people), transcript).result
    assert drive(model, plan, in_process(people)).result == first
    assert drive(model, plan, lambda _: pytest.fail("asked"), transcript.replay()).result == first
    assert drive(model, plan, in_process(parties(model, plan))).result != first  # other keys, other noise
    assert [len(party.ledger.entries()) for party in people.values()] == [1, 1]


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_sensitivity_is_attained_and_never_exceeded(model: Model, adjacency: Adjacency) -> None:
    """Theorem M.1 by brute force over the coded values, and two studies on the audit: as planned, and with half of the reach."""
    plan = model.compile(study(adjacency=str(adjacency)))
    ends = plan.design.code([np.array([-5.0, 18.0, 40.0, 59.0, 100.0, 1e9])])[0][:, 0].astype(float)
    others = [0.0] if adjacency is Adjacency.ZERO_OUT else ends
    farthest = max(abs(a - b) for a, b in itertools.product(ends, others))
    declared = plan.releases[0].sensitivity(Unit.RECORD)
    assert farthest == declared
    assert replay(model, study(adjacency=str(adjacency)), TABLES, registry=lambda _: model, rounds=4).passed

    def halved(asked: Study) -> Plan:
        sound = model.compile_plan(asked)
        short = GaussianRelease.calibrated(
            sound.releases[0].mechanism.blocks, dict.fromkeys(ROWWISE, Reach(declared / 2, 1)), Unit.RECORD, 1.0
        )
        return replace(sound, releases=tuple(replace(r, mechanism=short) for r in sound.releases))

    broken = replace(model, compile_plan=halved)
    assert not replay(broken, study(adjacency=str(adjacency)), TABLES, registry=lambda _: broken, rounds=4).passed


def test_the_noise_is_there_with_its_law_under_every_key(model: Model) -> None:
    plan = model.compile(study())
    results = [drive(model, plan, in_process(parties(model, plan))).result for _ in range(300)]
    clipped = np.concatenate([np.clip(table["age"], 18, 100) for table in TABLES.values()])
    deviations = [(result.mean - clipped.mean()) / result.deviation for result in results]
    assert stats.kstest(deviations, "norm").pvalue > 1e-6
    assert stats.kstest(np.array(deviations) / 2, "norm").pvalue < 1e-6


def test_what_it_cannot_do_is_refused(model: Model) -> None:
    cards = study().parties
    other = msgspec.structs.replace(cards[1], columns=(Column("age", 0.0, 100.0),))
    words = msgspec.structs.replace(cards[0], columns=(Column("age", categories=("young", "old")),))
    for changes, match in (
        ({"parameters": {"colum": "age"}}, "colum"),
        ({"parties": (cards[0], other)}, "agree on one range"),
        ({"parties": (words,)}, "needs low and high"),
        ({"calibration": "published"}, "another form"),
    ):
        with pytest.raises(UsageError, match=match):
            model.compile(study(**changes))
