r"""A loss with an independent random effect in every row: its Moreau envelope (Theorem P.9).

Minimising :math:`\sum f(u_i + e_i; y_i) + |e|^2/(2t)` over e leaves :math:`f_t(u) = \min_e f(u + e) + e^2/(2t)`, convex as f is, with
:math:`f_t'(u) = f'(v)` and :math:`f_t''(u) = (1/f''(v) + t)^{-1}` at :math:`v = u + e`, the only root of :math:`v + t f'(v) = u`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.newton import Loss

    Vector = NDArray[np.float64]

_ITERATIONS = 200
_PRECISION = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class MoreauEnvelope:
    """f_t of a loss, a :class:`unpooled.kernels.newton.Loss` itself."""

    loss: Loss
    #: t: the random effects' variance where the penalty on the coefficients is 1.
    variance: float
    #: The last decisions, responses and roots: value, pull and weight ask for the same ones.
    _last: list[Vector] = field(default_factory=list, compare=False, repr=False)

    @property
    def slope(self) -> float:
        """That of the loss."""
        return self.loss.slope

    @property
    def curvature(self) -> float:
        """Return the largest f_t''."""
        return 1 / (1 / self.loss.curvature + self.variance)

    @property
    def has_effects(self) -> bool:
        """As the loss."""
        return self.loss.has_effects

    def bend(self, y: Vector) -> float:
        """That of the loss, less what the effects take up."""
        return 1 / (1 / self.loss.bend(y) + self.variance)

    @property
    def dispersed(self) -> bool:
        """As the loss."""
        return self.loss.dispersed

    def check(self, y: Vector) -> None:
        """As the loss."""
        self.loss.check(y)

    def start(self, y: Vector) -> float:
        """As the loss."""
        return self.loss.start(y)

    def log_normaliser(self, dispersion: float) -> float:
        """As the loss: over y, for given effects."""
        return self.loss.log_normaliser(dispersion)

    def shifted(self, u: Vector, y: Vector) -> Vector:
        """Return the roots v, by Newton's steps inside a bracket that shrinks with each: f' rises, so they lie between u and u - t f'(u)."""
        return self._rooted(u, y)[0]

    def _rooted(self, u: Vector, y: Vector) -> tuple[Vector, Vector]:
        """Return the roots v, and f''(v)."""
        if not self._last or not (np.array_equal(self._last[0], u) and self._last[1] is y):
            self._last[:] = [u, y, *self._roots(u, y)]
        return self._last[2], self._last[3]

    def _roots(self, u: Vector, y: Vector) -> tuple[Vector, Vector]:
        reach = self.variance * self.loss.pull(u, y)
        low, high = np.minimum(u, u + reach), np.maximum(u, u + reach)
        if self._last and self._last[1] is y:  # from the last roots along their slopes, which are near
            v = self._last[2] + (u - self._last[0]) / (1 + self.variance * self._last[3])
        else:
            v = u + reach / (1 + self.variance * self.loss.weight(u, y))
        v, last = np.minimum(np.maximum(v, low), high), np.full(u.shape, np.inf)
        for _ in range(_ITERATIONS):
            excess, weight = v - u - self.variance * self.loss.pull(v, y), self.loss.weight(v, y)
            size, step = np.abs(excess), excess / (1 + self.variance * weight)
            # Once a step is within rounding of v: the excess itself is not, where t f' is steep.
            open_ = np.abs(step) > _PRECISION * (1 + np.abs(u) + np.abs(v))
            if not open_.any():
                return v, weight
            low, high = np.where(excess < 0, v, low), np.where(excess > 0, v, high)
            tried = v - step
            # The middle instead of a step out of the bracket, and after one that did not halve the excess: where f'' is next to 0 on one
            # side of the root Newton's steps would go to and fro.
            tried = np.where((tried > low) & (tried < high) & (size <= last / 2), tried, (low + high) / 2)
            v, last = np.where(open_, tried, v), size
        return v, self.loss.weight(v, y)

    def value(self, u: Vector, y: Vector) -> Vector:
        """f(v) + (v - u)^2 / 2t."""
        v = self.shifted(u, y)
        return self.loss.value(v, y) + (v - u) ** 2 / (2 * self.variance)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """-f'(v)."""
        return self.loss.pull(self.shifted(u, y), y)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """f''(v) / (1 + t f''(v))."""
        weight = self._rooted(u, y)[1]
        return weight / (1 + self.variance * weight)

    def information(self, u: Vector, y: Vector) -> Vector:
        """Fisher information of the marginal loss: that of the conditional loss, minus the part that the random effects absorb."""
        information = self.loss.information(self.shifted(u, y), y)
        return information / (1 + self.variance * information)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return the loss's own change from v to v', and that of e^2/2t as a product; errors of v cancel to first order."""
        before, after = self.shifted(u, y), self.shifted(u + step, y)
        first, moved = before - u, after - before
        gained = moved - step
        return self.loss.change(before, y, moved) + gained * (2 * first + gained) / (2 * self.variance)

    def integrated(self, u: Vector, y: Vector) -> float:
        """Return log determinant of I + t W: the effects' own part of Laplace's approximation."""
        return self.loss.integrated(u, y) + float(
            np.log1p(self.variance * self.loss.information(self.shifted(u, y), y)).sum()
        )
