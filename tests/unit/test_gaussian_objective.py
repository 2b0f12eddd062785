"""Gaussian objective perturbation: exact hockey-stick divergences of small instances, both adjacencies, both directions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from unpooled import Bounds, PrivateLogisticRegression, PrivateStackingClassifier
from unpooled.errors import UsageError
from unpooled.models.stacking.fits import penalty_of
from unpooled.privacy.accounting import UNBOUNDED, Composition, Event, Kind, gaussian_delta
from unpooled.privacy.mechanisms import GaussianObjective, ObjectivePerturbation
from unpooled.privacy.mechanisms.gaussian_objective import failing
from unpooled.privacy.noise import gaussian_vector
from unpooled.privacy.unit import Unit

RNG = np.random.default_rng(0)
POINTS = np.linspace(-1, 1, 10_001)


def density(rows: np.ndarray, penalty: float, scale: float, w: np.ndarray) -> np.ndarray:
    """Of the minimiser of sum softplus(-z w) + penalty/2 w^2 + b w with b ~ N(0, scale^2): that of b(w), times the Jacobian."""
    margins = np.outer(w, rows)
    b = (rows * expit(-margins)).sum(axis=1) - penalty * w
    bend = (rows**2 * expit(margins) * expit(-margins)).sum(axis=1) + penalty
    return np.exp(-0.5 * (b / scale) ** 2) / (scale * math.sqrt(2 * math.pi)) * bend


def hockey_stick(one: np.ndarray, other: np.ndarray, penalty: float, scale: float, epsilon: float) -> float:
    reach = (len(one) + 1 + 12 * scale) / penalty
    w = reach * POINTS
    p, q = (density(rows, penalty, scale, w) for rows in (one, other))
    return float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), w))


def instances(count: int):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 5))
        rows = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], n)
        penalty, m = float(np.exp(rng.uniform(-1.5, 2))), float(np.exp(rng.uniform(-2, 0.7)))
        changed = float(rng.choice([-rows[0], rng.uniform(-1, 1), 1.0, -1.0]))
        epsilon = math.log1p(0.25 / penalty) + float(np.exp(rng.uniform(-3, 0.5)))
        yield rows, changed, penalty, m, epsilon


def worst(bound, count: int = 200) -> float:
    """The largest exact divergence beside a bound on it, over instances in which the divergence is no rounding."""
    largest = 0.0
    for rows, changed, penalty, m, epsilon in instances(count):
        scale, left = 1.0 / m, epsilon - math.log1p(0.25 / penalty)
        for replaces, other in ((True, np.array([changed, *rows[1:]])), (False, rows[1:])):
            for one, two in ((rows, other), (other, rows)):
                exact = hockey_stick(one, two, penalty, scale, epsilon)
                if exact > 1e-9:
                    largest = max(largest, exact / max(bound(left, m, replaces), 1e-300))
    return largest


def test_no_instance_exceeds_the_bound() -> None:
    assert 0.05 < worst(lambda left, m, replaces: failing(left, m, replaces=replaces)) <= 1.0


def test_a_bound_for_half_the_gradient_is_exceeded() -> None:
    assert worst(lambda left, m, replaces: failing(left, m / 2, replaces=replaces)) > 1.0


def plane(one: np.ndarray, other: np.ndarray, penalty: float, scale: float, epsilon: float, points: int = 401) -> float:
    """The exact divergence of two data sets of rows in the plane."""
    reach = (len(one) + 1 + 7 * scale) / penalty
    axis = np.linspace(-reach, reach, points)
    w = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def law(rows: np.ndarray) -> np.ndarray:
        margins = w @ rows.T
        b = expit(-margins) @ rows - penalty * w
        bends = expit(margins) * expit(-margins)
        xx, xy, yy = (bends @ (rows[:, i] * rows[:, j]) for i, j in ((0, 0), (0, 1), (1, 1)))
        jacobian = (xx + penalty) * (yy + penalty) - xy**2
        return np.exp(-0.5 * (b**2).sum(axis=1) / scale**2) / (2 * math.pi * scale**2) * jacobian

    gap = np.maximum(law(one) - math.exp(epsilon) * law(other), 0.0)
    return float(gap.sum() * (axis[1] - axis[0]) ** 2)


def test_in_the_plane_two_rows_pull_apart_and_the_bound_holds() -> None:
    largest, short = 0.0, 0.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(int(rng.integers(1, 4)), 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        opening = rng.uniform(0.05, 0.6)
        changed = np.array([-rows[0, 0] - opening * rows[0, 1], -rows[0, 1] + opening * rows[0, 0]])
        changed /= np.linalg.norm(changed)
        penalty, m = float(np.exp(rng.uniform(-1, 1))), float(np.exp(rng.uniform(-0.5, 0.7)))
        left = float(rng.uniform(0.3, 2.5))
        exact = plane(rows, np.vstack([changed, rows[1:]]), penalty, 1 / m, left + math.log1p(0.25 / penalty))
        largest = max(largest, exact / failing(left, m, replaces=True))
        short = max(short, exact / failing(left, m / 3, replaces=True))
    assert 0.05 < largest <= 1.0
    assert short > 1.0


def made(epsilon: float = 1.0, delta: float = 1e-5, *, replaces: bool = True, **changes) -> GaussianObjective:
    fields = {
        "size": 20,
        "rows": 1000,
        "bound": 1.0,
        "penalty": 0.05,
        "scale": 1.0,
        "reach": 2.0,
        "covering": epsilon / 1000,
    }
    return GaussianObjective.calibrated(ObjectivePerturbation(**fields | changes), epsilon, delta, replaces=replaces)


@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_the_event_is_what_was_asked_for(epsilon: float, delta: float, replaces: bool) -> None:
    mechanism = made(epsilon, delta, replaces=replaces)
    event = mechanism.event(Unit.RECORD)
    alone = Composition([event])
    assert 0.99 * epsilon < alone.epsilon(delta) <= epsilon
    assert alone.delta(epsilon) <= delta
    assert alone.delta(2 * epsilon) <= delta
    # Under zero-out one value makes another row of a record, which costs what a replaced one does.
    value = mechanism.event(Unit.ATTRIBUTE).value
    assert value == event.value if replaces else value > 1.2 * event.value
    assert mechanism.label.value >= event.value


def test_the_bound_is_the_theorems() -> None:
    for epsilon, m in ((0.0, 0.3), (1.0, 1.0), (2.0, 0.4)):
        once, twice = gaussian_delta(epsilon, m), gaussian_delta(epsilon, 2 * m)
        assert failing(epsilon, m, replaces=False) == once
        assert failing(epsilon, m, replaces=True) == min(1.0, twice + 2 * once)
    assert failing(-0.1, 1.0, replaces=True) == 1.0


def test_it_composes_with_others_soundly() -> None:
    event = made().event(Unit.RECORD)
    twice = Composition([event, event])
    # Basic composition of (epsilon, delta) is a proof; nothing here may be much worse, nor better than one alone.
    assert 1.0 < twice.epsilon(1e-4) <= 2.0 + 1e-6
    mixed = Composition([event, Event(Kind.GAUSSIAN, 0.2)])
    assert mixed.epsilon(1e-4) > Composition([event]).epsilon(1e-4)


def test_noise_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="positive delta"):
        made(delta=0.0)
    with pytest.raises(UsageError, match="penalty is too small"):
        made(0.1, rows=10, penalty=1e-3)


def test_auto_is_gaussian_only_where_a_delta_was_given_and_it_is_shorter() -> None:
    options = {"epsilon": 1.0, "bounds": (-1, 1), "classes": (0, 1)}

    def name(columns: int, **given) -> str:
        return type(PrivateLogisticRegression(**options, **given).plan(2000, columns).releases[0].mechanism).__name__

    assert name(60) == "ObjectivePerturbation"
    assert name(60, delta=1e-5, method="perturbation") == "GaussianObjective"
    assert name(3, delta=1e-5, method="perturbation") == "ObjectivePerturbation"
    assert name(3, delta=1e-5, noise="gaussian") == "GaussianObjective"
    assert name(60, delta=1e-5, noise="gamma") == "ObjectivePerturbation"
    with pytest.raises(UsageError, match="positive delta"):
        name(60, noise="gaussian")
    with pytest.raises(UsageError, match="noise is"):
        name(60, noise="normal")
    for adjacency in ("replace", "zero-out"):
        plan = PrivateLogisticRegression(**options, delta=1e-5, noise="gaussian", adjacency=adjacency).plan(2000, 60)
        assert 0.99 < plan.epsilon(1e-5) <= 1.0
        assert plan.epsilon(1e-5, Unit.ATTRIBUTE) >= plan.epsilon(1e-5) * (1 - 1e-9)
    stack = PrivateStackingClassifier(2, **options, delta=1e-5, noise="gaussian")
    with pytest.raises(UsageError, match="all that is released of their rows"):
        stack.plan(2000, 8)
    rows = PrivateStackingClassifier(2, split="samples", **options, delta=1e-5, noise="gaussian").plan(2000, 8)
    assert all(isinstance(r.mechanism, GaussianObjective) for r in rows.releases)


def test_the_automatic_penalty_is_the_rule() -> None:
    assert penalty_of("auto", 10, 1000, 2.0) == pytest.approx(0.1 * 10 / 2000)
    assert penalty_of("auto", 1000, 100, 0.1) == 0.5
    assert penalty_of("auto", 10, 1000, math.inf) == 1e-3
    assert penalty_of(0.3, 10, 1000, 2.0) == 0.3
    with pytest.raises(UsageError, match="penalty"):
        PrivateLogisticRegression(bounds=(-1, 1), classes=(0, 1), penalty="automatic").plan(100, 3)
    # Whatever the penalty, the Jacobian takes a tenth of epsilon at most.
    for penalty in ("auto", 1e-6, 0.1):
        mechanism = (
            PrivateLogisticRegression(epsilon=0.1, bounds=(-1, 1), classes=(0, 1), penalty=penalty)
            .plan(200, 3)
            .releases[0]
            .mechanism
        )
        assert mechanism._jacobian <= 0.01 * (1 + 1e-9)


def directions(n: int) -> tuple[np.ndarray, np.ndarray]:
    X = RNG.normal(size=(n, 30))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * np.exp(RNG.normal(size=(n, 1)))
    return X, (X @ np.linspace(1, -1, 30) > 0).astype(int)


@pytest.mark.parametrize("bounds", [Bounds(norm=3.0), (-1, 1)])
@pytest.mark.parametrize("intercept", [True, False])
def test_unit_rows_depend_on_directions_alone(bounds, intercept: bool) -> None:
    X, y = directions(3000)
    options = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "bounds": bounds,
        "classes": (0, 1),
        "fit_intercept": intercept,
        "method": "perturbation",
        "random_state": 0,
    }
    unit = PrivateLogisticRegression(**options, rows="unit").fit(X, y)
    short = PrivateLogisticRegression(**options).fit(X, y)
    assert unit.score(X, y) > max(0.8, short.score(X, y))
    if isinstance(bounds, tuple):
        return
    assert unit.decision_function(X[:5] / 10) == pytest.approx(unit.decision_function(X[:5]))
    assert unit.decision_function(X[:1]) == pytest.approx(unit.decision_function(X[:5])[:1])
    rows = unit._blocks[0].rows
    from unpooled.privacy.table import Table

    lengths = np.linalg.norm(rows(Table({f"x{j}": np.append(X[:, j], 0.0) for j in range(30)})), axis=1)
    assert lengths.max() <= 1.0
    assert lengths[:-1].min() > 0.999
    assert lengths[-1] == pytest.approx(math.sqrt(0.5) if intercept else 0.0, abs=1e-6)


def test_without_noise_unit_rows_are_logistic_regression_of_unit_rows() -> None:
    from sklearn.linear_model import LogisticRegression

    X, y = directions(1000)
    model = PrivateLogisticRegression(
        epsilon=math.inf, bounds=Bounds(norm=3.0), classes=(0, 1), rows="unit", fit_intercept=False
    ).fit(X, y)
    scaled = X / np.linalg.norm(X, axis=1, keepdims=True)
    wanted = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(scaled, y)
    assert model.released_["all"] == pytest.approx(wanted.coef_[0], abs=1e-4)
    assert model.predict_proba(X[:4]) == pytest.approx(wanted.predict_proba(scaled[:4]), abs=1e-4)


def test_without_noise_nothing_is_promised() -> None:
    silent = replace(made(), scale=0.0)
    assert silent.event(Unit.RECORD) is UNBOUNDED
    assert silent.label is UNBOUNDED
    assert silent.name == "no noise"


def test_beside_releases_known_by_zcdp_it_still_composes() -> None:
    event = made().event(Unit.RECORD)
    both = Composition([event, Event(Kind.ZCDP, 0.01)])
    assert Composition([event]).epsilon(1e-3) < both.epsilon(1e-3) < 4.0


def test_normal_vectors_take_finite_scales_only() -> None:
    for scale in (-1.0, math.inf):
        with pytest.raises(UsageError, match="scale must be finite"):
            gaussian_vector(scale, 3)
    drawn = gaussian_vector(2.0, 4000)
    assert drawn.std() == pytest.approx(2.0, rel=0.1)
    assert abs(drawn.mean()) < 0.2
