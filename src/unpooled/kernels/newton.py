"""L2-penalised minimisation by Newton's method: smooth losses of the linear predictor, losses with a random effect in every row, and an offset."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, final

import numpy as np
from scipy.linalg import blas, lapack

from unpooled.kernels.ridge import gram, lowest, spectrum
from unpooled.kernels.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Index = NDArray[np.int64]
    Matrix = NDArray[np.float64]
    Folds = Sequence[NDArray[np.intp]]


# --- Solution --------------------------------------------------------------------------------------------------------------
# Result of every iterative solver: coefficients, and a certificate of their accuracy.


@final
@dataclass(frozen=True)
class Iterate:
    """A point on the way of a solver, with only its nonzero coefficients: many of them may be kept."""

    indices: Index
    values: Vector
    #: Coefficients in all.
    size: int
    objective: float
    certificate: float
    #: Iterations made to get here.
    iterations: int

    @property
    def coefficients(self) -> Vector:
        """All coefficients."""
        full = np.zeros(self.size)
        full[self.indices] = self.values
        return full


@final
@dataclass(frozen=True)
class Solution:
    """Where a solver stopped."""

    coefficients: Vector
    #: The value of what is minimised.
    objective: float
    #: A duality gap (at least objective - minimum) or the norm of the gradient: each solver says which.
    certificate: float
    iterations: int
    #: Whether the certificate is within the tolerance that was asked for.
    converged: bool
    intercept: float = 0.0
    #: The dual variables of a solver that has them.
    dual: Vector | None = None
    #: The iterates that were asked to be kept.
    path: tuple[Iterate, ...] = ()


# --- Newton ----------------------------------------------------------------------------------------------------------------
# L2-penalised regression with any convex loss of a linear predictor, by Newton's method.
#
# Minimises :math:`\sum_i f(u_i; y_i) + \frac\alpha2 |b|^2` with decisions :math:`u = Xb + c`; the intercept c is not penalised.
# The minimiser lies in the span of the rows, :math:`b = X^T\theta`. If rows do not outnumber columns, the unknown is therefore
# :math:`\theta` and all that is needed is the Gram matrix :math:`K = XX^T`, formed once for every penalty and fold: with
# :math:`r = -f'(u)`, :math:`W = \mathrm{diag} f''(u)` the Newton iterate solves
#
# .. math:: \theta' = W^{1/2} (\alpha I + W^{1/2} K W^{1/2})^{-1} W^{1/2} (Xb + c - c' + W^{-1} r), \quad \sum\theta' = 0
#
# (Rasmussen & Williams 2006, section 3.4, extended by the intercept). Otherwise the unknown is b itself and the system is
# :math:`X^TWX + \alpha I`. Either way an iteration costs :math:`\min(n, p)^3` and, with fewer columns, :math:`n p^2`.
#
# (A penalty so small that K's rounding would drown it is treated in the latter way with the singular vectors' coordinates as
# columns.)
#
# Steps are halved until Armijo's condition holds. The loss itself says by how much it changes, without the cancellation of two
# objectives, so that the condition can be tested down to the last step.

_ITERATIONS, _HALVINGS, _ARMIJO = 500, 60, 1e-4
_TOLERANCE = 1e-10
#: How precisely a penalty is searched, of its logarithm: the evidence is flat there, and an evaluation is a whole fit.
PENALTY = 1e-2
#: Twice a log likelihood ratio beyond which smaller penalties, whose minima take longest, are not tried.
HOPELESS = 100.0
#: The criterion of a penalty whose minimum is out of reach: finite, since a parabola through infinity is none.
_WORST = 1e77
#: A small gradient may still leave an error of gradient / alpha in b: the last step must also have moved no decision by more
#: than this, which Newton's method then squares; unless the gradient is at its rounding (separable classes, next to no
#: penalty).
_SETTLED, _ROUNDING = 1e-6, 1e-15
#: Below this share of trace K the system in theta drowns what K lacks of full rank: then the singular vectors take its place.
_DUAL = 1e-8


class Loss(Protocol):
    """A convex loss f(u; y) of a decision u, row by row."""

    @property
    def slope(self) -> float:
        """Return the largest that ``|f'|`` can be; the unit of what counts as a small gradient."""

    @property
    def curvature(self) -> float:
        """Return the largest that ``f''`` can be."""

    def bend(self, y: Vector) -> float:
        """Return a usual ``f''`` of these responses: the scale of a penalty."""

    def check(self, y: Vector) -> None:
        """Refuse responses that the loss does not take."""

    def start(self, y: Vector) -> float:
        """Return the intercept to begin from."""

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return the losses."""

    def pull(self, u: Vector, y: Vector) -> Vector:
        """-f', with all its digits where it is small."""

    def weight(self, u: Vector, y: Vector) -> Vector:
        """f'', or a positive number where it vanishes: Newton's step then stays defined, and a descent."""

    def information(self, u: Vector, y: Vector) -> Vector:
        """Return the information that the evidence uses: ``f''``, except for losses of straight lines."""

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """f(u + step) - f(u), without cancellation where the step is short."""

    def log_normaliser(self, dispersion: float) -> float:
        """Return the log of the integral of exp(-f / dispersion) over y; 0 where f is a log likelihood as it stands."""

    def integrated(self, u: Vector, y: Vector) -> float:
        """Return the addend to the evidence's log determinant for unknowns that the loss itself was minimised over; mostly 0."""

    @property
    def dispersed(self) -> bool:
        """Return True if the evidence chooses a dispersion."""

    @property
    def has_effects(self) -> bool:
        """Return True if an unknown effect of a row belongs inside the loss; a quantile's is part of the response's own spread."""


