"""Sites that differ: constants of their own, fixed and random, against textbook fits; what a row moves; what is refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize

import unpooled
from unpooled import PrivateGLM, PrivateLinearRegression
from unpooled.errors import UsageError
from unpooled.estimation.outlook import Imagined
from unpooled.inference.coding import SITE
from unpooled.inference.sites import SiteConstants, known_moments, noise_norm
from unpooled.kernels.between_sites import reml
from unpooled.kernels.noisy import noise_level
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.standard import CONSTANT, Scales, StandardRows
from unpooled.models import load
from unpooled.models.bayes.fit import coordinate_rows as coordinate
from unpooled.models.bayes.rows import STATISTICS
from unpooled.models.glm.curvature import curvature, curvature_of_sites
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit

INF = math.inf
BOUNDS = {"a": (-4, 4), "b": (-4, 4), "g": ["u", "v", "w"]}


def drawn(n: int = 3000, sites: int = 4, seed: int = 0, apart: float = 0.6) -> tuple[pl.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    site, own = rng.integers(0, sites, n), rng.normal(0, apart, sites)
    x = np.clip(rng.normal(size=(n, 2)) + 0.3 * own[site][:, None], -4, 4)
    g = rng.choice(["u", "v", "w"], n)
    u = x @ [0.5, -0.3] + own[site] + 0.2 * (g == "v")
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "g": g, "y": np.clip(1 + u + rng.normal(size=n), -8, 8)})
    return frame, np.array([f"s{k}" for k in site]), u


def design(frame: pl.DataFrame, sites: np.ndarray, *, dummies: bool = True) -> np.ndarray:
    columns = [frame["a"], frame["b"], frame["g"] == "v", frame["g"] == "w"]
    own = [sites == name for name in sorted(set(sites))[1:]] if dummies else []
    return np.column_stack([*columns, *own, np.ones(frame.height)]).astype(float)


def fitted(
    frame: pl.DataFrame, sites: np.ndarray, effects: str, epsilon: float = INF, **more: Any
) -> PrivateLinearRegression:
    model = PrivateLinearRegression(
        epsilon=epsilon, bounds=BOUNDS, y_bounds=(-8, 8), site_effects=effects, random_state=0, **more
    )
    return model.fit(frame, "y", sites=sites)


def lines(table: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.array([t.estimate for t in table.terms]), np.array([t.std_error for t in table.terms])


# --- without noise ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "refinement"])
def test_fixed_constants_are_least_squares_with_dummies(method: str) -> None:
    frame, sites, _ = drawn()
    model = fitted(frame, sites, "fixed", method=method)
    X, y = design(frame, sites), frame["y"].to_numpy()
    b = np.linalg.lstsq(X, y, rcond=None)[0]
    left = y - X @ b
    errors = np.sqrt(np.linalg.inv(X.T @ X).diagonal() * (left @ left) / (len(y) - X.shape[1]))
    table = model.summary(reference={"site": "s0"})
    names = [t.term for t in table.terms]
    assert names == ["a", "b", "g: v - u", "g: w - u", "site: s1 - s0", "site: s2 - s0", "site: s3 - s0", "(intercept)"]
    found, spread = lines(table)
    assert np.abs(found - b).max() < (1e-5 if method == "auto" else 2e-3)
    assert np.allclose(spread, errors, rtol=2e-3)
    mean = np.mean([0.0, *b[4:7]])
    against_mean = {t.term: t.estimate for t in model.summary(coding="sum").terms}
    assert against_mean["site: s1 - mean"] == pytest.approx(b[4] - mean, abs=2e-3)
    assert model.contrast("site: s2 - s1").terms[0].estimate == pytest.approx(b[5] - b[4], abs=2e-3)


def test_a_formula_may_name_the_sites() -> None:
    frame, sites, _ = drawn(apart=0.3)
    model = fitted(frame, sites, "fixed", formula="y ~ a * site + b")
    names = sorted(set(sites))
    y, a, b = (frame[name].to_numpy() for name in ("y", "a", "b"))
    X = np.column_stack([*[(sites == s) * a for s in names], b, *[sites == s for s in names]]).astype(float)
    own = np.linalg.lstsq(X, y, rcond=None)[0]
    found = {t.term: t.estimate for t in model.summary(reference={"site": "s0"}).terms}
    assert found["a"] == pytest.approx(own[0], abs=1e-5)
    assert found["a * (site: s2 - s0)"] == pytest.approx(own[2] - own[0], abs=1e-5)
    assert found["site: s3 - s0"] == pytest.approx(own[8] - own[5], abs=1e-5)
    assert np.abs(model.predict(frame, sites=sites) - X @ own).max() < 0.05  # they are shrunk a little


def test_a_logistic_fit_with_dummies_is_the_textbooks() -> None:
    frame, sites, u = drawn(seed=2)
    y = np.random.default_rng(3).random(len(u)) < 1 / (1 + np.exp(-u))
    model = PrivateGLM("logistic", epsilon=INF, bounds=BOUNDS, classes=[False, True], site_effects="fixed")
    model.fit(frame.drop("y"), y, sites=sites)
    X, b = design(frame, sites), np.zeros(8)
    for _ in range(25):
        p = 1 / (1 + np.exp(-X @ b))
        information = (X * (p * (1 - p))[:, None]).T @ X
        b += np.linalg.solve(information, X.T @ (y - p))
    found, errors = lines(model.summary(reference={"site": "s0"}))
    assert np.abs(found - b).max() < 1e-4
    assert np.allclose(errors, np.sqrt(np.linalg.inv(information).diagonal()), rtol=1e-3)
    assert np.allclose(model.linear_predictor(frame.drop("y"), sites=sites), X @ b, atol=1e-3)


def mixed(X: np.ndarray, y: np.ndarray, sites: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return coefficients, their covariance and tau^2 of the joint restricted likelihood, by M - sum of rho S S'."""
    groups = [sites == name for name in sorted(set(sites))]

    def parts(t: float, s: float) -> tuple[np.ndarray, np.ndarray, float]:
        gram, cross, square, logs = X.T @ X, X.T @ y, y @ y, 0.0
        for own in groups:
            n = own.sum()
            rho = t / (s + n * t)
            S, total = X[own].sum(axis=0), y[own].sum()
            gram, cross, square = gram - rho * np.outer(S, S), cross - rho * S * total, square - rho * total**2
            logs += n * math.log(s) + math.log1p(n * t / s)
        b = np.linalg.solve(gram, cross)
        return b, s * np.linalg.inv(gram), logs + np.linalg.slogdet(gram / s)[1] + (square - b @ cross) / s

    found = minimize(lambda p: parts(*np.exp(p))[2], [-1, 0], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-10})
    t, s = np.exp(found.x)
    return *parts(t, s)[:2], t


