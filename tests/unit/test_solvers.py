"""Dual coordinate ascent and Newton's method against closed forms, scikit-learn and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import xlogy
from sklearn.linear_model import LogisticRegression

from unpooled.families import FAMILIES
from unpooled.kernels import newton
from unpooled.kernels.newton import NewtonPath
from unpooled.papers import sdca as module
from unpooled.papers.sdca import sdca

SHAPES = [(60, 8), (25, 70), (40, 40)]


def problem(n, p, seed=0):
    """Half a unit of noise on labels; columns with means and unequal scales."""
    rng = np.random.default_rng(seed)
    design = rng.standard_normal((n, p)) * np.linspace(0.5, 2, p) + 0.5
    signal = design[:, : min(p, 3)].sum(axis=1) - 1 + rng.standard_normal(n)
    return design, signal, np.where(signal > 0, 1.0, -1.0)


def primal(design, target, alpha, b, c=0.0, loss="logistic"):
    u = design @ b + c
    losses = np.logaddexp(0, -target * u) if loss == "logistic" else (u - target) ** 2 / 2
    return losses.sum() + alpha / 2 * b @ b


def logistic_newton(design, target, alpha, *, fit_intercept=True, **asked):
    return NewtonPath.of(design, target, FAMILIES["logistic"], fit_intercept=fit_intercept).minimum(alpha, **asked)


def logistic_evidence(design, target, alpha, *, fit_intercept=True):
    return -NewtonPath.of(design, target, FAMILIES["logistic"], fit_intercept=fit_intercept).evidence(alpha) / 2


def folds_of(n, count, seed=1):
    return np.array_split(np.random.default_rng(seed).permutation(n), count)


# --- dual coordinate ascent ---------------------------------------------------------------------------------------------


@pytest.mark.minutes
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(("shape", "alpha"), [(s, a) for s in SHAPES for a in (0.05, 1.0, 1e4)] + [((25, 70), 1e-4)])
def test_dual_ascent_agrees_with_the_optimum(shape, alpha, loss):
    design, signal, labels = problem(*shape)
    target = signal if loss == "squared" else labels
    found = sdca(design, target, alpha, loss=loss, tolerance=1e-20)
    if loss == "squared":
        best = np.linalg.solve(design.T @ design + alpha * np.eye(shape[1]), design.T @ target)
    else:
        best = logistic_newton(design, target, alpha, fit_intercept=False).coefficients
    assert found.converged
    np.testing.assert_allclose(found.coefficients, best, atol=1e-8)
    np.testing.assert_allclose(found.coefficients, -design.T @ found.dual / alpha, atol=1e-10)
    u = design @ best
    np.testing.assert_allclose(
        found.dual, u - target if loss == "squared" else -target / (1 + np.exp(target * u)), atol=1e-8
    )
    assert np.linalg.norm(found.coefficients - best) <= math.sqrt(2 * found.certificate / alpha) + 1e-12 * np.linalg.norm(
        best
    )


@pytest.mark.long_for("0.001-squared")
@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
def test_the_gap_is_primal_minus_dual_and_certifies(loss, alpha):
    design, signal, labels = problem(30, 12)
    target = signal if loss == "squared" else labels
    reference = sdca(design, target, alpha, loss=loss, tolerance=1e-17, max_epochs=300_000)
    least = primal(design, target, alpha, reference.coefficients, loss=loss)
    previous = math.inf
    for epochs in (0, 1, 2, 5, 10, 50, 200):
        found = sdca(design, target, alpha, loss=loss, tolerance=-1.0, max_epochs=epochs)
        value, a = primal(design, target, alpha, found.coefficients, loss=loss), found.dual
        s = -target * a
        conjugates = a**2 / 2 + a * target if loss == "squared" else xlogy(s, s) + xlogy(1 - s, 1 - s)
        dual = -conjugates.sum() - np.sum((design.T @ a) ** 2) / (2 * alpha)
        rounding = 1e-13 * max(1.0, abs(value))
        assert found.certificate == pytest.approx(value - dual, rel=1e-9, abs=10 * rounding)
        assert found.certificate >= value - least - rounding
        assert found.objective == pytest.approx(value, rel=1e-12)
        assert dual <= least + rounding
        assert dual >= -previous - rounding  # ascent never loses ground
        previous = -dual
        assert found.iterations == epochs
        assert not found.converged


def test_the_gap_has_no_floor_of_rounding():
    """P and D agree to 1e-16 long before; the sum of Fenchel-Young terms still tells 1e-22 from 1e-26."""
    design, signal, labels = problem(40, 8)
    for loss, target in (("squared", signal), ("logistic", labels)):
        assert 0 < sdca(design, target, 10.0, loss=loss, tolerance=1e-26).certificate < 1e-24


def test_an_honest_flag_and_a_public_seed():
    design, signal, _ = problem(40, 8)
    short = sdca(design, signal, 1e-3, max_epochs=9)
    assert (short.converged, short.iterations) == (False, 9)
    assert short.certificate > 1e-12 * primal(design, signal, 1e-3, short.coefficients, loss="squared")
    again, other = (sdca(design, signal, 1e-3, max_epochs=9, seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(again.dual, short.dual)
    assert (other.dual != short.dual).any()


def test_dual_ascent_at_its_edges():
    design, signal, labels = problem(12, 3)
    for loss, target in (("squared", signal), ("logistic", labels)):
        empty = sdca(design[:, :0], target, 1.0, loss=loss)
        assert empty.converged
        assert empty.coefficients.shape == (0,)
        zero = sdca(np.zeros((12, 3)), target, 1.0, loss=loss)
        assert zero.converged
        assert not zero.coefficients.any()
        fortran = sdca(np.asfortranarray(design), target, 1.0, loss=loss, tolerance=1e-20)
        np.testing.assert_array_equal(fortran.dual, sdca(design, target, 1.0, loss=loss, tolerance=1e-20).dual)
    with pytest.raises(ValueError, match="alpha must be positive"):
        sdca(design, signal, 0.0)
    with pytest.raises(ValueError, match="unknown loss"):
        sdca(design, signal, 1.0, loss="hinge")
    with pytest.raises(ValueError, match="-1 or 1"):
        sdca(design, signal, 1.0, loss="logistic")


def test_far_out_dual_variables_keep_their_digits():
    """Separable data at a tiny penalty: s is within 1e-8 of 0, and the certificate still holds."""
    design = np.array([[1.0], [-1.0], [2.0]])
    labels = np.array([1.0, -1.0, 1.0])
    alpha = 1e-9
    found = sdca(design, labels, alpha, loss="logistic", tolerance=1e-22)
    best = logistic_newton(design, labels, alpha, fit_intercept=False)
    assert found.converged
    assert found.coefficients[0] == pytest.approx(best.coefficients[0], rel=1e-6)
    big = sdca(design * 1e4, labels, 1e-6, loss="logistic")
    assert big.converged
    assert np.isfinite(big.dual).all()


@pytest.mark.parametrize("curvature", [0.0, 1e-8, 1.0, 1e3, 1e9])
def test_the_logistic_coordinate_solves_its_equation(curvature):
    for t in (-40.0, -1.0, 0.0, 3.0, 500.0):
        for margin in (-1e3, -5.0, 0.0, 0.1, 800.0):
            root = module._logistic_step(t, margin, curvature)

            def sigma(x):
                return 0.5 * (1 - math.tanh(x / 2))

            left = root - margin - curvature * (sigma(root) - sigma(t))
            slope = 1 + curvature * sigma(root) * sigma(-root)
            assert abs(left) / slope <= 1e-12 * (1 + abs(root) + (abs(margin) + curvature) / slope)


# --- Newton --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1.0, 1e3])
def test_newton_agrees_with_scikit_learn(shape, intercept, alpha):
    design, _, labels = problem(*shape)
    found = logistic_newton(design, labels, alpha, fit_intercept=intercept)
    peer = LogisticRegression(C=1 / alpha, solver="newton-cholesky", tol=1e-12, max_iter=1000, fit_intercept=intercept)
    peer.fit(design, labels)
    np.testing.assert_allclose(found.coefficients, peer.coef_[0], atol=1e-8)
    assert found.intercept == pytest.approx(float(np.ravel(peer.intercept_)[0]), abs=1e-8)
    b, c = NewtonPath.of(design, labels, FAMILIES["logistic"], fit_intercept=intercept).solve(alpha)
    np.testing.assert_allclose(b, found.coefficients, atol=1e-12)
    assert c == pytest.approx(found.intercept, abs=1e-12)


def gradient(design, labels, alpha, found, intercept):
    """In the coordinates of the documentation: columns less their means."""
    centred = design - design.mean(axis=0) if intercept else design
    margin = labels * (design @ found.coefficients + found.intercept)
    pull = labels * np.exp(-np.logaddexp(0, margin))
    return np.append(alpha * found.coefficients - centred.T @ pull, pull.sum() if intercept else 0.0), np.hypot(
        np.linalg.norm(centred, axis=1), float(intercept)
    ).sum()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("case", ["separable", "one class", "constant", "rank one", "no columns", "huge", "tiny"])
@pytest.mark.parametrize("intercept", [True, False])
def test_newton_converges_on_anything(case, wide, intercept):
    rng = np.random.default_rng(2)
    design = rng.standard_normal((20, 60) if wide else (40, 7))
    labels = np.where(design[:, 0] > 0, 1.0, -1.0)
    labels = -np.ones_like(labels) if case == "one class" else labels
    scale = {"huge": 1e6, "tiny": 1e-6}.get(case, 1.0)
    design *= scale
    design = {
        "constant": np.ones_like(design),
        "rank one": design[:, :1] * np.ones(design.shape[1]),
        "no columns": design[:, :0],
    }.get(case, design)
    for alpha in (1e-12, 1e-5, 1.0, 1e6):
        found = logistic_newton(design, labels, alpha * scale**2, fit_intercept=intercept)
        slope, largest = gradient(design, labels, alpha * scale**2, found, intercept)
        assert found.certificate <= 2e-13 * largest
        assert np.linalg.norm(slope) <= 1e-11 * largest
        assert np.isfinite(found.coefficients).all()
    if case == "one class" and intercept:
        assert found.intercept < -20


def test_newton_where_rounding_ends_it(monkeypatch):
    """A Hessian of rank one whose rounding exceeds alpha; a gradient that cannot become zero; too few iterations."""
    design = np.random.default_rng(1).standard_normal((40, 1)) * np.full(7, 1e6)
    labels = np.where(design[:, 0] + np.roll(design[:, 0], 1) > 0, 1.0, -1.0)
    for intercept in (True, False):
        found = logistic_newton(design, labels, 1e-12, fit_intercept=intercept)
        slope, largest = gradient(design, labels, 1e-12, found, intercept)
        assert np.linalg.norm(slope) <= 1e-10 * largest
    design, _, labels = problem(40, 5)
    exact = logistic_newton(design, labels, 1.0, tolerance=0.0)
    assert exact.certificate < 1e-12
    np.testing.assert_allclose(exact.coefficients, logistic_newton(design, labels, 1.0).coefficients, atol=1e-14)
    monkeypatch.setattr(newton, "_ITERATIONS", 2)
    with pytest.raises(ArithmeticError, match="after 2 iterations"):
        logistic_newton(design, labels, 1e-3)


def test_newton_refuses_what_it_cannot_solve():
    design, signal, labels = problem(12, 3)
    with pytest.raises(ValueError, match="alpha must be positive"):
        logistic_newton(design, labels, 0.0)
    with pytest.raises(ValueError, match="-1 and 1"):
        logistic_newton(design, signal, 1.0)
    with pytest.raises(ArithmeticError, match="not finite"):
        logistic_newton(design * np.nan, labels, 1.0)


def test_columns_may_be_shifted_and_rotated():
    design, _, labels = problem(30, 50)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((50, 50)))[0]
    plain, moved = logistic_newton(design, labels, 0.3), logistic_newton((design + 100) @ turn, labels, 0.3)
    np.testing.assert_allclose(turn @ moved.coefficients, plain.coefficients, atol=1e-9)
    evidence = logistic_evidence(design, labels, 0.3)
    assert logistic_evidence(design @ turn + 100, labels, 0.3) == pytest.approx(evidence, abs=1e-8)


# --- the path -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("intercept", [True, False])
def test_laplace_evidence_by_explicit_matrices(shape, intercept):
    design, _, labels = problem(*shape)
    path = NewtonPath.of(design, labels, FAMILIES["logistic"], fit_intercept=intercept)
    for alpha in (1e-7, 0.5, 100.0):
        found = logistic_newton(design, labels, alpha, fit_intercept=intercept)
        u = design @ found.coefficients + found.intercept
        weights = 1 / (2 + 2 * np.cosh(u))
        hessian = design.T @ (design * weights[:, None])
        if intercept:
            crossed = design.T @ weights
            hessian -= np.outer(crossed, crossed) / weights.sum()
        determinant = np.linalg.slogdet(np.eye(shape[1]) + hessian / alpha)[1]
        expected = -primal(design, labels, alpha, found.coefficients, found.intercept) - determinant / 2
        assert logistic_evidence(design, labels, alpha, fit_intercept=intercept) == pytest.approx(expected, abs=1e-6)
        assert path.evidence(alpha) == pytest.approx(-2 * expected, abs=1e-6)


def test_laplace_evidence_is_close_to_the_integral():
    """One coefficient, no intercept: the integral itself, to the one per cent that Laplace's approximation is good for."""
    design, _, labels = problem(80, 1)
    for alpha in (0.1, 1.0, 10.0):
        mode = logistic_newton(design, labels, alpha, fit_intercept=False).coefficients[0]
        least = primal(design, labels, alpha, np.array([mode]))
        integral = quad(
            lambda b, a=alpha, m=least: math.exp(m - primal(design, labels, a, np.array([b]))),
            mode - 8,
            mode + 8,
            points=[mode],
        )[0]
        exact = math.log(integral * math.sqrt(alpha / (2 * math.pi))) - least
        assert logistic_evidence(design, labels, alpha, fit_intercept=False) == pytest.approx(exact, abs=0.01)


