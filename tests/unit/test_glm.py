"""Generalised linear models: what one record moves, that scaling pulls keeps their root, exact fits, which form is chosen, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from functools import partial
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy import optimize
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss, mean_gamma_deviance, mean_poisson_deviance
from sklearn.utils.estimator_checks import parametrize_with_checks
from world import FULL, sized

import unpooled
from unpooled import PrivateGLM
from unpooled.audit.replay import replay
from unpooled.errors import DataError, PlanMismatch, UsageError
from unpooled.families import ROW_FAMILIES
from unpooled.families.logistic import Logistic
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.kernels import rows as row_kernels
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.standard import CONSTANT
from unpooled.models import fitted, load
from unpooled.models.glm.curvature import of_balanced
from unpooled.models.glm.declared import WORTH_ERRORS, WORTH_SLOPES, GlmMethod, GlmSchedule, schedule_of
from unpooled.models.glm.plan import STATISTICS
from unpooled.models.glm.rows import BaseRate, DirectionRows, Directions, GlmRows, Responses, ScoreCells, ShortRows
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.sensitivity import unit_sums
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.totals.total import Quantity, Total

INF = math.inf
MODEL = load("glm")
COLUMNS = (Column("a", -1, 3), Column("c", categories=("u", "v")), Column("m", 0, 1, missing="indicator"))
EXPOSURE, OFFSET = Column("hours", 0.5, 8), Column("known", -1, 1)


def response_of(family: str) -> Column:
    return Column("y", categories=("no", "yes")) if family == "logistic" else Column("y", 0.25, 12.0)


def responses(family: str, *, shifted: bool = True) -> Responses:
    column = response_of(family)
    law = ROW_FAMILIES[family]() if family == "logistic" else ROW_FAMILIES[family](0.25, 12.0, 0.5)
    return Responses(column, law, *((EXPOSURE, OFFSET) if shifted else ()))


def rows_of(family: str, part: float, *, intercept: bool = True) -> GlmRows:
    layout = MomentsLayout.of((*COLUMNS, Column("y", 0, 1)), "y", 100, intercept=intercept)
    rows = GlmRows(layout, 100, part, responses(family))
    return dataclasses.replace(rows, longest=part * rows.radius)


def one_row(family: str, rng: np.random.Generator) -> dict[str, Any]:
    """A row whose values are ends of their ranges, anything between, or missing."""
    row: dict[str, Any] = {}
    for column in (*COLUMNS, EXPOSURE, OFFSET, response_of(family)):
        if column.categories is not None:
            row[column.name] = str(rng.choice(column.categories))
            continue
        values = [*column.range, float(rng.uniform(*column.range))]
        row[column.name] = values[rng.integers(3)] if column.missing == "refuse" or rng.random() < 0.7 else math.nan
    return row


def alone(statistic, row: dict[str, Any]) -> np.ndarray:
    """What one record adds: a table has two rows at least, so half of what two equal ones add."""
    twice = statistic(Table({k: np.array([v, v], dtype=object if isinstance(v, str) else float) for k, v in row.items()}))
    assert not (twice % 2).any()
    return twice // 2


def statistics(family: str, rng: np.random.Generator, adjacency: Adjacency, *, intercept: bool):
    """Every total with a statistic of one table, at public numbers of a request that are anything."""
    p = len(rows_of(family, 1.0).layout.coding.attribute)
    standard = rng.uniform(-1, 1, p), np.exp(rng.uniform(-5, 1, p))
    start = rng.normal(size=p + intercept) * float(rng.choice([0.0, 0.3, 30.0]))
    units = np.exp(rng.uniform(-3, 2, 3))
    base = BaseRate(responses(family), 100)
    yield base.vector(1.0, adjacency), base.statistic
    for part in (0.6, 1.0):
        rows = rows_of(family, part, intercept=intercept)
        yield rows.descent(1.0, adjacency, 3), lambda t, rows=rows: rows.gradients(rows.blocks(t, standard), start, units)
    yield rows.information(1.0, adjacency, 1), lambda t: rows.weighted(rows.blocks(t, standard), start, units)
    if family == "logistic":
        for unit, norm in itertools.product((True, False), (None, 2.0)):
            layout = dataclasses.replace(rows.layout, norm=norm)
            ways = Directions(layout, responses(family, shifted=False), 100, unit)
            yield ways.vector(1.0, adjacency), ways.statistic
        along = DirectionRows(layout, 100, 1.0, ways.responses, directions=ways)
        slopes = rng.normal(size=ways.columns) * float(rng.choice([0.0, 3.0, 100.0]))
        yield (
            along.descent(1.0, adjacency, 3),
            lambda t: along.gradients(along.along(t, slopes), start[: along.width], units),
        )
        short = ShortRows(rows_of(family, 1.0, intercept=intercept).layout, 100, 1.0, responses(family))
        short = dataclasses.replace(short, longest=float(rng.choice([0.1, 0.3])) * short.radius)
        yield (
            short.descent(1.0, adjacency, 3),
            lambda t: short.gradients(short.blocks(t, standard), start, units),
        )
        yield (
            ScoreCells.vector(1.0, rows.moves(adjacency)),
            lambda t: ScoreCells.added_up(rows, rows.blocks(t, standard), start),
        )
    yield rows.spread(1.0), lambda t: rows.squared_residuals(rows.blocks(t, standard), start, units)
    yield (
        rows.cells.vector(1.0, rows.moves(adjacency)),
        lambda t: rows.cells_of_pulls(rows.blocks(t, standard), start, units),
    )
    yield (
        rows.meat.vector(1.0, rows.moves(adjacency)),
        lambda t: rows.meat.added_up(rows.scores_of_pulls(rows.blocks(t, standard), start, units), t),
    )


def shares_of_reach(family: str, *, intercept: bool = True, seeds: int = 80) -> dict[tuple[str, str, str], float]:
    """The farthest that one unit moved each total, in parts of its reach."""
    found: dict[tuple[str, str, str], float] = {}
    for seed, adjacency in itertools.product(range(seeds), Adjacency):
        rng = np.random.default_rng([seed, list(ROW_FAMILIES).index(family)])
        first, second = one_row(family, rng), one_row(family, rng)
        changed = str(rng.choice(list(first)))
        value = {**first, changed: second[changed]}
        for vector, statistic in statistics(family, rng, adjacency, intercept=intercept):
            widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
            a, b, c = (alone(statistic, row) for row in (first, second, value))
            assert np.abs(a).max(initial=0) <= vector.per_row
            moved = a - b if adjacency is Adjacency.REPLACE else a
            for unit, difference in ((Unit.RECORD, moved), (Unit.ATTRIBUTE, a - c)):
                far = float(np.linalg.norm(difference / widths)) / vector.reach[unit].distance
                key = (vector.name, str(adjacency), str(unit))
                found[key] = max(found.get(key, 0.0), far)
    return found


@pytest.mark.long_for("logistic")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("family", list(ROW_FAMILIES))
def test_no_unit_moves_a_total_farther_than_its_reach(family: str) -> None:
    """Theorems G.1 to G.3."""
    found = shares_of_reach(family)
    assert max(found.values()) <= 1 + 1e-12
    # The search is not asleep.
    for name, least in (
        *([("probabilities", 1 - 1e-12)] if family == "logistic" else []),
        ("base", 0.6),
        ("descent", 0.6),
        ("information", 0.5),
        *([("spread", 0.9)] if family != "logistic" else []),  # of classes no residual is far
    ):
        assert found[name, "replace", "record"] > least, name


@pytest.mark.slow
def test_without_a_constant_the_bounds_hold_too() -> None:
    assert max(shares_of_reach("poisson", intercept=False, seeds=30).values()) <= 1 + 1e-12


def test_pulls_that_are_not_cut_and_rows_that_are_not_shortened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorems G.2 and G.3."""

    def uncut(residual, square, fine, farthest, longest) -> None:
        del square, longest
        residual[:] = np.trunc(np.clip(residual * fine, -farthest, farthest))

    def unshortened(rows, square, weight, coarse, radius, out) -> None:
        del square, radius
        out[:] = np.trunc(rows * (np.sqrt(weight) * 1.2)[:, None] * coarse)

    for module, name, broken in (
        (row_kernels, "cut_residuals", uncut),
        (row_kernels, "weigh_rows", unshortened),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, broken)
            with pytest.raises(AssertionError):
                assert max(shares_of_reach("poisson", seeds=30).values()) <= 1 + 1e-12


