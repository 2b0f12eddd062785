"""Comparisons of survival between arms from life tables whose cells have noise: weighted log-rank tests, restricted means, and their null law.

Cells are (stratum, arm, cell): of every interval first those censored in it, then those with an event, and last those who were there at the end. Numbers
may be negative, for noise was added. Any number of tables may stand before these three axes. Who is at risk in an interval counts with half of those
who are censored in it (the actuarial form).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: At risk, at least: nothing is divided by less.
_LEAST = 1.0


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
    whole = np.maximum(risk.sum(axis=-2, keepdims=True), _LEAST)
    seen = events.sum(axis=-2, keepdims=True)
    weight = whole / whole[..., :1] if early else np.ones_like(whole)
    share = risk / whole
    difference = (weight * (events - share * seen)).sum(axis=(-3, -1))[..., 1:]
    inside, d = np.clip(share, 0.0, 1.0), np.clip(seen, 0.0, whole)
    spread = weight**2 * d * (whole - d) / np.maximum(whole - 1, _LEAST)
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
    left = np.clip(1 - events / np.maximum(risk, _LEAST), 0.0, 1.0)
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
    least = np.maximum(risk, _LEAST)
    gone = np.clip(events / least, 0.0, 1.0)
    curve = np.cumprod(1 - gone, axis=-1)
    # By backward sums, not by division: where all who are left have the event in one interval, the curve still moves with the noise.
    beyond = np.broadcast_to(weights, gone.shape).copy()
    for j in range(weights.size - 2, -1, -1):
        beyond[..., j] += (1 - gone[..., j + 1]) * beyond[..., j + 1]
    slope = -beyond * np.concatenate([np.ones_like(curve[..., :1]), curve[..., :-1]], axis=-1)
    gradient = _by_cell(slope / least, -slope * gone / least)
    counts = np.maximum(table, 0.0)
    people = np.maximum(counts.sum(axis=-1), _LEAST)
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
    hazard = np.clip(events.sum(axis=-2) / np.maximum(risk.sum(axis=-2), _LEAST), 0.0, 1.0)
    there = risk + censored / 2
    leave = np.clip(censored / np.maximum(there - events, _LEAST), 0.0, 1.0)
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
