"""Several fits on the same people share one budget, or are warned about (FINDINGS G7)."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import unpooled
from unpooled import (
    Bounds,
    Budget,
    BudgetWarning,
    PrideRegressor,
    PrivateBayesianRegression,
    PrivateLasso,
    PrivatePLSRegression,
)
from unpooled.errors import BudgetRefusal, UsageError, UtilityWarning
from unpooled.privacy import budget as module
from unpooled.privacy.accounting import Composition
from unpooled.privacy.unit import Unit

RNG = np.random.default_rng(3)
X, Y = RNG.uniform(-1, 1, (200, 4)), RNG.uniform(-1, 1, 200)
LABELS = np.where(X[:, 0] > 0, 1, 0)


def bayes(**changes) -> PrivateBayesianRegression:
    return PrivateBayesianRegression(**{"epsilon": 0.5, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (-1, 1), **changes})


@pytest.fixture
def budget() -> Budget:
    return Budget(1.0, 1e-6)


def test_fits_that_share_a_budget_are_composed_by_the_accountant_and_refused_when_it_is_spent(budget: Budget) -> None:
    fitted = [bayes(budget=budget).fit(X, Y) for _ in range(3)]
    events = [event for model in fitted for event in model.plan_.cost("record").compositions[0].events]
    assert budget.spent == pytest.approx(Composition(events).epsilon(1e-6), rel=1e-9)
    assert 0.5 < budget.spent < 1.0  # and not 1.5
    assert len(budget.entries) == 3
    with pytest.raises(BudgetRefusal, match="no room"):
        bayes(budget=budget).fit(X, Y)
    assert len(budget.entries) == 3


@pytest.mark.slow
@pytest.mark.minutes
def test_every_estimator_and_describe_debit_it() -> None:
    options = {"epsilon": 0.1, "delta": 1e-6, "bounds": (-1, 1)}
    spectra = PrivatePLSRegression(1, basis="none", epsilon=0.1, delta=1e-6, bounds=Bounds(norm=2.0), y_bounds=(-1, 1))
    fits = [
        lambda b: bayes(epsilon=0.1, budget=b).fit(X, Y),
        lambda b: PrideRegressor(2, **options, budget=b).fit(X, Y),
        lambda b: unpooled.PrideClassifier(2, **options, classes=(0, 1), budget=b).fit(X, LABELS),
        lambda b: unpooled.PrivateLogisticRegression(epsilon=0.1, bounds=(-1, 1), classes=(0, 1), budget=b).fit(X, LABELS),
        lambda b: unpooled.PrivateStackingClassifier(2, epsilon=0.1, bounds=(-1, 1), classes=(0, 1), budget=b).fit(
            X, LABELS
        ),
        lambda b: PrivateLasso(2, y_bounds=(-1, 1), rounds=2, **options, budget=b).fit(X, Y),
        lambda b: _quiet(lambda: spectra.set_params(budget=b).fit(X, Y)),
        lambda b: unpooled.describe(X, (-1, 1), epsilon=0.1, delta=1e-6, budget=b),
    ]
    for fit in fits:
        budget = Budget(1000.0, 1e-6)
        made = fit(budget)
        assert budget.spent == pytest.approx(made.plan_.cost(Unit.RECORD).epsilon(1e-6), rel=1e-9)
        fit(budget)
        assert [entry.kind for entry in budget.entries] == ["shared"] * 2  # whole plans, for the people in all parties' rows


def _quiet(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit()


def test_the_total_is_for_its_own_unit_whatever_a_fit_asks_for() -> None:
    """PRIDE's epsilon is for one value; a budget per record counts whole rows of all parties."""
    whole = Budget(1000.0, 1e-6)
    values = Budget(1000.0, 1e-6, "attribute")
    for budget in (whole, values):
        model = PrideRegressor(2, epsilon=1.0, delta=1e-6, bounds=(-1, 1), budget=budget).fit(X, Y)
    assert values.spent <= 1.0 < whole.spent == pytest.approx(model.plan_.epsilon(1e-6, "record"))