@pytest.mark.slow
def test_a_row_that_counts_in_two_cells_of_the_histogram_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem G.11."""
    assert max(shares_of_reach("logistic", seeds=10).values()) <= 1 + 1e-12
    honest = ScoreCells.added_up

    def twice(*given) -> np.ndarray:
        found = honest(*given)
        return found + np.roll(found, 1)

    monkeypatch.setattr(ScoreCells, "added_up", twice)
    with pytest.raises(AssertionError):
        assert max(shares_of_reach("logistic", seeds=10).values()) <= 1 + 1e-12


@pytest.mark.parametrize("count", [1, 2])
def test_the_closed_form_of_sums_in_a_cube_is_the_largest_of_a_search(count: int) -> None:
    """Theorem G.1."""
    corners = list(itertools.product(np.linspace(0, 1, 5), repeat=count))
    farthest = max(math.dist(one, other) for one, other in itertools.product(corners, corners))
    assert unit_sums(count) == pytest.approx(farthest)


# --- nothing else matters ----------------------------------------------------------------------------------------------


@pytest.mark.slow_for("logistic")
@pytest.mark.parametrize("family", list(ROW_FAMILIES))
def test_totals_depend_on_no_order_of_rows_and_add_up_over_parties(family: str) -> None:
    rng = np.random.default_rng(3)
    rows = [one_row(family, rng) for _ in range(301)]
    table = Table(
        {k: np.array([row[k] for row in rows], dtype=object if isinstance(rows[0][k], str) else float) for k in rows[0]}
    )
    order = rng.permutation(301)
    parts = [table.take(part) for part in np.array_split(order, 3)]
    for _, statistic in statistics(family, np.random.default_rng(5), Adjacency.REPLACE, intercept=True):
        whole = statistic(table)
        assert (statistic(table.take(order)) == whole).all()
        assert (sum(statistic(part) for part in parts) == whole).all()


def pulled(u, y, length: float, longest: float, *, scaled: bool) -> np.ndarray:
    """Pulls of a logistic model along a row of this length, scaled down before they are cut or only cut."""
    pull, weight, usual = np.array(u, float), np.empty(len(u)), np.empty(len(u))
    Logistic().pulls(pull, np.asarray(y, float), weight, usual)
    row_kernels.scale_down(pull, weight, usual, np.full(len(u), length**2), 1.0, 1.0, longest if scaled else INF, INF)
    return np.clip(pull, -longest / length, longest / length)


def test_scaled_pulls_keep_their_root_and_cut_ones_lose_it() -> None:
    """Theorem G.4: the expected pull at the truth is 0 for rows of any length; a pull that is only cut is off by up to half."""
    u = np.linspace(-2, 2, 9)
    p = 1 / (1 + np.exp(-u))
    for length in (0.3, 1.0, 3.0):
        ones, zeros = (pulled(u, np.full(9, y), length, 0.5, scaled=True) for y in (1, 0))
        assert p * ones + (1 - p) * zeros == pytest.approx(np.zeros(9), abs=1e-12)
        ones, zeros = (pulled(u, np.full(9, y), length, 0.5, scaled=False) for y in (1, 0))
        if length == 3.0:
            assert np.abs(p * ones + (1 - p) * zeros).max() > 0.05


def test_balanced_pulls_are_at_most_one_half_and_keep_their_root() -> None:
    """Theorem G.4 with 1 / (2 max(p, 1 - p)) in h: the expected pull at the truth is 0, its derivative there minus the weight."""
    family, u = Logistic(balanced=True), np.linspace(-6, 6, 49)
    u = u[np.abs(u) > 0.1]  # at 0 the weight has a corner
    p = 1 / (1 + np.exp(-u))

    def pulls(at: np.ndarray, y: float) -> tuple[np.ndarray, np.ndarray]:
        left, weight, usual = at.copy(), np.empty_like(at), np.empty_like(at)
        family.pulls(left, np.full(at.size, y), weight, usual)
        assert np.abs(left).max() <= 0.5 + 1e-12
        assert (usual == 0.5).all()
        return left, weight

    (ones, weight), (zeros, _) = pulls(u, 1.0), pulls(u, 0.0)
    assert p * ones + (1 - p) * zeros == pytest.approx(np.zeros(u.size), abs=1e-15)
    ahead, back = (p * pulls(u + h, 1.0)[0] + (1 - p) * pulls(u + h, 0.0)[0] for h in (1e-6, -1e-6))
    assert (back - ahead) / 2e-6 == pytest.approx(weight, rel=1e-6)
    assert not np.allclose(p * (1 - p), weight, rtol=0.1)  # the likelihood's weight is another one
    factor = p * ones**2 + (1 - p) * zeros**2
    assert factor == pytest.approx(weight / (2 * np.maximum(p, 1 - p)))
    assert family.balance(0.3, 0.0)[0] == pytest.approx(1 / (2 * max(1 / (1 + math.exp(-0.3)), 0.5)))


@pytest.mark.slow
def test_balanced_pulls_move_no_total_farther_than_its_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROW_FAMILIES, "logistic", partial(Logistic, balanced=True))
    assert max(shares_of_reach("logistic", seeds=20).values()) <= 1


@pytest.mark.parametrize("base", [-2.0, 0.0, 1.0])
def test_the_variance_of_balanced_scores_follows_from_the_information(base: float) -> None:
    rng = np.random.default_rng(3)
    Z = np.column_stack([rng.normal(size=(200_000, 3)), np.full(200_000, CONSTANT)])
    b = np.array([0.8, -0.5, 0.0, base / CONSTANT])
    p = 1 / (1 + np.exp(-(Z @ b)))
    weight, a = np.minimum(p, 1 - p) / 2, 1 / (2 * np.maximum(p, 1 - p))
    information, scores = (Z.T @ (Z * w[:, None]) for w in (weight, weight * a))
    found = of_balanced(Logistic(balanced=True), information, b)
    inverse = np.linalg.inv(information)
    errors, true = (np.sqrt((inverse @ middle @ inverse).diagonal()) for middle in (found, scores))
    assert errors == pytest.approx(true, rel=0.01)
    # Taken for the information itself, errors of a base rate far from one half are too large.
    assert np.sqrt(inverse.diagonal()).max() > 1.03 * true.max()


def test_an_information_that_noise_hides_stays_as_it_is() -> None:
    nothing = np.zeros((3, 3))
    assert np.array_equal(of_balanced(Logistic(balanced=True), nothing, np.ones(3)), nothing)


def test_pulls_are_balanced_where_noise_counts_and_the_table_says_so() -> None:
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (4000, 3))
    y = (rng.random(4000) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.0]))).astype(int)
    own: dict[str, Any] = {"bounds": (-1, 1), "classes": (0, 1), "method": "newton", "delta": 1e-5, "random_state": 1}

    def balanced(**changes: Any) -> bool:
        return PrivateGLM("logistic", **{**own, "epsilon": 1.0, **changes}).plan(4000, 3).design.family.balanced

    assert balanced()
    assert not any(
        balanced(**changes)
        for changes in (
            {"epsilon": math.inf},
            {"epsilon": 8.0},
            {"epsilon": 1e4},
            {"method": "gradient"},
            {"ridge": 0.1},
            {"fit_intercept": False},
        )
    )
    text = str(PrivateGLM("logistic", **own, epsilon=1.0).fit(X, y).summary())
    assert "target: records count by one over twice the larger" in text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "target: records" not in str(PrivateGLM("logistic", **own, epsilon=math.inf).fit(X, y).summary())


# --- without noise -------------------------------------------------------------------------------------------------------


def simulated(family: str, n: int = 400, seed: int = 1):
    """Rows, responses, exposures and offsets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 3, (n, 3))
    hours, known = rng.uniform(0.5, 2, n), rng.uniform(-0.5, 0.5, n)
    u = X @ [0.5, -0.3, 0.0] - 0.2
    if family == "logistic":
        return X, (rng.random(n) < 1 / (1 + np.exp(-u - known))).astype(int), hours, known
    mean = hours * np.exp(u + known)
    if family == "poisson":
        return X, rng.poisson(mean), hours, known
    if family == "gamma":
        return X, mean * rng.gamma(2.0, 0.5, n), hours, known
    return X, rng.poisson(mean * rng.gamma(2.0, 0.5, n)), hours, known


