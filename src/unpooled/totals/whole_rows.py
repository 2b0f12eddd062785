"""Complete cases: rows without a value that the model needs contribute nothing to any total, and how many rows do contribute is a total of its own.

Let a release move by D when a record is replaced and by Z when its whole contribution vanishes. If rows that are not whole contribute nothing, it moves by
at most the larger of D and Z under replace (both rows whole: D; one of them: Z; none: 0), by Z under zero-out, and one value moves what its record moves,
for it decides whether the row counts (Theorem B.20).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.privacy.bounds import COMPLETE, LEAVING_OUT, MODELLED, Coding
from unpooled.privacy.mechanisms import Reach
from unpooled.privacy.table import BLOCK_ROWS, BoundedTable, Table
from unpooled.privacy.unit import Adjacency, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.study import Study
    from unpooled.totals.total import Summed


#: The parts of rows left out at which plans and outlooks say what that costs.
SHARES = (0.1, 0.3)


def needed(column: Column) -> Column:
    """Return the column as the rows that count have it: never missing, where rows without it are left out."""
    return msgspec.structs.replace(column, missing="refuse", below=None) if column.missing in LEAVING_OUT else column


def leaving_out(columns: Sequence[Column], used: set[str]) -> tuple[Column, ...]:
    """Return the columns that a model uses and whose gaps leave a row out."""
    return tuple(column for column in columns if column.missing in LEAVING_OUT and column.name in used)


def modelled(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns among these of which it is modelled whether a row has all of them."""
    return tuple(column for column in columns if column.missing == MODELLED)


def sentences(
    left_out: Sequence[Column], declared: Sequence[Column], few: str = "", counted: tuple[int, float, int] | None = None
) -> tuple[str, ...]:
    """Return what a table says of missing values: of rows that were left out, and of declared columns whose gaps count as something else.

    ``few``: why no line follows from so few whole rows. ``counted``: how many were whole, the noise of that number, and how many there are.
    """
    said = [few] if few else []
    plainly = [column.name for column in left_out if column.missing == COMPLETE]
    if plainly:
        named, whole = (
            listed([_named(name) for name in plainly]),
            "rows without a value of {0} are left out, and n is a noisy count of the others",
        )
        if counted is not None and not few:
            whole = "{1:,} +- {2:.0f} of {3:,} rows had a value of {0}; the others are left out"
        said.append(
            f"{whole.format(named, *(counted or ()))}: right if, given the other columns, whether a row is whole does not depend on the response"
        )
        said += limits_of(left_out)
    if filled := filled_in(declared):
        said.append(
            f"missing values of {listed(filled)} count as the middle of the range or as a level of their own: where many are missing, slopes of columns that "
            'are related are not those of complete data, and intervals do not say so (missing = "complete" leaves such rows out)'
        )
    return tuple(said)


def _named(name: str) -> str:
    """Return what a table calls a column: a response that has no name is the response."""
    return "the response" if name == "(response)" else name


def filled_in(declared: Iterable[Column]) -> list[str]:
    """Return the columns whose gaps count as the middle of the range, or as a level of their own: rules for predictions."""
    return [column.name for column in declared if column.missing in {"absent", "indicator"}]


def refuse_filled(declared: Iterable[Column]) -> None:
    """Refuse a table of columns whose gaps count as something, before anything is spent: slopes of related columns would be wrong, and no interval says so."""
    if filled := filled_in(declared):
        msg = (
            f'goal is "table", and missing values of {listed(filled)} would count as the middle of the range or as a level of their own: slopes of columns '
            'that are related to them would be wrong, and no interval would say so. Declare missing = "complete" for them, which leaves such rows out; or ask '
            'for goal = "predictions", where this rule is right. Nothing is spent'
        )
        raise UsageError(msg).at(column=filled[0])


def limits_of(columns: Iterable[Column]) -> list[str]:
    """Return what a table says of values under a limit of detection: that they are among the missing ones, and never how many they are."""
    found = [f"{column.name} under {column.below:g}" for column in columns if column.below is not None]
    return [f"values under a limit of detection count as missing: {listed(found)}"] if found else []


def refuse_limit(response: Column) -> None:
    """Refuse a limit of detection of a response: whether its value is missing would depend on it, and every slope would be wrong."""
    if response.below is not None:
        msg = (
            f"{response.name!r} is the response and has a limit of detection (below): leaving out who is under it makes every slope wrong. Declare two "
            "categories of it, detected or not, with a logistic family, or a range that begins at the limit, without below"
        )
        raise UsageError(msg).at(column=response.name)


def expected_missing(study: Study) -> float:
    """Return the part of the rows that a study declares to have gaps; refuse one that is no part, or that no column can have."""
    share = study.parameters.get("expected_missing", 0.0)
    if not share:
        return 0.0
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share < 1:
        raise UsageError(
            "expected_missing is the part of the rows that are expected to lack a value: a number from 0 to below 1"
        )
    if not any(column.missing in LEAVING_OUT for card in study.parties for column in card.columns):
        raise UsageError(
            'expected_missing goes with columns of missing = "complete": no column declares that, so no row is left out'
        )
    return float(share)


