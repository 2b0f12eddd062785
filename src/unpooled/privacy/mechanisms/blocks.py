"""Integer vectors in blocks that share a relative deviation, how their noise fits the sampler, and rounded Gaussian noise on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.accounting import SAFETY
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms.base import Mechanism, Summand, Vector, check_integers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms.base import Given
    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.unit import Unit


# --- Blocks ----------------------------------------------------------------------------------------------------------------
# Integer vectors in blocks that share a relative deviation, and how their noise fits the samplers' range.


@dataclass(frozen=True, slots=True)
class Block:
    """``size`` coordinates that share the relative noise ``width``, in units of the statistic's integers."""

    size: int
    width: float


@dataclass(frozen=True, slots=True)
class Reach:
    """The most that one unit moves a statistic: L2 ``distance`` in units of the blocks' widths, over ``coordinates``."""

    distance: float
    coordinates: int

    def times(self, rows: int) -> Reach:
        """Return the reach of ``rows`` rows at once, at one party or at several (Theorem F.19): floored steps add up like distances."""
        return Reach(self.distance * rows, self.coordinates * rows * rows)


@dataclass(frozen=True, slots=True)
class Blocked(Mechanism):
    r"""An integer vector in blocks that share a standard deviation, ``scale * width``, and how noise fits the sampler's range.

    Where the noise would exceed the sampler's largest scale, the statistic is first floored to a multiple of
    :math:`2^{shift}`, at most :math:`2^{-18}` of the noise: flooring moves two neighbours apart by less than one such
    step more in every coordinate that moves at all, which the event charges (Theorem F.3).

    ``scale = 0`` is the noise-free algorithm, whose event is unbounded.
    """

    blocks: tuple[Block, ...]
    reach: tuple[tuple[Unit, Reach], ...]
    scale: float

    #: Shifted standard deviations lie in (2^18, 2^19], inside the sampler's range.
    _LARGEST: ClassVar[float] = 2.0**19

    @property
    def size(self) -> int:
        """Return the number of released integers."""
        return sum(block.size for block in self.blocks)

    def prices(self, unit: Unit) -> bool:
        """Return True if a reach was declared for the unit."""
        return unit in dict(self.reach)

    def sensitivity(self, unit: Unit) -> float:
        """Return the L2 reach of the unit in the same units as ``scale``."""
        return dict(self.reach)[unit].distance

    @property
    def floored(self) -> bool:
        """Return True if any block's noise exceeds the sampler's range, so that its statistic is floored."""
        return any(self._shift(block) for block in self.blocks)

    def _shift(self, block: Block) -> int:
        return max(0, math.ceil(math.log2(self.scale * block.width / self._LARGEST))) if self.scale else 0

    def _step(self, block: Block) -> float:
        """Return the standard deviation of a block's noise in floored steps."""
        return math.ldexp(self.scale * block.width, -self._shift(block))

    @property
    def steps(self) -> NDArray[np.float64]:
        """Return the standard deviation of every coordinate's noise in the steps in which it is released."""
        return np.concatenate([np.full(block.size, self._step(block)) for block in self.blocks])

    def _mu(self, reach: Reach) -> float:
        """Return (distance + flooring) / scale."""
        step = max((1 / self._step(b) if self._shift(b) else 0.0) for b in self.blocks)
        return reach.distance / self.scale + step * math.sqrt(reach.coordinates)

    def widened(self, reach: Reach, cost: float, limit: float) -> Self:
        """Return the same with a scale that is larger by as much as the cost, in units of 1/scale, exceeds its limit."""
        # One floored step per coordinate costs up to 2^-18 at any scale: far below that, no scale would ever do.
        if self.floored and limit < 2.0**-16 * math.sqrt(reach.coordinates):
            msg = "epsilon is too small for a release of this size on this grid: ask for more, or release less"
            raise UsageError(msg)
        return replace(self, scale=self.scale * max(cost / limit, 1 + SAFETY))

    def check(self, given: Given) -> None:
        """Refuse a vector of another shape or type than planned."""
        Mechanism.check(self, given)
        assert isinstance(given, Vector | Summand)
        check_integers(given.values, self.size)

    def floor(self, statistic: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the statistic in the steps in which it is released."""
        check_integers(statistic, self.size)
        out, at = statistic.copy(), 0
        for block in self.blocks:
            out[at : at + block.size] >>= self._shift(block)
            at += block.size
        return out

    def _noisy(
        self, statistic: NDArray[np.int64], bits: RandomBits, law: Callable[..., NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """Return the floored statistic plus noise of this law; exactly the statistic where the scale is 0."""
        out, at = self.floor(statistic), 0
        for block in self.blocks if self.scale else ():
            out[at : at + block.size] += law(self._step(block), block.size, stream=bits, start=at)
            at += block.size
        return out

    def decode(self, released: NDArray[np.int64], fragments: int = 1) -> NDArray[np.float64]:
        """Return a total of ``fragments`` released vectors in the statistic's units, the middle of a floored step standing for it."""
        out, at = released.astype(np.float64), 0
        for block in self.blocks:
            shift = self._shift(block)
            if shift:
                out[at : at + block.size] = (out[at : at + block.size] + 0.5 * fragments) * 2.0**shift
            at += block.size
        return out

    def _distance(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """Return the distance of two vectors of released integers, in standard deviations."""
        if not self.scale:
            return 0.0 if np.array_equal(one, other) else math.inf
        return float(np.linalg.norm((one - other) / self.steps))

    @property
    def deviations(self) -> NDArray[np.float64]:
        """Return the standard deviation of every released coordinate in the statistic's units: noise, and rounding to a step."""
        if not self.scale:
            return np.zeros(self.size)
        rounding = 1 / math.sqrt(12)
        return np.concatenate(
            [np.full(b.size, math.hypot(self.scale * b.width, rounding * 2.0 ** self._shift(b))) for b in self.blocks]
        )


# --- Gaussian --------------------------------------------------------------------------------------------------------------
# Rounded Gaussian noise on an integer vector: exact Gaussian composition.


@dataclass(frozen=True, slots=True)
class GaussianRelease(Blocked):
    """An integer vector plus a rounded Gaussian of standard deviation ``scale * width`` in every block.

    A rounded Gaussian on an integer is the Gaussian mechanism followed by rounding, so its exact law of composition applies (Theorem F.4).
    """

    kind: ClassVar[str] = "rounded Gaussian"

    @classmethod
    def calibrated(cls, blocks: Sequence[Block], reach: Mapping[Unit, Reach], unit: Unit, mu: float) -> GaussianRelease:
        """Return the release whose event for ``unit`` is at most the Gaussian ``mu`` (infinite: no noise)."""
        release = cls(tuple(blocks), tuple(sorted(reach.items())), 0.0)
        if mu == math.inf:
            return release
        if not mu > 0:
            msg = f"mu must be positive, not {mu}: ask for a larger epsilon"
            raise UsageError(msg)
        # Also keep every block inside the sampler's smallest scale.
        smallest = noise.SMALLEST_SCALE * (1 + SAFETY) / min(block.width for block in release.blocks)
        release = replace(release, scale=max(reach[unit].distance * (1 + SAFETY) / mu, smallest))
        while (cost := release.event(unit).value) > mu:  # flooring cost a little: once or twice round, each time closer
            release = release.widened(reach[unit], cost, mu)
        return release

    @property
    def name(self) -> str:
        """Return its name in plans and ledgers."""
        return "rounded Gaussian" if self.scale else "no noise"

    def event(self, unit: Unit) -> Event:
        """Gaussian, mu = (sensitivity + flooring) / scale."""
        if not self.scale:
            return UNBOUNDED
        reach = dict(self.reach)[unit]
        return Event(Kind.GAUSSIAN, self._mu(reach), 1, reach.coordinates * noise.TOTAL_VARIATION)

    def draw(self, given: Vector, bits: RandomBits) -> NDArray[np.int64]:
        """Return the released integers; :meth:`decode` puts them back into the statistic's units."""
        return self._noisy(given.values, bits, noise.rounded_gaussian)

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """Return the mu by which two released vectors with equal noise differ."""
        return self._distance(one, other)
