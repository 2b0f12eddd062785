"""What is summed over the rows of a generalised linear model, with its reach: base rates, gradients, second derivatives, moments, histograms along a score."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import PlanMismatch
from unpooled.families import Response, RowFamily
from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels import rows as row_kernels
from unpooled.kernels import rows as standard_rows
from unpooled.kernels.moments import add_gram
from unpooled.kernels.rows import NOTHING
from unpooled.kernels.score_posterior import CELLS, score_counts
from unpooled.linear.residuals import COUNT_CUTS, Meat, ResidualCells, steps_within
from unpooled.linear.standard import (
    CAP,
    CONSTANT,
    SQUARE_STEPS,
    WIDEST,
    Standard,
    StandardRows,
    coded_features,
)
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts, moments_augmented, moments_ball, unit_sums
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.schedules import table
from unpooled.totals.total import Summed
from unpooled.totals.weights import Weighting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- Rows ------------------------------------------------------------------------------------------------------------------
# The rows of a generalised linear model, and everything that is summed over them.
#
# A record has a coded row of features, a response y and an offset o (the logarithm of its exposure, a declared number, or both). z is its row
# standardised by released numbers (``linear/standard.py``), u = o + z.b its linear predictor at released coefficients b. Summed are
#
# * ``base``: y as a part of its largest value, and the exposure likewise (Theorem G.1);
# * ``descent``, ``score``: h r z with the record's pull r, scaled down by h(u, z), which keeps the root (Theorem G.4), and cut until \|h r z\| <= C (Theorem G.2);
# * ``information``: h w zz' with its weight w, h w \|z\|^2 <= R^2 (Theorem G.3);
# * ``spread``: e^2 of the Pearson residual e = r / sqrt w, at most 3^2 (Theorem B.6), for gamma, and without noise for counts;
# * ``cells``: the cell of (scaled down or not) x e (Theorem F.2); ``meat``: (h r z)(h r z)' (Theorem F.9.4), or of their sums over an id (Theorem B.12).

BASE, SCORE, INFORMATION = "base", "score", "information"
#: Rows that are worked on at a time.
_CACHED = 2048
#: Steps per unit of what is summed for the base rate, and per unit of rows where there is no noise.
_BASE_GRID, _FINEST = 1 << 20, 1 << 26
#: A pull in units of most pulls is never counted as more.
_FARTHEST = 2 * CAP
#: The most steps of a score in second moments.
_FINE_SCORE = 1 << 20
_NONE = np.empty(0)


@dataclass(frozen=True)
class Responses:
    """Which declared columns hold the response, what it is exposed to, and an offset."""

    response: Column
    family: Response
    exposure: Column | None = None
    offset: Column | None = None
    #: By what a record's part of every sum is multiplied.
    weighting: Weighting | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """All of them; last the weights, where there are some."""
        weights = None if self.weighting is None else self.weighting.column
        return tuple(column for column in (self.response, self.exposure, self.offset, weights) if column is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the response columns."""
        return tuple(column.name for column in self.columns)

    @property
    def shifted(self) -> bool:
        """Return True if there is an offset of any kind."""
        return self.exposure is not None or self.offset is not None

    @property
    def most(self) -> float:
        """Return the largest offset."""
        exposure = 0.0 if self.exposure is None else math.log(self.exposure.range[1])
        return exposure + (0.0 if self.offset is None else self.offset.range[1])

    @property
    def shift(self) -> tuple[float, float]:
        """Return the middle of the range of offsets, and half of its width, above 0."""
        exposure = (0.0, 0.0) if self.exposure is None else tuple(math.log(end) for end in self.exposure.range)
        own = (0.0, 0.0) if self.offset is None else self.offset.range
        low, high = (a + b for a, b in zip(exposure, own, strict=True))
        return (low + high) / 2, max((high - low) / 2, 1e-12)

    def read(self, block: tuple[NDArray[np.float64], ...]) -> tuple[Floats, Floats]:
        """Return (y, offset) of a block of raw columns; classes are 0 and 1."""
        raw = dict(zip(self.names, block, strict=True))
        # Refuses what was declared not to occur, without naming it.
        code = Coding(self.columns, 1).code(block)[0]
        y = code[:, 1].astype(np.float64) if self.family.classes else np.clip(raw[self.response.name], *self.response.range)
        offset = np.zeros(y.size)
        if self.shifted:
            exposure, limits = _raw(raw, self.exposure)
            own, ends = _raw(raw, self.offset)
            row_kernels.log_exposures(exposure, limits, own, ends, offset)
        return y, offset

    def others(self, block: tuple[NDArray[np.float64], ...]) -> Floats:
        """Responses, offsets and, where records have weights, their parts: a column each of a block of raw columns."""
        columns = [*self.read(block)]
        if self.weighting is not None:
            columns.append(self.weighting.parts(block[-1]))
        return np.array(columns).T