@dataclass(frozen=True)
class _Point:
    """Where a minimisation stands: theta if the problem is dual, else b; c; b itself times the columns."""

    unknowns: Vector
    intercept: float
    fitted: Vector
    gradient_norm: float = math.inf
    iterations: int = 0


@dataclass(frozen=True)
class _Problem:
    """One set of rows; their decisions are ``basis @ unknowns + intercept``."""

    #: K (n x n) if dual, else X (n x p).
    basis: Matrix
    target: Vector
    loss: Loss
    fit_intercept: bool
    dual: bool

    def minimise(self, alpha: float, tolerance: float = _TOLERANCE, start: _Point | None = None) -> _Point:
        """Damped Newton until the gradient is small, or rounding keeps every step from decreasing the objective."""
        point, limit, settled = start or self._start(), tolerance * self._scale, False
        decisions = point.fitted + point.intercept
        for iteration in range(_ITERATIONS):
            unknowns = point.unknowns
            pull, weights = self.loss.pull(decisions, self.target), self.loss.weight(decisions, self.target)
            slope = alpha * unknowns - (pull if self.dual else self.basis.T @ pull)
            square = float(slope @ (self.basis @ slope if self.dual else slope))
            norm = math.hypot(math.sqrt(max(square, 0.0)), float(pull.sum()) if self.fit_intercept else 0.0)
            here = _Point(unknowns, point.intercept, point.fitted, norm, iteration)
            if not math.isfinite(norm):
                raise ArithmeticError("Newton's method: the gradient is not finite")
            if norm <= limit and (settled or norm <= _ROUNDING * self._scale):
                return here
            step, change, _ = self._newton_step(alpha, point, pull, weights)
            moved = self.basis @ step
            gain = moved + change
            settled = float(np.abs(gain).max(initial=0.0)) <= _SETTLED
            length = self._step_length(alpha, point, decisions, pull, step, moved, gain)
            if length == 0:
                return here
            point = _Point(unknowns + length * step, point.intercept + length * change, point.fitted + length * moved)
            # As the loss has seen them when the step's length was found: bit by bit, so that nothing is worked out again.
            decisions = decisions + length * gain
        msg = f"Newton's method: gradient {norm:g} after {_ITERATIONS} iterations at penalty {alpha:g}"
        raise ArithmeticError(msg)

    def objective(self, alpha: float, point: _Point) -> float:
        """Return the sum of the losses and the penalty."""
        square = float(point.unknowns @ (point.fitted if self.dual else point.unknowns))
        return float(self.loss.value(point.fitted + point.intercept, self.target).sum()) + alpha / 2 * square

    def log_determinant(self, alpha: float, point: _Point) -> float:
        """Return log det(I + H / alpha), H the Hessian of the losses in the coefficients once the intercept follows them."""
        decisions = point.fitted + point.intercept
        return self._newton_step(
            alpha, point, self.loss.pull(decisions, self.target), self.loss.information(decisions, self.target)
        )[2]

    def _start(self) -> _Point:
        intercept = self.loss.start(self.target) if self.fit_intercept else 0.0
        return _Point(np.zeros(self.basis.shape[1]), intercept, np.zeros(self.target.size))

    @cached_property
    def _scale(self) -> float:
        """Return the largest slope (at the start, where it has no bound) times the sum of |(x_i, 1)|: hardly a gradient is longer."""
        squares = self.basis.diagonal() if self.dual else np.einsum("ij,ij->i", self.basis, self.basis)
        slope = self.loss.slope
        if slope == math.inf:
            slope = float(
                np.abs(self.loss.pull(np.full(self.target.size, self._start().intercept), self.target)).max(initial=0.0)
            )
        return slope * float(np.sqrt(np.maximum(squares, 0.0) + self.fit_intercept).sum())

    def _newton_step(self, alpha: float, point: _Point, pull: Vector, weights: Vector) -> tuple[Vector, float, float]:
        """Full step of the unknowns and of the intercept, and the log determinant at this point."""
        root, total = np.sqrt(weights), float(weights.sum())
        if self.dual:
            # Where W underflows the sample has no say (or gradient descent's).
            working = root * (point.fitted + point.intercept) + np.divide(
                pull, root, out=np.zeros_like(root), where=root > 0
            )
            factor, solved = _solve(root[:, None] * self.basis * root, alpha, np.column_stack([working, root]))
            theta, unit = root * solved[:, 0], root * solved[:, 1]
            schur = alpha * float(unit.sum())
            eliminate = self.fit_intercept and schur > 0
            constant = alpha * float(theta.sum()) / schur if eliminate else point.intercept
            change = constant - point.intercept
            step = theta - constant * unit - point.unknowns if self.fit_intercept else theta - point.unknowns
        else:
            crossed = self.basis.T @ weights
            right = np.column_stack([self.basis.T @ pull - alpha * point.unknowns, crossed])
            factor, solved = _solve(_lower_gram(self.basis * root[:, None]), alpha, right)
            schur = total - float(crossed @ solved[:, 1])
            eliminate = self.fit_intercept and schur > 0
            change = (float(pull.sum()) - float(crossed @ solved[:, 0])) / schur if eliminate else 0.0
            step = solved[:, 0] - change * solved[:, 1]
        determinant = 2 * float(np.log(factor.diagonal()).sum()) - factor.shape[0] * math.log(alpha)
        return step, change, determinant + (math.log(schur / total) if eliminate else 0.0)

    def _step_length(
        self, alpha: float, point: _Point, decisions: Vector, pull: Vector, step: Vector, moved: Vector, gain: Vector
    ) -> float:
        """Return the first of 1, 1/2, 1/4, .. that satisfies Armijo's condition, 0 if none does."""
        linear = alpha * float(step @ (point.fitted if self.dual else point.unknowns))
        square = alpha / 2 * float(step @ (moved if self.dual else step))
        descent, length = linear - float(pull @ gain), 1.0
        for _ in range(_HALVINGS):
            lost = float(self.loss.change(decisions, self.target, length * gain).sum())
            if lost + length * (linear + length * square) <= _ARMIJO * length * descent < 0:
                return length
            length /= 2
        return 0.0


