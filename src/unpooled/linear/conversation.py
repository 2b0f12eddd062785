"""The conversations of a linear regression by rounds: over standardised rows, with a small budget by directions, and of several responses at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.inference.coordinates import Clipping
from unpooled.inference.priors import (
    DrawnTo,
    Told,
    directions,
    drawn_to,
    in_coordinates,
    named,
    rows_of,
    weighed,
)
from unpooled.inference.sites import known_moments, longer_sites
from unpooled.linear.descent import (
    LENGTH_STEP,
    UNCOUNTED,
    LineRounds,
    believed,
    descent,
    frame_of,
    from_moments,
    learnt_length,
    steep_of,
    unit_of,
    way_of,
    with_length,
    without_errors,
)
from unpooled.linear.fit import plain
from unpooled.linear.lines import BASE, LENGTH
from unpooled.linear.moments import Moments
from unpooled.linear.residuals import CELLS, MEAT
from unpooled.linear.schedule import LENGTH_ROUNDS, Method, clip_of
from unpooled.linear.standard import CAP, CONSTANT, RESIDUAL, SCALES, SPREAD, Scales, Standard
from unpooled.schedules import table
from unpooled.totals.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.inference.coordinates import Coordinates
    from unpooled.inference.priors import EarlierModel, Weighed
    from unpooled.linear.design import LinearDesign
    from unpooled.linear.fit import LinearFit
    from unpooled.linear.layout import MomentsLayout
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies

    Row = NDArray[np.float64]


# --- Known sites -----------------------------------------------------------------------------------------------------------
# Released moments whose sites have constants of their own, with what is known of the sites beforehand.


def with_known_sites(moments: Moments, *, alike: bool) -> Moments:
    """Return the moments with what is known of the sites, in coordinates in which a site's constant is as long as the constant of all rows.

    ``alike``: rows count alike but for those that were shortened. Moments of sites that share a constant are returned as they are.
    """
    layout, frame = moments.layout, moments.frame
    if layout.sites is None:
        return moments
    places, parts, d = layout.at_sites, layout.sites.parts, layout.size
    lengths = 1 / float(frame.widths[places[0]]), 1 / float(frame.widths[-1])
    gram, variance = moments.gram.copy(), moments.variance.copy()
    gram[:d, :d], variance[:d, :d] = known_moments(*moments.xx, places, parts, lengths, alike=alike)
    longer = longer_sites(d + 1, places, parts)
    both = np.outer(longer, longer)
    meat = None if moments.meat is None else (moments.meat[0] * both[:d, :d], moments.meat[1] * both[:d, :d] ** 2)
    standard = replace(frame, widths=frame.widths / longer[:d], start=frame.start / longer[:d])
    return replace(moments, gram=gram * both, variance=variance * both**2, standard=standard, meat=meat)


# --- Linear study ----------------------------------------------------------------------------------------------------------
# The conversation of a linear regression by rounds over standardised rows. All of it is post-processing of noisy totals.

#: The variance of a response of which nothing was released, and of its noise.
_NOTHING = (math.nan, math.nan)


@dataclass(frozen=True)
class LinearStudy:
    """The coefficients, the standardised coordinates they were found in, and the released moments where the method has some."""

    fit: LinearFit
    frame: Coordinates
    moments: Moments | None = None
    #: How earlier models drew it; None without any.
    drawn: DrawnTo | None = None


def standardised(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, LinearStudy]:
    """Means and deviations; gradients; what they leave."""
    design: LinearDesign = rounds.design
    rows = design.standard
    total = yield from rounds.total(SCALES)
    standard = design.scales.decode(total, rounds.rows)
    if design.models and design.schedule.method is Method.GRADIENT:
        return (yield from _drawn(rounds, standard))
    start, least = yield from (descent(rounds, standard) if design.schedule.rounds else from_moments(rounds, standard))
    if design.schedule.method is Method.GRADIENT:
        return (yield from _believed(rounds, standard, start, least))
    settings = (*standard.settings, *start.tolist())
    total = yield from rounds.total(SPREAD, settings)
    squares, noise = rows.square_of(total)
    plan = rounds.plan
    # For rows of typical length: what longer ones cost is the stretch's.
    farthest = rows.noise_of_products(design.totals[RESIDUAL].deviations(plan)) / rounds.rows / rows.stretch
    spread = math.sqrt(max(squares, noise) / rounds.rows)
    whole = 2 / float(standard.width[-1])  # the declared range: a fit that stays inside it leaves no more
    clip = min(clip_of(farthest) * spread, whole) if spread else whole
    clipping, inside = yield from _cut_off(rounds, standard, settings, spread or whole, clip)
    clip = clipping.clip * (spread or whole)
    total = yield from rounds.total(RESIDUAL, (*settings, clip))
    gram, variance = rows.products_of(total, clip)
    # Of what coefficients add to residuals a clip leaves the share that it does not cut.
    for part, power in ((gram, 1), (variance, 2)):
        part[:-1, -1] /= inside**power
        part[-1, :-1] = part[:-1, -1]
    meat = None
    if MEAT in design.totals:
        total = yield from rounds.total(MEAT, (*settings, clip))
        scores, noises = rows.meat_of(total, clip)
        meat = scores / inside**2, noises / inside**4
    if design.layout.intercept:
        start = start.copy()
        start[-1] += clipping.tail[0] / CONSTANT
    frame = replace(frame_of(design, standard, start, (squares, noise**2), least, rounds.weight), clipping=clipping)
    promise = plan.statement
    released = Moments(
        design.layout.present(rounds.participants),
        rounds.rows,
        gram,
        variance,
        plan.hash,
        str(promise),
        frame,
        promise.holds,
    )
    released = replace(released, covariance=design.covariance, meat=meat)
    moments = with_known_sites(released, alike=design.weighting is None and not rounds.gaps)
    return LinearStudy(plain(moments.posterior()), frame, moments)


def _believed(
    rounds: Rounds[Any], standard: Standard, start: Row, least: float
) -> Generator[list[Ask], Replies, LinearStudy]:
    """Return coefficients that rounds found with this noise of each: as long as that, and where the plan has them rounds along them, make likely."""
    design: LinearDesign = rounds.design
    if not least:
        found = start
    elif design.schedule.length:
        found = yield from with_length(rounds, standard, start, least)
    else:
        found = believed(design, standard, start, least, rounds.rows)
    return study_of_gradients(design, standard, found, least)


def study_of_gradients(design: LinearDesign, standard: Standard, found: Row, least: float) -> LinearStudy:
    """Return the study of coefficients that rounds found, of which nothing more was released."""
    frame = frame_of(design, standard, found, _NOTHING, least)
    return LinearStudy(without_errors(design, frame), frame)


def _drawn(rounds: Rounds[Any], standard: Standard) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds that begin in the middle of all earlier models and none, and what they found drawn to these."""
    design: LinearDesign = rounds.design
    one = design.layout.intercept
    frame = frame_of(design, standard, np.zeros(design.layout.size), _NOTHING, 0.0)
    there = in_coordinates(rows_of(design.models, design.layout.names, intercept=one), frame, intercept=one)
    begin = there.sum(axis=0) / (1 + len(there))
    found, least = yield from descent(rounds, standard, begin)
    way, noise = way_of(design, least)
    still = np.asarray(np.linalg.solve(frame.back(intercept=one), design.layout.still), dtype=np.float64)
    told = Told.of(begin + (found - begin) / way, np.eye(found.size) * max(noise, 1e-9) ** 2, still)
    mean, _, weights, deviations = drawn_to(told, there, np.arange(found.size) < found.size - one)
    frame = replace(frame, start=mean, least=max(least, 1e-12))
    drawn = DrawnTo(named(design.models, weights, deviations), ())
    return LinearStudy(without_errors(design, frame), frame, drawn=drawn)


