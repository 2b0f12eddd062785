"""Replay a study on neighbouring data with the noise frozen: what moves, and never more than declared.

The requests of a recorded run are put again to parties whose data differ in one unit. With equal noise the difference of two
releases is the difference of two statistics, so it can be held against the declared sensitivity exactly. Everything that is not
a release must not move at all: shapes, the order of releases, public fields, refusals. Conditioning on the recorded
requests is what adaptive composition asks for: a coordinator is a pure function of replies that are already private.

Neighbours: random rows, vertices of the bounds, the centre, mirrored rows, copies of other rows, values far outside the bounds,
missing values (also of rows that hold two values and else the middle of every range), and a coordinate search from the worst found so far; under both units.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from unpooled.errors import UnpooledError
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Adjacency, Split, Unit
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import (
    Array,
    Disclosed,
    Entrusted,
    Partial,
    Public,
    Released,
    Sealed,
    open_body,
    open_envelope,
)
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.mechanisms import Mechanism
    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.plan import Card, Plan, Release, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.step import Model

    Tables = dict[str, Table]
    Row = dict[str, Any]

#: A party that the coordinator may not even notice: relative slack for the last bits of a norm, nothing more.
_ROUNDING = 1e-9


class FrozenKeys(KeySource):
    """Keys that do not depend on the released content, so that two data sets meet the same noise. Audits only."""

    def stream(self, *names: str | int | bytes, content: bytes = b"") -> Stream:  # noqa: ARG002 - that is the point
        """The stream of these names, whatever the content."""
        return super().stream(*names)


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that moved where it must not, or farther than declared. Holds no data value."""

    unit: Unit
    party: str
    where: str
    what: str


