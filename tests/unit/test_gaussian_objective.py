"""Gaussian objective perturbation: exact hockey-stick divergences of small instances, both adjacencies, both directions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, softmax

from unpooled import Bounds, PrivateLogisticRegression, PrivateStackingClassifier
from unpooled.errors import UsageError
from unpooled.models.stacking.declared import Noise, penalty_of
from unpooled.privacy.accounting import Composition, gaussian_delta
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms import GaussianObjective, LossShape, LossSign, ObjectivePerturbation, calibrated
from unpooled.privacy.noise import gaussian_vector
from unpooled.privacy.unit import Unit

ONE_ROW = LossShape()
RNG = np.random.default_rng(0)
POINTS = np.sinh(8 * np.linspace(-1, 1, 10_001)) / math.sinh(8)  # dense about 0, where the determinants differ


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


def bound(left: float, m: float, shape: LossShape = ONE_ROW, *, replaces: bool) -> float:
    """Theorem S.11 beyond c."""
    return (
        min(1.0, sum(n * gaussian_delta(left, m * length) for n, length in shape.corners(replaces=replaces)))
        if left >= 0
        else 1.0
    )


def worst(law, count: int = 200) -> float:
    """The largest exact divergence beside a bound on it, over instances in which the divergence is no rounding."""
    largest = 0.0
    for rows, changed, penalty, m, epsilon in instances(count):
        scale, left = 1.0 / m, epsilon - math.log1p(0.25 / penalty)
        for replaces, other in ((True, np.array([changed, *rows[1:]])), (False, rows[1:])):
            for one, two in ((rows, other), (other, rows)):
                exact = hockey_stick(one, two, penalty, scale, epsilon)
                if exact > 1e-9:
                    largest = max(largest, exact / max(law(left, m, replaces), 1e-300))
    return largest


@pytest.mark.long
@pytest.mark.slow
def test_no_instance_exceeds_the_bound() -> None:
    assert 0.05 < worst(lambda left, m, replaces: bound(left, m, replaces=replaces)) <= 1.0


@pytest.mark.long
@pytest.mark.slow
def test_a_bound_for_half_the_gradient_is_exceeded() -> None:
    assert worst(lambda left, m, replaces: bound(left, m / 2, replaces=replaces)) > 1.0


# --- several rows of one unit --------------------------------------------------------------------------------------------------------


def of_households(law, count: int = 40) -> float:
    """The largest exact divergence beside a bound on it, where all k rows of a unit are replaced or left out."""
    largest = 0.0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        k, penalty, m = int(rng.integers(2, 4)), float(np.exp(rng.uniform(-4, 1))), float(np.exp(rng.uniform(-6, 0)))
        others = rng.choice([-1.0, 1.0, 0.5], int(rng.integers(0, 3)))
        sign = rng.choice([-1.0, 1.0])
        own, new = np.full(k, sign), np.full(k, -sign) if rng.random() < 0.7 else rng.uniform(-1, 1, k)
        left = float(np.exp(rng.uniform(-3, 1)))
        for replaces, other in ((True, np.append(new, others)), (False, others)):
            one = np.append(own, others)
            for first, second in ((one, other), (other, one)):
                for epsilon in (left + k * math.log1p(0.25 / penalty), 0.1 + math.log1p(0.25 / penalty)):
                    exact = hockey_stick(first, second, penalty, 1 / m, epsilon)
                    if exact > 1e-9:
                        largest = max(largest, exact / max(law(epsilon, k, penalty, m, replaces), 1e-300))
    return largest


@pytest.mark.slow
def test_no_household_exceeds_the_bound() -> None:
    def law(epsilon, k, penalty, m, replaces) -> float:
        return bound(epsilon - k * math.log1p(0.25 / penalty), m, LossShape(rows=k), replaces=replaces)

    assert 0.05 < of_households(law) <= 1.0


@pytest.mark.long
@pytest.mark.slow
def test_one_rows_determinant_or_the_root_of_the_rows_is_exceeded() -> None:
    def root(epsilon, k, penalty, m, replaces) -> float:
        return bound(epsilon - k * math.log1p(0.25 / penalty), m * math.sqrt(k) / 2, replaces=replaces)

    def one_determinant(epsilon, k, penalty, m, replaces) -> float:
        return bound(epsilon - math.log1p(0.25 / penalty), m, LossShape(rows=k), replaces=replaces)

    assert of_households(root) > 1.0
    assert of_households(one_determinant) > 1.0


@pytest.mark.guarantee
def test_corners_are_counted_as_the_theorem_does() -> None:
    """Theorem S.14."""
    assert LossShape().corners(replaces=True) == ((1, 2.0), (2, 1.0))
    assert LossShape().corners(replaces=False) == ((1, 1.0),)
    assert LossShape(rows=2).corners(replaces=True) == ((1, 4.0), (4, 3.0), (6, 2.0), (4, 1.0))
    assert LossShape(LossSign.ANY_SIGN).corners(replaces=False) == ((2, 1.0),)
    assert LossShape(LossSign.ANY_SIGN).corners(replaces=True) == ((2, 2.0), (2, math.sqrt(2.0)))
    assert LossShape(LossSign.SOFTMAX, 2).corners(replaces=True) == ((1, math.sqrt(8.0)), (2, math.sqrt(2.0)))
    for classes in (2, 3, 5):
        ends = np.eye(classes)
        pulls = [np.subtract(ends[j], ends[0]) for j in range(classes)]
        alone = sorted(float(np.linalg.norm(pull)) for pull in pulls if pull.any())
        ((many, length),) = LossShape(LossSign.SOFTMAX, classes).corners(replaces=False)
        assert alone == pytest.approx([length] * many)
        other = [np.subtract(ends[j], ends[1]) for j in range(classes)]
        lengths = sorted(
            math.sqrt(max(float(((a - b) ** 2).sum()), float(((a + b) ** 2).sum()))) for a in pulls for b in other
        )
        claimed = sorted(
            [0.0, *(length for n, length in LossShape(LossSign.SOFTMAX, classes).corners(replaces=True) for _ in range(n))]
        )
        assert len(lengths) == len(claimed)
        assert all(x <= y + 1e-12 for x, y in zip(lengths, claimed, strict=True))
    for loss in (LossSign.ANY_SIGN, LossSign.SOFTMAX):
        with pytest.raises(UsageError, match="several rows"):
            LossShape(loss, 3, 2).corners(replaces=True)


# --- softmax -------------------------------------------------------------------------------------------------------------------------


BASIS = np.linalg.svd(np.ones((1, 3)))[2][1:].T  # what is orthogonal to (1, 1, 1), along which nothing depends on data


def softmax_law(rows, labels, penalty: float, scale: float, a: np.ndarray) -> np.ndarray:
    """Density of the minimiser's two free coordinates, one column and three classes."""
    w = a @ BASIS.T
    b, bends = -penalty * a, np.zeros((len(a), 2, 2)) + penalty * np.eye(2)
    for x, label in zip(rows, labels, strict=True):
        p = softmax(w * x, axis=1)
        b = b - ((p - np.eye(3)[label]) * x) @ BASIS
        inner = p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None, :]
        bends = bends + x * x * np.einsum("ji,njk,kl->nil", BASIS, inner, BASIS)
    jacobian = bends[:, 0, 0] * bends[:, 1, 1] - bends[:, 0, 1] ** 2
    return np.exp(-0.5 * (b**2).sum(axis=1) / scale**2) / (2 * math.pi * scale**2) * jacobian


