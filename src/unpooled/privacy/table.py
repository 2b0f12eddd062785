"""Raw data at a party: named columns, checked once, fingerprinted, never printed.

Nothing of a table's content appears in its ``repr`` or in an error: only column names and the (public) row count do.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

#: Rows that are coded at a time: a block of a few columns stays in the cache.
BLOCK_ROWS = 1 << 16


class Table:
    """Columns of equal length: numbers as float64 (nan is missing), everything else as text (None is missing)."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        if not columns:
            msg = "the data have no columns: name at least one"
            raise DataError(msg)
        self._columns = {str(name): as_column(str(name), values) for name, values in columns.items()}
        sizes = {name: values.size for name, values in self._columns.items()}
        self.n_rows = next(iter(sizes.values()))
        for name, size in sizes.items():
            if size != self.n_rows:
                msg = f"column {name!r} has {size} rows where the first column has {self.n_rows}: give equal lengths"
                raise DataError(msg)
        check_rows(self.n_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(self._columns)

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns, ``rows`` rows at a time."""
        chosen = [self[name] for name in names]
        for start in range(0, chosen[0].size, rows):
            yield tuple(values[start : start + rows] for values in chosen)

    def take(self, rows: NDArray[Any]) -> Table:
        """The table of some of its rows."""
        return Table({name: values[rows] for name, values in self._columns.items()})

    def by_site(self, sites: Any) -> dict[str, Table]:  # noqa: ANN401 - whatever array-like a user has
        """The rows of every label, in the order of the sorted labels; None is one site called "all"."""
        if sites is None:
            return {"all": self}
        given = np.asarray(sites)
        labels = np.array([str(site) for site in given.tolist()])
        if given.shape != (self.n_rows,):
            msg = f"sites has labels of shape {given.shape} for {self.n_rows} rows: give one label per row"
            raise UsageError(msg)
        return {str(name): self.take(np.flatnonzero(labels == name)) for name in np.unique(labels)}

    def omit(self, row: int) -> Table:
        """The neighbour under zero-out: this row contributes nothing, and the public number of rows stays what it was."""
        table = self.take(np.delete(np.arange(self.n_rows), row))
        table.n_rows = self.n_rows
        return table

    def replace(self, row: int, values: Mapping[str, Any]) -> Table:
        """The neighbour under replace: other values in some columns of one row."""
        columns = {name: column.copy() for name, column in self._columns.items()}
        for name, value in values.items():
            columns[name][row] = value
        return Table(columns)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self._check(name)
        return self._columns[name]

    def ids_digest(self, key: bytes) -> str:
        """HMAC-SHA-256 of the row ids in their order, in hex: all that a step can learn of them.

        Ids are text in Unicode's form NFC without surrounding blanks; each row has one, and no two rows have the same.
        """
        ids = [unicodedata.normalize("NFC", "" if text is None else text.strip()) for text in self._row_ids()]
        if not all(ids):
            msg = "a row has a blank id: complete the id column, or leave those rows out at every party"
            raise DataError(msg)
        if len(set(ids)) != len(ids):
            msg = "two rows have the same id (after Unicode normalisation and without surrounding blanks): keep one of them"
            raise DataError(msg)
        return hmac.new(key, msgspec.msgpack.encode(ids), "sha256").hexdigest()

    def _row_ids(self) -> list[str | None]:
        msg = "the study compares row ids, but this party declares no id column: set `id` under [party] in party.toml"
        raise DataError(msg)

    def _check(self, name: str) -> None:
        if name not in self.names:
            msg = f"there is no column {name!r}: the data have {', '.join(self.names)}"
            raise DataError(msg)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of names and values: a party refuses to answer an old request over changed data."""
        total = hashlib.sha256()
        for name, values in self._columns.items():
            if values.dtype == np.float64:
                kind, raw = b"f8", values.tobytes()
            else:  # msgpack keeps texts apart from each other and from None, whatever they hold
                texts = [None if v is None else v.encode("utf-8", "surrogatepass") for v in values]
                kind, raw = b"text", msgspec.msgpack.encode(texts)
            for part in (name.encode("utf-8", "surrogatepass"), kind, raw):
                total.update(len(part).to_bytes(8, "big"))
                total.update(part)
        return total.digest()

    def __repr__(self) -> str:
        return f"Table(n_rows={self.n_rows}, columns={list(self.names)})"


def check_rows(rows: int) -> None:
    """At least two rows: a table of one person has nothing to hide in."""
    if rows < 2:  # noqa: PLR2004
        msg = f"the data have {rows} row(s): at least 2 are needed"
        raise DataError(msg)


def as_column(name: str, values: Any) -> NDArray[Any]:  # noqa: ANN401 - whatever array-like a user has
    """One column, checked: numbers as float64, everything else as text."""
    try:
        array = np.asarray(values)
        texts = array.tolist() if array.dtype.kind in "OUT" else []
        # nan differs from itself, which tells a missing number inside a column of text.
        missing = [v is None or bool(v != v) for v in texts]  # noqa: PLR0124
    except ValueError:
        msg = f"column {name!r} holds rows of different lengths: give one value per row"
        raise DataError(msg) from None
    if array.ndim != 1:
        msg = f"column {name!r} has {array.ndim} dimensions: give one value per row"
        raise DataError(msg)
    numbers = (
        bool(texts) and not all(missing) and all(gone or isinstance(v, Real) for v, gone in zip(texts, missing, strict=True))
    )
    if array.dtype.kind in "biuf" or numbers:
        column = np.array([np.nan if gone else v for v, gone in zip(texts, missing, strict=True)]) if numbers else array
        column = column.astype(np.float64)
        if np.isinf(column).any():
            msg = f"column {name!r} holds an infinite value: replace it, or mark it as missing (nan)"
            raise DataError(msg)
    elif array.dtype.kind in "OUT":
        column = np.array([None if gone else str(v) for v, gone in zip(texts, missing, strict=True)], dtype=object)
    else:
        msg = f"column {name!r} holds {array.dtype.name} values: give numbers or text"
        raise DataError(msg)
    column.setflags(write=False)
    return column


def is_complete(values: NDArray[Any]) -> bool:
    """Whether a column has no missing value."""
    return not any(v is None for v in values) if values.dtype == object else not bool(np.isnan(values).any())
