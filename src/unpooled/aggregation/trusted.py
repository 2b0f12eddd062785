"""A trusted aggregator: the parties seal exact vectors for one named party, which adds them up and adds the noise once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation import secure_sum
from unpooled.aggregation.keys import answered, gather, unsealed
from unpooled.aggregation.messages import NoisyReply, TotalRequest
from unpooled.aggregation.totals import Aggregation, Quantity, Summed, Total, noisy_release
from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.privacy.mechanisms import Contribution, Vector
from unpooled.privacy.plan import Plan, Release, Study
from unpooled.privacy.sentence import Sentence
from unpooled.protocol.messages import Ask
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from unpooled.aggregation.messages import Member
    from unpooled.protocol.context import Context
    from unpooled.protocol.step import Replies


@dataclass(frozen=True, slots=True)
class Trusted(Aggregation):
    """One party sees the others' exact vectors."""

    @property
    def sentences(self) -> tuple[tuple[Sentence, ...], tuple[Sentence, ...]]:
        """Return the statement's sentences about a trusted aggregator: (not protected, assumptions)."""
        sees = Sentence(
            "sum.trusted", "{node}, the trusted aggregator, sees the exact sums of the other parties.", node=self.nodes[0]
        )
        return (sees,), ()

    @property
    def trusted(self) -> tuple[Sentence, ...]:
        """Return the party that sees exact sums."""
        return (Sentence("trusted.aggregator", "{node}, the trusted aggregator", node=self.nodes[0]),)

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """Return the noisy total of the aggregator, and every other party's contribution to it."""
        noisy, (aggregator,) = vector.gaussian(study), self.nodes
        vector.fits(study, noisy.scale)
        given = Contribution(noisy, aggregator)
        return tuple(
            Release(vector.name, name, vector.step("noisy"), noisy, vector.count)
            if name == aggregator
            else Release(vector.name, name, vector.step("fragment"), given, vector.count)
            for name in self.parties
        )

    def collect(
        self, plan: Plan, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...], index: int = 0
    ) -> Generator[list[Ask], Replies, Total]:
        """Sealed vectors, and the aggregator's noisy total."""
        senders = [party for party in members if party not in self.nodes]
        (node,), sealed = yield from gather(self, vector, members, senders, settings, index)
        everybody = tuple(p for p in self.parties if p in sealed or p == node.name)
        self.enough(dict.fromkeys(everybody), "at their contributions")
        joined = tuple(members[party] for party in sealed)
        request = TotalRequest(joined, tuple(parts[0] for parts in sealed.values()), settings=settings)
        (reply,) = yield [Ask(node.name, vector.step("noisy"), request, index)]
        answered([node.name], [reply])
        release = noisy_release(plan, node.name, vector.name)
        return Total(release.decode(reply.total.values.numpy()), release.deviations, everybody)


def _noisy(quantity: Quantity, context: Context, request: TotalRequest) -> NoisyReply:
    aggregation, _ = quantity.planned(context)
    # The aggregator's own vector is not sealed: it joins here, between the others' in the study's order.
    names, name = tuple(member.name for member in request.participants), context.name
    if not isinstance(aggregation, Trusted) or aggregation.nodes != (name,) or name in names:
        raise PlanMismatch("this plan has no trusted aggregator here, or another one")
    aggregation.check_participants(tuple(n for n in aggregation.parties if n == name or n in names))
    if len(set(names)) != len(names):
        raise ProtocolError("a participant that is named twice")
    total = quantity.own(context, request.settings).astype(np.uint64)
    for part in unsealed(quantity, context, request, total.size):
        secure_sum.add_fragment(total, part, 0, 1)
    return NoisyReply(context.release(quantity.name, Vector(total.astype(np.int64))))


def steps(quantity: Quantity) -> tuple[Step, ...]:
    """Return the steps that the aggregator performs; the others seal their vectors as for a secure sum."""
    return (Step(f"{quantity.name}-noisy", TotalRequest, NoisyReply, partial(_noisy, quantity)),)
