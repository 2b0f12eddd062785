"""Sums of a fit's residuals: second moments of scores (the middle of a sandwich covariance), and one histogram of signed residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from unpooled.errors import UsageError
from unpooled.kernels.moments import add_gram
from unpooled.kernels.pareto_tail import missing_mean
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts, moments_augmented
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.schedules import table
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- Meat ------------------------------------------------------------------------------------------------------------------
# Second moments of scores, the middle of a sandwich covariance: of rows (robust errors), or of their sums over the rows of an id (clustered ones).
#
# A row's score is its residual times its row. Scores are integers on the grid of shortened rows and no longer than a public bound S, so their outer
# products move as those of rows do (Theorem F.9.4). The scores of j rows of one id are added up and shortened to S sqrt(j): if m rows of an id count
# over all parties, its sums have squared lengths of at most m S^2 together, wherever its rows are (Theorem B.12).


class Covariance(StrEnum):
    """The assumptions that the standard errors of a table rest on."""

    #: "cluster" where several rows of an id count, else "model".
    AUTO = "auto"
    #: The family's own variance, rows independent.
    MODEL = "model"
    #: Rows independent, whatever the variance.
    ROBUST = "robust"
    #: Rows of different ids independent.
    CLUSTER = "cluster"
    #: As "model", of columns at several parties: there is no other, and nobody asks for it by name.
    JOINT = "joint"


_TUNED = table("residuals")
#: The name of the release, and its share of the squared budget.
MEAT, MEAT_SHARE = "meat", _TUNED.meat_share
#: Squared lengths of sums over an id are at most this, so that float64 holds them, their roots and their products exactly.
_EXACT_SQUARE = 1 << 52
#: The sentences under a table.
ASSUMED = {
    Covariance.MODEL: "standard errors assume independent rows whose variance is that of the model (covariance = 'robust' drops the second)",
    Covariance.JOINT: "standard errors assume independent rows whose variance is that of the model",
    Covariance.ROBUST: "standard errors assume independent rows, of any variance (robust, from released second moments of the scores)",
    Covariance.CLUSTER: "standard errors assume independent ids; rows of one id at one party may depend on each other (clustered, from released second moments of the scores)",
}


def covariance_of(asked: str, study: Study) -> Covariance:
    """Return the covariance that a study's parameter means for it; refuse an unknown word, and clusters where no id has several rows."""
    known = [word for word in Covariance if word is not Covariance.JOINT]
    if asked not in known:
        msg = f"covariance is one of {', '.join(known)}, not {asked!r}"
        raise UsageError(msg)
    several = study.unit == Unit.HOUSEHOLD and study.household_rows > 1
    found = Covariance(asked)
    if found is Covariance.AUTO:
        return Covariance.CLUSTER if several else Covariance.MODEL
    if found is Covariance.CLUSTER and not several:
        raise UsageError(
            "covariance 'cluster' is for unit 'household' with several rows of an id: without ids nobody knows which rows belong together"
        )
    return found


def without_meat(asked: str, method: str, needed: str) -> Covariance:
    """Return the model's covariance, for a method that releases no scores; refuse where another one was asked for by name."""
    if asked not in {Covariance.AUTO, Covariance.MODEL}:
        msg = f"covariance {asked!r} is of method {str(needed)!r}, and this study's is {str(method)!r}: ask for more epsilon, or leave it out"
        raise UsageError(msg)
    return Covariance.MODEL


