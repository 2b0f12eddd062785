r"""The middle of a sandwich covariance from its noisy release: drawn to the model's as far as the noise asks for.

With Q the model's own second moments of scores and B the released ones, W = Q^-1/2 (B - Q) Q^-1/2 is what data say against the model. Its mean
eigenvalue (how much larger all scores are) and the rest (which directions are larger than others) are each multiplied by James and Stein's
factor max(0, 1 - E|N|^2 / |W|^2), N the noise in the same metric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

#: Scores in no direction are less than this part of what the model says: raising eigenvalues is harmless, and noise makes some negative.
_LEAST = 0.1


def drawn_to_model(released: Matrix, variance: Matrix, model: Matrix) -> Matrix:
    """Return second moments of scores, positive semidefinite, over the directions in which the model's are positive.

    ``variance`` holds the noise variance of every entry: of those on the diagonal twice that of the others, so it is the same in any basis.
    """
    values, vectors = np.linalg.eigh(model)
    kept = values > 1e-10 * max(float(values.max(initial=0.0)), 1e-300)
    if not kept.any():  # noise hides every direction: no coefficient has a standard error
        return np.zeros(model.shape)
    root = np.sqrt(values[kept])
    inward = vectors[:, kept] / root
    own, size = inward.T @ released @ inward, root.size
    excess = own - np.eye(size)
    noise = float(variance.diagonal().mean()) / np.outer(root**2, root**2)  # on the diagonal; half of it elsewhere
    mean = float(np.trace(excess)) / size
    mean *= _kept(mean**2, float(noise.trace()) / size**2)
    rest = excess - np.eye(size) * np.trace(excess) / size
    rest *= _kept(float(np.square(rest).sum()), float(noise.sum() + noise.trace()) / 2)
    found, turned = np.linalg.eigh((1 + mean) * np.eye(size) + rest)
    outward = (vectors[:, kept] * root) @ turned
    return np.asarray((outward * np.maximum(found, _LEAST)) @ outward.T)


def _kept(square: float, noise: float) -> float:
    """Return the part of a difference of this squared length that is kept where its noise has this expected squared length."""
    return max(0.0, 1 - noise / square) if square > 0 else 0.0
