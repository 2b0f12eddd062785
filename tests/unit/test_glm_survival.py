"""Times to an event: what one person moves, exact fits, life tables and their bands, predictions, requests and refusals."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import PoissonRegressor
from world import FULL, sized

import unpooled
from unpooled import PrivateGLM
from unpooled.audit.replay import replay
from unpooled.errors import DataError, PlanMismatch, UsageError
from unpooled.inference.life_table import LifeTable
from unpooled.kernels import rows as person_rows
from unpooled.linear.layout import MomentsLayout
from unpooled.models import fitted, load
from unpooled.models.glm.estimator import concordance
from unpooled.models.glm.families import FOLLOWED, ExitCells, Hazards, PersonResponses, PersonRows
from unpooled.models.glm.plan import STATISTICS
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit

INF = math.inf
MODEL = load("glm")
COLUMNS = (Column("a", -1, 3), Column("c", categories=("u", "v")), Column("m", 0, 1, missing="indicator"))
TIME, EVENT = Column("time", 0, 5), Column("died", categories=("no", "yes"))
EDGES = (0.5, 1.0, 2.0, 5.0)
RESPONSES = PersonResponses(TIME, Hazards(edges=EDGES), event=EVENT)


def rows_of(part: float, columns: tuple[Column, ...] = COLUMNS) -> PersonRows:
    layout = MomentsLayout.of((*columns, Column("y", 0, 1)), "y", 100)
    rows = PersonRows(layout, 100, part, RESPONSES)
    return dataclasses.replace(rows, longest=part * rows.radius)


def one_row(columns: tuple[Column, ...], rng: np.random.Generator) -> dict[str, Any]:
    """A row whose values are ends of their ranges, cuts, anything between, beyond the end, or missing."""
    row: dict[str, Any] = {}
    for column in (*columns, EVENT):
        if column.categories is not None:
            row[column.name] = str(rng.choice(column.categories))
            continue
        values = [*column.range, float(rng.uniform(*column.range))]
        row[column.name] = values[rng.integers(3)] if column.missing == "refuse" or rng.random() < 0.7 else math.nan
    return row | {"time": float(rng.choice([0.0, 0.5, 2.0, 5.0, 9.0, rng.uniform(0, 5), rng.uniform(0, 5)]))}


def table_of(rows: list[dict[str, Any]]) -> Table:
    return Table(
        {k: np.array([row[k] for row in rows], dtype=object if isinstance(rows[0][k], str) else float) for k in rows[0]}
    )


def alone(statistic, row: dict[str, Any]) -> np.ndarray:
    """What one record adds: a table has two rows at least, so half of what two equal ones add."""
    twice = statistic(table_of([row, row]))
    assert not (twice % 2).any()
    return twice // 2


def statistics(columns: tuple[Column, ...], rng: np.random.Generator, adjacency: Adjacency):
    """Every total with a statistic of one table, at public numbers of a request that are anything."""
    rows = rows_of(1.0, columns)
    p = len(rows.layout.coding.attribute)
    standard = rng.uniform(-1, 1, p), np.exp(rng.uniform(-5, 1, p))
    start = rng.normal(size=rows.width) * float(rng.choice([0.0, 0.3, 5.0]))
    units = np.exp(rng.uniform(-3, 2, 3))
    cells = ExitCells(RESPONSES, 100)
    yield cells.vector(1.0, adjacency), cells.statistic
    for part in (0.6, 1.0):
        own = rows_of(part, columns)
        yield own.descent(1.0, adjacency, 3), lambda t, own=own: own.descend(own.blocks(t, standard), start, units)
        yield own.score(1.0, adjacency, 1), lambda t, own=own: own.gradients(own.blocks(t, standard), start, units)
    yield rows.information(1.0, adjacency, 1), lambda t: rows.weighted(rows.blocks(t, standard), start, units)
    yield (
        rows.cells.vector(1.0, rows.moves(adjacency)),
        lambda t: rows.cells_of_pulls(rows.blocks(t, standard), start, units),
    )


def shares_of_reach(columns: tuple[Column, ...] = COLUMNS, *, seeds: int = 80) -> dict[tuple[str, str, str], float]:
    """The farthest that one unit moved each total, in parts of its reach."""
    found: dict[tuple[str, str, str], float] = {}
    for seed, adjacency in itertools.product(range(seeds), Adjacency):
        rng = np.random.default_rng([seed, 9])
        first, second = one_row(columns, rng), one_row(columns, rng)
        changed = str(rng.choice(list(first)))
        value = {**first, changed: second[changed]}
        for vector, statistic in statistics(columns, rng, adjacency):
            widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
            a, b, c = (alone(statistic, row) for row in (first, second, value))
            assert np.abs(a).max(initial=0) <= vector.per_row
            moved = a - b if adjacency is Adjacency.REPLACE else a
            for unit, difference in ((Unit.RECORD, moved), (Unit.ATTRIBUTE, a - c)):
                far = float(np.linalg.norm(difference / widths)) / vector.reach[unit].distance
                key = (vector.name, str(adjacency), str(unit))
                found[key] = max(found.get(key, 0.0), far)
    return found


@pytest.mark.slow
@pytest.mark.minutes
def test_no_unit_moves_a_total_farther_than_its_reach() -> None:
    """Theorems G.9 and G.10."""
    found = shares_of_reach()
    assert max(found.values()) <= 1 + 1e-12
    for name, least in (("base", 0.99), ("descent", 0.5), ("score", 0.5), ("information", 0.4)):  # the search is not asleep
        assert found[name, "replace", "record"] > least, name


def test_one_column_is_inside_too() -> None:
    assert max(shares_of_reach(COLUMNS[:1], seeds=40).values()) <= 1 + 1e-12


def test_intervals_cut_one_by_one_and_weights_that_are_not_cut_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorems G.9 and G.10."""
    honest = person_rows.person_pulls

    def unscaled(left, other, hazard, ends, square, grid, limits, pull, weight) -> None:
        honest(left, other, hazard, ends, square, grid, (limits[0], math.inf, math.inf, *limits[3:]), pull, weight)

    def each(pull, square, fine, one, farthest, longest, whole) -> None:
        for i in range(square.size):
            most = longest // (math.isqrt(max(int(square[i] + one * one) - 1, 0)) + 1)
            pull[:, i] = np.trunc(np.clip(pull[:, i] * fine, -most, most))
        whole[:] = pull.sum(axis=0)

    def endless(rows, weight, scale, fine, one, heaviest, whole) -> None:
        del one, heaviest
        rows[:] = np.trunc(rows * scale)
        weight[:] = np.trunc(weight * fine)
        whole[:] = weight.sum(axis=0)

    for name, broken in (("cut_totals", each), ("weigh_totals", endless)):
        with monkeypatch.context() as patch:
            patch.setattr(person_rows, "person_pulls", unscaled)
            assert max(shares_of_reach(seeds=10).values()) <= 1 + 1e-12
            patch.setattr(person_rows, name, broken)
            with pytest.raises(AssertionError):
                assert max(shares_of_reach(seeds=30).values()) <= 1 + 1e-12


