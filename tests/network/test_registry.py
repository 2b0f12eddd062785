"""Every registered model over a real network, and replies of hundreds of megabytes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import Self

import msgspec
import pytest
from elsewhere import ROW, declaring
from worlds import Rehearsal, kept_digests, make_rehearsal

from unpooled.models import REGISTRY
from unpooled.network.processes import up
from unpooled.network.submit import run_networked

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("model", [*REGISTRY, "glm, direction"])
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
    assert world.fully_charged(world.study)


def test_processes_find_a_model_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of every kit resolve it through the registry, and the parties' policies list it."""
    with declaring(tmp_path, monkeypatch) as declare:
        folder = declare("somebodys", "census", "made_up_row_network", ROW.format(name="census"))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])))
        made = make_rehearsal(tmp_path / "network", "describe")
        world = made.worlds["describe"]
        study = world.variant(model="census")
        for name in world.names:
            file = world.party(name)
            file.write_text(file.read_text().replace('# models = ["describe", "glm"]', 'models = ["census"]'))
        assert world.approve(study).maker == "somebodys 1.0"
        with up(made.kits):
            run_networked(study, made.user, tmp_path / "out", lambda _: None)
        assert "model census of somebodys 1.0" in (tmp_path / "out" / "plan.txt").read_text()
        assert world.fully_charged(study)


@pytest.fixture
def contract(tmp_path: Path, monkeypatch) -> Rehearsal:
    """A network whose processes know the test-only model of large replies."""
    inside = Path(__file__).parent / "inside"
    monkeypatch.syspath_prepend(str(inside))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(inside), os.environ.get("PYTHONPATH", "")])))
    monkeypatch.setenv("UNPOOLED_TEST_MODEL", "1")
    import contract_model

    monkeypatch.setattr("unpooled.models.REGISTRY", dict(REGISTRY))
    contract_model.install()
    return make_rehearsal(tmp_path / "network", "describe")


def test_a_reply_of_300_megabytes_arrives(contract: Rehearsal, tmp_path: Path) -> None:
    size = 300_000_000
    world = contract.worlds["describe"]
    study = world.variant(model="contract", parameters={"rounds": 2, "size": size})
    world.approve(study)
    with up(contract.kits):
        run_networked(study, contract.user, tmp_path / "out", lambda _: None)
        run_networked(study, contract.user, tmp_path / "again", lambda _: None, resume=True)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("out", "again")]
    assert results[0] == results[1]
    assert results[0]["result"][1] == size
    assert size < results[0]["communication"][world.names[0]]["received"] < size * 1.001


def test_communication_is_what_crosses_the_wire(contract: Rehearsal, tmp_path: Path) -> None:
    """Counted by a relay on TCP between one party and the server: TLS, the engine's framing and signatures add less than 2 %."""
    size, world = 30_000_000, contract.worlds["describe"]
    study = world.variant(model="contract", parameters={"rounds": 2, "size": size})
    world.approve(study)
    file = contract.kits / world.names[0] / "startup/fed_client.json"
    with Relay(contract.port) as relay:
        file.write_text(file.read_text().replace(f"localhost:{contract.port}", f"localhost:{relay.port}"))
        with up(contract.kits):
            before = relay.upward
            run_networked(study, contract.user, tmp_path / "out", lambda _: None)
            crossed = relay.upward - before
    counted = json.loads((tmp_path / "out/result.json").read_text())["communication"][world.names[0]]["received"]
    assert counted < crossed < counted * 1.02


class Relay:
    """Passes TCP connections on to a port of this machine and counts the bytes that go there."""

    def __init__(self, port: int) -> None:
        self._target, self.upward = port, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except ConnectionRefusedError:  # the server is not up yet: the party comes again
                    near.close()
                    continue
                for source, sink, up_ in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pump, args=(source, sink, up_), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, upward: bool) -> None:
        with contextlib.suppress(OSError), source, sink:
            while part := source.recv(1 << 16):
                sink.sendall(part)
                self.upward += len(part) if upward else 0
