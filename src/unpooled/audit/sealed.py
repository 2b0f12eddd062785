"""Messages that parties seal for each other: no salt and no fragment occurs twice, and fragments rest on secrets that a simulation does not know.

The study runs with parties of this process, whose keys are here: every fragment of a sum is opened as the node opens it for which it is sealed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.aggregation.keys import purpose_of
from unpooled.audit.account import fresh_parties
from unpooled.audit.violation import Violation
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource
from unpooled.privacy.unit import Unit
from unpooled.protocol.conversation import find_step
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Sealed, open_body, open_envelope
from unpooled.protocol.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.party import Party
    from unpooled.protocol.step import Model

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


__all__ = ["audit_sealed"]
