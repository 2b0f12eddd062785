"""Allow-lists of a query: its expressions, each of one row alone or of rows of one person, and its relations with the id of the person that a row is of."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from duckdb import DuckDBPyConnection

    Node = dict[str, Any]
    Types = dict[str, str]


# --- Grammar ---------------------------------------------------------------------------------------------------------------
# Allow-lists of the expressions of a query: each computes a value from one row alone, or from the rows that are grouped by a person's id.
#
# A class, an operator, a function or a key that no list names is refused by its name. So a version of the engine with new syntax refuses more, and
# never admits what nobody here has looked at.


def _words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


#: Functions of values of one row: the same values give the same result, whenever and wherever a query runs.
_SCALARS = _words(
    # arithmetic
    "+ - * / // % ** ^ & | ~ << >> xor @ abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide even "
    "exp factorial fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least least_common_multiple lgamma ln log "
    "log10 log2 mod multiply nextafter nullif pi pow power radians round round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc ! "
    # text
    "|| ~~ !~~ ~~* !~~* ~~~ ^@ ascii bar base64 bin bit_length char_length character_length chr concat concat_ws contains damerau_levenshtein editdist3 "
    "ends_with format from_base64 from_binary from_hex hamming hash hex ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity lcase left "
    "left_grapheme len length length_grapheme levenshtein like_escape lower lpad ltrim md5 md5_number md5_number_lower md5_number_upper mismatches "
    "nfc_normalize not_ilike_escape not_like_escape octet_length ord position prefix printf regexp_escape regexp_extract regexp_extract_all "
    "regexp_full_match regexp_matches regexp_replace regexp_split_to_array repeat replace reverse right right_grapheme rpad rtrim sha1 sha256 split "
    "split_part starts_with str_split str_split_regex string_split string_split_regex string_to_array strip_accents strlen strpos substr substring "
    "substring_grapheme suffix to_base to_base64 to_binary to_hex translate trim ucase unbin unhex unicode upper url_decode url_encode parse_dirname "
    "parse_dirpath parse_filename parse_path encode decode bitstring get_bit set_bit bit_position "
    # dates and times
    "age century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear "
    "days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear julian last_day make_date make_time make_timestamp "
    "make_timestamp_ms make_timestamp_ns make_timestamptz microsecond millennium millisecond minute month monthname nanosecond normalized_interval "
    "quarter second strftime strptime time_bucket timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds "
    "to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years try_strptime week weekday weekofyear year "
    "yearweek "
    # values in a value: lists, structures, maps, JSON
    "&& <-> <=> <@ @> -> ->> aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains array_distance "
    "array_distinct array_extract array_filter array_has array_has_all array_has_any array_indexof array_intersect array_length array_position "
    "array_prepend array_push_back array_push_front array_reduce array_reverse array_slice array_sort array_to_string array_transform array_unique "
    "array_value cardinality element_at filter flatten from_json json json_array json_array_length json_contains json_exists json_extract "
    "json_extract_path json_extract_path_text json_extract_string json_keys json_object json_quote json_transform json_type json_valid json_value "
    "list_aggr list_aggregate list_append list_apply list_avg list_bool_and list_bool_or list_cat list_concat list_contains list_count list_distance "
    "list_distinct list_element list_extract list_filter list_first list_has list_has_all list_has_any list_indexof list_intersect list_last list_max "
    "list_median list_min list_pack list_position list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort list_select list_slice "
    "list_sort list_stddev_pop list_stddev_samp list_sum list_transform list_unique list_value list_var_pop list_var_samp list_where list_zip map "
    "map_contains map_entries map_extract map_extract_value map_from_entries map_keys map_values reduce row struct_concat struct_contains struct_extract "
    "struct_extract_at struct_insert struct_pack struct_values to_json union_extract union_tag union_value uuid_extract_timestamp"
)
#: Functions that are no function of their values alone where they have fewer of them than this.
_LEAST = {"age": 2}
#: Functions of lists that take a lambda.
_LAMBDAS = frozenset(
    [
        "aggregate",
        "apply",
        "array_apply",
        "array_filter",
        "array_reduce",
        "array_transform",
        "filter",
        "list_apply",
        "list_filter",
        "list_reduce",
        "list_transform",
        "reduce",
    ]
)
#: Aggregates of one person's rows that do not depend on the order of those rows.
_AGGREGATES = frozenset(
    [
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bool_and",
        "bool_or",
        "corr",
        "count",
        "count_if",
        "count_star",
        "countif",
        "covar_pop",
        "covar_samp",
        "entropy",
        "favg",
        "fsum",
        "kahan_sum",
        "kurtosis",
        "kurtosis_pop",
        "mad",
        "max",
        "mean",
        "median",
        "min",
        "product",
        "quantile",
        "quantile_cont",
        "quantile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "sem",
        "skewness",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "sum",
        "sum_no_overflow",
        "sumkahan",
        "var_pop",
        "var_samp",
        "variance",
        "approx_count_distinct",
        "histogram",
    ]
)
#: Aggregates that do, and need ORDER BY inside.
_ORDERED = frozenset(
    [
        "any_value",
        "arbitrary",
        "array_agg",
        "first",
        "first_value",
        "group_concat",
        "last",
        "last_value",
        "list",
        "listagg",
        "mode",
        "string_agg",
    ]
)
#: Aggregates of the row where something is largest or smallest, whose ties are to be broken.
_EXTREMES = frozenset(["arg_max", "arg_max_null", "arg_min", "arg_min_null", "argmax", "argmin", "max_by", "min_by"])
_COMPARISONS = frozenset(
    f"COMPARE_{how}"
    for how in [
        "EQUAL",
        "NOTEQUAL",
        "LESSTHAN",
        "GREATERTHAN",
        "LESSTHANOREQUALTO",
        "GREATERTHANOREQUALTO",
        "DISTINCT_FROM",
        "NOT_DISTINCT_FROM",
    ]
)
_OPERATORS = frozenset(
    [
        "OPERATOR_NOT",
        "OPERATOR_IS_NULL",
        "OPERATOR_IS_NOT_NULL",
        "OPERATOR_COALESCE",
        "OPERATOR_NULLIF",
        "OPERATOR_TRY",
        "COMPARE_IN",
        "COMPARE_NOT_IN",
        "ARRAY_EXTRACT",
        "ARRAY_SLICE",
        "ARRAY_CONSTRUCTOR",
        "STRUCT_EXTRACT",
    ]
)
#: Of each class of expressions its kinds, and the keys that they have.
_CLASSES: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "COLUMN_REF": (frozenset({"COLUMN_REF"}), ("column_names",)),
    "CONSTANT": (frozenset({"VALUE_CONSTANT"}), ("value",)),
    "CAST": (frozenset({"OPERATOR_CAST"}), ("child", "cast_type", "try_cast")),
    "COMPARISON": (_COMPARISONS, ("left", "right")),
    "BETWEEN": (frozenset({"COMPARE_BETWEEN", "COMPARE_NOT_BETWEEN"}), ("input", "lower", "upper")),
    "CONJUNCTION": (frozenset({"CONJUNCTION_AND", "CONJUNCTION_OR"}), ("children",)),
    "OPERATOR": (_OPERATORS, ("children",)),
    "CASE": (frozenset({"CASE_EXPR"}), ("case_checks", "else_expr")),
    "LAMBDA": (frozenset({"LAMBDA"}), ("lhs", "expr")),  # outside a function of lists it is JSON's arrow
}
#: Classes and kinds that people write, in words; whatever else is refused by the engine's own name.
_WORDS = {
    "WINDOW": "a window function (OVER, QUALIFY)",
    "PARAMETER": "a parameter",
    "COLLATE": "COLLATE",
    "POSITIONAL_REFERENCE": "a column by its number (#1)",
    "SCALAR": "a scalar subquery",
    "EXISTS": "EXISTS",
    "NOT_EXISTS": "EXISTS",
    "ANY": "a subquery in a comparison (IN, ANY, ALL)",
    "GROUPING_FUNCTION": "GROUPING",
}
#: Words of the engine that look like columns, and are of the hour or of the account.
_OF_THE_HOUR = frozenset(
    [
        "current_date",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "current_user",
        "session_user",
        "user",
    ]
)
_EMPTY: tuple[Any, ...] = (None, "", False, [], {}, {"map": []})
_PLACES = frozenset({"query_location", "alias"})
_EVERY = "one person's rows would move everybody else's, and no noise is calibrated to that"
_ELSEWHERE = "Compute what needs all rows elsewhere, and declare it as a public constant"


class Refused(Exception):  # noqa: N818 - what the query is
    """A query that may not run: what it has, and what to do about it."""


def refuse(what: str, why: str = _EVERY, remedy: str = _ELSEWHERE) -> NoReturn:
    """Refuse the query for what it has, and say what to write instead."""
    msg = f"the query has {what}: {why}. {remedy}"
    raise Refused(msg)


def unknown(kind: str, name: object) -> NoReturn:
    """Refuse what no list here has, by the engine's name of it."""
    refuse(
        f"{kind} {str(name).lower()!r}",
        "it is not among what a query may have, because nobody has shown that it takes one person's rows at a time",
        "Write it in another way (docs/sources.md has the list), or make a table of it elsewhere",
    )


