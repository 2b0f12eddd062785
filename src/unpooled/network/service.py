"""Both ends of a networked study, apart from the engine that carries their bytes: a party's desk and the coordinator's exchange."""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from unpooled.errors import PlanMismatch, ProtocolError, UnpooledError, UsageError
from unpooled.models import load
from unpooled.network.signing import (
    INBOX,
    PROPOSE,
    Proposal,
    ProposalReceived,
    check_request,
    lay,
    open_answer,
    read_request,
    remember,
    sign_answer,
    sign_refusal,
    sign_request,
)
from unpooled.protocol.conversation import OPEN, open_request
from unpooled.protocol.local import drive
from unpooled.protocol.messages import Ask, Dropped, Nothing, encode, open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.study.files import coordinators_of
from unpooled.study.party import open_party
from unpooled.study.run import compile_study, write_results

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from unpooled.privacy.plan import Study
    from unpooled.protocol.identity import Identity
    from unpooled.protocol.local import Exchange
    from unpooled.protocol.party import Party

#: Carries a frame to a party and back within so many seconds; raises :class:`Silence` where nothing came back.
Call: TypeAlias = Callable[[str, bytes, float], bytes]

#: The file of a job that says who has a proposed study.
PROPOSED = "proposed.json"

logger = logging.getLogger(__name__)


class Silence(Exception):  # noqa: N818 - not an error: somebody is away
    """No answer came, and why."""


class RequestDesk:
    """A party on a network: opens its party.toml at the first request, then answers frames with frames, one at a time."""

    def __init__(self, config: Path, site: str) -> None:
        # party.toml may be a link to the party's own folder: its paths are relative to where it really is.
        self._config, self._site = config.resolve(), site
        self._party: Party | None = None
        self._coordinators: dict[str, str] = {}
        self._lock, self._closing = threading.Lock(), ExitStack()

    def answer(self, frame: bytes) -> bytes:
        """Answer one request. Whatever goes wrong becomes a refusal without data in it; nothing is raised."""
        question, own = b"", None
        with self._lock:
            try:
                party = self._opened()
                own = party.identity
                request = read_request(frame)
                question = request.body
                began = time.monotonic()
                envelope = open_envelope(question)
                if envelope.step == PROPOSE:
                    lay(self._inbox, party.name, own.public, request, frame, coordinators_of(self._config))
                    return sign_answer(own, party.name, question, encode(envelope.plan, PROPOSE, 0, ProposalReceived()))
                study = open_request(envelope).study if envelope.step == OPEN.name else None
                coordinator = self._coordinators.get(envelope.plan) if study is None else self._pinned(party, study)
                if coordinator is None:
                    msg = f"party {party.name!r} has not opened plan {envelope.plan[:16]}: send the study first"
                    raise PlanMismatch(msg)
                check_request(request, coordinator, party.name)
                body = party.answer(question)
                self._coordinators[envelope.plan] = coordinator
                if study is not None:  # which this party approved, or it would have refused
                    remember(self._inbox, coordinator)
                logger.info(
                    "plan %s: step %r [%d] answered: %d bytes in, %d bytes out, %.2f s",
                    *(envelope.plan[:16], envelope.step, envelope.index, len(question), len(body)),
                    time.monotonic() - began,
                )
                return sign_answer(own, party.name, question, body)
            except Exception as error:  # noqa: BLE001 - nothing but a frame may leave, least of all a traceback
                return sign_refusal(own, self._site, question, error, hide=f"{self._config.parent}/")

    @property
    def _inbox(self) -> Path:
        """Return the folder of proposals."""
        return self._config.parent / INBOX

    def close(self) -> None:
        """Close the ledger."""
        with self._lock:
            self._closing.close()
            self._party = None

    def _opened(self) -> Party:
        if self._party is None:
            party = self._closing.enter_context(open_party(self._config))
            if party.name != self._site:
                self._closing.close()
                msg = f"party.toml names {party.name!r}, but this site's certificate is that of {self._site!r}: use one name"
                raise UsageError(msg)
            self._party = party
        return self._party

    @staticmethod
    def _pinned(party: Party, study: Study) -> str:
        """Return the coordinator's key that a study pins; both sides must be pinned before anything is said over a network."""
        if not study.coordinator:
            msg = "the study names no coordinator key, so nobody's requests could be told from a stranger's: set [study] coordinator"
            raise PlanMismatch(msg)
        if study.member(party.name).key != party.identity.public:
            msg = f"the study's card of party {party.name!r} does not carry this party's key: use the card that it published"
            raise PlanMismatch(msg)
        return study.coordinator


