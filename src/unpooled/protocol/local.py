"""The driver: performs a coordinator's conversation over any exchange of bytes; the in-process exchange.

The same function runs a study in process, over a network (another exchange) and from a transcript (no exchange at all), so the
three cannot differ: every message is encoded and decoded even when it never leaves the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from unpooled.errors import ProtocolError
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.protocol.messages import Ask, Dropped, encode, open_body, open_envelope
from unpooled.protocol.roles import Keeper, MemoryKeeper, Model, Party, converse

if TYPE_CHECKING:
    from unpooled.privacy.chain import Entry
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.policy import Policy
    from unpooled.privacy.table import Table
    from unpooled.protocol.transcript import Transcript

#: Sends one batch of (ask, bytes) and returns the answers in the same order.
Exchange: TypeAlias = Callable[[list[tuple[Ask, bytes]]], list[bytes | Dropped]]
#: Told before each batch what is being waited for.
Watch: TypeAlias = Callable[[list[Ask]], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a study gave: the coordinator's result and the bytes that went to and came from each party."""

    result: Any
    communication: dict[str, dict[str, int]] = field(default_factory=dict)


def drive(
    model: Model, plan: Plan, exchange: Exchange, transcript: Transcript | None = None, watch: Watch | None = None
) -> Outcome:
    """Run a study to its end, playing first whatever the transcript already holds."""
    conversation = converse(model, plan)
    communication = {card.name: {"sent": 0, "received": 0} for card in plan.study.parties}
    try:
        asks = next(conversation)
        while True:
            if watch is not None:
                watch(asks)
            requests = [(ask, encode(plan.hash, ask.step, ask.index, ask.payload)) for ask in asks]
            answers = _answers(requests, exchange, transcript)
            for (ask, request), answer in zip(requests, answers, strict=True):
                communication[ask.to]["sent"] += len(request)
                communication[ask.to]["received"] += 0 if isinstance(answer, Dropped) else len(answer)
            replies = [_opened(model, plan, ask, answer) for ask, answer in zip(asks, answers, strict=True)]
            asks = conversation.send(replies)
    except StopIteration as end:
        return Outcome(end.value, communication)


def _answers(requests: list[tuple[Ask, bytes]], exchange: Exchange, transcript: Transcript | None) -> list[bytes | Dropped]:
    if transcript is None:
        return exchange(requests)
    known: list[bytes | Dropped] = []
    for ask, request in requests:
        played = transcript.play(ask.to, request)
        if played is None:
            break
        known.append(played)
    missing = requests[len(known) :]
    fresh = exchange(missing) if missing else []
    for (ask, request), answer in zip(missing, fresh, strict=True):
        transcript.record(ask.to, request, answer)
    return known + fresh


def _opened(model: Model, plan: Plan, ask: Ask, answer: bytes | Dropped) -> Any:  # noqa: ANN401 - the step's reply type
    if isinstance(answer, Dropped):
        return answer
    envelope = open_envelope(answer)
    if (envelope.plan, envelope.step, envelope.index) != (plan.hash, ask.step, ask.index):
        msg = f"party {ask.to!r} answered another question than {ask.step!r}"
        raise ProtocolError(msg)
    return open_body(envelope, model.step(ask.step).reply)


def in_process(parties: dict[str, Party]) -> Exchange:
    """The exchange with parties of this very process: a function call, one after the other."""
    return lambda batch: [parties[ask.to].answer(request) for ask, request in batch]


def recorded_only(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
    """The exchange of a pure replay: nobody is asked, so a transcript that ends early is an error."""
    msg = f"the transcript ends before step {batch[0][0].step!r}"
    raise ProtocolError(msg)


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A study that ran in this process: its outcome, the ledgers' entries, what each party kept."""

    outcome: Outcome
    ledger: tuple[Entry, ...]
    kept: dict[str, Keeper]


def run_in_process(
    model: Model,
    plan: Plan,
    tables: dict[str, Table],
    policy: Policy,
    registry: Callable[[str], Model],
    keepers: Mapping[str, Keeper] | None = None,
) -> LocalRun:
    """Run a plan over tables of this process, with ledgers in memory: what every estimator's ``fit`` does."""
    parties = {}
    for card in plan.study.parties:
        ledger = Ledger.in_memory()
        keys = KeySource(ledger.root_key)
        parties[card.name] = Party(
            card.name,
            tables[card.name],
            card,
            ledger,
            keys,
            policy,
            registry,
            (keepers or {}).get(card.name) or MemoryKeeper(),
        )
    try:
        outcome = drive(model, plan, in_process(parties))
        entries = tuple(entry for party in parties.values() for entry in party.ledger.entries())
    finally:
        for party in parties.values():
            party.ledger.close()
    return LocalRun(outcome, entries, {name: party.keeper for name, party in parties.items()})
