"""The pooled ridge's own share, with the others' Gram matrix replaced by what a party can know of it (THEORY.md, section 8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.special import digamma, polygamma

from unpooled.kernels.newton import HOPELESS, PENALTY, MoreauEnvelope, NewtonPath
from unpooled.kernels.ridge import RidgePath, gram, lowest, product
from unpooled.kernels.threads import one_thread
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.kernels.newton import Loss

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Index = NDArray[np.intp]


# --- Curve -----------------------------------------------------------------------------------------------------------------
# Curves of the others' energies, direction by direction, from a party's own columns: before and after it looks at the sketches.
#
# The rule is in THEORY.md, section 8. ``A = X X'`` of the centred own columns has eigenvectors u_i, eigenvalues w_i (falling) and rank r;
# G is the Gram matrix of the others' columns and N the degrees of freedom (n - 1 where there is a constant). All functions are pure, and
# local: what they read is the party's own, what was released to it, and numbers that the study declares.
#
# Every matrix is n x n where a half of the columns has at least n of them, and otherwise as large as the columns: the singular vectors of
# one half enter only through Gram matrices of columns.

#: What a study may declare of the others' columns.
OTHERS = ("like mine", "copies", "unrelated")
#: Eigenvalues below this share of the largest count as zero, and no energy is expected to be smaller than this share of it.
RANK = 1e-9
_TUNED = table("pride")
#: Deviation of an energy's logarithm from the curve, and the nodes of every integral over it.
SPREAD = _TUNED.spread
_NODES = np.linspace(-4, 4, 33)
#: The same for energies of which nothing is known: logarithms of parts of mu, from here up, evenly.
_LEAST, _EVENLY = _TUNED.unknown_least, np.linspace(0, 1, 33)
#: Common shifts of the curve that are tried, upwards only.
_SHIFTS = np.linspace(0, 4, 33)


@dataclass(frozen=True)
class OwnColumns:
    """The centred own columns with the spectrum of their Gram matrix, in the smaller of the two forms."""

    rows: Matrix
    #: N: n - 1 where a constant is fitted, else n.
    degrees: int
    #: X X' (n x n) or X'X (p x p).
    square: Matrix
    by_rows: bool
    #: w, falling, without numerical zeros.
    squares: Vector
    #: U (n x r) or the right singular vectors (p x r).
    vectors: Matrix

    @classmethod
    def of(cls, centred: Matrix, degrees: int, *, by_rows: bool | None = None) -> OwnColumns:
        """Return the columns with their spectrum; ``by_rows``: work with n x n matrices; None: if rows do not outnumber columns."""
        n, p = centred.shape
        rows = n <= p if by_rows is None else by_rows
        square = _gram(centred, by_rows=rows)
        return cls(centred, degrees, square, rows, *_spectrum(square, degrees))

    @property
    def rank(self) -> int:
        """Return the rank of the own columns."""
        return self.squares.size

    def coordinates(self, columns: Matrix) -> Matrix:
        """U' M for centred columns M."""
        if self.by_rows:
            return product(self.vectors.T, columns)
        return product(self.vectors.T, product(self.rows.T, columns)) / np.sqrt(self.squares)[:, None]

    def coefficients(self, coordinates: Vector) -> Vector:
        """X' U t: what the weights U t of the rows mean for the own columns."""
        if self.by_rows:
            return np.asarray(self.rows.T @ (self.vectors @ coordinates))
        return np.asarray(self.vectors @ (np.sqrt(self.squares) * coordinates.T).T)

    def left(self) -> Matrix:
        """U itself, n x r."""
        return self.vectors if self.by_rows else product(self.rows, self.vectors / np.sqrt(self.squares))


def _gram(columns: Matrix, *, by_rows: bool) -> Matrix:
    n, p = columns.shape
    if by_rows == (n <= p):
        return gram(columns)
    return product(columns, columns.T) if by_rows else product(columns.T, columns)


def _spectrum(square: Matrix, most: int) -> tuple[Vector, Matrix]:
    """Eigenvalues, falling and without numerical zeros, and their vectors; at most N of them."""
    if square.size == 0:
        return np.empty(0), np.empty((square.shape[0], 0))
    with one_thread():
        values, vectors = eigh(square, check_finite=False, driver="evd")
    kept = min(int((values > max(RANK * float(values[-1]), np.finfo(np.float64).tiny)).sum()), most)
    return values[::-1][:kept], vectors[:, ::-1][:, :kept]