def of_classes(law, count: int = 25, points: int = 301) -> float:
    """The largest exact divergence of softmax fits beside a bound on it."""
    largest = 0.0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 4))
        rows, labels = rng.choice([-1.0, 1.0], n), rng.integers(0, 3, n)
        penalty, m = float(np.exp(rng.uniform(-3, 1))), float(np.exp(rng.uniform(-1.5, 0.3)))
        changed, label = float(rng.choice([-1.0, 1.0])), int(rng.integers(0, 3))
        left = float(rng.uniform(0.0, 2.0))
        epsilon = left + 2 * math.log1p(1 / (3 * penalty))
        reach = (math.sqrt(2) * (n + 1) + 7 / m) / penalty
        axis = np.linspace(-reach, reach, points)
        a = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        one = softmax_law(rows, labels, penalty, 1 / m, a)
        for replaces, other in (
            (True, softmax_law([changed, *rows[1:]], [label, *labels[1:]], penalty, 1 / m, a)),
            (False, softmax_law(rows[1:], labels[1:], penalty, 1 / m, a)),
        ):
            for first, second in ((one, other), (other, one)):
                for at in (epsilon, left + math.log1p(0.25 / penalty)):
                    exact = float(np.maximum(first - math.exp(at) * second, 0.0).sum() * (axis[1] - axis[0]) ** 2)
                    if exact > 1e-7:
                        largest = max(largest, exact / max(law(at, penalty, m, replaces), 1e-300))
    return largest


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_no_softmax_exceeds_the_bound_and_with_a_scalar_jacobian_some_do() -> None:
    """Theorem S.14."""

    def right(epsilon, penalty, m, replaces) -> float:
        return bound(epsilon - 2 * math.log1p(1 / (3 * penalty)), m, LossShape(LossSign.SOFTMAX, 3), replaces=replaces)

    def scalar(epsilon, penalty, m, replaces) -> float:
        # A determinant of one direction only, and one corner as for two classes.
        return bound(epsilon - math.log1p(0.25 / penalty), m / 2, LossShape(), replaces=replaces)

    assert 0.01 < of_classes(right) <= 1.0
    assert of_classes(scalar) > 1.0


