"""``PrideGLM``: every family against an oracle of its own, parties against the pooled rows, what is published, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, gammaln
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, QuantileRegressor
from world import FULL

from unpooled import Bounds, PrideClassifier, PrideGLM, PrideRegressor, PrivacyLeakWarning
from unpooled.cli.party import prediction_lines
from unpooled.errors import DataError, UsageError
from unpooled.families import FAMILIES, Family
from unpooled.families.gamma import Gamma
from unpooled.families.poisson import Poisson
from unpooled.kernels.newton import MoreauEnvelope, NewtonPath
from unpooled.models import load
from unpooled.models.pride.declared import CLASSES, NUMBERS, JointFamily, Parameters
from unpooled.models.pride.local import DesignProblem, path_of
from unpooled.models.pride.plan import coefficients_reach, parts_of, unit_of
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process
from unpooled.study.made_up import made_up

RNG = np.random.default_rng(0)
N = 240
X = RNG.uniform(-1, 1, (N, 8))
SIGNAL = 1.5 * X[:, 0] - X[:, 5] + 0.5 * X[:, 3]
TIME, CENSORED = RNG.exponential(np.exp(-SIGNAL)).round(2) + 0.01, RNG.exponential(1.5, N).round(2) + 0.01
RESPONSES: dict[str, Any] = {
    "squared": SIGNAL + RNG.normal(size=N),
    "huber": SIGNAL + RNG.standard_t(2, size=N),
    "quantile": SIGNAL + RNG.normal(size=N),
    "poisson": RNG.poisson(np.exp(0.5 + SIGNAL)).astype(float),
    "gamma": np.exp(SIGNAL) * RNG.gamma(2.0, 0.5, N),
    "negative-binomial": RNG.poisson(np.exp(0.5 + SIGNAL) * RNG.gamma(2.0, 0.5, N)).astype(float),
    "cox": np.minimum(TIME, CENSORED),
    "logistic": np.where(SIGNAL + RNG.logistic(size=N) > 0, "yes", "no"),
    "multinomial": np.array(["a", "b", "c"])[np.argmax(np.outer(SIGNAL, [-1, 0, 1]) + RNG.gumbel(size=(N, 3)), axis=1)],
    "ordinal": np.array(["low", "mid", "top", "best"])[np.digitize(SIGNAL + RNG.logistic(size=N), [-1, 0.5, 2])],
}
EVENT = (TIME <= CENSORED) * 1
OPTIONS: dict[str, dict[str, Any]] = {
    "logistic": {"classes": ("no", "yes")},
    "multinomial": {"classes": ("a", "b", "c")},
    "ordinal": {"classes": ("low", "mid", "top", "best")},
    "negative-binomial": {"dispersion": 0.5},
    "quantile": {"quantile": 0.75, "threshold": 0.4},
    "huber": {"threshold": 1.0},
}
ALL = (*NUMBERS, *CLASSES)


def fitted(family: str, rows: np.ndarray = X, **parameters: Any) -> PrideGLM:
    more = {"event": EVENT[: len(rows)]} if family == "cox" else {}
    options = {"epsilon": math.inf, "bounds": (-1, 1), **OPTIONS.get(family, {}), **parameters}
    y = options.pop("y", RESPONSES[family])
    return PrideGLM(family, **options).fit(rows, y[: len(rows)], **more)


def test_a_gamma_evidence_is_that_of_the_gamma_law() -> None:
    """Differences of the criterion are differences of the law's own log likelihood, at its likeliest dispersion."""
    y, family = RESPONSES["gamma"], Gamma()
    for u in (SIGNAL, np.zeros(N)):
        mean = np.exp(u)

        def negative(shape: float, mean: np.ndarray = mean) -> float:
            law = shape * np.log(shape / mean) + (shape - 1) * np.log(y) - shape * y / mean - gammaln(shape)
            return -2 * float(law.sum())

        for shape in (0.7, 2.0, 9.0):
            found = 2 * (float(family.value(u, y).sum()) * shape + N * family.log_normaliser(1 / shape))
            assert found + 2 * float(np.log(y).sum()) == pytest.approx(negative(shape), rel=1e-10)


