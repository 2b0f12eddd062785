"""Partialling out, at the coordinator: what covariates say of treatment and outcome, the score sums, and the effect with its standard error (THEORY.md, section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.linear.schedule import clip_of_focus
from unpooled.linear.standard import CONSTANT, SCALES
from unpooled.models.effects.partial import RELATIONS, RESIDUALS, SCORES
from unpooled.models.effects.result import EffectNumber, EffectResult, drawn_effect
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.linear.standard import Standard
    from unpooled.models.effects.partial import PartialRows, Scored
    from unpooled.models.effects.plan import EffectDesign
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies
    from unpooled.totals.rounds import Rounds
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]

_TUNED = table("effects")
#: The variance of an effect before data, in deviations of the outcome for a deviation of the treatment.
_PRIOR = 0.25


# --- What covariates say ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Relations:
    """Released second moments in coordinates in which columns without relations have the second moments 1 and 0.

    Means over rows: of the covariates (``gram``, with the variances of its noise) and of their products with treatment and outcome, whose noise
    has these covariances. ``map`` leads from the coordinates to standardised columns, the constant last.
    """

    map: Floats
    gram: Floats
    variance: Floats
    with_treatment: Floats
    with_outcome: Floats
    treatment_noise: Floats
    outcome_noise: Floats
    #: The mean square of the treatment, its mean product with the outcome, and the variance of the noise in that.
    treatment: float
    product: float
    product_noise: float

    @classmethod
    def of(
        cls, rows: PartialRows, standard: Standard, released: tuple[Floats, Floats], inside: float, counted: int
    ) -> Relations:
        """Return them of released (moments of rows and outcomes, variances of the noise); ``inside``: the share of an outcome's slope that its clip leaves."""
        (gram, variance), d, places = released, rows.layout.size, rows.places
        weight = float(np.clip(gram[d - 1, d - 1] / CONSTANT**2, counted / 4, counted))  # of shortened rows
        unit = np.ones(places.size)
        unit[-1] = 1 / CONSTANT
        own = np.ix_(places, places)
        moments, noise = gram[own] * np.outer(unit, unit) / weight, variance[own] * np.outer(unit, unit) ** 2 / weight**2
        back, part = _coordinates(rows, standard), float(rows.parts[rows.at])
        off = noise - np.diag(noise.diagonal())
        squares = back**2
        both = squares.T @ off @ squares + _crossed(back, off) + squares.T @ (squares * noise.diagonal()[:, None])
        crosses, noises = [], []
        for column, share in ((rows.at, part), (d, inside)):
            crosses.append(back.T @ (gram[places, column] * unit) / weight / share)
            own_noise = variance[places, column] * unit**2 / (weight * share) ** 2
            noises.append(back.T @ (back * own_noise[:, None]))
        at, share = rows.at, weight * inside
        own_moments = gram[at, at] / weight / part**2, gram[at, d] / share / part, variance[at, d] / (share * part) ** 2
        return cls(unit[:, None] * back, back.T @ moments @ back, both, *crosses, *noises, *map(float, own_moments))

    @cached_property
    def believed(self) -> tuple[Floats, Floats]:
        """Return the second moments as far as their noise lets them be believed, and the variances of what is then unknown of each."""
        found, noise = self.gram - np.eye(len(self.gram)), self.variance
        diagonal = np.eye(len(found), dtype=bool)
        size = np.where(diagonal, *(_excess(found[part], noise[part]) for part in (diagonal, ~diagonal)))
        kept = np.divide(size, size + noise, out=np.ones_like(noise), where=noise > 0)
        values, vectors = np.linalg.eigh(np.eye(len(found)) + kept * found)
        return (vectors * np.maximum(values, 0.0)) @ vectors.T, np.where(noise > 0, kept * noise, 0.0)

    @cached_property
    def inverse(self) -> Floats:
        """Return the matrix P that makes the mean square of 1 - P G the smallest, given what is known of G: its inverse, where that is all."""
        known, open_ = self.believed
        square = known @ known + np.diag(open_.sum(axis=1))
        return np.asarray(known @ np.linalg.pinv(square, rcond=1e-12, hermitian=True))

    @cached_property
    def slopes(self) -> tuple[Floats, Floats]:
        """Return the coefficients of the treatment and of the outcome, in coordinates."""
        return self.inverse @ self.with_treatment, self.inverse @ self.with_outcome

    @cached_property
    def noises(self) -> tuple[Floats, Floats]:
        """Return the covariances of the noise in them."""
        p = self.inverse
        return p @ self.treatment_noise @ p.T, p @ self.outcome_noise @ p.T

    def taken(self) -> float:
        """Return the effect that these moments suggest, drawn to 0 by their noise: residuals are clipped about it, and it is added again."""
        (own, _), (noise, other) = self.slopes, self.noises
        gram = self.believed[0]
        varies = self.treatment - 2 * own @ self.with_treatment + own @ gram @ own - np.trace(gram @ noise)
        varies = max(float(varies), _TUNED.partial_open)
        found = (self.product - float(own @ self.with_outcome)) / varies
        doubt = (self.product_noise + _traced(gram, noise, other) + float(own @ self.outcome_noise @ own)) / varies**2
        return float(np.clip(found * _PRIOR / (_PRIOR + doubt), -1.0, 1.0))

    def lacks(self, matrix: Floats) -> Floats:
        """Return the mean of (1 - P G)' M (1 - P G): how a form of what coefficients lack follows from the coefficients."""
        known, open_ = self.believed
        own = np.eye(len(known)) - self.inverse @ known
        spread = self.inverse.T @ matrix @ self.inverse
        return np.asarray(own.T @ matrix @ own + np.diag(open_ @ spread.diagonal()))

    @cached_property
    def left(self) -> Floats:
        """Return the mean of (1 - P G)' G (1 - P G): how what both coefficients lack enters as a product."""
        return self.lacks(self.believed[0])

    def crossed(self, value: float) -> float:
        """Return the variance of the noise of either coefficient times what the other one lacks, a mean over rows, at this effect."""
        (own, other), (noise, others), known = self.slopes, self.noises, self.believed[0]
        rest, both = other - value * own, others + value**2 * noise
        pairs = ((own, noise, both), (rest, both, noise))
        forms = ((slopes, error, self.lacks(known @ noisy @ known)) for slopes, error, noisy in pairs)
        # Squares of slopes hold their noise, which is no lack.
        return sum(max(float(slopes @ form @ slopes - np.trace(form @ error)), 0.0) for slopes, error, form in forms)

    def lacking(self, value: float) -> float:
        """Return the mean product of what the coefficients of treatment and outcome lack, at this effect: what confounds still, where G is noisy."""
        (own, other), noise = self.slopes, self.noises[0]
        # The noise of both coefficients is independent, and that of the treatment meets itself.
        return float(own @ self.left @ (other - value * own) + value * np.trace(self.left @ noise))