@pytest.mark.parametrize("sites", [3, 9])
def test_random_constants_are_those_of_the_mixed_model(sites: int) -> None:
    """Theorem B.18."""
    frame, labels, _ = drawn(sites=sites, seed=sites)
    table = fitted(frame, labels, "random")._tables()
    b, covariance, spread = mixed(design(frame, labels, dummies=False), frame["y"].to_numpy(), labels)
    found, errors = lines(table.summary())
    assert table.spread == pytest.approx(spread, rel=2e-3)
    assert np.abs(found - b).max() < 2e-4
    assert np.allclose(errors[:-1], np.sqrt(covariance.diagonal())[:-1], rtol=2e-3)
    text = str(table.summary())
    assert "tau^2" in text
    assert ("hardly known" in text) == (sites < 8)
    assert errors[-1] > math.sqrt(covariance[-1, -1])  # Student's, not the normal law's
    assert table.data()["tau_squared"] == table.spread
    assert [test.name for test in table.anova().tests] == ["a", "b", "g"]


def test_noise_of_the_constants_is_no_spread_between_them() -> None:
    rng = np.random.default_rng(0)
    covariance = np.diag(rng.uniform(0.5, 2, 40)) + 0.3
    root = np.linalg.cholesky(covariance)
    found = [reml(root @ rng.normal(size=40), covariance) for _ in range(200)]
    assert np.mean(found) < 0.15
    forgotten = [reml(root @ rng.normal(size=40), 1e-6 * covariance) for _ in range(50)]  # broken on purpose
    assert np.mean(forgotten) > 0.8
    apart = [reml(root @ rng.normal(size=40) + 2 * rng.normal(size=40), covariance) for _ in range(200)]
    assert np.mean(apart) == pytest.approx(4, abs=0.4)


