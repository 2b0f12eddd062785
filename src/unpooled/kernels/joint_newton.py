"""L2-penalised regression with a loss that is no sum over rows of one number each, by Newton's method; the losses of several classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg import cho_solve, lapack
from scipy.special import expit, log_softmax, softmax

from unpooled.kernels.ridge import gram, lowest, product, spectrum
from unpooled.kernels.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Array = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Index = NDArray[np.intp]


# --- Joint newton ----------------------------------------------------------------------------------------------------------
# L2-penalised regression with a loss that is no sum over rows of one number each, by Newton's method.
#
# Minimises :math:`f(U, s) + \frac\alpha2 |B|^2 + \frac1{2t} |E|^2` over coefficients B (D x m), shared numbers s that nothing penalises
# (intercepts, thresholds) and one effect of every row E (n x m), with decisions :math:`U = F B + E`. f is any convex function of all
# decisions: a partial likelihood, whose rows stand in each other's risk sets, or rows with several decisions. t = 0 has no effects.
#
# E never enters the system: with :math:`W = \partial^2 f/\partial U^2`, :math:`Q = \partial^2 f/\partial U \partial s` and
# :math:`R = (I + tW)^{-1}`, which a loss knows by its structure, Newton's step of (B, s) has the matrix
#
# .. math:: \begin{pmatrix} F^T W R F + \alpha I & F^T R Q \\ \cdot & f_{ss} - t\, Q^T R Q \end{pmatrix}
#
# and that of E follows. An iteration costs :math:`n (Dm)^2`.

_ITERATIONS, _HALVINGS, _ARMIJO = 200, 60, 1e-4
#: Newton's decrement is (nearly) twice what the objective lies above its minimum: done where it is this part of the objective and the
#: gradient is this part of the largest; a step whose gain is below the objective's rounding is judged by the decrement itself.
_SETTLED, _GRADIENT, _ROUNDING = 1e-19, 1e-10, 1e-11


class Bend(Protocol):
    """A loss about a point: first and second derivatives by decisions (n x m) and shared numbers (k)."""

    @property
    def pull(self) -> Matrix:
        """-df/dU (n x m)."""

    @property
    def slope(self) -> Vector:
        """df/ds (k)."""

    @property
    def cross(self) -> Array:
        """d2f/dU ds (n x m x k)."""

    @property
    def square(self) -> Matrix:
        """d2f/ds2 (k x k)."""

    def times(self, directions: Array) -> Array:
        """W V for V of n x m x c."""

    def damped(self, directions: Array, t: float) -> Array:
        """Return (I + t W)^-1 V."""

    def log_determinant(self, t: float) -> float:
        """Return log det(I + t W)."""

    def curvature(self, features: Matrix, t: float) -> Matrix:
        """F' W R F over all decisions: mD x mD, decision by decision."""


class JointLoss(Protocol):
    """A convex loss of all decisions, for responses that it holds."""

    @property
    def width(self) -> int:
        """m: decisions of a row."""

    @property
    def rows(self) -> int:
        """N."""

    def start(self) -> Vector:
        """Return the shared numbers to begin from."""

    def value(self, decisions: Matrix, shared: Vector) -> float:
        """f, infinite where it is not defined."""

    def bend(self, decisions: Matrix, shared: Vector) -> Bend:
        """Return F and its derivatives."""

    def of_rows(self, rows: Index) -> JointLoss:
        """Return the loss of some rows alone."""

    def carried(self, fitted: JointLoss, shared: Vector) -> Vector:
        """Return the shared numbers of these rows, from those of a fit of some of them."""


@dataclass(frozen=True)
class JointSolution:
    """A minimum: coefficients of the columns as they were given (D x m), shared numbers, decisions of the rows without their effects."""

    coefficients: Matrix
    shared: Vector
    decisions: Matrix
    effects: Matrix
    objective: float
    gradient_norm: float
    iterations: int


@dataclass(frozen=True)
class _Place:
    """Where a minimisation stands."""

    unknowns: Matrix
    shared: Vector
    effects: Matrix
    fitted: Matrix


