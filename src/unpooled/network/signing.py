"""Signed frames: what crosses the network is a message of the protocol and a signature that ties it to its sender and its question.

A request is signed by the coordinator whose key stands in the study, for one named party. An answer is signed by the party whose key
stands in its card, for one request. Both keys are in the plan's hash, so an approval of the plan covers the speakers. A frame
that was altered, made by somebody else, addressed to another party or given to another question is refused.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

import msgspec

from unpooled import errors
from unpooled.errors import ProtocolError, RowsError, UnpooledError
from unpooled.protocol.identity import Identity, verify
from unpooled.protocol.messages import SIZE_LIMIT, UNREADABLE, digest

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
