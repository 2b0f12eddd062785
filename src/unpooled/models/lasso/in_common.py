"""Common part of directions of several parties' rows, believed from noisy correlations: a fit must not explain it once for each party."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: Parts that may be in common; nothing is as likely as anything else up to all of it.
_LEVELS = np.linspace(0, 1, 101)
_NOTHING = np.concatenate([[1.0], np.full(_LEVELS.size - 1, 1 / (_LEVELS.size - 1))])
#: The most that two directions are taken to have in common, and the least that any combination of them varies.
_MOST, _LEAST = 0.95, 0.1
#: How many deviations of what stays unknown of a correlation are added to the diagonal, for each direction.
_UNKNOWN = 0.4
#: The least noise that is told apart from none.
_FINEST = 1e-3


def believed_moments(correlations: Matrix, noise: float, told: Vector) -> Matrix:
    """Return second moments of directions of variance one, from noisy correlations; ``told``: each direction's own correlation with the response.

    What all have in common, turned so that each rises with the response, is one number that every pair tells of; what is left of a pair is
    shrunk towards it. Both are posterior means. What they leave unknown is added to the diagonal: a fit that believes of a direction that it
    varies less than it does explains more of it than there is, and ends worse than the mean (THEORY.md, 1c.1). As much more is added as it
    takes for the directions not to explain more of the response than there is.
    """
    count = told.size
    if count <= 1:
        return np.eye(count)
    signs = np.where(told < 0, -1.0, 1.0)
    pairs, alike = np.triu_indices(count, 1), np.outer(signs, signs)
    deviation = max(noise / math.sqrt(pairs[0].size), _FINEST)
    level = _believed(_LEVELS, -np.square((_LEVELS - (alike * correlations)[pairs].mean()) / deviation) / 2, _NOTHING)
    shared = min(level, _MOST) * alike
    left = (correlations - shared)[pairs]
    variances = np.square(_MOST * _LEVELS)  # that what is left may have
    total = variances + max(noise, _FINEST) ** 2
    part = _believed(variances / total, -(left.size * np.log(total) + float(left @ left) / total) / 2)
    within = np.clip(shared + part * (correlations - shared), -_MOST, _MOST)
    np.fill_diagonal(within, 1.0)
    values, vectors = np.linalg.eigh(within)
    values = np.maximum(values, _LEAST) + _UNKNOWN * count * math.sqrt(part) * noise
    along = np.square(vectors.T @ told)
    if (along / values).sum() > 1:  # no correlations of anything: at |told|^2 more they are
        values = values + brentq(lambda more: float((along / (values + more)).sum()) - 1, 0.0, float(along.sum()))
    return np.asarray((vectors * values) @ vectors.T)


def _believed(values: Vector, likelihood: Vector, prior: Vector | None = None) -> float:
    """Return the posterior mean, of log likelihoods."""
    weights = np.exp(likelihood - likelihood.max()) * (1.0 if prior is None else prior)
    return float(weights @ values / weights.sum())