def steps_within(longest: int, most: int) -> int:
    """Return how many steps the longest score has: ``longest``, or fewer where the squared sum of this many scores of an id would not be exact."""
    return max(1, min(longest, math.isqrt(_EXACT_SQUARE // max(most, 1))))


@dataclass(frozen=True)
class Meat:
    """The outer products of scores of this size, no longer than ``longest`` steps each."""

    size: int
    longest: int
    #: Rows of an id that count over all parties; 0 where scores of rows are not added up.
    most: int = 0

    def vector(self, share: float, moves: Mapping[Unit, Adjacency]) -> Summed:
        """Return the entries on the diagonal and above it with their noise (Theorem F.9.4; of sums over ids Theorem B.12)."""
        d, off = self.size, self.size * (self.size - 1) // 2
        unit = float(self.longest**2 * max(self.most, 1))
        blocks = (Block(d, unit), *((Block(off, unit * math.sqrt(0.5)),) if off else ()))
        reach = {who: Reach(moments_augmented(1.0, how), d + off) for who, how in moves.items()}
        if self.most:  # a row of an id moves the id's sum to another one
            reach = {who: Reach(moments_augmented(1.0, Adjacency.REPLACE), d + off) for who in moves}
            # Its rows may be at several parties, each of which floors its own vector: lengths of steps add up (Theorem F.19 c).
            farthest = moments_augmented(1.0, moves[Unit.RECORD])
            reach[Unit.HOUSEHOLD] = Reach(farthest, (d + off) * self.most**2)
        return Summed(MEAT, blocks, reach, self.longest**2, share)

    def added_up(self, scores: Iterator[Floats], table: Table) -> Ints:
        """Return the exact entries for these scores, a row each in the order of the table's blocks."""
        d, bound = self.size, self.longest
        total = np.zeros((d, d), dtype=np.int64)
        if self.most:
            scores, bound = iter([self._shortened(scores, table.owners)]), math.isqrt(self.longest**2 * self.most)
        for part in scores:
            add_gram(np.asfortranarray(part), bound, total)
        return np.concatenate([total.diagonal(), total[np.triu_indices(d, 1)]])

    def _shortened(self, scores: Iterator[Floats], owners: NDArray[np.int64]) -> Floats:
        """Return the sums of scores over the rows of every id, each shortened to the root of its number of rows times the bound."""
        count = np.bincount(owners)
        sums, at = np.zeros((count.size, self.size)), 0
        for part in scores:
            np.add.at(sums, owners[at : at + len(part)], part)  # integers below 2^53: exact in any order
            at += len(part)
        square = np.square(sums).sum(axis=1)
        far = np.floor(np.sqrt(np.minimum(count, self.most) * float(self.longest) ** 2))
        over = square > far * far
        sums[over] = np.trunc(sums[over] * (far[over] / np.sqrt(square[over]) * (1 - 2.0**-40))[:, None])
        sums[np.square(sums).sum(axis=1) > far * far] = 0.0
        return sums

    def decode(self, total: Total) -> tuple[Floats, Floats]:
        """Return (second moments in squared steps, variances of their noise)."""
        d = self.size
        upper = np.triu_indices(d, 1)
        rows, columns = (np.concatenate([np.arange(d), upper[side]]) for side in (0, 1))
        found, variance = np.empty((2, d, d))
        found[rows, columns] = found[columns, rows] = total.values
        variance[rows, columns] = variance[columns, rows] = total.deviations**2
        return found, variance


# --- Residual cells --------------------------------------------------------------------------------------------------------
# One histogram of signed residuals: how many rows have a residual in each cell, and how many of them are longer than the bound on rows.
#
# Every row is in one cell of {short, whole} x {signed residual}, so the counts are one vector of category counts (Theorem F.2). The shares of
# shortened rows and of clipped residuals, the tails beyond the clip and a dispersion all follow from this one release.

#: The name of the release.
CELLS = "cells"
#: Where cells begin on each side of 0, in released deviations of the residuals.
TAIL_CUTS = _TUNED.several("tail_cuts")
#: The same for Pearson residuals at a dispersion of 1, whose own dispersion is learnt from them: it may be small or large.
COUNT_CUTS = (*_TUNED.several("small_cuts"), *TAIL_CUTS, *_TUNED.several("far_cuts"))
#: Where cells of residuals begin from which their mean and deviation are learnt: in deviations of the response.
SIZE_CUTS = _TUNED.several("size_cuts")


@dataclass(frozen=True)
class ResidualCells:
    """Cells of signed residuals, in units that a request carries, for rows that are shortened and for those that are not."""

    cuts: tuple[float, ...] = TAIL_CUTS

    @property
    def each(self) -> int:
        """Return the number of cells of residuals: those of both sides, and the middle one."""
        return 2 * len(self.cuts) + 1

    def vector(self, share: float, moves: Mapping[Unit, Adjacency]) -> Summed:
        """Return the counts with their noise: a row is in one cell, and whatever changes in it may move it to another (Theorem F.2)."""
        count = 2 * self.each
        reach = {who: Reach(category_counts(how), count) for who, how in moves.items()}
        return Summed(CELLS, (Block(count, 1.0),), reach, 1, share)

    def added_up(self, residual: Floats, shortened: NDArray[np.bool_]) -> Ints:
        """Return the exact counts of these rows: cells of whole rows from the lowest residual to the highest, then those of shortened ones."""
        place = np.searchsorted(np.array(self.cuts), np.abs(residual), side="right")
        cell = len(self.cuts) + np.where(residual < 0, -place, place)
        return np.bincount(cell + self.each * shortened, minlength=2 * self.each).astype(np.int64)

    def decode(self, total: Total, rows: int) -> ResidualCounts:
        """Return the released counts of this number of rows."""
        whole, short = total.values.reshape(2, self.each)
        return ResidualCounts(self.cuts, whole, short, float(total.deviations.max()) ** 2, rows)


@dataclass(frozen=True)
class ResidualCounts:
    """Released counts, a number for each cell from the lowest residual to the highest, with the variance of the noise of each number."""

    cuts: tuple[float, ...]
    whole: Floats
    short: Floats
    variance: float
    rows: int

    @cached_property
    def both(self) -> Floats:
        """Return the counts of shortened and of whole rows together; their noise has twice the variance."""
        return self.whole + self.short

    @property
    def shortened(self) -> tuple[float, float]:
        """Return the share of shortened rows, and the deviation of its noise."""
        noise = math.sqrt(self.variance * self.short.size) / self.rows
        return float(np.clip(self.short.sum() / self.rows, 0.0, 1.0)), noise

    def mean_square(self) -> float:
        """Return the mean square of residuals, counted outwards on each side up to the first cell beyond 2 that its noise hides."""
        starts = np.array([0.0, *self.cuts])
        ends = np.array([*self.cuts, self.cuts[-1]])
        even = (starts**2 + starts * ends + ends**2) / 3  # of a cell whose rows lie evenly in it
        squares = np.where(starts < 1, even, starts * ends)  # farther out their density falls like the inverse square
        total = squares[0] * self.both[len(self.cuts)]
        hidden = _TUNED.hidden * math.sqrt(2 * self.variance)
        for sign in (1, -1):
            for start, square, count in zip(self.cuts, squares[1:].tolist(), self.side(sign).tolist(), strict=True):
                total += square * count
                if start >= _TUNED.core and count < hidden:
                    break
        return max(float(total) / self.rows, 0.0)

    def side(self, sign: int) -> Floats:
        """Return the counts of one side (+1 upper, -1 lower) from its first cut outwards."""
        middle = len(self.cuts)
        return self.both[middle + 1 :] if sign > 0 else self.both[:middle][::-1]

    def uncut(self, clip: float) -> tuple[float, float]:
        """Return (the share of residuals inside the clip, the mean square of clipped ones over the square of that share), in deviations of residuals.

        The second is the sampling variance of slopes beside that of least squares. Both are those of normal residuals as far as the counts are noise.
        """
        if clip == math.inf:
            return 1.0, 1.0
        share, noise = self.beyond(clip)
        told = _TUNED.inside_deviation**2 / (_TUNED.inside_deviation**2 + noise**2)
        normal = math.erfc(clip / math.sqrt(2))
        outside = normal + told * (share - normal)
        beyond = (1 - clip**2) * normal + clip * math.sqrt(2 / math.pi) * math.exp(-(clip**2) / 2)
        square = 1 - beyond - told * (self._excess(clip) - beyond)
        inside = max(1 - outside, _TUNED.inside_least)
        return inside, max(square / inside**2, _TUNED.efficiency_least)

    def _excess(self, clip: float) -> float:
        """Return what the squares of residuals beyond the clip have more than that of the clip, of all rows, counted outwards while noise does not hide it."""
        starts, ends = np.array(self.cuts), np.array([*self.cuts[1:], math.inf])
        near = np.clip(
            clip, starts, ends
        )  # inside a cell the density of a tail falls about like the inverse square of the distance
        part = (1 / near - 1 / ends) / (1 / starts - 1 / ends)
        squares = near * np.where(np.isinf(ends), near, ends) - clip**2
        hidden, total = _TUNED.hidden * math.sqrt(2 * self.variance), 0.0
        for sign in (1, -1):
            for start, count, more in zip(self.cuts, self.side(sign).tolist(), (part * squares).tolist(), strict=True):
                if start >= _TUNED.core and count < hidden:
                    break
                total += max(count, 0.0) * max(more, 0.0)
        return total / self.rows

    def end(self) -> float:
        """Return where residuals end, if the noise of a count is so small that it says so exactly; else infinity."""
        if _TUNED.exact * math.sqrt(self.variance) > 1:
            return math.inf
        seen = max(0.5, _TUNED.hidden * math.sqrt(2 * self.variance))  # half a row
        farthest = np.flatnonzero((self.side(1) > seen) | (self.side(-1) > seen))
        ends = (*self.cuts[1:], math.inf)
        return max(ends[farthest[-1]], _TUNED.core) if farthest.size else _TUNED.core

    def from_cut(self, deviation: float) -> ResidualCounts:
        """Return the same in units of this deviation, its middle cell wide enough for one of them on each side."""
        first = min(sum(cut < deviation for cut in self.cuts), len(self.cuts) - 2)
        cuts = tuple(cut / deviation for cut in self.cuts[first:])

        def joined(counts: Floats) -> Floats:
            middle = len(self.cuts)
            found = np.concatenate([counts[: middle - first], [0.0], counts[middle + 1 + first :]])
            found[len(cuts)] = counts[middle - first : middle + 1 + first].sum()
            return found

        return ResidualCounts(cuts, joined(self.whole), joined(self.short), self.variance, self.rows)

    def missing_mean(self, clip: float, ends: tuple[float, float]) -> tuple[float, float]:
        """Return the mean of the parts of residuals beyond the clip and its deviation; ``ends``: the farthest residuals above and below 0."""
        above, below = (
            missing_mean(self.side(sign), self.cuts, self.rows, 2 * self.variance, clip, end)
            for sign, end in zip((1, -1), ends, strict=True)
        )
        return above[0] - below[0], math.hypot(above[1], below[1])

    def beyond(self, clip: float) -> tuple[float, float]:
        """Return the share of residuals beyond the clip on both sides, and the deviation of its noise; a cell that the clip divides counts in part."""
        ends = np.array([*self.cuts[1:], np.inf])
        starts = np.array(self.cuts)
        # Inside a cell the density of a tail falls about like the inverse square of the distance.
        part = np.clip((1 / np.maximum(starts, clip) - 1 / ends) / (1 / starts - 1 / ends), 0.0, 1.0)
        part[ends <= clip] = 0.0
        counted = part @ (self.side(1) + self.side(-1)) / self.rows
        noise = math.sqrt(4 * self.variance * float(part @ part)) / self.rows
        return float(np.clip(counted, 0.0, 1.0)), noise


@dataclass(frozen=True)
class SignedCells:
    """Cells of signed residuals, from which their mean and deviation are learnt, where so few rows are counted that a mean square says nothing."""

    cuts: tuple[float, ...] = SIZE_CUTS

    @property
    def count(self) -> int:
        """Return the number of cells."""
        return 2 * len(self.cuts) + 1

    def vector(self, share: float, moves: Mapping[Unit, Adjacency]) -> Summed:
        """Return the counts with their noise (Theorem F.2)."""
        reach = {who: Reach(category_counts(how), self.count) for who, how in moves.items()}
        return Summed(CELLS, (Block(self.count, 1.0),), reach, 1, share)

    def added_up(self, residual: Floats) -> Ints:
        """Return the exact counts of these rows, from the lowest residuals to the highest."""
        place = np.searchsorted(np.array(self.cuts), np.abs(residual), side="right")
        cell = len(self.cuts) + np.where(residual < 0, -place, place)
        return np.bincount(cell, minlength=self.count).astype(np.int64)

    def decode(self, total: Total, rows: int) -> tuple[float, float, float]:
        """Return (mean, deviation, the error of that deviation) of normal residuals; before data every mean is as likely, and deviations are log-normal."""
        scales, means = np.geomspace(self.cuts[1], 1.5, 90), np.linspace(-self.cuts[-4], self.cuts[-4], 41)
        ends = np.array([-np.inf, *(-cut for cut in reversed(self.cuts)), *self.cuts, np.inf])
        inside = ndtr((ends - means[:, None, None]) / scales[:, None])
        expected = rows * np.diff(inside, axis=-1)
        variance = np.square(total.deviations) + expected + 1e-9
        log = -(np.square(total.values - expected) / variance + np.log(variance)).sum(axis=-1) / 2
        log -= np.square((np.log(scales) - _TUNED.log_deviation) / _TUNED.log_width) / 2
        weights = np.exp(log - log.max())
        weights /= weights.sum()
        own = weights.sum(axis=0)
        mean, deviation = float(weights.sum(axis=1) @ means), math.exp(float(own @ np.log(scales)))
        return mean, deviation, math.sqrt(max(float(own @ np.square(scales)) - deviation**2, 0.0))