@pytest.mark.parametrize("name", ["poisson", "gamma", "negative-binomial"])
def test_newton_and_row_effects(name: str) -> None:
    family, y = FAMILIES[name], RESPONSES[name][:60]
    rows = X[:60]
    found = NewtonPath.of(rows, y, family).minimum(0.5)
    assert found.converged
    t = 0.4
    envelope = MoreauEnvelope(family, t)
    u, e = SIGNAL[:60], np.linspace(-8, 8, 160_001)
    for i in (0, 5, 17):
        by_hand = (family.value(u[i] + e, y[i]) + e**2 / (2 * t)).min()
        assert envelope.value(u, y)[i] == pytest.approx(by_hand, rel=1e-6, abs=1e-6)
    information = family.information(envelope.shifted(u, y), y)
    np.testing.assert_allclose(envelope.information(u, y), information / (1 + t * information))
    assert envelope.bend(y) == pytest.approx(1 / (1 / family.bend(y) + t))


@pytest.mark.parametrize("name", ["logistic", "huber", "poisson", "gamma", "negative-binomial"])
def test_roots_of_row_effects_are_exact_wherever_the_search_begins(name: str) -> None:
    """From next to no variance to one at which f' is a wall; anew, and from the roots before of decisions near and far."""
    family, y = FAMILIES[name], (np.where(SIGNAL > 0, 1.0, -1.0) if name == "logistic" else RESPONSES[name])[:60]
    u = SIGNAL[:60]
    for t in (1e-6, 1e-2, 1.0, 1e3, 1e6):
        near = MoreauEnvelope(family, t)
        for moved in (0.0, 1e-9, 0.1, -6.0, 6.0):
            v = near.shifted(u + moved, y)
            np.testing.assert_allclose(v, MoreauEnvelope(family, t).shifted(u + moved, y), rtol=1e-13, atol=1e-13)
            off = (v - u - moved - t * family.pull(v, y)) / (1 + t * family.weight(v, y))
            assert (np.abs(off) <= 2e-15 * (1 + np.abs(u + moved) + np.abs(v))).all()


# --- oracles: one party ------------------------------------------------------------------------------------------------------


def scipy_minimum(objective: Any, size: int) -> np.ndarray:
    found = minimize(objective, np.zeros(size), method="BFGS", options={"gtol": 1e-8, "maxiter": 2000}).x
    return minimize(objective, found, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 1}).x


def breslow(w: np.ndarray) -> float:
    """Cox's partial likelihood as its definition has it, event by event."""
    u, time = X @ w, RESPONSES["cox"]
    return -sum(u[i] - math.log(np.exp(u[time >= time[i]]).sum()) for i in np.flatnonzero(EVENT))


def ordered(w: np.ndarray, cuts: np.ndarray) -> float:
    padded = np.concatenate([[-np.inf], np.cumsum([cuts[0], *np.exp(cuts[1:])]), [np.inf]])
    place = np.array([("low", "mid", "top", "best").index(each) for each in RESPONSES["ordinal"]])
    u = X @ w
    return -float(np.log(expit(padded[place + 1] - u) - expit(padded[place] - u)).sum())


ALPHA = 2.0


