"""Pure generator: add up what the plan's rounds ask for, and turn noisy totals into coefficients. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

from unpooled.inference.estimates import Estimates, wald_lines
from unpooled.inference.printed_terms import class_terms
from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels.posterior import drawn_to_model
from unpooled.kernels.score_posterior import averaged_rounds, believed_slopes
from unpooled.linear.residuals import MEAT
from unpooled.linear.standard import CONSTANT, SCALES
from unpooled.models.glm.calibrating import calibrate, direction_and_scale
from unpooled.models.glm.cutting import Cutting
from unpooled.models.glm.directions import MOMENTS
from unpooled.models.glm.drawing import Drawing
from unpooled.models.glm.fit import GlmFit
from unpooled.models.glm.intervals import Intervals
from unpooled.models.glm.result import GlmCoefficient, GlmResult
from unpooled.models.glm.rounds import CONVERGED, PRIOR, ROUNDED, GlmMethod
from unpooled.models.glm.rows import BASE, INFORMATION, SCORE
from unpooled.models.glm.shapes import Contrasts
from unpooled.models.glm.shaping import shape_of
from unpooled.protocol.terms import finite
from unpooled.totals.rounds import descend

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.inference.coordinates import Clipping
    from unpooled.models.glm.curvature import Curvature
    from unpooled.models.glm.directions import Directions
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Conversation, Replies
    from unpooled.totals.total import Total

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: A Newton step moves the linear predictor of a typical row by at most this.
_LONGEST_STEP = 2.0
#: How much larger than the noise of the rounds says the variance of the way to the optimum may be.
_FARTHER = tuple(10.0**k for k in range(9))


def coordinate(plan: Plan[GlmDesign]) -> Conversation:
    """Exchange keys, then the rounds of the plan's method."""
    design = plan.design
    fit = GlmFit(plan)
    yield from fit.begin(design.weighting)
    total = yield from fit.total(BASE)
    present = replace(design, layout=design.layout.present(fit.participants))
    fit.shape = shape_of(present, total, fit.rows, fit.counted)
    fit.units = (*fit.shape.units, design.family.dispersion)
    if design.schedule.probabilities:
        fit.base_rate = (
            float(total.values[0]) / design.base.grid / fit.rows,
            float(total.deviations[0]) / design.base.grid / fit.rows,
        )
    if design.schedule.method is GlmMethod.MEAN:
        return _result(fit, None, fit.shape.of_base())
    if design.directions is not None:
        return (yield from _along(fit, design.directions))
    if design.schedule.exact:
        fit.standard, fit.units = design.long.declared(), (1.0, design.family.most[1], design.family.dispersion)
    else:
        total = yield from fit.total(SCALES)
        fit.standard = design.scales.decode(total, fit.rows)
    fit.head, fit.start = fit.standard.settings, fit.shape.start
    if design.schedule.method is GlmMethod.DIRECTION:
        lines = yield from direction_and_scale(fit)
        return _result(fit, None, lines=lines)
    drawing = Drawing(fit) if design.parameters.prior else None
    if design.schedule.rounds:
        yield from _descent(fit, drawing)
    if design.schedule.method is not GlmMethod.NEWTON:
        lines = yield from calibrate(fit)
        return _result(fit, None, drawing=drawing, lines=lines)
    newton, cutting, left = yield from _newton(fit)
    if drawing is not None:
        newton = drawing.of_step(newton, left)
    yield from calibrate(fit)
    return _result(fit, newton, dispersion=cutting.dispersion, clipping=cutting.clipping, drawing=drawing)


def _descent(fit: GlmFit, drawing: Drawing | None = None) -> Generator[list[Ask], Replies, None]:
    """Steps along noisy gradients, pulled to the base rate as far as their noise says; the mean of the later half of the iterates."""
    design, schedule, shape = fit.design, fit.design.schedule, fit.shape
    base, slopes = fit.start if drawing is None else drawing.begin, shape.slopes
    pull: Row | float = 0.0
    once: Row | float = 0.0

    def move(total: Total, current: Row) -> Row:
        nonlocal pull, once
        gradient, noise = design.short.gradient_of(total)
        curvature = shape.curvature(fit.counted)
        once = (noise / curvature) ** 2
        fit.spread = once / schedule.rounds
        pull = fit.spread * slopes / PRIOR
        pulls = pull + fit.penalty / fit.units[0] / curvature
        gradient = shape.stepped(gradient) / curvature - pulls * (current - base)
        return np.asarray(schedule.step / (1 + pulls) * gradient)

    fit.start = yield from descend(fit, fit.at, move, base, schedule.rounds)
    if drawing is not None:
        drawing.after_rounds(pull, once)
    elif schedule.method is GlmMethod.GRADIENT and not design.family.classes:
        kept, gain = averaged_rounds(schedule.rounds, schedule.step)
        arrived = np.broadcast_to(kept / (1 + pull), base.shape)
        noise = np.broadcast_to(gain / (1 + pull) ** 2 * once, base.shape)
        fit.start = base + believed_slopes(fit.start - base, arrived, noise, shape.moving, slopes)
    # The later half has half the gradients, and the pull to the base rate moves a coefficient of the size that was believed so far.
    fit.spread = 2 * fit.spread + (pull / (1 + pull)) ** 2 * PRIOR / slopes


