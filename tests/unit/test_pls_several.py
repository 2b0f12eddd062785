"""PLS of several responses from one release: the kernel beside scikit-learn's, the reach, what each response is told, files and refusals."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from sklearn.cross_decomposition import PLSRegression

import unpooled
from unpooled import Bounds, PrivatePLSRegression
from unpooled.audit.replay import replay
from unpooled.errors import UsageError
from unpooled.estimation import outlook as outlooks
from unpooled.kernels.pls import Centred, kernel_pls, kernel_pls2
from unpooled.linear.layout import AUGMENTED_WEIGHTS, Geometry, MomentsLayout
from unpooled.models import load
from unpooled.models.pls import components as pls_components
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit

EXACT = {"basis": "none", "epsilon": math.inf, "bounds": Bounds(norm=3.0)}


def data(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Twelve channels of four directions, three responses."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 4))
    X = 0.15 * scores @ rng.normal(size=(4, 12)) + 0.02 * rng.normal(size=(n, 12))
    Y = scores @ rng.normal(size=(4, 3)) * 0.5 + 0.1 * rng.normal(size=(n, 3))
    return X, Y


@pytest.mark.parametrize("components", [1, 2, 4])
def test_the_kernel_is_scikit_learns_on_exact_moments(components: int) -> None:
    X, Y = data()
    x, y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    found = kernel_pls2(x.T @ x, x.T @ y, components)
    theirs = PLSRegression(components, scale=False, tol=1e-14, max_iter=10_000).fit(X, Y)
    np.testing.assert_allclose(found.coefficients[:, :, -1], theirs.coef_.T, atol=1e-6)
    np.testing.assert_allclose(np.abs(found.weights), np.abs(theirs.x_weights_), atol=1e-6)
    np.testing.assert_allclose(np.abs(found.y_loadings), np.abs(theirs.y_loadings_), atol=1e-6)


def test_of_one_response_both_kernels_are_one() -> None:
    X, Y = data()
    own = Centred.of(X, Y[:, 0])
    one, two = kernel_pls(own.gram, own.cross, 6), kernel_pls2(own.gram, own.cross[:, None], 6)
    np.testing.assert_allclose(two.coefficients[:, 0], one.coefficients, atol=1e-9)
    np.testing.assert_allclose(two.y_loadings[0], one.y_loadings, atol=1e-9)


def test_moments_that_hold_fewer_components_leave_the_others_empty() -> None:
    X = np.outer(np.linspace(-1, 1, 50), [1.0, 2.0])
    found = kernel_pls2(X.T @ X, X.T @ np.column_stack([X[:, 0], -X[:, 0]]), 2)
    assert found.y_loadings[:, 1].tolist() == [0.0, 0.0]
    nothing = kernel_pls2(X.T @ X, np.zeros((2, 2)), 2)
    assert not nothing.coefficients.any()
    assert not kernel_pls2(-np.eye(2), np.ones((2, 2)), 1).coefficients.any()  # no Gram at all


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_release_of_several_responses_moves_as_far_as_one_of_one(adjacency: Adjacency) -> None:
    """A search over rows at the ends of their ranges, by the code that adds them up; q = 1 and 3, and without the root of q (Theorem C.5)."""
    for count in (1, 3):
        y = tuple(Column(f"y{k}", -1.0, 1.0) for k in range(count))
        columns = (Column("a", -1.0, 1.0), Column("b", -1.0, 1.0), y[0])
        layout = MomentsLayout.of(columns, "y0", 100, geometry=Geometry.AUGMENTED, norm=1.0, others=y[1:])
        vector = layout.vector("moments", adjacency)
        widths = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
        rng = np.random.default_rng(0)
        turns = rng.normal(size=(40, 2))
        turns /= np.linalg.norm(turns, axis=1, keepdims=True)
        signs = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=count)))
        rows = [(*turn, *sign) for turn in [*turns, np.zeros(2)] for sign in signs]
        points = np.array([layout.added_up([tuple(np.array([v]) for v in row)]) for row in rows]) / widths
        declared = vector.reach[Unit.RECORD].distance
        if adjacency is Adjacency.ZERO_OUT:
            farthest = float(np.linalg.norm(points, axis=1).max())
        else:
            farthest = max(float(np.linalg.norm(points - point, axis=1).max()) for point in points)
        assert 0.97 * declared < farthest <= declared * (1 + 1e-9)
        # A response of its own full weight each would be farther: the root of q is needed.
        entries = np.where(layout.pairs[1] > layout.size, math.sqrt(count), 1.0)
        if count > 1:
            full = points * entries * np.where(layout.pairs[0] >= layout.size, math.sqrt(count), 1.0)
            assert max(float(np.linalg.norm(full - point, axis=1).max()) for point in full) > declared
    assert sum(AUGMENTED_WEIGHTS) == pytest.approx(1.0)


def laboratories(n: int = 30) -> tuple[Study, dict[str, Table]]:
    rng = np.random.default_rng(1)
    columns = (*(Column(f"c{k}", -1.0, 1.0) for k in range(3)), Column("fat", 0.0, 2.0), Column("protein", -3.0, 1.0))
    tables = {name: Table({c.name: rng.uniform(*c.range, n) for c in columns}) for name in ("a", "b")}
    cards = tuple(Card(name, n, columns) for name in tables)
    parameters = {"response": ["fat", "protein"], "basis": "none", "norm": 1.2}
    trust = {"aggregation": "trusted"}
    return Study("pls", cards, 1.0, 1e-5, parameters=parameters, trust=trust, derived=()), tables


@pytest.mark.long_but("record-zero-out")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize(("unit", "adjacency"), [("record", "replace"), ("record", "zero-out"), ("attribute", "replace")])
def test_two_responses_are_audited(unit: str, adjacency: str) -> None:
    asked, tables = laboratories()
    asked = msgspec.structs.replace(asked, unit=unit, adjacency=adjacency)
    report = replay(load("pls"), asked, tables, registry=load, rounds=6)
    assert report.passed, str(report)
    assert max(report.largest.values()) > 0.3


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_a_second_response_as_heavy_as_the_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the root of two both together are longer than one (Theorem C.5)."""
    honest = MomentsLayout._weights.func  # type: ignore[attr-defined]

    def heavy(self: MomentsLayout) -> np.ndarray:
        weights: np.ndarray = honest(self)
        return np.append(weights[: self.size], weights[self.size :] * math.sqrt(2))

    monkeypatch.setattr(MomentsLayout, "_weights", property(heavy))
    asked, tables = laboratories()
    assert not replay(load("pls"), asked, tables, registry=load, rounds=6).passed