def _excess(found: Floats, noise: Floats) -> float:
    """Return the mean square of numbers beyond that of their noise."""
    return max(float(np.mean(np.square(found) - noise)), 0.0) if found.size else 0.0


def _crossed(back: Floats, off: Floats) -> Floats:
    """Return what the symmetry of the noise adds to the variance of each entry of back' N back."""
    size = back.shape[1]
    pairs = back[:, :, None] * back[:, None, :]
    flat = pairs.reshape(len(back), -1)
    return np.asarray(((flat.T @ off) * flat.T).sum(axis=1).reshape(size, size))


def _coordinates(rows: PartialRows, standard: Standard) -> Floats:
    """Return coordinates of the covariates of a request and a constant of 1: without what no row varies along, levels of one column unrelated."""
    layout, places = rows.covariates, rows.places
    parts = rows.parts[places[:-1]]
    middle, width = standard.middle[places[:-1]], standard.width[places[:-1]] / parts
    # Coefficients of levels and the constant, in standardised columns: a column is its mean plus its deviation times the standardised one.
    still = layout.still.copy()
    still[-1] += middle @ still[:-1]
    still[:-1] *= width[:, None]
    whole, _ = np.linalg.qr(np.column_stack([still, np.eye(places.size)]))
    free = whole[:, still.shape[1] :] if still.size else np.eye(places.size)
    alike = np.eye(places.size)
    attribute = np.array(layout.coding.attribute)
    for k, column in enumerate(layout.features):
        levels = np.flatnonzero(attribute == k)
        if column.categories is None:
            continue
        part = np.clip(middle[levels], 1e-6, 1 - 1e-6)
        odds = np.sqrt(part / (1 - part))
        known = -np.outer(odds, odds)
        np.fill_diagonal(known, 1.0)
        alike[np.ix_(levels, levels)] = known * np.outer(parts[levels], parts[levels])
    values, vectors = np.linalg.eigh(free.T @ alike @ free)
    return np.asarray(free @ (vectors / np.sqrt(np.maximum(values, _TUNED.partial_least))))


