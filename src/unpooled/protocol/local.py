"""The driver: performs a coordinator's conversation over any exchange of bytes, holds every reply against the plan; the in-process exchange."""

from __future__ import annotations

import math
import operator
import re
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from unpooled.errors import ProtocolError, StudyAborted, UsageError, raised_at
from unpooled.privacy.budget import notice
from unpooled.privacy.ledger import Entries, Ledger
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card
from unpooled.privacy.table import NoRows
from unpooled.protocol.conversation import converse, find_step
from unpooled.protocol.identity import Keeper, MemoryKeeper, verify
from unpooled.protocol.messages import (
    PSEUDONYM,
    Ask,
    Commitment,
    Disclosed,
    Dropped,
    Entrusted,
    Envelope,
    Masked,
    Partial,
    Pseudonyms,
    Public,
    Released,
    Sealed,
    Shortening,
    ShortReply,
    ciphertexts,
    encode,
    marks,
    open_body,
    open_envelope,
    reply_digests,
    reply_parts,
    shortened,
    shortening_of,
    whole,
)
from unpooled.protocol.party import Party
from unpooled.protocol.registry import Model

if TYPE_CHECKING:
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import HelperCard, Plan, Release, Study
    from unpooled.privacy.policy import Policy
    from unpooled.privacy.table import Table
    from unpooled.protocol.messages import Array
    from unpooled.protocol.transcript import Transcript


# --- Replies ---------------------------------------------------------------------------------------------------------------
# A party's reply, held against the plan before any coordinator sees it.
#
# The codec knows types only. That a release is one of this party and step, of the planned name, number, dtype and size, and that its numbers
# are numbers, is checked here once for all models: their coordinators may rely on it for every sender.

#: Real numbers beyond this are nobody's: their products would overflow.
LARGEST = 1e90


def check_reply(plan: Plan, ask: Ask, reply: msgspec.Struct) -> None:  # noqa: C901 - a case for every wrapper
    """Refuse a reply that no party which runs this plan would send."""
    fields = (getattr(reply, name) for name in reply.__struct_fields__)
    parts = [part for value in fields for part in (value if isinstance(value, tuple) else (value,))]
    own = [r for r in plan.releases if r.party == ask.to and r.step == ask.step and r.mechanism.takes is not Summand]
    released = [part for part in parts if isinstance(part, Released)]
    if any(release.exposure.alternative for release in own):  # one of them, whichever it is
        own = [release for release in own if released and release.name == released[0].name]
    if [part.name for part in released] != [release.name for release in own]:
        raise _refused(ask, f"releases {len(released)} values where the plan has {len(own)}, or under other names")
    for part, release in zip(released, own, strict=True):
        _check_values(ask, part, release)
    for part in parts:
        if isinstance(part, Partial):
            _check_values(ask, part, _shared_release(plan, ask, part.name))
        elif isinstance(part, Entrusted) and (not plan.study.trusts(part.role) or not _real(part.values)):
            raise _refused(ask, "entrusts somebody whom the plan does not trust, or with values that are no numbers")
        elif isinstance(part, Disclosed):
            _check_disclosed(plan, ask, part)
        elif isinstance(part, Pseudonyms):
            _check_pseudonyms(plan, ask, part)
        elif isinstance(part, Sealed) and part.node not in {card.name for card in plan.study.members}:
            raise _refused(ask, "seals something for nobody in the study")
        elif isinstance(part, Masked) and not (plan.joint and part.node in {card.name for card in plan.study.parties}):
            raise _refused(ask, "masks rows in a plan without joint moments, or for nobody with rows of his own")
        elif isinstance(part, Commitment) and not (plan.joint and re.fullmatch("[0-9a-f]{64}|[0-9a-f]{128}", part.value)):
            raise _refused(
                ask, "commits itself in a plan without joint moments, or to something that is no digest and no signature"
            )
        elif isinstance(part, Public) and not _plain(part.value):
            raise _refused(ask, "states a number that is none")


