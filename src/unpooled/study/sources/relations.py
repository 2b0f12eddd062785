"""Relations of a query: whose each row is, and which columns hold the id of that person."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.study.sources.grammar import parts_of, plain, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

    from unpooled.study.sources.grammar import Node

    Types = dict[str, str]


@dataclass(frozen=True)
class People:
    """The rules of a source: which column says whose a row is, which tables describe nobody, and which databases there are."""

    #: The column of a person's id, or of a household's where rows belong together; None: every row is a person of its own.
    id: str | None = None
    #: True if a person has one row in the result at most, and not a declared number of rows.
    once: bool = True
    public: tuple[str, ...] = ()
    #: Expressions that are the person's id in tables that call it otherwise, as the query writes them.
    called: tuple[str, ...] = ()
    #: The kind of every attached database, by its name.
    attached: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Relation:
    """The rows of a part of a query."""

    types: Types
    #: False: no person has anything to do with these rows.
    people: bool
    #: The columns that hold the id of the person whose row it is.
    ids: frozenset[str] = frozenset()
    #: The table of people of which each row is here once at most (its files); empty after joins of people, unions and groups.
    base: tuple[str, ...] = ()
    #: What was computed on the way from there to here.
    way: str = ""


@dataclass(frozen=True)
class From:
    """The relations of a FROM, by their names in small letters."""

    tables: dict[str, Relation]
    people: bool
    #: Columns that hold the person's id: as written without a table's name, and with it.
    bare: frozenset[str] = frozenset()
    named: frozenset[tuple[str, str]] = frozenset()
    base: tuple[str, ...] = ()
    way: str = ""
    #: Expressions that the query calls as the id.
    said: frozenset[str] = frozenset()

    @classmethod
    def of(cls, name: str, found: Relation) -> From:
        """Return the FROM of one relation."""
        named = frozenset((name, column) for column in found.ids)
        return cls({name: found}, found.people, found.ids, named, found.base, found.way)

    def is_column(self, names: list[str]) -> bool:
        """Return True if a name is that of a column of a table here, or of a part of its value."""
        low = [name.lower() for name in names]
        return self._qualified(low) is not None or any(low[0] in one.types for one in self.tables.values())

    def exact(self, node: Node) -> str:
        """Return an expression as text in which each column stands with the table that it is of."""

        def resolved(low: list[str]) -> list[str]:
            qualified = self._qualified(low)
            if qualified is not None:
                return [*qualified, *low[low.index(qualified[1], 1) + 1 :]]
            owners = [name for name, one in self.tables.items() if low[0] in one.types]
            return [*owners, *low] if len(owners) == 1 else low

        return plain(node, resolved)

    def is_id(self, node: Node) -> bool:
        """Return True if an expression is the id of the person whose row it is, perhaps as text."""
        if self.said and self.exact(node) in self.said:
            return True
        if node["class"] == "CAST" and node["cast_type"]["id"] == "VARCHAR":
            return self.is_id(node["child"])
        if node["class"] != "COLUMN_REF":
            return False
        low = [name.lower() for name in node["column_names"]]
        qualified = self._qualified(low)
        return (
            (qualified in self.named and low[-1] == qualified[1]) if qualified else (len(low) == 1 and low[0] in self.bare)
        )

    def of_star(self, node: Node) -> set[str]:
        """Return the columns of a star that hold the person's id."""
        gone = {name.lower() for name in node["exclude_list"]} | {entry["key"].lower() for entry in node["replace_list"]}
        rows = node["relation_name"].lower()
        return {column for name, column in self.named if name == rows} - gone if rows else set(self.bare) - gone

    def type_of(self, node: Node) -> str:
        """Return the type of a column, or of a column as text."""
        if node["class"] == "CAST":
            return "VARCHAR"
        low = [name.lower() for name in node["column_names"]]
        name, column = self._qualified(low) or (
            next(name for name, one in self.tables.items() if low[0] in one.types),
            low[0],
        )
        return self.tables[name].types[column] if column == low[-1] else "a part of a value"

    def tables_of(self, node: Node | None) -> set[str]:
        """Return the names of the tables here whose columns an expression uses."""
        found: set[str] = set()
        for part in parts_of(node):
            if part.get("class") == "COLUMN_REF":
                low = [name.lower() for name in part["column_names"]]
                qualified = self._qualified(low)
                found |= {qualified[0]} if qualified else {name for name, one in self.tables.items() if low[0] in one.types}
        return found

    def _qualified(self, low: list[str]) -> tuple[str, str] | None:
        for at in range(min(len(low) - 1, 3)):
            if low[at] in self.tables and low[at + 1] in self.tables[low[at]].types:
                return low[at], low[at + 1]
        return None


def select_all(reference: Node) -> Node:
    """Return SELECT * of a table."""
    star = {
        "class": "STAR",
        "type": "STAR",
        "alias": "",
        "query_location": 0,
        "relation_name": "",
        "exclude_list": [],
        "replace_list": [],
    }
    star |= {"columns": False, "expr": None, "qualified_exclude_list": [], "rename_list": []}
    nothing = dict.fromkeys(("where_clause", "having", "sample", "qualify"))
    lists: Node = {"modifiers": [], "cte_map": {"map": []}, "select_list": [star], "group_expressions": [], "group_sets": []}
    return {"type": "SELECT_NODE", **lists, "from_table": reference, "aggregate_handling": "STANDARD_HANDLING", **nothing}


def renamed(found: Relation, names: list[str]) -> Relation:
    """Return the rows with other names of their first columns."""
    if not names:
        return found
    new = dict(zip(found.types, [*(name.lower() for name in names), *list(found.types)[len(names) :]], strict=False))
    types = {new[name]: kind for name, kind in found.types.items()}
    if len(types) != len(found.types):
        refuse("two columns of one name in a table", "nobody knows which is meant", "Name each column once")
    return replace(found, types=types, ids=frozenset(new[name] for name in found.ids), way=f"{found.way}{names}")


def file_key(path: Path) -> str:
    """Return the place of a file on its disk, which is the same for all of its names."""
    found = path.stat()
    return f"file {found.st_dev} {found.st_ino}"


def name_of(node: Node) -> str:
    """Return the name by which a query may call a table of FROM, as the engine makes it where nobody gives one."""
    if node["alias"]:
        return str(node["alias"])
    if node["type"] == "TABLE_FUNCTION":
        return str(node["function"]["function_name"])
    name = str(node["table_name"])
    return name if node["schema_name"] or "*" in name else Path(name).name.partition(".")[0]


def text_of(node: Node, raw: DuckDBPyConnection) -> str:
    """Return a node of the tree as a query of its own."""
    whole = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
    rows = raw.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(whole)]).fetchall()
    return str(rows[0][0])
