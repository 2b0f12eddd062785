"""Test of independence of two columns of a noisy table, whose null law holds the noise (THEORY.md, section 4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.tables.result import Independence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Tables that are drawn under the null hypothesis: p-values are multiples of 1/500.
DRAWS = 499
#: A line with less than this many deviations of its noise, or less than half a person, is empty.
_EMPTY = (1.96, 0.5)


def independence(table: Floats, deviation: float, rows: int | None, rng: np.random.Generator) -> Independence:
    """Return statistic and p-value of a table whose cells have noise of this deviation; ``rows``: how many rows it counts, where that is public."""
    lines, columns = table.shape
    if any(_filled(table, axis, deviation) < 2 for axis in (0, 1)):  # noqa: PLR2004 - two can be compared
        why = "fewer than two levels of a column have more rows than noise"
        return Independence(None, None, (lines - 1) * (columns - 1), why)
    (statistic,), p, q = statistics(table[None], deviation)
    size = max(float(table.sum()), 1.0)
    if _noise_part(p[0], q[0], size, deviation) > 0.5:  # noqa: PLR2004 - half
        return Independence(None, None, (lines - 1) * (columns - 1), "the noise moves it more than sampling does")
    people = rows if rows is not None else max(round(size), 1)
    drawn = rng.multinomial(people, np.outer(p[0], q[0]).ravel(), size=DRAWS).reshape(DRAWS, lines, columns)
    null, _, _ = statistics(drawn + deviation * rng.standard_normal(drawn.shape), deviation)
    p_value = (1 + int(np.sum(null >= statistic))) / (1 + DRAWS)
    return Independence(float(statistic), p_value, (lines - 1) * (columns - 1), "")


def _filled(table: Floats, axis: int, deviation: float) -> int:
    """Return how many lines, each a sum along the axis, have more rows than noise explains."""
    noise = _EMPTY[0] * deviation * math.sqrt(table.shape[axis])
    return int(np.sum(table.sum(axis=axis) > max(noise, _EMPTY[1])))


def statistics(tables: Floats, deviation: float) -> tuple[Floats, Floats, Floats]:
    """Return sum (O - E)^2 / (E + s^2) of every table, and the shares of its lines and columns, which are floored."""
    lines, columns = tables.shape[1:]
    total = np.maximum(tables.sum(axis=(1, 2)), 1.0)
    p, q = (
        np.maximum(tables.sum(axis=axis), 1 + deviation * math.sqrt(cells) / 2) for axis, cells in ((2, columns), (1, lines))
    )
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    expected = total[:, None, None] * p[:, :, None] * q[:, None, :]
    return ((tables - expected) ** 2 / (expected + deviation**2)).sum(axis=(1, 2)), p, q


def _noise_part(p: Floats, q: Floats, size: float, deviation: float) -> float:
    """Return the part that noise has in the statistic's mean under independence (Theorem N.3)."""
    weight = 1 / (size * np.outer(p, q) + deviation**2)
    sampling = size * np.outer(p * (1 - p), q * (1 - q))
    noise = deviation**2 * np.outer((1 - p) ** 2 + (p.size - 1) * p**2, (1 - q) ** 2 + (q.size - 1) * q**2)
    return float((weight * noise).sum() / (weight * (sampling + noise)).sum())
