"""Every byte that leaves a party is a planned release, is public, or is entrusted to somebody whom the study trusts; and what is sealed is sealed once."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.audit.account import fresh_parties
from unpooled.audit.replay import differences
from unpooled.audit.stage import Acts, Violation, watched
from unpooled.errors import UnpooledError
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource
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
from unpooled.totals.secure_sum import purpose_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.party import Party
    from unpooled.protocol.registry import Model


# --- Sealed ----------------------------------------------------------------------------------------------------------------
# Messages that parties seal for each other: no salt and no fragment occurs twice, and fragments rest on secrets that a simulation does not know.
#
# The study runs with parties of this process, whose keys are here: every fragment of a sum is opened as the node opens it for which it is sealed.

#: Of messages whose key seals nothing else.
_NONCE = bytes(12)
#: (sender, node, step, repetition) of a sealed message.
Place = tuple[str, str, str, int]


def audit_sealed(
    model: Model, study: Study, tables: Mapping[str, Table], *, registry: Callable[[str], Model]
) -> list[Violation]:
    """Run a study as a simulation, and look at everything that is sealed; then run it with parties that have other secret keys."""
    asked = msgspec.structs.replace(study, simulation_seed=0)
    parties = fresh_parties(asked, tables, registry)
    messages = list(_sealed(model, asked, parties))
    found = [
        Violation(Unit.RECORD, place[0], place[2], "two sealed messages have one salt")
        for place, part in messages
        if part.salt and [other.salt for _, other in messages].count(part.salt) > 1
    ]
    ours = _fragments(model, asked, parties, messages)
    often = Counter(ours.values())
    found += [
        Violation(Unit.RECORD, place[0], place[2], "two fragments are one: what adds up to noise for a node does not")
        for place, fragment in ours.items()
        if often[fragment] > 1
    ]
    others = {
        name: replace(party, keys=KeySource(sha256(b"other" + name.encode()).digest()))
        for name, party in fresh_parties(asked, tables, registry).items()
    }
    theirs = _fragments(model, asked, others, list(_sealed(model, asked, others)))
    found += [
        Violation(
            Unit.RECORD,
            place[0],
            place[2],
            "a fragment rests on no secret of the party: who knows the study can work it out",
        )
        for place, fragment in ours.items()
        if theirs.get(place) == fragment
    ]
    return found


def _sealed(model: Model, study: Study, parties: Mapping[str, Party]) -> Iterator[tuple[Place, Sealed]]:
    """Run the study, and yield every sealed message with its place."""
    plan, transcript = model.compile(study), Transcript()
    drive(model, plan, in_process(dict(parties)), transcript)
    for entry in transcript.entries:
        envelope = open_envelope(entry.request)
        reply = open_body(open_envelope(entry.reply or b""), find_step(model, envelope.step, plan).reply)
        for name in reply.__struct_fields__:
            value = getattr(reply, name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Sealed):
                    yield (entry.to, part.node, envelope.step, envelope.index), part


def _fragments(
    model: Model, study: Study, parties: Mapping[str, Party], messages: list[tuple[Place, Sealed]]
) -> dict[Place, bytes]:
    """Return the seeds among the fragments of sums, opened by the nodes that they are sealed for: all but a sender's last, which is what is left."""
    plan, found = model.compile(study), dict[Place, bytes]()
    last = {(sender, step, index): node for (sender, node, step, index), _ in messages}
    for place, part in messages:
        sender, node, step, index = place
        if last[sender, step, index] == node:
            continue
        own, local = plan.part(step)
        names = [r.name for r in own.releases if (r.party, r.step) == (sender, local) and r.mechanism.takes is Summand]
        for name in names:
            context = own.hash.encode()
            words = (*purpose_of(name, index, sender, node), part.salt)
            key = parties[node].identity.shared_key(context, parties[sender].identity.agreement_key(context), *words)
            found[place] = AESGCM(key).decrypt(_NONCE, part.ciphertext, None)
    return found


# --- Transcripts -----------------------------------------------------------------------------------------------------------
# Every byte that leaves a party is a planned release, is public, or is entrusted to somebody whom the study trusts.
#
# Three checks over whole messages, whatever they are called. Each part of a reply is of a kind that may leave. Whatever is no release is the
# same when *all* of a party's data are others, and its releases are not. And no value of the data stands anywhere, in any of the ways in which a program
# writes numbers and words (canaries).

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


__all__ = ["audit_sealed", "audit_transcript", "canaries"]