def oracle(family: str) -> np.ndarray:
    y, options = RESPONSES[family], OPTIONS.get(family, {})
    if family in ("poisson", "gamma"):
        kind = PoissonRegressor if family == "poisson" else GammaRegressor
        return kind(alpha=ALPHA / N, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(X, y).coef_
    if family in ("logistic", "multinomial"):
        model = LogisticRegression(C=1 / ALPHA, tol=1e-12, max_iter=10_000)
        return np.squeeze(model.fit(X, y).coef_)
    if family == "cox":
        return scipy_minimum(lambda w: breslow(w) + ALPHA / 2 * w @ w, 8)
    if family == "ordinal":
        return scipy_minimum(lambda w: ordered(w[3:], w[:3]) + ALPHA / 2 * w[3:] @ w[3:], 11)[3:]
    if family == "negative-binomial":

        def negative(w: np.ndarray) -> float:
            mean, theta = np.exp(X @ w[1:] + w[0]), 1 / options["dispersion"]
            return float(((y + theta) * np.log(theta + mean) - y * np.log(mean)).sum()) + ALPHA / 2 * w[1:] @ w[1:]

        return scipy_minimum(negative, 9)[1:]
    # In units of the declared threshold: Huber's bend at 1.345, half a width of 0.2.
    unit = options["threshold"] / (1.345 if family == "huber" else 0.2) if options else 1.0

    def robust(w: np.ndarray) -> float:
        r, penalty = y / unit - X @ w[1:] - w[0], ALPHA / 2 * w[1:] @ w[1:]
        if family == "squared":
            return float((r**2).sum()) / 2 + penalty
        if family == "huber":
            return float(np.where(np.abs(r) <= 1.345, r**2 / 2, 1.345 * np.abs(r) - 1.345**2 / 2).sum()) + penalty
        tau = options["quantile"]
        return float(np.where(np.abs(r) <= 0.2, (tau - 0.5) * r + r**2 / 0.8 + 0.05, r * (tau - (r < 0))).sum()) + penalty

    return unit * scipy_minimum(robust, 9)[1:]


@pytest.mark.parametrize("noise_model", ["gram", "plain"])
@pytest.mark.parametrize("family", ALL)
def test_one_party_is_the_penalised_fit(family: str, noise_model: str) -> None:
    found = fitted(family, parties=1, alpha=ALPHA, noise_model=noise_model).coef_
    # SciPy's quasi-Newton methods stop at about 1e-6; of what scikit-learn fits more digits are there.
    np.testing.assert_allclose(found, oracle(family), atol=1e-6 if family in ("poisson", "gamma", "logistic") else 5e-6)


def test_a_narrow_smoothing_is_nearly_scikit_learns_quantile_regression() -> None:
    exact = QuantileRegressor(quantile=0.75, alpha=0.0).fit(X, RESPONSES["quantile"])
    near = fitted("quantile", parties=1, alpha=1e-4, threshold=0.02)
    np.testing.assert_allclose(near.coef_, exact.coef_, atol=0.06)
    below = float(np.mean(RESPONSES["quantile"] < near.predict(X)))
    assert below == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("family", ["squared", "huber", "logistic"])
def test_the_two_older_estimators_are_rows_of_this_one(family: str) -> None:
    mine = fitted(family, parties=2, alpha="marginal-likelihood")
    if family == "logistic":
        theirs = PrideClassifier(2, epsilon=math.inf, bounds=(-1, 1), **OPTIONS[family]).fit(X, RESPONSES[family])
        assert (mine.predict(X) == theirs.predict(X)).all()
        np.testing.assert_allclose(mine.predict_proba(X), theirs.predict_proba(X), rtol=1e-12)
    else:
        more = {"loss": "huber", **OPTIONS["huber"]} if family == "huber" else {}
        theirs = PrideRegressor(2, epsilon=math.inf, bounds=(-1, 1), **more).fit(X, RESPONSES[family])
        np.testing.assert_array_equal(mine.predict(X), theirs.predict(X))
    np.testing.assert_array_equal(mine.coef_, theirs.coef_)
    assert mine.intercept_ == theirs.intercept_


# --- parties -----------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("family", [each for each in ALL if each != "quantile"])
def test_sketches_that_lose_nothing_give_the_pooled_fit(family: str) -> None:
    """Four columns at each of two parties, four columns of an orthogonal sketch: G is known, and every party finds its part of the pooled fit."""
    pooled = fitted(family, parties=1, alpha=ALPHA)
    parted = fitted(family, parties=2, alpha=ALPHA, sketch_dim=4)
    np.testing.assert_allclose(parted.coef_, pooled.coef_, atol=2e-6)
    np.testing.assert_allclose(parted.intercept_, pooled.intercept_, atol=2e-6)
    at_one = parted.predict_at("party0", X[:20])
    if family in CLASSES:
        assert (at_one == pooled.predict(X[:20])).all()
    else:
        np.testing.assert_allclose(at_one, pooled.predict(X[:20]), rtol=1e-5)


@pytest.mark.long
@pytest.mark.slow_for("multinomial-local-cv", "poisson-local-cv", "quantile-local-cv", "cox-local-cv")
@pytest.mark.minutes
@pytest.mark.parametrize("alpha", ["marginal-likelihood", "local-cv"])
@pytest.mark.parametrize("family", ALL if FULL else ["poisson", "quantile", "cox", "multinomial"])
def test_without_noise_the_parties_are_close_to_the_pooled_rows(family: str, alpha: str) -> None:
    rng = np.random.default_rng(7)
    rows = np.clip((rng.normal(size=(N, 3)) @ rng.normal(size=(3, 8)) + rng.normal(size=(N, 8))) / 5, -1, 1)
    rows[:, [0, 3, 5]] = X[:, [0, 3, 5]]
    more = {"event": EVENT} if family == "cox" else {}
    score = {parties: fitted(family, rows, parties=parties, alpha=alpha) for parties in (1, 2)}
    pooled, parted = (score[k].score(rows, RESPONSES[family], **more) for k in (1, 2))
    if family == "quantile" or alpha == "marginal-likelihood":
        assert parted > 0.6 * pooled > 0.05
    assert set(score[2].alpha_) == {"party0", "party1"}


@pytest.mark.slow
@pytest.mark.minutes
def test_a_budget_buys_nearness() -> None:
    """The other party's columns measure one thing that one's own hardly show: only its sketch tells how much it counts."""
    rng = np.random.default_rng(2)
    n = 500
    hidden = rng.normal(size=n)
    one = np.clip((rng.normal(size=(n, 12)) + 0.5 * hidden[:, None]) / 4, -1, 1)
    other = np.clip((0.2 * rng.normal(size=(n, 12)) + hidden[:, None]) / 4, -1, 1)
    rows, y = np.hstack([one, other]), rng.poisson(np.exp(1 + hidden / 2)).astype(float)
    pooled = PrideGLM("poisson", parties=1, bounds=(-1, 1), epsilon=math.inf).fit(rows, y)

    def error(epsilon: float) -> float:
        fit = PrideGLM("poisson", parties=2, bounds=(-1, 1), epsilon=epsilon, sketch_dim=0.5, random_state=1).fit(rows, y)
        assert [release.name for release in fit.plan_.releases] == ["sketch", "sketch"]  # nothing else is paid for
        return float(np.linalg.norm(fit.coef_[:12] - pooled.coef_[:12]))

    assert error(1000.0) < 0.5 * error(0.1)


# --- what the families say of new rows ---------------------------------------------------------------------------------------


def test_survival() -> None:
    model = fitted("cox", parties=2)
    assert (np.diff(model.baseline_times_) > 0).all()
    assert (np.diff(model.baseline_hazard_) > 0).all()
    np.testing.assert_array_equal(model.hazard_ratios_, np.exp(model.coef_))
    assert float(model.linear_predictor(X).mean()) == pytest.approx(0, abs=1e-9)
    chances = model.predict_survival(X, [0.0, 0.5, 1.0, 99.0])
    assert (chances[:, 0] == 1).all()
    assert (np.diff(chances, axis=1) < 0).all()
    # Breslow by hand: events over the sum of relative hazards of those at risk.
    relative, time = np.exp(model.linear_predictor(X)), RESPONSES["cox"]
    by_hand = [EVENT[time == t].sum() / relative[time >= t].sum() for t in model.baseline_times_]
    np.testing.assert_allclose(model.baseline_hazard_, np.cumsum(by_hand))
    assert model.score(X, time, event=EVENT) > 0.65
    assert not hasattr(model, "predict_proba")
    # A party's own baseline is of its own fit: the same where the sketches lose nothing.
    exact = fitted("cox", parties=2, alpha=ALPHA, sketch_dim=4)
    for kept in exact.kept_.values():
        np.testing.assert_array_equal(kept["baseline_times"], exact.baseline_times_)
        np.testing.assert_allclose(kept["baseline_hazard"], exact.baseline_hazard_, rtol=1e-5)
    everybody = PrideGLM("cox", parties=1, bounds=(-1, 1), epsilon=math.inf).fit(X, time)
    assert everybody.score(X, time) > 0.6


@pytest.mark.slow_for("multinomial")
@pytest.mark.parametrize("family", CLASSES)
def test_probabilities(family: str) -> None:
    model = fitted(family, parties=2)
    chances = model.predict_proba(X)
    assert (chances >= 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (model.predict(X) == model.classes_[np.argmax(chances, axis=1)]).all()
    frequencies = [np.mean(RESPONSES[family] == each) for each in model.classes_]
    np.testing.assert_allclose(chances.mean(axis=0), frequencies, atol=0.06)
    assert model.score(X, RESPONSES[family]) > 0.38
    decided = model.decision_function(X)
    assert (np.argmax(decided, axis=1) == np.argmax(chances, axis=1)).all() if family != "logistic" else decided.ndim == 1
    two = fitted("multinomial" if family == "multinomial" else "ordinal", classes=None, bounds=(-1, 1), y=SIGNAL > 0)
    np.testing.assert_allclose(expit(two.decision_function(X)), two.predict_proba(X)[:, 1], rtol=1e-9)
    with pytest.raises(AttributeError, match="family 'cox'"):
        _ = model.hazard_ratios_
    if family == "multinomial":
        np.testing.assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-9)
    if family == "ordinal":
        assert (np.diff(model.intercept_) < 0).all()
        assert list(model.classes_) == ["low", "mid", "top", "best"]
    if family != "logistic":
        with pytest.raises(UsageError, match="to_sklearn"):
            model.to_sklearn()
    else:
        np.testing.assert_allclose(model.to_sklearn().predict_proba(X), chances)


@pytest.mark.slow
def test_classes_are_read_off_the_data_with_a_warning() -> None:
    with pytest.warns(PrivacyLeakWarning, match="read off the labels"):
        model = PrideGLM("multinomial", bounds=(-1, 1), epsilon=1e4, random_state=0).fit(X, RESPONSES["multinomial"])
    assert not model.statement_.holds
    with pytest.raises(UsageError, match="only one class"):
        PrideGLM("multinomial", bounds=(-1, 1), epsilon=math.inf).fit(X, np.zeros(N))
    numbers = PrideGLM("ordinal", bounds=(-1, 1), epsilon=math.inf, classes=(3, 1, 2)).fit(X, 1 + np.arange(N) % 3)
    assert set(numbers.predict(X)) <= {1, 2, 3}
    bools = PrideGLM("multinomial", bounds=(-1, 1), epsilon=math.inf, classes=(False, True)).fit(X, SIGNAL > 0)
    assert bools.score(X, SIGNAL > 0) > 0.9


@pytest.mark.slow
@pytest.mark.minutes
def test_a_declared_class_that_none_has() -> None:
    for family in ("multinomial", "ordinal"):
        classes = (*OPTIONS[family]["classes"], "none")
        model = fitted(family, classes=classes)
        assert np.isfinite(model.coef_).all()
        assert model.predict_proba(X)[:, list(model.classes_).index("none")].max() < 0.05


def test_without_a_threshold_the_unit_follows_the_data() -> None:
    """A quantile's smoothing is 0.2 robust deviations of what a first fit leaves: the fit does not depend on units of measurement."""
    model, other = (
        PrideGLM("quantile", quantile=0.75, parties=2, bounds=(-1, 1), epsilon=math.inf).fit(X, unit * RESPONSES["quantile"])
        for unit in (1.0, 1000.0)
    )
    np.testing.assert_allclose(other.coef_, 1000 * model.coef_, rtol=1e-4, atol=1e-2)
    assert float(np.mean(RESPONSES["quantile"] < model.predict(X))) == pytest.approx(0.75, abs=0.08)


@pytest.mark.minutes
def test_scores_of_numbers() -> None:
    model = fitted("poisson", parties=2)
    y, mean = RESPONSES["poisson"], float(RESPONSES["poisson"].mean())
    best = np.full(N, math.log(mean))
    explained = 1 - Poisson().excess(model.linear_predictor(X), y).sum() / Poisson().excess(best, y).sum()
    assert model.score(X, y) == pytest.approx(explained)
    np.testing.assert_allclose(model.predict(X), np.exp(model.linear_predictor(X)))
    from sklearn.metrics import d2_tweedie_score, r2_score

    assert model.score(X, y) == pytest.approx(d2_tweedie_score(y, model.predict(X), power=1))
    gamma = fitted("gamma", parties=2)
    assert gamma.score(X, RESPONSES["gamma"]) == pytest.approx(
        d2_tweedie_score(RESPONSES["gamma"], gamma.predict(X), power=2)
    )
    squared = fitted("squared", parties=2)
    assert squared.score(X, RESPONSES["squared"]) == pytest.approx(r2_score(RESPONSES["squared"], squared.predict(X)))
    assert fitted("negative-binomial").score(X, RESPONSES["negative-binomial"]) > 0.1
    with pytest.raises(UsageError, match="family 'cox'"):
        model.score(X, y, event=EVENT)


def test_parties_that_only_send() -> None:
    model = fitted("multinomial", parties={"a": range(4), "b": range(4, 8)}, estimating=["a"])
    assert np.isnan(model.coef_[:, 4:]).all()
    assert np.isfinite(model.coef_[:, :4]).all()
    with pytest.raises(UsageError, match="predict_at"):
        model.predict(X)
    assert set(model.predict_at("a", X[:9])) <= {"a", "b", "c"}
    cox = fitted("cox", parties={"a": range(4), "b": range(4, 8)}, estimating=["a"])
    assert not hasattr(cox, "baseline_times_")
    assert np.isfinite(cox.predict_at("a", X[:9])).all()


@pytest.mark.parametrize("family", ["cox", "multinomial", "ordinal", "poisson"])
def test_what_a_party_keeps_reads_line_by_line(family: str) -> None:
    model = fitted(family, parties={"a": range(4), "b": range(4, 8)})
    terms = {t.term: t.estimate for t in load("pride").reading.kept_terms(model.plan_, "a", model.kept_["a"])}
    constants = {"cox": 0, "multinomial": 3, "ordinal": 3, "poisson": 1}[family]
    lines = 4 * (3 if family == "multinomial" else 1)
    assert len(terms) == lines + constants
    if family == "multinomial":
        np.testing.assert_allclose([terms[f"{c}: x{j}"] for c in "abc" for j in range(4)], model.coef_[:, :4].ravel())
    else:
        np.testing.assert_allclose([terms[f"x{j}"] for j in range(4)], model.coef_[:4])
    if family == "ordinal":
        assert "above mid: (fit at the columns' means)" in terms


def test_predictions_of_several_decisions_are_several_columns() -> None:
    """As ``unpooled party export`` writes them."""
    assert prediction_lines(np.array([0.5, 1.5]), None, None) == b"prediction\n0.5\n1.5\n"
    assert prediction_lines(np.array([0.5]), "id", ["p1"]) == b"id,prediction\np1,0.5\n"
    several = prediction_lines(np.array([[0.5, -0.5], [1.0, 2.0]]), "id", ["p1", "p2"])
    assert several == b"id,prediction 1,prediction 2\np1,0.5,-0.5\np2,1.0,2.0\n"


# --- published coefficients -----------------------------------------------------------------------------------------------------

PUBLISHED: dict[str, dict[str, Any]] = {
    "poisson": {"response_bound": 4.0, "cap": 1.2},
    "gamma": {"response_bound": 4.0, "cap": 0.7},
    "negative-binomial": {"response_bound": 4.0, "dispersion": 0.5},
    "quantile": {"threshold": 0.2, "quantile": 0.8},
    "multinomial": {"classes": ("0", "1", "2")},
}


def minimiser(law: Family | JointFamily, own: np.ndarray, received: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    if isinstance(law, JointFamily):
        return DesignProblem(own, received).path(law, y[:, None], fit_intercept=False).solve(alpha).own.ravel()
    return path_of(law, np.hstack([own, received]), y, fit_intercept=False).solve(alpha)[0]


def largest_move(family: str, **declared: Any) -> float:
    """The largest measured move of the published coefficients over the bound: random and extreme rows and responses, every column one."""
    rng = np.random.default_rng(6)
    largest = 0.0
    for width in (1, 4):
        columns = Bounds(-1, 1).columns([f"x{j}" for j in range(width)])
        part = parts_of(Study("pride", (Card("a", 15, columns, ("y",)),), 1.0, 1e-6, unit="attribute", derived=()))[0]
        for alpha in (0.5, 50.0):
            parameters = Parameters(
                family=family,
                alpha=alpha,
                fit_intercept=False,
                noise_model="plain",
                publish=0.5,
                **PUBLISHED[family] | declared,
            )
            unit, ends = unit_of(parameters, np.empty(0)), (1e-6, 4.0) if family == "gamma" else (0.0, 4.0)
            ends = {"quantile": (-4.0, 4.0), "multinomial": (0.0, 2.0)}.get(family, ends)
            for received in (np.zeros((15, 0)), rng.normal(size=(15, 2)) * 2):
                reach = coefficients_reach(part, 15, parameters, received)
                for trial in range(60):
                    own = rng.choice([-1.0, 0.0, 1.0], (15, width)) if trial % 2 else rng.uniform(-1, 1, (15, width))
                    y = rng.choice(ends, 15) if trial % 3 else rng.uniform(*ends, 15)
                    y = np.round(y) if family == "multinomial" else y
                    other, changed = own.copy(), y.copy()
                    if trial % 5 == 0:  # replace one value, as unit attribute does
                        other[0, 0] = -own[0, 0] or 1.0
                    else:
                        other[0], changed[0] = -own[0], ends[int(y[0] < np.mean(ends))]
                    one, two = (
                        unit * minimiser(parameters.law, x, received, r / unit, alpha)
                        for x, r in ((own, y), (other, changed))
                    )
                    largest = max(largest, float(np.linalg.norm(one - two)) / reach)
    return largest


@pytest.mark.long_for("multinomial")
@pytest.mark.slow_for("quantile", "multinomial", "poisson", "gamma", "negative-binomial")
@pytest.mark.parametrize("family", PUBLISHED)
def test_published_coefficients_move_by_at_most_the_closed_form(family: str) -> None:
    """Theorem P.11."""
    largest = largest_move(family)
    assert 0.2 < largest <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "wrong"), [("gamma", {"response_bound": 1.0}), ("poisson", {"response_bound": 0.1, "cap": 0.1})]
)
def test_a_bound_below_the_responses_is_caught(family: str, wrong: dict[str, Any]) -> None:
    """The control: responses are up to 4, and the bound is for smaller ones (Theorem P.11)."""
    assert largest_move(family, **wrong) > 1


