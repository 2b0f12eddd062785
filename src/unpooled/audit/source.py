"""The source of a party attacked: one person is changed in copies of all tables that its query reads, and only that person's rows may move.

The check of queries argues from words; this attack looks at data. It changes the first person, the last one, the extreme ones and some at random:
to another person's values, to values beyond everybody's, to no rows at all; and it adds a person. Copies lie in the engine's memory and are gone
afterwards. What was not attacked is said with its reason: it is no power, and never "no violation".
"""

# ruff: noqa: S608 - queries are the party's own, names are those of copies, and values are parameters
from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.errors import StudyError
from unpooled.study.files import read_party
from unpooled.study.party import place_in
from unpooled.study.sources.connection import engine, refuse
from unpooled.study.sources.grammar import name_of, select_all, text_of
from unpooled.study.sources.query import QueryAddress, looked_at, tree_of
from unpooled.study.sources.rowwise import tables_read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from unpooled.study.sources.grammar import Node

#: The most rows of a table that are copied, and the number of people at random who are changed.
MOST_ROWS, AT_RANDOM = 200_000, 12
#: The number of columns whose extreme people are changed.
_COLUMNS = 6
_NUMBERS = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
)


@dataclass(frozen=True)
class SourceAttack:
    """The findings about one party's source."""

    party: str
    #: The numbers of people who were changed, and of changes after which the result was compared.
    people: int = 0
    changes: int = 0
    #: What moved that must not, without a value.
    violations: tuple[str, ...] = ()
    #: Why there was no attack, or one without power; empty where it had power.
    not_attacked: str = ""

    def __str__(self) -> str:
        if self.violations:
            return f"source of party {self.party!r}: VIOLATION: {self.violations[0]} ({len(self.violations)} of {self.changes} changes)"
        if self.not_attacked:
            return f"source of party {self.party!r}: NOT attacked, so this says nothing about it (no power): {self.not_attacked}"
        return f"source of party {self.party!r}: {self.changes} changes of {self.people} people in copies of its tables moved no other person's row"


class NotAttacked(Exception):  # noqa: N818 - it is no error
    """A source cannot be attacked, and why."""


def attack_source(config: Path, seed: int = 0) -> SourceAttack:
    """Attack the source of a party file; the query is refused first where it may not run."""
    text = read_party(config)
    source = place_in(config.parent, text)
    name = text.party.name
    if not isinstance(source, QueryAddress):
        return SourceAttack(name, not_attacked="its data are a file that is read row by row, and no query stands between")
    source.of_people(text.party.id, text.party.household)
    connection = source.connection()
    try:
        looked_at(source, connection.raw)
        connection.raw.execute("SET threads = 1")  # one order of a person's rows, so that sums have equal bits
        connection.lock()
        return _attacked(name, source, connection.raw, random.Random(seed))  # noqa: S311 - no noise: which people are changed
    except NotAttacked as why:
        return SourceAttack(name, not_attacked=str(why))
    except engine().Error as error:
        refuse(source.name, error)
    finally:
        connection.close()


@dataclass(frozen=True)
class _Copy:
    """A table of people in the engine's memory."""

    name: str
    types: dict[str, str]
    #: The column of the person's id in small letters; empty: each row counts as a person of its own.
    id: str

    @property
    def who(self) -> str:
        """Return the person of a row, in the engine's words."""
        return f"CAST({_quoted(self.id)} AS VARCHAR)" if self.id else "CAST(rowid AS VARCHAR)"


def _attacked(party: str, source: QueryAddress, raw: DuckDBPyConnection, rng: random.Random) -> SourceAttack:
    """Change people in copies of the tables, one after the other, and compare the query's results."""
    tree = tree_of(source, raw)
    tree["modifiers"] = [one for one in tree["modifiers"] if one["type"] != "ORDER_MODIFIER"]
    copies = _copied(tree, source, raw)
    query = text_of(tree, raw)
    own = (source.people.id or "").lower()
    try:
        raw.execute(f"CREATE TEMP TABLE before AS SELECT * FROM ({query})")
    except engine().BinderException:
        raise NotAttacked(
            "its query cannot be put to copies of its tables: name each table (AS), and columns by that name"
        ) from None
    people, changes, moved, violations = set[str](), 0, False, list[str]()
    for whom, at, what, statements in _changes(copies, raw, rng):
        raw.execute("BEGIN")
        try:
            for statement, values in statements:
                raw.execute(statement, values)
            found = _moved(raw, query, own)
        except (engine().ConversionException, engine().OutOfRangeException, engine().InvalidInputException):
            continue  # the query does not take such a value: it would be refused
        finally:
            raw.execute("ROLLBACK")
        people.add(f"{at} {whom}")
        changes, moved = changes + 1, moved or bool(found)
        if said := _wrong(found, own, whom if all(copy.id for copy in copies) else None):
            violations.append(f"{what} of one person moved {said}")
    if not violations and not moved:
        msg = f"none of {changes} changes moved any row of its result"
        raise NotAttacked(msg)
    return SourceAttack(party, len(people), changes, tuple(violations))


