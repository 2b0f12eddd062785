"""Pure generator: add up what the plan asks of the parties and turn noisy totals into a PLS model. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import StudyAborted
from unpooled.inference.priors import DrawnTo, words
from unpooled.kernels.noisy import noise_level, psd_part
from unpooled.kernels.pls import Centred, kernel_pls2
from unpooled.linear.conversation import directed, directed_each, standardised, standardised_each
from unpooled.linear.drawn import drawn_fit
from unpooled.linear.fit import plain
from unpooled.linear.moments import Moments, StoredMoments
from unpooled.linear.schedule import Method
from unpooled.models.pls.components import (
    CONSTANT,
    LEFT,
    MOST,
    NOISE,
    RIDGE,
    PlsFit,
    ResponseMoments,
    about_means,
    components_of,
    estimated_errors,
    fit,
    folded,
    from_moments,
    heard,
    most_components,
    nothing,
    numbers,
    repaired,
    sized,
)
from unpooled.models.pls.declared import CHOSEN, EXACT, MOMENTS, PlsDesign
from unpooled.protocol.messages import Array, Ask, Dropped, Nothing
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm
from unpooled.protocol.terms import plain as plain_terms
from unpooled.totals.rounds import Rounds
from unpooled.totals.total import Total

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.kernels.pls import Components
    from unpooled.linear.conversation import LinearStudy
    from unpooled.linear.fit import LinearFit
    from unpooled.models.pls.spectra import Frame
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation, Replies

    Matrix = NDArray[np.float64]


# --- Components of coefficients --------------------------------------------------------------------------------------------
# Components of coefficients that rounds of regression found: post-processing of what they released (THEORY.md, section 3b).


def of_study(found: LinearStudy, rows: int, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the components of the coefficients b of rounds: those of (H, H b), which lead to b itself.

    H is the Gram of the last round, repaired. Where the rounds released gradients alone, it is that of the deviations by which coordinates
    were standardised, as if they were not correlated.
    """
    gram = np.eye(found.frame.widths.size - 1) if found.moments is None else _centred_gram(found.moments)
    return _of(found.fit, found.frame.widths[:-1], found.frame.centres[:-1], gram, rows, frame, n_components)


