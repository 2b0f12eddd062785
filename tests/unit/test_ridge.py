"""Ridge by one Gram matrix: equal to refits, to the marginal likelihood, and to explicit singular vectors."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.linear_model import Ridge

from unpooled.kernels.ridge import RidgePath, gram, lowest, noise_aware_smoothing, product, shrink_singular_values

ALPHAS = np.array([1e-3, 0.3, 10.0, 1e4])
SHAPES = [(40, 7), (24, 60), (30, 30)]


def problem(n, p, seed=0):
    rng = np.random.default_rng(seed)
    design = rng.standard_normal((n, p)) + 3  # means far from zero: the intercept matters
    return design, design[:, : min(p, 3)].sum(axis=1) + rng.standard_normal(n) - 5


def folds_of(n, count, seed=1):
    return np.array_split(np.random.default_rng(seed).permutation(n), count)


def refitted(design, target, alphas, folds, intercept):
    found = np.empty((len(alphas), target.size))
    for fold in folds:
        train = np.setdiff1d(np.arange(target.size), fold)
        for a, alpha in enumerate(alphas):
            b, c = by_augmentation(design[train], target[train], alpha, intercept)
            found[a, fold] = design[fold] @ b + c
    return found


def by_augmentation(design, target, alpha, intercept):
    """Least squares on sqrt(alpha) extra rows per coefficient: no Gram matrix, and nothing centred."""
    n, p = design.shape
    ones = np.ones((n, int(intercept)))
    rows = np.vstack([np.hstack([design, ones]), np.hstack([math.sqrt(alpha) * np.eye(p), np.zeros((p, ones.shape[1]))])])
    b = np.linalg.lstsq(rows, np.append(target, np.zeros(p)), rcond=None)[0]
    return b[:p], b[p] if intercept else 0.0


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (5, 3), (3, 5), (4, 4), (0, 3), (3, 0)])
def test_products_of_every_shape_and_order(shape):
    a = np.random.default_rng(0).standard_normal(shape)
    b = np.random.default_rng(1).standard_normal((shape[1], 2))
    for order in "CF":
        left = np.asarray(a, order=order)
        np.testing.assert_allclose(product(left, b), a @ b, atol=1e-14)
        np.testing.assert_allclose(product(left[:, ::-1], np.asfortranarray(b)), a[:, ::-1] @ b, atol=1e-14)
        np.testing.assert_allclose(gram(left), a @ a.T if shape[0] <= shape[1] else a.T @ a, atol=1e-14)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("intercept", [True, False])
def test_solutions_equal_least_squares_and_scikit_learn(shape, intercept):
    design, target = problem(*shape)
    path = RidgePath.of(design, target, fit_intercept=intercept)
    for alpha in ALPHAS:
        b, c = path.solve(alpha)
        expected, constant = by_augmentation(design, target, alpha, intercept)
        np.testing.assert_allclose(b, expected, atol=1e-8)
        assert c == pytest.approx(constant, abs=1e-8)
        peer = Ridge(alpha=alpha, fit_intercept=intercept, solver="svd").fit(design, target)
        np.testing.assert_allclose(b, peer.coef_, atol=1e-8)
        assert c == pytest.approx(peer.intercept_, abs=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("count", [2, 5, 12, -1])
def test_held_out_predictions_equal_refits(shape, intercept, count):
    """Two and five folds by reduction, twelve by the hat matrix, n folds by leverages."""
    design, target = problem(*shape)
    folds = folds_of(target.size, target.size if count < 0 else count)
    path = RidgePath.of(design, target, fit_intercept=intercept)
    expected = refitted(design, target, ALPHAS, folds, intercept)
    np.testing.assert_allclose(path.held_out(ALPHAS, folds), expected, atol=1e-8)
    np.testing.assert_allclose(path.held_out(list(ALPHAS), folds), expected, atol=1e-8)
    np.testing.assert_allclose(path.cross_validated(ALPHAS, folds), ((expected - target) ** 2).mean(axis=1), rtol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [4, -1])
def test_both_ways_of_cross_validation_agree_at_small_penalties(shape, count):
    """At alpha = 1e-11 of the scale I - H is nearly zero where p > n: subtracting it from I would leave no digits."""
    design, target = problem(*shape)
    path, folds = RidgePath.of(design, target), folds_of(target.size, target.size if count < 0 else count)
    alphas = np.array([1e-11, 1e-5]) * path.squares.mean()
    refits = np.column_stack([path._by_refit(alphas, fold) for fold in folds])
    hats = path._by_hat_matrix(alphas, folds)[:, np.concatenate(folds)]
    np.testing.assert_allclose(hats, refits, atol=1e-9)


@pytest.mark.parametrize("count", [5, 15])
@pytest.mark.parametrize(
    "degenerate",
    [
        lambda x: np.hstack([x[:, :2], x[:, :2] @ np.array([[1.0, 2], [3, 4]])]),
        lambda x: np.hstack([x[:, :2]] * 30),
        lambda x: np.hstack([x[:, :3], np.full((x.shape[0], 1), 7.0)]),
        lambda x: np.full((x.shape[0], 4), 2.0),
        lambda x: np.full((x.shape[0], 50), 2.0),
        lambda x: np.where(np.arange(x.shape[0])[:, None] == 3, x, 0.0),
    ],
    ids=["rank-2", "rank-2-wide", "constant-column", "constant", "constant-wide", "one-row"],
)
def test_degenerate_designs_equal_refits(degenerate, count):
    base, target = problem(30, 6)
    design = degenerate(base)
    for intercept in (True, False):
        path = RidgePath.of(design, target, fit_intercept=intercept)
        folds = folds_of(30, count)
        expected = refitted(design, target, ALPHAS, folds, intercept)
        np.testing.assert_allclose(path.held_out(ALPHAS, folds), expected, atol=1e-7)
        for alpha in ALPHAS:
            np.testing.assert_allclose(path.solve(alpha)[0], by_augmentation(design, target, alpha, intercept)[0], atol=1e-8)
        assert path.evidence_alpha() > 0


@pytest.mark.parametrize("count", [3, 20])
def test_without_columns_predictions_are_means(count):
    target = problem(20, 3)[1]
    folds = folds_of(20, count)
    path = RidgePath.of(np.empty((20, 0)), target)
    for row in path.held_out(ALPHAS, folds):
        for fold in folds:
            np.testing.assert_allclose(row[fold], np.delete(target, fold).mean())
    b, c = path.solve(1.0)
    assert b.shape == (0,)
    assert c == pytest.approx(target.mean())
    assert path.evidence_alpha() == 1.0
    assert math.isfinite(path.evidence(1.0))
    assert not RidgePath.of(np.empty((20, 0)), target, fit_intercept=False).held_out(ALPHAS, folds).any()


def test_folds_need_rows_to_learn_from_and_may_leave_rows_out():
    design, target = problem(12, 4)
    path = RidgePath.of(design, target)
    with pytest.raises(ValueError, match="nothing is left"):
        path.held_out([1.0], [np.arange(12)])
    assert np.isnan(path.held_out([1.0], [np.arange(5)])[0]).tolist() == [False] * 5 + [True] * 7
    for size in (1, 2):  # one or two rows to learn from
        folds = [np.arange(size, 12)]
        wide = RidgePath.of(design[:, [0, 1, 2, 3] * 4], target)
        np.testing.assert_allclose(
            wide.held_out([2.0], folds)[0, size:],
            refitted(wide.design, target, [2.0], folds, intercept=True)[0, size:],
            atol=1e-9,
        )


@pytest.mark.parametrize("count", [3, 12, 30])
def test_a_penalty_below_rounding_is_refused(count):
    """Without any, more columns than rows leave nothing of I - H, and no unique refit."""
    design, target = problem(30, 60)
    with pytest.raises(np.linalg.LinAlgError, match="below the rounding"):
        RidgePath.of(design, target).held_out([1.0, 0.0 if count > 3 else -1e-3], folds_of(30, count))
    tall = RidgePath.of(design[:, :5], target)  # least squares
    expected = refitted(design[:, :5], target, [0.0], folds_of(30, count), intercept=True)
    np.testing.assert_allclose(tall.held_out([0.0], folds_of(30, count)), expected, atol=1e-9)


# --- marginal likelihood ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("intercept", [True, False])
def test_evidence_is_the_marginal_likelihood(shape, intercept):
    """Of all contrasts of y under N(0, s^2 (I + XX^T/alpha)), s^2 at its best; compared are differences."""
    design, target = problem(*shape)
    n = target.size
    path = RidgePath.of(design, target, fit_intercept=intercept)
    basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, int(intercept) :] if intercept else np.eye(n)
    contrasts = basis.T @ target

    def brute(alpha):
        covariance = basis.T @ (np.eye(n) + design @ design.T / alpha) @ basis
        s2 = contrasts @ np.linalg.solve(covariance, contrasts) / contrasts.size
        return -2 * multivariate_normal(cov=s2 * covariance).logpdf(contrasts)

    for alpha in ALPHAS:
        assert path.evidence(alpha) - path.evidence(1.0) == pytest.approx(brute(alpha) - brute(1.0), rel=1e-8, abs=1e-7)
    best = path.evidence_alpha()
    if shape[0] > shape[1]:
        assert all(path.evidence(best) <= path.evidence(best * f) for f in (1e-4, 0.5, 0.99, 1.01, 2, 1e4))
        assert path.evidence(best * 1.01) > path.evidence(best) < path.evidence(best / 1.01)


@pytest.mark.parametrize("shape", [(50, 12), (30, 80)])
@pytest.mark.parametrize("strength", [0.05, 1.0])
def test_noise_aware_smoothing_maximises_the_likelihood(shape, strength):
    rng = np.random.default_rng(3)
    design = rng.standard_normal(shape)
    design -= design.mean(axis=0)
    noise = 0.7
    noisy = design @ rng.standard_normal((shape[1], 9)) * strength + noise * rng.standard_normal((shape[0], 9))
    coefficients, alpha = noise_aware_smoothing(design, noisy, noise)

    def brute(t2):
        law = multivariate_normal(cov=noise**2 * np.eye(shape[0]) + t2 * design @ design.T)
        return law.logpdf(noisy.T).sum()

    at = brute(noise**2 / alpha)
    grid = noise**2 / alpha * np.exp(np.linspace(-8, 8, 161))
    assert at >= max(map(brute, grid)) - 1e-9
    assert at > max(brute(noise**2 / alpha * 1.02), brute(noise**2 / alpha / 1.02))
    expected = np.linalg.solve(design.T @ design + alpha * np.eye(shape[1]), design.T @ noisy)
    np.testing.assert_allclose(coefficients, expected, atol=1e-8)


def test_noise_aware_smoothing_at_its_edges():
    noisy = np.random.default_rng(0).standard_normal((10, 3))
    for design in (np.empty((10, 0)), np.zeros((10, 4)), np.zeros((10, 20))):
        coefficients, alpha = noise_aware_smoothing(design, noisy, 1.0)
        assert coefficients.shape == (design.shape[1], 3)
        assert not coefficients.any()
        assert alpha == math.inf
    assert noise_aware_smoothing(noisy, noisy[:, :0], 1.0)[0].shape == (3, 0)
    for noise in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="noise must be positive"):
            noise_aware_smoothing(noisy, noisy, noise)


# --- singular values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(80, 30), (30, 80), (40, 40), (50, 1)])
def test_singular_values_shrink_by_the_formula(shape):
    rng = np.random.default_rng(5)
    noise = 0.3
    low = rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, shape[1]))
    matrix = low + noise * rng.standard_normal(shape)
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    n, beta = max(shape), min(shape) / max(shape)
    y = s / (noise * math.sqrt(n))
    eta = np.array([math.sqrt((v * v - beta - 1) ** 2 - 4 * beta) / v if v > 1 + math.sqrt(beta) else 0.0 for v in y])
    assert 0 < (eta > 0).sum() <= 2
    expected = (u * (eta * noise * math.sqrt(n))) @ vt
    for order in "CF":
        np.testing.assert_allclose(shrink_singular_values(np.asarray(matrix, order=order), noise), expected, atol=1e-9)


@pytest.mark.parametrize("shape", [(200, 60), (60, 200), (100, 100)])
def test_shrinkage_beats_truncation_and_doing_nothing(shape):
    """Three components at 0.6 to 3 times the threshold; hard thresholds at the edge and at Gavish & Donoho's own."""
    rng, wins, losses = np.random.default_rng(8), 0, np.zeros(4)
    n, beta = max(shape), min(shape) / max(shape)
    own = math.sqrt(2 * (beta + 1) + 8 * beta / (beta + 1 + math.sqrt(beta**2 + 14 * beta + 1)))
    for _ in range(10):
        u, v = (np.linalg.qr(rng.standard_normal((k, 3)))[0] for k in shape)
        low = (u * (np.array([0.8, 1.4, 3.0]) * (1 + math.sqrt(beta)) * math.sqrt(n))) @ v.T
        matrix = low + rng.standard_normal(shape)
        left, s, right = np.linalg.svd(matrix, full_matrices=False)
        guesses = [shrink_singular_values(matrix, 1.0), matrix]
        guesses += [(left * np.where(s > edge * math.sqrt(n), s, 0)) @ right for edge in (1 + math.sqrt(beta), own)]
        errors = np.array([np.linalg.norm(guess - low) for guess in guesses])
        wins, losses = wins + (errors[0] < errors[1:].min()), losses + errors
    assert wins >= 9
    assert losses[0] < 0.97 * losses[1:].min()


