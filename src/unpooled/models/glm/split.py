"""A fit whose columns lie at two parties: what of it depends on the family, and a party's rows, standardised, with the responses that it holds, rounded at random."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from unpooled.linear.standard import feature_rows
from unpooled.models.glm.rows import BaseRate
from unpooled.products.rows import JointRows, rounded, shortened
from unpooled.products.sums import GRID
from unpooled.totals.whole_rows import whole_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.families import Response
    from unpooled.inference.life_table import LifeTable
    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import Standard
    from unpooled.models.glm.rows import Responses
    from unpooled.models.glm.typed import TypedRows
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.noise import Stream
    from unpooled.privacy.table import Table
    from unpooled.products.sums import ProductShape, RowPart
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- A party's rows --------------------------------------------------------------------------------------------------------
# Standardised rows with the responses that the party holds, as integers: of second moments, and of a round.

#: Steps per unit of numbers and of the rows that they multiply: finer than those of second moments, so that rounding stays far below sampling.
STEPS = 8 * GRID


@dataclass(frozen=True)
class SplitRows(JointRows, ABC):
    """Reads a party's columns, and response and offset where it holds them; ``weight`` is 1 there, and 0 at the other party."""

    responses: Responses

    def _raw(self, table: Table, rows: int) -> Iterator[tuple[NDArray[Any], ...]]:
        names = (*self.layout.coding.names, *(self.responses.names if self.holds else ()))
        return self.layout.seen(whole_rows(table, self.left_out)).blocks(names, rows)

    def _coded(self, raw: Iterator[tuple[NDArray[Any], ...]], standard: Standard) -> Iterator[Any]:
        own, grid = len(self.layout.coding.attribute), float(self.layout.grid)
        for block in feature_rows(self.layout, raw) if own else raw:
            rows = (block[0] / grid - standard.middle) / standard.width if own else np.empty((block[0].size, 0))
            held = self.responses.read(block[1:] if own else block) if self.holds else (np.zeros(len(rows)),) * 2
            yield self.made(rows, *held)

    @abstractmethod
    def made(self, z: Floats, y: Floats, offset: Floats | float = 0.0) -> NDArray[Any]:
        """Return what is multiplied, of standardised rows, responses and offsets."""


@dataclass(frozen=True)
class DeviationRows(SplitRows):
    """A party's part of the rows of second moments, as of joint moments, with the response less its released mean in the place of a response.

    The response is cut at ``top`` and is a part of it. An offset stands before it, as a part of half of its declared range.
    """

    mean: float
    top: float = 1.0

    def made(self, z: Floats, y: Floats, offset: Floats | float = 0.0) -> Ints:
        """Return rows as integers within the limits: shortened, then rounded to nearest."""
        beside = []
        if self.holds and self.responses.shifted:
            centre, half = self.responses.shift
            beside.append(np.clip((offset - centre) / half * GRID, -GRID, GRID))
        if self.holds:
            beside.append(np.clip((np.minimum(y, self.top) - self.mean) / self.top * GRID, -GRID, GRID))
        return rounded(np.column_stack([shortened(z * GRID, float(self.columns)), *beside]), self.part.square)


@dataclass(frozen=True)
class RoundRows(SplitRows, ABC):
    """A party's parts of every row in one round, at the coefficients of its own columns and its part of the constant.

    The predictor is of the whole row; the row that a number multiplies is shortened, so that rounding up moves it by no more than the limit leaves.
    """

    slopes: Floats
    constant: float

    def predictor(self, z: Floats) -> Floats:
        """Return the party's part of the linear predictor, without an offset."""
        u = np.full(len(z), self.constant)
        for column, slope in zip(z.T, self.slopes.tolist(), strict=True):  # in the order of the columns, whatever the block
            u = u + column * slope
        return u

    @abstractmethod
    def part_of(self, rows: Floats, coins: Stream, first: int) -> Ints:
        """Return the part of this name of rows that :meth:`made` returned, rounded at random; ``first`` is the number of the first row."""


