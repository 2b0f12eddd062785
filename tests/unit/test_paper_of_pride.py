"""Items of the PRIDE paper that a small calculation settles: its solver, its numbered equations, Lemmas 4 and 7, and steps of the proof of Theorem 3."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from unpooled import PrideRegressor
from unpooled.datasets import make_confounded_field
from unpooled.errors import UsageError
from unpooled.kernels.hadamard import Srht
from unpooled.papers.pride import published_sigma
from unpooled.papers.sdca import sdca


def ascent_of_dual_loco(X: np.ndarray, y: np.ndarray, penalty: float, passes: int, seed: int) -> np.ndarray:
    """Coefficients by the coordinate step of the DUAL-LOCO library for (y - x.w)^2 / n + penalty |w|^2 / 2, from its formula."""
    rng, n = np.random.default_rng(seed), y.size
    dual, w = np.zeros(n), np.zeros(X.shape[1])
    for i in rng.integers(n, size=passes * n):
        step = (y[i] - X[i] @ w - dual[i] / 2) / (0.5 + X[i] @ X[i] / (penalty * n))
        dual[i] += step
        w += step * X[i] / (penalty * n)
    return w


@pytest.mark.parametrize("shape", [(40, 5), (15, 30)])
def test_the_solver_of_dual_loco_has_our_minimum(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    X, penalty = rng.normal(size=shape), 0.8
    y = X[:, 0] - X[:, 1] + rng.normal(size=shape[0])
    theirs = ascent_of_dual_loco(X, y, penalty, 400, 0)
    ours = sdca(X, y, penalty * y.size / 2, loss="squared", tolerance=1e-14, max_epochs=5000)
    assert ours.coefficients == pytest.approx(theirs, abs=1e-6)
    exact = np.linalg.solve(X.T @ X + penalty * y.size / 2 * np.eye(shape[1]), X.T @ y)
    assert theirs == pytest.approx(exact, abs=1e-8)


def test_lemma_4() -> None:
    """For squared loss, whose conjugate is a^2 / 2 + a y: the gradient of the dual is a + y + K a / (n lambda)."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        n = int(rng.integers(2, 9))
        one, other = rng.normal(size=(n, n + 2)), rng.normal(size=(n, n))
        K, near, scale = one @ one.T, (other + other.T) / 4, float(rng.uniform(2, 20))
        assert np.linalg.eigvalsh(np.eye(n) + near / scale).min() > 0  # the perturbed problem has a minimum
        y = rng.normal(size=n)
        best, found = (-np.linalg.solve(np.eye(n) + gram / scale, y) for gram in (K, near))
        gap = found - best
        assert gap @ (K - near) @ best >= gap @ near @ gap - 1e-10


def test_the_step_of_theorem_3() -> None:
    """(w + m)^2 is not at least w^2 wherever m is positive, as (13) has it; it is where w m is, which is as likely for a symmetric m."""
    assert (-1.0 + 0.5) ** 2 < (-1.0) ** 2
    rng = np.random.default_rng(5)
    w, m = rng.normal(size=100_000), rng.normal(size=100_000)
    assert not ((w + m) ** 2 >= w**2 * (m > 0)).all()
    assert ((w + m) ** 2 >= w**2 * (w * m > 0)).all()
    assert (w * m > 0).mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_lemma_7(chance: float) -> None:
    for n in range(1, 61):
        mean, coins = n * chance, stats.binom(n, chance)
        for delta in (0.1, 0.5, 0.9, 2.0):
            upper = coins.sf(math.ceil((1 + delta) * mean - 1e-9) - 1)
            assert upper <= math.exp(-(delta**2) * mean / (2 + delta)) + 1e-12
            if delta < 1:
                assert coins.cdf(math.floor((1 - delta) * mean + 1e-9)) <= math.exp(-mean * delta**2 / 2) + 1e-12


# --- numbered equations ------------------------------------------------------------------------------------------------


def local_problem(
    seed: int, n: int = 6, own: int = 4, others: int = 9, sketched: int = 5, sigma: float = 0.3
) -> tuple[np.ndarray, ...]:
    """X, Theta, E and the response of one party's problem: equations (9) and (10)."""
    rng = np.random.default_rng(seed)
    theta = np.zeros((own + others, own + sketched))
    theta[:own, :own] = np.eye(own)
    theta[own:, own:] = rng.normal(size=(others, sketched)) / math.sqrt(sketched)
    E = np.hstack([np.zeros((n, own)), sigma * rng.normal(size=(n, sketched))])
    return rng.normal(size=(n, own + others)), theta, E, rng.normal(size=n)