def test_predicting_at_a_party_is_a_release_and_a_debit(budget: Budget) -> None:
    budget = Budget(100.0, 1e-6, "attribute")
    model = PrideRegressor({"a": [0, 1], "b": [2, 3]}, epsilon=0.5, delta=1e-6, bounds=(-1, 1), budget=budget).fit(X, Y)
    once = budget.spent
    model.predict_at("a", X)
    model.predict_at("a", X)
    assert len(budget.entries) == 3
    assert budget.spent > once


@pytest.mark.guarantee
def test_a_refused_fit_costs_nothing(budget: Budget) -> None:
    with pytest.raises(BudgetRefusal):
        bayes(epsilon=2.0, budget=budget).fit(X, Y)
    with pytest.raises(BudgetRefusal):
        bayes(epsilon=np.inf, budget=budget).fit(X, Y)  # no noise has no price
    with pytest.raises(UsageError):
        bayes(budget=budget, tolerate=5).fit(X, Y, sites=np.repeat(["a", "b"], 100))
    assert budget.entries == ()
    assert budget.spent == 0


@pytest.mark.guarantee
def test_an_account_in_memory_stays_with_its_process(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(UsageError, match="path"):
        bayes(budget=budget).fit(X, Y)


@pytest.mark.guarantee
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, clone])
def test_copies_and_clones_keep_the_same_budget(budget: Budget, copied) -> None:
    model = bayes(budget=budget)
    assert copied(model).budget is copied(budget) is budget
    copied(model).fit(X, Y)
    assert len(budget.entries) == 1


def test_a_search_cannot_spend_more_than_the_budget(budget: Budget) -> None:
    search = GridSearchCV(bayes(epsilon=0.2, budget=budget), {"prior_precision": [0.1, 1.0]}, cv=3, error_score="raise")
    search.fit(X, Y)
    assert len(budget.entries) == 7  # two times three folds, and the refit
    with pytest.raises(BudgetRefusal):
        cross_val_score(bayes(epsilon=0.9, budget=budget), X, Y, cv=3, error_score="raise")


@pytest.mark.guarantee
def test_without_a_file_it_is_not_sent_to_other_processes(budget: Budget) -> None:
    for thing in (budget, bayes(budget=budget)):
        with pytest.raises(UsageError, match="path="):
            pickle.dumps(thing)


@pytest.mark.guarantee
@pytest.mark.minutes
def test_with_a_file_processes_share_it(tmp_path: Path) -> None:
    budget = Budget(1.0, 1e-6, path=tmp_path / "shared")
    scores = cross_val_score(bayes(epsilon=0.3, budget=budget), X, Y, cv=2, n_jobs=2)
    assert scores.shape == (2,)
    assert len(budget.entries) == 2
    again = pickle.loads(pickle.dumps(budget))
    assert (again.epsilon, again.delta, again.unit, again.spent) == (1.0, 1e-6, "record", budget.spent)
    assert str(again) == str(budget)
    with pytest.raises(BudgetRefusal):
        bayes(epsilon=0.99, budget=again).fit(X, Y)
    assert repr(again) == f"Budget(epsilon=1, delta=1e-06, unit='record', path={str(tmp_path / 'shared')!r})"


def _spend(budget: Budget, queue) -> None:
    try:
        bayes(epsilon=0.3, budget=budget).fit(X, Y)
        queue.put("fitted")
    except UsageError as error:
        queue.put(str(error))


