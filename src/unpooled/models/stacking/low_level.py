"""One low-level model of a stack: how a party's rows are scaled, and what becomes of released weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.models.stacking.fits import Fit
from unpooled.models.stacking.outcomes import TWO, Outcomes
from unpooled.privacy.accounting import SAFETY
from unpooled.privacy.bounds import Coding
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.inference.coding import FormulaColumns
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card

    Matrix = NDArray[np.float64]

#: What is believed of columns before data: their deviation in half ranges, and how long rows are beside a declared norm.
_DEVIATION, _LENGTH = 0.22, 0.5
#: A coded row shorter than this is a row of zeros.
_NOTHING = 1e-100
#: Rows that are turned from column-major to row-major at a time.
_TURNED = 1024


@dataclass(frozen=True)
class LowLevel:
    """One low-level model: a party's columns, how its rows are scaled, and its share q of the sensitivity.

    A row of all parties has length at most R, in the data's own units (``norm``) or in coded ones; the part of it that is here is
    shortened to q R and then divided by R, so that its length is at most q (the precondition of S.1). Where parts are scaled
    (``parts = "scale"``, as in the stacking paper), ``norm`` or ``length`` is all that its own bounds allow, and the part is multiplied by q.
    """

    card: Card
    columns: tuple[Column, ...]
    weight: float
    #: q R in the data's own units (R where parts are scaled); None where columns alone are bounded.
    norm: float | None
    #: q R in coded units, where columns alone are bounded; never more than this party's columns can reach.
    length: float
    intercept: bool
    centre: tuple[float, ...]
    #: Whether every row gets the length of the longest one.
    unit: bool = False
    outcomes: Outcomes = TWO
    #: What a formula makes of the party's columns; None: ``columns`` are its own.
    made: FormulaColumns | None = None

    @cached_property
    def coding(self) -> Coding:
        """Return the code of its columns."""
        return Coding(self.columns, 1, self.norm)

    @property
    def size(self) -> int:
        """Return the number of weights of a linear predictor: coded columns, then the constant."""
        return len(self.coding.attribute) + self.intercept

    @property
    def numbers(self) -> int:
        """Return the number of weights of all linear predictors."""
        return self.size * self.outcomes.predictors

    @property
    def _shortens(self) -> bool:
        """Return True if rows inside the declared ranges may be longer than allowed."""
        return self.unit or self.norm is not None or self.length < math.sqrt(len(self.columns))

    def fit(self, rows: int) -> Fit:
        """Return the shape of its fit to ``rows`` rows."""
        length = float(math.hypot(*self.centre))
        if self.made is not None:
            apart = self._gone(self.made)
            return Fit(self.size, rows, self.weight, apart, length, self.outcomes.classes, self.outcomes.rest)
        marked = any(column.missing == "indicator" for column in self.columns)
        apart = 0.0  # as beside a constant, which stays, and leaves the rest of a row shorter by sqrt 2
        if not self.intercept and self._shortens and (marked or len(self.columns) > 1):
            apart = math.sqrt(2.0)
        elif not self.intercept and marked:
            apart = math.sqrt(2.0) / self.length
        return Fit(self.size, rows, self.weight, apart, length, self.outcomes.classes, self.outcomes.rest)

    def _gone(self, made: FormulaColumns) -> float:
        """Return the most that the rows with and without one declared value are apart, in lengths of a row (Theorem S.15)."""
        beside = math.sqrt(2.0) if self.intercept else 1.0  # a constant stays, and leaves the rest of a row shorter
        most = 2 / beside
        return most if self._shortens else min(most, made.gone(self.columns) / self.length / beside)

    @property
    def _constant(self) -> float:
        """Return the constant in every scaled row."""
        return self.weight * (1 - SAFETY) / math.sqrt(2.0)

    @property
    def scale(self) -> float:
        """Return the factor of every coded value, such that no row is longer than q, its constant included."""
        shrink = math.sqrt(2.0) if self.intercept else 1.0
        return self.weight * (1 - SAFETY) / shrink / (1.0 if self.norm is not None else self.length)

    @property
    def deviation(self) -> float:
        """Return the deviation that a number of its scaled rows is believed to have before data, the constant apart."""
        longest = self.length if self.norm is None else 1.0
        typical = _DEVIATION * math.sqrt(len(self.coding.attribute)) if self.norm is None else _LENGTH
        return self.scale * (longest if self.unit else min(typical, longest)) / math.sqrt(len(self.coding.attribute))

    def rows(self, table: Table, chosen: NDArray[np.intp] | None = None) -> Matrix:
        """Return the scaled rows (x, 1) of a table, or some of them."""
        parts = [self.coding.real(block) for block in self._seen(table).blocks(self.coding.names)]
        coded = table.whole(np.concatenate(parts) if len(parts) > 1 else parts[0])
        coded = coded if chosen is None else coded[chosen]
        out = np.empty((coded.shape[0], self.size))
        for at in range(0, coded.shape[0], _TURNED):  # from columns to rows, within the cache
            np.multiply(coded[at : at + _TURNED], self.scale, out=out[at : at + _TURNED, : coded.shape[1]])
        out[:, coded.shape[1] :] = self._constant
        if self.unit:
            lengths = np.sqrt(np.einsum("ij,ij->i", coded, coded))
            longest = self.length if self.norm is None else 1.0
            out[:, : coded.shape[1]] *= (longest / np.maximum(lengths, _NOTHING))[:, None]
        elif self.norm is None and self._shortens:
            lengths = np.sqrt(np.einsum("ij,ij->i", coded, coded))
            out[:, : coded.shape[1]] *= (self.length / np.maximum(lengths, self.length))[:, None]
        return table.blank(out, chosen)

    def natural(self, new: Mapping[str, NDArray[Any]]) -> Matrix:
        """Return new rows in the columns of this model, in the data's own units."""
        if self.made is None:
            return self.coding.natural([new[name] for name in self.coding.names])
        table, count = two_rows(new)
        return np.concatenate([self.coding.natural(b) for b in self._seen(table).blocks(self.coding.names)])[:count]

    def scaled(self, new: Mapping[str, NDArray[Any]]) -> Matrix:
        """Return new rows as those of the fit were: clipped, and scaled to its lengths."""
        table, count = two_rows(new)
        return self.rows(table)[:count]

    def _seen(self, table: Table) -> Table:
        return table if self.made is None else self.made.seen(table)

    def predicted(self, rows: Matrix, weights: NDArray[np.float64]) -> Matrix:
        """Return probabilities of scaled rows: of the second of two classes, or of every class."""
        found = self.outcomes.of(rows, weights)
        return found if self.outcomes.several else found[:, 1]

    def in_own_units(self, weights: NDArray[np.float64]) -> tuple[Matrix, NDArray[np.float64]]:
        """Return (coefficients, intercepts), a row for every linear predictor, for the columns as they are.

        For unit rows they are of coded rows before they are scaled to one length.
        """
        width, centre = self.coding.units
        own = weights.reshape(self.outcomes.predictors, -1)
        coefficients = own[:, : width.size] * self.scale / width
        intercepts = own[:, -1] * self._constant if self.intercept else np.zeros(own.shape[0])
        if not self.unit:  # rows that are scaled one by one are scaled about the centre, so nothing of it can be taken up
            intercepts = intercepts - coefficients @ centre
        return coefficients, intercepts


def two_rows(new: Mapping[str, NDArray[Any]]) -> tuple[Table, int]:
    """Return new rows as a table, which has at least two of them, and their true number."""
    count = next(iter(new.values())).size
    return Table({name: np.resize(values, max(2, count)) for name, values in new.items()}), count