def _copied(tree: Node, source: QueryAddress, raw: DuckDBPyConnection) -> list[_Copy]:
    """Copy the tables of people that a query reads into memory, each once, and let its tree read the copies."""
    copies: dict[str, _Copy] = {}
    for node, public in tables_read(tree, raw, source.people):
        if public:
            continue
        whole = text_of(select_all({**node, "alias": "", "column_name_alias": [], "sample": None}), raw)
        if whole not in copies:
            name = f"copy_{len(copies)}"
            (rows,) = raw.execute(f"SELECT count(*) FROM (SELECT 1 FROM ({whole}) LIMIT {MOST_ROWS + 1})").fetchall()[0]
            if rows > MOST_ROWS:
                msg = f"a table has more than {MOST_ROWS} rows, which are not copied: attack a smaller extract of it"
                raise NotAttacked(msg)
            raw.execute(f"CREATE TABLE {name} AS {whole}")
            types = {column: kind for column, kind, *_ in raw.execute(f"DESCRIBE {name}").fetchall()}
            own = next((column for column in types if column.lower() == (source.people.id or "").lower()), "")
            copies[whole] = _Copy(name, types, own)
        called = name_of(node)
        aliases, sample = node["column_name_alias"], node["sample"]
        node.clear()
        node |= {
            "type": "BASE_TABLE",
            "alias": called,
            "sample": sample,
            "query_location": 0,
            "schema_name": "",
            "catalog_name": "",
            "at_clause": None,
        }
        node |= {"table_name": copies[whole].name, "column_name_alias": aliases}
    if not copies:
        raise NotAttacked("its query reads no table of people")
    return list(copies.values())


def _changes(
    copies: list[_Copy], raw: DuckDBPyConnection, rng: random.Random
) -> Iterator[tuple[str, str, str, list[tuple[str, list[Any]]]]]:
    """Yield changes of one person: who, in which table, what was done, and the statements that do it in all tables that have the person's id."""
    for group in ([[copy for copy in copies if copy.id]] if any(copy.id for copy in copies) else []) + [
        [copy] for copy in copies if not copy.id
    ]:
        known = sorted(
            {
                who
                for copy in group
                for (who,) in raw.execute(f"SELECT DISTINCT {copy.who} FROM {copy.name} ORDER BY 1").fetchall()
                if who is not None
            }
        )
        chosen = (
            [known[0], known[-1], *_extreme(group, raw), *rng.sample(known, min(AT_RANDOM, len(known)))] if known else []
        )
        for who in dict.fromkeys(chosen):
            other = rng.choice([one for one in known if one != who] or known)
            for what, act in (
                ("other values", _as(other)),
                ("values beyond all others", _beyond(1)),
                ("values below all others", _beyond(-1)),
            ):
                yield who, group[0].name, what, [one for copy in group for one in act(copy, who)]
            yield (
                who,
                group[0].name,
                "the removal",
                [(f"DELETE FROM {copy.name} WHERE {copy.who} = ?", [who]) for copy in group],
            )
            if group[0].id:
                new = _fresh(known)
                yield new, group[0].name, "the arrival", [one for copy in group for one in _arrival(copy, who, new)]


