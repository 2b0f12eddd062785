"""Quantiles of a column in bins, from noisy counts: which bins they may lie in (THEORY.md, section 6)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.tables.counts import nearest
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
    shown = nearest(found, np.ones((1, len(bins))), np.array([total]))
    return [_quantile(found, noise, shown, np.asarray(edges), z, line, part) for part in parts]


def _quantile(found: Floats, noise: Floats, shown: Floats, edges: Floats, z: float, line: str, part: float) -> TableQuantile:
    """Return one quantile: its interval is from the first to the last bin that neither of its ends excludes (Theorem N.6)."""
    # Row b: the count below edge b, less the part of all: 0 at the quantile.
    below = np.tri(edges.size, edges.size - 1, -1) - part
    gap = below @ found
    # The rows below an edge are binomial; at the quantile their variance is n q (1 - q).
    variance = max(float(found.sum()), 0.0) * part * (1 - part) + np.einsum("ij,jk,ik->i", below, noise, below)
    error = z * np.sqrt(np.maximum(variance, 0.0))
    may = np.flatnonzero((gap[:-1] <= error[:-1]) & (gap[1:] >= -error[1:]))
    cumulative = np.concatenate([[0.0], np.cumsum(shown)])
    target = part * cumulative[-1]
    k = min(int(np.searchsorted(cumulative[1:], target)), shown.size - 1)
    inside = (target - cumulative[k]) / shown[k] if shown[k] > 0 else 0.5
    value = float(edges[k] + inside * (edges[k + 1] - edges[k]))
    low, high = (float(edges[may[0]]), float(edges[may[-1] + 1])) if may.size else (float(edges[k]), float(edges[k + 1]))
    return TableQuantile(line, part, value, min(low, value), max(high, value))
