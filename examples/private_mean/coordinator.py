"""Pure generator: ask every party for its sum, add them up. What it computes of releases costs no privacy."""

from __future__ import annotations

import math

import msgspec

from private_mean.plan import RELEASE, STEP
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.plan import Plan
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing
from unpooled.protocol.step import Conversation
from unpooled.protocol.terms import ResultTerm


class Result(msgspec.Struct, frozen=True):
    """The mean, and the standard deviation of the noise in it."""

    mean: float
    deviation: float


def coordinate(plan: Plan) -> Conversation:
    """One round."""
    parties, coding = plan.study.parties, plan.design
    replies = yield from everybody([Ask(card.name, STEP, Nothing()) for card in parties])
    sums, deviations = [], []
    for card, reply in zip(parties, replies, strict=True):
        mechanism = plan.release(card.name, RELEASE).mechanism
        assert isinstance(mechanism, GaussianRelease)
        sums.append(float(mechanism.decode(reply.total.values.numpy())[0]))
        deviations.append(float(mechanism.deviations[0]))
    # From grid steps to the column's own units.
    (column,), rows = coding.columns, sum(card.rows for card in parties)
    unit = column.half_width / coding.grid / rows
    return Result(column.centre + unit * math.fsum(sums), unit * math.hypot(*deviations))


def render(result: Result) -> str:
    """The result as text."""
    return f"mean {result.mean:.6g}, noise of standard deviation {result.deviation:.3g} in it"


def terms(plan: Plan, result: Result) -> tuple[ResultTerm, ...]:
    """Return the result line by line: here one line, in the column's own units, with the noise that privacy adds."""
    (column,) = plan.design.columns
    return (ResultTerm(f"{column.name}: mean", result.mean, privacy=result.deviation),)
