"""Joint losses: derivatives and structured inverses by brute force, minima against SciPy's, evidence against the dense determinant."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from unpooled.kernels.joint_newton import JointPath, ProportionalOdds, SoftmaxLoss, contrasts
from unpooled.kernels.survival import PartialLikelihood, concordance

RNG = np.random.default_rng(0)
N, P = 30, 4
X = RNG.normal(size=(N, P)) + 0.3
LOSSES = {
    "cox": PartialLikelihood(RNG.exponential(size=N).round(1) + 0.1, (RNG.random(N) < 0.6) * 1.0),  # with ties
    "cox, last censored": PartialLikelihood(np.arange(1.0, N + 1), (np.arange(N) % 3 == 0) * 1.0),
    "cox, no events": PartialLikelihood(np.arange(1.0, N + 1), np.zeros(N)),
    "multinomial": SoftmaxLoss(RNG.integers(0, 4, N), 4),
    "multinomial, no constant": SoftmaxLoss(RNG.integers(0, 3, N), 3, fit_intercept=False),
    "ordinal": ProportionalOdds(RNG.integers(0, 4, N), 4),
    "ordinal, a level that none has": ProportionalOdds(RNG.choice([0, 2, 3], N), 5),
}


def point(name: str) -> tuple[np.ndarray, np.ndarray]:
    loss = LOSSES[name]
    return RNG.normal(size=(N, loss.width)), loss.start()


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives(name: str) -> None:
    loss = LOSSES[name]
    (U, s), m = point(name), loss.width
    size, bend, step = N * m, loss.bend(U, s), 1e-5
    z = np.concatenate([U.ravel(), s])

    def value(z: np.ndarray) -> float:
        return loss.value(z[:size].reshape(N, m), z[size:])

    def gradient(z: np.ndarray) -> np.ndarray:
        found = loss.bend(z[:size].reshape(N, m), z[size:])
        return np.concatenate([-found.pull.ravel(), found.slope])

    units = np.eye(z.size) * step
    slopes = np.array([(value(z + e) - value(z - e)) / (2 * step) for e in units])
    np.testing.assert_allclose(gradient(z), slopes, atol=2e-7)
    hessian = np.array([(gradient(z + e) - gradient(z - e)) / (2 * step) for e in units])
    W = bend.times(np.eye(size).reshape(N, m, size)).reshape(size, size)
    np.testing.assert_allclose(W, hessian[:size, :size], atol=1e-7)
    np.testing.assert_allclose(bend.cross.reshape(size, s.size), hessian[:size, size:], atol=1e-6)
    np.testing.assert_allclose(bend.square, hessian[size:, size:], atol=1e-5)


@pytest.mark.parametrize("t", [0.0, 1e-3, 0.7, 50.0, 1e5])
@pytest.mark.parametrize("name", LOSSES)
def test_the_structured_inverse_is_the_dense_one(name: str, t: float) -> None:
    """Theorem P.10."""
    loss = LOSSES[name]
    (U, s), m = point(name), loss.width
    size, bend = N * m, loss.bend(U, s)
    W = bend.times(np.eye(size).reshape(N, m, size)).reshape(size, size)
    dense = np.eye(size) + t * W
    V = RNG.normal(size=(N, m, 3))
    np.testing.assert_allclose(
        bend.damped(V, t).reshape(size, 3), np.linalg.solve(dense, V.reshape(size, 3)), rtol=1e-8, atol=1e-10
    )
    if t:
        assert bend.log_determinant(t) == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-9, abs=1e-9)
    Z = np.kron(np.eye(m), X).reshape(m, N, m * P).transpose(1, 0, 2).reshape(size, m * P)
    np.testing.assert_allclose(bend.curvature(X, t), Z.T @ W @ np.linalg.solve(dense, Z), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("outside", [0.0, 0.5])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_newton_finds_the_minimum_over_coefficients_and_rows_effects(name: str, wide: bool, outside: float) -> None:
    """Theorem P.10."""
    loss, design = LOSSES[name], RNG.normal(size=(N, 40)) if wide else X
    p, m, k, alpha = design.shape[1], loss.width, loss.start().size, 0.7
    path = JointPath.of(design, loss, centred=name != "multinomial, no constant", outside=outside)
    found = path.minimum(alpha)
    rows = path.design

    def parts(v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return v[: p * m].reshape(p, m), v[p * m : p * m + k], v[p * m + k :].reshape(N, m)

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        B, s, E = parts(v)
        E = E if outside else np.zeros_like(E)
        t = outside / alpha if outside else 1.0
        bend = loss.bend(rows @ B + E, s)
        value = loss.value(rows @ B + E, s) + alpha / 2 * (B**2).sum() + (E**2).sum() / (2 * t)
        effects = (E / t - bend.pull) if outside else np.zeros_like(E)
        return value, np.concatenate([(alpha * B - rows.T @ bend.pull).ravel(), bend.slope, effects.ravel()])

    at = np.concatenate([found.coefficients.ravel(), found.shared, found.effects.ravel()])
    value, gradient = objective(at)
    assert found.objective == pytest.approx(value, rel=1e-10, abs=1e-12)
    assert np.abs(gradient).max() < 1e-7
    start = np.concatenate([np.zeros(p * m), loss.start(), np.zeros(N * m)])
    best = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "ftol": 1e-14}).fun
    assert found.objective <= best + 1e-8 * (1 + abs(best))
    np.testing.assert_allclose(found.decisions, rows @ found.coefficients, atol=1e-9)


@pytest.mark.parametrize("outside", [0.0, 0.4])
@pytest.mark.parametrize("name", ["cox", "multinomial", "ordinal"])
def test_the_evidence_is_laplaces(name: str, outside: float) -> None:
    """The determinant from the dense Hessian in coefficients, shared numbers and effects; the shared block without a prior is divided out."""
    loss, alpha = LOSSES[name], 1.3
    path = JointPath.of(X, loss, outside=outside)
    found, m, k = path.minimum(alpha), loss.width, loss.start().size
    bend, size = loss.bend(found.decisions + found.effects, found.shared), N * loss.width
    W = bend.times(np.eye(size).reshape(N, m, size)).reshape(size, size)
    Z = np.kron(np.eye(m), path.design).reshape(m, N, m * P).transpose(1, 0, 2).reshape(size, m * P)
    Q = bend.cross.reshape(size, k)
    effects = np.eye(size) if outside else np.zeros((size, 0))
    prior = np.concatenate([np.full(m * P, alpha), np.full(effects.shape[1], alpha / outside if outside else 1.0)])
    V = np.hstack([Z, effects])
    H = np.block([[V.T @ W @ V + np.diag(prior), V.T @ Q], [Q.T @ V, bend.square]])
    shared = np.block([[effects.T @ W @ effects + np.diag(prior[m * P :]), effects.T @ Q], [Q.T @ effects, bend.square]])
    half = np.linalg.slogdet(H)[1] - np.linalg.slogdet(shared)[1] - m * P * np.log(alpha)
    if outside:
        half += np.linalg.slogdet(np.eye(size) + outside / alpha * W)[1]
    assert path.evidence(alpha) == pytest.approx(2 * found.objective + half, rel=1e-9)


def test_the_evidence_finds_a_sensible_penalty() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, 6))
    labels = np.argmax(rows[:, :3] * 2 + rng.gumbel(size=(300, 3)), axis=1)
    told = JointPath.of(rows, SoftmaxLoss(labels, 3)).evidence_alpha()
    untold = JointPath.of(rows, SoftmaxLoss(rng.permutation(labels), 3)).evidence_alpha()
    assert 0.1 < told < 3
    assert untold > 30
    assert JointPath.of(np.empty((5, 0)), SoftmaxLoss(np.array([0, 1, 2, 0, 1]), 3)).evidence_alpha() == 1.0
    with pytest.raises(ValueError, match="alpha must be positive"):
        JointPath.of(X, LOSSES["cox"]).minimum(0.0)


@pytest.mark.parametrize("name", ["cox", "multinomial", "ordinal", "ordinal, a level that none has"])
def test_cross_validation_prefers_signal(name: str) -> None:
    rng = np.random.default_rng(5)
    n = 240
    rows = rng.normal(size=(n, 3))
    if name == "cox":
        loss = PartialLikelihood(rng.exponential(np.exp(-1.5 * rows[:, 0])), np.ones(n))
    elif name == "multinomial":
        loss = SoftmaxLoss(np.argmax(2 * rows + rng.gumbel(size=(n, 3)), axis=1), 3)
    else:
        labels = np.digitize(2 * rows[:, 0] + rng.logistic(size=n), [-1.0, 1.0])
        if name != "ordinal":
            labels[labels == 2] = 4
            labels[0] = 3  # one row alone has it: some training folds lack the level
        loss = ProportionalOdds(labels, 5)
    path = JointPath.of(rows, loss)
    folds = np.array_split(np.arange(n), 4)
    weak, strong = path.cross_validated([1.0, 1e6], folds)
    assert np.isfinite([weak, strong]).all()
    assert weak < strong - 0.05
    if name == "multinomial":  # a sum over rows: the mean held-out loss
        by_hand = 0.0
        for fold in folds:
            train = np.setdiff1d(np.arange(n), fold)
            fit = JointPath(path.design[train], loss.of_rows(train), path.column_means).minimum(1.0)
            by_hand += loss.of_rows(fold).value(path.design[fold] @ fit.coefficients, fit.shared)
        assert weak == pytest.approx(by_hand / n, rel=1e-9)
    with pytest.raises(ValueError, match="holds out every row"):
        path.cross_validated([1.0], [np.arange(n)])


def test_thresholds_of_levels_that_none_has() -> None:
    loss = ProportionalOdds(np.array([0, 2, 2, 3]), 5)
    np.testing.assert_array_equal(loss.thresholds(np.array([-1.0, 2.0])), [-1.0, -1.0, 2.0, np.inf])
    assert loss.value(np.zeros((4, 1)), np.array([1.0, 0.5])) == np.inf
    np.testing.assert_allclose(loss.carried(loss, np.array([-1.0, 2.0])), [-1.0, 2.0], atol=2e-6)


def test_separable_and_far_out_decisions_stay_finite() -> None:
    rows = np.linspace(-1, 1, 20)[:, None]
    for loss in (
        PartialLikelihood(np.arange(20.0, 0.0, -1.0), np.ones(20)),
        SoftmaxLoss((rows[:, 0] > 0).astype(np.intp), 2),
        ProportionalOdds((rows[:, 0] > 0).astype(np.intp), 2),
    ):
        assert np.isfinite(JointPath.of(rows, loss).minimum(1e-6).coefficients).all()
        assert np.isfinite(loss.value(1e4 * rows, loss.start()))
        assert np.isfinite(loss.bend(1e4 * rows, loss.start()).pull).all()


def test_contrasts_are_orthonormal_and_sum_to_zero() -> None:
    q = contrasts(5)
    np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-15)
    np.testing.assert_allclose(q.sum(axis=0), 0, atol=1e-15)


def test_concordance() -> None:
    time, event, risk = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 1, 0, 1]), np.array([3.0, 1.0, 2.0, 2.0])
    # Pairs: 1 with 2, 3, 4; 2 with 3 (censored then) and 4. Right: three, then none of two.
    assert concordance(time, event, risk) == pytest.approx(3 / 5)
    assert concordance(time, event, np.zeros(4)) == 0.5
    assert concordance(time, np.zeros(4), risk) == 0.5
