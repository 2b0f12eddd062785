"""Weights of records: how far a weighted record moves each total, exact fits, what equals a fit without weights, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import Lasso, Ridge
from world import sized

import unpooled
from unpooled import PrivateGLM, PrivateLinearRegression
from unpooled.audit.replay import replay
from unpooled.errors import DataError, UsageError
from unpooled.families import ROW_FAMILIES
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.standard import SQUARE_STEPS, Scales, StandardRows
from unpooled.models import fitted, load
from unpooled.models.glm.families import ClassResponses, ClassRows, Softmax
from unpooled.models.glm.rows import BaseRate, GlmRows, Responses
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import Reach
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Total
from unpooled.totals.weights import ASSUMPTION, Weighting, weighting_of

INF = math.inf
FEATURES = (Column("a", -1, 3), Column("c", categories=("u", "v")))
WEIGHT, HOURS = Column("w", 0.0, 4.0), Column("hours", 0.5, 8)
RESPONSES = {
    "logistic": Column("y", categories=("no", "yes")),
    "multinomial": Column("y", categories=("no", "yes", "perhaps")),
    "poisson": Column("y", 0.0, 12.0),
    "linear": Column("y", -2.0, 5.0),
}
SMALL = 100


def table_of(rows: list[dict[str, Any]]) -> Table:
    kinds = {name: object if isinstance(value, str) else float for name, value in rows[0].items()}
    return Table({name: np.array([row[name] for row in rows], dtype=kind) for name, kind in kinds.items()})


def alone(statistic, row: dict[str, Any]) -> np.ndarray:
    """Return what one record adds: half of what a table of two equal records adds."""
    twice = statistic(table_of([row, row]))
    assert not (twice % 2).any()
    return twice // 2


def one_row(family: str, rng: np.random.Generator) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column in (*FEATURES, WEIGHT, HOURS, RESPONSES[family]):
        if column.categories is not None:
            row[column.name] = str(rng.choice(column.categories))
        else:
            row[column.name] = [*column.range, 2 * column.range[1], float(rng.uniform(*column.range))][rng.integers(4)]
    return row


def totals(family: str, rng: np.random.Generator, adjacency: Adjacency):
    """Yield every total that weights enter, at public numbers of a request that are anything."""
    weighting = Weighting(WEIGHT, SMALL)
    yield weighting.vector(), weighting.statistic
    p = 3
    middle, width = rng.uniform(-1, 1, p + 1), np.exp(rng.uniform(-5, 1, p + 1))
    if family == "linear":
        layout = MomentsLayout.of((*FEATURES, WEIGHT, RESPONSES[family]), "y", SMALL, weights="w")
        yield layout.vector("moments", adjacency), layout.statistic
        start, clip = rng.normal(size=p + 1) * float(rng.choice([0.0, 0.3, 30.0])), float(np.exp(rng.uniform(-3, 2)))
        rows = StandardRows(layout, SMALL, 1.3)
        standard = middle, width
        yield rows.descent(1.0, adjacency, 3), lambda t: rows.gradient(rows.blocks(t, standard), start)
        yield rows.spread(1.0), lambda t: rows.squares(rows.blocks(t, standard), start)
        yield rows.residual(1.0, adjacency), lambda t: rows.products(rows.blocks(t, standard), start, clip)
        yield (
            rows.cells.vector(1.0, rows.moves(adjacency)),
            lambda t: rows.residual_cells(rows.blocks(t, standard), start, clip),
        )
        yield (
            rows.meat.vector(1.0, rows.moves(adjacency)),
            lambda t: rows.meat.added_up(rows.scores(rows.blocks(t, standard), start, clip), t),
        )
        return
    column, exposure = RESPONSES[family], HOURS if family == "poisson" else None
    layout = MomentsLayout.of((*FEATURES, Column("y", 0, 1)), "y", SMALL)
    standard, units = (middle[:p], width[:p]), np.exp(rng.uniform(-3, 2, 3))
    if family == "multinomial":
        several = ClassResponses(column, Softmax(labels=column.categories), weighting=weighting)
        made: GlmRows = ClassRows(layout, SMALL, 1.0, several)
    else:
        law = ROW_FAMILIES[family]() if family == "logistic" else ROW_FAMILIES[family](0.0, 12.0, 0.5)
        one = Responses(column, law, exposure, None, weighting)
        base = BaseRate(one, SMALL)
        yield base.vector(1.0, adjacency), base.statistic
        made = GlmRows(layout, SMALL, 1.0, one)
    made = dataclasses.replace(made, longest=made.radius)
    start = rng.normal(size=made.width) * float(rng.choice([0.0, 0.3, 30.0]))
    yield made.descent(1.0, adjacency, 3), lambda t: made.gradients(made.blocks(t, standard), start, units)
    yield made.information(1.0, adjacency, 1), lambda t: made.weighted(made.blocks(t, standard), start, units)
    yield (
        made.cells.vector(1.0, made.moves(adjacency)),
        lambda t: made.cells_of_pulls(made.blocks(t, standard), start, units),
    )
    if family != "multinomial":
        yield (
            made.meat.vector(1.0, made.moves(adjacency)),
            lambda t: made.meat.added_up(made.scores_of_pulls(made.blocks(t, standard), start, units), t),
        )
    if family == "poisson":
        yield made.spread(1.0), lambda t: made.squared_residuals(made.blocks(t, standard), start, units)


def shares_of_reach(family: str, seeds: int) -> dict[tuple[str, str, str], float]:
    """Return the farthest that one unit moved each total, in parts of its reach."""
    found: dict[tuple[str, str, str], float] = {}
    for seed, adjacency in itertools.product(range(seeds), Adjacency):
        rng = np.random.default_rng([seed, len(family)])
        first, second = one_row(family, rng), one_row(family, rng)
        changed = "w" if rng.random() < 0.5 else str(rng.choice(list(first)))
        value = {**first, changed: second[changed]}
        for vector, statistic in totals(family, rng, adjacency):
            widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
            a, b, c = (alone(statistic, row) for row in (first, second, value))
            assert np.abs(a).max(initial=0) <= vector.per_row
            moved = a - b if adjacency is Adjacency.REPLACE else a
            # Under zero-out a value of a feature becomes nothing, which other tests try; a weight becomes any other.
            pairs = [(Unit.RECORD, moved)]
            if changed == "w" or adjacency is Adjacency.REPLACE:
                pairs.append((Unit.ATTRIBUTE, a - c))
            for unit, difference in pairs:
                far = float(np.linalg.norm(difference / widths)) / vector.reach[unit].distance
                key = (vector.name, str(adjacency), str(unit))
                found[key] = max(found.get(key, 0.0), far)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", RESPONSES)
def test_no_unit_moves_a_weighted_total_farther_than_its_reach(family: str) -> None:
    found = shares_of_reach(family, sized(300, 60))
    assert max(found.values()) <= 1 + 1e-12
    assert found["weights", "replace", "attribute"] == 1.0  # the search is not asleep
    few = {"cells"} if family in {"logistic", "multinomial"} else set()  # one cell of rows that are scaled down
    for name in {name for name, *_ in found} - {"spread"} - few:
        assert found[name, "replace", "record"] > 0.45, name


@pytest.mark.slow
def test_weights_that_are_not_clipped_and_a_weight_that_counts_as_one_value_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Weighting, "parts", lambda self, raw: raw / self.largest)
        with pytest.raises(AssertionError):
            assert max(shares_of_reach("logistic", 30).values()) <= 1 + 1e-12
    original = BaseRate.vector

    def alike(self, share, adjacency):  # as if a weight were in one of the sums only
        vector = original(self, share, adjacency)
        return dataclasses.replace(vector, reach={**vector.reach, Unit.ATTRIBUTE: Reach(1.0, 1)})

    with monkeypatch.context() as patch:
        patch.setattr(BaseRate, "vector", alike)
        assert shares_of_reach("poisson", 60)["base", "replace", "attribute"] > 1.2


@pytest.mark.parametrize("family", RESPONSES)
def test_weighted_totals_depend_on_no_order_of_rows_and_add_up_over_parties(family: str) -> None:
    rng = np.random.default_rng(3)
    table = table_of([one_row(family, rng) for _ in range(301)])
    order = rng.permutation(301)
    parts = [table.take(part) for part in np.array_split(order, 3)]
    for _, statistic in totals(family, np.random.default_rng(5), Adjacency.REPLACE):
        whole = statistic(table)
        assert (statistic(table.take(order)) == whole).all()
        assert (sum(statistic(part) for part in parts) == whole).all()


def test_rows_of_the_largest_weight_add_what_they_add_without_weights() -> None:
    rng = np.random.default_rng(4)
    rows = [{**one_row("linear", rng), "w": 4.0} for _ in range(50)]
    table = table_of(rows)
    weighted = MomentsLayout.of((*FEATURES, WEIGHT, RESPONSES["linear"]), "y", SMALL, weights="w")
    plain = MomentsLayout.of((*FEATURES, RESPONSES["linear"]), "y", SMALL)
    assert (weighted.statistic(table) == plain.statistic(table)).all()
    standard, start = (rng.uniform(-1, 1, 4), np.ones(4)), rng.normal(size=4)
    found = [StandardRows(layout, SMALL, 1.3) for layout in (weighted, plain)]
    for work in (
        lambda r: r.gradient(r.blocks(table, standard), start),
        lambda r: r.squares(r.blocks(table, standard), start),
        lambda r: r.products(r.blocks(table, standard), start, 1.0),
        lambda r: Scales(r.layout).statistic(table),
    ):
        assert (work(found[0]) == work(found[1])).all()
    assert SQUARE_STEPS > 0


# --- without noise, and with little of it ---------------------------------------------------------------------------------


def simulated(family: str, n: int = 3000):
    rng = np.random.default_rng(11)
    frame = pl.DataFrame(
        {"age": rng.uniform(20, 80, n), "arm": rng.choice(["x", "y", "z"], n), "w": rng.choice([0.0, 0.5, 2.0, 3.5], n)}
    ).with_columns(extra=pl.lit("not declared"))
    arm, age = (frame["arm"] == "y").to_numpy(), (frame["age"].to_numpy() - 50) / 20
    u = 0.2 + 0.5 * age + 0.4 * arm - 0.3 * arm * age
    y: Any = {
        "linear": lambda: u + rng.normal(size=n),
        "logistic": lambda: (rng.random(n) < 1 / (1 + np.exp(-u))).astype(int),
        "poisson": lambda: rng.poisson(np.exp(u)).astype(float),
        "gamma": lambda: np.exp(u) * rng.gamma(2.0, 0.5, n),
    }[family]()
    return frame.with_columns(y=pl.Series(y))


def design(frame: pl.DataFrame) -> np.ndarray:
    age, arm = (frame["age"].to_numpy() - 50) / 20, frame["arm"].to_numpy()
    y, z = (arm == "y").astype(float), (arm == "z").astype(float)
    return np.column_stack([np.ones(age.size), age, y, z, age * y, age * z])


def weighted_likelihood(family: str, Z: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and standard errors by iterated weighted least squares, as statsmodels has them with ``var_weights``."""
    b = np.zeros(Z.shape[1])
    for _ in range(100):
        u = Z @ b
        mean = u if family == "linear" else 1 / (1 + np.exp(-u)) if family == "logistic" else np.exp(u)
        slope = {"linear": np.ones_like(u), "logistic": mean * (1 - mean), "poisson": mean, "gamma": np.ones_like(u)}[family]
        pull = (y - mean) / mean if family == "gamma" else y - mean
        A = (Z * (w * slope)[:, None]).T @ Z
        step = np.linalg.solve(A, Z.T @ (w * pull))
        b = b + step
        if np.abs(step).max() < 1e-13:
            break
    free = y.size - Z.shape[1]
    scale = {"linear": (w * (y - Z @ b) ** 2).sum() / free, "gamma": (w * pull**2).sum() / free}.get(family, 1.0)
    return b, np.sqrt(scale * np.linalg.inv(A).diagonal())


