"""Steps of a party while rows are linked. Ids leave it only as points under two secrets of its own; lists go from party to party, sealed.

Everything is derived from the root key, the plan and the ids, so an answer repeats after a crash; what a later step needs is kept. Opening the plan pins
the data: over others its answer would be another one, which the ledger refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.linkage import masking as group
from unpooled.linkage.letters import Letters
from unpooled.linkage.masking import Mask, in_order, map_digest, pseudonym
from unpooled.linkage.messages import (
    Hello,
    HelloReply,
    HellosRequest,
    MapReply,
    RelayedRequest,
    ReturnRequest,
    RowsReply,
    SealedReply,
)
from unpooled.linkage.plan import CLOSE, FINISH, HELLO, MAP_NAME, MASK, PASS, RETURN, keys_of
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import PSEUDONYM, Nothing, Public, digest, encode_content
from unpooled.protocol.registry import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.linkage.plan import LinkDesign, LinkKey
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context

_SHARE = b"link order of rows"


def check(plan: Plan, party: str, table: Table) -> None:  # noqa: ARG001 - keys are the same for everybody
    """Refuse data that cannot be linked (blank, malformed, repeated keys) before anything is sent; the library, too, must be there."""
    group.ready()
    for key in plan.design.keys:
        _keys(table, key)


def _keys(table: Table, key: LinkKey) -> list[bytes]:
    columns: list[Sequence[object]] = [table[name].tolist() for name in key.columns]
    return keys_of(columns or [table.ids()], key.normalise, key.name)


class ListPass(Letters):
    """One pass at one party: which key, which rows are left, what was kept."""

    def __init__(self, context: Context, number: int, about: bytes = b"link") -> None:
        super().__init__(context, about, number)
        self.design: LinkDesign = context.design
        self.key = self.design.keys[number]
        self.plan = context.plan.hash
        self.own = self.design.names.index(context.name)
        self.mask = Mask.of(self.plan, context.plan.study.run, self.key.name, context.secret)

    def left(self, party: str) -> int:
        """Return the number of rows of a party that no earlier pass has matched."""
        return self.context.plan.study.card(party).rows - sum(self.rows(earlier).size for earlier in range(self.number))

    def rows(self, number: int) -> np.ndarray:
        """Return the own rows that a pass matched, in the order that all share."""
        return self._kept("rows", number)

    def check_hellos(self, hellos: Sequence[Hello]) -> None:
        """Refuse hellos that their parties did not sign for this pass."""
        if tuple(hello.party for hello in hellos) != self.design.names:
            raise PlanMismatch("lists are masked once every party of the study has said what it will send")
        for hello in hellos:
            verify(self.context.plan.study.card(hello.party).key, hello.signature, *self.signed(hello.party, hello))

    def signed(self, party: str, hello: Hello) -> tuple[bytes, ...]:
        """Return the parts that a hello's signature covers."""
        words = (b"link hello", self.plan.encode(), party.encode(), str(self.number).encode())
        return (*words, hello.agreement.encode(), hello.commitment.encode())

    def committed(self, owner: str) -> str:
        """Return the digest of the list that a party said it would send."""
        return self.hellos()[owner].commitment

    def commitment(self, blob: bytes) -> str:
        """Return the digest of a first masked list."""
        return digest(b"link list", self.plan.encode(), str(self.number).encode(), blob).hex()

    def new(self, owner: str, blob: bytes) -> list[bytes]:
        """Return a received list of an owner as points; refuses points that this party has met in its own list or another one."""
        found = group.points(blob, self.left(owner))
        fresh = set(found)
        for number in range(self.number + 1):
            for name in self.design.names:
                known = f"masked_{number}" if name == self.context.name else f"seen{self.design.names.index(name)}_{number}"
                if (name, number) != (owner, self.number) and self.context.has(known):
                    old = self.context.kept(known).tobytes()
                    if not fresh.isdisjoint(old[k : k + group.SIZE] for k in range(0, len(old), group.SIZE)):
                        raise ProtocolError(
                            "a masked list holds a point that was seen before in another list: nothing is answered"
                        )
        self.keep(f"seen{self.design.names.index(owner)}", blob)
        return found


