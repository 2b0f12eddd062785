r"""Several classes: their family, their rates, and everything that is summed over rows with one of C declared classes.

Every class has a linear predictor z.b_a, p is their softmax, and B is a C x D matrix of which a constant may be taken off every column. A record's
pull is e_y - p, its weight diag p - pp'. Summed are, in addition to what standardises,

* ``base``: how many records are of each class (Theorem F.2);
* ``descent``, ``score``: h (e_y - p) z', cut until \|h (e_y - p)\| \|z\| <= C (Theorem G.6);
* ``information``: h (diag p - pp') (x) zz', whose Frobenius norm is at most R^2 (Theorem G.7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import softmax

from unpooled.families import Response
from unpooled.kernels import rows as row_kernels
from unpooled.kernels.moments import add_gram
from unpooled.models.glm.families import MULTINOMIAL
from unpooled.models.glm.rows import BASE, INFORMATION, BaseRate, GlmRows, Responses
from unpooled.privacy.bounds import Coding
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts, moments_augmented
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: Rows that are worked on at a time: pairs of classes times columns times these stay in the cache.
_CACHED = 1024
#: No class is less probable where a deviance needs its logarithm.
_CERTAIN = 1e-12
#: Without noise a class that nobody is in counts as this part of the records.
_RAREST = 1e-6


@dataclass(frozen=True)
class Softmax(Response):
    """The family of C classes."""

    name: ClassVar[str] = MULTINOMIAL
    classes: ClassVar[bool] = True
    high: float = 1.0
    labels: tuple[str, ...] = ("0", "1")

    @property
    def most(self) -> tuple[float, float]:
        """Return the longest pull, and the largest Frobenius norm of a weight."""
        return row_kernels.LONGEST_PULL, 0.5

    def rates_units(self, rates: Floats) -> tuple[float, float]:
        """Return (longest pull, Frobenius norm of the weight) of a record with these rates."""
        return row_kernels.LONGEST_PULL, float(np.linalg.norm(np.diag(rates) - np.outer(rates, rates)))

    def mean(self, u: Floats) -> Floats:
        """Return the probabilities of linear predictors, of every row one per class."""
        return np.asarray(softmax(u, axis=1))

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Minus twice the log likelihood of the classes 0 .. C - 1."""
        told = (mean * (y[:, None] == np.arange(mean.shape[1]))).sum(axis=1)
        return np.asarray(-2 * np.log(np.maximum(told, _CERTAIN)))

    def drawn(self, mean: Floats, rng: np.random.Generator, shape: float = 2.0) -> Floats:
        """Return made-up classes with these probabilities."""
        del shape
        below = rng.random((mean.shape[0], 1)) > np.cumsum(mean, axis=1)
        return np.asarray(np.minimum(below.sum(axis=1), mean.shape[1] - 1).astype(np.float64))


@dataclass(frozen=True)
class ClassResponses(Responses):
    """The column of classes."""

    def read(self, block: tuple[NDArray[np.float64], ...]) -> tuple[Floats, Floats]:
        """Return (the class as a number from 0, no offset) of a block of raw columns."""
        code = Coding((self.response,), 1).code(block[:1])[0]
        return code.argmax(axis=1).astype(np.float64), np.zeros(code.shape[0])


@dataclass(frozen=True)
class ClassRates(BaseRate):
    """Number of records of each class."""

    @property
    def count(self) -> int:
        """Return one for every class."""
        assert self.responses.response.categories is not None
        return len(self.responses.response.categories)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise: a record is in one cell, and one value moves it to another."""
        moved = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}
        reach = {who: Reach(category_counts(how), self.count) for who, how in moved.items()}
        return Summed(BASE, (Block(self.count, 1.0),), reach, 1, share)

    def statistic(self, table: Table) -> Ints:
        """Return the exact counts of one party's rows."""
        total = np.zeros(self.count, dtype=np.int64)
        for block in table.blocks(self.responses.names):
            y, _ = self.responses.read(block)
            total += np.bincount(y.astype(np.int64), minlength=self.count)
        return total

    def rates(self, total: Total, rows: int) -> Floats:
        """Return the rates of the classes, each at least as large as its noise."""
        parts, noise = total.values / rows, total.deviations / rows
        least = np.clip(2 * noise, 1e-4 if noise.any() else _RAREST, 0.5 / self.count)
        found = np.maximum(parts, least)
        return np.asarray(found / found.sum())


