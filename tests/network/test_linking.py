"""Rows are linked over a real network with the bits of the in-process run, and the parties keep equal row maps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from worlds import kept_digests, make_rehearsal

from unpooled.network.processes import up
from unpooled.network.submit import run_networked
from unpooled.study.link import linked_party, map_of
from unpooled.study.party import open_party
from unpooled.study.run import compile_study

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]
pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")


def test_rows_are_linked_over_a_network_as_in_process(tmp_path: Path) -> None:
    names, rng = ("clinic", "laboratory", "registry"), np.random.default_rng(1)
    common = [f"both-{k}" for k in range(15)]
    ids = {name: rng.permutation([*common, *(f"{name}-{k}" for k in range(9))]).tolist() for name in names}
    made = make_rehearsal(tmp_path / "network", "pride", ids=ids)
    world = made.worlds["pride"]
    for config in (tmp_path / "network").rglob("party.toml"):
        config.write_text(config.read_text().replace('psi = "no"', 'psi = "intersection"'))
    nothing = {"trust": {}, "parameters": {}, "simulation_seed": None}
    study = world.variant(model="link", epsilon=math.inf, delta=0.0, unit="record", **nothing)
    plan = world.approve(study)
    with up(made.kits):
        run_networked(study, made.user, tmp_path / "run", lambda _: None)
        again = run_networked(study, made.user, tmp_path / "again", lambda _: None, resume=True)
    assert again.hash == plan.hash == compile_study(study).hash
    local = world.in_process(study)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert msgspec.json.encode(result["result"]) == msgspec.json.encode(local.result)
    assert result["result"]["rows"] == 15
    assert result["communication"] == local.communication
    assert kept_digests(world, study) == world.kept_in_process
    configs = [world.party(name) for name in names]
    assert {f"psi:{map_of(config, plan)}" for config in configs} == {local.result.ids}
    file = tmp_path / "link.toml"
    cards = "".join(f'\n[[party]]\ncard = "{config.parent / config.parent.name}.card.toml"\n' for config in configs)
    file.write_text(
        f'[study]\nmodel = "link"\ncoordinator = "{study.coordinator}"\npublic_seed = {study.public_seed}\n{cards}'
    )
    held = []
    for config in configs:
        with open_party(linked_party(config, file, config.parent / "linked")[0]) as party:
            held.append(party.table.ids())
    assert held[0] == held[1] == held[2]
    assert sorted(map(str, held[0])) == sorted(common)
