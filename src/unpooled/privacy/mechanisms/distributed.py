"""Contributions to a total over parties: a vector with a fragment of its noise, or an exact one for a trusted aggregator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.accounting import SAFETY
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms.base import WORDS, Mechanism, Summand, check_integers
from unpooled.privacy.mechanisms.blocks import Block, Blocked, GaussianRelease, Reach

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms.base import Given
    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.unit import Unit


#: A discrete Gaussian of deviation s >= 2 is at most this over s^4 from a rounded Gaussian (Theorem F.29).
NEAR = 0.008


@dataclass(frozen=True, slots=True)
class DistributedGaussian(Blocked):
    r"""One party's fragment of a distributed discrete Gaussian (Kairouz, Liu & Steinke 2021, Theorem 1; F.10).

    Each of the ``honest`` fragments that are guaranteed to arrive has standard deviation ``scale * width`` in every block; their sum
    protects like a Gaussian of standard deviation :math:`\sqrt{honest}` times that, up to :math:`\tau=10\sum_{k<honest}
    e^{-2\pi^2 s^2 k/(k+1)}` with s the smallest standard deviation on the (floored) grid: :math:`\epsilon^2/2`-zCDP with
    :math:`\epsilon=\min(\sqrt{\mu^2+\tau d/2},\mu+\tau\sqrt d)`.
    """

    kind: ClassVar[str] = "distributed discrete Gaussian"
    honest: int
    takes: ClassVar[type[Any]] = Summand
    #: Of a node's part of the total; a fragment itself is sealed.
    dtype: ClassVar[str] = WORDS

    #: Below two grid units the sum is not Gaussian enough (F.10).
    SMALLEST: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        thinnest = min(self.scale * block.width for block in self.blocks)
        if self.honest < 1 or (self.scale and thinnest < self.SMALLEST):
            msg = "a noise fragment needs at least one honest party and a scale of at least 2 grid units: refine the grid"
            raise UsageError(msg)

    @classmethod
    def calibrated(cls, blocks: Sequence[Block], reach: Mapping[Unit, Reach], unit: Unit, limit: float, honest: int) -> Self:
        """Return the fragment whose event for ``unit`` is at most this: rho, or mu of a sum that counts as Gaussian (infinite: no noise)."""
        fragment = cls(tuple(blocks), tuple(sorted(reach.items())), 0.0, honest)
        if limit == math.inf:
            return fragment
        if not limit > 0:
            msg = f"the budget of a sum must be positive, not {limit}: ask for a larger epsilon"
            raise UsageError(msg)
        mu = cls._mu_of(limit)
        smallest = cls.SMALLEST * (1 + SAFETY) / min(block.width for block in fragment.blocks)
        wanted = reach[unit].distance * (1 + SAFETY) / (mu * math.sqrt(honest))
        fragment = replace(fragment, scale=max(wanted, smallest))
        while (spent := fragment.event(unit).value) > limit:
            fragment = fragment.widened(reach[unit], cls._mu_of(spent), mu)
        return fragment

    @staticmethod
    def _mu_of(value: float) -> float:
        """Return the mu of an event with this value."""
        return math.sqrt(2 * value)

    def _apart(self) -> float:
        """Return tau: how far the sum of the honest fragments is from one discrete Gaussian, in every coordinate (Theorem F.10)."""
        thinnest = min(self._step(block) for block in self.blocks)
        return 10 * math.fsum(math.exp(-2 * math.pi**2 * thinnest**2 * k / (k + 1)) for k in range(1, self.honest))

    @property
    def name(self) -> str:
        """Return its name in plans and ledgers."""
        return "distributed Gaussian" if self.scale else "no noise"

    def event(self, unit: Unit) -> Event:
        """ZCDP with rho = epsilon^2 / 2 of Theorem F.10."""
        if not self.scale:
            return UNBOUNDED
        reach = dict(self.reach)[unit]
        mu, tau = self._mu(reach) / math.sqrt(self.honest), self._apart()
        d = reach.coordinates
        epsilon = min(math.sqrt(mu**2 + tau * d / 2), mu + tau * math.sqrt(d))
        return Event(Kind.ZCDP, epsilon**2 / 2, 1, d * self.honest * noise.TOTAL_VARIATION)

    def draw(self, given: Summand, bits: RandomBits) -> NDArray[np.int64]:
        """Return the statistic plus this party's fragment of the noise: private only inside the secure sum."""
        return self._noisy(given.values, bits, noise.discrete_gaussian)

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """Return the rho by which two fragments with equal noise differ once they are summed with the honest others."""
        return self._distance(one, other) ** 2 / (2 * self.honest)

    def total_deviations(self, fragments: int) -> NDArray[np.float64]:
        """Return the standard deviation of every coordinate of the total of ``fragments`` fragments, in the statistic's units."""
        return self.deviations * math.sqrt(fragments)


