"""Which form a study takes, and with how many rounds of which size: decided before data, from the noise per row and the columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from unpooled.linear.standard import CONSTANT, LARGEST_SQUARE

# --- Affordable ------------------------------------------------------------------------------------------------------------
# The length to which rows are left, from what the noise of a round affords: one rule for regression and for generalised linear models.

#: The noise of the last round over the sampling error up to which rows are left longer: standard errors are then 12 % larger (THEORY.md of
#: ``models/bayes``, section 9).
AFFORDED = 0.5
#: Beyond this many typical rows few rows are left to shorten, and the noise counts for more.
_LONG = 4.0
#: Where rows of this many typical ones are affordable, the last round gets most of the budget.
AMPLE = 16.0


def opened(afforded: float) -> float:
    """Return the bound on rows in lengths of a typical row, at least 1: what is afforded, and beyond 4 lengths only its fourth root more."""
    if afforded <= _LONG:
        return max(afforded, 1.0)
    return float(_LONG * (afforded / _LONG) ** 0.25)


# --- Linear rounds ---------------------------------------------------------------------------------------------------------
# Which form a study takes, and with how many rounds of which size: decided before data, from the noise per row and the columns.
#
# Everything here follows from k = n mu / D: rows times the root of the privacy budget in mu (less what distributed noise costs), per
# coefficient. The numbers were fixed by simulating declared shapes (columns independent, with one common factor, skewed; ranges 3 to 8
# deviations; R^2 .2 to .95), never by the error on data (THEORY.md, section 9).


class Method(StrEnum):
    """Ways to spend the budget."""

    AUTO = "auto"
    #: One release of second moments inside the declared ranges, as in the paper.
    MOMENTS = "moments"
    #: Standardised rows, rounds of clipped gradients, and the second moments of what they leave: standard errors.
    REFINEMENT = "refinement"
    #: Standardised rows and rounds of clipped gradients alone: the smallest error of predictions, no standard errors.
    GRADIENT = "gradient"
    #: Rounds over all columns, and second moments of some of them with the residuals: standard errors of those alone.
    FOCUS = "focus"
    #: The mean, rounds for the direction of the slopes, and rounds for their length: small budgets, no standard errors.
    DIRECTION = "direction"
    #: The mean of the response alone, by rounds of residuals clipped to a small part of its range.
    MEAN = "mean"
    #: The mean of the response and the weights of earlier models alone: the smallest budgets, no standard errors.
    WEIGHTS = "weights"


#: Below so many k only the mean of the response is worth its budget; from so many on, standard errors cost next to nothing.
WORTH_SLOPES, WORTH_ERRORS = 3.0, 40.0
#: Below this k the direction of the slopes is learnt, and then their length.
WORTH_LENGTHS = 10.0
#: Rounds: more gain nothing, and where noise is small so many do (from this k on).
FEW, ROUNDS, MANY_FROM = 60, 100, 20.0
#: |r||z| of one record in a round: for each k and root of the columns, up to a clip that is the same for all numbers of columns.
_CLIP_PER_K, _CLIP, _SHORTEST, _QUIET = 0.015, 1.1, 0.04, 100.0
#: Of the mean alone: as many rounds; a half range of the response is so many units of |r||z|; a step of twice the gradient undoes a residual.
_MEAN_ROUNDS, _MEAN_UNIT, _MEAN_STEP = 30, 2.8, 2.0
#: Rounds of a direction: of the mean before it, of slopes, of the length after it.
BASE_ROUNDS, _DIRECTION_ROUNDS, LENGTH_ROUNDS = 10, 30, 8
#: Share of the squared budget for the length: of n mu this part, between two bounds; and of the mean before the direction, a part of that.
_LENGTH_STRENGTH, _LENGTH_LEAST, _LENGTH_MOST, _BASE_PART = 27.5, 0.25, 0.55, 0.2
#: Clips: of rounds of the mean alone, those before and after the direction take this part; slopes take this part of a typical row.
_BASE_CLIP, _LENGTH_CLIP, _DIRECTION_CLIP = 0.5, 0.9, 0.25
#: Steps of slopes, in parts of what undoes a residual on rows of independent columns.
_DIRECTION_STEP = 2.0
#: From this n mu on a direction costs less than it tells: than the mean alone, and below it than rounds of gradients, which begin at k = 3.
WORTH_DIRECTION, WORTH_FEW_SLOPES = 50.0, 30.0
#: With earlier models from this n mu on: below it their weights are all that can be learnt.
WORTH_MORE_THAN_WEIGHTS = 20.0
#: A squared residual counts as at least ``LARGEST_SQUARE``, and as more where the noise of their sum is small, for tails; up to 20 deviations.
_SQUARE_ROOT, _SQUARE_MOST = 1.3, 400.0
#: Fewer rounds than this do not arrive: one release is then better.
_FEWEST = 8
#: Rounds of gradients give this share to the length of their slopes and the constant, the second below ``WORTH_LENGTHS``; one slope needs none.
_GRADIENT_LENGTHS, _LEAST_SLOPES = (0.1, 0.2), 2
#: Residuals are clipped to so many of their deviations in the last round: normal ones rarely, however large the noise.
_CLIP_LEAST = 3.0
#: Of a focus, whose residuals are few and whose clip is all of its noise.
_CLIP_FOCUS = 1.5
#: A small study with a focus has few rounds of wide clips: the steps of many narrow ones wander farther than its coefficients are long.
_FOCUS_ROUNDS, _FOCUS_CLIP, _FOCUS_STEP = 12, 0.5, 0.4
#: And farther where the noise is small: what is cut off tails then costs about what the noise does.
_CLIP_ROOT = 0.5
#: The bound on rows is never more than this many typical ones: beyond it integers would become coarse.
_LONGEST_ROW = 64.0
#: Passes of a refinement in addition to its rounds.
_BESIDE = 4


#: From this k on, one release of second moments tells where coefficients begin as well as all rounds do.
WITHOUT_ROUNDS = 1000.0

#: Shares of the squared budget: of the mean of columns, gradients, residual variance, histogram, last round; of a focus, products of columns.
_SHARES = {
    Method.GRADIENT: {"scales": 0.15, "descent": 0.85},
    Method.REFINEMENT: {"scales": 0.1, "descent": 0.42, "spread": 0.06, "cells": 0.05, "products": 0.37},
    Method.FOCUS: {"scales": 0.1, "descent": 0.14, "cells": 0.04, "cross": 0.2, "products": 0.52},
}


#: The same of a refinement without rounds.
_QUIET_SHARES = {"scales": 0.1, "first": 0.12, "spread": 0.05, "cells": 0.04, "products": 0.69}


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rounds of a study."""

    method: Method
    #: Shares of the squared budget: means and deviations, gradients, residual variance, histogram of residuals, second moments, those of scores.
    scales: float = 0.0
    descent: float = 0.0
    spread: float = 0.0
    cells: float = 0.0
    products: float = 0.0
    meat: float = 0.0
    #: Of a focus: the products of focused columns with the others.
    cross: float = 0.0
    #: Second moments about which the last round begins, in the place of gradients.
    first: float = 0.0
    #: Of a direction: the mean before it, and the length after it; of gradients: the length after them. |r||z| in rounds of the mean.
    base: float = 0.0
    length: float = 0.0
    line: float = 0.0
    #: Directions that are known before any is learnt: those of earlier models.
    known: int = 0
    rounds: int = 0
    #: |r||z| of one record in a round, and the length of a step.
    longest: float = 1.0
    step: float = 1.0
    #: The largest squared residual, in variances of the response.
    square: float = LARGEST_SQUARE
    #: Whether means and deviations come from counts of values instead of sums.
    counted: bool = False

    @property
    def passes(self) -> int:
        """Return the number of times that every party's data are read."""
        return (
            sum(
                share > 0
                for share in (self.scales, self.first, self.spread, self.cells, self.products, self.meat, self.cross)
            )
            + self.rounds
            + BASE_ROUNDS * (self.base > 0 and self.length > 0)
            + LENGTH_ROUNDS * (self.length > 0)
        )

    @property
    def base_rounds(self) -> int:
        """Return the rounds of the mean: more where nothing follows them."""
        return BASE_ROUNDS if self.length else self.rounds

    @property
    def clips(self) -> tuple[float, float]:
        """Return |r||z| in the rounds before a direction and after it: longer rows, along more directions, are clipped to more."""
        longer = math.sqrt(1 + self.known)
        return _BASE_CLIP * self.line * longer, _LENGTH_CLIP * self.line * longer


