"""Neighbours: tables that differ in one unit, chosen and searched to move statistics as far as they go, and kept so that later audits replay them first."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.privacy.table import BoundedTable, Table
from unpooled.privacy.unit import Adjacency, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card, Plan

    Tables = dict[str, Table]
    Row = dict[str, Any]
    #: What becomes of a party's audited unit: other values of its row, nothing, or other rows of the household.
    Change = Row | None | list[Row]


# --- Extremes --------------------------------------------------------------------------------------------------------------
# Values and rows at which a statistic may jump: far beyond every range, at zero, and one step on either side of every cut.

#: A value beyond every declared range, and the smallest number above 0; a table refuses infinite values.
FAR, SMALLEST = 1e300, 5e-324
#: Into how many equal parts a range is cut, beside tenths: edges of bins are mostly there.
_PARTS = (8, 10)
#: The columns of a party that are put beyond their range alone.
_ALONE = 3


def extremes(column: Column) -> list[float]:
    """Return numbers of a column worth trying beyond those inside its range: far out, zeros, and one unit in the last place around every cut."""
    low, high = column.range
    cuts = {low, high, column.centre, *(low + (high - low) * k / parts for parts in _PARTS for k in range(1, parts))}
    steps = [math.nextafter(cut, end) for cut in sorted(cuts) for end in (-math.inf, math.inf)]
    return [FAR, -FAR, 0.0, -0.0, SMALLEST, -SMALLEST, *sorted(cuts), *steps]


def at_norm(plan: Plan, card: Card) -> Iterator[dict[str, Any]]:
    """Yield rows as long as the study's norm, one step shorter and one step longer, where it has one."""
    norm, numbers = plan.study.parameters.get("norm"), [c for c in card.columns if c.categories is None]
    if not isinstance(norm, float) or not numbers:
        return
    for length in (norm, math.nextafter(norm, 0.0), math.nextafter(norm, math.inf)):
        yield {c.name: c.centre + length / math.sqrt(len(numbers)) for c in numbers}


def same_values(plan: Plan, card: Card) -> Iterator[tuple[dict[str, float], list[dict[str, float]], str]]:
    """Yield (values, others that must count the same, what they are): beyond a range and at its end, all columns and one; zeros of both signs.

    Only of a study whose rows are shortened to a norm: elsewhere a value that is not clipped moves a release beyond its bound. Where a constant
    is left out, a range is made symmetric, so only its farther end is one. A range that the norm implies is not clipped to.
    """
    norm = plan.study.parameters.get("norm")
    if not isinstance(norm, float):
        return
    numbers = [c for c in card.columns if c.categories is None and c.range != (-norm, norm)]
    for end, far in enumerate((-FAR, FAR)):
        ends = {c.name: c.range[end] for c in numbers if abs(c.range[end]) >= abs(c.range[1 - end])}
        if ends:
            others = [dict.fromkeys(ends, far), *({name: far} for name in list(ends)[:_ALONE])]
            yield ends, others, "values beyond a declared range count otherwise than its end"
    zeros = {c.name: 0.0 for c in numbers if c.range[0] < 0 < c.range[1]}
    if zeros:
        others = [dict.fromkeys(zeros, -0.0), dict.fromkeys(zeros, SMALLEST)]
        yield zeros, others, "a zero with another sign, or next to nothing, counts otherwise than zero"


def with_values(table: Table, values: dict[str, float], at: int) -> Table:
    """Return the table with these values in the audited unit: in one row, or in all rows of a household."""
    if isinstance(table, BoundedTable):
        return table.exchange([row | values for row in table.first()])
    return table.replace(at, values)


def all_alike(table: Table, card: Card, row: dict[str, Any]) -> Table:
    """Return a table of the same number of rows, all of which hold these values; labels stay what they are. Categories that the row does not have are unused."""
    count = table.owners.size
    columns = {column.name: np.full(count, row[column.name], dtype=table[column.name].dtype) for column in card.columns}
    return table.holding(Table(columns | {label: table[label] for label in card.labels}))


# --- Neighbours ------------------------------------------------------------------------------------------------------------
# Tables that differ from given ones in one unit, chosen to move statistics as far as they go.
#
# Random rows, vertices of the bounds, the centre, mirrored rows, copies of other rows, values far outside the bounds, missing values (also of rows
# that hold two values and else the middle of every range), rows that are all alike; and one more value of the worst found so far, for a search from
# there: inside the range, or one where a statistic may jump (:mod:`unpooled.audit.neighbours`).


