"""Refuses a query in which one person's rows can move somebody else's: noise is calibrated to one row, and then one person moves every row.

The query's syntax tree is searched, and the engine's plan once more, which shows what views of the engine's own databases hide. What views
inside PostgreSQL or SQLite compute nobody here can see (docs/sources.md).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from unpooled.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

_EVERY = "one person's rows would move everybody else's, and no noise is calibrated to that"
_WINDOW = "a window function (OVER, QUALIFY)"
_WHOLE = "an aggregate over the whole table (no GROUP BY)"
_SUBQUERIES = {"SCALAR": "a scalar subquery", "EXISTS": "EXISTS", "NOT_EXISTS": "EXISTS"}
_JOINS = {"POSITIONAL": "a positional join", "ASOF": "an ASOF join"}
_NODES = {"PIVOT": "PIVOT", "SHOW_REF": "SUMMARIZE", "RECURSIVE_CTE_NODE": "a recursive query"}
#: Operators of the engine's plan, for what the tree does not show.
_OPERATORS = (
    (re.compile(r"WINDOW"), _WINDOW),
    (re.compile(r"UNGROUPED_AGGREGATE|SIMPLE_AGGREGATE"), _WHOLE),
    (re.compile(r"DELIM"), "a correlated subquery"),
    (re.compile(r"POSITIONAL"), _JOINS["POSITIONAL"]),
    (re.compile(r"ASOF"), _JOINS["ASOF"]),
    (re.compile(r"SAMPLE"), "a sample"),
)


def must_be_rowwise(
    label: str, node: dict[str, Any], plan: list[dict[str, Any]], raw: DuckDBPyConnection, people: tuple[str, ...] | None
) -> None:
    """Refuse a query whose rows depend on each other, by the name of what makes them.

    ``people`` are the columns of a party that say whose a row is (its row ids, its households): aggregates are grouped by one of them. None:
    the query is a program's own, which nobody shares with another organisation.
    """
    aggregates = _aggregates(raw)
    for part in _parts(node):
        found = _named(part) or _ungrouped(part, aggregates)
        if found:
            _refuse(label, found)
        if (
            people is not None
            and (keys := _group(part, aggregates)) is not None
            and not keys & {one.lower() for one in people}
        ):
            who = " or ".join(repr(one) for one in people) or "its id column, which the party file has to name (`id`)"
            msg = f"source {label!r}: GROUP BY puts rows of several people together: group by {who}"
            raise SourceError(msg)
    for name in _operators(plan):
        for pattern, what in _OPERATORS:
            if pattern.search(name):
                _refuse(label, what)


def _refuse(label: str, what: str) -> None:
    msg = f"source {label!r}: the query has {what}: {_EVERY}. Compute what needs all rows elsewhere, and declare it as a public constant"
    raise SourceError(msg)


def _named(part: dict[str, Any]) -> str:
    """Return what this part of the tree is, if it alone makes rows depend on each other."""
    kind = str(part.get("type"))
    if part.get("class") == "WINDOW":
        return _WINDOW
    if part.get("class") == "SUBQUERY":
        return _SUBQUERIES.get(str(part.get("subquery_type")), "")
    if part.get("sample"):
        return "a sample"
    if kind in {"LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER"}:
        return "LIMIT"
    return _JOINS.get(str(part.get("ref_type")), "") or _NODES.get(kind, "")


def _ungrouped(part: dict[str, Any], aggregates: frozenset[str]) -> str:
    """Return what is wrong with a SELECT that aggregates all of its rows into one."""
    if part.get("type") != "SELECT_NODE" or _keys(part) is not None:
        return ""
    own = (*part["select_list"], part.get("having") or {})
    return _WHOLE if any(_is_aggregate(one, aggregates) for one in _inside(own)) or part.get("having") else ""


def _group(part: dict[str, Any], aggregates: frozenset[str]) -> set[str] | None:
    """Return the names of the columns that a SELECT groups by; None where it does not group."""
    keys = _keys(part) if part.get("type") == "SELECT_NODE" else None
    if keys is None:
        return None
    chosen = part["select_list"]
    if keys == []:  # GROUP BY ALL: by everything that is no aggregate
        keys = [one for one in chosen if not any(_is_aggregate(inner, aggregates) for inner in _inside([one]))]
    # A number stands for a column of the result.
    places = [one["value"].get("value") for one in keys if one.get("class") == "CONSTANT"]
    keys = [*keys, *(chosen[place - 1] for place in places if isinstance(place, int) and 0 < place <= len(chosen))]
    return {one["column_names"][-1].lower() for one in keys if one.get("class") == "COLUMN_REF"}


def _keys(part: dict[str, Any]) -> list[dict[str, Any]] | None:
    if part.get("aggregate_handling") == "FORCE_AGGREGATES":
        return []
    return part.get("group_expressions") or None


def _is_aggregate(part: dict[str, Any], aggregates: frozenset[str]) -> bool:
    return part.get("class") == "FUNCTION" and str(part.get("function_name")).lower() in aggregates


def _aggregates(raw: DuckDBPyConnection) -> frozenset[str]:
    """Return the names of the engine's aggregates, and of its macros that are made of them."""
    told = raw.execute("SELECT function_name, function_type, macro_definition FROM duckdb_functions()").fetchall()
    plain = {name.lower() for name, kind, _ in told if kind == "aggregate"}
    made = re.compile(rf"\b({'|'.join(re.escape(name) for name in plain if name.isidentifier())})\(", re.IGNORECASE)
    macros = {name.lower() for name, kind, text in told if "macro" in kind and text and made.search(text)}
    return frozenset(plain | macros | {"count_star"})


def _parts(tree: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Yield every object of the tree."""
    if isinstance(tree, dict):
        yield tree
    for inner in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ():
        yield from _parts(inner)


def _inside(expressions: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Yield every part of some expressions, without the subqueries in them."""
    if isinstance(expressions, dict):
        if expressions.get("class") == "SUBQUERY":
            return
        yield expressions
    inner = (
        expressions.values()
        if isinstance(expressions, dict)
        else expressions
        if isinstance(expressions, list | tuple)
        else ()
    )
    for part in inner:
        yield from _inside(part)


def _operators(plan: list[dict[str, Any]]) -> Iterator[str]:
    for one in plan:
        yield one["name"].strip()
        yield from _operators(one["children"])