def _along(fit: GlmFit, directions: Directions) -> Generator[list[Ask], Replies, GlmResult]:
    """The direction of the slopes, and how long they are."""
    total = yield from fit.total(MOMENTS)
    slopes = directions.decode(total, fit.rows)
    constant = fit.shape.constant / CONSTANT
    fit.head, fit.start = tuple(slopes.tolist()), np.array([1.0, *[constant] * directions.layout.intercept])
    yield from _descent(fit)
    # Of coded rows: the length that becomes 1 is divided by, and the constant takes its part of it.
    coded = float(fit.start[0]) * slopes * directions.share / directions.longest
    width, centre = directions.layout.coding.units
    own = coded if directions.unit else coded / width
    intercept = CONSTANT * float(fit.start[1]) if directions.layout.intercept else 0.0
    return _result(fit, None, np.append(own, intercept - (0.0 if directions.unit else float(centre @ own))))


def _newton(fit: GlmFit) -> Generator[list[Ask], Replies, tuple[Estimates, Cutting, Matrix | None]]:
    """Take the plan's Newton steps from the end of the rounds, or without noise all that convergence takes.

    The last of what is returned is the covariance of the noise that is left in the coefficients for predictions.
    """
    design, exact = fit.design, fit.design.schedule.exact
    cutting = Cutting(fit)
    size = math.inf
    yield from cutting.before()
    for index in range(design.schedule.steps):
        total = yield from fit.total(SCORE, fit.at(fit.start), index)
        score, noise = design.long.gradient_of(total)
        score, noise = fit.shape.received(score) * fit.units[0], noise * fit.units[0]
        total = yield from fit.total(INFORMATION, fit.at(fit.start), index)
        released = (number * fit.units[1] ** power for power, number in enumerate(design.long.information_of(total), 1))
        gram, variance = fit.shape.information(*released)
        score = score - fit.penalty * fit.start
        known = fit.shape.known(gram, variance, fit.penalty, fit.still, noise)
        move = known.inverse @ score
        if exact:
            move *= min(1.0, _LONGEST_STEP / max(float(np.linalg.norm(move)), 1e-300))
        if exact or index < design.schedule.steps - 1:
            fit.start = fit.start + move
        before, size = size, float(np.abs(move).max()) / (1 + float(np.abs(fit.start).max()))
        if exact and (
            size <= CONVERGED or before / 2 <= size <= ROUNDED
        ):  # no longer shorter: the grid of the rows is all that is left
            again = yield from cutting.converged()
            if not again:
                break
    longer = 0.0
    if not exact and design.family.multiplies and design.layout.intercept:
        ratio, known, move = _at_new_level(fit, gram, variance, score, move, noise)
        longer = (math.log(ratio) - (ratio - 1) / ratio) / CONSTANT
        move[-1] += longer
        cutting.moved(ratio)
    estimate = fit.start if exact else fit.start + move
    meat: tuple[Matrix, Matrix] | None = None
    if MEAT in design.totals:
        total = yield from fit.total(MEAT, fit.at(fit.start))
        squares, variances = design.long.meat_of_pulls(total)
        meat = squares * fit.units[0] ** 2, variances * fit.units[0] ** 4
    noises = np.full(score.size, noise**2)
    tail = (0.0, 0.0) if cutting.clipping is None else cutting.clipping.tail
    found, left = _step(fit, estimate, known, noises, cutting.own, tail, meat), None
    if not exact:
        # For predictions: as far along as the noise of the step allows, beside that of the rounds (THEORY.md, section 3).
        weighted = noisy_gram.psd_part(known.information)
        met = fit.shape.met(move, known.variance, noises)
        moved, left = _believed_move(weighted, fit.shape.believed(fit.spread), met, score)
        fit.start = fit.start + moved
        if design.layout.intercept:
            fit.start[-1] += tail[0] / CONSTANT + longer
            left[-1, -1] += (tail[1] / CONSTANT) ** 2
    return found, cutting, left


