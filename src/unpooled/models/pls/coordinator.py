"""Pure generator: add up the parties' moments and turn the noisy total into a PLS model. All of it is post-processing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.aggregation.keys import exchange_keys
from unpooled.aggregation.modes import collect
from unpooled.aggregation.moments import Moments, StoredMoments
from unpooled.aggregation.totals import Total
from unpooled.errors import StudyAborted
from unpooled.kernels.kernel_pls import Centred
from unpooled.models.pls.fit import Fitted, fit, from_moments
from unpooled.models.pls.plan import EXACT, Setup
from unpooled.protocol.messages import Array, Ask, Dropped, Nothing
from unpooled.protocol.step import Panel

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Conversation, Replies


class Model(msgspec.Struct, frozen=True):
    """A PLS model over channels as plain data; arrays have a column per component."""

    coefficients: Array
    intercept: float
    weights: Array
    loadings: Array
    rotations: Array
    y_loadings: Array
    mean: Array
    fallback: str


class Result(msgspec.Struct, frozen=True):
    """The model, and the released moments it came from (none where they were exact, or where the model itself was released)."""

    channels: tuple[str, ...]
    model: Model
    #: Parties whose rows are in it.
    participants: tuple[str, ...]
    moments: StoredMoments | None = None
    #: Scores of the rows, which only the published form releases.
    scores: Array | None = None


def coordinate(plan: Plan) -> Conversation:
    """Ask for the moments, and report what follows from them."""
    study = plan.study
    asked: Setup = plan.design
    channels = tuple(column.name for column in asked.channels)
    wanted = asked.parameters.n_components
    if study.epsilon == math.inf:
        exact, participants = yield from _exact(plan, asked)
        return Result(
            channels, stored(fit(exact, asked.frame, wanted)), participants, moments_of(asked, exact, plan).stored()
        )
    members = yield from exchange_keys(asked.aggregation)
    total = yield from collect(plan, asked.aggregation, asked.vector, members)
    rows = sum(study.card(name).rows for name in total.participants)
    moments = asked.design.decode(total, rows, plan.hash, str(plan.statement))
    fitted = from_moments(moments, asked.frame, wanted)
    return Result(channels, stored(fitted), total.participants, moments.stored())


def _exact(plan: Plan, asked: Setup) -> Generator[list[Ask], Replies, tuple[Centred, tuple[str, ...]]]:
    """The exact moments of all parties that answer, added up."""
    cards = plan.study.parties
    replies = yield [Ask(card.name, EXACT, Nothing()) for card in cards]
    arrived = {c.name: (c.rows, r) for c, r in zip(cards, replies, strict=True) if not isinstance(r, Dropped)}
    if len(cards) - len(arrived) > asked.parameters.tolerate:
        msg = f"only {len(arrived)} of {len(cards)} parties are there: run it again once they are back"
        raise StudyAborted(msg)
    size = asked.frame.size
    total: Centred | None = None
    for rows, reply in arrived.values():
        mean, (response,), gram, cross, (square,) = np.split(
            reply.moments.values.numpy(), np.cumsum([size, 1, size * size, size])
        )
        one = Centred(rows, mean, float(response), gram.reshape(size, size), cross, float(square))
        total = one if total is None else total.plus(one)
    assert total is not None
    return total, tuple(arrived)


def moments_of(asked: Setup, exact: Centred, plan: Plan) -> Moments:
    """Exact moments in the form of released ones, with no noise in them."""
    design = asked.design
    width = np.append(design.half_widths[:-1], design.response.half_width)
    mean = np.append(exact.mean, exact.response - design.response.centre) / width
    inner = np.block([[exact.gram, exact.cross[:, None]], [exact.cross[None], np.array([[exact.square]])]])
    inner = inner / np.outer(width, width) + exact.rows * np.outer(mean, mean)
    order = [*range(exact.mean.size), -1]
    gram = np.empty((design.size + 1, design.size + 1))
    gram[np.ix_(order, order)] = inner
    gram[design.size - 1] = gram[:, design.size - 1] = exact.rows * np.insert(mean, -1, 1.0)
    first, second = design.pairs
    total = Total(gram[first, second] * design.grid**2, np.zeros(first.size), ())
    return design.decode(total, exact.rows, plan.hash, str(plan.statement))


def stored(fitted: Fitted) -> Model:
    """A fitted model as plain data."""
    return Model(
        coefficients=Array.of(fitted.coefficients),
        intercept=fitted.intercept,
        weights=Array.of(fitted.weights),
        loadings=Array.of(fitted.loadings),
        rotations=Array.of(fitted.rotations),
        y_loadings=Array.of(fitted.y_loadings),
        mean=Array.of(fitted.mean),
        fallback=fitted.fallback,
    )


def render(result: Result) -> str:
    """What was found, in words, and the coefficients as a table."""
    model = result.model
    count = model.y_loadings.shape[0]
    values = model.coefficients.numpy().tolist()
    return "\n".join(
        [
            model.fallback or f"{count} component{'s' if count != 1 else ''} of {len(values)} channels",
            f"{'channel':<24}{'coefficient':>14}",
            *(f"{name:<24}{value:>14.6g}" for name, value in zip(result.channels, values, strict=True)),
            f"{'(intercept)':<24}{model.intercept:>14.6g}",
            f"rows of {', '.join(result.participants)}",
        ]
    )


def panels(result: Result) -> tuple[Panel, ...]:
    """The coefficients along the channels."""
    return (Panel("coefficients", result.channels, tuple(result.model.coefficients.numpy().tolist()), ordered=True),)
