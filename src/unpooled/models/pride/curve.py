r"""Curves of the others' energies, direction by direction, from a party's own columns: before and after it looks at the sketches.

The rule is in THEORY.md, section 8. ``A = X X'`` of the centred own columns has eigenvectors u_i, eigenvalues w_i (falling) and rank r;
G is the Gram matrix of the others' columns and N the degrees of freedom (n - 1 where there is a constant). All functions are pure, and
local: what they read is the party's own, what was released to it, and numbers that the study declares.

Every matrix is n x n where a half of the columns has at least n of them, and otherwise as large as the columns: the singular vectors of
one half enter only through Gram matrices of columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.special import digamma, polygamma

from unpooled.kernels.ridge import gram, product
from unpooled.kernels.threads import one_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Index = NDArray[np.intp]

#: What a study may declare of the others' columns.
OTHERS = ("like mine", "copies", "unrelated")
#: Eigenvalues below this share of the largest count as zero, and no energy is expected to be smaller than this share of it.
RANK = 1e-9
#: Half the width of the running mean over ranks, as a share of the rank.
_WINDOW = 0.15
_RANDOM_SPLITS = 3
#: Deviation of an energy's logarithm from the curve, and the nodes of every integral over it.
SPREAD = 0.6
_NODES = np.linspace(-4, 4, 33)
#: The same for energies of which nothing is known: logarithms of parts of mu, from here up, evenly.
_LEAST, _EVENLY = -5.0, np.linspace(0, 1, 33)
#: The common shift of the curve: on the directions with this share of the energy, upwards only, as far as the likelihood insists.
_SHARE, _SHIFTS, _DROP = 0.9, np.linspace(0, 4, 33), 2.0


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
    orders = [np.random.default_rng(seed).permutation(p) for seed in range(_RANDOM_SPLITS)]
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
    half = (_WINDOW * ranks + 0.5).astype(np.intp)
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
    top = slice(0, min(squares.size, 1 + int(np.searchsorted(held, _SHARE * held[-1]))))
    likelihoods = np.array([_posterior(power[top], expected, columns, noise, float(d))[0] for d in _SHIFTS])
    shift = float(_SHIFTS[int(np.argmax(likelihoods >= likelihoods.max() - _DROP))])
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
