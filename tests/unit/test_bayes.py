"""Bayesian regression: an estimator that behaves like scikit-learn's, one release for many models, and words about the rest."""

from __future__ import annotations

import math
import pickle
import warnings
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import unpooled
from unpooled import Bounds, PrivacyLeakWarning, PrivateBayesianRegression
from unpooled.errors import DataError, UsageError
from unpooled.linear.moments import Moments
from unpooled.models import load
from unpooled.models.bayes.declared import design_of
from unpooled.models.bayes.fit import thresholds
from unpooled.papers.bayes import moments_box_as_published
from unpooled.privacy.accounting import gaussian_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Unit
from unpooled.protocol.local import run_in_process

RNG = np.random.default_rng(0)
N = 600
X = RNG.uniform(-1, 3, (N, 3))
BETA = np.array([1.0, -2.0, 0.5])
Y = X @ BETA + 4 + 0.5 * RNG.normal(size=N)
SITES = RNG.choice(["oslo", "porto", "riga"], N)
DECLARED = {"bounds": (-1, 3), "y_bounds": (-8, 14)}
EXACT = {**DECLARED, "epsilon": math.inf}


# --- scikit-learn -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.filterwarnings("ignore::unpooled.errors.PrivacyLeakWarning")
@parametrize_with_checks(
    [PrivateBayesianRegression(epsilon=math.inf), PrivateBayesianRegression(epsilon=100.0, random_state=0)]
)
def test_scikit_learns_contract(estimator, check) -> None:
    check(estimator)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_it_clones_and_pickles_without_data() -> None:
    model = clone(PrivateBayesianRegression(**DECLARED, epsilon=5.0, random_state=1)).fit(X, Y, sites=SITES)
    back = pickle.loads(pickle.dumps(model))
    assert np.array_equal(back.predict(X), model.predict(X))
    assert not any(isinstance(value, Table) for value in vars(model).values())
    again = PrivateBayesianRegression(**DECLARED, epsilon=5.0, random_state=1).fit(X, Y, sites=SITES)
    assert np.array_equal(again.coef_, model.coef_)
    other = PrivateBayesianRegression(**DECLARED, epsilon=5.0, random_state=2).fit(X, Y, sites=SITES)
    assert not np.array_equal(other.coef_, model.coef_)


def test_sites_are_routed_as_metadata() -> None:
    from sklearn import config_context
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(FunctionTransformer(), PrivateBayesianRegression(**EXACT).set_fit_request(sites=True))
        pipe.fit(X, Y, sites=SITES)
    assert [card.name for card in pipe[-1].plan_.study.parties] == ["oslo", "porto", "riga"]


@pytest.mark.parametrize("aggregation", ["distributed", "trusted", "local"])
def test_without_noise_sites_do_not_matter(aggregation: str) -> None:
    one = PrivateBayesianRegression(**EXACT).fit(X, Y)
    many = PrivateBayesianRegression(**EXACT, aggregation=aggregation).fit(X, Y, sites=SITES)
    assert np.array_equal(one.coef_, many.coef_)
    assert one.moments_.gram.tobytes() == many.moments_.gram.tobytes()
    assert set(many.communication_) == {"oslo", "porto", "riga"}
    assert one.coef_ == pytest.approx(LinearRegression().fit(X, Y).coef_, abs=0.01)


@pytest.mark.parametrize("geometry", ["ball", "box", "augmented"])
def test_one_release_gives_ridge_and_ols_too(geometry: str) -> None:
    model = PrivateBayesianRegression(**EXACT, geometry=geometry).fit(X, Y)
    assert model.ols().coef_ == pytest.approx(LinearRegression().fit(X, Y).coef_, rel=1e-4)
    assert model.ols().intercept_ == pytest.approx(LinearRegression().fit(X, Y).intercept_, rel=1e-4)
    ridge = Ridge(50.0).fit(X, Y)
    assert model.ridge(50.0).coef_ == pytest.approx(ridge.coef_, rel=1e-4)
    assert model.ols().interval(0.9).shape == model.credible_interval(0.9).shape == (3, 2)


