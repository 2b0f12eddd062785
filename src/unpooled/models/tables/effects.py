"""Odds ratio, risk ratio and risk difference of two lines, pooled or over strata: sets of values in Fieller's way (THEORY.md, section 5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.tables.counts import spread
from unpooled.models.tables.result import Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.tables.counts import Counts

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]

#: Of an effect, with cells in the order (reference without event, reference with event, line without, line with): the matrices H and G with
#: T'(H + theta G)T/2 = 0 at the true value, and the ends of what is possible.
_FORMS: dict[str, tuple[Floats, Floats, float, float]] = {}


def _symmetric(entries: dict[tuple[int, int], float]) -> Floats:
    matrix = np.zeros((4, 4))
    for (i, j), value in entries.items():
        matrix[i, j] = matrix[j, i] = value
    return matrix


# With a, b: the reference's rows without and with the event; c, d: the line's. d a - theta c b; d (a + b) - theta b (c + d); and
# d (a + b) - b (c + d) - theta (a + b)(c + d), which is d a - c b - theta (a c + a d + b c + b d).
_FORMS["odds ratio"] = _symmetric({(3, 0): 1.0}), _symmetric({(2, 1): -1.0}), 0.0, math.inf
_FORMS["risk ratio"] = _symmetric({(3, 0): 1.0, (3, 1): 1.0}), _symmetric({(1, 2): -1.0, (1, 3): -1.0}), 0.0, math.inf
_FORMS["risk difference"] = (
    _symmetric({(3, 0): 1.0, (2, 1): -1.0}),
    _symmetric({(0, 2): -1.0, (0, 3): -1.0, (1, 2): -1.0, (1, 3): -1.0}),
    -1.0,
    1.0,
)
#: What the same are called where strata are added up.
OVER_STRATA = {"odds ratio": "Mantel-Haenszel odds ratio", "risk difference": "common risk difference"}


def effects(counts: Counts, strata: Sequence[Sequence[Places]], z: float, line: str, reference: str) -> list[Effect]:
    """Return the effects of two lines, pooled and, where there are several strata, over strata; a stratum is four sets of places among all parties' cells."""
    pooled = [np.concatenate([stratum[k] for stratum in strata]) for k in range(4)]
    found = [_effect(counts, [pooled], name, z, (name, line, reference)) for name in _FORMS]
    if len(strata) > 1:
        found += [_effect(counts, strata, name, z, (title, line, reference)) for name, title in OVER_STRATA.items()]
    return found


def _effect(counts: Counts, strata: Sequence[Sequence[Places]], kind: str, z: float, named: tuple[str, str, str]) -> Effect:
    """Return the values theta with F(theta)^2 <= z^2 v(theta): F is linear in theta, and its variance v is a square (Theorem N.4)."""
    first, second, low, high = _FORMS[kind]
    f, sampling, noise = np.zeros(2), np.zeros(3), np.zeros(3)
    gradients: list[Floats] = []
    for cells in strata:
        t, covariance = counts.totals(cells), counts.covariance(cells)
        weight = _weight(t, counts.variance * cells[0].size) if len(strata) > 1 else 1.0
        matrices = weight * first, weight * second
        pulls = np.array([m @ t for m in matrices])
        # The noise of products has the mean tr(H N)/2 and the variance tr(H N H N)/2.
        spreads = [m @ covariance for m in matrices]
        f += [(pull @ t - np.trace(s)) / 2 for pull, s in zip(pulls, spreads, strict=True)]
        sampling += _square((pulls * np.maximum(t, 0.0)) @ pulls.T)
        noise += _square(np.array([[np.trace(a @ b) / 2 for b in spreads] for a in spreads]))
        gradients += [np.repeat(pulls[:, [k]], places.size, axis=1) for k, places in enumerate(cells)]
    used = np.concatenate([places for cells in strata for places in cells])
    noise += _square(counts.noise(np.concatenate(gradients, axis=1), used))
    return _solved(f, sampling, noise, z, (low, high), named)


def _square(products: Floats) -> Floats:
    """Return the coefficients of 1, theta and theta^2 of the variance of X + theta Y, from their covariances."""
    return np.array([products[0, 0], 2 * products[0, 1], products[1, 1]])


def _weight(cells: Floats, variance: float) -> float:
    """Return a stratum's weight: the inverse of its rows, as Mantel and Haenszel's, and less where noise is what its products hold (Theorem N.5)."""
    rows = max(float(cells.sum()), 1 + spread(variance))
    return 1 / (rows + 4 * variance + 32 * (variance / rows) ** 2)


def _solved(
    f: Floats, sampling: Floats, noise: Floats, z: float, ends: tuple[float, float], named: tuple[str, str, str]
) -> Effect:
    """Return the set of theta with (f0 + theta f1)^2 <= z^2 v(theta), inside what is possible."""
    constant, linear, square = np.array([f[0] ** 2, 2 * f[0] * f[1], f[1] ** 2]) - z * z * (sampling + noise)
    low, high = ends
    root = linear**2 - 4 * square * constant
    if not square or root < 0:
        return Effect(*named, "unknown")
    # In the form that loses no digits where the square's coefficient is small.
    half = -(linear + math.copysign(math.sqrt(root), linear)) / 2
    one, two = sorted((float(half / square), float(constant / half))) if half else (0.0, 0.0)
    found = float(-f[0] / f[1]) if f[1] else math.nan
    value = found if low < found < high else None
    if square < 0:
        return _outside(one, two, ends, value, named)
    if value is not None:
        powers = np.array([1.0, value, value**2])
        deviation, own = (spread(float(powers @ v)) / abs(float(f[1])) for v in (sampling + noise, noise))
        return Effect(*named, "interval", value, max(one, low), min(two, high), deviation, own)
    if one <= low < two < high:
        return Effect(*named, "below", high=two)
    return Effect(*named, "above", low=one) if low < one < high <= two else Effect(*named, "unknown")


def _outside(one: float, two: float, ends: tuple[float, float], value: float | None, named: tuple[str, str, str]) -> Effect:
    """Return the possible values up to one, and from two on."""
    below, above = one > ends[0], two < ends[1]
    if below and above:
        return Effect(*named, "outside", value, one, two)
    if not (below or above):
        return Effect(*named, "unknown")
    return Effect(*named, "below", value, high=one) if below else Effect(*named, "above", value, low=two)
