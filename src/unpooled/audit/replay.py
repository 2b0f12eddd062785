"""Replay a study on neighbouring data with the noise frozen: what moves, never more than declared, and the report of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.audit.neighbours import (
    FAR_ENOUGH,
    STILL,
    Pair,
    Pairs,
    alike,
    allowed,
    bases,
    changed_table,
    corner,
    neighbours,
    same_values,
    searched,
    with_values,
)
from unpooled.audit.stage import Acts, FrozenKeys, Violation, share, total_of, watched
from unpooled.privacy.accounting import Composition
from unpooled.privacy.events import NO_COST, Kind
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import FieldGaussian
from unpooled.privacy.noise import KeySource
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.conversation import find_step
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import (
    Array,
    Disclosed,
    Entrusted,
    Masked,
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

    from unpooled.audit.neighbours import Change, Tables
    from unpooled.audit.stage import Act
    from unpooled.privacy.events import Event
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model
    from unpooled.protocol.transcript import Exchanged


# --- Differences -----------------------------------------------------------------------------------------------------------
# The differences between two messages of one step, other than those of values of releases.


def differences(ours: Any, theirs: Any) -> Iterator[str]:  # noqa: ANN401, C901 - any field of two replies; a line per way to differ
    """Yield the differences between two fields, other than those of values of releases, which may differ."""
    if type(ours) is not type(theirs):
        yield "the message has another form"
    elif isinstance(ours, tuple):
        if len(ours) != len(theirs):
            yield "the number of messages depends on the data"
        for one, other in zip(ours, theirs, strict=False):
            yield from differences(one, other)
    elif isinstance(ours, Public):
        if ours != theirs:
            yield "a public field depends on the data"
    elif isinstance(ours, Sealed | Masked):
        if (ours.node, len(ours.ciphertext)) != (theirs.node, len(theirs.ciphertext)):
            yield "a sealed message's length or receiver depends on the data"
    elif isinstance(ours, Entrusted | Disclosed | Released | Partial):
        if _shape(ours.values) != _shape(theirs.values):
            yield "the shape of a message depends on the data"
        elif isinstance(ours, Partial) and ours != theirs:
            yield "a partial sum depends on the node's own data, not on its sealed fragment alone"
        elif isinstance(ours, Released) and (ours.name, ours.index) != (theirs.name, theirs.index):
            yield "which release is made depends on the data"


def _shape(array: Array) -> tuple[str, tuple[int, ...]]:
    return array.dtype, array.shape


# --- Report ----------------------------------------------------------------------------------------------------------------
# The report of a replay: how far every release moved, and what moved that must not.


@dataclass(slots=True)
class Report:
    """Report of an audit: the largest measured fraction of each declared bound, and every violation."""

    #: (unit, party, release) -> measured change / declared event.
    largest: dict[tuple[Unit, str, str], float] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    #: Of each promise of the whole study: the epsilon that one person attained at its delta, and the one that is promised.
    attained: dict[str, tuple[float, float]] = field(default_factory=dict)
    neighbours: int = 0
    #: The farthest pair of every release that came near its bound.
    pairs: Pairs = field(default_factory=Pairs)
    #: Releases, as "party.name", that a kept pair moves less than it did: the same statistic no longer, or other noise before it.
    slower: list[str] = field(default_factory=list)
    #: Releases, as "party.name", that no neighbour moved, or that are no vectors whose movement can be measured (choices, minimisers).
    unmeasured: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Return True if nothing moved farther than declared."""
        return not self.violations

    def __str__(self) -> str:
        lines = [f"{self.neighbours} neighbouring data sets: {'no violation' if self.passed else 'VIOLATIONS'}"]
        lines += [
            f"  {unit} {party}.{name}: at most {ratio:.4f} of the declared bound"
            for (unit, party, name), ratio in sorted(self.largest.items())
        ]
        lines += [
            f"  {name}: one person, changed at every party at once, attains epsilon = {ours:.4g} of {promised:.4g}"
            for name, (ours, promised) in sorted(self.attained.items())
        ]
        lines += [f"  not measured: {', '.join(self.unmeasured)} (see the model's own tests)"] if self.unmeasured else []
        lines += [f"  moved less than by the kept pairs: {', '.join(self.slower)}"] if self.slower else []
        lines += [f"  {v.unit} {v.party}: {v.where}: {v.what}" for v in self.violations[:10]]
        return "\n".join(lines)


