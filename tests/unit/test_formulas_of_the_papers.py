"""Thirty-six formulas of the five papers, written anew from the papers' texts, and what the published forms make of the same numbers.

The left side of every item is this file's own: NumPy, SciPy's normal law and the formula as it is printed. The right side is read off plans, mechanisms and
fits of the published forms. An item whose printed formula is wrong says so, and holds ours against what the printed one should be.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from unpooled import (
    Bounds,
    PrideRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivatePLSRegression,
    PrivateStackingClassifier,
)
from unpooled.papers import frank_wolfe
from unpooled.papers.bayes import posterior_as_published

PUBLISHED: dict[str, Any] = {"calibration": "published"}
RNG = np.random.default_rng(2017)
Item = Callable[[], tuple[Any, Any]]
ITEMS: dict[str, Item] = {}


def item(name: str) -> Callable[[Item], Item]:
    """Enter a function that returns (the paper's value, ours)."""

    def entered(compare: Item) -> Item:
        assert name not in ITEMS
        ITEMS[name] = compare
        return compare

    return entered


def quiet(fit: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit()


# --- PRIDE (Heinze-Deml et al. 2017) -----------------------------------------------------------------------------------------

TABLE_D2 = {  # theta, and the printed row
    7.4118: [162.47, 66.99, 35.10, 24.42, 19.05, 10.87, 5.67, 3.68, 2.48],
}
EPSILONS = (0.1, 0.25, 0.5, 0.75, 1, 2, 5, 10, 20)


def pride_plan(epsilon: float = 1.0, delta: float = 0.05, columns: int = 32, **given: Any) -> Any:
    return PrideRegressor(2, epsilon=epsilon, delta=delta, bounds=(-1, 1), **PUBLISHED, **given).plan(200, columns)


@item("PRIDE, Theorem 1: the deviation of the noise for a range of 1")
def _() -> tuple[Any, Any]:
    epsilon, delta = 1.7, 0.03
    return math.sqrt(2 * (math.log(1 / (2 * delta)) + epsilon)) / epsilon, pride_plan(epsilon, delta).releases[
        0
    ].mechanism.multiplier


@item("PRIDE, Table D.2: the printed deviations of the simulation")
def _() -> tuple[Any, Any]:
    ((theta, printed),) = TABLE_D2.items()
    return printed, [round(theta * pride_plan(e).releases[0].mechanism.multiplier, 2) for e in EPSILONS]


@item("PRIDE, Definition 1: one value of one person")
def _() -> tuple[Any, Any]:
    return "attribute", pride_plan().study.unit


@item("PRIDE, section 3: the SRHT is sqrt(tau/m) D H S")
def _() -> tuple[Any, Any]:
    matrix = pride_plan(sketch_dim=8).design.parts[0].sketch.apply_real(np.eye(16))
    # Entries of +-1/sqrt(m), columns orthogonal, of squared length tau / m.
    return [1 / math.sqrt(8), 2.0, 0.0], [
        float(np.abs(matrix).max()),
        float((matrix**2).sum(axis=0).mean()),
        float(np.abs(np.triu(matrix.T @ matrix, 1)).max()),
    ]


@item("PRIDE, Table D.1: sizes of sketches of 200 columns")
def _() -> tuple[Any, Any]:
    return [2, 10, 20, 40], [
        pride_plan(columns=400, sketch_dim=share).design.parts[0].sketch.size for share in (0.01, 0.05, 0.1, 0.2)
    ]


def pride_without_noise() -> tuple[np.ndarray, np.ndarray, Any]:
    X = np.clip(RNG.normal(size=(60, 8)) / 3, -1, 1)
    y = X @ RNG.normal(size=8) + 0.1 * RNG.normal(size=60)
    model = PrideRegressor(
        {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]},
        epsilon=math.inf,
        bounds=(-1, 1),
        alpha=3.0,
        sketch_dim=2,
        noise_model="plain",
        **PUBLISHED,
    )
    return X, y, quiet(lambda: model.fit(X, y))


@item("PRIDE, (3): a party's coefficients are the ridge of its own columns and the sketches")
def _() -> tuple[Any, Any]:
    X, y, model = pride_without_noise()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    received = model.plan_.design.parts[1].sketch.apply_real(Z[:, 4:])
    design = np.column_stack([Z[:, :4], received - received.mean(axis=0)])
    # alpha = 3: the sum of squares / 2 and 3 |b|^2 / 2 have the same minimum as (3) with n lambda = 3.
    b = np.linalg.solve(design.T @ design + 3.0 * np.eye(6), design.T @ (y - y.mean()))
    return b[:4] / X[:, :4].std(axis=0), np.ravel(model.coef_)[:4]


@item("PRIDE, section 2: a prediction is the sum over parties of x_k b_k")
def _() -> tuple[Any, Any]:
    X, _, model = pride_without_noise()
    return X @ np.ravel(model.coef_) + model.intercept_, model.predict(X)


# --- stacking (Yao et al. 2019) ----------------------------------------------------------------------------------------------


def logistic_plan(epsilon: float, penalty: float, n: int = 500, d: int = 4) -> Any:
    return (
        PrivateLogisticRegression(epsilon=epsilon, penalty=penalty, bounds=(-1, 1), classes=(0, 1), **PUBLISHED)
        .plan(n, d)
        .releases[0]
        .mechanism
    )


@item("Stacking, Algorithm 1, lines 1 and 8: b has density exp(-epsilon' |b| / 2)")
def _() -> tuple[Any, Any]:
    epsilon, penalty, n = 0.8, 0.02, 500
    left = epsilon - math.log(1 + 1 / (2 * n * penalty) + 1 / (16 * n**2 * penalty**2))
    return 2 / left, logistic_plan(epsilon, penalty, n).scale


@item("Stacking, Algorithm 1, line 5: Delta and epsilon' where nothing is left")
def _() -> tuple[Any, Any]:
    epsilon, penalty, n = 0.3, 1e-5, 500
    assert epsilon - math.log(1 + 1 / (2 * n * penalty) + 1 / (16 * n**2 * penalty**2)) < 0
    delta = 1 / (4 * n * (math.exp(epsilon / 4) - 1)) - penalty
    made = logistic_plan(epsilon, penalty, n)
    return [penalty + delta, 2 / (epsilon / 2)], [made.penalty, made.scale]


@item("Stacking, section 2.2: the mean length of b is 2 d / epsilon'")
def _() -> tuple[Any, Any]:
    epsilon, penalty, n, d = 2.0, 0.05, 400, 6
    left = epsilon - math.log(1 + 1 / (2 * n * penalty) + 1 / (16 * n**2 * penalty**2))
    made = logistic_plan(epsilon, penalty, n, d)
    return 2 * d / left, made.size * made.scale  # a Gamma law of shape d and this scale


GROUPS = {"a": [0, 1], "b": [2, 3, 4], "c": [5]}


def stack_plan(importance: dict[str, float] | None = None, **given: Any) -> Any:
    given = {"epsilon": 1.0, "penalty": 0.01, "bounds": Bounds(norm=1.0), **given}
    return PrivateStackingClassifier(GROUPS, importance=importance, classes=(0, 1), **given, **PUBLISHED).plan(600, 6)


def low_level(plan: Any) -> list[Any]:
    return [release.mechanism for release in plan.releases if release.name == "block"]


SHARES = {"a": 0.5, "b": 0.3, "c": 0.2}


@item("Stacking, Algorithm 3, line 1: half of the rows for each level")
def _() -> tuple[Any, Any]:
    plan = stack_plan()
    return [300, 300], [low_level(plan)[0].rows, plan.releases[-1].mechanism.rows]


@item("Stacking, Algorithm 3, lines 3 and 11: one epsilon' for all groups")
def _() -> tuple[Any, Any]:
    n, lam = 300, 0.01
    left = 1.0 - sum(math.log(1 + q**2 / (2 * n * lam) + q**4 / (16 * n**2 * lam**2)) for q in SHARES.values())
    return [2 / left] * 3, [one.scale for one in low_level(stack_plan(SHARES))]


@item("Stacking, Algorithm 3, line 5: every group is scaled to q_k")
def _() -> tuple[Any, Any]:
    block = stack_plan(SHARES).design.blocks[1]
    rows = RNG.normal(size=(50, 3))
    rows /= np.linalg.norm(rows, axis=1).max()
    return 0.3 * rows, block.scaled(dict(zip(block.coding.names, rows.T, strict=True)))


@item(
    "Stacking, Algorithm 3, line 9, read as q^2 / (4n (exp(epsilon q / 4) - 1)): as printed the brackets give another number"
)
def _() -> tuple[Any, Any]:
    n, epsilon = 300, 0.2
    plan = stack_plan(SHARES, epsilon=epsilon, penalty=1e-6)
    printed = [q**2 / (4 * n) * (math.exp(epsilon * q / 4) - 1) for q in SHARES.values()]
    meant = [q**2 / (4 * n * (math.exp(epsilon * q / 4) - 1)) for q in SHARES.values()]
    assert not np.allclose(printed, meant)
    return [*meant, epsilon / 2], [*(one.penalty for one in low_level(plan)), 2 / low_level(plan)[0].scale]


@item("Stacking, Lemma 8: with Lemma 7's factors and noise of 2 q_k the groups cost epsilon together")
def _() -> tuple[Any, Any]:
    made = low_level(stack_plan(SHARES))
    jacobians = sum(
        2 * math.log(1 + q**2 / (4 * one.rows * one.penalty)) for q, one in zip(SHARES.values(), made, strict=True)
    )
    return 1.0, sum(2 * q / one.scale for q, one in zip(SHARES.values(), made, strict=True)) + jacobians


@item("Stacking, (6): q_k is the group's share of all variances")
def _() -> tuple[Any, Any]:
    v = np.array([4.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    plan = stack_plan({name: float(v[columns].sum()) for name, columns in GROUPS.items()})
    return [v[columns].sum() / v.sum() for columns in GROUPS.values()], [block.weight for block in plan.design.blocks]


@item(
    "Stacking, Algorithm 3, line 14, and Algorithm 1, line 7: a row of the high level is the predictions, of length 1 at most"
)
def _() -> tuple[Any, Any]:
    X = np.clip(RNG.normal(size=(400, 6)) / 4, -1, 1)
    y = (X[:, 0] + X[:, 5] > 0).astype(int)
    model = PrivateStackingClassifier(
        GROUPS, epsilon=5.0, bounds=Bounds(norm=1.0), classes=(0, 1), random_state=1, **PUBLISHED
    )
    quiet(lambda: model.fit(X, y))
    clipped = [X[:, g] / np.maximum(np.linalg.norm(X[:, g], axis=1, keepdims=True), 1.0) / 3 for g in GROUPS.values()]
    p = np.column_stack(
        [1 / (1 + np.exp(-rows @ np.array(low.weights))) for rows, low in zip(clipped, model.models_, strict=True)]
    )
    return p @ model.high_ / math.sqrt(3), model.decision_function(X)


@item("Stacking, (2): the minimum of the perturbed loss")
def _() -> tuple[Any, Any]:
    X = np.clip(RNG.normal(size=(300, 3)) / 4, -1, 1)
    y = np.where(X @ [2.0, -1.0, 0.5] + 0.2 * RNG.normal(size=300) > 0, 1, 0)
    model = PrivateLogisticRegression(epsilon=math.inf, penalty=0.02, bounds=(-1, 1), classes=(0, 1), **PUBLISHED)
    quiet(lambda: model.fit(X, y))
    Z, s = X / math.sqrt(3), 2 * y - 1
    found = optimize.minimize(lambda w: np.logaddexp(0, -s * (Z @ w)).mean() + 0.02 * w @ w / 2, np.zeros(3), tol=1e-12)
    return found.x, np.array(model.released_["all"])


@item("Stacking, section 3.3: a source model is what the penalty pulls to")
def _() -> tuple[Any, Any]:
    X = np.clip(RNG.normal(size=(300, 3)) / 4, -1, 1)
    y, u = (X[:, 0] > 0).astype(int), np.array([3.0, 0.0, -1.0])
    model = PrivateLogisticRegression(
        epsilon=math.inf, penalty=0.5, bounds=(-1, 1), classes=(0, 1), prior=u.tolist(), **PUBLISHED
    )
    quiet(lambda: model.fit(X, y))
    Z, s = X / math.sqrt(3), 2 * y - 1
    found = optimize.minimize(lambda w: np.logaddexp(0, -s * (Z @ w)).mean() + 0.5 * (w - u) @ (w - u) / 2, u, tol=1e-12)
    return found.x, np.array(model.released_["all"])


# --- Bayesian regression (supplement of Heikkila et al. 2017) ---------------------------------------------------------------

C, Y, EPSILON, DELTA = 2.0, 11.0, 2.0, 1e-5


def bayes_plan(sites: int = 2, aggregation: str = "trusted", **given: Any) -> Any:
    given = {"projection": 0.0, **given}
    model = PrivateLinearRegression(
        epsilon=EPSILON, delta=DELTA, bounds=(-C, C), y_bounds=(-Y, Y), aggregation=aggregation, **given, **PUBLISHED
    )
    return model.plan(0, 3, sites={f"s{k}": 300 for k in range(sites)})


def classical(epsilon: float, delta: float) -> float:
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def equation_12(bounds: list[float]) -> float:
    """The root of the sum over j of c_j^4, over pairs j < k of (2 c_j c_k)^2, and over j of (2 c_j c_{d+1})^2."""
    *c, last = bounds
    squares = sum((x * x) ** 2 for x in c) + sum((2 * c[j] * c[k]) ** 2 for j in range(len(c)) for k in range(j + 1, len(c)))
    return math.sqrt(squares + sum((2 * x * last) ** 2 for x in c))


def of_moments(plan: Any) -> np.ndarray:
    """The deviation of every released moment in the data's own units."""
    design = plan.design
    first, second = design.layout.pairs
    half = np.append(design.layout.half_widths, design.layout.response.half_width)
    return np.asarray(design.moments.deviations(plan) / design.layout.grid**2 * half[first] * half[second])


@item("Bayes, (12) and the classical mechanism: the noise of the moments")
def _() -> tuple[Any, Any]:
    wanted = classical(EPSILON, DELTA) * equation_12([C, C, C, Y])
    return np.full(9, wanted), of_moments(bayes_plan())


@item("Bayes, below (12): d (2d - 1) c^4 + 4 d (c y)^2 for equal bounds")
def _() -> tuple[Any, Any]:
    d = 3
    return math.sqrt(d * (2 * d - 1) * C**4 + 4 * d * (C * Y) ** 2), float(of_moments(bayes_plan())[0]) / classical(
        EPSILON, DELTA
    )


@item("Bayes, Theorem 1 and (2): N clients' shares of 1 / (N - T - 1)")
def _() -> tuple[Any, Any]:
    N, T = 5, 1
    alone, shared = (
        of_moments(bayes_plan(N, how, **more)) for how, more in (("trusted", {}), ("distributed", {"tolerate": T}))
    )
    return np.full(9, N / (N - T - 1)), (shared / alone) ** 2


@item("Bayes, Algorithm 2: the deviations' part of epsilon and delta, and what squares move by")
def _() -> tuple[Any, Any]:
    design = bayes_plan(projection=0.3, projection_delta=0.4).design
    squares = (
        design.deviations.scale / design.layout.grid**2 / design.deviations.reach["record"].distance * design.layout.grid**2
    )
    return classical(0.3 * EPSILON, 0.4 * DELTA), squares


@item("Bayes, Algorithm 2: what is left of the budget is for the moments")
def _() -> tuple[Any, Any]:
    plan = bayes_plan(projection=0.3, projection_delta=0.4)
    return np.full(9, classical(0.7 * EPSILON, 0.6 * DELTA) * equation_12([C, C, C, Y])), of_moments(plan)


def bayes_fit(**given: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    rng = np.random.default_rng(12)
    X = np.clip(rng.normal(size=(200, 3)) / 3, -1, 1)
    y = np.clip(X @ [1.0, -0.5, 0.2] + 0.3 * rng.normal(size=200), -4, 4)
    given = {
        "epsilon": math.inf,
        "delta": 0.1,
        "bounds": (-1, 1),
        "y_bounds": (-4, 4),
        "random_state": 3,
        "projection": 0.0,
        **given,
    }
    return X, y, quiet(lambda: PrivateLinearRegression(**given, **PUBLISHED).fit(X, y))


@item("Bayes, (6) and (7): the posterior mean")
def _() -> tuple[Any, Any]:
    X, y, model = bayes_fit(prior_precision=2.0, noise_precision=5.0)
    return np.linalg.solve(2.0 * np.eye(3) + 5.0 * X.T @ X, 5.0 * X.T @ y), model.coef_


@item("Bayes, (6): the posterior covariance takes noisy moments for exact ones")
def _() -> tuple[Any, Any]:
    X, _, model = bayes_fit(prior_precision=2.0, noise_precision=5.0)
    return np.linalg.inv(2.0 * np.eye(3) + 5.0 * X.T @ X), model.covariance_


@item("Bayes, the authors' program: eigenvalues of the noisy Gram become absolute")
def _() -> tuple[Any, Any]:
    _, _, kept = bayes_fit(epsilon=0.2, delta=1e-4, indefinite="kept")
    own = kept.moments_.layout.response.half_width
    gram, cross = kept.moments_.gram[:3, :3], kept.moments_.gram[:3, 3]
    values, vectors = np.linalg.eigh(gram)
    assert values[0] < 0
    found = posterior_as_published(kept.moments_, indefinite="absolute").coef_
    return own * np.linalg.solve((vectors * np.abs(values)) @ vectors.T + np.eye(3), cross), found


# --- LASSO (Lou and Cheung 2018) -----------------------------------------------------------------------------------------------


def lasso_plan(**given: Any) -> Any:
    given = {"epsilon": 0.7, "delta": 1e-4, "rounds": 15, "radius": 2.0, **given}
    return PrivateLasso(4, bounds=(-1, 1), y_bounds=(-1, 1), **given, **PUBLISHED).plan(900, 20)


def mechanism_of(plan: Any, name: str) -> Any:
    return next(release.mechanism for release in plan.releases if release.name == name)


@item("LASSO, section A: the scale of the Laplace noise, per unit of G")
def _() -> tuple[Any, Any]:
    K, n, T, eta, epsilon, delta = 4, 900, 15, 2.0, 0.7, 1e-4
    printed = (2 * eta / (K * n) * math.sqrt(2 * T * math.log(1 / (delta / 2)))) / (epsilon / (2 * K) / 2)
    return printed, mechanism_of(lasso_plan(), "pick").multiplier


@item("LASSO, section B: the deviation of the noise on a shared column, which is divided by n again")
def _() -> tuple[Any, Any]:
    K, n, T, epsilon, delta = 4, 900, 15, 0.7, 1e-4
    return math.sqrt(K * T) * math.sqrt(2 * (math.log(1 / delta) + epsilon / 2)) / (n * epsilon / 2), mechanism_of(
        lasso_plan(), "column"
    ).multiplier


@item("LASSO, Table 1, last row, and Theorem 1: 2 (h0 + C (1 + rho) / p) / (p t + 2)")
def _() -> tuple[Any, Any]:
    h, curvature, p, rho, t = 3.0, 0.7, 0.25, 0.5, np.array([0.0, 10.0, 1000.0])
    return 2 * (h + (1 + rho) / p * curvature) / (p * t + 2), frank_wolfe.bound(t, h, curvature, p, rho)


@item("LASSO, Proposition 4: the curvature under (K, tau)-distributed sampling")
def _() -> tuple[Any, Any]:
    K, tau, one, two, three = 3, 4, 0.9, 0.4, 0.2
    return K * tau * one + K * tau * (tau - 1) * two + K * (K - 1) * tau**2 * three, frank_wolfe.expected_curvature(
        (one, two, three), tau, K
    )


@item("LASSO, before Theorem 3: the sampling rate is K tau / d (Table 1 squares it)")
def _() -> tuple[Any, Any]:
    sampling = frank_wolfe.Sampling.distributed([0] * 6 + [1] * 6, 2)
    return np.full(12, 2 * 2 / 12), np.asarray(sampling.probabilities)


# --- PLS (Nikzad-Langerodi et al. 2024) ------------------------------------------------------------------------------------------


def pls_data() -> tuple[np.ndarray, np.ndarray]:
    X = np.clip(RNG.normal(size=(40, 5)), -3, 3)
    return X, X @ [1.0, 0.5, 0.0, -0.5, 0.2] + 0.1 * RNG.normal(size=40)


def pls_fit(X: np.ndarray, y: np.ndarray, epsilon: float = math.inf, **given: Any) -> Any:
    model = PrivatePLSRegression(3, epsilon=epsilon, bounds=(-3, 3), y_bounds=(-9, 9), random_state=5, **given, **PUBLISHED)
    return quiet(lambda: model.fit(X, y))


def nipals(X: np.ndarray, y: np.ndarray, components: int = 3) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """Coefficients by Algorithm 1 without noise, and (8), the largest row and response, before every component."""
    E, f = X - X.mean(axis=0), y - y.mean()
    W, P, c, largest = [], [], [], []
    for _ in range(components):
        largest.append((np.linalg.norm(E, axis=1).max(), np.abs(f).max()))
        w = E.T @ f / np.linalg.norm(E.T @ f)
        t = E @ w / np.linalg.norm(E @ w)
        W.append(w)
        P.append(E.T @ t)
        c.append(f @ t)
        E, f = E - np.outer(t, P[-1]), f - t * c[-1]
    W_, P_ = np.array(W).T, np.array(P).T
    return W_ @ np.linalg.solve(P_.T @ W_, np.array(c)), largest


@item("PLS, Algorithm 1 without noise, and (1): b = W (P'W)^-1 c")
def _() -> tuple[Any, Any]:
    X, y = pls_data()
    return nipals(X, y)[0], np.ravel(pls_fit(X, y).coef_)


def analytic(epsilon: float, delta: float) -> float:
    """The deviation for sensitivity 1 by Balle and Wang: Phi(1/2s - epsilon s) - e^epsilon Phi(-1/2s - epsilon s) = delta."""
    law = stats.norm.cdf
    return float(
        optimize.brentq(
            lambda s: law(0.5 / s - epsilon * s) - math.exp(epsilon) * law(-0.5 / s - epsilon * s) - delta,
            1e-3,
            1e4,
            xtol=1e-14,
        )
    )


def of_model(epsilon: float = 1.0, delta: float = 0.01, **given: Any) -> Any:
    return (
        PrivatePLSRegression(3, epsilon=epsilon, delta=delta, bounds=(-3, 3), y_bounds=(-9, 9), **given, **PUBLISHED)
        .plan(40, 5)
        .releases[0]
        .mechanism
    )


@item("PLS, section 2.2: the analytic Gaussian mechanism for sensitivity 1")
def _() -> tuple[Any, Any]:
    return [analytic(e, 0.01) for e in (0.5, 1.0, 10.0)], [of_model(e).multiplier for e in (0.5, 1.0, 10.0)]


@item("PLS, (7) to (11): deviations of weights, scores, loadings and the y loading, by the largest row and response")
def _() -> tuple[Any, Any]:
    X, y = pls_data()
    made, (rows, responses) = of_model(), np.array(nipals(X, y)[1]).T
    s, (m, n) = analytic(1.0, 0.01), (5, 40)
    wanted = s * np.repeat([rows * responses, rows, rows, responses], [m, n, m, 1], axis=0).T
    return wanted, made._deviation(np.repeat([rows * responses, rows, rows, responses], [m, n, m, 1], axis=0).T)


@item("PLS, the authors' package: the variance stands where the deviation should")
def _() -> tuple[Any, Any]:
    sensitivity = np.array([0.2, 3.0])
    return (analytic(1.0, 0.01) * sensitivity) ** 2, of_model(sd="sigma^2")._deviation(sensitivity)


@pytest.mark.parametrize("name", list(ITEMS))
def test_ours_is_what_the_paper_prints(name: str) -> None:
    wanted, found = ITEMS[name]()
    if isinstance(wanted, str):
        assert found == wanted
        return
    scale = float(np.max(np.abs(np.asarray(wanted, dtype=float)))) or 1.0
    assert np.asarray(found, dtype=float) == pytest.approx(np.asarray(wanted, dtype=float), rel=2e-5, abs=2e-5 * scale)


def test_there_are_thirty_items_of_all_five_papers() -> None:
    papers = [name.split(",")[0] for name in ITEMS]
    assert len(ITEMS) >= 30
    assert set(papers) == {"PRIDE", "Stacking", "Bayes", "LASSO", "PLS"}
    assert min(papers.count(paper) for paper in set(papers)) >= 3