def test_a_forked_child_shares_a_file_and_not_a_memory(tmp_path: Path, budget: Budget) -> None:
    context = multiprocessing.get_context("fork")
    for given, words in ((budget, "path="), (Budget(1.0, 1e-6, path=tmp_path / "shared"), "fitted")):
        queue = context.Queue()
        child = context.Process(target=_spend, args=(given, queue))
        child.start()
        assert words in queue.get(timeout=60)
        child.join(60)
    assert budget.entries == ()
    assert len(given.entries) == 1


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "wrong", [{"epsilon": np.inf}, {"epsilon": -1.0}, {"delta": 2.0}, {"unit": "person"}, {"epsilon": "1"}]
)
def test_a_budget_is_a_finite_promise(wrong: dict) -> None:
    with pytest.raises(UsageError):
        Budget(**{"epsilon": 1.0, "delta": 1e-6, **wrong})


@pytest.mark.guarantee
def test_a_budget_says_what_it_has(budget: Budget) -> None:
    assert str(budget) == "epsilon = 0 of 1 spent at delta = 1e-06 per record, by 0 fits"
    assert repr(budget) == "Budget(epsilon=1, delta=1e-06, unit='record')"
    bayes(epsilon=0.25, budget=budget).fit(X, Y)
    assert str(budget) == f"epsilon = {budget.spent:.6g} of 1 spent at delta = 1e-06 per record, by 1 fit"
    assert 0.2 < budget.spent <= 0.25
    bayes(epsilon=0.25, budget=budget).fit(X, Y)
    assert str(budget).endswith("by 2 fits")


# --- without a budget --------------------------------------------------------------------------------------------------------


def test_fitting_the_same_rows_again_warns_once() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UtilityWarning)
        bayes().fit(X, Y)
        bayes().fit(RNG.uniform(-1, 1, (200, 4)), Y)  # other people
    with pytest.warns(BudgetWarning, match="budget=unpooled.Budget"):
        PrivateLasso(2, y_bounds=(-1, 1), rounds=2, epsilon=0.5, bounds=(-1, 1)).fit(X[:50], Y[:50])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UtilityWarning)
        bayes().fit(X, Y)


@pytest.mark.guarantee
def test_sparse_rows_are_not_remembered() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UtilityWarning)
        for _ in range(2):
            PrivateLasso(2, y_bounds=(-1, 1), rounds=2, epsilon=0.5, bounds=(-1, 1)).fit(csc_array(X), Y)


@pytest.mark.parametrize(
    "how", [{"random_state": 0}, {"epsilon": np.inf}, {"bounds": None}, {"calibration": "published"}, {"budget": 1}]
)
def test_what_promises_nothing_or_has_a_budget_does_not_warn(how: dict) -> None:
    if "budget" in how:
        how = {"budget": Budget(100.0, 1e-6)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", BudgetWarning)
        warnings.simplefilter("ignore", unpooled.PrivacyLeakWarning)
        for _ in range(2):
            bayes(**how).fit(X, Y)


@pytest.mark.guarantee
def test_rows_that_many_people_share_tell_nobody_apart() -> None:
    sex = RNG.choice(["f", "m"], 300).astype(object)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UtilityWarning)
        for part in (sex[:150], sex[150:]):
            unpooled.describe({"sex": part}, Bounds(categories={"sex": ["f", "m"]}))


def test_what_is_remembered_is_bounded_and_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 100)
    bayes().fit(X, Y)
    assert module._memory._seen.size == 100
    other = module._Memory()
    assert not np.array_equal(other._digests([X[:, 0]]), module._memory._digests([X[:, 0]]))  # another key


def test_every_statement_says_that_fits_add_up() -> None:
    text = str(bayes().plan(200, 4).statement)
    assert "Every other run on the same people adds to their loss" in text
    assert "learned earlier from the same data" in text


def test_rows_of_small_whole_numbers_have_digests_of_their_own() -> None:
    """Their floats differ in few of the highest bits alone; a digest that mixed these upwards only would take different people for the same."""
    places = np.random.default_rng(5).choice(200**3, 50_000, replace=False)
    columns = [values.astype(float) for values in np.unravel_index(places, (200, 200, 200))]
    assert np.unique(module._Memory()._digests(columns)).size == places.size
