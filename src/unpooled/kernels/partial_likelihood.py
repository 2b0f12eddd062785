r"""Cox's partial likelihood, ties by Breslow: a joint loss whose second derivative is applied in O(n).

.. math:: f(u) = \sum_g d_g \log S_g - \sum_{i: \mathrm{event}} u_i, \quad S_g = \sum_{t_i \ge t_g} e^{u_i}

over the distinct times t_g of d_g events. With :math:`w_i = e^{u_i}`, :math:`a_i = w_i \sum_{t_g \le t_i} d_g / S_g` and
:math:`p_g = w 1\{t \ge t_g\} / S_g` the Hessian is :math:`\mathrm{diag}(a) - \sum_g d_g p_g p_g^T`: full, but its products are cumulative
sums, and :math:`I + tW` is inverted by Woodbury's identity: :math:`P M^{-1} P^T`, M = I + t diag(a), has the entries
:math:`C_{\max(g, h)} / (S_g S_h)`, whose difference matrix is tridiagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, lapack

from unpooled.kernels.ridge import product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.joint_newton import JointLoss

    Vector = NDArray[np.float64]
    Array = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Index = NDArray[np.intp]

#: A hazard is never taken for less than e to this power of the largest: sums over risk sets stay positive.
_LEAST = -300.0


@dataclass(frozen=True)
class PartialLikelihood:
    """The loss of censored times; rows in any order."""

    time: Vector
    #: 1 where the time is that of an event, 0 where observation ended.
    event: Vector

    @property
    def width(self) -> int:
        """Return one decision a row: its log hazard ratio."""
        return 1

    @property
    def rows(self) -> int:
        """N."""
        return int(self.time.size)

    def start(self) -> Vector:
        """Nothing is shared: the baseline hazard is profiled out."""
        return np.empty(0)

    @cached_property
    def _risk(self) -> tuple[Index, Index, Vector, Index]:
        """Return rows by falling time; for every event time (falling) how many rows are at risk, events; for every sorted row, event times up to its own.

        The last counts event times from the earliest on: G less those later than the row.
        """
        order = np.argsort(-self.time, kind="stable")
        times = np.unique(self.time[self.event > 0])[::-1]
        at_risk = np.searchsorted(-self.time[order], -times, side="right")
        deaths = np.zeros(times.size)
        np.add.at(deaths, np.searchsorted(-times, -self.time[self.event > 0]), 1.0)
        later = np.searchsorted(-times, -self.time[order], side="left")  # event times later than the row's own
        return order, at_risk, deaths, later

    @property
    def event_times(self) -> Vector:
        """Return the distinct times of events, rising."""
        return np.unique(self.time[self.event > 0])

    def hazards(self, decisions: Vector) -> Vector:
        """Return Breslow's increments of the baseline hazard at :attr:`event_times`: d_g / S_g."""
        order, at_risk, deaths, _ = self._risk
        sums = np.cumsum(np.exp(decisions[order]))[at_risk - 1]
        return np.asarray((deaths / sums)[::-1])

    def value(self, decisions: Matrix, shared: Vector) -> float:  # noqa: ARG002 - nothing is shared
        """Return the negative log partial likelihood."""
        order, at_risk, deaths, _ = self._risk
        u = decisions[:, 0]
        if deaths.size == 0:
            return 0.0
        top = float(u.max())
        sums = np.cumsum(np.exp(np.maximum(u[order] - top, _LEAST)))[at_risk - 1]
        return float(deaths @ (np.log(sums) + top) - u @ self.event)

    def bend(self, decisions: Matrix, shared: Vector) -> RiskSets:  # noqa: ARG002 - nothing is shared
        """Return derivatives about these decisions."""
        order, at_risk, deaths, later = self._risk
        u = decisions[:, 0]
        weights = np.exp(np.maximum(u[order] - u.max(initial=0.0), _LEAST))
        sums = np.cumsum(weights)[at_risk - 1] if deaths.size else np.empty(0)
        passed = np.append(np.cumsum((deaths / sums)[::-1])[::-1], 0.0)[later]  # the baseline hazard up to a row's time
        means = np.empty_like(u)
        means[order] = weights * passed
        pull = (self.event - means)[:, None]
        return RiskSets(pull, self.rows, order, at_risk, deaths, later, weights, sums, weights * passed)

    def of_rows(self, rows: Index) -> PartialLikelihood:
        """Risk sets of these rows alone."""
        return PartialLikelihood(self.time[rows], self.event[rows])

    def carried(self, fitted: JointLoss, shared: Vector) -> Vector:  # noqa: ARG002 - nothing is shared
        """Nothing is shared."""
        return shared


