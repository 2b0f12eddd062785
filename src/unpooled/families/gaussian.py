"""The Gaussian family: squared loss, the identity as link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.families.base import Family

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian(Family):
    """Squared loss (y - u)^2 / 2."""

    name: ClassVar[str] = "squared"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = 1.0
    dispersed: ClassVar[bool] = True

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return half the squared residuals."""
        return (y - u) ** 2 / 2

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Return the residuals."""
        return y - u

    def weight(self, u: Vector, y: Vector) -> Vector:  # noqa: ARG002 - it is the same everywhere
        """1 everywhere."""
        return np.ones_like(u)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return (r'^2 - r^2) / 2 as a product."""
        return step * (step / 2 - (y - u))

    def start(self, y: Vector) -> float:
        """Return the mean."""
        return float(y.mean())

    def log_normaliser(self, dispersion: float) -> float:
        """Return the log normaliser of a normal law of this variance."""
        return math.log(2 * math.pi * dispersion) / 2
