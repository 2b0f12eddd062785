"""Shares of a level among the rows of a line, with Wilson's interval and the noise in it (THEORY.md, section 5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.tables.counts import spread
from unpooled.models.tables.result import LineShare, TableEstimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.tables.counts import Counts

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]


def shares(counts: Counts, cells: Sequence[Places], z: float, line: str, levels: Sequence[str]) -> list[LineShare]:
    """Return the share of every level among the rows of one line; None where nobody can say that the line has rows."""
    found, noise = counts.totals(cells), counts.covariance(cells)
    rows, own = float(found.sum()), float(noise.sum())
    if rows <= max(z * spread(own), 0.5):
        return [LineShare(line, level, None) for level in levels]
    with_rows = noise.sum(axis=1)
    return [
        LineShare(line, level, share(float(found[j]), rows, float(noise[j, j]), float(with_rows[j]), own, z))
        for j, level in enumerate(levels)
    ]


def share(part: float, rows: float, noise: float, both: float, noise_of_rows: float, z: float) -> TableEstimate | None:
    """Return part / rows: the values p with (part - p rows)^2 <= z^2 (rows p (1 - p) + noise of part - p rows)."""
    square = rows**2 + z * z * (rows - noise_of_rows)
    linear = -2 * part * rows - z * z * (rows - 2 * both)
    constant = part**2 - z * z * noise
    root = linear**2 - 4 * square * constant
    if square <= 0 or root < 0:
        return None
    value = min(max(part / rows, 0.0), 1.0)
    low, high = ((-linear + side * math.sqrt(root)) / (2 * square) for side in (-1, 1))
    hidden = noise - 2 * value * both + value**2 * noise_of_rows
    return TableEstimate(
        value,
        min(max(low, 0.0), value),
        max(min(high, 1.0), value),
        spread(hidden) / rows,
        spread(rows * value * (1 - value) + hidden) / rows,
    )
