"""Data files as tables: CSV or Parquet, read a block of rows at a time, so that they may be larger than memory; sparse columns in .npz."""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, StudyError, UnpooledError
from unpooled.privacy.table import BLOCK_ROWS, Table, as_column, check_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import polars as pl
    from numpy.lib.npyio import NpzFile
    from numpy.typing import NDArray

#: How a file of sparse columns is called.
SPARSE = ".npz"


class FileTable(Table):
    """The named columns of a file. Nothing is kept in memory but the block that is being worked on."""

    def __init__(self, path: Path, names: tuple[str, ...], ids: str | None = None) -> None:
        import polars as pl

        self._path, self._frame, self._ids = path, scan(path), ids
        self.names, self._matrix, self._places = names, None, {}
        _check_present(path, names, ids, self._frame.collect_schema().names())
        self.n_rows = int(self._frame.select(pl.len()).collect().item())
        check_rows(self.n_rows)

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns, ``rows`` rows at a time."""
        for name in names:
            self._check(name)
        for batch in self._frame.select(names).collect_batches(chunk_size=rows, maintain_order=True):
            yield tuple(as_column(name, _to_numpy(batch[name])) for name in names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self._check(name)
        return as_column(name, _to_numpy(self._frame.select(name).collect()[name]))

    def _row_ids(self) -> list[str | None]:
        import polars as pl

        if self._ids is None:
            return super()._row_ids()
        # As text: "007" must not become 7 at the party whose file happens to hold digits only.
        frame = (
            self._frame
            if self._path.suffix == ".parquet"
            else pl.scan_csv(self._path, schema_overrides={self._ids: pl.String})
        )
        column = frame.select(self._ids).collect()[self._ids]
        if not (column.dtype.is_integer() or column.dtype == pl.String):
            msg = f"id column {self._ids!r} is neither text nor whole numbers: store the ids as text"
            raise DataError(msg)
        return column.cast(pl.String).to_list()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the file: a party refuses to answer an old request over a file that has changed."""
        with self._path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()