@dataclass(frozen=True)
class _Step:
    """Newton's step, twice its gain, and the log determinants of the system and of its shared block."""

    place: _Place
    decrement: float
    gradient: float
    determinant: float


@dataclass(frozen=True)
class JointPath:
    """A design and a joint loss; solutions, evidence and cross-validation for every penalty.

    ``outside`` is the variance of the rows' effects where that of a coefficient is 1: t = outside / alpha.
    """

    design: Matrix
    loss: JointLoss
    column_means: Vector
    outside: float = 0.0

    @classmethod
    def of(cls, design: Matrix, loss: JointLoss, *, centred: bool = True, outside: float = 0.0) -> JointPath:
        """Return the path of a design and a loss; ``centred``: intercepts of the loss take up the columns' means, or the loss ignores a constant."""
        means = design.mean(axis=0) if centred else np.zeros(design.shape[1])
        return cls(design - means, loss, means, outside)

    @cached_property
    def _coordinates(self) -> tuple[Vector, Matrix, Matrix | None]:
        """Return squared singular values; the features that are fitted: the columns, or U S where they outnumber the rows; X' = map F'."""
        n, p = self.design.shape
        squared = gram(self.design)
        if n > p:
            squares = np.asarray(np.linalg.eigvalsh(squared), dtype=np.float64)
            return squares[squares > 0], self.design, None
        squares, left = spectrum(self.design, squared)
        return squares, left * np.sqrt(squares), left / np.sqrt(squares)

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the (centred) design, without numerical zeros."""
        return self._coordinates[0]

    # --- one minimisation --------------------------------------------------------------------------------------------------

    def minimum(self, alpha: float) -> JointSolution:
        """Return the solution at this penalty; it ends at a small gradient, or where rounding allows no further descent."""
        if not alpha > 0:
            raise ValueError("alpha must be positive: separable data have no minimum without a penalty")
        with one_thread():
            place, step, iterations = self._minimise(alpha)
            coefficients = self._of_columns(place.unknowns)
            return JointSolution(
                coefficients,
                place.shared,
                place.fitted,
                place.effects,
                self._objective(alpha, place),
                step.gradient,
                iterations,
            )

    def _of_columns(self, unknowns: Matrix) -> Matrix:
        mapped = self._coordinates[2]
        return unknowns if mapped is None else product(self.design.T, product(mapped, unknowns))

    def _minimise(self, alpha: float, start: _Place | None = None) -> tuple[_Place, _Step, int]:
        """Return the minimum, the step from there (of no length, but with its determinant), and how many led to it."""
        features, m = self._coordinates[1], self.loss.width
        n = features.shape[0]
        place = start or _Place(np.zeros((features.shape[1], m)), self.loss.start(), np.zeros((n, m)), np.zeros((n, m)))
        scale, last = 0.0, math.inf
        for iteration in range(_ITERATIONS):
            objective = self._objective(alpha, place)
            step = self._step(alpha, place)
            if not math.isfinite(step.decrement):
                raise ArithmeticError("Newton's method: the step is not finite")
            scale = max(scale, step.gradient, 1e-300)
            here = 1 + abs(objective)
            if step.decrement <= _SETTLED * here and step.gradient <= _GRADIENT * scale:
                return place, step, iteration
            if step.decrement <= _ROUNDING * here:
                # The gain is below the rounding of the objective: full steps, as long as they halve the decrement at least.
                if step.decrement > last / 2:
                    return place, step, iteration
                last, place = step.decrement, self._moved(place, step.place, 1.0)
                continue
            length = self._length(alpha, place, step, objective)
            if length == 0.0:
                return place, step, iteration
            place = self._moved(place, step.place, length)
        msg = f"Newton's method: decrement {step.decrement:g} after {_ITERATIONS} iterations at penalty {alpha:g}"
        raise ArithmeticError(msg)

    def _objective(self, alpha: float, place: _Place) -> float:
        penalty = alpha / 2 * float((place.unknowns**2).sum())
        if self.outside:
            penalty += alpha / (2 * self.outside) * float((place.effects**2).sum())
        return self.loss.value(place.fitted + place.effects, place.shared) + penalty

    def _moved(self, place: _Place, step: _Place, length: float) -> _Place:
        return _Place(
            place.unknowns + length * step.unknowns,
            place.shared + length * step.shared,
            place.effects + length * step.effects,
            place.fitted + length * step.fitted,
        )

    def _length(self, alpha: float, place: _Place, step: _Step, objective: float) -> float:
        """Return the first of 1, 1/2, 1/4, .. that satisfies Armijo's condition, 0 if none does."""
        length = 1.0
        for _ in range(_HALVINGS):
            gained = objective - self._objective(alpha, self._moved(place, step.place, length))
            if gained >= _ARMIJO * length * step.decrement:
                return length
            length /= 2
        return 0.0

    def _step(self, alpha: float, place: _Place) -> _Step:
        features, m = self._coordinates[1], self.loss.width
        t, k = self.outside / alpha, place.shared.size
        bend = self.loss.bend(place.fitted + place.effects, place.shared)
        # -gradients in B, s and E.
        towards = product(features.T, bend.pull) - alpha * place.unknowns
        pushed = bend.pull - place.effects / t if t else np.zeros_like(bend.pull)
        gradient = math.sqrt(float((towards**2).sum() + (bend.slope**2).sum()))
        crossed = bend.damped(bend.cross, t) if k else bend.cross
        size = features.shape[1] * m
        matrix = np.zeros((size + k, size + k))
        matrix[:size, :size] = bend.curvature(features, t)
        matrix[range(size), range(size)] += alpha
        right = np.concatenate([towards.T.ravel(), -bend.slope])
        if k:
            for j in range(m):
                matrix[j * features.shape[1] : (j + 1) * features.shape[1], size:] = product(
                    features.T, np.ascontiguousarray(crossed[:, j])
                )
            matrix[size:, :size] = matrix[:size, size:].T
            matrix[size:, size:] = bend.square - t * np.einsum("nmk,nml->kl", bend.cross, crossed)
        if t:
            damped = bend.damped(pushed[:, :, None], t)
            right[:size] -= t * product(features.T, bend.times(damped)[:, :, 0]).T.ravel()
            right[size:] -= t * np.einsum("nmk,nm->k", bend.cross, damped[:, :, 0])
        factor = _cholesky(matrix)
        found = cho_solve((factor, True), right)
        unknowns, shared = found[:size].reshape(m, -1).T, found[size:]
        fitted = product(features, np.ascontiguousarray(unknowns))
        effects = np.zeros_like(place.effects)
        if t:
            drift = pushed - bend.times(fitted[:, :, None])[:, :, 0] - bend.cross @ shared
            effects = t * bend.damped(drift[:, :, None], t)[:, :, 0]
        decrement = float((towards * unknowns).sum() - bend.slope @ shared + (pushed * effects).sum())
        determinant = 2 * float(np.log(factor.diagonal()).sum()) - size * math.log(alpha)
        if k:
            determinant -= 2 * float(np.log(_cholesky(matrix[size:, size:]).diagonal()).sum())
        if t:
            determinant += bend.log_determinant(t)
        return _Step(_Place(unknowns, shared, effects, fitted), max(decrement, 0.0), gradient, determinant)

    # --- penalties ---------------------------------------------------------------------------------------------------------

    def evidence(self, alpha: float) -> float:
        r"""Return twice the negative log marginal likelihood by Laplace's approximation, the rows' effects among the unknowns.

        The shared numbers follow the coefficients (their Schur complement), and have no prior, as in
        :meth:`unpooled.kernels.newton.NewtonPath.evidence`.
        """
        return self._evidence(alpha, None)[0]

    def _evidence(self, alpha: float, start: _Place | None) -> tuple[float, _Place]:
        with one_thread():
            place, step, _ = self._minimise(alpha, start)
            return 2 * self._objective(alpha, place) + step.determinant, place

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood, over 12 orders of magnitude around the design's own scale."""
        if self.squares.size == 0:
            return 1.0
        # The mean curvature of a decision at the start.
        nothing = np.zeros((self.loss.rows, self.loss.width))
        bend = self.loss.bend(nothing, self.loss.start())
        ones = np.random.default_rng(0).choice([-1.0, 1.0], (self.loss.rows, self.loss.width, 8))
        weight = float((ones * bend.times(ones)).mean())
        place: _Place | None = None

        def from_the_last(alpha: float) -> float:
            nonlocal place
            found, place = self._evidence(alpha, place)
            return found

        return lowest(from_the_last, float(self.squares.mean()) * max(weight, 1e-6) * np.logspace(-6, 6, 13), 1e-3)

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[Index]) -> Vector:
        """Return for every penalty the loss that the held-out rows add, per row: f(all) - f(those fitted on), at the coefficients of the latter.

        Of a sum over rows that is the loss of the held-out rows (without their effects, which nobody knows); of a partial likelihood it is
        Verweij and van Houwelingen's cross-validated one.
        """
        rows, losses = np.arange(self.loss.rows), np.zeros(len(alphas))
        for fold in folds:
            train = np.setdiff1d(rows, fold)
            if train.size == 0:
                raise ValueError("a fold holds out every row: nothing is left to fit on")
            fitted = replace(self, design=self.design[train], loss=self.loss.of_rows(train))
            for a, alpha in enumerate(alphas):
                found = fitted.minimum(float(alpha))
                decisions = product(self.design, found.coefficients)
                whole = self.loss.value(decisions, self.loss.carried(fitted.loss, found.shared))
                losses[a] += whole - fitted.loss.value(np.ascontiguousarray(decisions[train]), found.shared)
        return losses / self.loss.rows


