"""Slopes that noisy rounds found, as long as the release itself makes likely: none where they met nothing but noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.float64]

#: What is believed of the linear predictor before data: this mass at no deviation, the rest log-uniform over these deviations.
_NONE, _DEVIATIONS, _POINTS = 0.3, (0.05, 6.0), 33
DEVIATIONS = np.append(0.0, np.geomspace(*_DEVIATIONS, _POINTS - 1))


def averaged_rounds(rounds: int, step: float) -> tuple[float, float]:
    """Return the part of the way to the optimum that the mean of the later half of the rounds has gone, and its variance for gradients of variance 1.

    Every step goes this part of the way of a quadratic loss.
    """
    first = rounds // 2
    left = (1 - step) ** np.arange(1, rounds + 1)
    gone = float(1 - left[first:].mean())
    # A gradient's noise stays in all iterates after it.
    weights = [
        step * (1 - step) ** np.maximum(np.arange(first, rounds) - index, 0.0) * (np.arange(first, rounds) >= index)
        for index in range(rounds)
    ]
    return gone, float(sum(np.mean(w) ** 2 for w in weights))


def believed_slopes(
    found: Row, arrived: Row, noise: Row, moving: NDArray[np.bool_], slopes: int, deviations: Row = DEVIATIONS
) -> Row:
    """Return posterior means of coefficients of which rounds found this, after this part of the way and with noise of this variance.

    Slopes (``moving``) are normal about 0 with one variance, over whose grid the posterior is averaged; the others stay as they were found.
    ``deviations`` are those of the linear predictor on that grid, of which the first is 0.
    """
    believed = deviations[:, None] ** 2 / slopes
    whole = arrived**2 * believed + noise
    log = _log_prior(deviations) - 0.5 * (found**2 / whole + np.log(whole))[:, moving].sum(axis=1)
    weights = np.exp(log - log.max())
    return np.where(moving, (weights / weights.sum()) @ (believed * arrived / whole) * found, found)


def believed_length(
    found: Row, arrived: float, noise: float, length: float, error: float, deviations: Row = DEVIATIONS
) -> float:
    """Return the posterior mean of the length of slopes along the direction in which rounds found them.

    ``found`` are those slopes after this part of the way and with noise of this variance each; ``length`` is what was then measured along them, with an
    error of this variance. What is believed before is that of ``believed_slopes``.
    """
    count, square = found.size, float(found @ found)
    believed = deviations**2 / count
    whole = arrived**2 * believed + noise
    log = _log_prior(deviations) - 0.5 * (count * np.log(whole) + square / whole)
    middle, left = believed * arrived / whole * math.sqrt(square), believed * noise / whole
    apart = left + error
    log -= 0.5 * (np.log(apart) + (length - middle) ** 2 / apart)
    weights = np.exp(log - log.max())
    return float(weights @ (middle + left / apart * (length - middle)) / weights.sum())


def _log_prior(deviations: Row) -> Row:
    """Return the logarithms of the mass of each deviation, up to a constant."""
    others = deviations.size - 1
    found: Row = np.log(np.append(_NONE, np.full(others, (1 - _NONE) / others)))
    return found
