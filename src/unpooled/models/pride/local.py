r"""Local fit of a party from its own columns and the sketches it received: regression calibration, penalty, coefficients.

Pure functions of arrays, shared by the party's steps and by the tests (THEORY.md, sections 4, 5 and 8). A problem is what a party fits
on: its columns and the received ones, or its columns and a model of the others' Gram matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg import eigh

from unpooled.families.gaussian import Gaussian
from unpooled.kernels.newton import NewtonPath
from unpooled.kernels.ridge import RidgePath, noise_aware_smoothing, product, shrink_singular_values
from unpooled.kernels.threads import one_thread
from unpooled.models.pride.gram import GramNewtonPath, GramPath, Kernel, Share
from unpooled.models.pride.joint import GramJointPath, JointDesignPath, JointFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.families import Family
    from unpooled.models.pride.gram import Heard

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

    def residual(self, own: Matrix, noisy: Matrix) -> Matrix:
        """Return what the own columns do not explain of the noisy ones."""
        return noisy - self.noisy_means - (own - self.own_means) @ self.coefficients

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


class Penalised(Protocol):
    """The methods of a path of solutions that a choice of the penalty needs."""

    @property
    def squares(self) -> Vector:
        """Return eigenvalues of the kernel, or squared singular values of the design: the scale of a penalty."""

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood."""

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return the held-out loss of every penalty."""


class LocalPath(Penalised, Protocol):
    """A party's shares for every penalty."""

    def solve(self, alpha: float) -> Share:
        """At this penalty."""


class LocalProblem(Protocol):
    """The problem that a party fits."""

    def path(self, family: Family | JointFamily, response: Vector, *, fit_intercept: bool) -> LocalPath:
        """Return its solutions for a response."""

    def of_rows(self, rows: NDArray[np.intp]) -> LocalProblem:
        """Return the problem of some rows only."""


@dataclass(frozen=True)
class DesignPath:
    """Solutions on a design whose first columns are the party's own."""

    inner: RidgePath | NewtonPath
    design: Matrix
    own: int

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the design."""
        return self.inner.squares

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood."""
        return self.inner.evidence_alpha()

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return the held-out loss of every penalty."""
        return self.inner.cross_validated(alphas, folds)

    def solve(self, alpha: float) -> Share:
        """Return the coefficients of the own columns and of the received ones."""
        return self.share(*self.inner.solve(alpha))

    def share(self, coefficients: Vector, intercept: float) -> Share:
        """Return the party's share of a solution on the whole design."""
        return Share(
            coefficients[: self.own],
            coefficients[self.own :],
            intercept,
            float(self.design.mean(axis=0) @ coefficients) + intercept,
            self.design @ coefficients + intercept,
        )


@dataclass(frozen=True)
class DesignProblem:
    """[X_k, Z_j for j != k], as the paper has it."""

    own: Matrix
    received: Matrix

    def path(self, family: Family | JointFamily, response: Vector, *, fit_intercept: bool) -> DesignPath | JointDesignPath:
        """Ridge, or Newton's method."""
        design = np.hstack([self.own, self.received])
        if isinstance(family, JointFamily):
            return JointDesignPath.of(family, design, self.own.shape[1], response, fit_intercept=fit_intercept)
        return DesignPath(path_of(family, design, response, fit_intercept=fit_intercept), design, self.own.shape[1])

    def of_rows(self, rows: NDArray[np.intp]) -> DesignProblem:
        """Return some rows only."""
        return DesignProblem(self.own[rows], self.received[rows])


