"""PLS from second moments: every number of components at once, cross-validation that never refits on rows, and domain-invariant components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]


# --- Kernel pls ------------------------------------------------------------------------------------------------------------
# PLS1 from second moments: every number of components at once, and cross-validation over folds that never refits on rows.
#
# PLS1 is a function of the centred Gram :math:`S=\sum(x-\bar x)(x-\bar x)^T` and cross vector :math:`s=\sum(x-\bar x)(y-\bar y)`. The
# modified kernel algorithm (Dayal & MacGregor 1997, their algorithm 2) deflates s only:
# :math:`w=s/|s|,\ r=w-\sum_j(p_j\cdot w)r_j,\ p=Sr/r^TSr,\ q=r\cdot s_0/r^TSr,\ s\leftarrow s-p\,q\,r^TSr`, and :math:`b_k=\sum_{j\le k}q_jr_j`.
# One product of S with a vector per component. A training set is all rows without one fold, so its moments are a difference.

#: A cross vector that deflation made this much shorter is rounding.
_NOTHING_LEFT = 1e-14


@dataclass(frozen=True)
class Components:
    """PLS1 with one column per component; column k of ``coefficients`` is the model of the first k + 1."""

    coefficients: Matrix
    weights: Matrix
    loadings: Matrix
    rotations: Matrix
    y_loadings: Vector | Matrix


def kernel_pls(gram: Matrix, cross: Vector, components: int) -> Components:
    """PLS1 of 1 .. ``components`` components; columns beyond what the moments hold are zero and leave the coefficients as they are.

    The largest entry of a weight vector is positive, as in scikit-learn.
    """
    size = cross.size
    # Components are rows here, so that each is contiguous.
    weights, loadings, rotations = (np.zeros((components, size)) for _ in range(3))
    y_loadings = np.zeros(components)
    left = np.array(cross, dtype=np.float64)
    smallest = _NOTHING_LEFT * float(np.linalg.norm(cross))
    for k in range(min(components, size)):
        length = float(np.linalg.norm(left))
        if length <= smallest:
            break
        w = left / length
        w *= np.sign(w[np.abs(w).argmax()])
        r = w.copy()
        for p, earlier in zip(loadings[:k], rotations[:k], strict=True):
            r -= (p @ w) * earlier
        product = gram @ r
        square = float(r @ product)
        if square <= 0:
            break
        weights[k], rotations[k], loadings[k] = w, r, product / square
        y_loadings[k] = (r @ cross) / square
        left -= loadings[k] * (y_loadings[k] * square)
    coefficients = np.cumsum(rotations * y_loadings[:, None], axis=0)
    return Components(coefficients.T, weights.T, loadings.T, rotations.T, y_loadings)


def kernel_pls2(gram: Matrix, cross: Matrix, components: int) -> Components:
    """PLS2 from the Gram and the cross moments of several responses (a column each), by the same deflation.

    A weight vector is the first left singular vector of what is left of the cross moments. ``coefficients`` are (features, responses,
    components), ``y_loadings`` (responses, components).
    """
    size, responses = cross.shape
    weights, loadings, rotations = (np.zeros((size, components)) for _ in range(3))
    y_loadings = np.zeros((responses, components))
    left = np.array(cross, dtype=np.float64)
    smallest = _NOTHING_LEFT * float(np.linalg.norm(cross))
    for k in range(min(components, size)):
        if float(np.linalg.norm(left)) <= smallest:
            break
        w = np.linalg.svd(left, full_matrices=False)[0][:, 0]
        w *= np.sign(w[np.abs(w).argmax()])
        r = w.copy()
        for j in range(k):
            r -= (loadings[:, j] @ w) * rotations[:, j]
        product = gram @ r
        square = float(r @ product)
        if square <= 0:
            break
        weights[:, k], rotations[:, k], loadings[:, k] = w, r, product / square
        y_loadings[:, k] = (r @ cross) / square
        left -= np.outer(loadings[:, k], y_loadings[:, k] * square)
    coefficients = np.cumsum(rotations[:, None, :] * y_loadings[None], axis=2)
    return Components(coefficients, weights, loadings, rotations, y_loadings)


@dataclass(frozen=True)
class Centred:
    """Moments of rows about their own mean; they add up and can be taken apart without loss of precision."""

    rows: int
    mean: Vector
    response: float
    gram: Matrix
    cross: Vector
    square: float

    @classmethod
    def of(cls, X: ArrayLike, y: ArrayLike) -> Self:
        """Return the moments of rows in memory."""
        x, t = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        mean, response = x.mean(axis=0), float(t.mean())
        x, t = x - mean, t - response
        return cls(x.shape[0], mean, response, x.T @ x, x.T @ t, float(t @ t))

    def plus(self, other: Centred) -> Centred:
        """Return the moments of both sets of rows."""
        return self._combined(other, 1)

    def minus(self, other: Centred) -> Centred:
        """Return the moments without some of the rows."""
        return self._combined(other, -1)

    def _combined(self, other: Centred, sign: int, out: Matrix | None = None) -> Centred:
        from scipy.linalg.blas import dger

        rows = self.rows + sign * other.rows
        # Chan, Golub & LeVeque 1983: the means' difference weighs n m / (n +- m).
        weight = sign * self.rows * other.rows / rows
        apart, gap = other.mean - self.mean, other.response - self.response
        gram = (np.add if sign > 0 else np.subtract)(self.gram, other.gram, out=out)
        dger(weight, apart, apart, a=gram.T, overwrite_a=True)  # in place: the transpose is as BLAS wants it
        return Centred(
            rows,
            self.mean + sign * other.rows / rows * apart,
            self.response + sign * other.rows / rows * gap,
            gram,
            self.cross + sign * other.cross + weight * gap * apart,
            self.square + sign * other.square + weight * gap**2,
        )


def squared_errors(coefficients: Matrix, trained: Centred, tested: Centred) -> Vector:
    """Return the sum of squared errors of each column of coefficients, fitted to ``trained`` with an intercept, over the rows of ``tested``."""
    b = coefficients
    bias = (tested.response - trained.response) - (tested.mean - trained.mean) @ b
    inside = tested.square - 2 * (tested.cross @ b) + np.einsum("ik,ik->k", b, tested.gram @ b)
    return np.asarray(np.maximum(inside, 0.0) + tested.rows * bias**2)


def cross_validated(folds: Sequence[Centred], components: int) -> Matrix:
    """Return squared errors (folds x components): every fold predicted by the PLS of all the others. The Gram of each row is made once."""
    total, buffer = folds[0], np.empty_like(folds[0].gram)
    for k, fold in enumerate(folds[1:]):
        total = total._combined(fold, 1, out=total.gram if k else None)  # noqa: SLF001 - its own
    errors = np.empty((len(folds), components))
    for k, fold in enumerate(folds):
        rest = total._combined(fold, -1, out=buffer)  # noqa: SLF001
        errors[k] = squared_errors(kernel_pls(rest.gram, rest.cross, components).coefficients, rest, fold)
    return errors


# --- Domain pls ------------------------------------------------------------------------------------------------------------
# Domain-invariant PLS from second moments of two domains (Nikzad-Langerodi, Zellinger, Lughofer & Saminger-Platz 2018).
#
# With centred spectra X of the source, y its response, and C_s, C_t the covariances of source and target, every component has
#
#     w ~ (I + l / (y'y) |C_s - C_t|)^-1 X'y,
#
# |.| the matrix with the absolute values of the eigenvalues: w'|D|w bounds how far the variances of both domains' scores differ. Then source, target
# and y are deflated, each by its own scores. Deflation of X by t = X w changes S = X'X to S - S w w'S / w'S w, X'y to X'y - S w (w'X'y) / w'S w and y'y to
# y'y - (w'X'y)^2 / w'S w, so that no row is needed. Without a penalty it is PLS1.


def relaxed(difference: Matrix, noise: float = 0.0) -> Matrix:
    """Return the matrix with the absolute values of its eigenvalues, each less ``noise`` and never below zero."""
    values, vectors = np.linalg.eigh((difference + difference.T) / 2)
    return np.asarray((vectors * np.maximum(np.abs(values) - noise, 0)) @ vectors.T)


def domain_pls(
    source: Centred, target: Matrix, rows: int, penalty: float, components: int, noise: float = 0.0
) -> Components:
    """Return domain-invariant PLS of 1 .. ``components`` components; columns beyond what the moments hold are zero.

    ``target`` is the Gram of the target's ``rows`` spectra about their own mean; ``noise`` is the part of the difference of covariances
    that noise explains.
    """
    size, gram, other = source.cross.size, source.gram.copy(), target.copy()
    weights, loadings, rotations = (np.zeros((components, size)) for _ in range(3))
    y_loadings, left, square = np.zeros(components), np.array(source.cross, dtype=np.float64), source.square
    smallest, least = _NOTHING_LEFT * float(np.linalg.norm(left)), _NOTHING_LEFT * abs(source.square)
    for k in range(min(components, size)):
        if float(np.linalg.norm(left)) <= smallest or square <= least:
            break
        w = left
        if penalty:
            apart = relaxed(gram / source.rows - other / rows, noise)
            w = np.asarray(np.linalg.solve(np.eye(size) + penalty / square * apart, left), dtype=np.float64)
        w = np.asarray(w / np.linalg.norm(w))
        w *= np.sign(w[np.abs(w).argmax()])
        product, seen = gram @ w, other @ w
        length, far = float(w @ product), float(w @ seen)
        if length <= 0:
            break
        r = w.copy()
        for p, earlier in zip(loadings[:k], rotations[:k], strict=True):
            r -= (p @ w) * earlier
        along = float(w @ left)
        weights[k], rotations[k], loadings[k], y_loadings[k] = w, r, product / length, along / length
        gram -= np.outer(product, product) / length
        left = left - product * (along / length)
        square -= along**2 / length
        if far > 0:
            other -= np.outer(seen, seen) / far
    coefficients = np.cumsum(rotations * y_loadings[:, None], axis=0)
    return Components(coefficients.T, weights.T, loadings.T, rotations.T, y_loadings)


__all__ = [
    "Centred",
    "Components",
    "cross_validated",
    "domain_pls",
    "kernel_pls",
    "kernel_pls2",
    "relaxed",
    "squared_errors",
]