def _cholesky(matrix: Matrix) -> Matrix:
    """Return the lower Cholesky factor; what rounding (or a minimum at infinity) keeps from being positive definite is raised."""
    raised, more = matrix, 0.0
    while True:
        factor, info = lapack.dpotrf(raised, lower=1, clean=1)
        if not info:
            return np.asarray(factor)
        if not np.isfinite(matrix).all():
            raise ArithmeticError("Newton's method: the system is not finite")
        more = max(10 * more, 1e-15 * float(np.abs(matrix.diagonal()).max()), 1e-300)
        raised = matrix + more * np.eye(matrix.shape[0])


# --- Classes joint ---------------------------------------------------------------------------------------------------------
# Joint losses of a response with several classes: softmax (unordered) and proportional odds (ordered).
#
# Softmax: logits :math:`L = (U + 1 s^T) Q^T`, Q an orthonormal basis (C x (C - 1)) of what sums to zero. A penalty on all C coefficients of a
# column has its minimum where they sum to zero, so C - 1 decisions suffice: :math:`|B Q^T| = |B|`.
#
# Proportional odds: :math:`P(y \le j) = \sigma(s_j - u)` with rising thresholds s.

#: Thresholds carried to other rows lie between these, and so far apart at least.
_FAR, _ROOM = 30.0, 1e-6