@dataclass(frozen=True)
class ClassRows(GlmRows):
    """Sums over standardised rows with a class each."""

    @property
    def classes(self) -> int:
        """C."""
        categories = self.responses.response.categories
        assert categories is not None
        return len(categories)

    @property
    def width(self) -> int:
        """Return the number of coefficients in a request: those of every class."""
        return self.classes * self.layout.size

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """Return (classes, pairs of them, columns, pairs of them)."""
        c, d = self.classes, self.layout.size
        return c, c * (c - 1) // 2, d, d * (d - 1) // 2

    def information(self, share: float, adjacency: Adjacency, steps: int) -> Summed:
        """Weighted second moments (Theorem G.7): every entry once, its noise smaller by the root of how often it stands in the matrix."""
        unit = float(self._steps[1] ** 2)
        c, pairs, d, off = self._sizes
        sizes = ((c * d, 1.0), (c * off, math.sqrt(0.5)), (pairs * d, math.sqrt(0.5)), (pairs * off, 0.5))
        blocks = tuple(Block(size, unit * part) for size, part in sizes if size)
        count = sum(size for size, _ in sizes)
        reach = {who: Reach(moments_augmented(1.0, how), count) for who, how in self.moves(adjacency).items()}
        return Summed(INFORMATION, blocks, reach, self._steps[1] ** 2, share, count=steps)

    # --- at a party ------------------------------------------------------------------------------------------------------

    def class_pulls(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats
    ) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """(rows, pulls of every class, weights of every pair of classes, squared lengths), some thousand rows at a time."""
        longest, heaviest = self.bound
        limits = float(units[0]), longest, heaviest * float(units[1])
        c, pairs, d, _ = self._sizes
        own = start.reshape(c, d)
        for rows, other in blocks:
            for at in range(0, other.shape[0], _CACHED):
                part = rows[at : at + _CACHED]
                y, _, *parts = np.ascontiguousarray(other[at : at + _CACHED].T)
                left, weight, square = np.empty((c, y.size)), np.empty((pairs, y.size)), np.empty(y.size)
                for a in range(c):
                    row_kernels.leave(part, np.zeros(y.size), own[a], float(self.grid), left[a], square)
                row_kernels.class_pulls(left, y, square, float(self.grid), limits, np.empty(c), weight)
                for heavy in parts:  # none without weights
                    left *= heavy
                    weight *= heavy
                yield part, left, weight, square

    def cells_of_pulls(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the numbers of records that are not scaled down, and of those that are."""
        total, longest = np.zeros(2, dtype=np.int64), self.bound
        limits = float(units[0]), longest[0], longest[1] * float(units[1])
        c, _, d, _ = self._sizes
        own = start.reshape(c, d)
        for rows, _ in blocks:
            left, (square, scaled) = np.empty((c, rows.shape[0])), np.empty((2, rows.shape[0]))
            for a in range(c):
                row_kernels.leave(rows, np.zeros(square.size), own[a], float(self.grid), left[a], square)
            row_kernels.classes_are_scaled_down(left, square, float(self.grid), limits, np.empty(c), scaled)
            total += np.bincount(scaled.astype(np.int64), minlength=2)
        return total

    def gradients(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact sum of one round of gradients, class after class."""
        c, _, d, _ = self._sizes
        total, longest = np.zeros((c, d), dtype=np.int64), self._steps[0]
        farthest, exact = int(self.farthest * self.grid), max(1, (1 << 53) // longest)
        for rows, pull, _, square in self.class_pulls(blocks, start, units):
            row_kernels.cut_vectors(pull, square, float(self.grid), farthest, longest)
            for at in range(0, square.size, exact):  # sums of so many products are exact in any order
                part = slice(at, at + exact)
                total += (pull[:, part] @ rows[part]).astype(np.int64)
        return total.ravel()

    def weighted(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact second moments: of every class the diagonal, then what is above it; of every pair of classes the same."""
        c, pairs, d, _ = self._sizes
        longest = self._steps[1]
        sums = np.zeros((pairs, d, d), dtype=np.int64)
        for rows, _, weight, square in self.class_pulls(blocks, start, units):
            out = np.empty((pairs, d, square.size)).transpose(0, 2, 1)
            scale = self.coarse / self.grid
            row_kernels.weigh_pairs(rows, weight / units[1], scale, float(longest**2), out)
            for k in range(pairs):
                add_gram(out[k], longest, sums[k])
        own = np.zeros((c, d, d), dtype=np.int64)
        for k, (a, b) in enumerate(zip(*np.triu_indices(c, 1), strict=True)):
            own[a] += sums[k]
            own[b] += sums[k]
        corner, upper = np.arange(d), np.triu_indices(d, 1)
        parts = (own[:, corner, corner], own[:, *upper], -sums[:, corner, corner], -sums[:, *upper])
        return np.concatenate([part.ravel() for part in parts])

    # --- from the totals -------------------------------------------------------------------------------------------------

    def information_of(self, total: Total) -> tuple[Floats, Floats]:
        """Return (weighted moments in units of the weight, class after class; everywhere the variance of a diagonal entry's noise)."""
        unit = float(self.coarse) ** 2
        c, pairs, d, off = self._sizes
        ends = np.cumsum([c * d, c * off, pairs * d])
        diagonal, upper, cross, crossed = np.split(total.values / unit, ends)
        blocks = np.zeros((c, c, d, d))
        first, second = np.triu_indices(c, 1)
        corner, (row, column) = np.arange(d), np.triu_indices(d, 1)
        whole = np.zeros((c + pairs, d, d))
        whole[:, corner, corner] = np.concatenate([diagonal.reshape(c, d), cross.reshape(pairs, d)])
        beside = np.concatenate([upper.reshape(c, off), crossed.reshape(pairs, off)])
        whole[:, row, column] = whole[:, column, row] = beside
        blocks[np.arange(c), np.arange(c)] = whole[:c]
        blocks[first, second] = blocks[second, first] = whole[c:]
        gram = blocks.transpose(0, 2, 1, 3).reshape(c * d, c * d)
        deviation = float(total.deviations[0]) / unit if total.deviations.size else 0.0
        return gram, np.full(gram.shape, deviation**2)