def test_shrinkage_at_its_edges():
    for shape in [(5, 3), (3, 5), (0, 3), (3, 0)]:
        zero = np.zeros(shape)
        np.testing.assert_array_equal(shrink_singular_values(zero, 1.0), zero)
    matrix = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(shrink_singular_values(matrix, 0.0), matrix)
    assert not shrink_singular_values(np.random.default_rng(0).standard_normal((300, 100)), 1.1).any()


# --- threads ------------------------------------------------------------------------------------------------------------


#: What is asserted in a process whose BLAS has two threads: the tests' own has one, where nothing would be seen.
ONE_THREAD = """
import time
from threading import Event, Thread

import numpy
import scipy.linalg
from threadpoolctl import threadpool_info
from unpooled.kernels.threads import one_thread


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


before, inside, entered = blas_threads(), [], Event()
assert before == {2}, before


def work(pause):
    with one_thread(), one_thread():
        entered.set()
        time.sleep(pause)
        inside.append(blas_threads())


threads = [Thread(target=work, args=(pause,)) for pause in (0.05, 0.2)]
threads[0].start()
entered.wait(10)
threads[1].start()
for thread in threads:
    thread.join(10)
with one_thread():
    with one_thread():
        inside.append(blas_threads())
    inside.append(blas_threads())
assert inside == [{1}] * 4, inside
assert blas_threads() == before
try:
    with one_thread():
        raise KeyError
except KeyError:
    assert blas_threads() == before
with one_thread():
    assert blas_threads() == {1}
"""


@pytest.mark.slow
def test_one_thread_inside_and_as_before_outside():
    """Also where threads overlap: without turns the second would take the first one's limit for the normal state."""
    two = {f"{library}_NUM_THREADS": "2" for library in ("OPENBLAS", "OMP", "MKL")}
    found = subprocess.run(
        [sys.executable, "-c", ONE_THREAD], env=os.environ | two, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


# --- the best of a grid --------------------------------------------------------------------------------------------------


def test_the_lowest_is_found_behind_a_rise_and_nothing_hopeless_is_tried():
    """Two dips of -2 and -5 on a rising line: the walk down from the largest passes the first; it ends where the line is 30 above the best."""
    tried = []

    def criterion(x):
        at = math.log10(x)
        tried.append(at)
        return -10 * at - 22 * math.exp(-((at - 3) ** 2) * 4) - 45 * math.exp(-((at - 1) ** 2) * 4)

    grid = np.logspace(-6, 6, 25)
    everything = lowest(criterion, grid)
    assert min(tried) == -6
    tried.clear()
    assert lowest(criterion, grid, hopeless=60.0) == pytest.approx(everything, rel=1e-9)
    assert min(tried) > -6
