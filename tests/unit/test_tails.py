"""Losses that are known by their tails: against closed forms, draws and quadrature, never below; and what is left out is caught."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from unpooled.errors import AccountingError
from unpooled.privacy.accounting import (
    Composition,
    TailSum,
    edges_of,
    gaussian_curve,
    gaussian_delta,
    log_moment,
    summed,
    survival,
)
from unpooled.privacy.events import Event, Kind

REPLACED = ((1, 0.5), (2, 0.25))
TAILS = [((1, 0.25),), REPLACED, ((2, 1.0), (2, 0.7)), ((1, 3.0), (4, 1.5)), ((9, 0.05),)]


def perturbed(tail, constant: float = 0.0, count: int = 1) -> Event:
    return Event(Kind.PERTURBED, constant, count, 0.0, tail)


def exact(tail, epsilon: float) -> float:
    """Of one of them: E (1 - e^{epsilon - X})_+ by quadrature of e^{epsilon - z} P(X > z)."""
    end = max(epsilon, 0.0) + 60 * max(m for _, m in tail) + 60

    def density(z: float) -> float:
        return math.exp(epsilon - z) * float(survival(tail, np.array([z]))[0])

    return quad(density, max(epsilon, 0.0), end, limit=500, points=[max(epsilon, 0.0) + 1])[0]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_one_alone_is_a_little_above_its_exact_value(tail, epsilon: float) -> None:
    value, wanted = summed(((tail, 1),), epsilon).above(epsilon), exact(tail, epsilon)
    if wanted > 1e-12:
        assert wanted <= value <= 1.02 * wanted
    assert value <= min(1.0, sum(n * gaussian_delta(epsilon, m) for n, m in tail)) * 1.02 + 1e-30


@pytest.mark.slow_for("20")
@pytest.mark.parametrize("count", [2, 5, 20])
def test_sums_are_those_of_draws(count: int) -> None:
    """Theorem F.21."""
    rng = np.random.default_rng(count)
    z = np.linspace(0, 8, 200_001)
    chance = survival(REPLACED, z)
    total = np.zeros(200_000)
    for _ in range(count):
        u = rng.random(total.size)
        total += np.where(u < chance[0], np.interp(u, chance[::-1], z[::-1]), 0.0)
    for epsilon in (0.3, 1.0):
        drawn = np.maximum(1 - np.exp(epsilon - total), 0.0)
        value = Composition([perturbed(REPLACED, count=count)]).delta(epsilon)
        assert drawn.mean() - 5 * drawn.std() / math.sqrt(total.size) <= value <= drawn.mean() * 1.05 + 1e-3


def test_two_of_them_far_out_are_the_convolution() -> None:
    """Where no draw gets: the double integral at 40 points a unit, both tails of one sign (Theorem F.21)."""
    a, b, epsilon = 0.3, 0.2, 2.2
    z = np.linspace(0, 6, 6001)

    def law(m: float) -> np.ndarray:
        chance = survival(((1, m),), z)
        return np.concatenate([[1 - chance[0]], -np.diff(chance)])  # rounded up

    both = np.convolve(law(a), law(b))
    at = np.arange(both.size) * (z[1] - z[0])
    wanted = float((both * np.maximum(-np.expm1(epsilon - at), 0.0)).sum())
    value = Composition([perturbed(((1, a),)), perturbed(((1, b),))]).delta(epsilon)
    assert wanted < 1e-6
    assert 0.9 * wanted <= value <= 1.05 * wanted  # the grid of this test is rounded up, too


@pytest.mark.guarantee
def test_beside_gaussians_pure_events_and_zcdp() -> None:
    """Theorem F.21."""
    tail = ((1, 0.2),)
    for epsilon in (0.4, 1.0):
        alone = Composition([perturbed(tail)]).delta(epsilon)
        # A pure event is a shift; a constant is one, too.
        assert Composition([perturbed(tail), Event(Kind.PURE, 0.1)]).delta(epsilon + 0.1) == pytest.approx(alone, rel=1e-6)
        assert Composition([perturbed(tail, 0.1)]).delta(epsilon + 0.1) == pytest.approx(alone, rel=1e-6)
        # One sign and a Gaussian: the mean of the Gaussian's curve over max(0, N(m^2/2, m^2)).
        mu = 0.3
        wanted = (
            norm.cdf(-0.1) * gaussian_delta(epsilon, mu)
            + quad(
                lambda x: norm.pdf(x, 0.02, 0.2) * float(gaussian_curve(np.array([epsilon - x]), mu)[0]),
                0,
                4,
                points=[epsilon],
            )[0]
        )
        value = Composition([perturbed(tail), Event(Kind.GAUSSIAN, mu)]).delta(epsilon)
        assert wanted <= value <= 1.1 * wanted
        # At most as if it were Gaussian and twice as likely; zCDP of the same Gaussian knows less.
        looser = Composition([perturbed(tail), Event(Kind.ZCDP, mu * mu / 2)]).delta(epsilon)
        assert value <= looser <= 1.0
        assert value >= Composition([Event(Kind.GAUSSIAN, mu)]).delta(epsilon)


@pytest.mark.guarantee
def test_beside_a_tail_zcdp_proves_more_than_nothing_at_epsilons_below_one() -> None:
    """Its points on the grid are those of its own theorem, from epsilon 0 on."""
    events = [perturbed(REPLACED), Event(Kind.ZCDP, 0.125)]
    assert Composition(events).delta(0.7) < 0.4
    assert Composition(events).delta(0.3) < 0.97


@pytest.mark.guarantee
@pytest.mark.parametrize("mu", [0.0, 1e-6, 0.3, 0.999, 1.0, 3.0, 40.0])
def test_the_curve_at_many_epsilons_is_the_curve(mu: float) -> None:
    e = np.concatenate([[0.0], np.geomspace(1e-4, 50, 40)])
    one = np.array([gaussian_delta(float(x), mu) for x in e])
    assert gaussian_curve(e, mu) == pytest.approx(one, rel=1e-12)
    if mu:
        assert gaussian_curve(-e, mu) == pytest.approx(-np.expm1(-e) + np.exp(-e) * one, rel=1e-12, abs=1e-300)
    else:
        assert gaussian_curve(-e, 0.0) == pytest.approx(-np.expm1(-e))


@pytest.mark.guarantee
def test_epsilon_and_delta_are_inverse_and_fall() -> None:
    for events in itertools.product(
        [perturbed(REPLACED), perturbed(((1, 0.4),), 0.05, 3)], [None, Event(Kind.GAUSSIAN, 0.2)]
    ):
        made = Composition([e for e in events if e])
        for delta in (1e-8, 1e-5, 1e-2):
            epsilon = made.epsilon(delta)
            assert made.delta(epsilon) <= delta
            assert made.delta(0.98 * epsilon) > delta
        assert made.epsilon(0.0) == math.inf
        assert made.delta(math.inf) == 0.0
        points = [made.delta(e) for e in np.linspace(0, 3, 30)]
        assert all(later <= earlier * (1 + 1e-3) for earlier, later in itertools.pairwise(points))


@pytest.mark.parametrize("tail", [((1, 12.0),), ((2, 30.0), (1, 3.0))])
def test_losses_that_are_large_have_an_epsilon(tail) -> None:
    """Where the search for it ends, grows with the square of the tail's mu."""
    for events in ([perturbed(tail)], [perturbed(tail, count=3), Event(Kind.GAUSSIAN, 0.5)]):
        made = Composition(events)
        epsilon = made.epsilon(1e-6)
        assert math.isfinite(epsilon)
        assert made.delta(epsilon) <= 1e-6 < made.delta(0.95 * epsilon)