@dataclass(frozen=True)
class GramProblem:
    """The own columns and what a party can know of the others' Gram matrix."""

    own: Matrix
    heard: Heard
    #: The calibration of the noisy columns; None where there are none.
    calibration: RegressionCalibration | None = None

    @property
    def known(self) -> Matrix:
        """Return what the party knows without noise: its own columns, then received ones that have none."""
        return np.hstack([self.own, self.heard.received[:, self.heard.noise == 0]])

    @cached_property
    def _residual(self) -> tuple[Matrix, Matrix]:
        """Return (E[Z | known], what it leaves of Z) of the noisy columns, both centred, in units of the noise's deviation."""
        assert self.calibration is not None
        noisy, noise = self.heard.received[:, self.heard.noise > 0], self.heard.noise[self.heard.noise > 0]
        expected = (self.known - self.calibration.own_means) @ self.calibration.coefficients
        return expected / noise, (noisy - self.calibration.noisy_means - expected) / noise

    @cached_property
    def _directions(self) -> tuple[Vector, Matrix]:
        """Return squared singular values of the residual over the rows, largest last, and its right singular vectors."""
        residual = self._residual[1]
        with one_thread():
            values, vectors = eigh(product(residual.T, residual) / residual.shape[0])
        return np.maximum(values, 0.0), vectors

    def reliability(self, assumed: float = 1.0, *, sure: bool = False) -> Vector:
        """Return for every direction of the residual which part of it is no noise, if the noise were ``assumed`` times what it is.

        Singular values as in equation 7 of Gavish & Donoho 2017, over what they were; 0 where the noise alone may be as large. ``sure``:
        also 0 where the direction does not pay for its numbers (:meth:`gains`).
        """
        rows, columns = self._residual[1].shape
        beta = columns / max(rows, 1)
        square = self._directions[0] / assumed**2
        seen = square > (1 + math.sqrt(beta)) ** 2
        if sure:
            seen &= self.gains(assumed) > 0
        safe = np.where(seen, square, 1.0)
        inner = np.maximum((safe - beta - 1) ** 2 - 4 * beta, 0.0)
        return np.where(seen, np.sqrt(inner) / safe, 0.0)

    def gains(self, assumed: float) -> Vector:
        """Return how much likelier the residual's rows are, at the true noise, with each direction as ``assumed`` believes in it than without.

        Rows are normal, with variance 1 + max(0, x - assumed^2) in a direction whose observed variance is x noise variances. Every direction
        pays for its q numbers as in the Bayesian information criterion, q/2 log n.
        """
        rows, columns = self._residual[1].shape
        observed = self._directions[0]
        variance = 1 + np.maximum(observed - assumed**2, 0.0)
        gained = observed - observed / variance - np.log(variance)
        return np.asarray(rows / 2 * gained - columns / 2 * math.log(max(rows, 1)))

    def likelihood(self, assumed: float) -> float:
        """Return the gains of the directions that are sure, added up."""
        return float(self.gains(assumed)[self.reliability(assumed, sure=True) > 0].sum())

    def shrinkage(self, assumed: float = 1.0) -> Matrix:
        """Return the matrix that shrinks rows of the noisy columns' residual, if the noise were ``assumed`` times what it is."""
        noise = self.heard.noise[self.heard.noise > 0]
        vectors = self._directions[1]
        return np.asarray((vectors * self.reliability(assumed)) @ vectors.T * noise / noise[:, None])

    def calibrated(self, assumed: float = 1.0, *, sure: bool = False) -> Matrix:
        """Return the received columns, the noisy ones calibrated as if their noise were ``assumed`` times what it is."""
        if self.calibration is None:
            return self.heard.received
        noisy = self.heard.noise > 0
        noise, (expected, residual) = self.heard.noise[noisy], self._residual
        found = self.heard.received.copy()
        vectors = self._directions[1]
        shrunk = product(product(residual, vectors) * self.reliability(assumed, sure=sure), vectors.T)
        found[:, noisy] = (expected + shrunk) * noise + self.calibration.noisy_means
        return found

    def at_home(self) -> DesignProblem:
        """Return the problem that predicts new rows from the own columns and newly received sketches: the calibrated design."""
        return DesignProblem(self.own, self.heard.calibrated)

    def path(
        self, family: Family | JointFamily, response: Vector, *, fit_intercept: bool
    ) -> GramPath | GramNewtonPath | GramJointPath:
        """Return the path for a response; it is in closed form where the loss is squared."""
        kernel = Kernel.of(self.own, self.heard, fit_intercept=fit_intercept)
        if isinstance(family, JointFamily):
            return GramJointPath.of(family, kernel, response, fit_intercept=fit_intercept)
        if isinstance(family, Gaussian):
            return GramPath.of(kernel, response, fit_intercept=fit_intercept)
        return GramNewtonPath.of(kernel, response, family, fit_intercept=fit_intercept)

    def of_rows(self, rows: NDArray[np.intp]) -> GramProblem:
        """Return some rows only."""
        return GramProblem(self.own[rows], self.heard.of_rows(rows))


def choose_alpha(path: Penalised, alpha: float | str, folds: list[NDArray[np.intp]]) -> float:
    """Return a number as it is; marginal likelihood; or the penalty of smallest cross-validated loss on the party's own design."""
    if not isinstance(alpha, str):
        return alpha
    if alpha == "marginal-likelihood":
        return path.evidence_alpha()
    penalties = penalty_grid(path)
    return float(penalties[int(np.argmin(path.cross_validated(penalties, folds)))])


def penalty_grid(path: Penalised) -> Vector:
    """Return penalties around the design's own scale."""
    scale = float(path.squares.mean()) if path.squares.size else 1.0
    return scale * RELATIVE_PENALTIES


def random_folds(rows: int, count: int, seed: int) -> list[NDArray[np.intp]]:
    """Folds from the study's public seed, the same at every party."""
    return [np.sort(fold) for fold in np.array_split(np.random.default_rng(seed).permutation(rows), min(count, rows))]
