"""Members of a hidden link who do not follow the protocol: a helper that matches wrongly, parties that leave entries out, a coordinator that mixes letters up."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.hidden_world import FEW, HELPER, MODEL, HiddenWorld, altered, hidden, plant_few, words
from tests.linkage_world import world

from unpooled.errors import PlanMismatch, ProtocolError, ReleaseConflict, UsageError
from unpooled.linkage import masking
from unpooled.linkage.hidden import matcher, matching
from unpooled.linkage.hidden.cells import SINGLE, ListMark
from unpooled.linkage.hidden.messages import CommittedRequest, Matched, MatchRequest
from unpooled.linkage.hidden.party import agreeing
from unpooled.linkage.hidden.places import places_of
from unpooled.linkage.letters import Letters
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.desk import OpenDesk
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.messages import encode, open_body, open_envelope
from unpooled.protocol.transcript import Transcript

pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")
pytestmark = pytest.mark.guarantee


@pytest.fixture(autouse=True)
def _few_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_few(monkeypatch)


TWO = (words(*range(8)), words(*range(5, 12)))
THREE = (words(*range(10)), words(1, 2, 3, 20, 21), words(3, 4, 21, 22))

# --- members who do not follow the protocol ---------------------------------------------------------------------------------


def placing(patch: pytest.MonkeyPatch, change: Any) -> None:
    """A helper that changes the places that it drew."""
    kept = matcher._placed

    def lying(design: Any, lists: Any, secret: Any) -> Any:
        places = {key: found.copy() for key, found in kept(design, lists, secret).items()}
        change(lists, places)
        return places

    patch.setattr(matcher, "_placed", lying)


def parts_some(lists: Any, places: Any) -> None:
    """Every fourth pair gets two places."""
    taken = {*places["p0", 0].tolist(), *places["p1", 0].tolist()}
    free = iter(sorted(set(range(len(lists["p0"]) + len(lists["p1"]))) - taken))
    both = [k for k, one in enumerate(lists["p1"]) if one in set(lists["p0"])]
    for k in both[::4]:
        places["p1", 0][k] = next(free)


def swaps(lists: Any, places: Any) -> None:
    """All places of a list go to their neighbours."""
    places["p1", 0] = np.roll(places["p1", 0], 1)


def repeats(lists: Any, places: Any) -> None:
    places["p1", 0][0] = places["p1", 0][1]


def beyond(lists: Any, places: Any) -> None:
    places["p1", 0][0] = len(lists["p0"]) + len(lists["p1"])


def matches_all(lists: Any, places: Any) -> None:
    """Every entry of the shorter list lies where one of the other lies."""
    places["p1", 0] = places["p0", 0][: len(lists["p1"])]


@pytest.mark.parametrize(
    ("lie", "match"),
    [(parts_some, "planted"), (swaps, "planted"), (matches_all, "planted"), (repeats, "twice"), (beyond, "there is not")],
)
def test_a_helper_that_matches_wrongly_is_found(lie: Any, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 8: it cannot tell planted entries from ids, so whatever share it parts it parts of them as well."""
    placing(monkeypatch, lie)
    with pytest.raises(ProtocolError, match=match):
        hidden(*TWO, epsilon=20.0).link()