def contrasts(classes: int) -> Matrix:
    """Q: orthonormal columns that sum to zero (Helmert's)."""
    found = np.zeros((classes, classes - 1))
    for j in range(classes - 1):
        found[: j + 1, j], found[j + 1, j] = 1.0, -(j + 1.0)
    return np.asarray(found / np.sqrt((found**2).sum(axis=0)), dtype=np.float64)


@dataclass(frozen=True)
class RowBend:
    """A loss of rows with m decisions each about a point: W is a block of m x m for every row."""

    pull: Matrix
    blocks: Array
    slope: Vector
    cross: Array
    square: Matrix

    def times(self, directions: Array) -> Array:
        """W V."""
        return self.blocks @ directions

    def _identity(self, t: float) -> Array:
        return np.eye(self.blocks.shape[1]) + t * self.blocks

    def damped(self, directions: Array, t: float) -> Array:
        """Return (I + t W)^-1 V, row by row."""
        return np.asarray(np.linalg.solve(self._identity(t), directions), dtype=np.float64) if t else directions

    def log_determinant(self, t: float) -> float:
        """Return log det(I + t W)."""
        return float(np.linalg.slogdet(self._identity(t))[1].sum())

    def curvature(self, features: Matrix, t: float) -> Matrix:
        """F' W R F, a weighted Gram matrix for every pair of decisions."""
        blocks = self.damped(self.blocks, t)  # R and W commute
        (n, size), m = features.shape, blocks.shape[1]
        assert n == blocks.shape[0]
        found = np.empty((m * size, m * size))
        for a in range(m):
            for b in range(a + 1):
                block = product(features.T, blocks[:, a, b][:, None] * features)
                found[a * size : (a + 1) * size, b * size : (b + 1) * size] = block
                found[b * size : (b + 1) * size, a * size : (a + 1) * size] = block.T
        return found


