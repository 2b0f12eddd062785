"""What somebody could try who links rows: lists of elsewhere, points that are none, and reading more than the statement says out of what is seen."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.linkage_world import MODEL, World, words, world

from unpooled.errors import ProtocolError, UnpooledError
from unpooled.linkage import masking
from unpooled.linkage.masking import Mask
from unpooled.linkage.messages import HellosRequest, RelayedRequest
from unpooled.linkage.party import ListPass
from unpooled.linkage.plan import keys_of
from unpooled.privacy.ledger import Ledger
from unpooled.protocol.local import in_process
from unpooled.protocol.messages import encode, open_body, open_envelope
from unpooled.protocol.transcript import Transcript

pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")

# --- points -----------------------------------------------------------------------------------------------------------------------------

#: RFC 9496, appendix A.2: not canonical, negative, not on the curve.
BAD = [
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
]


@pytest.mark.parametrize("encoding", BAD)
def test_no_bad_encoding_is_a_point(encoding: str) -> None:
    bad, good = bytes.fromhex(encoding), masking.hashed(b"good")
    with pytest.raises(ProtocolError, match="or the identity"):
        masking.points(good + bad, 2)
    with pytest.raises(ProtocolError, match="or the identity"):
        masking.times(masking.scalar(b"any"), [good, bad])


def test_ids_are_hashed_to_the_group_as_the_standard_says() -> None:
    """RFC 9496, appendix A.3: the hash is SHA-512 of this sentence."""
    found = masking.hashed(b"Ristretto is traditionally a short shot of espresso coffee")
    assert found.hex() == "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46"


def test_an_id_is_another_point_and_another_row_in_every_plan_run_and_key() -> None:
    """Even for parties whose secrets were the same."""
    places = [("plan", 1, "key"), ("other", 1, "key"), ("plan", 2, "key"), ("plan", 1, "other")]
    masks = [Mask.of(*place, lambda _: bytes(32)) for place in places]
    assert len({mask.hashes([b"person"])[0] for mask in masks}) == len(places)
    rows = {masking.pseudonym(plan, key, masking.hashed(b"T")) for plan, _, key in places}
    assert len(rows) == 3


# --- lists of elsewhere -----------------------------------------------------------------------------------------------------------------

TWO_KEYS = ({"name": "id", "columns": ["id"]}, {"name": "digits", "columns": ["id"], "normalise": ["digits"]})


def sets(parties: int) -> list[list[str]]:
    return [words(*range(k, k + 5)) for k in range(parties)]


def requests(made: World) -> dict[tuple[str, str, int], Any]:
    """What an honest coordinator asks, by party, step and index."""
    transcript = Transcript()
    made.link(transcript=transcript)
    kinds = {step.name: step.request for step in MODEL.steps}
    found = {}
    for entry in transcript.entries:
        envelope = open_envelope(entry.request)
        if envelope.step in kinds:
            found[entry.to, envelope.step, envelope.index] = open_body(envelope, kinds[envelope.step])
    return found


def asking(made: World, to: str, step: str, index: int, payload: Any) -> Any:
    """An exchange whose coordinator asks one party something else at one place."""
    parties = made.parties()

    def exchange(batch: Any) -> Any:
        changed = []
        for ask, request in batch:
            if (ask.to, ask.step, ask.index) == (to, step, index):
                changed.append((ask, encode(made.plan.hash, step, index, payload(ask.payload))))
            else:
                changed.append((ask, request))
        return in_process(parties)(changed)

    return exchange


def content(letter: Any, other: Any) -> Any:
    """The sealed content of another letter, under the owner and sender that the step expects."""
    return msgspec.structs.replace(letter, ciphertext=other.ciphertext, salt=other.salt)


def swapped(payload: RelayedRequest) -> RelayedRequest:
    one, two, *more = payload.relayed
    return RelayedRequest((content(one, two), content(two, one), *more))


def first(other: RelayedRequest, place: int = 0) -> Callable[[RelayedRequest], RelayedRequest]:
    return lambda payload: RelayedRequest((content(payload.relayed[0], other.relayed[place]), *payload.relayed[1:]))


#: Parties, where the coordinator cheats, and with what, given what it was sent in an honest run of this plan and of another one.
FOREIGN: dict[str, tuple[int, tuple[str, str, int], Callable[[Any, Any], Any]]] = {
    "two owners' lists in each other's place": (4, ("p0", "link-pass", 0), lambda own, other: swapped),
    "a list meant for another party": (4, ("p0", "link-pass", 0), lambda own, other: first(own["p1", "link-pass", 0], 1)),
    "a list of another run": (3, ("p0", "link-pass", 0), lambda own, other: first(other["p0", "link-pass", 0])),
    "a list of an earlier round": (3, ("p0", "link-pass", 1), lambda own, other: first(own["p0", "link-pass", 0])),
    "a list of an earlier pass": (2, ("p0", "link-pass", 1), lambda own, other: first(own["p0", "link-pass", 0])),
    "a list that comes back to another owner": (
        4,
        ("p0", "link-finish", 0),
        lambda own, other: first(own["p1", "link-finish", 0], 1),
    ),
    "a list that was not finished": (3, ("p0", "link-finish", 0), lambda own, other: first(own["p0", "link-pass", 1])),
    "two parties' digests in each other's place": (3, ("p0", "link-close", 0), lambda own, other: swapped),
    "a list in the place of a digest": (2, ("p0", "link-close", 0), lambda own, other: first(own["p0", "link-pass", 0])),
    "a digest of another run": (3, ("p0", "link-close", 0), lambda own, other: first(other["p0", "link-close", 0])),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_lists_of_elsewhere_are_refused_and_nothing_is_lost(name: str) -> None:
    parties, (to, step, index), cheat = FOREIGN[name]
    keys = TWO_KEYS if "earlier pass" in name else TWO_KEYS[:1]
    own, other = (requests(world(*sets(parties), keys=keys, run=run)) for run in (1, 2))
    made = world(*sets(parties), keys=keys)
    with pytest.raises(ProtocolError, match="altered"):
        made.link(asking(made, to, step, index, cheat(own, other)))
    guesses = {party: ledger.guesses for party, ledger in made.ledgers.items()}
    assert made.link().rows == 6 - parties
    assert {party: ledger.guesses for party, ledger in made.ledgers.items()} == guesses  # no second alignment


@pytest.mark.parametrize("elsewhere", ["another run", "an earlier pass"])
def test_hellos_of_elsewhere_are_refused_and_nothing_is_lost(elsewhere: str) -> None:
    """Who could say an old hello for a party could have its old list taken for the new one."""
    made, index = world(*sets(2), keys=TWO_KEYS), int(elsewhere == "an earlier pass")
    old = requests(world(*sets(2), keys=TWO_KEYS, run=2 - index))["p0", "link-mask", 0]

    def replayed(payload: HellosRequest) -> HellosRequest:
        return HellosRequest((payload.hellos[0], old.hellos[1]))

    with pytest.raises(ProtocolError, match="signature"):
        made.link(asking(made, "p0", "link-mask", index, replayed))
    assert made.link().rows == 4


# --- what the coordinator sees ----------------------------------------------------------------------------------------------------------


def of_roots(made: World, seed: int) -> World:
    """The same people, whose parties have other root keys."""
    roots = {name: hashlib.sha256(f"{seed} {name}".encode()).digest() for name in made.tables}
    return World(
        made.tables, made.keys, run=made.run, ledgers={name: Ledger.in_memory(root) for name, root in roots.items()}
    )


def seen(made: World) -> tuple[list[tuple[str, str, int, int]], dict[str, list[bytes]], list[bytes]]:
    """The coordinator's view: what went where with which length, every party's pseudonyms, and every opaque string on its way."""
    transcript = Transcript()
    made.link(transcript=transcript)
    shape, rows, opaque = [], {}, []
    replies = {step.name: step.reply for step in MODEL.steps}
    for entry in transcript.entries:
        envelope = open_envelope(entry.reply)
        shape.append((entry.to, envelope.step, len(entry.request), len(entry.reply)))
        if envelope.step not in replies:
            continue
        body = open_body(envelope, replies[envelope.step])
        match envelope.step:
            case "link-finish":
                rows[entry.to] = body.rows.split()
            case "link-hello":
                opaque += [part.value.encode() for part in (body.agreement, body.commitment, body.signature)]
            case "link-close":
                opaque.append(body.digest.value.encode() + entry.to.encode())  # equal at all parties
            case _:
                opaque += [part for sealed in body.sealed for part in (sealed.ciphertext, sealed.salt)]
    return shape, rows, opaque


def table_of(rows: dict[str, list[bytes]]) -> Counter[tuple[str, ...]]:
    """How many pseudonyms are held by exactly these parties."""
    return Counter(tuple(name for name, own in rows.items() if one in own) for one in set().union(*rows.values()))


@pytest.mark.parametrize("parties", [3, 4])
def test_the_coordinator_s_view_depends_on_nothing_but_the_incidence_table(parties: int) -> None:
    ids = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 11, 12], [2, 1, 4, 5, 11, 21], [1, 2, 31, 21]][:parties]
    others = [[3 * k + 100 for k in reversed(own)] for own in ids]  # other people, in another order, who are shared alike
    apart = [own if k else [1, 2, 3, 41, 42, 43] for k, own in enumerate(ids)]  # sizes and n alike, other pairs
    (shape, rows, _), (shape_too, rows_too, _), (shape_apart, rows_apart, _) = (
        seen(of_roots(world(*(words(*own) for own in one)), seed)) for seed, one in enumerate((ids, others, apart))
    )
    expected = Counter(tuple(f"p{k}" for k, own in enumerate(ids) if one in own) for one in set().union(*ids))
    assert table_of(rows) == table_of(rows_too) == expected
    assert table_of(rows_apart) != expected
    # Names of people are longer in the second world; all else is of one size in all three.
    assert shape == shape_too == shape_apart


def ranks(worlds: list[World]) -> np.ndarray:
    """At which place of the first party's pseudonyms the one person stands whom both have."""
    found = np.zeros(5)
    for made in worlds:
        rows = seen(made)[1]
        (common,) = set(rows["p0"]) & set(rows["p1"])
        found[rows["p0"].index(common)] += 1
    return found