@dataclass(slots=True)
class Report:
    """What an audit found: the largest measured fraction of each declared bound, and every violation."""

    #: (unit, party, release) -> measured change / declared event.
    largest: dict[tuple[Unit, str, str], float] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    neighbours: int = 0
    #: Releases, as "party.name", that no neighbour moved, or that are no vectors whose movement can be measured (choices, minimisers).
    unmeasured: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing moved farther than declared."""
        return not self.violations

    def __str__(self) -> str:
        lines = [f"{self.neighbours} neighbouring data sets: {'no violation' if self.passed else 'VIOLATIONS'}"]
        lines += [
            f"  {unit} {party}.{name}: at most {share:.4f} of the declared bound"
            for (unit, party, name), share in sorted(self.largest.items())
        ]
        lines += [f"  not measured: {', '.join(self.unmeasured)} (see the model's own tests)"] if self.unmeasured else []
        lines += [f"  {v.unit} {v.party}: {v.where}: {v.what}" for v in self.violations[:10]]
        return "\n".join(lines)


def replay(
    model: Model, study: Study, tables: Tables, *, registry: Callable[[str], Model], rounds: int = 20, seed: int = 0
) -> Report:
    """Audit one study over these tables; ``rounds`` is the number of random neighbours and of search steps."""
    plan = model.compile(study)
    keys = FrozenKeys.secret()
    rng = np.random.default_rng(seed)
    report = Report()
    sealing: dict[str, Shares] = {}
    watched, rules = _watched(model, sealing), Policy.in_process()

    def party(name: str, table: Table, sealed: Shares) -> Party:
        # Each party has one identity in all worlds, so that sealed shares can be opened again.
        ledger = Ledger.in_memory(root_key=sha256(name.encode()).digest())
        sealing[name] = sealed
        return Party(
            name, table, study.card(name), ledger, keys, rules, lambda w: watched if w == model.name else registry(w)
        )

    for base, only in _bases(plan, tables, rng, rounds):
        transcript = Transcript()
        shares: dict[str, Shares] = {name: [] for name in base}
        try:
            people = {name: party(name, table, shares[name]) for name, table in base.items()}
            drive(model, plan, in_process(people), transcript)
        except UnpooledError as error:
            words = f"a study on admissible data is refused ({type(error).__name__})"
            report.violations.append(Violation(Unit.RECORD, "any", "the whole study", words))
            continue
        for unit in (Unit.ATTRIBUTE,) if only else Unit:
            best: tuple[float, dict[str, Row]] = (-1.0, {})
            neighbours = [only] if only else _neighbours(plan, base, unit, rng, rounds, labels=model.covers_labels)
            for changes in neighbours:
                measured = _compare(model, plan, transcript, base, shares, changes, unit, party, report)
                if measured > best[0] and None not in changes.values():
                    best = (measured, {name: row for name, row in changes.items() if row is not None})
            for _ in range(
                rounds if best[1] and not only else 0
            ):  # search: change one more value of the worst neighbour so far
                candidate = _step(plan, best[1], unit, rng)
                measured = _compare(model, plan, transcript, base, shares, candidate, unit, party, report)
                if measured > best[0]:
                    best = (measured, candidate)
    moved = {(party, name) for (_, party, name), share in report.largest.items() if share}
    report.unmeasured = [f"{r.party}.{r.name}" for r in plan.releases if (r.party, r.name) not in moved]
    return report


# --- neighbours ---------------------------------------------------------------------------------------------------------

#: The row that is changed in every neighbour (which one does not matter: statistics are symmetric or row-aligned).
_ROW = 0


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


def _corner(card: Card, end: int) -> Row:
    return {c.name: c.categories[-end] if c.categories is not None else c.range[end] for c in card.columns}


def _bases(
    plan: Plan, tables: Tables, rng: np.random.Generator, rounds: int
) -> Iterator[tuple[Tables, dict[str, Row | None]]]:
    """The data as they are, and with the audited row at a corner of the bounds, anywhere inside them, or hollow; the only change to try, if any."""
    cards = plan.study.parties
    yield tables, {}
    for end in (0, 1):
        yield {card.name: tables[card.name].replace(_ROW, _corner(card, end)) for card in cards}, {}
    yield {card.name: tables[card.name].replace(_ROW, _random_row(card, rng)) for card in cards}, {}
    pairs = [(card, one, other) for card in cards for one in card.columns if one.may_be_absent for other in card.columns]
    for k in rng.permutation(len(pairs))[:rounds].tolist():
        card, one, other = pairs[k]
        row = _hollow(card, {one.name, other.name}, int(rng.integers(2)))
        yield {**tables, card.name: tables[card.name].replace(_ROW, row)}, {card.name: {one.name: _nothing(one)}}


def _hollow(card: Card, full: set[str], end: int) -> Row:
    """Two values (a response may be one of them) at an end of their ranges, all others at the middle: here a value gone missing moves most."""
    corner = _corner(card, end)
    return {c.name: corner[c.name] if c.name in full else _middle(c) for c in card.columns}


def _middle(column: Column) -> Any:  # noqa: ANN401 - a value of this column
    if column.categories is None:
        return column.centre
    return None if column.missing == "absent" else column.categories[0]


def _nothing(column: Column) -> Any:  # noqa: ANN401 - a missing value of this column
    return None if column.categories is not None else np.nan


def _neighbours(
    plan: Plan, base: Tables, unit: Unit, rng: np.random.Generator, rounds: int, *, labels: bool
) -> Iterator[Mapping[str, Row | None]]:
    """Changes per party; None is a row that contributes nothing. Where a row's guarantee covers labels, they change too."""
    for changes in _other_columns(plan, base, unit, rng, rounds):
        yield changes
        if labels and unit is Unit.RECORD and None not in changes.values():
            # The same response at every party that holds it: the smallest or the largest there is.
            end = _pick([np.min, np.max], rng)
            yield {
                name: {**(row or {}), **{label: float(end(base[name][label])) for label in plan.study.card(name).labels}}
                for name, row in changes.items()
            }


