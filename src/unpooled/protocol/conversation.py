"""The conversation of a study at the coordinator's side: every party agrees to the plan, then the model's own questions.

A coordinator is a generator. It yields batches of :class:`~unpooled.protocol.messages.Ask` and is sent the replies in the same order; a party
that is away is a :class:`~unpooled.protocol.messages.Dropped` in its place. It reads no data, draws no noise and has no clock, so the same generator
runs in process, over a network and from a transcript::

    def coordinate(plan):
        replies = yield [Ask(card.name, "sums", Nothing()) for card in plan.study.parties]
        return sum(reply.sums.values.numpy() for reply in replies if not isinstance(reply, Dropped))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.errors import DataError, PlanMismatch, ProtocolError, StudyAborted, UsageError
from unpooled.privacy.plan import ALIGNED, PLAN_VERSION, Study
from unpooled.protocol.context import Context
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import (
    UNREADABLE,
    Ask,
    Dropped,
    Nothing,
    Public,
    Sealed,
    digest,
    open_body,
)
from unpooled.protocol.registry import OURS, Step

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Envelope
    from unpooled.protocol.registry import Conversation, Model, Replies


# --- Alignment -------------------------------------------------------------------------------------------------------------
# ``ids = "aligned"``: before a column-split study begins, its parties make sure that they hold the same rows in the same order.
#
# The first party derives a secret for this plan and seals it for each of the others, under keys that the identities in the cards sign;
# the coordinator carries it and cannot read it. Each party answers with an HMAC of its ordered ids under that secret. Equal digests
# mean equal ids in equal order; unequal ones tell nobody which row differs, and without the secret no list of ids can be tried out.
# Ids are compared as text: Unicode-normalised (NFC), surrounding blanks stripped; a blank or repeated id is an error at its party.

#: Each key encrypts one message, always the same, so that its nonce may be constant.
_NONCE = bytes(12)
_SECRET = b"secret for comparing row ids"


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's key-agreement key for this plan, signed by the identity that its card pins."""

    party: str
    agreement: str
    signature: str


class AlignmentKeyReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same, as the party sends it."""

    agreement: Public[str]
    signature: Public[str]


class SecretRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the parties that the secret is for."""

    keys: tuple[Key, ...]


class SecretReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secret, sealed for each of them."""

    secrets: tuple[Sealed, ...]


class DigestRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first party's key and what it sealed for this party; nothing for the first party itself."""

    key: Key | None = None
    secret: bytes = b""


class DigestReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keyed digest of the ordered ids: equal for neighbouring data, whose ids are the same."""

    digest: Public[str]


def _key(context: Context, _: Nothing) -> AlignmentKeyReply:
    agreement = context.agreement_key
    return AlignmentKeyReply(Public(agreement), Public(context.attest(*_signed(context.plan, context.name, agreement))))


def _share(context: Context, request: SecretRequest) -> SecretReply:
    plan = context.plan
    first, *others = _parties(plan)
    if context.name != first or [key.party for key in request.keys] != others:
        raise PlanMismatch(
            "the secret for comparing ids is made by the first party of the study, for all others in their order"
        )
    return SecretReply(
        tuple(
            context.seal_secret(key.party, _checked(plan, key), _SECRET, b"row ids", first.encode(), key.party.encode())
            for key in request.keys
        )
    )


def _compare(context: Context, request: DigestRequest) -> DigestReply:
    plan, first = context.plan, _parties(context.plan)[0]
    if (request.key is None) != (context.name == first) or (request.key is not None and request.key.party != first):
        raise PlanMismatch("the secret for comparing ids comes from the first party of the study")
    # The first party's secret for this plan is the same again after a crash.
    secret = context.secret(_SECRET)
    if request.key is not None:
        key = _checked(plan, request.key)
        shared = context.shared_key(key, b"row ids", first.encode(), context.name.encode())
        try:
            secret = AESGCM(shared).decrypt(_NONCE, request.secret, None)
        except (InvalidTag, ValueError):
            raise ProtocolError("the secret for comparing ids was altered, or meant for another party") from None
    return DigestReply(Public(context.table.ids_digest(digest(secret, _hash(plan)))))


KEY = Step("ids-key", Nothing, AlignmentKeyReply, _key)
SECRET = Step("ids-secret", SecretRequest, SecretReply, _share)
DIGEST = Step("ids-digest", DigestRequest, DigestReply, _compare)
STEPS = (KEY, SECRET, DIGEST)


def align(plan: Plan) -> Generator[list[Ask], Replies, None]:
    """The coordinator's part: carry the keys and the sealed secret, compare the digests."""
    names = _parties(plan)
    replies = _complete(names, (yield [Ask(name, KEY.name, Nothing()) for name in names]))
    first, *others = (Key(name, r.agreement.value, r.signature.value) for name, r in zip(names, replies, strict=True))
    (shared,) = _complete(names[:1], (yield [Ask(names[0], SECRET.name, SecretRequest(tuple(others)))]))
    requests = [DigestRequest(), *(DigestRequest(first, sealed.ciphertext) for sealed in shared.secrets)]
    if len(requests) != len(names):
        msg = f"party {names[0]!r} sealed a secret for {len(shared.secrets)} parties, not for {len(others)}"
        raise ProtocolError(msg)
    asks = [Ask(name, DIGEST.name, request) for name, request in zip(names, requests, strict=True)]
    digests = [reply.digest.value for reply in _complete(names, (yield asks))]
    different = [name for name, value in zip(names, digests, strict=True) if value != digests[0]]
    if different:
        msg = (
            f"the row ids of {', '.join(different)} are not those of {names[0]!r} in the same order: sort all files by id and "
            "leave out people whom not everybody has (nothing was released); then raise `run` in the study and have it approved again, because "
            "these answers stand"
        )
        raise DataError(msg)


