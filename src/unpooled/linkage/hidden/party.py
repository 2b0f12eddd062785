"""Steps of a party in a hidden link. Its list has one length whatever it holds; what comes back are places, and what it learns of others is nothing.

Everything is derived from the root key, the plan, the shares of all parties and the ids, so an answer repeats after a crash. Nothing that leaves depends on the own length;
no refusal depends on two lists: what is compared are entries that the parties planted themselves.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.linkage import masking as group
from unpooled.linkage.hidden import cells
from unpooled.linkage.hidden.cells import ID, PAD, ListMark, content
from unpooled.linkage.hidden.matcher import ABOUT, check_hellos, hello_of, list_digest, matched_parts, name_of
from unpooled.linkage.hidden.messages import (
    Committed,
    CommittedReply,
    CommittedRequest,
    LinkVerdictReply,
    LinkVerdictsRequest,
    Matched,
    NameReply,
    PlacesRequest,
    ShownMarks,
)
from unpooled.linkage.hidden.places import kept_as
from unpooled.linkage.hidden.plan import (
    CLOSE,
    COMPARE,
    FINISH,
    HELLO,
    LIST,
    MASK,
    PASS,
    PLACE,
    PLACES,
    SHARE,
    SIZES,
    VERDICT,
)
from unpooled.linkage.masking import pseudonym
from unpooled.linkage.messages import HelloReply, HellosRequest, Relayed, RelayedRequest, SealedReply
from unpooled.linkage.party import ListPass, finished, passed_on, sent_first
from unpooled.linkage.plan import MAP_NAME, usable_keys_of
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import UNREADABLE, Nothing, Public, digest, encode_content
from unpooled.protocol.registry import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.linkage.hidden.plan import HiddenLinkDesign
    from unpooled.linkage.plan import LinkKey
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context

_SHARE = b"hidden share"
#: Stands where a party has fewer planted and noise entries than it may have: no place is this number.
_NOWHERE = 2**32 - 1


def check_hidden(plan: Plan[HiddenLinkDesign], party: str, table: Table) -> None:  # noqa: ARG001 - the key is the same for everybody
    """Refuse repeated ids before anything is sent; blank and malformed ones become pads. The library, too, must be there."""
    group.ready()
    _keys(table, plan.design.key)


def _keys(table: Table, key: LinkKey) -> list[bytes | None]:
    columns: list[Sequence[object]] = [table[name].tolist() for name in key.columns]
    return usable_keys_of(columns or [table.ids()], key.normalise, key.name)


class _Hiding(ListPass):
    """The one pass of a hidden link at one party."""

    design: HiddenLinkDesign

    def __init__(self, context: Context[HiddenLinkDesign]) -> None:
        if context.name not in context.design.names:
            raise PlanMismatch("this step is for the parties of the study: a helper has no rows to link")
        super().__init__(context, 0, ABOUT)

    def left(self, party: str) -> int:
        """Return the number of entries of a party's list."""
        return self.design.length(party)

    def committed(self, owner: str) -> str:
        """Return the digest of the list that a party said it would send."""
        return self.commitments("list")[owner][0]

    def commitments(self, what: str) -> dict[str, tuple[str, ...]]:
        """Return what the parties committed themselves to, by name."""
        said = msgspec.msgpack.decode(self.kept(f"committed_{what}"), type=tuple[Committed, ...])
        return {one.party: one.digests for one in said}

    def commit(self, what: str, digests: Sequence[str]) -> CommittedReply:
        """Return the own commitment under a signature."""
        signature = self.context.attest(*self.commitment_parts(what, self.context.name, digests))
        return CommittedReply(tuple(map(Public, digests)), Public(signature))

    def commitment_parts(self, what: str, party: str, digests: Sequence[str]) -> tuple[bytes, ...]:
        """Return the parts that the signature under a commitment covers."""
        words = (b"hidden commitment", what.encode(), self.plan.encode(), party.encode())
        return (*words, *(one.encode() for one in digests))

    def keep_commitments(self, what: str, committed: Sequence[Committed]) -> None:
        """Refuse commitments that their parties did not sign, or that are not of everybody; keep them."""
        if tuple(one.party for one in committed) != self.design.names:
            raise PlanMismatch("lists and places are shown once every party of the study has committed itself")
        for one in committed:
            card = self.context.plan.study.card(one.party)
            verify(card.key, one.signature, *self.commitment_parts(what, one.party, one.digests))
        self.keep(f"committed_{what}", encode_content(committed))

    def begin(self) -> None:
        """Keep which rows have an id, and the own share of the seed.

        The share is of the own list, so that the noise of another list is unrelated, whatever became of a ledger (Theorem F.6).
        """
        keys = _keys(self.context.table, self.key)
        self.keep("share", self.context.secret(digest(_SHARE, *(one or b"" for one in keys))))
        self.context.keep("usable_0", np.array([row for row, one in enumerate(keys) if one is not None], dtype=np.int64))

    @property
    def share(self) -> bytes:
        """Return the own share of the seed."""
        return self.kept("share")

    def share_digest(self, party: str, share: bytes) -> str:
        """Return the digest by which a party commits itself to its share of the seed."""
        return digest(_SHARE, self.plan.encode(), party.encode(), share).hex()

    @property
    def usable(self) -> NDArray[np.int64]:
        """Return the rows that have an id."""
        return self._kept("usable", 0)

    @cached_property
    def marks(self) -> list[ListMark]:
        """Return the own planted and noise entries."""
        return self.marks_of(self.context.name)

    def marks_of(self, party: str) -> list[ListMark]:
        """Return the planted and noise entries of a party, in an order that all know."""
        pairs = cells.pairs_of(self.design.noise, self.kept("seed"))
        return list(cells.marks_of(party, self.design.cells, pairs))

    def entries(self) -> list[bytes]:
        """Return the contents of the whole list: ids, marked entries, and pads that the own root key alone gives."""
        seed = self.kept("seed")
        keys = _keys(self.context.table, self.key)
        found = [content(ID, one) for one in keys if one is not None] + [mark.content(seed) for mark in self.marks]
        pad = self.context.secret(b"hidden pads")
        many = self.design.length(self.context.name) - len(found)  # a party with more rows than its cap opens no plan
        return found + [content(PAD, digest(pad, str(number).encode())) for number in range(many)]

    def places(self, array: int) -> NDArray[np.int64]:
        """Return the places of all entries in an array, in the order of :meth:`entries`."""
        given = self.context.kept(f"places_{array}").astype(np.int64)
        found = np.empty_like(given)
        found[self.context.kept("order_0")] = given
        return found

    def marked(self, array: int) -> NDArray[np.int64]:
        """Return the places of the own marked entries in an array."""
        before = self.usable.size
        return self.places(array)[before : before + len(self.marks)]

    def room(self, party: str) -> int:
        """Return the most planted and noise entries that a party may have: what is shown of them has one length, which tells nobody how many noise pairs there are."""
        return cells.room_of(party, self.design.cells, self.design.noise.most)

    def shown(self, array: int) -> ShownMarks:
        """Return what the other party of an array is shown."""
        blind = self.context.secret(b"hidden blind " + str(array).encode())
        places = np.full(self.room(self.context.name), _NOWHERE, dtype="<u4")
        places[: len(self.marks)] = self.marked(array)
        return ShownMarks(blind, places.tobytes())

    def shown_digest(self, party: str, array: int, shown: ShownMarks) -> str:
        """Return the digest by which a party commits itself to what it will show."""
        place = (b"hidden marks", self.plan.encode(), party.encode(), str(array).encode())
        return digest(*place, shown.blind, shown.places).hex()

    def other(self, array: int) -> str:
        """Return the other party of an array."""
        first, second = self.design.arrays[array]
        return second if first == self.context.name else first


