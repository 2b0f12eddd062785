r"""Grams that the rows may have, given their noisy release (Theorem B.4, "The Gram is not known").

A released M + N of which the noise is not small against the eigenvalues of M is no Gram, and its positive semidefinite part is not the rows': that
takes noise for information. Here the rows' own Gram has a prior. Directions of the features that stand out of the noise are taken as they are
released. Among the others, in an orthonormal basis that does not depend on their noise, diagonal entries are about g with a deviation of
max(r, .3) g, the others about 0 with one of r g, those with the constant about 0 with one of r sqrt(g n). Given the level g and the spread r every
entry has a normal posterior of its own. Levels, in equal steps of their logarithm, and spreads have equal prior weights, and the release weighs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import qr

from unpooled.kernels.noisy_gram import noise_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]

#: Number of levels that are tried, from this part of the largest on, and spreads of the entries about each.
_LEVELS, _LOWEST, _SPREADS = 12, 2e-4, (0.1, 0.3, 1.0)
#: The spread of diagonal entries is at least this one.
_DIAGONAL = 0.3
#: An eigenvalue stands out if it is farther from the mean of those below it than this many times the largest eigenvalue of noise alone.
_OUT = 1.1
#: Members whose weight is less than exp(-9) of the largest are left out.
_UNLIKELY = 9.0
#: Above this many noise levels the smallest eigenvalue says that the noise is negligible.
_NEGLIGIBLE = 100.0


@dataclass(frozen=True)
class GramPrior:
    """The prior of the rows' Gram: which values the declared bounds allow, and where it is known to be nothing."""

    #: The largest mean of a feature's sum of squares that the declared bounds allow.
    most: float
    #: Whether the last column is the constant.
    constant: bool
    #: Orthonormal directions (a column each) along which no row varies; it may have no columns.
    still: Matrix


@dataclass(frozen=True)
class LikelyGram:
    """One member of the mixture: a Gram with the variances of what is still unknown of its entries, in a basis of its own."""

    #: Logarithm of the density of the released matrix, up to a constant of the mixture.
    log_weight: float
    gram: Matrix
    variance: Matrix
    #: Orthonormal columns, in whose coordinates ``variance`` holds; None where they are those of the Gram.
    basis: Matrix | None


def likely_grams(gram: Matrix, variance: Matrix, rows: float, prior: GramPrior) -> list[LikelyGram]:
    """Return the members that the release leaves likely; none where the noise is negligible, and the Gram is as released.

    ``variance`` holds the variances of the noise of every entry. ``rows`` is the number of rows, of which the constant's entry consists.
    """
    if _negligible(gram, variance, prior):
        return []
    features = gram.shape[0] - prior.constant
    basis, count = _basis(gram[:features, :features], variance[:features, :features])
    seen, noise = gram, variance
    if basis is not None:
        whole = np.eye(gram.shape[0])
        whole[:features, :features] = basis
        seen, noise = (
            _unbiased(whole.T @ gram @ whole, _rotated(variance, whole), count, features),
            _rotated(variance, whole),
        )
        basis = whole
    found = [
        _member(seen, noise, count, features, rows, level, spread, basis)
        for level in np.geomspace(_LOWEST * prior.most, prior.most, _LEVELS).tolist()
        for spread in _SPREADS
    ]
    best = max(each.log_weight for each in found)
    likely = [each for each in found if each.log_weight >= best - _UNLIKELY]
    return [_without_still(each, prior.still) for each in likely] if prior.still.size else likely


def _negligible(gram: Matrix, variance: Matrix, prior: GramPrior) -> bool:
    """Return True where every direction in which rows may vary has an eigenvalue far above the noise."""
    level = noise_level(variance)
    if not level:
        return True
    raised = gram + prior.still @ prior.still.T * (2 * _NEGLIGIBLE * level) if prior.still.size else gram
    return bool(np.linalg.eigvalsh(raised)[0] > _NEGLIGIBLE * level)


def _rotated(variance: Matrix, basis: Matrix) -> Matrix:
    """Return the variances of the entries of Q'NQ for the columns Q of ``basis``; exact for noise that is half as variable off the diagonal."""
    halved = variance - np.diag(variance.diagonal() / 2)
    squared = np.square(basis)
    turned = squared.T @ halved @ squared
    return np.asarray(turned + np.diag(turned.diagonal()))


def _basis(gram: Matrix, variance: Matrix) -> tuple[Matrix | None, int]:
    """Return an orthonormal basis whose last columns are the directions that stand out, and the number of the others; None if none stands out."""
    size = gram.shape[0]
    if size == 1:
        return None, 1
    values, vectors = np.linalg.eigh(gram)
    off = float(variance.sum() - variance.diagonal().sum()) / (size * (size - 1))
    count = size
    while count > 1 and values[count - 1] - values[:count].mean() > _OUT * 2 * np.sqrt(off * count):
        count -= 1
    if count == size:
        return None, size
    others = vectors[:, :count]
    # Eigenvectors among the others are those of their noise. Unit vectors that are projected to their space are not.
    _, _, order = qr(others.T, mode="economic", pivoting=True)
    chosen = others @ np.linalg.qr(others[np.sort(order[:count])].T)[0]
    return np.column_stack([chosen, vectors[:, count:]]), count


def _unbiased(gram: Matrix, variance: Matrix, count: int, features: int) -> Matrix:
    """Return the Gram in the basis with smaller entries for what stands out: noise turns such a direction so that its own eigenvalue rises."""
    diagonal = gram.diagonal().copy()
    for k in range(count, features):
        diagonal[k] -= 2 * float((variance[k, :count] / (gram[k, k] - gram.diagonal()[:count])).sum())
    return gram + np.diag(diagonal - gram.diagonal())


def _member(
    gram: Matrix, noise: Matrix, count: int, features: int, rows: float, level: float, spread: float, basis: Matrix | None
) -> LikelyGram:
    """Return the posterior of every entry, for one level and one spread of the first ``count`` directions."""
    size = gram.shape[0]
    mean = np.zeros((size, size))
    prior = np.full((size, size), np.inf)
    prior[:count, :count] = (spread * level) ** 2
    at = np.arange(count)
    mean[at, at], prior[at, at] = level, (max(spread, _DIAGONAL) * level) ** 2
    if features < size:
        prior[:count, -1] = prior[-1, :count] = spread**2 * level * rows
    known = np.isfinite(prior)
    total = np.where(known, prior, 0.0) + np.where(known, noise, 1.0)
    off = np.where(known, gram - mean, 0.0)
    kept = np.where(known, np.where(known, prior, 0.0) / total, 1.0)
    half = np.triu_indices(size)
    weight = -0.5 * float((np.square(off) / total + np.where(known, np.log(total), 0.0))[half].sum())
    found = np.where(known, mean + kept * off, gram)
    return LikelyGram(weight, found if basis is None else basis @ found @ basis.T, kept * noise, basis)


def _without_still(member: LikelyGram, still: Matrix) -> LikelyGram:
    """Return a member without anything along the directions in which no row varies."""
    others = np.eye(still.shape[0]) - still @ still.T
    return LikelyGram(member.log_weight, others @ member.gram @ others, member.variance, member.basis)
