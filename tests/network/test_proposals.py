"""Studies that are laid into a party's inbox over a network: signed, refused from anybody else, and without any effect."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from cases import CASES
from worlds import World, identity_of, make_world

from unpooled.errors import DataError, PlanMismatch, PolicyRefusal, ProtocolError, StudyError, UnpooledError
from unpooled.network import signing
from unpooled.network.service import PROPOSED, RequestDesk, Silence, propose
from unpooled.network.signing import ENDING, INBOX, PROPOSE, Laid, Proposal
from unpooled.privacy.ledger import Ledger
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.identity import Identity
from unpooled.protocol.messages import encode
from unpooled.study.files import read_party
from unpooled.study.run import compile_study

COORDINATOR, STRANGER = Identity(b"c" * 32), Identity(b"s" * 32)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, CASES["describe"](), COORDINATOR.public)


def head(world: World, party: str) -> str:
    (file,) = (world.root / party).glob("*.ledger")
    with Ledger.open(file) as ledger:
        return ledger.head


def files(world: World, party: str) -> list[Path]:
    return sorted((world.root / party / INBOX).glob("*"))


def frame(world: World, party: str, signer: Identity = COORDINATOR, /, **changes) -> bytes:
    study = world.variant(**changes)
    body = encode(compile_study(study).hash, PROPOSE, 0, Proposal(study, "Who comes to us?", "analyst"))
    return signing.sign_request(signer, party, body)


def answered(world: World, party: str, sent: bytes, to: str | None = None) -> bytes:
    """What the desk of a party answers; its own error, raised again, where it refuses."""
    desk = RequestDesk(world.party(to or party), to or party)
    try:
        answer = desk.answer(sent)
    finally:
        desk.close()
    return signing.open_answer(answer, to or party, identity_of(world, to or party).public, signing.read_request(sent).body)


def read(world: World, party: str) -> Laid:
    (file,) = files(world, party)
    return signing.read(file, party, identity_of(world, party).public)


def test_a_proposal_lies_in_every_inbox_and_has_no_effect(world: World, tmp_path: Path) -> None:
    before = {name: head(world, name) for name in world.names}

    def call(party: str, sent: bytes, _: float) -> bytes:
        desk = RequestDesk(world.party(party), party)
        try:
            return desk.answer(sent)
        finally:
            desk.close()

    proposal = Proposal(world.study, "Who comes to us?", "analyst")
    for _ in range(2):  # asked twice: it lies there once
        propose(proposal, COORDINATOR, call, tmp_path / "out", patience=60)
        assert json.loads((tmp_path / "out" / PROPOSED).read_text()) == {"laid": world.names, "away": {}}
    for name in world.names:
        laid = read(world, name)
        assert laid.proposal == proposal
        assert laid.claimed == compile_study(world.study).hash
        assert oct(files(world, name)[0].stat().st_mode)[-3:] == "600"
        assert head(world, name) == before[name]
    # Nothing of it was opened: a step of the plan is refused as that of any unknown study.
    sent = signing.sign_request(COORDINATOR, world.names[0], encode(laid.claimed, "sums", 0, msgspec.defstruct("N", [])()))
    with pytest.raises(PlanMismatch, match="has not opened plan"):
        answered(world, world.names[0], sent)


def test_a_party_that_is_away_is_named(world: World, tmp_path: Path) -> None:
    def call(party: str, sent: bytes, _: float) -> bytes:
        if party == world.names[0]:
            raise Silence("it is away")
        desk = RequestDesk(world.party(party), party)
        try:
            return desk.answer(sent)
        finally:
            desk.close()

    propose(Proposal(world.study), COORDINATOR, call, tmp_path / "out", patience=60)
    told = json.loads((tmp_path / "out" / PROPOSED).read_text())
    assert (told["laid"], list(told["away"])) == (world.names[1:], world.names[:1])


def test_every_party_answers_alike(world: World) -> None:
    """The answer says nothing of the party: not what its policy thinks, not what is approved."""
    name = world.names[0]
    first = answered(world, name, frame(world, name))
    world.approve(world.study)
    assert answered(world, name, frame(world, name)) == first


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (lambda w, p: frame(w, p, STRANGER), ProtocolError),
        (lambda w, p: frame(w, w.names[1]), ProtocolError),  # signed for another party
        (lambda w, p: frame(w, p, coordinator=STRANGER.public), ProtocolError),
        (lambda w, p: frame(w, p, coordinator=""), PlanMismatch),
        (lambda w, p: frame(w, p, STRANGER, coordinator=""), PlanMismatch),
        (
            lambda w, p: frame(
                w, p, parties=(msgspec.structs.replace(w.study.parties[0], key="0" * 64), *w.study.parties[1:])
            ),
            PlanMismatch,
        ),
        (lambda w, p: frame(w, p)[:-9] + b"x" * 9, ProtocolError),
    ],
)
def test_what_the_pinned_coordinator_did_not_sign_for_this_party_is_not_kept(
    world: World, sent, kind: type[UnpooledError]
) -> None:
    name = world.names[0]
    before = head(world, name)
    with pytest.raises(kind):
        answered(world, name, sent(world, name), to=name)
    assert files(world, name) == []
    assert head(world, name) == before


def test_a_purpose_of_several_lines_is_no_proposal(world: World) -> None:
    name, body = world.names[0], Proposal(world.study, "x")
    for bad in ("two\nlines", "\x1b[2J", "x" * 501):
        raw = msgspec.msgpack.encode(msgspec.to_builtins(body) | {"purpose": bad})
        envelope = msgspec.msgpack.decode(encode(compile_study(world.study).hash, PROPOSE, 0, body))
        sent = signing.sign_request(COORDINATOR, name, msgspec.msgpack.encode(envelope | {"body": msgspec.Raw(raw)}))
        with pytest.raises(ProtocolError):
            answered(world, name, sent)
    assert files(world, name) == []


def test_a_full_inbox_and_a_large_proposal_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = world.names[0]
    monkeypatch.setattr(signing, "MOST", 2)
    for run in (1, 2):
        answered(world, name, frame(world, name, run=run))
    answered(world, name, frame(world, name, run=2))
    with pytest.raises(PolicyRefusal, match="remove some first"):
        answered(world, name, frame(world, name, run=3))
    assert len(files(world, name)) == 2
    monkeypatch.setattr(signing, "LARGEST", 100)
    with pytest.raises(PolicyRefusal, match="takes at most 100"):
        answered(world, name, frame(world, name, run=4))
    with pytest.raises(DataError, match="larger than any proposal"):
        signing.read(files(world, name)[0], name, identity_of(world, name).public)


def known(world: World, party: str, *keys: str) -> None:
    """Write keys of coordinators into the policy of a party."""
    config = world.party(party)
    config.write_text(config.read_text().replace("[policy]\n", f"[policy]\ncoordinators = {list(keys)}\n"))


def test_a_strangers_key_fills_no_inbox(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """P13: a study pins its own coordinator, so anybody on the network signed 100 proposals of 20 MB, and nobody else's were taken."""
    name, stranger = world.names[0], {"coordinator": STRANGER.public}
    size = len(frame(world, name, STRANGER, **stranger))
    monkeypatch.setattr(signing, "MOST_OF_STRANGERS", 3)
    monkeypatch.setattr(signing, "LARGEST_OF_STRANGERS", 2 * size)
    for run in (1, 2, 3):
        answered(world, name, frame(world, name, STRANGER, run=run, **stranger))
    others = Identity(b"o" * 32)  # a new key for each proposal costs nothing
    for signer, run in ((STRANGER, 4), (others, 5)):
        with pytest.raises(PolicyRefusal, match=r"not know.*coordinators"):
            answered(world, name, frame(world, name, signer, run=run, coordinator=signer.public))
    assert len(files(world, name)) == 3
    known(world, name, COORDINATOR.public)
    for run in range(6):
        answered(world, name, frame(world, name, run=run + 1))
    assert sum(file.suffix == ENDING for file in files(world, name)) == 9
    monkeypatch.setattr(signing, "LARGEST_OF_STRANGERS", size // 2)
    files(world, name)[0].unlink()
    with pytest.raises(PolicyRefusal, match=f"at most {size // 2}"):
        answered(world, world.names[1], frame(world, world.names[1], STRANGER, **stranger))
    answered(world, name, frame(world, name, run=9))


def test_the_proposals_of_an_inbox_are_bounded_together_by_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = world.names[0]
    known(world, name, COORDINATOR.public)
    answered(world, name, frame(world, name, run=1))
    monkeypatch.setattr(signing, "LARGEST_TOGETHER", 2 * files(world, name)[0].stat().st_size + 1)
    answered(world, name, frame(world, name, run=2))
    with pytest.raises(PolicyRefusal, match=r"together.*remove some first"):
        answered(world, name, frame(world, name, run=3))
    # A file that a process left behind when it died counts no more.
    left = world.root / name / INBOX / "0123.tmp"
    left.write_bytes(b"x" * 1000)
    files(world, name)[1].unlink()
    answered(world, name, frame(world, name, run=4))
    assert not left.exists()


def test_a_coordinator_whose_study_was_approved_and_opened_here_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, study = world.names[0], world.study
    monkeypatch.setattr(signing, "MOST_OF_STRANGERS", 1)
    answered(world, name, frame(world, name, run=1))
    with pytest.raises(PolicyRefusal, match="coordinators"):
        answered(world, name, frame(world, name, run=2))
    plan = compile_study(study)
    opening = signing.sign_request(COORDINATOR, name, encode(plan.hash, "open", 0, OpenRequest(study)))
    config = world.party(name)
    text = config.read_text()
    config.write_text(re.sub(r"approval = .*", 'approval = "ask"', text))
    with pytest.raises(PolicyRefusal, match="not approved"):
        answered(world, name, opening)
    with pytest.raises(PolicyRefusal, match="coordinators"):  # who only asked is a stranger still
        answered(world, name, frame(world, name, run=2))
    config.write_text(re.sub(r"approval = .*", f'approval = ["{plan.hash}"]', text))
    answered(world, name, opening)
    answered(world, name, frame(world, name, run=2))
    answered(world, name, frame(world, name, run=3))


@pytest.mark.parametrize("wrong", ['["12"]', '["' + "g" * 64 + '"]', '"all"'])
def test_coordinators_of_a_policy_are_public_keys(world: World, wrong: str) -> None:
    config = world.party(world.names[0])
    config.write_text(config.read_text().replace("[policy]\n", f"[policy]\ncoordinators = {wrong}\n"))
    with pytest.raises(StudyError, match="coordinators"):
        read_party(config)


@pytest.mark.slow
def test_the_console_says_whether_the_key_of_a_proposal_is_known(world: World) -> None:
    from consoles import console

    name, plan = world.names[0], compile_study(world.study).hash
    answered(world, name, frame(world, name))
    with console(world.party(name)) as browser:
        assert "signed by a key that this party does not know" in browser.get("/")
        assert "this party does not know that key" in browser.get(f"/plan/{plan}")
    known(world, name, COORDINATOR.public)
    with console(world.party(name)) as browser:
        assert "signed by a coordinator that this party knows" in browser.get("/")


def test_a_file_that_somebody_altered_is_refused_when_it_is_read(world: World) -> None:
    name = world.names[0]
    answered(world, name, frame(world, name))
    (file,) = files(world, name)
    assert file.suffix == ENDING
    whole, key = file.read_bytes(), identity_of(world, name).public
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UnpooledError):
            signing.read(file, name, key)
    opening = signing.sign_request(COORDINATOR, name, encode("0" * 64, "open", 0, Proposal(world.study)))
    file.write_bytes(opening)
    with pytest.raises(PlanMismatch, match="no proposal"):
        signing.read(file, name, key)


@pytest.mark.slow
def test_the_console_shows_who_proposed_it_and_approves_it(world: World) -> None:
    from consoles import console

    name, plan = world.names[0], compile_study(world.study).hash
    answered(world, name, frame(world, name))
    with console(world.party(name)) as browser:
        shown = browser.get("/")
        assert "proposed by analyst, signed by a key that this party does not know" in shown
        assert "Who comes to us?" in shown
        assert "Proposed by analyst" in browser.get(f"/plan/{plan}")
        assert browser.decide(plan, "approve").status == 303
        shown = files(world, name)[0].read_bytes()
        files(world, name)[0].write_bytes(shown[:-3] + b"000")
        assert "Cannot be shown" in browser.get("/")
        assert "only the ledger speaks of it" in browser.get(f"/plan/{plan}")
