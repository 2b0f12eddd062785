"""Attacks on the inbox of proposals that a red team tried: none of them got through, but for a pipe that stopped the reader."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest
from cases import CASES
from worlds import World, identity_of, make_world

from unpooled.errors import DataError, ProtocolError, UnpooledError
from unpooled.network import signing
from unpooled.network.service import RequestDesk
from unpooled.network.signing import INBOX, PROPOSE, Proposal
from unpooled.protocol.identity import Identity
from unpooled.protocol.messages import encode
from unpooled.study.run import compile_study

COORDINATOR = Identity(b"c" * 32)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, CASES["describe"](), COORDINATOR.public)


def files(world: World, party: str) -> list[Path]:
    return sorted((world.root / party / INBOX).glob("*"))


def frame(world: World, party: str, by: str = "analyst") -> bytes:
    body = encode(compile_study(world.study).hash, PROPOSE, 0, Proposal(world.study, "Who comes to us?", by))
    return signing.sign_request(COORDINATOR, party, body)


def answered(world: World, party: str, sent: bytes) -> bytes:
    """What the desk of a party answers; its own error, raised again, where it refuses."""
    desk = RequestDesk(world.party(party), party)
    try:
        answer = desk.answer(sent)
    finally:
        desk.close()
    return signing.open_answer(answer, party, identity_of(world, party).public, signing.read_request(sent).body)


def test_a_proposal_of_another_party_is_refused_in_this_inbox(world: World) -> None:
    """Who moves files between parties moves no proposal: it is signed for one of them."""
    one, other = world.names[:2]
    answered(world, one, frame(world, one))
    (file,) = files(world, one)
    signing.read(file, one, identity_of(world, one).public)
    for party, key in ((other, other), (one, other), (other, one)):
        with pytest.raises(UnpooledError):
            signing.read(file, party, identity_of(world, key).public)


def test_a_link_in_the_inbox_is_not_written_through(world: World) -> None:
    name = world.names[0]
    answered(world, name, frame(world, name))
    (file,) = files(world, name)
    file.unlink()
    precious = world.root / "precious"
    precious.write_text("precious")
    for target in (precious, world.root / "nowhere"):
        file.symlink_to(target)
        answered(world, name, frame(world, name))
        assert precious.read_text() == "precious"
        assert not (world.root / "nowhere").exists()
        file.unlink()


def test_a_pipe_in_the_inbox_stops_no_reader(world: World) -> None:
    name = world.names[0]
    answered(world, name, frame(world, name))
    (file,) = files(world, name)
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        made = file.with_name("a.proposal")
        make(made)
        with pytest.raises(DataError, match="no file"):
            signing.read(made, name, identity_of(world, name).public)
        made.rmdir() if made.is_dir() else made.unlink()


def test_a_refusal_names_no_place_on_the_disk_and_leaves_no_file(world: World) -> None:
    name = world.names[0]
    (world.root / name / INBOX).write_text("not a folder")
    with pytest.raises(ProtocolError) as refused:
        answered(world, name, frame(world, name))
    assert str(world.root) not in str(refused.value)
    assert not list((world.root / name).rglob("*.tmp"))


def test_content_that_nests_without_end_is_refused(world: World) -> None:
    name = world.names[0]
    for depth in (200, 100_000):
        bomb = b"\x91" * depth + b"\x01"
        study = msgspec.to_builtins(world.study)
        study["parameters"] = study["parameters"] | {"x": msgspec.Raw(bomb)}
        envelope = msgspec.msgpack.decode(encode(compile_study(world.study).hash, PROPOSE, 0, Proposal(world.study)))
        raw = msgspec.Raw(msgspec.msgpack.encode({"study": study, "purpose": "", "by": ""}))
        sent = signing.sign_request(COORDINATOR, name, msgspec.msgpack.encode(envelope | {"body": raw}))
        with pytest.raises(ProtocolError):
            answered(world, name, sent)
    assert files(world, name) == []


def test_the_same_proposal_many_times_at_once_lies_there_once(world: World) -> None:
    name, found = world.names[0], list[bytes]()
    desk, sent = RequestDesk(world.party(name), name), frame(world, name)
    try:
        threads = [threading.Thread(target=lambda: found.append(desk.answer(sent))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        desk.close()
    assert len(set(found)) == 1
    assert len(found) == 8
    assert len(files(world, name)) == 1
