"""Refuses a query in which one person's rows can move somebody else's: noise is calibrated to one person's row, and then one person moves every row.

The check walks over the query's syntax tree, relation by relation. It knows of each whether every row of it is one person's, and which columns hold
that person's id. Rows of people meet by that id alone, or meet one row of a public table. The engine's plan is held against a list once more.
What a view inside PostgreSQL computes nobody here can see (docs/sources.md).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from unpooled.errors import SourceError
from unpooled.study.sources.connection import engine
from unpooled.study.sources.grammar import (
    Expressions,
    From,
    Refused,
    Relation,
    constant,
    file_key,
    has_aggregate,
    name_of,
    only,
    parts_of,
    plain,
    refuse,
    renamed,
    select_all,
    text_of,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from unpooled.study.sources.grammar import Node, People, Types

    #: The tables of WITH by name: their rows, and the entry of the tree.
    Known = dict[str, tuple["Relation", Node]]

#: Options of all readers of files, and those of each, that decide how a row is written, and nothing about the others.
_ANY = [
    "auto_detect",
    "compression",
    "filename",
    "hive_partitioning",
    "hive_types",
    "hive_types_autocast",
    "union_by_name",
    "sample_size",
]
_CSV = [
    "all_varchar",
    "allow_quoted_nulls",
    "column_types",
    "columns",
    "comment",
    "dateformat",
    "date_format",
    "decimal_separator",
    "delim",
    "delimiter",
    "dtypes",
    "encoding",
    "escape",
    "force_not_null",
    "header",
    "names",
    "new_line",
    "normalize_names",
    "null",
    "nullstr",
    "quote",
    "sep",
    "thousands",
    "timestampformat",
    "timestamp_format",
    "types",
]
_JSON = [
    "columns",
    "convert_strings_to_integers",
    "dateformat",
    "date_format",
    "format",
    "maximum_depth",
    "maximum_object_size",
    "records",
    "timestampformat",
    "timestamp_format",
]
_READERS = {
    **dict.fromkeys(("read_parquet", "parquet_scan"), frozenset([*_ANY, "binary_as_string"])),
    **dict.fromkeys(("read_csv", "read_csv_auto"), frozenset([*_ANY, *_CSV])),
    **dict.fromkeys(("read_json", "read_json_auto", "read_ndjson", "read_ndjson_auto"), frozenset([*_ANY, *_JSON])),
}
#: Tables that are made of constants.
_MADE = frozenset({"range", "generate_series"})
_FILE = re.compile(r"\.(parquet|csv|tsv|json|jsonl|ndjson)(\.gz|\.zst)?$")
_REMOTE = re.compile(r"[a-z0-9]+://", re.IGNORECASE)
#: Tables of databases about themselves.
_INTERNAL = re.compile(r"(pg|sqlite|duckdb)_")
_KEYS = {
    "SELECT_NODE": [
        "type",
        "modifiers",
        "cte_map",
        "select_list",
        "from_table",
        "where_clause",
        "group_expressions",
        "group_sets",
        "aggregate_handling",
        "having",
        "sample",
        "qualify",
    ],
    "SET_OPERATION_NODE": ["type", "modifiers", "cte_map", "setop_type", "setop_all", "left", "right"],
}
_JOINS = {
    "CROSS": "a join without a condition (CROSS JOIN, LATERAL, a comma)",
    "POSITIONAL": "a positional join",
    "ASOF": "an ASOF join",
    "NATURAL": "a NATURAL join",
}
_OUTER = frozenset({"INNER", "LEFT", "RIGHT", "FULL"})
_NODES = {
    "RECURSIVE_CTE_NODE": "a recursive query",
    "SHOW_REF": "SUMMARIZE, DESCRIBE or SHOW",
    "PIVOT": "PIVOT or UNPIVOT",
    "LIMIT_MODIFIER": "LIMIT or OFFSET",
    "LIMIT_PERCENT_MODIFIER": "LIMIT or OFFSET",
    "DISTINCT_MODIFIER": "DISTINCT",
}
#: Operators of the engine's plan.
_PLAN = frozenset(
    [
        "PROJECTION",
        "FILTER",
        "ORDER_BY",
        "HASH_JOIN",
        "NESTED_LOOP_JOIN",
        "BLOCKWISE_NL_JOIN",
        "PIECEWISE_MERGE_JOIN",
        "IE_JOIN",
        "HASH_GROUP_BY",
        "PERFECT_HASH_GROUP_BY",
        "PARTITIONED_AGGREGATE",
        "UNION",
        "CTE",
        "CTE_SCAN",
        "COLUMN_DATA_SCAN",
        "DUMMY_SCAN",
        "EXPRESSION_SCAN",
        "EMPTY_RESULT",
        "RANGE",
        "GENERATE_SERIES",
        "SEQ_SCAN",
        "TABLE_SCAN",
        "INDEX_SCAN",
        "PARQUET_SCAN",
        "READ_PARQUET",
        "READ_CSV",
        "READ_CSV_AUTO",
        "READ_JSON",
        "READ_JSON_AUTO",
        "READ_NDJSON",
        "READ_NDJSON_AUTO",
        "SQLITE_SCAN",
        "POSTGRES_SCAN",
    ]
)
_WHOLE = frozenset(
    ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"]
)


def must_be_rowwise(label: str, node: Node, plan: list[dict[str, Any]], raw: DuckDBPyConnection, people: People) -> None:
    """Refuse a query whose rows depend on rows of several people, by the name of what makes them, and say what to write instead."""
    try:
        _Walk(people, raw).whole(node)
        for name in _operators(plan):
            if name not in _PLAN:
                unknown("the operator of the engine's plan", name)
    except Refused as refused:
        msg = f"source {label!r}: {refused}"
        raise SourceError(msg) from None


def tables_read(node: Node, raw: DuckDBPyConnection, people: People) -> list[tuple[Node, bool]]:
    """Return the files and tables of databases that a query reads, as parts of its tree, and whether each is declared public."""
    walk, parts = _Walk(people, raw), list(parts_of(node))
    within = {part["key"].lower() for part in parts if isinstance(part.get("value"), dict) and "query" in part["value"]}
    return [
        (part, walk.is_public(part))
        for part in parts
        if (part.get("type") == "BASE_TABLE" and (part["schema_name"] or part["table_name"].lower() not in within))
        or (part.get("type") == "TABLE_FUNCTION" and part["function"]["function_name"].lower() not in _MADE)
    ]


def _expression(text: str, raw: DuckDBPyConnection) -> Node:
    """Return the syntax tree of one expression that a party file declares."""
    (said,) = raw.execute("SELECT json_serialize_sql(?)", [f"SELECT {text}"]).fetchone() or ("{}",)
    told = json.loads(said)
    items = (
        []
        if told.get("error", True) or len(told["statements"]) != 1
        else told["statements"][0]["node"].get("select_list", [])
    )
    if len(items) != 1:
        refuse(
            f"no expression {text!r}, which `called` declares",
            "a declaration that means nothing hides a mistake",
            "Write it as the query does",
        )
    found: Node = items[0]
    return found


class _Walk:
    """A walk over one query. It learns on the way which column is the id of a table that does not call it so, and holds the whole query to that."""

    def __init__(self, people: People, raw: DuckDBPyConnection) -> None:
        self._rules, self._raw = people, raw
        self._id = people.id.lower() if people.id else None
        self._public = {self._key(name): name for name in people.public}
        self._called = {plain(_expression(text, raw)) for text in people.called}
        #: What the query says of each table: its id, and how it is read.
        self._said: dict[str, str] = {}
        self._how: dict[str, str] = {}
        self._read: set[str] = set()

    def whole(self, node: Node) -> None:
        """Refuse the query, or return."""
        found = self._node(node, {}, top=True)
        if unused := [name for key, name in self._public.items() if key not in self._read]:
            refuse(
                f"no table {unused[0]!r}, which `public` declares",
                "a declaration that means nothing hides a mistake",
                "Write it as the query does (the path of a file, DATABASE.table), or leave it out",
            )
        if not found.people:
            if self._public:
                refuse("only public tables", "nobody knows whose its rows are", "Read a table of people as well")
        elif self._id is None:
            if not found.base:
                refuse("rows that are not those of one table, one for one", remedy=self._remedy())
        elif self._id not in found.ids:
            refuse(
                f"no column {self._rules.id!r} that is the id of each row's person",
                "without it nobody can tell whose a row is",
                f"Add the id to its columns, as {self._rules.id}",
            )

    def is_public(self, node: Node) -> bool:
        """Return True if a table or a reader of files reads what the party declares as public, and nothing else."""
        if node["type"] == "TABLE_FUNCTION":
            texts = [
                part["value"]["value"]
                for part in parts_of(node["function"]["children"][:1])
                if part.get("class") == "CONSTANT"
            ]
        else:
            names = [node[part] for part in ("catalog_name", "schema_name", "table_name") if node[part]]
            texts = [".".join(names)]
        keys = [
            key
            for text in texts
            for key in ([self._key(text)] if node["type"] == "BASE_TABLE" and node["schema_name"] else self._meant(text))
        ]
        return bool(keys) and set(keys) <= set(self._public)

    def _remedy(self) -> str:
        who = repr(self._rules.id) if self._id else "which has to be named: `id` of the party file, id= of a Source"
        return (
            f"Rows of people meet by the person's id ({who}) on both sides. A table that describes no people, such as a code list, is declared: "
            "`public` under [source], public= of a Source"
        )

    # --- a SELECT, and several ---------------------------------------------------------------------------------------------

    def _node(self, node: Node, known: Known, *, top: bool = False) -> Relation:
        """Return the rows of a SELECT, or of several that UNION ALL puts together."""
        kind = str(node.get("type"))
        if kind not in _KEYS:
            _refuse_node(kind)
        only(node, *_KEYS[kind])
        known = self._with(node, known)
        found = self._select(node, known) if kind == "SELECT_NODE" else self._union(node, known)
        for modifier in sorted(node["modifiers"], key=lambda one: str(one["type"])):  # LIMIT before ORDER BY
            what = modifier["type"]
            if what == "ORDER_MODIFIER" and not top:
                refuse(
                    "ORDER BY inside", "only the order of the whole result counts", "Write ORDER BY at the end of the query"
                )
            if what != "ORDER_MODIFIER" and (what != "DISTINCT_MODIFIER" or found.people or modifier["distinct_on_targets"]):
                _refuse_node(what)
        return found

    def _with(self, node: Node, known: Known) -> Known:
        """Return the tables of WITH that a node sees, each name once in the whole query."""
        found = dict(known)
        for entry in node["cte_map"]["map"]:
            said, name = entry["value"], entry["key"].lower()
            only(entry, "key", "value")
            only(said, "aliases", "query", "materialized")
            only(said["query"], "node")
            if name in found:
                refuse(f"two tables {name!r} in WITH", "the place decides which of them is meant", "Give each its own name")
            found[name] = renamed(self._node(said["query"]["node"], found), said["aliases"]), entry
        return found

    def _union(self, node: Node, known: Known) -> Relation:
        if node["setop_type"] != "UNION" or not node["setop_all"]:
            how = node["setop_type"].replace("_", " ") + " ALL" * bool(node["setop_all"])
            refuse(how, remedy="Put tables together by UNION ALL, with the same columns in the same order")
        one, two = (self._node(node[side], known) for side in ("left", "right"))
        if one.people != two.people:
            refuse("UNION ALL of people and of a public table", "nobody knows whose its rows are", self._remedy())
        if one.people and self._id is None:
            refuse("UNION ALL of people whose id nothing names", "a person may be in both tables", self._remedy())
        types = self._described(node, known)
        ids = set()
        for name, (first, second) in zip(types, zip(one.types, two.types, strict=True), strict=True):
            if first in one.ids and second in two.ids:
                self._one_type(one.types[first], two.types[second])
                ids.add(name)
        return Relation(types, one.people, frozenset(ids))

    def _select(self, node: Node, known: Known) -> Relation:
        if node["sample"] or node["qualify"]:
            refuse("a sample" if node["sample"] else "a window function (OVER, QUALIFY)")
        found = self._from(node["from_table"], known)
        items, groups = node["select_list"], node["group_expressions"]
        check = Expressions(found.is_column, {one["alias"].lower() for one in items if one["alias"]})
        if node["aggregate_handling"] not in {"STANDARD_HANDLING", "FORCE_AGGREGATES"}:
            unknown("the grouping", node["aggregate_handling"])
        grouped = bool(groups) or node["aggregate_handling"] == "FORCE_AGGREGATES"
        if found.people and node["having"] and not grouped:
            refuse("an aggregate over the whole table (no GROUP BY)")
        for one in (node["where_clause"], *groups):
            check.check(one)
        check.check(node["having"], aggregates=True)
        columns = [column for item in items for column in self._columns(item, check, aggregates=grouped or not found.people)]
        found = self._declared(columns, found)
        if grouped and found.people:
            self._grouped(node, found)
        single = found.base and not grouped
        return Relation(
            self._described(node, known),
            found.people,
            frozenset(self._ids(items, columns, found)),
            found.base if single else (),
            f"{found.way}{plain(items)}{plain(node['where_clause'])}" if single else "",
        )

    @staticmethod
    def _columns(item: Node, check: Expressions, *, aggregates: bool) -> Iterator[tuple[str, Node]]:
        """Check one entry of a SELECT, and yield the columns that it writes, each with its name."""
        if item["class"] != "STAR" or item["columns"] or item["expr"]:
            check.check(item, aggregates=aggregates)
            yield (item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else "")).lower(), item
            return
        only(item, *["class", "type", "relation_name", "exclude_list", "replace_list"])
        for entry in item["replace_list"]:
            check.check(entry["value"])
            yield entry["key"].lower(), entry["value"]

    def _declared(self, columns: list[tuple[str, Node]], found: From) -> From:
        """Learn the id of a table from the column that is called as the id; refuse a column that is called so and is something else."""
        if self._id is None or not found.people:
            return found
        for name, item in columns:
            if name not in {self._id, *found.bare} or found.is_id(item):
                continue
            if (
                name != self._id
                or found.bare
                or found.named
                or not found.base
                or has_aggregate(item)
                or not found.tables_of(item)
            ):
                refuse(f"a column {name!r} that is not the id of its table", remedy="Give it another name")
            found = self._learned(found, item)
        return found

    def _learned(self, found: From, item: Node) -> From:
        """Return a FROM whose table has this id from now on, here and wherever the query reads it."""
        if plain(item) not in self._called:
            refuse(
                f"another column as {self._rules.id!r}",
                "a person would be who this column says",
                'If it is the person\'s id in this table, declare the expression as the query writes it: called = ["..."] under [source]',
            )
        said = f"{found.way}{plain(item)}"
        for key in found.base:
            if self._said.setdefault(key, said) != said:
                refuse(
                    "two ids of one table",
                    "a person would be two",
                    "Read the table once, in WITH, with its id under the id's name",
                )
        return replace(found, said=found.said | {found.exact(item)})

    def _grouped(self, node: Node, found: From) -> None:
        """Refuse groups of several people."""
        items, keys = node["select_list"], node["group_expressions"]
        if node["group_sets"] not in ([], [list(range(len(keys)))]):
            refuse("GROUPING SETS, ROLLUP or CUBE", remedy="Write GROUP BY with the id")
        if not keys:  # GROUP BY ALL: by everything that is no aggregate
            keys = [one for one in items if not has_aggregate(one)]
        who = (
            f"{self._rules.id!r}" if self._id else "its id column, which the party file has to name (`id`; id= of a Source)"
        )
        for key in keys:
            one = key
            if (
                key["class"] == "CONSTANT"
                and isinstance(key["value"].get("value"), int)
                and 0 < key["value"]["value"] <= len(items)
            ):
                one = items[key["value"]["value"] - 1]
            elif key["class"] == "COLUMN_REF" and not found.is_column(key["column_names"]):
                one = next(item for item in items if item["alias"].lower() == key["column_names"][-1].lower())
            if self._id is not None and (found.is_id(one) or (one["class"] == "STAR" and found.of_star(one))):
                return
        refuse("GROUP BY that puts rows of several people together", remedy=f"Group by {who}")

    @staticmethod
    def _ids(items: list[Node], columns: list[tuple[str, Node]], found: From) -> Iterator[str]:
        """Yield the names of the columns that hold the person's id."""
        for item in items:
            if item["class"] == "STAR" and not item["columns"]:
                yield from found.of_star(item)
        yield from (name for name, item in columns if name and found.is_id(item))

    # --- FROM --------------------------------------------------------------------------------------------------------------

    def _from(self, node: Node, known: Known) -> From:
        match node["type"]:
            case "JOIN":
                return self._join(node, known)
            case "EMPTY":
                return From({}, people=False)
            case "EXPRESSION_LIST":
                only(node, "type", "values")
                if not all(constant(value) for row in node["values"] for value in row):
                    refuse("VALUES with more than constants")
                name, found = node["alias"], Relation(self._described(select_all(node), known), people=False)
            case "SUBQUERY":
                only(node, "type", "subquery", "column_name_alias", "sample")
                only(node["subquery"], "node")
                name, found = node["alias"] or "unnamed_subquery", self._node(node["subquery"]["node"], known)
            case "BASE_TABLE":
                only(node, "type", "schema_name", "table_name", "column_name_alias", "catalog_name", "sample")
                name, found = self._table(node, known)
            case "TABLE_FUNCTION":
                only(node, "type", "function", "column_name_alias", "with_ordinality", "sample")
                name, found = name_of(node), self._function(node, known)
            case kind:
                _refuse_node(kind)
        if node.get("sample"):
            refuse("a sample")
        return From.of(name.lower(), renamed(found, node.get("column_name_alias", [])))

    def _table(self, node: Node, known: Known) -> tuple[str, Relation]:
        """Return a table of WITH, a file, or a table of a database."""
        catalog, schema, name = (node[part].lower() for part in ("catalog_name", "schema_name", "table_name"))
        if not schema and name in known:
            return node["alias"] or name, known[name][0]
        if not schema:
            if not _FILE.search(name):
                refuse(
                    f"a table {name!r} of the engine itself",
                    "it is no data of a party",
                    "Name files, and tables as DATABASE.table",
                )
            return name_of(node), self._base(node, self._files([node["table_name"]], "[]"))
        database, inside = (catalog, schema) if catalog else (schema, "")
        if database not in self._rules.attached or inside.startswith(("pg_", "information_schema")) or _INTERNAL.match(name):
            refuse(
                f"a table {'.'.join(part for part in (catalog, schema, name) if part)!r} of no attached database",
                "tables of a system tell about all rows",
                "Name tables as DATABASE.table, with the database under [source.attach]",
            )
        self._plain_table(database, name)
        return name_of(node), self._base(
            node, (self._key(f"{database}.{inside}.{name}" if inside else f"{database}.{name}"),)
        )

    def _plain_table(self, database: str, name: str) -> None:
        """Refuse a view, which hides what it computes, and a table that takes different texts for one."""
        if self._rules.attached[database] not in {"duckdb", "sqlite"}:
            return
        if self._asked(
            "SELECT 1 FROM duckdb_views() WHERE lower(database_name) = ? AND lower(view_name) = ?", database, name
        ):
            refuse(
                f"a view ({database}.{name})",
                "nobody sees here what it computes",
                "Write its SELECT in the query, or make a table of it",
            )
        written = self._asked(
            "SELECT sql FROM duckdb_tables() WHERE lower(database_name) = ? AND lower(table_name) = ?", database, name
        )
        if any("COLLATE" in str(text).upper() for (text,) in written):
            refuse(f"a table with COLLATE ({database}.{name})", "ids that are two would be one", "Make a table without it")

    def _function(self, node: Node, known: Known) -> Relation:
        """Return what a reader of files reads, or a table that is made of constants."""
        call = node["function"]
        name = call["function_name"].lower()
        only(call, *["class", "type", "function_name", "schema", "catalog", "children", "order_bys"])
        if node["with_ordinality"] != "WITHOUT_ORDINALITY":
            refuse("WITH ORDINALITY, which numbers rows")
        if call["schema"] not in {"", "main"} or call["catalog"] or call["order_bys"]["orders"]:
            unknown("the table function", name)
        if name in _MADE and all(constant(one) for one in call["children"]):
            return Relation(self._described(select_all(node), known), people=False)
        if name not in _READERS:
            unknown("the table function", name)
        paths = [one for one in call["children"] if one["class"] != "COMPARISON"]
        options = {
            one["left"]["column_names"][-1].lower(): one["right"] for one in call["children"] if one["class"] == "COMPARISON"
        }
        for option, value in options.items():
            if option not in _READERS[name]:
                unknown("the option", f"{option} of {name}")
            if not constant(value):
                refuse(f"an option {option!r} of {name} that is no constant")
        texts = [part["value"]["value"] for one in paths for part in parts_of(one) if part.get("class") == "CONSTANT"]
        if len(paths) != 1 or not constant(paths[0]) or not all(isinstance(text, str) for text in texts):
            refuse(
                f"a file of {name} that is no text",
                "which file is read is a part of the query",
                "Write its path, or a list of paths",
            )
        found = self._base(node, self._files(texts, plain(options) if options else "[]"))
        if {"columns", "names"} & set(options) and "csv" in name and self._id is not None:
            self._header(node, call, list(found.types))
        return found

    def _header(self, node: Node, call: Node, names: list[str]) -> None:
        """Refuse names for a text file's columns that make another column the id than its own first line does."""
        renaming = {"columns", "names", "types", "dtypes", "column_types", "auto_detect"}
        rest = [
            one
            for one in call["children"]
            if one["class"] != "COMPARISON" or one["left"]["column_names"][-1].lower() not in renaming
        ]
        own = list(
            self._described(select_all({**node, "function": {**call, "children": rest}, "column_name_alias": []}), {})
        )
        if self._id in own and names[own.index(self._id)] != self._id:
            refuse(
                f"another column as {self._rules.id!r} than the file's own",
                remedy="Leave the names to the file's first line",
            )

    def _files(self, texts: list[str], how: str) -> tuple[str, ...]:
        """Return the files that some paths mean, each once; all of them are read in one way."""
        keys: list[str] = []
        for text in texts:
            keys += self._meant(text)
        if not keys:
            refuse("a file that is not there", "no row is anybody's", "Look at its path, and at `folder`")
        if len(set(keys)) != len(keys):
            refuse("the same file twice", "each person of it would have two rows", "Name each file once")
        for key in keys:
            if self._how.setdefault(key, how) != how:
                refuse("one file that is read in two ways", "its columns would have two names", "Read it once, in WITH")
        return tuple(keys)

    def _meant(self, text: str) -> list[str]:
        """Return the keys of the files that a path or a pattern means: whatever the way to a file, its key is the same."""
        if _REMOTE.match(text) and "*" not in text:
            return [text]
        found = [path for (path,) in self._asked("SELECT file FROM glob(?)", text)]
        return [path if _REMOTE.match(path) else file_key(Path(path)) for path in found]

    def _base(self, node: Node, keys: tuple[str, ...]) -> Relation:
        """Return a table that holds people, or that the party declares as public."""
        public = {key in self._public for key in keys}
        if len(public) > 1:
            refuse("files of people and public files in one table", remedy=self._remedy())
        self._read |= set(keys)
        types = self._described(select_all({**node, "column_name_alias": []}), {})
        people = True not in public
        ids = frozenset({self._id} & set(types)) if people and self._id else frozenset[str]()
        if ids:  # whatever is left of its columns later, its people are those
            self._said |= dict.fromkeys(keys, plain({"class": "COLUMN_REF", "column_names": [self._id]}))
        return Relation(types, people, ids, keys if people else ())

    def _key(self, name: str) -> str:
        """Return the key of a declared table: of a file its own, of a table of a database its name."""
        parts = name.lower().split(".")
        if parts[0] in self._rules.attached and "/" not in name:
            return ".".join(["table", *(part for part in parts if part not in {"main", "public"} or part == parts[-1])])
        keys = self._meant(name)
        if len(keys) != 1:
            refuse(
                f"a public table {name!r} that is not one file",
                "nothing is public that was not named",
                "Declare each file by its path",
            )
        return keys[0]

    # --- joins -------------------------------------------------------------------------------------------------------------

    def _join(self, node: Node, known: Known) -> From:
        only(node, "type", "left", "right", "condition", "join_type", "ref_type", "using_columns", "sample")
        if node["ref_type"] != "REGULAR" or node["sample"]:
            refuse(_JOINS.get(node["ref_type"], f"a {node['ref_type'].lower()} join"), remedy=self._remedy())
        if node["join_type"] not in _OUTER:
            refuse(f"a {node['join_type'].lower()} join", remedy=self._remedy())
        sides = self._from(node["left"], known), self._from(node["right"], known)
        left, right = sides
        if twice := set(left.tables) & set(right.tables):
            refuse(f"two tables called {min(twice)!r}", "nobody knows which is meant", "Give each a name (AS)")
        both = From(left.tables | right.tables, people=left.people or right.people)
        Expressions(both.is_column).check(node["condition"])
        pairs = list(self._pairs(node, both, left, right))
        if left.people and right.people:
            return self._of_people(node, pairs, left, right)
        if not both.people:
            return both
        people, one = (left, right) if left.people else (right, left)
        if node["join_type"] not in {"INNER", "LEFT" if left.people else "RIGHT"}:
            refuse(
                "a join that keeps rows of a public table without people",
                remedy="Keep the people's side: LEFT JOIN the code list",
            )
        mine, theirs = ("left", "right") if left.people else ("right", "left")
        self._at_most_one(
            [(a, b) if left.people else (b, a) for a, b in pairs], (node[mine], people), (node[theirs], one), known
        )
        way = f"{people.way}{plain(node[theirs])}{plain(node['condition'])}{plain(node['using_columns'])}"
        return replace(people, tables=both.tables, way=way)

    def _of_people(self, node: Node, pairs: list[tuple[Node, Node]], left: From, right: From) -> From:
        """Return the join of two tables of people, which meet by the id on both sides."""
        if self._id is None:
            refuse("a join of two tables of people whose id nothing names", remedy=self._remedy())
        for one, other in pairs:
            if left.is_id(one) and right.is_id(other):
                self._one_type(left.type_of(one), right.type_of(other))
                break
        else:
            refuse("a join of people on something else than their id", remedy=self._remedy())
        using = {name.lower() for name in node["using_columns"]} & left.bare & right.bare
        bare, named = {
            "INNER": (left.bare | right.bare, left.named | right.named),
            "LEFT": (left.bare, left.named),
            "RIGHT": (right.bare, right.named),
            "FULL": (using, frozenset[tuple[str, str]]()),
        }[node["join_type"]]
        return From(left.tables | right.tables, people=True, bare=frozenset(bare), named=named)

    def _at_most_one(
        self, pairs: list[tuple[Node, Node]], people: tuple[Node, From], public: tuple[Node, From], known: Known
    ) -> None:
        """Refuse a public table in which a row of people may find two rows: whatever anybody's values are, its key is there once."""
        keys = []
        for mine, theirs in pairs:
            if theirs["class"] == "COLUMN_REF":
                asked = {**select_all(people[0]), "select_list": [{**mine, "alias": "key"}]}
                self._one_type(next(iter(self._described(asked, known).values())), public[1].type_of(theirs))
                keys.append(theirs)
        if not keys:
            refuse(
                "a join to a public table without an equality",
                "a person's row could find many rows",
                "Join on its key: ON code = codes.code",
            )
        named = [{**key, "alias": f"key_{place}"} for place, key in enumerate(keys)]
        text = self._text({**select_all(public[0]), "select_list": named}, known)
        key = [one["alias"] for one in named]
        there = " AND ".join(f"{one} IS NOT NULL" for one in key)  # what is missing meets nothing
        if self._asked(f"SELECT 1 FROM ({text}) WHERE {there} GROUP BY {', '.join(key)} HAVING count(*) > 1 LIMIT 1"):  # noqa: S608 - a part of the party's own query
            refuse(
                "a join to a public table that holds a key twice",
                "a person's row would become two",
                "Join on all columns of its key, or leave doubles out (SELECT DISTINCT of the public table)",
            )

    @staticmethod
    def _pairs(node: Node, both: From, left: From, right: From) -> Iterator[tuple[Node, Node]]:
        """Yield what a join holds equal: an expression of the left side, and one of the right side."""
        for name in node["using_columns"]:
            column = {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "query_location": 0, "column_names": [name]}
            yield column, column
        condition = node["condition"]
        every = (
            condition["children"]
            if condition and condition["type"] == "CONJUNCTION_AND"
            else [condition]
            if condition
            else []
        )
        for one in every:
            if one["type"] != "COMPARE_EQUAL":
                continue
            first, second = one["left"], one["right"]
            for a, b in ((first, second), (second, first)):
                if both.tables_of(a) <= set(left.tables) and both.tables_of(b) <= set(right.tables):
                    yield a, b

    @staticmethod
    def _one_type(one: str, other: str) -> None:
        """Refuse to hold values of two types equal: '01' and '1' are one number, and two texts."""
        if one != other and not {one, other} <= _WHOLE:
            refuse(
                f"an equality of keys of two types ({one.split('(', maxsplit=1)[0]}, {other.split('(', maxsplit=1)[0]})",
                "different keys would count as one",
                "Cast both to VARCHAR, or make them one type in the tables",
            )

    # --- the engine --------------------------------------------------------------------------------------------------------

    def _described(self, node: Node, known: Known) -> Types:
        """Return the columns of a SELECT in small letters, and their types."""
        try:
            rows = self._asked(f"DESCRIBE {self._text(node, known)}")
        except engine().BinderException:
            refuse("LATERAL: a table inside that uses columns of a table outside", remedy=self._remedy())
        types = {name.lower(): kind for name, kind, *_ in rows}
        if len(types) != len(rows):
            refuse("two columns of one name in a table", "nobody knows which is meant", "Name each column once (AS, USING)")
        return types

    def _text(self, node: Node, known: Known) -> str:
        """Return a part of the query as a query of its own."""
        own = {entry["key"].lower() for entry in node["cte_map"]["map"]}
        entries = [entry for name, (_, entry) in known.items() if name not in own] + node["cte_map"]["map"]
        return text_of({**node, "cte_map": {"map": entries}}, self._raw)

    def _asked(self, text: str, *values: str) -> list[tuple[Any, ...]]:
        return self._raw.execute(text, list(values)).fetchall()


def _refuse_node(kind: str) -> NoReturn:
    """Refuse a part of a query that is no expression."""
    if kind in _NODES:
        refuse(_NODES[kind])
    unknown("the part", kind)


def _operators(plan: list[dict[str, Any]]) -> Iterator[str]:
    for one in plan:
        yield one["name"].strip()
        yield from _operators(one["children"])
