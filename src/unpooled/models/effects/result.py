"""Results of a treatment effect: the effect, and everything by which a reader judges it."""

from __future__ import annotations

import msgspec

from unpooled.inference.life_table import LifeTable
from unpooled.inference.priors import DrawnTo
from unpooled.protocol.messages import Array
from unpooled.protocol.terms import ResultTerm


class EffectNumber(msgspec.Struct, frozen=True):
    """A number with its standard error, and the part of it that privacy adds."""

    name: str
    value: float
    std_error: float
    privacy: float


class DrawnEffect(msgspec.Struct, frozen=True):
    """The posterior of an effect about earlier estimates of it: its mean and deviation, and how they drew it."""

    value: float
    deviation: float
    drawn: DrawnTo


class Overlap(msgspec.Struct, frozen=True):
    """Noisy numbers of persons by arm (rows) and propensity (columns, between cuts)."""

    cuts: tuple[float, ...]
    counts: Array
    #: The deviation of a count's noise.
    deviation: float
    #: The share of persons whose propensity is cut, and the deviation of its noise.
    cut: float
    cut_noise: float
    weak: bool


class BalanceLine(msgspec.Struct, frozen=True):
    """The standardised difference of a column between the arms, before and after weighting, with the deviations of their noise."""

    term: str
    before: float
    before_noise: float
    after: float
    after_noise: float


class EffectResult(msgspec.Struct, frozen=True):
    """A treatment effect; without one where the data do not tell it, with the reason."""

    estimand: str
    estimator: str
    #: The control, and the treatment.
    arms: tuple[str, str]
    level: float
    participants: tuple[str, ...]
    rows: int
    effect: EffectNumber | None = None
    #: Why there is no effect, in words.
    why: str = ""
    #: Outcomes of both arms, where the estimator has them.
    means: tuple[EffectNumber, ...] = ()
    overlap: Overlap | None = None
    #: The bound on a contribution, the share of persons beyond it, and the deviation of its noise.
    bound: float = 0.0
    beyond: float = 0.0
    beyond_noise: float = 0.0
    balance: tuple[BalanceLine, ...] = ()
    #: Weighted life tables of both arms.
    life_tables: tuple[LifeTable, ...] = ()
    #: The lines of the models that it adjusts by.
    propensity: tuple[ResultTerm, ...] = ()
    outcome: tuple[ResultTerm, ...] = ()
    #: The same effect with earlier estimates of it, where the study names some.
    drawn: DrawnEffect | None = None
