"""The acts that make a value public, one file each with its proof next to it (``blocks.md`` next to ``blocks.py``).

All of them act on exact integers where they can (F.4). A model may bring its own, as the published forms do: whatever is a
:class:`Mechanism` can be planned, hashed, debited and released.
"""

from unpooled.privacy.mechanisms.base import INTEGERS, REALS, WORDS, Given, Mechanism, Objective, Scores, Summand, Vector
from unpooled.privacy.mechanisms.blocks import Block, GaussianRelease, Reach
from unpooled.privacy.mechanisms.choice import NoisyChoice
from unpooled.privacy.mechanisms.distributed import Contribution, DistributedGaussian, FieldGaussian
from unpooled.privacy.mechanisms.objective import GaussianObjective, LossShape, LossSign, ObjectivePerturbation, calibrated
from unpooled.privacy.mechanisms.scaled import ScaledGaussian

#: Every mechanism of the foundation: contract tests run over this table.
MECHANISMS: tuple[type[Mechanism], ...] = (
    GaussianRelease,
    ScaledGaussian,
    DistributedGaussian,
    FieldGaussian,
    Contribution,
    NoisyChoice,
    ObjectivePerturbation,
)

__all__ = [
    "INTEGERS",
    "MECHANISMS",
    "REALS",
    "WORDS",
    "Block",
    "Contribution",
    "DistributedGaussian",
    "FieldGaussian",
    "GaussianObjective",
    "GaussianRelease",
    "Given",
    "LossShape",
    "LossSign",
    "Mechanism",
    "NoisyChoice",
    "Objective",
    "ObjectivePerturbation",
    "Reach",
    "ScaledGaussian",
    "Scores",
    "Summand",
    "Vector",
    "calibrated",
]