def _raw(raw: dict[str, NDArray[np.float64]], column: Column | None) -> tuple[Floats, tuple[float, float]]:
    return (_NONE, (0.0, 0.0)) if column is None else (raw[column.name], column.range)


@dataclass(frozen=True)
class BaseRate:
    """Sums of responses and of exposures, from which a fit begins."""

    responses: Responses
    rows: int

    @cached_property
    def grid(self) -> int:
        """Return steps per unit."""
        return integer_grid(self.rows, 1, _BASE_GRID)

    @property
    def count(self) -> int:
        """Return the number of sums: exposures are of use to a log link alone."""
        return 1 + (self.responses.shifted and not self.responses.family.classes)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:  # noqa: ARG002 - a record moves these sums alike under both
        """Return the statistic with its noise; one value moves one of the sums, and a weight all of them."""
        moved = 1 if self.responses.weighting is None else self.count
        reach = {Unit.RECORD: Reach(unit_sums(self.count), self.count), Unit.ATTRIBUTE: Reach(unit_sums(moved), moved)}
        return Summed(BASE, (Block(self.count, float(self.grid)),), reach, self.grid, share)

    def statistic(self, table: Table) -> Ints:
        """Return the exact sums of one party's rows."""
        total = np.zeros(2, dtype=np.int64)
        for block in table.blocks(self.responses.names):
            y, offset, *parts = np.ascontiguousarray(self.responses.others(block).T)
            for part in parts:
                with np.errstate(divide="ignore"):  # a weight of 0
                    y, offset = y * part, offset + np.log(part)
            total += row_kernels.add_base(y, self.responses.family.high, offset, self.responses.most, self.grid)
        return total[: self.count]

    def decode(self, total: Total, rows: float) -> tuple[float, float]:
        """Return (mean response, mean response per exposure), at least as far from its ends as the noise is; ``rows``: the sum of weights."""
        family = self.responses.family
        parts, noise = total.values / self.grid / rows, total.deviations / self.grid / rows
        least = np.clip(2 * noise, 1e-4 if noise.any() else 1e-12, 0.25)
        high = 1 - float(least[0]) if family.classes else 1.0
        mean = float(np.clip(parts[0], least[0], high)) * family.high
        if self.count == 1:
            return mean, mean
        exposure = float(np.clip(parts[1], least[1], 1.0)) * math.exp(self.responses.most)
        return mean, mean / exposure


def nearest(values: Floats, steps: float) -> None:
    """Move values away from 0 by half a step, in place, so that rounding toward zero gives the nearest one.

    Half a step less in every entry is a bias. Noise hides it; a fit without noise would show it.
    """
    values += np.copysign(0.5 / steps, values)