def totals_of(rows: PersonRows, z: np.ndarray, time: np.ndarray, happened: np.ndarray, start: np.ndarray):
    """Pulls and weights of every interval, nothing scaled down."""
    blocks = iter([(np.asfortranarray(z), np.column_stack([time, happened]))])
    pulls, weights = zip(*((p, w) for _, p, w, _ in rows.person_pulls(blocks, start, np.ones(3))), strict=True)
    return np.concatenate(pulls, axis=1), np.concatenate(weights, axis=1)


def test_pulls_and_weights_are_those_of_the_formulas() -> None:
    rng = np.random.default_rng(0)
    rows = dataclasses.replace(rows_of(1.0, COLUMNS[:1]), longest=1e6, stretch=1e6)
    most = rows._followed
    n, start = 4000, np.array([0.4, -2.0, -1.5, -1.0, -2.0]) + np.log(most / FOLLOWED) / 0.7 * np.array([0, 1, 1, 1, 1])
    z = np.column_stack([np.round(rng.normal(size=n) * rows.grid), np.full(n, math.trunc(0.7 * rows.grid))])
    time, happened = rng.uniform(0, 7, n), (rng.random(n) < 0.7).astype(float)
    pull, weight = totals_of(rows, z, time, happened, start)
    u = 0.4 * z[:, 0] / rows.grid
    within = np.clip(time[:, None] - np.array([0, *EDGES[:-1]]), 0, np.diff([0, *EDGES])).T
    true = within * np.exp(0.7 * start[1:, None] + u)
    stays = true.sum(axis=0) < most
    assert 0.9 < stays.mean() < 1
    assert weight[:, stays] == pytest.approx(true[:, stays])
    assert weight[:, ~stays].sum(axis=0) == pytest.approx(most)
    cell = np.searchsorted(EDGES, time, side="left").clip(max=3)
    seen = np.zeros((4, n))
    seen[cell, np.arange(n)] = happened * (time <= 5)
    assert (pull + weight)[:, stays] == pytest.approx(seen[:, stays])
    assert (pull + weight)[:, ~stays] == pytest.approx(0.0)