# --- what one row moves -------------------------------------------------------------------------------------------------------------


def layout_of(sites: int = 3) -> MomentsLayout:
    columns = (Column("a", -1, 1), Column("b", -1, 1), Column("y", -1, 1))
    names = tuple(f"s{k}" for k in range(sites))
    return MomentsLayout.of(columns, "y", 100, sites=SiteConstants(names, (50, 30, 20)[:sites]))


def added(rows: StandardRows, at: tuple[float, float, float], site: str, what: str) -> np.ndarray:
    """Return what one row adds: half of what a table of two equal ones adds, seen by the party of this name."""
    table = Table({name: np.full(2, value) for name, value in zip(("a", "b", "y"), at, strict=True)})
    seen = rows.layout.sites.seen(table, site)
    standard = np.array([0.1, -0.2, 0, 0, 0, 0.3]), np.array([0.5, 0.4, *[1 / 0.7] * 3, 0.6])
    blocks, start = rows.blocks(seen, standard), np.array([0.2, 0.1, 0.3, 0.0, -0.3, 0.1])
    if what == "descent":
        return rows.gradient(blocks, start) / 2
    return rows.products(blocks, start, 0.4) / 2


CORNERS = list(itertools.product((-1.0, 0.0, 1.0), repeat=3))


@pytest.mark.parametrize("what", ["descent", "residual"])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_row_of_a_site_moves_a_total_farther_than_planned(what: str, adjacency: Adjacency) -> None:
    """Theorem B.17, by all pairs of corners at one site."""
    layout = layout_of()
    rows = StandardRows(layout, 100, 0.8)
    vector = rows.descent(1.0, adjacency, 1) if what == "descent" else rows.residual(1.0, adjacency)
    widths = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
    farthest = measured(rows, what, widths, adjacency)
    planned = vector.reach[Unit.RECORD].distance
    assert farthest <= planned * (1 + 1e-3)
    assert farthest >= 0.6 * planned


def measured(rows: StandardRows, what: str, widths: np.ndarray, adjacency: Adjacency) -> float:
    found = 0.0
    for site in rows.layout.sites.names:
        every = np.array([added(rows, at, site, what) / widths for at in CORNERS])
        gaps = every if adjacency is Adjacency.ZERO_OUT else (every[:, None] - every[None]).reshape(-1, widths.size)
        found = max(found, float(np.linalg.norm(gaps, axis=1).max()))
    return found