def _lower_gram(rows: Matrix) -> Matrix:
    """Return the lower triangle of X^T X."""
    if rows.size == 0:
        return np.zeros((rows.shape[1], rows.shape[1]))
    lower: Matrix = blas.dsyrk(1.0, np.asarray(rows, order="C").T, lower=1)
    return lower


def _raise_diagonal(matrix: Matrix, amount: float) -> None:
    """Add a number to the diagonal of a matrix, in place."""
    diagonal = np.einsum("ii->i", matrix)
    diagonal += amount


def _solve(lower: Matrix, alpha: float, right: Matrix) -> tuple[Matrix, Matrix]:
    """Return Cholesky factor of A + alpha I, A given by its lower triangle, and the solution for these right-hand sides."""
    if lower.size == 0:
        return lower, right
    _raise_diagonal(lower, alpha)
    symmetric = lower if lower.flags.f_contiguous else lower.T  # a C-ordered matrix is given in full
    factor, solved, info = lapack.dposv(symmetric, right, lower=1)
    while info:  # alpha is below the rounding of A: any positive definite matrix near A gives a descent direction
        alpha = max(10 * alpha, 1e-15 * float(symmetric.trace()))
        _raise_diagonal(symmetric, alpha)
        factor, solved, info = lapack.dposv(symmetric, right, lower=1)
    return factor, solved