def schedule_of(
    method: Method,
    k: float,
    coefficients: int,
    max_passes: int,
    meat: float = 0.0,
    *,
    known: int = 0,
    lengths: bool = False,
) -> Schedule:
    """Return the rounds of this method, or of the one that serves a study of this k best.

    ``meat``: the share that a sandwich covariance takes; ``known``: the directions of earlier models; ``lengths``: rounds of gradients may be followed
    by those of a length.
    """
    if method is Method.AUTO:
        method = _best(k, coefficients, max_passes)
        if known and k < WORTH_LENGTHS:  # of a few slopes rounds tell less than earlier models do
            method = Method.DIRECTION if k * coefficients >= WORTH_MORE_THAN_WEIGHTS else Method.WEIGHTS
    of_mean = _MEAN_UNIT * min(0.5, max(0.1, k * coefficients / 150))
    if method is Method.MEAN:
        rounds = min(_MEAN_ROUNDS, max_passes)
        return Schedule(method, descent=1.0, rounds=rounds, longest=of_mean, step=_MEAN_STEP)
    if method is Method.WEIGHTS:
        return Schedule(method, base=1.0, line=of_mean / _BASE_CLIP, known=known, rounds=min(_MEAN_ROUNDS, max_passes))
    if method is Method.DIRECTION:
        return _direction(coefficients - 1, k * coefficients, of_mean, known)
    if method is Method.MOMENTS:
        return Schedule(method, products=1.0)
    refined = method is not Method.GRADIENT
    lengths = lengths and not refined and _worth_a_length(k, coefficients, max_passes)
    beside = _BESIDE + (meat > 0) if refined else 1 + LENGTH_ROUNDS * lengths
    rounds = max(1, min(ROUNDS if k >= MANY_FROM else FEW, max_passes - beside))
    shares: dict[str, Any] = {name: share * (1 - meat * refined) for name, share in _SHARES[method].items()} | {
        "meat": meat * refined
    }
    # Small clips work like signs of gradients: many small noisy steps, whose errors the mean of the later half averages out.
    # Where noise is negligible the clip grows, so that it cuts nothing of what is not normal.
    root = math.sqrt(coefficients)
    longest = min(_CLIP, max(_SHORTEST, _CLIP_PER_K * k) * root) if k <= _QUIET else min(4.0, _CLIP * math.sqrt(k / _QUIET))
    step = min(1.0, 0.6 * max(1.0, FEW / rounds), 12 / coefficients)
    small = method is Method.FOCUS and k < WORTH_ERRORS
    if small:
        rounds, longest, step = min(_FOCUS_ROUNDS, rounds), _FOCUS_CLIP * root, min(_FOCUS_STEP, step)
    if method is Method.REFINEMENT and k >= WITHOUT_ROUNDS:
        rounds, shares = 0, {name: share * (1 - meat) for name, share in _QUIET_SHARES.items()} | {"meat": meat}
    if lengths:
        length = _GRADIENT_LENGTHS[k < WORTH_LENGTHS]
        shares |= {"length": length, "descent": shares["descent"] - length, "line": of_mean}
    quiet = math.sqrt(shares.get("spread", 0.0)) * k * coefficients  # 1 over the noise of the mean square, for a bound of 1
    return Schedule(
        method,
        **shares,
        rounds=rounds,
        longest=longest,
        step=step,
        square=square_of(quiet),
        counted=small,
    )