def only(node: Node, *known: str) -> None:
    """Refuse a node with a key that says something and that the caller does not look at."""
    for key, value in node.items():
        if key not in _PLACES and key not in known and value not in _EMPTY:
            unknown("the option", f"{key} of {str(node.get('type', node.get('class', 'a part'))).lower()}")


def parts_of(node: Any) -> Iterator[Node]:  # noqa: ANN401 - JSON
    """Yield every object of a tree, the tree itself first."""
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ():
        yield from parts_of(inner)


def plain(node: Any, resolved: Callable[[list[str]], list[str]] = lambda names: names[-1:]) -> str:  # noqa: ANN401 - JSON
    """Return an expression as text in which places and aliases do not count, so that equal expressions have equal texts.

    The names of tables do not count either, unless ``resolved`` says of which table a column is.
    """

    def bare(part: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(part, dict):
            if part.get("class") == "COLUMN_REF":
                return resolved([name.lower() for name in part["column_names"]])
            return {key: bare(value) for key, value in part.items() if key not in _PLACES}
        return [bare(inner) for inner in part] if isinstance(part, list) else part

    return json.dumps(bare(node), sort_keys=True)


def has_aggregate(node: Any) -> bool:  # noqa: ANN401 - JSON
    """Return True if an aggregate of rows stands anywhere in an expression."""
    every = _AGGREGATES | _ORDERED | _EXTREMES
    return any(part.get("class") == "FUNCTION" and str(part["function_name"]).lower() in every for part in parts_of(node))


@dataclass(frozen=True)
class Expressions:
    """A check of expressions over the columns of one FROM: ``is_column`` says which names are columns of it, all others are refused."""

    is_column: Callable[[list[str]], bool]
    #: Names of the columns of the SELECT itself, which its other columns may use.
    aliases: Collection[str] = field(default_factory=frozenset)

    def check(self, node: Node | None, *, aggregates: bool = False, bound: frozenset[str] = frozenset()) -> None:
        """Refuse an expression that is not made of what the lists have; ``aggregates`` says whether rows are grouped by a person here."""
        if node is None:
            return
        kind = str(node.get("class"))
        if kind == "FUNCTION":
            self._function(node, aggregates=aggregates, bound=bound)
            return
        if kind not in _CLASSES or node["type"] not in _CLASSES[kind][0]:
            raise_for(node)
        only(node, "class", "type", *_CLASSES[kind][1])
        if kind == "COLUMN_REF":
            self._column(node["column_names"], bound)
        for when in node.get("case_checks", ()):
            only(when, "when_expr", "then_expr")
        for inner in children_of(node):
            self.check(inner, aggregates=aggregates, bound=bound)

    def _column(self, names: list[str], bound: frozenset[str]) -> None:
        first = names[0].lower()
        if first in bound or self.is_column(names) or (len(names) == 1 and first in self.aliases):
            return
        if first in _OF_THE_HOUR:
            refuse(f"{first}", "it is another value whenever the query runs", "Write the date itself")
        refuse(
            f"{names[-1]!r}, which is no column of the tables that it names",
            "numbers of rows and other hidden columns depend on the rows before",
            "Name columns of the tables in FROM",
        )

    def _function(self, node: Node, *, aggregates: bool, bound: frozenset[str]) -> None:
        only(
            node, "class", "type", "function_name", "schema", "catalog", "children", "filter", "order_bys", "distinct", "is_operator"
        )  # fmt: skip
        name = str(node["function_name"]).lower()
        if node["schema"] not in {"", "main"} or node["catalog"] not in {"", "system"}:
            unknown("the function", f"{node['catalog']}.{node['schema']}.{name}".strip("."))
        children, orders = node["children"], node["order_bys"]["orders"] if node["order_bys"] else []
        if name in _AGGREGATES | _ORDERED | _EXTREMES:
            if not aggregates:
                refuse("an aggregate over the whole table (no GROUP BY), or one inside another or in WHERE")
            self._aggregate(name, children, [order["expression"] for order in orders])
            for inner in (*children, node["filter"], *(order["expression"] for order in orders)):
                self.check(inner, bound=bound)
            return
        if name not in _SCALARS or len(children) < _LEAST.get(name, 0):
            unknown("the function", name)
        if node["filter"] or orders or node["distinct"]:
            unknown("an option of an aggregate at the function", name)
        if name == "list_sort":  # what the engine's parser makes of list(x ORDER BY x)
            children = [*map(_in_order, children[:1]), *children[1:]]
        for inner in children:
            if inner["class"] == "LAMBDA" and name in _LAMBDAS:
                own = _parameters(inner["lhs"])
                only(inner, "class", "type", "lhs", "expr")
                self.check(inner["expr"], aggregates=aggregates, bound=bound | own)
            else:
                self.check(inner, aggregates=aggregates, bound=bound)

    @staticmethod
    def _aggregate(name: str, children: list[Node], orders: list[Node]) -> None:
        """Refuse an aggregate whose result depends on the order of a person's rows, which nobody promises."""
        keys = {plain(order) for order in orders}
        if name in _ORDERED and not keys:
            refuse(
                f"{name}() without an order",
                "its result depends on the order in which rows are read",
                f"Write {name}(... ORDER BY ...)",
            )
        if name in _EXTREMES and not keys:
            value, by = children[0], children[1]
            inside = by["children"] if by.get("class") == "FUNCTION" and by["function_name"].lower() == "row" else [by]
            if plain(value) not in {plain(one) for one in inside}:
                refuse(
                    f"{name}() with ties that nothing breaks",
                    "its result depends on the order in which rows are read",
                    f"Write the value as the last key: {name}(value, (key, value))",
                )


def children_of(node: Node) -> Iterator[Node]:
    """Yield the expressions that an expression is made of, one level down."""
    for key in ("child", "left", "right", "input", "lower", "upper", "else_expr", "lhs", "expr"):
        if node.get(key) is not None:
            yield node[key]
    yield from node.get("children", ())
    for when in node.get("case_checks", ()):
        yield when["when_expr"]
        yield when["then_expr"]


def raise_for(node: Node) -> NoReturn:
    """Refuse an expression of a class or of a kind that no list has."""
    if node.get("class") == "STAR":
        refuse("a star inside an expression (COLUMNS, *)", "which columns it takes is not written", "Name the columns")
    said = str(node.get("subquery_type"))
    if node.get("class") == "SUBQUERY":
        refuse(_WORDS.get(said, f"a subquery ({said.lower()})"))
    for name in (str(node.get("class")), str(node.get("type"))):
        if name in _WORDS:
            refuse(_WORDS[name])
    unknown("the expression", node.get("type"))


def _in_order(node: Node) -> Node:
    """Return a list of a person's values as one that has an order: it is sorted afterwards."""
    if node.get("class") != "FUNCTION" or node["function_name"].lower() not in {"list", "array_agg"}:
        return node
    return {**node, "order_bys": {"type": "ORDER_MODIFIER", "orders": [{"expression": one} for one in node["children"]]}}


def constant(node: Node) -> bool:
    """Return True if an expression is made of constants alone."""
    return all(part.get("class") in {None, "CONSTANT", "CAST"} or _makes(part) for part in parts_of(node))


def _makes(node: Node) -> bool:
    """Return True for a function that puts values together and does nothing else."""
    made = {"list_value", "struct_pack", "row", "map"}
    return node.get("class") == "FUNCTION" and node["function_name"] in made and node["schema"] in {"", "main"}


def _parameters(node: Node) -> frozenset[str]:
    """Return the names that a lambda binds."""
    names = [node] if node["class"] == "COLUMN_REF" else list(node.get("children", ()))
    return frozenset(part["column_names"][0].lower() for part in names if part.get("class") == "COLUMN_REF")


# --- Relations -------------------------------------------------------------------------------------------------------------
# Relations of a query: whose each row is, and which columns hold the id of that person.


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
