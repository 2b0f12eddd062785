"""Noisy matrices of second moments: repaired, the directions that they determine, Gram matrices that are likely given them, and two-stage least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import qr

from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]
    Row = NDArray[np.float64]
    Places = NDArray[np.intp]


# --- Noisy gram ------------------------------------------------------------------------------------------------------------
# Regression from noisy second moments: M = X^T X + N, m = X^T y + e, with independent noise of known variances.
#
# N is symmetric with variances ``V_jk`` of its entries (j <= k), e has variances ``v``. The noise that a coefficient vector b meets is
# e - N b, whose covariance for a random b with S = E[b b^T] is (Theorem B.4, for any V)
#
#     Cov(e - N b) = diag(v) + diag(V diag(S)) + offdiag(V o S).

_TUNED = table("evidence")


def psd_part(matrix: Matrix) -> Matrix:
    """Return the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def noise_level(gram_variance: Matrix) -> float:
    """About the operator norm of the noise, sqrt(2 D) times its diagonal deviation: the size of a Gram that means nothing."""
    size = gram_variance.shape[0]
    return float(np.sqrt(2 * size * gram_variance.diagonal().max(initial=0.0)))


def shares(vectors: Matrix, lift: Matrix | None = None) -> Vector:
    """Return the part of every coefficient that lies in the space of these orthonormal columns; ``lift``: of its images under this map."""
    if lift is None:
        return np.asarray(np.square(vectors).sum(axis=1))
    return np.asarray(np.square(lift @ vectors).sum(axis=1) / np.square(lift).sum(axis=1))


def identified(
    gram: Matrix, gram_variance: Matrix, share: float = _TUNED.gram_hidden, lift: Matrix | None = None
) -> NDArray[np.bool_]:
    """For every coefficient, whether the noisy Gram tells of it: less than ``share`` of it is in directions below twice the noise level.

    There an eigenvalue is half noise or more, and no interval that takes the Gram for that of the rows knows how wrong it is.
    """
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(shares(vectors[:, values < 2 * noise_level(gram_variance)], lift) < share)


def repaired(gram: Matrix, gram_variance: Matrix, ridge: float = _TUNED.gram_ridge) -> Matrix:
    """A positive definite Gram stays as it is; another one is clipped at 0 and gets ``ridge`` times the noise level.

    A Gram is positive definite if its smallest eigenvalue is more than the rounding error of its largest: copies without noise are not.
    """
    values = np.linalg.eigvalsh(gram)
    least = 1e-12 * max(float(values[-1]), 1.0)
    if values[0] > least:
        return gram
    return psd_part(gram) + (ridge * noise_level(gram_variance) + least) * np.eye(gram.shape[0])


def noise_covariance(second: Matrix, gram_variance: Matrix, cross_variance: Vector) -> Matrix:
    """Cov(e - N b) for E[b b^T] = ``second``: the formula at the top, for one matrix or for a stack of them."""
    covariance = gram_variance * second
    squares = np.diagonal(second, axis1=-2, axis2=-1)
    _diagonals(covariance)[...] = (gram_variance @ squares[..., None])[..., 0] + cross_variance
    return covariance


def noise_covariance_in(basis: Matrix | None, second: Matrix, gram_variance: Matrix, cross_variance: Vector) -> Matrix:
    """Return the same where the entries of the Gram are independent in the coordinates of an orthonormal basis; None: in their own."""
    if basis is None:
        return noise_covariance(second, gram_variance, cross_variance)
    back = np.swapaxes(basis, -1, -2)
    covariance = np.asarray(
        basis @ noise_covariance(back @ second @ basis, gram_variance, np.zeros_like(cross_variance)) @ back
    )
    _diagonals(covariance)[...] += cross_variance
    return covariance


def _diagonals(matrices: Matrix) -> Matrix:
    """Return a view of the diagonal of every matrix that can be written to."""
    return np.asarray(np.einsum("...ii->...i", matrices))


def naive_posterior(gram: Matrix, cross: Vector, prior: Vector, noise_precision: float) -> tuple[Vector, Matrix]:
    """Return the posterior that takes noisy moments for exact ones, as published: precision Lambda_0 + lambda M."""
    covariance = np.asarray(np.linalg.pinv(np.diag(prior) + noise_precision * gram, hermitian=True), dtype=np.float64)
    return covariance @ (noise_precision * cross), covariance