# --- Replay ----------------------------------------------------------------------------------------------------------------
# Replay a study on neighbouring data with the noise frozen: what moves, and never more than declared.
#
# The requests of a recorded run are put again to parties whose data differ in one unit. With equal noise the difference of two
# releases is the difference of two statistics, so it can be held against the declared sensitivity exactly. Everything that is not
# a release must not move at all: shapes, the order of releases, public fields, refusals. Conditioning on the recorded
# requests is what adaptive composition asks for: a coordinator is a pure function of replies that are already private.
#
# The neighbours are those of :mod:`unpooled.audit.neighbours`, and a search from the farthest of every release (:mod:`unpooled.audit.neighbours`); under
# every unit that the plan prices. What must count as the same value must move nothing at all (:mod:`unpooled.audit.neighbours`). Vectors, parts of totals, choices and minimisers are measured (:mod:`unpooled.audit.stage`), each against its own bound; and all
# releases that one neighbour moved, composed, against what the whole plan states, which no bound of a single release can show.

#: Relative slack for the last bits of a norm, nothing more; and for minimisers, whose privacy loss takes difference quotients.
_ROUNDING, _QUOTIENTS = 1e-9, 1e-3
#: The part of a bound that solvers and difference quotients may move for nothing.
_SAME = 1e-2


def replay(
    model: Model,
    study: Study,
    tables: Tables,
    *,
    registry: Callable[[str], Model],
    rounds: int = 20,
    seed: int = 0,
    pairs: Pairs | None = None,
) -> Report:
    """Audit one study over these tables; ``rounds`` is the number of random neighbours and of search steps; ``pairs`` of earlier audits come first."""
    world = _World(model, model.compile(study), registry)
    rng = np.random.default_rng(seed)
    plan, report = world.plan, world.report
    if pairs is not None:
        report.pairs = pairs.copied()
        _again(world, tables, pairs)
    for at in world.rows(tables):
        _look(world, tables, at, rng, rounds)
        _same(world, tables, at)
    moved = {(party, name) for (_, party, name), ratio in report.largest.items() if ratio}
    report.unmeasured = [f"{r.party}.{r.name}" for r in plan.releases if (r.party, r.name) not in moved]
    return report


def _look(world: _World, tables: Tables, at: int, rng: np.random.Generator, rounds: int) -> None:
    """Compare the neighbours in one row, over all bases and under all units."""
    plan = world.plan
    for base, only in bases(plan, tables, rng, rounds, at):
        run = world.recorded(base)
        if run is None:
            continue
        for unit in (Unit.ATTRIBUTE,) if only else plan.units:
            tried = (
                [only] if only else neighbours(plan, base, unit, rng, rounds, at, labels=unit in world.model.covers_labels)
            )
            compare = partial(world.compare, run, unit=unit, at=at)
            found = searched(plan, compare, tried, unit, rng.spawn(1)[0], 0 if only else rounds)
            world.report.pairs.note(plan, tables, base, unit, at, found)
    for unit in plan.units:
        for base, few in alike(plan, tables, unit, Adjacency(plan.study.adjacency)):
            run = world.recorded(base)
            if run is None:
                continue
            for changes in few:
                world.compare(run, changes, unit, at)


def _same(world: _World, tables: Tables, at: int) -> None:
    """Compare data with values that must count the same, party by party: no release may move."""
    for card in world.plan.study.parties:
        for one, others, what in same_values(world.plan, card):
            first = with_values(tables[card.name], one, at)
            run = world.recorded({**tables, card.name: first})
            if run is None:
                continue
            for other in others:
                parts = world.compare_tables(run, {card.name: with_values(first, other, at)}, Unit.RECORD)
                if any(part > _SAME for part in parts.values()):
                    world.report.violations.append(Violation(Unit.RECORD, card.name, "the whole plan", what))


