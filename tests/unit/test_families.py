"""Families: derivatives and constants by brute force, and minimisers against SciPy's and scikit-learn's."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

from unpooled import PrideClassifier, PrideRegressor
from unpooled.errors import UsageError
from unpooled.families import FAMILIES, ROW_FAMILIES, Family
from unpooled.families.gamma import Gamma
from unpooled.families.negative_binomial import NegativeBinomial
from unpooled.families.poisson import Poisson
from unpooled.families.quantile import Quantile
from unpooled.kernels.newton import NewtonPath
from unpooled.kernels.ridge import RidgePath

#: Families whose pull has a bound that no declaration changes, and the squared loss; the others have a row in LOSSES.
BOUNDED = ("squared", "logistic", "huber")
RNG = np.random.default_rng(0)
U = np.linspace(-8, 8, 641)


def responses(family: Family, size: int) -> np.ndarray:
    return RNG.choice([-1.0, 1.0], size) if family.classes else RNG.normal(0, 3, size)


@pytest.mark.parametrize("family", [FAMILIES[name] for name in BOUNDED], ids=BOUNDED)
def test_derivatives_and_constants(family: Family) -> None:
    step = 1e-6
    for y in responses(family, 40):
        values = family.value(U, y)
        slopes = (family.value(U + step, y) - family.value(U - step, y)) / (2 * step)
        np.testing.assert_allclose(-family.pull(U, y), slopes, atol=1e-7)
        bends = np.diff(family.pull(U, y)) / -np.diff(U)  # between the points, where Huber's loss has its bend
        weights = family.weight(U, y)
        inside = np.abs(weights[1:] - weights[:-1]) < 1e-3
        np.testing.assert_allclose(bends[inside], (weights[1:] + weights[:-1])[inside] / 2, atol=1e-4)
        assert np.abs(slopes).max() <= family.slope + 1e-7
        assert bends.min() >= -1e-12
        assert bends.max() <= family.curvature + 1e-9
        assert (weights > 0).all()
        for moved in (1e-9, 0.3, -2.0, 30.0):
            exact = family.value(U + moved, y) - values
            np.testing.assert_allclose(
                family.change(U, y, np.full_like(U, moved)), exact, rtol=1e-9, atol=1e-13 * (1 + values.max())
            )
        # A short step's change keeps its digits where the difference of two values has none left.
        tiny = family.change(U, y, np.full_like(U, 1e-14))
        np.testing.assert_allclose(tiny, -1e-14 * family.pull(U, y), rtol=1e-6, atol=1e-24)
    if family.dispersed:
        for dispersion in (0.01, 0.5, 20.0):
            density = quad(lambda r: math.exp(-float(family.value(np.array(0.0), r)) / dispersion), -math.inf, math.inf)[0]
            assert family.log_normaliser(dispersion) == pytest.approx(math.log(density), rel=1e-6)


LOSSES: dict[str, tuple[Family, np.ndarray]] = {
    "poisson": (Poisson(), np.array([0.0, 1.0, 7.0])),
    "poisson, capped": (Poisson(cap=2.0), np.array([0.0, 1.0, 7.0])),
    "gamma": (Gamma(), np.array([0.01, 1.0, 7.0])),
    "gamma, capped": (Gamma(cap=1.5), np.array([0.01, 1.0, 7.0])),
    "negative-binomial": (NegativeBinomial(dispersion=0.5), np.array([0.0, 1.0, 7.0])),
    "quantile": (Quantile(tau=0.9), np.array([-1.0, 0.0, 2.0])),
}


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_and_constants_of_unbounded_losses(name: str) -> None:
    family, responses = LOSSES[name]
    u, step = np.linspace(-6, 6, 481), 1e-5
    for y in responses:
        values = family.value(u, y)
        slopes = (family.value(u + step, y) - family.value(u - step, y)) / (2 * step)
        np.testing.assert_allclose(-family.pull(u, y), slopes, rtol=1e-4, atol=1e-5)  # the bend between two points, too
        bends = np.diff(family.pull(u, y)) / -np.diff(u)
        weights = family.weight(u, y)
        assert (weights > 0).all()
        assert bends.min() >= -1e-9
        smooth = np.abs(weights[1:] - weights[:-1]) < 0.2 * np.maximum(bends, 1e-3)
        assert smooth.mean() > 0.8
        np.testing.assert_allclose(bends[smooth], (weights[1:] + weights[:-1])[smooth] / 2, rtol=0.02, atol=1e-6)
        most = float(responses.max())
        assert np.abs(slopes).max() <= family.steepest(most) + 1e-4
        for moved in (1e-9, 0.3, -2.0, 5.0):
            exact = family.value(u + moved, y) - values
            found = family.change(u, y, np.full_like(u, moved))
            np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-14 * (1 + np.abs(values).max()))
        tiny = family.change(u, y, np.full_like(u, 1e-14))
        np.testing.assert_allclose(tiny, -1e-14 * family.pull(u, y), rtol=1e-6, atol=1e-24 + 1e-30 * np.abs(values).max())
        far = family.change(u, y, np.full_like(u, 1e4))
        assert not np.isnan(far).any()
    reached = max(np.abs(family.pull(np.array([-60.0, 60.0]), y)).max() for y in (0.0, 1e-9, float(responses.max())))
    if "capped" in name or name in ("negative-binomial", "quantile"):  # the constant is the smallest one
        assert reached == pytest.approx(family.steepest(float(responses.max())), rel=1e-6)


def test_every_family_has_a_row_in_a_table() -> None:
    assert set(FAMILIES) == {*BOUNDED, *(name for name in LOSSES if "capped" not in name)}


@pytest.mark.parametrize("dispersion", [0.05, 0.5, 3.0])
def test_normalisers(dispersion: float) -> None:
    gamma, quantile = Gamma(), Quantile(tau=0.8)
    by_hand = quad(lambda z: math.exp(-float(gamma.value(np.array(0.0), np.exp(z))) / dispersion), -60, 20, limit=200)[0]
    assert gamma.log_normaliser(dispersion) == pytest.approx(math.log(by_hand), rel=1e-6, abs=1e-6)
    density = quad(
        lambda r: math.exp(-float(quantile.value(np.array(0.0), np.array(r))) / dispersion),
        -200,
        200,
        points=[-0.2, 0.2],
        limit=500,
    )[0]
    assert quantile.log_normaliser(dispersion) == pytest.approx(math.log(density), rel=1e-6)
    assert math.isfinite(quantile.log_normaliser(1e-4))


@pytest.mark.long
@pytest.mark.slow
def test_pulls_and_weights_are_derivatives_of_the_log_likelihood() -> None:
    """Against differences of the deviance, whose half is minus the log likelihood; the weight is the pull's variance."""
    for name in ROW_FAMILIES:
        family = ROW_FAMILIES[name]() if name == "logistic" else ROW_FAMILIES[name](0.01, 60.0, 0.5)
        for u, y in itertools.product((-1.0, 0.3, 1.5), (0.0, 1.0) if name == "logistic" else (1.0, 4.0)):
            pull, weight, most = family.pulled(u, y)
            sides = [float(family.deviance(np.array([y]), family.mean(np.array([u + h])))[0]) for h in (1e-5, -1e-5)]
            assert pull == pytest.approx(-(sides[0] - sides[1]) / 4e-5, rel=1e-4)
            mean = family.mean(np.array([u]))
            drawn = family.drawn(np.full(200_000, mean[0]), np.random.default_rng(1), 1.0)
            pulls = np.array([family.pulled(u, v)[0] for v in drawn[:20_000]])
            assert pulls.var() == pytest.approx(weight, rel=0.08), name
            assert np.mean(np.abs(pulls) > most) < 0.06


