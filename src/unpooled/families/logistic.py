"""The logistic family: two classes, log odds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit, logit

from unpooled.families.base import LEAST, RowFamily
from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


#: Probabilities stay this far from 0 and 1 where a deviance needs their logarithm.
_CERTAIN = 1e-12


@njit(nogil=True)
def _pulls(u: Vector, y: Vector, weight: Vector) -> None:
    for i in range(u.size):
        small = math.exp(-abs(u[i]))  # one exponential and no branch: half the signs cannot be predicted
        p = (1.0 if u[i] >= 0 else small) / (1.0 + small)
        u[i] = y[i] - p
        weight[i] = p * (1.0 - p)


@njit(nogil=True)
def _balanced_pulls(u: Vector, y: Vector, weight: Vector) -> None:
    for i in range(u.size):
        small = math.exp(-abs(u[i]))
        p = (1.0 if u[i] >= 0 else small) / (1.0 + small)
        u[i] = 0.5 * (y[i] - p) * (1.0 + small)  # over twice the larger of p and 1 - p
        weight[i] = 0.5 * small / (1.0 + small)


#: Nodes and weights of a standard normal.
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)


@dataclass(frozen=True)
class Logistic(RowFamily):
    """Two classes: log(1 + e^-yu) of labels -1 and 1 in losses; rounds over rows code the classes as 0 and 1."""

    name: ClassVar[str] = "logistic"
    high: float = 1.0
    slope: ClassVar[float] = 1.0
    curvature: ClassVar[float] = 0.25
    label_slope: ClassVar[float | None] = 1.0
    classes: ClassVar[bool] = True
    #: Whether pulls are divided by twice the larger of p and 1 - p: none is then larger than one half, and their sum keeps its root (Theorem G.4).
    balanced: bool = False

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return the losses."""
        return np.logaddexp(0.0, -y * u)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Return the label times the probability of the other one."""
        return np.asarray(y * expit(-y * u))

    def weight(self, u: Vector, y: Vector) -> Vector:
        """Return the variance of the label, accurate far out on the right side and kept from vanishing on the wrong one."""
        return np.asarray(expit(-y * u) * np.maximum(expit(y * u), LEAST))

    def start(self, y: Vector) -> float:
        """Return the log odds of the labels, half a sample more on each side: finite for one class, too."""
        positive = float((y > 0).sum())
        return math.log((positive + 0.5) / (y.size - positive + 0.5))

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """log(1 + s(-m)(e^(m-m') - 1)) for short steps; long ones do not cancel."""
        margin, gain = y * u, y * step
        near = np.log1p(expit(-margin) * np.expm1(np.clip(-gain, -1.0, 1.0)))
        if np.abs(gain).max(initial=0.0) <= 1.0:
            return np.asarray(near)
        return np.where(np.abs(gain) <= 1.0, near, np.logaddexp(0.0, -margin - gain) - np.logaddexp(0.0, -margin))

    @property
    def ends(self) -> tuple[float, float]:
        """Return infinite ends: no linear predictor is too far."""
        return -math.inf, math.inf

    @property
    def most(self) -> tuple[float, float]:
        """Return the largest pull and weight of a record."""
        return (0.5, 0.25) if self.balanced else (1.0, 0.25)

    def pulls(self, u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
        """Replace ``u`` by y - p of classes 0 and 1, and fill the weights p (1 - p); balanced, both over twice the larger of p and 1 - p."""
        if self.balanced:
            _balanced_pulls(u, y, weight)
        else:
            _pulls(u, y, weight)
        usual[:] = 0.5 if self.balanced else 1.0

    def balance(self, mean: float, deviation: float) -> tuple[float, float, float]:
        """Return the means of a, a t and a (t^2 - 1) for linear predictors ``mean + deviation t``, t standard normal; a is one over twice the larger of p and 1 - p."""
        parts = _NODE_WEIGHTS / _NODE_WEIGHTS.sum() * (1 + np.exp(-np.abs(mean + deviation * _NODES))) / 2
        return float(parts.sum()), float(parts @ _NODES), float(parts @ (_NODES**2 - 1))

    def link(self, mean: float) -> float:
        """Return the log odds of a probability."""
        return math.log(mean / (1 - mean))

    def mean(self, u: Vector) -> Vector:
        """Return the probability of the second class."""
        return np.asarray(expit(u))

    def deviance(self, y: Vector, mean: Vector) -> Vector:
        """Return minus twice the log likelihood of each class, 0 or 1."""
        return self.excess(logit(np.clip(mean, _CERTAIN, 1 - _CERTAIN)), 2 * y - 1)

    def drawn(self, mean: Vector, rng: np.random.Generator, shape: float = 2.0) -> Vector:  # noqa: ARG002 - classes have no shape
        """Return made-up classes 0 and 1 with these probabilities."""
        return np.asarray((rng.random(mean.size) < mean).astype(np.float64))

    def check(self, y: Vector) -> None:
        """Labels are coded -1 and 1."""
        if not np.isin(y, (-1.0, 1.0)).all():
            raise ValueError("labels of a logistic regression are -1 and 1")