def times_at(share: float) -> tuple[float, float]:
    """Return by which factors a standard error grows where this part of the rows is left out: one of sampling alone, and one of noise alone."""
    return 1 / math.sqrt(1 - share), 1 / (1 - share)


def notes_of(left_out: Sequence[Column], study: Study) -> tuple[str, ...]:
    """Return what a plan says of rows that will be left out: how many they are is known after the release, and what they cost."""
    if not left_out:
        return ()
    costs = ", ".join(f"{low:.2f} to {high:.2f} at {share:.0%}" for share in SHARES for low, high in (times_at(share),))
    expected = expected_missing(study)
    said = f"; rounds and clips are those of {expected:.0%} left out" if expected else ""
    return (
        (
            f"rows without a value of {listed([column.name for column in left_out])} are left out: n is known after the release, as a noisy count{said}. "
            f"Standard errors grow with the part that is left out: times {costs}"
        ),
    )


def filled_note(goal: str, declared: Iterable[Column]) -> tuple[str, ...]:
    """Return what the plan of a study that asks for no goal says of columns whose gaps count as something: it is no plan of a table."""
    filled = filled_in(declared) if goal == "auto" else []
    if not filled:
        return ()
    return (
        (
            f"missing values of {listed(filled)} count as the middle of the range or as a level of their own, which is right for predictions and wrong for a table "
            '(goal = "table" refuses it): missing = "complete" leaves such rows out'
        ),
    )


def moved(vector: Summed, made: Mapping[Adjacency, Summed], adjacency: Adjacency) -> Summed:
    """Return a vector over whole rows, with how far each unit moves it, given the vectors over all rows under each adjacency (Theorem B.20)."""
    rows = [each.reach[Unit.RECORD] for each in made.values()]
    either = Reach(max(row.distance for row in rows), max(row.coordinates for row in rows))
    record = either if adjacency is Adjacency.REPLACE else made[adjacency].reach[Unit.RECORD]
    return replace(vector, reach={**vector.reach, Unit.RECORD: record, Unit.ATTRIBUTE: either})


def whole_rows(table: Table, columns: tuple[Column, ...]) -> Table:
    """Return the table of the rows that have a declared value of each of these columns; of none: the table itself."""
    if not columns or isinstance(table, WholeRows):
        return table
    # One view of a table, so that what is remembered of it in one round is found in the next. The table holds it: both go together.
    views: dict[tuple[Column, ...], Table] = vars(table).setdefault("_whole_rows", {})
    if columns not in views:
        views[columns] = _whole_of_ids(table, columns) if isinstance(table, BoundedTable) else WholeRows(table, columns)
    return views[columns]


def _whole_of_ids(table: BoundedTable, columns: tuple[Column, ...]) -> Table:
    """Return the first whole rows of every id; where it is modelled which rows are whole, those of its first rows without another gap that are."""
    gone = modelled(columns)
    plainly = tuple(column for column in columns if column not in gone)
    first = _first_whole(table, plainly) if plainly else table
    return WholeRows(first, gone) if gone else first


def _first_whole(table: BoundedTable, columns: tuple[Column, ...]) -> Table:
    """Return the table in which the first whole rows of every id count: which ones follows from the id's own rows alone (Theorems F.19 and B.20)."""
    coding = Coding(columns, 1)
    masks = [coding.code(block)[1].all(axis=1) for block in table.below(coding.names)]
    return table.among(np.concatenate(masks) if masks else np.zeros(0, dtype=np.bool_))


