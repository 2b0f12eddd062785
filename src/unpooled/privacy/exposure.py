"""Exposure: which people's rows a release depends on, and its cost in a plan, in a party's ledger, and over all parties of a study.

A plan's releases are not all about everybody. Some use one public part of the rows, some a few of many columns, some move when a
label does. :class:`Exposure` says so for one release, :class:`Releases` holds those of a study. Everything that follows from it is worked out here and nowhere else:

* :func:`neighbours` lists what may change between two neighbouring data sets, as the events that such a change is part of. The
  dearest of them is the guarantee of the plan;
* :meth:`Exposure.charge` is what a ledger debits for one release, whatever was released before it;
* :func:`account` adds up several plans. A row is in one part of each plan's rows, nobody outside knows in which: all choices
  count, and the worst one is the answer.

The invariant that ties them (``tests/unit/test_exposure.py``): after every prefix, in every order, a ledger says at least what was
released so far; after a completed study it says what the statement says.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, assert_never

from unpooled.errors import UsageError
from unpooled.privacy.accounting import Composition
from unpooled.privacy.events import NO_COST, UNBOUNDED, Event, Kind
from unpooled.privacy.unit import ROWWISE, Scope, Split, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from unpooled.privacy.events import Tail
    from unpooled.privacy.mechanisms import Mechanism
    from unpooled.privacy.study import Study

#: What stands between the name of an analysis and that of its own part, release or step.
BETWEEN = ": "
#: More choices of parts than this are not tried one by one: of the other plans the dearest part counts in every respect, which is no
#: less than anybody pays, and no more where one part is the dearest in all of them (Theorem F.22).
_CHOICES = 64


@dataclass(frozen=True, slots=True)
class Exposure:
    """Which people's rows a planned release depends on, and how often it uses each row."""

    #: The public part of the rows that it uses. Parts are disjoint and fixed without the values. Empty: all rows. Of several analyses each may
    #: part the rows in its own way: the words before :data:`BETWEEN` say whose part it is.
    part: str = ""
    #: The most repetitions that one value of a person is part of (it is in one of many released columns). None: all of them.
    per_value: int | None = None
    #: How many releases of this name all parties make together, where that is fewer than each may make alone. 0: no such limit.
    together: int = 0
    #: What one label costs here, where the guarantee for one value covers labels. None: no label moves it, or labels are not covered.
    label: Event | None = None
    #: Whether a party makes this release in place of others of the same step, one of them and no more.
    alternative: bool = False

    def times(self, unit: Unit, count: int) -> int:
        """Return the number of repetitions, out of ``count``, that one unit is part of."""
        return count if self.per_value is None or unit is not Unit.ATTRIBUTE else min(count, self.per_value)

    @property
    def ordered(self) -> bool:
        """Return True if repetitions must be made in order, because only the first ones are debited."""
        return self.per_value is not None

    def charge(self, event: Event, unit: Unit, made: int) -> Event:
        """Return the event that the ledger debits to this unit for a release of this cost when ``made`` of its repetitions were made before it.

        One value is part of at most ``per_value`` repetitions, so the first ``per_value`` are debited, for every value. A label counts as a value.
        """
        if self.times(unit, made + 1) <= made:
            return NO_COST
        if unit is Unit.ATTRIBUTE and self.label is not None:
            return dearer(event, self.label)
        return event


def dearer(one: Event, other: Event) -> Event:
    """Return the larger of two events of one kind: what covers both of them."""
    if one.kind is not other.kind or one.count != other.count:
        raise UsageError("a label and a value must cost the same kind of event in one release")
    if _heavier(one.tails, other.tails):
        tails = one.tails
    elif _heavier(other.tails, one.tails):
        tails = other.tails
    else:
        raise UsageError("a label and a value must cost tails of which one bounds the other")
    return Event(one.kind, max(one.value, other.value), one.count, max(one.total_variation, other.total_variation), tails)


def _heavier(one: Tail, other: Tail) -> bool:
    """Return True if one tail is nowhere below the other: for every size, it has at least the same number of losses of that size or more."""

    def at_least(tail: Tail, m: float) -> int:
        return sum(n for n, mu in tail if mu >= m)

    return all(at_least(one, m) >= at_least(other, m) for _, m in other)


def repeated(event: Event, times: int) -> Event:
    """Return this event with its count multiplied by ``times``."""
    return replace(event, count=event.count * times)