def _check_values(ask: Ask, part: Released | Partial, release: Release) -> None:
    values, mechanism = part.values, release.mechanism
    if part.index != ask.index or values.dtype != mechanism.dtype or values.shape != (mechanism.size,):
        raise _refused(ask, f"gives {part.name[:100]!r} another number, type or size than the plan has")
    if values.dtype == "<f8" and not _real(values):
        raise _refused(ask, f"gives {part.name[:100]!r} values that are no numbers")


def _shared_release(plan: Plan, ask: Ask, name: str) -> Release:
    """Return the planned shares of the total that this step adds up: steps of one total are called alike, but for their last word."""
    total = ask.step.rpartition("-")[0]
    for release in plan.releases:
        if release.party == ask.to and release.name == name and release.step.rpartition("-")[0] == total:
            return release
    raise _refused(ask, "gives a part of a total that is not the one of this step")


def _check_disclosed(plan: Plan, ask: Ask, part: Disclosed) -> None:
    card = plan.study.card(ask.to)
    known = {column.name for column in card.columns}
    shape = part.values.shape
    if not known.issuperset(part.columns) or len(shape) != 2 or shape[0] != card.rows or not _real(part.values):  # noqa: PLR2004
        raise _refused(ask, "discloses something else than rows of its own columns")


def _check_pseudonyms(plan: Plan, ask: Ask, part: Pseudonyms) -> None:
    rows, whole = part.split(), len(part.values) % PSEUDONYM == 0
    if not plan.links or not whole or len(rows) > plan.study.card(ask.to).rows or sorted(set(rows)) != rows:
        raise _refused(ask, "gives pseudonyms in a plan that links no rows, or more than it has rows, or twice the same")


def _real(values: Array) -> bool:
    """Return True if these are real numbers that one can compute with."""
    return values.dtype == "<f8" and bool((np.abs(values.numpy()) < LARGEST).all())  # nan is not below anything


def _plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_plain, value))
    return not isinstance(value, float) or math.isfinite(value)


def _refused(ask: Ask, what: str) -> ProtocolError:
    return ProtocolError(f"party {ask.to!r} {what} (step {ask.step!r}): it does not run this plan, so its reply is refused")


# --- Local -----------------------------------------------------------------------------------------------------------------
# The driver: performs a coordinator's conversation over any exchange of bytes; the in-process exchange.
#
# The same function runs a study in process, over a network (another exchange) and from a transcript (no exchange at all), so the
# three cannot differ: every message is encoded and decoded even when it never leaves the process.