def _hello(context: Context, _: Nothing) -> HelloReply:
    state = ListPass(context, context.index)
    context.align(context.plan.design.guesses(context.name))
    keys = _keys(context.table, state.key)
    matched = [state.rows(earlier) for earlier in range(state.number)]
    left = np.setdiff1d(np.arange(len(keys)), np.concatenate(matched) if matched else [])
    blinded, places = state.mask.blinded([keys[row] for row in left])
    blob = b"".join(blinded)
    state.keep("masked", blob)
    context.keep(f"places_{state.number}", left[places].astype(np.int64))
    hello = Hello(context.name, context.agreement_key, state.commitment(blob), "")
    return HelloReply(
        Public(hello.agreement), Public(hello.commitment), Public(context.attest(*state.signed(context.name, hello)))
    )


def _mask(context: Context, request: HellosRequest) -> SealedReply:
    state = ListPass(context, context.index)
    state.check_hellos(request.hellos)
    state.keep("hellos", encode_content(request.hellos))
    return sent_first(state)


def _pass(context: Context[LinkDesign], request: RelayedRequest) -> SealedReply:
    number, hop = divmod(context.index, context.design.hops)
    return passed_on(ListPass(context, number), hop, request)


def passed_on(state: ListPass, hop: int, request: RelayedRequest) -> SealedReply:
    """Multiply the lists that came in this hop, and send each of them on."""
    expected = state.design.carried(state.own, hop)
    if len(request.relayed) != len(expected):
        raise ProtocolError("another number of lists than this step takes")
    sealed = []
    for relayed, (owner, sender, to) in zip(request.relayed, expected, strict=True):
        blob = state.open(relayed, f"hop {hop}", owner, sender)
        if owner == sender and state.commitment(blob) != state.committed(owner):
            msg = f"party {owner!r} sent another list than it had committed to: nothing is answered"
            raise ProtocolError(msg)
        masked = state.mask.pass_on(state.new(owner, blob))
        sealed.append(state.seal(to, f"hop {hop + 1}", owner, b"".join(masked)))
    return SealedReply(tuple(sealed))


def sent_first(state: ListPass) -> SealedReply:
    """Send the own list, as it was committed to, to those who multiply it first."""
    blob = state.kept("masked")
    if state.committed(state.context.name) != state.commitment(blob):
        raise PlanMismatch("the commitment that the others were shown is not the one of this party's list")
    names = state.design.names
    others = [name for name in names if name != state.context.name]
    to = [names[(state.own + 1) % len(names)]] if state.design.ring else others
    return SealedReply(tuple(state.seal(name, "hop 0", state.context.name, blob) for name in to))


