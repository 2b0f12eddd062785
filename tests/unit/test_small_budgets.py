"""A direction of slopes and its length: what one record moves, when it is chosen, and that it costs next to nothing where columns say nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from unpooled import PrivateLinearRegression
from unpooled.errors import PlanMismatch, UsageError
from unpooled.kernels import rows as standard_rows
from unpooled.linear import conversation as linear_direction
from unpooled.linear import descent as slope_lengths
from unpooled.linear.conversation import declared_standard, kept_part
from unpooled.linear.descent import learnt_part, steep_of, way_of
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.lines import LineRows
from unpooled.linear.schedule import (
    LENGTH_ROUNDS,
    ROUNDS,
    WORTH_DIRECTION,
    WORTH_ERRORS,
    WORTH_FEW_SLOPES,
    WORTH_LENGTHS,
    Method,
    schedule_of,
)
from unpooled.linear.standard import CAP, CONSTANT, StandardRows, public_numbers
from unpooled.models.bayes.declared import BayesDesign
from unpooled.privacy.bounds import Column
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit

COLUMNS = (Column("a", -1, 3), Column("c", categories=("u", "v", "w")), Column("b", 0, 1, missing="indicator"))
Y = Column("y", -4, 4)


def layout() -> MomentsLayout:
    return MomentsLayout.of((*COLUMNS, Y), "y", 100)


def one_row(rng: np.random.Generator) -> dict[str, object]:
    row: dict[str, object] = {"c": str(rng.choice(["u", "v", "w"]))}
    for column in (COLUMNS[0], COLUMNS[2], Y):
        low, high = column.range
        row[column.name] = rng.choice([low, high, (low + high) / 2, rng.uniform(low, high)])
    row["b"] = math.nan if rng.random() < 0.2 else row["b"]
    return row


def alone(rows: LineRows, row: dict[str, object], standard, start) -> np.ndarray:
    """What one record adds: half of what two equal ones add."""
    table = Table({k: np.array([v, v], dtype=object if isinstance(v, str) else float) for k, v in row.items()})
    twice = rows.gradient(rows.blocks(table, standard), start)
    assert not (twice % 2).any()
    return twice // 2


def farthest() -> dict[tuple[Adjacency, Unit], float]:
    """How far one record moves a gradient along a line, in parts of its reach, over directions of any length and wild coefficients."""
    found: dict[tuple[Adjacency, Unit], float] = {}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        full = StandardRows(layout(), 100, 0.5)
        rows = LineRows.of(full, float(rng.choice([0.1, 0.9, 1.4])))
        p = full.layout.size - 1
        standard = rng.uniform(-1, 1, p + 1), np.exp(rng.uniform(-3, 1, p + 1))
        start = np.append(
            rng.normal(size=p) * rng.choice([0.0, 1.0, 50.0]), rng.normal(size=2) * rng.choice([0.0, 3.0, 100.0])
        )
        first, second = one_row(rng), one_row(rng)
        name = str(rng.choice(["a", "b", "c", "y"]))
        a, b, c = (alone(rows, row, standard, start) for row in (first, second, {**first, name: second[name]}))
        for adjacency in Adjacency:
            vector = rows.named("length", 1.0, adjacency, 8)
            assert (vector.name, vector.count) == ("length", 8)
            assert np.abs(a).max() <= vector.per_row
            unit = vector.blocks[0].width
            moved = {Unit.RECORD: a - b if adjacency is Adjacency.REPLACE else a, Unit.ATTRIBUTE: a - c}
            for who, difference in moved.items():
                far = float(np.linalg.norm(difference)) / unit / vector.reach[who].distance
                found[adjacency, who] = max(found.get((adjacency, who), 0.0), far)
    return found


def test_no_record_moves_a_gradient_along_a_line_farther_than_its_reach() -> None:
    """Theorem B.5, for rows of two numbers."""
    found = farthest()
    assert max(found.values()) <= 1 + 1e-12
    assert min(found.values()) > 0.9


def test_a_gradient_along_a_line_that_is_not_cut_is_caught(monkeypatch) -> None:
    def uncut(residual, square, fine, most, longest) -> None:
        del square, longest
        residual[:] = np.trunc(np.clip(residual * fine, -most, most))

    monkeypatch.setattr(standard_rows, "cut_residuals", uncut)
    with pytest.raises(AssertionError):
        test_no_record_moves_a_gradient_along_a_line_farther_than_its_reach()


@pytest.mark.parametrize("length", [1.0, 200.0])
def test_a_value_along_a_line_is_that_of_the_standardised_row(length: float) -> None:
    full = StandardRows(layout(), 100, 0.5)
    rows = LineRows.of(full, 1.4)
    rng = np.random.default_rng(2)
    p = full.layout.size - 1
    direction = rng.normal(size=p)
    direction *= length / np.linalg.norm(direction)
    standard = declared_standard(full.layout)
    numbers = public_numbers(full.layout, (*standard.settings, *direction, 0.0, 0.0), 0, coefficients=p + 2)
    table = Table({k: np.array([v, v], dtype=object if isinstance(v, str) else float) for k, v in one_row(rng).items()})
    ((z, _),) = full.blocks(table, numbers[0])
    ((own, _, square),) = rows._left(rows.blocks(table, numbers[0]), numbers[1])
    expected = np.clip(z[0, :-1] / full.grid @ direction, -3, 3)
    assert (abs(expected) == 3) == (length > 1)
    assert own[0] / full.grid == pytest.approx([expected, 0.7], abs=2.5 * length / full.grid)
    assert square[0] == pytest.approx(own[0] @ own[0])
    with pytest.raises(PlanMismatch):
        public_numbers(full.layout, (*standard.settings, *direction, 0.0), 0, coefficients=p + 2)


def test_before_anything_is_released_levels_are_alike_and_numbers_have_a_quarter_of_half_their_range() -> None:
    own = layout()
    standard = declared_standard(own)
    names = [own.features[k].name for k in own.coding.attribute]
    assert standard.middle[:-1] == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 0, 0.1])
    assert standard.width[[0, 4, -1]] == pytest.approx(1 / CAP)
    assert standard.width[names.index("c")] == pytest.approx(math.sqrt(2) / 3)


# --- when -------------------------------------------------------------------------------------------------------------------


def test_a_direction_is_chosen_where_it_costs_less_than_it_tells() -> None:
    passes = ROUNDS + 5
    for k, d, expected in (
        (0.2, 300, Method.DIRECTION),
        (2.0, 30, Method.DIRECTION),
        (WORTH_LENGTHS * 0.99, 20, Method.DIRECTION),
        (WORTH_LENGTHS, 20, Method.GRADIENT),
        (2.0, WORTH_DIRECTION / 2 * 0.9, Method.MEAN),
        (4.0, WORTH_FEW_SLOPES / 4 * 1.1, Method.DIRECTION),
        (4.0, WORTH_FEW_SLOPES / 4 * 0.9, Method.GRADIENT),
    ):
        assert schedule_of(Method.AUTO, k, math.floor(d), passes).method is expected
    assert schedule_of(Method.AUTO, 2.0, 30, 47).method is Method.MEAN  # too few passes for it
    assert schedule_of(Method.AUTO, 4.0, 30, 47).method is Method.GRADIENT


@pytest.mark.parametrize("k", [0.2, 2.0, 9.0, 1e4, math.inf])
def test_the_shares_of_a_direction_are_all_of_the_budget(k: float) -> None:
    schedule = schedule_of(Method.DIRECTION, k, 30, ROUNDS)
    assert schedule.base + schedule.descent + schedule.length == pytest.approx(1.0)
    assert 0.25 <= schedule.length <= 0.55
    assert schedule.passes == 48
    assert schedule_of(Method.DIRECTION, 1e4, 30, ROUNDS).length <= schedule.length


def test_a_direction_has_a_constant_and_all_of_its_passes() -> None:
    given = {"bounds": (-1, 1), "y_bounds": (-1, 1), "epsilon": 1.0, "delta": 1e-5}
    assert PrivateLinearRegression(**given).plan(500, 30).design.method is Method.DIRECTION
    assert PrivateLinearRegression(**given, fit_intercept=False).plan(500, 30).design.method is Method.GRADIENT
    with pytest.raises(UsageError, match="fit_intercept"):
        PrivateLinearRegression(**given, method="direction", fit_intercept=False).plan(500, 30)
    with pytest.raises(UsageError, match="48 times"):
        PrivateLinearRegression(**given, method="direction", max_passes=47).plan(500, 30)


@pytest.mark.parametrize(
    ("k", "coefficients", "passes", "wanted"),
    [
        (WORTH_LENGTHS, 10, ROUNDS, 0.1),
        (0.9 * WORTH_LENGTHS, 2 + 1, ROUNDS, 0.2),
        (WORTH_ERRORS, 10, ROUNDS, 0.0),
        (20.0, 2, ROUNDS, 0.0),  # one slope
        (20.0, 10, 16, 0.0),
        (20.0, 10, 17, 0.1),
    ],
)
def test_rounds_of_gradients_end_with_those_of_their_length(k: float, coefficients: int, passes: int, wanted: float) -> None:
    found = schedule_of(Method.GRADIENT, k, coefficients, passes, lengths=True)
    assert found.length == wanted
    assert found.passes <= passes
    assert found.passes == 1 + found.rounds + LENGTH_ROUNDS * (wanted > 0)
    assert found.scales + found.descent + found.length == pytest.approx(1.0)
    assert schedule_of(Method.GRADIENT, k, coefficients, passes).length == 0.0


def test_a_refinement_has_no_rounds_of_a_length() -> None:
    assert schedule_of(Method.REFINEMENT, 20.0, 10, ROUNDS, lengths=True).length == 0.0


# --- how far it is believed --------------------------------------------------------------------------------------------------


def test_a_length_that_may_be_noise_is_none() -> None:
    assert kept_part(-3.0, 0.01) == kept_part(0.0, 0.0) == kept_part(0.1, 0.01) == 0.0
    assert kept_part(1.0, 0.0) == 1.0
    assert kept_part(1.0, 0.1) == pytest.approx(0.8)


def test_rows_teach_a_direction_no_more_than_they_hold() -> None:
    """The closed form: without noise slopes / rows, and under much noise the variance of gradients over that of their noise."""
    assert learnt_part(0.5, 0.0, 30, 100, 20) == pytest.approx(0.2)
    noise = 5.0
    assert learnt_part(0.5, noise, 30, 100, 20) == pytest.approx(30 * (0.5 / noise / 100) ** 2, rel=1e-2)
    each = [learnt_part(0.5, noise, 30, 100, 20) for noise in (0.001, 0.01, 0.1, 1.0)]
    assert each == sorted(each, reverse=True)


def errors(
    method: str, square: float, *, shape: str = "independent", epsilon: float = 1.0, runs: int = 40, strength: float = 100.0
) -> np.ndarray:
    """Squared errors of predictions over the variance of the response; its mean lies at a quarter of the declared range."""
    rows, columns, found = round(strength / 0.2685 / epsilon), 15, []
    for seed in range(runs):
        rng = np.random.default_rng([seed, 77])
        X = rng.normal(size=(rows + 2000, columns))
        if shape == "one factor":
            X = math.sqrt(0.3) * X + math.sqrt(0.7) * rng.normal(size=(rows + 2000, 1))
        signal = X @ rng.normal(size=columns)
        y = math.sqrt(square) * signal / signal.std() + math.sqrt(1 - square) * rng.normal(size=rows + 2000)
        own = PrivateLinearRegression(
            epsilon=epsilon, delta=1e-5, bounds=(-5, 5), y_bounds=(-7.5, 2.5), method=method, random_state=seed
        )
        own.fit(X[:rows], y[:rows])
        found.append(np.mean((own.predict(X[rows:]) - y[rows:]) ** 2))
    return np.array(found)


def over(own: np.ndarray, mean: np.ndarray) -> tuple[float, float]:
    ratio = float(own.mean() / mean.mean())
    return ratio, float((own - ratio * mean).std() / math.sqrt(own.size) / mean.mean())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_columns_that_say_nothing_cost_next_to_nothing(monkeypatch) -> None:
    """n mu is 100, k about 6. Rounds of gradients, the rule before, lose to the mean here; a length that is always believed costs more."""
    mean, own = errors("mean", 0.0), errors("direction", 0.0)
    ratio, error = over(own, mean)
    assert ratio - 2 * error < 1.02
    ratio, error = over(errors("gradient", 0.0), mean)
    assert ratio - 2 * error > 1.02
    monkeypatch.setattr(linear_direction, "kept_part", lambda length, variance: 1.0)
    more = errors("direction", 0.0) - own  # of the same draws
    assert more.mean() > 3 * more.std() / math.sqrt(more.size)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("shape", "square", "most"), [("independent", 0.3, 0.95), ("independent", 0.8, 0.65), ("one factor", 0.3, 0.9)]
)
def test_columns_that_say_something_are_used(shape: str, square: float, most: float) -> None:
    ratio, error = over(errors("direction", square, shape=shape, runs=16), errors("mean", square, shape=shape, runs=16))
    assert ratio + 2 * error < most


def small_design() -> BayesDesign:
    """Return the design of rounds of gradients of two columns, with k of 12."""
    return (
        PrivateLinearRegression(epsilon=1.0, delta=1e-5, bounds=(-4, 4), y_bounds=(-4, 4), method="gradient")
        .plan(135, 2)
        .design
    )


def _length_found(length: float, constant: float, error: float, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Slopes (.3, .4) and a constant of .2 that rounds of a study of k = 12 found, after rounds along them that say this."""

    class Said:
        def __init__(self, *_: object) -> None:
            pass

        def rows(self, *_: object) -> Iterator[None]:
            yield
            return (length, constant), error

    monkeypatch.setattr(slope_lengths, "LineRounds", Said)
    design = small_design()
    rounds = SimpleNamespace(design=design, rows=135)
    standard = replace(declared_standard(design.layout), noise=0.1)
    asked = slope_lengths.with_length(rounds, standard, np.array([0.3, 0.4, 0.2]), 0.02)
    next(asked)
    with pytest.raises(StopIteration) as ended:
        next(asked)
    return np.asarray(ended.value.value)


