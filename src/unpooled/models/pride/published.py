"""PRIDE's noise as printed: kept for comparison, no guarantee (THEORY.md, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from unpooled.privacy import noise
from unpooled.privacy.mechanisms.unpriced import Unpriced

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms import Vector
    from unpooled.privacy.noise import RandomBits


def published_sigma(theta: float, epsilon: float, delta: float, row_norm: float = 1.0) -> float:
    r"""Noise of PRIDE's Theorem 1 (P.3): :math:`\sigma = w\theta\epsilon^{-1}\sqrt{2(\ln(1/(2\delta))+\epsilon)}`.

    >>> round(published_sigma(7.4118, 1.0, 0.05), 2)
    19.05
    """
    return row_norm * theta / epsilon * math.sqrt(2 * (math.log(1 / (2 * delta)) + epsilon))


@dataclass(frozen=True, slots=True)
class PublishedNoise(Unpriced):
    """Gaussian noise whose theta is the largest range of a standardised column, read off the data."""

    size: int
    multiplier: float
    name: ClassVar[str] = "published Gaussian"

    def draw(self, given: Vector, bits: RandomBits) -> NDArray[np.float64]:
        """The sketch plus Gaussian noise of w theta times the multiplier, on a grid of 2^-18 of itself."""
        assert given.sensitivity is not None
        step = self.multiplier * given.sensitivity * 2.0**-18
        drawn = noise.rounded_gaussian(2.0**18, given.values.size, stream=bits)
        noisy: NDArray[np.float64] = given.values + step * drawn.reshape(given.values.shape)
        return noisy