def finished(state: ListPass, request: RelayedRequest) -> list[bytes]:
    """Return T of the own list, in the list's order, from what the others made of it."""
    context, names, design = state.context, state.design.names, state.design
    senders = [names[state.own - 1]] if design.ring else [name for name in names if name != context.name]
    if len(request.relayed) != len(senders):
        raise ProtocolError("another number of lists than this step takes")
    own = state.kept("masked")
    lists = [
        group.points(state.open(relayed, f"hop {design.hops}", context.name, sender), len(own) // group.SIZE)
        for relayed, sender in zip(request.relayed, senders, strict=True)
    ]
    if design.ring:
        final = state.mask.finish_ring(lists[0])
    else:
        final = state.mask.finish_sum([own[k : k + group.SIZE] for k in range(0, len(own), group.SIZE)], lists)
    if len(set(final)) != len(final):
        raise ProtocolError("a list came back with a point that stands there twice: nothing is answered")
    return final


def _finish(context: Context, request: RelayedRequest) -> RowsReply:
    state = ListPass(context, context.index)
    final = finished(state, request)
    state.keep("final", b"".join(final))
    return RowsReply(context.pseudonyms([pseudonym(state.plan, state.key.name, point) for point in final]))


def _final(state: ListPass) -> dict[bytes, tuple[bytes, int]]:
    """Return the point and the row of every pseudonym of the own list."""
    blob, rows = state.kept("final"), state._kept("places", state.number)  # noqa: SLF001 - a part of it
    found = [blob[k : k + group.SIZE] for k in range(0, len(blob), group.SIZE)]
    return {pseudonym(state.plan, state.key.name, point): (point, int(row)) for point, row in zip(found, rows, strict=True)}


def _return(context: Context, request: ReturnRequest) -> SealedReply:
    state = ListPass(context, context.index)
    rows = [request.rows[k : k + PSEUDONYM] for k in range(0, len(request.rows), PSEUDONYM)]
    if sorted(set(rows)) != rows:
        raise ProtocolError("the returned list is not in order, or holds a row twice")
    if not set(rows) <= _final(state).keys():
        raise ProtocolError("the returned list holds a row that this party did not send")
    state.keep("returned", request.rows)
    said = digest(request.rows)
    signature = context.attest(*_returned(state, context.name, said))
    content = said + context.secret(_SHARE) + signature.encode()
    return SealedReply(
        tuple(state.seal(name, "returned", context.name, content) for name in state.design.names if name != context.name)
    )


def _returned(state: ListPass, party: str, said: bytes) -> tuple[bytes, ...]:
    return b"link returned", state.plan.encode(), party.encode(), str(state.number).encode(), said


def _close(context: Context, request: RelayedRequest) -> MapReply:
    state = ListPass(context, context.index)
    mine, rows = digest(state.kept("returned")), state.kept("returned")
    others = [name for name in state.design.names if name != context.name]
    if len(request.relayed) != len(others):
        raise ProtocolError("another number of digests than this step takes")
    shares = {context.name: context.secret(_SHARE)}
    for relayed, name in zip(request.relayed, others, strict=True):
        content = state.open(relayed, "returned", name, name)
        said, shares[name], signature = content[:32], content[32:64], content[64:].decode(errors="replace")
        verify(context.plan.study.card(name).key, signature, *_returned(state, name, said))
        if said != mine:
            msg = f"the coordinator returned another list to {name!r} than to this party: nothing is linked"
            raise ProtocolError(msg)
    secret = digest(*(shares[name] for name in state.design.names))
    final = _final(state)
    found = [final[rows[k : k + PSEUDONYM]] for k in range(0, len(rows), PSEUDONYM)]
    order = in_order(secret, [point for point, _ in found])
    before = b"" if not state.number else context.kept(f"ordered_{state.number - 1}").tobytes()
    blob = before + b"".join(found[place][0] for place in order)
    state.keep("ordered", blob)
    context.keep(f"rows_{state.number}", np.array([found[place][1] for place in order], dtype=np.int64))
    name = map_digest(state.plan, secret, [blob[k : k + group.SIZE] for k in range(0, len(blob), group.SIZE)])
    if state.number + 1 == len(state.design.keys):
        context.keep(MAP_NAME, np.frombuffer(bytes.fromhex(name), dtype=np.uint8))
        context.keep_map(name, np.concatenate([state.rows(number) for number in range(state.number + 1)]))
    return MapReply(Public(len(blob) // group.SIZE), Public(name))


def _passes(plan: Plan) -> int:
    return 0 if plan.hides else len(plan.design.keys)


def _hops(plan: Plan) -> int:
    return _passes(plan) * int(plan.design.hops)


STEPS = (
    Step(HELLO, Nothing, HelloReply, _hello, times=_passes),
    Step(MASK, HellosRequest, SealedReply, _mask, times=_passes),
    Step(PASS, RelayedRequest, SealedReply, _pass, times=_hops),
    Step(FINISH, RelayedRequest, RowsReply, _finish, times=_passes),
    Step(RETURN, ReturnRequest, SealedReply, _return, times=_passes),
    Step(CLOSE, RelayedRequest, MapReply, _close, times=_passes),
)
