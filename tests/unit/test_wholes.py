"""A promise is about a whole: the study and not a card or a part, all members with helpers, the draw and not its plan (decision 0072).

Each test here attains what a person loses in a whole study, and holds it against what the study states.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

import unpooled
from unpooled import Budget, PrivateLinearRegression, describe, meta_analysis
from unpooled import Study as Together
from unpooled.errors import PolicyRefusal, UsageError
from unpooled.models import load
from unpooled.models.describe import declared
from unpooled.models.describe.declared import Parameters, layout
from unpooled.privacy.accounting import budget_mu, gaussian_epsilon
from unpooled.privacy.bounds import Column
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger import Charge, Ledger, ReleaseKey
from unpooled.privacy.ledger.chain import History, Row, link
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.origin import ReleasedInput, by_draw
from unpooled.privacy.plan import Card, HelperCard, Household, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import Whole
from unpooled.privacy.unit import ROWWISE, Target, Unit

pytestmark = [
    pytest.mark.filterwarnings("ignore::unpooled.UtilityWarning", "ignore::unpooled.BudgetWarning"),
]
COLUMNS = (Column("a", 0, 1), Column("b", 0, 1), Column("y", 0, 1))
KEYS = [f"{digit:x}" * 64 for digit in range(1, 10)]
DELTA = 1e-5


# --- households, sites and parts (P1, P2, P15) -------------------------------------------------------------------------------------


def households(rows: list[int], **changes: Any) -> Study:
    """A study of sites, each with so many rows of every id."""
    cards = tuple(Card(f"site{k}", 1000 * own, COLUMNS, household=Household("id", 1000, own)) for k, own in enumerate(rows))
    asked = {"unit": "household", "derived": ()} | changes
    return Study(**{"model": "analyses", "parties": cards, "epsilon": 1.0, "delta": DELTA} | asked)


def analyses(*given: dict[str, Any]) -> dict[str, Any]:
    return {"analyses": list(given)}


def attained(plan: Plan, rows: dict[str, int]) -> float:
    """The mu of an id with these rows at these parties, if each row moves every release as far as one row can."""
    squares = 0.0
    for release in plan.releases:
        assert isinstance(release.mechanism, GaussianRelease)
        sensitivity, household = release.sensitivity("record"), release.event(Unit.HOUSEHOLD).value
        part = rows.get(release.party, 0) * sensitivity / release.sensitivity("household")
        squares += release.count * (part * household) ** 2
    return math.sqrt(squares)


@pytest.mark.parametrize("sites", [2, 4, 10])
@pytest.mark.parametrize("model", ["describe", "bayes"])
def test_a_household_at_every_site_pays_no_more_than_a_study_of_sites_apart_states(sites: int, model: str) -> None:
    """P1: every part is compiled with the rows of an id that count in the whole study, not with those of its own card."""
    parameters = {"response": "y", "method": "moments"} if model == "bayes" else {}
    one = {"name": "fit", "model": model, "parameters": parameters, "apart": True, "trust": {}}
    one |= (
        {"pool": ["a"]}
        if model == "bayes"
        else {"model": "bayes", "parameters": {"response": "y", "method": "mean"}, "pool": ["a"]}
    )
    plan = load("analyses").compile(households([3] * sites, parameters=analyses(one)))
    mu = attained(plan, {f"site{k}": 3 for k in range(sites)})
    assert all(part.study.household_rows == 3 * sites for part in plan.parts.values())
    assert gaussian_epsilon(DELTA, mu) <= plan.epsilon(DELTA) * (1 + 1e-9)
    # Broken on purpose: with the rows of its own card alone a part would be sqrt(sites) times too dear.
    alone = [
        load(part.study.row).compile(msgspec.structs.replace(part.study, whole=Whole())) for part in plan.parts.values()
    ]
    broken = math.sqrt(sum(attained(part, {part.study.parties[0].name: 3}) ** 2 for part in alone))
    assert broken == pytest.approx(math.sqrt(sites) * budget_mu(1.0, DELTA), rel=2e-2)


def test_analyses_of_columns_that_one_site_has_are_priced_for_rows_at_every_site() -> None:
    """P2: analyses that each use the columns of another site are parts of one study of the same ids."""
    cards = tuple(
        Card(name, 3000, columns, household=Household("id", 1000, 3))
        for name, columns in (("north", COLUMNS[:1]), ("south", COLUMNS[1:2]))
    )
    asked = analyses(*({"name": f"of {c}", "model": "describe", "columns": [c]} for c in "ab"))
    plan = load("analyses").compile(households([3, 3], parties=cards, parameters=asked))
    assert [len(part.study.parties) for part in plan.parts.values()] == [1, 1]
    assert {part.study.household_rows for part in plan.parts.values()} == {6}
    mu = attained(plan, {"north": 3, "south": 3})
    assert 0 < gaussian_epsilon(DELTA, mu) <= plan.epsilon(DELTA) * (1 + 1e-9)


def worst_of_sites(plan: Plan, most: int) -> float:
    """The largest mu of an id over both sites, by search over its rows there in both worlds; every row stands at an end of its range."""
    (card, _), parameters = plan.study.parties, Parameters()
    lay, mechanism = layout(plan.study, card, parameters), plan.releases[0].mechanism
    assert isinstance(mechanism, GaussianRelease)
    widths = np.concatenate([np.full(block.size, block.width) for block in mechanism.blocks]) * mechanism.scale
    grid = lay.grid

    def rows(count: int, value: float) -> np.ndarray:
        each = np.concatenate([np.array([1.0, value * grid, value**2 * grid**2]) for _ in lay.columns])
        return count * each

    worst = 0.0
    for here, there in itertools.product(range(1, most), repeat=2):
        for one, other in itertools.product((-1.0, 1.0), repeat=2):
            first, second = rows(here, one) - rows(there, other), rows(most - here, one) - rows(most - there, other)
            worst = max(worst, math.sqrt(sum(float(np.square(moved / widths).sum()) for moved in (first, second))))
    return worst


@pytest.mark.guarantee
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_rows_of_an_id_that_move_from_one_site_to_another_are_paid_for(
    adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15, F.19 (d): in one process the rows of an id are bounded over all sites, and each site releases for itself."""
    ids, sites = np.repeat(np.arange(100), 10), np.tile(["a"] * 9 + ["b"], 100)
    frame = {"x": np.random.default_rng(0).uniform(0, 1, 1000)}
    asked = {"sites": sites, "unit": "household", "unit_id": ids, "rows_per_household": 10, "adjacency": adjacency}
    plan = describe(frame, (0, 1), epsilon=1.0, delta=DELTA, random_state=0, **asked).plan_
    assert plan.study.rows_move
    assert plan.study.household_rows == 10
    stated = plan.release("a", "sums").event(Unit.HOUSEHOLD).value
    if adjacency == "replace":  # zero-out compares with an id that has no rows anywhere: nothing moves
        assert 0.85 * stated < worst_of_sites(plan, 10) <= stated
        # Broken on purpose: a price for rows that stay where they are.
        monkeypatch.setattr(declared, "household_row", lambda one, appears, *_, **__: max(one, appears))
        broken = describe(frame, (0, 1), epsilon=1.0, delta=DELTA, random_state=0, **asked).plan_
        assert worst_of_sites(broken, 10) > 1.2 * broken.release("a", "sums").event(Unit.HOUSEHOLD).value
    assert "declare that no id" not in str(plan.statement)
    assert "protected in all its rows together" in str(plan.statement)


