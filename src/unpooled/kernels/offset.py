"""A loss of a linear predictor with a fixed part: f(u + o; y) as a loss of u."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.newton import Loss

    Vector = NDArray[np.float64]


@dataclass(frozen=True)
class OffsetLoss:
    """A loss whose linear predictors all have an offset, a :class:`unpooled.kernels.newton.Loss` itself."""

    loss: Loss
    #: o, a number a row.
    offset: Vector

    @property
    def slope(self) -> float:
        """That of the loss."""
        return self.loss.slope

    @property
    def curvature(self) -> float:
        """That of the loss."""
        return self.loss.curvature

    @property
    def dispersed(self) -> bool:
        """As the loss."""
        return self.loss.dispersed

    @property
    def has_effects(self) -> bool:
        """As the loss."""
        return self.loss.has_effects

    def bend(self, y: Vector) -> float:
        """That of the loss."""
        return self.loss.bend(y)

    def check(self, y: Vector) -> None:
        """As the loss."""
        self.loss.check(y)

    def start(self, y: Vector) -> float:
        """As the loss: offsets have the mean 0."""
        return self.loss.start(y)

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return the losses."""
        return self.loss.value(u + self.offset, y)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """-f'."""
        return self.loss.pull(u + self.offset, y)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """f'', as the loss has it."""
        return self.loss.weight(u + self.offset, y)

    def information(self, u: Vector, y: Vector) -> Vector:
        """As the loss."""
        return self.loss.information(u + self.offset, y)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """f(u + o + step) - f(u + o), as the loss has it."""
        return self.loss.change(u + self.offset, y, step)

    def log_normaliser(self, dispersion: float) -> float:
        """As the loss: over y, for given offsets."""
        return self.loss.log_normaliser(dispersion)

    def integrated(self, u: Vector, y: Vector) -> float:
        """As the loss."""
        return self.loss.integrated(u + self.offset, y)