def test_pulls_keep_their_root_where_persons_are_followed_for_a_bounded_hazard() -> None:
    """Theorem G.9: at the truth the mean pull of every interval is 0, for persons of any risk; cut after the fact it is not."""
    rng = np.random.default_rng(1)
    rows = dataclasses.replace(rows_of(1.0, COLUMNS[:1]), longest=1e6, stretch=1e6)
    n, start = 400_000, np.array([1.0, 0.5, 0.5, 0.5, 0.5])
    hazard = math.exp(0.35)
    z = np.full((n, 2), math.trunc(0.7 * rows.grid), dtype=float)
    z[:, 0] = rows.grid
    time = rng.exponential(1 / (hazard * math.e), n)
    pull, _ = totals_of(rows, z, time, (time <= 5).astype(float), start)
    errors = pull.std(axis=1) / math.sqrt(n)
    assert (np.abs(pull.mean(axis=1)) <= 4.5 * errors).all()
    clipped = np.maximum(1 - hazard * math.e * time, -FOLLOWED)
    assert clipped.mean() > 10 * clipped.std() / math.sqrt(n)


def test_totals_depend_on_no_order_of_rows_and_add_up_over_parties() -> None:
    rng = np.random.default_rng(3)
    table = table_of([one_row(COLUMNS, rng) for _ in range(2501)])
    order = rng.permutation(2501)
    parts = [table.take(part) for part in np.array_split(order, 3)]
    for _, statistic in statistics(COLUMNS, np.random.default_rng(5), Adjacency.REPLACE):
        whole = statistic(table)
        assert (statistic(table.take(order)) == whole).all()
        assert (sum(statistic(part) for part in parts) == whole).all()


# --- without noise -------------------------------------------------------------------------------------------------------

CUTS, END, SLOPES = (0.5, 1.0, 2.0, 3.0), 5.0, np.array([0.5, -0.3, 0.0])