def _cut_off(
    rounds: Rounds[Any], standard: Standard, settings: tuple[float, ...], spread: float, clip: float
) -> Generator[list[Ask], Replies, tuple[Clipping, float]]:
    """Ask for the histogram of residuals; return what the last round cuts off and the mean that its clip takes away, and the share of residuals inside."""
    design: LinearDesign = rounds.design
    rows = design.standard
    total = yield from rounds.total(CELLS, (*settings, spread))
    counts = rows.cells.decode(total, rounds.rows)
    clip = min(clip, counts.end() * spread)
    middle, width = float(standard.middle[-1]), float(standard.width[-1]) * spread
    tail, (inside, variance) = (0.0, 0.0), counts.uncut(clip / spread)
    if design.layout.intercept and design.weighting is None:  # of rows that count alike
        ends = (1 - middle) / width, (1 + middle) / width
        mean, deviation = counts.missing_mean(clip / spread, ends)
        tail = mean * spread / inside, deviation * spread / inside
    return Clipping(counts.shortened, counts.beyond(clip / spread), rows.stretch, clip / spread, tail, variance), inside


# --- Linear direction ------------------------------------------------------------------------------------------------------
# The conversation of a linear regression with a small budget: the mean, the direction of the slopes, and how long they are.
#
# All of it is post-processing of noisy totals. A direction that is noise has the length 0, and what is left is the mean (THEORY.md of ``bayes``, section 9).

_TUNED = table("directions")


