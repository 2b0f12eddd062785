"""PRIDE's model of the others' Gram matrix against a slow n x n twin of every step, in both of its forms, and at its limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from unpooled import Bounds, PrideClassifier, PrideRegressor
from unpooled.errors import UnpooledError, UsageError
from unpooled.families import FAMILIES
from unpooled.kernels.newton import MoreauEnvelope
from unpooled.kernels.ridge import RidgePath
from unpooled.models import load
from unpooled.models.pride import gram
from unpooled.models.pride.declared import automatic_size
from unpooled.models.pride.gram import (
    OTHERS,
    Belief,
    GramNewtonPath,
    GramPath,
    Heard,
    Kernel,
    OwnColumns,
    calibrated_weight,
    energies_inside,
    energy_outside,
    expected_energies,
)
from unpooled.models.pride.local import RegressionCalibration, random_folds
from unpooled.privacy.plan import Card, Study

SHAPES = [(40, 30, 5), (30, 70, 4), (25, 25, 1), (30, 40, 9), (60, 8, 3), (30, 1, 2), (24, 10, 40), (60, 3, 4), (50, 2, 3)]


def world(n: int, p: int, q: int, seed: int = 0, noise: float = 0.7) -> tuple[np.ndarray, np.ndarray, Heard]:
    """Own columns and a response; others' columns that share factors with the own ones, sketched and calibrated."""
    rng = np.random.default_rng(seed)
    factors, others = rng.normal(size=(n, 4)), 3 * p + 5
    own = factors @ rng.normal(size=(4, p)) + 0.4 * rng.normal(size=(n, p)) + 2.0
    theirs = factors @ rng.normal(size=(4, others)) + 0.4 * rng.normal(size=(n, others))
    y = own @ rng.normal(size=p) + theirs @ rng.normal(size=others) / 3
    y += 0.7 * y.std() * rng.normal(size=n)
    noisy = theirs @ rng.choice([-1.0, 1.0], (others, q)) / math.sqrt(q) + noise * rng.normal(size=(n, q)) + 1.0
    levels = np.full(q, noise)
    calibrated = RegressionCalibration.fit(own, noisy, levels).apply(own, noisy, levels)
    return own, y, Heard(others, noisy, levels, calibrated, np.ones(q, dtype=np.bool_))


# --- the twin: every matrix n x n, every direction by itself ----------------------------------------------------------