def of_released(moments: Moments, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the model of released moments, of rounds or of one release."""
    if not moments.frame.refined:
        return from_moments(moments, frame, n_components)
    return of_refined(moments, plain(moments.posterior()), frame, n_components)


def of_refined(moments: Moments, fit: LinearFit, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the components of a regression on the moments of rounds."""
    numbers(moments.layout)
    widths, centres = moments.frame.widths[:-1], moments.frame.centres[:-1]
    return _of(fit, widths, centres, _centred_gram(moments), moments.rows, frame, n_components)


def _centred_gram(moments: Moments) -> Matrix:
    """Return the Gram of standardised coordinates about their mean, repaired; its size is that of the shortened rows."""
    gram, variance = moments.xx
    inner = gram[:-1, :-1] - np.outer(gram[:-1, -1], gram[:-1, -1]) / max(float(gram[-1, -1]), 1e-300)
    return psd_part(inner) + RIDGE * noise_level(variance[:-1, :-1]) * np.eye(inner.shape[0])


def _of(
    fit: LinearFit, widths: Matrix, mean: Matrix, gram: Matrix, rows: int, frame: Frame, n_components: int | str
) -> PlsFit:
    gram = gram * np.outer(widths, widths)
    response = fit.intercept_ + float(mean @ fit.coef_)
    centred = Centred(rows, mean, response, gram, gram @ fit.coef_, float(fit.coef_ @ gram @ fit.coef_))
    if not fit.coef_.any():
        return nothing(centred, frame, response, NOISE)
    # As many as lead to b: deviations alone tell less of where to begin than a Gram does.
    return components_of(centred, frame, n_components, gram, fit.coef_, response, tried=mean.size)


# --- Earlier models --------------------------------------------------------------------------------------------------------
# PLS with earlier models: released moments of coordinates are drawn to them, and components follow.


def drawn_components(
    moments: Moments, models: Sequence[EarlierModel], frame: Frame, n_components: int | str
) -> tuple[PlsFit, DrawnTo]:
    """Return the components of released moments that are drawn to models of the coordinates, and how they drew them."""
    fit, drawn = drawn_fit(moments, models)
    if moments.frame.refined:
        return of_refined(moments, fit, frame, n_components), drawn
    centred, noise = about_means(moments)
    response = fit.intercept_ + float(centred.mean @ fit.coef_)
    return components_of(centred, frame, n_components, repaired(centred.gram, noise), fit.coef_, response), drawn


# --- Several responses -----------------------------------------------------------------------------------------------------
# PLS2: several responses that share spectra, basis and components, from one release of their moments or from rounds (THEORY.md, sections 3b and C.5).
#
# Each response says what it can as it would alone, under its noise; nothing where that is the prior. The components are those of all of them together, in units of their declared half ranges.

_NOTHING = "No response was learnt from the spectra, so each is given its mean: ask for a larger epsilon, more rows, or a smaller basis."


@dataclass(frozen=True)
class _Understood:
    """The target of one response: a cross vector in its own units, the unit, and the moments that limit the number of components."""

    one: ResponseMoments
    cross: Matrix
    unit: float


def from_several(moments: Sequence[Moments], frame: Frame, n_components: int | str) -> PlsFit:
    """Return the model of the released moments of several responses, which share the Gram of the spectra."""
    found = [heard(one, n_components) for one in moments]
    gram = penalised = found[0].centred.gram
    if found[0].noise is not None:
        gram, penalised = psd_part(gram), repaired(gram, found[0].noise)
    units = np.array([one.layout.response.half_width for one in moments])
    return _together(found, units, (gram, penalised), frame, n_components, MOST)


def of_studies(found: Sequence[LinearStudy], units: Matrix, rows: int, frame: Frame, n_components: int | str) -> PlsFit:
    """Return the components of the coefficients B that rounds of gradients found, a study for each response: those of (H, H B), which lead to B itself.

    H is that of the deviations by which coordinates were standardised, as if they were not correlated; ``units`` are those of the responses.
    """
    mean, gram = found[0].frame.centres[:-1], np.diag(found[0].frame.widths[:-1] ** 2)
    heard_of = []
    for one in found:
        b = one.fit.coef_
        response = one.fit.intercept_ + float(mean @ b)
        centred = Centred(rows, mean, response, gram, gram @ b, float(b @ gram @ b))
        heard_of.append(ResponseMoments(centred, None, response, b))
    return _together(heard_of, units, (gram, gram), frame, n_components, mean.size)


def _together(
    found: Sequence[ResponseMoments],
    units: Matrix,
    grams: tuple[Matrix, Matrix],
    frame: Frame,
    n_components: int | str,
    tried: int,
) -> PlsFit:
    """Return the components of all responses; ``grams`` are the Gram of the coordinates and the one that components are of."""
    (gram, penalised), centred = grams, found[0].centred
    size = sized(centred, frame)
    wants = [
        _Understood(one, penalised @ one.slopes if one.slopes is not None else one.centred.cross, float(unit))
        for one, unit in zip(found, units, strict=True)
    ]
    most = most_components(n_components, size, centred.rows, tried)
    cross = np.column_stack([want.cross / want.unit for want in wants])
    joint = kernel_pls2(penalised, cross, most)
    responses = np.array([one.response for one in found])
    if not joint.y_loadings.any():
        flat = np.zeros((size, len(wants)))
        return folded(_first(joint, 0), flat, centred, frame, responses, CONSTANT if found[0].slopes is None else _NOTHING)
    kept = most
    if n_components == CHOSEN:
        kept = _chosen(joint, wants, gram, penalised)
    joint = _first(joint, kept)
    coefficients = joint.coefficients[:, :, -1] * units
    return folded(replace(joint, y_loadings=joint.y_loadings * units[:, None]), coefficients, centred, frame, responses)


def _chosen(joint: Components, wants: Sequence[_Understood], gram: Matrix, penalised: Matrix) -> int:
    """Return the number of components with the smallest error of all responses, each in its unit; the fewest that are about as good."""
    count = int(np.count_nonzero(joint.y_loadings.any(axis=0)))
    total, explained = np.zeros(count), 0.0
    for k, want in enumerate(wants):
        own = replace(joint, coefficients=joint.coefficients[:, k] * want.unit)
        if want.one.slopes is None:
            errors = estimated_errors(own, count, gram, penalised, want.one.centred, want.one.noise)
        else:
            apart = own.coefficients[:, :count] - want.one.slopes[:, None]
            errors = np.einsum("ik,ik->k", apart, penalised @ apart)
            explained += float(want.one.slopes @ penalised @ want.one.slopes) / want.unit**2
        total += errors / want.unit**2
    return 1 + int(np.argmax(total <= total.min() + LEFT * explained))


def _first(joint: Components, count: int) -> Components:
    b, w, p, r = joint.coefficients, joint.weights, joint.loadings, joint.rotations
    return replace(
        joint,
        coefficients=b[:, :, :count],
        weights=w[:, :count],
        loadings=p[:, :count],
        rotations=r[:, :count],
        y_loadings=joint.y_loadings[:, :count],
    )


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: add up what the plan asks of the parties and turn noisy totals into a PLS model. All of it is post-processing.


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


# --- Lines -----------------------------------------------------------------------------------------------------------------
# The coefficients of a PLS regression, line by line, along the channels.


def terms(plan: Plan, result: PlsResult) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Return coefficients in the channels' own units; PLS has no standard errors."""
    columns, constants = by_response(result)
    return tuple(
        line
        for (name, values), constant in zip(columns.items(), constants, strict=True)
        for line in (*plain_terms(result.channels, values, group=name), ResultTerm("(intercept)", constant, group=name))
    )