@pytest.mark.guarantee
def test_a_meta_analysis_of_households_is_compiled_with_the_whole() -> None:
    rng = np.random.default_rng(0)
    ids, sites = np.repeat(np.arange(600), 4), rng.choice(["a", "b", "c"], 2400)
    X = rng.uniform(-1, 1, (2400, 1))
    y = np.clip(X[:, 0] + rng.normal(0, 0.2, 2400), -2, 2)
    model = PrivateLinearRegression(
        epsilon=2.0, delta=DELTA, bounds=(-1, 1), y_bounds=(-2, 2), unit="household", rows_per_household=4, method="moments"
    )
    plan = meta_analysis(model, X, y, sites=sites, terms="x0", unit_id=ids).plan_
    assert {(part.study.household_rows, part.study.rows_move) for part in plan.parts.values()} == {(4, True)}


@pytest.mark.guarantee
def test_no_card_of_a_file_says_that_rows_were_counted_over_all_parties() -> None:
    cards = tuple(
        Card(name, 40, COLUMNS, household=Household("id", 20, 2, together=True), key=key)
        for name, key in zip("ab", KEYS, strict=False)
    )
    with pytest.raises(UsageError, match="only one process can count"):
        households([2, 2], model="describe", parties=cards)
    with pytest.raises(UsageError, match="leave elsewhere out"):
        Household("id", 20, 2, elsewhere=False, together=True)