def test_predictions_have_deviations() -> None:
    model = PrivateBayesianRegression(**EXACT, noise_precision=4.0).fit(X, Y)
    mean, deviation = model.predict(X[:5], return_std=True)
    assert np.array_equal(mean, model.predict(X[:5]))
    rows = np.column_stack([X[:5], np.ones(5)])
    wanted = np.sqrt(np.diag(rows @ model._fit_.joint_covariance_ @ rows.T) + 0.25)
    assert deviation == pytest.approx(wanted)
    inside = np.abs(model.predict(X) - Y) <= 1.96 * model.predict(X, return_std=True)[1]
    assert 0.9 < inside.mean() < 0.99
    plain = PrivateBayesianRegression(**EXACT, fit_intercept=False).fit(X, Y)
    assert plain.intercept_ == 0
    assert plain.predict(X[:2], return_std=True)[1].shape == (2,)


def test_noise_widens_the_intervals_of_the_posterior_that_knows_it() -> None:
    widths = {}
    for posterior in ("noise-aware", "naive"):
        for epsilon in (0.5, 50.0):
            given = {"posterior": posterior, "prior_precision": 1.0, "noise_precision": 1.0}
            model = PrivateBayesianRegression(**DECLARED, epsilon=epsilon, random_state=0, **given).fit(X, Y)
            widths[posterior, epsilon] = float(np.sqrt(np.diag(model.covariance_)).mean())
    assert widths["noise-aware", 0.5] > 2 * widths["noise-aware", 50.0]
    assert widths["noise-aware", 0.5] > 2 * widths["naive", 0.5]


# --- plans, statements, warnings ----------------------------------------------------------------------------------------------


@pytest.mark.slow_for("parameters0", "parameters1", "parameters6")
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"aggregation": "trusted", "nodes": ["porto"]},
        {"aggregation": "local", "delta": 1e-6},
        {"tolerate": 1, "geometry": "box", "adjacency": "zero-out"},
        {"projection": 0.2, "multiple": 2.0, "geometry": "augmented", "random_state": 3},
        {"bounds": Bounds(norm=6.0), "fit_intercept": False},
        {"calibration": "published"},
    ],
)
def test_a_plan_without_data_is_the_plan_of_the_fit(parameters: dict) -> None:
    model = PrivateBayesianRegression(**{**DECLARED, **parameters})
    sites = {str(name): int((name == SITES).sum()) for name in np.unique(SITES)}
    plan = model.plan(N, 3, sites=sites)
    assert model.fit(X, Y, sites=SITES).plan_.hash == plan.hash
    assert model.statement_ == plan.statement
    assert {entry.plan for entry in model.ledger_} == {plan.hash}
    single = PrivateBayesianRegression(**{**DECLARED, **parameters, "nodes": []})
    assert single.plan(N, 3).hash == single.fit(X, Y).plan_.hash


@pytest.mark.slow
def test_an_infinite_epsilon_never_warns_and_missing_bounds_always_do() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivateBayesianRegression(epsilon=math.inf).fit(X, Y)
        PrivateBayesianRegression(**DECLARED).fit(X, Y)
    for declared in ({}, {"bounds": (-1, 3)}, {"y_bounds": (-8, 14)}):
        with pytest.warns(PrivacyLeakWarning) as caught:
            model = PrivateBayesianRegression(**declared).fit(X, Y)
        assert len(caught) == 1
        assert not model.statement_.holds
    assert PrivateBayesianRegression(**DECLARED).fit(X, Y).statement_.holds
    with pytest.raises(UsageError, match="y_bounds"):
        PrivateBayesianRegression(bounds=(-1, 3)).plan(N, 3)
    with pytest.raises(UsageError, match="bounds"):
        PrivateBayesianRegression(y_bounds=(-1, 3)).plan(N, 3)


