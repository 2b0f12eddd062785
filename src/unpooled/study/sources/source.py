"""A source in a program or a party file: a query, and the databases and files that it is put to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import StudyError
from unpooled.study.sources.address import SQL, QueryAddress
from unpooled.study.sources.table import SourceTable

if TYPE_CHECKING:
    from pathlib import Path


class SourceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[source]`` of a party file: the databases that its query names, the engine's settings, and where credentials are."""

    #: Databases by name: "postgres:...", "sqlite:...", "duckdb:...".
    attach: dict[str, str] = {}
    #: Of the engine: where object stores are, memory, threads.
    settings: dict[str, str | int | bool] = {}
    #: A file of credentials that only its owner can read.
    secrets: str = ""
    #: What relative paths start from, itself relative to the party file.
    folder: str = ""
    #: Tables that describe no people, such as code lists: paths of files, DATABASE.table.
    public: tuple[str, ...] = ()
    #: Expressions that are the person's id in tables that call it otherwise, as the query writes them.
    called: tuple[str, ...] = ()


class Source(QueryAddress):
    """A query over files and databases: Parquet (also several files, or in an object store), CSV, JSON, SQLite, PostgreSQL.

    Parameters
    ----------
    query : str
        One SELECT in DuckDB's SQL. Tables of databases are called ``NAME.table``, files ``'data/*.parquet'``. A party of a column-split study
        ends it with ORDER BY its id column.
    attach : mapping of str to str, optional
        Databases by name: ``"postgres:host=... dbname=... user=..."`` (as libpq takes it, without a password), ``"sqlite:PATH"`` or
        ``"duckdb:PATH"``. They are opened for reading only.
    settings : mapping of str to (str, int or bool), optional
        Settings of the engine: ``s3_region``, ``s3_endpoint`` and others of object stores, ``memory_limit`` ("1GB") and ``threads``.
    secrets : str or path-like, optional
        A TOML file of mode 600 with ``user`` and ``password`` of every database in a table of its name, and the keys of an object store in
        ``[s3]``. The environment goes before it: ``UNPOOLED_NAME_PASSWORD``, ``AWS_SECRET_ACCESS_KEY`` and so on.
    folder : str or path-like, default "."
        What relative paths start from.
    name : str, default "query"
        What errors call the source.
    id : str, optional
        The column of the result that says whose a row is. Tables of people are joined and grouped by it, and no id may have two rows. Without
        it a query reads one table, row by row. In a party file ``id`` (or ``household``) under ``[party]`` says it.
    public : sequence of str, optional
        Tables that describe no people, such as code lists, as the query writes them: paths of files, ``NAME.table``.

    called : sequence of str, optional
        Expressions that are the person's id in tables that call it otherwise, as the query writes them: ``"patient"``. No other column takes its
        name.

    Examples
    --------
    >>> import unpooled
    >>> source = unpooled.Source("SELECT i AS age, i % 2 = 0 AS smoker FROM range(100) AS t(i)")
    >>> source.read("age")["age"].to_list()[:3]
    [0.0, 1.0, 2.0]
    """

    @property
    def written(self) -> str:
        """Return the query as a party file writes it."""
        return SQL + self.query

    def section(self, folder: Path) -> SourceSection:
        """``[source]`` of a party file in this folder."""
        secrets = "" if self.secrets is None else str(self.secrets)
        base = os.path.relpath(self.folder, folder)
        return SourceSection(
            self.attach, self.settings, secrets, "" if base == "." else base, self.people.public, self.people.called
        )

    def read(self, *names: str) -> Any:  # noqa: ANN401 - a polars frame
        """Return the named columns (default: all) as a polars DataFrame in memory, for estimators that are given rows."""
        import polars as pl

        return pl.concat(list(SourceTable(self, names).frames()), rechunk=True)


def source_of(data: str, said: SourceSection, folder: Path, name: str) -> Source | None:
    """Return the source that a party file's ``data`` and ``[source]`` describe; None where its data are a file."""
    if not data.startswith(SQL):
        if said != SourceSection():
            msg = f'party {name!r}: [source] belongs to data = "sql:...", and its data are a file'
            raise StudyError(msg)
        return None
    return Source(
        data.removeprefix(SQL),
        attach=said.attach,
        settings=said.settings,
        secrets=said.secrets or None,
        folder=folder / said.folder,
        name=name,
        public=said.public,
        called=said.called,
    )
