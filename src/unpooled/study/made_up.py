"""Data that fit a study's cards and mean nothing, so that a study can be audited and previewed; and which columns it reads, found by running it on them."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UnpooledError
from unpooled.estimation.outlook import usually
from unpooled.models import load
from unpooled.privacy.bounds import AsDeclared
from unpooled.privacy.places import Places
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import BoundedTable, HeldPlaces, NoRows, PlacedTable, Table
from unpooled.protocol.conversation import find_step
from unpooled.protocol.local import run_in_process
from unpooled.protocol.messages import Disclosed, open_envelope
from unpooled.protocol.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csc_array

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card, Plan, Study
    from unpooled.privacy.table import OverRows
    from unpooled.protocol.registry import Model


# --- Made up ---------------------------------------------------------------------------------------------------------------
# Data that fit a study's cards and mean nothing, so that a study can be audited and previewed by people who hold no data.


@dataclass(frozen=True)
class Truth:
    """The law of made-up columns that have something to do with each other: one common factor, in every party's rows."""

    #: The correlation of two columns, and half a declared range in deviations.
    correlation: float = 0.3
    ranges: float = 3.0

    def __str__(self) -> str:
        return (
            f"every number is normal around the middle of its range, and half a range is {self.ranges:g} standard deviations, or as it is typical where that is declared; a number with the "
            "range 0 to 1 is 0 or 1, and the categories of a column are equally frequent, or have the shares that are declared; every two columns have a correlation of "
            f"{self.correlation:g} before they are cut to these; a tenth of the values that may be missing is"
        )

    def score(self, factor: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        """Return a standard normal variable that shares the factor with all others."""
        own = rng.standard_normal(factor.size)
        return np.asarray(math.sqrt(self.correlation) * factor + math.sqrt(1 - self.correlation) * own)

    def number(self, column: Column, score: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return numbers of this column in the order of the scores."""
        if column.range == (0.0, 1.0) and column.typical is None:
            return (score > 0).astype(np.float64)
        middle, deviation = usually(column, self.ranges)
        return np.asarray(np.clip(middle + deviation * score, *column.range))


def made_up(
    model: Model, study: Study, rows: int, seed: int = 0, truth: Truth | None = None
) -> tuple[Study, dict[str, Table]]:
    """Return the study with at most ``rows`` rows at each party, for parties of one process, and tables that its cards admit.

    Values are uniform in their ranges, categories equally likely, a tenth of what may be missing is. Label columns are -1 or 1, which suits
    classes as well as numbers, or what the model says that it takes; where columns are split, all parties have the same ones. With a ``truth``
    columns and labels have its law instead.
    """
    vertical = model.compile(study).split.shares_people
    rng = np.random.default_rng(seed)
    cards = tuple(_smaller(card, rows) for card in study.parties)
    helpers = tuple(msgspec.structs.replace(card, key="") for card in study.helpers)
    ids = study.ids if study.hidden else ""
    fitted = msgspec.structs.replace(study, parties=cards, helpers=helpers, ids=ids, coordinator="", simulation_seed=None)
    if study.hidden:
        fitted = msgspec.structs.replace(fitted, parameters=study.parameters | {"expected": _in_common(cards)})
    shared: dict[str, NDArray[Any]] = {}
    tables: dict[str, Table] = {}
    factor: NDArray[np.float64] | None = None
    for card in cards:
        together = card.household
        # Every id but the first, which is audited, has between one row and all that may count.
        sizes = [] if together is None else [together.rows, *rng.integers(1, together.rows + 1, together.ids - 1).tolist()]
        count = sum(sizes) or card.rows
        if truth is not None and (factor is None or not vertical):
            factor = rng.standard_normal(count)
        columns = {column.name: _values(column, count, rng, truth, factor) for column in card.columns}
        if not vertical or not shared:
            labels = {} if model.made_up_labels is None else model.made_up_labels(study, count, rng)
            shared.update(_in_order(labels, rng, truth, factor))
        for label in card.labels:
            known = shared.get(label) if vertical or label in shared else None
            columns[label] = shared[label] = _signs(count, rng, truth, factor) if known is None else known
        table = Table(columns)
        tables[card.name] = (
            table if together is None else BoundedTable(table, np.repeat(np.arange(together.ids), sizes), together.rows)
        )
    if study.hidden:
        return fitted, _at_places(tables, [card.name for card in helpers], study.ids, rng)
    return fitted, tables | {card.name: NoRows() for card in helpers}


def _in_common(cards: tuple[Card, ...]) -> int:
    """Return how many people two lists that were made up for so many places have in common: each has three quarters of all."""
    return max(2, cards[0].rows - 2 * (cards[0].rows // 4))


def _at_places(tables: dict[str, Table], helpers: list[str], ids: str, rng: np.random.Generator) -> dict[str, Table]:
    """Return the tables at the places of a hidden link that was made up: of all people each party lacks another quarter."""
    found: dict[str, Table] = {}
    given: dict[str, NDArray[np.int64]] = {}
    for number, (name, table) in enumerate(tables.items()):
        total = table.n_rows
        if not given:
            where = rng.permutation(total)
        part = total // 4
        gone = np.arange(total - (number + 1) * part, total - number * part)  # the first rows are everybody's
        kept = np.setdiff1d(np.arange(total), gone)
        given[name] = np.sort(where[kept])
        found[name] = PlacedTable(table.take(kept), Places(ids, total, where[kept], given[name]))
    one, other = given
    held = {(one, other): given[one], (other, one): given[other]}
    return found | {name: HeldPlaces(ids, held) for name in helpers}


def _smaller(card: Card, rows: int) -> Card:
    """Return the card with at most ``rows`` rows, of a party in one process."""
    if card.household is None:
        return msgspec.structs.replace(card, rows=min(card.rows, rows), key="")
    together = msgspec.structs.replace(card.household, ids=max(2, min(card.household.ids, rows // card.household.rows)))
    return msgspec.structs.replace(card, rows=together.ids * together.rows, household=together, key="")


def _values(
    column: Column, rows: int, rng: np.random.Generator, truth: Truth | None, factor: NDArray[np.float64] | None
) -> list[Any] | NDArray[np.float64]:
    missing = rng.random(rows) < (0.1 if column.may_be_absent else 0.0)
    score = None if truth is None or factor is None else truth.score(factor, rng)
    if column.categories is not None:
        count = len(column.categories)
        drawn = rng.integers(count, size=rows) if score is None else _places(score, column.shares)
        return [None if gone else column.categories[i] for i, gone in zip(drawn, missing, strict=True)]
    values = truth.number(column, score) if truth is not None and score is not None else rng.uniform(*column.range, rows)
    return np.where(missing | (values < column.below if column.below is not None else False), np.nan, values)


def _places(score: NDArray[np.float64], shares: tuple[float, ...]) -> NDArray[np.intp]:
    """Return the category of each row, in the order of the scores."""
    ranks = (np.argsort(np.argsort(score)) + 0.5) / score.size
    return np.searchsorted(np.cumsum(shares)[:-1], ranks)


def _signs(
    rows: int, rng: np.random.Generator, truth: Truth | None, factor: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return a label of -1 and 1."""
    if truth is None or factor is None:
        return rng.choice([-1.0, 1.0], rows)
    return np.where(truth.score(factor, rng) > 0, 1.0, -1.0)


def _in_order(
    labels: Mapping[str, NDArray[Any]], rng: np.random.Generator, truth: Truth | None, factor: NDArray[np.float64] | None
) -> dict[str, NDArray[Any]]:
    """Return a model's own labels; with a truth their rows are put in such an order that the first label grows with the factor."""
    found = dict(labels)
    if truth is None or factor is None or not found:
        return found
    first = next(iter(found.values()))
    place = np.empty(first.size, dtype=np.int64)
    place[np.argsort(truth.score(factor, rng))] = np.argsort(first, kind="stable")
    return {name: values[place] for name, values in found.items()}


# --- Columns read ----------------------------------------------------------------------------------------------------------
# The columns that a study reads, and those that it sends as they are: found by running its plan on made-up rows, for every model alike.

#: Rows of each party, at most: enough for every model to take its usual way; and the most columns that are listed by name.
_ROWS, _SEED, _LISTED = 60, 20261126, 20


class _Watching:
    """A table that writes down which columns are asked for; the look at all of them that goes before every plan is no reading."""

    seen: set[str]

    def blocks(self, names: tuple[str, ...], *rows: int) -> Iterator[tuple[NDArray[Any], ...]]:
        """Return the named columns, block by block."""
        self.seen.update(names)
        found: Iterator[tuple[NDArray[Any], ...]] = super().blocks(names, *rows)  # type: ignore[misc]  # of the table, which comes behind it
        return found

    def sparse(self, names: Sequence[str]) -> csc_array | None:
        """Return the named columns as one array, where they are held so."""
        self.seen.update(names)
        found: csc_array | None = super().sparse(names)  # type: ignore[misc]  # as above
        return found

    def __getitem__(self, name: str) -> NDArray[Any]:
        self.seen.add(name)
        found: NDArray[Any] = super().__getitem__(name)  # type: ignore[misc]  # as above
        return found

    def passed(self, work: OverRows) -> NDArray[Any]:
        """Return the result of the work over all rows."""
        before = set(self.seen)
        found: NDArray[Any] = super().passed(work)  # type: ignore[misc]  # as above
        if isinstance(work, AsDeclared):
            self.seen = before
        return found

    def take(self, rows: NDArray[Any]) -> Table:
        """Return the table of some of the rows, which notes in the same set."""
        found = watched(super().take(rows))  # type: ignore[misc]  # as above
        found.seen = self.seen  # type: ignore[attr-defined]
        return found


def watched(table: Table) -> Table:
    """Return the same table, with a set ``seen`` of the columns that were asked for."""
    found = copy.copy(table)
    found.__class__ = type(f"Watched{type(table).__name__}", (_Watching, type(table)), {})
    found.seen = set()  # type: ignore[attr-defined]  # of the class above
    return found


def said_of(names: Sequence[str], every: int) -> str:
    """Return names of columns for people; of many their number."""
    if not names:
        return "none"
    if len(names) == every:
        return "all declared columns"
    return ", ".join(names) if len(names) <= _LISTED else f"{len(names)} of the {every} declared columns"


@dataclass(frozen=True)
class Trial:
    """The columns of each party, in the order of its card: those that a run on made-up rows read, and those that it sent as they are."""

    read: Mapping[str, tuple[str, ...]]
    #: A value for each person travels of these.
    clear: Mapping[str, tuple[str, ...]]


def columns_read(plan: Plan) -> Mapping[str, tuple[str, ...]] | None:
    """Return the declared columns that each party's steps read, in the order of its card; None where the study cannot be run on made-up rows."""
    found = trial_of(plan)
    return None if found is None else found.read


def trial_of(plan: Plan) -> Trial | None:
    """Return the findings of a run of the plan on made-up rows; None where the study cannot be run on them."""
    model = load(plan.study.row)
    if plan.links:
        return None
    try:
        study, tables = made_up(model, plan.study, _ROWS, _SEED, Truth())
        study = msgspec.structs.replace(study, simulation_seed=_SEED)
        seen = {name: watched(table) if table.n_rows else table for name, table in tables.items()}
        made, transcript = model.compile(study), Transcript()
        run_in_process(model, made, seen, Policy.in_process(), load, transcript=transcript)
    except UnpooledError:
        return None
    found: dict[str, set[str]] = {name: getattr(table, "seen", set()) for name, table in seen.items()}
    sent: dict[str, set[str]] = {name: set() for name in seen}
    for entry in transcript.entries:
        if entry.reply is not None:
            sent[entry.to].update(_disclosed(made, entry.reply))

    def of_cards(names: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
        cards = plan.study.parties
        return {card.name: tuple(c.name for c in card.columns if c.name in names[card.name]) for card in cards}

    return Trial(of_cards(found), of_cards(sent))


def _disclosed(plan: Plan, reply: bytes) -> Iterator[str]:
    """Yield the names of the columns that a reply holds as they are."""
    envelope = open_envelope(reply)
    part, name = plan.part(envelope.step)
    said = msgspec.msgpack.decode(envelope.body, type=find_step(load(part.study.row), name, part).reply)
    for value in (getattr(said, field) for field in said.__struct_fields__):
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Disclosed):
                yield from one.columns


# --- Made up ---------------------------------------------------------------------------------------------------------------
# Data that fit a study's cards and mean nothing, under the name by which audits have always had them.


__all__ = ["made_up"]