# --- any sign ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_losses_of_any_sign_keep_to_their_bound() -> None:
    """A Huber loss with k = 1, whose residuals pull either way: one dimension, exact (Theorem S.14)."""
    largest = 0.0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 4))
        x, y = rng.choice([-1.0, 1.0], n), rng.normal(size=n) * 3
        penalty, m, left = (
            float(np.exp(rng.uniform(-1.5, 1))),
            float(np.exp(rng.uniform(-1.5, 0.3))),
            float(rng.uniform(0, 1.5)),
        )
        new_x, new_y = float(rng.choice([-1.0, 1.0])), float(rng.choice([-9.0, 9.0]))
        w = (n + 1 + 12 / m) / penalty * POINTS

        def law(x, y, w=w, m=m, penalty=penalty) -> np.ndarray:
            r = np.asarray(y) - np.outer(w, x)
            b = (np.clip(r, -1, 1) * np.asarray(x)).sum(axis=1) - penalty * w
            bend = (np.asarray(x) ** 2 * (np.abs(r) <= 1)).sum(axis=1) + penalty
            return np.exp(-0.5 * (b * m) ** 2) * m / math.sqrt(2 * math.pi) * bend

        one = law(x, y)
        epsilon = left + math.log1p(1 / penalty)
        for replaces, other in ((True, law([new_x, *x[1:]], [new_y, *y[1:]])), (False, law(x[1:], y[1:]))):
            for p, q in ((one, other), (other, one)):
                exact = float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), w))
                if exact > 1e-7:
                    largest = max(largest, exact / bound(left, m, LossShape(LossSign.ANY_SIGN), replaces=replaces))
    assert 0.02 < largest <= 1.0


# --- two fits on the same rows -------------------------------------------------------------------------------------------------------


