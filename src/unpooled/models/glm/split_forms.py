"""The parts of a fit of split columns that depend on the family: its words, its products, the parts of rows, and the public rows on which pulls are expected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from unpooled.families import RowFamily
    from unpooled.linear.layout import MomentsLayout
    from unpooled.models.glm.rows import Responses
    from unpooled.models.glm.split_rows import RoundRows
    from unpooled.models.glm.typed import TypedRows
    from unpooled.privacy.bounds import Column
    from unpooled.products.sums import ProductShape, RowPart

    Floats = NDArray[np.float64]


class SplitWords(NamedTuple):
    """The words for a family: the fit, what is linear in the columns, what the base rate is of, why a fit found no root, and what else it assumes."""

    fit: str
    predictor: str
    rate: str
    rootless: str
    assumed: str = ""


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

    @abstractmethod
    def check(self, response: Column) -> None:
        """Refuse a declared response that this family does not have."""

    @abstractmethod
    def family(self, response: Column) -> RowFamily:
        """Return the family with what is declared of the response."""

    @abstractmethod
    def shape(self, columns: Mapping[str, tuple[int, int]], holder: str, rows: int, repeated: int) -> ProductShape:
        """Return the products of a round, of these numbers of columns and squared limits of rows in squared steps by party."""

    @abstractmethod
    def rows(
        self,
        about: tuple[MomentsLayout, RowPart, int, int, float, Responses],
        coefficients: tuple[Floats, float],
        place: int,
        more: Sequence[float],
    ) -> RoundRows:
        """Return the coding of the rows of the party at this place, at slopes and a constant; ``more``: the further numbers of the round."""

    @abstractmethod
    def coin(self, part: RowPart, *, holds: bool) -> str:
        """Return the name of the coins by which a part is rounded: parts of one name have the same."""

    @abstractmethod
    def top(self, mean: float) -> float:
        """Return where responses are cut in second moments, when their mean is this one."""

    @abstractmethod
    def typed(self, rows: TypedTable, family: RowFamily, noise: float) -> TypedRows[Any]:
        """Return typed rows on which pulls of this family are expected; ``noise`` is that of a released product, in all rounds together."""

    @abstractmethod
    def added(self, parties: Sequence[str], holder: str, made: Mapping[str, Floats]) -> Floats:
        """Return what the products of a round add up to, of rows as they are made before they are rounded."""
