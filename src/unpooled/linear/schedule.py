"""Which form a study takes, and with how many rounds of which size: decided before data, from the noise per row and the columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from unpooled.linear.standard import CONSTANT, LARGEST_SQUARE
from unpooled.schedules import table

# --- Affordable ------------------------------------------------------------------------------------------------------------
# The length to which rows are left, from what the noise of a round affords: one rule for regression and for generalised linear models.

_TUNED, _SMALL, _FOCUS = table("regression"), table("directions"), table("focus")
AFFORDED, AMPLE = _TUNED.afforded, _TUNED.ample


def opened(afforded: float) -> float:
    """Return the bound on rows in lengths of a typical row, at least 1: what is afforded, and beyond 4 lengths only its fourth root more."""
    if afforded <= _TUNED.long:
        return max(afforded, 1.0)
    return float(_TUNED.long * (afforded / _TUNED.long) ** 0.25)


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


WORTH_SLOPES, WORTH_ERRORS, WORTH_LENGTHS = _TUNED.worth_slopes, _TUNED.worth_errors, _TUNED.worth_lengths
#: From this k on a table has lines.
WORTH_LINES = _TUNED.worth_lines
WORTH_DIRECTION, WORTH_FEW_SLOPES = _SMALL.worth_direction, _SMALL.worth_few_slopes
WORTH_MORE_THAN_WEIGHTS, WITHOUT_ROUNDS = _SMALL.worth_more_than_weights, _TUNED.without_rounds
FEW, ROUNDS, BASE_ROUNDS, LENGTH_ROUNDS = (
    _TUNED.whole("few"),
    _TUNED.whole("rounds"),
    _SMALL.whole("base_rounds"),
    _SMALL.whole("length_rounds"),
)
_MEAN_ROUNDS, _DIRECTION_ROUNDS, _FEWEST = _TUNED.whole("mean_rounds"), _SMALL.whole("rounds"), _TUNED.whole("fewest")
#: Passes of a refinement in addition to its rounds.
_BESIDE = 4
_SHARES = {
    Method.GRADIENT: _TUNED.shares("gradient_shares"),
    Method.REFINEMENT: _TUNED.shares("refinement_shares"),
    Method.FOCUS: _FOCUS.shares("focus_shares"),
}


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
        return _SMALL.base_clip * self.line * longer, _SMALL.length_clip * self.line * longer


def schedule_of(
    method: Method,
    k: float,
    coefficients: int,
    max_passes: int,
    meat: float = 0.0,
    *,
    known: int = 0,
    lengths: bool = False,
    errors_from: float = WORTH_ERRORS,
) -> Schedule:
    """Return the rounds of this method, or of the one that serves a study of this k best.

    ``meat``: the share that a sandwich covariance takes; ``known``: the directions of earlier models; ``lengths``: rounds of gradients may be followed
    by those of a length; ``errors_from``: the k from which on standard errors are worth their part.
    """
    if method is Method.AUTO:
        method = _best(k, coefficients, max_passes, errors_from)
        if known and k < WORTH_LENGTHS:  # of a few slopes rounds tell less than earlier models do
            method = Method.DIRECTION if k * coefficients >= WORTH_MORE_THAN_WEIGHTS else Method.WEIGHTS
    part = max(_TUNED.mean_clip_least, k * coefficients / _TUNED.mean_clip_from)
    of_mean = _TUNED.mean_unit * min(_TUNED.mean_clip_most, part)
    if method is Method.MEAN:
        rounds = min(_MEAN_ROUNDS, max_passes)
        return Schedule(method, descent=1.0, rounds=rounds, longest=of_mean, step=_TUNED.mean_step)
    if method is Method.WEIGHTS:
        return Schedule(method, base=1.0, line=of_mean / _SMALL.base_clip, known=known, rounds=min(_MEAN_ROUNDS, max_passes))
    if method is Method.DIRECTION:
        return _direction(coefficients - 1, k * coefficients, of_mean, known)
    if method is Method.MOMENTS:
        return Schedule(method, products=1.0)
    refined = method is not Method.GRADIENT
    lengths = lengths and not refined and _worth_a_length(k, coefficients, max_passes)
    beside = _BESIDE + (meat > 0) if refined else 1 + LENGTH_ROUNDS * lengths
    rounds = max(1, min(ROUNDS if k >= _TUNED.many_from else FEW, max_passes - beside))
    shares: dict[str, Any] = {name: share * (1 - meat * refined) for name, share in _SHARES[method].items()} | {
        "meat": meat * refined
    }
    root = math.sqrt(coefficients)
    longest = _longest(k, root)
    step = min(1.0, _TUNED.step * max(1.0, FEW / rounds), _TUNED.step_columns / coefficients)
    small = method is Method.FOCUS and k < WORTH_ERRORS
    if small:
        rounds, longest, step = min(_FOCUS.whole("rounds"), rounds), _FOCUS.clip * root, min(_FOCUS.step, step)
    if method is Method.REFINEMENT and k >= WITHOUT_ROUNDS:
        quiet_shares = _TUNED.shares("quiet_shares").items()
        rounds, shares = 0, {name: share * (1 - meat) for name, share in quiet_shares} | {"meat": meat}
    if lengths:
        length = _TUNED.several("gradient_lengths")[k < WORTH_LENGTHS]
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


def _longest(k: float, root: float) -> float:
    """Return |r||z| of one record in a round of gradients, for this root of the number of coefficients.

    Small clips work like signs of gradients: many small noisy steps, whose errors the mean of the later half averages out.
    Where noise is negligible the clip grows, so that it cuts nothing of what is not normal.
    """
    if k > _TUNED.quiet:
        return min(_TUNED.quiet_clip_most, _TUNED.clip * math.sqrt(k / _TUNED.quiet))
    return min(_TUNED.clip, max(_TUNED.clip_shortest, _TUNED.clip_per_k * k) * root)


def _worth_a_length(k: float, coefficients: int, max_passes: int) -> bool:
    """Return True where the slopes of gradients are so noisy that their length is worth rounds of its own."""
    return k < WORTH_ERRORS and coefficients > _TUNED.whole("least_slopes") and max_passes > LENGTH_ROUNDS + _FEWEST


def _direction(slopes: int, strong: float, line: float, known: int) -> Schedule:
    """Return the rounds of a direction of this many slopes: the smaller n mu, the more of the budget says how long they are."""
    length = min(_SMALL.length_most, max(_SMALL.length_least, _SMALL.length_strength / strong))
    base = _SMALL.base_part * length
    return Schedule(
        Method.DIRECTION,
        base=base,
        descent=1 - base - length,
        length=length,
        line=line,
        rounds=_DIRECTION_ROUNDS,
        longest=_SMALL.clip * math.sqrt(slopes + CONSTANT**2),
        step=_SMALL.step / max(slopes, 1),
        known=known,
    )


def clip_of(noise: float) -> float:
    """Where residuals are clipped, in their deviations; ``noise``: that of their mean, for a clip of one deviation and rows of typical length.

    Tails that are cut bias what is estimated, and a wider clip has more noise. Of normal, exponential and log-normal residuals, whose spread grows
    with a column or does not, the worst loses least compared with its own best clip at about this one, for 1,000 to 10^6 rows (THEORY.md, section 9).
    """
    return max(_TUNED.clip_least, _TUNED.clip_root * noise ** (-1 / 3)) if noise else math.inf


def afforded(noise: float, rows: int) -> float:
    """Return the typical lengths of a row at which the last round's noise is half the sampling error, for residuals clipped by ``clip_of``.

    Residuals are taken to be clipped at no less than ``open_clip``: longer rows make the noise of second moments larger, which hides lines.
    """
    return AFFORDED / (max(clip_of(noise), _TUNED.open_clip) * noise * math.sqrt(rows)) if noise else math.inf


def clip_of_focus(noise: float) -> float:
    """Return where residuals of a focus are clipped, in their deviations: at 1.5 where the noise is large, for it is all that the budget is for."""
    return max(_FOCUS.clip_least, _TUNED.clip_root * noise ** (-1 / 3)) if noise else math.inf


def stretch_of(noise: float, rows: int) -> float:
    """Return the bound on rows in typical lengths: what the clip leaves of a noise of half the sampling error, and at least 1 (THEORY.md, section 9).

    Rows that are shortened count less. Where the mean is not linear this changes what is estimated, so the bound opens with the budget.
    """
    return min(opened(afforded(noise, rows)), _TUNED.longest_row)


def with_ample(schedule: Schedule) -> Schedule:
    """Return the schedule of a refinement whose rounds arrive with little: most of the budget goes to the last round."""
    left = 1 - schedule.meat
    shares: dict[str, Any] = {name: share * left for name, share in _TUNED.shares("ample_shares").items()}
    if not schedule.rounds:
        shares["first"] = shares.pop("descent")
    return replace(schedule, **shares)


def square_of(quiet: float) -> float:
    """Return the bound of squared residuals, in variances of the response; ``quiet``: 1 over the noise of their mean for a bound of one.

    As the clip of residuals, it was fixed over declared laws (THEORY.md, section 9).
    """
    wide: float = _TUNED.square_root * quiet ** (1 / 3)
    return min(max(LARGEST_SQUARE, wide), _TUNED.square_most)


def _best(k: float, coefficients: int, max_passes: int, errors_from: float) -> Method:
    if k == math.inf:  # without noise one release is the exact answer
        return Method.MOMENTS
    enough = max_passes >= BASE_ROUNDS + _DIRECTION_ROUNDS + LENGTH_ROUNDS
    least = WORTH_DIRECTION if k < WORTH_SLOPES else WORTH_FEW_SLOPES
    if k < WORTH_LENGTHS and k * coefficients >= least and enough:
        return Method.DIRECTION
    if k < WORTH_SLOPES:
        return Method.MEAN
    refined = k >= errors_from
    if k >= WITHOUT_ROUNDS and max_passes > _BESIDE:
        return Method.REFINEMENT
    if max_passes < _FEWEST + (_BESIDE if refined else 1):
        return Method.MOMENTS
    return Method.REFINEMENT if refined else Method.GRADIENT