def _values(column: Column, rng: np.random.Generator) -> list[Any]:
    """Admissible values worth trying: the ends, the middle, beyond the ends, inside, and missing where it is allowed."""
    missing: list[Any] = [None] if column.may_be_absent else []
    if column.categories is not None:
        return [*column.categories, *missing]
    low, high = column.range
    width = high - low
    return [
        low,
        high,
        column.centre,
        low - 3 * width,
        high + 3 * width,
        float(rng.uniform(low, high)),
        *([np.nan] if missing else []),
    ]


def _random_row(card: Card, rng: np.random.Generator) -> Row:
    return {column.name: _pick(_values(column, rng), rng) for column in card.columns}


def _pick(values: list[Any], rng: np.random.Generator) -> Any:  # noqa: ANN401 - a value of a column
    return values[int(rng.integers(len(values)))]


def corner(card: Card, end: int) -> Row:
    """Return a row with every value at one end of its range."""
    return {c.name: c.categories[-end] if c.categories is not None else c.range[end] for c in card.columns}


def bases(
    plan: Plan, tables: Tables, rng: np.random.Generator, rounds: int, at: int
) -> Iterator[tuple[Tables, dict[str, Row | None]]]:
    """The data as they are, and with the audited row (number ``at``) at a corner of the bounds, anywhere inside them, or hollow; the only change to try, if any."""
    cards = plan.study.parties
    yield tables, {}
    for end in (0, 1):
        yield {**tables, **{card.name: _at_corner(tables[card.name], card, end, at) for card in cards}}, {}
    yield {**tables, **{card.name: tables[card.name].replace(at, _random_row(card, rng)) for card in cards}}, {}
    # A row that a norm shortens, mostly because of one value beyond its end: without it, what stays is shortened much less.
    may = [(card, c) for card in cards for c in card.columns if c.may_be_absent and c.categories is None]
    for card, column in may[:rounds] if plan.study.parameters.get("norm") else ():
        row = corner(card, 1) | {column.name: 4 * column.range[1] - 3 * column.range[0]}
        yield {**tables, card.name: tables[card.name].replace(at, row)}, {card.name: {column.name: _nothing(column)}}
    pairs = [(card, one, other) for card in cards for one in card.columns if one.may_be_absent for other in card.columns]
    for k in rng.permutation(len(pairs))[:rounds].tolist():
        card, one, other = pairs[k]
        row = _hollow(card, {one.name, other.name}, int(rng.integers(2)))
        yield {**tables, card.name: tables[card.name].replace(at, row)}, {card.name: {one.name: _nothing(one)}}


def alike(
    plan: Plan, tables: Tables, unit: Unit, adjacency: Adjacency
) -> Iterator[tuple[Tables, list[Mapping[str, Change]]]]:
    """Data whose rows are all equal, once with all that may be missing missing, each with few changes: no neighbour has more copies of a row."""
    cards = plan.study.parties
    if adjacency == Adjacency.ZERO_OUT or any(isinstance(table, BoundedTable) for table in tables.values()):
        return  # rows that vanish are far from nothing already, and an id has copies of one row everywhere else
    groups = [cards] if plan.split.shares_people else [(card,) for card in cards]
    for end, hollow in ((0, False), (1, True)):
        rows = {card.name: {c.name: _empty(c, end, hollow=hollow) for c in card.columns} for card in cards}
        base = {**tables, **{card.name: all_alike(tables[card.name], card, rows[card.name]) for card in cards}}
        if unit is Unit.ATTRIBUTE:
            firsts = [(card, card.columns[end % len(card.columns)]) for card in cards]
            yield base, [{card.name: {c.name: corner(card, 1 - end)[c.name]}} for card, c in firsts]
        else:
            yield base, [{card.name: corner(card, 1 - end) for card in group} for group in groups]


def _empty(column: Column, end: int, *, hollow: bool) -> Any:  # noqa: ANN401 - a value of this column
    if hollow and column.may_be_absent:
        return _nothing(column)
    return column.categories[-end] if column.categories is not None else column.range[end]


def _at_corner(table: Table, card: Card, end: int, at: int) -> Table:
    """With the audited unit at a corner of the bounds, in all its rows."""
    if isinstance(table, BoundedTable):
        return table.exchange([corner(card, end)] * table.household[1])
    return table.replace(at, corner(card, end))


def _hollow(card: Card, full: set[str], end: int) -> Row:
    """Return two values (a response may be one of them) at an end of their ranges, all others at the middle: here a value gone missing moves most."""
    ends = corner(card, end)
    return {c.name: ends[c.name] if c.name in full else _middle(c) for c in card.columns}


def _middle(column: Column) -> Any:  # noqa: ANN401 - a value of this column
    if column.categories is None:
        return column.centre
    return None if column.missing == "absent" else column.categories[0]