#: Sends one batch of (ask, bytes) and returns the answers in the same order.
Exchange: TypeAlias = Callable[[list[tuple[Ask, bytes]]], list[bytes | Dropped]]
#: Told before each batch what is being waited for.
Watch: TypeAlias = Callable[[list[Ask]], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a study at the coordinator, and the number of bytes that went to and came from each party."""

    result: Any
    communication: dict[str, dict[str, int]] = field(default_factory=dict)
    #: The name of the draw: a digest of the signatures of all members under their replies, which no two draws share. Empty where none has a key.
    draw: str = ""


def drive(
    model: Model, plan: Plan, exchange: Exchange, transcript: Transcript | None = None, watch: Watch | None = None
) -> Outcome:
    """Run a study to its end, playing first whatever the transcript already holds."""
    conversation = converse(model, plan)
    recorded = None if transcript is None else _Recorded(exchange, transcript, model, plan)
    communication = {card.name: {"sent": 0, "received": 0} for card in plan.study.members}
    draw = None if plan.study.in_process else sha256(b"unpooled draw " + plan.hash.encode())
    try:
        asks = next(conversation)
        while True:
            if watch is not None:
                watch(asks)
            requests = [(ask, encode(plan.hash, ask.step, ask.index, ask.payload)) for ask in asks]
            answers = (recorded or exchange)(requests)
            for (ask, request), answer in zip(requests, answers, strict=True):
                sent, received = lengths(request, answer)
                communication[ask.to]["sent"] += sent
                communication[ask.to]["received"] += received
            replies = []
            for (ask, request), answer in zip(requests, answers, strict=True):
                replies.append(_opened(model, plan, ask, request, answer, draw))
                if recorded is not None:
                    recorded.accept()
            try:
                asks = conversation.send(replies)
            except (ArithmeticError, np.linalg.LinAlgError) as error:
                msg = (
                    f"no result follows from the replies to step {asks[0].step!r}: each of them fits the plan, but together they are "
                    "numbers that no honest parties would send"
                )
                raise ProtocolError(msg) from error
    except StopIteration as end:
        if recorded is not None:
            recorded.settle()
        return Outcome(end.value, communication, "" if draw is None else draw.hexdigest())


class _Recorded:
    """An exchange that plays a transcript to its end, then asks the parties; what they say is recorded once it is accepted.

    A reply that was refused is not in the transcript: the same study asks that party again when it is resumed. That a party did not answer
    is recorded only once the coordinator has gone on without it: a study that ended because a party was away asks that party again, too.
    """

    def __init__(self, exchange: Exchange, transcript: Transcript, model: Model, plan: Plan) -> None:
        self._exchange, self._transcript, self._step = exchange, transcript, partial(find_step, model, plan=plan)
        #: Where ciphertext comes from that a transcript keeps the digest of.
        self._sources: dict[bytes, tuple[Ask, bytes]] = {}
        self._opening: list[tuple[Ask, bytes]] | None = None
        #: The answers of the last batch that are not yet accepted (None: it was played), and those that wait behind a silence.
        self._answered: deque[tuple[str, bytes, bytes | Dropped] | None] = deque()
        self._unsettled: list[tuple[str, bytes, bytes | Dropped]] = []

    def __call__(self, batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
        self.settle()
        known: list[bytes | Dropped] = []
        for ask, request in batch:
            played = self._transcript.play(ask.to, self._short(ask, request))
            if played is None:
                break
            if isinstance(played, ShortReply):
                found = marks(played, self._step(ask.step).reply)
                self._sources |= dict.fromkeys(found, (ask, request))
            known.append(played)
        if self._opening is None:
            self._opening = batch[: len(known)]
        missing, fresh = batch[len(known) :], []
        if missing:
            if self._opening:  # parties that were started anew have the study's replies on disk, but have not opened it yet
                self._exchange(self._opening)
                self._opening = []
            filled = [(ask, self._whole(ask, request)) for ask, request in missing]
            fresh = [
                answer
                if sent is request or isinstance(answer, Dropped)
                else ShortReply.of(answer, shortening_of(sent, answer))
                for (_, request), (_, sent), answer in zip(missing, filled, self._exchange(filled), strict=True)
            ]
        new = [(ask.to, request, answer) for (ask, request), answer in zip(missing, fresh, strict=True)]
        self._answered = deque([*[None] * len(known), *new])
        return known + fresh

    def accept(self) -> None:
        """Record the next answer of the batch, which fits the plan; or let it wait, from the first silence of the batch on."""
        answered = self._answered.popleft()
        if answered is not None:
            answered = self._shortened(*answered)
        if answered is not None and (self._unsettled or isinstance(answered[2], Dropped)):
            self._unsettled.append(answered)
        elif answered is not None:
            self._transcript.record(*answered)

    def _short(self, ask: Ask, request: bytes) -> bytes:
        """Return a request as the transcript has it."""
        step = self._step(ask.step)
        return shortened(request, step.request) if step.bulky and self._transcript.shortens else request

    def _shortened(self, to: str, request: bytes, answer: bytes | Dropped) -> tuple[str, bytes, bytes | Dropped]:
        """Return an exchange as the transcript keeps it."""
        step = self._step(open_envelope(request).step)
        if not (step.bulky and self._transcript.shortens) or isinstance(answer, Dropped):
            return to, request, answer
        before = answer.shortening if isinstance(answer, ShortReply) else shortening_of(request, answer)
        return to, shortened(request, step.request), ShortReply.of(shortened(answer, step.reply), before)

    def _whole(self, ask: Ask, request: bytes) -> bytes:
        """Return a request with the ciphertext for which it holds digests: the parties that sent it are asked for it again."""
        step = self._step(ask.step)
        if not step.bulky or not self._sources:
            return request
        found: dict[bytes, bytes] = {}

        def find(mark: bytes) -> bytes:
            if mark not in found:
                source, again = self._sources[mark]
                (answer,) = self._exchange([(source, self._whole(source, again))])
                if isinstance(answer, Dropped):
                    msg = f"{source.to} ({answer.reason}) dropped out at step {source.step!r}: run the study again once they are back"
                    raise StudyAborted(msg)
                found.update(ciphertexts(answer, self._step(source.step).reply))
            if mark not in found:
                msg = f"party {source.to!r} answers step {source.step!r} with other bytes than it did before"
                raise ProtocolError(msg)
            return found[mark]

        return whole(request, step.request, find)

    def settle(self) -> None:
        """Record what came from the first silence of a batch on: the coordinator has gone on without it."""
        for answered in self._unsettled:
            self._transcript.record(*answered)
        self._unsettled = []


def _opened(model: Model, plan: Plan, ask: Ask, request: bytes, answer: bytes | Dropped, draw: Any = None) -> Any:  # noqa: ANN401 - the step's reply type; a hash
    if isinstance(answer, Dropped):
        return answer
    with raised_at(party=ask.to):
        envelope = open_envelope(answer)
        if (envelope.plan, envelope.step, envelope.index) != (plan.hash, ask.step, ask.index):
            msg = f"party {ask.to!r} answered another question than {ask.step!r}"
            raise ProtocolError(msg)
        short = answer.shortening if isinstance(answer, ShortReply) else None
        check_signature(plan.study.member(ask.to), request, envelope, short)
        if draw is not None:
            draw.update(msgspec.json.encode((ask.to, ask.step, ask.index, envelope.signature)))
        reply = open_body(envelope, find_step(model, ask.step, plan).reply)
        own, step = plan.part(ask.step)
        check_reply(own, replace(ask, step=step), reply)
    return reply


def lengths(request: bytes, answer: bytes | Dropped) -> tuple[int, int]:
    """Return the bytes of a request and of its answer, as they travelled."""
    if isinstance(answer, ShortReply):
        return answer.shortening.sent, answer.shortening.received
    return len(request), 0 if isinstance(answer, Dropped) else len(answer)


def check_signature(card: Card | HelperCard, request: bytes, reply: Envelope, short: Shortening | None = None) -> None:
    """Refuse a reply that the holder of this card's key did not give to this request, wherever it was kept in between (``short``: without ciphertext)."""
    if card.key:
        try:
            parts = reply_parts(reply, card.name, request)
            if short is not None:
                parts = reply_digests(reply, card.name, short.request, short.body)
            verify(card.key, reply.signature, *parts)
        except ProtocolError:
            msg = (
                f"the reply of party {card.name!r} to step {reply.step!r} does not carry the signature of the key on its card: it was edited, or "
                "somebody else gave it"
            )
            raise ProtocolError(msg) from None


def in_process(parties: dict[str, Party]) -> Exchange:
    """Return the exchange with parties of this very process: a function call, one after the other."""
    return lambda batch: [parties[ask.to].answer(request) for ask, request in batch]


def recorded_only(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
    """Return the exchange of a pure replay: nobody is asked, so a transcript that ends early is an error."""
    msg = f"the transcript ends before step {batch[0][0].step!r}"
    raise ProtocolError(msg)


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A study that ran in this process: its outcome, the ledgers' entries, what each party kept."""

    outcome: Outcome
    ledger: Entries
    kept: dict[str, Keeper]


def run_in_process(
    model: Model,
    plan: Plan,
    tables: dict[str, Table],
    policy: Policy,
    registry: Callable[[str], Model],
    keepers: Mapping[str, Keeper] | None = None,
    budget: Budget | None = None,
    roots: Mapping[str, bytes] | None = None,
    views: Mapping[str, Mapping[str, Table]] | None = None,
    transcript: Transcript | None = None,
) -> LocalRun:
    """Run a plan over tables of this process, with ledgers in memory (``roots``: their root keys): what every estimator's ``fit`` does.

    ``views`` are the tables of each party as single analyses of the study see them. ``transcript`` records the messages.
    """
    parties, shared = {}, _shared(model, plan)
    if budget is None:
        notice(plan, tables)
    draw = _name_of_draw(plan, tables)
    claim = None if budget is None else budget.claim(plan, draw)
    for card in plan.study.members:
        ledger = Ledger.in_memory(
            (roots or {}).get(card.name) or (None if transcript is not None else _root_of(plan, card.name))
        )
        keys = KeySource(ledger.root_key)
        parties[card.name] = Party(
            card.name,
            tables[card.name] if isinstance(card, Card) else tables.get(card.name, NoRows()),
            card,
            ledger,
            keys,
            policy,
            lambda name: shared if name == model.name else registry(name),
            (keepers or {}).get(card.name) or MemoryKeeper(),
            claim,
            (views or {}).get(card.name, {}),
        )
    try:
        outcome = drive(model, plan, in_process(parties), transcript)
        entries = Entries(entry for party in parties.values() for entry in party.ledger.entries())
    finally:
        for party in parties.values():
            party.ledger.close()
    return LocalRun(replace(outcome, draw=draw), entries, {name: party.keeper for name, party in parties.items()})


def _name_of_draw(plan: Plan, tables: Mapping[str, Table]) -> str:
    """Return a name that no other draw of this process has. A simulation over the same data draws the same bytes again, so it has the same name."""
    if plan.study.simulation_seed is None:
        return secrets.token_hex(32)
    held = [(name, table.digest.hex()) for name, table in sorted(tables.items())]
    return sha256(msgspec.json.encode((plan.hash, held))).hexdigest()


def _root_of(plan: Plan, name: str) -> bytes | None:
    """Return the root key of a member of a simulation, so that masks and shares are the same every time; None, for one that nobody knows, of real studies.

    Not where messages are recorded: a reader of the transcript who knows the seed would open what it seals.
    """
    seed = plan.study.simulation_seed
    return None if seed is None else KeySource.simulation(seed).stream("root of a member", name).key


def _shared(model: Model, plan: Plan) -> Model:
    """Return the model for parties of one process: each decodes the study for itself, and the same text has the same plan."""
    text = msgspec.msgpack.encode(plan.study)

    def compiled(study: Study) -> Plan:
        return plan if msgspec.msgpack.encode(study) == text else model.compile(study)

    return replace(model, compile_plan=compiled)


def column_named(names: Sequence[str], column: int | str) -> str:
    """Return the name of a column that a caller gives by name or by position."""
    if isinstance(column, str) and column in names:
        return column
    if not isinstance(column, str) and -len(names) <= (place := operator.index(column)) < len(names):
        return names[place]
    msg = f"there is no column {column!r} among {len(names)}"
    raise UsageError(msg).at(column=str(column))


def columns_of_parties(parties: int | Mapping[str, Sequence[int | str]], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns that each in-process party holds: as a mapping says, or as ``parties`` even groups in order."""
    if not isinstance(parties, Mapping):
        if parties < 1:
            raise UsageError("parties must be at least 1, or a mapping from names to columns")
        count = min(parties, len(names))
        size, more = divmod(len(names), count)
        edges = [k * size + min(k, more) for k in range(count + 1)]
        return {f"party{k}": list(names[edges[k] : edges[k + 1]]) for k in range(count)}
    known = set(names)
    assigned = {p: [c if c in known else column_named(names, c) for c in columns] for p, columns in parties.items()}
    if sorted(column for columns in assigned.values() for column in columns) != sorted(names):
        raise UsageError("parties must hold every column exactly once")
    return assigned