def of_two(law, count: int = 60) -> float:
    """The largest exact divergence of two fits of the same rows, each with its own noise, beside a bound on it."""
    largest, points = 0.0, np.linspace(-1, 1, 1201)
    for seed in range(count):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 3))
        rows, changed = rng.choice([-1.0, 1.0], (2, n)), rng.choice([-1.0, 1.0], 2)
        penalty, m = float(np.exp(rng.uniform(0, 3))), np.exp(rng.uniform(-2, -0.3, 2))
        left = float(rng.uniform(0.1, 1.5))
        epsilon = left + 2 * math.log1p(0.25 / penalty)
        grids = [(n + 1 + 9 / own) / penalty * points for own in m]
        for replaces in (True, False):
            one, other = (
                np.outer(*(density(r, penalty, 1 / own, w) for r, own, w in zip(rows_, m, grids, strict=True)))
                for rows_ in (
                    rows,
                    [np.array([c, *r[1:]]) if replaces else r[1:] for r, c in zip(rows, changed, strict=True)],
                )
            )
            area = math.prod(w[1] - w[0] for w in grids)
            for p, q in ((one, other), (other, one)):
                exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * area)
                if exact > 1e-7:
                    largest = max(largest, exact / max(law(epsilon, penalty, m, replaces), 1e-300))
    return largest


def event(penalty: float, m: float, *, replaces: bool) -> Event:
    tails = tuple((n, m * length) for n, length in LossShape().corners(replaces=replaces))
    return Event(Kind.PERTURBED, math.log1p(0.25 / penalty), 1, 0.0, tails)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_two_fits_keep_to_their_composition_and_not_to_one_of_them() -> None:
    """Theorem S.12."""

    def right(epsilon, penalty, m, replaces) -> float:
        return Composition(event(penalty, own, replaces=replaces) for own in m.tolist()).delta(epsilon)

    def one(epsilon, penalty, m, replaces) -> float:
        return Composition([event(penalty, float(m.max()), replaces=replaces)]).delta(epsilon)

    assert 0.05 < of_two(right) <= 1.0
    assert of_two(one) > 1.0


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


@pytest.mark.long
@pytest.mark.slow
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
        largest = max(largest, exact / bound(left, m, replaces=True))
        short = max(short, exact / bound(left, m / 3, replaces=True))
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
    like = ObjectivePerturbation(**fields | changes)
    return calibrated([like], epsilon, delta, shape=LossShape(), replaces=replaces)[0]


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
    value = mechanism.event(Unit.ATTRIBUTE)
    assert value == event if replaces else Composition([value]).epsilon(delta) > 1.2 * alone.epsilon(delta)
    assert mechanism.label == value


def test_alone_it_costs_the_theorems_curve_and_c() -> None:
    for epsilon, m in ((0.5, 0.3), (1.0, 1.0), (2.0, 0.4)):
        once, twice = gaussian_delta(epsilon, m), gaussian_delta(epsilon, 2 * m)
        one, other = (
            Composition([Event(Kind.PERTURBED, 0.25, 1, 0.0, tuple((n, m * u) for n, u in LossShape().corners(replaces=r)))])
            for r in (False, True)
        )
        assert one.delta(epsilon + 0.25) == pytest.approx(once, rel=1e-12)
        assert other.delta(epsilon + 0.25) == pytest.approx(min(1.0, twice + 2 * once), rel=1e-12)


def test_it_composes_with_others_soundly() -> None:
    """Theorem S.12."""
    event = made().event(Unit.RECORD)
    twice = Composition([event, event])
    # Less than basic composition of (epsilon, delta), more than independent Gaussians would cost.
    assert 1.3 < twice.epsilon(1e-5) < 1.6
    mixed = Composition([event, Event(Kind.GAUSSIAN, 0.2)])
    assert mixed.epsilon(1e-4) > Composition([event]).epsilon(1e-4)