def test_what_covers_what() -> None:
    one, two = Composition([perturbed(REPLACED)]), Composition([perturbed(REPLACED, 0.1), perturbed(REPLACED)])
    assert two.covers(one)
    assert not one.covers(two)
    assert not Composition([perturbed(((1, 9.0),))]).covers(one)  # not said: only the same tails are compared
    assert one.covers(Composition([]))


def test_moments_bound_those_of_the_law_and_edges_rise() -> None:
    for tail in TAILS:
        z = np.linspace(0, 60, 600_001)
        chance = survival(tail, z)
        for theta in (0.3, 2.0):
            moment = 1 + theta * np.trapezoid(np.exp(theta * z) * chance, z)
            assert math.log(moment) <= log_moment(tail, np.array([theta]))[0] + 1e-9
    edges = edges_of(1.0, 0.2, 30)
    assert edges[0] == 0.0
    assert (np.diff(edges) > 0).all()


def test_so_many_edges_as_were_asked_for_and_a_third_more() -> None:
    """Evenly up to where a normal loss certainly exceeds what is left, as far as 8 deviations and the mean beyond; a law costs work by the edge."""
    for epsilon, mu, points in ((0.0, 0.5, 300), (-2.0, 0.5, 300), (3.0, 0.1, 90)):
        edges = edges_of(epsilon, mu, points)
        assert edges.size == points + points // 3
        assert edges[points - 1] == pytest.approx(max(epsilon, 0.0) + 8 * mu + mu * mu)
        assert edges[0] == 0.0