@dataclass(frozen=True)
class Worst:
    """Several compositions of which one holds for a given person, nobody knows which: what is proved holds for all of them."""

    compositions: tuple[Composition, ...]

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon proved at this delta."""
        return max(composition.epsilon(delta) for composition in self.compositions)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta proved at this epsilon."""
        return max(composition.delta(epsilon) for composition in self.compositions)

    def failure(self, epsilon: float) -> float:
        """Return a bound on the probability that the loss exceeds epsilon."""
        return max(composition.failure(epsilon) for composition in self.compositions)

    def within(self, epsilon: float, delta: float) -> bool:
        """Return True if (epsilon, delta) is proved; a ledger checks this before it debits."""
        return all(composition.within(epsilon, delta) for composition in self.compositions)


# --- the releases of a plan --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Release:
    """One planned release: which party makes it, in which step, by which mechanism, how often, and of whom it is a function."""

    name: str
    party: str
    step: str
    mechanism: Mechanism
    count: int = 1
    exposure: Exposure = Exposure()

    def __repr__(self) -> str:
        times = f" x {self.count}" if self.count > 1 else ""
        return f"Release({self.name}{times} of {self.party}: {self.mechanism.name}, {self.size} numbers)"

    @property
    def size(self) -> int:
        """Return the number of values that one release publishes."""
        return self.mechanism.size

    @property
    def scale(self) -> float | None:
        """Return the scale of its noise; None where it is a closed form of values known only during the run."""
        return self.mechanism.scale

    def sensitivity(self, unit: Unit | str = Unit.RECORD) -> float | None:
        """Return the sensitivity to one unit, in the units of ``scale``; None for a unit that the release does not price."""
        unit = Unit.parse(unit)
        return self.mechanism.sensitivity(unit) if self.mechanism.prices(unit) else None

    def event(self, unit: Unit) -> Event:
        """Return the privacy event of one release for one unit: unbounded for a unit that its mechanism does not price."""
        return self.mechanism.event(unit) if self.mechanism.prices(unit) else UNBOUNDED


@dataclass(frozen=True)
class Releases:
    """The planned releases of a study, and what they cost together."""

    study: Study
    split: Split
    releases: tuple[Release, ...]

    @property
    def units(self) -> tuple[Unit, ...]:
        """Return the units for which it knows a price: households only where the study bounds how many of their rows count."""
        return (*ROWWISE, Unit.HOUSEHOLD) if self.study.unit == Unit.HOUSEHOLD else ROWWISE

    def release(self, party: str, name: str) -> Release:
        """Return the planned release of this name at this party."""
        for release in self.releases:
            if release.party == party and release.name == name:
                return release
        msg = f"the plan has no release {name!r} for party {party!r}"
        raise UsageError(msg)

    def cost(self, unit: Unit | str | None = None, party: str | None = None, scope: Scope = Scope.PERSON) -> Worst:
        """Return the largest cost of the plan to anybody, or to the people in one party's rows (by all parties, or by it alone)."""
        found = neighbours(self, Unit.parse(unit or self.study.unit), party, scope)
        return Worst(tuple(Composition(events) for events in found))

    def epsilon(self, delta: float, unit: Unit | str | None = None) -> float:
        """Return the smallest epsilon proved at this delta, for the study's unit or another one."""
        return self.cost(unit).epsilon(delta)

    def delta(self, epsilon: float, unit: Unit | str | None = None) -> float:
        """Return the smallest delta proved at this epsilon, for the study's unit or another one."""
        return self.cost(unit).delta(epsilon)


def neighbours(
    plan: Releases, unit: Unit, party: str | None = None, scope: Scope = Scope.PERSON
) -> tuple[tuple[Event, ...], ...]:
    """For everything that may change under this unit, the events it is part of; of people in one party's rows where it is named (Theorem F.8).

    Scope "person" counts the releases of all parties that know the person, "party" those of the named party alone.
    """
    match scope:
        case Scope.PERSON:
            releases = plan.releases
        case Scope.PARTY:
            releases = tuple(r for r in plan.releases if r.party == party)
        case _ as never:
            assert_never(never)
    changes = tuple(_changes(plan, unit, party))
    if plan.study.scattered and not plan.split.shares_people and party is None:
        return _scattered(plan, unit, changes)
    found: dict[tuple[Event, ...], None] = {}
    for change in changes:
        found |= dict.fromkeys(_moved(plan, releases, unit, *change))
    return tuple(found)


