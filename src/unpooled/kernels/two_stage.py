r"""Two-stage least squares from noisy second moments, and the noise that its coefficients have (Theorem B.16).

With E the exogenous columns, W = (E, instruments), X = (E, endogenous column) and K the inverse of the Gram of W: the first stage is
P = K G_WX, the matrix of the second A = P' G_WX, and b = A^-1 P' m_W with m the cross moments. The noise N of the Gram and e of the cross
moments move b by A^-1 P' (e_W - N_WX b), and by A^-1 N_XW K (m_W - G_WX b), which is of a smaller order where the instruments are valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.noisy_gram import noise_covariance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.known_directions import KnownDirections

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]
    Places = NDArray[np.intp]


@dataclass(frozen=True)
class SecondMoments:
    """Noisy second moments of all columns: the Gram, the cross moments with the response, and the variances of the noise of both."""

    gram: Matrix
    cross: Row
    gram_variance: Matrix
    cross_variance: Row


@dataclass(frozen=True)
class TwoStage:
    """The second stage, in the coordinates of all columns: 0 for the instruments."""

    mean: Row
    #: The covariance per unit of residual variance, and that of the privacy noise.
    sampling: Matrix
    met: Matrix


@dataclass(frozen=True)
class FirstStage:
    """The prediction of the endogenous column from W."""

    #: Coefficients of W.
    coefficients: Row
    #: What is left of the endogenous column, as a combination of all columns.
    left: Row


def first_stage(released: SecondMoments, at_w: Places, known_w: KnownDirections, endogenous: int) -> FirstStage:
    """Return the first stage of the column at this place."""
    found = known_w.inverse @ released.gram[at_w, endogenous]
    left = np.zeros(len(released.gram))
    left[at_w] = -found
    left[endogenous] = 1.0
    return FirstStage(found, left)


def first_stage_covariance(
    released: SecondMoments, at_w: Places, known_w: KnownDirections, first: FirstStage, weight: float, least: float
) -> Matrix:
    """Return the covariance of the first stage's coefficients: sampling over so much ``weight`` of rows, and the noise of the release.

    The residual mean square is taken for at least ``least``.
    """
    spread = max(float(first.left @ released.gram @ first.left) / weight, least)
    noise = noise_covariance(np.outer(first.left, first.left), released.gram_variance, np.zeros(len(first.left)))
    return np.asarray(spread * known_w.inverse + known_w.inverse @ noise[np.ix_(at_w, at_w)] @ known_w.inverse)


def second_stage(
    released: SecondMoments,
    w: tuple[Places, KnownDirections],
    exogenous: tuple[Places, KnownDirections],
    endogenous: int,
    first: FirstStage,
) -> TwoStage:
    """Return the coefficients of the exogenous columns and of the endogenous one."""
    (at_w, known_w), (at_e, known_e) = w, exogenous
    size = len(released.gram)
    # A over (E, endogenous) by blocks: that of E is its own Gram, and the rest goes through the first stage.
    side = first.coefficients @ released.gram[np.ix_(at_w, at_e)]
    corner = float(first.coefficients @ known_w.matrix @ first.coefficients)
    along = known_e.inverse @ side
    own = corner - float(side @ along)
    inverse = np.zeros((size, size))
    inverse[np.ix_(at_e, at_e)] = known_e.inverse + np.outer(along, along) / own
    inverse[at_e, endogenous] = inverse[endogenous, at_e] = -along / own
    inverse[endogenous, endogenous] = 1 / own
    predicted = np.zeros((size, size))  # P: what W says of every column of X
    predicted[at_e, at_e] = 1.0
    predicted[at_w, endogenous] = first.coefficients
    mapped = inverse @ predicted.T
    mean = mapped @ released.cross
    noise = noise_covariance(np.outer(mean, mean), released.gram_variance, released.cross_variance)
    return TwoStage(mean, inverse, mapped @ noise @ mapped.T)