def _nothing(column: Column) -> Any:  # noqa: ANN401 - a missing value of this column
    return None if column.categories is not None else np.nan


def neighbours(
    plan: Plan, base: Tables, unit: Unit, rng: np.random.Generator, rounds: int, at: int, *, labels: bool
) -> Iterator[Mapping[str, Change]]:
    """Changes per party; None is a row that contributes nothing. Where a row's guarantee covers labels, they change too."""
    if unit is Unit.HOUSEHOLD:
        yield from _other_households(plan, base, rng, rounds)
        return
    if labels and unit is Unit.ATTRIBUTE:
        yield from _other_labels(plan, base, rng)
    for changes in _other_values(plan, base, unit, rng, rounds, at):
        yield changes
        if labels and unit is Unit.RECORD and None not in changes.values():
            # The same response at every party that holds it: the smallest or the largest there is, or some class.
            end, place = _pick([np.min, np.max], rng), rng.random()
            yield {
                name: {
                    **(row or {}),
                    **{label: _response(base[name][label], end, place) for label in plan.study.card(name).labels},
                }
                for name, row in changes.items()
            }


def _other_labels(plan: Plan, base: Tables, rng: np.random.Generator) -> Iterator[Mapping[str, Row]]:
    """One label of one person, wherever it is held, at the smallest and the largest there is; of words, at some other one."""
    for label in sorted({label for card in plan.study.parties for label in card.labels}):
        holders = [card.name for card in plan.study.parties if label in card.labels]
        groups = [holders] if plan.split.shares_people else [[name] for name in holders]
        for group, end in itertools.product(groups, (np.min, np.max)):
            place = rng.random()
            yield {name: {label: _response(base[name][label], end, place)} for name in group}


def _response(values: NDArray[Any], end: Callable[[NDArray[Any]], Any], place: float) -> Any:  # noqa: ANN401 - a number or a word
    return values[int(place * values.size)] if values.dtype == object else float(end(values))


def _other_values(
    plan: Plan, base: Tables, unit: Unit, rng: np.random.Generator, rounds: int, at: int
) -> Iterator[Mapping[str, Row | None]]:
    cards = plan.study.parties
    zero_out = plan.study.adjacency == Adjacency.ZERO_OUT
    if unit is Unit.ATTRIBUTE:
        for card in cards:
            for column in card.columns:
                for value in _values(column, rng):
                    yield {card.name: {column.name: value}}
        return
    # A record is one row of every party (vertical), or of one party (horizontal).
    groups = [cards] if plan.split.shares_people else [(card,) for card in cards]
    for group in groups:
        if zero_out:
            yield dict.fromkeys((card.name for card in group), None)
            continue  # other rows are no neighbours under zero-out
        for end in (0, 1):
            yield {card.name: corner(card, end) for card in group}
        far = [{c.name: FAR * sign for c in card.columns if c.categories is None} for sign in (-1, 1) for card in group]
        yield from ({group[k % len(group)].name: row} for k, row in enumerate(far) if row)
        yield from ({card.name: row} for card in group for row in at_norm(plan, card))
        yield {card.name: {c.name: _mirrored(c, base[card.name][c.name][at]) for c in card.columns} for card in group}
        yield {card.name: {c.name: base[card.name][c.name][at - 1] for c in card.columns} for card in group}
        yield {card.name: {c.name: _values(c, rng)[2 % len(_values(c, rng))] for c in card.columns} for card in group}
        for ends in itertools.islice(itertools.product((0, 1), repeat=sum(len(card.columns) for card in group)), rounds):
            each = iter(ends)
            yield {card.name: {c.name: corner(card, next(each))[c.name] for c in card.columns} for card in group}
        for _ in range(rounds):
            yield {card.name: _random_row(card, rng) for card in group}


def _other_households(plan: Plan, base: Tables, rng: np.random.Generator, rounds: int) -> Iterator[Mapping[str, Change]]:
    """Yield the first id with no row, with the most equal rows that may count, with opposite ones, and with any."""
    for card in plan.study.parties:
        table, together = base[card.name], card.household
        assert isinstance(table, BoundedTable) and together is not None  # noqa: PT018 - compiled for this unit
        yield {card.name: []}
        if plan.study.adjacency == Adjacency.ZERO_OUT:
            continue
        for end in (0, 1):
            yield {card.name: [corner(card, end)] * together.rows}
        yield {card.name: [corner(card, k % 2) for k in range(together.rows)]}
        yield {card.name: [{c.name: _mirrored(c, row[c.name]) for c in card.columns} for row in table.first()]}
        for _ in range(rounds):
            yield {card.name: [_random_row(card, rng)] * together.rows}
            yield {card.name: [_random_row(card, rng) for _ in range(int(rng.integers(together.rows)) + 1)]}