def model_of(family: str, **more: Any):
    bounds = {"age": (20, 80), "arm": ["x", "y", "z"]}
    if family == "linear":
        return PrivateLinearRegression(bounds=bounds, y_bounds=(-8, 8), weights_bounds=(0, 4), **more)
    response = {"classes": (0, 1)} if family == "logistic" else {"y_bounds": (1e-3 if family == "gamma" else 0, 60)}
    return PrivateGLM(family, bounds=bounds, weights_bounds=(0, 4), **response, **more)


FORMULA = "y ~ I((age - 50) / 20) * arm"


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson", "gamma"])
def test_without_noise_it_is_the_weighted_fit_with_factors_and_products(family: str) -> None:
    frame = simulated(family)
    more = {"dispersion": 1.0} if family == "poisson" else {}  # as of the other likelihood
    model = model_of(family, epsilon=INF, **more).fit(frame, formula=FORMULA, weights="w")
    table = model.summary()
    Z, y, w = design(frame), frame["y"].to_numpy(), frame["w"].to_numpy()
    b, errors = weighted_likelihood(family, Z, y, w)
    order = ["(intercept)", "I((age - 50) / 20)", "arm: y - x", "arm: z - x", "I((age - 50) / 20) * (arm: y - x)"]
    lines = {t.term: t for t in table.terms}
    assert [lines[name].estimate for name in order] == pytest.approx(b[:5], abs=1e-5 if family == "linear" else 1e-6)
    # The gamma's dispersion is worked out from clipped squares, which may be released.
    rel = 0.02 if family == "gamma" else 1e-3 if family == "linear" else 1e-4
    assert [lines[name].std_error for name in order] == pytest.approx(errors[:5], rel=rel)
    assert ASSUMPTION in str(table)
    rows_out = model_of(family, epsilon=INF).fit(frame.filter(pl.col("w") > 0), formula=FORMULA, weights="w")
    kept = {t.term: t.estimate for t in rows_out.summary().terms}
    assert [kept[name] for name in order] == pytest.approx([lines[name].estimate for name in order], abs=1e-5)


