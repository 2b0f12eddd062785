"""Three of the sampled faults of a networked study; all of them: ``python -m experiments.faults_network``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaign import DESK, ENGINE, PARTIES, STEPS, frames_of, judged, meet, sampled, standing
from cases import CASES
from test_killed import COORDINATOR, Process
from worlds import World, make_world

#: Those of one study of the campaign's case.
FRAMES = 8


def test_every_kind_is_drawn_again_and_again_the_same() -> None:
    drawn = sampled(60, PARTIES, STEPS, FRAMES)
    assert drawn == sampled(60, PARTIES, STEPS, FRAMES)
    assert drawn != sampled(60, PARTIES, STEPS, FRAMES, seed=46)
    kinds = Counter(point.kind for point in drawn)
    assert kinds.keys() == {*DESK, *ENGINE}
    assert min(kinds[kind] for kind in DESK) >= 3
    assert min(kinds[kind] for kind in ENGINE) >= 2


@pytest.fixture(scope="module")
def desks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, dict[str, Process]]]:
    world = make_world(tmp_path_factory.mktemp("campaign"), CASES["pride"](), COORDINATOR.public, studies=8)
    with standing(world) as stay:
        yield world, stay


@pytest.mark.network
@pytest.mark.parametrize("kind", ["party killed after its debit", "answer lost", "party started twice"])
def test_a_sampled_fault_loses_nothing(kind: str, desks: tuple[World, dict[str, Process]], tmp_path: Path) -> None:
    point = next(point for point in sampled(60, PARTIES, STEPS, FRAMES) if point.kind == kind)
    assert meet(*desks, point, tmp_path) == {}


@pytest.mark.network
def test_a_party_that_forgets_and_one_that_answers_anew_are_found(
    desks: tuple[World, dict[str, Process]], tmp_path: Path
) -> None:
    world, stay = desks
    study = world.variant(run=7)
    assert len(frames_of(world, stay, study, tmp_path)) == FRAMES
    assert judged(world, study, tmp_path) == {}
    result = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps({**result, "result": None}))
    for kept in (world.root / PARTIES[0] / f"{PARTIES[0]}.ledger.kept").iterdir():
        kept.unlink()
    assert judged(world, study, tmp_path) == {"other bits": 1, "lost": 1}
    assert judged(world, world.variant(run=8), tmp_path / "nowhere") == {"other bits": 1, "lost": 1}