def at_random(rows: Floats, coins: Stream, first: int) -> Ints:
    """Return rows rounded down or up with the chances that keep every mean (Theorem G.16); the coins of a row are those of its number."""
    words = coins.words(first * rows.shape[1], rows.size).reshape(rows.shape)
    down = np.floor(rows)
    up = (words >> np.uint64(11)) * 2.0**-53 < rows - down  # never where a number is whole
    return down.astype(np.int64) + up


# --- Forms -----------------------------------------------------------------------------------------------------------------
# What depends on the family: its words, its products, the parts of rows, and the public rows on which pulls are expected.


class SplitWords(NamedTuple):
    """The words for a family: the fit, what is linear in the columns, what the base rate is of, why a fit found no root, and what else it assumes."""

    fit: str
    predictor: str
    rate: str
    rootless: str
    assumed: str = ""


class Begun(NamedTuple):
    """What a fit begins from: the mean response, its rate per exposure, and of times to an event the life table."""

    mean: float
    rate: float
    life: LifeTable | None = None


class TypedTable(NamedTuple):
    """Typed rows with the constant last, which columns the holder of the response has, the number of people, and the offset of every row."""

    rows: Floats
    held: NDArray[np.bool_]
    people: int
    offset: Floats


class SplitForm(ABC):
    """A family that has a pull which is a product of numbers of two parties."""

    words: ClassVar[SplitWords]
    #: How many public numbers a round has in addition to coefficients and constants.
    more: ClassVar[int] = 0

    def of(self, responses: Responses, *, exact: bool) -> SplitForm:  # noqa: ARG002 - of every response alike
        """Return the form of a study with these responses, with noise or without."""
        return self

    @property
    def pieces(self) -> int:
        """Return the number of pieces of a person that have a constant of their own; 0 where all have one."""
        return 0

    @abstractmethod
    def check(self, response: Column) -> None:
        """Refuse a declared response that this family does not have."""

    @abstractmethod
    def family(self, response: Column) -> Response:
        """Return the family with what is declared of the response."""

    def base(self, responses: Responses, rows: int) -> BaseRate:
        """Return the sums from which a fit begins."""
        return BaseRate(responses, rows)

    def begun(self, base: BaseRate, total: Total, rows: int) -> Begun:
        """Return what these sums tell."""
        return Begun(*base.decode(total, rows))

    @abstractmethod
    def shape(self, columns: Mapping[str, tuple[int, int]], holder: str, rows: int, repeated: int) -> ProductShape:
        """Return the products of a round, of these numbers of columns and squared limits of rows in squared steps by party."""

    @abstractmethod
    def rows(
        self,
        about: tuple[MomentsLayout, RowPart, int, int, float, Responses],
        slopes: Floats,
        place: int,
        more: Sequence[float],
    ) -> RoundRows:
        """Return the coding of the rows of the party at this place, with these slopes; ``more``: the numbers of the round behind all slopes."""

    def deviations(
        self, about: tuple[MomentsLayout, RowPart, int, int, float, Responses], begun: Begun | None
    ) -> DeviationRows:
        """Return the coding of a party's part of the rows of second moments; None: another party holds the response."""
        begun = begun or Begun(0.0, 0.0)
        return DeviationRows(*about, begun.mean, self.top(begun))

    @abstractmethod
    def coin(self, part: RowPart, *, holds: bool) -> str:
        """Return the name of the coins by which a part is rounded: parts of one name have the same."""

    @abstractmethod
    def top(self, begun: Begun) -> float:
        """Return where responses are cut in second moments."""

    @abstractmethod
    def typed(self, rows: TypedTable, family: Response, noise: float, begun: Begun) -> TypedRows[Any]:
        """Return typed rows on which pulls of this family are expected; ``noise`` is that of a released product, in all rounds together."""

    @abstractmethod
    def added(self, parties: Sequence[str], holder: str, made: Mapping[str, Floats]) -> Floats:
        """Return what the products of a round add up to, of rows as they are made before they are rounded."""
