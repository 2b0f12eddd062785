"""A coordinator that asks otherwise than planned (once more, out of order, over data that changed, the same again), and steps that forge.

Releases are asked for at a party's desk, which is the last that stands before noise is drawn, with what a run of the study gave its mechanisms.
Each such request must be refused, and leave no entry in the ledger. The same request again is answered from the store: no mechanism draws. A step
that returns a copy of a release in the place of what its desk handed out must not get it past its party.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.audit.account import fresh_parties
from unpooled.audit.stage import Acts, Violation, watched
from unpooled.errors import DataError, UnpooledError
from unpooled.privacy.unit import Unit
from unpooled.protocol.conversation import find_step
from unpooled.protocol.desk import OpenDesk
from unpooled.protocol.local import drive
from unpooled.protocol.messages import ISSUED, open_envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from unpooled.privacy.mechanisms import Given
    from unpooled.privacy.plan import Plan, Release, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.messages import Ask, Dropped
    from unpooled.protocol.party import Party
    from unpooled.protocol.registry import Model, Step


def audit_orders(
    model: Model, study: Study, tables: Mapping[str, Table], *, registry: Callable[[str], Model]
) -> list[Violation]:
    """Run a study in which everything is asked twice; then ask every release in the ways in which none may be asked."""
    plan, acts = model.compile(study), {card.name: Acts() for card in study.members}
    forger = _Forger()
    mine = forger.model(watched(model, acts))
    parties = fresh_parties(study, tables, lambda name: mine if name == model.name else registry(name))
    found: list[Violation] = []

    def asked_twice(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
        answers: list[bytes | Dropped] = []
        for ask, request in batch:
            party, drawn = parties[ask.to], len(acts[ask.to].done)
            if forger.succeeds(party, request):
                found.append(
                    Violation(Unit.RECORD, ask.to, ask.step, "a value that its desk did not hand out leaves in a reply")
                )
            del acts[ask.to].done[drawn:]
            answers.append(party.answer(request))
            entries, drawn = party.ledger.entries(), len(acts[ask.to].done)
            party.answer(request)
            step = find_step(model, open_envelope(request).step, plan)
            again = (
                not step.bulky and len(acts[ask.to].done) > drawn
            )  # a bulky answer is not kept: it is worked out again, alike
            del acts[ask.to].done[drawn:]
            if again or party.ledger.entries() != entries:
                found.append(Violation(Unit.RECORD, ask.to, ask.step, "the same request is worked out again"))
        return answers

    drive(model, plan, asked_twice)
    given = {(name, act.release): act.given for name, own in acts.items() for act in reversed(own.done)}
    for release in plan.releases:
        own, _ = plan.part(release.step)
        local = release.name.removeprefix(plan.prefix_of(own) or "")
        if (release.party, local) in given:
            found += _refused(
                plan, release, local, given[release.party, local], fresh_parties(study, tables, registry)[release.party]
            )
    return found


@dataclass(slots=True)
class _Forger:
    """The steps of a model, which forge while `forging` is set."""

    forging: bool = False
    forged: bool = False

    def model(self, model: Model) -> Model:
        """Return the model with such steps."""
        more = model.more_steps
        return replace(
            model, steps=tuple(map(self._step, model.steps)), more_steps=lambda plan: tuple(map(self._step, more(plan)))
        )

    def succeeds(self, party: Party, request: bytes) -> bool:
        """Return True if a forged reply to this request leaves the party."""
        self.forging, self.forged = True, False
        try:
            party.answer(request)
        except UnpooledError:
            return False
        finally:
            self.forging = False
        return self.forged

    def _step(self, step: Step) -> Step:
        def answer(context: Any, request: Any) -> msgspec.Struct:  # noqa: ANN401 - of any step
            reply = step.answer(context, request)
            return self._copied(reply) if self.forging else reply

        return replace(step, answer=answer)

    def _copied(self, reply: msgspec.Struct) -> msgspec.Struct:
        """Return a reply with equal values that the desk did not hand out."""
        changes: dict[str, Any] = {}
        for name in reply.__struct_fields__:
            value = getattr(reply, name)
            parts: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
            copied = tuple(_copy(part) if isinstance(part, ISSUED) else part for part in parts)
            if any(one is not other for one, other in zip(parts, copied, strict=True)):
                changes[name] = copied if isinstance(value, tuple) else copied[0]
        self.forged = self.forged or bool(changes)
        return msgspec.structs.replace(reply, **changes)


def _copy(part: Any) -> Any:  # noqa: ANN401 - any message
    return msgspec.structs.replace(part)


def _refused(plan: Plan, release: Release, local: str, given: Given, party: Party) -> Iterator[Violation]:
    """Yield a violation for every way to ask for this release that is not refused."""
    changed = replace(party, table=_changed(party.table))
    ways = [
        (party, release.count, "is made once more than planned"),
        (changed, 0, "is made over data that changed under way"),
    ]
    if release.exposure.ordered and release.count > 1:
        ways.append((party, 1, "is made out of order"))
    own, step = plan.part(release.step)
    for who, index, what in ways:
        try:
            OpenDesk(who, own, step, index, bytes(32), within=plan).release(local, given)
        except UnpooledError:
            if not who.ledger.entries():
                continue
            what = f"is debited though it is refused where it {what}"  # noqa: PLW2901 - what is wrong then
        yield Violation(Unit.RECORD, release.party, release.name, what)


def _changed(table: Table) -> Table:
    """Return the table as one that finds, when it is asked, that its data are no longer those that were read."""

    def verify(self: Table) -> None:
        del self
        raise DataError("the data changed")

    kind = type(table)
    found: Table = object.__new__(type(kind.__name__, (kind,), {"verify": verify}))
    found.__dict__.update(table.__dict__)
    return found


__all__ = ["audit_orders"]