@pytest.mark.parametrize("aggregation", ["distributed", "trusted", "local"])
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_a_fit_keeps_the_budget_and_spends_it(aggregation: str, adjacency: str) -> None:
    for projection in (0.0, 0.3):
        model = PrivateBayesianRegression(
            **DECLARED,
            delta=1e-5,
            aggregation=aggregation,
            adjacency=adjacency,
            projection=projection,
            multiple=2.0,
            prior_precision=1.0,
            noise_precision=1.0,
        )
        plan = model.plan(N, 3, sites={"a": 100, "b": 200, "c": 300})
        assert 0.99 < plan.epsilon(1e-5) <= 1.0
        assert 0.8 < plan.epsilon(1e-5, Unit.ATTRIBUTE) <= 1.0
        shares = {r.name: r.mechanism.event(Unit.RECORD).value for r in plan.releases}
        assert set(shares) == {"moments", *(["deviations"] if projection else [])}
        if projection:
            ratio = shares["deviations"] / shares["moments"]
            wanted = projection / (1 - projection)
            assert ratio == pytest.approx(wanted if aggregation == "distributed" else math.sqrt(wanted), rel=1e-3)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"prior_precision": 0.0}, "prior_precision must be a positive"),
        ({"noise_precision": math.inf}, "noise_precision must be a positive"),
        ({"posterior": "exact"}, "'noise-aware' or 'naive'"),
        ({"projection": 1.0}, "projection in"),
        ({"projection": -0.1}, "projection in"),
        ({"projection": 0.2, "multiple": 0.0}, "multiple must be a positive"),
        ({"bounds": Bounds(norm=2.0), "projection": 0.2}, "goes without projection"),
        ({"bounds": Bounds(norm=-1.0)}, "norm must be"),
        ({"geometry": "sphere"}, "ball, box, augmented"),
        ({"geometry": "published"}, "ball, box, augmented"),
        ({"aggregation": "elsewhere"}, "distributed, trusted, local"),
        ({"tolerate": 2}, "between 0 and 1"),
        ({"nodes": ["bergen"]}, "parties of the study"),
        ({"adjacency": "add"}, "adjacency"),
        ({"calibration": "exact"}, "calibration"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-6}, "epsilon"),
        ({"y_bounds": (1.0, 1.0)}, "low must be smaller"),
        ({"random_state": "seed"}, "random_state"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 0.0, "calibration": "published"}, "delta"),
    ],
)
def test_errors_say_what_to_do(parameters: dict, words: str) -> None:
    from unpooled.errors import UnpooledError

    with pytest.raises(UnpooledError, match=words):
        PrivateBayesianRegression(**{**DECLARED, **parameters}).fit(X, Y, sites=SITES)


def study(**parameters) -> Study:
    columns = (Column("a", 0.0, 10.0), Column("g", categories=("u", "v"), missing="absent"), Column("y", -5.0, 15.0))
    rest = {key: parameters.pop(key) for key in ("epsilon", "calibration") if key in parameters}
    cards = (Card("one", 40, columns), Card("two", 40, columns))
    return Study(
        "bayes", cards, rest.pop("epsilon", 1.0), 1e-5, parameters={"response": "y", **parameters}, **rest, derived=()
    )


def test_studies_that_do_not_fit_are_refused() -> None:
    model = load("bayes")
    good = study()
    other = msgspec.structs.replace(good.parties[1], columns=good.parties[1].columns[::-1])
    with pytest.raises(UsageError, match="'one' and 'two' declare different columns"):
        model.compile(msgspec.structs.replace(good, parties=(good.parties[0], other)))
    for parameters, words in (
        ({"response": "z"}, "one declared column"),
        ({"confidence": 1.0}, "confidence"),
        ({"typo": 1}, "typo"),
        ({"tolerate": "1"}, "tolerate"),
        ({"covariance": "x"}, "covariance is one of auto, model, robust, cluster"),
        ({"covariance": 3}, "covariance"),
        ({"covariance": None}, "covariance"),
        *(({"covariance": "robust", "method": m}, "of method 'refinement'") for m in ("moments", "gradient", "mean")),
        ({"covariance": "robust", "norm": 1.0}, "of method 'refinement'"),
        ({"covariance": "cluster", "method": "refinement"}, "without ids nobody knows"),
        ({"focus": "a"}, "focus"),
        ({"focus": [1]}, "focus"),
        ({"focus": ["nobody"], "epsilon": 90.0}, "focus names 'nobody'"),
        ({"focus": ["y"], "epsilon": 90.0}, "focus names 'y'"),
        ({"focus": ["a", "g"], "epsilon": 90.0}, "focus names some of the columns"),
        ({"focus": ["a", "a"], "method": "gradient"}, "focus goes with"),
        ({"method": "focus"}, "method 'focus' with the columns"),
        ({"dispersion": 1.0}, "dispersion"),
    ):
        with pytest.raises(UsageError, match=words):
            model.compile(study(**parameters))


