"""Signed frames that tie every message of the protocol to its sender, and studies that an analyst lays before the parties of a network."""

from __future__ import annotations

import logging
import os
import secrets
import traceback
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled import errors
from unpooled.errors import DataError, PlanMismatch, PolicyRefusal, ProtocolError, RowsError, UnpooledError
from unpooled.privacy.plan import Study
from unpooled.protocol.identity import Identity, verify
from unpooled.protocol.messages import SIZE_LIMIT, UNREADABLE, Envelope, digest, open_body, open_envelope

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


# --- Signing ---------------------------------------------------------------------------------------------------------------
# Signed frames: what crosses the network is a message of the protocol and a signature that ties it to its sender and its question.
#
# A request is signed by the coordinator whose key stands in the study, for one named party. An answer is signed by the party whose key
# stands in its card, for one request. Both keys are in the plan's hash, so an approval of the plan covers the speakers. A frame
# that was altered, made by somebody else, addressed to another party or given to another question is refused.

#: Longer words of a refusal are cut: they come from another organisation and end up on a terminal.
_WORDS = 2000
#: What a party may raise at a coordinator. Anything else arrives as a ProtocolError without words of its own.
_CLASSES = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, UnpooledError) and kind is not UnpooledError
}

logger = logging.getLogger(__name__)


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """A request to a party, signed by the coordinator."""

    body: bytes
    signature: str


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """A party's reply, signed by the party for this request."""

    body: bytes
    signature: str