@pytest.mark.parametrize("shape", [(60, 8), (25, 70)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("family", [FAMILIES[name] for name in BOUNDED], ids=BOUNDED)
def test_newton_finds_every_familys_minimum(family: Family, intercept: bool, shape: tuple[int, int]) -> None:
    X, y = RNG.standard_normal(shape) + 0.3, responses(family, shape[0])
    for alpha in (0.1, 3.0):
        found = NewtonPath.of(X, y, family, fit_intercept=intercept).minimum(alpha)
        assert found.converged

        def objective(w: np.ndarray, alpha: float = alpha) -> tuple[float, np.ndarray]:
            u = X @ w[1:] + w[0]
            pull = family.pull(u, y)
            gradient = np.append(-pull.sum() if intercept else 0.0, alpha * w[1:] - X.T @ pull)
            return float(family.value(u, y).sum() + alpha / 2 * w[1:] @ w[1:]), gradient

        best = minimize(objective, np.zeros(shape[1] + 1), jac=True, method="BFGS", options={"gtol": 1e-9}).fun
        assert found.objective <= best + 1e-8 * abs(best)
        assert found.objective == pytest.approx(objective(np.append(found.intercept, found.coefficients))[0], rel=1e-9)


def test_a_squared_loss_is_ridge_regression() -> None:
    X, y = RNG.standard_normal((50, 6)), RNG.standard_normal(50)
    by_newton, in_closed_form = NewtonPath.of(X, y, FAMILIES["squared"]), RidgePath.of(X, y)
    np.testing.assert_allclose(by_newton.solve(2.0)[0], in_closed_form.solve(2.0)[0], atol=1e-9)
    folds = np.array_split(np.arange(50), 5)
    losses, errors = (path.cross_validated([0.1, 10.0], folds) for path in (by_newton, in_closed_form))
    np.testing.assert_allclose(2 * losses, errors, rtol=1e-7)
    # The likeliest dispersion makes Laplace's evidence that of the profile, but for the intercept's degree of freedom.
    assert by_newton.evidence_alpha() == pytest.approx(in_closed_form.evidence_alpha(), rel=0.05)


def test_huber_shrugs_off_what_a_squared_loss_does_not() -> None:
    """Through the study: 5 % of the responses are off by 50 deviations, and one in each unit of measurement."""
    X = RNG.uniform(-1, 1, (400, 12))
    truth = RNG.normal(size=12)
    y = X @ truth + 0.1 * RNG.standard_normal(400)
    y[::20] += 5.0
    options = {
        "parties": 2,
        "epsilon": math.inf,
        "bounds": (-1, 1),
        "sketch_dim": 8,
    }  # of 6 columns, padded to 8: nothing is lost

    def error(unit: float = 1.0, **own: object) -> float:
        fitted = PrideRegressor(**options, **own).fit(X, unit * y)
        return float(np.linalg.norm(fitted.coef_ / unit - truth))

    robust = error(loss="huber")
    assert robust < 0.4 * error()
    assert error(1000.0, loss="huber") == pytest.approx(robust, rel=1e-5)
    assert error(loss="huber", threshold=1e6) == pytest.approx(error(), rel=0.2)  # so far out it is the squared loss


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (PrideRegressor(loss="logistic"), "squared, huber"),
        (PrideClassifier(loss="huber"), "logistic"),
        (PrideRegressor(threshold=1.0), "belongs to loss = huber"),
        (PrideRegressor(loss="huber", threshold=0.0), "positive"),
        (PrideRegressor(loss="huber", alpha="global-cv"), "global-cv"),
        (
            PrideRegressor(loss="huber", alpha=1.0, publish=0.5, noise_model="plain", fit_intercept=False),
            "declared threshold",
        ),
    ],
)
def test_losses_that_do_not_fit_are_refused(estimator: PrideRegressor, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        estimator.set_params(bounds=(-1, 1), **({"classes": (0, 1)} if "classes" in estimator.get_params() else {})).plan(
            50, 4
        )