def test_the_penalty_of_largest_evidence():
    rng = np.random.default_rng(3)
    for shape in ((200, 10), (60, 90)):
        design = rng.standard_normal(shape)
        labels = np.where(design[:, :10] @ rng.standard_normal(10) + rng.logistic(size=shape[0]) > 0, 1.0, -1.0)
        path = NewtonPath.of(design, labels, FAMILIES["logistic"])
        best = path.evidence_alpha()
        found = minimize(lambda x, q=path: q.evidence(math.exp(x[0])), [math.log(best) + 0.5], method="Nelder-Mead")
        assert path.evidence(best) <= found.fun + 1e-4
        assert path.evidence(best) < min(path.evidence(best * 1.5), path.evidence(best / 1.5))
    assert NewtonPath.of(np.empty((5, 0)), np.ones(5), FAMILIES["logistic"]).evidence_alpha() == 1.0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("count", [2, 6])
def test_held_out_decisions_equal_refits(shape, intercept, count):
    design, _, labels = problem(*shape)
    path, folds = NewtonPath.of(design, labels, FAMILIES["logistic"], fit_intercept=intercept), folds_of(labels.size, count)
    alphas = np.array([0.3, 1e-6, 1e3, 5.0])
    expected = np.empty((4, labels.size))
    for fold in folds:
        train = np.setdiff1d(np.arange(labels.size), fold)
        for a, alpha in enumerate(alphas):
            found = logistic_newton(design[train], labels[train], alpha, fit_intercept=intercept)
            expected[a, fold] = design[fold] @ found.coefficients + found.intercept
    decisions = path.held_out(alphas, folds)
    np.testing.assert_allclose(decisions[[0, 2, 3]], expected[[0, 2, 3]], atol=1e-8)
    np.testing.assert_allclose(decisions[1], expected[1], rtol=1e-6, atol=1e-6)
    losses = np.log1p(np.exp(-labels * expected)).mean(axis=1)
    np.testing.assert_allclose(path.cross_validated(alphas, folds), losses, rtol=1e-6)


def test_path_at_its_edges():
    design, signal, labels = problem(12, 3)
    path = NewtonPath.of(design, labels, FAMILIES["logistic"])
    with pytest.raises(ValueError, match="nothing is left"):
        path.held_out([1.0], [np.arange(12)])
    with pytest.raises(ValueError, match="-1 and 1"):
        NewtonPath.of(design, signal, FAMILIES["logistic"])
    assert np.isnan(path.held_out([1.0], [np.arange(5)])[0]).tolist() == [False] * 5 + [True] * 7
    empty = NewtonPath.of(design[:, :0], labels, FAMILIES["logistic"])
    positive = (labels > 0).sum()
    b, c = empty.solve(1.0)
    assert b.shape == (0,)
    assert c == pytest.approx(math.log(positive / (12 - positive)))
    assert empty.held_out([1.0], [np.arange(5)]).shape == (1, 12)
    squares = np.linalg.svd(design - design.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(np.sort(path.squares)[::-1], squares)
