"""Two-stage least squares from released second moments (`models/bayes/THEORY.md`, B.16), of rows and of columns at several parties."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from joint_world import fitted, number, of
from world import sized

import unpooled
from unpooled import PrivateLinearRegression
from unpooled.errors import UsageError
from unpooled.kernels.noisy import KnownDirections, SecondMoments, first_stage, first_stage_covariance, second_stage
from unpooled.linear.instruments import WEAK, tables_of
from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.moments import imagine

ARMS = ("a", "b", "c")
SPLIT = {"clinic": ("dose", "age"), "registry": ("arm", "z1", "z2", "y")}
COLUMNS = {
    "dose": number("dose", -7.0, 7.0),
    "age": number("age", 0.0, 1.0),
    "arm": Column("arm", categories=ARMS),
    "z1": number("z1"),
    "z2": number("z2"),
    "y": number("y", -20.0, 20.0),
}


def world(n: int, rng: np.random.Generator, strength: float = 0.8) -> dict[str, np.ndarray]:
    """A dose that depends on what nobody measured, and two instruments; the effect of the dose is 1."""
    unseen, z = rng.normal(size=n), rng.normal(size=(2, n)).clip(-4, 4)
    age, arm = rng.uniform(0, 1, n), rng.choice(3, n)
    dose = (strength * z[0] + strength / 2 * z[1] + 0.7 * unseen + 0.5 * age + 0.7 * rng.normal(size=n)).clip(-7, 7)
    y = 1 + 2 * age + dose + 0.8 * (arm == 1) - 1.5 * unseen + rng.normal(size=n)
    labels = np.array(ARMS, dtype=object)[arm]
    return {"dose": dose, "age": age, "arm": labels, "z1": z[0], "z2": z[1], "y": y.clip(-20, 20)}


def by_hand(values: dict[str, np.ndarray], instruments: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and standard errors of (dose, age, arm b, arm c, constant), of the pooled rows."""
    n = len(values["y"])
    others = [values["age"], values["arm"] == "b", values["arm"] == "c", np.ones(n)]
    x = np.column_stack([values["dose"], *others]).astype(float)
    w = np.column_stack([*(values[name] for name in instruments), *others]).astype(float)
    predicted = w @ np.linalg.lstsq(w, x, rcond=None)[0]
    found = np.linalg.solve(predicted.T @ x, predicted.T @ values["y"])
    variance = np.mean((values["y"] - x @ found) ** 2)
    return found, np.sqrt(variance * np.linalg.inv(predicted.T @ predicted).diagonal())


LINES = ["dose", "age", "arm: b - a", "arm: c - a", "(intercept)"]


@pytest.mark.parametrize("instruments", [["z1"], ["z2", "z1"]])
@pytest.mark.parametrize("split", [None, {"clinic": ["dose", "age"], "registry": ["arm", "z1", "z2"]}])
def test_without_noise_it_is_that_of_the_pooled_rows(instruments: list[str], split: dict[str, list[str]] | None) -> None:
    values = world(4000, np.random.default_rng(0))
    bounds: dict[str, Any] = {"dose": (-7, 7), "age": (0, 1), "arm": list(ARMS), "z1": (-4, 4), "z2": (-4, 4)}
    kept = ["dose", "age", "arm", *instruments]
    model = PrivateLinearRegression(
        epsilon=math.inf,
        bounds={name: bounds[name] for name in kept},
        y_bounds=(-20, 20),
        method="moments",
        parties=split and {name: [c for c in own if c in kept] for name, own in split.items()},
    )
    model.fit(pl.DataFrame({name: values[name] for name in (*kept, "y")}), "y")
    table = model.two_stage("dose", instruments).summary()
    found = {term.term: term for term in table.terms}
    estimate, error = by_hand(values, instruments)
    assert sorted(found) == sorted(LINES)
    near = 0.02 if split else 1e-4  # parties shorten the longest rows
    for name, value, spread in zip(LINES, estimate, error, strict=True):
        assert found[name].estimate == pytest.approx(value, abs=5 * near * spread + 1e-6)
        assert found[name].std_error == pytest.approx(spread, rel=near)
    assert table.first_stage.statistic > 1000
    assert table.first_stage.degrees == len(instruments)
    assert not table.weak
    if not split:  # of what is left after the second stage, in the units of the response
        kept_columns = [values["dose"], values["age"], values["arm"] == "b", values["arm"] == "c", np.ones(4000)]
        left = values["y"] - np.column_stack(kept_columns).astype(float) @ estimate
        assert table.residual_variance == pytest.approx(float(left @ left) / 4000, rel=0.01)
    plain = {term.term: term.estimate for term in model.summary().terms}
    assert plain["dose"] < 0.6  # the control: least squares is pulled down by what nobody measured


