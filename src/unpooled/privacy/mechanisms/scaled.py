"""Gaussian noise of a fixed multiple of a sensitivity that is a closed form of what the run has made public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms.base import REALS, Mechanism, Vector
from unpooled.privacy.unit import ROWWISE, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms.base import Given
    from unpooled.privacy.noise import RandomBits


@dataclass(frozen=True, slots=True)
class ScaledGaussian(Mechanism):
    r"""Real numbers plus Gaussian noise of ``multiplier`` times a sensitivity D that the run makes known.

    The numbers are rounded to a grid of step g, a power of two of at most :math:`2^{-10}` of the noise, which moves two
    neighbours apart by less than g more in every coordinate: the noise is calibrated to :math:`D + g\sqrt{size}` (Theorem F.15).
    """

    kind: ClassVar[str] = "Gaussian of a sensitivity that the run makes known"
    size: int
    mu: tuple[tuple[Unit, float], ...]
    multiplier: float
    dtype: ClassVar[str] = REALS

    #: Noise of 2^12 to 2^13 steps, and the rounding's share, stay within the sampler's range.
    _LARGEST: ClassVar[float] = 2.0**19

    @classmethod
    def silent(cls, size: int) -> ScaledGaussian:
        """Real numbers as they are: the noise-free algorithm, whose event is unbounded."""
        return cls(size, tuple((unit, math.inf) for unit in ROWWISE), 0.0)

    @property
    def name(self) -> str:
        """Return the name of the mechanism in plans and ledgers."""
        return "rounded Gaussian" if self.multiplier else "no noise"

    @property
    def scale(self) -> float | None:
        """Known during the run only, unless there is no noise."""
        return None if self.multiplier else 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.multiplier * math.sqrt(self.size) <= self._LARGEST:
            raise UsageError("epsilon is too small for a release whose noise follows the run: ask for more, or release less")

    def sensitivity(self, unit: Unit) -> None:  # noqa: ARG002 - known during the run only
        """Known during the run only."""
        return

    def event(self, unit: Unit) -> Event:
        """Gaussian, with the planned mu of this unit."""
        if not self.multiplier or dict(self.mu)[unit] == math.inf:
            return UNBOUNDED
        return Event(Kind.GAUSSIAN, dict(self.mu)[unit], 1, self.size * noise.TOTAL_VARIATION)

    def check(self, given: Given) -> None:
        """Refuse a vector of another size, and noise that nobody can scale."""
        Mechanism.check(self, given)
        assert isinstance(given, Vector)
        known = given.sensitivity is not None and 0 < given.sensitivity < math.inf
        if given.values.shape != (self.size,) or (self.multiplier and not known):
            msg = f"this release is of {self.size} numbers with a positive finite sensitivity"
            raise UsageError(msg)

    def step(self, sensitivity: float) -> float:
        """Return the grid of the released numbers, a power of two."""
        return 2.0 ** math.floor(math.log2(self.multiplier * sensitivity) - 12)

    def draw(self, given: Vector, bits: RandomBits) -> NDArray[np.float64]:
        """Return the released numbers, multiples of the step; as they were given where there is no noise."""
        self.check(given)
        if not self.multiplier:
            return given.values
        assert given.sensitivity is not None
        step = self.step(given.sensitivity)
        scale = self.multiplier * (given.sensitivity / step + math.sqrt(self.size))
        integers = np.rint(given.values / step).astype(np.int64) + noise.rounded_gaussian(scale, self.size, stream=bits)
        return np.asarray(integers * step, dtype=np.float64)

    def change(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
        """Without noise any difference is beyond every bound; with it the scale is known during the run only."""
        if self.multiplier:
            return None
        return 0.0 if np.array_equal(one, other) else math.inf