def _worth_a_length(k: float, coefficients: int, max_passes: int) -> bool:
    """Return True where the slopes of gradients are so noisy that their length is worth rounds of its own."""
    return k < WORTH_ERRORS and coefficients > _LEAST_SLOPES and max_passes > LENGTH_ROUNDS + _FEWEST


def _direction(slopes: int, strong: float, line: float, known: int) -> Schedule:
    """Return the rounds of a direction of this many slopes: the smaller n mu, the more of the budget says how long they are."""
    length = min(_LENGTH_MOST, max(_LENGTH_LEAST, _LENGTH_STRENGTH / strong))
    base = _BASE_PART * length
    return Schedule(
        Method.DIRECTION,
        base=base,
        descent=1 - base - length,
        length=length,
        line=line,
        rounds=_DIRECTION_ROUNDS,
        longest=_DIRECTION_CLIP * math.sqrt(slopes + CONSTANT**2),
        step=_DIRECTION_STEP / max(slopes, 1),
        known=known,
    )


def clip_of(noise: float) -> float:
    """Where residuals are clipped, in their deviations; ``noise``: that of their mean, for a clip of one deviation and rows of typical length.

    Tails that are cut bias what is estimated, and a wider clip has more noise. Of normal, exponential and log-normal residuals, whose spread grows
    with a column or does not, the worst loses least compared with its own best clip at about this one, for 1,000 to 10^6 rows (THEORY.md, section 9).
    """
    return max(_CLIP_LEAST, _CLIP_ROOT * noise ** (-1 / 3)) if noise else math.inf