@dataclass(frozen=True)
class SoftmaxLoss:
    """-log p of classes 0 .. C - 1."""

    labels: Index
    classes: int
    fit_intercept: bool = True

    @cached_property
    def contrasts(self) -> Matrix:
        """Q."""
        return contrasts(self.classes)

    @property
    def width(self) -> int:
        """C - 1."""
        return self.classes - 1

    @property
    def rows(self) -> int:
        """N."""
        return int(self.labels.size)

    def start(self) -> Vector:
        """Return the classes' log frequencies, half a row more in each; nothing without intercepts."""
        if not self.fit_intercept:
            return np.empty(0)
        counts = np.bincount(self.labels, minlength=self.classes) + 0.5
        return np.asarray(self.contrasts.T @ np.log(counts / counts.sum()))

    def logits(self, decisions: Matrix, shared: Vector) -> Matrix:
        """All C of them."""
        return np.asarray((decisions + shared if shared.size else decisions) @ self.contrasts.T)

    def value(self, decisions: Matrix, shared: Vector) -> float:
        """Return the negative log likelihood."""
        return -float(log_softmax(self.logits(decisions, shared), axis=1)[np.arange(self.rows), self.labels].sum())

    def bend(self, decisions: Matrix, shared: Vector) -> RowBend:
        """Return derivatives about these decisions."""
        p = softmax(self.logits(decisions, shared), axis=1)
        truth = np.zeros_like(p)
        truth[np.arange(self.rows), self.labels] = 1.0
        q = self.contrasts
        pull, mean = (truth - p) @ q, p @ q
        blocks = np.einsum("nc,ca,cb->nab", p, q, q, optimize=True) - mean[:, :, None] * mean[:, None, :]
        if not shared.size:
            return RowBend(pull, blocks, np.empty(0), np.empty((self.rows, self.width, 0)), np.empty((0, 0)))
        return RowBend(pull, blocks, -pull.sum(axis=0), blocks, blocks.sum(axis=0))

    def of_rows(self, rows: Index) -> SoftmaxLoss:
        """Return the loss of some rows."""
        return SoftmaxLoss(self.labels[rows], self.classes, self.fit_intercept)

    def carried(self, fitted: JointLoss, shared: Vector) -> Vector:  # noqa: ARG002 - intercepts of all classes, whichever occur
        """Return the same intercepts."""
        return shared


