"""Three of the sampled faults of a networked study; all of them: ``python -m experiments.faults_network``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from campaign import DESK, ENGINE, PARTIES, STEPS, frames_of, meet, sampled
from cases import CASES
from test_killed import COORDINATOR
from worlds import World, make_world


def test_every_kind_is_drawn_again_and_again_the_same() -> None:
    drawn = sampled(60, PARTIES, STEPS, 14)
    assert drawn == sampled(60, PARTIES, STEPS, 14)
    assert drawn != sampled(60, PARTIES, STEPS, 14, seed=46)
    kinds = Counter(point.kind for point in drawn)
    assert kinds.keys() == {*DESK, *ENGINE}
    assert min(kinds[kind] for kind in DESK) >= 3
    assert min(kinds[kind] for kind in ENGINE) >= 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("campaign"), CASES["pride"](), COORDINATOR.public, studies=8)


@pytest.mark.network
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["party killed after its debit", "answer lost", "party started twice"])
def test_a_sampled_fault_loses_nothing(kind: str, world: World, tmp_path: Path) -> None:
    frames = 14
    point = next(point for point in sampled(60, PARTIES, STEPS, frames) if point.kind == kind)
    assert meet(world, point, tmp_path) == {}


@pytest.mark.network
@pytest.mark.no_cover
def test_debits_that_are_not_kept_are_found(world: World, tmp_path: Path) -> None:
    """A party whose ledger was put back after a run: the campaign says so."""
    study = world.variant(run=7)
    frames_of(world, study, tmp_path / "out")
    assert world.fully_charged(study)
    assert not world.fully_charged(world.variant(run=8))