def declared_standard(layout: MomentsLayout) -> Standard:
    """Return the standard of all columns, nothing released: of numbers as of the response, of levels as if all were alike frequent.

    Of rows with a bound on their length all columns are believed alike.
    """
    coding, scales = layout.coding, Scales(layout)
    middle, width = np.zeros(scales.count + 1), np.full(scales.count + 1, 1 / CAP)
    if layout.norm is not None:
        width[:-1] = _TUNED.within / math.sqrt(scales.count)
    for at in scales.marks:
        levels = layout.features[coding.attribute[at]].categories
        middle[at] = _TUNED.rare if levels is None else 1 / max(len(levels), 2)
        width[at] = math.sqrt(middle[at] * (1 - middle[at]))
    return Standard(middle, width, math.inf, (math.nan, math.nan))


@dataclass(frozen=True)
class _Known:
    """The models that a fit is drawn to, along orthonormal directions that span them; no directions where there are no models."""

    #: The directions of slopes, the lengths of every model along them, and the constants of the models, in coordinates.
    along: Row
    lengths: Row
    constants: Row
    models: tuple[EarlierModel, ...] = ()

    @property
    def middle(self) -> Row:
        """Return (lengths, constant) before any data: those of all models and of none, weighted alike."""
        weights = np.full(len(self.models), 1 / (1 + len(self.models)))
        return np.append(weights @ self.lengths, weights @ self.constants)

    @classmethod
    def of(cls, design: LinearDesign, standard: Standard) -> _Known:
        """Return the models of a design."""
        models, layout = design.models, design.layout
        slopes = layout.size - 1
        if not models:
            return cls(np.empty((0, slopes)), np.empty((0, 0)), np.empty(0))
        own = rows_of(models, layout.names, intercept=True)
        frame = frame_of(design, standard, np.zeros(layout.size), (math.nan, math.nan), 0.0)
        there = in_coordinates(own, frame, intercept=True)
        along = directions(there[:, :-1])
        return cls(along, there[:, :-1] @ along.T, there[:, -1], models)

    def weighed(self, found: Row, error: float) -> Weighed:
        """Return what noisy (lengths, constant) say."""
        return weighed(found[:-1], error, found[-1] * CONSTANT, error / CONSTANT, self.lengths, self.constants * CONSTANT)

    def drawn(self, said: Weighed) -> DrawnTo:
        """Return the weights of the models as a result has them."""
        return DrawnTo(named(self.models, said.weights, said.deviations), ())