@dataclass(frozen=True)
class ProportionalOdds:
    """-log P(y = j) = -log(sigma(s_j - u) - sigma(s_(j-1) - u)) of levels 0 .. J - 1."""

    labels: Index
    levels: int

    @property
    def width(self) -> int:
        """Return one decision a row."""
        return 1

    @property
    def rows(self) -> int:
        """N."""
        return int(self.labels.size)

    @cached_property
    def _present(self) -> tuple[Index, Index]:
        """Return the levels that occur, and the labels among them: nothing says where a level that does not occur ends."""
        found, places = np.unique(self.labels, return_inverse=True)
        return found, places.ravel()

    def start(self) -> Vector:
        """Cumulative log odds of the levels that occur."""
        counts = np.bincount(self._present[1])
        share = np.cumsum(counts)[:-1] / counts.sum()
        return np.asarray(np.log(share / (1 - share)))

    def thresholds(self, shared: Vector) -> Vector:
        """All J - 1: a level that does not occur takes up no room, or all that is left at the ends."""
        found = self._present[0]
        ends = np.searchsorted(found, np.arange(self.levels - 1), side="right") - 1  # the last level that occurs up to j
        padded = np.concatenate([[-np.inf], shared, [np.inf]])
        return padded[ends + 1]

    def _bounds(self, decisions: Matrix, shared: Vector) -> tuple[Vector, Vector]:
        padded, places = np.concatenate([[-np.inf], shared, [np.inf]]), self._present[1]
        return padded[places + 1] - decisions[:, 0], padded[places] - decisions[:, 0]

    def value(self, decisions: Matrix, shared: Vector) -> float:
        """Return the negative log likelihood; infinite where thresholds do not rise."""
        if (np.diff(shared) <= 0).any():
            return np.inf
        upper, lower = self._bounds(decisions, shared)
        return -float(_log_between(upper, lower).sum())

    def bend(self, decisions: Matrix, shared: Vector) -> RowBend:
        """Return derivatives about these decisions: with z = (upper, lower), -log(sigma(z_1) - sigma(z_2)), of which both end in u and one in each threshold."""
        upper, lower = self._bounds(decisions, shared)
        top, bottom = _upward(upper), _upward(-lower)  # 1 - sigma(upper), sigma(lower)
        # sigma(a) - sigma(b) = sigma(a) sigma(-b) (1 - e^(b - a)), so -log of it has three convex parts.
        with np.errstate(over="ignore"):
            gap = np.where(np.isfinite(upper) & np.isfinite(lower), 1 / np.expm1(np.maximum(upper - lower, 1e-300)), 0.0)
        first, second = -top - gap, bottom + gap  # derivatives of the loss by upper and lower
        bend_gap = gap * (1 + gap)
        squares = (top * (1 - top) + bend_gap, bottom * (1 - bottom) + bend_gap, -bend_gap)
        pull = (first + second)[:, None]  # u enters with -1
        blocks = (squares[0] + squares[1] + 2 * squares[2])[:, None, None]
        k, places, rows = shared.size, self._present[1], np.arange(self.rows)
        by_upper, by_lower = np.zeros((self.rows, k + 2)), np.zeros((self.rows, k + 2))
        by_upper[rows, places + 1], by_lower[rows, places] = 1.0, 1.0
        by_upper, by_lower = by_upper[:, 1:-1], by_lower[:, 1:-1]
        slope = by_upper.T @ first + by_lower.T @ second
        cross = -(by_upper * (squares[0] + squares[2])[:, None] + by_lower * (squares[1] + squares[2])[:, None])
        square = by_upper.T @ (by_upper * squares[0][:, None] + by_lower * squares[2][:, None])
        square += by_lower.T @ (by_lower * squares[1][:, None] + by_upper * squares[2][:, None])
        return RowBend(pull, blocks, slope, cross[:, None, :], square)

    def of_rows(self, rows: Index) -> ProportionalOdds:
        """Return the loss of some rows, with thresholds of the levels that occur among them."""
        return ProportionalOdds(self.labels[rows], self.levels)

    def carried(self, fitted: JointLoss, shared: Vector) -> Vector:
        """Return the thresholds that a fit of some rows says for these; a level that only these have is rare, and keeps a little room."""
        assert isinstance(fitted, ProportionalOdds)
        told = np.clip(fitted.thresholds(shared), -_FAR, _FAR)[self._present[0][:-1]]
        return np.maximum.accumulate(told + _ROOM * np.arange(told.size))


def _upward(z: Vector) -> Vector:
    """sigma(-z)."""
    return np.asarray(expit(-z))


def _log_between(upper: Vector, lower: Vector) -> Vector:
    """log(sigma(upper) - sigma(lower)) without cancellation, ends at infinity included."""
    inner = np.isfinite(upper) & np.isfinite(lower)
    gap = np.where(inner, upper - lower, np.inf)
    return np.asarray(-np.logaddexp(0.0, -upper) - np.logaddexp(0.0, lower) + np.log(-np.expm1(-gap)))
