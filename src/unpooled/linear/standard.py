"""The standardised row: blocks of a party's table are coded, columns are brought to mean 0 and deviation 1 by released numbers, and sums are taken over such rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from unpooled.errors import PlanMismatch
from unpooled.inference.sites import SHORT, with_indicators
from unpooled.kernels import rows as standard_rows
from unpooled.kernels.moments import add_gram
from unpooled.linear.residuals import Meat, ResidualCells, steps_within
from unpooled.privacy.bounds import Coding, integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import clipped_products, moments_ball, standardising_sums
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.schedules import table
from unpooled.totals.threads import shared_out
from unpooled.totals.total import DESCENT, Summed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- Row blocks ------------------------------------------------------------------------------------------------------------
# Blocks of a party's table as the rows of a study: coded, kept between the rounds, and the numbers that a request carries about them.

#: Public numbers of a request are below this, so that no residual overflows.
_LARGEST = 1e6
#: The smallest divisor of a request: a quotient of it is finite, and 0 times that is 0.
_SMALLEST = 1e-100
#: Coded rows of at most this number of values are kept between the rounds of one study.
KEPT = 1 << 23
#: The standardised rows of a table and by what, so that a small one is not coded again in every round; forgotten with the table.
_MADE: WeakKeyDictionary[Table, tuple[object, list[Any]]] = WeakKeyDictionary()


def coded_blocks(layout: MomentsLayout, table: Table) -> Iterator[tuple[Floats, ...]]:
    """Coded features and responses of a table, block by block, as floats that hold integers; last the parts of weights."""
    yield from coded_rows(layout, table.blocks(layout.names_read))


def coded_rows(layout: MomentsLayout, blocks: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Floats, ...]]:
    """Coded features and responses (each by itself) of these raw blocks, and the parts of weights where there are some."""
    coding, response = layout.coding, Coding((layout.response, *layout.others), layout.grid)
    count, end = len(coding.names), len(coding.names) + layout.responses
    for block in blocks:
        coded = np.empty((block[0].size, len(coding.attribute)), order="F")
        if coding.columns:
            coding.code_into(block[:count], coded)
        own = np.empty((block[0].size, layout.responses), order="F")
        response.code_into(block[count:end], own)
        weighting = layout.weighting
        yield coded, *own.T, *([weighting.parts(block[-1])] if weighting is not None and len(block) > end else [])


def coded_features(layout: MomentsLayout, table: Table, others: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Coded features of a table, block by block, and after them other columns as they are."""
    yield from feature_rows(layout, table.blocks((*layout.coding.names, *others)))