def test_rounds_along_slopes_count_by_their_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The direction stays; exact rounds say the constant, and the length but for what was learnt on the same rows; noise says neither."""
    exact, between, noise = (_length_found(0.9, 0.6, error, monkeypatch) for error in (1e-6, 0.05, 1e3))
    for found in (exact, between, noise):
        assert found[:-1] / np.linalg.norm(found[:-1]) == pytest.approx([0.6, 0.8])
    lengths = [float(np.linalg.norm(found[:-1])) for found in (noise, between, exact)]
    assert lengths == sorted(lengths)
    assert [found[-1] for found in (exact, noise)] == pytest.approx([0.6, 0.2], abs=1e-3)
    # As far from both as their variances are large.
    far = [(between[-1] - at) / (0.6 - 0.2) for at in (0.2, 0.6)]
    design = small_design()
    _, before = way_of(design, 0.02, CONSTANT**2)
    after = 0.05 / steep_of(design.schedule.clips[1], 1) / CONSTANT**2
    assert far[0] / -far[1] == pytest.approx((before / after) ** 2)
    # Clipped gradients along a line are less steep, so that their error is larger than their noise.
    with monkeypatch.context() as steeper:
        steeper.setattr(slope_lengths, "steep_of", lambda *_: 1.0)
        assert np.linalg.norm(_length_found(0.9, 0.6, 0.05, monkeypatch)[:-1]) > lengths[1] + 1e-4
    monkeypatch.setattr(slope_lengths, "learnt_length", lambda *_: 1e-9)
    assert np.linalg.norm(_length_found(0.9, 0.6, 1e-6, monkeypatch)[:-1]) == pytest.approx(0.9, abs=1e-3)
    assert lengths[-1] < 0.9 - 1e-3


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_columns_that_say_nothing_cost_little(monkeypatch) -> None:
    """n mu is 200, k about 12. A length that was taken as it was measured, or slopes with less noise than they have, cost more."""
    mean, own = (errors(method, 0.0, epsilon=2.0, runs=20, strength=200.0) for method in ("mean", "gradient"))
    ratio, error = over(own, mean)
    assert ratio - 2 * error < 1.02
    with monkeypatch.context() as broken:
        broken.setattr(slope_lengths, "believed_length", lambda found, way, *_: float(np.linalg.norm(found)) / way)
        more = errors("gradient", 0.0, epsilon=2.0, runs=20, strength=200.0) - own  # of the same draws
    assert more.mean() > 3 * more.std() / math.sqrt(more.size)
    with monkeypatch.context() as broken:
        honest = slope_lengths.way_of
        broken.setattr(slope_lengths, "way_of", lambda *given: (honest(*given)[0], honest(*given)[1] / 5))
        more = errors("gradient", 0.0, epsilon=2.0, runs=20, strength=200.0) - own
    assert more.mean() > 3 * more.std() / math.sqrt(more.size)


@pytest.mark.filterwarnings("ignore")
def test_levels_and_missing_values_and_weights_are_columns_like_others() -> None:
    import pandas as pd

    rng = np.random.default_rng(5)
    n = 4000
    frame = pd.DataFrame({"a": rng.normal(size=n), "ward": rng.choice(["u", "v", "w"], n)})
    y = frame["a"] + 2.0 * (frame["ward"] == "w") + 0.3 * rng.normal(size=n)
    own = PrivateLinearRegression(
        epsilon=1.0,
        delta=1e-5,
        bounds={"a": (-4, 4), "ward": ("u", "v", "w")},
        y_bounds=(-6, 6),
        weights_bounds=(0, 2),
        method="direction",
        random_state=0,
    )
    own.fit(frame, y, weights=np.ones(n))
    assert np.mean((own.predict(frame) - y) ** 2) < 0.5 * np.var(y)
    assert np.isnan(own.covariance_).all()  # it has no standard errors