def glm(family: str, **changes: Any) -> PrivateGLM:
    own = (
        {"classes": (0, 1)}
        if family == "logistic"
        else {"y_bounds": (0.01 if family == "gamma" else 0, 40), "dispersion": 0.5}
    )
    return PrivateGLM(family, **{"bounds": (-2, 3), "random_state": 0, **own, **changes})


def likelihood(family: str, X, y, offset, *, ridge: float = 0.0, constant: bool = True) -> np.ndarray:
    """The minimiser of the mean loss by a general optimiser: written from the densities, not from pulls and weights."""
    Z = np.column_stack([X, np.ones(len(y))]) if constant else X

    def loss(b: np.ndarray) -> float:
        u = Z @ b + offset
        if family == "logistic":
            each = np.logaddexp(0, u) - y * u
        elif family == "poisson":
            each = np.exp(u) - y * u
        elif family == "gamma":
            each = u + y * np.exp(-u)
        else:
            each = (y + 2.0) * np.log1p(np.exp(u) / 2.0) - y * u
        return float(each.mean() + ridge / 2 * (b[:3] @ b[:3]))

    found = optimize.minimize(loss, np.zeros(Z.shape[1]), method="BFGS", options={"gtol": 1e-10})
    hessian = optimize.approx_fprime(found.x, lambda b: optimize.approx_fprime(b, loss, 1e-6), 1e-4)
    gradient = np.array([(loss(found.x + h) - loss(found.x - h)) / 2e-5 for h in 1e-5 * np.eye(Z.shape[1])])
    return found.x - np.linalg.solve((hessian + hessian.T) / 2, gradient)


