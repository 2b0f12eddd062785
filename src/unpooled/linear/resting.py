"""How a fit rests on a model that was released before it: what that model takes of the variance of its scores, and what its noise adds (Theorem G.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

#: Of the variance of a score no more than this is taken to be that of the model that was released before.
_MOST_KNOWN = 0.95


def known_scores(scores: Matrix, derivative: Matrix, noise: float, sampling: Matrix) -> Matrix:
    """Return second moments of scores less what the fit of the earlier model takes of them: K H^-1 K', without its noise.

    Each part is at most what there is, so that noise leaves no score without a variance.
    """
    told = met(derivative, noise, sampling)
    values, vectors = np.linalg.eigh(scores)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    root = vectors[:, kept] * np.sqrt(values[kept])
    white = vectors[:, kept] / np.sqrt(values[kept])
    parts, axes = np.linalg.eigh(white.T @ told @ white)
    taken = root @ axes
    return np.asarray((taken * (1 - np.clip(parts, 0.0, _MOST_KNOWN))) @ taken.T)


def met(derivative: Matrix, noise: float, covariance: Matrix) -> Matrix:
    """Return what this covariance of the earlier model is in the score: with noise in K its expectation would be larger by the noise's variance times the trace."""
    return np.asarray(derivative @ covariance @ derivative.T - noise**2 * covariance.trace() * np.eye(len(derivative)))