def _extreme(group: list[_Copy], raw: DuckDBPyConnection) -> Iterator[str]:
    """Yield who has the largest, the smallest and the rarest value of columns of the first table: whose change others would feel."""
    copy = group[0]
    for column in [_quoted(name) for name in copy.types if name != copy.id][:_COLUMNS]:
        rarest = f"count(*) OVER (PARTITION BY {column})"
        for order in (f"{column} DESC NULLS LAST", f"{column} NULLS LAST", rarest):
            asked = f"SELECT {copy.who} FROM {copy.name} WHERE {copy.who} IS NOT NULL ORDER BY {order}, 1 LIMIT 1"
            yield from (who for (who,) in raw.execute(asked).fetchall())


def _as(other: str) -> Any:  # noqa: ANN401 - a function of a copy and a person
    """Return what gives a person the values of another one."""

    def act(copy: _Copy, who: str) -> list[tuple[str, list[Any]]]:
        columns = [_quoted(column) for column in copy.types if column != copy.id]
        sets = ", ".join(f"{name} = (SELECT {name} FROM {copy.name} WHERE {copy.who} = ? LIMIT 1)" for name in columns)
        return [(f"UPDATE {copy.name} SET {sets} WHERE {copy.who} = ?", [*[other] * len(columns), who])] if columns else []

    return act


def _beyond(sign: int) -> Any:  # noqa: ANN401 - as above
    """Return what gives a person values larger (or smaller) than everybody's, and the last (or first) text of all."""

    def act(copy: _Copy, who: str) -> list[tuple[str, list[Any]]]:
        sets = []
        for column, kind in copy.types.items():
            if column == copy.id:
                continue
            name, end = _quoted(column), "max" if sign > 0 else "min"
            value = f"(SELECT {end}({name}) FROM {copy.name})"
            sets.append(
                f"{name} = "
                + (f"TRY_CAST({value} + ({sign}) * (1 + abs({value})) AS {kind})" if kind.startswith(_NUMBERS) else value)
            )
        return [(f"UPDATE {copy.name} SET {', '.join(sets)} WHERE {copy.who} = ?", [who])] if sets else []

    return act


def _fresh(known: list[str]) -> str:
    """Return an id that nobody has: a number where all ids are numbers."""
    if all(one.isdigit() for one in known):
        return str(max(map(int, known)) + 1)
    return f"{max(known)}x"


def _arrival(copy: _Copy, who: str, new: str) -> list[tuple[str, list[Any]]]:
    """Return what adds a person whose rows are those of somebody else."""
    columns = ", ".join(
        f"CAST(? AS {kind})" if column == copy.id else _quoted(column) for column, kind in copy.types.items()
    )
    return [(f"INSERT INTO {copy.name} SELECT {columns} FROM {copy.name} WHERE {copy.who} = ?", [new, who])]


def _moved(raw: DuckDBPyConnection, query: str, own: str) -> list[tuple[str | None, int, int]]:
    """Return whose rows of the result differ from those before: (id, rows that went, rows that came); all under None where nobody has an id."""
    who = f"CAST({_quoted(own)} AS VARCHAR)" if own else "NULL"
    raw.execute(f"CREATE OR REPLACE TEMP TABLE after_ AS SELECT * FROM ({query})")
    gone, come = (
        f"SELECT {who} AS who, {side} FROM (TABLE {one} EXCEPT ALL TABLE {two})"
        for one, two, side in (("before", "after_", "1 AS went, 0 AS came"), ("after_", "before", "0 AS went, 1 AS came"))
    )
    return raw.execute(f"SELECT who, sum(went)::INT, sum(came)::INT FROM ({gone} UNION ALL {come}) GROUP BY who").fetchall()


def _wrong(found: list[tuple[str | None, int, int]], own: str, whom: str | None) -> str:
    """Return whose rows moved that must not; nothing where only the person's own did. Where a table has no id, any one id may be the person's."""
    if not own:
        rows = max((max(went, came) for _, went, came in found), default=0)
        return f"{rows} rows of the result" if rows > 1 else ""
    others = {who for who, *_ in found} - {whom}
    most = 0 if whom is not None else 2  # the id that the changed row had, and the one that it has now
    return f"rows of {len(others)} other people" if len(others) > most else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def attack_sources(configs: list[Path], parties: set[str]) -> list[SourceAttack]:
    """Attack the sources of several party files, each a member of the study."""
    for config in configs:
        name = read_party(config).party.name
        if name not in parties:
            msg = f"party {name!r} of {config} is not in the study: give the files of its parties, or leave --config out"
            raise StudyError(msg)
    return [attack_source(config) for config in configs]
