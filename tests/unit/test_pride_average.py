"""PRIDE's prediction of a squared response as an average: its weights, its two ends, and error that does not rise with epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import gamma, multivariate_normal
from sklearn.linear_model import LinearRegression

from unpooled import PrideRegressor
from unpooled.kernels.ridge import RidgePath
from unpooled.models.pride import local
from unpooled.models.pride.gram import GramPath, Heard, Kernel, Observed, sketches_likelihood
from unpooled.models.pride.local import (
    FACTORS,
    AverageMember,
    GramProblem,
    RegressionCalibration,
    averaged,
    fades,
    home_members,
    kernels,
    weights,
)


def problem(noise: float = 0.7) -> tuple[GramProblem, np.ndarray]:
    """A party's 8 own columns with 6 noisy sketches that share factors with them, and a response: 60 rows."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(60, 4))
    own, theirs = (factors @ rng.normal(size=(4, p)) + 0.4 * rng.normal(size=(60, p)) + 2.0 for p in (8, 20))
    theirs = theirs + 3 * rng.normal(size=(60, 1)) * rng.normal(size=20)  # a factor that only the others have
    y = own @ rng.normal(size=8) + theirs @ rng.normal(size=20) / 3 + 5 * rng.normal(size=60)
    noisy = theirs @ rng.choice([-1.0, 1.0], (20, 6)) / math.sqrt(6) + noise * rng.normal(size=(60, 6)) + 1.0
    levels = np.full(6, noise)
    calibration = RegressionCalibration.fit(own, noisy, levels)
    heard = Heard(20, noisy, levels, calibration.apply(own, noisy, levels), np.ones(6, dtype=np.bool_))
    return GramProblem(own, heard, calibration), y


def without(heard: Heard) -> Heard:
    """Nothing received."""
    none, n = np.empty(0), heard.received.shape[0]
    return Heard(heard.columns, np.empty((n, 0)), none, np.empty((n, 0)), none.astype(np.bool_))


# --- weights and members --------------------------------------------------------------------------------------------------


def test_weights_sum_to_one_and_follow_the_evidence() -> None:
    members = [
        AverageMember(log, 1.0, np.array([value]))
        for log, value in ((-1000.0, 1.0), (-1000.0 + math.log(3), 5.0), (-9e9, 7.0))
    ]
    assert weights(members) == pytest.approx([0.25, 0.75, 0.0])
    alpha, value = averaged(members)
    assert (alpha, value[0]) == (1.0, pytest.approx(4.0))
    found, y = problem()
    assert weights(home_members(found, y, fit_intercept=True)).sum() == pytest.approx(1.0)


def test_the_kernel_that_uses_no_sketch_is_the_one_of_nothing_received() -> None:
    found, y = problem()
    first = GramPath.of(kernels(found, fit_intercept=True)[0][1], y)
    alone = GramPath.of(Kernel.of(found.own, without(found.heard), fit_intercept=True), y)
    assert first.solve(2.0).own == pytest.approx(alone.solve(2.0).own)
    assert first.evidence(2.0) == pytest.approx(alone.evidence(2.0))


def test_the_kernel_at_the_true_noise_is_the_one_without_an_average() -> None:
    found, y = problem()
    last = GramPath.of(kernels(found, fit_intercept=True, path=(1.0,))[-1][1], y)
    plain = GramPath.of(Kernel.of(found.own, found.heard, fit_intercept=True), y)
    assert last.kernel.weight > 0
    assert last.solve(2.0).own == pytest.approx(plain.solve(2.0).own)
    assert last.evidence(2.0) == pytest.approx(plain.evidence(2.0))


def test_members_at_home_are_the_own_ridge_the_own_least_squares_and_the_calibrated_design() -> None:
    found, y = problem()
    members = home_members(found, y, fit_intercept=True, path=(1.0,))
    p, middle = found.own.shape[1], len(FACTORS) // 2
    ridge = RidgePath.of(found.own, y)
    coefficients, constant = ridge.solve(ridge.evidence_alpha())
    assert members[middle].solution == pytest.approx(np.concatenate([coefficients, np.zeros(6), [constant]]))
    least = LinearRegression().fit(found.own, y)
    assert members[len(FACTORS)].solution[:p] == pytest.approx(least.coef_)
    design = RidgePath.of(np.hstack([found.own, found.heard.calibrated]), y)
    coefficients, constant = design.solve(design.evidence_alpha())
    expected = np.hstack([found.own, found.heard.calibrated]) @ coefficients + constant
    assert found.calibration is not None
    rows = np.hstack([found.own, found.calibration.residual(found.own, found.heard.received), np.ones((y.size, 1))])
    assert rows @ members[len(FACTORS) + 1 + middle].solution == pytest.approx(expected)