def test_an_indicator_that_no_length_holds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the indicator is written after rows were shortened."""
    shortened = StandardRows._shortened

    def longer(self: StandardRows, *given: Any) -> Any:
        for out in shortened(self, *given):
            out[:, self.layout.at_sites] *= 4
            yield out

    monkeypatch.setattr(StandardRows, "_shortened", longer)
    rows = StandardRows(layout_of(), 100, 0.8)
    vector = rows.residual(1.0, Adjacency.ZERO_OUT)
    widths = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
    assert measured(rows, "residual", widths, Adjacency.ZERO_OUT) > 1.2 * vector.reach[Unit.RECORD].distance


def test_many_sites_make_no_row_longer_and_nothing_is_released_to_standardise_them() -> None:
    few, many = (
        layout_of(2),
        MomentsLayout.of(
            (Column("a", -1, 1), Column("b", -1, 1), Column("y", -1, 1)),
            "y",
            100,
            sites=SiteConstants(tuple("abcdefghij"), (10,) * 10),
        ),
    )
    assert StandardRows(few, 100, 0.8).radius == StandardRows(many, 100, 0.8).radius == math.sqrt(2 + 2 * CONSTANT**2)
    pooled = MomentsLayout.of((Column("a", -1, 1), Column("b", -1, 1), Column("y", -1, 1)), "y", 100)
    one, other = (Scales(layout).vector(1.0, Adjacency.REPLACE) for layout in (pooled, many))
    assert one.blocks == other.blocks
    assert one.reach == other.reach


# --- what is known of sites beforehand ------------------------------------------------------------------------------------------------


def test_products_of_sites_are_nothing_and_squares_are_averaged() -> None:
    gram = np.array([[9.0, 1, 2, 3], [1, 2.5, 0.4, 2.2], [2, 0.4, 1.5, 1.9], [3, 2.2, 1.9, 4.0]])
    variance = np.ones((4, 4))
    found, noise = known_moments(gram, variance, np.array([1, 2]), np.array([0.6, 0.4]), (0.7, 0.7), alike=False)
    assert found[1, 2] == found[2, 1] == noise[1, 2] == 0
    weights = np.array([1, 1, 1 / (0.5 * 2.4) ** 2])
    assert found[1, 1] == found[1, 3] == pytest.approx(weights @ [2.5, 2.2, 2.4] / weights.sum())
    assert noise[1, 1] == pytest.approx(1 / weights.sum())
    assert (found[0] == gram[0]).all()


def test_the_norm_of_unlike_noise_is_the_old_one_where_it_is_alike() -> None:
    variance = np.full((6, 6), 0.5) + 0.5 * np.eye(6)
    assert noise_norm(variance) == pytest.approx(noise_level(variance))


def test_eliminated_sites_give_the_same_step() -> None:
    rng = np.random.default_rng(0)
    site = rng.integers(0, 3, 500)
    z = np.column_stack([rng.normal(size=(500, 2)), 0.7 * np.eye(3)[site], np.full(500, 0.7)])
    parts = np.bincount(site) / 500
    still = np.array([0, 0, 1, 1, 1, -1.0])[:, None] / 2
    gram, score, nothing = z.T @ z, z.T @ rng.normal(size=500), np.zeros(6)
    plain = curvature(gram, np.zeros((6, 6)), nothing, still)
    eliminated = curvature_of_sites(gram, np.full((6, 6), 1e-9), nothing, still, np.array([2, 3, 4]), parts)
    one, other = plain.inverse @ score, eliminated.inverse @ score
    assert np.allclose(z @ one, z @ other, atol=1e-6)
    assert other[2:5] @ parts == pytest.approx(0, abs=1e-9)


def test_a_site_that_the_noise_hides_has_no_line_and_puts_no_noise_into_the_slopes() -> None:
    rng = np.random.default_rng(0)
    site = np.repeat([0, 1, 2], [480, 480, 40])
    z = np.column_stack([rng.normal(size=1000) + (site == 2), 0.7 * np.eye(3)[site], np.full(1000, 0.7)])
    parts, places = np.array([0.48, 0.48, 0.04]), np.array([1, 2, 3])
    still = np.array([0, 1, 1, 1, -1.0])[:, None] / 2
    given = z.T @ z, np.full((5, 5), 4.0), np.zeros(5), still, places, parts
    quiet, noisy = (curvature_of_sites(*given, noise) for noise in (1.0, 40.0))
    assert quiet.lost.tolist() == []
    assert noisy.lost.tolist() == [3]
    assert noisy.inverse[3, 3] < quiet.inverse[3, 3]
    assert abs(noisy.inverse[0, 3]) < abs(quiet.inverse[0, 3])


@pytest.mark.parametrize("epsilon", [INF, 8.0])
def test_a_site_that_dropped_out_has_no_line(epsilon: float) -> None:
    """The rows of the others are all that is known; nobody takes the absent site's for granted."""
    columns = (Column("a", -1, 1), Column("b", -1, 1), Column("y", -1, 1))
    names = ("oslo", "porto", "riga", "turin")
    rng = np.random.default_rng(0)
    study = Study(
        "bayes",
        tuple(Card(name, 4000, columns) for name in names),
        epsilon,
        1e-6,
        parameters={"response": "y", "site_effects": "random", "tolerate": 1, "method": "refinement"},
        derived=(),
    )
    plan = load("bayes").compile(study)
    site = np.repeat(names[:3], 4000)
    x = rng.uniform(-1, 1, (12_000, 2))
    y = np.clip(x @ [0.3, -0.2] + 0.2 * (site == "riga") + rng.normal(0, 0.1, 12_000), -1, 1)
    table = Table({"a": x[:, 0], "b": x[:, 1], "y": y, SITE: site.astype(object)})

    class Present(Imagined):
        def collect(self, *given: Any) -> Any:
            total = yield from super().collect(*given)
            return replace(total, values=total.values * 0.75, participants=names[:3])  # the table stands for all rows

    noise = np.random.default_rng(1)
    aggregation = Present(names, 1, table=table, real=plan, rng=noise, statistics=STATISTICS)
    conversation = coordinate(replace(plan, design=replace(plan.design, aggregation=aggregation)))
    try:
        next(conversation)
    except StopIteration as end:
        result = end.value
    text = str(load("bayes").tables(plan, result).summary())
    assert "rest on 3 of 4 sites" in text
    (line,) = [t for t in load("bayes").reading.terms(plan, result) if t.term == "a"]
    assert line.estimate == pytest.approx(0.3, abs=0.03)


