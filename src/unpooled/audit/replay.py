"""Replay a study on neighbouring data with the noise frozen: what moves, and never more than declared.

The requests of a recorded run are put again to parties whose data differ in one unit. With equal noise the difference of two
releases is the difference of two statistics, so it can be held against the declared sensitivity exactly. Everything that is not
a release must not move at all: shapes, the order of releases, public fields, refusals. Conditioning on the recorded
requests is what adaptive composition asks for: a coordinator is a pure function of replies that are already private.

The neighbours are those of :mod:`unpooled.audit.neighbours`, and a coordinate search from the worst found so far; under both units.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from unpooled.audit.neighbours import ROW, bases, changed_once, neighbours, vanishing
from unpooled.errors import UnpooledError
from unpooled.privacy.household import BoundedTable
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.conversation import find_step
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
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from unpooled.audit.neighbours import Change, Tables
    from unpooled.privacy.mechanisms import Mechanism
    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.plan import Plan, Release, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.step import Model

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
            f"  {unit} {party}.{name}: at most {ratio:.4f} of the declared bound"
            for (unit, party, name), ratio in sorted(self.largest.items())
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
    sealing: dict[str, SealedVectors] = {}
    watched, rules = _watched(model, sealing), Policy.in_process()

    def party(name: str, table: Table, sealed: SealedVectors) -> Party:
        # Each party has one identity in all worlds, so that sealed fragments can be opened again.
        ledger = Ledger.in_memory(root_key=sha256(name.encode()).digest())
        sealing[name] = sealed
        return Party(
            name, table, study.card(name), ledger, keys, rules, lambda w: watched if w == model.name else registry(w)
        )

    for base, only in bases(plan, tables, rng, rounds):
        transcript = Transcript()
        sealed_vectors: dict[str, SealedVectors] = {name: [] for name in base}
        try:
            people = {name: party(name, table, sealed_vectors[name]) for name, table in base.items()}
            drive(model, plan, in_process(people), transcript)
        except UnpooledError as error:
            words = f"a study on admissible data is refused ({type(error).__name__})"
            report.violations.append(Violation(Unit.RECORD, "any", "the whole study", words))
            continue
        for unit in (Unit.ATTRIBUTE,) if only else plan.units:
            best: tuple[float, dict[str, Change]] = (-1.0, {})
            tried = [only] if only else neighbours(plan, base, unit, rng, rounds, labels=model.covers_labels)
            for changes in tried:
                measured = _compare(model, plan, transcript, base, sealed_vectors, changes, unit, party, report)
                if measured > best[0] and None not in changes.values() and [] not in changes.values():
                    best = (measured, dict(changes))
            for _ in range(
                rounds if best[1] and not only else 0
            ):  # search: change one more value of the worst neighbour so far
                candidate = changed_once(plan, best[1], unit, rng)
                measured = _compare(model, plan, transcript, base, sealed_vectors, candidate, unit, party, report)
                if measured > best[0]:
                    best = (measured, candidate)
    moved = {(party, name) for (_, party, name), ratio in report.largest.items() if ratio}
    report.unmeasured = [f"{r.party}.{r.name}" for r in plan.releases if (r.party, r.name) not in moved]
    return report


# --- comparison ---------------------------------------------------------------------------------------------------------


def _compare(
    model: Model,
    plan: Plan,
    transcript: Transcript,
    base: Tables,
    sealed_vectors: Mapping[str, SealedVectors],
    changes: Mapping[str, Change],
    unit: Unit,
    party: Callable[[str, Table, SealedVectors], Party],
    report: Report,
) -> float:
    """Put the recorded requests to the changed parties; note what moved; return the largest part of a declared bound."""
    report.neighbours += 1
    largest = 0.0
    for name, row in changes.items():
        if isinstance(row, dict) and plan.study.adjacency == Adjacency.ZERO_OUT and unit is Unit.ATTRIBUTE:
            row = vanishing(plan.study.card(name), row)  # noqa: PLW2901 - a value may vanish, not become another one
            if row is None:
                continue
        sealed: SealedVectors = []
        neighbour = party(name, _changed(base[name], row), sealed)
        for entry in transcript.entries:
            if entry.to != name or entry.reply is None:
                continue
            step = find_step(model, open_envelope(entry.request).step)
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
        for (release, one), (_, other) in zip(sealed_vectors[name], sealed, strict=False):  # a refused neighbour seals less
            largest = max(largest, _share_of_bound(plan, unit, name, release, one, other, report))
    return largest


def _changed(table: Table, row: Change) -> Table:
    """The neighbouring table."""
    if isinstance(row, list):
        assert isinstance(table, BoundedTable)
        return table.exchange(row)
    return table.omit(ROW) if row is None else table.replace(ROW, row)


def _share_of_bound(
    plan: Plan, unit: Unit, party: str, release: str, ours: NDArray[Any], theirs: NDArray[Any], report: Report
) -> float:
    """How far a release or a sealed fragment moved, as a part of what the plan declares; noted, and a violation beyond 1."""
    mechanism = plan.release(party, release).mechanism
    moved, declared = mechanism.change(ours, theirs), mechanism.event(unit).value
    if moved is None:
        return 0.0
    ratio = moved / declared if declared else 0.0
    key = (unit, party, release)
    report.largest[key] = max(report.largest.get(key, 0.0), ratio)
    if ratio > 1 + _ROUNDING:
        report.violations.append(Violation(unit, party, release, f"moved {ratio:.4f} times the declared bound"))
    return ratio


# --- what is inside a sealed fragment --------------------------------------------------------------------------------------

#: The vectors that one party sealed, in order: (release, vector with noise).
SealedVectors = list[tuple[str, "NDArray[np.int64]"]]


@dataclass(frozen=True)
class _Witness:
    """A shared mechanism that also writes down what goes into the total. Everything else is the mechanism's own."""

    mechanism: Mechanism
    release: str
    party: str
    sealing: Mapping[str, SealedVectors]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the mechanism has
        return getattr(self.mechanism, name)

    def draw(self, given: Summand, bits: RandomBits) -> NDArray[np.int64]:
        vector = self.mechanism.draw(given, bits)
        self.sealing[self.party].append((self.release, vector))
        return vector


def _watched(model: Model, sealing: Mapping[str, SealedVectors]) -> Model:
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

    return replace(model, compile_plan=compile_plan)


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
        return violated("a partial sum depends on the node's own data, not on its sealed fragment alone")
    if not isinstance(ours, Released):
        return 0.0
    if (ours.name, ours.index) != (theirs.name, theirs.index):
        return violated("which release is made depends on the data")
    return _share_of_bound(plan, unit, party, ours.name, ours.values.numpy(), theirs.values.numpy(), report)


def _shape(array: Array) -> tuple[str, tuple[int, ...]]:
    return array.dtype, array.shape


__all__ = ["FrozenKeys", "Report", "Violation", "replay"]