@pytest.mark.parametrize(("share", "used"), [(4.0, True), (0.0, False)])
def test_the_response_decides_whether_sketches_are_used_at_home(share: float, used: bool) -> None:
    """Without the evidence of the response all members would weigh what they weigh before data."""
    found, _ = problem(noise=0.3)
    rng = np.random.default_rng(4)
    y = found.own @ rng.normal(size=8) + share * found.heard.received @ rng.normal(size=6) + rng.normal(size=60)
    members = home_members(found, y, fit_intercept=True)
    sketched = np.array([np.abs(member.solution[8:-1]).max() > 0 for member in members])
    assert (weights(members)[sketched].sum() > 0.95) == used
    assert (weights(members)[sketched].sum() < 0.7) == (not used)


def test_energies_that_were_fitted_to_the_sketches_pay_for_it() -> None:
    found, _ = problem()
    (unused, _), (fitted, _), *_ = kernels(found, fit_intercept=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(local, "FITTED", 0.0)
        (same, _), (free, _), *_ = kernels(found, fit_intercept=True)
    assert (same, free - fitted) == (unused, pytest.approx(3.0))


def test_noise_alone_is_no_member_at_home() -> None:
    found, y = problem()
    assert found.reliability(1.0).max() > 0
    assert not found.reliability(1e3).any()
    assert len(home_members(found, y, fit_intercept=True, path=(1e3,))) == len(FACTORS) + 1


def test_shares_use_no_direction_that_does_not_pay_for_its_numbers() -> None:
    rng = np.random.default_rng(1)
    own, noisy, levels = rng.normal(size=(400, 2)), rng.normal(size=(400, 30)), np.ones(30)
    noisy[:, 0] *= 1.4  # rises above the noise, but not far enough
    found = GramProblem(
        own,
        Heard(30, noisy, levels, noisy, np.ones(30, dtype=np.bool_)),
        RegressionCalibration.fit(own, noisy, levels),
    )
    assert found.reliability().any()
    assert not found.reliability(sure=True).any()
    assert found.likelihood(1.0) == 0.0


def test_nothing_is_averaged_over_without_sketches() -> None:
    found, y = problem()
    alone = GramProblem(found.own, without(found.heard))
    assert len(kernels(alone, fit_intercept=True)) == 1
    assert len(home_members(alone, y, fit_intercept=True)) == len(FACTORS) + 1


# --- likelihoods, against the densities themselves ----------------------------------------------------------------------------


def test_the_likelihood_of_directions_is_that_of_normal_rows_less_the_criterion() -> None:
    found, _ = problem(noise=0.5)
    assert found.calibration is not None
    residual = found.calibration.residual(found.own, found.heard.received) / found.heard.noise
    n, q = residual.shape
    for assumed in (1.0, 1.3):
        values, vectors = np.linalg.eigh(residual.T @ residual / n)
        believed = found.reliability(assumed, sure=True) > 0
        assert 0 < believed.sum() < q
        variance = np.where(believed, 1 + np.maximum(values - assumed**2, 0), 1.0)
        full = multivariate_normal(np.zeros(q), (vectors * variance) @ vectors.T).logpdf(residual).sum()
        plain = multivariate_normal(np.zeros(q), np.eye(q)).logpdf(residual).sum()
        assert found.likelihood(assumed) == pytest.approx(full - plain - believed.sum() * q / 2 * math.log(n))


def test_the_likelihood_of_energies_is_that_of_multiples_of_chi_square() -> None:
    seen = Observed(np.array([3.0, 11.0]), 5.0, 4, 0.5)
    ours = [sketches_likelihood(np.array(g), 0.0, seen, 0, 0.0) for g in ([1.0, 2.0], [0.1, 9.0])]
    theirs = [gamma(2.0, scale=2 * (np.array(g) / 4 + 0.5)).logpdf(seen.power).sum() for g in ([1.0, 2.0], [0.1, 9.0])]
    assert ours[0] - ours[1] == pytest.approx(theirs[0] - theirs[1])
    nearer, farther = (sketches_likelihood(np.ones(2), c, seen, 10, 1.0) for c in (0.5, 3.0))
    assert nearer > farther


def test_coefficients_fade_no_less_than_noise_alone_asks_and_no_more() -> None:
    fitted, now = np.array([1.0, 1.0, 2.0]), np.array([1.0, 3.0, 1.0])
    assert fades(fitted, now) == pytest.approx([1.0, 1 / 9, 1.0])
    for t in (1.0, 2.0, 50.0):  # the best factor for a residual variance t at noise 1, new noise 9
        assert fades(np.ones(1), np.full(1, 3.0))[0] <= t / (t - 1 + 9) + 1e-12


# --- theorems -------------------------------------------------------------------------------------------------------------------


def test_no_share_serves_copies_and_nothing_at_once() -> None:
    """Theorem P.12."""
    shares = np.linspace(0, 1, 100_001)
    for parties in (2, 3, 4, 8):
        worst = np.maximum((parties * shares - 1) ** 2, (shares - 1) ** 2)
        assert worst.min() == pytest.approx(((parties - 1) / (parties + 1)) ** 2, abs=1e-4)
        assert shares[worst.argmin()] == pytest.approx(2 / (parties + 1), abs=1e-4)


def test_a_posterior_mean_over_its_own_prior_never_errs_more_with_less_noise() -> None:
    """Theorem P.13, and its control: the mean of a member that takes the noise for half of what it is does."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(400_000) < 0.5, 0.0, rng.normal(size=400_000))  # half of the prior says: nothing there
    sound, broken = [], []
    for noise in (8.0, 4.0, 2.0, 1.0, 0.5, 0.25):
        seen = truth + noise * rng.normal(size=truth.size)
        total = 1 + noise**2
        there = np.exp(-(seen**2) / (2 * total)) / math.sqrt(total)
        nothing = np.exp(-(seen**2) / (2 * noise**2)) / noise
        sound.append(np.mean((truth - there / (there + nothing) * seen / total) ** 2))
        broken.append(np.mean((truth - seen / (1 + noise**2 / 4)) ** 2))
    assert (np.diff(sound) < 1e-3).all()
    assert max(np.diff([0.5, *broken])) > 0.1


# --- the whole: shapes declared for this test -------------------------------------------------------------------------------------

EPSILONS = (0.1, 1.0, 10.0)
RUNS = 10


def shape(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Columns inside (-1, 1), a response half of which they explain, and the number of parties; 250 rows to fit, 500 new."""
    rng = np.random.default_rng(seed)
    parties, width = (4, 2) if kind == "near copies" else (3, 3)
    rows = rng.normal(size=(750, parties * width))
    if kind == "near copies":
        rows = 0.15 * rows + rng.normal(size=(750, 1))
    signal = rows @ rng.uniform(0.2, 1.0, rows.shape[1])
    y = signal / signal.std() + rng.normal(size=750)
    return np.clip(rows / rows.std(axis=0) / 4, -1, 1), y, parties


def errors(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors over the response's variance of joint predictions and of those at a party (runs x epsilons), and of the party's own ridge."""
    joint, at, own = [], [], []
    for seed in range(RUNS):
        X, y, parties = shape(kind, seed)
        train, new = slice(0, 250), slice(250, None)
        scale = y[new].var()
        part = X[:, : X.shape[1] // parties]
        ridge = RidgePath.of(part[train], y[train])
        slopes, constant = ridge.solve(ridge.evidence_alpha())
        own.append(np.mean((y[new] - part[new] @ slopes - constant) ** 2) / scale)
        fits = [
            PrideRegressor(parties, epsilon=epsilon, delta=1e-5, bounds=(-1, 1), random_state=seed).fit(X[train], y[train])
            for epsilon in EPSILONS
        ]
        joint.append([np.mean((y[new] - fit.predict(X[new])) ** 2) / scale for fit in fits])
        at.append([np.mean((y[new] - fit.predict_at("party0", X[new])) ** 2) / scale for fit in fits])
    return np.array(joint), np.array(at), np.array(own)


def rises(found: np.ndarray) -> bool:
    """Return True if the error rises from one epsilon to the next, beyond two paired standard errors and by more than a hundredth."""
    steps = np.diff(found, axis=1)
    return bool((steps.mean(axis=0) > np.maximum(0.01, 2 * steps.std(axis=0, ddof=1) / math.sqrt(RUNS))).any())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["near copies", "independent"])
def test_error_does_not_rise_with_epsilon_and_stays_near_the_own_model(kind: str) -> None:
    joint, at, own = errors(kind)
    assert not rises(joint)
    assert not rises(at)
    assert (joint.mean(axis=0) < 1.05 * own.mean()).all()
    assert (at.mean(axis=0) < 1.05 * own.mean()).all()


@pytest.mark.long
@pytest.mark.slow
def test_without_the_average_near_copies_are_predicted_worse_with_more_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the rule before."""
    monkeypatch.setattr(local, "averages", lambda *_: False)
    joint, _, own = errors("near copies")
    assert joint.mean(axis=0).max() > 1.05 * own.mean()


# --- what is kept ---------------------------------------------------------------------------------------------------------------


def test_fits_of_before_the_average_still_predict_at_home_and_reliability_is_shown() -> None:
    X, y, parties = shape("independent", 0)
    fit = PrideRegressor(parties, epsilon=30.0, delta=1e-5, bounds=(-1, 1), random_state=0).fit(X, y)
    assert {name: values.size for name, values in fit.reliability_.items()} == {f"party{k}": 8 for k in range(3)}
    assert all(((values >= 0) & (values < 1)).all() and (np.diff(values) <= 0).all() for values in fit.reliability_.values())
    for kept in fit.kept_.values():
        del kept[local.NOISE]
    assert np.isfinite(fit.predict_at("party0", X[:40])).all()
    exact = PrideRegressor(parties, epsilon=math.inf, bounds=(-1, 1)).fit(X, y)
    assert exact.reliability_ == {}
