r"""A study whose budget goes to some declared terms: the others are nuisance (THEORY.md, section 11).

Rounds give coefficients b of all columns. One release of the products of the focused columns z_F with the others z_N says how they are related
(G, drawn to 0 as far as its noise says), and the last round is over the rows (z_F - G z_N, w) and the residuals at b. Errors of b and of G enter the
answer as their product alone, because each of them is orthogonal to the score of the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.kernels import rows as row_kernels
from unpooled.linear.residuals import SignedCells
from unpooled.linear.standard import StandardRows
from unpooled.models.bayes.belief import believed
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import clipped_products
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import Standard
    from unpooled.privacy.unit import Adjacency
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: The products of focused columns with the others.
CROSS = "cross"
#: The variances of columns, by which a relation would be divided, are known up to this part of them.
_SCALE = 0.35
#: A relation is drawn to 0 half as far as its posterior mean: confounding that is left is a bias, noise is none.
_OPEN = 0.5
#: The bound on |z_F||z_N| in lengths of typical rows.
_LONGEST = 1.3


@dataclass(frozen=True)
class FocusRows(StandardRows):
    """Sums over the rows of focused columns, from which the others are taken out; ``layout`` has the focused columns alone."""

    #: All columns, and the places of the focused ones and of the others among those that are coded.
    whole: MomentsLayout = field(kw_only=True)
    focused: tuple[int, ...] = field(kw_only=True)
    others: tuple[int, ...] = field(kw_only=True)

    @classmethod
    def of(cls, whole: MomentsLayout, names: tuple[str, ...], rows: int) -> FocusRows:
        """Return the rows of the features of these names; refuse a name that is none, and all of them."""
        known = [column.name for column in whole.features]
        for name in names:
            if name not in known:
                msg = f"focus names {name!r}, which is none of the columns {listed(known)}"
                raise UsageError(msg)
        if len(set(names)) >= len(known) or not whole.intercept:
            raise UsageError("focus names some of the columns of a model with an intercept; the others are nuisance")
        layout = replace(whole, features=tuple(column for column in whole.features if column.name in names))
        place = [whole.features[at].name in names for at in whole.coding.attribute]
        focused, others = (tuple(k for k, own in enumerate(place) if own is which) for which in (True, False))
        return cls(layout, rows, 1.0, whole=whole, focused=focused, others=others)

    @property
    def nuisance(self) -> tuple[str, ...]:
        """Return the names of the columns that are no focus."""
        return tuple(column.name for column in self.whole.features if column not in self.layout.features)

    @cached_property
    def full(self) -> StandardRows:
        """Return the rows of all columns, on the grid of these ones."""
        return StandardRows(self.whole, self.rows, self.longest, stretch=self.stretch)

    @cached_property
    def grid(self) -> int:
        """Return steps per unit: those of the rows of all columns."""
        return self.full.grid

    @property
    def cells_of_all(self) -> SignedCells:
        """Return the histogram of residuals, in deviations of the response."""
        return SignedCells()

    def residuals_of_all(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats) -> Ints:
        """Return the exact counts of the residuals that all columns leave."""
        total = np.zeros(self.cells_of_all.count, dtype=np.int64)
        for _, residual, _ in self.full._left(blocks, start):  # noqa: SLF001 - the same rows
            total += self.cells_of_all.added_up(residual)
        return total

    @property
    def _most_product(self) -> int:
        """Return the bound on |z_F||z_N| in squared steps, rounded down."""
        return int(_LONGEST * math.sqrt(len(self.focused) * len(self.others)) * self.grid**2)

    def cross(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the products of focused columns with the others (Theorem B.5: a matrix is as long as the product of its two vectors)."""
        count, most = len(self.focused) * len(self.others), self._most_product
        reach = {who: Reach(clipped_products(1.0, how), count) for who, how in self.moves(adjacency).items()}
        return Summed(CROSS, (Block(count, float(most)),), reach, most, share)

    def blocks(self, table, standard):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as of all columns
        """(rows of all columns on the grid, standardised responses), block by block."""
        return self.full.blocks(table, standard)

    def products_of_columns(self, blocks: Iterator[tuple[Floats, Floats]]) -> Ints:
        """Return the exact products of focused columns with the others."""
        first, second, most = list(self.focused), list(self.others), self._most_product
        total = np.zeros((len(first), len(second)), dtype=np.int64)
        exact = max(1, (1 << 53) // most)
        for rows, _ in blocks:
            own, rest = np.array(rows[:, first], order="F"), np.asfortranarray(rows[:, second])
            row_kernels.shorten_products(own, rest, most)
            for at in range(0, own.shape[0], exact):  # sums of this many products are exact in any order
                part = slice(at, at + exact)
                total += (own[part].T @ rest[part]).astype(np.int64)
        return total.ravel()

    def _left(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, *, whole: bool = False, longer: bool = False
    ) -> Iterator[tuple[Floats, Floats, Floats]]:
        """(rows of focused columns without what the others say of them, residuals at all coefficients, squared lengths).

        ``start`` holds the coefficients of all columns, and after them those by which the others are taken out.
        """
        d, second = self.whole.size, list(self.others)
        taken = start[d:].reshape(len(self.focused), len(second))
        for rows, residual, _ in self.full._left(blocks, start[:d], whole=whole, longer=longer):  # noqa: SLF001 - the same rows
            own = np.empty((residual.size, self.layout.size), order="F")
            rest, unused = np.asfortranarray(rows[:, second]), np.empty(residual.size)
            for k, at in enumerate(self.focused):
                row_kernels.leave(rest, np.ascontiguousarray(rows[:, at]), taken[k], 1.0, own[:, k], unused)
            own[:, -1] = rows[:, -1]
            own = np.trunc(own)
            yield own, residual, np.square(own).sum(axis=1)

    def related(self, total: Total, standard: Standard) -> tuple[Floats, float, float]:
        """Return how the others are related to the focused columns, the mean square of each entry's error, and the squared length of a row's noise."""
        unit = float(self.grid) ** 2 * self.rows
        found, variance = total.values / unit, float(total.deviations.max() / unit) ** 2
        found, free = self._without_still(found.reshape(len(self.focused), len(self.others)), standard)
        square = float(np.square(found).sum())
        kept, left = believed(square, variance, free, len(self.others), most=_OPEN)
        left += (_SCALE * kept) ** 2 * max(square - variance * free, 0.0) / max(free, 1)
        return found * kept, left, kept**2 * variance * len(self.others)

    def _without_still(self, found: Floats, standard: Standard) -> tuple[Floats, int]:
        """Return the same without its noise along the levels of a column, which add up to the constant; and how many entries are free."""
        own = self.levels(standard)
        return found - own @ (own.T @ found), (found.shape[0] - own.shape[1]) * found.shape[1]

    def levels(self, standard: Standard) -> Floats:
        """Return orthonormal directions of focused columns along which levels add up to the constant, in standardised columns."""
        scale = np.concatenate([np.asarray(standard.width)[list(self.focused)], [1.0]])
        still = scale[:, None] * self.layout.still
        return np.linalg.qr(still[:-1])[0] if still.size else np.empty((len(self.focused), 0))