def test_a_treatment_of_two_levels_is_one_endogenous_column() -> None:
    rng = np.random.default_rng(1)
    n = 6000
    unseen, z = rng.normal(size=(2, n))
    treated = (z + unseen + rng.normal(size=n) > 0).astype(int)
    y = 2 * treated - unseen + rng.normal(size=n)
    columns = {"t": Column("t", categories=("no", "yes")), "z": number("z"), "y": number("y", -12.0, 12.0)}
    values = {"t": np.array(["no", "yes"], dtype=object)[treated], "z": z.clip(-4, 4), "y": y.clip(-12, 12)}
    moments = fitted(*of(columns, values, {"a": ("t",), "b": ("z", "y")}))
    (line, constant) = tables_of(moments, "t", ["z"]).summary().terms
    w, x = (np.column_stack([column, np.ones(n)]) for column in (values["z"], treated))
    assert (line.term, constant.term) == ("t: yes - no", "(intercept)")
    assert [line.estimate, constant.estimate] == pytest.approx(np.linalg.solve(w.T @ x, w.T @ values["y"]), abs=0.01)


@pytest.mark.slow
def test_its_noise_is_that_of_moments_that_are_drawn_again() -> None:
    """Both stages of the kernel, over draws of a small noise of the moments."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(900, 4)) @ rng.normal(size=(4, 4))
    z = np.column_stack([rows, np.ones(900)])  # exogenous 0, endogenous 1, instruments 2 and 3, the constant
    y = z @ [1.0, -1.0, 0.0, 0.0, 2.0] + rng.normal(size=900)
    at_w, at_e = np.array([0, 2, 3, 4]), np.array([0, 4])
    variance, own = np.full((5, 5), 0.3) + 0.1 * np.eye(5), np.full(5, 0.2)
    quiet = np.zeros((5, 5))

    def both(gram: np.ndarray, cross: np.ndarray, noise: np.ndarray) -> tuple[Any, ...]:
        released = SecondMoments(gram, cross, noise, own * (noise > 0).any())
        w, e = (
            KnownDirections.of(gram[np.ix_(at, at)], quiet[np.ix_(at, at)], np.empty((len(at), 0))) for at in (at_w, at_e)
        )
        first = first_stage(released, at_w, w, 1)
        return first, second_stage(released, (at_w, w), (at_e, e), 1, first), released, w

    gram, cross = z.T @ z, z.T @ y
    firsts, means = [], []
    for _ in range(4000):
        moved = np.triu(np.sqrt(variance) * rng.normal(size=(5, 5)))
        moved = moved + np.triu(moved, 1).T
        first, second, *_ = both(gram + moved, cross + np.sqrt(own) * rng.normal(size=5), quiet)
        firsts.append(first.coefficients)
        means.append(second.mean)
    first, second, released, w = both(gram, cross, variance)
    assert second.mean[[2, 3]].tolist() == [0.0, 0.0]
    there = np.array([0, 1, 4])
    pairs = [
        (np.array(means)[:, there], second.met[np.ix_(there, there)]),
        (np.array(firsts), first_stage_covariance(released, at_w, w, first, 1e12, 0.0)),
    ]
    for drawn, planned in pairs:
        deviations = np.sqrt(planned.diagonal())
        scale = np.outer(deviations, deviations)
        assert np.cov(drawn.T) / scale == pytest.approx(planned / scale, abs=0.1)


def imagined(n: int, epsilon: float, strength: float, k: int) -> Any:
    cards = tuple(Card(name, n, tuple(COLUMNS[c] for c in own)) for name, own in SPLIT.items())
    given = {"response": "y", "split": "columns", "method": "moments"}
    design = design_of(Study("bayes", cards, epsilon, 1e-6, parameters=given, derived=(), helpers=(HelperCard("h"),)))
    rng = np.random.default_rng([k, n])
    values = world(n, rng, strength)
    tables = {name: Table({c: values[c] for c in own}) for name, own in SPLIT.items()}
    return tables_of(imagine(design, tables, rng), "dose", ["z1", "z2"]).summary()


def test_a_weak_instrument_has_no_line_and_the_table_says_why() -> None:
    table = imagined(5000, 1.0, 0.05, 0)
    assert table.weak
    assert table.first_stage.statistic < WEAK
    assert table.terms == ()  # of the others too: without the dose they are coefficients of another model
    assert set(table.not_determined) == set(LINES)
    assert "Weak instrument: F is below 30" in str(table)
    strong = imagined(20_000, 3.0, 0.8, 0)
    assert not strong.weak
    assert "valid only if they move the response through dose alone" in str(strong)


@pytest.mark.long
@pytest.mark.slow
def test_intervals_hold_the_truth_with_noise() -> None:
    truth = {"dose": 1.0, "age": 2.0, "arm: b - a": 0.8, "arm: c - a": 0.0, "(intercept)": 1.0}
    runs = sized(60, 400)
    for n, epsilon, strength in ((5000, 3.0, 0.8), (20_000, 1.0, 0.5)):
        tables = [imagined(n, epsilon, strength, k) for k in range(runs)]
        lines = [term for table in tables for term in table.terms]
        assert len(lines) == len(LINES) * runs
        hits = np.mean([term.conf_low <= truth[term.term] <= term.conf_high for term in lines])
        assert 0.9 < hits < 0.985
        dose = [(term.estimate - 1) / term.std_error for term in lines if term.term == "dose"]
        # Rows that are shortened move slopes by up to about a third of their standard error (B.15).
        assert abs(np.mean(dose)) < 0.4 + 3 / math.sqrt(runs)


@pytest.mark.parametrize(
    ("endogenous", "instruments", "words"),
    [
        ("height", ["z1"], "'height' is no column"),
        ("dose", ["height"], "'height' is no column"),
        ("dose", "z1", "must be a list"),
        ("dose", [], "must be a list"),
        ("dose", ["dose"], "there twice"),
        ("dose", ["z1", "z1"], "there twice"),
        ("arm", ["z1"], "has 3 levels"),
    ],
)
def test_what_it_cannot_have_is_refused_by_name(endogenous: str, instruments: Any, words: str) -> None:
    moments = fitted(*of(COLUMNS, world(300, np.random.default_rng(3)), SPLIT))
    with pytest.raises(UsageError, match=words):
        tables_of(moments, endogenous, instruments)


def test_moments_about_least_squares_are_refused() -> None:
    """Refinement cuts rows and residuals off about least squares: there the effect of the dose was 5 standard errors off."""
    values = world(20_000, np.random.default_rng(5))
    bounds: dict[str, Any] = {"dose": (-7, 7), "age": (0, 1), "z1": (-4, 4)}
    model = PrivateLinearRegression(epsilon=3.0, bounds=bounds, y_bounds=(-20, 20), random_state=0)
    model.fit(pl.DataFrame({name: values[name] for name in (*bounds, "y")}), "y")
    assert model.method_ == "refinement"
    with pytest.raises(UsageError, match="fit with method='moments'"):
        model.two_stage("dose", ["z1"])


def test_a_table_promises_no_covariance_that_there_is_none_of() -> None:
    said = str(imagined(20_000, 3.0, 0.8, 0))
    assert "independent rows whose variance is that of the model" in said
    assert "covariance = 'robust'" not in said


@pytest.mark.parametrize("strength", [0.8, 0.05])
def test_a_summary_is_read_again(strength: float, tmp_path: Path) -> None:
    table = imagined(5000, 1.0, strength, 0)
    table.save(tmp_path / "table")
    again = unpooled.load(tmp_path / "table")
    assert str(again) == str(table)
    assert again.weak == table.weak == (strength < 0.1)
    assert ("residual variance" in str(table)) == (not table.weak)  # without lines nothing is known of what is left


def test_models_without_a_constant_are_refused() -> None:
    rows = np.random.default_rng(4).uniform(-1, 1, (300, 3))
    model = PrivateLinearRegression(bounds=(-1, 1), y_bounds=(-3, 3), method="moments", fit_intercept=False)
    model.fit(rows, rows.sum(axis=1))
    with pytest.raises(UsageError, match="with an intercept"):
        model.two_stage("x0", ["x1"])