def _moved(
    plan: Releases, releases: Sequence[Release], unit: Unit, holders: frozenset[str], label: bool
) -> Iterator[tuple[Event, ...]]:
    """Yield the events of these releases that one change at these parties is part of: a tuple for every set of parts that the row can be in."""
    renamed = _renames(plan.study)
    moved = [r for r in releases if r.party in holders and (not label or renamed or r.exposure.label is not None)]
    # A row is in one part of the rows at every party, and in one part of every way in which analyses part them.
    for chosen in _choices({r.exposure.part for r in moved}):
        yield tuple(_events([r for r in moved if r.exposure.part in chosen], unit, label=label, renamed=renamed))


def _scattered(plan: Releases, unit: Unit, changes: Sequence[tuple[frozenset[str], bool]]) -> tuple[tuple[Event, ...], ...]:
    """List the changes where a row may be at another party in every analysis: one party of each, all of them where there are too many choices."""
    by_analysis: dict[str, list[Release]] = {}
    for release in plan.releases:
        by_analysis.setdefault(release.name.partition(BETWEEN)[0], []).append(release)
    found: dict[tuple[Event, ...], None] = {}
    for label in {label for _, label in changes}:
        ways = [
            dict.fromkeys(
                events for holders, told in changes if told is label for events in _moved(plan, own, unit, holders, label)
            )
            for own in by_analysis.values()
        ]
        if math.prod(len(way) for way in ways) > _CHOICES:
            ways = [{tuple(event for events in way for event in events): None} for way in ways]
        for chosen in itertools.product(*ways):
            found[tuple(event for events in chosen for event in events)] = None
    return tuple(found)


def _renames(study: Study) -> bool:
    """Return True if an analysis knows columns by other names: then one value may be a label in one analysis and a column in another."""
    return any(one.get("named") for one in study.contained)


def _cost(release: Release, unit: Unit, *, label: bool, renamed: bool) -> Event:
    """Return the event of one release for a changed label, where it depends on labels, or else for the unit; the dearer one where it may be either."""
    if not label or release.exposure.label is None:
        return release.event(unit)
    return dearer(release.event(unit), release.exposure.label) if renamed else release.exposure.label


def _partition(part: str) -> str:
    """Return the name of the analysis whose way to part the rows this is; empty in a study of one."""
    return part.rpartition(BETWEEN)[0]


def _choices(parts: Iterable[str]) -> Iterator[frozenset[str]]:
    """Yield the sets of parts that one row can be in: one of every partition; all parts at once, which is no less, where there are too many sets."""
    ways: dict[str, list[str]] = {}
    for part in sorted(set(parts) - {""}):
        ways.setdefault(_partition(part), []).append(part)
    if math.prod(len(way) for way in ways.values()) > _CHOICES:
        yield frozenset({"", *(part for way in ways.values() for part in way)})
        return
    for chosen in itertools.product(*ways.values()):
        yield frozenset({"", *chosen})


def _changes(plan: Releases, unit: Unit, party: str | None) -> Iterator[tuple[frozenset[str], bool]]:
    """Yield the possible changes between neighbouring data: the parties at which a change happens together, and True if it is a label.

    A record of a column-split study is at every party at once, one of its values at every party that declares a column of this name, its
    label wherever a release depends on labels. A row of a row-split study is at one party, and everything of it. A household may be at
    several: every release is priced as if all its rows were there, which is no less than what they lose together (Theorem F.19).
    """
    cards = [card for card in plan.study.parties if party in (None, card.name)]
    everywhere = frozenset(card.name for card in plan.study.parties)
    match unit:
        case _ if not plan.split.shares_people:
            groups = [frozenset({card.name}) for card in cards]
        case Unit.RECORD | Unit.HOUSEHOLD:
            groups = [everywhere]
        case Unit.ATTRIBUTE:
            holders: dict[str, set[str]] = {}
            for card in plan.study.parties:
                for column in card.columns:
                    holders.setdefault(_value(plan.study, column.name), set()).add(card.name)
            mine = {_value(plan.study, column.name) for card in cards for column in card.columns}
            # Where no columns are declared, as of a link, ids are the values.
            groups = sorted({frozenset(held) for name, held in holders.items() if name in mine}, key=sorted) or [everywhere]
        case _ as never:
            assert_never(never)
    for group in groups:
        yield group, False
    if unit is Unit.ATTRIBUTE and any(r.exposure.label is not None for r in plan.releases):
        for group in [everywhere] if plan.split.shares_people else groups:
            yield group, True


def _value(study: Study, column: str) -> str:
    """Return the value that a column holds by its first name, where an analysis knows it by another one."""
    return column.rpartition(BETWEEN)[2] if _renames(study) else column


