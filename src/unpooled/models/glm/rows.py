r"""The rows of a generalised linear model, and everything that is summed over them.

A record has a coded row of features, a response y and an offset o (the logarithm of its exposure, a declared number, or both). z is its row
standardised by released numbers (``linear/standard.py``), u = o + z.b its linear predictor at released coefficients b. Summed are

* ``base``: y as a part of its largest value, and the exposure likewise (Theorem G.1);
* ``descent``, ``score``: h r z with the record's pull r, scaled down by h(u, z), which keeps the root (Theorem G.4), and cut until \|h r z\| <= C (Theorem G.2);
* ``information``: h w zz' with its weight w, h w \|z\|^2 <= R^2 (Theorem G.3);
* ``spread``: e^2 of the Pearson residual e = r / sqrt w, at most 3^2 (Theorem B.6), for gamma, and without noise for counts;
* ``cells``: the cell of (scaled down or not) x e (Theorem F.2); ``meat``: (h r z)(h r z)' (Theorem F.9.4), or of their sums over an id (Theorem B.12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.families import Response, RowFamily
from unpooled.kernels import rows as row_kernels
from unpooled.kernels.moments import add_gram
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
from unpooled.privacy.sensitivity import moments_augmented, unit_sums
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Summed
from unpooled.totals.weights import Weighting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

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
        d, off = self.layout.size, self.layout.size * (self.layout.size - 1) // 2
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
        d, longest = self.layout.size, self._steps[1]
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
        d, unit = self.layout.size, float(self.coarse) ** 2
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