@pytest.mark.parametrize("family", PUBLISHED)
def test_publishing_is_planned_within_the_budget(family: str) -> None:
    y = np.array(["0", "1", "2"])[np.arange(N) % 3] if family == "multinomial" else np.clip(RESPONSES[family], None, 4.0)
    bounds = {"y_bounds": (0, 4)} if "response_bound" in PUBLISHED[family] else {}
    declared = {key: value for key, value in PUBLISHED[family].items() if key != "response_bound"}
    options = {"parties": 2, "bounds": (-1, 1), "alpha": 500.0, "fit_intercept": False, "noise_model": "plain"}
    model = PrideGLM(family, publish=0.5, epsilon=2.0, delta=1e-6, **options, **bounds, **declared).fit(X, y)
    assert model.plan_.epsilon(1e-6) == pytest.approx(2.0, rel=1e-4)
    assert {release.name for release in model.plan_.releases} == {"sketch", "coefficients"}
    assert model.published_["party1"].shape == ((3, 4) if family == "multinomial" else (4,))
    exact = PrideGLM(family, publish=0.5, epsilon=math.inf, **options, **bounds, **declared).fit(X, y)
    np.testing.assert_allclose(np.concatenate(list(exact.published_.values()), axis=-1), exact.coef_)


@pytest.mark.parametrize("family", ["cox", "ordinal"])
def test_what_has_no_bound_is_not_published(family: str) -> None:
    with pytest.raises(UsageError, match=f"publish is not for family = {family}: "):
        fitted(family, publish=0.5, alpha=1.0, noise_model="plain", fit_intercept=True)


