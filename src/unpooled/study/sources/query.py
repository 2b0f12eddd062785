"""A query looked at before it runs: where it is asked and with what, one statement that reads, in which order its rows come."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import SourceError, StudyError
from unpooled.study.sources.connection import Connection, check_attached, kinds_of, no_password
from unpooled.study.sources.grammar import People
from unpooled.study.sources.rowwise import must_be_rowwise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from unpooled.study.sources.grammar import Node


# --- Address ---------------------------------------------------------------------------------------------------------------
# Where a query is asked, and with what: everything that is said of a source before anything is opened.

#: How the data of a party file begin where they are a query.
SQL = "sql:"


class QueryAddress:
    """A query, the databases that it names, the engine's settings, and where credentials are. Nothing of the credentials themselves."""

    #: Where the engine may have its folder for what memory does not hold; None: where this system keeps such.
    scratch: str | None = None
    #: True for the reading of one file that this package writes itself, which numbers rows to cut them.
    own_words = False

    def __init__(
        self,
        query: str,
        *,
        attach: Mapping[str, str] | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        secrets: Any = None,  # noqa: ANN401 - path-like
        folder: Any = ".",  # noqa: ANN401 - path-like
        name: str = "query",
        id: str | None = None,  # noqa: A002 - the word of party files
        public: Sequence[str] = (),
        called: Sequence[str] = (),
    ) -> None:
        self.query, self.name, self.folder = query.strip(), name, Path(folder)
        self.attach, self.settings = dict(attach or {}), dict(settings or {})
        self.secrets = Path(secrets) if secrets else None
        self.people = People(id, public=tuple(public), called=tuple(called), attached=kinds_of(self.attach))
        if not self.query:
            msg = f"source {name!r}: the query is empty"
            raise StudyError(msg)
        check_attached(self.attach, self.settings)
        no_password(f"source {name!r}: the query", self.query)

    def of_people(self, id_column: str | None, household: str | None) -> None:
        """Take over what a party file says: whose a row is, and whether a person has one row or the rows of a household."""
        self.people = replace(self.people, id=household or id_column, once=household is None)

    def connection(self) -> Connection:
        """Open everything that the query needs."""
        secrets = None if self.secrets is None else self.folder / self.secrets
        return Connection(self.name, self.query, self.attach, self.settings, secrets, self.folder, self.scratch)

    @property
    def place(self) -> str:
        """Return the key that distinguishes this source in the list of data whose budget is kept: the query, the databases, the folder."""
        told = msgspec.json.encode([self.query, sorted(self.attach.items()), str(self.folder.resolve())])
        return SQL + told.decode()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


# --- Query -----------------------------------------------------------------------------------------------------------------
# A query looked at before it runs: one statement that reads, in which order its rows come, and how each column is read exactly.
#
# Every column leaves the engine as a float64 that equals the number in the database, as text, as a truth value or as a date; a number that no
# float64 equals is refused inside the engine, by a word that holds no value.

#: Whole numbers up to here, and no further, are float64 one by one.
_WHOLE = 1 << 53
#: Decimals of so many digits are below that, and those of so many are 64-bit integers over a power of ten that is a float64 itself.
_DIGITS, _DIVIDED = 15, 18
_SMALL = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER", "FLOAT", "DOUBLE"}
_WIDE = {"BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"}
_TEXT = {"VARCHAR", "UUID", "JSON"}
_KEPT = {"BOOLEAN", "DATE"}
_MOMENTS = {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"}
#: Operators that keep the order in which files hold their rows.
_IN_ORDER = {
    "PROJECTION",
    "FILTER",
    "PARQUET_SCAN",
    "READ_PARQUET",
    "READ_CSV_AUTO",
    "READ_CSV",
    "READ_JSON",
    "READ_JSON_AUTO",
    "READ_NDJSON",
}
#: What the engine says of a number that no float64 equals.
INEXACT = "unpooled:inexact:"


@dataclass(frozen=True)
class Query:
    """A query that was looked at."""

    label: str
    text: str
    #: Columns in order, and the engine's type of each.
    types: dict[str, str]
    #: The columns that it is ordered by, itself.
    keys: tuple[str, ...]
    #: Whether it is ordered by all of its columns, so that only equal rows could change places.
    by_all: bool
    #: Whether rows come as files hold them, so that nothing needs to be sorted.
    in_file_order: bool
    #: ASC or DESC of every key.
    ways: tuple[str, ...] = ()

    @property
    def streams(self) -> bool:
        """Return True if rows come straight from files, in their order."""
        return self.in_file_order and not self.keys

    def is_ordered_by(self, ids: str | None) -> bool:
        """Return True if the query orders rows by the column of row ids and nothing before it, upwards as everybody's."""
        return ids is not None and self.keys[:1] == (ids,) and self.ways[0] == "ASC"

    def reading(self, names: tuple[str, ...], ids: str | None, where: str = "") -> str:
        """Return the statement that reads these columns, the same rows in the same order whenever it runs: those of a shard, if one is said."""
        parts = [self._column(name, ids) for name in names]
        some = f" WHERE {where}" if where else ""
        told = f"SELECT {', '.join(parts)} FROM (\n{self.text}\n) AS source{some}"  # noqa: S608 - the query is the party's own, and names are quoted
        if self.is_ordered_by(ids):
            return f"{told} ORDER BY {', '.join(self._keys)}"
        if self.by_all or self.streams:
            return told
        rest = [f"source.{_name(name)}" for name in self.types if name not in self.keys]
        return f"{told} ORDER BY {', '.join([*self._keys, *rest])}"

    @property
    def _keys(self) -> list[str]:
        return [f"source.{_name(name)} {way}" for name, way in zip(self.keys, self.ways, strict=True)]

    def _column(self, name: str, ids: str | None) -> str:
        kind, own = self.types[name], _name(name)
        if name == ids:
            if kind not in (_SMALL | _WIDE | _TEXT) - {"FLOAT", "DOUBLE"}:
                msg = f"source {self.label!r}: its id column {name!r} is neither text nor whole numbers: cast it to text in the query"
                raise SourceError(msg)
            return f"CAST({own} AS VARCHAR) AS {own}"
        return f"{self._exactly(name, kind, own)} AS {own}"

    def _exactly(self, name: str, kind: str, own: str) -> str:
        double = f"CAST({own} AS DOUBLE)"
        if kind in _WIDE:
            return self._within(name, own, str(_WHOLE), double)
        if found := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind):
            digits, places = map(int, found.groups())
            if digits > _DIGITS:
                # One division of two float64 rounds once; of wider numbers the engine's own text does.
                read = double if digits <= _DIVIDED else f"CAST(CAST({own} AS VARCHAR) AS DOUBLE)"
                return self._within(name, own, f"CAST('{Decimal(_WHOLE).scaleb(-places):f}' AS {kind})", read)
            return double
        if kind in _SMALL:
            return double
        if kind in _TEXT or kind.startswith("ENUM("):
            return f"CAST({own} AS VARCHAR)"
        if kind in _KEPT | _MOMENTS:
            return own if kind in _KEPT else f"CAST({own} AS TIMESTAMP)"
        msg = f"source {self.label!r}: column {name!r} {_advice(kind)}"
        raise SourceError(msg).at(column=name)

    def _within(self, name: str, own: str, most: str, read: str) -> str:
        place = list(self.types).index(name)
        return f"CASE WHEN {own} IS NULL OR {own} BETWEEN -{most} AND {most} THEN {read} ELSE error('{INEXACT}{place}') END"

    def twice(self, ids: str) -> str:
        """Return the statement that finds an id that is missing, or that several rows have; a row of its result says which of the two."""
        own = f"source.{_name(ids)}"
        told = f"SELECT trim(CAST({own} AS VARCHAR)) AS id FROM (\n{self.text}\n) AS source"  # noqa: S608 - as above
        return f"SELECT id IS NULL OR id = '' FROM ({told}) GROUP BY id HAVING id IS NULL OR id = '' OR count(*) > 1 LIMIT 1"  # noqa: S608

    def inexact(self, error: Exception) -> str | None:
        """Return the column of which the engine said so."""
        found = re.search(rf"{INEXACT}(\d+)", str(error))
        return list(self.types)[int(found[1])] if found else None