@dataclass(frozen=True, slots=True)
class FieldGaussian(DistributedGaussian):
    r"""One member's fragment of the noise in a total modulo a prime (F.24), whose steps are so fine that the total counts as Gaussian (F.29).

    A share of a total is uniform modulo the prime, so nothing of it can be floored: noise beyond the sampler's range is drawn in two parts.
    """

    kind: ClassVar[str] = "distributed Gaussian modulo a prime"
    #: The distance from what members could have made themselves of everything else that they see, which is charged to delta.
    distance: float = 0.0

    @property
    def name(self) -> str:
        """Return its name in plans and ledgers."""
        return "joint Gaussian" if self.scale else "no noise"

    def _shift(self, block: Block) -> int:
        del block
        return 0

    @staticmethod
    def _mu_of(value: float) -> float:
        return value

    def event(self, unit: Unit) -> Event:
        """Return that of a Gaussian, with the total variation of Theorem F.29; each part of the noise counts with the distance of its sampler."""
        if not self.scale:
            return UNBOUNDED
        reach = dict(self.reach)[unit]
        square = self.honest * min(self._step(block) for block in self.blocks) ** 2
        mu = self._mu(reach) / math.sqrt(self.honest) / math.sqrt(1 - 1 / (12 * square))
        near = reach.coordinates * (NEAR / square**2 + self._apart() + 3 * self.honest * noise.TOTAL_VARIATION)
        return Event(Kind.GAUSSIAN, mu, 1, near + self.distance)

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """Return the mu by which two totals with equal noise differ."""
        return self._distance(one, other) / math.sqrt(self.honest)

    def draw(self, given: Summand, bits: RandomBits) -> NDArray[np.int64]:
        """Return the member's share plus its fragment of the noise: private only inside the secure sum."""
        return self._noisy(given.values, bits, noise.wide_gaussian)


@dataclass(frozen=True, slots=True)
class Contribution(Mechanism):
    """An exact vector, sealed to a trusted aggregator whose noisy release of the total this party's ledger pays for as its own."""

    kind: ClassVar[str] = "contribution to a trusted total"
    total: GaussianRelease
    aggregator: str
    takes: ClassVar[type[Any]] = Summand
    needs_trust: ClassVar[bool] = True
    dtype: ClassVar[str] = WORDS

    @property
    def name(self) -> str:
        """Return its name in plans and ledgers."""
        return "noise at the total"

    @property
    def size(self) -> int:
        """Return the number of integers."""
        return self.total.size

    @property
    def scale(self) -> float:
        """Return the scale of the noise that the aggregator adds."""
        return self.total.scale

    def prices(self, unit: Unit) -> bool:
        """Return True if the total's mechanism prices the unit."""
        return self.total.prices(unit)

    def sensitivity(self, unit: Unit) -> float:
        """Return the L2 reach of the unit in the total."""
        return self.total.sensitivity(unit)

    def event(self, unit: Unit) -> Event:
        """Return the event of the total's release."""
        return self.total.event(unit)

    def check(self, given: Given) -> None:
        """Refuse a vector of another shape or type than the total's."""
        Mechanism.check(self, given)
        assert isinstance(given, Summand)
        check_integers(given.values, self.size)

    def draw(self, given: Summand, bits: RandomBits) -> NDArray[np.int64]:
        """Return the statistic itself."""
        del bits
        self.check(given)
        return np.copy(given.values)

    def change(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        """Return the mu by which two totals with equal noise differ."""
        return self.total.change(*(self.total.floor(vector) for vector in (one, other)))
