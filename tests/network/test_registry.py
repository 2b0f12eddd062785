"""Every registered model over a real network, and replies of hundreds of megabytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from cases import CASES
from worlds import kept_digests, make_rehearsal

from unpooled.models import REGISTRY
from unpooled.network.processes import up
from unpooled.network.submit import run_networked

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("model", REGISTRY)
def test_every_model_has_the_bits_of_its_in_process_run(model: str, tmp_path: Path) -> None:
    made = make_rehearsal(tmp_path / "network", model)
    world = made.worlds[model]
    with up(made.kits):
        world.approve(world.study)
        made.run(world, world.study, tmp_path)
    local = world.in_process(world.study)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert msgspec.json.encode(result["result"]) == msgspec.json.encode(msgspec.to_builtins(local.result))
    assert result["communication"] == local.communication
    assert kept_digests(world, world.study) == world.kept_in_process
    assert world.charges(world.study) == world.planned(world.study)


def test_a_reply_of_300_megabytes_arrives(tmp_path: Path, monkeypatch) -> None:
    inside = Path(__file__).parent / "inside"
    monkeypatch.syspath_prepend(str(inside))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(inside), os.environ.get("PYTHONPATH", "")])))
    monkeypatch.setenv("UNPOOLED_TEST_MODEL", "1")
    import contract_model

    monkeypatch.setattr("unpooled.models.REGISTRY", REGISTRY)
    contract_model.install()
    assert set(REGISTRY) == set(CASES)
    size = 300_000_000
    made = make_rehearsal(tmp_path / "network", "describe")
    world = made.worlds["describe"]
    study = world.variant(model="contract", parameters={"rounds": 2, "size": size})
    world.approve(study)
    with up(made.kits):
        run_networked(study, made.user, tmp_path / "out", lambda _: None)
        run_networked(study, made.user, tmp_path / "again", lambda _: None, resume=True)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("out", "again")]
    assert results[0] == results[1]
    assert results[0]["result"][1] == size
    first = world.names[0]
    assert size < results[0]["communication"][first]["received"] < size * 1.02
