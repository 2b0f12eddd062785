"""Every party releases its own vector with all the noise it needs; the coordinator adds them up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.messages import LocalRequest, NoisyReply
from unpooled.aggregation.totals import Aggregation, Quantity, Summed, Total, noisy_release
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.mechanisms import Vector
from unpooled.privacy.plan import Plan, Release, Study
from unpooled.protocol.messages import Ask, Dropped
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from unpooled.aggregation.messages import Member
    from unpooled.protocol.context import Context
    from unpooled.protocol.step import Replies


@dataclass(frozen=True, slots=True)
class Local(Aggregation):
    """Nobody relies on anybody; the noise of all parties is in the total."""

    def multiplier(self, study: Study) -> float:
        """Every party adds all of it."""
        return budget_mu(study.epsilon, study.delta) / math.sqrt(len(self.parties))

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """All the noise from every party."""
        noisy = vector.gaussian(study)
        vector.fits(study, noisy.scale)
        return tuple(Release(vector.name, name, vector.step("local"), noisy, vector.count) for name in self.parties)

    def collect(
        self, plan: Plan, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...], index: int = 0
    ) -> Generator[list[Ask], Replies, Total]:
        """The released vectors of all that are there, added up."""
        del members
        replies = yield [Ask(party, vector.step("local"), LocalRequest(settings), index) for party in self.parties]
        arrived = {p: r for p, r in zip(self.parties, replies, strict=True) if not isinstance(r, Dropped)}
        self.enough(arrived, "at their releases")
        mechanisms = {party: noisy_release(plan, party, vector.name) for party in arrived}
        values = sum(mechanisms[party].decode(reply.total.values.numpy()) for party, reply in arrived.items())
        noise = np.sqrt(sum(mechanism.deviations**2 for mechanism in mechanisms.values()))
        return Total(np.asarray(values), noise, tuple(arrived))


def _local(quantity: Quantity, context: Context, request: LocalRequest) -> NoisyReply:
    return NoisyReply(context.release(quantity.name, Vector(quantity.own(context, request.settings))))


def steps(quantity: Quantity) -> tuple[Step, ...]:
    """Return the steps that a party performs for local releases."""
    return (Step(f"{quantity.name}-local", LocalRequest, NoisyReply, partial(_local, quantity)),)