def first_places(worlds: list[World]) -> np.ndarray:
    """At which place of its list a party sends its first row."""
    found = np.zeros(5)
    for made in worlds:
        made.link()
        found[made.keepers["p0"].kept(made.plan.hash, "places_0").tolist().index(0)] += 1
    return found


def far_from_even(counts: np.ndarray) -> float:
    """Pearson's statistic."""
    even = counts.sum() / counts.size
    return float(((counts - even) ** 2 / even).sum())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_places_and_opaque_strings_say_nothing_about_who_is_who() -> None:
    """With other keys of the parties every place is as likely as any, and no string comes twice: none is a function of ids alone."""
    one, two = ([[1, 2, 3, 4, 5], [5, 11, 12, 13, 14]], [[90, 2, 7, 8, 9], [1, 90, 6, 13, 14]])
    for ids in (one, two):
        made = world(*(words(*own) for own in ids))
        for places in (ranks, first_places):  # below the 0.999 quantile of chi squared with 4 degrees
            assert far_from_even(places([of_roots(made, seed) for seed in range(60)])) < 18.5
        strings = [string for seed in range(10) for string in seen(of_roots(made, seed))[2]]
        assert len(set(strings)) == len(strings)
    # The control: where secrets do not come from the parties' keys, the place gives the person away.
    for places in (ranks, first_places):
        assert far_from_even(places([of_roots(world(*(words(*own) for own in one)), 7) for _ in range(20)])) > 18.5