# --- one person in several analyses of one process ---------------------------------------------------------------------------------


def frame(n: int = 1200) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    sites = {"site": rng.choice(["a", "b"], n), "ward": rng.choice(["c", "d"], n)}
    return pl.DataFrame({"age": rng.uniform(0, 100, n), **sites, "same": rng.permutation(sites["site"])})


def of_sites(column: str, epsilon: float = 1.0) -> Any:
    return lambda rows: describe(
        rows.select("age"), {"age": (0, 100)}, sites=rows[column].to_numpy(), epsilon=epsilon, delta=DELTA
    )


def test_analyses_whose_sites_differ_are_refused_for_each_would_count_everybody() -> None:
    with pytest.raises(UsageError, match="a person's row is at one site, the same in all analyses"):
        Together({"one": of_sites("site"), "two": of_sites("ward")}, epsilon=1.0, delta=DELTA).fit(frame())


@pytest.mark.guarantee
def test_a_person_may_be_at_another_site_in_every_analysis_of_a_process() -> None:
    study = Together({"one": of_sites("site"), "two": of_sites("site")}, epsilon=1.0, delta=DELTA).fit(frame())
    plan = study.plan_
    assert plan.study.scattered
    assert plan.epsilon(DELTA) == pytest.approx(1.0, abs=1e-6)
    # One site's releases dearer in one analysis, the other's in the other: a person at the dearer one of both is priced.
    dear, cheap = (
        GaussianRelease(plan.releases[0].mechanism.blocks, plan.releases[0].mechanism.reach, scale) for scale in (5.0, 50.0)
    )
    mixed = tuple(
        type(r)(r.name, r.party, r.step, dear if (r.party == "a") == r.name.startswith("one") else cheap)
        for r in plan.releases
    )
    unequal = type(plan)(plan.study, plan.split, mixed)
    two = math.sqrt(2) * unequal.release("a", "one: sums").event(Unit.RECORD).value
    assert unequal.epsilon(DELTA) == pytest.approx(gaussian_epsilon(DELTA, two), rel=1e-6)
    one_place = type(plan)(msgspec.structs.replace(plan.study, scattered=False), plan.split, mixed)
    assert one_place.epsilon(DELTA) < 0.8 * unequal.epsilon(DELTA)  # what a price site by site would say


# --- members (P3, P4) --------------------------------------------------------------------------------------------------------------


def members(keys: list[str], helpers: list[str], **changes: Any) -> Study:
    cards = tuple(Card(f"p{k}", 60, (COLUMNS[k],), joint="allowed", key=key) for k, key in enumerate(keys))
    helping = tuple(HelperCard(f"h{k}", key) for k, key in enumerate(helpers))
    asked = {"parameters": {"split": "columns"}, "derived": (), "helpers": helping} | changes
    return Study("describe", cards, 1.0, DELTA, **asked)


@pytest.mark.guarantee
def test_every_member_has_a_key_of_its_own_or_all_are_of_one_process() -> None:
    load("describe").compile(members(KEYS[:2], KEYS[2:3]))
    load("describe").compile(members(["", ""], [""]))
    for keys, helpers in ((KEYS[:2], [""]), (["", KEYS[1]], KEYS[2:3]), (["", ""], KEYS[:1])):
        with pytest.raises(UsageError, match="holds no public key, and others do"):
            members(keys, helpers)
    for keys, helpers in ((KEYS[:2], KEYS[1:2]), ([KEYS[0], KEYS[0]], KEYS[2:3]), (KEYS[:2], [KEYS[3], KEYS[3]])):
        with pytest.raises(UsageError, match="have one public key"):
            members(keys, helpers)
    with pytest.raises(UsageError, match="has the key of the coordinator, who runs the study"):
        members(KEYS[:2], KEYS[2:3], coordinator=KEYS[2])