def test_a_study_renders_its_coefficients() -> None:
    model, asked = load("bayes"), study(epsilon=math.inf, confidence=0.9)
    rng = np.random.default_rng(1)
    tables = {}
    for name in ("one", "two"):
        a, g = rng.uniform(0, 10, 40), rng.choice(np.array(["u", "v", None], dtype=object), 40)
        tables[name] = Table({"a": a, "g": g, "y": a + 3 * (g == "v") + rng.normal(size=40)})
    result = run_in_process(model, model.compile(asked), tables, Policy.in_process(), load).outcome.result
    assert [c.name for c in result.coefficients] == ["a", "g = u", "g = v"]
    assert all(c.low < c.value < c.high for c in result.coefficients)
    text = model.table(model.compile(asked), result)
    assert "intervals of 90%" in text
    assert "rows of one, two" in text
    assert "standard errors assume independent rows" in text
    assert "missing values of g count as the middle of the range or as a level of their own" in text
    assert text.count("\n") == 8
    assert result.coefficients[0].value == pytest.approx(1.0, abs=0.15)
    assert result.moments == Moments.of(result.moments).stored()


# --- from moments -------------------------------------------------------------------------------------------------------------


def test_released_moments_make_another_estimator(tmp_path) -> None:
    model = PrivateBayesianRegression(**DECLARED, epsilon=2.0, noise_precision=4.0, random_state=0).fit(X, Y, sites=SITES)
    model.moments_.save(tmp_path / "moments")
    back = PrivateBayesianRegression.from_moments(Moments.load(tmp_path / "moments"), noise_precision=4.0)
    assert back.coef_.tobytes() == model.coef_.tobytes()
    assert back.intercept_ == model.intercept_
    assert back.covariance_.tobytes() == model.covariance_.tobytes()
    assert np.array_equal(back.predict(X), model.predict(X))
    assert model.moments_.plan == model.plan_.hash
    assert model.moments_.statement == str(model.statement_)
    naive = PrivateBayesianRegression.from_moments(model.moments_, posterior="naive", prior_precision=9.0)
    assert naive.coef_ == pytest.approx(model.moments_.posterior(9.0, 1.0, naive=True).coef_)
    with pytest.raises(ValueError, match="features"):
        back.predict(X[:, :2])


def test_feature_names_travel_with_the_moments() -> None:
    import polars as pl

    frame = pl.DataFrame({"dose": X[:, 0], "age": X[:, 1], "weight": X[:, 2]}).to_pandas() if _pandas() else None
    if frame is None:
        pytest.skip("pandas is not here")
    model = PrivateBayesianRegression(**EXACT).fit(frame, Y)
    back = PrivateBayesianRegression.from_moments(model.moments_)
    assert back.feature_names_in_.tolist() == ["dose", "age", "weight"]
    assert np.array_equal(back.predict(frame), model.predict(frame))


def _pandas() -> bool:
    from importlib.util import find_spec

    return find_spec("pandas") is not None and find_spec("pyarrow") is not None


def test_column_names_of_moments_become_feature_names() -> None:
    m = PrivateBayesianRegression(**EXACT).fit(X, Y).moments_
    named = tuple(msgspec.structs.replace(c, name=f"gene {k}") for k, c in enumerate(m.layout.features))
    back = PrivateBayesianRegression.from_moments(replace(m, layout=replace(m.layout, features=named)))
    assert back.feature_names_in_.tolist() == ["gene 0", "gene 1", "gene 2"]
    assert not hasattr(PrivateBayesianRegression.from_moments(m), "feature_names_in_")


