"""The model itself: its sensitivity by brute force with a broken control, its figures, its estimator, and its refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import COLUMNS, two_clinics
from private_correlation import MODEL, PrivateCorrelation
from private_correlation.coordinator import correlation
from private_correlation.plan import BLOCKS, compile_plan, distances

import unpooled
from unpooled.audit.replay import replay
from unpooled.errors import PlanMismatch, PolicyRefusal, UsageError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import GaussianRelease, Reach
from unpooled.privacy.plan import Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import ROWWISE, Adjacency, Target, Unit
from unpooled.protocol.local import run_in_process
from unpooled.testing.results import check_forms


def study(**changes: object) -> Study:
    return msgspec.structs.replace(two_clinics()[0], **changes)


def in_widths(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Rows as the vectors that Theorem R.1 is about."""
    return np.stack([u, v, u * v, u**2 / BLOCKS[1], v**2 / BLOCKS[1]], axis=-1)


def farthest(adjacency: Adjacency, unit: Unit) -> float:
    """The brute-force twin: the largest change over a grid of rows, ends and points at random."""
    places = np.concatenate([np.linspace(-1, 1, 9), np.random.default_rng(0).uniform(-1, 1, 8)])
    rows = np.array(list(itertools.product(places, places)))
    own = in_widths(*rows.T)
    if unit is Unit.ATTRIBUTE:
        others = [(place, rows[:, 1]) for place in (places if adjacency is Adjacency.REPLACE else [0.0])]
        return max(float(np.linalg.norm(own - in_widths(np.full(len(rows), u), v), axis=1).max()) for u, v in others)
    if adjacency is Adjacency.ZERO_OUT:
        return float(np.linalg.norm(own, axis=1).max())
    return float(np.linalg.norm(own[:, None] - own[None], axis=2).max())


@pytest.mark.parametrize("unit", list(ROWWISE))
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_sensitivity_is_attained_and_never_exceeded(adjacency: Adjacency, unit: Unit) -> None:
    declared, _ = distances(adjacency)[unit]
    assert farthest(adjacency, unit) == pytest.approx(declared, rel=1e-12)
    planned = MODEL.compile(study(adjacency=str(adjacency))).releases[0].mechanism
    assert planned.sensitivity(unit) == declared


