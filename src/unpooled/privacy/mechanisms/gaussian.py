"""Rounded Gaussian noise on an integer vector: exact Gaussian composition."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.accounting import SAFETY
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms.blocks import Block, Blocked, Reach

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms.given import Vector
    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.unit import Unit


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