# --- categories and missing values --------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_categories_and_missing_values_have_coefficients_of_their_own() -> None:
    rng = np.random.default_rng(4)
    n = 3000
    group, dose = rng.integers(1, 4, n).astype(float), rng.uniform(0, 2, n)
    lost = rng.random(n) < 0.2
    y = 2 * (group == 3) - (group == 1) + dose * ~lost + 3 * lost + 0.1 * rng.normal(size=n)
    raw = np.column_stack([group, np.where(lost, np.nan, dose)])
    bounds = Bounds([0, 0], [1, 2], categories={0: [1, 2, 3]}, missing={1: "indicator"})
    model = PrivateBayesianRegression(epsilon=math.inf, bounds=bounds, y_bounds=(-3, 7), noise_precision=100.0).fit(raw, y)
    assert model.moments_.layout.names == ("x0 = 1", "x0 = 2", "x0 = 3", "x1", "x1 missing")
    assert model.coef_[2] - model.coef_[1] == pytest.approx(2, abs=0.05)
    assert model.coef_[0] - model.coef_[1] == pytest.approx(-1, abs=0.05)
    assert model.coef_[3] == pytest.approx(1, abs=0.05)
    assert np.sqrt(np.mean((model.predict(raw) - y) ** 2)) < 0.12
    mean, deviation = model.predict(raw[:3], return_std=True)
    assert mean.shape == deviation.shape == (3,)
    with pytest.raises(DataError, match="x0"):
        model.predict(np.array([[7.0, 1.0]]))
    with pytest.raises(DataError, match="x1"):
        PrivateBayesianRegression(epsilon=math.inf, bounds=Bounds(0, 3, missing={0: "absent"}), y_bounds=(-3, 7)).fit(raw, y)


# --- projection ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_projected_ranges_lie_inside_the_declared_ones(fit_intercept: bool) -> None:
    for epsilon in (0.05, 1.0, math.inf):
        model = PrivateBayesianRegression(
            epsilon=epsilon,
            bounds=(-100, 50),
            y_bounds=(-300, 500),
            projection=0.3,
            fit_intercept=fit_intercept,
            random_state=0,
        ).fit(X, Y)
        low, high = np.array(model.projection_).reshape(-1, 2).T
        ends = ((-100, 50), (-300, 500)) if fit_intercept else ((-100, 100), (-500, 500))
        assert (low < high).all()
        assert (low >= np.array([ends[0][0]] * 3 + [ends[1][0]])).all()
        assert (high <= np.array([ends[0][1]] * 3 + [ends[1][1]])).all()
        assert [c.range for c in (*model.moments_.layout.features, model.moments_.layout.response)] == [
            (a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)
        ]
    # Without noise the thresholds are the mean and deviations themselves.
    wide = PrivateBayesianRegression(
        epsilon=math.inf, bounds=(-100, 50), y_bounds=(-300, 500), projection=0.3, multiple=3.0
    ).fit(X, Y)
    low, high = np.array(wide.projection_).reshape(-1, 2).T
    data = np.column_stack([X, Y])
    floor = 0.01 * np.array([75.0, 75.0, 75.0, 400.0])
    half = 3 * np.maximum(data.std(axis=0), floor)
    assert low == pytest.approx(np.maximum(data.mean(axis=0) - half, [-100, -100, -100, -300]), rel=1e-3, abs=1e-3)
    assert high == pytest.approx(data.mean(axis=0) + half, rel=1e-3, abs=1e-3)


@pytest.mark.slow
@pytest.mark.minutes
def test_projection_helps_where_the_declared_ranges_are_far_too_wide() -> None:
    errors = {}
    many, responses = np.tile(X, (50, 1)), np.tile(Y, 50)
    for projection in (0.0, 0.2):
        found = [
            PrivateBayesianRegression(
                bounds=(-100, 100),
                y_bounds=(-300, 300),
                projection=projection,
                multiple=3.0,
                noise_precision=4.0,
                random_state=seed,
            )
            .fit(many, responses)
            .coef_
            for seed in range(8)
        ]
        errors[projection] = float(np.sqrt(np.mean((np.array(found) - BETA) ** 2)))
    print(errors)
    assert errors[0.2] < 0.6 * errors[0.0]


def test_the_best_multiple_is_public_and_grows_as_noise_vanishes() -> None:
    from unpooled.models.bayes.fit import _MULTIPLES, best_multiple

    chosen = []
    for epsilon in (0.05, 1.0, 1000.0):
        model = PrivateBayesianRegression(**DECLARED, epsilon=epsilon, projection=0.2)
        plan = model.plan(5000, 3)
        asked = design_of(plan.study)
        chosen.append(best_multiple(asked, plan, 5000))
        assert chosen[-1] == best_multiple(asked, plan, 5000)
        assert chosen[-1] in _MULTIPLES
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_deviations_move_as_far_as_declared(adjacency: str) -> None:
    """Brute force over two values per column; zero-out may be declared a little too large, never too small."""
    asked = design_of(PrivateBayesianRegression(**DECLARED, projection=0.2, adjacency=adjacency).plan(100, 3).study)
    assert asked.deviations is not None
    z = np.linspace(-1, 1, 401)
    points = np.column_stack([z, z * z])
    others = points if adjacency == "replace" else np.zeros((1, 2))
    one = math.sqrt(((points[:, None] - others[None]) ** 2).sum(-1).max()) * asked.layout.grid**2
    assert [(b.size, b.width * asked.layout.grid) for b in asked.deviations.blocks] == [(4, 1.0), (4, asked.layout.grid)]
    for unit, factor in ((Unit.RECORD, 2.0), (Unit.ATTRIBUTE, 1.0)):  # four columns at once, or one
        declared = asked.deviations.reach[unit].distance
        assert factor * one <= declared * (1 + 1e-12)
        assert declared <= factor * one * (1.0 + 1e-12 if adjacency == "replace" else 1.23)