def _again(world: _World, tables: Tables, pairs: Pairs) -> None:
    """Replay the pairs of earlier audits, and note which of them move less than they did."""
    for pair in pairs.kept:
        if pair.plan in {"", world.plan.hash}:
            moved = _moved(world, tables, pair)
            world.report.slower += [name for name, part in pair.moved.items() if moved.get(name, 0.0) < STILL * part]


def _moved(world: _World, tables: Tables, pair: Pair, key: int = 0) -> dict[str, float]:
    """Return how far a pair moves each release, with the noise of the plan that it holds for, or else with that of this key."""
    seed = world.plan.study.simulation_seed if pair.plan else None
    plan = world.model.compile(msgspec.structs.replace(world.plan.study, simulation_seed=seed))
    same = replace(world, plan=plan, keys=FrozenKeys(bytes([key]) * 32))
    run = same.recorded(pair.base(tables))
    parts = {} if run is None else same.compare(run, pair.second, pair.unit, pair.at)
    return {f"{party}.{release}": part for (party, release), part in parts.items()}


def steady(
    model: Model, study: Study, tables: Tables, pairs: Pairs, *, registry: Callable[[str], Model], keys: int
) -> Pairs:
    """Return the pairs that move a release far enough under each of these many keys of noise; or with this plan's own noise, of this plan alone."""
    world, kept = _World(model, model.compile(study), registry), []
    for pair in pairs.kept:
        for plan in ("", world.plan.hash):
            asked = replace(pair, plan=plan)
            under = [_moved(world, tables, asked, key) for key in range(1 if plan else keys)]
            least = {name: min(moved.get(name, 0.0) for moved in under) for name in pair.moved}
            kept.append(replace(asked, moved={name: part for name, part in least.items() if part > FAR_ENOUGH}))
            if kept[-1].moved:
                break
    return Pairs([pair for pair in kept if pair.moved])


# --- comparison ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """A study as it was recorded on some data."""

    tables: Tables
    transcript: Transcript
    acts: dict[str, tuple[Act, ...]]
    #: Whether somebody was entrusted with values in the clear.
    entrusts: bool


