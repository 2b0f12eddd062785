"""Losses of a log link go on as straight lines beyond a cap, so that they stay convex and their slopes have a bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

#: The cap on linear predictors where none is declared: only where floating point ends.
CAP = 50.0


def rise(low: Vector, step: Vector) -> Vector:
    """e^(low + step) - e^low, without cancellation where the step is short."""
    near = np.exp(low) * np.expm1(np.clip(step, -1.0, 1.0))
    return np.where(np.abs(step) <= 1.0, near, np.exp(low + step) - np.exp(low))


def capped_change(u: Vector, step: Vector, cap: float) -> Vector:
    """Change of exp(u), which goes on as its tangent beyond the cap."""
    start, end = np.minimum(u, cap), np.minimum(u + step, cap)
    inside = np.where((u <= cap) & (u + step <= cap), step, end - start)
    beyond = np.where((u >= cap) & (u + step >= cap), step, np.maximum(u + step - cap, 0.0) - np.maximum(u - cap, 0.0))
    return rise(start, inside) + math.exp(cap) * beyond
