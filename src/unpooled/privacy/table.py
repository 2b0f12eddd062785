"""Raw data at a party: named columns, checked once, fingerprinted, never printed; and tables in which a bounded number of rows of every id count."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from numbers import Real
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from unpooled.errors import DataError, UsageError, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csc_array

    from unpooled.privacy.places import Places


# --- Table -----------------------------------------------------------------------------------------------------------------
# Raw data at a party: named columns, checked once, fingerprinted, never printed.
#
# Nothing of a table's content appears in its ``repr`` or in an error: only column names and the (public) row count do.

#: Types whose values are never missing (their subclasses may be).
_COMPLETE = {str, int, bool}
#: Rows that are coded at a time: a block of a few columns stays in the cache.
BLOCK_ROWS = 1 << 16


class OverRows(Protocol):
    """Something to be worked out of a table: what some rows give and what others give add up, or stand one below the other."""

    @property
    def joined(self) -> bool:
        """Return True if results of shards are stacked in the order of the shards, False if they add up."""

    def over(self, table: Table) -> NDArray[np.int64]:
        """Return the result for these rows."""


class Table:
    """Columns of equal length: numbers as float64 (nan is missing), everything else as text (None is missing).

    ``sparse`` is (names, matrix): columns of numbers that are mostly zero, held together as one scipy CSC array. Each can be had
    like any other column; all of them at once only by :meth:`sparse`, which writes no zero out.
    """

    #: How many ids the rows belong to, and how many rows of each count, where that was bounded.
    household: tuple[int, int] | None = None
    #: Why the order of the rows says nothing about who is who, in words; empty where it may.
    unordered: str = ""
    #: The name of the row map by which these rows were taken; empty where they stand as in the data.
    linked: str = ""
    #: The row that a neighbour under zero-out was made without.
    _left_out: int | None = None

    def __init__(self, columns: Mapping[str, Any], sparse: tuple[Sequence[str], Any] | None = None) -> None:
        self._columns = {str(name): as_column(str(name), values) for name, values in columns.items()}
        sizes = {name: values.size for name, values in self._columns.items()}
        self._matrix: csc_array | None = None
        self._places: dict[str, int] = {}
        if sparse is not None:
            names = tuple(map(str, sparse[0]))
            self._matrix = as_sparse(names, sparse[1])
            self._places = {name: j for j, name in enumerate(names)}
            twice = [name for name in names if name in sizes] or [n for j, n in enumerate(names) if self._places[n] != j]
            if twice:
                msg = f"there are two columns {twice[0]!r}: give each name once"
                raise DataError(msg)
            sizes.update(dict.fromkeys(names, self._matrix.shape[0]))
        if not sizes:
            msg = "the data have no columns: name at least one"
            raise DataError(msg)
        #: The column names in order, sparse ones last.
        self.names = tuple(sizes)
        self.n_rows = self._held = next(iter(sizes.values()))
        for name, size in sizes.items():
            if size != self.n_rows:
                msg = f"column {name!r} has {size} rows where the first column has {self.n_rows}: give equal lengths"
                raise DataError(msg).at(column=name)
        check_rows(self.n_rows)

    @property
    def sparse_names(self) -> Collection[str]:
        """Return the names of the columns that are held sparse."""
        return self._places.keys()

    def sparse(self, names: Sequence[str]) -> csc_array | None:
        """Return the named columns in this order as one CSC array (read-only) if all of them are held sparse, else None."""
        for name in names:
            self._check(name)
        if self._matrix is None or not all(name in self._places for name in names):
            return None
        if len(names) == len(self._places) and tuple(names) == tuple(self._places):
            return self._matrix
        return _frozen(self._matrix[:, [self._places[name] for name in names]])

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns, ``rows`` rows at a time."""
        for name in names:
            self._check(name)
        for start in range(0, self._held, rows):
            yield tuple(self._rows(name, start, min(start + rows, self._held)) for name in names)

    @property
    def complete(self) -> bool:
        """Return True unless a row was left out, so that the rows of :meth:`blocks` do not stand where they stand in the study."""
        return self._left_out is None

    @property
    def owners(self) -> NDArray[np.int64]:
        """Return a number for every row of :meth:`blocks`, the same for rows of one id; without ids every row has a number of its own."""
        return np.arange(self.n_rows - (self._left_out is not None))

    def passed(self, work: OverRows) -> NDArray[np.int64]:
        """Return the result of the work over all rows, which a subclass may compute elsewhere. Here: in this process."""
        return work.over(self)

    def take(self, rows: NDArray[Any]) -> Table:
        """Return the table of some of its rows."""
        columns = {name: Checked(values[rows]) for name, values in self._columns.items()}
        return Table(columns, None if self._matrix is None else (tuple(self._places), self._matrix[rows, :]))

    def by_site(self, sites: Any) -> dict[str, Table]:  # noqa: ANN401 - whatever array-like a user has
        """Return the rows of every label, in the order of the sorted labels; None is one site called "all"."""
        if sites is None:
            return {"all": self}
        given = np.asarray(sites)
        if any(_missing(given.ravel().tolist())):
            raise UsageError("sites has a missing label: every row belongs to a site")
        labels = np.array([str(site) for site in given.tolist()])
        if given.shape != (self.n_rows,):
            msg = f"sites has labels of shape {given.shape} for {self.n_rows} rows: give one label per row"
            raise UsageError(msg)
        return {name: self.take(np.flatnonzero(labels == name)) for name in sorted(set(labels.tolist()))}

    def holding(self, table: Table) -> Table:
        """Return the table of these other rows, which stand where the rows of this one do."""
        return table

    def omit(self, row: int) -> Table:
        """Return the neighbour under zero-out: this row contributes nothing, and the public number of rows stays what it was."""
        table = self.take(np.delete(np.arange(self.n_rows), row))
        table.n_rows, table._left_out = self.n_rows, row  # noqa: SLF001 - another of this class
        return table

    def whole(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a value for every row of something that was worked out from those that are held; at one that was left out stands any."""
        return values if self._left_out is None else np.insert(values, self._left_out, values[:1], axis=0)

    def blank(self, values: NDArray[Any], rows: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Return the same (of these rows), with zeros for a row that was left out: it contributes nothing."""
        if self._left_out is not None:
            values[(np.arange(self.n_rows) if rows is None else rows) == self._left_out] = 0
        return values

    def replace(self, row: int, values: Mapping[str, Any]) -> Table:
        """Return the neighbour under replace: other values in some columns of one row."""
        columns = {name: column.copy() for name, column in self._columns.items()}
        moved: dict[str, Any] = {}
        for name, value in values.items():
            self._check(name)
            if name in self._places:
                moved[name] = value
            else:
                columns[name][row] = value
        if self._matrix is None:
            return Table(columns)
        return Table(columns, (tuple(self._places), self._replaced(range(self._held)[row], moved)))

    def _replaced(self, row: int, values: Mapping[str, Any]) -> csc_array:
        from scipy.sparse import csc_array

        assert self._matrix is not None
        old = self._matrix.tocoo()
        at = [self._places[name] for name in values]
        kept = (old.row != row) | ~np.isin(old.col, at)
        data = np.append(old.data[kept], np.array(list(values.values()), dtype=np.float64))
        rows = np.append(old.row[kept], np.full(len(at), row))
        return csc_array((data, (rows, np.append(old.col[kept], at).astype(np.intp))), shape=old.shape)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self._check(name)
        return self._rows(name, 0, self._held)

    def _rows(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return some rows of a column, zeros written out."""
        place = self._places.get(name)
        if place is None:
            return self._columns[name][start:stop]
        assert self._matrix is not None
        first, last = self._matrix.indptr[place : place + 2]
        rows = self._matrix.indices[first:last]
        low, high = np.searchsorted(rows, (start, stop))
        column = np.zeros(stop - start)
        column[rows[low:high] - start] = self._matrix.data[first + low : first + high]
        column.setflags(write=False)
        return column

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

    def ids(self) -> list[str | None]:
        """Return the row ids as they stand in the data, for callers that may see them."""
        return self._row_ids()

    def _row_ids(self) -> list[str | None]:
        msg = "the study compares row ids, but this party declares no id column: set `id` under [party] in party.toml"
        raise DataError(msg)

    def _check(self, name: str) -> None:
        if name not in self._known:
            msg = f"there is no column {name!r}: the data have {listed(self.names)}"
            raise DataError(msg).at(column=name)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of names and values: a party refuses to answer an old request over changed data."""
        total = hashlib.sha256()

        def add(*parts: bytes) -> None:
            for part in parts:
                total.update(len(part).to_bytes(8, "big"))
                total.update(part)

        for name, values in self._columns.items():
            if values.dtype == np.float64:
                kind, raw = b"f8", values.tobytes()
            else:  # msgpack keeps texts apart from each other and from None, whatever they hold
                known = {v: None if v is None else v.encode("utf-8", "surrogatepass") for v in set(values.tolist())}
                texts = [known[v] for v in values.tolist()]
                kind, raw = b"text", msgspec.msgpack.encode(texts)
            add(name.encode("utf-8", "surrogatepass"), kind, raw)
        if self._matrix is not None:
            names = [name.encode("utf-8", "surrogatepass") for name in self._places]
            add(msgspec.msgpack.encode(names), b"csc", str(self._held).encode())
            # scipy chooses the indices' width by what it has just done: it is no part of the content.
            add(self._matrix.indptr.astype(np.int64).tobytes(), self._matrix.indices.astype(np.int64).tobytes())
            add(self._matrix.data.tobytes())
        return total.digest()

    def verify(self) -> None:
        """Refuse if the data are no longer those of :attr:`digest`. Those in memory cannot change."""

    def close(self) -> None:
        """Give back what was opened for reading. Data in memory were not."""

    def __repr__(self) -> str:
        return f"Table(n_rows={self.n_rows}, columns=[{listed([repr(name) for name in self.names])}])"


#: What a table of rows holds, which a view of the same rows shares.
_HELD = frozenset({"_columns", "_matrix", "_places", "names", "_held"})


class NoRows(Table):
    """The table of a helper: it has no rows and no columns."""

    def __init__(self) -> None:
        self._columns, self._matrix, self._places = {}, None, {}
        self.names, self.n_rows, self._held = (), 0, 0


class _AtPlaces(Table):
    """Rows of another table at places of a hidden link, which it checks and closes."""

    _source: Table

    @property
    def complete(self) -> bool:
        """Return False: the rows of :meth:`blocks` do not stand where they stand in the study."""
        return False

    @property
    def owners(self) -> NDArray[np.int64]:
        """Return a number for every row that there is: each is another person's."""
        return np.arange(self._held)

    def verify(self) -> None:
        """Refuse if the data are no longer those of :attr:`digest`."""
        self._source.verify()

    def close(self) -> None:
        """Give back what was opened for reading."""
        self._source.close()


class PlacedTable(_AtPlaces):
    """Rows of another table at their places in a hidden link: its public number of rows is that of all places, and a place without a row is nobody's."""

    def __init__(self, table: Table, places: Places) -> None:
        if places.rows.shape != (table.n_rows,):
            msg = f"{places.rows.size} rows have places, and the data have {table.n_rows}: link them anew"
            raise DataError(msg)
        kept = np.flatnonzero(places.rows >= 0)
        sparse = [column for column in table.names if column in table.sparse_names]
        dense = {column: Checked(table[column][kept]) for column in table.names if column not in table.sparse_names}
        matrix = table.sparse(sparse) if sparse else None
        super().__init__(dense, None if matrix is None else (sparse, matrix[kept, :]))
        self._source, self.places, self.at = table, places, places.rows[kept]
        self.n_rows, self.linked = places.total, places.name.partition(":")[2]

    def holding(self, table: Table) -> PlacedTable:
        """Return the table of these other rows at the same places."""
        return PlacedTable(table, replace(self.places, rows=self.at))

    def omit(self, row: int) -> PlacedTable:
        """Return the neighbour under zero-out: the list without this row, whose place is nobody's."""
        kept = np.delete(np.arange(self._held), row)
        return PlacedTable(self.take(kept), replace(self.places, rows=self.at[kept]))

    def replace(self, row: int, values: Mapping[str, Any]) -> PlacedTable:
        """Return the neighbour under replace: other values in some columns of one row of the list."""
        return self.holding(self.take(np.arange(self._held)).replace(row, values))

    def between(self, first: int, last: int) -> tuple[Table | None, NDArray[np.int64]]:
        """Return the rows whose places lie from first to last, and how far behind the first each of them lies; None if there is none."""
        here = np.flatnonzero((self.at >= first) & (self.at < last))
        return self.take(here) if here.size else None, self.at[here] - first

    def _row_ids(self) -> list[str | None]:
        ids = self._source.ids()
        return [ids[row] for row in np.flatnonzero(self.places.rows >= 0).tolist()]

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of the data and of their places."""
        return hashlib.sha256(super().digest + self.at.tobytes() + self.places.given.tobytes()).digest()


class HubTable(_AtPlaces):
    """Rows of a registry at their places in a hidden link with several hospitals: each row has a place in the array of every hospital."""

    def __init__(self, table: Table, arrays: Mapping[str, Places]) -> None:
        self.arrays = {name: PlacedTable(table, places) for name, places in arrays.items()}
        first = next(iter(self.arrays.values()))
        vars(self).update({name: value for name, value in vars(first).items() if name in _HELD})
        self._source, self.linked = table, first.linked
        self.n_rows = sum(one.n_rows for one in self.arrays.values())

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of the data and of all their places."""
        parts = [part for name, one in sorted(self.arrays.items()) for part in (name.encode(), one.digest)]
        return hashlib.sha256(b"".join(parts)).digest()


class HeldPlaces(NoRows):
    """The table of a helper that linked hidden people: the places that it gave to each party that it has in common with another one, and no rows."""

    def __init__(self, name: str, given: Mapping[tuple[str, str], NDArray[np.int64]]) -> None:
        super().__init__()
        self.given, self.linked = dict(given), name.partition(":")[2]


def check_rows(rows: int, least: int = 1) -> None:
    """Refuse data of fewer rows. A party may hold one record, as every client does in the Bayes paper: its release hides it, or the sum of all does."""
    if rows < least:
        msg = f"the data have {rows} row(s): at least {least} {'are' if least > 1 else 'is'} needed"
        raise DataError(msg)


class Checked:
    """A column of a table, or some of its rows, which :func:`as_column` has checked before."""

    def __init__(self, column: NDArray[Any]) -> None:
        self.column = np.ascontiguousarray(column)
        self.column.setflags(write=False)


def as_column(name: str, values: Any, *, copy: bool = True) -> NDArray[Any]:  # noqa: ANN401 - whatever array-like a user has
    """Return one column, checked: numbers as float64, everything else as text; ``copy``: whether somebody else may still write into it."""
    if isinstance(values, Checked):
        return values.column
    try:
        array = np.asarray(values)
        texts = array.tolist() if array.dtype.kind in "OUT" else []
        missing = list(_missing(texts))
    except ValueError:
        msg = f"column {name!r} holds rows of different lengths: give one value per row"
        raise DataError(msg).at(column=name) from None
    if array.ndim != 1:
        msg = f"column {name!r} has {array.ndim} dimensions: give one value per row"
        raise DataError(msg).at(column=name)
    numbers = (
        bool(texts)
        and not all(missing)
        and all(gone or isinstance(v, Real | np.bool_) for v, gone in zip(texts, missing, strict=True))
    )
    if array.dtype.kind in "biuf" or numbers:
        column = np.array([np.nan if gone else v for v, gone in zip(texts, missing, strict=True)]) if numbers else array
        column = column.astype(np.float64, copy=copy)
        if np.isinf(column).any():
            msg = f"column {name!r} holds an infinite value: replace it, or mark it as missing (nan)"
            raise DataError(msg).at(column=name)
    elif array.dtype.kind in "OUT":
        column = np.array([None if gone else str(v) for v, gone in zip(texts, missing, strict=True)], dtype=object)
    else:
        msg = f"column {name!r} holds {array.dtype.name} values: give numbers or text"
        raise DataError(msg).at(column=name)
    column.setflags(write=False)
    return column


def _missing(values: list[Any]) -> Iterator[bool]:
    """Tell of every value whether it is missing; where the types answer that, no value is looked at."""
    kinds = set(map(type, values))
    if kinds <= _COMPLETE:
        return repeat(False, times=len(values))  # noqa: FBT003 - the value itself
    return (value is None for value in values) if kinds <= {*_COMPLETE, NoneType} else map(_is_missing, values)


def _is_missing(value: object) -> bool:
    """None, nan (which differs from itself, also inside a column of text), and what pandas writes for them."""
    return value is None or type(value).__name__ in {"NAType", "NaTType"} or bool(value != value)  # noqa: PLR0124


def as_sparse(names: Sequence[str], matrix: Any) -> csc_array:  # noqa: ANN401 - any of scipy's sparse matrices
    """Return columns that are mostly zero, checked, in the one form that equal columns have: CSC, sorted, nothing stored twice, no stored zero.

    Arrays that nobody can write into (another table's) are shared, all others are copied, views of writable ones among them.
    """
    from scipy.sparse import csc_array, issparse

    spotted = bool(issparse(matrix))
    if not spotted or matrix.ndim != 2 or matrix.dtype.kind not in "biuf":  # noqa: PLR2004
        raise DataError("sparse columns are given as one of scipy's sparse matrices of numbers, with a column per name")
    if matrix.shape[1] != len(names):
        msg = f"there are {matrix.shape[1]} sparse columns and {len(names)} names: give one name per column"
        raise DataError(msg)
    given = matrix.tocsc()
    own = csc_array((given.data.astype(np.float64, copy=False), given.indices, given.indptr), shape=given.shape)
    try:
        own.check_format(full_check=True)
    except ValueError:
        raise DataError("the sparse columns are damaged: their indices do not fit their shape") from None
    if any(map(_writable, (own.data, own.indices, own.indptr))) or not (own.has_canonical_format and own.data.all()):
        own = own.copy()
        own.sum_duplicates()
        own.eliminate_zeros()
    infinite = np.flatnonzero(np.isinf(own.data))
    if infinite.size:
        name = names[int(np.searchsorted(own.indptr, infinite[0], side="right")) - 1]
        msg = f"column {name!r} holds an infinite value: replace it, or mark it as missing (nan)"
        raise DataError(msg).at(column=name)
    return _frozen(own)


def _writable(array: Any) -> bool:  # noqa: ANN401 - an array or what it is a view of
    """Return True if these numbers can be changed, through the array or through the array that it is a view of."""
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.base
    return array is not None


def _frozen(matrix: csc_array) -> csc_array:
    for array in (matrix.data, matrix.indices, matrix.indptr):
        under: Any = array
        while isinstance(under, np.ndarray):  # scipy may have cut it off a longer one
            under.setflags(write=False)
            under = under.base
    return matrix


def is_complete(values: NDArray[Any]) -> bool:
    """Return True if a column has no missing value."""
    return not bool(gaps_of(values).any())


def gaps_of(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values of a column are missing: nan among numbers, None among texts."""
    if values.dtype == object:
        return np.fromiter((value is None for value in values), np.bool_, values.size)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)


def with_gaps(values: NDArray[Any], gaps: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Return a column in which the values of these places are missing: numbers as float64, everything else as texts."""
    if gaps is None or not gaps.any():
        return values
    numbers = values.dtype.kind in "biuf"
    found: NDArray[Any] = values.astype(np.float64 if numbers else object)
    found[gaps] = np.nan if numbers else None
    return found


# --- Household -------------------------------------------------------------------------------------------------------------
# Rows that belong together: a table in which a bounded number of rows of every id count, the same ones whenever they are asked for.
#
# Which rows count depends on the id and on its own rows alone, never on another id's: so a household that changes changes at most this number of
# rows on each side (Theorem F.19). Where rows with gaps are left out, an id's first whole rows count.


class BoundedTable(Table):
    """Another table's rows that count. Its public number of rows is the most that could: ids times rows of each."""

    def __init__(self, table: Table, ids: Any, most: int, hidden: str = "") -> None:  # noqa: ANN401 - whatever array-like a user has
        found = texts_of(ids)
        if found.shape != (table.n_rows,):
            msg = f"unit_id has {found.size} ids for {table.n_rows} rows: give one id per row"
            raise UsageError(msg)
        self._table, self._matrix, self._places = table, None, {}
        self.names = tuple(name for name in table.names if name != hidden)
        self._ids, self._kept = found, counted(found, most)
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

    def among(self, whole: NDArray[np.bool_]) -> BoundedTable:
        """Return the table in which the rows of every id that count are its first ones among these, of all rows of the table below."""
        found = BoundedTable.__new__(BoundedTable)  # nothing that is remembered of the other rows goes with it
        kept = counted(self._ids, self.household[1], whole)
        own: dict[str, Any] = {
            "_table": self._table,
            "_matrix": None,
            "_places": {},
            "_ids": self._ids,
            "_kept": kept,
            "_owners": self._ids[kept],
        }
        public = {name: getattr(self, name) for name in ("names", "household", "n_rows", "unordered", "linked")}
        vars(found).update(own | public)
        return found

    def below(self, names: tuple[str, ...]) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns of all rows, those that do not count too."""
        return self._table.blocks(names)

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


def counted(ids: NDArray[Any], most: int, whole: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """Return a mask of the rows that count: at most ``most`` of each id, picked by a hash of the id and of the row's number among its rows.

    ``whole``: of these rows alone, whose order is still that among all rows of the id.
    """
    _, owner, size = np.unique(ids, return_inverse=True, return_counts=True)
    kept = np.ones(ids.size, dtype=bool) if whole is None else whole.copy()
    crowded = np.flatnonzero(size[owner] > most)
    rows: dict[int, list[int]] = {}
    for row in crowded.tolist():
        rows.setdefault(int(owner[row]), []).append(row)
    for own in rows.values():
        order = sorted(range(len(own)), key=lambda k, name=str(ids[own[0]]): _rank(name, k))  # type: ignore[misc]
        first = [own[k] for k in order if kept[own[k]]]
        kept[first[most:]] = False
    return kept


def _rank(name: str, number: int) -> bytes:
    return hashlib.sha256(f"{number} {name}".encode("utf-8", "surrogatepass")).digest()
