"""Rows that belong together: a table in which a bounded number of rows of every id count, the same ones whenever they are asked for.

Which rows count depends on the id and on the order of its own rows alone, never on another id's or on a value: so a household that changes
changes at most this number of rows on each side (Theorem F.19).
"""

from __future__ import annotations

import hashlib
import unicodedata
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, UsageError
from unpooled.privacy.table import BLOCK_ROWS, Table, check_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray


class BoundedTable(Table):
    """Another table's rows that count. Its public number of rows is the most that could: ids times rows of each."""

    def __init__(self, table: Table, ids: Any, most: int, hidden: str = "") -> None:  # noqa: ANN401 - whatever array-like a user has
        found = texts_of(ids)
        if found.shape != (table.n_rows,):
            msg = f"unit_id has {found.size} ids for {table.n_rows} rows: give one id per row"
            raise UsageError(msg)
        self._table, self._matrix, self._places = table, None, {}
        self.names = tuple(name for name in table.names if name != hidden)
        self._kept = counted(found, most)
        self._owners = found[self._kept]
        self.household: tuple[int, int] = (int(np.unique(found).size), most)
        self.n_rows = self.household[0] * most
        self.unordered = table.unordered
        check_rows(self.household[0])

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns of the rows that count, at most ``rows`` rows at a time."""
        for name in names:
            self._check(name)
        at = 0
        for block in self._table.blocks(names, rows):
            kept = self._kept[at : at + block[0].size]
            at += kept.size
            yield tuple(values[kept] for values in block)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """Return a number for every row that counts, the same for rows of one id."""
        return np.asarray(np.unique(self._owners, return_inverse=True)[1], dtype=np.int64)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self._check(name)
        values: NDArray[Any] = self._table[name][self._kept]
        return values

    def verify(self) -> None:
        """Refuse if the data are no longer those of :attr:`digest`."""
        self._table.verify()

    def close(self) -> None:
        """Give back what the table below opened."""
        self._table.close()

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of the table below, of every row's id, and of how many rows of each count."""
        total = hashlib.sha256(self._table.digest)
        for text in (*self._owners.tolist(), str(self.household)):
            raw = text.encode("utf-8", "surrogatepass")
            total.update(len(raw).to_bytes(8, "big") + raw)
        total.update(np.packbits(self._kept).tobytes())
        return total.digest()

    def take(self, rows: NDArray[Any]) -> Table:
        """Return the table of some of the rows that count, with the ids that those have."""
        return BoundedTable(self._own().take(rows), self._owners[rows], self.household[1])

    # --- neighbours, which audits make ------------------------------------------------------------------------------------

    def replace(self, row: int, values: Mapping[str, Any]) -> Table:
        """Return the neighbour with other values in some columns of one row that counts."""
        return self._with(self._own().replace(row, values), self._owners)

    def omit(self, row: int) -> Table:
        """Return the neighbour without one of the rows that count."""
        rest = np.delete(np.arange(self._owners.size), row)
        return self._with(self._own().take(rest), self._owners[rest])

    def exchange(self, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Return the neighbour whose first id has these rows in the place of its own: none of them where it contributes nothing."""
        others, own = np.flatnonzero(self._owners != self._owners[0]), self._own()
        columns = {
            name: np.concatenate([np.array([row[name] for row in rows], dtype=own[name].dtype), own[name][others]])
            for name in self.names
        }
        owners = np.concatenate([np.full(len(rows), self._owners[0], dtype=object), self._owners[others]])
        return self._with(Table(columns), owners)

    def first(self) -> list[dict[str, Any]]:
        """Return the rows of the first id that count."""
        own = np.flatnonzero(self._owners == self._owners[0])
        return [{name: self[name][row] for name in self.names} for row in own]

    def _own(self) -> Table:
        return Table({name: self[name] for name in self.names})

    def _with(self, table: Table, owners: NDArray[Any]) -> BoundedTable:
        """Other rows, and the same public numbers."""
        found = BoundedTable(table, owners, self.household[1])
        found.household, found.n_rows = self.household, self.n_rows
        return found


def texts_of(ids: Any) -> NDArray[Any]:  # noqa: ANN401 - as above
    """Ids as text in Unicode's form NFC without surrounding blanks; every row has one."""
    given = np.asarray(ids)
    if given.ndim != 1:
        raise UsageError("unit_id is one id for every row")
    if given.dtype.kind == "f":  # whole numbers, which a file's reader makes floats
        found = ["" if np.isnan(value) else repr(value) for value in given.tolist()]
    else:
        found = ["" if value is None else unicodedata.normalize("NFC", str(value)).strip() for value in given.tolist()]
    if not all(found):
        raise DataError("a row has a blank id: complete the column of ids, or leave those rows out")
    return np.array(found, dtype=object)


def counted(ids: NDArray[Any], most: int) -> NDArray[np.bool_]:
    """Return a mask of the rows that count: at most ``most`` of each id, picked by a hash of the id and of the row's number among its rows."""
    _, owner, size = np.unique(ids, return_inverse=True, return_counts=True)
    kept = np.ones(ids.size, dtype=bool)
    crowded = np.flatnonzero(size[owner] > most)
    rows: dict[int, list[int]] = {}
    for row in crowded.tolist():
        rows.setdefault(int(owner[row]), []).append(row)
    for own in rows.values():
        order = sorted(range(len(own)), key=lambda k, name=str(ids[own[0]]): _rank(name, k))  # type: ignore[misc]
        kept[[own[k] for k in order[most:]]] = False
    return kept


def _rank(name: str, number: int) -> bytes:
    return hashlib.sha256(f"{number} {name}".encode("utf-8", "surrogatepass")).digest()
