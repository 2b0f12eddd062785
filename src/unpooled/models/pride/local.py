r"""What a party computes from its own columns and the sketches it received: regression calibration, penalty, coefficients.

Pure functions of arrays, shared by the party's steps and by the tests (THEORY.md, sections 4 and 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.newton import NewtonPath
from unpooled.kernels.ridge import RidgePath, noise_aware_smoothing, shrink_singular_values
from unpooled.models.families import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.families import Family

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: Penalties tried by cross-validation, relative to the mean squared singular value of the design.
RELATIVE_PENALTIES = np.logspace(-6, 6, 25)


@dataclass(frozen=True)
class RegressionCalibration:
    """E[Z | X, Z + W] for known noise: a ridge of Z on X with marginal-likelihood penalty, plus the shrunken residual."""

    own_means: Vector
    noisy_means: Vector
    coefficients: Matrix

    @classmethod
    def fit(cls, own: Matrix, noisy: Matrix, noise: Vector) -> RegressionCalibration:
        """Learn the ridge from the training rows; ``noise`` is the standard deviation of every column of ``noisy``."""
        own_means, noisy_means = own.mean(axis=0), noisy.mean(axis=0)
        # One common penalty over all columns: they are brought to noise 1 first.
        coefficients, _ = noise_aware_smoothing(own - own_means, (noisy - noisy_means) / noise, 1.0)
        return cls(own_means, noisy_means, coefficients * noise)

    def apply(self, own: Matrix, noisy: Matrix, noise: Vector) -> Matrix:
        """Calibrated columns of these rows; their residual is shrunk by itself, so new rows need no training rows."""
        expected = (own - self.own_means) @ self.coefficients
        residual = (noisy - self.noisy_means - expected) / noise
        return expected + shrink_singular_values(residual, 1.0) * noise + self.noisy_means


def path_of(family: Family, design: Matrix, response: Vector, *, fit_intercept: bool) -> RidgePath | NewtonPath:
    """Solutions for every penalty: in closed form where the loss is squared, by Newton's method else."""
    if isinstance(family, Gaussian):
        return RidgePath.of(design, response, fit_intercept=fit_intercept)
    return NewtonPath.of(design, response, family, fit_intercept=fit_intercept)


def choose_alpha(path: RidgePath | NewtonPath, alpha: float | str, folds: list[NDArray[np.intp]]) -> float:
    """A number as it is; marginal likelihood; or the penalty of smallest cross-validated loss on the party's own design."""
    if not isinstance(alpha, str):
        return alpha
    if alpha == "marginal-likelihood":
        return path.evidence_alpha()
    penalties = penalty_grid(path)
    return float(penalties[int(np.argmin(path.cross_validated(penalties, folds)))])


def penalty_grid(path: RidgePath | NewtonPath) -> Vector:
    """Penalties around the design's own scale."""
    scale = float(path.squares.mean()) if path.squares.size else 1.0
    return scale * RELATIVE_PENALTIES


def random_folds(rows: int, count: int, seed: int) -> list[NDArray[np.intp]]:
    """Folds from the study's public seed, the same at every party."""
    return [np.sort(fold) for fold in np.array_split(np.random.default_rng(seed).permutation(rows), min(count, rows))]