def _complete(names: Sequence[str], replies: Replies) -> Replies:
    for name, reply in zip(names, replies, strict=True):
        if isinstance(reply, Dropped):
            msg = f"party {name!r} did not take part in comparing the ids: {reply.reason}"
            raise UsageError(msg)
    return replies


def _parties(plan: Plan) -> list[str]:
    if plan.study.ids != ALIGNED:
        raise PlanMismatch("the plan does not ask for ids to be compared")
    return [card.name for card in plan.study.parties]


def _hash(plan: Plan) -> bytes:
    return plan.hash.encode()


def _signed(plan: Plan, name: str, agreement: str) -> tuple[bytes, ...]:
    return b"row ids agreement key", _hash(plan), name.encode(), agreement.encode()


def _checked(plan: Plan, key: Key) -> str:
    """Return the agreement key, if the identity that the party's card pins has signed it."""
    verify(plan.study.card(key.party).key, key.signature, *_signed(plan, key.party, key.agreement))
    return key.agreement


# --- Conversation ----------------------------------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's agreement: the hash of the plan it compiled for itself."""

    plan: Public[str]


class OpenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public text of the study, from which the party compiles its own plan, and the version of plans that the coordinator means."""

    study: Study
    version: int = PLAN_VERSION
    #: The coordinator's distribution and version of a model that is not one of unpooled's own; not sent for our own models.
    maker: str | msgspec.UnsetType = msgspec.UNSET


def open_request(envelope: Envelope) -> OpenRequest:
    """Return the study that an opening carries; an opening of another version is refused as such, for its study may not be readable."""
    try:
        version = msgspec.msgpack.decode(
            msgspec.msgpack.decode(envelope.body, type=dict[str, msgspec.Raw])["version"], type=int
        )
    except (*UNREADABLE, KeyError):
        return open_body(envelope, OpenRequest)  # which says what is wrong with it
    if version != PLAN_VERSION:
        msg = (
            f"these plans are of version {version}, those of the unpooled installed here of version {PLAN_VERSION}: install equal versions. A run "
            "that another version began is finished with that version, or begun anew with a larger `run` in the study"
        )
        raise PlanMismatch(msg)
    return open_body(envelope, OpenRequest)


def check_claim(plan: Plan, claimed: str, asked: OpenRequest, party: str) -> None:
    """Refuse an opening whose plan is not the one that this party compiles, and name both versions of the model's distribution if they differ."""
    if plan.hash == claimed:
        return
    theirs = plan.maker if asked.maker is msgspec.UNSET else asked.maker
    if plan.maker != theirs:
        msg = (
            f"model {plan.study.row!r} is of {theirs or OURS} at the coordinator, and of {plan.maker or OURS} at party {party!r}: "
            "install equal versions everywhere"
        )
        raise PlanMismatch(msg)
    here = f" (model {plan.study.row!r} is of {plan.maker} here: install equal versions everywhere)" if plan.maker else ""
    msg = f"the request claims plan {claimed[:16]}, this party compiles {plan.hash[:16]} from the same study{here}"
    raise PlanMismatch(msg)


def _open(context: Context, request: OpenRequest) -> Opened:  # noqa: ARG001 - Party.answer has compiled and checked it already
    return Opened(Public(context.plan.hash))


OPEN = Step("open", OpenRequest, Opened, _open)


def find_step(model: Model, name: str, plan: Plan | None = None) -> Step:
    """Return the step of this name: of every study, or the model's own; of several analyses, the steps follow from the plan."""
    known = (OPEN, *STEPS, *model.steps)
    if all(step.name != name for step in known):
        known = model.more_steps(plan)
    for step in known:
        if step.name == name:
            return step
    msg = f"model {model.name!r} has no step {name!r}"
    raise ProtocolError(msg)


def everybody(asks: list[Ask]) -> Generator[list[Ask], Replies, Replies]:
    """The replies to these requests where all are needed; a party that is missing stops the study, which can be continued."""
    if not asks:
        return []
    replies = yield asks
    gone = list(dict.fromkeys(f"{r.party} ({r.reason})" for r in replies if isinstance(r, Dropped)))
    if gone:
        msg = f"{', '.join(gone)} dropped out at step {asks[0].step!r}: run the study again once they are back"
        raise StudyAborted(msg)
    return replies


def converse(model: Model, plan: Plan) -> Conversation:
    """The whole conversation of a study: every party agrees to the plan, then the model's coordinator runs."""
    request = OpenRequest(plan.study, maker=plan.maker or msgspec.UNSET)
    opened = yield [Ask(card.name, OPEN.name, request) for card in plan.study.members]
    for card, reply in zip(plan.study.members, opened, strict=True):
        if isinstance(reply, Dropped):
            msg = f"party {card.name!r} did not open the study: {reply.reason}"
            raise UsageError(msg)
        if reply.plan.value != plan.hash:
            msg = f"party {card.name!r} agreed to plan {reply.plan.value[:16]}, not to {plan.hash[:16]}"
            raise PlanMismatch(msg)
    if plan.study.ids == ALIGNED:
        yield from align(plan)
    return (yield from model.coordinate(plan))
