"""Real processes, real certificates, real ledgers on loopback: what a networked study must share with one in this process."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path

import msgspec
import pytest
from worlds import Rehearsal, kept_digests, kept_in_process

from unpooled.network.kits import Kit
from unpooled.study.run import compile_study

pytestmark = pytest.mark.network


@pytest.mark.parametrize("model", ["describe", "pride"])
def test_a_networked_run_has_the_bits_of_one_in_this_process(rehearsal: Rehearsal, model: str, tmp_path: Path) -> None:
    world = rehearsal.worlds[model]
    study = world.study
    plan = world.approve(study)
    shown = rehearsal.run(world, study, tmp_path)
    local = world.in_process(study)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["plan"] == plan.hash
    assert msgspec.json.encode(result["result"]) == msgspec.json.encode(msgspec.to_builtins(local.outcome.result))
    assert result["communication"] == local.outcome.communication
    assert kept_digests(world, study) == kept_in_process(local)
    assert world.charges(study) == world.planned(study)
    assert str(plan.statement) in shown
    assert (tmp_path / "run/result.txt").read_text() in shown

    # What was logged on the way names parties and steps, and no value of the data.
    folders = [rehearsal.kits / "localhost", *(rehearsal.kits / name for name in world.names)]
    logs = "".join(
        path.read_text(errors="replace") for folder in folders for path in folder.glob("**/*log*") if path.is_file()
    )
    assert f"plan {plan.hash[:16]}: step 'open'" in logs
    values = {repr(v) for table in world.case.tables.values() for n in table.names for v in table[n].tolist()}
    assert not [value for value in values if len(value) > 12 and value in logs]


def test_a_party_that_refuses_ends_the_study_with_its_reason_and_code_3(rehearsal: Rehearsal, tmp_path: Path) -> None:
    world = rehearsal.worlds["pride"]
    study = world.variant(run=7)
    willing = [name for name in world.names if name != "laboratory"]
    plan = world.approve(study, *willing)
    said = rehearsal.run(world, study, tmp_path, code=3)
    assert "refused: party 'laboratory'" in said
    assert f"plan {plan.hash[:16]} is not approved here" in said
    assert not any(world.charges(study).values())


def test_a_study_for_absent_parties_is_not_even_submitted(rehearsal: Rehearsal, tmp_path: Path) -> None:
    world = rehearsal.worlds["describe"]
    cards = tuple(msgspec.structs.replace(c, name=c.name + "-2") for c in world.study.parties)
    for card in cards:
        (world.root / card.name).mkdir()
    from unpooled.study.files import write_card

    for card in cards:
        (world.root / card.name / f"{card.name}.card.toml").write_text(write_card(card))
    stranger = type(world)(world.root, world.case, world.variant(parties=cards))
    said = rehearsal.run(stranger, stranger.study, tmp_path, code=2)
    assert "not connected: north-2, coast-2, city-2" in said
    assert compile_study(stranger.study).hash[:32] not in "".join(p.name for p in rehearsal.kits.glob("localhost/studies/*"))


def closed_by_the_server(port: int, context: ssl.SSLContext) -> bool:
    """Whether the server ends this connection by itself: in TLS 1.3 a client learns of its refusal with the first read."""
    try:
        with (
            socket.create_connection(("localhost", port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            return tls.recv(1) == b""
    except (ssl.SSLError, ConnectionResetError):
        return True
    except TimeoutError:
        return False


def client_context(kit: Kit, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(kit.folder / "startup/rootCA.pem"))
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
