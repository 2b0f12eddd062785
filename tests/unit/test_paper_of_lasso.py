"""Items of the LASSO paper that a small calculation settles: its numbered equations, Table 1's bounds, and the lines of Algorithm 2."""

from __future__ import annotations

import importlib
import itertools
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from unpooled import PrivateLasso
from unpooled.papers.frank_wolfe import Sampling, bound, expected_curvature, frank_wolfe, interactions
from unpooled.papers.lasso import NoisyMaximum, sketch


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that runs Algorithm 2 line by line."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return importlib.import_module("experiments.lasso.lines")


def data(rows: int = 60, columns: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    A = rng.uniform(-1, 1, (rows, columns))
    return A, A[:, 1] - 0.5 * A[:, 5] + 0.1 * rng.normal(size=rows)


def published(**changes: Any) -> PrivateLasso:
    options = {"radius": 2.0, "rounds": 6, "bounds": (-1, 1), "y_bounds": (-2, 2), "delta": 1e-5, "random_state": 1}
    return PrivateLasso(2, calibration="published", **(options | changes))


# --- definitions: neighbours, curvatures --------------------------------------------------------------------------------------


def test_definition_1_is_of_whole_records_and_the_printed_noise_knows_no_unit() -> None:
    """Two data sets differ in one sample: ``unit="record"``. The sound form has more noise for it; the printed noise is the same for both units."""
    printed, sound = {}, {}
    for unit in ("record", "attribute"):
        model = published(unit=unit, radius=None)
        printed[unit] = [release.mechanism for release in model.plan(500, 8).releases]
        design = model.set_params(calibration="sound", method="frank-wolfe").plan(500, 8).design
        sound[unit] = [design.column_scale, design.score_multiplier]
    assert printed["record"] == printed["attribute"]
    # T = 6 of 8 columns, two parties
    assert np.divide(sound["record"], sound["attribute"]) == pytest.approx([math.sqrt(6), math.sqrt(2)])


def test_equation_7_as_printed_has_no_finite_value() -> None:
    """Its factor 2 / gamma^2 stands before f(x + ..) alone. Before the whole bracket, as in (1) and (3), it is the curvature that Theorem 1 needs."""
    A = data()[0][:, :3]
    gram, sets = A.T @ A, [(0,), (1,), (2,)]
    x, s = np.array([0.5, -1.0, 1.0]), np.array([-1.0, 1.0, 1.0])

    def f(x: np.ndarray) -> float:
        return float(x @ gram @ x / 2)

    def inside(gamma: float, *, whole: bool) -> float:
        found = []
        for chosen in sets:
            move = np.where(np.isin(np.arange(3), chosen), s - x, 0.0)
            factor, rest = 2 / gamma**2, f(x) + gamma * move @ gram @ x
            found.append(factor * (f(x + gamma * move) - rest) if whole else factor * f(x + gamma * move) - rest)
        return float(np.mean(found))

    values = [inside(gamma, whole=False) for gamma in (1e-1, 1e-2, 1e-3)]
    assert values[1] / values[0] == pytest.approx(100, rel=0.2)
    assert values[2] / values[1] == pytest.approx(100, rel=0.02)
    wanted = np.mean([gram[i, i] * (s - x)[i] ** 2 for i in range(3)])
    assert [inside(gamma, whole=True) for gamma in (1.0, 1e-1, 1e-2)] == pytest.approx([wanted] * 3)


def test_equation_2_as_printed_is_too_small_for_losses_that_are_not_quadratic() -> None:
    """Its factor is 2 / gamma, and not 2 / gamma^2 as in (1) and (3): Proposition 2 then fails for a logistic loss, and holds with the square."""
    x, s = np.meshgrid(np.linspace(-1, 1, 41), np.linspace(-1, 1, 41))
    gammas = np.geomspace(1e-3, 1, 60)

    def largest(f: Any, slope: Any, power: int) -> float:
        return max(float((2 / g**power * (f(x + g * (s - x)) - f(x) - g * (s - x) * slope(x))).max()) for g in gammas)

    square = [largest(lambda z: 3 * z**2 / 2, lambda z: 3 * z, power) for power in (1, 2)]
    assert square == pytest.approx([12.0, 12.0])
    logistic = [largest(lambda z: np.logaddexp(0, 20 * z), lambda z: 20 / (1 + np.exp(-20 * z)), power) for power in (1, 2)]
    # One block: the expected curvature of uniform serial sampling is the second, which is above the first.
    assert logistic[1] > 1.2 * logistic[0]


def test_equation_6_names_a_part_and_is_of_the_whole() -> None:
    """The right-hand side of (6) is all of x^{t+1}: outside the sampled blocks it has the old coefficients, where the printed left-hand side has zeros."""
    A, y = data()
    blocks = np.repeat([0, 1, 2, 3], 2)
    law = Sampling.uniform(4).of_blocks(blocks)
    path = frank_wolfe(A, y, 4.0, blocks=blocks, sampling=law, steps=40, record=1, descend=False, seed=3).path
    outside = 0
    for before, after in itertools.pairwise(path):
        moved = np.unique(blocks[before.coefficients != after.coefficients])
        assert moved.size <= 1
        outside += bool(after.coefficients[~np.isin(blocks, moved)].any())
    assert outside > 30


def test_assumption_2_holds_with_the_design_divided_by_the_root_of_n() -> None:
    """(8) with f of (12), which has 1 / n: an equality with A / sqrt(n). Of the logistic loss a bound, with half of it."""
    A, y = data()
    rng = np.random.default_rng(1)
    sign = np.where(y > 0, 1.0, -1.0)
    for _ in range(50):
        x, z = rng.normal(size=(2, 8))
        square = [np.sum((A @ v - y) ** 2) / 120 for v in (x, z)]
        excess = square[1] - square[0] - (z - x) @ A.T @ (A @ x - y) / 60
        assert excess == pytest.approx(np.sum((A @ (z - x)) ** 2) / 120)
        logistic = [np.mean(np.logaddexp(0, -sign * (A @ v))) for v in (x, z)]
        slope = -(A.T @ (sign / (1 + np.exp(sign * (A @ x))))) / 60
        assert logistic[1] - logistic[0] - (z - x) @ slope <= np.sum((A @ (z - x)) ** 2) / (4 * 120) + 1e-12


def test_propositions_3_and_4_bound_the_supremum() -> None:
    """On boxes [-1, 1]^8, whose differences have their suprema at corners: E over all sets of |A d_T|^2 against the right-hand side of (10)."""
    corners = 2.0 * np.array(list(itertools.product((-1, 1), repeat=8)))
    halves = np.repeat([0, 1], 4)
    for seed in range(4):
        weighted = data(seed=seed)[0] * np.linspace(0.3, 2, 8)
        gram = weighted.T @ weighted / 60
        constants = [interactions(weighted, [1.0] * 8, blocks=np.arange(8), groups=g, exact=True) for g in (None, halves)]
        threes = list(itertools.combinations(range(8), 3))
        pairs = [(*a, *b) for a in itertools.combinations(range(4), 2) for b in itertools.combinations(range(4, 8), 2)]
        for sets, stated in ((threes, expected_curvature(constants[0], 3)), (pairs, expected_curvature(constants[1], 2, 2))):
            both = np.mean([np.outer(one, one) for one in np.eye(8)[np.array(sets)].sum(axis=1)], axis=0)
            assert np.einsum("ki,ij,kj->k", corners, both * gram, corners).max() <= stated * (1 + 1e-12)


# --- Theorem 1 and Table 1 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worst", ["oracle", "gradient"])
def test_theorem_1_holds_with_the_worst_that_assumption_1_allows(worst: str) -> None:
    """(4): the worst vertex within rho gamma C / 2 of the best; (5): every entry of the gradient off by rho gamma C / 2. (11) bounds the excess."""
    A, y = data(columns=12)
    radius, rho, steps = 2.0, 0.5, 60
    curvature = interactions(A, radius)[0]
    best = frank_wolfe(A, y, radius, steps=20_000).objective
    rng, errors = np.random.default_rng(0), []

    def oracle(_columns: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        allowed = rho * 2 / (len(errors) + 2) * curvature / 2
        if worst == "gradient":
            errors.append(allowed)
            return slopes + allowed * rng.choice([-1, 1], slopes.size)
        # A vertex of column j has the product -radius |slope|.
        lost = radius * (np.abs(slopes).max() - np.abs(slopes))
        errors.append(float(lost[lost <= allowed].max()))
        return np.where(lost == errors[-1], np.sign(slopes), 0.0)

    path = frank_wolfe(A, y, radius, steps=steps, oracle=oracle, record=1, descend=False).path
    assert sum(error > 0 for error in errors) > 10
    # One set of all columns: |T| = 1; the diameter in the norm whose dual is the largest entry is twice the radius.
    inexactness = rho if worst == "oracle" else (2 * radius + 1) * rho
    excess = np.array([point.objective - best for point in path])
    stated = bound([point.iterations for point in path], float(y @ y) / 120 - best, curvature, 1.0, inexactness)
    assert (excess <= stated).all()
    assert (excess > 0).all()


def test_table_1_follows_from_theorem_1_at_the_sampling_rate() -> None:
    """The last column of each row is (11); of the (K, tau) row at p = K tau / d, and not at the p_min that stands beside it."""
    d, tau, K, t, h0, C, delta = 96, 5, 4, 17, 1.3, 0.8, 0.4
    table = {
        "elementary": (1.0, 2 * (h0 + (1 + delta) * C) / (t + 2)),
        "uniform serial": (1 / d, 2 * d * (h0 + (1 + delta) * d * C) / (t + 2 * d)),
        "nice": (tau / d, 2 * d * (tau * h0 + (1 + delta) * d * C) / (tau**2 * t + 2 * d * tau)),
        "distributed": (K * tau / d, 2 * d * (K * tau * h0 + (1 + delta) * d * C) / ((tau * K) ** 2 * t + 2 * d * K * tau)),
    }
    for p, printed in table.values():
        assert float(bound(t, h0, C, p, delta)) == pytest.approx(printed)
    assert float(bound(t, h0, C, (K * tau / d) ** 2, delta)) > 1.5 * table["distributed"][1]


def test_equation_16_follows_from_theorem_1_at_the_printed_number_of_rounds() -> None:
    """The right-hand side of (11) at T of Theorem 3, over that of (16) without its logarithm, goes to a constant, in which h^0 stays."""
    C, noise, p, inexactness, initial = 3.0, 7.0, 0.2, 0.5, 1.0
    ratios = []
    for n in (1e6, 1e9, 1e12):
        rounds = (C * n / noise) ** (2 / 3)
        rate = noise ** (2 / 3) * C ** (1 / 3) / (p**2 * n ** (2 / 3))
        ratios.append(float(bound(rounds, initial, C, p, inexactness)) / rate)
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(2 * (1 + inexactness + p * initial / C), rel=1e-3)


def test_the_logarithm_of_corollary_1_is_of_the_number_of_rounds() -> None:
    """m K T with m = log(2 T / delta) / iota^2 and T = (n eps)^(2/3), over n^(2/3) log(n^(1/3)), goes to a constant; over n^(2/3) log(n)^(1/3) it grows."""
    K, iota, delta = 4, 0.5, 1e-5
    sent, first, second = [], [], []
    for n in (1e20, 1e40, 1e80, 1e160):
        rounds = n ** (2 / 3)
        sent.append(math.log(2 * rounds / delta) / iota**2 * K * rounds)
        first.append(sent[-1] / (rounds * math.log(n) / 3))
        second.append(sent[-1] / (rounds * math.log(n) ** (1 / 3)))
    assert first == sorted(first, reverse=True)
    assert first[-1] == pytest.approx(2 * K / iota**2, rel=0.06)
    assert np.diff(second).min() > 0
    assert second[-1] > 3 * second[0]


# --- Algorithm 2, line by line --------------------------------------------------------------------------------------------------


def test_equation_13_is_not_the_gradient_of_equation_12() -> None:
    """It lacks 1 / n on the response: it is the gradient of the same problem for the response n y."""
    A, y = data()
    n, x = y.size, np.linspace(-1, 1, 8)

    def slope(target: np.ndarray) -> np.ndarray:
        steps = 1e-6 * np.eye(8)
        return np.array(
            [(np.sum((A @ (x + h) - target) ** 2) - np.sum((A @ (x - h) - target) ** 2)) / (4e-6 * n) for h in steps]
        )

    printed = A.T @ (A @ x / n) - A.T @ y
    meant = A.T @ (A @ x / n) - A.T @ y / n
    assert meant == pytest.approx(slope(y), abs=1e-6)
    assert printed == pytest.approx(slope(n * y), abs=1e-4)
    assert np.abs(meant).max() == pytest.approx(np.abs(A.T @ (A @ x - y)).max() / n)  # G, as printed before Theorem 3


def test_equation_14_and_line_3_have_a_sign_each_and_lead_uphill() -> None:
    """idx = -sign(slope) i by (14), s = -sign(idx) eta e by line 3: the vertex with the largest product with the gradient, not the least."""
    slopes, eta = np.array([0.2, -0.9, 0.4]), 2.0
    i = int(np.abs(slopes).argmax())
    products = {}
    for name, signed in (("(14)", -np.sign(slopes[i]) * (i + 1)), ("subroutine A", np.sign(slopes[i]) * (i + 1))):
        vertex = np.zeros(3)
        vertex[int(abs(signed)) - 1] = -np.sign(signed) * eta
        products[name] = float(vertex @ slopes)
    assert products == pytest.approx({"(14)": 0.9 * eta, "subroutine A": -0.9 * eta})


def test_equation_15_and_line_5_lack_the_radius() -> None:
    """q = A x / n by its definition; the recursion holds with eta before the sum, and for x / eta as it is printed."""
    A, _ = data()
    rng, n, eta = np.random.default_rng(2), 60, 3.0
    x, q, short = np.zeros(8), np.zeros(60), np.zeros(60)
    for t in range(9):
        gamma, idx, sign = 2 / (t + 2), rng.integers(8, size=2), rng.choice([-1, 1], 2)
        step = sum(-s * A[:, i] / n for i, s in zip(idx, sign, strict=True))
        x *= 1 - gamma
        np.add.at(x, idx, -gamma * eta * sign)
        q, short = (1 - gamma) * q + gamma * eta * step, (1 - gamma) * short + gamma * step
    assert q == pytest.approx(A @ x / n)
    assert short == pytest.approx(A @ x / n / eta)


def test_line_10_multiplies_vectors_of_two_lengths_where_features_are_sketched() -> None:
    """a has n entries and q has m: (J a) . q is what has a meaning, and its mean over J is a . (A x) / n."""
    A, _ = data()
    x, rng = np.linspace(-1, 1, 8), np.random.default_rng(3)
    found = []
    for _ in range(4000):
        J = rng.normal(size=(15, 60)) / math.sqrt(15)
        found.append((J @ A[:, 1]) @ (J @ (A @ x) / 60))
    with pytest.raises(ValueError, match="mismatch"):
        A[:, 1] @ (J @ (A @ x) / 60)
    assert np.mean(found) == pytest.approx(A[:, 1] @ (A @ x) / 60, abs=4 * np.std(found) / math.sqrt(4000))


def test_line_11_takes_the_largest_value_and_not_the_largest_magnitude(lines: ModuleType) -> None:
    """Without noise: a column with the steepest negative slope is passed over for one with a small positive slope."""
    own, slopes = np.array([0, 1, 2]), np.array([0.1, -0.9, 0.05])
    rng = np.random.default_rng(0)
    assert lines.picked(own, slopes, 0.0, (), rng)[1:] == (1, 1.0)  # subroutine A: up, where the slope is negative
    assert lines.picked(own, slopes, 0.0, (lines.ONE_SIDED,), rng)[1:] == (0, -1.0)


@pytest.mark.parametrize("form", ["GRADIENT", "ONE_SIDED", "UPHILL", "SHORT"])
def test_no_line_that_stands_in_two_versions_solves_the_problem_as_it_stands(lines: ModuleType, form: str) -> None:
    """After 200 rounds without noise the published form is at the optimum, each of these at a distance."""
    found = lines.Moments.large(lines.ROWS, 1)
    best = found.optimum()
    excess = {}
    for printed in ((), (getattr(lines, form),)):
        x, _ = lines.algorithm_2(found, math.inf, 200, np.random.default_rng(0), printed)
        excess[printed] = found.excess(x, best)
    assert abs(excess[()]) < 0.01
    assert excess[getattr(lines, form),] > 0.25


def test_the_script_plays_the_published_form(lines: ModuleType) -> None:
    """The line-by-line version without a change, and the one of ``_scores.py`` that a table holds beside the library, from the same seed."""
    scores = importlib.import_module("experiments.lasso._scores")
    found = lines.Moments.large(2000, 4)
    mine, _ = lines.algorithm_2(found, 1.0, 12, np.random.default_rng(5))
    assert mine == pytest.approx(scores.published(found, 1.0, 12, np.random.default_rng(5)), abs=1e-12)


def test_the_noise_of_a_pick_is_far_below_what_one_record_needs(lines: ModuleType) -> None:
    """G is the mean of n parts, of which one record changes one: its noise costs 40 times the claimed epsilon and more in each round."""
    costs = np.array(lines.pick_costs(lines.Moments.large(lines.ROWS, 2), 20, 0))
    assert (costs[:, 1] > 10 * costs[:, 0]).all()  # a part of one record, and G
    assert costs[:, 2].min() > 40


@pytest.mark.parametrize(("rows", "sketch_rows"), [(2000, 0), (100, 0), (600, 15)])
def test_one_shared_column_costs_what_the_statement_says(rows: int, sketch_rows: int) -> None:
    """Theorem 2 and Lemma 8: pi has a factor 1 / n, and the server divides by n again. The epsilon of one value, exactly, for the printed deviation."""
    model = PrivateLasso(4, radius=2.0, rounds=20, bounds=(-1, 1), y_bounds=(-2, 2), delta=1e-5, sketch_rows=sketch_rows)
    plan = model.set_params(calibration="published").plan(rows, 100)
    J = sketch(plan.study, plan.design.parameters) if sketch_rows else np.eye(1)
    deviation = np.linalg.norm(J, 2) * math.sqrt(4 * 20) * math.sqrt(2 * (math.log(1e5) + 0.5)) / (rows / 2)
    mu = 2 * np.linalg.norm(J, axis=0).max() / deviation
    (said,) = (sentence for sentence in plan.voids if sentence.key == "lasso-published.too-little")
    found = float(re.search(r"costs epsilon = ([\d.,]+) alone", said)[1].replace(",", ""))
    for epsilon, enough in ((0.98 * found, False), (1.02 * found, True)):
        delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        assert bool(delta < 1e-5) == enough
    assert found > 10


def test_what_the_published_form_hands_to_the_noise_is_the_gradient_of_equation_12(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both signs of a (A x - y) / n of a party's own columns, as subroutine A has it, and G of these columns, with next to no noise."""
    A, y = data()
    seen: list[tuple[np.ndarray, float]] = []
    draw = NoisyMaximum.draw

    def spied(self: NoisyMaximum, given: Any, bits: Any) -> np.ndarray:
        seen.append((given.values, given.sensitivity))
        return draw(self, given, bits)

    monkeypatch.setattr(NoisyMaximum, "draw", spied)
    model = published(epsilon=1e4).fit(A, y)
    assert len(seen) == 12
    names = [card.name for card in model.plan_.study.parties]
    for k, (values, largest) in enumerate(seen):
        t, party = divmod(k, 2)
        x = np.zeros(8)
        for (name, column), value in (model.path_[t - 1] if t else {}).items():
            x[4 * names.index(name) + column] = value
        gradient = (A.T @ (A @ x - y) / 60)[4 * party : 4 * party + 4]
        assert values == pytest.approx(np.concatenate([-gradient, gradient]), abs=5e-3)
        assert largest == pytest.approx(np.abs(gradient).max(), abs=5e-3)


@pytest.mark.parametrize("rounds", [3, 12])
def test_a_feature_is_sent_once_however_often_it_is_picked(rounds: int) -> None:
    """ "At most KT nonduplicate active features": line 12 sends one in each round, the published form only those that are new."""
    A, y = data()
    model = published(rounds=rounds, epsilon=100.0).fit(A, y)
    assert len(model.shared_) == len(set(model.shared_)) <= min(2 * rounds, 8)
