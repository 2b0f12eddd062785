"""Pure generator: add up what the plan asks of the parties and turn noisy totals into a PLS model. All of it is post-processing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import StudyAborted
from unpooled.inference.priors import DrawnTo, words
from unpooled.kernels.pls import Centred
from unpooled.linear.conversation import directed, directed_each, standardised, standardised_each
from unpooled.linear.moments import Moments, StoredMoments
from unpooled.linear.schedule import Method
from unpooled.models.pls.components import PlsFit, fit, from_moments
from unpooled.models.pls.drawn import drawn_components
from unpooled.models.pls.plan import EXACT, MOMENTS, PlsDesign
from unpooled.models.pls.regressed import of_study
from unpooled.models.pls.several import from_several, of_studies
from unpooled.protocol.messages import Array, Ask, Dropped, Nothing
from unpooled.protocol.registry import Panel
from unpooled.totals.rounds import Rounds
from unpooled.totals.total import Total

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation, Replies


class StoredModel(msgspec.Struct, frozen=True):
    """A PLS model over channels as plain data; arrays have a column per component, coefficients one per response where there are several."""

    coefficients: Array
    intercept: float | tuple[float, ...]
    weights: Array
    loadings: Array
    rotations: Array
    y_loadings: Array
    mean: Array
    fallback: str


class PlsResult(msgspec.Struct, frozen=True):
    """The model, and the released moments it came from (none where rounds of gradients or the model itself were released)."""

    channels: tuple[str, ...]
    model: StoredModel
    #: Parties whose rows are in it.
    participants: tuple[str, ...]
    moments: StoredMoments | None = None
    #: Scores of the rows, where the form of the model releases them.
    scores: Array | None = None
    #: Of several responses: their names, and the moments of those after the first.
    responses: tuple[str, ...] = ()
    more: tuple[StoredMoments, ...] = ()
    #: How the budget was spent.
    method: str = Method.MOMENTS
    #: How earlier models drew the fit; None without any.
    drawn: DrawnTo | None = None


def coordinate(plan: Plan[PlsDesign]) -> Conversation:
    """Ask for the moments, and report what follows from them."""
    study = plan.study
    design = plan.design
    channels = tuple(column.name for column in design.channels)
    wanted = design.parameters.n_components
    if study.epsilon == math.inf and not design.several:
        exact, participants = yield from _exact(plan, design)
        return PlsResult(
            channels, stored(fit(exact, design.frame, wanted)), participants, moments_of(design, exact, plan).stored()
        )
    rounds = Rounds(plan)
    yield from rounds.begin()
    if not design.one_release:
        return (yield from _by_rounds(rounds, channels))
    total = yield from rounds.total(MOMENTS)
    promise = plan.statement
    moments, *more = Moments.decode_each(design.layout, total, rounds.rows, plan.hash, str(promise), holds=promise.holds)
    if design.models:
        fitted, drawn = drawn_components(moments, design.models, design.frame, wanted)
        return PlsResult(channels, stored(fitted), total.participants, moments.stored(), drawn=drawn)
    if not more:
        fitted = from_moments(moments, design.frame, wanted)
        return PlsResult(channels, stored(fitted), total.participants, moments.stored())
    fitted = from_several([moments, *more], design.frame, wanted)
    kept, named = tuple(one.stored() for one in more), design.parameters.responses
    return PlsResult(channels, stored(fitted), total.participants, moments.stored(), responses=named, more=kept)


def _by_rounds(rounds: Rounds[PlsDesign], channels: tuple[str, ...]) -> Conversation:
    """Ask for the rounds of regression, of one response or of all together, and report the components of what they found."""
    design, wanted = rounds.design, rounds.design.parameters.n_components
    method = str(design.schedule.method)
    if design.several:
        each = yield from (directed_each if design.schedule.method is Method.DIRECTION else standardised_each)(rounds)
        units = np.array([layout.response.half_width for layout, _ in design.layout.singles()])
        fitted, named = of_studies(each, units, rounds.rows, design.frame, wanted), design.parameters.responses
        return PlsResult(channels, stored(fitted), rounds.participants, responses=named, method=method)
    found = yield from (directed(rounds) if design.schedule.method is Method.DIRECTION else standardised(rounds))
    released = found.moments
    if released is None or not design.models:
        own, left = of_study(found, rounds.rows, design.frame, wanted), None if released is None else released.stored()
        return PlsResult(channels, stored(own), rounds.participants, left, method=method, drawn=found.drawn)
    own, drawn = drawn_components(released, design.models, design.frame, wanted)
    return PlsResult(channels, stored(own), rounds.participants, released.stored(), method=method, drawn=drawn)


def _exact(plan: Plan, design: PlsDesign) -> Generator[list[Ask], Replies, tuple[Centred, tuple[str, ...]]]:
    """The exact moments of all parties that answer, added up."""
    cards = plan.study.parties
    replies = yield [Ask(card.name, EXACT, Nothing()) for card in cards]
    arrived = {c.name: (c.rows, r) for c, r in zip(cards, replies, strict=True) if not isinstance(r, Dropped)}
    if len(cards) - len(arrived) > design.parameters.tolerate:
        msg = f"only {len(arrived)} of {len(cards)} parties are there: run it again once they are back"
        raise StudyAborted(msg)
    size = design.frame.size
    total: Centred | None = None
    for rows, reply in arrived.values():
        mean, (response,), gram, cross, (square,) = np.split(
            reply.moments.values.numpy(), np.cumsum([size, 1, size * size, size])
        )
        one = Centred(rows, mean, float(response), gram.reshape(size, size), cross, float(square))
        total = one if total is None else total.plus(one)
    assert total is not None
    return total, tuple(arrived)


def moments_of(design: PlsDesign, exact: Centred, plan: Plan) -> Moments:
    """Return exact moments in the form of released ones, with no noise in them."""
    layout = design.layout
    width = np.append(layout.half_widths[:-1], layout.response.half_width)
    mean = np.append(exact.mean, exact.response - layout.response.centre) / width
    inner = np.block([[exact.gram, exact.cross[:, None]], [exact.cross[None], np.array([[exact.square]])]])
    inner = inner / np.outer(width, width) + exact.rows * np.outer(mean, mean)
    order = [*range(exact.mean.size), -1]
    gram = np.empty((layout.size + 1, layout.size + 1))
    gram[np.ix_(order, order)] = inner
    gram[layout.size - 1] = gram[:, layout.size - 1] = exact.rows * np.insert(mean, -1, 1.0)
    first, second = layout.pairs
    total = Total(gram[first, second] * layout.grid**2, np.zeros(first.size), ())
    return Moments.decode(layout, total, exact.rows, plan.hash, str(plan.statement), holds=plan.statement.holds)


def stored(fitted: PlsFit) -> StoredModel:
    """Return a fitted model as plain data."""
    return StoredModel(
        coefficients=Array.of(fitted.coefficients),
        intercept=fitted.intercept if isinstance(fitted.intercept, float) else tuple(fitted.intercept.tolist()),
        weights=Array.of(fitted.weights),
        loadings=Array.of(fitted.loadings),
        rotations=Array.of(fitted.rotations),
        y_loadings=Array.of(fitted.y_loadings),
        mean=Array.of(fitted.mean),
        fallback=fitted.fallback,
    )


def render(result: PlsResult) -> str:
    """Render the result in words, with the coefficients as a table."""
    model = result.model
    count = model.y_loadings.shape[-1]
    columns, constants = by_response(result)
    return "\n".join(
        [
            model.fallback or f"{count} component{'s' if count != 1 else ''} of {len(result.channels)} channels",
            f"{'channel':<24}" + "".join(f"{name or 'coefficient':>14}" for name in columns),
            *(
                f"{name:<24}" + "".join(f"{values[k]:>14.6g}" for values in columns.values())
                for k, name in enumerate(result.channels)
            ),
            f"{'(intercept)':<24}" + "".join(f"{constant:>14.6g}" for constant in constants),
            *([] if result.drawn is None else words(result.drawn)),
            f"rows of {', '.join(result.participants)}",
        ]
    )


def by_response(result: PlsResult) -> tuple[dict[str, list[float]], tuple[float, ...]]:
    """Return the coefficients of every response by its name (empty where there is one alone), and the constants."""
    values, constant = result.model.coefficients.numpy(), result.model.intercept
    if isinstance(constant, tuple):
        return dict(zip(result.responses, values.T.tolist(), strict=True)), constant
    return {"": values.tolist()}, (constant,)


def panels(plan: Plan, result: PlsResult) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model
    """Return the coefficients along the channels."""
    columns, _ = by_response(result)
    return tuple(
        Panel(f"coefficients{': ' if name else ''}{name}", result.channels, tuple(values), ordered=True)
        for name, values in columns.items()
    )
