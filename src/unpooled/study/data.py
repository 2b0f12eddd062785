"""Data files as tables: CSV or Parquet, read a block of rows at a time, so that they may be larger than memory."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

from unpooled.errors import DataError, StudyError
from unpooled.privacy.table import BLOCK_ROWS, Table, as_column, check_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl
    from numpy.typing import NDArray


class FileTable(Table):
    """The named columns of a file. Nothing is kept in memory but the block that is being worked on."""

    def __init__(self, path: Path, names: tuple[str, ...], ids: str | None = None) -> None:
        import polars as pl

        self._path, self._frame, self._names, self._ids = path, scan(path), names, ids
        present = self._frame.collect_schema().names()
        for name in (*names, *(() if ids is None else (ids,))):
            if name not in present:
                msg = f"{path.name} has no column {name!r}: its columns are {', '.join(present)}"
                raise DataError(msg)
        self.n_rows = int(self._frame.select(pl.len()).collect().item())
        check_rows(self.n_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return self._names

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


def read_table(path: Path, names: tuple[str, ...], never: str | None = None) -> Table:
    """The named columns of a CSV or Parquet file; ``never`` is the id column, which is not data and only ever compared."""
    if never is not None and never in names:
        msg = f"column {never!r} is the id column and cannot be declared as data"
        raise StudyError(msg)
    return FileTable(path, names, never)


def scan(path: Path) -> pl.LazyFrame:
    """A lazy frame over a CSV or Parquet file."""
    import polars as pl

    if not path.is_file():
        msg = f"{path}: there is no such data file: correct `data` in party.toml"
        raise StudyError(msg)
    try:
        frame = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema_length=None)
        frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        # The text of a parser's error may quote data: name its kind only.
        msg = f"{path.name}: cannot be read as CSV or Parquet ({type(error).__name__})"
        raise DataError(msg) from None
    return frame


def _to_numpy(column: pl.Series) -> NDArray[Any]:
    import numpy as np
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return np.array(column.cast(pl.String).to_list(), dtype=object)