# --- around a fit ---------------------------------------------------------------------------------------------------------------------


def test_a_study_that_pools_sites_keeps_its_parameters() -> None:
    for model in (
        PrivateLinearRegression(bounds=(0, 1), y_bounds=(0, 1)),
        PrivateGLM("poisson", bounds=(0, 1), y_bounds=(0, 9)),
    ):
        assert "site_effects" not in model.plan(1000, 2, {"s": 500, "t": 500}).study.parameters


@pytest.mark.slow
@pytest.mark.parametrize("effects", ["fixed", "random"])
def test_a_saved_fit_predicts_and_prints_the_same(effects: str, tmp_path: Any) -> None:
    frame, sites, _ = drawn(n=20_000)
    model = fitted(frame, sites, effects, epsilon=3.0)
    model.save(tmp_path / "model")
    again = unpooled.load(tmp_path / "model")
    assert str(again.summary()) == str(model.summary())
    assert (again.predict(frame, sites=sites) == model.predict(frame, sites=sites)).all()
    means = (
        np.mean(
            [model.predict(frame, sites=np.full(len(sites), s)).mean() * (sites == s).mean() for s in sorted(set(sites))]
        )
        * 4
    )
    assert model.predict(frame).mean() == pytest.approx(means)
    with pytest.raises(UsageError, match="no constant in this model"):
        model.predict(frame[:2], sites=["s0", "elsewhere"])
    with pytest.raises(UsageError, match="2 labels"):
        model.predict(frame[:3], sites=["s0", "s1"])
    with pytest.raises(UsageError, match="leave sites out"):
        fitted(frame, sites, "pooled", epsilon=3.0).predict(frame[:2], sites=["s0", "s1"])
    with pytest.raises(UsageError, match="constants of sites"):
        model.to_sklearn()


@pytest.mark.slow
def test_noise_leaves_the_constants_where_they_are() -> None:
    frame, sites, _ = drawn(n=40_000, seed=5)
    model = fitted(frame, sites, "fixed", epsilon=5.0)
    exact = lines(fitted(frame, sites, "fixed").summary())[0]
    found, errors = lines(model.summary())
    assert model.method_ == "refinement"
    assert np.abs((found - exact) / errors).max() < 5
    assert errors.max() < 0.2