def looked_at(source: QueryAddress, raw: DuckDBPyConnection) -> Query:
    """Take a query to pieces without running it, and refuse one whose rows are not each of one person. May raise what the engine raises."""
    label, text = source.name, source.query.strip().rstrip(";")
    tree = tree_of(source, raw)
    described = raw.execute(f"DESCRIBE {text}").fetchall()
    types = {name: kind for name, kind, *_ in described}
    if len(types) != len(described):
        msg = f"source {label!r}: two columns of the query have the same name: name each once (AS)"
        raise SourceError(msg)
    keys, ways, by_all = _order(label, tree, tuple(types))
    (_, plan) = raw.execute(f"EXPLAIN (FORMAT json) {text}").fetchall()[0]
    operators = json.loads(plan)
    if not source.own_words:
        must_be_rowwise(label, tree, operators, raw, source.people)
    return Query(label, text, types, keys, by_all, _keeps_order(operators), ways)


def tree_of(source: QueryAddress, raw: DuckDBPyConnection) -> Node:
    """Return the syntax tree of a query that is one SELECT."""
    (said,) = raw.execute("SELECT json_serialize_sql(?)", [source.query.strip().rstrip(";")]).fetchone() or ("{}",)
    told = json.loads(said)
    if told.get("error_type") == "parser":
        msg = f"source {source.name!r}: the query is not written in the engine's SQL"
        raise SourceError(msg)
    if told.get("error", True) or len(told["statements"]) != 1:
        msg = f"source {source.name!r}: a query is one SELECT (with its WITH, if it has one), and nothing else"
        raise SourceError(msg)
    tree: Node = told["statements"][0]["node"]
    return tree


def _order(label: str, node: dict[str, Any], names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Return the keys of a query's own ORDER BY that are columns of its result, and whether it orders by all of them."""
    known, keys = {name.lower(): name for name in names}, {}
    for modifier in node.get("modifiers", []):
        for order in modifier.get("orders", []) if modifier["type"] == "ORDER_MODIFIER" else []:
            key = order["expression"]
            if key["class"] == "STAR":
                return (), (), True
            name = known.get(key["column_names"][-1].lower()) if key["class"] == "COLUMN_REF" else None
            if name is None:
                msg = f"source {label!r}: ORDER BY names columns of the query's own result, by name: add what it orders by to the columns"
                raise SourceError(msg)
            keys[name] = "DESC" if order["type"] == "DESCENDING" else "ASC"
    return tuple(keys), tuple(keys.values()), False


def _keeps_order(plan: list[dict[str, Any]]) -> bool:
    while len(plan) == 1:
        if plan[0]["name"].strip() not in _IN_ORDER:
            return False
        plan = plan[0]["children"]
    return not plan


def _advice(kind: str) -> str:
    if kind.startswith(("TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE")):
        return "is a time with a zone, which is another day elsewhere: say which clock is meant, timezone('Europe/Zurich', column) in the query"
    return f"is {kind.split('(', maxsplit=1)[0]}, which is neither a number, a date nor text: cast it in the query"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