# --- refusals -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("weibull", {}, "family is one of .*take 'cox'"),
        ("poisson", {"cap": 60.0}, "cap is a positive number up to 50"),
        ("squared", {"cap": 1.0}, "belongs to family = poisson or gamma"),
        ("poisson", {"dispersion": 2.0}, "dispersion"),
        ("negative-binomial", {"dispersion": 0.0}, "dispersion"),
        ("squared", {"quantile": 0.3}, "quantile"),
        ("quantile", {"quantile": 1.0}, "quantile lies between"),
        ("poisson", {"threshold": 1.0}, "threshold"),
        ("cox", {"fit_intercept": False}, "in the place of a constant"),
        ("ordinal", {"fit_intercept": False, "classes": ("a", "b")}, "in the place of a constant"),
        ("poisson", {"alpha": "global-cv"}, "global-cv"),
        ("poisson", {"calibration": "published", "delta": 0.01}, "calibration = 'sound'"),
        ("logistic", {"classes": ("a", "b", "c")}, "classes"),
        ("multinomial", {"classes": ("a", "a", "b")}, "different labels"),
        ("multinomial", {"classes": ("1", "1.0", "b")}, "different labels"),
        ("multinomial", {"classes": ("a", 1, "b")}, "labels of one kind"),
        ("multinomial", {"classes": None}, "a plan needs the classes"),
        (
            "poisson",
            {"publish": 0.5, "alpha": 1.0, "fit_intercept": False, "noise_model": "plain", "y_bounds": (0, 3)},
            "needs cap",
        ),
        (
            "negative-binomial",
            {"publish": 0.5, "alpha": 1.0, "fit_intercept": False, "noise_model": "plain"},
            "needs response_bound",
        ),
        ("quantile", {"publish": 0.5, "alpha": 1.0, "fit_intercept": False, "noise_model": "plain"}, "quantile loss"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_data(family: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PrideGLM(family, bounds=(-1, 1), **options).plan(50, 4)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("family", "response", "more"),
    [
        ("poisson", -RESPONSES["poisson"] - 1, {}),
        ("negative-binomial", -RESPONSES["poisson"] - 1, {}),
        ("gamma", RESPONSES["gamma"] * 0, {}),
        ("cox", RESPONSES["cox"] - 5, {"event": EVENT}),
        ("cox", RESPONSES["cox"], {"event": EVENT + 1}),
        ("cox", RESPONSES["cox"], {"event": EVENT[:5]}),
        ("multinomial", RESPONSES["ordinal"], {}),
    ],
)
def test_responses_that_are_none_of_the_family_are_refused_unspent(family: str, response: np.ndarray, more: dict) -> None:
    model = PrideGLM(family, bounds=(-1, 1), epsilon=1e4, random_state=0, **OPTIONS.get(family, {}))
    with pytest.raises(DataError) as caught:
        model.fit(X, response, **more)
    assert not hasattr(model, "ledger_")
    assert not any(str(value) in str(caught.value) for value in response[:5].tolist() if len(str(value)) > 3)
    with pytest.raises(UsageError, match="family 'cox'"):
        fitted("poisson").fit(X, RESPONSES["poisson"], event=EVENT)


def test_other_losses_are_not_for_the_older_estimators() -> None:
    with pytest.raises(UsageError, match="PrideGLM"):
        PrideRegressor(bounds=(-1, 1), loss="poisson").plan(50, 4)


def study_of(cards: tuple[Card, ...], **parameters: Any) -> Study:
    return Study("pride", cards, 1e4, 1e-6, unit="attribute", parameters=parameters, simulation_seed=1, derived=())


def test_studies_take_the_family_by_either_name() -> None:
    columns = Bounds(-1, 1).columns(["x0", "x1"])
    cards = tuple(Card(name, N, columns, ("y",)) for name in ("a", "b"))
    for name in ("family", "loss"):
        plan = load("pride").compile(study_of(cards, **{name: "poisson"}))
        assert plan.design.parameters.named == "poisson"
    for wrong, words in (
        ({"family": "poisson", "loss": "huber"}, "older name"),
        ({"family": "poisson", "task": "classification"}, "where task = classification"),
        ({"family": "cox"}, "needs event"),
        ({"family": "cox", "event": "y"}, "needs event"),
        ({"family": "poisson", "event": "died"}, "no other family has one"),
        ({"family": "cox", "event": "died"}, "label columns 'y' and 'died'"),
        ({"family": "multinomial", "classes": ["a"]}, "two or more"),
        ({"family": "poisson", "classes": ["a", "b"]}, "classes belong to"),
    ):
        with pytest.raises(UsageError, match=words):
            load("pride").compile(study_of(cards, **wrong))


def test_audits_make_up_labels_that_the_family_takes() -> None:
    columns, rng = Bounds(-1, 1).columns(["x0", "x1"]), np.random.default_rng(0)
    cards = tuple(Card(name, 60, columns, ("y", "died")) for name in ("a", "b"))
    for family, fits in (
        ("poisson", lambda y: (y >= 0).all() and (y == y.round()).all() and y.max() > 1),
        ("gamma", lambda y: (y > 0).all()),
        ("negative-binomial", lambda y: (y >= 0).all()),
        ("cox", lambda y: (y > 0).all()),
        ("multinomial", lambda y: set(y) == {"a", "b", "c"}),
        ("ordinal", lambda y: set(y) == {"a", "b", "c"}),
        ("logistic", lambda y: set(y) == {"a", "b"}),
    ):
        more: dict[str, Any] = {"event": "died"} if family == "cox" else {}
        if family in CLASSES:
            more["classes"] = ["a", "b"] if family == "logistic" else ["a", "b", "c"]
        study = study_of(cards, family=family, **more)
        _, tables = made_up(load("pride"), study, rows=60)
        assert fits(tables["a"]["y"])
        assert (tables["a"]["y"] == tables["b"]["y"]).all()
        assert set(np.unique(tables["a"]["died"])) == ({0.0, 1.0} if family == "cox" else {-1.0, 1.0})
    assert load("pride").made_up_labels(study_of(cards), 5, rng) == {}
    assert load("pls").made_up_labels is None


def test_labels_of_text_are_no_numbers() -> None:
    columns = Bounds(-1, 1).columns(["x0"])
    cards = (Card("a", N, columns, ("y",)),)
    plan = load("pride").compile(study_of(cards, family="poisson"))
    table = Table({"x0": X[:, 0], "y": np.full(N, "SECRET", dtype=object)})
    with pytest.raises(DataError, match="holds text") as caught:
        run_in_process(load("pride"), plan, {"a": table}, Policy.in_process(), lambda _: load("pride"))
    assert "SECRET" not in str(caught.value)


# --- what to expect -------------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("cox", "poisson")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("family", ALL if FULL else ["poisson", "cox"])
def test_outlooks_know_the_family(family: str) -> None:
    model = PrideGLM(family, parties=2, bounds=(-1, 1), epsilon=30.0, **OPTIONS.get(family, {}))
    outlook = model.outlook(150, 6, r2=0.7, quick=True)
    assert outlook.mean == (0.5 if family == "cox" else 1.0)
    assert 0 < outlook.noise_free < outlook.mean
    assert ("check loss" in outlook.measure) == (family == "quantile")
