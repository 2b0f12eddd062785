"""One run with many coins: bounds that hold, studies whose noise is broken, and what one run cannot attack."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from broken import weaker
from cases import CASES
from scipy.stats import binom, norm
from test_audited_households import study as of_households
from world import sized

from unpooled.audit.one_run import audit_in_one_run, one_run_epsilon
from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.accounting import gaussian_epsilon
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study


def of_sums(columns: int = 30, **changes: Any) -> Study:
    every = tuple(Column(f"x{j}", -1.0, 3.0) for j in range(columns))
    cards = tuple(Card(name, 20, every) for name in ("north", "south"))
    asked = {"unit": "record", "adjacency": "replace", "derived": (), **changes}
    return Study("describe", cards, asked.pop("epsilon", 4.0), 1e-6, **asked)


def test_without_delta_the_bound_is_where_a_binomial_law_says_so() -> None:
    found = one_run_epsilon(200, 100, 80, delta=0.0, risk=0.05)
    assert binom.sf(79, 100, 1 / (1 + np.exp(-found))) == pytest.approx(0.05, rel=1e-6)
    assert one_run_epsilon(200, 100, 50, delta=0.0, risk=0.05) == 0.0


def test_bounds_grow_with_right_guesses_and_shrink_with_delta_and_confidence() -> None:
    for law in ("any", "gaussian"):
        found = [one_run_epsilon(400, 100, right, delta=1e-5, risk=0.05, law=law) for right in (60, 70, 80, 90, 100)]
        assert found == sorted(found)
        assert found[-1] > found[0]
        assert one_run_epsilon(400, 100, 90, delta=1e-5, risk=0.001, law=law) < found[3]
    bounds = [one_run_epsilon(400, 100, 90, delta=delta, risk=0.05) for delta in (0.0, 1e-4, 1e-2)]
    assert bounds[0] > bounds[1] > bounds[2]


def test_two_neighbours_apart_halve_a_pure_bound() -> None:
    one, two = (one_run_epsilon(200, 100, 90, delta=0.0, risk=0.05, apart=apart) for apart in (1, 2))
    assert two == pytest.approx(one / 2, rel=1e-6)
    assert one_run_epsilon(200, 100, 90, delta=1e-4, risk=0.05, apart=2) < two


def test_coins_that_fall_right_as_often_as_allowed_refute_the_claim_no_oftener_than_said() -> None:
    """Randomised response is the worst release of a pure claim: its law is the one of the theorem."""
    rng, runs = np.random.default_rng(0), sized(20_000, 2_000)
    right = rng.binomial(100, 1 / (1 + np.exp(-1.0)), size=runs)
    bounds = {k: one_run_epsilon(100, 100, k, delta=0.0, risk=0.05) for k in set(right.tolist())}
    above = np.mean([bounds[k] > 1.0 for k in right.tolist()])
    assert 0.02 < above < 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize(("law", "part"), [("any", 1.0), ("any", 0.125), ("gaussian", 1.0), ("gaussian", 0.125)])
def test_coins_behind_gaussian_noise_refute_its_claim_no_oftener_than_said(law: str, part: float) -> None:
    """Each coin moves a number of its own by mu deviations: nothing hides another coin, so the attack is the strongest that a claim allows."""
    rng, mu, canaries, delta = np.random.default_rng(1), 1.2, 240, 1e-5
    runs, guesses = sized(5_000, 400), int(canaries * part)
    coins = rng.integers(2, size=(runs, canaries))
    seen = mu * (coins - 0.5) + rng.standard_normal(coins.shape)
    surest = np.argsort(-np.abs(seen), axis=1)[:, :guesses]
    right = np.take_along_axis((seen > 0) == (coins == 1), surest, axis=1).sum(axis=1)
    bounds = {k: one_run_epsilon(canaries, guesses, k, delta=delta, risk=0.05, law=law) for k in set(right.tolist())}
    found, claim = np.array([bounds[k] for k in right.tolist()]), gaussian_epsilon(delta, mu)
    assert np.mean(found > claim) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)
    assert np.median(found) > {"any": 0.1, "gaussian": 0.25}[law] * claim
    assert norm.cdf(mu / 2) < right.mean() / guesses + 0.05


def test_an_honest_study_is_not_refuted_and_the_right_guesses_come_from_what_was_released() -> None:
    for changes in ({}, {"epsilon": 16.0}, {"adjacency": "zero-out"}, {"unit": "attribute"}):
        found = audit_in_one_run(load("describe"), of_sums(10, **changes), 24, registry=load)
        assert not found.refutes, found
        assert found.canaries == 24
    weak = audit_in_one_run(load("describe"), of_sums(30, epsilon=200.0), 40, registry=load)
    assert weak.right == weak.guesses
    assert weak.claimed > weak.as_gaussian > weak.audited > 2.0


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_a_study_without_noise_is_refuted(monkeypatch: pytest.MonkeyPatch, adjacency: str) -> None:
    weaker(monkeypatch, lambda values, _scale: 0 * values)
    found = audit_in_one_run(load("describe"), of_sums(80, epsilon=0.1, adjacency=adjacency), 40, registry=load)
    assert found.refutes
    assert found.audited > found.claimed
    assert "of 40 canaries" in str(found)


@pytest.mark.parametrize("case", ["glm", "pride", "bayes, columns", "effects"])
def test_models_of_every_kind_are_attacked_and_none_is_refuted(case: str) -> None:
    study = msgspec.structs.replace(CASES[case]().study, epsilon=2.0)
    found = audit_in_one_run(load(study.row), study, sized(60, 8), registry=load)
    assert not found.refutes, found


#: Ways to add up, rows that are shortened to a norm, and analyses of split rows.
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bayes", {"trust": {"aggregation": "trusted"}}),
    ("bayes", {"trust": {"aggregation": "local"}}),
    ("bayes", {"unit": "attribute"}),
    ("describe, columns", {}),
    ("analyses", {}),
    ("bayes, sites", {"adjacency": "zero-out"}),
)


@pytest.mark.parametrize(("case", "changes"), WAYS)
def test_no_way_to_add_up_and_no_unit_is_refuted(case: str, changes: dict[str, Any]) -> None:
    study = msgspec.structs.replace(CASES[case]().study, epsilon=2.0, **changes)
    if "trust" in changes and "tolerate" in study.parameters:
        study = msgspec.structs.replace(study, parameters=study.parameters | {"tolerate": 0})
    for seed in range(sized(10, 1)):
        found = audit_in_one_run(load(study.row), study, 30, registry=load, seed=seed)
        assert not found.refutes, found


def test_with_next_to_no_noise_every_way_to_add_up_is_attacked() -> None:
    """The attacker's power does not end where somebody is trusted, and noise of a party's own hides no more than it says."""
    for mode in ("distributed", "trusted", "local"):
        sums = of_sums(30, epsilon=500.0)
        asked = {"model": "bayes", "trust": {"aggregation": mode}, "parameters": {"response": "x0", "method": "moments"}}
        found = audit_in_one_run(load("bayes"), msgspec.structs.replace(sums, **asked), 40, registry=load)
        assert found.right >= 0.9 * found.guesses, mode


def test_the_attacker_sees_nothing_but_releases_requests_and_candidates() -> None:
    """Coins of another seed have other right answers; the same seed has the same ones, and more canaries than rows are not drawn."""
    study, model = of_sums(10, epsilon=8.0), load("describe")
    one, again, other = (audit_in_one_run(model, study, 500, registry=load, seed=seed) for seed in (0, 0, 1))
    assert one == again != other
    assert one.canaries == 40


def test_what_one_run_cannot_attack_is_said() -> None:
    for study, words in (
        (of_households("moments", "replace", "distributed"), "not households"),
        (CASES["stacking"]().study, "adds Gaussian noise to numbers"),
        (of_sums(unit="attribute", adjacency="zero-out"), "admit 0"),
    ):
        with pytest.raises(UsageError, match=words):
            audit_in_one_run(load(study.row), study, 20, registry=load)