# --- step 1: the curve ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Belief:
    """The belief about the others' energies before the sketches are looked at."""

    #: mu, rank by rank (N numbers).
    energies: Vector
    #: Deviation of the logarithm of an own direction's energy from that of mu.
    spread: float = SPREAD
    #: The energy of copies on the own directions (r numbers); which of these no half of the columns reaches.
    most: Vector = field(default_factory=lambda: np.empty(0))
    unreached: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def scaled(self, factor: float) -> Belief:
        """Return the belief about sketches that keep this share of all energies."""
        return replace(self, energies=self.energies * factor, most=self.most * factor)

    def nodes(self, count: int, shift: float) -> tuple[Matrix, Matrix]:
        """Energies of the first own directions with the logarithms of their weights (count x 33 each), known ones shifted."""
        mu = self.energies[:count, None]
        known = mu * np.exp(shift + (SPREAD**2 - self.spread**2) / 2 + self.spread * _NODES)
        if not self.unreached[:count].any():
            return known, np.broadcast_to(-0.5 * _NODES**2, known.shape)
        # As likely as not below 2 mu, evenly; above it ever less likely, up to copies: the logarithm has Laplace's law.
        logs = _LEAST + (np.log(np.maximum(self.most[:count, None] / mu, 2.0)) - _LEAST) * _EVENLY
        unreached = self.unreached[:count, None]
        weights = np.minimum(logs, 2 * math.log(2) - logs)
        return np.where(unreached, mu * np.exp(logs), known), np.where(unreached, weights, -0.5 * _NODES**2)


