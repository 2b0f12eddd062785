"""Coefficients where the signal is about as large as the noise: a posterior that knows the noise, averaged over priors (THEORY.md, section 3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.noisy import psd_part
from unpooled.kernels.posterior import NoisyMoments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.linear.moments import Moments

    Matrix = NDArray[np.float64]

#: How many principal directions may have slopes, and the deviations of their priors: of standardised directions, and of directions as they are.
COUNTS = (1, 2, 3, 4, 6, 10, 20)
SLOPES = tuple(np.geomspace(0.01, 1.0, 4).tolist())
STEEP = tuple(np.geomspace(0.3, 30.0, 4).tolist())
#: The prior variance of the others' slopes, as a part: none, for what is inverted.
NO_SLOPE = 1e-8
#: What is believed of the response's mean: its deviation from the middle of the declared range, in half widths.
MEAN_PRIOR = 0.1
#: Predictions that vary by less than this part of the response's variance are the prior's: nothing was learnt.
LEARNT = 1e-3


def posterior(moments: Moments) -> tuple[Matrix, float, bool]:
    """Return (slopes, constant, whether anything was learnt) of the coded response on coded coordinates and a constant.

    The constant is a column like the others, with a prior of its own: so the noise of means is known to the posterior, which centred moments
    would hide. Coordinates are turned to the principal directions of the noisy Gram, which leaves the law of its noise what it is
    (equal variances, half off the diagonal). Priors let the first k directions have slopes, equal ones for directions of
    deviation 1 or for directions as they are; all are averaged by their evidence, which is that of the cross moments given the Gram.
    """
    p = moments.layout.size - 1
    gram, variance, rows = moments.gram, moments.variance, moments.rows
    middle = gram[p, :p] / rows
    noise = math.sqrt(float(variance.diagonal()[:p].max())) / rows
    values, vectors = np.linalg.eigh(gram[:p, :p] / rows - np.outer(middle, middle))
    values, vectors = np.maximum(values[::-1], noise), vectors[:, ::-1]
    # Beyond the last direction that may have a slope there is nothing to learn: those moments are left out, which hundreds of channels need.
    size = min(p, COUNTS[-1])
    values, vectors, kept = values[:size], vectors[:, :size], [*range(size), p]
    turn = np.zeros((p + 1, size + 1))
    turn[:p, :size], turn[p, size] = vectors, 1.0
    known = NoisyMoments(
        turn.T @ gram[: p + 1, : p + 1] @ turn,
        turn.T @ gram[: p + 1, -1],
        variance[np.ix_(kept, kept)],
        variance[kept, -1],
        rows,
    )
    # No smaller than its own noise.
    response = max(gram[-1, -1] / rows - (gram[p, -1] / rows) ** 2, math.sqrt(variance[-1, -1]) / rows, 1e-3)
    priors = []
    for count in sorted({min(count, size) for count in COUNTS}):
        few = np.full(size, NO_SLOPE)
        few[:count] = 1.0
        flat = 1 / values[:count].mean()
        priors += [tau**2 * response * few / values for tau in SLOPES]
        if values[0] > 2 * values[count - 1]:
            priors += [tau**2 * response * few * flat for tau in STEEP]
    # A tenth as much belief in no slopes at all: of declared shapes, more of it cost more than it saved (THEORY.md, section 3).
    priors += [np.full(size, NO_SLOPE)] * math.ceil(len(priors) / 10)
    found = known.averaged(float(gram[-1, -1]), [np.append(prior, MEAN_PRIOR**2) for prior in priors])
    slopes = vectors @ found.mean[:size]
    learnt = float(slopes @ psd_part(gram[:p, :p]) @ slopes) / rows > LEARNT * response
    return slopes, float(found.mean[size]), learnt