def test_one_outside_helper_and_no_more() -> None:
    with pytest.raises(UsageError, match="h0, h1 would help in one joint sum"):
        load("describe").compile(members(KEYS[:2], KEYS[2:4]))
    load("describe").compile(members(KEYS[:3], []))  # three parties help each other


def test_no_study_without_keys_meets_a_policy() -> None:
    """P3: not for what parties hold, and not for who helps them."""
    rules = Policy(Target(9.0, 1e-4), joint="allowed", approved=None)
    rules.check(load("describe").compile(members(KEYS[:2], KEYS[2:3])), approved_in_ledger=True)
    for study in (members(["", ""], [""]), Study("describe", (Card("a", 60, COLUMNS),), 1.0, DELTA, derived=())):
        with pytest.raises(PolicyRefusal, match="hold no public key"):
            rules.check(load("describe").compile(study), approved_in_ledger=True)


# --- draws (P6, P7) ----------------------------------------------------------------------------------------------------------------


def moments(**more: Any) -> PrivateLinearRegression:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, 2))
    own = {"epsilon": 0.5, "delta": DELTA, "bounds": (-1, 1), "y_bounds": (-2, 2)} | more
    return PrivateLinearRegression(**own).fit(X, np.clip(X @ [0.5, 0.2] + rng.normal(0, 0.3, 900), -2, 2))


@pytest.mark.slow
def test_two_draws_of_one_plan_are_two_to_a_budget() -> None:
    """P7."""
    first, second = moments(), moments()
    assert first.plan_.hash == second.plan_.hash
    assert first.plan_.draw != second.plan_.draw
    budget, twice = Budget(9.0, DELTA), Budget(9.0, DELTA)
    moments(prior={"one": first, "two": second}, budget=budget)
    assert len(budget.entries) == 3
    assert {entry.release for entry in budget.entries} >= {first.plan_.draw, second.plan_.draw}
    together = gaussian_epsilon(DELTA, math.sqrt(3) * budget_mu(0.5, DELTA))
    assert budget.spent == pytest.approx(together, rel=1e-4)
    moments(prior={"one": first, "two": first}, budget=twice)
    assert len(twice.entries) == 2
    assert twice.spent < 0.9 * budget.spent
    # What the budget debited before is known by its draw.
    moments(prior=first, budget=twice)
    assert len(twice.entries) == 3


@pytest.mark.guarantee
def test_a_fit_that_was_debited_is_not_the_other_draw_of_its_plan() -> None:
    """P7: a budget that paid for one draw did not pay for another of the same plan."""
    budget = Budget(9.0, DELTA)
    moments(budget=budget)
    elsewhere = moments()
    moments(prior=elsewhere, budget=budget)
    assert len(budget.entries) == 3
    assert budget.spent == pytest.approx(gaussian_epsilon(DELTA, math.sqrt(3) * budget_mu(0.5, DELTA)), rel=1e-4)


@pytest.mark.slow
def test_two_draws_of_one_plan_are_two_to_a_study() -> None:
    """P6."""
    first, second = moments(), moments()
    data = pl.DataFrame({"a": np.linspace(-1, 1, 400), "b": np.tile([0.0, 0.5], 200), "y": np.linspace(-1, 1, 400)})
    own = {"bounds": {"a": (-1, 1), "b": (-1, 1)}, "y_bounds": (-2, 2), "formula": "y ~ a + b"}

    def stated(one: Any, two: Any) -> float:
        fits = {name: PrivateLinearRegression(**own, prior=prior) for name, prior in (("one", one), ("two", two))}
        return Together(fits, epsilon=1.0, delta=DELTA).fit(data).statement_.epsilon_per_unit["record"]

    renamed = [{"a": fit.as_prior()["x0"], "b": fit.as_prior()["x1"]} for fit in (first, second)]
    same, two = stated(renamed[0], renamed[0]), stated(*renamed)
    mu, half = budget_mu(1.0, DELTA), budget_mu(0.5, DELTA)
    assert same == pytest.approx(gaussian_epsilon(DELTA, math.hypot(mu, half)), rel=1e-3)
    assert two == pytest.approx(gaussian_epsilon(DELTA, math.sqrt(mu**2 + 2 * half**2)), rel=1e-3)