def _hello(context: Context[HiddenLinkDesign], _: Nothing) -> HelloReply:
    if context.name == context.design.helper:
        return hello_of(context, "")
    context.align(context.design.guesses(context.name))
    state = _Hiding(context)
    state.begin()
    return hello_of(context, state.share_digest(context.name, state.share))


def _share(context: Context[HiddenLinkDesign], request: HellosRequest) -> SealedReply:
    state = _Hiding(context)
    check_hellos(context, request.hellos)
    state.keep("hellos", encode_content(request.hellos))
    share = state.share  # the one that the own hello, whose signature was checked, commits to
    others = (name for name in state.design.names if name != context.name)
    return SealedReply(tuple(state.seal(name, "share", context.name, share) for name in others))


def _list(context: Context[HiddenLinkDesign], request: RelayedRequest) -> CommittedReply:
    state = _Hiding(context)
    names = state.design.names
    others = [name for name in names if name != context.name]
    if len(request.relayed) != len(others):
        raise ProtocolError("another number of shares than this step takes")
    shares = {context.name: state.share}
    for relayed, name in zip(request.relayed, others, strict=True):
        shares[name] = state.open(relayed, "share", name, name)
        if state.hellos()[name].commitment != state.share_digest(name, shares[name]):
            msg = f"party {name!r} sent another share than it had committed to: nothing is answered"
            raise ProtocolError(msg)
    state.keep("seed", cells.seed_of([shares[name] for name in names]))
    blinded, order = state.mask.blinded(state.entries())
    blob = b"".join(blinded)
    state.keep("masked", blob)
    context.keep("order_0", order)
    return state.commit("list", (state.commitment(blob),))


