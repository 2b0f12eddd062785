r"""The second-moment statistic: what is summed, how far one person moves it, and what can be computed from the noisy total for free.

A row is coded into integers (:class:`~unpooled.privacy.bounds.Coding`): x in [-1, 1]^p, a constant 1 for the intercept, y in [-1, 1], all
times the grid. Summed are products of two coded values, exact in int64, in one of four geometries:

* ``ball``: xx and xy under the L2 bound R; y weighted up to R, off-diagonal noise smaller by sqrt 2 (Theorem F.9.3), the default;
* ``box``: xx and xy under the bounds of single columns, equal noise on every entry (Theorem F.9.1);
* ``augmented``: all of z z^T with z = (a_x x/R, a_y y, a_1), which holds the sums and y^2 too (Theorem F.9.4);
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from unpooled.aggregation.linear_fit import LinearFit
from unpooled.aggregation.moments_file import FORMAT, StoredMoments, read, write
from unpooled.aggregation.totals import Summed
from unpooled.errors import DataError, UsageError
from unpooled.kernels import noisy_gram
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import moments_augmented, moments_ball, moments_box
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.messages import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from unpooled.aggregation.totals import Total
    from unpooled.privacy.table import Table

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]

#: Squared weights of x, y and the constant in the augmented row: measured to serve partial least squares well.
AUGMENTED_WEIGHTS = (0.5, 0.4, 0.1)


class Geometry(StrEnum):
    """Which moments are released, and under which bound on a row."""

    BALL = "ball"
    BOX = "box"
    AUGMENTED = "augmented"


@dataclass(frozen=True)
class MomentsLayout:
    """The coded row (x, 1, y) of a study and the statistic that is summed over rows."""

    features: tuple[Column, ...]
    response: Column
    grid: int
    geometry: Geometry = Geometry.BALL
    #: L2 bound on the centred row of features, in the data's own units; None where only columns are bounded.
    norm: float | None = None
    intercept: bool = True

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        response: str,
        rows: int,
        *,
        geometry: Geometry = Geometry.BALL,
        norm: float | None = None,
        intercept: bool = True,
    ) -> MomentsLayout:
        """The design of these declared columns, one of which is the response, for this many rows in all."""
        named = [column for column in columns if column.name == response]
        features = tuple(column for column in columns if column.name != response)
        if len(named) != 1 or not features:
            msg = f"the response {response!r} must be one declared column, beside at least one feature"
            raise UsageError(msg)
        if named[0].categories is not None or named[0].may_be_absent:
            msg = (
                f'the response {response!r} must be a number that is never missing: declare low and high, missing = "refuse"'
            )
            raise UsageError(msg)
        if not intercept:  # without a constant nothing can be centred: ranges are made symmetric about 0
            features, named = tuple(_symmetric(c) for c in features), [_symmetric(named[0])]
        return cls(features, named[0], integer_grid(rows, 2), geometry, norm, intercept)

    @cached_property
    def coding(self) -> Coding:
        """The code of the features."""
        return Coding(self.features, self.grid, self.norm)

    @property
    def size(self) -> int:
        """Coded features, and the constant."""
        return len(self.coding.attribute) + self.intercept

    @property
    def radius(self) -> float:
        """R: the L2 bound of the coded row of features and constant. A declared column is at most 1 long, however it is coded."""
        return math.sqrt((1 if self.norm is not None else len(self.features)) + self.intercept)

    @property
    def makes_other_rows(self) -> bool:
        """Whether a row without one of its values has other coded values beside a zero: an indicator set, the rest shortened less."""
        return self.norm is not None or any(column.missing == "indicator" for column in self.features)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(rows, columns) of the released entries of the Gram of (x, 1, y), in the order of the vector."""
        d = self.size + (self.geometry is Geometry.AUGMENTED)
        upper = np.triu_indices(d, 1)
        ends = [(np.arange(d), np.arange(d)), upper]
        if self.geometry is not Geometry.AUGMENTED:
            ends.append((np.arange(d), np.full(d, d)))
        return tuple(np.concatenate([end[side] for end in ends]) for side in (0, 1))  # type: ignore[return-value]

    @cached_property
    def _weights(self) -> Row:
        """What each value of the coded row (x, 1, y) is multiplied with to give the augmented row z."""
        d = self.size
        x, y, one = np.sqrt(AUGMENTED_WEIGHTS)
        reach = math.sqrt(self.radius**2 - self.intercept)
        return np.array([*[x / reach] * (d - self.intercept), *[one] * self.intercept, y])

    def vector(self, name: str, adjacency: Adjacency, share: float = 1.0) -> Summed:
        """The statistic as something to add up, with noise shaped to its geometry."""
        d, off = self.size, self.size * (self.size - 1) // 2
        distance: Callable[[Adjacency], float]
        if self.geometry is Geometry.AUGMENTED:
            first, second = self.pairs
            shape = np.where(first == second, 1.0, math.sqrt(0.5)) / (self._weights[first] * self._weights[second])
            blocks = blocks_of(shape)
            distance = partial(moments_augmented, math.sqrt(sum(AUGMENTED_WEIGHTS[: 2 + self.intercept])))
        elif self.geometry is Geometry.BOX:
            y = math.sqrt(d)  # as long as x, like in a ball
            blocks = (Block(d + off, 1.0), Block(d, 1 / y))
            distance = partial(moments_box, [1.0] * d, y)
        else:
            r = self.radius
            middle = (Block(off, math.sqrt(0.5)),) if off else ()
            blocks = (Block(d, 1.0), *middle, Block(d, 1 / r))
            distance = partial(moments_ball, r, r)
        return self.summed(name, blocks, distance, adjacency, share)

    def summed(
        self,
        name: str,
        blocks: tuple[Block, ...],
        distance: Callable[[Adjacency], float],
        adjacency: Adjacency,
        share: float,
        scale: float | None = None,
    ) -> Summed:
        """The statistic with noise of this shape, given how far a row moves it in coded units."""
        count, unit = sum(block.size for block in blocks), float(self.grid**2)
        # One value of a person moves no more than the whole person does, where the row it leaves behind is a part of the row it was.
        one = Adjacency.REPLACE if self.makes_other_rows else adjacency
        moved = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: one}
        reach = {who: Reach(distance(how) * unit, count) for who, how in moved.items()}
        return Summed(name, blocks, reach, self.grid**2, share, scale)

    @property
    def names(self) -> tuple[str, ...]:
        """What every coefficient belongs to: a column, one of its categories, or its being missing."""
        return self.coding.coded_names

    @property
    def half_widths(self) -> Row:
        """The data's own units per coded unit of every coded feature, and 1 for the constant and for categories."""
        return np.append(self.coding.units[0], [1.0] * self.intercept)

    @property
    def centres(self) -> Row:
        """What was subtracted from every coded feature, in the data's own units; 0 for the constant and for categories."""
        return np.append(self.coding.units[1], [0.0] * self.intercept)

    # --- at a party ------------------------------------------------------------------------------------------------------

    def statistic(self, table: Table) -> NDArray[np.int64]:
        """The exact integer vector of one party's rows, streamed over its blocks."""
        return self.added_up(table.blocks((*self.coding.names, self.response.name)))

    def added_up(self, blocks: Iterable[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
        """The same for blocks of raw features and, last, the response: of a table, or made from one row by row."""
        from unpooled.kernels.moments import add_gram

        width = self.size + 1
        total = np.zeros((width, width), dtype=np.int64)
        response = Coding((self.response,), self.grid)
        buffer = np.empty((0, width), order="F")
        for block in blocks:
            rows = block[0].size
            if buffer.shape[0] < rows:
                buffer = np.empty((rows, width), order="F")
            coded = buffer[:rows]
            self.coding.code_into(block[:-1], coded[:, : width - 1 - self.intercept])
            if self.intercept:
                coded[:, width - 2] = self.grid
            response.code_into(block[-1:], coded[:, width - 1 :])
            add_gram(coded, self.grid, total)
        return total[self.pairs]

    # --- from the total --------------------------------------------------------------------------------------------------

    def decode(self, total: Total, rows: int, plan: str = "", statement: str = "") -> Moments:
        """The noisy moments of the coded row (x, 1, y), in coded units."""
        width, (first, second) = self.size + 1, self.pairs
        gram, variance = (np.full((width, width), np.nan) for _ in range(2))
        gram[first, second] = gram[second, first] = total.values / self.grid**2
        variance[first, second] = variance[second, first] = (total.deviations / self.grid**2) ** 2
        if self.intercept:  # the number of rows is public
            one = self.size - 1
            gram[one, one], variance[one, one] = rows, 0.0
        return Moments(self, rows, gram, variance, plan, statement)


def _symmetric(column: Column) -> Column:
    if column.categories is not None:
        return column
    end = max(abs(end) for end in column.range)
    return msgspec.structs.replace(column, low=-end, high=end)


def blocks_of(widths: Row) -> tuple[Block, ...]:
    """Runs of equal noise."""
    edges = [0, *(np.flatnonzero(np.diff(widths)) + 1).tolist(), widths.size]
    return tuple(Block(end - start, float(widths[start])) for start, end in itertools.pairwise(edges))


# --- what everybody may compute ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Moments:
    """Released second moments of coded rows (x, 1, y): one release, many models, at no further cost.

    ``gram`` and ``variance`` are those of the whole coded row; entries that were not released (y^2, unless augmented) are nan.
    """

    layout: MomentsLayout
    rows: int
    gram: Matrix
    variance: Matrix
    plan: str = ""
    statement: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moments) and self.stored() == other.stored()

    __hash__ = None  # type: ignore[assignment]

    @property
    def xx(self) -> tuple[Matrix, Matrix]:
        """The Gram of (x, 1) and the variances of its noise."""
        d = self.layout.size
        return self.gram[:d, :d], self.variance[:d, :d]

    @property
    def xy(self) -> tuple[Row, Row]:
        """The cross moments of (x, 1) with y, and the variances of their noise."""
        d = self.layout.size
        return self.gram[:d, d], self.variance[:d, d]

    def posterior(self, prior_precision: float = 1.0, noise_precision: float = 1.0, *, naive: bool = False) -> LinearFit:
        """Posterior of y ~ N(x.beta + b, 1/noise_precision), beta ~ N(0, I/prior_precision), in the data's own units.

        The intercept, at the centre of the declared ranges, has the half width of y as its prior standard deviation.
        """
        prior_precision, noise_precision = (_positive(p) for p in (prior_precision, noise_precision))
        y = self.layout.response.half_width
        prior = prior_precision * (y / self.layout.half_widths) ** 2
        if self.layout.intercept:
            prior[-1] = 1.0
        (gram, gram_variance), (cross, cross_variance) = self.xx, self.xy
        precision = noise_precision * y**2
        if naive:
            return self._in_own_units(*noisy_gram.naive_posterior(gram, cross, prior, precision))
        return self._in_own_units(*noisy_gram.posterior(gram, cross, gram_variance, cross_variance, prior, precision))

    def ridge(self, alpha: float = 1.0, noise_precision: float = 1.0) -> LinearFit:
        """Ridge regression with scikit-learn's ``alpha`` (on centred data of the declared ranges, intercept not penalised).

        Its covariance holds sampling (with noise of this precision) and privacy noise, not the bias of the penalty.
        """
        if not 0 <= alpha < math.inf:
            raise UsageError("alpha must be a finite number >= 0")
        penalty = alpha / self.layout.half_widths**2
        if self.layout.intercept:
            penalty[-1] = 0.0
        precision = _positive(noise_precision) * self.layout.response.half_width**2
        (gram, gram_variance), (cross, cross_variance) = self.xx, self.xy
        found = noisy_gram.ridge(gram, cross, gram_variance, cross_variance, penalty, precision)
        return self._in_own_units(*found, prior=False)

    def ols(self, noise_precision: float = 1.0) -> LinearFit:
        """Ordinary least squares: ridge with ``alpha = 0`` on moments repaired where they are not positive definite."""
        return self.ridge(0.0, noise_precision)

    def _in_own_units(self, mean: Row, covariance: Matrix, *, prior: bool = True) -> LinearFit:
        """beta_j = Y b_j / h_j; the intercept takes up the centres."""
        layout = self.layout
        back = np.diag(layout.response.half_width / layout.half_widths)
        if layout.intercept:
            back[-1] -= layout.centres * back.diagonal()
        own, spread = back @ mean, back @ covariance @ back.T
        p = own.size - layout.intercept
        intercept = float(own[-1]) + layout.response.centre if layout.intercept else 0.0
        return LinearFit(own[:p], intercept, spread, noisy_gram.identified(*self.xx)[:p], prior)

    # --- files -----------------------------------------------------------------------------------------------------------

    def stored(self) -> StoredMoments:
        """Everything as plain data."""
        d = self.layout
        gram, variance = Array.of(self.gram), Array.of(self.variance)
        head = (FORMAT, d.features, d.response, d.grid, str(d.geometry), d.norm, d.intercept)
        return StoredMoments(*head, self.rows, gram, variance, self.plan, self.statement)

    @classmethod
    def of(cls, stored: StoredMoments) -> Self:
        """From plain data; refused where they do not fit together."""
        if stored.format != FORMAT or stored.geometry not in list(Geometry):
            msg = f"moments of another format: this program reads {FORMAT!r}"
            raise DataError(msg)
        geometry = Geometry(stored.geometry)
        layout = MomentsLayout(stored.features, stored.response, stored.grid, geometry, stored.norm, stored.intercept)
        square = (layout.size + 1, layout.size + 1)
        if any(array.shape != square or array.dtype != "<f8" for array in (stored.gram, stored.variance)):
            raise DataError("moments whose matrices do not fit their columns")
        return cls(layout, stored.rows, stored.gram.numpy(), stored.variance.numpy(), stored.plan, stored.statement)

    def save(self, path: str | Path) -> None:
        """Write everything, exactly, to a file that can be read again."""
        write(path, self.stored())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote."""
        return read(path, cls.of)


def _positive(precision: Any) -> float:  # noqa: ANN401 - whatever a caller passes
    number = float(precision)
    if not 0 < number < math.inf:
        raise UsageError("a precision must be a positive finite number")
    return number


__all__ = ["AUGMENTED_WEIGHTS", "Geometry", "LinearFit", "Moments", "MomentsLayout", "StoredMoments"]