@pytest.mark.guarantee
def test_fits_of_several_classes_and_of_households_cost_what_their_shapes_say() -> None:
    like = ObjectivePerturbation(60, 1000, 1.0, 0.05, 1.0, 2.0, 1e-3, fits=3, household=2)
    (three,) = calibrated([like], 1.0, 1e-5, shape=LossShape(), replaces=True)
    assert three.event(Unit.RECORD).count == 3
    assert 0.999 < Composition([three.event(Unit.RECORD)]).epsilon(1e-5) <= 1.0
    assert three.width == 20
    assert three.event(Unit.HOUSEHOLD).tails == tuple(
        (n, three.bound / three.scale * u) for n, u in LossShape(rows=2).corners(replaces=True)
    )
    (house,) = calibrated([like], 1.0, 1e-5, shape=LossShape(), replaces=True, unit=Unit.HOUSEHOLD)
    assert house.scale > 1.8 * three.scale
    assert 0.999 < Composition([house.event(Unit.HOUSEHOLD)]).epsilon(1e-5) <= 1.0
    (soft,) = calibrated(
        [replace(like, slope=math.sqrt(2.0), curvature=1 / 3, factors=2, fits=1, household=0)],
        1.0,
        1e-5,
        shape=LossShape(LossSign.SOFTMAX, 3),
        replaces=True,
    )
    assert not soft.prices(Unit.HOUSEHOLD)
    assert soft.event(Unit.RECORD).tails[0] == (2, pytest.approx(math.sqrt(8.0) / soft.scale))
    assert soft.event(Unit.RECORD).value == pytest.approx(2 * math.log1p(1 / (3 * 1000 * 0.05)) + 1e-3)
    # A pure form prices them too.
    assert like.event(Unit.HOUSEHOLD) == Event(Kind.PURE, 2 * 2.0 + 2 * math.log1p(0.25 / (1000 * 0.05)) + 1e-3, 3)
    assert like.sensitivity(Unit.HOUSEHOLD) == 4.0


@pytest.mark.guarantee
def test_noise_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="positive delta"):
        made(delta=0.0)
    with pytest.raises(UsageError, match="penalty is too small"):
        made(0.1, rows=10, penalty=1e-3)


@pytest.mark.guarantee
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
    stack = PrivateStackingClassifier(2, **options, delta=1e-5, noise="gaussian").plan(2000, 8)
    assert all(isinstance(r.mechanism, GaussianObjective) for r in stack.releases if r.name == "block")
    assert 0.999 < stack.epsilon(1e-5) <= 1.0
    with pytest.raises(UsageError, match="not in the paper"):
        PrivateStackingClassifier(2, **options, delta=1e-5, noise="gaussian", calibration="published").plan(2000, 8)
    rows = PrivateStackingClassifier(2, split="samples", **options, delta=1e-5, noise="gaussian").plan(2000, 8)
    assert all(isinstance(r.mechanism, GaussianObjective) for r in rows.releases)


def test_the_automatic_penalty_is_the_rule() -> None:
    assert penalty_of("auto", 10, 1000, 2.0) == pytest.approx(0.1 * 10 / 2000)
    assert penalty_of("auto", 1000, 100, 0.1) == 0.5
    assert penalty_of("auto", 10, 1000, math.inf) == 1e-3
    assert penalty_of(0.3, 10, 1000, 2.0) == 0.3
    assert penalty_of("auto", 10, 1000, 2.0, Noise.GAMMA) == pytest.approx(0.3 * 10 / 2000)
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
        assert mechanism.jacobian <= 0.01 * (1 + 1e-9)


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


@pytest.mark.guarantee
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


@pytest.mark.guarantee
def test_without_noise_nothing_is_promised() -> None:
    silent = replace(made(), scale=0.0)
    assert silent.event(Unit.RECORD) is UNBOUNDED
    assert silent.label is UNBOUNDED
    assert silent.name == "no noise"


def test_beside_releases_known_by_zcdp_it_still_composes() -> None:
    event = made().event(Unit.RECORD)
    both = Composition([event, Event(Kind.ZCDP, 0.01)])
    assert Composition([event]).epsilon(1e-3) < both.epsilon(1e-3) < 4.0


@pytest.mark.guarantee
def test_normal_vectors_take_finite_scales_only() -> None:
    for scale in (-1.0, math.inf):
        with pytest.raises(UsageError, match="scale must be finite"):
            gaussian_vector(scale, 3)
    drawn = gaussian_vector(2.0, 4000)
    assert drawn.std() == pytest.approx(2.0, rel=0.1)
    assert abs(drawn.mean()) < 0.2