def directed(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds for the mean, for slopes and a constant about it, and for (length of these slopes, constant) along them.

    With earlier models the first rounds find their weights, too, the slopes begin there, and the last rounds correct the weights.
    """
    design: LinearDesign = rounds.design
    schedule, standard = design.schedule, declared_standard(design.layout)
    lines, nowhere = LineRounds(rounds, standard), np.zeros((1, design.layout.size - 1))
    known, count = _Known.of(design, standard), schedule.base_rounds
    if not known.models:
        (_, mean), _ = yield from lines.rows(BASE, nowhere, np.zeros(2), count, count // 2)
        found, noise = yield from descent(rounds, standard, np.append(nowhere[0], mean))
        return (yield from _with_length(rounds, standard, found, noise))
    begin = known.middle
    steep = steep_of(schedule.clips[0], len(known.along))
    back = _back(lines.noise_of(BASE) / math.sqrt(count - count // 2) / steep) * steep
    first, error = yield from lines.rows(BASE, known.along, begin, count, count // 2, back)
    first, error = first + back / steep / LENGTH_STEP * (first - begin), error / steep
    said = known.weighed(first, error)
    start = np.append(said.lengths @ known.along, said.constant / CONSTANT)
    if schedule.method is Method.WEIGHTS:
        return without_errors_at(design, standard, start, error, known.drawn(said))
    found, noise = yield from descent(rounds, standard, start)
    return (yield from _corrected(rounds, standard, known, (first, error, start), (found, noise)))


def _back(error: float) -> float:
    """Return the part of the way back to the start that a round goes, so that noise of this deviation does not wander off.

    It is that of the posterior mean where lengths are believed within ``believed`` (schedules/directions.toml) of the start, and never more than half of the way.
    """
    return min(LENGTH_STEP * (error / _TUNED.believed) ** 2, _TUNED.back_most)


def without_errors_at(
    design: LinearDesign, standard: Standard, found: Row, error: float, drawn: DrawnTo | None = None
) -> LinearStudy:
    """Return the study of these coefficients, without standard errors."""
    frame = frame_of(design, standard, found, (math.nan, math.nan), error)
    return LinearStudy(without_errors(design, frame), frame, drawn=drawn)


def _with_length(
    rounds: Rounds[Any], standard: Standard, found: Row, noise: float
) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds for (length, constant) along slopes that were found with this noise of each; a length that may be noise is shrunk towards 0."""
    design: LinearDesign = rounds.design
    direction = unit_of(found[:-1])
    lines, start = LineRounds(rounds, standard), np.array([0.0, found[-1]])
    (length, constant), error = yield from lines.rows(LENGTH, direction[None], start, LENGTH_ROUNDS, UNCOUNTED)
    shrunken = length * kept_part(length, error**2 + learnt_length(rounds, noise))
    return without_errors_at(design, standard, np.append(shrunken * direction, constant), error)


def _corrected(
    rounds: Rounds[Any],
    standard: Standard,
    known: _Known,
    before: tuple[Row, float, Row],
    found: tuple[Row, float],
) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds for the lengths along earlier models and along what was found to lack in them, and for the constant."""
    design: LinearDesign = rounds.design
    (first, first_error, start), (slopes, noise) = before, found
    lacking = slopes[:-1] - start[:-1]
    direction = unit_of(lacking - known.along.T @ (known.along @ lacking))
    along = np.vstack([known.along, direction])
    begin = np.concatenate([known.along @ start[:-1], [0.0], slopes[-1:]])
    last, error = yield from LineRounds(rounds, standard).rows(LENGTH, along, begin, LENGTH_ROUNDS, UNCOUNTED)
    length, own = float(last[-2]), np.append(last[:-2], last[-1])
    # Both rounds found the lengths along earlier models, each with noise of its own.
    flat = error / steep_of(design.schedule.clips[1], len(along))
    parts = 1 / np.square([max(first_error, 1e-9), max(flat, 1e-9)])
    said = known.weighed((parts[0] * first + parts[1] * own) / parts.sum(), float(parts.sum()) ** -0.5)
    shrunken = length * kept_part(length, error**2 + learnt_length(rounds, noise))
    whole = said.lengths @ known.along + shrunken * direction
    return without_errors_at(design, standard, np.append(whole, said.constant / CONSTANT), error, known.drawn(said))


def kept_part(length: float, variance: float) -> float:
    """Return the part of a length that is more than its noise: 0 where slopes would point away from the response."""
    if length <= 0:
        return 0.0
    return max(0.0, 1 - _TUNED.doubt * variance / length**2)


# --- Several study ---------------------------------------------------------------------------------------------------------
# Conversations of a regression of several responses, by rounds of gradients or by directions. All of it is post-processing of noisy totals.


def standardised_each(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, list[LinearStudy]]:
    """Ask for means, deviations and gradients; return the study of every response, its slopes as long as their own noise makes likely."""
    design = rounds.design
    total = yield from rounds.total(SCALES)
    each = design.scales.decode_each(total, rounds.rows)
    found, least = yield from descent(rounds, _together(each))
    studies = []
    for (layout, _), standard, start in zip(design.layout.singles(), each, found.reshape(len(each), -1), strict=True):
        own = replace(design, layout=layout)
        studies.append(study_of_gradients(own, standard, believed(own, standard, start, least, rounds.rows), least))
    return studies


def directed_each(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, list[LinearStudy]]:
    """Ask for means, for the directions of all responses, and for a length along each; return the study of every response.

    As of one response (:func:`~unpooled.linear.conversation.directed`), with every total that of all responses together.
    """
    design, count = rounds.design, rounds.design.schedule.base_rounds
    layouts = [layout for layout, _ in design.layout.singles()]
    each = [declared_standard(layout) for layout in layouts]
    standard = _together(each)
    lines, nowhere = LineRounds(rounds, standard), np.zeros((len(each), design.layout.size - 1))
    (means, _) = yield from lines.rows(BASE, nowhere, np.zeros(2 * len(each)), count, count // 2)
    found, noise = yield from descent(rounds, standard, np.column_stack([nowhere, means[1::2]]).ravel())
    slopes = found.reshape(len(each), -1)
    along = np.array([unit_of(one[:-1]) for one in slopes])
    begin = np.column_stack([nowhere[:, :1], slopes[:, -1]]).ravel()
    lengths, error = yield from lines.rows(LENGTH, along, begin, LENGTH_ROUNDS, UNCOUNTED)
    variance, studies = error**2 + learnt_length(rounds, noise), []
    for layout, own, direction, (length, constant) in zip(layouts, each, along, lengths.reshape(-1, 2), strict=True):
        coefficients = np.append(length * kept_part(length, variance) * direction, constant)
        studies.append(without_errors_at(replace(design, layout=layout), own, coefficients, error))
    return studies


def _together(each: list[Standard]) -> Standard:
    """Return the means and deviations of the columns, and after them those of all responses."""
    middle, width = (
        np.append(rows[0][:-1], [row[-1] for row in rows])
        for rows in ([one.middle for one in each], [one.width for one in each])
    )
    return Standard(middle, width, math.nan, (math.nan, math.nan))