def signed_exchange(study: Study, coordinator: Identity, call: Call, patience: float) -> Exchange:
    """Return the exchange of a coordinator: asks all parties of a batch at once, each with its own time-out.

    A party from which nothing comes is a :class:`Dropped`; a party that says no ends the study with its own error.
    """
    keys = {card.name: card.key for card in study.members}

    def ask_one(ask: Ask, body: bytes) -> bytes | Dropped:
        frame = sign_request(coordinator, ask.to, body)
        try:
            answer = call(ask.to, frame, min(ask.deadline, patience))
        except Silence as silence:
            return Dropped(ask.to, str(silence))
        return open_answer(answer, ask.to, keys[ask.to], body)

    def exchange(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
        with ThreadPoolExecutor(len(batch)) as pool:
            futures = [pool.submit(ask_one, ask, body) for ask, body in batch]
        return [future.result() for future in futures]  # of several that say no, the first of the study speaks

    return exchange


def coordinate(
    study: Study, coordinator: Identity, call: Call, home: Path, out: Path, *, patience: float, resume: bool
) -> None:
    """Run a study from a coordinator's machine: transcript under ``home``, results (or the reason why not) in ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        _check_keys(study, coordinator)
        plan = compile_study(study)
        folder = home / plan.hash[:32]
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            file = folder / "transcript"
            if file.exists() and file.stat().st_size and not resume:
                msg = f"plan {plan.hash[:16]} was run here before: add --resume to go on from its transcript (nothing is charged twice)"
                raise UsageError(msg)
            transcript = Transcript.open(file)
            try:
                exchange = signed_exchange(study, coordinator, call, patience)
                outcome = drive(load(study.row), plan, exchange, transcript, _log_waiting)
            finally:
                transcript.close()
        write_results(out, plan, outcome, transcript.entries)
        logger.info("plan %s: finished", plan.hash[:16])
    except UnpooledError as error:
        _write_refusal(out, error)


def propose(proposal: Proposal, coordinator: Identity, call: Call, out: Path, *, patience: float) -> None:
    """Lay a study before every party, and write into ``out`` who has it (or the reason why not): nothing about what anybody decides."""
    out.mkdir(parents=True, exist_ok=True)
    study = proposal.study
    try:
        _check_keys(study, coordinator)
        plan = compile_study(study)
        body = encode(plan.hash, PROPOSE, 0, proposal)
        asked = [(Ask(card.name, PROPOSE, Nothing()), body) for card in study.members]
        answers = signed_exchange(study, coordinator, call, patience)(asked)
        away = {answer.party: answer.reason for answer in answers if isinstance(answer, Dropped)}
        found = {"laid": [card.name for card in study.members if card.name not in away], "away": away}
        (out / PROPOSED).write_bytes(msgspec.json.encode(found))
    except UnpooledError as error:
        _write_refusal(out, error)


def _write_refusal(out: Path, error: UnpooledError) -> None:
    logger.warning("the study ended: %s: %s", type(error).__name__, error)
    told = {"error": type(error).__name__, "words": str(error), "party": error.party}
    (out / "refused.json").write_bytes(msgspec.json.encode(told))


def _log_waiting(asks: list[Ask]) -> None:
    logger.info("step %r [%d]: waiting for %s", asks[0].step, asks[0].index, ", ".join(ask.to for ask in asks))


def _check_keys(study: Study, coordinator: Identity) -> None:
    if study.coordinator != coordinator.public:
        msg = f'the study pins another coordinator: set [study] coordinator = "{coordinator.public}" and have it approved'
        raise UsageError(msg)
    for card in study.members:
        if not card.key:
            msg = f"the card of {card.name!r} has no key, so its answers could not be told from a stranger's: ask for its new card"
            raise UsageError(msg)


@contextmanager
def _alone(folder: Path, patience: float = 20.0) -> Iterator[None]:
    """Hold the study's lock: one coordinator at a time writes a transcript. The system drops it when a process dies."""
    with (folder / "lock").open("w") as lock:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ProtocolError("this study is running already: wait for its end, or stop that job first") from None
                time.sleep(0.2)
        yield