@pytest.mark.guarantee
def test_several_classes_with_equal_weights_are_those_without_and_doubled_rows_count_twice() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, (1500, 2)), rng.choice(["a", "b", "c"], 1500)
    twice = rng.random(1500) < 0.5
    asked: dict[str, Any] = {"epsilon": INF, "bounds": (-1, 1), "classes": ("a", "b", "c")}
    weighted = PrivateGLM("multinomial", weights_bounds=(0, 2), **asked).fit(X, y, weights=1.0 + twice)
    doubled = PrivateGLM("multinomial", **asked).fit(np.vstack([X, X[twice]]), np.append(y, y[twice]))
    assert weighted.coef_ == pytest.approx(doubled.coef_, abs=1e-6)
    ours, theirs = ([t.std_error for t in model.summary().terms] for model in (weighted, doubled))
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.long_for("linear-refinement", "logistic-newton", "linear-moments", "poisson-newton")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "method"), [("linear", "refinement"), ("linear", "moments"), ("logistic", "newton"), ("poisson", "newton")]
)
def test_intervals_of_weighted_fits_cover(family: str, method: str) -> None:
    rng, hits, errors = np.random.default_rng(0), [], []
    repeats = sized(200, 30)
    for seed in range(repeats):
        n = 6000
        X, w = rng.uniform(-1, 1, (n, 2)), rng.uniform(0.5, 2.0, n)
        u = 0.3 + X @ [0.6, 0.0]
        y: Any = u + rng.normal(size=n) / np.sqrt(w)
        if family == "logistic":  # two responses of the same person in every second row, so that weights count responses
            w = rng.choice([1.0, 2.0], n)
            y = (rng.random(n) < 1 / (1 + np.exp(-u))).astype(int)
        if family == "poisson":
            w = np.ones(n)
            y = rng.poisson(np.exp(u)).clip(0, 30).astype(float)
        own = {"y_bounds": (-8, 8) if family == "linear" else (0, 30)} if family != "logistic" else {"classes": (0, 1)}
        kind = PrivateLinearRegression if family == "linear" else PrivateGLM
        more = {} if family == "linear" else {"family": family}
        model = kind(epsilon=4.0, bounds=(-1, 1), weights_bounds=(0, 2), random_state=seed, method=method, **own, **more)
        terms = model.fit(X, y, weights=w).summary().terms
        hits += [t.conf_low <= b <= t.conf_high for t, b in zip(terms, [0.6, 0.0, 0.3], strict=True)]
        errors += [t.std_error for t in terms]
    share = np.mean(hits)
    # Of logistic rows every weight counts as so many equal responses, which these are not: their errors may be too small, as the foot says.
    least = 0.8 if family == "logistic" else 0.9
    assert least <= share <= 1.0
    assert np.isfinite(errors).all()