class SparseFileTable(Table):
    """The named columns of a file that :func:`write_sparse` wrote, sparse ones held sparse; all of them in memory."""

    def __init__(self, path: Path, names: tuple[str, ...], ids: str | None = None) -> None:
        from scipy.sparse import csc_array

        with _archive(path) as (stored, self._digest):
            sparse, dense = stored["names"].tolist(), stored["columns"].tolist()
            _check_present(path, names, ids, [*dense, *sparse])
            wanted = {*names, ids}
            data, indices, indptr = (stored[part] for part in ("data", "indices", "indptr"))
            for part in (data, indices, indptr):
                part.setflags(write=False)  # nobody else has it, so the table need not copy it
            matrix = csc_array((data, indices, indptr), shape=tuple(stored["shape"].tolist()))
            whole = Table({name: _unpacked(stored, k) for k, name in enumerate(dense) if name in wanted}, (sparse, matrix))
        self._ids, self._texts = ids, None if ids is None else whole[ids]
        chosen = [name for name in names if name in whole.sparse_names]
        others = {name: whole[name] for name in names if name not in whole.sparse_names}
        super().__init__(others, (chosen, whole.sparse(chosen)))

    def _row_ids(self) -> list[str | None]:
        if self._texts is None:
            return super()._row_ids()
        if self._texts.dtype != object:
            msg = f"id column {self._ids!r} is not text: store the ids as text"
            raise DataError(msg)
        ids: list[str | None] = self._texts.tolist()
        return ids

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the file that was read."""
        return self._digest


def write_sparse(path: str | Path, matrix: Any, names: Sequence[str], /, **columns: Any) -> None:  # noqa: ANN401 - array-likes
    """Write sparse columns, and dense ones beside them, into a ``.npz`` file that a party can name as its data.

    ``matrix`` is one of scipy's sparse matrices, whose j-th column is called ``names[j]``. Every keyword is one more column, of numbers or
    of text (row ids, a response). Nothing is pickled: the file holds the parts of the matrix in CSC form (``data``, ``indices``,
    ``indptr``, ``shape``), ``names``, the names of the other ``columns``, and of the k-th of them ``column_k`` (numbers, or text of
    fixed width) and ``missing_k`` (which texts are missing).

    >>> import tempfile
    >>> from pathlib import Path
    >>> from scipy.sparse import eye_array
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "party.npz"
    ...     write_sparse(file, eye_array(3), ["a", "b", "c"], y=[1.0, 2.0, 3.0])
    ...     read_table(file, ("c", "y"))["c"].tolist()
    [0.0, 0.0, 1.0]
    """
    path, table = Path(path), Table(columns, (names, matrix))
    if path.suffix != SPARSE:
        msg = f"{path.name}: sparse columns are stored in {SPARSE} files: name it so"
        raise StudyError(msg)
    held = table.sparse(list(table.sparse_names))
    assert held is not None
    parts: dict[str, Any] = {
        "data": held.data,
        "indices": held.indices,
        "indptr": held.indptr,
        "shape": np.array(held.shape),
    }
    parts |= {"names": _fixed_width(table.sparse_names), "columns": _fixed_width(columns)}
    for k, name in enumerate(columns):
        values = table[name]
        if values.dtype == object:
            parts[f"missing_{k}"] = np.array([text is None for text in values])
            values = _fixed_width(["" if text is None else text for text in values])
        parts[f"column_{k}"] = values
    with path.open("wb") as file:
        np.savez(file, **parts)


def _fixed_width(texts: Collection[str]) -> NDArray[np.str_]:
    array = np.array(list(texts), dtype=np.str_)
    if array.tolist() != list(texts):
        raise DataError("a name or a text ends in the character NUL, which a file of this kind cannot hold: remove it")
    return array


def _unpacked(stored: NpzFile, k: int) -> NDArray[Any]:
    """A dense column of an archive."""
    values: NDArray[Any] = stored[f"column_{k}"]
    if values.dtype.kind == "U":
        values = values.astype(object)
        values[stored[f"missing_{k}"]] = None
    return values


@contextmanager
def _archive(path: Path) -> Iterator[tuple[NpzFile, bytes]]:
    """The arrays and the SHA-256 of an archive; whatever is wrong with it becomes an error that quotes nothing."""
    _must_exist(path)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                yield stored, digest
    except UnpooledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever damage makes of zip, NumPy and SciPy; their texts may quote data
        msg = f"{path.name}: cannot be read as a file of sparse columns ({type(error).__name__})"
        raise DataError(msg) from None


def read_table(path: Path, names: tuple[str, ...], never: str | None = None) -> Table:
    """The named columns of a data file; ``never`` is the id column, which is not data and only ever compared."""
    if never is not None and never in names:
        msg = f"column {never!r} is the id column and cannot be declared as data"
        raise StudyError(msg)
    return (SparseFileTable if path.suffix == SPARSE else FileTable)(path, names, never)


def _check_present(path: Path, names: tuple[str, ...], ids: str | None, present: list[str]) -> None:
    known = set(present)
    twice = [
        name for name in present if re.fullmatch(r".*_duplicated_\d+", name) and name.rsplit("_duplicated_", 1)[0] in known
    ]
    if twice:
        msg = f"{path.name}: {len(twice)} of its columns bear the name of another one: name each column once"
        raise DataError(msg)
    for name in (*names, *(() if ids is None else (ids,))):
        if name not in known:
            # Not what it has instead: in a file without a header that would be its first row, and this text may travel.
            msg = f"{path.name} has no column {name!r} among its {len(present)}: is its first line a header, and the comma its separator?"
            raise DataError(msg)


def _must_exist(path: Path) -> None:
    if not path.is_file():
        msg = f"{path}: there is no such data file: correct `data` in party.toml"
        raise StudyError(msg)


def scan(path: Path) -> pl.LazyFrame:
    """A lazy frame over a CSV or Parquet file."""
    import polars as pl

    _must_exist(path)
    try:
        frame = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema_length=None)
        frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        # The text of a parser's error may quote data: name its kind only.
        msg = f"{path.name}: cannot be read as CSV or Parquet ({type(error).__name__})"
        raise DataError(msg) from None
    return frame


def _to_numpy(column: pl.Series) -> NDArray[Any]:
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return np.array(column.cast(pl.String).to_list(), dtype=object)