@dataclass(frozen=True)
class NewtonPath:
    """A (centred) design and its Gram matrix; solutions, evidence and cross-validation for every penalty.

    The methods are those of :class:`unpooled.kernels.ridge.RidgePath`.
    """

    design: Matrix
    target: Vector
    loss: Loss
    column_means: Vector
    fit_intercept: bool
    #: Where the last evidence of a dual problem (True), or another one (False), was found: the next penalty is mostly near.
    _near: dict[bool, _Point] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, design: Matrix, target: Vector, loss: Loss, *, fit_intercept: bool = True) -> NewtonPath:
        """Centre the columns (an unpenalised intercept absorbs it) and check the responses."""
        loss.check(target)
        means = design.mean(axis=0) if fit_intercept else np.zeros(design.shape[1])
        return cls(design - means, target, loss, means, fit_intercept)

    @cached_property
    def gram(self) -> Matrix:
        """Return X X^T of the (centred) design if n <= p, otherwise X^T X."""
        return gram(self.design)

    @cached_property
    def squares(self) -> Vector:
        """Return squared singular values of the (centred) design, without numerical zeros."""
        return spectrum(self.design, self.gram)[0]

    @cached_property
    def _singular(self) -> tuple[Matrix, Matrix]:
        """U S (n x r) and U / S of the (centred) design U S V^T: b = V g = X^T (U / S) g."""
        squares, left = spectrum(self.design, self.gram)
        return left * np.sqrt(squares), left / np.sqrt(squares)

    def _problem(self, alpha: float, rows: NDArray[np.intp] | slice = slice(None)) -> tuple[_Problem, Matrix]:
        """Return the problem of these rows in the unknowns that suit n, p and alpha; what maps them to all decisions."""
        n, p = self.design.shape
        target, loss = self.target[rows], self.loss
        if n > p:
            return _Problem(self.design[rows], target, loss, self.fit_intercept, dual=False), self.design
        if alpha < _DUAL * float(self.gram.trace()):
            scores = self._singular[0]
            return _Problem(scores[rows], target, loss, self.fit_intercept, dual=False), scores
        return _Problem(self.gram[rows][:, rows], target, loss, self.fit_intercept, dual=True), self.gram[:, rows]

    def _coefficients(self, problem: _Problem, point: _Point) -> Vector:
        """Return the coefficients of a problem with all rows."""
        n, p = self.design.shape
        if n > p:
            return point.unknowns
        coefficients: Vector = self.design.T @ (point.unknowns if problem.dual else self._singular[1] @ point.unknowns)
        return coefficients

    def with_loss(self, loss: Loss) -> NewtonPath:
        """Return the same design and responses under another loss; what was computed of the design is kept."""
        path = replace(self, loss=loss)
        for name in ("gram", "squares", "_singular"):
            if name in self.__dict__:
                path.__dict__[name] = self.__dict__[name]
        return path

    def solve(self, alpha: float) -> tuple[Vector, float]:
        """Return coefficients and intercept."""
        found = self.minimum(alpha)
        return found.coefficients, found.intercept

    def minimum(self, alpha: float, tolerance: float = _TOLERANCE) -> Solution:
        r"""Return the solution with its certificate: the norm of the gradient, in the intercept and the coefficients of centred columns.

        It ends at a gradient of at most ``tolerance`` times :math:`\sup|f'| \sum_i |(x_i - \bar x, 1)|`, the largest that the gradient of
        the losses can be, once the steps have become small as well; or where rounding allows no further descent. Where the minimum is at
        infinity (one class only, say), the intercept is where the gradient is small.
        """
        if not alpha > 0:
            raise ValueError("alpha must be positive: separable data have no minimum without a penalty")
        with one_thread():
            problem = self._problem(alpha)[0]
            coefficients = self._coefficients(problem, point := problem.minimise(alpha, tolerance))
        intercept = point.intercept - float(self.column_means @ coefficients)
        norm, objective = point.gradient_norm, problem.objective(alpha, point)
        converged = norm <= tolerance * problem._scale  # noqa: SLF001 - one module
        return Solution(coefficients, objective, norm, point.iterations, converged, intercept)

    def evidence(self, alpha: float) -> float:
        r"""Return twice the negative log marginal likelihood under b ~ N(0, I/alpha), by Laplace's approximation at the minimiser.

        :math:`P(b, c) + \frac12 \log\det(I + H/\alpha)`, H the losses' Hessian in b. With an intercept H is its Schur complement, in
        which c follows b: unlike the plain block it does not change when columns are shifted. No prior is put on c, so its own factor
        :math:`(2\pi / \sum w_i)^{1/2}`, which diverges if only one class occurs, is left out. A loss that is no log likelihood as it
        stands is one after division by a dispersion, the likeliest one. A penalty at which the minimum is beyond double precision is never
        the best.
        """
        with one_thread():
            problem = self._problem(alpha)[0]
            try:
                point = self._near[problem.dual] = problem.minimise(alpha, start=self._near.get(problem.dual))
            except ArithmeticError:
                return _WORST
            objective, determinant = problem.objective(alpha, point), problem.log_determinant(alpha, point)
            determinant += self.loss.integrated(point.fitted + point.intercept, self.target)
        if not self.loss.dispersed:
            return 2 * objective + determinant
        n = self.target.size

        def criterion(dispersion: float) -> float:
            return 2 * (objective / dispersion + n * self.loss.log_normaliser(dispersion))

        return criterion(lowest(criterion, max(objective / n, 1e-300) * np.logspace(-2, 2, 41))) + determinant

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood, over 12 orders of magnitude around the design's own scale."""
        if self.squares.size == 0:
            return 1.0
        scale = float(self.squares.mean()) * self.loss.bend(self.target)
        with one_thread():
            return lowest(self.evidence, scale * np.logspace(-6, 6, 13), PENALTY, HOPELESS)

    def held_out(self, alphas: Sequence[float] | Vector, folds: Folds) -> Matrix:
        """Return decision values of every row from the other folds, one row of the result per penalty (len(alphas) x n).

        Rows that no fold holds are nan. Every fold is fitted from the largest penalty down, each from the one before.
        """
        penalties = np.asarray(alphas, dtype=np.float64)
        decisions = np.full((penalties.size, self.target.size), np.nan)
        with one_thread():
            for fold in folds:
                train = np.setdiff1d(np.arange(self.target.size), fold)
                if train.size == 0:
                    raise ValueError("a fold holds out every row: nothing is left to fit on")
                problem, point = None, None
                for a in np.argsort(-penalties):
                    alpha = float(penalties[a])
                    if problem is None or (problem.dual and alpha < _DUAL * float(self.gram.trace())):
                        (problem, decide), point = self._problem(alpha, train), None
                    point = problem.minimise(alpha, start=point)
                    decisions[a, fold] = decide[fold] @ point.unknowns + point.intercept
        return decisions

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Folds) -> Vector:
        """Return the mean loss of held-out decisions for every penalty."""
        decisions = self.held_out(alphas, folds)
        return np.array([float(np.mean(self.loss.value(row, self.target))) for row in decisions])