def test_each_response_s_moments_are_those_of_it_alone() -> None:
    X, Y = data()
    bounds = [(-3, 3), (-4, 4), (-3, 5)]
    model = PrivatePLSRegression(4, **EXACT, y_bounds=bounds).fit(X, Y)
    Y = np.clip(Y, *np.array(bounds).T)
    for k, moments in enumerate(model.moments_):
        response = moments.layout.response
        assert (response.name, response.range) == (f"(response {k + 1})", tuple(map(float, bounds[k])))
        x = X * np.minimum(1, 3 / np.linalg.norm(X, axis=1, keepdims=True)) / moments.layout.half_widths[:-1]
        y = (Y[:, k] - response.centre) / response.half_width
        whole = np.column_stack([x, np.ones(y.size), y])
        np.testing.assert_allclose(moments.gram, whole.T @ whole, atol=0.01)
    theirs = PLSRegression(4, scale=False).fit(X, Y / [3, 4, 4])
    np.testing.assert_allclose(model.predict(X), theirs.predict(X) * [3, 4, 4], atol=2e-3)
    assert (model.coef_.shape, model.intercept_.shape, model.y_loadings_.shape) == ((3, 12), (3,), (3, 4))
    np.testing.assert_allclose(model.to_sklearn().predict(X), model.predict(X), atol=1e-12)
    assert model.score(X, Y) > 0.9


def test_what_noise_hides_of_one_response_is_not_taken_from_the_others() -> None:
    """One response goes with the spectra, the other does not: it gets about its mean, and the first is learnt all the same."""
    X, Y = data(4000)
    y = np.column_stack([Y[:, 0], np.random.default_rng(5).uniform(-1, 1, 4000)])
    model = PrivatePLSRegression(
        basis="none", epsilon=3.0, bounds=Bounds(norm=2.0), y_bounds=[(-4, 4), (-1, 1)], method="moments", random_state=3
    )
    model.fit(X, y)
    left = (y - model.predict(X)).std(axis=0) / y.std(axis=0)
    assert left[0] < 0.6
    assert left[1] < 1.05


def test_where_nothing_is_learnt_every_response_has_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data(60)
    flat = PrivatePLSRegression(2, **EXACT, y_bounds=(-4, 4)).fit(X, np.full((60, 2), [1.0, -2.0]))
    assert (flat.n_components_, flat.fallback_) == (
        0,
        "The response does not vary with the spectra, so every spectrum is given its mean.",
    )
    np.testing.assert_allclose(flat.predict(X), np.full((60, 2), [1.0, -2.0]), atol=1e-5)
    monkeypatch.setattr(pls_components, "posterior", lambda moments: (np.ones(12), 0.25, False))
    monkeypatch.setattr(pls_components, "chdtri", lambda count, chance: math.inf)
    model = PrivatePLSRegression(basis="none", epsilon=0.01, delta=1e-5, bounds=Bounds(norm=2.0), y_bounds=(-4, 4))
    with pytest.warns(UserWarning, match="No response was learnt"):
        model.fit(X, Y)
    assert (model.n_components_, model.transform(X).shape) == (0, (60, 0))
    assert model.predict(X)[0].tolist() == [1.0] * 3
    assert model.predict(X).std(axis=0).tolist() == [0.0] * 3


