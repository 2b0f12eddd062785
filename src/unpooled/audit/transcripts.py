"""Every byte that leaves a party is a planned release, is public, or is entrusted to somebody whom the study trusts.

Three checks over whole messages, whatever they are called. Each part of a reply is of a kind that may leave. Whatever is no release is the
same when *all* of a party's data are others, and its releases are not. And no value of the data stands anywhere, in any of the ways in which a program
writes numbers and words (canaries).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.audit.account import fresh_parties
from unpooled.audit.replay import differences
from unpooled.audit.violation import Violation
from unpooled.audit.witness import Acts, watched
from unpooled.errors import UnpooledError
from unpooled.privacy.unit import Unit
from unpooled.protocol.conversation import find_step
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import (
    Commitment,
    Disclosed,
    Entrusted,
    Masked,
    Partial,
    Pseudonyms,
    Public,
    Released,
    Sealed,
    Signed,
    open_body,
    open_envelope,
)
from unpooled.protocol.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import msgspec

    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.step import Model

#: Digits of a number in text that no other number has by chance.
_DIGITS = 9


def audit_transcript(
    model: Model, study: Study, tables: Mapping[str, Table], others: Mapping[str, Table], *, registry: Callable[[str], Model]
) -> list[Violation]:
    """Run a study over ``tables`` and look at everything that was sent; then put the same requests to parties with ``others``."""
    plan, acts = model.compile(study), {name: Acts() for name in tables}
    parties = fresh_parties(study, tables, _witnessed(model, acts, registry))
    transcript = Transcript()
    drive(model, plan, in_process(parties), transcript)
    found = []
    hidden = {name: canaries(table, shown=_public_columns(study)) for name, table in tables.items()}
    again = {name: Acts(tuple(acts[name].done)) for name in tables}
    strangers = fresh_parties(study, others, _witnessed(model, again, registry))
    for entry in transcript.entries:
        step = find_step(model, open_envelope(entry.request).step, plan)
        reply = open_body(open_envelope(entry.reply or b""), step.reply)

        def violated(where: str, what: str, to: str = entry.to) -> None:
            found.append(Violation(Unit.RECORD, to, where, what))

        for key, part in _parts(reply):
            for what in _may_leave(plan.part(step.name)[0], entry.to, part):
                violated(f"{step.name}.{key}", what)
        for party, values in hidden.items():
            if any(value in (entry.reply or b"") or value in entry.request for value in values):
                violated(step.name, f"a value of party {party!r} stands in a message")
        try:
            answer = strangers[entry.to].answer(entry.request)
        except UnpooledError as error:
            violated(step.name, f"a party with other data refuses ({type(error).__name__})")
            continue
        other = open_body(open_envelope(answer), step.reply)
        for key in step.reply.__struct_fields__:
            for what in differences(getattr(reply, key), getattr(other, key)):
                violated(f"{step.name}.{key}", what)
    return found


def canaries(table: Table, shown: Iterable[str] = ()) -> list[bytes]:
    """Return the values of a table that nothing else has, as a program would write them: eight bytes, and their first digits in text."""
    found: list[bytes] = []
    for name in table.names:
        values = table[name]
        if name in set(shown) or values.dtype == object:
            continue
        for value in np.unique(np.asarray(values, dtype=np.float64)):
            text = f"{abs(float(value)):.{_DIGITS}f}"
            if np.isfinite(value) and len(text.rstrip("0").partition(".")[2]) == _DIGITS:
                found += [struct.pack("<d", value), struct.pack(">d", value), text[:-1].encode()]
    return found


def _witnessed(model: Model, acts: Mapping[str, Acts], registry: Callable[[str], Model]) -> Callable[[str], Model]:
    mine = watched(model, acts)
    return lambda name: mine if name == model.name else registry(name)


def _public_columns(study: Study) -> list[str]:
    """Return columns that the study declares public."""
    declared = study.parameters.get("public", [])
    return [str(name) for name in declared] if isinstance(declared, list | tuple) else []


def _parts(reply: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for key in reply.__struct_fields__:
        value = getattr(reply, key)
        for part in value if isinstance(value, tuple) else (value,):
            yield key, part


def _may_leave(plan: Plan, party: str, part: Any) -> Iterator[str]:  # noqa: ANN401 - whatever a reply holds
    """Why this may not leave a party."""
    if isinstance(part, Released | Partial):
        planned = {
            release.name: release.count for release in plan.releases if release.party == party or isinstance(part, Partial)
        }
        if part.name not in planned or not 0 <= part.index < planned[part.name]:
            yield "a release that the plan does not have"
    elif isinstance(part, Entrusted):
        if not plan.study.trusts(part.role):
            yield f"values in the clear for {part.role!r}, whom the study does not trust"
    elif isinstance(part, Disclosed):
        if not set(part.columns) <= set(_public_columns(plan.study)):
            yield "columns in the clear that the study does not declare public"
    elif isinstance(part, Masked | Commitment):
        if not plan.joint:
            yield "masked rows, or a digest of them, in a plan without joint moments"
    elif not isinstance(part, Public | Sealed | Signed | Pseudonyms):
        yield f"a {type(part).__name__}, which nothing says may leave"


__all__ = ["audit_transcript", "canaries"]
