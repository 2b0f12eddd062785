"""Means and deviations of columns from counts of their values in a few cells, where sums of squares would be noise alone.

A sum of squares in a declared range of many deviations is a small number with noise of the size of the range. A count is a number of rows. Every
value is in one cell of its column, so each column adds one vector of category counts (Theorem F.2, and B.13 in ``models/bayes/THEORY.md``; of several responses C.8 in ``models/pls/THEORY.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from unpooled.linear.standard import SCALES, Scales, Standard, coded_rows, feature_rows
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import counts_of_columns
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.schedules import table
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]

_TUNED = table("rows")
#: Where cells begin on each side of the middle, in half widths; the second of coordinates with one bound for all.
CUTS, STEEP_CUTS = _TUNED.several("cuts"), _TUNED.several("steep_cuts")
#: Weight of the response's counts relative to those of a column.
RESPONSE = math.sqrt(_TUNED.response_square)
_DEVIATION, _WIDTH = _TUNED.counted_deviation, _TUNED.counted_width


@dataclass(frozen=True)
class Law:
    """Beliefs about columns before data: the median of a deviation and the deviation of its logarithm, where cells begin, and grids."""

    deviation: float
    width: float
    cuts: tuple[float, ...]
    scales: Floats
    means: Floats

    @cached_property
    def chances(self) -> Floats:
        """Return the probability of every cell (means x deviations x cells)."""
        ends = np.array([-np.inf, *(-cut for cut in reversed(self.cuts)), *self.cuts, np.inf])
        return np.asarray(np.diff(ndtr((ends - self.means[:, None, None]) / self.scales[:, None]), axis=-1))

    def of(self, columns: int) -> Law:
        """Return the law of this many columns of one length together."""
        return replace(self, deviation=self.deviation / math.sqrt(columns))


USUAL = Law(_DEVIATION, _WIDTH, CUTS, np.geomspace(0.01, 1.0, 70), np.linspace(-1.0, 1.0, 81))
_FAR = np.geomspace(0.001, 1.0, 40)
_FINE = np.geomspace(0.001, 1.0, 90), np.concatenate([-_FAR[::-1], [0.0], _FAR])
#: Of coordinates under one bound for all: of any size, or alike (the second once it is divided by the root of their number).
STEEP = Law(*_TUNED.pair("steep_law"), STEEP_CUTS, *_FINE)
ALIKE = Law(*_TUNED.pair("alike_law"), STEEP_CUTS, *_FINE)


@dataclass(frozen=True)
class CountedScales(Scales):
    """Counts of the coded values of every column in cells, and of the rows of every level."""

    #: Whether one bound holds for all columns, of which most are much smaller: cells are then fine about the middle.
    steep: bool = False

    @property
    def cuts(self) -> tuple[float, ...]:
        """Return where cells begin on each side of the middle, in half widths."""
        return STEEP_CUTS if self.steep else CUTS

    @property
    def responses(self) -> int:
        """Return the number of responses that are counted."""
        return self.layout.responses * self.response

    @property
    def _numbers(self) -> list[int]:
        """Return the places of coded columns that are numbers."""
        marks = set(self.marks)
        return [at for at in range(self.count) if at not in marks]

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the counts with their noise (Theorem B.13)."""
        each, weight = 2 * len(CUTS) + 1, RESPONSE * math.sqrt(self.responses)
        numbers, marks = each * len(self._numbers), len(self.marks)
        count = numbers + each * self.responses + marks
        blocks = (Block(numbers, 1.0), Block(each * self.responses, 1 / RESPONSE), Block(marks, 1.0))
        kinds = [c.categories is None and c.missing == "indicator" for c in self.layout.features]
        moved = [[kinds[k] for k in places] for places in self.layout.together]
        # A value that is left out may be taken for another one, so one value is exchanged under both adjacencies.
        value = max(
            counts_of_columns(some, RESPONSE * self.response * (not some), Adjacency.REPLACE) for some in [[], *moved]
        )
        row = counts_of_columns(kinds, weight, adjacency)
        reach = {Unit.RECORD: Reach(row, count), Unit.ATTRIBUTE: Reach(value, count)}
        return Summed(SCALES, tuple(block for block in blocks if block.size), reach, 1, share)

    def _added_up(self, blocks: Iterable[tuple[Any, ...]]) -> NDArray[np.int64]:
        numbers, marks, grid = self._numbers, self.marks, float(self.layout.grid)
        middle = len(CUTS)
        places = [*numbers, *range(self.count, self.count + self.responses)]
        cells = np.zeros((len(numbers) + self.responses, 2 * middle + 1), dtype=np.int64)
        levels = np.zeros(len(marks), dtype=np.int64)
        for coded, *response in coded_rows(self.layout, blocks) if self.response else feature_rows(self.layout, blocks):
            for k, values in enumerate([*(coded[:, at] for at in numbers), *response[: self.responses]]):
                cuts = np.array(self.cuts if k < len(numbers) else CUTS) * grid
                own = self.in_usual(places[k], values)
                place = np.searchsorted(cuts, np.abs(own), side="right")
                cells[k] += np.bincount(middle + np.where(own < 0, -place, place), minlength=2 * middle + 1)
            levels += np.count_nonzero(coded[:, marks], axis=0)
        return np.concatenate([cells.ravel(), levels])

    def _laws(self, counts: Floats, noise: Floats, rows: int) -> list[tuple[float, ...]]:
        """Return what is believed of each number: with one bound for all, after asking all whether they are alike or of any size."""
        columns = list(zip(counts, noise, strict=True))
        if not self.steep:
            return [_normal(*column, rows, self._law(at))[0] for at, column in zip(self._numbers, columns, strict=True)]
        each = [[_normal(*column, rows, law) for column in columns] for law in (ALIKE.of(len(columns)), STEEP)]
        first, second = (sum(evidence for _, evidence in found) for found in each)
        alike = 1 / (1 + math.exp(min(second - first, 700.0)))
        mixed = [
            [alike * a + (1 - alike) * b for a, b in zip(one, other, strict=True)]
            for (one, _), (other, _) in zip(*each, strict=True)
        ]
        # A deviation that counts leave open is rather large: short rows arrive late, long ones never.
        return [(mean, math.sqrt(square), *rest, square, spread) for mean, _, *rest, square, spread in mixed]

    def _law(self, at: int) -> Law:
        """Return what is believed of a column or response before its counts: typical values where they were declared."""
        expected = float(self.expected[at])
        return USUAL if math.isnan(expected) else replace(USUAL, deviation=math.sqrt(expected))

    def _in_half_ranges(self, at: int, law: tuple[float, ...]) -> tuple[float, ...]:
        """Return a law of the usual part of a column in half ranges."""
        mean, deviation, error, square, spread = law
        unit, count = float(self.usual[1][at]), self.usual[0].size
        means, deviations = self.in_half_ranges(np.full(count, mean), np.full(count, deviation))
        known = 1.0 if at not in self._numbers_known else math.nan  # cut to its usual part, it does not say the variance
        return float(means[at]), float(deviations[at]), unit * error, known * square, known * spread

    def decode(self, total: Total, rows: int) -> Standard:
        """Return the means and deviations of the normal law that the counts suggest with what is believed before them."""
        (found,) = self.decode_each(total, rows)
        return found

    def decode_each(self, total: Total, rows: int) -> list[Standard]:
        """Return the same for every response, each with all columns."""
        numbers, marks, size = self._numbers, self.marks, 2 * len(CUTS) + 1
        split = size * (len(numbers) + self.responses)
        counts, noise = total.values[:split].reshape(-1, size), total.deviations[:split].reshape(-1, size)
        laws = self._laws(counts[: len(numbers)], noise[: len(numbers)], rows)
        laws = [self._in_half_ranges(at, law) for at, law in zip(numbers, laws, strict=True)]
        # Every response has a range of its own.
        last, own = len(numbers), []
        for k in range(self.responses):
            law, _ = _normal(counts[last + k], noise[last + k], rows, self._law(self.count + k))
            own.append(self._in_half_ranges(self.count + k, law))
        middle, width = np.zeros(self.count), np.ones(self.count)
        middle[numbers], width[numbers] = np.array(laws).reshape(-1, 5).T[:2]
        if marks:
            middle[marks] = total.values[split:] / rows
            error = float(total.deviations[split:].max()) / rows
            for level in self._whole:  # every row has one of them
                middle[level] += (1 - middle[level].sum()) / len(level)
            least = min(max(error, 1 / rows), 0.5)
            middle[marks] = np.clip(middle[marks], least, 1 - least)
            width[marks] = np.sqrt(middle[marks] * (1 - middle[marks]))
        return [
            Standard(np.append(middle, mean), np.append(width, deviation), error, (square, spread))
            for mean, deviation, error, square, spread in own
        ]


def _normal(counts: Floats, deviations: Floats, rows: int, law: Law) -> tuple[tuple[float, ...], float]:
    """Return ((mean, deviation, error of the mean, variance, error of the variance), evidence) of a normal law in half widths, given noisy counts."""
    scales, means = law.scales[:, None], law.means
    expected = rows * law.chances
    variance = np.square(deviations) + expected + 1.0
    before = (
        -np.square(means / _TUNED.counted_mean)[:, None] / 2
        - np.square(np.log(scales[:, 0] / law.deviation) / law.width) / 2
    )
    log = before - (np.square(counts - expected) / variance + np.log(variance)).sum(axis=-1) / 2
    weights = np.exp(log - log.max())
    evidence = float(log.max()) + math.log(float(weights.sum()) / float(np.exp(before).sum()))
    weights /= weights.sum()
    over, own = weights.sum(axis=1), weights.sum(axis=0)
    mean, scale = float(over @ means), math.exp(float(own @ np.log(scales[:, 0])))
    square = float(own @ np.square(scales[:, 0]))
    spread = math.sqrt(max(float(own @ scales[:, 0] ** 4) - square**2, 0.0))
    return (mean, scale, math.sqrt(max(float(over @ means**2) - mean**2, 0.0)), square, spread), evidence
