"""The oracle of whole studies: it attains what one person loses in a study, or in several under one budget, and holds that against every promise.

An audit of one release, one plan or one party sees no fault between parts that are each right. The oracle plays a whole program twice: on data D,
and on D' that differ in all of a person's rows, at every party that may hold them. The first time it records what every mechanism was given. The
second time each mechanism meets the same noise, and hands out what it handed out before: so requests, later studies, and priors that come from
earlier fits are the same in both worlds, and the difference of two statistics is the loss of that release under the condition on which
adaptive composition rests. All differences together, each in the metric of its own noise, composed as they were drawn, are what this person
attained. Nobody may have promised less:

* the statement of a study, or the balance of a budget, at every delta (:class:`Promise`);
* the ledger of every party after every reply: of what that party released, and of column-split studies of what all did.

What is no release must be the same in both worlds: studies, public fields, lengths of messages, refusals.

The oracle takes scales of noise from the mechanisms, so it is blind to noise that is too small (:mod:`unpooled.audit.presence` measures draws), and
to attacks by members who do not follow the protocol.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.audit.account import audit_account
from unpooled.audit.neighbours import read_file, write_file
from unpooled.audit.orders import audit_orders
from unpooled.audit.presence import audit_noise
from unpooled.audit.replay import differences, replay, steady
from unpooled.audit.stage import Acts, FrozenKeys, Violation, share, total_of, watched
from unpooled.audit.transcripts import audit_sealed, audit_transcript
from unpooled.errors import UnpooledError, UsageError
from unpooled.estimation.running import run, run_by
from unpooled.models import load
from unpooled.privacy.accounting import Composition
from unpooled.privacy.events import UNBOUNDED, Kind
from unpooled.privacy.ledger import Entries, Ledger
from unpooled.privacy.mechanisms import Contribution, DistributedGaussian, FieldGaussian
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import Card
from unpooled.privacy.table import BoundedTable, NoRows
from unpooled.privacy.unit import Adjacency, Scope, Unit
from unpooled.protocol.conversation import find_step
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import LocalRun, Outcome, drive
from unpooled.protocol.messages import Disclosed, Entrusted, open_body, open_envelope
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript
from unpooled.study.made_up import made_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from unpooled.audit.replay import Report
    from unpooled.audit.stage import Act
    from unpooled.estimation.running import Asked
    from unpooled.privacy.budget import Budget, FitClaim
    from unpooled.privacy.events import Event
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.messages import Ask, Dropped
    from unpooled.protocol.registry import Model

#: The deltas at which curves are compared.
DELTAS = (1e-3, 1e-5, 1e-8)
#: Rounding of sums of float64 on the way.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Promise:
    """A promise about one unit: at every delta an epsilon, for a person who is in these runs of a program (numbered as they were made)."""

    name: str
    unit: Unit
    #: From delta to the epsilon that is promised.
    curve: Callable[[float], float]
    runs: tuple[int, ...]
    #: The delta of its own, at which a share of it is reported.
    delta: float = 1e-5

    @classmethod
    def of_plan(cls, name: str, plan: Plan, runs: Iterable[int]) -> Promise:
        """Return the promise of a plan with everything that its inputs cost, which its statement prints."""
        unit = Unit(plan.study.unit)
        return cls(name, unit, lambda delta: plan._together(unit).epsilon(delta), tuple(runs), plan.study.delta)  # noqa: SLF001

    @classmethod
    def of_budget(cls, name: str, budget: Budget, runs: Iterable[int]) -> Promise:
        """Return the balance of a budget, as its account has it by now."""
        spent = budget._open().composition(budget.unit, Scope.PERSON)  # noqa: SLF001
        return cls(name, Unit(budget.unit), spent.epsilon, tuple(runs), budget.delta)


@dataclass
class Attained:
    """The loss of one person in a whole program, as a part of every promise, and everything that broke one."""

    #: Of each claim: the epsilon that was attained at its delta, and the one that was promised.
    claims: dict[str, tuple[float, float]] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    #: The number of releases that the change moved, and of those whose movement cannot be measured.
    moved: int = 0
    unmeasured: int = 0

    @property
    def largest(self) -> float:
        """Return the largest attained part of a promise."""
        return max((ours / promised for ours, promised in self.claims.values() if 0 < promised < math.inf), default=0.0)


@dataclass
class _Run:
    """One study as it was run in the first world."""

    plan: Plan
    tables: Mapping[str, Table]
    views: Mapping[str, Mapping[str, Table]]
    acts: dict[str, tuple[Act, ...]]
    replies: list[tuple[str, bytes, bytes]]
    #: In the second world: the events that the change is part of, of every party, and of all parties together.
    lost: list[Event] = field(default_factory=list)


class Oracle:
    """Plays one program in two worlds. A program calls fits, functions and studies of this process, and returns its promises."""

    def __init__(self, program: Callable[[], Sequence[Promise]], cut: int | None = None) -> None:
        """``cut``: every study is interrupted after this many replies, and resumed from its transcript by parties that were started anew."""
        self._cut = cut
        self._runs: list[_Run] = []
        self._models: dict[str, tuple[Model, dict[str, Acts]]] = {}
        with run_by(self._first):
            self.claims = tuple(program())

    @property
    def releases(self) -> int:
        """Return the number of releases that the program made."""
        return sum(len(acts) for run in self._runs for acts in run.acts.values())

    @property
    def runs(self) -> int:
        """Return the number of studies that the program ran."""
        return len(self._runs)

    def attained(self, program: Callable[[], Sequence[Promise]]) -> Attained:
        """Play the program on other data of one person, and return what this person attained of every promise."""
        found, at = Attained(), iter(range(len(self._runs)))
        with run_by(lambda asked: self._again(asked, next(at), found)):
            try:
                program()
            except StopIteration:
                found.violations.append(
                    Violation(Unit.RECORD, "any", "the program", "how many studies are run depends on the data")
                )
            except UnpooledError as error:
                words = f"the neighbour is refused ({type(error).__name__})"
                found.violations.append(Violation(Unit.RECORD, "any", "the program", words))
        for claim in self.claims:
            self._hold(claim, found)
        return found

    # --- two worlds

    def _first(self, asked: Asked) -> tuple[Plan, LocalRun]:
        """Run a study on D, and record it."""
        model, acts = self._watched(asked.model)
        plan = asked.model.compile(asked.study)
        number, replies = len(self._runs), list[tuple[str, bytes, bytes]]()
        draw = sha256(f"draw {number}".encode()).hexdigest()
        claim = None if asked.budget is None else asked.budget.claim(plan, draw)
        parties = self._parties(asked, model, asked.tables, {}, acts, number, claim)

        def noted(ask: Ask, request: bytes, answer: bytes) -> None:
            replies.append((ask.to, request, answer))

        outcome = replace(self._driven(model, model.compile(asked.study), parties, noted), draw=draw)
        entries = Entries(entry for party in parties.values() for entry in party.ledger.entries())
        self._runs.append(
            _Run(plan, asked.tables, asked.views or {}, {name: tuple(noted.done) for name, noted in acts.items()}, replies)
        )
        return plan.drawn(draw), LocalRun(outcome, entries, {name: party.keeper for name, party in parties.items()})

    def _again(self, asked: Asked, number: int, found: Attained) -> tuple[Plan, LocalRun]:
        """Run the same study on D', every release handed out as before; note what moved, and hold every ledger against it."""
        run, (model, acts) = self._runs[number], self._watched(asked.model)
        plan = asked.model.compile(asked.study)
        unit = Unit(plan.study.unit)
        note = partial(Violation, unit, "any", f"study {number + 1}")
        if plan.hash != run.plan.hash:
            found.violations.append(note("the plan depends on the data"))
        tables = {name: _neighbour(plan, run.tables[name], table) for name, table in asked.tables.items()}
        views = {
            party: {name: _neighbour(plan, run.views[party][name], table) for name, table in own.items()}
            for party, own in (asked.views or {}).items()
        }
        parties = self._parties(replace(asked, views=views), model, tables, run.acts, acts, number)
        met = iter(run.replies)
        ledgers = _Ledgers(run, acts, parties, found)

        def compared(ask: Ask, request: bytes, answer: bytes) -> None:
            to, first, before = next(met, ("", b"", b""))
            if (to, open_envelope(first).step if first else "") != (ask.to, open_envelope(request).step):
                found.violations.append(note("who is asked what depends on the data"))
                return
            step = find_step(model, ask.step, plan)
            ours, theirs = (open_body(open_envelope(reply), step.reply) for reply in (before, answer))
            for key in step.reply.__struct_fields__:
                one, other = getattr(ours, key), getattr(theirs, key)
                found.violations += [note(f"{step.name}.{key}: {what}") for what in differences(one, other)]
                if _handed_over(one, other):
                    ledgers.given.add(ask.to)
            ledgers.check(plan, ask.to)

        outcome = self._driven(model, model.compile(asked.study), parties, compared)
        outcome = replace(outcome, draw=sha256(f"draw {number}".encode()).hexdigest())
        run.lost = list(lost(plan, run.acts, {name: noted.done for name, noted in acts.items()}, unit, found))
        ledgers.end(plan)
        entries = Entries(entry for party in parties.values() for entry in party.ledger.entries())
        return plan.drawn(outcome.draw), LocalRun(outcome, entries, {name: party.keeper for name, party in parties.items()})

    def _driven(
        self, model: Model, plan: Plan, parties: dict[str, Party], noted: Callable[[Ask, bytes, bytes], None]
    ) -> Outcome:
        """Run a study over these parties, which are started anew where it is interrupted; each reply is noted."""
        transcript, left = Transcript(), [self._cut]
        started = dict(parties)

        def exchange(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
            answers: list[bytes | Dropped] = []
            for ask, request in batch:
                if left[0] is not None:
                    left[0] -= 1
                    if left[0] < 0:
                        left[0] = None
                        raise _CutError
                answers.append(started[ask.to].answer(request))
                noted(ask, request, answers[-1])  # type: ignore[arg-type]
            return answers

        try:
            return drive(model, plan, exchange, transcript)
        except _CutError:
            # The same ledgers and what is kept, and nothing that was in memory.
            started.update({name: replace(party, _plans={}, _shared={}) for name, party in parties.items()})
            return drive(model, plan, exchange, transcript)

    def _watched(self, model: Model) -> tuple[Model, dict[str, Acts]]:
        if model.name not in self._models:
            acts: dict[str, Acts] = {}
            self._models[model.name] = watched(model, acts), acts
        found, acts = self._models[model.name]
        acts.clear()
        return found, acts

    def _parties(
        self,
        asked: Asked,
        model: Model,
        tables: Mapping[str, Table],
        recorded: Mapping[str, tuple[Act, ...]],
        acts: dict[str, Acts],
        number: int,
        claim: FitClaim | None = None,
    ) -> dict[str, Party]:
        parties = {}
        for card in asked.study.members:
            acts[card.name] = Acts(recorded.get(card.name, ()), entrusts=bool(recorded))
            root = (asked.roots or {}).get(card.name) or sha256(f"{number} {card.name}".encode()).digest()
            ledger = Ledger.in_memory(root_key=root)
            keeper = (asked.keepers or {}).get(card.name) or MemoryKeeper()
            table = tables[card.name] if isinstance(card, Card) else tables.get(card.name, NoRows())
            registry = lambda name: model if name == model.name else (asked.registry or load)(name)  # noqa: E731
            views = (asked.views or {}).get(card.name, {})
            parties[card.name] = Party(
                card.name, table, card, ledger, FrozenKeys(root), Policy.in_process(), registry, keeper, claim, views
            )
        return parties

    # --- what was promised

    def _hold(self, claim: Promise, found: Attained) -> None:
        """Hold what was lost in the runs of a promise against it."""
        events = [event for number in claim.runs for event in self._runs[number].lost]
        composed = Composition(events)
        for delta in {*DELTAS, claim.delta}:
            ours, promised = composed.epsilon(delta), claim.curve(delta)
            if delta == claim.delta:
                found.claims[claim.name] = (ours, promised)
            if ours > promised * (1 + _ROUNDING) + 1e-12:
                what = f"one person attains epsilon = {ours:.4g} at delta = {delta:g}, and {promised:.4g} is promised"
                found.violations.append(Violation(claim.unit, "all", claim.name, what))


class _CutError(Exception):
    """Interrupts a study."""


class _Ledgers:
    """The ledgers of a study's parties, held against what the change has moved so far."""

    def __init__(self, run: _Run, acts: Mapping[str, Acts], parties: Mapping[str, Party], found: Attained) -> None:
        self._run, self._acts, self._parties, self._found = run, acts, parties, found
        self._seen = 0
        #: Parties that gave somebody values of the person without noise.
        self.given: set[str] = set()

    def check(self, plan: Plan, party: str) -> None:
        """Look at the party's ledger after its reply, where something was drawn since the last time."""
        drawn = sum(len(noted.done) for noted in self._acts.values())
        if drawn > self._seen:
            self._seen = drawn
            self._hold(plan, [party])

    def end(self, plan: Plan) -> None:
        """Look at the ledgers of all parties."""
        self._hold(plan, [card.name for card in plan.study.parties])
        unit = Unit(plan.study.unit)
        for name in sorted(self.given):
            if not self._parties[name].ledger.composition(unit, Scope.PARTY).epsilon(DELTAS[1]):
                what = "values of the person went out without noise, and nothing was debited"
                self._found.violations.append(Violation(unit, name, "the ledger", what))

    def _hold(self, plan: Plan, names: Sequence[str]) -> None:
        unit = Unit(plan.study.unit)
        so_far = {name: noted.done for name, noted in self._acts.items()}
        for name in names:
            if not isinstance(plan.study.member(name), Card) or not so_far[name]:
                continue  # who has released nothing yet cannot know what others did
            ledger: Ledger = self._parties[name].ledger
            own = Composition(list(lost(plan, self._run.acts, {name: so_far[name]}, unit)))
            self._compare(plan, name, own, ledger, unit, Scope.PARTY)
            if plan.split.shares_people:
                every = Composition(list(lost(plan, self._run.acts, so_far, unit)))
                self._compare(plan, name, every, ledger, unit, Scope.PERSON)

    def _compare(self, plan: Plan, name: str, lost_: Composition, ledger: Ledger, unit: Unit, scope: Scope) -> None:
        said = ledger.composition(unit, scope)
        for delta in {DELTAS[1], plan.study.delta or DELTAS[1]}:
            ours, debited = lost_.epsilon(delta), said.epsilon(delta)
            if ours > debited * (1 + _ROUNDING) + 1e-12:
                what = f"epsilon = {ours:.4g} was attained at delta = {delta:g}, and the ledger ({scope}) has {debited:.4g}"
                self._found.violations.append(Violation(unit, name, "the ledger", what))


# --- a study as its file says it ---------------------------------------------------------------------------------------------------


def must_release(model: Model, asked: Study) -> None:
    """Refuse to audit a study that releases nothing."""
    plan = model.compile(asked)
    if plan.hides:
        msg = (
            "a hidden link releases noisy sizes to its helper alone, so there is nothing published to attack: `unpooled plan` says who learns what, and docs/linkage.md "
            "which attacks its tests make"
        )
        raise UsageError(msg)
    if not plan.releases:
        msg = "this study releases nothing with noise, so there is no claim to attack: `unpooled plan` says who learns what without noise"
        raise UsageError(msg)


def audit_whole(asked: Study, *, rows: int = 40, rounds: int = 4, seed: int = 0) -> Attained:
    """Return the most that one person attains of a study's promises, on made-up data, and whatever broke one.

    The person's rows change at every party at once: all columns of a column-split study, all rows of a household, one row at one party of others.
    """
    model = load(asked.row)
    must_release(model, asked)
    study, tables = made_up(model, asked, rows, seed)
    plan, rng = model.compile(study), np.random.default_rng(seed)
    labels = study.unit == Unit.RECORD and Unit.RECORD in model.covers_labels
    together = plan.split.shares_people or study.unit == Unit.HOUSEHOLD
    people = [study.parties] if together else [(card,) for card in study.parties]
    names = dict.fromkeys(column.name for card in study.parties for column in card.columns)
    #: What changes: everything, or one value wherever it is held.
    values: list[tuple[str, ...]] = [(name,) for name in names] if study.unit == Unit.ATTRIBUTE else [tuple(names)]

    def over(held: Mapping[str, Table]) -> Sequence[Promise]:
        run(model, study, held, registry=load)
        return [Promise.of_plan("the statement", plan, [0])]

    worst = Attained()
    for cards in people:
        first = {
            **tables,
            **{card.name: _person(tables[card.name], card, 0.0, tuple(names), labels=labels) for card in cards},
        }
        oracle = Oracle(partial(over, first))
        for end, changed in itertools.product((1.0, *rng.uniform(0, 1, rounds).tolist()), values):
            found = oracle.attained(
                partial(over, {**first, **{c.name: _person(first[c.name], c, end, changed, labels=labels) for c in cards}})
            )
            worst.violations += found.violations
            worst.moved, worst.unmeasured = max(worst.moved, found.moved), max(worst.unmeasured, found.unmeasured)
            for name, (ours, promised) in found.claims.items():
                worst.claims[name] = max(ours, worst.claims.get(name, (0.0, 0.0))[0]), promised
    return worst


def _person(table: Table, card: Card, end: float, names: tuple[str, ...], *, labels: bool) -> Table:
    """Return the table in which these values of the first person, and labels that a row's promise covers, are so far from their lower ends."""
    row: dict[str, Any] = {}
    for column in (column for column in card.columns if column.name in names):
        if column.categories is not None:
            row[column.name] = column.categories[round(end * (len(column.categories) - 1))]
        else:
            low, high = column.range
            row[column.name] = low + end * (high - low)
    for label in card.labels if labels else ():
        ends = sorted(set(table[label].tolist()))  # those that occur: a label has no range of its own
        row[label] = ends[round(end) * (len(ends) - 1)]
    return table.exchange([row] * table.household[1]) if isinstance(table, BoundedTable) else table.replace(0, row)


# --- losses ------------------------------------------------------------------------------------------------------------------------


def lost(
    plan: Plan,
    first: Mapping[str, Sequence[Act]],
    second: Mapping[str, Sequence[Act]],
    unit: Unit,
    found: Attained | None = None,
) -> Iterable[Event]:
    """Yield the event that each release was for the person whose rows differ between two worlds; of totals, one for all parties' parts.

    An attacker who sees a total cannot tell the parties' parts apart, so their movements add up as vectors before they are measured. What is sealed for
    a trusted aggregator is in the total that it releases, and counts by itself only where the aggregator's acts are not asked for.
    """
    aggregated = len(second) == len(first)
    totals: dict[tuple[str, int], list[tuple[str, Act, Act]]] = defaultdict(list)
    for party, done in second.items():
        counted: dict[str, int] = defaultdict(int)
        for one, other in zip(first[party], done, strict=False):
            number = counted[one.release]
            counted[one.release] += 1
            if one.release != other.release or one.gave.shape != other.gave.shape:
                if found is not None:
                    found.violations.append(Violation(unit, party, one.release, "which release is made depends on the data"))
            elif isinstance(one.mechanism, Contribution) and aggregated:
                continue
            elif isinstance(one.mechanism, DistributedGaussian | Contribution):
                totals[one.release, number].append((party, one, other))
            else:
                yield from _event(plan, party, one, other, unit, found)
    for parts in totals.values():
        party, one, other = parts[0]
        ours, theirs = ([act.gave for act in acts] for acts in zip(*((a, b) for _, a, b in parts), strict=True))
        if isinstance(one.mechanism, FieldGaussian):
            if len(parts) < len(first):  # shares of a total modulo a prime are uniform: some of them tell nothing
                continue
            added = total_of(ours), total_of(theirs)
        else:
            added = np.sum(ours, axis=0), np.sum(theirs, axis=0)
        yield from _event(plan, party, replace(one, gave=added[0]), replace(other, gave=added[1]), unit, found)


def _event(plan: Plan, party: str, one: Act, other: Act, unit: Unit, found: Attained | None) -> Iterable[Event]:
    """Yield what a release was for the person; nothing where it did not move, or where nobody can measure it."""
    declared = plan.release(party, one.release).event(unit)
    if declared.kind is Kind.UNBOUNDED:
        moved = not np.array_equal(one.gave, other.gave)
        if found is not None:
            found.moved += moved
        if moved:
            yield UNBOUNDED
        return
    part = share(one, other, declared)
    if part == math.inf and not declared.value:
        if found is not None:
            found.moved += 1
        yield UNBOUNDED
        return
    if part is None:
        if found is not None:
            found.unmeasured += 1
        return
    if found is not None:
        found.moved += part > 0
    if part > 0:
        tails = tuple((count, mu * part) for count, mu in declared.tails)
        # Flooring and the samplers' distance are charged to everybody who is in the release, moved far or not.
        yield replace(declared, value=declared.value * part, tails=tails)


def _handed_over(ours: Any, theirs: Any) -> bool:  # noqa: ANN401 - a field of two replies
    """Return True if a field that is handed over as it is holds other values in the other world."""
    if isinstance(ours, tuple):
        return any(_handed_over(one, other) for one, other in zip(ours, theirs, strict=False))
    return isinstance(ours, Entrusted | Disclosed) and ours.values != theirs.values


def _neighbour(plan: Plan, one: Table, other: Table) -> Table:
    """Return the neighbouring table: the other one, or under zero-out the first one without the rows that differ."""
    if plan.study.adjacency != Adjacency.ZERO_OUT or one is other or one.digest == other.digest:
        return other
    if plan.study.unit == Unit.ATTRIBUTE:
        return one  # a value may only go missing, where that is allowed at all: replays of single releases try it
    if isinstance(one, BoundedTable):
        return one.exchange([])  # of the first id, which is the one that a program changes
    changed = _differ(one, other)
    return one.omit(changed.pop()) if changed else one


def _differ(one: Table, other: Table) -> set[int]:
    """Return the rows in which two tables of the same columns and length differ."""
    rows: set[int] = set()
    for name in one.names:
        ours, theirs = one[name], other[name]
        same = ours == theirs
        if ours.dtype.kind == "f":
            same |= np.isnan(ours) & np.isnan(theirs)
        rows |= set(np.flatnonzero(~np.asarray(same, dtype=bool)).tolist())
    return rows


# --- Whole -----------------------------------------------------------------------------------------------------------------
# The audit of a study as a whole: everything that needs no attacks, in one call, for the command line, the console and the dossier.


def audit_study(
    asked: Study, say: Callable[[str], None], *, rows: int = 40, rounds: int = 10, pairs: Path | None = None
) -> Report:
    """Return what was found when the study was replayed on made-up data of at most ``rows`` rows a party; ``say`` is given each thing it does.

    Needs no data. ``rounds`` is the number of random neighbours, and of steps of the search for worse ones. ``pairs`` is a
    file of pairs that earlier audits kept for a study of this plan: they are replayed first, and farther ones are written into it.
    """
    model = load(asked.row)
    must_release(model, asked)
    fitted, tables = made_up(model, asked, rows)
    say(f"replaying model {asked.model!r} on neighbouring data sets")
    plan = model.compile(fitted).hash
    kept = None if pairs is None else read_file(pairs, plan)
    report = replay(model, fitted, tables, registry=load, rounds=rounds, pairs=kept)
    if pairs is not None:
        write_file(pairs, plan, steady(model, fitted, tables, report.pairs, registry=load, keys=2))
    say("cutting it after every message, and asking in other orders")
    report.violations += audit_account(model, fitted, tables, registry=load)
    say("asking once more than planned, out of order, and over data that changed")
    report.violations += audit_orders(model, fitted, tables, registry=load)
    say("looking at every byte that leaves a party")
    report.violations += audit_sealed(model, fitted, tables, registry=load)
    _, others = made_up(model, asked, rows, seed=1)
    report.violations += audit_transcript(model, fitted, tables, others, registry=load)
    say("holding its noise against the planned laws, under many keys")
    report.violations += audit_noise(model, fitted, tables, registry=load)
    return report


__all__ = ["Attained", "Oracle", "Promise", "lost"]
