r"""Domain-invariant PLS from second moments of two domains (Nikzad-Langerodi, Zellinger, Lughofer & Saminger-Platz 2018).

With centred spectra X of the source, y its response, and C_s, C_t the covariances of source and target, every component has

    w ~ (I + l / (y'y) |C_s - C_t|)^-1 X'y,

|.| the matrix with the absolute values of the eigenvalues: w'|D|w bounds how far the variances of both domains' scores differ. Then source, target
and y are deflated, each by its own scores. Deflation of X by t = X w changes S = X'X to S - S w w'S / w'S w, X'y to X'y - S w (w'X'y) / w'S w and y'y to
y'y - (w'X'y)^2 / w'S w, so that no row is needed. Without a penalty it is PLS1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.kernel_pls import Components

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.kernel_pls import Centred

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]

#: What deflation made this much smaller than it was is rounding.
_NOTHING_LEFT = 1e-14


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


__all__ = ["domain_pls", "relaxed"]