def _mirrored(column: Column, value: Any) -> Any:  # noqa: ANN401 - a value of this column
    if column.categories is not None:
        return column.categories[0] if value != column.categories[0] else column.categories[-1]
    return 2 * column.centre - value


def searchable(plan: Plan, changes: Mapping[str, Change]) -> bool:
    """Return True if one more value of a neighbour can be changed: something is left of its rows, and not a label alone changed."""
    return all(
        change and (isinstance(change, list) or not set(change) <= set(plan.study.card(name).labels))
        for name, change in changes.items()
    )


def changed_once(plan: Plan, change: Mapping[str, Change], unit: Unit, rng: np.random.Generator) -> dict[str, Change]:
    """Return the same neighbour with one value of it drawn anew (of a household: in every row, so that they keep pulling together)."""
    name = _pick(sorted(change), rng)
    card, own = plan.study.card(name), change[name]
    rows = own if isinstance(own, list) else [own or {}]
    column = _pick([c for c in card.columns if unit is not Unit.ATTRIBUTE or c.name in rows[0]], rng)
    numbers = [] if column.categories is not None else extremes(column)
    drawn = _pick(_pick([_values(column, rng)] * 3 + [numbers or _values(column, rng)], rng), rng)
    changed = [{**row, column.name: drawn} for row in rows]
    return {**change, name: changed if isinstance(own, list) else changed[0]}


def changed_tables(plan: Plan, tables: Tables, changes: Mapping[str, Change], unit: Unit, at: int) -> Tables | None:
    """Return the neighbouring data as a whole; None where this change makes none under the study's adjacency."""
    found = dict(tables)
    for name, row in changes.items():
        changed = allowed(plan, name, row, unit)
        if isinstance(changed, dict) and not changed:
            return None
        found[name] = changed_table(tables[name], changed, at)
    return found


def allowed(plan: Plan, name: str, row: Change, unit: Unit) -> Change:
    """Return the change, or what of it the adjacency admits: under zero-out a value may vanish, not become another one (empty: nothing)."""
    card = plan.study.card(name)
    label = unit is Unit.ATTRIBUTE and isinstance(row, dict) and set(row) <= set(card.labels)
    if not isinstance(row, dict) or plan.study.adjacency != Adjacency.ZERO_OUT or unit is not Unit.ATTRIBUTE or label:
        return row
    return vanishing(card, row) or {}


def changed_table(table: Table, row: Change, at: int) -> Table:
    """Return the neighbouring table."""
    if isinstance(row, list):
        assert isinstance(table, BoundedTable)
        return table.exchange(row)
    return table.omit(at) if row is None else table.replace(at, row)


def vanishing(card: Card, row: Row) -> Row | None:
    """Under zero-out a single value may only become missing, where that is allowed."""
    missing = {name: _nothing(card.column(name)) for name in row}
    return missing if all(card.column(name).may_be_absent for name in row) else None


# --- Search ----------------------------------------------------------------------------------------------------------------
# A search for the worst neighbour of every release, guided by how far each one moved.
#
# Every release has its own farthest neighbour so far. A step changes one value of the farthest of all, or of that of the release that is farthest below its
# bound and was taken least often, in turn; and keeps what moves any release farther than before.

#: A release, as (party, name).
Key = tuple[str, str]
#: How far each release moved at most, as a part of its bound, and which change moved it so far.
Found = dict[Key, tuple[float, "Mapping[str, Change]"]]


def searched(
    plan: Plan,
    compare: Callable[[Mapping[str, Change]], Mapping[Key, float]],
    tried: Iterable[Mapping[str, Change]],
    unit: Unit,
    rng: np.random.Generator,
    rounds: int,
) -> Found:
    """Return the farthest neighbour of every release: among those that are tried, and after ``rounds`` steps from the farthest so far."""
    best: Found = {}

    def note(changes: Mapping[str, Change]) -> None:
        for key, part in compare(changes).items():
            if part > best.get(key, (0.0, {}))[0]:
                best[key] = (part, dict(changes))

    for changes in tried:
        note(changes)
    taken: list[Key] = []
    for step in range(rounds):
        keys = sorted(
            (key for key in best if searchable(plan, best[key][1])), key=lambda key: (taken.count(key), best[key][0])
        )
        if not keys:
            break
        key = keys[0] if step % 2 else max(keys, key=lambda key: best[key][0])
        taken += [key] * (step % 2)
        note(changed_once(plan, best[key][1], unit, rng))
    return best