def _mask(context: Context[HiddenLinkDesign], request: CommittedRequest) -> SealedReply:
    state = _Hiding(context)
    if any(len(one.digests) != 1 for one in request.committed):
        raise ProtocolError("a party commits itself to one list")
    state.keep_commitments("list", request.committed)
    context.pay(SIZES, digest(state.kept("masked")))  # before the list leaves: the helper will see what it is part of
    return sent_first(state)


def _pass(context: Context[HiddenLinkDesign], request: RelayedRequest) -> SealedReply:
    return passed_on(_Hiding(context), context.index, request)


def _finish(context: Context[HiddenLinkDesign], request: RelayedRequest) -> SealedReply:
    state = _Hiding(context)
    final = finished(state, request)
    blob = b"".join(pseudonym(state.plan, state.key.name, point) for point in final)
    state.keep("list", list_digest(state.plan, context.name, blob))
    return SealedReply((state.seal(state.design.helper, "pseudonyms", context.name, blob),))


def _places(context: Context[HiddenLinkDesign], request: PlacesRequest) -> CommittedReply:
    state = _Hiding(context)
    design, helper = state.design, state.design.helper
    sealed = Relayed(helper, helper, request.places.ciphertext, request.places.salt)
    try:
        matched = msgspec.msgpack.decode(state.open(sealed, "places", helper, helper), type=Matched, strict=True)
    except UNREADABLE:
        raise ProtocolError("the helper sealed something else than places") from None
    own = design.arrays_of(context.name)
    if len(matched.lists) != len(design.names) or len(matched.places) != len(own):
        raise ProtocolError("the helper gave places of another number of lists or arrays than the plan has")
    name = name_of(context.plan, matched.lists)
    verify(context.plan.study.member(helper).key, matched.signature, *matched_parts(state.plan, name))
    if matched.lists[state.own] != state.kept("list"):
        raise ProtocolError("the helper matched another list than this party sent: nothing is linked")
    for array, blob in zip(own, matched.places, strict=True):
        if len(blob) != PLACE * design.length(context.name):
            raise ProtocolError("the helper gave another number of places than the list has entries")
        found = np.frombuffer(blob, dtype="<u4").astype(np.int64)
        if np.unique(found).size != found.size or int(found.max()) >= design.totals[array]:
            raise ProtocolError("the helper gave one place twice, or a place that there is not: nothing is linked")
        context.keep(f"places_{array}", found)
    state.keep("name", name.encode())
    return state.commit("marks", [state.shown_digest(context.name, array, state.shown(array)) for array in own])


def _compare(context: Context[HiddenLinkDesign], request: CommittedRequest) -> SealedReply:
    state = _Hiding(context)
    counts = {one.party: len(one.digests) for one in request.committed}
    if counts != {name: len(state.design.arrays_of(name)) for name in state.design.names}:
        raise ProtocolError("a party commits itself to what it shows of every array that it is in")
    state.keep_commitments("marks", request.committed)
    own = state.design.arrays_of(context.name)
    return SealedReply(
        tuple(state.seal(state.other(a), f"marks {a}", context.name, encode_content(state.shown(a))) for a in own)
    )