@dataclass(frozen=True)
class GlmRows(StandardRows):
    """Sums over standardised rows with a response of this family."""

    responses: Responses
    #: Whether there is no noise: rows are coded and not standardised, and nothing is scaled down.
    exact: bool = False

    @property
    def bound(self) -> tuple[float, float]:
        """Return (longest, heaviest): most of q|z| in units of q, and of w|z|^2 in units of w."""
        return (math.inf, math.inf) if self.exact else (self.longest, self.radius**2)

    @cached_property
    def grid(self) -> int:
        """Return steps per unit: sums of products stay inside 64 bits, squared lengths and single products below 2^53."""
        largest = 1.0 if self.exact else WIDEST
        exact = 1 << ((53 - math.ceil(math.log2(max(largest**2 * (self.width + 1), self.longest, 1.0)))) // 2)
        return min(integer_grid(self.rows * math.ceil(self.longest), 2, _FINEST), exact)

    @cached_property
    def coarse(self) -> int:
        """Return steps per unit of weighted rows: so few that blocks of thousands of their products are exact in float64."""
        fine = 1 << (20 - math.ceil(math.log2(max(self.radius, 1.0))))
        return min(self.grid, fine, integer_grid(self.rows * math.ceil(self.radius**2), 2))

    def information(self, share: float, adjacency: Adjacency, steps: int) -> Summed:
        """Return the weighted second moments of rows (Theorem G.3), for ``steps`` steps, each a release of its own."""
        d, off = self.width, self.width * (self.width - 1) // 2
        unit = float(self._steps[1] ** 2)
        blocks = (Block(d, unit), *((Block(off, unit * math.sqrt(0.5)),) if off else ()))
        reach = {who: Reach(moments_augmented(1.0, how), d + off) for who, how in self.moves(adjacency).items()}
        return Summed(INFORMATION, blocks, reach, self._steps[1] ** 2, share, count=steps)

    def score(self, share: float, adjacency: Adjacency, steps: int) -> Summed:
        """Return the gradients of Newton steps."""
        gradients = self.descent(share, adjacency, steps)
        return Summed(SCORE, gradients.blocks, gradients.reach, gradients.per_row, share, count=steps)

    @property
    def cells(self) -> ResidualCells:
        """Return the histogram of Pearson residuals; of responses that are never far from their means, only whether rows are scaled down."""
        return ResidualCells(COUNT_CUTS if self.responses.family.tailed else ())

    @cached_property
    def meat(self) -> Meat:
        """Return the second moments of scores, in parts of the longest one."""
        finest = steps_within(integer_grid(self.rows, 2, _FINE_SCORE), self.clusters)
        fine = 1 << (finest.bit_length() - 1)
        return Meat(self.width, fine, self.clusters)

    # --- at a party ------------------------------------------------------------------------------------------------------

    def blocks(self, table: Table, standard: tuple[Floats, Floats]) -> Iterator[tuple[Floats, Floats]]:
        """(rows on the grid as floats that hold integers, a column each of responses, offsets and weights), block by block."""
        middle, width = standard
        g, d, one = float(self.layout.grid), self.layout.size, CONSTANT if self.layout.intercept else 0.0
        for coded, *others in coded_features(self.layout, table, self.responses.names):
            beside = self.responses.others(tuple(others))
            rows = np.empty((beside.shape[0], d), order="F")
            row_kernels.standardise_rows(coded, middle * g, 1 / (width * g), WIDEST, one, float(self.grid), rows)
            yield rows, beside

    def pulls(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats, *, scaled: bool = True
    ) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """(rows, pulls, weights, squared lengths), some thousand rows at a time; units are (q, w) of a typical record."""
        longest, heaviest = self.bound if scaled else (math.inf, math.inf)
        family = self.responses.family
        assert isinstance(family, RowFamily)  # the others have rows of their own
        family = replace(family, dispersion=float(units[2]))
        for rows, other in blocks:
            for at in range(0, other.shape[0], _CACHED):
                part = rows[at : at + _CACHED]
                y, offset, *parts = (np.ascontiguousarray(column) for column in other[at : at + _CACHED].T)
                left, square, weight, usual = np.empty((4, part.shape[0]))
                row_kernels.leave_from(rows, at, -offset, start, float(self.grid), left, square)
                np.negative(left, out=left)
                family.pulls(left, y, weight, usual)
                limits = float(units[0]), longest, heaviest * float(units[1])
                row_kernels.scale_down(left, weight, usual, square, float(self.grid), *limits)
                for own in parts:  # none without weights
                    left *= own if scaled else np.sqrt(own)
                    weight *= own
                yield part, left, weight, square

    @property
    def farthest(self) -> float:
        """A pull in units of most pulls is never counted as more."""
        return self.responses.family.most[0] if self.exact else _FARTHEST * max(self.stretch, 1.0)

    def gradients(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact sum of one round of gradients."""
        parts = ((rows, self._rounded(pull), square) for rows, pull, _, square in self.pulls(blocks, start, units))
        return self.cut_products(parts, self.farthest)

    def _rounded(self, pulls: Floats) -> Floats:
        """Return pulls that are rounded toward zero next, and without noise to the nearest step."""
        if self.exact:
            nearest(pulls, float(self.grid))
        return pulls

    def descend(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the sum that a round asks for: the same gradients, where the coefficients are those of the step."""
        return self.gradients(blocks, start, units)

    def weighted(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact second moments of weighted rows: diagonal, above it."""
        d, longest = self.width, self._steps[1]
        total = np.zeros((d, d), dtype=np.int64)
        for rows, _, weight, square in self.pulls(blocks, start, units):
            out = np.empty(rows.shape, order="F")
            row_kernels.weigh_rows(rows, square, weight / units[1], self.coarse / self.grid, longest, out)
            add_gram(out, longest, total)
        return np.concatenate([total.diagonal(), total[np.triu_indices(d, 1)]])

    def squared_residuals(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact sum of squared Pearson residuals."""
        parts = self._residuals(blocks, start, units)
        total = sum(row_kernels.add_squares(residual, SQUARE_STEPS, self.most) for residual, *_ in parts)
        return np.array([total], dtype=np.int64)

    def _residuals(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats
    ) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """(Pearson residuals, bounds on most pulls, weights, squared lengths) of records; with weights, residuals times their roots."""
        family = self.responses.family
        assert isinstance(family, RowFamily)  # the others have no dispersion and no tails
        family = replace(family, dispersion=float(units[2]))
        for rows, other in blocks:
            for at in range(0, other.shape[0], _CACHED):
                y, offset, *parts = (np.ascontiguousarray(column) for column in other[at : at + _CACHED].T)
                left, square, weight, usual = np.empty((4, y.size))
                row_kernels.leave_from(rows, at, -offset, start, float(self.grid), left, square)
                np.negative(left, out=left)
                family.pulls(left, y, weight, usual)
                left = family.pearson(left, weight) if family.tailed else np.zeros_like(left)
                for own in parts:  # none without weights
                    left = left * np.sqrt(own)
                yield left, usual, weight, square

    def cells_of_pulls(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact counts of records by their Pearson residual and by whether the Newton step scales them down."""
        total = np.zeros(2 * self.cells.each, dtype=np.int64)
        longest, heaviest = self.bound
        for residual, usual, weight, square in self._residuals(blocks, start, units):
            length = np.sqrt(square) / self.grid
            short = (usual * length > longest * float(units[0])) | (weight * length**2 > heaviest * float(units[1]))
            total += self.cells.added_up(residual, short)
        return total

    def scores_of_pulls(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Iterator[Floats]:
        """The addends of a gradient in steps of the meat's grid, some thousand records at a time: none longer than the longest."""
        longest, farthest = self._steps[0], int(self.farthest * self.grid)
        for rows, pull, _, square in self.pulls(blocks, start, units):
            row_kernels.cut_residuals(pull, square, float(self.grid), farthest, longest)
            yield np.trunc(rows * (pull * (self.meat.longest / longest))[:, None])

    # --- from the totals -------------------------------------------------------------------------------------------------

    def information_of(self, total: Total) -> tuple[Floats, Floats]:
        """Return (weighted moments in units of the weight, variances of their noise)."""
        d, unit = self.width, float(self.coarse) ** 2
        upper = np.triu_indices(d, 1)
        rows, columns = (np.concatenate([np.arange(d), upper[side]]) for side in (0, 1))
        gram, variance = np.empty((2, d, d))
        gram[rows, columns] = gram[columns, rows] = total.values / unit
        variance[rows, columns] = variance[columns, rows] = (total.deviations / unit) ** 2
        return gram, variance

    def meat_of_pulls(self, total: Total) -> tuple[Floats, Floats]:
        """Return second moments of scores in units of most pulls, and the variances of their noise."""
        unit = (self._steps[0] / self.meat.longest / self.grid**2) ** 2
        found, variance = self.meat.decode(total)
        return found * unit, variance * unit**2

    def declared(self) -> Standard:
        """Return rows as they are coded, nothing released."""
        p = len(self.layout.coding.attribute)
        return Standard(np.zeros(p), np.ones(p), 0.0, (math.nan, math.nan))


# --- Direction, then scale -------------------------------------------------------------------------------------------------
# Direction, then scale: rounds on shortened rows tell in which direction the slopes point, and one histogram along it how long they are.
#
# A record's standardised row is shortened to a bound and gets a constant of 1. In a round its pull times that row is cut to a short length
# (Theorem G.2), so that a record of either class counts about as much as any other: the sum points in the direction of the slopes, and says nothing of
# their length. The length comes from one histogram of (cell of the score t = z.b) x class, z the row without shortening (Theorem G.11): there is
# nothing to clip. Where rounds estimated a length already, the same histogram corrects it.

#: The name of the histogram.
PROBABILITIES = "probabilities"
#: The words of a plan for it.
HISTOGRAM = (
    f"how many rows of each class have a score in each of {CELLS} cells, from which the probabilities of the classes follow"
)
_TUNED = table("glm")
SHORTENED_CONSTANT = _TUNED.direction_constant


@dataclass(frozen=True)
class ShortRows(GlmRows):
    """Sums over standardised rows that are shortened; pulls are cut and not scaled down."""

    @property
    def bound(self) -> tuple[float, float]:
        """Return infinite bounds: nothing is scaled down before it is cut."""
        return math.inf, math.inf

    @property
    def far(self) -> float:
        """Return the length to which the columns of a row are shortened."""
        return _TUNED.direction_rows * math.sqrt(len(self.layout.coding.attribute))

    @cached_property
    def radius(self) -> float:
        """R: the largest length of a row with its constant."""
        return math.hypot(self.far, SHORTENED_CONSTANT * self.layout.intercept)

    def blocks(self, table: Table, standard: tuple[Floats, Floats]) -> Iterator[tuple[Floats, Floats]]:
        """(shortened rows on the grid as floats that hold integers, a column each of responses and offsets), block by block."""
        columns = len(self.layout.coding.attribute)
        for rows, beside in super().blocks(table, standard):
            standard_rows.shorten_columns(rows, columns, self.far * self.grid)
            rows[:, columns:] = math.trunc(SHORTENED_CONSTANT * self.grid)
            yield rows, beside


@dataclass(frozen=True)
class ScoreCells:
    """Counts of rows by (class, cell of the score)."""

    @staticmethod
    def vector(share: float, moves: Mapping[Unit, Adjacency]) -> Summed:
        """Return the counts with their noise: a row is in one cell, and whatever changes in it may move it to another (Theorem G.11)."""
        reach = {who: Reach(category_counts(how), 2 * CELLS) for who, how in moves.items()}
        return Summed(PROBABILITIES, (Block(2 * CELLS, 1.0),), reach, 1, share)

    @staticmethod
    def added_up(rows: GlmRows, blocks: Iterable[tuple[Floats, Floats]], start: Floats) -> Ints:
        """Return the exact counts of these standardised rows: cells of the first class from the lowest score to the highest, then of the second."""
        total = np.zeros(2 * CELLS, dtype=np.int64)
        for block, other in blocks:
            for at in range(0, other.shape[0], _CACHED):
                second = other[at : at + _CACHED, 0] > 0
                back, square = np.empty((2, second.size))
                # Record after record: 0 less the product, in the order of columns.
                standard_rows.leave_from(block, at, np.zeros(second.size), start, float(rows.grid), back, square)
                total += score_counts(-back, second)
        return total

    @staticmethod
    def decode(total: Total) -> tuple[Floats, float]:
        """Return (released counts, a line for each class; the deviation of their noise)."""
        return total.values.reshape(2, CELLS), float(total.deviations.max())


# --- Directions from second moments ----------------------------------------------------------------------------------------
# A logistic model from second moments: the direction of its slopes from one release, and then their length from a few rounds.
#
# A row x is shortened to a bound, or scaled to one length, and gets a constant: z, \|z\| <= 1. Released are sum zz' and sum zs, s = +-1
# (Theorem F.9.3); b = (sum zz' + ridge)^-1 sum zs ranks rows as a logistic model does, but its slopes are too short. So the scalar z.b,
# standardised by what was released, is the one column of rounds as in ``rows.py``.

MOMENTS = "moments"
#: Public numbers of a request are below this.
_LARGEST = 1e6


@dataclass(frozen=True)
class Directions:
    """Rows of bounded length, and the moments that are summed over them."""

    layout: MomentsLayout
    responses: Responses
    rows: int
    #: Whether every row gets the same length.
    unit: bool

    @property
    def size(self) -> int:
        """Columns, and the constant."""
        return self.layout.size

    @property
    def columns(self) -> int:
        """Return columns alone."""
        return self.size - self.layout.intercept

    @property
    def longest(self) -> float:
        """Return the length of a coded row that becomes 1."""
        return 1.0 if self.layout.norm is not None else math.sqrt(len(self.layout.features))

    @property
    def share(self) -> float:
        """Return the largest part of z's length that its columns can have."""
        return 1 / math.sqrt(1 + (_TUNED.moments_constant * self.layout.intercept) ** 2)

    @cached_property
    def grid(self) -> int:
        """Return steps per unit: sums of products stay inside 64 bits, and blocks of thousands of them are exact in float64."""
        return integer_grid(self.rows, 2)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return second moments of rows, and their products with classes of +-1."""
        d, off = self.size, self.size * (self.size - 1) // 2
        unit = float(self.grid**2)
        middle = (Block(off, unit * math.sqrt(0.5)),) if off else ()
        moved = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}  # one value makes another row, not none
        reach = {who: Reach(moments_ball(1.0, 1.0, how), d + off + d) for who, how in moved.items()}
        return Summed(MOMENTS, (Block(d, unit), *middle, Block(d, unit)), reach, self.grid**2, share)

    # --- at a party ------------------------------------------------------------------------------------------------------

    def blocks(self, table: Table) -> Iterator[tuple[Floats, Floats]]:
        """(rows on the grid, classes of 0 and 1), block by block."""
        coding = self.layout.coding
        for block in table.blocks((*coding.names, *self.responses.names)):
            y, _ = self.responses.read(block[len(coding.names) :])
            yield self.scaled(block[: len(coding.names)]), y

    def scaled(self, features: Sequence[NDArray[np.float64]]) -> Floats:
        """Raw columns as rows on the grid."""
        coded = self.layout.coding.real(features)
        out = np.empty((coded.shape[0], self.size), order="F")
        constant = _TUNED.moments_constant * self.layout.intercept
        row_kernels.scaled_rows(coded, self.longest, self.unit, constant, self.grid, out)
        return out

    def lengthened(self, features: Sequence[NDArray[np.float64]]) -> Floats:
        """Raw columns as coded rows of the length that became 1: what the coefficients of such rows are multiplied with."""
        coded = self.layout.coding.real(features)
        length = np.sqrt((coded**2).sum(axis=1))
        factor = self.longest / np.where(self.unit & (length > NOTHING), length, np.maximum(length, self.longest))
        found: Floats = coded * factor[:, None]
        return found

    def statistic(self, table: Table) -> Ints:
        """Return the exact moments of one party's rows: diagonal, above it, products with classes."""
        d = self.size
        total = np.zeros((d + 1, d + 1), dtype=np.int64)
        for rows, y in self.blocks(table):
            both = np.empty((y.size, d + 1), order="F")
            both[:, :d], both[:, d] = rows, self.grid * (2 * y - 1)
            add_gram(both, self.grid, total)
        return np.concatenate([total.diagonal()[:d], total[:d, :d][np.triu_indices(d, 1)], total[:d, d]])

    # --- from the total --------------------------------------------------------------------------------------------------

    def decode(self, total: Total, rows: int) -> Floats:
        """Return the slopes whose products with a row of the rounds have variance 1; zeros where there is nothing but noise."""
        d, unit = self.size, float(self.grid) ** 2
        upper = np.triu_indices(d, 1)
        gram, variance = np.empty((2, d, d))
        flat, noise = total.values / unit, total.deviations / unit
        gram[np.diag_indices(d)], variance[np.diag_indices(d)] = flat[:d], noise[:d] ** 2
        gram[upper], variance[upper] = flat[d:-d], noise[d:-d] ** 2
        gram.T[upper], variance.T[upper] = gram[upper], variance[upper]
        level = _TUNED.moments_ridge * noisy_gram.noise_level(variance) + 1e-9 * rows
        found = np.linalg.solve(noisy_gram.psd_part(gram) + level * np.eye(d), flat[-d:])[: self.columns]
        square = float(found @ noisy_gram.psd_part(gram[: self.columns, : self.columns]) @ found) / rows
        return np.asarray(found / math.sqrt(square)) if square > 0 else np.zeros(self.columns)


@dataclass(frozen=True)
class DirectionRows(GlmRows):
    """The rounds over the one column z.b."""

    directions: Directions | None = None

    @property
    def width(self) -> int:
        """Return the slope, and the constant."""
        return 1 + self.layout.intercept

    @cached_property
    def radius(self) -> float:
        """Return the length of a typical row."""
        return math.sqrt(1 + CONSTANT**2 * self.layout.intercept)

    def along(self, table: Table, slopes: Floats) -> Iterator[tuple[Floats, Floats]]:
        """((z.b clipped to +-4, the constant) on the grid, (classes, no offset)), block by block."""
        assert self.directions is not None
        for rows, y in self.directions.blocks(table):
            back, square = np.empty((2, y.size))
            # Record after record: 0 less the product, in the order of columns.
            row_kernels.leave(rows[:, : slopes.size], np.zeros(y.size), slopes, float(self.directions.grid), back, square)
            out = np.empty((y.size, self.width), order="F")
            out[:, 0] = np.trunc(np.clip(-back, -CAP, CAP) * self.grid)
            out[:, 1:] = math.trunc(CONSTANT * self.grid)
            yield out, np.column_stack([y, np.zeros(y.size)])

    def numbers(self, settings: tuple[float, ...]) -> tuple[Floats, Floats, Floats]:
        """Return (slopes of z.b, coefficients, units) of a request; refuse another count of numbers, or wild ones."""
        assert self.directions is not None
        p = self.directions.columns
        found = np.asarray(settings, dtype=np.float64)
        if found.size != p + self.width + 3 or not (np.abs(found) <= _LARGEST).all() or not (found[-3:] > 0).all():
            msg = f"a request for rounds along one direction carries {p + self.width + 3} finite numbers, the last three positive"
            raise PlanMismatch(msg)
        slopes, start, units = np.split(found, [p, p + self.width])
        return slopes, start, units