def test_the_sum_of_weights_is_read_inside_what_is_declared() -> None:
    weighting = Weighting(Column("w", 1.0, 4.0), 1000)
    steps = weighting.grid
    for value, noise, wanted in ((600, 0, 0.6), (5000, 0, 1.0), (-10, 0, 0.25), (10, 400, 0.625), (10, 150, 0.3)):
        total = Total(np.array([value * steps]), np.array([noise * steps], dtype=float), ("one",))
        assert weighting.mean(total, 1000) == pytest.approx(wanted)
    assert weighting.middle == 0.625


# --- studies, files, outlooks ---------------------------------------------------------------------------------------------


def study(model: str, columns: tuple[Column, ...], **changes: Any) -> Study:
    parameters = {"response": "y", "weights": "w", **changes.pop("parameters", {})}
    rows = changes.pop("rows", 2000)
    cards = tuple(Card(name, rows, columns) for name in ("oslo", "porto"))
    return Study(model, cards, changes.pop("epsilon", 2.0), 1e-5, parameters=parameters, derived=(), **changes)


@pytest.mark.long_for("glm-replace-attribute", "bayes-replace-record")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "adjacency", "unit"),
    [
        ("bayes", Adjacency.REPLACE, Unit.RECORD),
        ("bayes", Adjacency.ZERO_OUT, Unit.ATTRIBUTE),
        ("glm", Adjacency.ZERO_OUT, Unit.RECORD),
        ("glm", Adjacency.REPLACE, Unit.ATTRIBUTE),
    ],
)
def test_neighbours_of_a_weighted_study_move_no_release_farther_than_planned(
    model: str, adjacency: Adjacency, unit: Unit
) -> None:
    response = Column("y", -4, 6) if model == "bayes" else RESPONSES["logistic"]
    more = {"max_passes": 5, "method": "refinement" if model == "bayes" else "newton"}
    asked = study(model, (*FEATURES, WEIGHT, response), unit=str(unit), adjacency=str(adjacency), parameters=more, rows=24)
    rng = np.random.default_rng(8)
    family = "linear" if model == "bayes" else "logistic"
    tables = {card.name: table_of([one_row(family, rng) for _ in range(card.rows)]) for card in asked.parties}
    assert replay(load(model), asked, tables, registry=load, rounds=2).passed
    with pytest.MonkeyPatch.context() as patch:  # a weight that counts twice
        patch.setattr(Weighting, "parts", lambda self, raw: 2 * raw / self.largest)
        assert not replay(load(model), asked, tables, registry=load, rounds=2).passed


