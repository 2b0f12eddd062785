"""Whether a row is whole, modelled by the response and the columns that are never missing; and the fit of the whole rows given that they are.

Let W say that a row has all values, u be its columns that are never missing and z the others. If W is independent of z given (u, y) and
P(W | u, y) = pi(u, y), then among whole rows y has the law f(y | u, z) pi(u, y) over its sum over y: for two classes the same log odds with the
offset log pi(u, 1) - log pi(u, 0) (Theorem G.12). pi is a logistic regression of W over all rows: its coefficients are released by rounds like
any others, and from then on the offset is a function of one row and of public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from unpooled.errors import PlanMismatch, UsageError
from unpooled.inference.sites import SHORT
from unpooled.kernels import rows as row_kernels
from unpooled.linear.standard import CONSTANT, WIDEST
from unpooled.linear.tilted import kept_features
from unpooled.models.glm.rows import GlmRows, Responses
from unpooled.privacy.bounds import Coding
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import clipped_products
from unpooled.totals.total import Summed
from unpooled.totals.whole_rows import WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Adjacency, Unit
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- What a study declares -------------------------------------------------------------------------------------------------

#: The totals of the model of completeness: its rounds, the end of its fit, and how the coefficients of the study rest on it.
ROUNDS, SCORE, INFORMATION = "completeness", "completeness_score", "completeness_information"
INFLUENCE = "influence"
#: The same in words, for those who approve a plan.
WORDS = {
    ROUNDS: "the sum over all rows, whole or not, of how each row pulls at the model of which rows are whole, once in every round",
    SCORE: "the sum over all rows, whole or not, of how each row pulls at the model of which rows are whole, at the end of its fit",
    INFORMATION: "sums of products of the columns that are never missing and of the response over all rows, whole or not",
    INFLUENCE: "sums of products of the columns with what the model of which rows are whole says of them, for standard errors",
}
#: Notes of a plan on these totals.
NOTES = {
    ROUNDS: "which rows are whole, by the response and the columns that are never missing, in rounds over all rows",
    INFLUENCE: "how far the coefficients move with the model of which rows are whole, for their standard errors",
}
#: A standardised class is at most so far from the mean, however rare it is.
_FARTHEST_CLASS = 5.0
#: Rows of derivatives are bounded at this many typical lengths, and rows are worked on this many at a time.
_FAR, _CACHED = 2.0, 2048
#: Numbers of a request are below this, and log odds of being whole too.
_LARGEST, _SUREST = 1e6, 30.0


@dataclass(frozen=True)
class Completeness:
    """The model of which rows are whole, of a study with these coded features."""

    layout: MomentsLayout
    #: The declared columns of which a whole row has all.
    columns: tuple[Column, ...]
    #: Whether the response has a slope of its own along every column that is never missing.
    products: bool

    @cached_property
    def _kept(self) -> tuple[int, ...]:
        """Return the features that read none of these columns."""
        return kept_features(self.layout, self.columns)

    @cached_property
    def coding(self) -> Coding:
        """Return the code of the columns that are never missing."""
        return Coding(tuple(self.layout.features[k] for k in self._kept), self.layout.grid)

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Return the places of the columns that are never missing among the coded features."""
        return np.flatnonzero(np.isin(self.layout.coding.attribute, self._kept))

    @cached_property
    def multiplied(self) -> NDArray[np.intp]:
        """Return which of these columns are multiplied with the response: all but the indicators of sites, or none."""
        own = np.flatnonzero(~np.isin(self.places, self.layout.at_sites))
        return own if self.products else own[:0]

    @property
    def middle(self) -> Floats:
        """Return a coded row of columns that are never missing at the middle of them: numbers 0, and every level as often as the others."""
        parts = [1 / len(c.categories) if c.categories else 0.0 for c in self.coding.columns]
        return np.array(parts)[np.array(self.coding.attribute, dtype=np.intp)]

    @property
    def size(self) -> int:
        """Return its coefficients: columns, products, the response, the constant."""
        return self.places.size + self.multiplied.size + 2

    def along(self, gamma: Floats, y: float) -> Floats:
        """Return the coefficients of the study's own rows whose linear predictor is the log odds of being whole at this standardised response."""
        start = np.zeros(self.layout.size)
        start[self.places] = gamma[: self.places.size]
        start[self.places[self.multiplied]] += y * gamma[self.places.size : -2]
        start[-1] = gamma[-1] + y * gamma[-2] / CONSTANT
        return start

    def rows_of(self, columns: Floats, y: Floats) -> Floats:
        """Return rows of the model of completeness from columns that are never missing and standardised responses, without rounding."""
        products = columns[:, self.multiplied] * y[:, None]
        return np.column_stack([columns, products, y, np.full(y.size, CONSTANT)])

    def still(self, still: Floats) -> Floats:
        """Return the directions of these coefficients along which no row varies, from those of the study's rows."""
        p, q = self.places.size, self.multiplied.size
        others = np.setdiff1d(np.arange(self.layout.size - 1), self.places)
        found = []
        for direction in still.T:
            if np.abs(direction[others]).max(initial=0.0) > 0:
                continue
            own = direction[self.places]
            found.append(np.concatenate([own, np.zeros(q + 1), direction[-1:]]))
            outside = np.setdiff1d(np.arange(p), self.multiplied)
            if q and np.abs(own[outside]).max(initial=0.0) == 0:
                found.append(np.concatenate([np.zeros(p), own[self.multiplied], direction[-1:] * CONSTANT, [0.0]]))
        return np.array(found).T if found else np.empty((self.size, 0))