def test_equations_2_and_9_and_10_are_one_local_design() -> None:
    """[X_k, the others' sketches and noise] is X Theta + E."""
    X, theta, E, _ = local_problem(0)
    assert X @ theta + E == pytest.approx(np.hstack([X[:, :4], X[:, 4:] @ theta[4:, 4:] + E[:, 4:]]), abs=1e-12)


def test_equations_1_and_3_have_one_solution() -> None:
    """b = -X' alpha / (n lambda) of the dual maximum is the minimum of the primal with f = (y - u)^2 / 2; with f = (y - u)^2 it has half the penalty."""
    X, _, _, y = local_problem(1)
    n, penalty = y.size, 0.7
    dual = -np.linalg.solve(np.eye(n) + X @ X.T / (n * penalty), y)  # the root of a + y + X X' a / (n lambda)
    primal = np.linalg.solve(X.T @ X / n + penalty * np.eye(X.shape[1]), X.T @ y / n)
    assert -X.T @ dual / (n * penalty) == pytest.approx(primal, abs=1e-10)
    of_ridge = np.linalg.solve(2 * X.T @ X / n + penalty * np.eye(X.shape[1]), 2 * X.T @ y / n)
    assert of_ridge == pytest.approx(np.linalg.solve(X.T @ X / n + penalty / 2 * np.eye(X.shape[1]), X.T @ y / n), abs=1e-10)
    # Section 4.2 writes the dual solution without its factor -n lambda, and lambda for n lambda.
    assert dual == pytest.approx(-n * penalty * np.linalg.solve(X @ X.T + n * penalty * np.eye(n), y), abs=1e-10)
    assert not np.allclose(dual, np.linalg.solve(X @ X.T + penalty * np.eye(n), y), rtol=0.1)