# --- The conversation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Residuals:
    """The rows of the last sums: coefficients of what is left of treatment and outcome, their bounds, and the effect that was taken out."""

    coefficients: Floats
    farthest: float
    clip: float
    inside: float
    taken: float


def partialled(rounds: Rounds[EffectDesign]) -> Generator[list[Ask], Replies, EffectResult]:
    """Ask for means, relations, cells and scores; return the effect of partialling out."""
    design, plan = rounds.design, rounds.plan
    rows = design.partial_rows
    total = yield from rounds.total(SCALES)
    standard = rows.scales.decode(total, rounds.rows)
    sent = rows.sent(standard).settings
    widest = 2 / float(standard.width[-1])  # no outcome is farther from their mean
    noise = rows.standard.noise_of_products(design.totals[RELATIONS].deviations(plan)) / rounds.rows / rows.opens
    clip = min(clip_of_focus(noise), widest)
    total = yield from rounds.total(RELATIONS, (*sent, float(clip)))
    moments = rows.standard.products_of(total, clip)
    relations = Relations.of(rows, standard, moments, _inside(clip, widest), rounds.rows)
    taken = relations.taken()
    start = _start(rows, relations, taken)
    total = yield from rounds.total(RESIDUALS, (*sent, *start.ravel().tolist()))
    found = _residuals(rounds, standard, relations, taken, start, total)
    settings = (*sent, *found.coefficients.ravel().tolist(), float(found.farthest), float(found.clip))
    total = yield from rounds.total(SCORES, settings)
    number, why = _effect(rounds, standard, relations, found, rows.scores.decode(total))
    if rounds.next_to_none:
        number, why = None, rounds.next_to_none
    p = design.declared.parameters
    return EffectResult(
        p.estimand,
        p.estimator,
        design.declared.arms,
        p.confidence,
        rounds.participants,
        rounds.rows,
        number,
        why,
        drawn=drawn_effect(design.declared, number),
    )


def _inside(clip: float, widest: float) -> float:
    """Return the share of a slope that a clip of this many deviations leaves, of normal residuals."""
    return 1.0 if clip >= widest else math.erf(clip / math.sqrt(2))


def _start(rows: PartialRows, relations: Relations, taken: float) -> Floats:
    """Return the coefficients of what is left of the treatment, and of the outcome without this effect of it; a row each."""
    found = np.zeros((2, rows.layout.size))
    found[0, rows.at] = 1 / rows.parts[rows.at]
    found[0, rows.places] = -(relations.map @ relations.slopes[0])
    found[1, rows.places] = relations.map @ relations.slopes[1]
    found[1] += taken * found[0]
    return found