def check_model(column: Column, family: str, method: str, *, logistic: str, newton: tuple[str, ...]) -> None:
    """Refuse a family or a method that has no model of completeness."""
    rule = f'column {column.name!r} declares missing = "model"'
    remedy = 'declare "complete" (right unless missingness depends on the response)'
    if family != logistic:
        msg = f"{rule}, which is for family {logistic!r}, and this one is {family!r}: {remedy}"
        raise UsageError(msg).at(column=column.name)
    if method not in newton:
        msg = f"{rule}, which is for tables: method {str(newton[-1])!r}, not {str(method)!r}. Or {remedy}"
        raise UsageError(msg).at(column=column.name)


# --- Offsets ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tilt:
    """A model of completeness at released coefficients: from here on public numbers."""

    completeness: Completeness
    #: What standardises the response, and what rows of derivatives are divided by.
    middle: float
    width: float
    unit: float
    gamma: Floats

    @property
    def settings(self) -> tuple[float, ...]:
        """As a request carries it."""
        return (self.middle, self.width, self.unit, *self.gamma.tolist())

    @property
    def ends(self) -> tuple[float, float]:
        """Return the standardised responses of the two classes."""
        first, second = standardised(np.array([0.0, 1.0]), self.middle, self.width).tolist()
        return first, second

    def log_odds(self, rows: Floats, grid: float) -> tuple[Floats, Floats]:
        """Return the log odds of being whole with either class, of rows on a grid: record after record, in the order of columns."""
        found = []
        for y in self.ends:
            back, square = np.empty((2, rows.shape[0]))
            row_kernels.leave(rows, np.zeros(rows.shape[0]), self.completeness.along(self.gamma, y), grid, back, square)
            found.append(np.clip(-back, -_SUREST, _SUREST))
        return found[0], found[1]

    def offsets(self, rows: Floats, grid: float) -> Floats:
        """Return log pi(u, 1) - log pi(u, 0)."""
        first, second = self.log_odds(rows, grid)
        return np.asarray(np.logaddexp(0.0, -first) - np.logaddexp(0.0, -second))

    def derivatives(self, rows: Floats, grid: float) -> Floats:
        """Return the derivatives of the offsets by the coefficients of completeness, a row each, in units of :attr:`unit`."""
        first, second = self.log_odds(rows, grid)
        without = expit(-first), expit(-second)
        own, (low, high) = self.completeness, self.ends
        columns = rows[:, own.places] / grid
        level, slope = without[1] - without[0], without[1] * high - without[0] * low
        parts = [
            columns * level[:, None],
            columns[:, own.multiplied] * slope[:, None],
            slope[:, None],
            CONSTANT * level[:, None],
        ]
        return np.concatenate(parts, axis=1, dtype=np.float64) / self.unit


def standardised(y: Floats, middle: float, width: float) -> Floats:
    """Return classes 0 and 1 less a public middle over a public width, no farther out than a rare class may be."""
    return np.clip((y - middle) / width, -_FARTHEST_CLASS, _FARTHEST_CLASS)


def tilt_of(completeness: Completeness, numbers: Floats) -> Tilt:
    """Return the model of completeness that a request carries; refuse another count of numbers, or wild ones. No sensitivity depends on them."""
    if (
        numbers.size != completeness.size + 3
        or not (np.abs(numbers) <= _LARGEST).all()
        or not (numbers[1:3] >= 1 / _LARGEST).all()
    ):
        msg = f"a request over whole rows carries {completeness.size + 3} finite numbers on which rows are whole, the second and third positive"
        raise PlanMismatch(msg)
    middle, width, unit = numbers[:3].tolist()
    return Tilt(completeness, middle, width, unit, numbers[3:])