def test_with_less_added_some_would_be_below() -> None:
    """Tails without their smaller corners, or with a root of the count, are below the exact value."""
    wanted = exact(REPLACED, 0.05)
    assert summed(((REPLACED[:1], 1),), 0.05).above(0.05) < wanted
    whole = Composition([perturbed(REPLACED, count=4)]).delta(1.0)
    assert Composition([perturbed(tuple((n, m * math.sqrt(4) / 2) for n, m in REPLACED))]).delta(1.0) < whole


@pytest.mark.guarantee
def test_events_without_their_tails_are_none() -> None:
    for kind, tails in (
        (Kind.PERTURBED, ()),
        (Kind.GAUSSIAN, REPLACED),
        (Kind.PERTURBED, ((1, math.inf),)),
        (Kind.PERTURBED, ((-1, 0.5),)),
    ):
        with pytest.raises(AccountingError, match="tails"):
            Event(kind, 0.1, 1, 0.0, tails)
    assert perturbed(REPLACED).rho == math.inf
    assert "mu = 0.5 or 0.25" in str(perturbed(REPLACED))


@pytest.mark.guarantee
def test_older_ledgers_know_such_releases_as_pure_events_with_a_total_variation() -> None:
    """As version 0.1.0 wrote them (S.12): read, and added up as before, beside whatever came later."""
    old = Event(Kind.PURE, 0.9, 1, 1e-5 / (1 + math.exp(0.9)))
    alone = Composition([old])
    assert alone.epsilon(1e-5) == pytest.approx(0.9)
    assert alone.delta(2.0) <= 1e-5 * (1 + 1e-9)
    for beside in (Event(Kind.GAUSSIAN, 0.2), Event(Kind.ZCDP, 0.02), perturbed(REPLACED)):
        both = Composition([old, beside])
        assert 0.9 < both.epsilon(1e-3) < 4.5
        assert both.delta(3.0) <= both.delta(2.0)


def test_a_sum_beside_a_curve_is_the_mean_of_the_curve_and_no_point_less() -> None:
    """V5: rounding to the edge below in place of the one above survived all tests. Small laws, every value an edge or between two."""
    rng = np.random.default_rng(8)

    def curve(e: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(2 * e))  # falling, at most 1

    for _ in range(200):
        size = int(rng.integers(2, 9))
        values = np.cumsum(rng.uniform(0.1, 1.0, size)) - 0.1
        law = rng.dirichlet(np.ones(size))
        edges = np.sort(rng.choice(np.concatenate([values, values + 0.05]), int(rng.integers(1, 2 * size)), replace=False))
        epsilon = float(rng.uniform(-1, 4))
        found = TailSum(values, law, 0.0, 0.0, 0.0, 0.0).beside(epsilon, curve, edges)
        # By hand: each value rounded up to the next edge, and 1 where there is none.
        up = [edges[edges >= value] for value in values]
        exact = sum(
            p * (curve(np.array([epsilon - edge[0]]))[0] if edge.size else 1.0) for p, edge in zip(law, up, strict=True)
        )
        assert found == pytest.approx(exact, rel=1e-8)
        # Never below the mean without any rounding.
        assert found >= float(law @ curve(epsilon - values)) * (1 - 1e-12)


def test_the_error_of_a_transform_counts_every_factor_and_the_way_back() -> None:
    """In units of what one transform of that length may be off: two for one tail, k + 1 for k of them."""
    tail = ((1, 3.0),)
    unit = summed(((tail, 1),), 1.0).error / 2
    assert summed(((tail, 4),), 1.0).error == pytest.approx(5 * unit, rel=1e-12, abs=0)
    assert summed(((tail, 2), (((1, 5.0),), 1)), 1.0).error == pytest.approx(4 * unit, rel=1e-12, abs=0)