def full_basis(own: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Eigenvalues falling, eigenvectors of A on all contrasts, and the rank."""
    n = own.shape[0]
    values, vectors = np.linalg.eigh(own @ own.T)
    values, vectors = values[::-1], vectors[:, ::-1]
    rank = min(int((values > 1e-9 * values[0]).sum()), n - 1)
    rest = np.linalg.qr(np.hstack([np.full((n, 1), 1.0), vectors[:, :rank]]), mode="complete")[0][:, rank + 1 :]
    return np.append(values[:rank], np.zeros(n - 1 - rank)), np.hstack([vectors[:, :rank], rest]), rank


def twin_curve(own: np.ndarray, others: int, declared: str) -> tuple[np.ndarray, float, np.ndarray]:
    """(mu, the deviation of its logarithm, which own directions no half reaches)."""
    n, p = own.shape
    w, _, rank = full_basis(own)
    small, unreached = 1e-9 * w[0], np.zeros(rank, dtype=bool)
    if declared == "copies":
        return np.maximum(w * others / p, small), 0.6, unreached
    if declared == "unrelated" or p == 1:
        mu = np.full(n - 1, max(w.sum() / (n - 1) * others / p, small))
        if declared == "like mine" and w[0] * others / 2 > mu[0]:
            mu[0], unreached[0] = w[0] * others / 2, True
        return mu, 0.6, unreached
    orders = [np.random.default_rng(s).permutation(p) for s in range(3)]
    halves = [[np.arange(p // 2), np.arange(p // 2, p)], [o[::2] for o in orders]]
    kinds = []
    for kind in halves:
        mean = np.zeros(n - 1)
        for half in kind:
            two = np.setdiff1d(np.arange(p), half)
            _, u, r = full_basis(own[:, half])
            energy = np.array([((u[:, i] @ own[:, two]) ** 2).sum() for i in range(n - 1)])
            energy[r:] = energy[r:].mean() if r < n - 1 else 0.0
            mean += energy * others / two.size / len(kind)
        kinds.append([mean[max(0, i - int(0.15 * i + 0.5)) : i + int(0.15 * i + 0.5) + 1].mean() for i in range(n - 1)])
    mu = np.maximum(np.max(kinds, axis=0), small)
    assert rank > 0
    trigamma = sum((k + p / 2) ** -2.0 for k in range(100_000)) + 1 / (100_000 + p / 2 - 0.5)
    spread = math.sqrt(0.36 + trigamma)
    digamma = -0.5772156649015329 + sum(1 / (k + 1) - 1 / (k + p / 2) for k in range(100_000)) + (p / 2 - 1) / 100_000
    raised = mu[:rank] * p / 2 * math.exp(trigamma / 2 - digamma)
    for i in range(rank):
        mu[i] = min(raised[i], max(mu[i], w[: i + 1].mean() * others / p))
    reached = min(rank, p - p // 2)
    part = min(others / p, mu[reached - 1] / w[reached - 1])
    for i in range(reached, rank):
        if w[i] * part / 2 > mu[i]:
            mu[i], unreached[i] = w[i] * part / 2, True
    return mu, spread, unreached


def twin_energy(
    power: float, mu: float, q: int, s2: float, shift: float, spread: float = 0.6, most: float = 0.0
) -> tuple[float, float]:
    """Log integral and posterior mean of one direction, node by node; ``most``: of one that no half reaches, what copies have there."""
    nodes = np.linspace(-4, 4, 33)
    g = [mu * math.exp(shift + (0.36 - spread**2) / 2 + spread * z) for z in nodes]
    before = [-z * z / 2 for z in nodes]
    if most:
        logs = np.linspace(-5, math.log(max(most / mu, 2)), 33)
        g, before = [mu * math.exp(z) for z in logs], [-abs(z - math.log(2)) for z in logs]
    like = [-q / 2 * math.log(x / q + s2) - power / (2 * (x / q + s2)) + b for x, b in zip(g, before, strict=True)]
    top = max(like)
    weights = [math.exp(v - top) for v in like]
    mean = sum(k * x for k, x in zip(weights, g, strict=True)) / sum(weights)
    return top + math.log(sum(weights)), mean


def twin(own: np.ndarray, heard: Heard) -> tuple[np.ndarray, np.ndarray, float]:
    """(V - alpha I, g in all directions, a) as the page of theory prints them."""
    own, z, zc = (m - m.mean(axis=0) for m in (own, heard.received, heard.calibrated))
    n, q, s2 = own.shape[0], z.shape[1], float((heard.noise**2).mean())
    w, u, rank = full_basis(own)
    mu, spread, unreached = twin_curve(own, heard.columns, heard.others)
    most = [w[i] * heard.columns / own.shape[1] if unreached[i] else 0.0 for i in range(rank)]
    power = ((u.T @ z) ** 2).sum(axis=1)
    top = min(rank, 1 + int(np.searchsorted(np.cumsum(w), 0.9 * w.sum())))
    shifts = np.linspace(0, 4, 33)
    likes = np.array([sum(twin_energy(power[i], mu[i], q, s2, d, spread, most[i])[0] for i in range(top)) for d in shifts])
    shift = shifts[np.argmax(likes >= likes.max() - 2)]
    g = np.array([twin_energy(power[i], mu[i], q, s2, shift, spread, most[i])[1] for i in range(rank)])
    beyond = n - 1 - rank
    c = 0.0
    if beyond:
        m0, s0 = mu[rank:].mean(), power[rank:].sum() - beyond * q * s2
        data = (2 * q * s2**2 * beyond + 4 * s2 * max(s0, 0) + 2 * (m0 * beyond) ** 2 / q) / beyond**2
        prior = (0.6 * m0) ** 2
        c = max(0.0, (m0 / prior + s0 / beyond / data) / (1 / prior + 1 / data))
    shown = ((u.T @ zc) ** 2).sum(axis=1)
    square = zc.T @ zc
    squared = float((shown[:rank] ** 2).sum())
    if beyond:
        block = zc.T @ u[:, rank:] @ u[:, rank:].T @ zc
        squared += (2 * (block**2).sum() + np.trace(block) ** 2) / (beyond + 2)
    off = (square**2).sum() - squared
    a = 0.0
    if q > 1 and off > 0:
        a = max(0.0, 1 - (1 + 4 / math.sqrt(q * (q - 1))) * ((shown.sum() ** 2 - squared) / q) / off)
    extra = np.zeros(n - 1)
    extra[:rank] = np.maximum(0, g - a * shown[:rank])
    if beyond:
        extra[rank:] = max(0.0, c - a * shown[rank:].mean())
    return u @ np.diag(w + extra) @ u.T + a * zc @ zc.T, np.append(g, np.full(beyond, c)), a


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_curve_is_the_twins_in_both_forms(shape: tuple[int, int, int], by_rows: bool) -> None:
    own, _, heard = world(*shape)
    centred = own - own.mean(axis=0)
    for others in OTHERS:
        found = expected_energies(OwnColumns.of(centred, own.shape[0] - 1, by_rows=by_rows), heard.columns, others)
        mu, spread, unreached = twin_curve(centred, heard.columns, others)
        np.testing.assert_allclose(found.energies, mu, rtol=1e-6)
        assert found.spread == pytest.approx(spread, rel=1e-6)
        assert found.unreached.tolist() == unreached.tolist()


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_and_solution_are_the_twins_in_both_forms(shape: tuple[int, int, int], by_rows: bool) -> None:
    own, y, heard = world(*shape, seed=3)
    kernel = Kernel.of(own, heard, fit_intercept=True, by_rows=by_rows)
    expected, _, weight = twin(own, heard)
    assert kernel.weight == pytest.approx(weight, rel=1e-7)
    left = kernel.own.left()
    n = y.size
    centre = np.eye(n) - 1 / n
    built = (left * (kernel.own.squares + kernel.inside)) @ left.T + kernel.outside * (centre - left @ left.T)
    built += kernel.features @ kernel.features.T
    np.testing.assert_allclose(built, expected, atol=1e-7 * np.abs(expected).max())
    path = GramPath.of(kernel, y)
    yc, oc = y - y.mean(), own - own.mean(axis=0)
    for alpha in (0.3, 20.0):
        direct = oc.T @ np.linalg.solve(expected + alpha * np.eye(n), yc)
        share = path.solve(alpha)
        np.testing.assert_allclose(share.own, direct, atol=1e-7 * np.abs(direct).max())
        values = np.linalg.eigvalsh(expected)[1:]  # less the constant's
        quadratic = alpha * yc @ np.linalg.solve(expected + alpha * np.eye(n), yc)
        evidence = (n - 1) * math.log(quadratic) + np.log1p(np.maximum(values, 0) / alpha).sum()
        assert path.evidence(alpha) == pytest.approx(evidence, rel=1e-6)
    best = path.evidence_alpha()
    assert shape[1] == 1 or all(path.evidence(best) <= path.evidence(best * f) + 1e-9 for f in (0.5, 0.9, 1.1, 2.0))


def test_steps_two_and_three_find_energies_that_the_curve_missed() -> None:
    rng = np.random.default_rng(1)
    squares, mu, q, s2 = np.full(20, 5.0), np.full(20, 10.0), 50, 0.01
    true = mu * math.e**2
    power = (true / q + s2) * rng.chisquare(q, 20)
    expected = Belief(mu, unreached=np.zeros(20, dtype=np.bool_), most=mu)
    g = energies_inside(squares, power, expected, q, s2)
    assert np.abs(np.log(g / true)).max() < 0.6
    # Where the noise drowns everything the curve stands; and it never moves down.
    np.testing.assert_allclose(
        energies_inside(squares, power * 0 + q * 1e9, expected, q, 1e9), mu * math.exp(0.18), rtol=0.02
    )
    assert energies_inside(squares, power * 0, expected, q, s2).max() < mu[0]
    assert energy_outside(2.0, 0.0, 10, 4, 1e9) == pytest.approx(2.0, rel=1e-6)
    assert energy_outside(0.0, 5.0, 10, 4, 1.0) == 0.0


def test_of_a_direction_that_no_half_reaches_anything_up_to_copies_is_believed_and_the_sketches_decide() -> None:
    rng = np.random.default_rng(3)
    own = OwnColumns.of(rng.normal(size=(500, 1)), 499)
    copies = own.squares * 7
    expected = expected_energies(own, 7, "like mine")
    assert expected.unreached.all()
    np.testing.assert_allclose(expected.energies[0], copies / 2)
    silent = energies_inside(own.squares, np.array([8e9]), expected, 8, 1e9)
    np.testing.assert_allclose(
        silent, copies / 2, rtol=0.1
    )  # as if one half of the worlds held copies: the least to lose in either
    for true in (0.1, 0.9):
        told = [
            energies_inside(own.squares, true * copies / 40 * rng.chisquare(40, 1), expected, 40, 1e-3) for _ in range(20)
        ]
        assert np.median(told) == pytest.approx(float(true * copies[0]), rel=0.15)


def few(kind: str, parties: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """2,000 rows in which one factor, three, or none tie the columns, and as declared: six tenths of the response explained."""
    rng = np.random.default_rng([seed, parties, columns])
    rows, factors = rng.normal(size=(2000, parties * columns)), {"one": 1, "three": 3, "none": 0}[kind]
    if factors:
        rows += 3 * rng.normal(size=(2000, factors)) @ rng.normal(size=(factors, parties * columns))
    rows /= rows.std(axis=0)
    signal = rows @ rng.normal(size=rows.shape[1])
    return np.clip(rows / 5, -1, 1), math.sqrt(0.6) * signal / signal.std() + math.sqrt(0.4) * rng.normal(size=2000)


def excess(parties: int, columns: int) -> float:
    """The largest mean error over the variance of the response, over laws of the columns and epsilons."""
    found = []
    for kind, epsilon in itertools.product(("one", "three", "none"), (0.1, 1.0, 10.0)):
        errors = []
        for seed in range(3):
            X, y = few(kind, parties, columns, seed)
            model = PrideRegressor(parties, bounds=(-1, 1), epsilon=epsilon, delta=1e-5, random_state=seed).fit(X, y)
            errors.append(np.mean((y - model.predict(X)) ** 2) / y.var())
        found.append(np.mean(errors))
    return float(max(found))


@pytest.mark.slow
@pytest.mark.long_for("8-1", "8-3", "4-2")
@pytest.mark.parametrize(("parties", "columns"), [(2, 1), (8, 1), (4, 2), (8, 3)])
def test_parties_of_few_columns_do_not_explain_the_response_once_for_each_of_them(parties: int, columns: int) -> None:
    assert excess(parties, columns) < 1.1


@pytest.mark.long
@pytest.mark.slow
def test_believing_nothing_in_common_where_nothing_is_known_is_far_worse_than_the_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: what a direction that no half reaches was taken for."""
    monkeypatch.setattr(gram, "expected_energies", lambda own, columns, _: expected_energies(own, columns, "unrelated"))
    assert excess(8, 1) > 2.0


def test_the_weight_of_calibrated_columns_is_none_for_independent_ones_and_nearly_one_for_factors() -> None:
    rng = np.random.default_rng(2)
    independent, factor = rng.normal(size=(400, 12)), np.outer(rng.normal(size=400), rng.normal(size=12))
    weights = []
    for columns in (independent, factor):
        basis = np.linalg.qr(rng.normal(size=(400, 20)))[0]
        square, towards = columns.T @ columns, basis.T @ columns
        weights.append(calibrated_weight((towards**2).sum(axis=1), square, square - towards.T @ towards, 380)[0])
    assert weights[0] < 0.1
    assert weights[1] > 0.8
    assert calibrated_weight(np.ones(3), np.ones((1, 1)), np.zeros((1, 1)), 0) == (0.0, 0.0)


# --- limits ---------------------------------------------------------------------------------------------------------------


def test_without_others_it_is_plain_ridge_and_plain_columns_are_ridge_beside_them() -> None:
    own, y, heard = world(40, 12, 3)
    none = Heard(0, np.empty((40, 0)), np.empty(0), np.empty((40, 0)), np.empty(0, dtype=np.bool_))
    path, ridge = GramPath.of(Kernel.of(own, none, fit_intercept=True), y), RidgePath.of(own, y)
    assert path.evidence_alpha() == pytest.approx(ridge.evidence_alpha(), rel=1e-3)
    np.testing.assert_allclose(path.solve(2.0).own, ridge.solve(2.0)[0], rtol=1e-9)
    plain = Heard(0, heard.received, np.zeros(3), heard.received, np.zeros(3, dtype=np.bool_))
    beside = RidgePath.of(np.hstack([own, heard.received]), y)
    path = GramPath.of(Kernel.of(own, plain, fit_intercept=True), y)
    np.testing.assert_allclose(path.solve(2.0).own, beside.solve(2.0)[0][:12], rtol=1e-7)
    assert path.evidence(2.0) == pytest.approx(beside.evidence(2.0), rel=1e-9)


@pytest.mark.parametrize("others", OTHERS)
def test_scaling_all_columns_and_their_noise_scales_coefficients_only(others: str) -> None:
    own, y, heard = world(40, 30, 5)
    scale = 37.0
    scaled = Heard(
        heard.columns, heard.received * scale, heard.noise * scale, heard.calibrated * scale, heard.sketched, 1.0, others
    )
    first = GramPath.of(Kernel.of(own, Heard(**{**vars(heard), "others": others}), fit_intercept=True), y)
    second = GramPath.of(Kernel.of(own * scale, scaled, fit_intercept=True), y)
    assert second.evidence_alpha() == pytest.approx(scale**2 * first.evidence_alpha(), rel=1e-4)
    np.testing.assert_allclose(second.solve(5.0 * scale**2).own * scale, first.solve(5.0).own, rtol=1e-6)


def test_a_sketch_without_noise_comes_close_to_the_pooled_ridge_and_one_that_loses_nothing_is_it() -> None:
    """Theorem P.6."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(300, 3))
    X = np.clip((factors @ rng.normal(size=(3, 32)) + 0.3 * rng.normal(size=(300, 32))) / 5, -1, 1)
    y = X @ rng.normal(size=32) + 0.5 * rng.normal(size=300)
    options = {"bounds": (-1, 1), "alpha": 1.0, "epsilon": math.inf}
    pooled = PrideRegressor(parties=1, **options).fit(X, y).coef_
    exact = PrideRegressor(parties=2, sketch_dim=16, **options).fit(X, y).coef_
    np.testing.assert_allclose(exact, pooled, atol=1e-8)

    found = [PrideRegressor(parties=2, public_seed=s, sketch_dim=8, **options).fit(X, y).coef_ for s in range(5)]
    assert np.mean([((b - pooled) ** 2).sum() for b in found]) / (pooled**2).sum() < 0.25


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_no_data_end_the_fit() -> None:
    """Constant columns, one column, two rows, columns that are multiples of each other, a constant response: all are fitted."""
    rng = np.random.default_rng(0)
    for X, y in (
        (np.zeros((12, 6)), rng.normal(size=12)),
        (np.tile(rng.uniform(-1, 1, (12, 1)), 6), np.ones(12)),
        (rng.uniform(-1, 1, (2, 6)), np.array([0.0, 1.0])),
        (np.hstack([np.zeros((12, 3)), rng.uniform(-1, 1, (12, 3))]), rng.normal(size=12)),
        (rng.uniform(-1, 1, (12, 2)), rng.normal(size=12)),
    ):
        for unit in ("attribute", "record"):
            for options in (
                {},
                {"sketch": "dct"},
                {"sketch": "gaussian", "loss": "huber"},
                {"sketch_dim": 0},
                {"fit_intercept": False},
            ):
                model = PrideRegressor(parties=2, bounds=(-1, 1), delta=1e-6, unit=unit, **{"sketch_dim": 1, **options}).fit(
                    X, y
                )
                assert np.isfinite(model.coef_).all()
        labels = PrideClassifier(parties=2, bounds=(-1, 1), delta=1e-6, classes=(False, True), sketch_dim=1).fit(X, y > 0.5)
        assert np.isfinite(labels.coef_).all()


# --- other losses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "huber", "squared"])
@pytest.mark.parametrize("variance", [1e-4, 0.5, 30.0, 8e3])
def test_the_envelope_is_the_minimum_over_the_rows_own_effect(loss: str, variance: float) -> None:
    """Theorem P.9."""
    from scipy.optimize import minimize_scalar

    family, rng = FAMILIES[loss], np.random.default_rng(0)
    envelope = MoreauEnvelope(family, variance)
    u = np.concatenate([rng.normal(size=20) * 5, np.linspace(-30, 30, 9)])
    y = rng.choice([-1.0, 1.0], u.size)
    root = envelope.shifted(u, y)
    np.testing.assert_allclose(root - variance * family.pull(root, y), u, atol=1e-9 * (1 + variance))
    for i in range(u.size):
        one, label = np.array([u[i]]), y[[i]]
        direct = minimize_scalar(
            lambda e, one=one, label=label: float(family.value(one + e, label)[0]) + e**2 / (2 * variance),
            bounds=(-1.5 * variance - 70, 1.5 * variance + 70),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert envelope.value(one, label)[0] <= direct.fun * (1 + 1e-9) + 1e-12
    step = 1e-5
    slope = (envelope.value(u + step, y) - envelope.value(u - step, y)) / (2 * step)
    np.testing.assert_allclose(-envelope.pull(u, y), slope, atol=1e-5)
    long = rng.normal(size=u.size)
    np.testing.assert_allclose(
        envelope.change(u, y, long),
        envelope.value(u + long, y) - envelope.value(u, y),
        atol=1e-8 * (1 + envelope.value(u, y).max()),
    )


@pytest.mark.parametrize("shape", [(40, 12, 5), (30, 60, 4)])
def test_a_squared_loss_by_newton_is_the_closed_form(shape: tuple[int, int, int]) -> None:
    """Where the others' energy inside the span is nowhere below that outside, both solve the same problem, penalty and all."""
    own, y, heard = world(*shape, seed=2)
    kernel = Kernel.of(own, heard, fit_intercept=True)
    raised = Kernel(**{**vars(kernel), "inside": np.maximum(kernel.inside, kernel.outside)})
    closed, newton = GramPath.of(raised, y), GramNewtonPath.of(raised, y, FAMILIES["squared"])
    for alpha in (0.5, 30.0):
        np.testing.assert_allclose(newton.solve(alpha).own, closed.solve(alpha).own, rtol=1e-6, atol=1e-8)
    if shape[0] > shape[1]:  # otherwise its likelihood has no maximum: it profiles one degree of freedom too many
        assert newton.evidence_alpha() == pytest.approx(closed.evidence_alpha(), rel=0.2)
    folds, penalties = random_folds(y.size, 5, 0), np.array([0.5, 30.0])
    first, second = closed.cross_validated(penalties, folds), newton.cross_validated(penalties, folds)
    np.testing.assert_allclose(first, 2 * second, rtol=1e-6)


def test_a_logistic_share_is_the_gradient_at_the_joint_minimum() -> None:
    """beta_k = X_k' v, v = -f'(eta) / alpha, eta the sum of a kernel's function and a constant that minimise the penalised loss (Theorem P.9)."""
    from scipy.optimize import minimize

    own, y, heard = world(40, 6, 3, seed=5)
    labels, family = np.where(y > np.median(y), 1.0, -1.0), FAMILIES["logistic"]
    kernel = Kernel.of(own, heard, fit_intercept=True)
    assert kernel.outside > 0
    left, alpha = kernel.own.left(), 3.0
    inside = np.maximum(kernel.inside, kernel.outside)
    V = (left * (kernel.own.squares + inside - kernel.outside)) @ left.T + kernel.features @ kernel.features.T
    V += kernel.outside * np.eye(40)

    def objective(t: np.ndarray) -> float:
        return float(family.value(V @ t[:-1] + t[-1], labels).sum() + alpha / 2 * t[:-1] @ V @ t[:-1])

    found = minimize(objective, np.zeros(41), method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    v = family.pull(V @ found.x[:-1] + found.x[-1], labels) / alpha
    share = GramNewtonPath.of(kernel, labels, family).solve(alpha)
    np.testing.assert_allclose(share.own, (own - own.mean(axis=0)).T @ v, atol=2e-4 * np.abs(share.own).max())


# --- in a study -------------------------------------------------------------------------------------------------------------


def field(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n, 3))
    X = np.clip((factors @ rng.normal(size=(3, 40)) + 0.5 * rng.normal(size=(n, 40))) / 6, -1, 1)
    y = X @ rng.normal(size=40)
    return X, y + y.std() * rng.normal(size=n)


def test_it_releases_what_the_other_forms_release_and_says_so() -> None:
    X, y = field()
    options = {"parties": 4, "bounds": (-1, 1), "sketch_dim": 2}
    models = {name: PrideRegressor(noise_model=name, **options).fit(X, y) for name in ("gram", "calibrated", "plain")}
    assert len({model.plan_.releases for model in models.values()}) == 1
    said = str(models["gram"].statement_)
    assert "nothing further is released" in said.lower()
    assert "nothing further is released" not in str(models["plain"].statement_).lower()


@pytest.mark.slow
def test_at_a_small_epsilon_it_does_not_count_the_response_once_for_every_party() -> None:
    errors: dict[str, list[float]] = {"gram": [], "calibrated": [], "plain": []}
    for seed in range(5):
        X, y = field(seed=seed)
        pooled = PrideRegressor(parties=1, bounds=(-1, 1)).fit(X, y).coef_
        for name, found in errors.items():
            model = PrideRegressor(
                parties=4, bounds=(-1, 1), epsilon=0.5, delta=1e-5, sketch_dim=2, noise_model=name, random_state=seed
            ).fit(X, y)
            found.append(float(((model.coef_ - pooled) ** 2).sum() / (pooled**2).sum()))
    means = {name: np.mean(found) for name, found in errors.items()}
    assert means["gram"] < 0.6 * min(means["calibrated"], means["plain"])


@pytest.mark.slow_for("options12")
@pytest.mark.minutes
@pytest.mark.parametrize(
    "options",
    [
        {"sketch": "dct"},
        {"sketch": "gaussian"},
        {"unit": "record"},
        {"unit": "record", "sketch": "dct"},
        {"unit": "record", "clip_norm": 0.3},
        {"others": "copies"},
        {"others": "unrelated"},
        {"estimating": ["party1"]},
        {"estimating": ["party1"], "sketch": "dct", "unit": "record"},
        {"public": [0, 35]},
        {"alpha": "local-cv"},
        {"alpha": 3.0, "fit_intercept": False},
        {"loss": "huber"},
        {"calibration": "published"},
        {"sketch_dim": 0},
        {"sketch_dim": 1},
    ],
)
def test_every_study_with_it_fits_and_predicts_at_home(options: dict) -> None:
    X, y = field()
    model = PrideRegressor(
        **{"parties": 4, "bounds": (-1, 1), "epsilon": 20.0, "delta": 1e-5, "sketch_dim": 2, **options}
    ).fit(X, y)
    known = ~np.isnan(model.coef_)
    assert known.any()
    assert 0 < np.abs(model.coef_[known]).max() < 100
    if options.get("calibration") != "published":
        at = model.predict_at("party1", X[:50])
        assert np.corrcoef(at, y[:50])[0, 1] > 0.3


@pytest.mark.guarantee
def test_a_matrix_that_stretches_its_rows_is_scaled_back() -> None:
    X, y = field()
    rng = np.random.default_rng(0)
    unit = {f"party{k}": rng.normal(size=(10, 5)) / math.sqrt(5) for k in range(4)}
    found = [
        PrideRegressor(
            parties={f"party{k}": list(range(10 * k, 10 * k + 10)) for k in range(4)},
            bounds=(-1, 1),
            epsilon=20.0,
            delta=1e-5,
            sketch={name: factor * matrix for name, matrix in unit.items()},
            random_state=0,
        )
        .fit(X, y)
        .coef_
        for factor in (1.0, 100.0)
    ]
    assert np.corrcoef(*found)[0, 1] > 0.9
    assert 0.7 < np.linalg.norm(found[1]) / np.linalg.norm(found[0]) < 1.4


def test_an_unknown_declaration_is_refused() -> None:
    X, y = field(50)
    with pytest.raises(UsageError, match="others"):
        PrideRegressor(bounds=(-1, 1), others="mine").fit(X, y)


def test_a_classifier_with_it_finds_the_signal() -> None:
    X, y = field()
    model = PrideClassifier(
        parties=4, bounds=(-1, 1), classes=(False, True), epsilon=5.0, delta=1e-5, sketch_dim=2, random_state=0
    )
    assert model.fit(X, y > 0).score(X, y > 0) > 0.65


def test_an_automatic_sketch_follows_what_is_public_and_new_rows_get_the_same_one() -> None:
    assert automatic_size(800, 200, 0.1) == automatic_size(800, 200, 1.0) == 10
    assert automatic_size(800, 200, 4.0) == 40
    assert automatic_size(800, 200, 50.0) == automatic_size(800, 200, math.inf) == 100
    assert automatic_size(30, 200, 50.0) == 30
    assert [automatic_size(800, columns, 1.0) for columns in (1, 2, 3, 5, 8, 9)] == [1, 2, 4, 8, 8, 2]  # a few: whole
    assert automatic_size(3, 8, 1.0) == 3
    X, y = field()
    model = PrideRegressor(parties=4, bounds=(-1, 1), epsilon=8.0, delta=1e-5).fit(X, y)
    assert {part.sketch.size for part in model.plan_.design.parts} == {4}
    first, second = (model.predict_at("party2", X) for _ in range(2))  # with noise of their own
    assert np.corrcoef(first, second)[0, 1] > 0.5
    assert {part.sketch.size for part in model.prediction_plan_.design.parts if part.sketch} == {4}
    cards = tuple(Card(f"p{k}", 9, Bounds(-1, 1).columns([f"x{k}"]), ("y",)) for k in range(2))
    with pytest.raises(UsageError, match="sketch_dim"):
        load("pride").compile(Study("pride", cards, 1.0, 1e-6, parameters={"fitted": "00"}, derived=()))
    with pytest.raises(UsageError, match="none for 'p1'"):
        load("pride").compile(Study("pride", cards, 1.0, 1e-6, parameters={"sketch_dim": {"p0": 1}}, derived=()))


def rows_of_eight() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (60, 8))
    return X, X[:, 0] - X[:, 5] + 0.1 * rng.normal(size=60)


@pytest.mark.guarantee
def test_a_party_whose_matrix_nobody_declares_takes_the_others_energy() -> None:
    X, y = rows_of_eight()
    parties = {"one": [0, 1, 2, 3], "two": [4, 5, 6, 7]}
    options = {"bounds": (-1, 1), "epsilon": 5.0, "random_state": 0, "estimating": ["one"]}
    model = PrideRegressor(parties=parties, sketch={"two": np.eye(4)[:, :2]}, **options).fit(X, y)
    assert np.isfinite(model.coef_[:4]).all()


@pytest.mark.guarantee
def test_new_rows_in_sketches_of_another_size_are_refused() -> None:
    X, y = rows_of_eight()
    model = PrideRegressor(parties=2, bounds=(-1, 1), epsilon=5.0, sketch_dim=3, random_state=0).fit(X, y)
    model.predict_at("party0", X[:10])
    model.sketch_dim = 2
    with pytest.raises(UnpooledError, match="give the study of new rows its sketch_dim"):
        model.predict_at("party0", X[:10])