def _believed_move(weighted: Matrix, variances: Row | float, met: Matrix, score: Row) -> tuple[Row, Matrix]:
    """Return the posterior mean of the way from where the rounds ended to the optimum, and its covariance.

    ``variances`` are those that the noise of the rounds leaves. Rounds may also have ended before they settled. So the variances times each of
    ``_FARTHER`` have a prior weight, half of it at 1, and the score weighs them.
    """
    believed = weighted * variances
    logs, means, spreads = [], [], []
    for farther in _FARTHER:
        root = np.linalg.cholesky(farther * believed @ weighted + met)
        whitened = solve_triangular(root, score, lower=True)
        gain = solve_triangular(root, farther * believed, lower=True)
        logs.append(-0.5 * float(whitened @ whitened) - float(np.log(root.diagonal()).sum()))
        means.append(farther * believed.T @ solve_triangular(root.T, whitened))
        spreads.append(np.diag(farther * np.broadcast_to(variances, score.shape)) - gain.T @ gain)
    others = len(_FARTHER) - 1
    evidence = np.array(logs) + np.log([0.5, *[0.5 / max(others, 1)] * others])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    mean = np.average(means, axis=0, weights=weights)
    off = np.array(means) - mean
    return mean, np.einsum("i,ijk->jk", weights, spreads) + (off.T * weights) @ off


def _at_new_level(
    fit: GlmFit, gram: Matrix, variance: Matrix, score: Row, move: Row, noise: float
) -> tuple[float, Curvature, Row]:
    """Return the ratio of all means after the step to those before it, and the curvature and the step that follow.

    Rounds that cut pulls end at too small means. With a log link a step e^d - 1 of the constant is one of d, and second derivatives at the new means
    are e^d times the released ones: the step that follows from these is (e^d - 1) / e^d.
    """
    ratio = min(max(1 + float(move[-1]) * CONSTANT, 0.5), 2.0)
    known = fit.shape.known(gram * ratio, variance * ratio**2, fit.penalty, fit.still, noise)
    return ratio, known, np.asarray(known.inverse @ score)


def _step(
    fit: GlmFit,
    estimate: Row,
    known: Curvature,
    noises: Row,
    dispersion: float,
    tail: tuple[float, float],
    meat: tuple[Matrix, Matrix] | None,
) -> Estimates:
    """Return the estimates in the data's own units, and their covariance: sampling, noise of the score, and what the Hessian's noise met (Theorem G.5).

    ``tail`` is what is added to the linear predictor for residuals beyond their bound, and its deviation.
    """
    back, inverse = fit.back, known.inverse
    scores = dispersion * (known.information - np.diag(fit.penalty))
    if meat is not None:
        scores = drawn_to_model(*meat, noisy_gram.psd_part(scores))
    sampling = inverse @ scores @ inverse
    met = inverse @ fit.shape.met(estimate - fit.start, known.variance, noises) @ inverse
    if tail[1]:
        estimate = estimate.copy()
        estimate[-1] += tail[0] / CONSTANT
        met[-1, -1] += (tail[1] / CONSTANT) ** 2
    own, alone = back @ estimate, back @ sampling @ back.T
    covariance = alone + back @ met @ back.T
    lost = np.zeros((own.size, known.lost.size))
    lost[known.lost, np.arange(known.lost.size)] = 1.0
    still = np.column_stack([fit.shape.own_still, lost])
    return Estimates.of(
        fit.shape.names, own, covariance, alone, back @ known.left, known.unknown, still, fit.shape.are_slopes
    )


def _result(
    fit: GlmFit,
    newton: Estimates | None,
    own: Row | None = None,
    *,
    dispersion: float = 1.0,
    clipping: Clipping | None = None,
    lines: tuple[tuple[float, float], ...] = (),
    drawing: Drawing | None = None,
) -> GlmResult:
    """Return the result; ``own`` are coefficients in the data's own units, or None: those that the fit ended with."""
    design = fit.design
    names, level = design.layout.names, design.parameters.level
    shape, p = fit.shape, len(names)
    if own is None:
        own = fit.back @ fit.start
        if not design.layout.intercept:
            own = np.column_stack([own.reshape(-1, p), np.zeros(own.size // p)]).ravel()
    told: dict[str, tuple[float | None, float | None, bool]] = {}
    if newton is not None:  # of coefficients that have a value of their own
        found = wald_lines(newton.names, *newton.own, level)
        sure = newton.determined(np.eye(len(found))).tolist()
        told = {
            t.term: (finite(t.conf_low), finite(t.conf_high), True) for t, tells in zip(found, sure, strict=True) if tells
        }
    labels = shape.labels if isinstance(shape, Contrasts) else ("",)
    hazards = isinstance(shape, Intervals)
    table = own[None, :] if hazards else own.reshape(len(labels), p + 1)
    coefficients = tuple(
        GlmCoefficient(term, value, *told.get(term, (None, None, False)))
        for label, values in zip(labels, table[:, :p].tolist(), strict=True)
        for term, value in zip(class_terms([label], names) if label else names, values, strict=True)
    )
    several = isinstance(shape, Contrasts)
    return GlmResult(
        design.family.name,
        coefficients,
        0.0 if several or hazards else float(own[-1]),
        level,
        fit.participants,
        fit.rows,
        str(design.schedule.method),
        dispersion,
        newton,
        clipping,
        labels if several else (),
        tuple(table[:, -1].tolist()) if several else (),
        tuple(own[p:].tolist()) if hazards else (),
        shape.table if isinstance(shape, Intervals) else None,
        lines,
        None if drawing is None else drawing.drawn,
    )
