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

from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted, UsageError
from unpooled.privacy.plan import ALIGNED, PLAN_VERSION, Study
from unpooled.protocol import alignment
from unpooled.protocol.entries import OURS
from unpooled.protocol.messages import UNREADABLE, Ask, Dropped, Public, open_body
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.context import Context
    from unpooled.protocol.messages import Envelope
    from unpooled.protocol.step import Conversation, Model, Replies


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
    known = (OPEN, *alignment.STEPS, *model.steps)
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
        yield from alignment.align(plan)
    return (yield from model.coordinate(plan))