# --- Sums over all rows ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompletenessRows(GlmRows):
    """Sums over all rows, whole or not, whose response is whether they are whole; the features are columns that are never missing, and the study's response."""

    completeness: Completeness | None = None
    #: The response of the study.
    outcome: Responses | None = None

    @property
    def own(self) -> Completeness:
        """Return the model."""
        assert self.completeness is not None
        return self.completeness

    @property
    def width(self) -> int:
        """Return its coefficients."""
        return self.own.size

    @cached_property
    def radius(self) -> float:
        """Return the length of a typical row: products with a standardised response are as long as what they are products of."""
        layout = self.layout
        sites = SHORT**2 * (layout.sites is not None)
        columns = self.own.places.size - layout.at_sites.size
        return self.stretch * math.sqrt(columns + self.own.multiplied.size + 1 + sites + CONSTANT**2)

    @cached_property
    def grid(self) -> int:
        """Return steps per unit: fewer than of other rows, because a rare class makes entries longer."""
        if self.exact:
            return super().grid
        largest = WIDEST * _FARTHEST_CLASS
        exact = 1 << ((53 - math.ceil(math.log2(largest**2 * (self.width + 1)))) // 2)
        return min(super().grid, exact)

    def marked(
        self, table: Table, standard: tuple[Floats, Floats], of_class: tuple[float, float]
    ) -> Iterator[tuple[Floats, Floats]]:
        """(rows on the grid as floats that hold integers, columns of whether they are whole and of no offset), block by block.

        ``table`` marks which rows are whole. ``standard`` has the means and deviations of all columns of the study, ``of_class`` what standardises
        the response.
        """
        own, outcome, grid = self.own, self.outcome, float(self.grid)
        assert outcome is not None
        g, p, (middle, width) = float(self.layout.grid), own.places.size, standard
        names = own.coding.names
        for block in table.blocks((*names, *outcome.names, WHOLE)):
            *features, whole = block
            y = standardised(outcome.read(tuple(features[len(names) :]))[0], *of_class)
            coded = np.empty((whole.size, p), order="F")
            if names:
                own.coding.code_into(features[: len(names)], coded)
            rows = np.empty((whole.size, self.width), order="F")
            row_kernels.standardise_rows(
                coded, middle[own.places] * g, 1 / (width[own.places] * g), WIDEST, 0.0, grid, rows[:, :p]
            )
            rows[:, p:-2] = np.trunc(rows[:, own.multiplied] * y[:, None])
            rows[:, -2] = np.trunc(y * grid)
            rows[:, -1] = math.trunc(CONSTANT * grid)
            yield rows, np.column_stack([whole, np.zeros(whole.size)])


# --- How coefficients rest on it -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Influence:
    """The derivative of the study's score by the coefficients of completeness: a sum over whole rows of h w z o', o the derivative of the offset (Theorem G.13)."""

    rows: GlmRows
    completeness: Completeness

    @cached_property
    def _longest(self) -> tuple[int, int]:
        """Return the longest weighted row, and the longest row of derivatives, in steps."""
        far = _FAR * self.rows.stretch * math.sqrt(self.completeness.size)
        return int(self.rows.radius * self.rows.coarse), int(far * self.rows.coarse)

    @property
    def longest(self) -> int:
        """Return the largest Frobenius norm of what a row adds, in its own steps."""
        return self._longest[0] * self._longest[1]

    def vector(self, share: float, moves: Mapping[Unit, Adjacency]) -> Summed:
        """Return the statistic with its noise."""
        count = self.rows.width * self.completeness.size
        reach = {unit: Reach(clipped_products(1.0, how), count) for unit, how in moves.items()}
        return Summed(INFLUENCE, (Block(count, float(self.longest)),), reach, self.longest, share)

    def added_up(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats, tilt: Tilt) -> Ints:
        """Return the exact sum over whole rows, row after row of the matrix."""
        rows, (one, other) = self.rows, self._longest
        total = np.zeros((rows.width, self.completeness.size), dtype=np.int64)
        step = max(1, (1 << 53) // self.longest)
        for part, _, heavy, square in rows.pulls(blocks, start, units):
            weight = heavy / units[1]
            derived = tilt.derivatives(part, float(rows.grid))
            first, second = np.empty(part.shape, order="F"), np.empty(derived.shape, order="F")
            length = np.zeros(square.size)
            for column in derived.T:  # record after record, in the order of columns
                length += column * column
            row_kernels.weigh_rows(part, square, weight.copy(), rows.coarse / rows.grid, one, first)
            row_kernels.weigh_rows(np.asfortranarray(derived), length, weight, float(rows.coarse), other, second)
            for at in range(0, square.size, step):
                total += (first[at : at + step].T @ second[at : at + step]).astype(np.int64)
        return total.ravel()

    def decode(self, total: Total, units: tuple[float, float], unit: float) -> tuple[Floats, float]:
        """Return (the matrix, the deviation of the noise of an entry) in units of the coefficients."""
        scale = units[1] * unit / float(self.rows.coarse) ** 2
        return total.values.reshape(self.rows.width, -1) * scale, float(total.deviations.max()) * scale
