"""The probit family: two classes, the normal law's quantile as link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from unpooled.families.base import LEAST, RowFamily
from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

#: The fit distinguishes linear predictors up to this one: probabilities of 3e-5 and more.
_FARTHEST = 4.0


@njit(nogil=True)
def _pulls(u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
    for i in range(u.size):
        at = min(max(u[i], -_FARTHEST), _FARTHEST)
        p, density = 0.5 * math.erfc(-at / math.sqrt(2.0)), math.exp(-at * at / 2.0) / math.sqrt(2.0 * math.pi)
        u[i] = density / p if y[i] > 0.5 else -density / (1.0 - p)
        weight[i] = density * density / (p * (1.0 - p))
        usual[i] = 1.0 + abs(at)


@dataclass(frozen=True)
class Probit(RowFamily):
    """-log Phi(yu) of labels -1 and 1; rounds over rows code the classes as 0 and 1."""

    name: ClassVar[str] = "probit"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = 1.0
    classes: ClassVar[bool] = True
    high: float = 1.0

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return the losses."""
        return np.asarray(-log_ndtr(y * u))

    def _ratio(self, at: Vector) -> Vector:
        return np.asarray(np.exp(-(at**2) / 2 - log_ndtr(at)) / math.sqrt(2 * math.pi))

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Return the label times the density over the probability of the label."""
        return y * self._ratio(y * u)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """Return the second derivatives."""
        ratio = self._ratio(y * u)
        return np.maximum(ratio * (ratio + y * u), LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return f(u + step) - f(u), of short steps by the slope and half the curvature."""
        short = -self.pull(u, y) * step + self.weight(u, y) * step**2 / 2
        return np.where(np.abs(step) < 1e-6, short, self.value(u + step, y) - self.value(u, y))

    def start(self, y: Vector) -> float:
        """Return the quantile of the share of the label 1, half a sample more on each side."""
        return float(ndtri(((y > 0).sum() + 0.5) / (y.size + 1)))

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends beyond which probabilities are not distinguished."""
        return -_FARTHEST, _FARTHEST

    @property
    def most(self) -> tuple[float, float]:
        """Return the largest pull and weight of a record."""
        return _FARTHEST + 1, 2 / math.pi

    def pulls(self, u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
        """Replace ``u`` by the pulls of classes 0 and 1, and fill the expected weights and a bound on most pulls."""
        _pulls(u, y, weight, usual)

    def link(self, mean: float) -> float:
        """Return the normal law's quantile of a probability."""
        return float(ndtri(mean))

    def mean(self, u: Vector) -> Vector:
        """Return the probability of the second class."""
        return np.asarray(ndtr(u))

    def deviance(self, y: Vector, mean: Vector) -> Vector:
        """Return minus twice the log likelihood of each class, 0 or 1."""
        return self.excess(ndtri(np.clip(mean, 1e-12, 1 - 1e-12)), 2 * y - 1)

    def drawn(self, mean: Vector, rng: np.random.Generator, shape: float = 2.0) -> Vector:  # noqa: ARG002 - classes have no shape
        """Return made-up classes 0 and 1 with these probabilities."""
        return np.asarray((rng.random(mean.size) < mean).astype(np.float64))