def test_equal_widths_would_break_the_theorem(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken control of the twin: with noise of one width the squares count more, and the bound of zero-out is exceeded."""
    monkeypatch.setitem(globals(), "BLOCKS", (1.0, 1.0))
    assert farthest(Adjacency.ZERO_OUT, Unit.RECORD) > distances(Adjacency.ZERO_OUT)[Unit.RECORD][0] * 1.1


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_reach_that_is_a_tenth_too_short_is_caught_by_the_audit(adjacency: Adjacency) -> None:
    asked, tables = study(adjacency=str(adjacency)), two_clinics()[1]
    assert replay(MODEL, asked, tables, registry=lambda _: MODEL, rounds=4).passed

    def shortened(said: Study) -> object:
        sound = compile_plan(said)
        reach = {unit: Reach(0.9 * far, moved) for unit, (far, moved) in distances(adjacency).items()}
        first = sound.releases[0].mechanism
        assert isinstance(first, GaussianRelease)
        short = GaussianRelease.calibrated(first.blocks, reach, Unit(said.unit), 1.0)
        return replace(sound, releases=tuple(replace(r, mechanism=short) for r in sound.releases))

    broken = replace(MODEL, compile_plan=shortened)
    assert not replay(broken, asked, tables, registry=lambda _: broken, rounds=4).passed


def test_without_noise_it_is_the_correlation_and_its_slopes_are_derivatives() -> None:
    """The standard error of Theorem R.2 against finite differences."""
    x = np.random.default_rng(2).multivariate_normal([0.1, -0.2], [[0.04, 0.02], [0.02, 0.06]], 500)
    moments = np.array([*x.mean(axis=0), (x[:, 0] * x[:, 1]).mean(), *(x**2).mean(axis=0)])
    found = correlation(moments, np.zeros(5), 500)
    assert found.value == pytest.approx(np.corrcoef(x.T)[0, 1], rel=1e-12)
    assert found.privacy == 0
    for k in range(5):
        step, noise = np.zeros(5), np.zeros(5)
        step[k], noise[k] = 1e-7, 1.0
        up, down = (correlation(moments + side * step, np.zeros(5), 500).value for side in (1, -1))
        assert correlation(moments, noise, 500).privacy == pytest.approx(abs(up - down) / 2e-7, rel=1e-5)


def test_intervals_cover_what_they_say() -> None:
    rng, inside = np.random.default_rng(3), 0
    for _ in range(200):
        x = np.clip(rng.multivariate_normal([0, 0], [[0.09, 0.045], [0.045, 0.09]], 400), -1, 1)
        low, high = PrivateCorrelation(2.0, bounds=(-1, 1)).fit(x).interval_
        inside += low <= 0.5 <= high
    assert 0.88 < inside / 200 <= 1.0


def test_where_the_noise_hides_everything_nothing_is_said() -> None:
    found = correlation(np.array([0.0, 0.0, 0.1, -0.01, 0.2]), np.ones(5), 50)
    assert found.value is None
    plan = MODEL.compile(study())
    assert MODEL.reading.terms(plan, found) == ()
    assert "ask for a larger epsilon" in MODEL.table(plan, found)


def test_the_outlook_is_what_the_runs_have() -> None:
    assert MODEL.outlook is not None
    found = MODEL.outlook(study(), ranges=2.0)
    assert [point.error for point in found.points] == sorted((point.error for point in found.points), reverse=True)
    asked = MODEL.outlook(study(epsilon=5.0), ranges=2.0, quick=True)
    assert asked.points == (asked.at,)
    assert asked.error < found.error


def test_an_estimator_fits_prints_and_is_saved(tmp_path: Path) -> None:
    x, y = np.random.default_rng(4).uniform(-0.5, 0.5, (2, 3000))
    model = PrivateCorrelation(3.0, bounds=(-1, 1), random_state=0).fit(np.column_stack([x, y - x]))
    assert -0.8 < model.correlation_ < -0.6
    assert "correlation of x0 and x1" in str(model.summary())
    model.save(tmp_path / "model")
    again = unpooled.load(tmp_path / "model")
    assert type(again) is PrivateCorrelation
    assert (again.correlation_, str(again.summary())) == (model.correlation_, str(model.summary()))
    check_forms(model.summary())
    assert model.plan(1000, 2).maker == model.plan_.maker
    assert model.plan_.maker.startswith("private-correlation ")
    assert model.outlook(1000, 2).error > 0


def test_a_party_lists_the_model_in_its_policy() -> None:
    asked, tables = study(simulation_seed=None), two_clinics()[1]
    model = load("private_correlation")
    plan = model.compile(asked)
    open_to_all = {"allow_in_process": True, "approved": None}
    strict = Policy(Target(5.0, 1e-3), **open_to_all)
    with pytest.raises(PolicyRefusal, match=r'add models = \["private_correlation"\] under \[policy\]'):
        run_in_process(model, plan, tables, strict, load)
    found = run_in_process(model, plan, tables, replace(strict, models=frozenset({"private_correlation"})), load)
    assert found.outcome.result is not None
    with pytest.raises(PlanMismatch, match=r"private-correlation 9\.9 at the coordinator"):
        run_in_process(model, replace(plan, maker="private-correlation 9.9"), tables, Policy.in_process(), load)


def test_what_it_cannot_do_is_refused() -> None:
    cards = study().parties
    other = msgspec.structs.replace(cards[1], columns=(COLUMNS[0], Column("pressure", 70.0, 300.0)))
    words = msgspec.structs.replace(cards[0], columns=(COLUMNS[0], Column("pressure", categories=("a", "b"))))
    for changes, match in (
        ({"parameters": {"column": "age"}}, "column"),
        ({"parameters": {"columns": ["age", "age"]}}, "one column twice"),
        ({"parties": (cards[0], other)}, "agree on one range"),
        ({"parties": (words,)}, "needs low and high"),
        ({"parties": (msgspec.structs.replace(cards[0], rows=3),)}, "needs 4 rows"),
        ({"calibration": "published"}, "another form"),
    ):
        with pytest.raises(UsageError, match=match):
            MODEL.compile(study(**changes))
    with pytest.raises(UsageError, match="a correlation is of two"):
        PrivateCorrelation(bounds=(-1, 1)).fit(np.zeros((5, 3)))