@pytest.mark.parametrize("lie", [parts_some, swaps, matches_all])
def test_where_nothing_is_compared_a_helper_s_lie_stands(lie: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of attack 8."""
    from unpooled.linkage.hidden import party

    placing(monkeypatch, lie)
    monkeypatch.setattr(party, "agreeing", lambda *_: [])
    made = hidden(*TWO, epsilon=20.0)
    result = made.link()
    one, two = made.at(result, "p0", "p1"), made.at(result, "p1", "p0")
    assert any(one[key] != two[key] for key in one.keys() & two.keys()) or {*one.values()} & {*two.values()}


def test_of_an_id_at_two_hospitals_exactly_one_match_must_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(lists: Any, hub: str, key: bytes) -> Any:
        del key
        return {name: set(own) & set(lists[hub]) for name, own in lists.items() if name != hub}

    monkeypatch.setattr(matcher, "shared", both)
    with pytest.raises(ProtocolError, match="planted"):
        hidden(*THREE, hub="p0", epsilon=20.0).link()
    monkeypatch.setattr(matcher, "shared", lambda lists, hub, key: {name: set() for name in lists if name != hub})
    with pytest.raises(ProtocolError, match="planted"):
        hidden(*THREE, hub="p0", epsilon=20.0).link()
    monkeypatch.setattr(matcher, "shared", matching.shared)
    hidden(*THREE, hub="p0", epsilon=20.0).link()


def test_what_parties_compare_says_nothing_of_ids() -> None:
    """An exact check is no oracle: a party that shows the place of an id in the place of a planted entry gets one answer, whether or not the other has the id."""
    pair, alone, theirs = ListMark(b"planted", ("a", "b"), 0), ListMark(SINGLE, ("a",), 0), ListMark(SINGLE, ("b",), 0)
    here = {pair: 3, alone: 5}
    assert agreeing(here, {pair: 3, theirs: 6}, "a", "b") == [pair]
    for place in (7, 8):  # at one of them a has an id, at the other one it has none: a does not look
        assert agreeing(here, {pair: 3, theirs: place}, "a", "b") == [pair]
        with pytest.raises(ProtocolError, match="planted"):
            agreeing(here, {pair: place, theirs: 6}, "a", "b")
    for wrong in ({pair: 5, theirs: 6}, {pair: 3, theirs: 5}, {pair: 3, theirs: 3}):
        with pytest.raises(ProtocolError, match="planted"):
            agreeing(here, wrong, "a", "b")


def test_a_party_that_leaves_its_noise_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.linkage.hidden.party import _Hiding

    entries = _Hiding.entries

    def without(self: Any) -> list[bytes]:
        found = entries(self)
        if self.context.name == "p1":
            start = self.usable.size + FEW
            for k, mark in enumerate(self.marks):
                if mark.kind == b"noise":
                    found[self.usable.size + k] = b"pad" + bytes([start % 251, k])
        return found

    monkeypatch.setattr(_Hiding, "entries", without)
    with pytest.raises(ProtocolError, match="planted"):
        hidden(*TWO, epsilon=2.0).link()


def test_a_helper_answers_one_set_of_lists() -> None:
    """Attack 8, "answers twice": the first lists count, and the same again has the same ciphertext."""
    made, transcript = hidden(*TWO), Transcript()
    made.link(transcript=transcript)
    (entry,) = [e for e in transcript.entries if open_envelope(e.reply).step == "hide-match"]
    parties = made.parties()
    for party in parties.values():
        party.answer(encode(made.plan.hash, "open", 0, OpenRequest(made.plan.study)))
    assert parties[HELPER].answer(entry.request) == bytes(entry.reply)
    request = open_body(open_envelope(entry.request), MatchRequest)
    other = MatchRequest(request.hellos, request.lists[::-1])
    with pytest.raises(ReleaseConflict, match="answered before"):
        parties[HELPER].answer(encode(made.plan.hash, "hide-match", 0, other))


def test_pseudonyms_twice_or_of_another_number_are_not_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 6 at the helper's door; the control does not look."""
    seal, wrong = Letters.seal, {"twice": lambda blob: blob[:16] + blob[:-16], "fewer": lambda blob: blob[16:]}
    for change in wrong.values():

        def cheating(self: Any, to: str, what: str, owner: str, content: bytes, change: Any = change) -> Any:
            cheats = what == "pseudonyms" and self.context.name == "p0"
            return seal(self, to, what, owner, change(content) if cheats else content)

        with monkeypatch.context() as patch:
            patch.setattr(Letters, "seal", cheating)
            with pytest.raises(ProtocolError, match="nothing is matched"):
                hidden(*TWO).link()
    # The control: nobody looks, and one row is matched with either of two places.
    one, two = matching.placed([b"x", b"x"], [b"x"], {b"x"}, np.arange(3))
    assert len(set(one.tolist()) - set(two.tolist())) == 1


def requests(made: HiddenWorld) -> dict[tuple[str, str, int], Any]:
    """What an honest coordinator asks, by member, step and index."""
    transcript, found = Transcript(), {}
    made.link(transcript=transcript)
    kinds = {step.name: step.request for step in MODEL.steps}
    for entry in transcript.entries:
        envelope = open_envelope(entry.request)
        if envelope.step in kinds:
            found[entry.to, envelope.step, envelope.index] = open_body(envelope, kinds[envelope.step])
    return found


#: Where the coordinator cheats, and with what, of what it was asked in this plan and in another run.
SWAPS: dict[str, tuple[str, str, Any]] = {
    "lists for the helper": ("matcher", "hide-match", lambda own, _: lambda p: MatchRequest(p.hellos, p.lists[::-1])),
    "a list of another run": (
        "matcher",
        "hide-match",
        lambda _, other: lambda p: MatchRequest(p.hellos, other["matcher", "hide-match", 0].lists),
    ),
    "hellos of another run": (
        "matcher",
        "hide-match",
        lambda _, other: lambda p: MatchRequest(other["matcher", "hide-match", 0].hellos, p.lists),
    ),
    "places of another party": ("p0", "hide-places", lambda own, _: lambda p: own["p1", "hide-places", 0]),
    "places of another run": ("p0", "hide-places", lambda _, other: lambda p: other["p0", "hide-places", 0]),
    "commitments in another order": (
        "p0",
        "hide-mask",
        lambda own, _: lambda p: CommittedRequest(p.committed[::-1]),
    ),
    "commitments of another run": ("p0", "hide-mask", lambda _, other: lambda p: other["p0", "hide-mask", 0]),
    "lists in the place of places": ("p0", "hide-compare", lambda own, _: lambda p: own["p0", "hide-mask", 0]),
    "a share in the place of a list": ("p0", "hide-pass", lambda own, _: lambda p: own["p0", "hide-list", 0]),
    "shown places of another run": ("p0", "hide-verdict", lambda _, other: lambda p: other["p0", "hide-verdict", 0]),
    "verdicts of another run": ("p0", "hide-close", lambda _, other: lambda p: other["p0", "hide-close", 0]),
    "shares of another run": ("p0", "hide-list", lambda _, other: lambda p: other["p0", "hide-list", 0]),
}


@pytest.mark.parametrize("name", SWAPS)
def test_what_a_coordinator_puts_in_another_place_is_refused_and_nothing_is_lost(name: str) -> None:
    """Attack 11."""
    to, step, cheat = SWAPS[name]
    own, other = (requests(hidden(*TWO, run=run)) for run in (1, 2))
    made = hidden(*TWO)
    with pytest.raises((ProtocolError, PlanMismatch)):
        made.link(altered(made, to, step, cheat(own, other)))
    before = {party: ledger.guesses for party, ledger in made.ledgers.items()}
    result = made.link()
    assert made.at(result, "p0", "p1")
    assert {party: ledger.guesses for party, ledger in made.ledgers.items()} == before


def test_seals_without_their_place_are_opened_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of attack 11: then a hub's arrays, and lists, are taken in each other's place."""
    made = hidden(*THREE, hub="p0")

    def rel(one: Any, other: Any) -> Any:
        return msgspec.structs.replace(one, ciphertext=other.ciphertext, salt=other.salt)

    def swapped(p: Any) -> Any:
        return type(p)((rel(p.relayed[0], p.relayed[1]), rel(p.relayed[1], p.relayed[0])))

    with pytest.raises(ProtocolError, match="altered"):
        made.link(altered(made, "p0", "hide-verdict", swapped))
    with monkeypatch.context() as patch:
        patch.setattr(Letters, "_about", lambda self, what, owner, sender, to: (b"anything", min(sender, to).encode()))
        patch.setattr("unpooled.protocol.identity.Identity.shared_key", lambda self, *_: bytes(32))
        loose = hidden(*THREE, hub="p0")
        with pytest.raises(ProtocolError, match="committed"):  # it was opened: only the commitment stands in the way
            loose.link(altered(loose, "p0", "hide-verdict", swapped))


def test_parties_of_two_matchings_do_not_accept_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 12: a helper that gives two parties places of different lists; the control is a link without verdicts."""
    seal, names = Letters.seal, []

    def lying(self: Any, to: str, what: str, owner: str, content: bytes) -> Any:
        if what == "places" and to == "p1":
            told = msgspec.msgpack.decode(content, type=Matched)
            lists = (b"other" * 6 + b"..", told.lists[1])
            name = matcher.name_of(self.context.plan, lists)
            names.append(name)
            signature = self.context.attest(*matcher.matched_parts(self.context.plan.hash, name))
            content = msgspec.msgpack.encode(Matched(told.places, lists, signature))
        return seal(self, to, what, owner, content)

    monkeypatch.setattr(Letters, "seal", lying)
    with pytest.raises(ProtocolError, match="did not accept"):
        hidden(*TWO).link()
    from unpooled.linkage.hidden import party

    monkeypatch.setattr(party, "verify", lambda *_: None)
    with pytest.raises(ProtocolError, match="different links"):
        hidden(*TWO).link()
    assert names


def other_points(blob: bytes) -> bytes:
    return b"".join(masking.times(masking.scalar(b"x"), masking.points(blob, len(blob) // 32)))


def last_bit(blob: bytes) -> bytes:
    return blob[:-1] + bytes([blob[-1] ^ 1])


def test_shares_and_lists_are_those_that_were_committed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = Letters.seal
    for what, match in (("share", "another share"), ("hop 0", "another list"), ("marks 0", "other places")):

        def changing(self: Any, to: str, about: str, owner: str, content: bytes, what: str = what) -> Any:
            if about == what and self.context.name == "p1":
                content = {"share": lambda _: bytes(32), "hop 0": other_points, "marks 0": last_bit}[what](content)
            return seal(self, to, about, owner, content)

        with monkeypatch.context() as patch:
            patch.setattr(Letters, "seal", changing)
            with pytest.raises(ProtocolError, match=match):
                hidden(*TWO).link()


#: Requests that no honest coordinator makes: to whom, of which step, what, and how it is refused.
WRONG: dict[str, tuple[str, str, Any, str]] = {
    "no shares": ("p0", "hide-list", lambda p: type(p)(()), "number of shares"),
    "two digests of a list": ("p0", "hide-mask", lambda p: CommittedRequest(tuple(map(twofold, p.committed))), "one list"),
    "no digests of places": ("p0", "hide-compare", lambda p: CommittedRequest(()), "every array"),
    "no list": ("p0", "hide-finish", lambda p: type(p)(()), "number of lists"),
    "no list to multiply": ("p0", "hide-pass", lambda p: type(p)(()), "number of lists"),
    "no places": ("p0", "hide-verdict", lambda p: type(p)(()), "number of lists"),
    "no verdicts": ("p0", "hide-close", lambda p: type(p)(()), "has accepted"),
    "one list to match": (HELPER, "hide-match", lambda p: MatchRequest(p.hellos, p.lists[:1]), "number of lists"),
    "hellos of few": (HELPER, "hide-match", lambda p: MatchRequest(p.hellos[:1], p.lists), "every member"),
}


def twofold(one: Any) -> Any:
    return msgspec.structs.replace(one, digests=one.digests * 2)


@pytest.mark.parametrize("name", WRONG)
def test_requests_of_another_form_are_refused_in_words(name: str) -> None:
    to, step, change, match = WRONG[name]
    made = hidden(*TWO)
    with pytest.raises((ProtocolError, PlanMismatch), match=match):
        made.link(altered(made, to, step, change))


def resealed(what: str, change: Any, sender: str, to: str = "") -> Any:
    """Letters of one member about something, with another content or for somebody else."""
    seal = Letters.seal

    def sealing(self: Any, node: str, about: str, owner: str, content: bytes) -> Any:
        if about != what or self.context.name != sender:
            return seal(self, node, about, owner, content)
        return seal(self, to or node, about, owner, change(self, content))

    return sealing


def told_otherwise(**changes: Any) -> Any:
    def changed(letters: Any, blob: bytes) -> bytes:
        told = msgspec.structs.replace(msgspec.msgpack.decode(blob, type=Matched), **changes)
        name = matcher.name_of(letters.context.plan, told.lists)
        signature = letters.context.attest(*matcher.matched_parts(letters.context.plan.hash, name))
        return bytes(msgspec.msgpack.encode(msgspec.structs.replace(told, signature=signature)))

    return changed


#: What a member seals in the place of what it should: about what, the content, who, for whom, and how it is refused.
SEALED: dict[str, tuple[str, Any, str, str, str]] = {
    "no places at all": ("places", lambda _, blob: b"places", HELPER, "", "something else than places"),
    "places of two arrays": ("places", told_otherwise(places=(b"", b"")), HELPER, "", "number of lists or arrays"),
    "few places": ("places", told_otherwise(places=(bytes(4),)), HELPER, "", "number of places"),
    "other lists": ("places", told_otherwise(lists=(bytes(32), bytes(32))), HELPER, "", "another list than this party"),
    "places for one": ("places", lambda _, blob: blob, HELPER, "p0", "for others than the parties"),
    "pseudonyms for a party": ("pseudonyms", lambda _, blob: blob, "p0", "p1", "for others than the helper"),
    "marks that are none": ("marks 0", lambda _, blob: b"marks", "p0", "", "something else than places"),
}


@pytest.mark.parametrize("name", SEALED)
def test_letters_of_another_content_are_refused_in_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what, change, sender, to, match = SEALED[name]
    monkeypatch.setattr(Letters, "seal", resealed(what, change, sender, to))
    with pytest.raises(ProtocolError, match=match):
        hidden(*TWO).link()


def test_places_without_the_helper_s_signature_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsigned(_: Any, blob: bytes) -> bytes:
        told = msgspec.msgpack.decode(blob, type=Matched)
        return bytes(msgspec.msgpack.encode(msgspec.structs.replace(told, signature="0" * 128)))

    monkeypatch.setattr(Letters, "seal", resealed("places", unsigned, HELPER))
    with pytest.raises(ProtocolError, match="signature"):
        hidden(*TWO).link()


def test_nothing_is_debited_undrawn_in_other_plans_and_nobody_has_places_of_no_link() -> None:
    made = world(*TWO)
    desk = OpenDesk(made.parties()["p0"], made.plan, "link-hello", 0, bytes(32))
    with pytest.raises(PlanMismatch, match="without being drawn"):
        desk.pay("sizes of cells", b"")
    with pytest.raises(UsageError, match="keeps no places"):
        places_of(MemoryKeeper(), f"hidden:{'0' * 64}")