def simulated(n: int = 500, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, times and events: a constant hazard, some leave, some are followed beyond the end."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 3, (n, 3))
    until, leaves = rng.exponential(1 / (0.3 * np.exp(X @ SLOPES))), rng.uniform(0, 8, n)
    return X, np.minimum(until, leaves), until <= leaves


def glm(**changes: Any) -> PrivateGLM:
    settings = {"bounds": (-2, 3), "y_bounds": (0, END), "cuts": CUTS, "random_state": 0}
    return PrivateGLM("survival", **{**settings, **changes})


def split(X, time, happened) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Persons split at the cuts: (rows with an indicator of the interval, events, person-time)."""
    edges = np.array([0.0, *CUTS, END])
    followed = np.clip(np.minimum(time, END)[:, None] - edges[:-1], 0, np.diff(edges))
    events = np.zeros(followed.shape)
    events[np.arange(time.size), np.searchsorted(CUTS, np.minimum(time, END), side="left")] = happened & (time <= END)
    person, interval = np.nonzero(followed)
    rows = np.column_stack([X[person], np.eye(5)[interval]])
    return rows, events[person, interval], followed[person, interval]


def test_without_noise_it_is_the_poisson_model_of_person_time() -> None:
    X, time, happened = simulated()
    rows, events, followed = split(X, time, happened)
    strict: dict[str, Any] = {"fit_intercept": False, "tol": 1e-13, "max_iter": 10_000, "solver": "newton-cholesky"}
    theirs = PoissonRegressor(alpha=0, **strict).fit(rows, events / followed, sample_weight=followed)
    ours = glm(epsilon=INF).fit(X, time, event=happened, sites=np.arange(500) % 3)
    assert ours.coef_ == pytest.approx(theirs.coef_[:3], abs=1e-6)
    assert np.log(ours.baseline_hazard_) == pytest.approx(theirs.coef_[3:], abs=1e-6)
    mean = followed * np.exp(rows @ theirs.coef_)
    errors = np.sqrt(np.linalg.inv((rows * mean[:, None]).T @ rows).diagonal())
    table = ours.summary()
    assert [t.std_error for t in table.terms] == pytest.approx(errors, rel=2e-3)
    assert [t.term for t in table.terms][2:4] == ["x2", "log hazard (0, 0.5]"]
    ratios = ours.summary(exponentiate=True)
    assert "hazard ratio" in str(ratios).splitlines()[0]
    assert ratios.terms[0].conf_low == pytest.approx(math.exp(table.terms[0].conf_low))
    assert ours.hazard_ratios_ == pytest.approx(np.exp(ours.coef_))


@pytest.mark.slow
def test_a_structured_response_is_the_same_and_so_is_every_way_to_add_up() -> None:
    X, time, happened = simulated(200)
    y = np.array(list(zip(happened, time, strict=True)), dtype=[("died", bool), ("days", float)])
    found = {
        glm(epsilon=INF, aggregation=mode).fit(X, y, sites=np.arange(200) % 4 if sites else None).coef_.tobytes()
        for mode, sites in itertools.product(("distributed", "trusted", "local"), (True, False))
    }
    found.add(glm(epsilon=INF).fit(X, time, event=happened).coef_.tobytes())
    assert len(found) == 1


def test_a_ridge_draws_slopes_to_zero_and_leaves_the_baseline() -> None:
    X, time, happened = simulated()
    plain, drawn = (glm(epsilon=INF, ridge=ridge).fit(X, time, event=happened) for ridge in (0.0, 10.0))
    assert np.abs(drawn.coef_).max() < 0.1 * np.abs(plain.coef_).max()
    # Events equal expected events whatever the ridge is.
    risk = drawn.predict(X)
    expected = drawn.cumulative_hazard(np.minimum(time, END)) @ np.exp(risk)
    assert expected == pytest.approx((happened & (time <= END)).sum(), rel=1e-5)


# --- life tables ---------------------------------------------------------------------------------------------------------


def test_a_life_table_without_noise_is_the_actuarial_one() -> None:
    _, time, happened = simulated(3000)
    cells = np.zeros(11)
    edges = np.array([*CUTS, END])
    out = np.empty(3000)
    person_rows.exits(time, happened.astype(float), edges, out)
    np.add.at(cells, out.astype(int), 1)
    table = LifeTable.of_cells(edges, cells, 0.0, 3000)
    late = time > END
    assert table.at_risk == pytest.approx([(time > start).sum() for start in (0.0, *CUTS)])
    assert sum(table.events) == (happened & ~late).sum()
    curve = table.kaplan_meier()
    # Nobody leaves: the curve is the share of those who are still there.
    all_seen = LifeTable.of_cells(edges, np.array([0, 30, 0, 20, 0, 10, 0, 5, 0, 0.0, 35]), 0.0, 100)
    assert all_seen.kaplan_meier().survival == pytest.approx((1, 0.7, 0.5, 0.4, 0.35, 0.35), abs=1e-8)
    errors = 0.35 * math.sqrt(0.65 / 100 / 0.35)
    low, high = all_seen.kaplan_meier().low[-1], all_seen.kaplan_meier().high[-1]
    assert (high - low) / 2 == pytest.approx(1.96 * errors, rel=0.05)
    assert all(a >= b for a, b in itertools.pairwise(curve.survival))
    assert all(low <= s <= high for low, s, high in zip(curve.low, curve.survival, curve.high, strict=True))
    (axes,) = curve.figure().axes
    assert list(axes.lines[0].get_ydata()) == list(curve.survival)
    assert curve.at([0.0, 0.49, 0.5, 4.9, 99.0]) == pytest.approx(
        [1, 1, curve.survival[1], curve.survival[4], curve.survival[5]]
    )
    assert "at risk" in str(curve)


def test_bands_of_noisy_life_tables_cover_the_curve() -> None:
    rng = np.random.default_rng(5)
    truth = np.exp(-0.3 * np.array([*CUTS, END]))
    hits = []
    for _ in range(sized(300, 60)):
        n, noise = 1500, 12.0
        until, leaves = rng.exponential(1 / 0.3, n), np.where(rng.random(n) < 0.3, rng.uniform(0, END, n), 9.0)
        out = np.empty(n)
        person_rows.exits(np.minimum(until, leaves), (until <= leaves).astype(float), np.array([*CUTS, END]), out)
        cells = np.bincount(out.astype(int), minlength=11) + noise * rng.normal(size=11)
        curve = LifeTable.of_cells(np.array([*CUTS, END]), cells, noise, n).kaplan_meier()
        assert curve.privacy > 0.005
        hits.append([low <= s <= high for low, s, high in zip(curve.low[1:], truth, curve.high[1:], strict=True)])
    assert np.mean(hits) > 0.91


def test_cells_that_are_noise_alone_still_give_hazards_and_a_curve() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        table = LifeTable.of_cells(np.array([1.0, 2.0]), 1e4 * rng.normal(size=5), 1e4, 20)
        assert (table.hazards > 0).all()
        assert np.isfinite(table.log_hazard_variances).all()
        assert 0 < table.rate <= 1
        curve = table.kaplan_meier()
        assert all(0 <= low <= s <= high <= 1 for low, s, high in zip(curve.low, curve.survival, curve.high, strict=True))


def test_concordance_is_that_of_all_pairs() -> None:
    rng = np.random.default_rng(2)
    risk, time, happened = rng.integers(0, 5, 60).astype(float), rng.uniform(0, 1, 60), rng.integers(0, 2, 60).astype(float)
    right = pairs = 0.0
    for i, j in itertools.product(range(60), range(60)):
        if happened[i] and time[j] > time[i]:
            pairs += 1
            right += (risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j])
    assert concordance(risk, time, happened) == pytest.approx(right / pairs)
    assert concordance(risk, np.zeros(60), happened) == 0.5


# --- with noise ----------------------------------------------------------------------------------------------------------


def test_every_form_spends_the_budget_and_no_more() -> None:
    for method in ("mean", "gradient", "newton"):
        plan = glm(method=method, epsilon=0.7, delta=1e-6).plan(500, 4)
        assert 0.69 < plan.epsilon(1e-6) <= 0.7
        assert method in plan.notes[0]
    assert glm(epsilon=1.0).plan(60, 3).design.schedule.method == "mean"
    assert glm(epsilon=1.0).plan(50_000, 3).design.schedule.method == "newton"


def test_the_life_table_alone_and_gradients_without_errors() -> None:
    X, time, happened = simulated(3000)
    model = glm(method="mean", epsilon=5.0).fit(X, time, event=happened)
    assert (model.coef_ == 0).all()
    exact = glm(epsilon=INF).fit(X, time, event=happened)
    assert model.kaplan_meier_.survival == pytest.approx(exact.kaplan_meier_.survival, abs=0.05)
    model = glm(method="gradient", epsilon=4.0).fit(X, time, event=happened)
    assert model.coef_ == pytest.approx(SLOPES, abs=0.2)
    assert model.score(X, time, event=happened) > 0.6
    with pytest.raises(UsageError, match="method='newton' there are"):
        model.summary()


@pytest.mark.long
@pytest.mark.slow
def test_newton_steps_find_the_truth_and_their_intervals_cover_it() -> None:
    hits, privacy = [], []
    for seed in range(sized(40, 24)):
        X, time, happened = simulated(10_000, seed)
        model = glm(epsilon=2.0, delta=1e-5, random_state=seed, method="newton").fit(X, time, event=happened)
        terms = model.summary().terms[:3]
        hits += [t.conf_low <= v <= t.conf_high for t, v in zip(terms, SLOPES, strict=True)]
        privacy += [t.privacy / t.std_error for t in terms]
        assert model.baseline_hazard_ == pytest.approx(0.3, rel=0.6)
    assert np.mean(hits) > 0.9
    assert 0.1 < np.mean(privacy) < 0.99


@pytest.mark.slow
def test_households_count_together() -> None:
    X, time, happened = simulated(3000)
    ids = np.arange(3000) // 2
    model = glm(epsilon=6.0, unit="household", rows_per_household=2, method="gradient")
    model.fit(X, time, event=happened, unit_id=ids)
    assert model.score(X, time, event=happened) > 0.55


# --- predictions, files, studies -------------------------------------------------------------------------------------------


def test_survival_and_hazards_follow_from_the_baseline(tmp_path) -> None:
    X, time, happened = simulated()
    model = glm(epsilon=INF).fit(X, time, event=happened)
    assert model.cumulative_hazard([0.0, 0.5, 0.75]) == pytest.approx(
        [0, 0.5 * model.baseline_hazard_[0], 0.5 * model.baseline_hazard_[0] + 0.25 * model.baseline_hazard_[1]]
    )
    survival = model.predict_survival(X[:7], [0.0, 1.0, END])
    assert survival.shape == (7, 3)
    assert (survival[:, 0] == 1).all()
    assert survival[:, 1] == pytest.approx(np.exp(-model.cumulative_hazard(1.0) * np.exp(model.predict(X[:7]))))
    for wrong in (-1.0, END + 1):
        with pytest.raises(DataError, match="declared end of follow-up"):
            model.predict_survival(X, wrong)
    model.save(tmp_path / "model")
    again = unpooled.load(tmp_path / "model")
    assert (again.predict_survival(X, [1.0]) == model.predict_survival(X, [1.0])).all()
    assert again.kaplan_meier_ == model.kaplan_meier_
    assert again.summary() == model.summary()
    with pytest.raises(UsageError, match="to_sklearn is for the logistic family"):
        model.to_sklearn()
    assert not hasattr(model, "predict_proba")
    assert not hasattr(PrivateGLM(), "predict_survival")


@pytest.mark.parametrize(
    ("words", "y", "event"),
    [
        ("needs to know who had the event", [1.0, 2.0, 3.0], None),
        ("one truth value for every row", [1.0, 2.0, 3.0], [True]),
        ("nothing else", [1.0, 2.0, 3.0], [0, 2, 1]),
        ("nothing else", [1.0, 2.0, 3.0], ["no", "yes", "no"]),
        ("finite numbers from 0 on", [-1.0, 2.0, 3.0], [0, 1, 1]),
        ("finite numbers from 0 on", [math.inf, 2.0, 3.0], [0, 1, 1]),
        ("has missing values", [math.nan, 2.0, 3.0], [0, 1, 1]),
        ("goes without event=", np.zeros(3, dtype=[("e", bool), ("t", float)]), [0, 1, 1]),
        ("two fields", np.zeros(3, dtype=[("e", bool), ("t", float), ("late", float)]), None),
    ],
)
def test_times_that_mean_nothing_are_refused(words: str, y, event) -> None:
    with pytest.raises((UsageError, DataError), match=words):
        glm().fit(np.zeros((3, 2)), y, event=event)


def test_event_goes_with_survival_alone() -> None:
    with pytest.raises(UsageError, match="event goes with the survival family"):
        PrivateGLM(bounds=(0, 1), classes=(0, 1)).fit(np.zeros((3, 2)), [0, 1, 1], event=[0, 1, 1])


def study(n: int = 12, columns: tuple[Column, ...] = (TIME, EVENT), **changes: Any) -> Study:
    extra = (Column("late", 1, 5), Column("three", categories=("a", "b", "c")), Column("gap", 0, 1, missing="absent"))
    held = (*COLUMNS, *extra[: changes.pop("more", 3)], *columns)
    cards = tuple(Card(name, n, held) for name in ("a", "b"))
    parameters = {"response": "time", "event": "died", "cuts": [0.5, 1.0, 2.0], "family": "survival"}
    return Study("glm", cards, 1.0, 1e-5, parameters=parameters | changes.pop("parameters", {}), derived=(), **changes)


@pytest.mark.parametrize(
    ("words", "parameters", "columns"),
    [
        ("which needs both", {"event": ""}, (TIME, EVENT)),
        ("which needs both", {"cuts": None}, (TIME, EVENT)),
        ("which needs both", {"family": "poisson"}, (TIME, EVENT)),
        ("no late entry", {"exposure": "late"}, (TIME, EVENT)),
        ("no late entry", {"offset": "late"}, (TIME, EVENT)),
        ("must be one declared column beside the time", {"event": "nothing"}, (TIME, EVENT)),
        ("must be one declared column beside the time", {"event": "time"}, (TIME, EVENT)),
        ("must be one declared column beside the time", {"event": "gap"}, (TIME, EVENT)),
        ("has two categories", {"event": "three"}, (TIME, EVENT)),
        ("is a number from 0 on", {}, (Column("time", 1, 5), EVENT)),
        ("is a number from 0 on", {}, (Column("time", categories=("a", "b")), EVENT)),
        ("cuts rise", {"cuts": [2.0, 1.0]}, (TIME, EVENT)),
        ("cuts rise", {"cuts": [0.0, 1.0]}, (TIME, EVENT)),
        ("cuts rise", {"cuts": [1.0, 5.0]}, (TIME, EVENT)),
        ("cuts rise", {"cuts": np.linspace(0.01, 4.9, 200).tolist()}, (TIME, EVENT)),
        ("always fitted", {"fit_intercept": False}, (TIME, EVENT)),
    ],
)
def test_a_study_that_means_nothing_is_refused(words: str, parameters: dict[str, Any], columns) -> None:
    with pytest.raises(UsageError, match=words):
        MODEL.compile(study(parameters=parameters, columns=columns))


@pytest.mark.guarantee
def test_requests_carry_what_the_plan_says() -> None:
    plan = MODEL.compile(study(parameters={"method": "newton"}, more=0))
    rng = np.random.default_rng(0)
    table = table_of([one_row(COLUMNS, rng) for _ in range(3)])
    asked: Any = type("Asked", (), {"design": plan.design, "plan": plan, "table": table})
    p = len(plan.design.layout.coding.attribute)
    good = (*[0.0] * p, *[1.0] * p, *[0.1] * (p + 4), 1.0, 1.0, 1.0)
    for name in ("descent", "score", "information"):
        assert STATISTICS[name](asked, good).dtype == np.int64
        for settings in ((), good[:-1], (*good[:-1], 0.0), (*good[:-1], 5e-324), (*good[:-1], math.nan), (*good[:-1], 1e9)):
            with pytest.raises(PlanMismatch):
                STATISTICS[name](asked, settings)


def test_events_may_be_a_number_and_the_model_of_a_study_predicts_from_files(tmp_path) -> None:
    from unpooled.privacy.policy import Policy
    from unpooled.protocol.local import run_in_process
    from unpooled.study.saved import predictions

    X, time, happened = simulated(4000)
    columns = (*(Column(f"x{j}", -2, 3) for j in range(3)), TIME)
    data = {f"x{j}": X[:, j] for j in range(3)} | {"time": time}
    found = []
    for event, values in (
        (EVENT, np.where(happened, "yes", "no").astype(object)),
        (Column("died", 0, 1), happened.astype(float)),
    ):
        parameters = {"response": "time", "event": "died", "cuts": list(CUTS), "family": "survival", "method": "newton"}
        cards = (Card("a", 4000, (*columns, event)),)
        asked = Study("glm", cards, INF, 1e-5, parameters=parameters, derived=())
        plan = MODEL.compile(asked)
        table = Table(data | {"died": values})
        result = run_in_process(MODEL, plan, {"a": table}, Policy.in_process(), lambda _: MODEL).outcome.result
        found.append(fitted(plan, result))
    assert (found[0].coef_ == found[1].coef_).all()
    model = found[0]
    pl.DataFrame(data).write_csv(tmp_path / "new.csv")
    predicted = predictions(model, tmp_path / "new.csv")
    assert list(predicted) == ["prediction", *(f"survival to {time:g}" for time in (*CUTS, END))]
    assert (predicted["survival to 1"] > predicted["survival to 5"]).all()
    assert predicted["prediction"] == pytest.approx(X @ model.coef_)
    assert model.predict_survival(pl.DataFrame({f"x{j}": X[:3, j] for j in range(3)}), [1.0]).shape == (3, 1)
    text, terms, panels = MODEL.table(plan, result), MODEL.reading.terms(plan, result), MODEL.reading.panels(plan, result)
    assert "at risk" in text
    assert "log hazard (0.5, 1]" in text
    logs = [f"log hazard ({a:g}, {b:g}]" for a, b in itertools.pairwise((0, *CUTS, 5))]
    assert [t.term for t in terms] == ["x0", "x1", "x2", *logs, *(f"survival to {b:g}" for b in (*CUTS, 5))]
    assert {t.group for t in terms[8:]} == {"Kaplan-Meier"}
    assert all(t.conf_low <= t.estimate <= t.conf_high for t in terms[8:])
    assert panels[0].steps
    assert panels[0].values[0] == 1
    from unpooled.report import figures

    drawn = figures.panel(panels[0])
    assert "times" in drawn.wide


@pytest.mark.long
@pytest.mark.slow
def test_an_outlook_says_when_a_study_is_worth_its_budget() -> None:
    few, many = (glm().outlook(n, 3, signal=1.0, correlation=0.0, ranges=3.0, quick=True) for n in (60, 20_000))
    assert not few.worthwhile
    assert many.worthwhile
    assert many.noise_free <= many.error + 0.02 < 0.99
    assert "survival" in many.model


@pytest.mark.long_for("replace")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_studies_are_audited_in_every_unit(adjacency: str) -> None:
    rng = np.random.default_rng(1)
    tables = {name: table_of([one_row(COLUMNS, rng) for _ in range(6)]) for name in ("a", "b")}
    for unit in ROWWISE if FULL else (Unit.RECORD,):
        asked = study(
            6,
            more=0,
            unit=str(unit),
            adjacency=adjacency,
            trust={"aggregation": "trusted"},
            parameters={"method": "newton", "max_passes": 5},
        )
        report = replay(MODEL, asked, tables, registry=load, rounds=3)
        assert report.passed, str(report)
        if adjacency == "replace":
            reached = {name for who, _, name in report.largest if who == unit and report.largest[who, _, name] > 0.1}
            assert {"base", "descent", "score"} <= reached


def test_without_noise_standard_errors_are_those_of_the_likelihood() -> None:
    """Also of columns with few levels, whose rounding is the same in every row."""
    rng = np.random.default_rng(0)
    n, edges = 2000, np.array([1.0, 2.0, 4.0, 8.0])
    ward, sex = rng.integers(0, 3, n), rng.integers(0, 2, n)
    time = rng.exponential(4 * np.exp(-0.3 * ward + 0.2 * sex)).clip(2**-10, 9)
    event = (time <= 8) & (rng.random(n) < 0.8)
    frame = pl.DataFrame(
        {
            "ward": np.array(["a", "b", "c"])[ward],
            "sex": np.array(["f", "m"])[sex],
            "time": time,
            "event": event.astype(float),
        }
    )
    bounds = {"ward": ["a", "b", "c"], "sex": ["f", "m"]}
    model = unpooled.PrivateGLM("survival", epsilon=math.inf, bounds=bounds, y_bounds=(0, 8), cuts=[1, 2, 4])
    table = model.fit(frame, formula="Surv(time, event) ~ ward * sex").summary()
    b, c, m = ward == 1, ward == 2, sex == 1
    rows = np.column_stack([b, c, m, b & m, c & m]).astype(float)
    printed = [term for term in table.terms if not term.term.startswith("log hazard")]
    assert [term.term for term in printed[:3]] == ["ward: b - a", "ward: c - a", "sex: m - f"]
    slopes = np.array([term.estimate for term in printed])
    hazards = np.array([term.estimate for term in table.terms if term not in printed])
    within = np.diff(np.minimum(time[:, None], np.concatenate([[0.0], edges])), axis=1)
    expected = within * np.exp((rows @ slopes)[:, None] + hazards)
    cross = rows.T @ expected
    information = np.block(
        [[rows.T @ (rows * expected.sum(axis=1)[:, None]), cross], [cross.T, np.diag(expected.sum(axis=0))]]
    )
    errors = np.sqrt(np.linalg.inv(information).diagonal())
    assert [term.std_error for term in printed] == pytest.approx(errors[:5].tolist(), rel=1e-4)