def _verdict(context: Context[HiddenLinkDesign], request: RelayedRequest) -> LinkVerdictReply:
    state = _Hiding(context)
    own = state.design.arrays_of(context.name)
    if len(request.relayed) != len(own):
        raise ProtocolError("another number of lists than this step takes")
    met: dict[ListMark, int] = {}
    for relayed, array in zip(request.relayed, own, strict=True):
        other = state.other(array)
        try:
            shown = msgspec.msgpack.decode(state.open(relayed, f"marks {array}", other, other), type=ShownMarks, strict=True)
        except UNREADABLE:
            raise ProtocolError("a party sealed something else than places") from None
        said = state.commitments("marks")[other][state.design.arrays_of(other).index(array)]
        theirs = state.marks_of(other)
        if said != state.shown_digest(other, array, shown) or len(shown.places) != PLACE * state.room(other):
            msg = f"party {other!r} showed other places than it had committed to: nothing is linked"
            raise ProtocolError(msg)
        here = dict(zip(state.marks, state.marked(array).tolist(), strict=True))
        there = dict(zip(theirs, np.frombuffer(shown.places, dtype="<u4").tolist(), strict=False))
        for mark in agreeing(here, there, context.name, other):
            met[mark] = met.get(mark, 0) + 1
    if context.name == state.design.hub:  # which alone sees both arrays of an id that two hospitals hold
        several = [mark for mark in state.marks if len(mark.cell) > 2]  # noqa: PLR2004 - itself and one hospital
        if any(met.get(mark, 0) != 1 for mark in several):
            raise _mismatched()
    name = state.kept("name").decode()
    return LinkVerdictReply(Public(name), Public(context.attest(*verdict_parts(state.plan, name))))


def agreeing(here: Mapping[ListMark, int], there: Mapping[ListMark, int], own: str, other: str) -> list[ListMark]:
    """Return the marked entries that two parties have at one place; refused where a pair of theirs has not, or where two different entries have.

    It looks at marked entries alone: whatever a party shows in their place, no answer depends on where an id of the other one lies.
    """
    found = [mark for mark in here.keys() & there.keys() if here[mark] == there[mark]]
    pairs = {mark for mark in here if set(mark.cell) == {own, other}}
    at = {place: mark for mark, place in here.items()}
    crossed = any(at.get(place, mark) != mark for mark, place in there.items())
    if crossed or len(set(there.values())) != len(there) or not pairs <= set(found):
        raise _mismatched()
    return found


def _mismatched() -> ProtocolError:
    return ProtocolError(
        "entries that the parties planted themselves do not lie where they must: the helper, or a party, did not follow the protocol, and nobody can say "
        "which. Nothing is linked"
    )


def verdict_parts(plan: str, name: str) -> tuple[bytes, ...]:
    """Return what a party signs when it accepts a link: the plan, which says the run, and the name, which says places and lists."""
    return b"hidden verdict", plan.encode(), name.encode()


def _close(context: Context[HiddenLinkDesign], request: LinkVerdictsRequest) -> NameReply:
    state = _Hiding(context)
    name = state.kept("name").decode()
    if tuple(one.party for one in request.verdicts) != state.design.names:
        raise PlanMismatch("places are kept once every party has accepted the link")
    for one in request.verdicts:
        try:
            verify(context.plan.study.card(one.party).key, one.signature, *verdict_parts(state.plan, name))
        except ProtocolError:
            msg = f"party {one.party!r} did not accept the link that this party has places of: its helper matched other lists, and nothing is linked"
            raise ProtocolError(msg) from None
    rows, usable = np.full(context.table.n_rows, -1, dtype=np.int64), state.usable
    kept: dict[str, NDArray[np.int64]] = {}
    for number, array in enumerate(state.design.arrays_of(context.name)):
        places = state.places(array)
        at = rows.copy()
        at[usable] = places[: usable.size]
        kept |= kept_as(number, state.other(array), state.design.totals[array], at, np.sort(places))
    context.keep_places(name, kept)
    context.keep(MAP_NAME, np.frombuffer(bytes.fromhex(name), dtype=np.uint8))
    return NameReply(Public(name))


def _hops(plan: Plan) -> int:
    return int(plan.design.hops) if plan.hides else 0


def once(plan: Plan) -> int:
    """Return how often a step is asked for: once, of a hidden link alone."""
    return int(plan.hides)


STEPS = (
    Step(HELLO, Nothing, HelloReply, _hello, times=once),
    Step(SHARE, HellosRequest, SealedReply, _share, times=once),
    Step(LIST, RelayedRequest, CommittedReply, _list, times=once),
    Step(MASK, CommittedRequest, SealedReply, _mask, times=once),
    Step(PASS, RelayedRequest, SealedReply, _pass, times=_hops),
    Step(FINISH, RelayedRequest, SealedReply, _finish, bulky=True, times=once),
    Step(PLACES, PlacesRequest, CommittedReply, _places, bulky=True, times=once),
    Step(COMPARE, CommittedRequest, SealedReply, _compare, times=once),
    Step(VERDICT, RelayedRequest, LinkVerdictReply, _verdict, times=once),
    Step(CLOSE, LinkVerdictsRequest, NameReply, _close, times=once),
)