def afforded(noise: float, rows: int) -> float:
    """Return the typical lengths of a row at which the last round's noise is half the sampling error, for residuals clipped by ``clip_of``."""
    return AFFORDED / (clip_of(noise) * noise * math.sqrt(rows)) if noise else math.inf


def clip_of_focus(noise: float) -> float:
    """Return where residuals of a focus are clipped, in their deviations: at 1.5 where the noise is large, for it is all that the budget is for."""
    return max(_CLIP_FOCUS, _CLIP_ROOT * noise ** (-1 / 3)) if noise else math.inf


def stretch_of(noise: float, rows: int) -> float:
    """Return the bound on rows in typical lengths: what the clip leaves of a noise of half the sampling error, and at least 1 (THEORY.md, section 9).

    Rows that are shortened count less. Where the mean is not linear this changes what is estimated, so the bound opens with the budget.
    """
    return min(opened(afforded(noise, rows)), _LONGEST_ROW)


def with_ample(schedule: Schedule) -> Schedule:
    """Return the schedule of a refinement whose rounds arrive with little: most of the budget goes to the last round."""
    left = 1 - schedule.meat
    own = replace(schedule, scales=0.05 * left, spread=0.03 * left)
    own = replace(own, descent=0.15 * left) if schedule.rounds else replace(own, first=0.15 * left)
    return replace(own, cells=0.02 * left, products=0.75 * left)


def square_of(quiet: float) -> float:
    """Return the bound of squared residuals, in variances of the response; ``quiet``: 1 over the noise of their mean for a bound of one.

    As the clip of residuals, it was fixed over declared laws (THEORY.md, section 9).
    """
    wide: float = _SQUARE_ROOT * quiet ** (1 / 3)
    return min(max(LARGEST_SQUARE, wide), _SQUARE_MOST)


def _best(k: float, coefficients: int, max_passes: int) -> Method:
    if k == math.inf:  # without noise one release is the exact answer
        return Method.MOMENTS
    enough = max_passes >= BASE_ROUNDS + _DIRECTION_ROUNDS + LENGTH_ROUNDS
    least = WORTH_DIRECTION if k < WORTH_SLOPES else WORTH_FEW_SLOPES
    if k < WORTH_LENGTHS and k * coefficients >= least and enough:
        return Method.DIRECTION
    if k < WORTH_SLOPES:
        return Method.MEAN
    refined = k >= WORTH_ERRORS
    if k >= WITHOUT_ROUNDS and max_passes > _BESIDE:
        return Method.REFINEMENT
    if max_passes < _FEWEST + (_BESIDE if refined else 1):
        return Method.MOMENTS
    return Method.REFINEMENT if refined else Method.GRADIENT