def ridge(
    gram: Matrix,
    cross: Vector,
    gram_variance: Matrix,
    cross_variance: Vector,
    penalty: Vector,
    noise_precision: float,
    start: Vector | float = 0.0,
) -> tuple[Vector, Matrix]:
    """Ridge (OLS at penalty 0) on repaired moments, and the covariance of its coefficients: sampling and privacy noise together.

    ``start``: coefficients that the response of the cross moments is already less of. The Gram's noise then meets what is left only.
    """
    m = repaired(gram, gram_variance)
    inverse = np.linalg.inv(m + np.diag(penalty))
    mean = inverse @ (cross + m @ np.broadcast_to(start, cross.shape))
    left = mean - start
    v = psd_part(gram) / noise_precision + noise_covariance(np.outer(left, left), gram_variance, cross_variance)
    covariance = inverse @ v @ inverse
    return mean, (covariance + covariance.T) / 2


# --- Known directions ------------------------------------------------------------------------------------------------------
# Directions in which a noisy matrix of second moments determines coefficients, and those in which it does not.
#
# Some directions are known beforehand to have no variation in any row (all levels of a column minus the constant): along them the matrix is
# exactly 0, and whatever was released of them is noise. Other directions turn out to have none (a constant column, a level that nobody has, a
# copy of another column). A fit over both would invert noise.

#: Without noise an eigenvalue below this part of the largest is zero.
_SINGULAR = 1e-10
#: A combination of coefficients is determined if less than this part of its squared length lies where the noise is half the signal or more.
LOST = table("printed").lost
#: Of a squared length, what may be rounding.
_ROUNDED = 1e-14
#: Iterations and accuracy of the projection, whose system has a column for every declared direction.
_ITERATIONS, _EXACT = 500, 1e-12


@dataclass(frozen=True)
class KnownDirections:
    """The eigenvectors of a projected matrix that stand out of its noise, their eigenvalues, and the directions that do not."""

    #: The matrix after the projection.
    matrix: Matrix
    vectors: Matrix
    values: Vector
    #: Orthonormal directions, beside the still ones, in which the noise is half the signal or more.
    unknown: Matrix
    #: Orthonormal directions that are known beforehand to have no variation.
    still: Matrix

    @classmethod
    def of(
        cls, matrix: Matrix, variance: Matrix, still: Matrix, penalty: Vector | None = None, level: float | None = None
    ) -> KnownDirections:
        """``still`` has a column for each direction that is known to have no variation; ``variance`` is that of the noise of every entry.

        A ``penalty`` of each coefficient is added where something varies. ``level`` is the norm of the noise, where its entries are unlike.
        """
        size = matrix.shape[0]
        own = np.linalg.qr(still)[0] if still.size else np.empty((size, 0))
        projected = without_still(matrix, variance, own)
        if penalty is not None and penalty.any():
            others = np.eye(size) - own @ own.T
            projected = projected + others @ (penalty[:, None] * others)
        values, vectors = np.linalg.eigh((projected + projected.T) / 2)
        level = noise_level(variance) if level is None else level
        least = max(_SINGULAR * float(values[-1]), level) if size else 0.0
        # The still directions have eigenvalue 0 up to rounding, so none of them is kept.
        kept, sure = values > least, values > max(least, 2 * level)
        rest = vectors[:, ~sure]
        rest = rest - own @ (own.T @ rest)
        basis, weights, _ = np.linalg.svd(rest, full_matrices=False)
        unknown = basis[:, weights > 0.5] if rest.size else np.empty((size, 0))  # noqa: PLR2004 - each is 0 or 1
        return cls(projected, vectors[:, kept], values[kept], unknown, own)

    @property
    def inverse(self) -> Matrix:
        """Return the inverse over the known directions, and 0 elsewhere."""
        return np.asarray((self.vectors / self.values) @ self.vectors.T)

    def determined(self, combinations: Matrix) -> NDArray[np.bool_]:
        """Return True for each combination of coefficients (a row each) that has a value of its own, and one that the noise does not hide."""
        lengths = np.square(combinations).sum(axis=1)
        lost = np.square(combinations @ self.unknown).sum(axis=1)
        along = np.square(combinations @ self.still).sum(axis=1)
        return np.asarray((lengths > 0) & (along <= _ROUNDED * lengths) & (lost < LOST * lengths))


def touches(combinations: Matrix, directions: Matrix) -> NDArray[np.bool_]:
    """Return True for each combination (a row each) whose part along one of the directions (a column each) is more than rounding.

    Both are in the data's own units, where an entry that is 0 is exactly 0, and units may differ as much as they like.
    """
    if not directions.size:
        return np.zeros(combinations.shape[0], dtype=np.bool_)
    size = np.abs(combinations) @ np.abs(directions)
    return np.asarray((np.abs(combinations @ directions) > 1e-7 * size).any(axis=1))


