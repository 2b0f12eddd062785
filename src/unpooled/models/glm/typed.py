"""Public rows that look like the people of a study as far as releases tell: the curvature of pulls as means over them, and no release of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from unpooled.linear.standard import CONSTANT
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

_TUNED = table("glm_columns")
#: The seed of public rows, which all studies share.
_SEED = 5
#: A level has at least this part of the public rows, and at most the rest.
_RAREST = 0.005
#: Of a mean variance, what keeps a covariance of typed columns from being singular.
_ROUNDED = 1e-6


class TypedLevels(NamedTuple):
    """The places of the coded columns of one column of categories, and whether every row has exactly one of them."""

    places: tuple[int, ...]
    whole: bool


def levels_of(layout: MomentsLayout) -> tuple[TypedLevels, ...]:
    """Return the columns of zeros and ones of a layout: levels of categories, and marks of missing numbers."""
    attribute, found = np.array(layout.coding.attribute), []
    for k, column in enumerate(layout.features):
        places = np.flatnonzero(attribute == k).tolist()
        if column.categories is not None:
            found.append(TypedLevels(tuple(places), column.missing != "absent"))
        elif len(places) > 1:  # a number, and the mark that it is missing
            found.append(TypedLevels(tuple(places[1:]), whole=False))
    return tuple(found)


def typed_rows(covariance: Matrix, middle: Row, width: Row, levels: Sequence[TypedLevels]) -> Matrix:
    """Return public rows of standardised columns with this covariance: normal numbers, and levels with these shares (``middle``).

    Where every row has one of the levels, the commonest follows from the others: with it a covariance would be singular.
    """
    size, count = len(middle), _TUNED.whole("typed_rows")
    dropped = {max(one.places, key=lambda k: middle[k]): one for one in levels if one.whole}
    free = [k for k in range(size) if k not in dropped]
    place = {k: at for at, k in enumerate(free)}
    rows = np.zeros((count, size))
    if free:
        wanted = covariance[np.ix_(free, free)]
        values, vectors = np.linalg.eigh((wanted + wanted.T) / 2)
        root = vectors * np.sqrt(np.maximum(values, _ROUNDED * max(float(values[-1]), _ROUNDED)))
        own = np.random.default_rng(_SEED).normal(size=(count, len(free))) @ root.T
        for one in levels:
            _cut(own, [(place[k], float(middle[k])) for k in one.places if k in place])
        own -= own.mean(axis=0)
        had = np.cov(own.T).reshape(len(free), len(free))
        had += _ROUNDED * max(float(had.trace()) / len(free), _ROUNDED) * np.eye(len(free))
        rows[:, free] = own @ np.linalg.inv(np.linalg.cholesky(had)).T @ np.linalg.cholesky(root @ root.T).T
    for k, one in dropped.items():
        others = [j for j in one.places if j != k]
        rows[:, k] = -(rows[:, others] @ width[others]) / width[k]
    return rows


def _cut(rows: Matrix, levels: Sequence[tuple[int, float]]) -> None:
    """Replace normal columns by zeros and ones with these shares, of which a row has one at most."""
    taken = np.zeros(len(rows), dtype=np.bool_)
    for at, share in sorted(levels, key=lambda pair: pair[1]):
        wanted = round(min(max(share, _RAREST), 1 - _RAREST) * len(rows))
        one = np.argsort(np.where(taken, -np.inf, rows[:, at]))[len(rows) - wanted :]
        one = one[~taken[one]]
        rows[:, at] = 0.0
        rows[one, at] = 1.0
        taken[one] = True


class TypedBend(NamedTuple):
    """Means over typed rows at some coefficients: the curvature of the sum of pulls, its second moments, and the mean weight of a row in either."""

    curvature: Matrix
    meat: Matrix
    weight: float
    square: float


Setting = TypeVar("Setting")


@dataclass(frozen=True)
class TypedRows(ABC, Generic[Setting]):
    """Typed rows with the constant last, and who holds which of their columns; a setting is what weighs the pulls of a round."""

    rows: Matrix
    #: Which columns the holder of the response has, the constant left out.
    held: NDArray[np.bool_]
    people: int

    @cached_property
    def _each(self) -> float:
        return self.people / len(self.rows)

    def predictors(self, b: Row, share: float) -> tuple[Row, Row]:
        """Return the parts of the linear predictor at the holder of the response, who has this share of the constant, and at the other party."""
        z, constant = self.rows[:, :-1], CONSTANT * float(b[-1])
        slopes = b[:-1]
        return z @ (slopes * self.held) + share * constant, z @ (slopes * ~self.held) + (1 - share) * constant

    def summed(self, pulls: Row) -> Row:
        """Return the sum over all people of their rows times these numbers of typed rows."""
        return np.asarray(self.rows.T @ pulls * self._each)

    def outer(self, weights: Row) -> Matrix:
        """Return the second moments of all people's rows with these weights of typed rows."""
        return np.asarray((self.rows * weights[:, None]).T @ self.rows * self._each)

    def bent(self, weight: Row, square: Row) -> TypedBend:
        """Return curvature and second moments with these weights and squared pulls of typed rows."""
        return TypedBend(self.outer(weight), self.outer(square), float(weight.mean()), float(square.mean()))

    @abstractmethod
    def setting(self, b: Row) -> Setting:
        """Return what weighs the pulls of a round at these coefficients."""

    @abstractmethod
    def sent(self, b: Row, setting: Setting, holds: tuple[bool, ...]) -> tuple[float, ...]:
        """Return the numbers of a round behind the slopes; ``holds``: whether each party, in the study's order, holds the response."""

    @abstractmethod
    def unit(self, setting: Setting) -> float:
        """Return the pull for each squared step of a released product."""

    def alike(self, b: Row, setting: Setting, other: Setting) -> float:  # noqa: ARG002 - of pulls whose weights hardly differ
        """Return by what a score with the other setting is multiplied to bend as much as one with the first."""
        return 1.0

    @abstractmethod
    def bend(self, b: Row, setting: Setting) -> TypedBend:
        """Return curvature and second moments of the pulls of all people at these coefficients, if they are the truth."""

    @abstractmethod
    def pull(self, at: Row, setting: Setting, truth: Row) -> Row:
        """Return the score of all people that is expected at some coefficients where others are the truth."""

    @abstractmethod
    def slope(self, at: Row, setting: Setting, truth: Row) -> Matrix:
        """Return the derivative of :meth:`pull` in the truth."""

    def expected(self, at: Row, setting: Setting, truth: Row) -> tuple[Row, Matrix]:
        """Return both."""
        return self.pull(at, setting, truth), self.slope(at, setting, truth)

    @abstractmethod
    def excess(self, mean: float, top: float, truth: Row) -> tuple[Row, Matrix]:
        """Return the expected products of columns with responses as second moments have them, and their derivative in the truth."""

    @abstractmethod
    def scatter(self, mean: float, top: float) -> float:
        """Return the typical variance of a response as second moments have it."""