@pytest.mark.parametrize("family", list(ROW_FAMILIES))
def test_without_noise_it_is_the_maximum_of_the_likelihood_with_exposures_and_offsets(family: str) -> None:
    X, y, hours, known = simulated(family)
    shifts: dict[str, Any] = {"offset_bounds": (-0.5, 0.5)}
    if family != "logistic":
        shifts |= {"exposure_bounds": (0.5, 2)}
    data = {"offset": known} | ({"exposure": hours} if family != "logistic" else {})
    offset = known + (np.log(hours) if family != "logistic" else 0)
    for ridge, constant in ((0.0, True), (0.2, True), (0.0, False)):
        model = glm(family, epsilon=INF, ridge=ridge, fit_intercept=constant, **shifts).fit(X, y, **data)
        truth = likelihood(family, X, y, offset, ridge=ridge, constant=constant)
        assert model.coef_ == pytest.approx(truth[:3], abs=1e-6)
        assert model.intercept_ == pytest.approx(truth[3] if constant else 0.0, abs=1e-6)


@pytest.mark.slow
def test_without_noise_it_equals_scikit_learn() -> None:
    strict: dict[str, Any] = {"tol": 1e-12, "max_iter": 10_000}
    pairs = {
        "logistic": (LogisticRegression(C=1 / (400 * 0.1), **strict), 0.1),
        "poisson": (PoissonRegressor(alpha=0.1, solver="newton-cholesky", **strict), 0.1),
        "gamma": (GammaRegressor(alpha=0.0, solver="newton-cholesky", **strict), 0.0),
    }
    for family, (theirs, ridge) in pairs.items():
        X, y, _, _ = simulated(family)
        sites = np.arange(400) % 3
        ours = glm(family, epsilon=INF, ridge=ridge).fit(X, y, sites=sites)
        theirs.fit(X, y)
        assert ours.coef_ == pytest.approx(np.ravel(theirs.coef_), abs=1e-6)
        assert ours.intercept_ == pytest.approx(float(np.ravel(theirs.intercept_)[0]), abs=1e-6)
        assert ours.predict(X) == pytest.approx(theirs.predict(X), rel=1e-5)
        assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-5)


def test_standard_errors_without_noise_are_those_of_the_likelihood() -> None:
    X, y, _, _ = simulated("logistic")
    model = glm("logistic", epsilon=INF).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    Z = np.column_stack([X, np.ones(400)])
    errors = np.sqrt(np.linalg.inv((Z * (p * (1 - p))[:, None]).T @ Z).diagonal())
    terms = model.summary().terms
    assert [t.std_error for t in terms] == pytest.approx(errors, rel=1e-4)
    assert [t.privacy for t in terms] == pytest.approx(np.zeros(4), abs=1e-6)
    assert [t.term for t in terms] == ["x0", "x1", "x2", "(intercept)"]


@pytest.mark.slow
def test_every_way_to_add_up_gives_the_same_bits_without_noise() -> None:
    X, y, _, _ = simulated("poisson", 120)
    sites = np.arange(120) % 4
    found = {
        (mode, split): glm("poisson", epsilon=INF, aggregation=mode)
        .fit(X, y, sites=sites if split else None)
        .coef_.tobytes()
        for mode, split in itertools.product(("distributed", "trusted", "local"), (True, False))
    }
    assert len(set(found.values())) == 1


def test_columns_that_repeat_each_other_and_separable_classes_have_an_answer() -> None:
    frame = pl.DataFrame({"g": ["a", "b"] * 50, "x": np.linspace(-1, 1, 100)})
    bounds = {"g": ["a", "b"], "x": (-1, 1)}
    y = (np.arange(100) >= 50).astype(int)
    model = PrivateGLM(epsilon=INF, bounds=bounds, classes=(0, 1)).fit(frame, y)
    assert model.score(frame, y) == 1.0
    assert [t.term for t in model.summary().terms] == ["g: b - a", "x", CONSTANT_TERM]


# --- laws ----------------------------------------------------------------------------------------------------------------


def test_deviances_are_those_of_scikit_learn_and_draws_have_their_mean() -> None:
    rng = np.random.default_rng(0)
    mean = rng.uniform(0.1, 0.9, 20_000)
    kinds = {
        "logistic": (ROW_FAMILIES["logistic"](), lambda y, m: 2 * log_loss(y, m)),
        "poisson": (ROW_FAMILIES["poisson"](0, 50), mean_poisson_deviance),
        "gamma": (ROW_FAMILIES["gamma"](1e-9, 50), mean_gamma_deviance),
        "negative-binomial": (ROW_FAMILIES["negative-binomial"](0, 50, 1e-7), mean_poisson_deviance),
    }
    for name, (family, theirs) in kinds.items():
        y = family.drawn(mean, rng)
        assert family.deviance(y, mean).mean() == pytest.approx(theirs(y, mean), rel=1e-5), name
        assert y.mean() == pytest.approx(mean.mean(), abs=0.03), name