def _differences(values: Vector) -> Vector:
    """Return the first row, and every other one less the row before it."""
    found = values.copy()
    found[1:] -= values[:-1]
    return found


@dataclass(frozen=True)
class RiskSets:
    """A partial likelihood about a point; everything below is in the order of falling time."""

    pull: Matrix
    rows: int
    order: Index
    at_risk: Index
    deaths: Vector
    later: Index
    weights: Vector
    sums: Vector
    #: a.
    expected: Vector
    #: What is solved at a t, by t: it serves everything that one Newton step asks for.
    cores: dict[float, tuple[Vector, Matrix]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def slope(self) -> Vector:
        """Nothing is shared."""
        return np.empty(0)

    @property
    def cross(self) -> Array:
        """Nothing is shared."""
        return np.empty((self.rows, 1, 0))

    @property
    def square(self) -> Matrix:
        """Nothing is shared."""
        return np.empty((0, 0))

    def _over_sets(self, values: Matrix) -> Matrix:
        """P V: means over risk sets, one row for each event time (falling)."""
        return np.asarray(np.cumsum(self.weights[:, None] * values, axis=0)[self.at_risk - 1] / self.sums[:, None])

    def _back(self, values: Matrix) -> Matrix:
        """P' V."""
        summed = np.zeros((values.shape[0] + 1, values.shape[1]))
        summed[:-1] = np.cumsum((values / self.sums[:, None])[::-1], axis=0)[::-1]
        return np.asarray(self.weights[:, None] * summed[self.later])

    def times(self, directions: Array) -> Array:
        """W V."""
        values = directions[self.order, 0]
        found = np.empty((self.rows, 1, values.shape[1]))
        found[self.order, 0] = self.expected[:, None] * values - self._back(self.deaths[:, None] * self._over_sets(values))
        return found

    def _core(self, t: float) -> tuple[Vector, Matrix]:
        """Return (diagonal of M, banded Cholesky factor of the tridiagonal N with det K = det N / prod S^2), K = (t D)^-1 - P M^-1 P'."""
        if t in self.cores:
            return self.cores[t]
        diagonal = 1 + t * self.expected
        reach = np.cumsum(self.weights**2 / diagonal)[self.at_risk - 1]  # C, rising as time falls
        level = self.sums**2 / (t * self.deaths)
        band = np.zeros((2, level.size))
        band[0] = level - _differences(reach)
        band[0, 1:] += level[:-1]
        band[1, :-1] = -level[:-1]
        factor, failed = lapack.dpbtrf(band, lower=1)
        if failed:
            msg = f"the curvature of the partial likelihood is not positive definite at {t:g}"
            raise LinAlgError(msg)
        self.cores[t] = diagonal, factor
        return diagonal, factor

    def damped(self, directions: Array, t: float) -> Array:
        """Return (I + t W)^-1 V = M^-1 V + M^-1 P' K^-1 P M^-1 V."""
        if not t:
            return directions
        if not self.deaths.size:
            return directions
        diagonal, factor = self._core(t)
        values = directions[self.order, 0] / diagonal[:, None]
        # K^-1 = diag(S) D' N^-1 D diag(S), D the first difference.
        inner = _differences(self.sums[:, None] * self._over_sets(values))
        solved, _ = lapack.dpbtrs(factor, inner, lower=1)
        solved[:-1] -= solved[1:]
        values = values + self._back(self.sums[:, None] * solved) / diagonal[:, None]
        found = np.empty((self.rows, 1, values.shape[1]))
        found[self.order, 0] = values
        return found

    def log_determinant(self, t: float) -> float:
        """Det M det K det(t D)."""
        if not self.deaths.size:
            return 0.0
        diagonal, factor = self._core(t)
        core = 2 * float(np.log(factor[0]).sum() - np.log(self.sums).sum())
        return float(np.log(diagonal).sum()) + core + float(np.log(t * self.deaths).sum())

    def curvature(self, features: Matrix, t: float) -> Matrix:
        """F' W R F."""
        bent = self.times(self.damped(features[:, None, :], t))[:, 0]
        found = product(features.T, np.ascontiguousarray(bent))
        return np.asarray((found + found.T) / 2)
