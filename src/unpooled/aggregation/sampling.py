"""Sampling covariance of least squares coefficients: that of the model, or a sandwich with released second moments of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.sandwich import drawn_to_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.known_directions import KnownDirections

    Matrix = NDArray[np.float64]


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