@pytest.mark.long_for("direction-record", "direction-attribute")
@pytest.mark.slow
@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.ATTRIBUTE])
@pytest.mark.parametrize("method", ["weights", "gradient", "direction", "refinement", "moments"])
def test_neighbours_move_no_release_of_a_weighted_study_with_earlier_models_farther_than_planned(
    method: str, unit: Unit
) -> None:
    """Rounds begin elsewhere with earlier models, and find how far these agree."""
    name = FEATURES[0].name
    prior = [
        {"name": "a", "coefficients": {name: 0.02}},
        {"name": "b", "coefficients": {name: -0.05}, "intercept": 1.0},
    ]
    more = {"max_passes": 60 if method == "direction" else 8, "method": method, "prior": prior}
    columns = (*FEATURES, WEIGHT, Column("y", -4, 6))
    asked = study("bayes", columns, unit=str(unit), adjacency="zero-out", parameters=more, rows=24)
    rng = np.random.default_rng(8)
    tables = {card.name: table_of([one_row("linear", rng) for _ in range(card.rows)]) for card in asked.parties}
    report = replay(load("bayes"), asked, tables, registry=load, rounds=1)
    assert report.passed, str(report)
    assert max(report.largest.values()) > 0.9
    with pytest.MonkeyPatch.context() as patch:  # a weight that counts twice
        patch.setattr(Weighting, "parts", lambda self, raw: 2 * raw / self.largest)
        assert not replay(load("bayes"), asked, tables, registry=load, rounds=1).passed


