"""Mechanisms: the event says what the noise does, the noise is what the event says, and misuse is refused."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr
from world import chosen, drawn, summed

from unpooled.errors import AccountingError, UsageError
from unpooled.kernels import sampler
from unpooled.privacy import noise
from unpooled.privacy.accounting import Composition, budget_rho, gaussian_delta, gaussian_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.events import NO_COST, UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms import (
    MECHANISMS,
    Block,
    Contribution,
    DistributedGaussian,
    FieldGaussian,
    GaussianRelease,
    Mechanism,
    NoisyChoice,
    Objective,
    ObjectivePerturbation,
    Reach,
    ScaledGaussian,
    Scores,
    Summand,
    Vector,
    distributed,
)
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Plan, Release, Study
from unpooled.privacy.unit import ROWWISE, Split, Unit
from unpooled.protocol.identity import Identity

RECORD, ATTRIBUTE = Unit.RECORD, Unit.ATTRIBUTE


def stream(*names: str | int) -> noise.Stream:
    return KeySource.simulation(7).stream(*names)


def both(distance: float, coordinates: int) -> tuple[tuple[Unit, Reach], ...]:
    return ((RECORD, Reach(distance, coordinates)), (ATTRIBUTE, Reach(distance / 2, 1)))


def calibrated(blocks: list[Block], distance: float, mu: float, coordinates: int | None = None) -> GaussianRelease:
    reach = dict(both(distance, coordinates or sum(b.size for b in blocks)))
    return GaussianRelease.calibrated(blocks, reach, RECORD, mu)


# --- rounded Gaussian: event, scale, shift --------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", range(17, 46))
def test_events_and_shifts_over_all_scales(exponent: int) -> None:
    """From below the first shift to 2^45: the shifted noise stays in (2^18, 2^19], and the event adds one step per coordinate (Theorem F.3)."""
    for factor in (1.0, 1.0 + 2**-30, 1.37):
        release = GaussianRelease((Block(3, 1.0), Block(1, 0.5)), both(5.0, 4), factor * 2.0**exponent)
        steps = []
        for block in release.blocks:
            deviation = release.scale * block.width
            shift = release._shift(block)
            assert shift == (0 if deviation <= 2**19 else shift)
            assert shift == 0 or 2**18 < deviation / 2**shift <= 2**19
            steps.append(2.0**shift / deviation if shift else 0.0)
        event = release.event(RECORD)
        assert event.value == pytest.approx(5.0 / release.scale + max(steps) * 2, rel=1e-14)
        assert event.value <= 5.0 / release.scale + 2 * 2.0**-18
        assert event.total_variation == 4 * noise.TOTAL_VARIATION
        assert release.event(ATTRIBUTE).value == pytest.approx(2.5 / release.scale + max(steps), rel=1e-14)


@pytest.mark.parametrize("width", [1.0, 0.3, 3.0, 2.0**20, 2.0**40])
@pytest.mark.parametrize("mu", [1e-2, 0.3, 10.0])
def test_calibration_meets_mu_without_waste(mu: float, width: float) -> None:
    release = calibrated([Block(2, width), Block(3, 2 * width)], 4.0, mu)
    assert release.event(RECORD).value <= mu
    if release.scale * width > 1:  # else the sampler's smallest scale asks for more
        assert release.event(RECORD).value >= mu * (1 - 1e-3)
    assert (release.deviations >= noise.SMALLEST_SCALE * (1 - 1e-12)).all()
    assert (release.size, release.sensitivity(RECORD), release.sensitivity(ATTRIBUTE), release.name) == (
        5,
        4.0,
        2.0,
        "rounded Gaussian",
    )
    noise_alone = np.array([release.scale * w for w in (width,) * 2 + (2 * width,) * 3])
    step = np.maximum(1.0, 2.0 ** np.ceil(np.log2(noise_alone / 2**19)))
    assert release.deviations == pytest.approx(np.hypot(noise_alone, step / math.sqrt(12)), rel=1e-12)
    released = drawn(release, np.zeros(5, dtype=np.int64), stream("calibrated"))
    assert released.dtype == np.int64
    assert np.isfinite(release.decode(released)).all()


@pytest.mark.guarantee
@pytest.mark.parametrize(("mu", "coordinates"), [(1e-6, 1), (1e-4, 10_000)])
def test_a_mu_below_the_floor_is_met_or_refused(mu: float, coordinates: int) -> None:
    """Theorem F.3."""
    with suppress(UsageError):
        assert calibrated([Block(coordinates, 2.0**40)], 1.0, mu).event(RECORD).value <= mu


def test_the_smallest_scale_is_one_the_sampler_takes() -> None:
    release = calibrated([Block(1, math.sqrt(6))], 1e-9, 50.0)
    drawn(release, np.zeros(1, dtype=np.int64), stream("smallest"))


@pytest.mark.guarantee
@pytest.mark.parametrize("mu", [0.0, -1.0, math.nan])
def test_a_mu_that_is_not_positive_is_refused(mu: float) -> None:
    with pytest.raises(UsageError, match="mu must be positive"):
        calibrated([Block(1, 1.0)], 1.0, mu)


@pytest.mark.guarantee
def test_no_noise_is_exact_and_unbounded() -> None:
    release = calibrated([Block(2, 1.0)], 1.0, math.inf)
    values = np.array([3, -(2**60)], dtype=np.int64)
    released = drawn(release, values, stream("none"))
    assert released.tolist() == values.tolist()
    assert released is not values
    assert release.decode(released).tolist() == values.tolist()
    assert release.event(RECORD) == UNBOUNDED
    assert (release.name, release.scale) == ("no noise", 0.0)
    assert release.change(values, values) == 0.0
    assert release.change(values, values + 1) == math.inf


# --- rounded Gaussian: what is released -----------------------------------------------------------------------------------

DRAWS = 20_000


def variance_p_value(errors: np.ndarray) -> float:
    """Two-sided chi-square p-value that these errors, in declared deviations, have variance one."""
    tail = stats.chi2.cdf((errors**2).sum(), errors.size)
    return 2 * min(tail, 1 - tail)


@pytest.mark.guarantee
@pytest.mark.parametrize("scale", [3.0, 1000.0, 2.0**19, 2.0**19 * 1.01, 2.0**30, 2.0**45])
def test_released_noise_has_the_declared_deviation_and_no_bias(scale: float) -> None:
    release = GaussianRelease((Block(DRAWS, 1.0), Block(DRAWS, 0.25)), both(1.0, 1), scale)
    truth = np.random.default_rng(1).integers(-(2**50), 2**50, 2 * DRAWS)
    decoded = release.decode(drawn(release, truth, stream("deviation", str(scale))))
    errors = (decoded - truth) / release.deviations
    for declared, width in ((errors[:DRAWS], 1.0), (errors[DRAWS:], 0.25)):
        assert scale * width > 0.7  # rounding adds 1/12 to the variance: so much is in the declared deviation
        assert variance_p_value(declared) > 1e-4
        assert abs(declared.mean()) < 4.5 / math.sqrt(DRAWS)
        assert variance_p_value(declared * 1.06) < 1e-6  # six per cent off is caught
    assert abs(np.corrcoef(errors[:DRAWS], errors[DRAWS:])[0, 1]) < 4.5 / math.sqrt(DRAWS)


def test_decoding_a_floored_value_has_no_bias_of_half_a_step() -> None:
    """The noise itself is taken out, for it would hide half a step of 2^-19 deviations."""
    release = GaussianRelease((Block(DRAWS, 1.0),), both(1.0, 1), 2.0**30)
    shift = 11
    truth = np.random.default_rng(2).integers(-(2**40), 2**40, DRAWS)
    added = noise.rounded_gaussian(2.0 ** (30 - shift), DRAWS, stream=stream("half"))
    residual = (release.decode(drawn(release, truth, stream("half"))) - truth) / 2.0**shift - added
    assert np.abs(residual).max() <= 0.5
    assert abs(residual.mean()) < 4.5 / math.sqrt(12 * DRAWS)
    assert abs((residual - 0.5).mean()) > 0.4  # what a missing half step would look like


def test_equal_noise_cancels_and_change_measures_what_is_left() -> None:
    release = GaussianRelease((Block(1, 1.0), Block(2, 2.0)), both(1.0, 3), 2.0**22)
    one, other = np.array([0, 1 << 30, -1], dtype=np.int64), np.array([-1, 0, -1], dtype=np.int64)
    released = [drawn(release, s, stream("cancel")) for s in (one, other)]
    assert (released[0] - released[1]).tolist() == [1, 1 << (30 - 4), 0]
    assert release.change(*released) == pytest.approx(math.hypot(8 / 2**22, 2**30 / 2**23), rel=1e-12)


def test_blocks_do_not_share_noise() -> None:
    released = drawn(
        GaussianRelease((Block(50, 1.0), Block(50, 1.0)), both(1.0, 1), 1000.0), np.zeros(100, np.int64), stream("blocks")
    )
    whole = noise.rounded_gaussian(1000.0, 100, stream=stream("blocks"))
    assert released.tolist() == whole.tolist()
    assert released[:50].tolist() != released[50:].tolist()


WRONG = [np.zeros(3, np.int64), np.zeros((2, 1), np.int64), np.zeros(2), np.zeros(2, np.int32), np.array(0, np.int64)]


@pytest.mark.guarantee
@pytest.mark.parametrize("statistic", WRONG)
def test_a_statistic_of_another_shape_or_type_is_refused(statistic: np.ndarray) -> None:
    with pytest.raises(UsageError, match="2 int64 values"):
        drawn(GaussianRelease((Block(2, 1.0),), both(1.0, 2), 3.0), statistic, stream("shape"))


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "statistic", [np.zeros(1, np.int64), np.zeros((3, 2), np.int64), np.zeros(2), np.array(0, np.int64)]
)
def test_other_mechanisms_refuse_other_shapes_too(statistic: np.ndarray) -> None:
    share = DistributedGaussian((Block(2, 1.0),), both(1.0, 2), 3.0, 2)
    exact = Contribution(GaussianRelease((Block(2, 1.0),), both(1.0, 2), 3.0), "clinic")
    for mechanism in (share, exact):
        with pytest.raises(UsageError):
            mechanism.check(Summand(statistic, lambda *_: ()))
        with pytest.raises(UsageError):
            summed(mechanism, statistic, stream("shape"))


# --- shares of distributed noise ------------------------------------------------------------------------------------------


def discrete_gaussian(scale: float) -> np.ndarray:
    k = np.arange(-math.ceil(14 * scale), math.ceil(14 * scale) + 1)
    p = np.exp(-(k**2) / (2 * scale**2))
    return p / p.sum()


def true_share_delta(scale: float, honest: int, distance: int, epsilon: float) -> float:
    """Exact hockey-stick divergence of the sum of ``honest`` discrete Gaussians and its shift by ``distance``."""
    total = discrete_gaussian(scale)
    for _ in range(honest - 1):
        total = np.convolve(total, discrete_gaussian(scale))
    pad = np.zeros(distance)
    p, q = np.concatenate([total, pad]), np.concatenate([pad, total])
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("honest", [1, 2, 5])
@pytest.mark.parametrize("scale", [2.0, 2.7, 6.0])
@pytest.mark.parametrize("distance", [1, 3, 10])
def test_a_share_protects_as_its_event_says(scale: float, honest: int, distance: int) -> None:
    share = DistributedGaussian((Block(1, 1.0),), both(float(distance), 1), scale, honest)
    event = share.event(RECORD)
    assert event.kind is Kind.ZCDP
    assert event.total_variation == honest * noise.TOTAL_VARIATION
    assert event.value >= distance**2 / (2 * honest * scale**2) * (1 - 1e-12)
    for epsilon in (0.0, 0.3, 1.0, 3.0, 6.0):
        assert true_share_delta(scale, honest, distance, epsilon) <= Composition([event]).delta(epsilon) + 1e-13


def test_an_event_of_too_many_honest_parties_is_caught() -> None:
    event = DistributedGaussian((Block(1, 1.0),), both(6.0, 1), 2.0, 4).event(RECORD)
    assert true_share_delta(2.0, 2, 6, 1.0) > Composition([event]).delta(1.0)


def test_the_continuous_formula_fails_below_the_smallest_share() -> None:
    """Why a share needs two grid units: at scale 0.5 two discrete Gaussians exceed the Gaussian of equal variance (F.10)."""
    from unpooled.privacy.accounting import gaussian_delta

    gaps = [true_share_delta(0.5, 2, 1, e) - gaussian_delta(e, 1 / (0.5 * math.sqrt(2))) for e in (0.5, 1.0, 2.0)]
    assert max(gaps) > 0.01


def test_the_theorem_of_the_share_is_followed_to_the_letter() -> None:
    """Theorem F.10."""
    scale, honest, d = 2.0, 4, 10**14  # so many coordinates that tau counts
    tau = 10 * sum(math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in (1, 2, 3))
    mu = 3.0 / (scale * math.sqrt(honest))
    assert tau * d > 1e-3
    wanted = min(mu**2 + tau * d / 2, (mu + tau * math.sqrt(d)) ** 2) / 2
    assert DistributedGaussian((Block(d, 1.0),), both(3.0, d), scale, honest).event(RECORD).value == pytest.approx(
        wanted, rel=1e-14
    )


@pytest.mark.guarantee
@pytest.mark.parametrize(("scale", "honest"), [(1.99, 3), (2.0, 0), (0.1, 1), (3.0, -1)])
def test_shares_that_are_too_thin_are_refused(scale: float, honest: int) -> None:
    with pytest.raises(UsageError, match="at least one honest party and a scale of at least 2"):
        DistributedGaussian((Block(1, 1.0),), both(1.0, 1), scale, honest)


@pytest.mark.guarantee
def test_a_share_adds_its_noise_and_describes_itself() -> None:
    share = DistributedGaussian((Block(3, 1.0),), both(2.0, 3), 4.0, 2)
    values = np.array([5, 6, 7])
    released = summed(share, values, stream("share"))
    assert (released - values).tolist() == noise.discrete_gaussian(4.0, 3, stream=stream("share")).tolist()
    assert share.sensitivity(RECORD) == 2.0
    assert share.change(released, released + np.array([2, 0, 0])) == pytest.approx(4 / (2 * 2 * 16))


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("honest", [1, 3, 40])
@pytest.mark.parametrize("distance", [1.0, 900.0, 2.0**41])
def test_a_calibrated_share_spends_its_budget_and_no_more(epsilon: float, honest: int, distance: float) -> None:
    blocks = (Block(3, 1.0), Block(4, 2**-0.5))
    rho = budget_rho(epsilon, 1e-5)
    share = DistributedGaussian.calibrated(blocks, dict(both(distance, 7)), RECORD, rho, honest)
    event = share.event(RECORD)
    assert event.value <= rho
    assert Composition([event]).delta(epsilon) <= 1e-5
    thinnest = min(share.scale * b.width for b in blocks)
    assert (
        event.value > rho * (1 - 1e-4) or thinnest < DistributedGaussian.SMALLEST * 1.001
    )  # all of it, unless the grid is too coarse
    assert thinnest >= DistributedGaussian.SMALLEST
    assert share.floored == (distance == 2.0**41)


@pytest.mark.guarantee
def test_shares_in_blocks_are_floored_noisy_and_decoded_around_the_middle() -> None:
    blocks = (Block(2, 1.0), Block(1, 2.0**-30))
    share = DistributedGaussian(blocks, both(5.0, 3), 2.0**31, 2)
    values = np.array([2**40 + 77, -3, 9])
    shared = summed(share, values, stream("blocks"))
    wide = noise.discrete_gaussian(2.0**19, 2, stream=stream("blocks"))
    thin = noise.discrete_gaussian(2.0, 1, stream=stream("blocks"), start=2)
    assert (shared - share.floor(values)).tolist() == [*wide.tolist(), *thin.tolist()]
    assert share.floor(values).tolist() == [2**28, -1, 9]
    assert share.decode(share.floor(values), fragments=3).tolist() == [(2**28 + 1.5) * 2**12, 0.5 * 2**12, 9.0]
    assert share.total_deviations(4) == pytest.approx(2 * share.deviations)
    assert share.change(shared, shared + np.array([0, 0, 3])) == pytest.approx(9 / 4 / 2 / 2)


@pytest.mark.guarantee
def test_an_infinite_budget_shares_exact_values_and_says_so() -> None:
    share = DistributedGaussian.calibrated((Block(2, 1.0),), dict(both(1.0, 2)), RECORD, math.inf, 1)
    assert summed(share, np.array([3, 4]), stream("none")).tolist() == [3, 4]
    assert (share.name, share.event(RECORD).kind) == ("no noise", Kind.UNBOUNDED)
    assert not share.deviations.any()
    with pytest.raises(UsageError, match="larger epsilon"):
        DistributedGaussian.calibrated((Block(2, 1.0),), dict(both(1.0, 2)), RECORD, 0.0, 1)


@pytest.mark.guarantee
def test_a_contribution_costs_what_the_total_costs_and_adds_nothing() -> None:
    """Theorem F.11."""
    total = GaussianRelease((Block(2, 1.0),), both(3.0, 2), 2.0**21)
    given = Contribution(total, "clinic")
    assert given.event(RECORD) == total.event(RECORD)
    assert (given.name, given.size, given.scale, given.sensitivity(RECORD)) == ("noise at the total", 2, 2.0**21, 3.0)
    assert summed(given, np.array([3, 4]), stream("none")).tolist() == [3, 4]
    assert given.change(np.array([0, 8]), np.array([0, 0])) == total.change(np.array([0, 2]), np.array([0, 0]))
    assert given.needs_trust


# --- the exponential mechanism --------------------------------------------------------------------------------------------


class Sweep:
    """One word; a choice whose first trial does not take a candidate asks for more, and fails."""

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, start: int, count: int, lane: int = 0) -> np.ndarray:
        if start:
            raise EOFError
        return np.array([self.word], dtype=np.uint64)

    def more(self, coordinate: int, block: int) -> int:
        return 1 << 255


def probabilities(scores: list[int], rate: float, cells: int = 8192) -> np.ndarray:
    """First trials at the middles of equal cells, given that they take a candidate: to a few cells, every trial's law."""
    total, picks = len(scores) * ((1 << sampler.CHOICE_POWER) + 2), []
    for i in range(cells):
        with suppress(EOFError):
            stream = Sweep((2 * i + 1) * total // (2 * cells))
            picks.append(noise.choose(np.array(scores, dtype=np.int64), rate, stream=stream))
    return np.bincount(picks, minlength=len(scores)) / len(picks)


@pytest.mark.guarantee
def test_choices_have_the_probabilities_of_the_exponential_mechanism() -> None:
    """Theorem F.12."""
    scores = [7, 0, -3, 7, 5]
    weights = np.exp(0.2 * np.array(scores))
    assert np.abs(probabilities(scores, 0.2) - weights / weights.sum()).max() <= 1 / 1024
    wrong = np.exp(0.4 * np.array(scores))  # the factor 2 forgotten
    assert np.abs(probabilities(scores, 0.2) - wrong / wrong.sum()).max() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_neighbouring_scores_change_no_choice_by_more_than_its_epsilon(epsilon: float) -> None:
    """Theorem F.14."""
    sensitivity = 4
    mechanism = NoisyChoice(((RECORD, epsilon), (ATTRIBUTE, 0.0)), RECORD)
    rng = np.random.default_rng(4)
    worst = 0.0
    for _ in range(6):
        scores = rng.integers(-10, 10, 3)
        moves = np.full(3, -sensitivity)
        moves[rng.integers(3)] = sensitivity
        p, q = (probabilities(s.tolist(), epsilon / (2 * sensitivity)) for s in (scores, scores + moves))
        worst = max(worst, float(np.abs(np.log(p / q)).max()))
        picked = chosen(mechanism, scores, float(sensitivity), stream("pick"))
        assert picked == noise.choose(scores, epsilon / (2 * sensitivity), stream=stream("pick"))
    assert worst <= epsilon + 0.02
    assert worst >= 0.6 * epsilon


@pytest.mark.guarantee
def test_a_choice_costs_its_epsilon_per_unit() -> None:
    mechanism = NoisyChoice(((RECORD, 0.5), (ATTRIBUTE, 0.0)), RECORD)
    assert mechanism.event(RECORD) == Event(Kind.EXPONENTIAL, 0.5, 1, noise.TOTAL_VARIATION)
    assert mechanism.event(ATTRIBUTE) == NO_COST
    assert mechanism.sensitivity(RECORD) is None
    assert mechanism.scale is None


def test_a_signed_choice_without_noise_takes_the_largest_magnitude() -> None:
    choice = NoisyChoice(((RECORD, math.inf),), RECORD)
    for scores, index in (([3, -5, 4], 4), ([3, -5, 6], 2), ([5, -5], 0), ([-(2**63), 2**63 - 1], 2), ([0], 0)):
        given = np.array(scores)
        assert chosen(choice, given, 1, stream("x"), signed=True) == index
        assert chosen(choice, given, 1, stream("x")) == given.argmax()


def test_a_signed_choice_is_the_noisy_one() -> None:
    choice, scores = NoisyChoice(((RECORD, 0.4),), RECORD), np.array([3, -5, 4])
    for i in range(20):
        picked = chosen(choice, scores, 2, stream("s", i), signed=True)
        assert picked == noise.choose(scores, 0.1, signed=True, stream=stream("s", i))


@pytest.mark.guarantee
@pytest.mark.parametrize("sensitivity", [0.0, -1.0, math.inf, math.nan])
def test_a_choice_needs_a_sensitivity(sensitivity: float) -> None:
    with pytest.raises(AccountingError, match="sensitivity"):
        chosen(NoisyChoice(((RECORD, 0.5),), RECORD), np.zeros(2, np.int64), sensitivity, stream("bad"))


@pytest.mark.guarantee
@pytest.mark.parametrize("scores", [np.zeros(2), np.zeros((2, 2), np.int64), np.zeros(0, np.int64)])
def test_a_choice_needs_integer_scores(scores: np.ndarray) -> None:
    with pytest.raises(UsageError, match="int64"):
        chosen(NoisyChoice(((RECORD, 0.5),), RECORD), scores, 1.0, stream("bad"))


def test_a_mechanism_calibrated_for_a_budget_is_charged_that_budget() -> None:
    release = calibrated([Block(4, 8.0)], 2.0, gaussian_mu(1.0, 1e-5) * (1 - 2.0**-40))
    assert Composition([release.event(RECORD)]).within(1.0, 1e-5)
    assert Composition([release.event(RECORD)]).epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    assert Composition([release.event(ATTRIBUTE)]).epsilon(1e-5) < 0.51


@pytest.mark.guarantee
def test_no_noise_is_unbounded_and_changes_nothing() -> None:
    release = ScaledGaussian.silent(2)
    statistic = np.array([3.0, 4.0])
    assert drawn(release, statistic, stream("none")) is statistic
    assert release.sensitivity(RECORD) is None
    assert (release.name, release.scale) == ("no noise", 0.0)
    assert release.event(RECORD) is UNBOUNDED
    assert release.change(statistic, statistic) == 0
    assert release.change(statistic, statistic + 1) == math.inf


@pytest.mark.guarantee
def test_scaled_noise_is_a_multiple_of_the_sensitivity_of_the_run() -> None:
    """Theorem F.15."""
    release = ScaledGaussian(DRAWS, ((RECORD, 0.5), (ATTRIBUTE, 0.25)), 2.0)
    assert release.change(np.zeros(DRAWS), np.ones(DRAWS)) is None  # the sensitivity is known during the run only
    assert release.sensitivity(RECORD) is release.scale is None
    assert release.event(RECORD).value == 0.5
    truth = np.random.default_rng(0).normal(size=DRAWS)
    for sensitivity in (1e-6, 3.0, 1e9):
        errors = drawn(release, truth, stream("scaled", str(sensitivity)), sensitivity) - truth
        step = 2.0 ** math.floor(math.log2(2 * sensitivity) - 12)
        deviation = 2.0 * (sensitivity + step * math.sqrt(DRAWS))  # rounding is charged
        assert variance_p_value(errors / deviation) > 1e-4
        assert variance_p_value(1.06 * errors / deviation) < 1e-6
    for statistic, sensitivity in ((truth[:-1], 1.0), (truth, 0.0), (truth, math.inf), (truth, math.nan)):
        with pytest.raises(UsageError, match="sensitivity"):
            drawn(release, statistic, stream("wrong"), sensitivity)


@pytest.mark.guarantee
def test_noise_beyond_the_samplers_range_is_refused_with_the_plan() -> None:
    ScaledGaussian(4, ((RECORD, 1.0),), 2.0**18)
    with pytest.raises(UsageError, match="epsilon is too small"):
        ScaledGaussian(4, ((RECORD, 1.0),), 2.0**18 * 1.01)
    for none in (None, 0.0, -0.5, math.inf):
        with pytest.raises(UsageError, match="positive finite sensitivity"):
            ScaledGaussian(4, ((RECORD, 1.0),), 2.0).check(Vector(np.zeros(4), none))


# --- the table -------------------------------------------------------------------------------------------------------------

EXAMPLES = {
    GaussianRelease: GaussianRelease((Block(2, 0.5), Block(1, 3.0)), both(2.0, 3), 7.0),
    ScaledGaussian: ScaledGaussian(3, ((RECORD, 0.5), (ATTRIBUTE, 0.25)), 2.0),
    DistributedGaussian: DistributedGaussian((Block(3, 1.0),), both(2.0, 3), 4.0, 2),
    FieldGaussian: FieldGaussian((Block(3, 1.0),), both(2.0, 3), 4.0, 2, 1e-9),
    Contribution: Contribution(GaussianRelease((Block(3, 1.0),), both(2.0, 3), 3.0), "clinic"),
    NoisyChoice: NoisyChoice(((RECORD, 0.5), (ATTRIBUTE, 0.1)), RECORD),
    ObjectivePerturbation: ObjectivePerturbation(3, 50, 1.0, 0.1, 2.0, 2.0, 0.001),
}


def test_every_mechanism_has_an_example() -> None:
    assert set(EXAMPLES) == set(MECHANISMS)


def hashed(mechanism: Mechanism) -> str:
    card = Card("a", 9, (Column("x", 0.0, 1.0),))
    return Plan(Study("any", (card,), 1.0, 0.0, derived=()), Split.HORIZONTAL, (Release("r", "a", "s", mechanism),)).hash


@pytest.mark.parametrize("kind", MECHANISMS)
def test_every_field_of_a_mechanism_is_in_the_hash_of_a_plan(kind: type[Mechanism]) -> None:
    mechanism = EXAMPLES[kind]
    for field in dataclasses.fields(mechanism):
        changed = copy.copy(mechanism)
        object.__setattr__(changed, field.name, _other(getattr(mechanism, field.name)))
        assert hashed(changed) != hashed(mechanism), field.name


def _other(value: object) -> object:
    """Another value of this kind."""
    if isinstance(value, tuple):
        return (*value[:-1], _other(value[-1]))
    if dataclasses.is_dataclass(value):
        last = dataclasses.fields(value)[-1].name
        changed = copy.copy(value)
        object.__setattr__(changed, last, _other(getattr(value, last)))
        return changed
    if isinstance(value, Unit):
        return next(unit for unit in ROWWISE if unit is not value)
    if isinstance(value, str):
        return value + "x"
    return 1.0 if value is None else value + 1  # type: ignore[operator]


@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_field_that_somebody_adds_to_a_mechanism_is_in_the_hash_by_itself(kind: type[Mechanism]) -> None:
    wider = dataclasses.make_dataclass(
        kind.__name__,
        [("fresh", int, dataclasses.field(default=0))],
        bases=(kind,),
        frozen=True,
        slots=True,
        namespace={"kind": kind.kind},
    )
    values = [getattr(EXAMPLES[kind], field.name) for field in dataclasses.fields(kind)]
    one, other = wider(*values, 1), wider(*values, 2)
    assert hashed(one) != hashed(other)
    assert hashed(wider(*values, 1)) == hashed(one)


def test_two_mechanisms_with_equal_fields_are_told_apart() -> None:
    twin = dataclasses.make_dataclass("Twin", [], bases=(NoisyChoice,), frozen=True, namespace={"kind": "a twin"})
    example = EXAMPLES[NoisyChoice]
    assert hashed(twin(example.epsilon, example.unit)) != hashed(example)


@pytest.mark.guarantee
@pytest.mark.parametrize("kind", MECHANISMS)
def test_what_a_mechanism_does_not_take_is_refused_by_kind(kind: type[Mechanism]) -> None:
    for given in (
        Vector(np.zeros(3)),
        Scores(np.zeros(3, np.int64), 1),
        Objective(lambda b: b, ()),
        Summand(np.zeros(3), lambda *_: ()),
    ):
        if type(given) is not kind.takes:
            with pytest.raises(UsageError, match=f"takes a {kind.takes.__name__}"):
                EXAMPLES[kind].check(given)


@pytest.mark.guarantee
def test_the_samplers_take_scales_up_to_their_limits() -> None:
    """Beyond them a product of the fast path would leave 64 bits."""
    for draw, largest in ((noise.rounded_gaussian, 2.0**20), (noise.discrete_laplace, 2.0**40)):
        for scale in (0.05, largest):
            assert draw(scale, 3).size == 3
        for scale in (0.0499, largest * (1 + 1e-9)):
            with pytest.raises(UsageError, match="noise scale must lie"):
                draw(scale, 3)


def test_no_key_is_ever_printed() -> None:
    source = KeySource(b"k" * 32)
    for holder in (source, source.stream("a"), KeySource.simulation(7), Identity(b"k" * 32)):
        for shown in (repr(holder), str(holder), f"{[holder]}"):
            assert "kkkk" not in shown
            assert "b'" not in shown


#: What an objective may be a function of, no two the same: values, shapes, kinds, where one part ends.
DIFFERENT: list[tuple[np.ndarray | bytes, ...]] = [
    (),
    (b"",),
    (b"ab",),
    (b"a", b"b"),
    (np.arange(6.0),),
    (np.arange(6.0).reshape(2, 3),),
    (np.arange(6.0).reshape(3, 2).T,),
    (np.arange(6.0) + 1e-15,),
    (np.arange(6),),
    (np.arange(6.0), np.arange(6.0)),
]


def test_what_is_given_is_in_the_noise_key() -> None:
    """Theorem F.16."""
    values = np.arange(3)
    scaled, choice, fit = EXAMPLES[ScaledGaussian], EXAMPLES[NoisyChoice], EXAMPLES[ObjectivePerturbation]
    contents = [
        scaled.content(Vector(values, 1.0)),
        scaled.content(Vector(values, 2.0)),
        scaled.content(Vector(values + 1, 1.0)),
        choice.content(Scores(values, 1)),
        choice.content(Scores(values, 2)),
        choice.content(Scores(values, 1, signed=True)),
        *(fit.content(Objective(lambda b: b, over)) for over in DIFFERENT),
    ]
    assert len(set(contents)) == len(contents)
    assert scaled.content(Vector(values.copy(), 1.0)) == contents[0]
    # Where equal numbers lie in memory is no part of what they are.
    ordered = (np.asfortranarray(np.arange(6.0).reshape(2, 3)),)
    assert fit.content(Objective(lambda b: b, ordered)) == fit.content(Objective(lambda b: b, DIFFERENT[5]))


# --- noise of any scale, in a field (Theorem F.24) ---------------------------------------------------------------------------


def wide_law(scale: float, step: int, fine: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (integers, probabilities) of ``step`` times a discrete Gaussian plus a fine one of this scale, of joint variance ``scale^2``."""
    reach = int(12 * scale)
    integers = np.arange(-reach, reach + 1)
    coarse = math.sqrt(scale**2 - fine**2) / step
    places = np.arange(-(reach // step) - 1, reach // step + 2)
    own = np.exp(-(places**2) / (2 * coarse**2))
    left = integers[:, None] - step * places[None, :]
    law = np.exp(-(left**2) / (2 * fine**2)) @ own
    return integers, law / law.sum()


@pytest.mark.slow_for("16")
@pytest.mark.parametrize("step", [2, 4, 16])
def test_noise_of_two_parts_has_the_law_of_one_discrete_gaussian(step: int) -> None:
    integers, law = wide_law(25.0 * step, step, 3.0 * step)
    one = np.exp(-(integers.astype(float) ** 2) / (2 * (25.0 * step) ** 2))
    one /= one.sum()
    inner = np.abs(integers) < 150 * step
    assert np.abs(law[inner] / one[inner] - 1).max() < 1e-9
    # The control: a fine part that does not reach over a coarse step leaves the low bits of the statistic readable.
    _, broken = wide_law(25.0 * step, step, 0.25 * step)
    assert np.abs(broken[inner] / one[inner] - 1).max() > 0.5


class Noting:
    """A source of bits that notes which words and further blocks were read."""

    def __init__(self, key: bytes) -> None:
        self.bits, self.words_read, self.more_read = noise.Stream(key), Counter(), Counter()

    def words(self, start: int, count: int, lane: int = 0) -> np.ndarray:
        self.words_read.update((lane, at) for at in range(start, start + count))
        return self.bits.words(start, count, lane)

    def more(self, coordinate: int, block: int) -> int:
        self.more_read[coordinate, block] += 1
        return self.bits.more(coordinate, block)


SAMPLERS = {
    "rounded": lambda bits: noise.rounded_gaussian(40.0, 3000, stream=bits),
    "from a table": lambda bits: noise.discrete_gaussian(4.0, 3000, stream=bits),
    "by rejection": lambda bits: noise.discrete_gaussian(2.0**19, 3000, stream=bits),
    "wide": lambda bits: noise.wide_gaussian(2.0**22, 3000, stream=bits),
    "wider": lambda bits: noise.wide_gaussian(2.0**33, 3000, stream=bits),
    "Laplace": lambda bits: noise.discrete_laplace(40.0, 3000, stream=bits),
    "normal": lambda bits: noise.gaussian_vector(40.0, 300, stream=bits),
    "ball": lambda bits: noise.laplace_ball(40.0, 300, stream=bits),
    "choice": lambda bits: noise.choose(np.arange(300), 0.01, stream=bits),
}


def read_twice(sampler: str) -> bool:
    """Whether a sampler uses a word of its stream, or a further block of a coordinate, for two of its numbers or parts."""
    bits = Noting(b"k" * 32)
    SAMPLERS[sampler](bits)
    assert bits.words_read
    return max(bits.words_read.values()) > 1


@pytest.mark.slow_for("wide")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_word_of_a_stream_is_used_twice(sampler: str) -> None:
    assert not read_twice(sampler)


@pytest.mark.parametrize("sampler", ["wide", "wider"])
def test_wide_noise_whose_parts_share_a_stream_is_caught(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: both parts from the same words."""
    monkeypatch.setattr(noise, "_Apart", lambda bits: bits)
    assert read_twice(sampler)


@pytest.mark.guarantee
def test_wide_noise_is_one_law_over_the_whole_range_and_floors_nothing() -> None:
    for scale in (5.0, 2.0**19, 2.0**19 + 1, 2.0**28, 2.0**35):
        drawn = noise.wide_gaussian(scale, 40_000, stream=KeySource.simulation(3).stream("wide"))
        assert drawn.std() == pytest.approx(scale, rel=0.02)
        assert (drawn % 2).mean() == pytest.approx(0.5, abs=0.02)
        parts = [noise.wide_gaussian(scale, 100, stream=KeySource.simulation(3).stream("wide"), start=at) for at in (0, 100)]
        assert np.array_equal(np.concatenate(parts), drawn[:200])
    coarse, fine = noise.wide_scales(2.0**28)
    assert (coarse * 2 ** noise.wide_steps(2.0**28)) ** 2 + fine**2 == pytest.approx(2.0**56)
    assert len(noise.wide_gaussian(4.0, 3)) == 3
    bits = KeySource.simulation(3).stream("wide")
    apart = noise._Apart(bits)  # where the fine part's rare further bits come from
    assert apart.more(5, 0) == KeySource.simulation(3).stream("wide").more(5 + (1 << 62), 0) != bits.more(5, 0)
    assert len(noise.wide_gaussian(2.0**22, 3)) == 3  # a fresh stream
    fragment = FieldGaussian((Block(2, 1.0), Block(1, 0.5)), both(2.0, 3), 2.0**30, 2)
    assert not fragment.floored
    assert fragment.floor(np.array([1, 2, 3])).tolist() == [1, 2, 3]
    assert fragment.decode(np.array([1, 2, 3])).tolist() == [1.0, 2.0, 3.0]


def test_the_event_of_a_joint_fragment_holds_the_distance_of_both_parts_and_of_the_proofs() -> None:
    one = DistributedGaussian((Block(3, 1.0),), both(2.0, 3), 4000.0, 2).event(RECORD)
    joint = FieldGaussian((Block(3, 1.0),), both(2.0, 3), 4000.0, 2, 1e-9).event(RECORD)
    assert joint.kind is Kind.GAUSSIAN
    assert joint.value == pytest.approx(math.sqrt(2 * one.value), rel=1e-8, abs=0)
    assert joint.value > math.sqrt(2 * one.value)
    near = 3 * distributed.NEAR / (2 * 4000.0**2) ** 2
    assert joint.total_variation - 1e-9 - near == pytest.approx(3 * one.total_variation, abs=1e-22)
    silent = FieldGaussian((Block(3, 1.0),), both(2.0, 3), 0.0, 2)
    assert silent.event(RECORD).kind is Kind.UNBOUNDED
    assert silent.name == "no noise"


@pytest.mark.guarantee
def test_a_joint_fragment_has_the_mu_that_is_asked_for() -> None:
    blocks = (Block(3, 1.0), Block(1, 2.0))
    for mu in (0.01, 0.3, 5.0):
        fragment = FieldGaussian.calibrated(blocks, {RECORD: Reach(2.0**24, 4)}, RECORD, mu, 3)
        assert mu * (1 - 1e-9) < fragment.event(RECORD).value <= mu
        assert fragment.change(np.zeros(4, np.int64), np.array([2**24, 0, 0, 0])) == pytest.approx(mu, rel=1e-9)


def _sum_of_fragments(scale: float, honest: int) -> tuple[np.ndarray, np.ndarray]:
    """The integers, and the law of a sum of discrete Gaussians at them."""
    ends = np.arange(-400, 401)
    one = np.exp(-(ends**2) / (2 * scale**2))
    law = one / one.sum()
    for _ in range(honest - 1):
        law = np.convolve(law, one / one.sum(), mode="same")
    return ends, law


@pytest.mark.parametrize("honest", [1, 2, 5])
@pytest.mark.parametrize("scale", [2.0, 3.5, 8.0])
def test_a_sum_of_fragments_is_as_near_to_a_rounded_gaussian_as_the_theorem_says(scale: float, honest: int) -> None:
    """The lemma of Theorem F.29, by the exact law."""
    ends, law = _sum_of_fragments(scale, honest)
    deviation = math.sqrt(honest * scale**2 - 1 / 12)
    rounded = np.diff(ndtr(np.append(ends - 0.5, ends[-1] + 0.5) / deviation))
    apart, bound = 0.5 * float(np.abs(law - rounded).sum()), distributed.NEAR / (honest * scale**2) ** 2
    assert bound / 30 < apart < bound
    # The control: a rounded Gaussian of the same variance as the sum's is farther away.
    same = np.diff(ndtr(np.append(ends - 0.5, ends[-1] + 0.5) / math.sqrt(honest * scale**2)))
    assert 0.5 * float(np.abs(law - same).sum()) > bound


@pytest.mark.parametrize("honest", [1, 3])
@pytest.mark.parametrize(("scale", "moved"), [(2.0, 1), (2.0, 3), (2.5, 2), (6.0, 5)])
def test_the_curve_of_a_shifted_sum_lies_below_that_of_its_event(scale: float, moved: int, honest: int) -> None:
    """Theorem F.29, by the exact curve."""
    _, law = _sum_of_fragments(scale, honest)
    event = FieldGaussian((Block(1, 1.0),), both(float(moved), 1), scale, honest).event(RECORD)
    above = []
    for epsilon in np.linspace(0.0, 4.0, 41).tolist():
        exact = float(np.maximum(law[:-moved] - math.exp(epsilon) * law[moved:], 0.0).sum())
        assert exact <= Composition([event]).delta(epsilon) + 1e-13
        above.append(exact > gaussian_delta(epsilon, moved / scale / math.sqrt(honest)) + 1e-12)
    # The control: without the correction of the deviation and the distance there are points above the curve.
    assert any(above)


def test_next_to_no_noise_stays_above_the_smallest_scale_of_the_sampler() -> None:
    """By a part of 2^-40, in the units of the narrowest block, so that rounding takes no scale below it."""
    for width in (1.0, 0.3, 2.0**-20):
        release = calibrated([Block(2, 3 * width), Block(1, width)], 1e-9 * width, 1e6)
        assert release.scale * width / noise.SMALLEST_SCALE - 1 == pytest.approx(2.0**-40, rel=1e-2, abs=0)


def _every(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from _every(below)


def test_every_mechanism_names_itself_and_no_name_is_given_twice() -> None:
    """A plan's hash holds the name: two classes of one name would share approvals, and one whose name is its file's would lose them when it moves."""
    for model in ("unpooled.papers.lasso", "unpooled.papers.pls", "unpooled.papers.pride"):
        importlib.import_module(model)
    ours = {kind.__qualname__: kind for kind in _every(Mechanism) if kind.__module__.startswith("unpooled.")}
    concrete = [kind for kind in ours.values() if not inspect.isabstract(kind)]
    names = [kind.__dict__["kind"] for kind in concrete]
    assert len(set(names)) == len(names) >= 12
    assert not any("unpooled" in name or "." in name for name in names)


@pytest.mark.guarantee
def test_a_mechanism_without_a_name_of_its_own_is_refused() -> None:
    release = calibrated([Block(2, 1.0)], 1.0, 0.5)
    assert release.describe()[0] == "rounded Gaussian"

    @dataclass(frozen=True)
    class Quieter(GaussianRelease):
        """Whose parent's name it must not take."""

    with pytest.raises(UsageError, match="no name of its own"):
        Quieter(release.blocks, release.reach, release.scale).describe()
