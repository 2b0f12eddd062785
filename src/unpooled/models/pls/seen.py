"""A party's table as the rounds of PLS see it: public coordinates of each spectrum, and the response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.privacy.table import BLOCK_ROWS, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Blocks = Callable[[Table, int], Iterator[tuple[NDArray[Any], ...]]]


class Projected(Table):
    """A table whose blocks hold coordinates: they are computed block by block, from the channels, and kept nowhere."""

    def __init__(self, table: Table, names: tuple[str, ...], blocks: Blocks) -> None:
        self._raw, self._blocks = table, blocks
        self.names = names
        self.n_rows, self.household = table.n_rows, table.household

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """Return coordinates and responses by their names."""
        places = [self.names.index(name) for name in names]
        for block in self._blocks(self._raw, rows):
            yield tuple(block[place] for place in places)


def seen_as(table: Table, design: object, names: tuple[str, ...], blocks: Blocks) -> Table:
    """Return the view of a table that this design has, the same in every round: what is remembered of it is found again."""
    known: tuple[object, Table] | None = vars(table).get("_projected")
    if known is None or known[0] is not design:
        known = vars(table)["_projected"] = design, Projected(table, names, blocks)
    return known[1]
