"""The sum over all members of a study of joint moments: every member's share or nothing, modulo a prime."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from unpooled.aggregation.distributed import Distributed
from unpooled.errors import ProtocolError, StudyAborted
from unpooled.privacy.accounting import budget_rho
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.mechanisms import FieldGaussian
from unpooled.privacy.plan import Release, Study

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.aggregation.joint.shape import ProductShape
    from unpooled.aggregation.joint.sides import Side, Spot
    from unpooled.aggregation.totals import Summed
    from unpooled.protocol.context import Context

    Ints = NDArray[Any]

#: How far the view of a proof is from one that its verifiers could have made themselves (Theorem J.10).
PROOF_DISTANCE = 2.0**-64
#: A larger exponent has no float.
_LARGEST_EXPONENT = 700.0
#: The name of the release, in every round.
JOINT = "joint"


@dataclass(frozen=True, slots=True)
class JointSum(Distributed):
    """All members, parties and helpers, are participants: with one share missing the total would be weighted rows of one party."""

    prime: ClassVar[bool] = True
    #: The number of blocks of a round that are proven to be short, each of which adds its distance to delta (Theorem J.10).
    proofs: int = 0

    def multiplier(self, study: Study) -> float:
        """Return the mu of the whole budget by zCDP, times sqrt(honest / members): only the noise of honest members counts."""
        return math.sqrt(2 * budget_rho(study.epsilon, study.delta) * self.honest / len(self.parties))

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """Return a fragment of the noise for every member: together they are one release of the joint rows in every round."""
        rho = joint_rho(study, self.proofs * vector.count) * vector.share / vector.count
        fragment = FieldGaussian.calibrated(vector.blocks, vector.reach, study.target.unit, rho, self.honest)
        assert isinstance(fragment, FieldGaussian)
        fragment = replace(fragment, distance=self.proofs * PROOF_DISTANCE)
        together = Exposure(together=vector.count)
        return tuple(
            Release(vector.name, name, vector.step("fragment"), fragment, vector.count, together) for name in self.parties
        )

    def check_participants(self, participants: tuple[str, ...]) -> None:
        """Refuse every set of participants but that of all members, in the study's order."""
        if participants != self.parties:
            raise ProtocolError("joint moments are opened with the shares of all members of the study, or not at all")

    def enough(self, arrived: Mapping[str, Any], where: str) -> None:
        """Abort, with nothing opened, where any member is missing."""
        missing = [name for name in self.parties if name not in arrived]
        if missing:
            msg = (
                f"{', '.join(missing)} dropped out {where}. Joint moments need every member, whatever the study tolerates: nothing was opened. "
                "Run it again once they are back"
            )
            raise StudyAborted(msg)


def joint_rho(study: Study, proofs: int) -> float:
    """Return the rho of a study's whole budget, where this number of proofs takes its part of delta (Theorem J.10).

    Proofs that would take more than half of it are not paid for by less privacy: the statement then says what is left.
    """
    charge = proofs * PROOF_DISTANCE * (1 + math.exp(min(study.epsilon, _LARGEST_EXPONENT)))
    return budget_rho(study.epsilon, max(study.delta - charge, study.delta / 2))


class Joint(Protocol):
    """The attributes of the design of a plan with joint moments."""

    @property
    def aggregation(self) -> JointSum: ...  # noqa: D102 - how it adds up
    @property
    def totals(self) -> Mapping[str, Summed]: ...  # noqa: D102 - what it adds up, by name
    @property
    def shape(self) -> ProductShape: ...  # noqa: D102 - the parts of a row
    @property
    def sides(self) -> tuple[Side, ...]: ...  # noqa: D102 - whose masked rows go where
    @property
    def proved(self) -> bool: ...  # noqa: D102 - whether senders prove that their rows are short

    def block(self, context: Context[Any], spot: Spot) -> Ints:
        """Return a block of the sender's part of the rows as integers."""
        ...


def joint_sum(members: tuple[str, ...], tolerate: int) -> JointSum:
    """Return the sum over these members, of whom ``tolerate`` may collude. All of them are its nodes.

    With the fragments of all nodes one has every member's share, and a share is weights on somebody's rows (Theorem J.1).
    """
    return JointSum(members, tolerate, members, len(members))