# --- Pairs -----------------------------------------------------------------------------------------------------------------
# Pairs of neighbours that moved a release far: kept in a file, so that later audits of the same study replay them first.

#: The part of a bound beyond which a pair is kept, and the part of its movement that it must still have.
FAR_ENOUGH, STILL = 0.9, 0.5


@dataclass(frozen=True)
class Pair:
    """One unit's values in both data sets, party by party, and how far each release moved, as a part of its bound."""

    unit: Unit
    at: int
    first: dict[str, Any]
    second: dict[str, Any]
    moved: dict[str, float]
    #: The hash of the plan with whose noise it moved so far; empty: it does whatever earlier rounds draw.
    plan: str = ""

    def base(self, tables: Tables) -> Tables:
        """Return the tables with the first values."""
        found = dict(tables)
        for name, row in self.first.items():
            table = tables[name]
            found[name] = table.exchange(row) if isinstance(table, BoundedTable) else table.replace(self.at, row)
        return found


@dataclass
class Pairs:
    """The farthest pair of every release under every unit, by the hash of the plan whose parties made them up."""

    kept: list[Pair] = field(default_factory=list)

    def note(self, plan: Plan, tables: Tables, base: Tables, unit: Unit, at: int, found: Found) -> None:
        """Keep the pairs of one search that moved a release farther than any before, and far enough; of row-split parties one of each release."""
        for (party, release), (part, changes) in found.items():
            name = f"{party}.{release}"
            places = {name} if plan.split.shares_people else {f"{card.name}.{release}" for card in plan.study.parties}
            known = [pair for pair in self.kept if pair.unit is unit and places & pair.moved.keys()]
            if part <= FAR_ENOUGH or any(
                moved >= part for pair in known for one, moved in pair.moved.items() if one in places
            ):
                continue
            for pair in known:
                for one in places & pair.moved.keys():
                    del pair.moved[one]
            names = {card.name: tuple(c.name for c in card.columns) for card in plan.study.parties if card.name in changes}
            both = {one: (_row(base, one, columns, at), _row(tables, one, columns, at)) for one, columns in names.items()}
            first = {one: row for one, (row, was) in both.items() if repr(row) != repr(was)}
            self.kept.append(Pair(unit, at, first, _changes(changes), {name: part}))
        self.kept = [pair for pair in self.kept if pair.moved]

    def copied(self) -> Pairs:
        """Return the same pairs, for a search to go on with."""
        return Pairs([replace(pair, moved=dict(pair.moved)) for pair in self.kept])

    @classmethod
    def read(cls, rows: list[dict[str, Any]]) -> Pairs:
        """Return the pairs of a file's rows."""
        return cls([Pair(**{**row, "unit": Unit(row["unit"])}) for row in rows])

    def rows(self) -> list[dict[str, Any]]:
        """Return the pairs as rows of a file."""
        rounded = [replace(pair, moved={name: round(part, 3) for name, part in pair.moved.items()}) for pair in self.kept]
        return [asdict(pair) | {"unit": str(pair.unit)} for pair in rounded]


def read_file(path: Path, study: str) -> Pairs:
    """Return the pairs that a file has of a study; none where there is no file."""
    return Pairs.read(json.loads(path.read_text()).get(study, [])) if path.is_file() else Pairs()


def write_file(path: Path, study: str, pairs: Pairs) -> None:
    """Write the pairs of a study into the file, next to those of others."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    lines = {
        name: [json.dumps(row) for row in rows] for name, rows in sorted((known | {study: pairs.rows()}).items()) if rows
    }
    body = ",\n".join(json.dumps(name) + ": [\n" + ",\n".join(rows) + "\n]" for name, rows in lines.items())
    path.write_text("{\n" + body + "\n}\n")


def _changes(changes: Mapping[str, Change]) -> dict[str, Any]:
    """Return a change as plain values."""
    return {
        name: None if row is None else _plain(row) if isinstance(row, dict) else [_plain(one) for one in row]
        for name, row in changes.items()
    }


def _row(base: Tables, name: str, columns: tuple[str, ...], at: int) -> Any:  # noqa: ANN401 - a row, or the rows of a household
    table = base[name]
    if isinstance(table, BoundedTable):
        return [_plain(row) for row in table.first()]
    return _plain({column: table[column][at] for column in columns})


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}


__all__ = [
    "FAR",
    "FAR_ENOUGH",
    "STILL",
    "Found",
    "Pair",
    "Pairs",
    "all_alike",
    "at_norm",
    "extremes",
    "read_file",
    "same_values",
    "searched",
    "with_values",
    "write_file",
]
