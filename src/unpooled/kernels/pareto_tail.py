r"""The mean that a clip cuts off, from noisy counts of residuals in cells beyond one deviation (``models/bayes/THEORY.md``, section 9).

On one side the residuals beyond the first cut follow a generalised Pareto law with a scale and a shape, cut off at the farthest residual that the
declared range allows, and a mass: the part of all rows that lies there. With p_j the probability of a cell, its count has mean n p_j and variance
n p_j + v, v that of the privacy noise. A Poisson law, moved by v, has this mean and this variance: it is exact without noise and normal where the
noise is large. The three numbers are averaged over a grid, coarse at first, then fine where the coarse one has its weight.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_TUNED = table("residuals")
#: Where the cells of one side end, in deviations of the residuals; the last cell has no end.
CUTS = _TUNED.several("tail_cuts")
#: Ranges of the scale, in the same unit, and of the shape; mean and deviation of the prior of the shape. The logarithm of the scale has a flat prior.
_SCALES, _SHAPES = _TUNED.pair("tail_scales"), _TUNED.pair("tail_shapes")
_SHAPE_PRIOR = _TUNED.pair("tail_shape_prior")
#: No more than this part of the rows lies beyond one deviation on one side (Chebyshev's inequality, one-sided), and all parts are equally likely.
_MOST = 0.5
#: Points of the coarse and of the fine grid: mass, scale, shape.
_COARSE, _FINE = (15, 30, 25), (21, 25, 25)
#: The fine grid ends where the coarse one has this many deviations from its mean, the mass before at this many deviations of the counts' sum.
_REACH = 5.0
_TINY = 1e-12


def missing_mean(
    counts: Sequence[float] | Vector, cuts: Sequence[float] | Vector, rows: float, variance: float, clip: float, end: float
) -> tuple[float, float]:
    """Return the mean that a clip takes away from the residuals of one side, as the mean and the deviation of its posterior.

    ``counts[j]`` is the noisy number of the ``rows`` whose residual lies in (``cuts[j]``, ``cuts[j + 1]``], the last one beyond the last cut, and
    ``variance`` that of the noise of each. ``clip``, from the first cut on, is where residuals were clipped, and ``end`` the farthest residual that
    is possible, maybe infinite. All are in deviations of the residuals, and so is what is returned: the integral of the survival function from
    ``clip`` to ``end``.
    """
    clip = max(clip, float(cuts[0]))  # below the first cut nothing was counted of a tail
    if clip >= end:
        return 0.0, 0.0
    counted, places = np.asarray(counts, dtype=np.float64), np.asarray(cuts, dtype=np.float64)
    total = min(max(float(counted.sum()), 0.0), _MOST * rows)
    spread = _REACH * math.sqrt(total + counted.size * variance + 1)
    ranges = (
        (max(total - spread, 0.0) / rows, min((total + spread) / rows, _MOST)),
        (math.log(_SCALES[0]), math.log(_SCALES[1])),
        _SHAPES,
    )
    axes = [np.linspace(*bounds, size) for bounds, size in zip(ranges, _COARSE, strict=True)]
    weights, _ = _posterior(axes, counted, places, rows, variance, clip, end)
    axes = [_finer(axis, _marginal(weights, k), size) for k, (axis, size) in enumerate(zip(axes, _FINE, strict=True))]
    weights, missing = _posterior(axes, counted, places, rows, variance, clip, end)
    mean = float((weights * missing).sum())
    return mean, math.sqrt(float((weights * np.square(missing - mean)).sum()))


def _posterior(
    axes: Sequence[Vector], counts: Vector, cuts: Vector, rows: float, variance: float, clip: float, end: float
) -> tuple[Vector, Vector]:
    """Return the weights of all points of a grid (mass, log scale, shape), which add up to one, and the missing mean at each."""
    mass, scale, shape = axes[0], np.exp(axes[1])[:, None], axes[2][None, :]
    shape = np.where(np.abs(shape) < _TINY, _TINY, shape)
    cells, beyond = _cells(cuts, clip, end, scale, shape)
    variance = max(variance, _TINY)
    expected = rows * mass[:, None, None, None] * cells
    missing = mass[:, None, None] * beyond
    # Over the law of no residuals: two large numbers are not subtracted where the noise is large.
    log = np.log1p(expected / variance) @ np.maximum(counts + variance, 0.0) - expected.sum(axis=-1)
    log -= np.square((shape - _SHAPE_PRIOR[0]) / _SHAPE_PRIOR[1]) / 2
    # Residuals of variance s^2 miss at most s^2 / (4 clip) beyond a clip (Scarf): a prior with this deviation at s^2 = 2.
    log -= np.square(2 * clip * missing) / 2
    weights = np.exp(log - log.max())
    return weights / weights.sum(), missing


def _cells(cuts: Vector, clip: float, end: float, scale: Vector, shape: Vector) -> tuple[Vector, Vector]:
    """Return the probabilities of the cells given that a residual is beyond the first cut, along the last axis, and the integral from the clip on."""
    limits = np.append(np.minimum(cuts, end), end) - cuts[0]
    survival = _survival(limits, scale[..., None], shape[..., None])
    whole = np.maximum(1 - survival[..., -1], _TINY)
    cells = -np.diff(survival, axis=-1) / whole[..., None]
    integral = _integral(clip - cuts[0], scale, shape) - _integral(end - cuts[0], scale, shape)
    if math.isfinite(end):
        integral = integral - survival[..., -1] * (end - clip)
    return cells, np.maximum(integral, 0.0) / whole


def _survival(excess: Vector, scale: Vector, shape: Vector) -> Vector:
    """Return the probability that an untruncated residual exceeds the first cut by more than this."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(-np.log1p(np.maximum(shape * (excess / scale), -1.0)) / shape))


def _integral(excess: float, scale: Vector, shape: Vector) -> Vector:
    """Return the integral of that probability from an excess on: the survival function of the same law, to the power 1 - shape."""
    with np.errstate(divide="ignore"):
        log = np.log1p(np.maximum(shape * (excess / scale), -1.0)) / shape
        return np.asarray(scale / (1 - shape) * np.exp(-(1 - shape) * log))


def _marginal(weights: Vector, axis: int) -> Vector:
    """Return the weights of the points of one axis."""
    return np.asarray(weights.sum(axis=tuple(k for k in range(weights.ndim) if k != axis)))


def _finer(axis: Vector, weights: Vector, size: int) -> Vector:
    """Return points around the mean of these weights, inside the axis, at least one of its steps to both sides."""
    mean = float(axis @ weights)
    reach = max(_REACH * math.sqrt(float(np.square(axis - mean) @ weights)), float(axis[1] - axis[0]))
    return np.linspace(max(mean - reach, float(axis[0])), min(mean + reach, float(axis[-1])), size)