def test_thresholds_survive_senseless_noise() -> None:
    from unpooled.totals.total import Total

    plan = PrivateBayesianRegression(**DECLARED, projection=0.2).plan(100, 2)
    asked = design_of(plan.study)
    for value in (-1e30, 0.0, 1e30):
        total = Total(np.full(6, value), np.full(6, 1.0), ("all",))
        low, high = np.array(thresholds(asked, total, 100, 2.0)).reshape(-1, 2).T
        assert (low < high).all()
        asked.narrowed(tuple(thresholds(asked, total, 100, 2.0)))
    with pytest.raises(UsageError, match="5 projection bounds where 3 columns need two each"):
        asked.narrowed((0.0,) * 5)


# --- the published calibration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["trusted", "local", "distributed"])
def test_published_noise_is_equation_12_times_the_classical_sigma(aggregation: str) -> None:
    epsilon, delta = 2.0, 1e-5
    model = PrivateBayesianRegression(
        **DECLARED, epsilon=epsilon, delta=delta, calibration="published", aggregation=aggregation, projection=0
    )
    plan = model.plan(N, 3, sites={"a": 300, "b": 300})
    half = [3.0, 3.0, 3.0]  # three features in the data's own units, about 0: the paper has no constant
    sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon * moments_box_as_published(half, 14.0)
    asked = plan.design
    deviations = asked.moments.deviations(plan) / asked.layout.grid**2
    own = [*half, 14.0]
    first, second = asked.layout.pairs
    wanted = sigma / np.array([own[j] * own[k] for j, k in zip(first, second, strict=True)])
    # Two sites: as many shares for one honest party, or the full noise at each of them.
    assert deviations == pytest.approx(wanted * (1.0 if aggregation == "trusted" else math.sqrt(2)), rel=1e-4)
    classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert classical == pytest.approx(1 / gaussian_mu(epsilon, delta), rel=0.35)
    statement = model.fit(X, Y, sites=np.where(np.arange(N) < 300, "a", "b")).statement_
    assert not statement.holds
    text = str(statement)
    assert "fails for large epsilon" in text
    assert "mean zero" in text


def test_published_deviations_have_the_classical_noise_of_their_share() -> None:
    asked = study(calibration="published", projection=0.2)
    design = load("bayes-published").compile(asked).design
    sigma = math.sqrt(2 * math.log(1.25 / (0.2 * asked.delta))) / (0.2 * asked.epsilon)
    assert design.deviations.scale == pytest.approx(sigma * design.deviations.reach[Unit.RECORD].distance)
    rest = math.sqrt(2 * math.log(1.25 / (0.8 * asked.delta))) / (0.8 * asked.epsilon)
    half = np.append(design.layout.half_widths, design.layout.response.half_width)
    wanted = rest * moments_box_as_published(half[:-1].tolist(), float(half[-1])) * design.layout.grid**2
    assert design.moments.scale == pytest.approx(wanted)


def test_the_published_formula_is_short_where_the_theory_says_so() -> None:
    """At (10, 1e-5) the classical sigma is 0.4845 where 0.4999 is needed (Theorem B.3)."""
    assert math.sqrt(2 * math.log(1.25 / 1e-5)) / 10 == pytest.approx(0.4845, abs=1e-4)
    assert 1 / gaussian_mu(10.0, 1e-5) == pytest.approx(0.4999, abs=1e-4)


def test_the_estimator_is_part_of_the_package() -> None:
    assert unpooled.PrivateBayesianRegression is PrivateBayesianRegression