@pytest.mark.slow
def test_a_study_of_weights_is_fitted_saved_and_read_again(tmp_path) -> None:
    frame = simulated("linear")
    model = model_of("linear", epsilon=8.0, random_state=1).fit(frame, formula=FORMULA, weights="w")
    model.save(tmp_path / "m.unpooled")
    again = unpooled.load(tmp_path / "m.unpooled")
    assert str(again.summary()) == str(model.summary())
    assert again.moments_.layout.weighting == model.moments_.layout.weighting
    glm = model_of("logistic", epsilon=8.0, random_state=1).fit(simulated("logistic"), formula=FORMULA, weights="w")
    glm.save(tmp_path / "g.unpooled")
    assert str(unpooled.load(tmp_path / "g.unpooled").summary()) == str(glm.summary())
    rebuilt = fitted(glm.plan_, glm._result)
    assert rebuilt.weights_bounds == (0.0, 4.0)
    assert rebuilt.predict(frame[:5]["age", "arm"]).shape == (5,)


@pytest.mark.parametrize("weight", [0.1, 1.0])
def test_rounds_step_by_the_sum_of_weights_and_not_by_the_number_of_rows(weight: float) -> None:
    """Rows that all weigh a tenth of the largest weight arrive where whole rows do, in as many rounds."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    y = X @ [0.5, -0.4, 0.3] + rng.normal(0, 0.1, 4000)
    model = PrivateLinearRegression(
        epsilon=300.0, bounds=(-1, 1), y_bounds=(-2, 2), weights_bounds=(0, 1), method="gradient", random_state=0
    )
    assert model.fit(X, y, weights=np.full(4000, weight)).coef_ == pytest.approx([0.5, -0.4, 0.3], abs=0.03)


@pytest.mark.slow_for("glm", "bayes")
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_an_outlook_plays_weights(model: str) -> None:
    response = Column("y", -4, 6) if model == "bayes" else RESPONSES["logistic"]
    with_weights = study(model, (*FEATURES, WEIGHT, response), epsilon=0.5)
    without = study(model, (*FEATURES, response), epsilon=0.5, parameters={"weights": ""})
    ours, plain = (load(model).outlook(asked, quick=True).points[0].error for asked in (with_weights, without))
    assert plain < ours < plain + 0.5  # half as much is learnt of rows whose weights are half of the largest


def test_a_fit_without_weights_keeps_its_plan() -> None:
    plain = PrivateLinearRegression(bounds=(-1, 1), y_bounds=(-2, 2)).plan(500, 2)
    weighted = PrivateLinearRegression(bounds=(-1, 1), y_bounds=(-2, 2), weights_bounds=(0, 2)).plan(500, 2)
    assert "weights" not in plain.study.parameters
    assert plain.hash != weighted.hash
    assert weighted.releases[0].name == "weights"


# --- what is refused ------------------------------------------------------------------------------------------------------


def test_weights_and_their_range_go_together() -> None:
    X, y = np.zeros((20, 2)) + np.arange(20)[:, None] / 20, np.arange(20.0)
    model = PrivateLinearRegression(bounds=(0, 1), y_bounds=(0, 20), weights_bounds=(0, 2), epsilon=INF)
    for given, words in (
        (None, "weights and weights_bounds go together"),
        (np.ones(19), "a finite number for each of the 20 rows"),
        (np.full(20, np.nan), "a finite number for each of the 20 rows"),
        ("w", "X is an array"),
    ):
        with pytest.raises((UsageError, DataError), match=words):
            model.fit(X, y, weights=given)
    with pytest.raises(UsageError, match="go together"):
        PrivateLinearRegression(bounds=(0, 1), y_bounds=(0, 20), epsilon=INF).fit(X, y, weights=np.ones(20))
    with pytest.raises(UsageError, match="there is no column 'nothing'"):
        PrivateGLM("poisson", bounds=(0, 1), y_bounds=(0, 20), weights_bounds=(0, 2)).fit(
            pl.DataFrame({"a": y / 20, "y": y}), "y", weights="nothing"
        )


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("w", -1.0, 2.0), "declare low >= 0"),
        (Column("w", categories=("1", "2")), "numbers from 0 on"),
        (Column("w", 0.0, 2.0, missing="absent"), "never missing"),
        (Column("other", 0.0, 2.0), "must be one declared column"),
    ],
)
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_a_column_that_cannot_hold_weights_is_refused(model: str, column: Column, words: str) -> None:
    response = Column("y", -4, 6) if model == "bayes" else RESPONSES["logistic"]
    with pytest.raises(UsageError, match=words):
        load(model).compile(study(model, (*FEATURES, column, response)))


def test_what_goes_without_weights_says_so() -> None:
    persons = (*FEATURES, WEIGHT, Column("y", 0.0, 6.0), Column("event", 0.0, 1.0))
    asked = {"family": "survival", "event": "event", "cuts": (2.0,)}
    logistic = (*FEATURES, WEIGHT, RESPONSES["logistic"])
    linear = (*FEATURES, WEIGHT, Column("y", -4, 6))
    for model, columns, parameters, words in (
        ("glm", persons, asked, "the survival family takes no weights"),
        ("glm", logistic, {"method": "moments"}, "without exposure, offset, weights and ridge"),
        ("glm", logistic, {"weights": "y"}, "a column of their own"),
        ("bayes", linear, {"weights": "y"}, "a column of their own"),
        ("bayes", linear, {"norm": 2.0}, "weights go without norm"),
        ("bayes", linear, {"noise_precision": 1.0}, "weights go without noise_precision"),
    ):
        with pytest.raises(UsageError, match=words):
            load(model).compile(study(model, columns, parameters=parameters))
    assert weighting_of("", {}, (), 10) is None


@pytest.mark.guarantee
@pytest.mark.parametrize("intercept", [True, False])
def test_other_models_of_weighted_moments_are_those_of_scikit_learn(intercept: bool) -> None:
    rng = np.random.default_rng(3)
    X, w = rng.uniform(-1, 1, (4000, 2)), rng.uniform(0.5, 4, 4000)
    y = 0.3 * intercept + X @ [0.8, -0.5] + 0.5 * rng.normal(size=4000) / np.sqrt(w)
    asked: dict[str, Any] = {"bounds": (-1, 1), "y_bounds": (-4, 4), "weights_bounds": (0, 5), "fit_intercept": intercept}
    model = PrivateLinearRegression(epsilon=INF, **asked).fit(X, y, weights=w)
    ridge = Ridge(50.0, fit_intercept=intercept).fit(X, y, sample_weight=w)
    lasso = Lasso(0.1, fit_intercept=intercept).fit(X, y, sample_weight=w)
    assert model.ridge(50.0).coef_ == pytest.approx(ridge.coef_, abs=1e-4)
    assert model.lasso(0.1).coef_ == pytest.approx(lasso.coef_, abs=1e-3)
    # The variance of a response of weight 1.
    assert model.noise_variance_ == pytest.approx(0.25, rel=0.1)
    rounds = PrivateLinearRegression(epsilon=50.0, method="refinement", random_state=0, **asked).fit(X, y, weights=w)
    assert rounds.lasso(0.1).coef_ == pytest.approx(lasso.coef_, abs=0.05)


def test_a_value_is_in_one_declared_column_where_values_are_protected() -> None:
    frame = pl.DataFrame({"a": np.linspace(-1, 1, 500), "w": np.linspace(0.5, 2, 500), "y": np.linspace(-1, 1, 500)})
    asked: dict[str, Any] = {"bounds": {"a": (-1, 1), "w": (0, 2)}, "y_bounds": (-2, 2), "weights_bounds": (0, 2)}
    with pytest.raises(UsageError, match="is a feature and the weights"):
        PrivateLinearRegression(epsilon=1.0, unit="attribute", **asked).fit(frame, "y", weights="w")
    with pytest.raises(UsageError, match="is a feature and the weights"):
        model = PrivateGLM("gamma", epsilon=1.0, unit="attribute", **{**asked, "y_bounds": (0.1, 2)})
        model.fit(frame, formula="y ~ a + w", weights="w")
    PrivateLinearRegression(epsilon=1.0, unit="attribute", random_state=0, **asked).fit(frame, formula="y ~ a", weights="w")