# --- Envelope --------------------------------------------------------------------------------------------------------------
# A loss with an independent random effect in every row: its Moreau envelope (Theorem P.9).
#
# Minimising :math:`\sum f(u_i + e_i; y_i) + |e|^2/(2t)` over e leaves :math:`f_t(u) = \min_e f(u + e) + e^2/(2t)`, convex as f is, with
# :math:`f_t'(u) = f'(v)` and :math:`f_t''(u) = (1/f''(v) + t)^{-1}` at :math:`v = u + e`, the only root of :math:`v + t f'(v) = u`.

_ENVELOPE_ITERATIONS = 200
_PRECISION = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class MoreauEnvelope:
    """f_t of a loss, a :class:`unpooled.kernels.newton.Loss` itself."""

    loss: Loss
    #: t: the random effects' variance where the penalty on the coefficients is 1.
    variance: float
    #: The last decisions, responses and roots: value, pull and weight ask for the same ones.
    _last: list[Vector] = field(default_factory=list, compare=False, repr=False)

    @property
    def slope(self) -> float:
        """That of the loss."""
        return self.loss.slope

    @property
    def curvature(self) -> float:
        """Return the largest f_t''."""
        return 1 / (1 / self.loss.curvature + self.variance)

    @property
    def has_effects(self) -> bool:
        """As the loss."""
        return self.loss.has_effects

    def bend(self, y: Vector) -> float:
        """That of the loss, less what the effects take up."""
        return 1 / (1 / self.loss.bend(y) + self.variance)

    @property
    def dispersed(self) -> bool:
        """As the loss."""
        return self.loss.dispersed

    def check(self, y: Vector) -> None:
        """As the loss."""
        self.loss.check(y)

    def start(self, y: Vector) -> float:
        """As the loss."""
        return self.loss.start(y)

    def log_normaliser(self, dispersion: float) -> float:
        """As the loss: over y, for given effects."""
        return self.loss.log_normaliser(dispersion)

    def shifted(self, u: Vector, y: Vector) -> Vector:
        """Return the roots v, by Newton's steps inside a bracket that shrinks with each: f' rises, so they lie between u and u - t f'(u)."""
        return self._rooted(u, y)[0]

    def _rooted(self, u: Vector, y: Vector) -> tuple[Vector, Vector]:
        """Return the roots v, and f''(v)."""
        if not self._last or not (np.array_equal(self._last[0], u) and self._last[1] is y):
            self._last[:] = [u, y, *self._roots(u, y)]
        return self._last[2], self._last[3]

    def _roots(self, u: Vector, y: Vector) -> tuple[Vector, Vector]:
        reach = self.variance * self.loss.pull(u, y)
        low, high = np.minimum(u, u + reach), np.maximum(u, u + reach)
        if self._last and self._last[1] is y:  # from the last roots along their slopes, which are near
            v = self._last[2] + (u - self._last[0]) / (1 + self.variance * self._last[3])
        else:
            v = u + reach / (1 + self.variance * self.loss.weight(u, y))
        v, last = np.minimum(np.maximum(v, low), high), np.full(u.shape, np.inf)
        for _ in range(_ENVELOPE_ITERATIONS):
            excess, weight = v - u - self.variance * self.loss.pull(v, y), self.loss.weight(v, y)
            size, step = np.abs(excess), excess / (1 + self.variance * weight)
            # Once a step is within rounding of v: the excess itself is not, where t f' is steep.
            open_ = np.abs(step) > _PRECISION * (1 + np.abs(u) + np.abs(v))
            if not open_.any():
                return v, weight
            low, high = np.where(excess < 0, v, low), np.where(excess > 0, v, high)
            tried = v - step
            # The middle instead of a step out of the bracket, and after one that did not halve the excess: where f'' is next to 0 on one
            # side of the root Newton's steps would go to and fro.
            tried = np.where((tried > low) & (tried < high) & (size <= last / 2), tried, (low + high) / 2)
            v, last = np.where(open_, tried, v), size
        return v, self.loss.weight(v, y)

    def value(self, u: Vector, y: Vector) -> Vector:
        """f(v) + (v - u)^2 / 2t."""
        v = self.shifted(u, y)
        return self.loss.value(v, y) + (v - u) ** 2 / (2 * self.variance)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """-f'(v)."""
        return self.loss.pull(self.shifted(u, y), y)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """f''(v) / (1 + t f''(v))."""
        weight = self._rooted(u, y)[1]
        return weight / (1 + self.variance * weight)

    def information(self, u: Vector, y: Vector) -> Vector:
        """Fisher information of the marginal loss: that of the conditional loss, minus the part that the random effects absorb."""
        information = self.loss.information(self.shifted(u, y), y)
        return information / (1 + self.variance * information)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return the loss's own change from v to v', and that of e^2/2t as a product; errors of v cancel to first order."""
        before, after = self.shifted(u, y), self.shifted(u + step, y)
        first, moved = before - u, after - before
        gained = moved - step
        return self.loss.change(before, y, moved) + gained * (2 * first + gained) / (2 * self.variance)

    def integrated(self, u: Vector, y: Vector) -> float:
        """Return log determinant of I + t W: the effects' own part of Laplace's approximation."""
        return self.loss.integrated(u, y) + float(
            np.log1p(self.variance * self.loss.information(self.shifted(u, y), y)).sum()
        )


# --- Offset ----------------------------------------------------------------------------------------------------------------
# A loss of a linear predictor with a fixed part: f(u + o; y) as a loss of u.


@dataclass(frozen=True)
class OffsetLoss:
    """A loss whose linear predictors all have an offset, a :class:`unpooled.kernels.newton.Loss` itself."""

    loss: Loss
    #: o, a number a row.
    offset: Vector

    @property
    def slope(self) -> float:
        """That of the loss."""
        return self.loss.slope

    @property
    def curvature(self) -> float:
        """That of the loss."""
        return self.loss.curvature

    @property
    def dispersed(self) -> bool:
        """As the loss."""
        return self.loss.dispersed

    @property
    def has_effects(self) -> bool:
        """As the loss."""
        return self.loss.has_effects

    def bend(self, y: Vector) -> float:
        """That of the loss."""
        return self.loss.bend(y)

    def check(self, y: Vector) -> None:
        """As the loss."""
        self.loss.check(y)

    def start(self, y: Vector) -> float:
        """As the loss: offsets have the mean 0."""
        return self.loss.start(y)

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return the losses."""
        return self.loss.value(u + self.offset, y)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """-f'."""
        return self.loss.pull(u + self.offset, y)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """f'', as the loss has it."""
        return self.loss.weight(u + self.offset, y)

    def information(self, u: Vector, y: Vector) -> Vector:
        """As the loss."""
        return self.loss.information(u + self.offset, y)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """f(u + o + step) - f(u + o), as the loss has it."""
        return self.loss.change(u + self.offset, y, step)

    def log_normaliser(self, dispersion: float) -> float:
        """As the loss: over y, for given offsets."""
        return self.loss.log_normaliser(dispersion)

    def integrated(self, u: Vector, y: Vector) -> float:
        """As the loss."""
        return self.loss.integrated(u + self.offset, y)