def test_a_simulation_of_the_same_data_is_one_draw_and_of_others_another() -> None:
    seeded = [moments(random_state=seed) for seed in (0, 0, 1)]
    assert seeded[0].plan_.draw == seeded[1].plan_.draw != seeded[2].plan_.draw
    assert (seeded[0].coef_ == seeded[1].coef_).all()
    assert not seeded[0].statement_.holds


# --- rows that are handed over (P10) -----------------------------------------------------------------------------------------------


def test_a_holder_that_hands_over_its_rows_debits_them_without_a_bound() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    asked = {"calibration": "published", "aggregation": "trusted", "basis": "none", "n_components": 1, "delta": 0.01}
    model = unpooled.PrivatePLSRegression(bounds=(-1, 1), y_bounds=(-2, 2), **asked)
    model.fit(X, X[:, 0], sites=np.repeat(["first", "second"], 30))
    plan = model.plan_
    assert {release.party for release in plan.releases} == {"first", "second"}
    assert math.isinf(plan.cost("record", "second").epsilon(0.01))
    assert {entry.key.name for entry in model.ledger_ if entry.key is not None} == {"model", "rows"}
    assert all("unbounded" in entry.words(Unit.RECORD) for entry in model.ledger_)


# --- what is refused, and corners --------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_a_part_of_a_study_that_counts_no_row_and_a_draw_with_another_name_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 row counts"):
        Whole(0)
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        ReleasedInput("prior", "ab" * 32, holds=True, release="the first one")
    one = ReleasedInput("prior", "ab" * 32, holds=True, release="cd" * 32)
    assert list(by_draw([one, one]).values()) == [one]


@pytest.mark.guarantee
def test_more_choices_of_sites_than_are_tried_cost_as_if_all_were_the_persons() -> None:
    """Five sites with releases of their own cost, in each of three analyses: 125 choices."""
    cards = tuple(Card(f"s{k}", 100, COLUMNS[:1]) for k in range(5))
    asked = analyses(*({"name": name, "model": "describe"} for name in ("one", "two", "three")))
    study = Study("analyses", cards, 1.0, DELTA, parameters=asked, derived=(), scattered=True)
    plan = load("analyses").compile(study)
    scales = {card.name: 10.0 + k for k, card in enumerate(cards)}
    releases = tuple(
        type(r)(r.name, r.party, r.step, GaussianRelease(r.mechanism.blocks, r.mechanism.reach, scales[r.party]))
        for r in plan.releases
    )
    every = math.sqrt(sum(release.event(Unit.RECORD).value ** 2 for release in releases))
    found = type(plan)(study, plan.split, releases).epsilon(DELTA)
    assert found == pytest.approx(gaussian_epsilon(DELTA, every), rel=1e-6)


@pytest.mark.guarantee
def test_a_chain_that_debits_a_release_twice_is_refused() -> None:
    ledger = Ledger.in_memory()
    key = ReleaseKey("ab" * 32, "sums", 0, "sums")
    costs = tuple(Cost(unit, "", Event(Kind.GAUSSIAN, 0.1)) for unit in ROWWISE)
    ledger.reserve([Charge(key, bytes(32), costs)], None)
    history, told = History(), msgspec.json.decode(ledger.export())["rows"]
    for row in (*told, [len(told), *told[-1][1:]]):
        columns = [
            bytes.fromhex(v) if isinstance(Row._field_defaults[n], bytes) else v
            for v, n in zip(row, Row._fields, strict=True)
        ]
        if row[0] == len(told):
            with pytest.raises(ValueError, match=r"^$"):
                history.take_in(columns, link(history.head.digest, columns))
        else:
            history.take_in(columns, link(history.head.digest, columns))
    assert len(history.charges) == 1