class Declined(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """A party's no, with the class of the error and its words. Without a signature if the party could not even find its key."""

    error: str
    words: str
    signature: str = ""


def sign_request(coordinator: Identity, party: str, body: bytes) -> bytes:
    """Return the frame of a request to one party."""
    return msgspec.msgpack.encode(Request(body, coordinator.sign(b"network request", party.encode(), digest(body))))


def read_request(frame: bytes) -> Request:
    """Return a request whose signature is still to be checked, by :func:`check_request`, once it is known whose it must be."""
    request: Request = _read(frame, Request)
    return request


def check_request(request: Request, coordinator: str, party: str) -> None:
    """Refuse a request that this coordinator did not make for this party."""
    verify(coordinator, request.signature, b"network request", party.encode(), digest(request.body))


def sign_answer(own: Identity, party: str, question: bytes, body: bytes) -> bytes:
    """Return the frame of a party's answer to the request with body ``question``."""
    return msgspec.msgpack.encode(Answer(body, own.sign(*_answer(party, question, body))))


def sign_refusal(own: Identity | None, party: str, question: bytes, error: Exception, hide: str = "") -> bytes:
    """Return the frame of a party's no. An error that is not ours may quote data: only its kind leaves, and only its place is logged.

    ``hide`` is cut out of the words: where on its disks a party keeps its files is nobody else's business.
    """
    if isinstance(error, RowsError):  # row numbers are for whoever holds the rows
        error = error.told()
    if isinstance(error, UnpooledError):
        name, words = (
            next(k.__name__ for k in type(error).__mro__ if k.__name__ in _CLASSES),
            str(error).replace(hide, "")[:_WORDS],
        )
        logger.warning("refused: %s: %s", name, words)
    else:
        name, words = "ProtocolError", f"the step failed there with {type(error).__name__}: the log of that party says where"
        places = "; ".join(f"{at.filename}:{at.lineno}" for at in traceback.extract_tb(error.__traceback__))
        logger.error("failed with %s at %s", type(error).__name__, places)
    signature = "" if own is None else own.sign(*_refusal(party, question, name, words))
    return msgspec.msgpack.encode(Declined(name, words, signature))


def open_answer(frame: bytes, party: str, key: str, question: bytes) -> bytes:
    """Return the body of a party's answer to this question; its no is raised here as the error it was there.

    A no without a signature is believed: it can only end a study, as can any network that loses messages. It is marked as such.
    """
    answer = _read(frame, Answer | Declined)
    if isinstance(answer, Answer):
        verify(key, answer.signature, *_answer(party, question, answer.body))
        return answer.body
    note = "" if answer.signature else " (unsigned)"
    if answer.signature:
        verify(key, answer.signature, *_refusal(party, question, answer.error, answer.words))
    words = "".join(c if c.isprintable() or c == "\n" else "?" for c in answer.words[:_WORDS])
    raise again(answer.error, f"party {party!r}{note}: {words}").at(party=party)


def again(name: str, words: str) -> UnpooledError:
    """Return an error of another process as the same class here."""
    return _CLASSES.get(name, ProtocolError)(words)


def _answer(party: str, question: bytes, body: bytes) -> tuple[bytes, ...]:
    return b"network answer", party.encode(), digest(question), digest(body)


def _refusal(party: str, question: bytes, name: str, words: str) -> tuple[bytes, ...]:
    return b"network refusal", party.encode(), digest(question), name.encode(), words.encode()


def _read(frame: object, kind: Any) -> Any:  # noqa: ANN401 - a frame type, or a union of them
    if not isinstance(frame, bytes) or len(frame) > SIZE_LIMIT:
        raise ProtocolError("a frame that is not bytes, or larger than any message may be")
    try:
        return msgspec.msgpack.decode(frame, type=kind, strict=True)
    except UNREADABLE as error:
        msg = f"a frame that cannot be read: {type(error).__name__}"
        raise ProtocolError(msg) from None


# --- Proposals -------------------------------------------------------------------------------------------------------------
# Studies that an analyst lays before the parties of a network: signed by the coordinator, kept in each party's inbox, without any effect.
#
# A proposal opens no plan, reads no row and touches no ledger. A party's people find it in the inbox (``unpooled party console``), and it is what
# they decide there that counts.

#: The step of an envelope that proposes a study, and the ending of a file that holds one. No step of a model has this name.
PROPOSE = "propose a study"
ENDING = ".proposal"
#: What the name of a proposal says that a known coordinator signed.
_OF_KNOWN = ".known"
#: The folder of proposals, next to the party file.
INBOX = "inbox"
#: An inbox takes no more proposals than this, none larger than this many bytes, no more bytes together, and no purpose of more letters.
MOST, LARGEST, LARGEST_TOGETHER, LONGEST = 100, 20_000_000, 100_000_000, 500
#: A study names its own coordinator, and a new key costs nothing: the proposals of all keys that a party does not know are no more, and no larger.
MOST_OF_STRANGERS, LARGEST_OF_STRANGERS = 10, 1_000_000
#: The file of an inbox with the keys of coordinators whose approved studies were opened here, a line each. No proposal writes to it.
KNOWN = "coordinators"


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public text of a study, its purpose, and the name of the person or kit that proposes it."""

    study: Study
    purpose: str = ""
    by: str = ""

    def __post_init__(self) -> None:
        if not all(said.isprintable() and len(said) <= LONGEST for said in (self.purpose, self.by)):
            raise ValueError("purpose and name are one printable line each")


class ProposalReceived(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a proposal: it is in the inbox. It is the same for every party, and says nothing about what anybody decides."""


@dataclass(frozen=True)
class Laid:
    """A proposal as it lies in an inbox."""

    proposal: Proposal
    #: The hash of the plan, as the coordinator says; the party compiles the study itself before it shows it.
    claimed: str


def lay(inbox: Path, party: str, key: str, request: Request, frame: bytes, listed: Collection[str] = ()) -> None:
    """Write a proposal for this party into its inbox; refused where it is not the pinned coordinator's, or where there is no room for it.

    ``listed`` are the coordinators of the party's policy. They, and those whose approved studies were opened here, have the room of the inbox;
    all others share a small one, so that nobody's keys keep a known coordinator's studies out.
    """
    if len(frame) > LARGEST:
        msg = f"a proposal of {len(frame)} bytes: the inbox of party {party!r} takes at most {LARGEST}"
        raise PolicyRefusal(msg)
    coordinator = _opened(request, open_envelope(request.body), party, key).study.coordinator
    inbox.mkdir(mode=0o700, exist_ok=True)
    for left in inbox.glob("*.tmp"):  # by a process that died while it wrote
        left.unlink(missing_ok=True)
    known = coordinator in known_keys(inbox, listed)
    file = inbox / f"{sha256(request.body).hexdigest()[:32]}{_OF_KNOWN if known else ''}{ENDING}"
    if any((inbox / f"{sha256(request.body).hexdigest()[:32]}{word}{ENDING}").exists() for word in (_OF_KNOWN, "")):
        return
    there = {one: one.lstat().st_size for one in inbox.glob(f"*{ENDING}")}
    strangers = [one for one in there if not one.name.endswith(f"{_OF_KNOWN}{ENDING}")]
    if not known and (len(strangers) >= MOST_OF_STRANGERS or len(frame) > LARGEST_OF_STRANGERS):
        msg = (
            f"party {party!r} does not know the coordinator's key, and takes at most {MOST_OF_STRANGERS} proposals of such keys in its inbox, each of "
            f"at most {LARGEST_OF_STRANGERS} bytes: ask its people to list the key under coordinators in their [policy], or to remove proposals"
        )
        raise PolicyRefusal(msg)
    # Strangers have their own room: what they fill is not taken from that of others.
    rest = there if not known else {one: size for one, size in there.items() if one not in strangers}
    if len(rest) >= MOST or sum(rest.values()) + len(frame) > LARGEST_TOGETHER:
        msg = (
            f"the inbox of party {party!r} holds {len(rest)} proposals, and takes at most {MOST}, and {LARGEST_TOGETHER} bytes together: its people must "
            "remove some first"
        )
        raise PolicyRefusal(msg)
    temporary = file.with_name(f"{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write(frame)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def known_keys(inbox: Path, listed: Collection[str]) -> frozenset[str]:
    """Return the keys of the coordinators that a party knows: those of its policy, and of its approved studies that were opened over the network."""
    file = inbox / KNOWN
    return frozenset(listed) | frozenset(file.read_text().split() if file.is_file() else ())


def remember(inbox: Path, key: str) -> None:
    """Keep the key of a coordinator whose study this party approved, and which opened it."""
    if key in known_keys(inbox, ()):
        return
    inbox.mkdir(mode=0o700, exist_ok=True)
    with open(inbox / KNOWN, "a", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
        out.write(f"{key}\n")


def read(file: Path, party: str, key: str) -> Laid:
    """Return a proposal from an inbox, its signature checked again: a file that anybody altered is refused."""
    if not file.is_file() or file.stat().st_size > LARGEST:  # a pipe or a device never ends
        msg = f"{file.name} is no file, or larger than any proposal: remove it"
        raise DataError(msg)
    request = read_request(file.read_bytes())
    envelope = open_envelope(request.body)
    return Laid(_opened(request, envelope, party, key), envelope.plan)


def _opened(request: Request, envelope: Envelope, party: str, key: str) -> Proposal:
    """Return what is proposed, after the coordinator whom the study pins signed it for this very party."""
    if envelope.step != PROPOSE:
        raise PlanMismatch("this is a message of a study that runs, and no proposal")
    proposal = open_body(envelope, Proposal)
    study = proposal.study
    if not study.coordinator:
        raise PlanMismatch("the study names no coordinator key, so nobody knows who proposes it: set [study] coordinator")
    check_request(request, study.coordinator, party)
    if study.member(party).key != key:
        msg = f"the study's card of party {party!r} does not carry this party's key: use the card that it published"
        raise PlanMismatch(msg)
    return proposal