class WholeRows(Table):
    """Another table's rows that have a declared value of some columns. Its public number of rows is that of all of them."""

    def __init__(self, table: Table, columns: tuple[Column, ...]) -> None:
        self._raw, self._columns_needed = table, columns
        self.names, self.n_rows, self.household = table.names, table.n_rows, table.household

    @property
    def raw(self) -> Table:
        """Return the table that these rows are of."""
        return self._raw

    @property
    def owners(self) -> NDArray[np.int64]:
        """Return the numbers that the table gives to the ids of these rows."""
        kept = [self._kept(block) for block in self._raw.blocks(self._read)]
        return self._raw.owners[np.concatenate(kept)] if kept else self._raw.owners[:0]

    @property
    def _read(self) -> tuple[str, ...]:
        return tuple(column.name for column in self._columns_needed)

    def _kept(self, block: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
        """Return which rows of a block of these columns are whole: missing values and undeclared categories are none."""
        return np.asarray(Coding(self._columns_needed, 1).code(block)[1].all(axis=1))

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns of the whole rows, at most ``rows`` rows at a time."""
        read = tuple(dict.fromkeys((*names, *self._read)))  # each once
        for block in self._raw.blocks(read, rows):
            held = dict(zip(read, block, strict=True))
            kept = self._kept([held[name] for name in self._read])
            yield tuple(held[name][kept] for name in names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.concatenate([block[0] for block in self.blocks((name,))])


#: The column that says which rows are whole; no declared column has such a name.
WHOLE = "(whole)"


def marked_rows(table: Table, columns: tuple[Column, ...]) -> Table:
    """Return the table with the column :data:`WHOLE`: 1 for the rows that have a declared value of each of these columns, 0 for the others."""
    views: dict[tuple[Column, ...], Table] = vars(table).setdefault("_marked_rows", {})  # as above
    if columns not in views:
        views[columns] = MarkedRows(table, columns)
    return views[columns]


class MarkedRows(Table):
    """Another table, with a column that says which rows have a declared value of some columns."""

    def __init__(self, table: Table, columns: tuple[Column, ...]) -> None:
        self._raw, self._columns_needed = table, columns
        self.names, self.n_rows, self.household = (*table.names, WHOLE), table.n_rows, table.household

    @property
    def owners(self) -> NDArray[np.int64]:
        """Return the numbers that the table gives to the ids of its rows."""
        return self._raw.owners

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns, with the marks by their name, at most ``rows`` rows at a time."""
        own = tuple(column.name for column in self._columns_needed)
        read = tuple(dict.fromkeys((*(name for name in names if name != WHOLE), *own)))
        for block in self._raw.blocks(read, rows):
            held = dict(zip(read, block, strict=True))
            if WHOLE in names:
                present = Coding(self._columns_needed, 1).code([held[name] for name in own])[1]
                held[WHOLE] = np.asarray(present.all(axis=1), dtype=np.float64)
            yield tuple(held[name] for name in names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.concatenate([block[0] for block in self.blocks((name,))])


#: The two classes of a column that says whether a value is there.
PRESENCE = ("missing", "there")


def presence_rows(table: Table, columns: tuple[Column, ...]) -> Table:
    """Return the table in which the first of these columns holds whether a row has declared values of all, as one of the two classes of :data:`PRESENCE`."""
    views: dict[tuple[Column, ...], Table] = vars(table).setdefault("_presence_rows", {})  # as above
    if columns not in views:
        views[columns] = PresenceRows(table, columns)
    return views[columns]


def is_there(column: Column, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of these are declared values of the column."""
    return np.asarray(Coding((column,), 1).code((values,))[1].all(axis=1))


class PresenceRows(Table):
    """Another table, of some columns of which nothing is left but whether each row has values of all: that is what the first of them says."""

    def __init__(self, table: Table, columns: tuple[Column, ...]) -> None:
        self._raw, self._columns_needed = table, columns
        self.names, self.n_rows, self.household = table.names, table.n_rows, table.household

    @property
    def owners(self) -> NDArray[np.int64]:
        """Return the numbers that the table gives to the ids of its rows."""
        return self._raw.owners

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns, at most ``rows`` rows at a time."""
        words, own = np.array(PRESENCE, dtype=object), tuple(column.name for column in self._columns_needed)
        read = tuple(dict.fromkeys((*names, *own))) if own[0] in names else names
        for block in self._raw.blocks(read, rows):
            held = dict(zip(read, block, strict=True))
            if own[0] in names:
                there = [is_there(column, held[column.name]) for column in self._columns_needed]
                held[own[0]] = words[np.logical_and.reduce(there).astype(int)]
            yield tuple(held[name] for name in names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.concatenate([block[0] for block in self.blocks((name,))])


class WholeRowsModel(msgspec.Struct, frozen=True):
    """The released model of which rows are whole, by the response and the columns that are never missing."""

    #: The columns of which a whole row has all, and those that the model reads besides the response.
    columns: tuple[str, ...]
    by: tuple[str, ...]
    products: bool
    #: How many rows are whole, the deviation of the noise of that number, and how many rows there are.
    whole: int
    unsure: float
    rows: int
    #: How much larger the log odds of being whole are in the second class, at the mean of the columns; with its standard error.
    response: float
    error: float
    #: About what the whole rows alone would have as coefficients, in the order of the estimates.
    alone: tuple[float, ...] = ()

    def sentences(self, response: str, compared: tuple[str, float, float] | None = None) -> tuple[str, ...]:
        """Return the lines under the table; ``compared``: a term, about what the whole rows alone say of it, and what the table says."""
        response = "the response" if response == "(response)" else response
        by = (
            f"{response}"
            + (f" and by {listed(list(self.by))}" if self.by else "")
            + ", which are never missing" * bool(self.by)
        )
        products = "with products of the two" if self.products else "without products"
        where = " at the middle of the others" if self.products else ""
        by += f", {products}" if self.by else ""
        compares = (
            f" Complete cases alone: {compared[0]} about {compared[1]:.3g} (here {compared[2]:.3g})." if compared else ""
        )
        said = (
            f"{self.whole:,} +- {self.unsure:.0f} of {self.rows:,} rows have {listed(list(self.columns))}; the others count only for which rows are whole, "
            f"which is modelled by {by}: {response} {self.response:.3g} +- {self.error:.2g} in log odds{where}. Right if, given these, whether a row is whole "
            f"does not depend on the missing values themselves.{compares}"
        )
        return (said,)