STUDY = Study(
    "bayes",
    tuple(Card(name, 300, (Column("a", 0, 1), Column("y", 0, 1))) for name in ("oslo", "riga")),
    1.0,
    1e-5,
    parameters={"response": "y", "site_effects": "fixed"},
    derived=(),
)


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        ("bayes", {"site_effects": "own"}, "'pooled', 'fixed', 'random'"),
        ("glm", {"site_effects": "own"}, "'pooled', 'fixed', 'random'"),
        ("glm", {"site_effects": "random"}, "meta_analysis"),
        ("glm", {"method": "gradient"}, "'auto' and 'newton'"),
        ("bayes", {"method": "gradient"}, "'auto', 'refinement' and 'moments'"),
        ("bayes", {"focus": ["a"]}, "without focus"),
        ("bayes", {"projection": 0.2}, "without focus, norm"),
        ("bayes", {"fit_intercept": False}, "intercept"),
        ("bayes", {"formula": "0 + a"}, "intercept"),
        ("bayes", {"site_effects": "random", "formula": "a * site"}, "one slope for all sites"),
    ],
)
def test_what_sites_do_not_go_with_is_refused(model: str, change: dict[str, Any], words: str) -> None:
    parameters = {**STUDY.parameters, **change} | ({"family": "poisson"} if model == "glm" else {})
    with pytest.raises(UsageError, match=words):
        load(model).compile(msgspec.structs.replace(STUDY, model=model, parameters=parameters))


def test_one_site_and_a_column_of_that_name_are_refused() -> None:
    with pytest.raises(UsageError, match="this study has one"):
        load("bayes").compile(msgspec.structs.replace(STUDY, parties=STUDY.parties[:1]))
    cards = tuple(msgspec.structs.replace(c, columns=(*c.columns, Column(SITE, 0, 1))) for c in STUDY.parties)
    with pytest.raises(UsageError, match="rename"):
        load("bayes").compile(msgspec.structs.replace(STUDY, parties=cards))
    rng = np.random.default_rng(0)
    X = rng.random((50, 3))
    with pytest.raises(UsageError, match="site_effects"):
        PrivateLinearRegression(parties=2, bounds=(0, 1), y_bounds=(0, 1), site_effects="fixed").fit(X, X[:, 0])


@pytest.mark.slow
def test_random_constants_of_few_sites_fall_back_to_fixed_ones() -> None:
    """The noise hides two of three sites: the slopes are printed all the same, and the table says whose constants these are."""
    rng = np.random.default_rng(0)
    n = 20_000
    site = rng.choice(["a", "b", "c"], n, p=[0.96, 0.02, 0.02])
    x = rng.normal(size=(n, 4)).clip(-5, 5)
    frame = pl.DataFrame({**{f"x{k}": x[:, k] for k in range(4)}, "y": (0.5 * x[:, 0] + rng.normal(size=n)).clip(-10, 10)})
    model = PrivateLinearRegression(
        epsilon=0.25,
        delta=1e-5,
        bounds={f"x{k}": (-5, 5) for k in range(4)},
        y_bounds=(-10, 10),
        site_effects="random",
        method="refinement",
        random_state=0,
    ).fit(frame, "y", sites=site)
    table = model.summary()
    assert [line.term for line in table.terms] == ["x0", "x1", "x2"]
    assert abs(table.terms[0].estimate - 0.5) < 4 * table.terms[0].std_error
    assert table.not_determined == ("x3", "site: b - a", "site: c - a", "(intercept)")
    assert "each site has a constant of its own here, as with site_effects = 'fixed'" in str(table)
    tables = model._tables()
    assert math.isnan(tables.spread)
    assert tables.data()["tau_squared"] is None