@pytest.mark.parametrize("dispersion", [0.01, 0.1, 0.3, 1.0, 3.3])
def test_a_gamma_dispersion_is_found_whatever_its_size(dispersion: float) -> None:
    """Squared pulls were cut at 9 before, and a dispersion of 3.3 was found to be 100."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(20_000, 2))
    y = np.exp(X[:, 0]) * rng.gamma(1 / dispersion, dispersion, 20_000)
    model = PrivateGLM("gamma", epsilon=3.0, bounds=(-1, 1), y_bounds=(1e-3, 60.0), random_state=1).fit(X, y)
    assert model.dispersion_ == pytest.approx(dispersion, rel=0.3, abs=0.03)  # the noise of these sums is about 0.01


# --- with noise ----------------------------------------------------------------------------------------------------------


def shares_of(schedule: GlmSchedule) -> float:
    """Return the sum of all shares of a schedule."""
    own = (
        schedule.base,
        schedule.scales,
        schedule.descent,
        schedule.cells,
        schedule.score,
        schedule.information,
        schedule.meat,
    )
    return sum(own) + schedule.moments


def test_the_form_follows_from_rows_columns_and_privacy() -> None:
    assert schedule_of(GlmMethod.AUTO, WORTH_SLOPES - 0.1, 5, 103).method is GlmMethod.MEAN
    small = schedule_of(GlmMethod.AUTO, WORTH_SLOPES, 5, 103)
    assert (small.method, small.rounds, small.passes) == (GlmMethod.GRADIENT, 15, 17)
    assert schedule_of(GlmMethod.AUTO, 50.0, 5, 103).rounds == 40
    large = schedule_of(GlmMethod.AUTO, 200.0, 40, 103)
    assert (large.method, large.rounds, large.step) == (GlmMethod.NEWTON, 80, 6 / 40)
    assert schedule_of(GlmMethod.AUTO, WORTH_ERRORS, 5, 14).method is GlmMethod.GRADIENT
    assert schedule_of(GlmMethod.AUTO, WORTH_ERRORS, 5, 11).method is GlmMethod.MEAN
    exact = schedule_of(GlmMethod.AUTO, INF, 5, 103)
    assert (exact.exact, exact.passes) == (True, 1 + 2 * exact.steps)
    for schedule in (small, large, exact):
        assert shares_of(schedule) == pytest.approx(1.0)
    for k, wider, meat in itertools.product((1.0, 90.0, 500.0, 1e6, INF), (1.0, 1.5, 2.0), (0.0, 0.1)):
        own = schedule_of(GlmMethod.NEWTON, k, 6, 105, rows=20_000, wider=wider, meat=meat)
        assert shares_of(own) == pytest.approx(1.0)
        assert (own.meat, own.cells > 0) == (meat, not own.exact)
        assert own.passes <= 107


def test_every_form_spends_the_budget_and_no_more() -> None:
    for family, method in itertools.product(list(ROW_FAMILIES), ("mean", "gradient", "newton")):
        plan = glm(family, method=method, epsilon=0.7, delta=1e-6).plan(500, 4)
        assert 0.69 < plan.epsilon(1e-6) <= 0.7
        assert str(method) in plan.notes[0]


def test_the_base_rate_alone_and_gradients_without_errors() -> None:
    X, y, hours, _ = simulated("poisson", 2000)
    model = glm("poisson", method="mean", epsilon=5.0, exposure_bounds=(0.5, 2)).fit(X, y, exposure=hours)
    assert (model.coef_ == 0).all()
    assert math.exp(model.intercept_) == pytest.approx(y.sum() / hours.sum(), rel=0.1)
    model = glm("logistic", method="gradient", epsilon=2.0).fit(X, (y > 1).astype(int))
    assert model.score(X, (y > 1).astype(int)) > 0.6
    with pytest.raises(UsageError, match="method='newton' there are"):
        model.summary()


def test_a_base_rate_stays_as_far_from_its_ends_as_its_noise() -> None:
    for family, most in (("logistic", 1.0), ("poisson", 12.0)):
        base = BaseRate(dataclasses.replace(responses(family, shifted=False)), 100)
        noise = np.array([0.1 * base.grid * 100])
        for value in (-1e9, 0.0, 1e12):
            mean, _ = base.decode(Total(np.array([value]), noise, ()), 100)
            assert 0.19 * most <= mean <= (0.81 if family == "logistic" else 1.0) * most


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("family", list(ROW_FAMILIES))
def test_newton_steps_find_the_truth_and_their_intervals_cover_it(family: str) -> None:
    truth, hits, privacy = np.array([0.5, -0.3, 0.0]), [], []
    for seed in range(sized(40, 4)):
        X, y, hours, known = simulated(family, 6000, seed)
        shifts = {"offset_bounds": (-0.5, 0.5), "exposure_bounds": (0.5, 2)}
        model = glm(family, epsilon=2.0, delta=1e-5, random_state=seed, method="newton", **shifts)
        model.fit(X, y, offset=known, exposure=np.ones(6000) if family == "logistic" else hours, sites=np.arange(6000) % 3)
        assert np.abs(model.coef_ - truth).max() < 0.3
        terms = model.summary().terms[:3]
        hits += [t.conf_low <= b <= t.conf_high for t, b in zip(terms, truth, strict=True)]
        privacy += [t.privacy / t.std_error for t in terms]
    assert np.mean(hits) > 0.6  # 12 of them: below it once in a hundred thousand at 95 %
    assert 0.05 < np.median(privacy) < 1


def test_a_summary_is_a_table_that_can_be_corrected_saved_and_read() -> None:
    X, y, _, _ = simulated("gamma", 3000)
    model = glm("gamma", epsilon=4.0, method="newton").fit(X, y)
    plain, corrected = model.summary(), model.summary(0.9, adjust="holm")
    assert [t.estimate for t in plain.terms] == [t.estimate for t in corrected.terms]
    assert corrected.terms[0].conf_high < plain.terms[0].conf_high
    assert "family gamma, dispersion" in str(plain)
    assert 0.2 < model.dispersion_ < 1.2
    assert "p (holm)" in corrected._repr_html_()
    for wrong in ({"confidence": 1.0}, {"adjust": "bonferroni"}):
        with pytest.raises(UsageError):
            model.summary(**wrong)


@pytest.mark.slow
@pytest.mark.minutes
def test_households_are_a_unit_too() -> None:
    X, y, _, _ = simulated("logistic", 3000)
    ids = np.arange(3000) // 3
    model = glm("logistic", epsilon=4.0, delta=1e-5, unit="household", rows_per_household=2)
    model.fit(X, y, sites=np.arange(3000) % 2, unit_id=ids)
    promised = model.statement_.epsilon_per_unit
    assert promised["record"] < promised["household"] <= 4.0
    assert model.score(X, y) > 0.55
    planned = model.plan(1000, 3)
    assert planned.epsilon(1e-5, "household") <= 4.0
    assert "2 rows each" in model.outlook(1000, 3, quick=True).assumed
    twice = glm("logistic", epsilon=4.0, delta=1e-5).plan(2000, 3).design.schedule
    assert planned.design.schedule.rounds <= twice.rounds


def test_files_hold_summaries(tmp_path) -> None:
    X, y, _, _ = simulated("logistic", 3000)
    table = glm("logistic", epsilon=4.0, method="newton").fit(X, y).summary()
    table.save(tmp_path / "table")
    assert unpooled.load(tmp_path / "table") == table


# --- requests, declarations, predictions -----------------------------------------------------------------------------------


def study(family: str = "logistic", **changes: Any) -> Study:
    columns = (*COLUMNS, EXPOSURE, OFFSET, changes.pop("response", response_of(family)))
    cards = tuple(Card(name, 12, columns) for name in ("a", "b"))
    parameters = {"response": "y", "family": family, **changes.pop("parameters", {})}
    return Study("glm", cards, 1.0, 1e-5, parameters=parameters, derived=(), **changes)


@pytest.mark.parametrize(
    ("words", "parameters", "response"),
    [
        ("family is one of", {"family": "probit"}, None),
        ("method is one of", {"method": "guess"}, None),
        ("max_passes", {"max_passes": 0}, None),
        ("confidence", {"confidence": 1.0}, None),
        ("ridge", {"ridge": -1.0}, None),
        ("rows is", {"rows": "long"}, None),
        ("for method 'moments' alone", {"rows": "unit"}, None),
        ("for method 'moments' alone", {"norm": 1.0}, None),
        ("is for the logistic family", {"method": "moments", "offset": "known"}, None),
        ("'direction' is for the logistic family", {"method": "direction", "offset": "known"}, None),
        ("'direction' is for the logistic family", {"method": "direction", "ridge": 0.1}, None),
        ("'direction' is for the logistic family", {"family": "poisson", "method": "direction"}, Column("y", 0, 5)),
        ("norm must be positive", {"method": "moments", "norm": -1.0}, None),
        ("dispersion", {"family": "negative-binomial", "dispersion": 0.0}, Column("y", 0, 5)),
        ("dispersion", {"family": "poisson", "dispersion": 0.0}, Column("y", 0, 5)),
        ("dispersion", {"family": "poisson", "dispersion": -1.0}, Column("y", 0, 5)),
        ("dispersion", {"family": "poisson", "dispersion": math.inf}, Column("y", 0, 5)),
        (
            "dispersion must be a positive number or 'estimate', not 'x'",
            {"family": "poisson", "dispersion": "x"},
            Column("y", 0, 5),
        ),
        ("dispersion", {"family": "poisson", "dispersion": [1.0]}, Column("y", 0, 5)),
        ("covariance is one of auto, model, robust, cluster", {"covariance": "x"}, None),
        ("covariance", {"covariance": 3}, None),
        ("covariance", {"covariance": None}, None),
        *(
            ("covariance 'robust' is of method 'newton'", {"covariance": "robust", "method": m}, None)
            for m in ("gradient", "mean", "moments")
        ),
        ("without ids nobody knows", {"covariance": "cluster", "method": "newton"}, None),
        ("focus", {"focus": ["a"]}, None),
        ("two classes", {}, Column("y", 0, 1)),
        ("two classes", {}, Column("y", categories=("a", "b", "c"))),
        ("is a number: declare", {"family": "poisson"}, None),
        ("begins at 0", {"family": "poisson"}, Column("y", -1, 5)),
        ("begins above 0", {"family": "gamma"}, Column("y", 0, 5)),
        ("never missing", {}, Column("y", categories=("no", "yes"), missing="absent")),
        ("never missing", {"offset": "m"}, None),
        ("exposure 'nothing'", {"exposure": "nothing"}, None),
        ("must be positive", {"exposure": "known"}, None),
        ("in a known way", {"offset": "c"}, None),
        ("a name of its own", {"offset": "known", "exposure": "known"}, None),
        ("must be one declared column", {"response": ""}, None),
        ("goes without fit_intercept=False", {"method": "mean", "fit_intercept": False}, None),
    ],
)
def test_a_study_that_means_nothing_is_refused(words: str, parameters: dict[str, Any], response: Column | None) -> None:
    changes = {} if response is None else {"response": response}
    with pytest.raises(UsageError, match=words):
        MODEL.compile(study(parameters=parameters, **changes))


@pytest.mark.guarantee
def test_cards_of_different_columns_are_refused_and_no_constant_leaves_gradients() -> None:
    first, second = study().parties
    other = Card("b", 12, second.columns[1:])
    with pytest.raises(UsageError, match="declare different columns"):
        MODEL.compile(Study("glm", (first, other), 1.0, 1e-5, parameters={"response": "y"}, derived=()))
    assert MODEL.compile(study(parameters={"ridge": 0.1})).design.schedule.method is GlmMethod.MEAN
    assert (
        MODEL.compile(study(parameters={"ridge": 0.1, "fit_intercept": False})).design.schedule.method is GlmMethod.GRADIENT
    )


@pytest.mark.guarantee
def test_requests_carry_what_the_plan_says() -> None:
    plan = MODEL.compile(study("gamma", parameters={"method": "newton"}))
    table = Table(
        {k: np.array([v, v], dtype=object if isinstance(v, str) else float) for k, v in one_row("gamma", RNG).items()}
    )

    class Asked:
        design, table = plan.design, None

    asked = Asked()
    asked.plan, asked.table = plan, table
    p, d = len(plan.design.layout.coding.attribute), plan.design.layout.size
    good = (*[0.0] * p, *[1.0] * p, *[0.1] * d, 1.0, 1.0, 1.0)
    for name, statistic in STATISTICS.items():
        if name in {"moments", "weights", "completeness", "completeness_score", "completeness_information", "influence"}:
            continue  # below, in test_weights.py, and in test_completeness.py
        needs = name not in {"base", "scales", "count"}
        assert statistic(asked, good if needs else ()).dtype == np.int64
        wild = (
            ((), good[:-1], (*good[:-1], 0.0), (*good[:-1], 5e-324), (*good[:-1], math.nan), (*good[:-1], 1e9))
            if needs
            else (good, (1.0,))
        )
        for settings in wild:
            with pytest.raises(PlanMismatch):
                statistic(asked, settings)


RNG = np.random.default_rng(0)


def test_exposures_and_offsets_go_with_their_ranges() -> None:
    X, y, hours, known = simulated("poisson", 200)
    model = glm("poisson", exposure_bounds=(0.5, 2), method="mean")
    with pytest.raises(UsageError, match="exposure and exposure_bounds go together"):
        model.fit(X, y)
    with pytest.raises(UsageError, match="offset and offset_bounds go together"):
        model.fit(X, y, exposure=hours, offset=known)
    with pytest.raises(DataError, match="a finite number for each"):
        model.fit(X, y, exposure=hours[:-1])
    model.fit(X, y, exposure=hours)
    assert model.shifted_by == {"exposure": "(exposure)"}
    assert model.predict(X, exposure=2 * hours) == pytest.approx(2 * model.predict(X, exposure=hours))
    with pytest.raises(DataError, match="positive"):
        model.predict(X, exposure=-hours)
    with pytest.raises(UsageError, match="to_sklearn is for the logistic family"):
        model.to_sklearn()


def test_responses_that_are_none_of_the_family_are_refused() -> None:
    X, y, _, _ = simulated("poisson", 100)
    for family, wrong in (("poisson", -y - 1.0), ("gamma", y * 0.0)):
        with pytest.warns(unpooled.PrivacyLeakWarning), pytest.raises(DataError, match="out of the valid range"):
            PrivateGLM(family).fit(X, wrong)
    with pytest.raises(UsageError, match="needs y_bounds"):
        PrivateGLM("poisson", bounds=(0, 1)).plan(100, 3)
    assert not hasattr(PrivateGLM("poisson"), "predict_proba")


def test_the_model_of_a_study_predicts_with_its_exposures(tmp_path) -> None:
    from unpooled.privacy.policy import Policy
    from unpooled.protocol.local import run_in_process
    from unpooled.study.saved import predictions

    rng = np.random.default_rng(4)
    n = 400
    data = {"age": rng.uniform(0, 1, n), "hours": rng.uniform(0.5, 8, n)}
    data["y"] = rng.poisson(data["hours"] * np.exp(data["age"] - 1)).clip(0, 20).astype(float)
    columns = (Column("age", 0, 1), Column("hours", 0.5, 8), Column("y", 0, 20))
    asked = Study(
        "glm",
        (Card("a", n, columns),),
        8.0,
        1e-5,
        parameters={"response": "y", "family": "poisson", "exposure": "hours", "method": "newton"},
        derived=(),
    )
    plan = MODEL.compile(asked)
    result = run_in_process(MODEL, plan, {"a": Table(data)}, Policy.in_process(), lambda _: MODEL).outcome.result
    model = fitted(plan, result)
    assert model.coef_[0] == pytest.approx(1.0, abs=0.5)
    pl.DataFrame(data).write_csv(tmp_path / "new.csv")
    found = predictions(model, tmp_path / "new.csv")["prediction"]
    assert found == pytest.approx(model.predict(pl.DataFrame({"age": data["age"]}), exposure=data["hours"]))
    pl.DataFrame(data).with_columns(hours=pl.lit("much")).write_csv(tmp_path / "bad.csv")
    with pytest.raises(DataError, match="holds text"):
        predictions(model, tmp_path / "bad.csv")
    text, terms = MODEL.table(plan, result), MODEL.reading.terms(plan, result)
    assert "age" in text
    assert [t.term for t in terms] == ["age", "(intercept)"]
    assert terms[0].std_error is not None
    assert MODEL.reading.panels(plan, result)[0].low


# --- outlook, audit, scikit-learn --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_an_outlook_says_when_a_study_is_worth_its_budget() -> None:
    shape: dict[str, Any] = {"signal": 0.8, "correlation": 0.0, "ranges": 3.0, "quick": True}
    few, many = (glm("poisson").outlook(n, 3, rate=0.1, **shape) for n in (60, 5000))
    assert not few.worthwhile
    assert many.worthwhile
    assert many.noise_free <= many.error + 0.02 < 0.98
    assert "newton" in many.model
    rare, usual = (glm("logistic").outlook(3000, 3, rate=rate, **shape) for rate in (0.01, 0.5))
    assert (1 - rare.error) / (1 - rare.noise_free) < (1 - usual.error) / (1 - usual.noise_free)
    with pytest.raises(UsageError, match="rate must be"):
        glm("logistic").outlook(3000, 3, rate=2.0)
    shifted = glm("poisson", exposure_bounds=(0.5, 2), offset_bounds=(-1, 1))
    assert shifted.outlook(3000, 3, quick=True).error < 1


@pytest.mark.long_for("gamma-replace")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize(
    ("family", "adjacency"),
    [*itertools.product(list(ROW_FAMILIES) if FULL else ("gamma",), ("replace", "zero-out"))],
)
def test_studies_are_audited_in_every_unit(family: str, adjacency: str) -> None:
    rng = np.random.default_rng(1)
    columns = (Column("a", -1, 3), EXPOSURE, response_of(family))
    tables = {
        name: Table(
            {
                "a": rng.uniform(-1, 3, 6),
                "hours": rng.uniform(0.5, 8, 6),
                "y": rng.choice(np.array(["no", "yes"], dtype=object), 6)
                if family == "logistic"
                else rng.uniform(0.25, 12, 6),
            }
        )
        for name in ("a", "b")
    }
    cards = tuple(Card(name, 6, columns) for name in tables)
    parameters = {"response": "y", "family": family, "exposure": "hours", "method": "newton", "max_passes": 5}
    for unit in ROWWISE:
        asked = Study(
            "glm",
            cards,
            1.0,
            1e-5,
            unit=str(unit),
            adjacency=adjacency,
            trust={"aggregation": "trusted"},
            parameters=parameters,
            derived=(),
        )
        report = replay(MODEL, asked, tables, registry=load, rounds=3)
        assert report.passed, str(report)
        if adjacency == "replace":
            # The bound of a score follows a dispersion that is learned under noise, here from 12 rows: it may be wide.
            least = {"base": 0.1, "descent": 0.1, "score": 0.01}
            reached = {name: report.largest[who, kind, name] for who, kind, name in report.largest if who == unit}
            assert all(reached[name] > value for name, value in least.items()), reached


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("rows", ["unit", "shorten"] if FULL else ["shorten"])
def test_moments_are_audited_too(rows: str) -> None:
    rng = np.random.default_rng(1)
    columns = (Column("a", -1, 3), Column("b", 0, 1, missing="absent"), response_of("logistic"))
    tables = {
        name: Table(
            {
                "a": rng.uniform(-1, 3, 6),
                "b": rng.uniform(0, 1, 6),
                "y": rng.choice(np.array(["no", "yes"], dtype=object), 6),
            }
        )
        for name in ("a", "b")
    }
    parameters = {"response": "y", "method": "moments", "rows": rows, "max_passes": 4}
    cards = tuple(Card(name, 6, columns) for name in tables)
    for unit, adjacency in itertools.product(ROWWISE, Adjacency):
        asked = Study("glm", cards, 1.0, 1e-5, unit=str(unit), adjacency=str(adjacency), parameters=parameters, derived=())
        asked = msgspec.structs.replace(asked, trust={"aggregation": "trusted"})
        report = replay(MODEL, asked, tables, registry=load, rounds=2)
        assert report.passed, str(report)
        if unit is Unit.RECORD:
            assert max(share for (_, _, name), share in report.largest.items() if name == "moments") > 0.3


def test_moments_that_are_too_long_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = row_kernels.scaled_rows

    def long(coded, longest, unit, constant, grid, out) -> None:
        honest(coded, longest, unit, constant, grid, out)
        out *= 1.1

    monkeypatch.setattr(row_kernels, "scaled_rows", long)
    with pytest.raises(AssertionError):
        assert max(shares_of_reach("logistic", seeds=20).values()) <= 1 + 1e-12


@pytest.mark.guarantee
def test_the_model_of_a_study_of_directions_predicts_by_them() -> None:
    from unpooled.privacy.policy import Policy
    from unpooled.protocol.local import run_in_process

    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 3)).clip(-3, 3)
    y = np.where(rng.random(2000) < 1 / (1 + np.exp(-2 * X[:, 0])), "yes", "no").astype(object)
    columns = (*(Column(f"x{j}", -3, 3) for j in range(3)), Column("y", categories=("no", "yes")))
    parameters = {"response": "y", "method": "moments", "rows": "unit"}
    asked = Study("glm", (Card("a", 2000, columns),), 8.0, 1e-5, parameters=parameters, derived=())
    plan = MODEL.compile(asked)
    table = Table({**{f"x{j}": X[:, j] for j in range(3)}, "y": y})
    model = fitted(plan, run_in_process(MODEL, plan, {"a": table}, Policy.in_process(), lambda _: MODEL).outcome.result)
    frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(3)})
    assert np.mean(model.predict(frame) == y) > 0.7
    half = model.predict_proba(pl.DataFrame({f"x{j}": X[:, j] / 2 for j in range(3)}))
    assert model.predict_proba(frame) == pytest.approx(half, abs=1e-4)
    with pytest.raises(UsageError, match="of rows as they are"):
        model.to_sklearn()


def test_requests_along_a_direction_carry_what_the_plan_says() -> None:
    plan = MODEL.compile(study(parameters={"method": "moments", "rows": "unit"}))
    scores = plan.design.along
    p = plan.design.directions.columns
    good = (*[0.1] * p, 1.0, 0.0, 1.0, 1.0, 1.0)
    assert scores.numbers(good)[0].size == p
    for wild in ((), good[:-1], (*good[:-1], 0.0), (math.nan, *good[1:]), (1e7, *good[1:])):
        with pytest.raises(PlanMismatch):
            scores.numbers(wild)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_an_audit_catches_pulls_that_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncut(residual, square, fine, farthest, longest) -> None:
        del square, longest
        residual[:] = np.trunc(np.clip(residual * fine * 3, -farthest, farthest))

    asked = study("poisson", response=Column("y", 0, 12), parameters={"method": "gradient", "max_passes": 3})
    cards = tuple(msgspec.structs.replace(card, rows=5) for card in asked.parties)
    asked = msgspec.structs.replace(asked, parties=cards, trust={"aggregation": "trusted"})
    rng = np.random.default_rng(2)
    rows = {name: [one_row("poisson", rng) for _ in range(5)] for name in ("a", "b")}
    tables = {
        name: Table(
            {k: np.array([r[k] for r in own], dtype=object if isinstance(own[0][k], str) else float) for k in own[0]}
        )
        for name, own in rows.items()
    }
    assert replay(MODEL, asked, tables, registry=load, rounds=2).passed
    monkeypatch.setattr(row_kernels, "cut_residuals", uncut)
    monkeypatch.setattr(Quantity, "own", lambda self, context, settings: self.statistic(context, settings))
    assert not replay(MODEL, asked, tables, registry=load, rounds=2).passed


@pytest.mark.slow
@parametrize_with_checks(
    [PrivateGLM(epsilon=INF, bounds=(-20, 20)), PrivateGLM("poisson", epsilon=INF, bounds=(-20, 20), y_bounds=(0, 500))]
)
@pytest.mark.filterwarnings("ignore::unpooled.PrivacyLeakWarning")
def test_scikit_learns_own_checks(estimator, check) -> None:
    check(estimator)