def expected_energies(own: OwnColumns, columns: int, others: str) -> Belief:
    """Return the energy of the others' ``columns`` in every direction; ``others`` as the study declares them."""
    n, p = own.rows.shape
    ratio = columns / p
    most, smallest = own.squares * ratio, RANK * float(own.squares[0])
    even = np.full(own.degrees, max(float(own.squares.sum()) / own.degrees * ratio, smallest))
    if others == "copies":
        even[:] = smallest
        even[: own.rank] = most
    if others in {"copies", "unrelated"}:
        return Belief(even, most=most, unreached=np.zeros(own.rank, dtype=np.bool_))
    if p == 1:  # no halves: nothing is known
        mu, reached, part, spread = even, 0, ratio, SPREAD
    else:
        mu, reached = np.maximum(_halves(own, columns, by_rows=n <= p // 2), smallest), min(own.rank, p - p // 2)
        # A curve from so few columns is no more than a draw of its law, chi-square of p degrees (THEORY.md, step 1).
        spread = math.sqrt(SPREAD**2 + float(polygamma(1, p / 2)))
        few = math.exp(math.log(p / 2) - float(digamma(p / 2)) + float(polygamma(1, p / 2)) / 2)
        highest = np.cumsum(most) / np.arange(1, own.rank + 1)
        mu[: own.rank] = np.clip(mu[: own.rank] * few, None, np.maximum(mu[: own.rank], highest))
        part = min(ratio, float(mu[reached - 1] / own.squares[reached - 1]))
    middle = np.zeros(own.rank)
    middle[reached:] = own.squares[reached:] * part / 2
    unreached = middle > mu[: own.rank]
    mu[: own.rank] = np.maximum(mu[: own.rank], middle)
    return Belief(mu, spread, most, unreached)


def _halves(own: OwnColumns, columns: int, *, by_rows: bool) -> Vector:
    """Return the larger of two curves: halves of neighbours in declared order, both ways; halves at random (public seeds 0, 1, 2)."""
    p = own.rows.shape[1]
    square = own.square if own.by_rows == by_rows else _gram(own.rows, by_rows=by_rows)
    orders = [np.random.default_rng(seed).permutation(p) for seed in range(_TUNED.whole("random_splits"))]
    contiguous = [np.arange(p // 2), np.arange(p // 2, p)]
    energies = _energies_by_rows if by_rows else _energies_by_columns
    return np.maximum(
        *(
            _smoothed(np.mean([energies(own, square, half) * (columns / (p - half.size)) for half in halves], axis=0))
            for halves in (contiguous, [order[::2] for order in orders])
        )
    )


def _energies_by_rows(own: OwnColumns, square: Matrix, half: Index) -> Vector:
    """|u_i' X_rest|^2 on the singular vectors of one half: u_i' (A - A_half) u_i."""
    first = _gram(np.ascontiguousarray(own.rows[:, half]), by_rows=True)
    rest = square - first
    vectors = _spectrum(first, own.degrees)[1]
    return _spread(np.einsum("ij,ij->j", vectors, product(rest, vectors)), float(rest.trace()), own.degrees)


def _energies_by_columns(own: OwnColumns, square: Matrix, half: Index) -> Vector:
    """Return the same from X'X: u_i = X_half v_i / d_i, so u_i' X_rest = v_i' (X_half' X_rest) / d_i."""
    rest = np.setdiff1d(np.arange(own.rows.shape[1]), half)
    squares, vectors = _spectrum(square[np.ix_(half, half)], own.degrees)
    towards = product(square[np.ix_(rest, half)], vectors)
    return _spread((towards**2).sum(axis=0) / squares, float(square[rest, rest].sum()), own.degrees)


def _spread(inside: Vector, total: float, degrees: int) -> Vector:
    """Return the energies of all directions: the rest of ``total`` is shared evenly by the directions outside the half's span."""
    outside = degrees - inside.size
    rest = max(total - float(inside.sum()), 0.0) / outside if outside else 0.0
    return np.concatenate([np.maximum(inside, 0.0), np.full(outside, rest)])


def _smoothed(energies: Vector) -> Vector:
    """Running mean over ranks i - .15 i to i + .15 i."""
    size = energies.size
    sums, ranks = np.concatenate([[0.0], np.cumsum(energies)]), np.arange(size)
    half = (_TUNED.window * ranks + 0.5).astype(np.intp)
    low, high = np.maximum(0, ranks - half), np.minimum(size, ranks + half + 1)
    return np.asarray((sums[high] - sums[low]) / (high - low))


# --- steps 2 and 3: what the sketches add ---------------------------------------------------------------------------------


class Observed(NamedTuple):
    """Energies of the centred sketches of q columns, whose noise has a known mean variance."""

    #: |u_i' Z|^2 in every own direction.
    power: Vector
    #: S_0: the energy outside of the own directions, less the noise's.
    rest: float
    columns: int
    noise: float


def _posterior(power: Vector, expected: Belief, columns: int, noise: float, shift: float) -> tuple[float, Vector]:
    r"""Return log likelihood of the observed energies and posterior mean of the true ones.

    P is the energy of q columns, each of variance g/q + s2 in this direction. Constants are left out.
    """
    energy, before = expected.nodes(power.size, shift)
    mean = energy / columns + noise
    log = -0.5 * columns * np.log(mean) - 0.5 * power[:, None] / mean + before
    top = log.max(axis=1, keepdims=True)
    weights = np.exp(log - top)
    total = weights.sum(axis=1)
    return float((top[:, 0] + np.log(total)).sum()), (weights * energy).sum(axis=1) / total


def energies_inside(squares: Vector, power: Vector, expected: Belief, columns: int, noise: float) -> Vector:
    """g_i on the own directions: the curve shifted upwards together as far as the likelihood insists, then its posterior mean."""
    held = np.cumsum(squares)
    top = slice(0, min(squares.size, 1 + int(np.searchsorted(held, _TUNED.shift_share * held[-1]))))
    likelihoods = np.array([_posterior(power[top], expected, columns, noise, float(d))[0] for d in _SHIFTS])
    shift = float(_SHIFTS[int(np.argmax(likelihoods >= likelihoods.max() - _TUNED.shift_drop))])
    return _posterior(power, expected, columns, noise, shift)[1]


def sketches_likelihood(inside: Vector, outside: float, seen: Observed, directions: int, prior: float) -> float:
    """Return the log likelihood of the sketches' energies, up to a constant; ``prior`` sets the variance of the energy outside."""
    mean = inside / seen.columns + seen.noise
    found = float((-0.5 * seen.columns * np.log(mean) - 0.5 * seen.power / mean).sum())
    if directions and prior > 0:
        found -= (
            0.5 * (outside - seen.rest / directions) ** 2 / _variance(prior, seen.rest, directions, seen.columns, seen.noise)
        )
    return found


def _variance(expected: float, observed: float, directions: int, columns: int, noise: float) -> float:
    """Return the variance of the observed energy outside of the own directions, for each of them."""
    total = 2 * columns * noise**2 * directions + 4 * noise * max(observed, 0.0) + 2 * (expected * directions) ** 2 / columns
    return total / directions**2


def energy_outside(expected: float, observed: float, directions: int, columns: int, noise: float) -> float:
    """Return c, the energy in each of ``directions`` directions that no own column reaches: a normal posterior mean, not below 0.

    ``observed`` is S_0, the energy of the sketches there less the noise's; ``expected`` is m0.
    """
    if not expected > 0:
        return 0.0
    data, prior = _variance(expected, observed, directions, columns, noise), (SPREAD * expected) ** 2
    return max(0.0, (expected / prior + observed / directions / data) / (1 / prior + 1 / data))


def calibrated_weight(inside: Vector, square: Matrix, beyond: Matrix, directions: int) -> tuple[float, float]:
    """Return (a, mean energy outside): how far the calibrated columns' Gram matrix may be believed (Theorem P.8).

    ``inside`` are the c_i, ``square`` is G_c = Z_cal'Z_cal, ``beyond`` what of it lies outside the own span (its ``directions``). a is 1
    less what independent columns of the same energies would show off the diagonal, two standard deviations above their mean.
    """
    columns = square.shape[0]
    outside = float(beyond.trace()) if directions else 0.0
    total, squared = float(inside.sum()) + outside, float((inside**2).sum())
    if directions:  # the mean over all bases there
        squared += (2 * float((beyond**2).sum()) + outside**2) / (directions + 2)
    mean = outside / directions if directions else 0.0
    off = float((square**2).sum()) - squared
    if columns < 2 or not off > 0:  # noqa: PLR2004 - one column has nothing off the diagonal
        return 0.0, mean
    by_chance = (total**2 - squared) / columns
    return max(0.0, 1 - (1 + 4 / np.sqrt(columns * (columns - 1))) * by_chance / off), mean


# --- Gram ------------------------------------------------------------------------------------------------------------------
# The pooled ridge's own share, with the others' Gram matrix replaced by what a party can know of it (THEORY.md, section 8).
#
# ``beta_k = X_k' V^-1 y`` with ``V = U diag(w + e) U' + e_0 (C - UU') + a Z_cal Z_cal' + P P' + alpha I``: e and e_0 are the others' energies
# that the calibrated columns do not show, a their weight, P columns that were sent plain. V less alpha I is a :class:`Kernel`. It differs from a
# multiple of C only on the span of U and of the received columns, so one eigendecomposition of that size serves every penalty.

#: What remains of the received columns outside the own span counts from this share of their energy.
_RANK = 1e-10


@dataclass(frozen=True)
class Heard:
    """The released columns that a party received from the others, and the declarations of the study about them."""

    #: Coded columns that the others keep private.
    columns: int
    #: The received columns (n x ..) and the noise's deviation in each; the same with the sketches calibrated; which are sketches.
    #: The rest are known as they are.
    received: Matrix
    noise: Vector
    calibrated: Matrix
    sketched: NDArray[np.bool_]
    #: The share of a Gram matrix's energy that a sketch of this kind keeps; 1 if it is isotropic.
    kept: float = 1.0
    #: One of ``curve.OTHERS``.
    others: str = "like mine"

    def of_rows(self, rows: NDArray[np.intp]) -> Heard:
        """Return the received columns of some rows only."""
        return replace(self, received=self.received[rows], calibrated=self.calibrated[rows])


@dataclass(frozen=True)
class Share:
    """A party's solution."""

    #: beta_k.
    own: Vector
    #: Coefficients of the received columns; none where only their Gram matrix was used.
    received: Vector
    intercept: float | Vector
    #: The mean decision of the training rows; with several decisions a row, of each.
    mean: float | Vector
    #: Decisions of the training rows; None where the loss's unit does not follow them.
    fitted: Vector | None = None


@dataclass(frozen=True)
class Kernel:
    """V - alpha I on centred rows (Theorem P.6)."""

    own: OwnColumns
    own_means: Vector
    #: e: what the others add in each own direction beyond the received columns; e_0 outside of them; a.
    inside: Vector
    outside: float
    weight: float
    #: H = [sqrt(a) Z_cal, P] in the order of the received columns, centred.
    features: Matrix
    #: U'H and what H'H has outside the own span.
    towards: Matrix
    beyond: Matrix

    @classmethod
    def of(cls, own: Matrix, heard: Heard, *, fit_intercept: bool, by_rows: bool | None = None) -> Kernel:
        """Return the kernel of the party's own columns and the received ones; ``by_rows`` forces one of the two forms, which agree."""
        setting = Setting.of(own, heard, fit_intercept=fit_intercept, by_rows=by_rows)
        return setting.kernel(setting.features(heard.calibrated), *setting.energies())

    def coordinates(self, target: Vector) -> Vector:
        """U'y."""
        return self.own.coordinates(target[:, None])[:, 0]

    def loosened(self, factor: float) -> Kernel:
        """Return the kernel of a study in which the others' coefficients vary by this factor more than the own ones."""
        root = math.sqrt(factor)
        return replace(
            self,
            inside=self.inside * factor,
            outside=self.outside * factor,
            features=self.features * root,
            towards=self.towards * root,
            beyond=self.beyond * factor,
        )

    @cached_property
    def spectrum(self) -> tuple[Vector, Matrix, Matrix, Vector]:
        """Return eigenvalues and eigenvectors on the span of U and H, and R with the roots of L.

        Outside U an orthonormal basis E of what H has there: H = U T + E S, S = L^(1/2) R' with the eigenpairs of the ``beyond`` Gram.
        """
        rank, inside = self.own.rank, self.own.squares + self.inside
        with one_thread():
            values, vectors = eigh(self.beyond) if self.beyond.size else (np.empty(0), np.empty((0, 0)))
            energy = float((self.features**2).sum())
            kept = values > max(_RANK * energy, np.finfo(np.float64).tiny)
            kept[: -max(self.own.degrees - rank, 0) or kept.size] = False  # no more directions than there are
            roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
            maps = np.vstack([self.towards, roots[:, None] * vectors.T])
            matrix = product(maps, maps.T)
            matrix[np.diag_indices_from(matrix)] += np.concatenate([inside, np.full(roots.size, self.outside)])
            if matrix.size == 0:
                return np.empty(0), matrix, vectors, roots
            squares, basis = eigh(matrix, driver="evd")
        return np.maximum(squares, 0.0), basis, vectors, roots

    def share(self, inside: Vector, mean: float | Vector, fitted: Vector | None = None) -> Share:
        """Return the solution from U'v of the rows' weights v = V^-1 y; with several decisions a row, a column for each."""
        own = self.own.coefficients(inside)
        return Share(own, np.empty((0, *own.shape[1:])), mean - self.own_means @ own, mean, fitted)


@dataclass(frozen=True)
class Setting:
    """The own columns, the received ones, and what is expected of the others' energies: everything that kernels of one party share."""

    own: OwnColumns
    own_means: Vector
    heard: Heard
    #: 1 where a constant is fitted, else 0.
    centre: float

    @classmethod
    def of(cls, own: Matrix, heard: Heard, *, fit_intercept: bool, by_rows: bool | None = None) -> Setting:
        """Return the setting of the party's own columns and the received ones."""
        degrees = max(own.shape[0] - fit_intercept, 0)
        own_means = own.mean(axis=0) if fit_intercept else np.zeros(own.shape[1])
        return cls(OwnColumns.of(own - own_means, degrees, by_rows=by_rows), own_means, heard, float(fit_intercept))

    @property
    def beyond(self) -> int:
        """Return the number of directions that no own column reaches."""
        return self.own.degrees - self.own.rank

    def features(self, calibrated: Matrix) -> Matrix:
        """Return the received columns as features, centred; ``calibrated`` has the sketches' columns calibrated."""
        # A public matrix that stretches its rows is scaled back; one that keeps a part of the energy shows a part of G.
        factors = np.where(self.heard.sketched, 1 / np.sqrt(max(1.0, self.heard.kept)), 1.0)
        found: Matrix = (calibrated - self.centre * calibrated.mean(axis=0)) * factors
        return found

    @cached_property
    def expected(self) -> tuple[Belief, float]:
        """Return the energies that the others' columns are expected to have in the own directions, and outside of them."""
        expected = expected_energies(self.own, self.heard.columns, self.heard.others)
        return expected, float(expected.energies[self.own.rank :].mean()) if self.beyond else 0.0

    @cached_property
    def observed(self) -> Observed:
        """Return the energies of the sketches themselves."""
        heard = self.heard
        noisy = heard.received[:, heard.sketched]
        noisy = noisy - self.centre * noisy.mean(axis=0)
        columns = noisy.shape[1]
        noise = float((heard.noise[heard.sketched] ** 2).mean()) if columns else 0.0
        power = (self.own.coordinates(noisy) ** 2).sum(axis=1)
        rest = float((noisy**2).sum()) - float(power.sum()) - self.beyond * columns * noise
        return Observed(power, rest, columns, noise)

    @property
    def is_alone(self) -> bool:
        """Return True if there is nothing to say of the others: no own direction, or no column of theirs."""
        return self.own.rank == 0 or self.heard.columns == 0

    def energies(self) -> tuple[Vector, float]:
        """Return the others' energies in the own directions, and outside of them: posterior means (Theorem P.7, steps 1 to 3)."""
        if self.is_alone:
            return np.zeros(self.own.rank), 0.0
        expected, outside = self.expected
        seen, kept = self.observed, self.heard.kept
        if seen.columns == 0:
            return expected.energies[: self.own.rank], outside
        inside = energies_inside(self.own.squares, seen.power, expected.scaled(kept), seen.columns, seen.noise) / kept
        if self.beyond:
            outside = energy_outside(outside * kept, seen.rest, self.beyond, seen.columns, seen.noise) / kept
        return inside, outside

    def kernel(self, features: Matrix, energies: Vector, outside: float) -> Kernel:
        """Return the kernel of these energies, and of features as far as they may be believed (Theorem P.8, steps 4 and 5)."""
        sketched, features = self.heard.sketched, features.copy()
        weight = 0.0
        if not self.is_alone and sketched.any():
            calibrated = features[:, sketched]
            towards = self.own.coordinates(calibrated)
            square, shown = product(calibrated.T, calibrated), (towards**2).sum(axis=1)
            weight, mean = calibrated_weight(shown, square, square - product(towards.T, towards), self.beyond)
            energies, outside = np.maximum(energies - weight * shown, 0.0), max(outside - weight * mean, 0.0)
        features[:, sketched] *= np.sqrt(weight)
        towards = self.own.coordinates(features)
        beyond = product(features.T, features) - product(towards.T, towards)
        if self.own.rank >= self.own.degrees:
            beyond = np.zeros_like(beyond)
        return Kernel(self.own, self.own_means, energies, outside, weight, features, towards, beyond)

    def without_sketches(self, energies: Vector, outside: float) -> Kernel:
        """Return the kernel of these energies where no direction of the sketches is believed (a = 0)."""
        return self.kernel(np.where(self.heard.sketched, 0.0, self.features(self.heard.received)), energies, outside)


@dataclass(frozen=True)
class GramPath:
    """Squared loss: solutions, evidence and cross-validation for every penalty."""

    kernel: Kernel
    target: Vector
    target_mean: float
    fit_intercept: bool

    @classmethod
    def of(cls, kernel: Kernel, target: Vector, *, fit_intercept: bool = True) -> GramPath:
        """Return the path for a party's response."""
        mean = float(target.mean()) if fit_intercept else 0.0
        return cls(kernel, target - mean, mean, fit_intercept)

    @cached_property
    def _reduced(self) -> tuple[Vector, Matrix, Vector]:
        """Return eigenvalues and eigenvectors on the span of U and H, and y there."""
        kernel, (squares, basis, vectors, roots) = self.kernel, self.kernel.spectrum
        ours = kernel.coordinates(self.target)
        beyond = (vectors.T @ (kernel.features.T @ self.target - kernel.towards.T @ ours)) / roots
        return squares, basis, basis.T @ np.concatenate([ours, beyond])

    @property
    def _beyond(self) -> tuple[int, float]:
        """Directions outside the span of U and H, and y's energy there."""
        squares, _, rotated = self._reduced
        degrees = self.kernel.own.degrees
        rest = float(self.target @ self.target - rotated @ rotated)
        return max(degrees - squares.size, 0), max(rest, 0.0)

    @property
    def squares(self) -> Vector:
        """Return eigenvalues of the kernel on the span of the own and the received columns."""
        return self._reduced[0]

    def evidence(self, alpha: float, scale: float | None = None) -> float:
        """Return twice the negative log marginal likelihood of y ~ N(0, s^2 V / alpha), up to a constant: s^2 profiled out, or alpha times ``scale``."""
        squares, _, rotated = self._reduced
        count, rest = self._beyond
        ratio, outer = squares / alpha, self.kernel.outside / alpha
        explained = float((rotated**2 / (1 + ratio)).sum()) + rest / (1 + outer)
        degrees = self.kernel.own.degrees
        level = degrees * float(np.log(max(explained, 1e-300)))
        if scale is not None:  # the profile's maximum, plus what another s^2 costs
            off = max(explained, 1e-300) / (max(degrees, 1) * alpha * scale)
            level += degrees * (off - 1 - math.log(off))
        return level + float(np.log1p(ratio).sum()) + count * float(np.log1p(outer))

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood, over 16 orders of magnitude around the kernel's own scale."""
        total = float(self.squares.sum()) + self._beyond[0] * self.kernel.outside
        if not total > 0:
            return 1.0
        return lowest(self.evidence, total / self.kernel.own.degrees * np.logspace(-8, 8, 65))

    def noise_alpha(self, scale: float) -> float:
        """Return the penalty of largest marginal likelihood where coefficients have the variance ``scale``: it is the noise's over that."""
        most = float(self.target @ self.target) / max(self.kernel.own.degrees, 1)
        if not most > 0:
            return 1.0
        return lowest(lambda alpha: self.evidence(alpha, scale), most / scale * np.logspace(-8, 1, 37))

    def solve(self, alpha: float) -> Share:
        """Return the party's share at this penalty."""
        squares, basis, rotated = self._reduced
        weights = basis @ (rotated / (squares + alpha))
        return self.kernel.share(weights[: self.kernel.own.rank], self.target_mean)

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return the mean squared error of held-out predictions: of the kernel by its features, e_0 as independent noise of each row."""
        path = RidgePath.of(features(self.kernel), self.target, fit_intercept=self.fit_intercept)
        return path.cross_validated(np.asarray(alphas) + self.kernel.outside, folds)


@dataclass(frozen=True)
class GramNewtonPath:
    """Any other loss: beta_k = X_k' v at the minimum over the kernel's functions; e_0 is a random effect of every row."""

    kernel: Kernel
    path: NewtonPath

    @classmethod
    def of(cls, kernel: Kernel, target: Vector, loss: Loss, *, fit_intercept: bool = True) -> GramNewtonPath:
        """Return the path for a party's response."""
        return cls(kernel, NewtonPath.of(features(kernel), target, loss, fit_intercept=fit_intercept))

    def _at(self, alpha: float) -> NewtonPath:
        outside = self.kernel.outside if self.path.loss.has_effects else 0.0
        return self.path.with_loss(MoreauEnvelope(self.path.loss, outside / alpha)) if outside > 0 else self.path

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the features."""
        return self.path.squares

    def evidence(self, alpha: float) -> float:
        """Return twice the negative log marginal likelihood by Laplace's approximation, the random effects among the unknowns."""
        return self._at(alpha).evidence(alpha)

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood, over 12 orders of magnitude around the features' own scale."""
        if self.squares.size == 0:
            return 1.0
        scale = float(self.squares.mean()) * self.path.loss.bend(self.path.target)
        with one_thread():
            return lowest(self.evidence, scale * np.logspace(-6, 6, 13), PENALTY, HOPELESS)

    def solve(self, alpha: float) -> Share:
        """Return the party's share at this penalty: F's coefficients are F'v, so U'v stands in them."""
        coefficients, intercept = self._at(alpha).solve(alpha)
        mean = intercept + float(self.path.column_means @ coefficients)
        inside = coefficients[: self.kernel.own.rank] / raised(self.kernel)
        return self.kernel.share(inside, mean, self.path.design @ coefficients + mean)

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return the mean loss of held-out decisions, whose rows' effects nobody knows."""
        held = [self._at(float(alpha)).held_out([float(alpha)], folds)[0] for alpha in alphas]
        return np.array([float(np.mean(self.path.loss.value(row, self.path.target))) for row in held])


def features(kernel: Kernel) -> Matrix:
    """Return F with F F' = the kernel less e_0 on every row (n x (r + columns)); e is raised to at least e_0, so that F is real."""
    return np.hstack([kernel.own.left() * raised(kernel), kernel.features])


def raised(kernel: Kernel) -> Vector:
    """Return the own directions' roots in F."""
    return np.asarray(np.sqrt(kernel.own.squares + np.maximum(kernel.inside - kernel.outside, 0.0)))
