"""No consumer of a producer that promises nothing ever holds: every producer of a public input, with everything that takes one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import unpooled
from unpooled import (
    Bounds,
    Budget,
    PrivateBayesianRegression,
    PrivateGLM,
    PrivateLasso,
    PrivateLogisticRegression,
    PrivatePLSRegression,
)
from unpooled.errors import BudgetRefusal, UsageError
from unpooled.privacy.events import Kind
from unpooled.privacy.origin import INPUT_WORDS, Origin, PastEvent
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.unit import Unit

pytestmark = pytest.mark.filterwarnings("ignore::unpooled.PrivacyLeakWarning", "ignore::unpooled.UtilityWarning")
RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (600, 2))
Y = np.clip(X[:, 0] - X[:, 1] / 2, -1, 1)
CLASS = (Y > 0).astype(int)
WELL = {"epsilon": 2.0, "delta": 1e-5, "bounds": (-1, 1)}


def paid(**changes: object) -> Bounds:
    """Ranges that were paid for, or that cost more than anybody said."""
    # Noise in the count of missing values decides whether they are admitted: here none are.
    return replace(unpooled.describe(X, bounds=True, **{"epsilon": 2.0, "delta": 1e-5} | changes).bounds_, missing="refuse")


#: How a fit comes by its promise: parameters, and whether there is one.
PRODUCERS: dict[str, tuple[Callable[[], dict], bool]] = {
    "sound": (dict, True),
    "no noise": (lambda: {"epsilon": math.inf}, False),
    "a seed": (lambda: {"random_state": 0}, False),
    "derived bounds": (lambda: {"bounds": None}, False),
    "paid ranges": (lambda: {"bounds": paid()}, True),
    "seeded ranges": (lambda: {"bounds": paid(random_state=0)}, False),
    "ranges without noise": (lambda: {"bounds": paid(epsilon=math.inf)}, False),
}
ESTIMATORS: dict[str, tuple[Callable[..., object], np.ndarray, dict]] = {
    "regression": (PrivateBayesianRegression, Y, {"y_bounds": (-1, 1)}),
    "moments": (PrivateBayesianRegression, Y, {"y_bounds": (-1, 1), "method": "moments"}),
    "glm": (PrivateGLM, CLASS, {"classes": (0, 1)}),
    "pls": (PrivatePLSRegression, Y, {"y_bounds": (-1, 1), "basis": "none"}),
    "logistic": (PrivateLogisticRegression, CLASS, {"classes": (0, 1)}),
    "lasso": (PrivateLasso, Y, {"y_bounds": (-1, 1)}),
}
#: Further ways to have no promise, of single estimators.
OTHERS = {
    ("glm", "derived classes"): ({"classes": None}, False),
    ("logistic", "derived classes"): ({"classes": None}, False),
    ("regression", "derived response"): ({"y_bounds": None}, False),
    ("moments", "published"): ({"calibration": "published"}, False),
    ("logistic", "published"): ({"calibration": "published"}, False),
    ("lasso", "published"): ({"calibration": "published", "parties": 1}, False),
    ("pls", "published"): ({"calibration": "published", "n_components": 1}, False),
}
CASES = [
    *((model, how, make, holds) for model, (how, (make, holds)) in itertools.product(ESTIMATORS, PRODUCERS.items())),
    *((model, how, lambda more=more: more, holds) for (model, how), (more, holds) in OTHERS.items()),
]
NAMED = pytest.mark.parametrize(
    ("model", "make", "holds"),
    [(model, make, holds) for model, _, make, holds in CASES],
    ids=[f"{model}: {how}" for model, how, *_ in CASES],
)


def fit(model: str, make: Callable[[], dict], **more: object) -> object:
    kind, response, own = ESTIMATORS[model]
    return kind(**{**WELL, **own, **make(), **more}).fit(X, response)


@NAMED
def test_a_diagnosis_promises_nothing_where_its_model_promised_nothing(model: str, make: Callable, holds: bool) -> None:
    fitted = fit(model, make)
    assert fitted.statement_.holds is holds
    options = {"epsilon": 1.0, "delta": 1e-5} | ({} if model in {"glm", "logistic"} else {"y_bounds": (-1, 1)})
    response = ESTIMATORS[model][1]
    found = unpooled.diagnose(fitted, X, response, **options)
    assert found.statement_.holds is holds
    assert holds or any("that released the model's coefficients" in words for words in found.statement_.warnings)
    # The caller says that the rows are others: then the model is a public constant, whoever made it.
    others = unpooled.diagnose(fitted, X, response, rows="others", **options)
    assert others.statement_.holds
    assert any("Other people's data supplied the model's coefficients" in words for words in others.statement_.assumptions)
    # What rests on the diagnosis of a hollow model is as hollow: its own plan says so.
    assert found.plan_.origin("bounds").holds is holds


@NAMED
def test_a_budget_counts_no_fit_that_promises_nothing(model: str, make: Callable, holds: bool) -> None:
    budget = Budget(100.0, 1e-3)
    if holds:
        fit(model, make, budget=budget)
        assert (len(budget.entries), budget.spent > 0) == (1, True)
        return
    with pytest.raises(BudgetRefusal, match="cannot count a fit that promises nothing"):
        fit(model, make, budget=budget)
    assert (budget.entries, budget.spent) == ((), 0.0)


@pytest.mark.parametrize("more", [{"random_state": 0}, {"epsilon": math.inf}, {"bounds": None}], ids=str)
def test_a_budget_counts_no_description_that_promises_nothing(more: dict) -> None:
    budget = Budget(100.0, 1e-3)
    with pytest.raises(BudgetRefusal, match="promises nothing"):
        unpooled.describe(X, **{"bounds": (-1, 1)} | more, budget=budget)
    assert budget.spent == 0.0


def test_a_diagnosis_of_saved_moments_remembers_whether_they_held(tmp_path: object) -> None:
    for make, holds in ((dict, True), (lambda: {"random_state": 0}, False)):
        moments = fit("moments", make).moments_
        moments.save(tmp_path / "moments")
        model = PrivateBayesianRegression.from_moments(unpooled.load(tmp_path / "moments"))
        assert unpooled.diagnose(model, X, Y, y_bounds=(-1, 1)).statement_.holds is holds


def test_plain_weights_are_named_under_assumed() -> None:
    options = {"classes": (0, 1), "method": "perturbation", **WELL}
    weights = PrivateLogisticRegression(**options).fit(X, CLASS).released_["all"]
    again = PrivateLogisticRegression(source=weights, **options).fit(X, CLASS)
    assert any("nothing here checks where they come from" in words for words in again.statement_.assumptions)
    assert not any("source" in words for words in PrivateLogisticRegression(**options).plan(600, 2).statement.assumptions)


def study(*origins: Origin, **changes: object) -> Study:
    from unpooled.privacy.bounds import Column

    cards = (Card("a", 500, (Column("x", 0.0, 1.0),)), Card("b", 400, (Column("x", 0.0, 1.0),)))
    return Study(
        **{"model": "describe", "parties": cards, "epsilon": 1.0, "delta": 1e-5, "derived": (), "origins": origins} | changes
    )


EVENTS = {unit: PastEvent(unit, "", "GAUSSIAN", 0.5, 2) for unit in Unit}


@pytest.mark.parametrize("input_", INPUT_WORDS)
@pytest.mark.parametrize("unit", ["record", "attribute"])
def test_a_price_joins_once_for_every_plan_and_never_for_other_people(input_: str, unit: str) -> None:
    from unpooled.models.describe import MODEL

    one = Origin(input_, "ab" * 32, holds=True, events=tuple(EVENTS.values()))
    alone = MODEL.compile(study(unit=unit)).statement.epsilon_per_unit
    with_it = MODEL.compile(study(one, unit=unit)).statement
    twice = MODEL.compile(study(one, msgspec.structs.replace(one, input="source"), unit=unit)).statement
    two = MODEL.compile(study(one, msgspec.structs.replace(one, plan="cd" * 32), unit=unit)).statement
    others = MODEL.compile(study(one.of_others(), unit=unit)).statement
    for each in ("record", "attribute"):
        assert alone[each] < with_it.epsilon_per_unit[each] == twice.epsilon_per_unit[each] < two.epsilon_per_unit[each]
        assert others.epsilon_per_unit[each] == alone[each]
    assert with_it.holds
    hollow = MODEL.compile(study(Origin(input_, "ab" * 32, holds=False), unit=unit)).statement
    assert not hollow.holds
    assert MODEL.compile(study(Origin(input_, "ab" * 32, holds=False, rows="others"), unit=unit)).statement.holds


def test_alternatives_of_an_earlier_plan_are_no_sum() -> None:
    """A row is at one site: a description of two sites costs it one of their releases."""
    from unpooled.models.describe import MODEL

    plan = MODEL.compile(study())
    origin = plan.origin("bounds")
    again = MODEL.compile(study(origin))
    mu = plan.release("a", "sums").event(Unit.RECORD).value
    assert again.statement.epsilon_per_unit["record"] == pytest.approx(
        MODEL.compile(
            study(Origin("bounds", "ab" * 32, holds=True, events=(PastEvent("record", "", Kind.GAUSSIAN.name, mu, 1),)))
        ).statement.epsilon_per_unit["record"]
    )


@pytest.mark.parametrize(
    "change",
    [
        {"input": "weather"},
        {"rows": "some"},
        {"events": (PastEvent("person", "", "GAUSSIAN", 1.0, 1),)},
        {"events": (PastEvent("record", "", "LAPLACE", 1.0, 1),)},
    ],
    ids=str,
)
def test_an_origin_that_makes_no_sense_is_refused(change: dict) -> None:
    with pytest.raises(UsageError):
        Origin(**{"input": "bounds", "plan": "ab" * 32, "holds": True} | change)