def feature_rows(layout: MomentsLayout, blocks: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Coded features of these raw blocks, and whatever else they hold."""
    coding = layout.coding
    for block in blocks:
        coded = np.empty((block[0].size, len(coding.attribute)), order="F")
        coding.code_into(block[: len(coding.columns)], coded)
        yield coded, *block[len(coding.columns) :]


def remembered(table: Table, by: object, size: int, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Return the blocks made of a table in the round before, if they are small and of the same public numbers; else make them anew."""
    if table.n_rows * size > KEPT:
        return make()
    known = _MADE.get(table)
    if known is None or known[0] != by:
        known = _MADE[table] = by, list(make())
    return iter(known[1])


def public_numbers(
    layout: MomentsLayout, settings: tuple[float, ...], more: int, *, responses: int = 1, coefficients: int | None = None
) -> tuple[tuple[Floats, Floats], Floats, Floats]:
    """Return ((means, deviations), coefficients, other numbers) of a request; refuse another count of numbers, or wild ones.

    No sensitivity depends on them. Their bounds only keep every number of a record finite.
    """
    p, d = layout.size - layout.intercept + responses, layout.size if coefficients is None else coefficients
    numbers = np.asarray(settings, dtype=np.float64)
    if numbers.size != 2 * p + d + more or not (np.abs(numbers) <= _LARGEST).all():
        msg = f"a request over standardised rows carries {2 * p + d + more} finite numbers"
        raise PlanMismatch(msg)
    middle, width, start, rest = np.split(numbers, [p, 2 * p, 2 * p + d])
    if not (width >= 1 / _LARGEST).all() or not (rest >= _SMALLEST).all():
        raise PlanMismatch("the deviations and the clip of a request must be positive")
    return (middle, width), start, rest


# --- Standard --------------------------------------------------------------------------------------------------------------
# The standardised row: columns brought to mean 0 and deviation 1 by released numbers, and everything that is summed over such rows.
#
# A coded row x in [-1, 1]^p becomes z = ((x - m)/s, w), with a constant w appended, and the response v = (y - m_y)/s_y, neither clipped inside
# its declared range. m and s were released (``scales``), so they are public, and what one record adds is a function of it alone:
#
# * ``descent``: r z with r = v - z.b, scaled down until |r||z| <= C (Theorem B.5);
# * ``spread``: r^2, at most ``square`` (Theorem B.6);
# * ``cells``: the row's cell of (shortened or not) x (its residual) (Theorem F.2);
# * ``residual``: zz' and rz of the row shortened to length R with its residual by the same factor, |r| <= C (Theorem F.9.3);
# * ``meat``: (rz)(rz)' of the same row and residual (Theorem F.9.4), or of their sums over an id (Theorem B.12).

SCALES, SPREAD, RESIDUAL = "scales", "spread", "residual"
#: Second moments of rows and responses, from which coefficients begin where noise is so small that they need no rounds.
FIRST_MOMENTS = "beginning"
_TUNED = table("rows")
CAP, LARGEST_SQUARE, CONSTANT = _TUNED.cap, _TUNED.largest_square, _TUNED.constant
#: Weight of a sum relative to its sum of squares (Theorem B.7).
FIRST = _TUNED.first_weight
#: No value inside its declared range is farther from a mean, in deviations. Columns are not clipped to less: rows are shortened instead, for which
#: a linear model stays what it is. A rare indicator is ten deviations from its mean, and clipped it would have another coefficient. Nor are
#: responses: what they leave is clipped, to what the noise allows.
WIDEST = 2 / _TUNED.narrowest
#: Steps of a squared residual per unit.
SQUARE_STEPS = 1024.0
#: Rows that are worked on at a time.
_CACHED = 2048


@dataclass(frozen=True)
class Standard:
    """Means and deviations in coded units: of the coded columns, and last of the response. ``noise``: the deviation of the response's mean."""

    middle: Floats
    width: Floats
    noise: float
    #: Variance of the response about its mean, and the deviation of that number's noise, in coded units; nan where nothing tells it.
    variance: tuple[float, float]

    @classmethod
    def declared(cls) -> Standard:
        """Return the standard of a response alone, nothing released: the middle of its range, a quarter of half of it."""
        return cls(np.zeros(1), np.array([1 / CAP]), math.inf, (math.nan, math.nan))

    @property
    def settings(self) -> tuple[float, ...]:
        """As a request carries it."""
        return (*self.middle.tolist(), *self.width.tolist())


@dataclass(frozen=True)
class Scales:
    """Sums and sums of squares of coded columns and of the response, from which means and deviations follow."""

    layout: MomentsLayout
    #: Whether the response is among them; a model whose response has another scale releases that in its own way.
    response: bool = True

    @property
    def count(self) -> int:
        """Return coded columns before the response, without the indicators of sites: the rows of every site are public."""
        return self.layout.unit_columns

    @cached_property
    def _released(self) -> NDArray[np.intp]:
        """Return the places of these columns among the coded features."""
        return np.setdiff1d(np.arange(len(self.layout.coding.attribute)), self.layout.at_sites)

    @cached_property
    def _numbers_known(self) -> dict[int, Column]:
        """Return the columns and responses with typical values, by their places among those that are added up."""
        layout, marks = self.layout, set(self.marks)
        columns = [layout.features[k] for k in np.array(layout.coding.attribute, dtype=np.intp)[self._released].tolist()]
        columns += [layout.response, *layout.others] if self.response else []
        return {
            at: column for at, column in enumerate(columns) if column.typical and not column.categories and at not in marks
        }

    @cached_property
    def usual(self) -> tuple[Floats, Floats]:
        """Return (middle, half width), in half ranges, of the part in which most values of each column and response lie; (0, 1) without typical values."""
        count = self.count + self.layout.responses * self.response
        middle, width = np.zeros(count), np.ones(count)
        for at, column in self._numbers_known.items():
            centre, half = column.usual
            middle[at], width[at] = (centre - column.centre) / column.half_width, half / column.half_width
        return middle, width

    @cached_property
    def expected(self) -> Floats:
        """Return the variances that typical values say, in units of the usual part; nan without."""
        found = np.full(self.usual[0].size, np.nan)
        for at, column in self._numbers_known.items():
            assert column.typical is not None
            found[at] = (column.typical[1] / column.usual[1]) ** 2
        return found

    def in_usual(self, at: int, values: Floats) -> Floats:
        """Return coded values of one column in units of its usual part, cut to it, so that they are in [-grid, grid] as before (Theorem B.21)."""
        if at not in self._numbers_known:
            return values
        grid, (middle, width) = float(self.layout.grid), (numbers[at] for numbers in self.usual)
        return np.asarray(np.trunc(np.clip((values - middle * grid) / width, -grid, grid)))

    def in_half_ranges(self, middle: Floats, width: Floats) -> tuple[Floats, Floats]:
        """Return means and deviations in units of the usual parts as those of whole ranges.

        Where most values lie at an end of the usual part or beyond, all between that end and the end of the range is as likely.
        """
        between, unit = self.usual
        found, spread = between + unit * middle, unit * width
        for at in self._numbers_known:
            if abs(middle[at]) > _TUNED.untypical:
                side = math.copysign(1.0, middle[at])
                near = float(between[at] + side * unit[at])
                found[at], spread[at] = (near + side) / 2, max(abs(side - near) / 2, float(unit[at]))
        return found, spread

    @property
    def weight(self) -> float:
        """Return the weight of the response relative to one column: that of all together, for predictions start from its mean; 0 without it."""
        return math.sqrt(self.count) if self.response else 0.0

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise (Theorem B.7)."""
        p, g, first, weight = self.count, float(self.layout.grid), FIRST, self.weight
        blocks = [Block(p, g / first), Block(p, g * g)]
        if self.response:
            blocks = [blocks[0], Block(1, g / first / weight), blocks[1], Block(1, g * g / weight)]
        kinds = [c.categories is not None or c.missing == "indicator" for c in self.layout.features]
        summed = [k for k in range(len(kinds)) if not self.layout.is_site(k)]
        one = Adjacency.REPLACE if self.layout.makes_other_rows else adjacency
        row = standardising_sums([kinds[k] for k in summed], first, weight, adjacency)
        # One value moves its own column, and with a formula every column that is made of it.
        moved = ([kinds[k] for k in places if k in summed] for places in self.layout.together)
        value = max(
            [standardising_sums([], first, weight, one), *(standardising_sums(some, first, 0.0, one) for some in moved)]
        )
        coordinates = 2 * (p + self.response)
        reach = {Unit.RECORD: Reach(row, coordinates), Unit.ATTRIBUTE: Reach(value, coordinates)}
        return Summed(SCALES, tuple(b for b in blocks if b.size), reach, self.layout.grid**2, share)

    def statistic(self, table: Table) -> Ints:
        """Return the exact sums of one party's rows."""
        names = (*self.layout.coding.names, *(self.layout.response_names if self.response else ()))
        return shared_out(table.blocks(names), self._added_up)

    def _added_up(self, blocks: Iterable[tuple[Any, ...]]) -> Ints:
        total = np.zeros(2 * (self.count + self.response), dtype=np.int64)
        for coded, *response in coded_rows(self.layout, blocks) if self.response else feature_rows(self.layout, blocks):
            rows = np.column_stack([coded[:, self._released], *response])
            for at in self._numbers_known:
                rows[:, at] = self.in_usual(at, rows[:, at])
            rows = rows.astype(np.int64)
            total += np.concatenate([rows.sum(axis=0), (rows * rows).sum(axis=0)])
        return total

    @property
    def marks(self) -> list[int]:
        """Return the places of coded columns of zeros and ones: levels, and marks of missing values."""
        first = np.searchsorted(self.layout.coding.attribute, range(len(self.layout.features)))
        numbers = {int(at) for at, c in zip(first, self.layout.features, strict=True) if c.categories is None}
        return [k for k, at in enumerate(self._released.tolist()) if at not in numbers]

    @property
    def _whole(self) -> list[NDArray[np.intp]]:
        """Return the places of the levels of each column of which every row has exactly one."""
        attribute = np.array(self.layout.coding.attribute)[self._released]
        columns = [k for k, c in enumerate(self.layout.features) if c.categories is not None and not c.may_be_absent]
        places = [np.flatnonzero(attribute == k) for k in columns if not self.layout.is_site(k)]
        return places if not self.layout.makes_other_rows else []

    def decode(self, total: Total, rows: int) -> Standard:
        """Return the means and deviations that the released sums determine, shrunk and bounded by their noise."""
        p, g = self.count + self.response, float(self.layout.grid)
        first, second = total.values[:p] / g / rows, total.values[p:] / g**2 / rows
        first_noise, second_noise = total.deviations[:p] / g / rows, total.deviations[p:] / g**2 / rows
        marks, noises = self.marks, (first_noise**2, second_noise**2)
        if marks and total.deviations.any():  # of zeros and ones the sum of squares is the sum: both tell it
            a, b = (noise[marks] for noise in noises)
            first[marks] = (first[marks] * b + second[marks] * a) / (a + b)
            for places in self._whole:  # every row has one of them
                first[places] += (1 - first[places].sum()) / len(places)
            second[marks] = first[marks]
            first_noise[marks] = second_noise[marks] = np.sqrt(a * b / (a + b))
        middle = np.zeros(p)
        if self.layout.intercept:
            middle = np.clip(first * _TUNED.mean_prior**2 / (_TUNED.mean_prior**2 + first_noise**2), -1.0, 1.0)
        variance = second - middle**2
        if marks and self.layout.intercept:
            variance[marks] = np.clip(first[marks], 0.0, 1.0) * (1 - np.clip(first[marks], 0.0, 1.0))
        # Typical values are what is believed before; without any, a variance is taken for at least the deviation of its noise.
        expected = self.expected
        doubt = (_TUNED.typical_doubt * expected) ** 2
        variance = np.where(
            np.isnan(expected), variance, (doubt * variance + second_noise**2 * expected) / (doubt + second_noise**2)
        )
        least = np.maximum(np.fmin(second_noise, expected), _TUNED.narrowest**2)
        width = np.sqrt(np.clip(variance, least, 1.0))
        noise = math.hypot(second_noise[-1], 2 * middle[-1] * first_noise[-1])
        own = (float(np.clip(variance[-1], 0.0, 1.0)), noise)
        unit = self.usual[1]
        if self.response and p - 1 in self._numbers_known:  # of a response that is cut, squares say nothing of the variance
            own = math.nan, math.nan
        middle, width = self.in_half_ranges(middle, width)
        return Standard(*with_indicators(middle, width, self.layout.at_sites), float(first_noise[-1] * unit[-1]), own)


@dataclass(frozen=True)
class StandardRows:
    """Sums over standardised rows of a layout."""

    layout: MomentsLayout
    #: Of all parties.
    rows: int
    #: |r||z| of one record in a descent round.
    longest: float
    #: The largest squared residual.
    square: float = field(default=LARGEST_SQUARE, kw_only=True)
    #: The bound on rows in second moments, in lengths of a typical row.
    stretch: float = field(default=1.0, kw_only=True)
    #: The most rows of an id that count, where the scores of one id are added up; else 0.
    clusters: int = field(default=0, kw_only=True)

    @cached_property
    def radius(self) -> float:
        """R: the length to which rows are shortened for second moments."""
        own = SHORT**2 * (self.layout.sites is not None)  # a row has one of the sites' indicators
        return self.stretch * math.sqrt(self.layout.unit_columns + own + CONSTANT**2 * self.layout.intercept)

    @property
    def width(self) -> int:
        """Return the number of coefficients of a row."""
        return self.layout.size

    @cached_property
    def grid(self) -> int:
        """Return steps per unit: sums of products of two such values stay inside 64 bits."""
        exact = 1 << ((53 - math.ceil(math.log2(WIDEST**2 * (self.layout.size + 1)))) // 2)  # squared lengths below 2^53
        return min(integer_grid(self.rows * math.ceil(4 * max(self.radius, self.longest, CAP) ** 2), 2), exact)

    @cached_property
    def coarse(self) -> int:
        """Return steps per unit of shortened rows: so few that blocks of thousands of their products are exact in float64."""
        return min(self.grid, 1 << (20 - math.ceil(math.log2(max(self.radius, 1.0)))))

    @property
    def _steps(self) -> tuple[int, int]:
        """Longest product of a gradient and longest row, in grid units, rounded down."""
        return int(self.longest * self.grid**2), int(self.radius * self.coarse)

    def descent(self, share: float, adjacency: Adjacency, rounds: int) -> Summed:
        """Return the sum of gradients of clipped residuals, for ``rounds`` rounds, each a release of its own."""
        d, longest = self.width, self._steps[0]
        move = {unit: clipped_products(1.0, how) for unit, how in self.moves(adjacency).items()}
        reach = {unit: Reach(distance, d) for unit, distance in move.items()}
        return Summed(DESCENT, (Block(d, float(longest)),), reach, longest, share, count=rounds)

    def spread(self, share: float) -> Summed:
        """Return the sum of squared residuals (Theorem B.6)."""
        most = self.most
        reach = {unit: Reach(1.0, 1) for unit in ROWWISE}
        return Summed(SPREAD, (Block(1, float(most)),), reach, most, share)

    @property
    def most(self) -> int:
        """Return a squared residual at its bound, in its own steps."""
        return int(self.square * SQUARE_STEPS)

    def residual(self, share: float, adjacency: Adjacency, name: str = RESIDUAL) -> Summed:
        """Return second moments of shortened rows, and their products with residuals that are written in units of their clip times R."""
        d, off = self.layout.size, self.layout.size * (self.layout.size - 1) // 2
        unit = float(self._steps[1] ** 2)
        middle = (Block(off, unit * math.sqrt(0.5)),) if off else ()
        blocks = (Block(d, unit), *middle, Block(d, unit))
        move = {who: moments_ball(1.0, 1.0, how) for who, how in self.moves(adjacency).items()}
        reach = {who: Reach(distance, d + off + d) for who, distance in move.items()}
        return Summed(name, blocks, reach, self._steps[1] ** 2, share)

    @property
    def cells(self) -> ResidualCells:
        """Return the histogram of residuals, in their deviations."""
        return ResidualCells()

    @property
    def meat(self) -> Meat:
        """Return the second moments of scores: a shortened row times its residual in units of the clip, no longer than the row."""
        return Meat(self.layout.size, steps_within(self._steps[1], self.clusters), self.clusters)

    @staticmethod
    def moves(adjacency: Adjacency) -> dict[Unit, Adjacency]:
        """Return how each unit moves a row: one value moves its whole row, to another row and not to none."""
        return {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}

    # --- at a party ------------------------------------------------------------------------------------------------------

    def blocks(self, table: Table, standard: tuple[Floats, Floats]) -> Iterator[tuple[Floats, Floats]]:
        """(rows on the grid as floats that hold integers, standardised responses and the parts of weights), block by block."""
        (middle, width), count = standard, self.layout.responses
        g, d, one = float(self.layout.grid), self.layout.size, CONSTANT if self.layout.intercept else 0.0
        p = middle.size - count
        for coded, *others in coded_blocks(self.layout, table):
            rows = np.empty((coded.shape[0], d), order="F")
            standard_rows.standardise_rows(coded, middle[:p] * g, 1 / (width[:p] * g), WIDEST, one, float(self.grid), rows)
            scaled = zip(others, middle[p:], width[p:], strict=False)  # parts of weights come after all responses
            yield rows, np.array([*(np.clip((y / g - m) / s, -WIDEST, WIDEST) for y, m, s in scaled), *others[count:]])

    def gradient(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats) -> Ints:
        """Return the exact sum of one descent round."""
        return self.cut_products(self._left(blocks, start, whole=True), 2 * WIDEST)

    def cut_products(self, left: Iterable[tuple[Floats, Floats, Floats]], most: float) -> Ints:
        """Return the exact sum of (rows, residuals, squared lengths), residuals at most ``most`` and their products at most ``longest``."""
        total, longest = np.zeros(self.width, dtype=np.int64), self._steps[0]
        farthest, exact = int(most * self.grid), max(1, (1 << 53) // longest)
        for rows, residual, square in left:
            standard_rows.cut_residuals(residual, square, float(self.grid), farthest, longest)
            for at in range(0, residual.size, exact):  # sums of so many products are exact in any order
                part = slice(at, at + exact)
                total += (rows[part].T @ residual[part]).astype(np.int64)
        return total

    def squares(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats) -> Ints:
        """Return the exact sum of squared residuals."""
        left = self._left(blocks, start)
        total = sum(standard_rows.add_squares(residual, SQUARE_STEPS, self.most) for _, residual, _ in left)
        return np.array([total], dtype=np.int64)

    def products(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, clip: float) -> Ints:
        """Return the exact second moments of shortened rows and residuals: diagonal, above it, products with residuals."""
        d, longest, most = self.layout.size, self._steps[1], self._clip(clip)
        total = np.zeros((d + 1, d + 1), dtype=np.int64)
        for out in self._shortened(blocks, start, clip):
            # In units of clip / R, so that residuals are as long as rows; toward zero once more.
            out[:, d] = np.clip(np.trunc(out[:, d] * (longest / most)), -longest, longest)
            add_gram(out, longest, total)
        return np.concatenate([total.diagonal()[:d], total[:d, :d][np.triu_indices(d, 1)], total[:d, d]])

    def scores(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, clip: float) -> Iterator[Floats]:
        """Shortened rows times their clipped residuals in units of the clip, some thousand rows at a time: no longer than the meat's longest score."""
        d, most = self.layout.size, self._clip(clip)
        finer = self.meat.longest / self._steps[1]
        for out in self._shortened(blocks, start, clip):
            yield np.trunc(out[:, :d] * (out[:, d] / most * finer)[:, None])

    def residual_cells(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, deviation: float) -> Ints:
        """Return the exact counts of shortened rows and of the residuals that go with them, in these deviations."""
        total = np.zeros(2 * self.cells.each, dtype=np.int64)
        far = self.radius * self.grid
        for _, residual, square in self._left(blocks, start, longer=True):
            length = np.sqrt(square)
            factor = np.minimum(1.0, np.divide(far, length, out=np.ones_like(length), where=length > 0))
            total += self.cells.added_up(residual * factor / deviation, length > far)
        return total

    def _shortened(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, clip: float) -> Iterator[Floats]:
        """Rows of at most R, and last their residuals scaled by the same factor and clipped."""
        longest, most, finer = self._steps[1], self._clip(clip), (self.coarse / self.grid, float(self.grid))
        for rows, residual, square in self._left(blocks, start, longer=True):
            out = np.empty((residual.size, self.layout.size + 1), order="F")
            standard_rows.shorten_rows(rows, residual, square, *finer, longest, most, out)
            yield out

    def _left(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, *, whole: bool = False, longer: bool = False
    ) -> Iterator[tuple[Floats, Floats, Floats]]:
        """(rows, residuals, squared lengths), some thousand rows at a time, which stay in the cache.

        With weights, residuals are multiplied by the roots of their parts (``whole``: by the parts), and with ``longer`` so are the rows.
        """
        for rows, (response, *parts) in blocks:
            for at in range(0, response.size, _CACHED):
                part = rows[at : at + _CACHED]
                residual, square = np.empty((2, part.shape[0]))
                standard_rows.leave_from(rows, at, response[at : at + _CACHED], start, float(self.grid), residual, square)
                for own in parts:  # none without weights
                    root = np.sqrt(own[at : at + _CACHED])
                    residual *= root * root if whole else root
                    if longer:
                        part = np.asfortranarray(np.trunc(part * root[:, None]))
                        square = np.square(part).sum(axis=1)
                yield part, residual, square

    def _clip(self, clip: float) -> int:
        """Return the clip of a residual in steps of the grid, at least one."""
        return max(int(clip * self.grid), 1)

    # --- from the totals -------------------------------------------------------------------------------------------------

    def gradient_of(self, total: Total) -> tuple[Floats, float]:
        """Return the gradient in standardised units, and the deviation of its noise."""
        unit = float(self.grid) ** 2
        return total.values / unit, float(total.deviations.max()) / unit

    def square_of(self, total: Total) -> tuple[float, float]:
        """Return the sum of squared residuals, and the deviation of its noise."""
        return float(total.values[0]) / SQUARE_STEPS, float(total.deviations[0]) / SQUARE_STEPS

    def noise_of_products(self, deviations: Floats) -> float:
        """Return the deviation of the noise of one sum of z r, for residuals that are clipped to 1."""
        return float(deviations[-1]) / (self._steps[1] * self.coarse)

    def meat_of(self, total: Total, clip: float) -> tuple[Floats, Floats]:
        """Return second moments of scores in standardised units, and the variances of their noise."""
        unit = (self._clip(clip) / self.grid / self.coarse * (self._steps[1] / self.meat.longest)) ** 2
        found, variance = self.meat.decode(total)
        return found * unit, variance * unit**2

    def products_of(self, total: Total, clip: float) -> tuple[Floats, Floats]:
        """Return (moments, variances of their noise) of (z, r), with nan for the sum of r^2."""
        d, unit = self.layout.size, float(self.coarse) ** 2
        gram, variance = (np.full((d + 1, d + 1), np.nan) for _ in range(2))
        first, second = np.triu_indices(d, 1)
        rows, columns = (
            np.concatenate([np.arange(d), first, np.arange(d)]),
            np.concatenate([np.arange(d), second, np.full(d, d)]),
        )
        # Residuals were counted in units of clip / R.
        back = np.where(columns == d, self._clip(clip) / self.grid / (self._steps[1] / self.coarse), 1.0) / unit
        gram[rows, columns] = gram[columns, rows] = total.values * back
        variance[rows, columns] = variance[columns, rows] = (total.deviations * back) ** 2
        return gram, variance