# --- what a party sees ------------------------------------------------------------------------------------------------------------------


def coincidences(made: World, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many equal points any party finds between lists of different owners, multiplied by whatever it can make of its own secrets."""
    received: dict[str, list[tuple[str, list[bytes]]]] = {name: [] for name in made.tables}
    opened = ListPass.open

    def listens(self: Any, relayed: Any, what: str, owner: str, sender: str) -> bytes:
        blob = opened(self, relayed, what, owner, sender)
        if what.startswith("hop"):
            received[self.context.name].append((owner, [blob[k : k + 32] for k in range(0, len(blob), 32)]))
        return blob

    with monkeypatch.context() as patch:
        patch.setattr(ListPass, "open", listens)
        made.link()
    found = 0
    for name, party in made.parties().items():

        def secret(purpose: bytes, party: Any = party) -> bytes:
            return party.fingerprint(purpose + b" " + made.plan.hash.encode())

        mask = Mask.of(made.plan.hash, made.run, "id", secret)
        final = made.keepers[name].kept(made.plan.hash, "final_0").tobytes()
        own = [
            mask.hashes(keys_of([made.tables[name]["id"].tolist()], (), "id")),
            [final[k : k + 32] for k in range(0, len(final), 32)],
        ]
        one = masking.quotient(mask.a, mask.a)
        scalars = (one, mask.a, mask.r)
        factors = {masking.quotient(x, y) for x in scalars for y in scalars}
        lists = [(name, one) for one in own] + [one for one in received[name] if one[0] != name]
        spread = [(owner, {point for factor in factors for point in masking.times(factor, one)}) for owner, one in lists]
        found += sum(len(one & two) for (x, one), (y, two) in itertools.combinations(spread, 2) if x != y)
    return found


@pytest.mark.guarantee
@pytest.mark.parametrize("parties", [2, 3, 4])
def test_no_party_finds_who_is_in_a_pair_of_sets(parties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """People whom two parties have, but not all: with three and more nobody may tell. Of all, everybody knows afterwards anyway."""
    pairs = [[1, 2, 3, 4, 51, 52], [1, 2, 51, 53, 54], [1, 3, 4, 52, 53], [2, 3, 1, 54]][:parties]
    made = world(*(words(*own) for own in pairs))
    assert coincidences(made, monkeypatch) == 0

    # The control: without blinding, lists go round as h(x), a h(x), .., and every party reads pairs off them.
    def unblinded(*given: Any) -> Mask:
        mask = of(*given)
        return Mask(mask.domain, mask.a, masking.quotient(mask.a, mask.a), mask.order)

    of = Mask.of
    monkeypatch.setattr(masking.Mask, "of", unblinded)
    with pytest.raises(ProtocolError, match="seen before"):  # which parties notice where lists overlap
        world(*(words(*own) for own in pairs)).link()
    monkeypatch.setattr(ListPass, "new", lambda self, owner, blob: masking.points(blob, self.left(owner)))
    assert coincidences(world(*(words(*own) for own in pairs)), monkeypatch) > 0


def test_a_party_s_view_has_one_size_whatever_the_other_pairs_share() -> None:
    """Two worlds in which a party has the same ids and the same of them in all sets; what others share with it or each other differs."""
    views = []
    for others in ([[1, 2, 3, 7], [1, 4, 7, 8]], [[1, 9, 10, 11], [1, 12, 13, 14]]):
        made = world(words(1, 2, 3, 4), *(words(*own) for own in others))
        transcript = Transcript()
        result = made.link(transcript=transcript)
        views.append([(len(e.request), len(e.reply)) for e in transcript.entries if e.to == "p0"])
        assert made.linked(result)["p0"] == ["person-1"]
    assert views[0] == views[1]


@pytest.mark.parametrize("party", ["p0", "p1", "p2"])
def test_the_order_of_rows_and_the_name_of_a_map_hang_on_every_party_s_share(
    party: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who knows all points, but not all shares, can neither tell the order nor try out a list against the name."""
    from unpooled.protocol.desk import OpenDesk

    secret, found = OpenDesk.secret, []
    for other in range(8):

        def shares(self: Any, purpose: bytes, other: int = other) -> bytes:
            own = secret(self, purpose)
            mine = self.party.name == party and purpose == b"link order of rows"
            return hashlib.sha256(own + bytes([other])).digest() if mine else own

        made, transcript = world(*(words(*range(1, 8)) for _ in range(3))), Transcript()
        with monkeypatch.context() as patch:
            patch.setattr(OpenDesk, "secret", shares)
            result = made.link(transcript=transcript)
        rows = [e.reply for e in transcript.entries if open_envelope(e.reply).step == "link-finish"]
        found.append((result.ids, tuple(made.linked(result)["p0"]), tuple(rows)))
    names, orders, points = (set(one) for one in zip(*found, strict=True))
    assert (len(names), len(points)) == (8, 1)
    assert len(orders) > 4


@pytest.mark.guarantee
@pytest.mark.parametrize("words", [b"link hello", b"link returned"])
def test_what_a_party_says_without_its_signature_is_refused(words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest of what came back is signed beside being sealed: whoever could open letters still could not write them."""
    from unpooled.protocol.desk import OpenDesk

    attest = OpenDesk.attest

    def forged(self: Any, parts: tuple[bytes, ...]) -> str:
        return attest(self, (*parts, b"more") if self.party.name == "p1" and parts[0] == words else parts)

    monkeypatch.setattr(OpenDesk, "attest", forged)
    with pytest.raises(ProtocolError, match="signature"):
        world(*sets(3)).link()


@pytest.mark.guarantee
def test_a_key_for_sealing_that_is_none_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.protocol.desk import OpenDesk

    made = world(*sets(3))
    for wrong in ("zz", "00" * 32, "ab" * 31):
        again = world(*sets(3))
        with monkeypatch.context() as patch:
            patch.setattr(OpenDesk, "agreement_key", lambda self, wrong=wrong: wrong)
            with pytest.raises(UnpooledError, match="X25519"):
                again.link()
    assert made.link().rows == 3
