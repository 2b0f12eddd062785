"""Censored times: the partial likelihood, concordance of risks with times, and tests that compare curves."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

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
    Floats = NDArray[np.float64]


# --- Partial likelihood ----------------------------------------------------------------------------------------------------
# Cox's partial likelihood, ties by Breslow: a joint loss whose second derivative is applied in O(n).
#
# .. math:: f(u) = \sum_g d_g \log S_g - \sum_{i: \mathrm{event}} u_i, \quad S_g = \sum_{t_i \ge t_g} e^{u_i}
#
# over the distinct times t_g of d_g events. With :math:`w_i = e^{u_i}`, :math:`a_i = w_i \sum_{t_g \le t_i} d_g / S_g` and
# :math:`p_g = w 1\{t \ge t_g\} / S_g` the Hessian is :math:`\mathrm{diag}(a) - \sum_g d_g p_g p_g^T`: full, but its products are cumulative
# sums, and :math:`I + tW` is inverted by Woodbury's identity: :math:`P M^{-1} P^T`, M = I + t diag(a), has the entries
# :math:`C_{\max(g, h)} / (S_g S_h)`, whose difference matrix is tridiagonal.

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


# --- Concordance -----------------------------------------------------------------------------------------------------------
# Harrell's concordance of risks with censored times.


def concordance(time: NDArray[Any], event: NDArray[Any], risk: NDArray[np.float64]) -> float:
    """Return the share of comparable pairs (the earlier time is that of an event) whose earlier one has the larger risk; ties count half.

    >>> concordance(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), np.array([2.0, 1.0, 0.0]))
    1.0
    """
    right = pairs = 0.0
    for i in np.flatnonzero(np.asarray(event) > 0):
        # A row censored at the time of an event was still at risk then.
        later = (time > time[i]) | ((time == time[i]) & (np.asarray(event) == 0))
        pairs += float(later.sum())
        right += float((risk[later] < risk[i]).sum()) + 0.5 * float((risk[later] == risk[i]).sum())
    return right / pairs if pairs else 0.5


# --- Survival tests --------------------------------------------------------------------------------------------------------
# Comparisons of survival between arms from life tables whose cells have noise: weighted log-rank tests, restricted means, and their null law.
#
# Cells are (stratum, arm, cell): of every interval first those censored in it, then those with an event, and last those who were there at the end. Numbers
# may be negative, for noise was added. Any number of tables may stand before these three axes. Who is at risk in an interval counts with half of those
# who are censored in it (the actuarial form).

#: At risk, at least: nothing is divided by less.
_AT_RISK = 1.0


class Compared(NamedTuple):
    """Differences of arms from the first one: (.., arms - 1), and their covariances by sampling and by the noise of the cells."""

    apart: Floats
    sampling: Floats
    noise: Floats

    @property
    def statistic(self) -> Floats:
        """Return the squared length of the differences in units of their covariance: one number for every table."""
        whole = self.sampling + self.noise
        solved = np.linalg.solve(whole + np.eye(whole.shape[-1]) * 1e-12, self.apart[..., None])[..., 0]
        return np.asarray(np.sum(self.apart * solved, axis=-1))

    @property
    def is_noise(self) -> NDArray[np.bool_]:
        """Return True where the noise adds more to the variances than the draw of persons."""
        return np.asarray(np.trace(self.noise, axis1=-2, axis2=-1) > np.trace(self.sampling, axis1=-2, axis2=-1))


def parts(cells: Floats) -> tuple[Floats, Floats, Floats]:
    """Return (events, censored, at risk) of every interval."""
    censored, events = cells[..., 0:-1:2], cells[..., 1:-1:2]
    leaving = censored + events
    there = np.cumsum(leaving[..., ::-1], axis=-1)[..., ::-1] + cells[..., -1:]
    return events, censored, there - censored / 2


def _by_cell(direct: Floats, through: Floats) -> Floats:
    """Return derivatives by every cell from those by the events of an interval and by who is at risk in it."""
    sums = np.cumsum(through, axis=-1)
    found = np.empty((*sums.shape[:-1], 2 * sums.shape[-1] + 1))
    found[..., 0:-1:2] = sums - through / 2
    found[..., 1:-1:2] = direct + sums
    found[..., -1] = sums[..., -1]
    return found


def log_rank(cells: Floats, deviation: float, *, early: bool = False) -> Compared:
    """Return observed less expected events of every arm but the first, over strata; ``early`` weighs intervals by who is at risk (Gehan's test)."""
    events, _, risk = parts(cells)
    whole = np.maximum(risk.sum(axis=-2, keepdims=True), _AT_RISK)
    seen = events.sum(axis=-2, keepdims=True)
    weight = whole / whole[..., :1] if early else np.ones_like(whole)
    share = risk / whole
    difference = (weight * (events - share * seen)).sum(axis=(-3, -1))[..., 1:]
    inside, d = np.clip(share, 0.0, 1.0), np.clip(seen, 0.0, whole)
    spread = weight**2 * d * (whole - d) / np.maximum(whole - 1, _AT_RISK)
    arms = cells.shape[-2]
    sampling = np.zeros((*difference.shape, arms - 1))
    noise = np.zeros_like(sampling)
    gradients = []
    for a in range(1, arms):
        for b in range(1, arms):
            part = spread[..., 0, :] * inside[..., a, :] * ((a == b) - inside[..., b, :])
            sampling[..., a - 1, b - 1] = part.sum(axis=(-2, -1))
        same = (np.arange(arms) == a).astype(float)[:, None]
        direct = weight * (same - share[..., a : a + 1, :])
        through = -weight * seen * (same - share[..., a : a + 1, :]) / whole
        gradients.append(_by_cell(direct, through))
    for a, one in enumerate(gradients):
        for b, other in enumerate(gradients):
            noise[..., a, b] = deviation**2 * (one * other).sum(axis=(-3, -2, -1))
    return Compared(difference, sampling, noise)


def survival(cells: Floats) -> Floats:
    """Return the curve of every arm at the ends of the intervals, strata together: between 0 and 1, never rising."""
    events, _, risk = parts(cells.sum(axis=-3))
    left = np.clip(1 - events / np.maximum(risk, _AT_RISK), 0.0, 1.0)
    return np.asarray(np.cumprod(left, axis=-1))


def areas(edges: Floats, horizon: int) -> tuple[float, Floats]:
    """Return (constant, weights): the area below a curve up to an end of an interval is the constant and the weighted sum of its values."""
    widths = np.diff(np.append(0.0, edges))[: horizon + 1]
    weights = np.zeros(edges.size)
    weights[: horizon + 1] = widths / 2
    weights[:horizon] += widths[1:] / 2
    return float(widths[0] / 2), weights


def of_curves(cells: Floats, deviation: float, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return weighted sums of every arm's curve, strata together, and their variances by sampling and by noise, by the delta method."""
    strata = cells.shape[-3]
    table = cells.sum(axis=-3)
    events, _, risk = parts(table)
    least = np.maximum(risk, _AT_RISK)
    gone = np.clip(events / least, 0.0, 1.0)
    curve = np.cumprod(1 - gone, axis=-1)
    # By backward sums, not by division: where all who are left have the event in one interval, the curve still moves with the noise.
    beyond = np.broadcast_to(weights, gone.shape).copy()
    for j in range(weights.size - 2, -1, -1):
        beyond[..., j] += (1 - gone[..., j + 1]) * beyond[..., j + 1]
    slope = -beyond * np.concatenate([np.ones_like(curve[..., :1]), curve[..., :-1]], axis=-1)
    gradient = _by_cell(slope / least, -slope * gone / least)
    counts = np.maximum(table, 0.0)
    people = np.maximum(counts.sum(axis=-1), _AT_RISK)
    mean = (counts * gradient).sum(axis=-1)
    sampling = np.maximum((counts * gradient**2).sum(axis=-1) - mean**2 / people, 0.0)
    noise = strata * deviation**2 * (gradient**2).sum(axis=-1)
    return (weights * curve).sum(axis=-1), sampling, noise


def differences(cells: Floats, deviation: float, weights: Floats) -> Compared:
    """Return weighted sums of every arm's curve less that of the first arm."""
    values, sampling, noise = of_curves(cells, deviation, weights)
    arms = values.shape[-1]

    def covariance(variances: Floats) -> Floats:
        own = np.eye(arms - 1) * variances[..., 1:, None]
        return np.asarray(own + variances[..., :1, None])

    return Compared(values[..., 1:] - values[..., :1], covariance(sampling), covariance(noise))


def null_tables(cells: Floats, deviation: float, draws: int, rng: np.random.Generator) -> Floats:
    """Return tables drawn as if the arms of a stratum had one hazard, censored as each arm was, with fresh noise: (draw, stratum, arm, cell)."""
    events, censored, risk = parts(cells)
    hazard = np.clip(events.sum(axis=-2) / np.maximum(risk.sum(axis=-2), _AT_RISK), 0.0, 1.0)
    there = risk + censored / 2
    leave = np.clip(censored / np.maximum(there - events, _AT_RISK), 0.0, 1.0)
    strata, arms, size = cells.shape
    found = np.zeros((draws, strata, arms, size))
    for s in range(strata):
        for a in range(arms):
            left = np.full(draws, max(round(float(there[s, a, 0])), 0))
            for j in range(hazard.shape[-1]):
                # Half of the censored leave before the events of their interval can hit them: then events are a share of the actuarial number.
                seen = rng.binomial(left, hazard[s, j] * (1 - leave[s, a, j] / 2))
                gone = rng.binomial(left - seen, leave[s, a, j])
                found[:, s, a, 2 * j], found[:, s, a, 2 * j + 1] = gone, seen
                left = left - seen - gone
            found[:, s, a, -1] = left
    return np.asarray(found + deviation * rng.normal(size=found.shape))
