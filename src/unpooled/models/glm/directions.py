r"""A logistic model from second moments: the direction of its slopes from one release, and then their length from a few rounds.

A row x is shortened to a bound, or scaled to one length, and gets a constant: z, \|z\| <= 1. Released are sum zz' and sum zs, s = +-1
(Theorem F.9.3); b = (sum zz' + ridge)^-1 sum zs ranks rows as a logistic model does, but its slopes are too short. So the scalar z.b,
standardised by what was released, is the one column of rounds as in ``rows.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import PlanMismatch
from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels import rows as row_kernels
from unpooled.kernels.moments import add_gram
from unpooled.kernels.rows import NOTHING
from unpooled.linear.standard import CAP, CONSTANT
from unpooled.models.glm.rows import GlmRows, Responses
from unpooled.privacy.bounds import integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import moments_ball
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

MOMENTS = "moments"
#: The constant beside a row of length 1.
_CONSTANT = 0.5
#: The ridge, in noise levels of the released moments.
_RIDGE = 0.5
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
        return 1 / math.sqrt(1 + (_CONSTANT * self.layout.intercept) ** 2)

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
        constant = _CONSTANT * self.layout.intercept
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
        level = _RIDGE * noisy_gram.noise_level(variance) + 1e-9 * rows
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