def _other_columns(
    plan: Plan, base: Tables, unit: Unit, rng: np.random.Generator, rounds: int
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
    groups = [cards] if plan.split is Split.VERTICAL else [(card,) for card in cards]
    for group in groups:
        if zero_out:
            yield dict.fromkeys((card.name for card in group), None)
            continue  # other rows are no neighbours under zero-out
        for end in (0, 1):
            yield {card.name: _corner(card, end) for card in group}
        yield {card.name: {c.name: _mirrored(c, base[card.name][c.name][_ROW]) for c in card.columns} for card in group}
        yield {card.name: {c.name: base[card.name][c.name][1] for c in card.columns} for card in group}
        yield {card.name: {c.name: _values(c, rng)[2 % len(_values(c, rng))] for c in card.columns} for card in group}
        for ends in itertools.islice(itertools.product((0, 1), repeat=sum(len(card.columns) for card in group)), rounds):
            corner = iter(ends)
            yield {card.name: {c.name: _corner(card, next(corner))[c.name] for c in card.columns} for card in group}
        for _ in range(rounds):
            yield {card.name: _random_row(card, rng) for card in group}


def _mirrored(column: Column, value: Any) -> Any:  # noqa: ANN401 - a value of this column
    if column.categories is not None:
        return column.categories[0] if value != column.categories[0] else column.categories[-1]
    return 2 * column.centre - value


def _step(plan: Plan, row: dict[str, Row], unit: Unit, rng: np.random.Generator) -> dict[str, Row]:
    """The same neighbour with one value of it drawn anew."""
    name = _pick(sorted(row), rng)
    card = plan.study.card(name)
    column = _pick([c for c in card.columns if c.name in row[name] or unit is Unit.RECORD], rng)
    return {**row, name: {**row[name], column.name: _pick(_values(column, rng), rng)}}


# --- comparison ---------------------------------------------------------------------------------------------------------


def _compare(
    model: Model,
    plan: Plan,
    transcript: Transcript,
    base: Tables,
    shares: Mapping[str, Shares],
    changes: Mapping[str, Row | None],
    unit: Unit,
    party: Callable[[str, Table, Shares], Party],
    report: Report,
) -> float:
    """Put the recorded requests to the changed parties; note what moved; return the largest share of a declared bound."""
    report.neighbours += 1
    largest = 0.0
    for name, row in changes.items():
        if row is not None and plan.study.adjacency == Adjacency.ZERO_OUT and unit is Unit.ATTRIBUTE:
            row = _present(plan.study.card(name), row)  # noqa: PLW2901 - a value may vanish, not become another one
            if row is None:
                continue
        sealed: Shares = []
        neighbour = party(name, base[name].omit(_ROW) if row is None else base[name].replace(_ROW, row), sealed)
        for entry in transcript.entries:
            if entry.to != name or entry.reply is None:
                continue
            step = model.step(open_envelope(entry.request).step)
            try:
                answer = neighbour.answer(entry.request)
            except UnpooledError as error:
                report.violations.append(
                    Violation(unit, name, step.name, f"the neighbour is refused ({type(error).__name__})")
                )
                break
            ours, theirs = (open_body(open_envelope(reply), step.reply) for reply in (entry.reply, answer))
            for field_name in step.reply.__struct_fields__:
                largest = max(
                    largest,
                    _moved(
                        plan,
                        unit,
                        name,
                        f"{step.name}.{field_name}",
                        getattr(ours, field_name),
                        getattr(theirs, field_name),
                        report,
                    ),
                )
        for (release, one), (_, other) in zip(shares[name], sealed, strict=False):  # a refused neighbour seals less
            largest = max(largest, _share_of_bound(plan, unit, name, release, one, other, report))
    return largest


def _share_of_bound(
    plan: Plan, unit: Unit, party: str, release: str, ours: NDArray[Any], theirs: NDArray[Any], report: Report
) -> float:
    """How far a release or a sealed share moved, as a part of what the plan declares; noted, and a violation beyond 1."""
    mechanism = plan.release(party, release).mechanism
    moved, declared = mechanism.change(ours, theirs), mechanism.event(unit).value
    if moved is None:
        return 0.0
    share = moved / declared if declared else 0.0
    key = (unit, party, release)
    report.largest[key] = max(report.largest.get(key, 0.0), share)
    if share > 1 + _ROUNDING:
        report.violations.append(Violation(unit, party, release, f"moved {share:.4f} times the declared bound"))
    return share


# --- what is inside a sealed share --------------------------------------------------------------------------------------

#: The shares that one party sealed, in order: (release, vector with noise).
Shares = list[tuple[str, "NDArray[np.int64]"]]


@dataclass(frozen=True)
class _Witness:
    """A shared mechanism that also writes down what goes into the total. Everything else is the mechanism's own."""

    mechanism: Mechanism
    release: str
    party: str
    sealing: Mapping[str, Shares]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the mechanism has
        return getattr(self.mechanism, name)

    def draw(self, given: Summand, bits: RandomBits) -> NDArray[np.int64]:
        vector = self.mechanism.draw(given, bits)
        self.sealing[self.party].append((self.release, vector))
        return vector


def _watched(model: Model, sealing: Mapping[str, Shares]) -> Model:
    """The model with witnesses in its plans, which write to the list of the party that seals; hashes and costs stay what they are.

    A plan is a function of its study alone, so each is compiled once, not anew for every neighbour.
    """
    plans: dict[bytes, Plan] = {}

    def watch(release: Release) -> Release:
        if release.mechanism.takes is not Summand:
            return release
        witness = _Witness(release.mechanism, release.name, release.party, sealing)
        return replace(release, mechanism=cast("Mechanism", witness))

    def compile_plan(study: Study) -> Plan:
        asked = msgspec.msgpack.encode(study)
        if asked not in plans:
            plan = model.compile(study)
            plans[asked] = replace(plan, releases=tuple(watch(release) for release in plan.releases))
        return plans[asked]

    return replace(model, compile=compile_plan)


def _present(card: Card, row: Row) -> Row | None:
    """Under zero-out a single value may only become missing, where that is allowed."""
    vanishing = {name: _nothing(card.column(name)) for name in row}
    return vanishing if all(card.column(name).may_be_absent for name in row) else None


def _moved(  # noqa: C901, PLR0911 - one line per way to move
    plan: Plan,
    unit: Unit,
    party: str,
    where: str,
    ours: Any,  # noqa: ANN401 - any field of a reply
    theirs: Any,  # noqa: ANN401
    report: Report,
) -> float:
    """Compare one field of two replies."""

    def violated(what: str) -> float:
        report.violations.append(Violation(unit, party, where, what))
        return 0.0

    if type(ours) is not type(theirs):
        return violated("the message has another form")
    if isinstance(ours, tuple):
        if len(ours) != len(theirs):
            return violated("the number of messages depends on the data")
        return max((_moved(plan, unit, party, where, a, b, report) for a, b in zip(ours, theirs, strict=True)), default=0.0)
    if isinstance(ours, Public) and ours != theirs:
        return violated("a public field depends on the data")
    if isinstance(ours, Sealed) and (ours.node, len(ours.ciphertext)) != (theirs.node, len(theirs.ciphertext)):
        return violated("a sealed message's length or receiver depends on the data")
    if isinstance(ours, Entrusted | Disclosed | Released | Partial) and _shape(ours.values) != _shape(theirs.values):
        return violated("the shape of a message depends on the data")
    if isinstance(ours, Partial) and ours != theirs:
        return violated("a partial sum depends on the node's own data, not on its sealed share alone")
    if not isinstance(ours, Released):
        return 0.0
    if (ours.name, ours.index) != (theirs.name, theirs.index):
        return violated("which release is made depends on the data")
    return _share_of_bound(plan, unit, party, ours.name, ours.values.numpy(), theirs.values.numpy(), report)


def _shape(array: Array) -> tuple[str, tuple[int, ...]]:
    return array.dtype, array.shape


__all__ = ["FrozenKeys", "Report", "Violation", "replay"]