def without_still(matrix: Matrix, variance: Matrix, still: Matrix) -> Matrix:
    """Return the generalised least squares estimate of a symmetric M from M + N, where M C = 0 is known (C = ``still``, orthonormal columns).

    It is M + N - W o (L C' + C L'), W the variances of the noise with the diagonal halved, L the least solution of the linear equations that
    M C = 0 gives. For noise that is half as variable off the diagonal it is P (M + N) P with P = I - C C'.
    """
    if not still.size:
        return matrix
    if not variance.any():  # released exactly: then only rounding is along C
        others = np.eye(still.shape[0]) - still @ still.T
        return np.asarray(others @ matrix @ others)
    weights = variance - np.diag(variance.diagonal() / 2)
    weights = weights / float(weights.max())

    def applied(factor: Matrix) -> Matrix:
        outer = factor @ still.T
        return np.asarray(weights * (outer + outer.T))

    factor = np.zeros_like(still)
    left = matrix @ still
    goal = _EXACT * float(np.linalg.norm(matrix))  # below it there is rounding alone
    along, size = left.copy(), float((left * left).sum())
    for _ in range(_ITERATIONS):
        if size <= goal * goal:
            break
        image = applied(along) @ still
        curved = float((along * image).sum())
        if curved <= 0:  # exact entries leave nothing to move
            break
        step = size / curved
        factor, left = factor + step * along, left - step * image
        former, size = size, float((left * left).sum())
        along = left + (size / former) * along
    return np.asarray(matrix - applied(factor))


def cross_without_still(cross: Vector, variance: Vector, still: Matrix) -> Vector:
    """Return the same of cross moments m + e with C'm = 0."""
    if not still.size:
        return cross
    weighted = still * variance[:, None] if variance.any() else still
    return np.asarray(cross - weighted @ np.linalg.lstsq(still.T @ weighted, still.T @ cross, rcond=None)[0])


# --- Likely grams ----------------------------------------------------------------------------------------------------------
# Grams that the rows may have, given their noisy release (Theorem B.4, "The Gram is not known").
#
# A released M + N of which the noise is not small against the eigenvalues of M is no Gram, and its positive semidefinite part is not the rows': that
# takes noise for information. Here the rows' own Gram has a prior. Directions of the features that stand out of the noise are taken as they are
# released. Among the others, in an orthonormal basis that does not depend on their noise, diagonal entries are about g with a deviation of
# max(r, .3) g, the others about 0 with one of r g, those with the constant about 0 with one of r sqrt(g n). Given the level g and the spread r every
# entry has a normal posterior of its own. Levels, in equal steps of their logarithm, and spreads have equal prior weights, and the release weighs them.

#: Number of levels that are tried, from the lowest part of the largest on.
_LEVELS = 12
#: Spreads of the entries about each level.
_SPREADS = _TUNED.several("gram_spreads")
#: Members whose weight is less than exp(-9) of the largest are left out.
_UNLIKELY = 9.0


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
        for level in np.geomspace(_TUNED.gram_lowest * prior.most, prior.most, _LEVELS).tolist()
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
    raised = gram + prior.still @ prior.still.T * (2 * _TUNED.gram_negligible * level) if prior.still.size else gram
    return bool(np.linalg.eigvalsh(raised)[0] > _TUNED.gram_negligible * level)


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
    while count > 1 and values[count - 1] - values[:count].mean() > _TUNED.gram_out * 2 * np.sqrt(off * count):
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
    mean[at, at], prior[at, at] = level, (max(spread, _TUNED.gram_diagonal) * level) ** 2
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


# --- Two stage -------------------------------------------------------------------------------------------------------------
# Two-stage least squares from noisy second moments, and the noise that its coefficients have (Theorem B.16).
#
# With E the exogenous columns, W = (E, instruments), X = (E, endogenous column) and K the inverse of the Gram of W: the first stage is
# P = K G_WX, the matrix of the second A = P' G_WX, and b = A^-1 P' m_W with m the cross moments. The noise N of the Gram and e of the cross
# moments move b by A^-1 P' (e_W - N_WX b), and by A^-1 N_XW K (m_W - G_WX b), which is of a smaller order where the instruments are valid.


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


__all__ = ["LOST", "KnownDirections", "cross_without_still", "touches", "without_still"]