def sketched_error(
    X: np.ndarray, y: np.ndarray, penalty: float, own: int, sketched: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """beta*, beta_k* and its estimate from a Gaussian sketch of the others' columns without noise."""
    Z = X[:, own:] @ np.random.default_rng(seed).normal(size=(X.shape[1] - own, sketched)) / math.sqrt(sketched)
    n = y.size
    exact, found = (
        np.linalg.solve(gram + n * penalty * np.eye(n), y) for gram in (X @ X.T, X[:, :own] @ X[:, :own].T + Z @ Z.T)
    )
    return X.T @ exact, X[:, :own].T @ exact, X[:, :own].T @ found


def test_equation_6_is_relative_to_all_coefficients() -> None:
    """(17), which the proof ends with, has |beta*| on the right. (6) has |beta_k*|, and where that is 0 the error is not."""
    rng = np.random.default_rng(3)
    n, own, others, penalty = 6, 4, 3000, 2.0
    X = rng.normal(size=(n, own + others))
    left = np.linalg.svd(X[:, :own])[0][:, own:]  # what the party's own columns do not reach
    dual = left @ rng.normal(size=n - own)
    y = (X @ X.T + n * penalty * np.eye(n)) @ dual
    every, exact, found = sketched_error(X, y, penalty, own, 2000, 0)
    assert np.linalg.norm(exact) < 1e-10 * np.linalg.norm(every)
    missed = np.linalg.norm(found - exact)
    assert missed > 1e6 * np.linalg.norm(exact)
    assert missed < 0.1 * np.linalg.norm(every)


def test_equation_11() -> None:
    for seed in range(50):
        X, _, _, _ = local_problem(seed)
        U, d, _ = np.linalg.svd(X, full_matrices=False)
        gamma, size = np.random.default_rng(seed).normal(size=d.size), 0.4**2 * 5
        term = (U.T @ (size * np.eye(len(X))) @ U) / np.outer(d, d) @ gamma
        assert np.linalg.norm(term) <= size / d.min() ** 2 * np.linalg.norm(gamma) * (1 + 1e-12)


@pytest.mark.slow
def test_equation_15_loses_half() -> None:
    """Theta without half of its columns keeps half of |a|^2, however many columns there are; (15) has 1 - 2 rho, which tends to 1."""
    rng = np.random.default_rng(6)
    n, own, others = 6, 40, 1500
    right = np.linalg.svd(rng.normal(size=(n, own + others)), full_matrices=False)[2]
    for sketched in (500, 2000, 6000):
        a = rng.normal(size=n)
        received = (right[:, own:].T @ a) @ rng.normal(size=(others, sketched)) / math.sqrt(sketched)
        w = np.append(right[:, :own].T @ a, received)
        assert w @ w == pytest.approx(a @ a, rel=0.15)
        halves = [float(w[kept] @ w[kept]) for kept in rng.random((400, w.size)) < 0.5]
        assert np.mean(halves) == pytest.approx(0.5 * w @ w, rel=0.03)


def expected_loss(n: int, draws: int, seed: int = 8) -> tuple[float, float, float]:
    """The mean over W of |Y - (X_k b_k + (Z + W) b)|^2 less the loss without W, its standard error, and sigma^2 |b|^2."""
    rng, sigma, sketched = np.random.default_rng(seed), 0.7, 5
    missed, b = rng.normal(size=n), rng.normal(size=sketched)
    losses = [((missed - sigma * rng.normal(size=(n, sketched)) @ b) ** 2).sum() - (missed**2).sum() for _ in range(draws)]
    return float(np.mean(losses)), float(np.std(losses) / math.sqrt(draws)), sigma**2 * float(b @ b)


@pytest.mark.parametrize("n", [1, 10, 40])
def test_equation_19_lacks_a_factor_n(n: int) -> None:
    """Each of the n rows has its own noise: the expected penalty is n sigma^2 |b|^2. Printed: sigma^2 |b|^2, that of one row."""
    found, error, printed = expected_loss(n, 6000)
    assert found == pytest.approx(n * printed, abs=5 * error)
    assert abs(found - printed) > 5 * error or n == 1


def test_the_density_before_equation_19_is_no_density() -> None:
    """exp(-w^2 / (2 pi sigma^2)) / sqrt(2 pi sigma^2), as printed, has the integral sqrt(pi); with 2 sigma^2 it has 1."""
    w, sigma = np.linspace(-40, 40, 400_001), 1.3
    of = [np.exp(-(w**2) / size) / math.sqrt(2 * math.pi * sigma**2) for size in (2 * math.pi * sigma**2, 2 * sigma**2)]
    assert [float(np.trapezoid(each, w)) for each in of] == pytest.approx([math.sqrt(math.pi), 1.0], abs=1e-6)


@pytest.mark.slow
def test_the_field_is_that_of_section_d_1_but_for_its_units() -> None:
    """The signal-to-noise ratio is 0.75; the noise is near 22.8, and 500 in the paper: its coefficients are 22 times as large, which no relative error sees."""
    fields = [make_confounded_field(1000, seed=seed) for seed in range(5)]
    for field in fields:
        signal = field.design @ field.coefficients
        assert field.design.shape == (1000, 400)
        assert (signal @ signal) / ((field.response - signal) @ (field.response - signal)) == pytest.approx(0.75)
    assert np.mean([field.noise for field in fields]) == pytest.approx(22.8, abs=0.6)


# --- definitions and claims about noise --------------------------------------------------------------------------------


def test_definition_1_with_all_attributes_is_no_guarantee_of_a_row() -> None:
    """One value of one user may change, of any attribute in S. With S = all of them, a whole row may still change the release by far more."""
    plan = PrideRegressor(bounds=(-1, 1), epsilon=1.0, delta=1e-5, sketch_dim=0.2).plan(800, 400)
    assert plan.epsilon(1e-5, "attribute") <= 1.0
    assert plan.epsilon(1e-5, "record") == pytest.approx(148.9, abs=0.05)


@pytest.mark.parametrize("size", [1, 10, 20, 40, 200])
def test_the_sensitivity_of_a_hadamard_sketch_is_one_whatever_its_size(size: int) -> None:
    """Section 4.1: w_2(Pi) = 1, so the noise does not depend on the size of the sketch."""
    lengths = np.linalg.norm(Srht.draw(200, size, 3).matrix(), axis=1)
    assert lengths == pytest.approx(np.ones(200), abs=1e-12)


def test_delta_has_more_than_little_effect_on_the_noise() -> None:
    """Section 5: "varying delta has only little effect on sigma". From 0.05 to 1e-5 it is 1.89 times as much at epsilon 1, and 2.13 times at 0.1."""
    ratios = [published_sigma(1.0, epsilon, 1e-5) / published_sigma(1.0, epsilon, 0.05) for epsilon in (0.1, 1.0, 20.0)]
    assert ratios == pytest.approx([2.13, 1.89, 1.18], abs=0.01)
    with pytest.raises(UsageError, match="below 1/2"):
        published_sigma(1.0, 1.0, 0.5)


@pytest.mark.long
@pytest.mark.slow
def test_what_travels_is_the_sketches_and_little_else() -> None:
    """Section 7: "the communication overhead is small". Of 200 columns and 800 rows a sketch of 10 is a twentieth; 16 kB are the study and its opening."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 400))
    options = {
        "bounds": (-1, 1),
        "epsilon": 1.0,
        "delta": 0.05,
        "calibration": "published",
        "noise_model": "plain",
        "alpha": 3.0,
    }
    for size in (10, 40):
        model = PrideRegressor(sketch_dim=size, random_state=0, **options).fit(X, X[:, 0])
        for party in model.communication_.values():
            assert 0 < party["sent"] - 8 * 800 * size < 20_000
            assert 0 < party["received"] - 8 * 800 * size < 1000
    assert 0.05 * X[:, :200].nbytes == 8 * 800 * 10
