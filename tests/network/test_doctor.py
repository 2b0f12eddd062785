"""The doctor says what would fail, and exits with 2: each ailment is made on purpose."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import sys
import threading
from datetime import timedelta
from pathlib import Path

import msgspec
import polars as pl
import pytest
from worlds import Rehearsal, command, make_rehearsal, moved

from unpooled.network import processes as doctor
from unpooled.network.kits import Kit
from unpooled.study.files import write_card


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    return make_rehearsal(tmp_path_factory.mktemp("doctor"), "pride")


@pytest.fixture
def network(pristine: Rehearsal, tmp_path: Path) -> Rehearsal:
    """A copy to be made ill. Its server is not up."""
    root = tmp_path / "network"
    shutil.copytree(pristine.kits.parent, root, symlinks=True)
    moved(root / "parties")
    world = pristine.worlds["pride"]
    for name in world.names:
        link = root / "kits" / name / "local/party.toml"
        link.unlink()
        link.symlink_to(root / "parties" / name / "party.toml")
    return Rehearsal(root / "kits", {"pride": type(world)(root / "parties", world.case, world.study)})


def examined(network: Rehearsal, kit: str = "clinic", code: int = 2, study=None) -> dict[str, str]:
    """What was found: problems by name (and nothing else, but for the server, which is not up)."""
    world = network.worlds["pride"]
    file = world.write_study(network.kits.parent / "study.toml", study or world.study)
    found = json.loads(command("doctor", str(network.kits / kit), "--study", str(file), "--json", code=code))["findings"]
    assert [one["what"] for one in found][:4] == ["versions", "certificate", "private files", "server"]
    return {one["what"]: one["words"] for one in found if not one["fine"] and one["what"] != "server"}


@pytest.mark.long
@pytest.mark.slow
def test_only_the_server_is_missing(network: Rehearsal) -> None:
    world = network.worlds["pride"]
    assert examined(network) == {
        "party": "'clinic': the plan fits the policy, but nobody has approved it: `unpooled party check STUDY`"
    }
    world.approve(world.study)
    assert examined(network) == {}
    said = command("doctor", str(network.kits / "clinic"), code=2)
    assert "PROBLEM  server: the server at localhost:" in said
    assert "fine     party: 'clinic': 24 rows" in said
    assert "not connected: clinic, laboratory, registry" in examined(network, network.user.name)["roster"]
    assert "say what to look at" in command("doctor", code=2)
    file = str(network.kits.parent / "study.toml")
    said = command("doctor", "--study", file, "--config", str(world.party("registry")))
    assert "card, data, policy and ledger agree" in said


@pytest.mark.long
@pytest.mark.slow
def test_ailments_of_a_kit(network: Rehearsal, pristine: Rehearsal, monkeypatch) -> None:
    world = network.worlds["pride"]
    world.approve(world.study)
    startup = network.kits / "clinic/startup"
    lab = network.kits / "laboratory/startup"
    shutil.copy(lab / "client.key", startup / "client.key")
    assert "does not belong to the private key" in examined(network)["certificate"]
    shutil.copy(pristine.kits / "clinic/startup/client.key", startup / "client.key")
    other = make_rehearsal(network.kits.parent / "other", "pride")
    shutil.copy(other.kits / "clinic/startup/rootCA.pem", startup / "rootCA.pem")
    assert "not issued by the authority" in examined(network)["certificate"]
    shutil.copy(pristine.kits / "clinic/startup/rootCA.pem", startup / "rootCA.pem")
    (startup / "client.key").chmod(0o644)
    assert "chmod 600" in examined(network)["private files"]
    (startup / "client.key").chmod(0o600)

    real = doctor.datetime

    class Later(real):
        @classmethod
        def now(cls, zone):
            return real.now(zone) + cls.shift

    for days, words in ((400, "has ended"), (350, "ends in 9 days"), (-2, "is this clock right")):
        Later.shift = timedelta(days=days)
        monkeypatch.setattr(doctor, "datetime", Later)
        assert words in examined(network)["certificate"]


@pytest.mark.long
@pytest.mark.slow
def test_ailments_of_a_party(network: Rehearsal) -> None:
    world = network.worlds["pride"]
    world.approve(world.study)
    config = world.party("clinic")
    text = config.read_text()
    config.write_text(text.replace("low = 18.0", "low = 17.0"))
    assert "has other columns than this party" in examined(network)["party"]
    config.write_text(text.replace('name = "clinic"', 'name = "clinique"'))
    assert "use one name" in examined(network)["party"]
    config.write_text(text.replace("allow_simulation = true", "allow_simulation = false"))
    assert "simulation seed" in examined(network)["party"]
    config.write_text(text)
    data = world.root / "clinic/data.parquet"
    pl.read_parquet(data).head(20).write_parquet(data)
    assert "other rows than this party (24 there, 20 here)" in examined(network)["party"]
    data.unlink()
    assert "no such data file" in examined(network)["party"]


@pytest.mark.slow
def test_ailments_of_a_study(network: Rehearsal) -> None:
    world = network.worlds["pride"]
    study = world.variant(coordinator="")
    world.approve(study)
    assert "names no coordinator key" in examined(network, study=study)["coordinator"]
    assert (
        "pins another coordinator"
        in examined(network, "localhost", study=world.variant(coordinator="a" * 64))["coordinator"]
    )
    card = world.root / "registry/registry.card.toml"
    text = card.read_text()
    card.write_text(text.replace("rows = 24", "rows = 25"))
    assert "rows" in examined(network)["cards"]
    card.write_text(write_card(msgspec.structs.replace(world.study.card("registry"), key="")))
    said = command("doctor", "--study", str(network.kits.parent / "study.toml"), code=2)
    assert "the card of 'registry' holds no public key" in " ".join(said.split())


@pytest.mark.slow
def test_a_server_whose_clock_is_wrong(network: Rehearsal) -> None:
    """A server with this network's own certificate, which says that it is 1999."""
    kit = Kit.of(network.kits / "clinic")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(kit.folder / "startup/rootCA.pem"))
    context.load_cert_chain(network.kits / "localhost/startup/server.crt", network.kits / "localhost/startup/server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(kit.address) as listening:

        def answer() -> None:
            with listening.accept()[0] as raw, context.wrap_socket(raw, server_side=True) as tls:
                tls.recv(4096)
                tls.sendall(b"HTTP/1.1 200 OK\r\nDate: Fri, 31 Dec 1999 23:59:59 GMT\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        found = [one for one in doctor.examine(kit, None, None) if one.what == "server"]
        thread.join(timeout=10)
    assert not found[0].fine
    assert "differ by" in found[0].words


def test_without_the_network_extra_the_commands_say_what_to_install(tmp_path: Path, monkeypatch) -> None:
    for name in ("nvflare", "psutil", "nvflare.fuel.flare_api.flare_api"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "unpooled.network.processes", raising=False)
    assert "pip install 'unpooled[network]'" in command("network", "up", str(tmp_path), code=2)
    with pytest.raises(ModuleNotFoundError), monkeypatch.context() as patch:
        patch.setitem(sys.modules, "unpooled.study.run", None)
        command("plan", str(tmp_path / "study.toml"))
