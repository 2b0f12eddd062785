"""Picks as the LASSO paper has them: kept for comparison, no guarantee (THEORY.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.privacy.mechanisms.unpriced import Unpriced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms import Vector
    from unpooled.privacy.noise import RandomBits


@dataclass(frozen=True, slots=True)
class NoisyMaximum(Unpriced):
    """The index of the largest value after Laplace noise of a scale that is read off the data."""

    #: Noise per unit of the sensitivity that the run gives.
    multiplier: float
    name: ClassVar[str] = "report noisy maximum"
    size: ClassVar[int] = 1

    def draw(self, given: Vector, bits: RandomBits) -> NDArray[np.float64]:
        """The index of the winner."""
        assert given.sensitivity is not None
        uniform = ((bits.words(0, given.values.size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53 - 0.5
        laplace = -np.sign(uniform) * np.log1p(-2 * np.abs(uniform))
        return np.array([float(np.argmax(given.values + self.multiplier * given.sensitivity * laplace))])