@dataclass(slots=True)
class _World:
    """The parties of a study, with one identity and one noise in all worlds: so sealed fragments can be opened again."""

    model: Model
    plan: Plan
    registry: Callable[[str], Model]
    report: Report = field(default_factory=Report)
    keys: KeySource = field(default_factory=FrozenKeys.secret)
    #: Where the witnesses write, of the party that answers.
    _acts: dict[str, Acts] = field(default_factory=dict)
    _watched: Model | None = None
    #: (unit, releases that one neighbour moved) whose cost was held against the statement.
    _composed: set[tuple[Unit, bool, frozenset[tuple[str, str, int]]]] = field(default_factory=set)

    def party(self, name: str, table: Table, recorded: tuple[Act, ...] = ()) -> Party:
        """Return the party of this name over other data, which gets what was recorded from its mechanisms."""
        if self._watched is None:
            self._watched = watched(self.model, self._acts)
        model = self._watched
        ledger = Ledger.in_memory(root_key=sha256(name.encode()).digest())
        self._acts[name] = Acts(recorded)
        card = self.plan.study.member(name)
        rules = Policy.in_process()
        return Party(
            name, table, card, ledger, self.keys, rules, lambda w: model if w == self.model.name else self.registry(w)
        )

    def record(self, tables: Tables) -> _Run:
        """Run the study."""
        transcript = Transcript()
        people = {name: self.party(name, table) for name, table in tables.items()}
        drive(self.model, self.plan, in_process(people), transcript)
        replies = [
            open_body(
                open_envelope(entry.reply or b""), find_step(self.model, open_envelope(entry.request).step, self.plan).reply
            )
            for entry in transcript.entries
        ]
        fields = (getattr(reply, key) for reply in replies for key in reply.__struct_fields__)
        entrusts = any(
            isinstance(part, Entrusted) for value in fields for part in (value if isinstance(value, tuple) else (value,))
        )
        return _Run(tables, transcript, {name: tuple(self._acts[name].done) for name in tables}, entrusts)

    def recorded(self, tables: Tables) -> _Run | None:
        """Run the study; None, and a violation, where admissible data are refused."""
        try:
            return self.record(tables)
        except Exception as error:  # noqa: BLE001 - whatever ends a step depends on data
            words = f"a study on admissible data is refused ({type(error).__name__})"
            self.report.violations.append(Violation(Unit.RECORD, "any", "the whole study", words))
            return None

    def rows(self, tables: Tables) -> list[int]:
        """Return rows to audit: any one, but one of each public part of the rows where releases use a part only."""
        wanted = {(r.party, r.name) for r in self.plan.releases if r.exposure.part}
        found: list[int] = []
        run = self.record(tables) if wanted else None
        for at in range(min(tables[card.name].n_rows for card in self.plan.study.parties)):
            if run is None or not wanted:
                break
            gone = self.plan.study.adjacency == Adjacency.ZERO_OUT
            changes = {card.name: None if gone else corner(card, 1) for card in self.plan.study.parties}
            self.compare(run, changes, Unit.RECORD, at)
            moved = {(party, name) for (_, party, name), ratio in self.report.largest.items() if ratio} & wanted
            if moved:
                found.append(at)
                wanted -= moved
        return found or [0]

    def compare(self, run: _Run, changes: Mapping[str, Change], unit: Unit, at: int) -> dict[tuple[str, str], float]:
        """Put the recorded requests to the changed parties; note what moved; return the part of its declared bound for each release."""
        label = False
        changed: dict[str, Table] = {}
        for name, row in changes.items():
            label = unit is Unit.ATTRIBUTE and isinstance(row, dict) and set(row) <= set(self.plan.study.card(name).labels)
            kept = allowed(self.plan, name, row, unit)
            if kept != {}:
                changed[name] = changed_table(run.tables[name], kept, at)
        return self.compare_tables(run, changed, unit, label=label)

    def compare_tables(
        self, run: _Run, changed: Mapping[str, Table], unit: Unit, *, label: bool = False
    ) -> dict[tuple[str, str], float]:
        """Do the same for parties with these tables."""
        self.report.neighbours += 1
        moved: Counter[tuple[str, str]] = Counter()
        parts: dict[tuple[str, str], float] = {}
        people = {name: self.party(name, table, run.acts[name]) for name, table in changed.items()}
        for ours, answer in self._answers(run, people, unit):
            step = find_step(self.model, open_envelope(ours.request).step, self.plan)
            one, other = (open_body(open_envelope(reply), step.reply) for reply in (ours.reply or b"", answer))
            for key in step.reply.__struct_fields__:
                for what in differences(getattr(one, key), getattr(other, key)):
                    self.report.violations.append(Violation(unit, ours.to, f"{step.name}.{key}", what))
        joint: dict[tuple[str, int], list[tuple[str, Act, Act]]] = {}
        for name in run.tables if people and (run.entrusts or self.plan.joint) else people:
            rounds: Counter[str] = Counter()
            for act, acted in zip(run.acts[name], self._acts[name].done, strict=False):  # a refused neighbour draws less
                if isinstance(act.mechanism, FieldGaussian):
                    joint.setdefault((act.release, rounds[act.release]), []).append((name, act, acted))
                    rounds[act.release] += 1
                    continue
                # Of a party whose own data did not change, an equal minimiser at equal noise is that of an equal objective.
                still = name not in people and act.perturbation is not None and np.array_equal(act.gave, acted.gave)
                part = 0.0 if still else self._share(name, act, acted, unit, label=label)
                moved[name, act.release] += part > 0
                parts[name, act.release] = max(parts.get((name, act.release), 0.0), part)
        for (release, _), shares in joint.items():
            party, shared, theirs = _opened(shares)
            part = self._share(party, shared, theirs, unit, label=label)
            moved[party, release] += part > 0
            parts[party, release] = max(parts.get((party, release), 0.0), part)
        self._compose(moved, unit, label=label)
        return parts

    def _answers(self, run: _Run, people: dict[str, Party], unit: Unit) -> Iterator[tuple[Exchanged, bytes]]:
        """Yield the recorded exchanges, each with the answer from the neighbouring data.

        The recorded requests are put to the changed parties. What a trusted coordinator was entrusted with is no release, though, and goes
        on into its requests: such a study runs again as a whole, with the same releases.
        """
        if (run.entrusts or self.plan.joint) and people:
            everybody = {
                name: people.get(name) or self.party(name, table, run.acts[name]) for name, table in run.tables.items()
            }
            transcript = Transcript()
            try:
                drive(self.model, self.plan, in_process(everybody), transcript)
            except Exception as error:  # noqa: BLE001 - whatever ends a step depends on data
                words = f"the neighbour is refused ({type(error).__name__})"
                self.report.violations.append(Violation(unit, "any", "the whole study", words))
            for ours, theirs in zip(run.transcript.entries, transcript.entries, strict=False):
                yield ours, theirs.reply or b""
            return
        refused: set[str] = set()
        for entry in run.transcript.entries:
            if entry.to not in people or entry.to in refused:
                continue
            try:
                answer = people[entry.to].answer(entry.request)
            except Exception as error:  # noqa: BLE001 - whatever ends a step depends on data
                step = open_envelope(entry.request).step
                words = f"the neighbour is refused ({type(error).__name__})"
                self.report.violations.append(Violation(unit, entry.to, step, words))
                refused.add(entry.to)
                continue
            yield entry, answer

    def _share(self, party: str, ours: Act, theirs: Act, unit: Unit, *, label: bool) -> float:
        """Return the movement of a release, as a part of what the plan declares; note it, and a violation beyond 1."""
        if ours.release != theirs.release:
            self.report.violations.append(Violation(unit, party, ours.release, "which release is made depends on the data"))
            return 0.0
        if ours.gave.shape != theirs.gave.shape:
            return 0.0  # the messages say so
        ratio = share(ours, theirs, self._declared(party, ours.release, unit, label=label))
        if ratio is None:
            return 0.0
        key = (unit, party, ours.release)
        self.report.largest[key] = max(self.report.largest.get(key, 0.0), ratio)
        if ratio > 1 + (_ROUNDING if ours.perturbation is None else _QUOTIENTS):
            what = f"moved {ratio:.4f} times the declared bound"
            self.report.violations.append(Violation(unit, party, ours.release, what))
        return ratio

    def _declared(self, party: str, name: str, unit: Unit, *, label: bool) -> Event:
        release = self.plan.release(party, name)
        return (release.exposure.label or NO_COST) if label else release.event(unit)

    def _compose(self, moved: Counter[tuple[str, str]], unit: Unit, *, label: bool) -> None:
        """Compose the movements of one neighbour in all of its releases, and compare them with the statement."""
        counts = frozenset((party, name, count) for (party, name), count in moved.items() if count)
        if (unit, label, counts) in self._composed:
            return
        self._composed.add((unit, label, counts))
        events = [
            replace(event, count=event.count * count)
            for party, name, count in counts
            if (event := self._declared(party, name, unit, label=label)).kind is not Kind.UNBOUNDED
        ]
        delta = self.plan.study.delta
        cost, stated = Composition(events).epsilon(delta), self.plan.epsilon(delta, unit)
        if cost > stated * (1 + _ROUNDING):
            what = f"one neighbour moves releases that cost {cost:.4g} together; the plan states {stated:.4g}"
            self.report.violations.append(Violation(unit, "all", "the whole plan", what))


def _opened(shares: list[tuple[str, Act, Act]]) -> tuple[str, Act, Act]:
    """Return the totals of all members' shares in both worlds, as one act of the first member that has rows."""
    party, one, other = shares[0]
    ours, theirs = total_of([act.gave for _, act, _ in shares]), total_of([acted.gave for _, _, acted in shares])
    return party, replace(one, gave=ours), replace(other, gave=theirs)


__all__ = ["Report", "differences", "replay", "steady"]
