"""Sampling covariance of least squares coefficients: that of the model, or a sandwich with released second moments of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.sandwich import drawn_to_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.known_directions import KnownDirections

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]


def sampling_covariance(known: KnownDirections, variance: float, meat: tuple[Matrix, Matrix] | None) -> Matrix:
    """Return the sampling covariance of coefficients over the known directions, in the coordinates of the fit.

    ``variance`` is the one that the model gives to each row's score per unit of its second moments, ``meat`` the released second moments of
    the scores with the variances of their noise, or None where the model is trusted.
    """
    inverse = known.inverse
    if meat is None:
        return variance * inverse
    model = variance * (known.vectors * known.values) @ known.vectors.T
    return np.asarray(inverse @ drawn_to_model(*meat, model) @ inverse)


def behind_prior(known: KnownDirections, mean: Vector, covariance: Matrix, prior: Vector) -> tuple[Vector, Matrix]:
    """Return the posterior mean and covariance of coefficients with these prior variances about 0, from unshrunk estimates.

    The estimates and their covariance count along the known directions alone: of the others the prior is all that is said.
    """
    own = known.vectors
    told = own @ np.linalg.solve(own.T @ covariance @ own, own.T)
    behind = np.asarray(np.linalg.inv(np.diag(1 / prior) + (told + told.T) / 2), dtype=np.float64)
    return np.asarray(behind @ told @ mean), behind
