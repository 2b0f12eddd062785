"""Quantiles of a column in bins, from noisy counts: which bins they may lie in (THEORY.md, section 6)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.tables.result import TableQuantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.tables.counts import Counts

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]

#: The quantiles that a table shows.
SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)


def quantiles(
    counts: Counts, bins: Sequence[Places], edges: Sequence[float], z: float, line: str, parts: Sequence[float] = SHOWN
) -> list[TableQuantile]:
    """Return quantiles of a line: ``bins`` are the places of the cells of each of its bins, ``edges`` their ends."""
    found, noise = counts.totals(bins), counts.covariance(bins)
    total, hidden = float(found.sum()), z * math.sqrt(max(float(noise.sum()), 0.0))
    if total <= max(hidden, 0.5):
        return [TableQuantile(line, part) for part in parts]
    from scipy.optimize import isotonic_regression

    rising = isotonic_regression(np.cumsum(found)[:-1].clip(0.0, total)).x
    cumulative = np.concatenate([[0.0], rising, [total]])
    return [_quantile(found, noise, cumulative, np.asarray(edges), z, line, part) for part in parts]


def _quantile(
    found: Floats, noise: Floats, cumulative: Floats, edges: Floats, z: float, line: str, part: float
) -> TableQuantile:
    """Return one quantile: its interval is from the first to the last bin that neither of its ends excludes (Theorem N.6)."""
    # Row b: the count below edge b, less the part of all: 0 at the quantile.
    below = np.tri(edges.size, edges.size - 1, -1) - part
    gap = below @ found
    # The rows below an edge are binomial; at the quantile their variance is n q (1 - q).
    variance = max(float(found.sum()), 0.0) * part * (1 - part) + ((below @ noise) * below).sum(axis=1)
    error = z * np.sqrt(np.maximum(variance, 0.0))
    may = np.flatnonzero((gap[:-1] <= error[:-1]) & (gap[1:] >= -error[1:]))
    target = part * cumulative[-1]
    # The middle of the values at which the cumulative count is this: one value, but where no rows are.
    first, last = (int(np.searchsorted(cumulative, target, side=side)) for side in ("left", "right"))
    value = float(np.mean([_crossing(cumulative, edges, k, target) for k in (max(first, 1), min(last, edges.size - 1))]))
    if not may.size:
        may = np.array([min(max(int(np.searchsorted(edges, value)) - 1, 0), edges.size - 2)])
    low, high = float(edges[may[0]]), float(edges[may[-1] + 1])
    return TableQuantile(line, part, min(max(value, low), high), low, high)


def _crossing(cumulative: Floats, edges: Floats, k: int, target: float) -> float:
    """Return where, between edge k - 1 and edge k, the line between cumulative counts has this value."""
    rise = cumulative[k] - cumulative[k - 1]
    inside = (target - cumulative[k - 1]) / rise if rise > 0 else 0.5
    return float(edges[k - 1] + min(max(inside, 0.0), 1.0) * (edges[k] - edges[k - 1]))