def _events(releases: Sequence[Release], unit: Unit, *, label: bool, renamed: bool = False) -> Iterator[Event]:
    """The costs of these releases to one change; those that are limited together are counted up to their limit, the dearest first."""
    limited: dict[str, list[tuple[Event, Release]]] = {}
    if len({release.party for release in releases}) == 1:  # of alternatives one party makes the dearest of a step at most
        steps: dict[str, list[Event]] = {}
        for release in releases:
            if release.exposure.alternative:
                steps.setdefault(release.step, []).append(_cost(release, unit, label=label, renamed=renamed))
        yield from (reduce(dearer, events) for events in steps.values())
        releases = [release for release in releases if not release.exposure.alternative]
    for release in releases:
        event = _cost(release, unit, label=label, renamed=renamed)
        if release.exposure.together:
            limited.setdefault(release.name, []).append((event, release))
        else:
            yield repeated(event, release.exposure.times(unit, release.count))
    for same in limited.values():
        left = min(release.exposure.together for _, release in same)
        if same[0][0].kind is Kind.PERTURBED:  # which is dearer is more than one number: as if all of them were the dearest
            yield repeated(
                reduce(dearer, (event for event, _ in same)), min(left, sum(release.count for _, release in same))
            )
            continue
        for event, release in sorted(same, key=lambda pair: -pair[0].value):
            times = min(left, release.exposure.times(unit, release.count))
            left -= times
            yield repeated(event, times)


# --- what a ledger writes down ---------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """The privacy cost to one unit, and the part of a plan's rows that it holds for (empty: all rows)."""

    unit: Unit
    part: str
    event: Event


def release_costs(release: Release, made: int) -> tuple[Cost, ...]:
    """Return the costs that a party's ledger debits for its next release of this kind when ``made`` were made before."""
    exposure = release.exposure
    units = (*ROWWISE, Unit.HOUSEHOLD) if release.mechanism.prices(Unit.HOUSEHOLD) else ROWWISE
    return tuple(Cost(unit, exposure.part, exposure.charge(release.event(unit), unit, made)) for unit in units)


def shared_costs(plan: Releases, party: str) -> tuple[Cost, ...]:
    """Return the costs of a whole column-split plan, over all parties, to the people in one party's rows; none where one party alone knows them.

    The alternatives of :func:`neighbours` take the place of parts: one of them holds for a given change.
    """
    if not plan.split.shares_people or len({release.party for release in plan.releases} | {party}) == 1:
        return ()
    return alternatives(plan, party)


def alternatives(plan: Releases, party: str | None = None) -> tuple[Cost, ...]:
    """Return the costs of a whole plan to every unit, each of :func:`neighbours` as a part of its own."""
    costs: list[Cost] = [
        Cost(unit, "", NO_COST) for unit in plan.units
    ]  # so that no unit is left out, whatever its people are part of
    for unit in plan.units:
        for number, events in enumerate(neighbours(plan, unit, party)):
            grouped: dict[Event, int] = {}
            for event in events:
                one = replace(event, count=1)
                grouped[one] = grouped.get(one, 0) + event.count
            costs += [Cost(unit, f"{number}", repeated(event, times)) for event, times in grouped.items()]
    return tuple(costs)


def account(plans: Iterable[Mapping[str, Sequence[Event]]]) -> Worst:
    """Several plans together, each given as the events of every part of its rows (the empty one is everybody's)."""
    common: list[Event] = []
    choices: list[list[Composition]] = []
    for parts in plans:
        common += [event for event in parts.get("", ()) if event.count]
        ways: dict[str, list[Composition]] = {}
        for part, events in parts.items():
            if part:
                ways.setdefault(_partition(part), []).append(Composition(events))
        for own in map(_undominated, ways.values()):
            if len(own) > 1:
                choices.append(own)
            else:
                common += [event for composition in own for event in composition.events]
    first = sum(tried <= _CHOICES for tried in itertools.accumulate((len(own) for own in choices), mul))
    return Worst(
        tuple(
            Composition([*common, *(event for one in choice for event in one.events)], choices[first:])
            for choice in itertools.product(*choices[:first])
        )
    )


def _undominated(compositions: list[Composition]) -> list[Composition]:
    """Without those that cost no more than another one in every respect."""
    kept: list[Composition] = []
    for one in compositions:
        if not any(other.covers(one) for other in kept):
            kept = [other for other in kept if not one.covers(other)] + [one]
    return kept
