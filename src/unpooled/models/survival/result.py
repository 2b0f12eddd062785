"""Results of a comparison of survival: a curve for every arm, restricted means, and tests of arms against each other."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Array


class ArmMean(msgspec.Struct, frozen=True):
    """Restricted mean survival time of one arm, or its difference from the first arm's; None where noise hides it."""

    arm: str
    value: float
    std_error: float
    #: The part of the standard error that privacy adds.
    noise: float
    low: float
    high: float


class CurveDifference(msgspec.Struct, frozen=True):
    """Survival of an arm less that of the first one, at the end of every interval, with pointwise intervals."""

    arm: str
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class ArmsTest(msgspec.Struct, frozen=True):
    """A test that all arms survive alike. Without a p-value where the noise adds more to its statistic than the draw of persons."""

    name: str
    statistic: float
    degrees: int
    p_value: float | None = None
    #: Why there is none, in words.
    why: str = ""


class SurvivalResult(msgspec.Struct, frozen=True):
    """The released table of exits, and everything that follows from it."""

    arms: tuple[str, ...]
    strata: tuple[str, ...]
    edges: tuple[float, ...]
    #: Noisy numbers of persons: (stratum, arm, exit).
    cells: Array
    #: The deviation of a cell's noise.
    deviation: float
    level: float
    horizon: float
    participants: tuple[str, ...]
    #: Persons of every arm, and events, as far as noise lets them be known: (arm, persons, events).
    counts: tuple[tuple[str, float, float], ...]
    tests: tuple[ArmsTest, ...]
    means: tuple[ArmMean, ...]
    mean_differences: tuple[ArmMean, ...]
    curve_differences: tuple[CurveDifference, ...]
    #: Arms that noise hides, of whom nothing else is said.
    hidden: tuple[str, ...] = ()