def _residuals(
    rounds: Rounds[EffectDesign], standard: Standard, relations: Relations, taken: float, start: Floats, cells: Total
) -> _Residuals:
    """Return the rows of the last sums."""
    design = rounds.design
    rows = design.partial_rows
    middle, width = float(standard.middle[rows.at]), float(standard.width[rows.at])
    varies = float(relations.slopes[0] @ relations.believed[0] @ relations.slopes[0])
    varies += float(np.trace(relations.believed[0] @ relations.noises[0]))
    farthest = max(middle, 1 - middle) / width + _TUNED.partial_farthest * math.sqrt(max(varies, 0.0))
    deviation = design.totals[SCORES].deviations(rounds.plan)[0] / rows.scores.grid / rounds.rows
    whole = 2 / float(standard.width[-1])
    if not deviation:  # without noise nothing need be cut
        far = max(middle, 1 - middle) / width + 8 * math.sqrt(max(varies, 0.0))
        return _Residuals(start, far, 2 * whole, 1.0, taken)
    offset, spread, _ = rows.cells.decode(cells, rounds.rows)
    clip = min(clip_of_focus(deviation * farthest) * spread, whole)
    coefficients = start.copy()
    coefficients[1, -1] += _middle(rows.cells.cuts, cells.values, offset, clip) / CONSTANT
    return _Residuals(coefficients, farthest, clip, _inside(clip / spread, whole / spread), taken)


def _middle(cuts: tuple[float, ...], counts: Floats, offset: float, clip: float) -> float:
    """Return about which number residuals that are cut have the mean 0, as their cells say: an error in what is left of treatments then moves no score.

    ``offset`` is their mean, from which this number is looked for within a clip.
    """
    edges = np.array([0.0, *cuts])
    far = np.append((edges[1:-1] + edges[2:]) / 2, edges[-1] * 1.2)
    middles = np.concatenate([-far[::-1], [0.0], far])
    tried = offset + clip * np.linspace(-0.5, 0.5, 201)
    sums = np.clip(middles - tried[:, None], -clip, clip) @ counts
    return float(tried[np.argmin(np.abs(sums))])


def _effect(
    rounds: Rounds[EffectDesign], standard: Standard, relations: Relations, rows: _Residuals, sums: Scored
) -> tuple[EffectNumber | None, str]:
    """Return the effect in the outcome's own units with the noise taken out (Theorem E.5), or why there is none."""
    n, (own, other), gram = rounds.rows, relations.noises, relations.believed[0]
    unit = rows.farthest * rows.clip / rows.inside
    squares = rows.farthest**2 * sums.treatment
    varies = squares - n * float(np.trace(gram @ own))
    doubt = math.hypot(rows.farthest**2 * sums.treatment_noise, n * math.sqrt(2 * _traced(gram, own, own)))
    share = float(standard.middle[rounds.design.partial_rows.at])
    if n * min(share, 1 - share) < _TUNED.fewest:
        return None, "not identified: hardly anybody is in one of the arms, or the noise hides them"
    if varies < max(_TUNED.partial_surely * doubt, _TUNED.partial_fewest * n):
        return None, "not identified: the noise hides what the covariates leave of the treatment"
    value = (unit * sums.score + rows.taken * squares) / varies
    lacking = n * relations.lacking(value) / varies
    value -= lacking
    sampling = unit**2 * max(sums.square, sums.square_noise) / varies**2
    privacy = (unit * sums.score_noise / varies) ** 2
    privacy += ((value - rows.taken) * rows.farthest**2 * sums.treatment_noise / varies) ** 2
    privacy += n**2 * (_traced(gram, own, other) + 2 * value**2 * _traced(gram, own, own)) / varies**2
    privacy += lacking**2 + n**2 * (_traced(relations.left, own, other) + relations.crossed(value)) / varies**2
    outcome, treatment = float(standard.width[-1]), float(standard.width[rounds.design.partial_rows.at])
    scale = rounds.design.outcome.response.half_width * outcome / treatment
    numbers = scale * value, scale * math.sqrt(sampling + privacy), scale * math.sqrt(privacy)
    return EffectNumber("effect", *map(float, numbers)), ""


def _traced(gram: Floats, one: Floats, other: Floats) -> float:
    """Return tr(G C_1 G C_2)."""
    return float(np.sum((gram @ one) * (gram @ other).T))
