"""Linked rows on disk: a party's rows in the order of one of its row maps, and the party file and card that later studies use."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import DataError, StudyError
from unpooled.privacy.table import Table
from unpooled.protocol.keeper import MAP_DATA, ROW_MAP

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from unpooled.protocol.keeper import Keeper

#: Fewer people than these are in no study.
_FEWEST = 2


class LinkedTable(Table):
    """Some rows of a table, in the order of a row map. They are in memory; what they were read from is still watched."""

    def __init__(self, source: Table, rows: NDArray[Any], name: str) -> None:
        sparse = [column for column in source.names if column in source.sparse_names]
        dense = {column: source[column][rows] for column in source.names if column not in source.sparse_names}
        matrix = source.sparse(sparse) if sparse else None
        super().__init__(dense, None if matrix is None else (sparse, matrix[rows, :]))
        self.linked, self._source, self._taken = name, source, rows

    def _row_ids(self) -> list[str | None]:
        ids = self._source.ids()
        return [ids[row] for row in self._taken]

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of what the rows were read from, and of the row map."""
        return hashlib.sha256(self._source.digest + self.linked.encode()).digest()

    def verify(self) -> None:
        """Refuse if the data have changed."""
        self._source.verify()


def linked_table(source: Table, keeper: Keeper, name: str) -> LinkedTable:
    """Return the rows of a row map that this party keeps."""
    if not keeper.has(name, ROW_MAP):
        msg = f"this party keeps no row map {name[:16]}: only a study that linked its own rows makes one"
        raise StudyError(msg)
    if keeper.kept(name, MAP_DATA).tobytes() != source.digest:
        raise DataError(
            "the data have changed since their rows were linked, so that its row map names other people: put the old file back, or link the new data "
            "as another run of the study that linked them (run = 2 under its [study])"
        )
    rows = keeper.kept(name, ROW_MAP)
    if rows.size < _FEWEST:
        msg = f"the parties have {rows.size} people in common: at least {_FEWEST} are needed for a study"
        raise DataError(msg)
    return LinkedTable(source, rows.astype(np.int64), name)