def test_one_column_in_two_dimensions_is_one_response() -> None:
    X, Y = data()
    flat = PrivatePLSRegression(3, **EXACT, y_bounds=(-4, 4)).fit(X, Y[:, 0])
    column = PrivatePLSRegression(3, **EXACT, y_bounds=(-4, 4)).fit(X, Y[:, :1])
    np.testing.assert_allclose(column.predict(X), flat.predict(X), atol=1e-12)


def test_ranges_of_responses() -> None:
    X, Y = data()
    with pytest.raises(UsageError, match="2 ranges for 3 responses"):
        PrivatePLSRegression(2, **EXACT, y_bounds=[(-4, 4)] * 2).fit(X, Y)
    with pytest.raises(UsageError, match="2 ranges for 1 response:"):
        PrivatePLSRegression(2, **EXACT, y_bounds=[(-4, 4)] * 2).fit(X, Y[:, 0])
    plan = PrivatePLSRegression(2, basis="none", bounds=Bounds(norm=1.0), y_bounds=[(-4, 4), (0, 1)]).plan(100, 5)
    assert plan.study.parameters["response"] == ["(response 1)", "(response 2)"]
    assert len(plan.study.parties[0].columns) == 7


@pytest.mark.slow
@pytest.mark.minutes
def test_the_outlook_of_several_is_that_of_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlooks, "RUNS", 3)
    outlook = PrivatePLSRegression(2, basis="none", bounds=Bounds(norm=1.0), y_bounds=[(-4, 4), (0, 1)]).outlook(
        3000, 5, r2=0.9
    )
    assert 0 < outlook.error < 1.2


@pytest.mark.minutes
def test_other_models_of_the_same_release(tmp_path: Path) -> None:
    X, Y = data(3000)
    given = {"basis": "none", "epsilon": 20.0, "bounds": Bounds(norm=2.0), "y_bounds": (-4, 4), "method": "moments"}
    model = PrivatePLSRegression(4, **given).fit(X, Y)
    fewer = PrivatePLSRegression.from_moments(model.moments_, basis="none", n_components=2)
    assert (fewer.n_components_, fewer.coef_.shape) == (2, (3, 12))
    alone = PrivatePLSRegression.from_moments(model.moments_[1], basis="none", n_components=2)
    assert alone.coef_.shape == (12,)
    model.save(tmp_path / "pls.unpooled")
    again = unpooled.load(tmp_path / "pls.unpooled")
    assert again.predict(X[:3]).tolist() == model.predict(X[:3]).tolist()
    assert again.moments_ == model.moments_


def test_what_is_no_list_of_responses_is_refused() -> None:
    asked, _ = laboratories()
    for wrong, words in (([], "or several"), (["fat", "fat"], "each once"), (["fat", "ash"], "ash")):
        with pytest.raises(UsageError, match=words):
            load("pls").compile(msgspec.structs.replace(asked, parameters=asked.parameters | {"response": wrong}))
    published = msgspec.structs.replace(
        asked,
        parties=asked.parties[:1],
        trust={},
        calibration="published",
        parameters={"response": ["fat", "protein"], "basis": "none", "n_components": 2},
    )
    with pytest.raises(UsageError, match="one response"):
        load("pls-published").compile(published)


def test_a_study_s_result_names_its_responses() -> None:
    from unpooled.privacy.policy import Policy
    from unpooled.protocol.local import run_in_process

    asked, tables = laboratories(200)
    model = load("pls")
    plan = model.compile(
        msgspec.structs.replace(asked, parties=tuple(msgspec.structs.replace(c, rows=200) for c in asked.parties))
    )
    result = run_in_process(model, plan, tables, Policy.in_process(), lambda _: model).outcome.result
    lines = model.reading.terms(plan, result)
    assert {line.group for line in lines} == {"fat", "protein"}
    assert "protein" in model.reading.render(result)
    assert [panel.title for panel in model.reading.panels(plan, result)] == ["coefficients: fat", "coefficients: protein"]


def test_above_the_test_of_noise_coefficients_are_a_mean_with_the_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of each near the level; the clearer, the less of the posterior."""
    X, Y = data(2000)
    released = PrivatePLSRegression(3, basis="none", epsilon=5.0, bounds=Bounds(norm=2.0), y_bounds=(-4, 4)).fit(X, Y[:, 0])
    moments = released.moments_
    monkeypatch.setattr(pls_components, "posterior", lambda _: (np.full(12, 0.5), 0.1, True))
    clear = pls_components.heard(moments, 3)
    above = float((clear.centred.cross**2 / clear.noise.cross).sum())
    units = moments.layout.response.half_width / moments.layout.half_widths[:12]
    alone = pls_components.chosen(clear.centred, 3, clear.noise)[1].coefficients[:, -1]
    for level, part in ((0.999 * above, 0.5), (above / 4, 0.25), (1.001 * above, 1.0)):
        monkeypatch.setattr(pls_components, "chdtri", lambda *_, level=level: level)
        np.testing.assert_allclose(pls_components.heard(moments, 3).slopes, part * 0.5 * units + (1 - part) * alone)
