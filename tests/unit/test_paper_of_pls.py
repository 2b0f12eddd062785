"""Items of the edPLS paper that a small calculation settles: its numbered equations, those of its appendix, and the lines of Algorithm 1."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.cross_decomposition import PLSRegression

from unpooled import PrivatePLSRegression
from unpooled.papers import pls
from unpooled.papers.pls import SIGMA, ComponentsLayout, PublishedModel, coefficients, components
from unpooled.privacy.mechanisms import Vector
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Plan


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that holds the printed bounds against data."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return importlib.import_module("experiments.pls.sensitivities")


def spectra(rows: int = 30, channels: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, channels)) @ rng.normal(size=(channels, channels))
    return X, X[:, 0] - X[:, 2] + 0.1 * rng.normal(size=rows)


def test_equation_1_and_6_are_those_of_ordinary_pls_whatever_the_scale_of_the_scores() -> None:
    """b = W (P'W)^-1 c is scikit-learn's, with scores of (6), which have their own lengths, as with those of Algorithm 1, which have length 1."""
    X, y = spectra()
    wanted = PLSRegression(3, scale=False).fit(X, y).coef_.ravel()
    E, f = X - X.mean(axis=0), y - y.mean()
    for unit in (False, True):
        rest, left, parts = E.copy(), f.copy(), []
        for _ in range(3):
            w = rest.T @ left
            t = rest @ w / np.linalg.norm(w)
            t = t / np.linalg.norm(t) if unit else t
            p, c = rest.T @ t / (t @ t), left @ t / (t @ t)
            rest, left = rest - np.outer(t, p), left - t * c
            parts.append((w / np.linalg.norm(w), p, c))
        W, P, c = (np.array(one).T for one in zip(*parts, strict=True))
        assert coefficients(W, P, c) == pytest.approx(wanted)


def cost(epsilon: float, ratio: float) -> float:
    """The delta of Gaussian noise of this deviation per unit of sensitivity, exactly (Balle & Wang 2018)."""
    mu = 1 / ratio
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def test_equations_2_and_3_the_classical_deviation_holds_for_small_epsilon_alone() -> None:
    """At the paper's delta = 0.01: enough for (2) up to epsilon = 6, too little from 8 on, no promise at all at 100. Algorithm 1 uses the analytic one."""
    delta = 0.01

    def classical(epsilon: float) -> float:
        return math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    assert max(cost(epsilon, classical(epsilon)) for epsilon in (0.1, 0.5, 1, 2, 4, 6)) < delta
    assert [cost(epsilon, classical(epsilon)) > delta for epsilon in (8, 10, 100)] == [True] * 3
    assert cost(100, classical(100)) > 0.99
    for epsilon in (0.1, 1.0, 10.0, 100.0):
        (release,) = published_plan(epsilon).releases
        assert cost(epsilon, release.mechanism.multiplier) == pytest.approx(delta, rel=1e-6)


def published_plan(epsilon: float) -> Plan:
    options = {"basis": "none", "calibration": "published", "delta": 0.01, "bounds": (-5, 5), "y_bounds": (-5, 15)}
    return PrivatePLSRegression(2, epsilon=epsilon, **options).plan(60, 6)


def test_equations_4_and_8_a_sample_has_no_supremum_over_neighbours() -> None:
    """The largest values of two neighbours differ without limit, and so does the noise that each would get."""
    X, y = spectra()
    layout = ComponentsLayout(30, 6, 1)
    before = components(X, y, layout)[layout.size :]
    X[0] *= 1000
    after = components(X, y, layout)[layout.size :]
    assert after[0] > 100 * before[0]


def test_equations_7_and_12_are_exact_for_rows_that_are_centred_by_a_constant() -> None:
    """X'y loses x_n y_n and nothing else. Centred by their own means, as the paper assumes, the two sums differ by more than the bound."""
    X, y = spectra()
    change = X.T @ y - X[:-1].T @ y[:-1]
    assert change == pytest.approx(X[-1] * y[-1])
    assert np.linalg.norm(change) == pytest.approx(np.linalg.norm(X[-1]) * abs(y[-1]))  # the last step of (13)
    assert np.linalg.norm(change) <= np.linalg.norm(X, axis=1).max() * np.abs(y).max()


@pytest.mark.parametrize(
    ("part", "times"),
    [
        ("weights", 1.5),
        ("scores", 3.846),
        ("loadings", 3.892),
        ("y loading", 1.312),
    ],  # (7) and (13), (9) and (14), (10) and (15), (11) and (16)
)
def test_no_bound_of_the_appendix_holds_for_centred_data(script: ModuleType, part: str, times: float) -> None:
    """Small data sets of which one row that leaves moves the function of (6) by more than the printed bound."""
    worst = 0.0
    for seed in (1867, 1251, 337):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(3, 8), rng.integers(1, 4)
        X = rng.normal(size=(n, m)) * rng.choice([0.3, 1, 3], size=(n, 1))
        y = rng.normal(size=n) * rng.choice([0.3, 1, 3], size=n)
        worst = max(worst, script.moved(X, y, algorithm=False)[part] / script.bounds(X, y)[part])
    assert worst == pytest.approx(times, abs=1e-3)


@pytest.mark.parametrize("part", ["weights", "scores"])
def test_what_algorithm_1_releases_is_not_the_function_whose_bound_it_uses(script: ModuleType, part: str) -> None:
    """(7) and (9) are of X'y and of scores with their own length. The algorithm's have length 1: spectra in other units have the same, and another bound."""
    X, y = spectra()
    ratios = [script.moved(scale * X, y, algorithm=True)[part] / script.bounds(scale * X, y)[part] for scale in (1.0, 1e-3)]
    assert ratios[1] == pytest.approx(1000 * ratios[0])
    assert ratios[0] < 1 < ratios[1]


def test_algorithm_1_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain transcription with the same normal numbers gives the published model: weights, scores, both loadings, and b by (1)."""
    X, y = spectra(seed=7)
    layout, multiplier, drawn = ComponentsLayout(30, 6, 2), 0.05, []
    rounded = pls.noise.rounded_gaussian

    def remembered(scale: float, size: int, stream: object) -> np.ndarray:
        drawn.append(rounded(scale, size, stream=stream) / scale)
        return drawn[-1] * scale

    monkeypatch.setattr(pls.noise, "rounded_gaussian", remembered)
    exact = components(X, y, layout)
    released = PublishedModel(layout, multiplier, SIGMA).draw(Vector(exact), KeySource.simulation(4).stream("x"))
    found = layout.parts(released)
    z = drawn[0].reshape(2, layout.width)
    E, f, wanted = X - X.mean(axis=0), y - y.mean(), []
    for k in range(2):
        w = E.T @ f / np.linalg.norm(E.T @ f)
        w *= np.sign(w[np.abs(w).argmax()])  # the paper leaves the sign open
        most, row = np.abs(f).max(), np.linalg.norm(E, axis=1).max()
        noisy_w = w + multiplier * row * most * z[k, :6]
        t = E @ w / np.linalg.norm(E @ w)
        noisy_t = t + multiplier * row * z[k, 6:36]
        p, c = E.T @ t / (t @ t), f @ t / (t @ t)
        wanted.append(
            (
                noisy_w / np.linalg.norm(noisy_w),
                noisy_t / np.linalg.norm(noisy_t),
                p + multiplier * row * z[k, 36:42],
                c + multiplier * most * z[k, 42],
            )
        )
        E, f = E - np.outer(t, p), f - t * c
    W, T, P, c = (np.array(one).T for one in zip(*wanted, strict=True))
    for one, other in zip(found[:4], (W, T, P, c), strict=True):
        assert one == pytest.approx(other)
    assert coefficients(*(found[k] for k in (0, 2, 3))) == pytest.approx(W @ np.linalg.inv(P.T @ W) @ c)
