"""No consumer of a producer that promises nothing ever holds: every producer of a public input, with everything that takes one."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from sklearn.base import clone

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
from unpooled.errors import BudgetRefusal, StudyError, UsageError
from unpooled.estimation.base import StudyEstimator
from unpooled.inference.saving import pack, unpack
from unpooled.models import load
from unpooled.models.analyses.fit import Failed
from unpooled.privacy.events import Kind
from unpooled.privacy.origin import INPUT_WORDS, PastEvent, ReleasedInput
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.unit import Unit
from unpooled.study import earlier

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
    ("glm", "0 and 1"): ({"classes": None}, True),
    ("logistic", "0 and 1"): ({"classes": None}, True),
    ("regression", "derived response"): ({"y_bounds": None}, False),
    ("moments", "published"): ({"calibration": "published", "projection": 0.0}, False),
    ("logistic", "published"): ({"calibration": "published", "delta": None}, False),
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


@pytest.mark.slow
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
        plan = fit(model, make, budget=budget).plan_
        # Ranges that were paid for elsewhere are debited with the first fit that uses them.
        assert {entry.plan for entry in budget.entries} == {plan.hash, *(origin.plan for origin in plan.study.origins)}
        assert budget.spent == pytest.approx(at_delta(plan, 1e-3), rel=1e-9)
        return
    with pytest.raises(BudgetRefusal, match="cannot count a fit that promises nothing"):
        fit(model, make, budget=budget)
    assert (budget.entries, budget.spent) == ((), 0.0)


@pytest.mark.guarantee
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
    again = PrivateLogisticRegression(prior=list(weights), **options).fit(X, CLASS)
    assert any("nothing here checks where they come from" in words for words in again.statement_.assumptions)
    assert not any("drawn to" in words for words in PrivateLogisticRegression(**options).plan(600, 2).statement.assumptions)


# --- all pairs -----------------------------------------------------------------------------------------------------------


def options_of(kind: type) -> dict[str, object]:
    """What a plan of this estimator has to have declared."""
    needed = {"y_bounds": (-1, 1), "classes": (0, 1), "parties": 2}
    known = inspect.signature(kind).parameters  # where they may be left out, parties hold rows
    left_out = {name for name in ("parties",) if name in known and known[name].default is None}
    return WELL | {name: needed[name] for name in needed if name in known.keys() - left_out} | NEEDED.get(kind.__name__, {})


def recompiled(plan: Plan, **changes: object) -> Plan:
    return load(plan.study.row).compile(msgspec.structs.replace(plan.study, **changes))


def at_delta(plan: Plan, delta: float) -> float:
    return plan._together(Unit.RECORD).epsilon(delta)


#: An effect takes the ranges of all its columns.
TRIAL = {"arm": ["old", "new"], "x": (-1.0, 1.0), "y": (-1.0, 1.0)}
NEEDED = {
    "PrivatePLSRegression": {"basis": "none"},
    "PrivateLogisticRegression": {"method": "perturbation"},
    "PrideGLM": {"family": "poisson", "y_bounds": (0, 1)},
    "PrivateGLM": {"family": "poisson", "y_bounds": (0, 1)},
    "TreatmentEffect": {"treatment": "arm", "outcome": "y", "bounds": TRIAL},
}
KINDS = {
    name: kind
    for name in unpooled.__all__
    if name != "PrivateBayesianRegression"
    and inspect.isclass(kind := getattr(unpooled, name))
    and issubclass(kind, StudyEstimator)
}
#: Ways to promise something and nothing: how the plan of a producer comes about.
STATES: dict[str, tuple[Callable[[Callable[..., Plan]], Plan], bool]] = {
    "sound": (lambda make: make(), True),
    "no noise": (lambda make: make(epsilon=math.inf), False),
    "a seed": (lambda make: make(random_state=0), False),
    "bounds read off": (lambda make: recompiled(make(), derived=("bounds",)), False),
    "classes read off": (lambda make: recompiled(make(), derived=("classes",)), False),
    "published": (lambda make: make(calibration="published"), False),
    "of a hollow plan": (lambda make: recompiled(make(), origins=(ReleasedInput("bounds", "ef" * 32, holds=False),)), False),
}


def described(**changes: object) -> Plan:
    return unpooled.describe(X, bounds=True, **{"epsilon": 2.0, "delta": 1e-5} | changes).plan_


@cache
def producer(name: str, state: str) -> Plan | None:
    """The plan of a producer in this state; None where the state is not one of its."""

    def make(**changes: object) -> Plan:
        if name == "describe":
            return described(**changes)
        kind = KINDS[name]
        options = options_of(kind) | changes
        if "calibration" in changes and kind in {KINDS["PrivateStackingClassifier"], KINDS["PrivateLogisticRegression"]}:
            options["delta"] = None  # that paper's promise is pure
        return kind(**options).plan(600, 2)

    try:
        return STATES[state][0](make).drawn(sha256(f"{name} {state}".encode()).hexdigest())
    except (UsageError, TypeError):
        assert state in {"published", "no noise"}, (name, state)
        return None


def weights_of(name: str) -> object:
    """Weights as a source takes them: of a party alone, or of each."""
    plan = producer(name, "sound")
    weights = {block.card.name: [0.1] * block.numbers for block in plan.design.blocks}
    return weights if name == "PrivateStackingClassifier" else weights["all"]


def prior_of(name: str) -> object:
    """An earlier model: released weights where the penalty pulls to them, else coefficients."""
    released = name in {"PrivateLogisticRegression", "PrivateStackingClassifier"}
    numbers = {"ATE": -1.0} if name == "TreatmentEffect" else {"x0": 1.0, "x1": -0.5}
    return weights_of(name) if released else numbers


#: Every parameter of an estimator that takes a public input, and a value for it.
TAKEN: dict[str, Callable[[str], object]] = {
    "bounds": lambda name: TRIAL if name == "TreatmentEffect" else (-1.0, 1.0),
    "y_bounds": lambda name: (0.0, 1.0) if name.endswith("GLM") else (-1.0, 1.0),
    "classes": lambda _: (0, 1),
    "basis": lambda _: np.eye(2),
    "reference": lambda _: np.zeros(2),
    "prior": prior_of,
    "rates": lambda _: [0.4, 0.6],
    "prior_precision": lambda _: 2.0,
    "noise_precision": lambda _: 2.0,
    "offset_bounds": lambda _: (-1.0, 1.0),
    "exposure_bounds": lambda _: (1.0, 2.0),
    "weights_bounds": lambda _: (0.0, 1.0),
    "dispersion": lambda _: 1.0,
}
PAIRS = [
    (name, taken, made)
    for name, kind in KINDS.items()
    for taken, made in itertools.product(TAKEN, [*KINDS, "describe"])
    if taken in inspect.signature(kind).parameters
]


@cache
def alone_epsilon(name: str, taken: str) -> float:
    """The epsilon of a consumer whose input is declared."""
    said = consumed(name, taken, TAKEN[taken](name)).statement
    return said.epsilon_per_unit[said.unit]


def consumed(name: str, taken: str, value: object) -> Plan:
    kind = KINDS[name]
    return kind(**options_of(kind) | {taken: value}).plan(600, 2)


def check_pair(name: str, taken: str, made: str, state: str) -> None:
    """The consumer takes a value that the producer released: whether it holds, what it costs, and what it says of it."""
    plan, holds = producer(made, state), STATES[state][1]
    if plan is None:
        return
    assert plan.origin("bounds").holds is holds, (made, state)
    value = TAKEN[taken](name)
    what = "bounds" if "bounds" in taken else taken if taken in INPUT_WORDS else "prior"
    found = consumed(name, taken, plan.sourced(what, value))
    said = found.statement
    assert said.holds is holds
    assert f"{INPUT_WORDS[what]} (plan {plan.hash[:12]}" in str(said)
    budget = Budget(1e4, 1e-5)
    if not holds:
        if made == "describe":
            with pytest.raises(BudgetRefusal):
                budget.claim(found, "0" * 64)
            others = consumed(name, taken, plan.sourced(what, value).of_others()).statement
            assert others.holds
            assert "Other people's data supplied" in str(others)
        return
    assert alone_epsilon(name, taken) < said.epsilon_per_unit[said.unit] < math.inf
    budget.claim(found, "0" * 64).pay()
    assert budget.spent == pytest.approx(at_delta(found, 1e-5), rel=1e-9)
    assert len(budget.entries) == 2
    if made == "describe":
        budget.claim(found, "1" * 64).pay()  # the producer is debited once
        assert len(budget.entries) == 3


@pytest.mark.long_for("PrivateLinearRegression", "PrideClassifier", "PrideGLM", "PrivateGLM")
@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_no_consumer_of_a_producer_that_promises_nothing_holds(name: str) -> None:
    """Every producer with every parameter: when it is sound, and in one of the states in which it promises nothing, in turn."""
    hollow, first = list(STATES)[1:], list(KINDS).index(name)
    turns = {made: itertools.cycle([*hollow[first % 6 :], *hollow[: first % 6]]) for made in [*KINDS, "describe"]}
    for consumer, taken, made in PAIRS:
        if consumer == name:
            check_pair(name, taken, made, "sound")
            check_pair(name, taken, made, next(state for state in turns[made] if producer(made, state) is not None))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("made", [*KINDS, "describe"])
def test_every_producer_is_known_for_what_it_promises(made: str, state: str) -> None:
    check_pair("PrivateLinearRegression", "bounds", made, state)


@pytest.mark.parametrize("name", KINDS)
def test_declared_inputs_are_named_under_assumed(name: str) -> None:
    for taken in {taken for consumer, taken, _ in PAIRS if consumer == name}:
        plan = consumed(name, taken, TAKEN[taken](name))
        said = plan.statement
        assert said.holds
        assert any("declared by the parties' cards without looking at the data" in words for words in said.assumptions)
        if taken in plan.study.inputs and taken != "bounds":  # classes may be on the cards
            assert any(w.startswith("Declared by the analyst") and INPUT_WORDS[taken] in w for w in said.assumptions)
    assert plan.study.inputs.keys() <= INPUT_WORDS.keys()


@pytest.mark.slow
def test_a_door_that_forgets_origins_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: the door of all estimators, and that of single parameters."""
    from unpooled.estimation import base

    whole = base.released_origins
    for forgotten in (object, list, tuple, np.ndarray, float):
        monkeypatch.setattr(
            base, "released_origins", lambda given, kind=forgotten: whole(v for v in given if not isinstance(v, kind))
        )
        noticed = []
        for consumer, taken, made in PAIRS:
            if made == "describe" and isinstance(TAKEN[taken](consumer), forgotten):
                with pytest.raises(AssertionError):
                    check_pair(consumer, taken, made, "a seed")
                noticed.append(taken)
        assert noticed


def test_a_budget_that_forgets_origins_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unpooled.privacy.budget._costs", lambda _: ())
    with pytest.raises(AssertionError):
        check_pair("PrivateGLM", "bounds", "describe", "sound")


@pytest.mark.parametrize("state", ["sound", "no noise", "a seed"])
@pytest.mark.parametrize("taken", ["bounds", "y_bounds"])
def test_functions_take_origins_through_the_same_door(taken: str, state: str) -> None:
    plan, holds = producer("describe", state), STATES[state][1]
    value = plan.sourced("bounds", (-1.0, 1.0))
    if taken == "bounds":
        found = unpooled.describe(X, value, epsilon=1.0, delta=1e-5)
    else:
        model = fit("regression", dict)
        found = unpooled.diagnose(model, X, Y, y_bounds=value, epsilon=1.0, delta=1e-5)
    assert found.statement_.holds is holds
    assert f"the bounds (plan {plan.hash[:12]}" in str(found.statement_)


@pytest.mark.parametrize("name", KINDS)
def test_no_number_of_an_estimator_forgets_that_nothing_holds(name: str) -> None:
    """Whatever parameter a number from a hollow plan is passed to: nothing holds, or a whole number is asked for."""
    kind, hollow, tried = KINDS[name], producer("describe", "a seed"), 0
    for taken, known in inspect.signature(kind).parameters.items():
        value = options_of(kind).get(taken, known.default)
        if isinstance(value, bool | str | None) or value is inspect.Parameter.empty:
            continue
        tried += 1
        with pytest.raises(UsageError, match="whole number") if isinstance(value, int) else nullcontext():
            assert not consumed(name, taken, hollow.sourced("bounds", value)).statement.holds, taken
    assert tried >= 3


@cache
def trial() -> dict[str, object]:
    """People of a trial: arm, age, time and event."""
    rng = np.random.default_rng(0)
    arm, event = rng.choice(np.array(["old", "new"]), 400).tolist(), rng.integers(0, 2, 400).astype(float)
    return {"arm": arm, "age": rng.uniform(0, 100, 400), "days": rng.uniform(0, 10, 400), "died": event}


#: Functions that fit a study, with everything public that they take.
FUNCTIONS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "tabulate": (
        lambda **given: unpooled.tabulate(trial(), ["arm", "age"], **given),
        {
            "bounds": {"arm": ["old", "new"], "age": (0.0, 100.0)},
            "cuts": {"age": [50.0]},
            "totals": {"arm": {"old": 190, "new": 210}},
        },
    ),
    "survival": (
        lambda **given: unpooled.survival(trial(), "days", "died", "arm", **given),
        {
            "bounds": {"arm": ["old", "new"], "days": (0.0, 10.0), "died": (0.0, 1.0)},
            "cuts": [2.0, 5.0],
            "horizon": 5.0,
        },
    ),
    "describe": (
        lambda **given: unpooled.describe(trial(), by="arm", **given),
        {"bounds": {"arm": ["old", "new"], "age": (0.0, 100.0), "days": (0.0, 10.0), "died": (0.0, 1.0)}},
    ),
}


@pytest.mark.parametrize("state", ["sound", "a seed"])
@pytest.mark.parametrize(("name", "taken"), [(name, taken) for name, (_, said) in FUNCTIONS.items() for taken in said])
def test_every_input_of_a_function_keeps_its_origin(name: str, taken: str, state: str) -> None:
    call, said = FUNCTIONS[name]
    plan, holds = producer("describe", state), STATES[state][1]
    found = call(**said | {taken: plan.sourced("bounds", said[taken])}, epsilon=1.0, delta=1e-5)
    assert found.statement_.holds is holds
    assert f"the bounds (plan {plan.hash[:12]}" in str(found.statement_)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("rows", ["same", "others"])
def test_a_cited_run_is_a_producer(state: str, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, holds = producer("PrivateStackingClassifier", state), STATES[state][1]
    models = [SimpleNamespace(party=b.card.name, weights=(0.1,) * b.numbers) for b in plan.design.blocks]
    monkeypatch.setattr(earlier, "read_record", lambda _: (None, plan, SimpleNamespace(models=models), None))
    (tmp_path / earlier.RECORD).touch()
    asked = plan.study.parameters | {"prior": "run:.", "prior_rows": rows}
    del asked["source"]
    if not holds and rows == "same":
        with pytest.raises(StudyError, match="no guarantee holds"):
            earlier.with_cited("stacking", asked, plan.study.parties, tmp_path)
        return
    parameters, origins = earlier.with_cited("stacking", asked, plan.study.parties, tmp_path)
    base = producer("PrivateStackingClassifier", "sound")
    found = recompiled(base, parameters=parameters, origins=origins).statement
    assert found.holds is (rows == "same" or all(not origin.voids for origin in origins))
    assert f"the prior (plan {plan.hash[:12]}" in str(found)
    dearer = found.epsilon_per_unit["record"] > base.statement.epsilon_per_unit["record"]
    assert dearer is (not all(origin.rows == "others" for origin in origins))


@pytest.mark.slow
def test_one_analysis_of_a_cited_run_is_cited_by_name_and_not_without_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = producer("PrivateStackingClassifier", "sound")
    listed = [{"name": name, "model": alone.study.model, "parameters": alone.study.parameters} for name in ("one", "two")]
    whole = load("analyses").compile(
        msgspec.structs.replace(alone.study, model="analyses", parameters={"analyses": listed}, trust={})
    )
    models = [SimpleNamespace(party=b.card.name, weights=(0.1,) * b.numbers) for b in alone.design.blocks]
    results = {"one": SimpleNamespace(models=models), "two": Failed("no result follows from these replies")}
    monkeypatch.setattr(earlier, "read_record", lambda _: (None, whole, results, None))
    (tmp_path / earlier.RECORD).touch()
    asked = alone.study.parameters | {"prior": "run:."}
    del asked["source"]
    _, origins = earlier.with_cited("stacking", asked | {"prior_analysis": "one"}, alone.study.parties, tmp_path)
    assert [origin.plan for origin in origins] == [whole.hash]
    with pytest.raises(StudyError, match="has no result: no result follows"):
        earlier.with_cited("stacking", asked | {"prior_analysis": "two"}, alone.study.parties, tmp_path)
    with pytest.raises(StudyError, match="name one with prior_analysis"):
        earlier.with_cited("stacking", asked, alone.study.parties, tmp_path)


@pytest.mark.parametrize("state", ["sound", "a seed", "no noise", "published"])
def test_released_weights_carry_their_origin_through_copies_files_and_clones(state: str, tmp_path: Path) -> None:
    more = {"sound": {}, "a seed": {"random_state": 0}, "no noise": {"epsilon": math.inf}}.get(
        state, {"calibration": "published", "delta": None}
    )
    options = {"classes": (0, 1), "method": "perturbation", "fit_intercept": False, **WELL}
    model = PrivateLogisticRegression(**options | more).fit(X, CLASS)
    model.save(tmp_path / "model")
    weights = model.released_["all"]
    for value in (
        weights,
        copy.deepcopy(weights),
        pickle.loads(pickle.dumps(weights)),
        unpooled.load(tmp_path / "model").released_["all"],
    ):
        for estimator in (again := PrivateLogisticRegression(prior=value, **options), clone(again)):
            assert estimator.plan(600, 2).statement.holds is (state == "sound")
    array = model.plan_.sourced("basis", np.eye(2))
    for value in (array, copy.deepcopy(array), pickle.loads(pickle.dumps(array)), 2 * array[:, :1]):
        assert value.origins == array.origins


def test_bounds_that_an_earlier_build_saved_are_read() -> None:
    """It called the class of a released origin otherwise."""
    paid_for = described().origins("bounds")
    tree = msgspec.msgpack.decode(pack(paid_for))
    assert tree["tuple"][0]["record"] == "ReleasedInput"
    tree["tuple"][0]["record"] = "Origin"
    assert unpack(msgspec.msgpack.encode(tree)) == paid_for


def test_one_release_counts_once_and_equal_plans_count_each() -> None:
    options = {"epsilon": 1.0, "delta": 1e-5}
    first, second = (unpooled.describe(X, bounds=True, epsilon=1.0, delta=1e-5) for _ in range(2))
    assert first.plan_.hash == second.plan_.hash

    def epsilon(bounds: object, y_bounds: object) -> float:
        model = PrivateBayesianRegression(bounds=bounds, y_bounds=y_bounds, **options)
        plans = [one.plan(600, 2) for one in (model, clone(model), pickle.loads(pickle.dumps(model)))]
        (found,) = {plan.statement.epsilon_per_unit["record"] for plan in plans}
        return found

    once = epsilon(first.bounds_, (-1, 1))
    assert epsilon(first.bounds_, first.range("x0")) == epsilon({"x0": first.range("x0"), "x1": (0, 1)}, (-1, 1)) == once
    assert epsilon(Bounds({"x0": first.range("x0"), "x1": (0, 1)}), (-1, 1)) == once
    assert epsilon(first.bounds_, second.range("x0")) > once > epsilon((-1, 1), (-1, 1))


def test_of_bounds_that_were_released_in_part_the_others_are_named_as_declared() -> None:
    """Where any were read off the data, the statement says that nothing holds, and not that they were declared."""
    released, words = unpooled.describe(X, bounds=True), "Bounds that no release supplied were declared by"
    parts, y = {"x0": released.range("x0"), "x1": (0, 1)}, np.linspace(-1, 1, len(X))
    told = unpooled.PrivateLinearRegression(bounds=parts, y_bounds=(-1, 1)).fit(X, y).statement_
    assert sum(words in sentence for sentence in told.assumptions) == 1
    assert told.holds
    with pytest.warns(unpooled.PrivacyLeakWarning):
        derived = unpooled.PrivateLinearRegression(bounds=parts).fit(X, y).statement_
    assert not any(words in sentence for sentence in derived.assumptions)
    assert not derived.holds


def test_a_value_that_was_put_into_a_mapping_of_others_keeps_its_origin() -> None:
    name = "PrivateStackingClassifier"
    sound, seeded = (producer(name, state).sourced("prior", weights_of(name)) for state in ("sound", "a seed"))
    assert consumed(name, "prior", sound).statement.holds
    party = next(iter(sound))
    sound[party] = seeded[party]
    assert not consumed(name, "prior", sound).statement.holds
    assert not consumed(name, "prior", {**sound, party: seeded[party]}).statement.holds


def test_a_row_map_is_named_under_assumed() -> None:
    from unpooled.privacy.bounds import Column

    cards = tuple(Card(name, 500, (Column(name, 0.0, 1.0),), ("y",), key=key * 64) for name, key in (("a", "a"), ("b", "b")))
    asked = Study("pride", cards, 1.0, 1e-5, derived=(), ids=f"psi:{'0' * 64}")
    said = load("pride").compile(asked).statement
    assert "Declared by the parties' cards, and checked by nothing here: the row map." in str(said)


def study(*origins: ReleasedInput, **changes: object) -> Study:
    from unpooled.privacy.bounds import Column

    cards = (Card("a", 500, (Column("x", 0.0, 1.0),)), Card("b", 400, (Column("x", 0.0, 1.0),)))
    return Study(
        **{"model": "describe", "parties": cards, "epsilon": 1.0, "delta": 1e-5, "derived": (), "origins": origins} | changes
    )


EVENTS = {unit: PastEvent(unit, "", "GAUSSIAN", 0.5, 2) for unit in Unit}


@pytest.mark.guarantee
@pytest.mark.parametrize("input_", INPUT_WORDS)
@pytest.mark.parametrize("unit", ["record", "attribute"])
def test_a_price_joins_once_for_every_draw_and_never_for_other_people(input_: str, unit: str) -> None:
    from unpooled.models.describe import MODEL

    one = ReleasedInput(input_, "ab" * 32, holds=True, events=tuple(EVENTS.values()), release="12" * 32)
    alone = MODEL.compile(study(unit=unit)).statement.epsilon_per_unit
    with_it = MODEL.compile(study(one, unit=unit)).statement
    twice = MODEL.compile(study(one, msgspec.structs.replace(one, input="source"), unit=unit)).statement
    two = MODEL.compile(study(one, msgspec.structs.replace(one, release="34" * 32), unit=unit)).statement
    unnamed = msgspec.structs.replace(one, release="")
    nameless = MODEL.compile(study(unnamed, msgspec.structs.replace(unnamed, input="source"), unit=unit)).statement
    free = msgspec.structs.replace(one, input="source", events=())
    freed = [
        MODEL.compile(study(*given, unit=unit)).statement for given in ((one, free), (free, one), (one.of_others(), one))
    ]
    others = MODEL.compile(study(one.of_others(), unit=unit)).statement
    for each in ("record", "attribute"):
        assert alone[each] < with_it.epsilon_per_unit[each] == twice.epsilon_per_unit[each] < two.epsilon_per_unit[each]
        assert others.epsilon_per_unit[each] == alone[each]
        assert nameless.epsilon_per_unit[each] == two.epsilon_per_unit[each]  # what has no name is a draw of its own
        assert {said.epsilon_per_unit[each] for said in freed} == {
            with_it.epsilon_per_unit[each]
        }  # never the cheaper reading
    assert with_it.holds
    hollow = MODEL.compile(study(ReleasedInput(input_, "ab" * 32, holds=False), unit=unit)).statement
    assert not hollow.holds
    assert MODEL.compile(study(ReleasedInput(input_, "ab" * 32, holds=False, rows="others"), unit=unit)).statement.holds


def test_alternatives_of_an_earlier_plan_are_no_sum() -> None:
    """A row is at one site: a description of two sites costs it one of their releases."""
    from unpooled.models.describe import MODEL

    plan = MODEL.compile(study())
    origin = plan.origin("bounds")
    again = MODEL.compile(study(origin))
    mu = plan.release("a", "sums").event(Unit.RECORD).value
    assert again.statement.epsilon_per_unit["record"] == pytest.approx(
        MODEL.compile(
            study(
                ReleasedInput("bounds", "ab" * 32, holds=True, events=(PastEvent("record", "", Kind.GAUSSIAN.name, mu, 1),))
            )
        ).statement.epsilon_per_unit["record"]
    )


@pytest.mark.guarantee
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
        ReleasedInput(**{"input": "bounds", "plan": "ab" * 32, "holds": True} | change)


# --- whatever a fit hands out ------------------------------------------------------------------------------------------------------

#: What a public method of a fit may be asked with, by the name of the parameter.
ASKED = {
    "X": X[:5],
    "C": "x0",
    "alpha": 1.0,
    "columns": ["x0", "x1"],
    "endogenous": "x0",
    "instruments": ["x1"],
    "moments": None,  # the fit's own
    "target": None,  # the fit itself
    "pairs": (X[:50], X[:50] + 0.01),
    "confidence": 0.9,
    "coef_": None,
}
#: Not called: they fit anew, write, or change the estimator.
LEFT = {
    "fit",
    "fit_transform",
    "fit_predict",
    "partial_fit",
    "save",
    "set_params",
    "set_output",
    "of_study",
    "plan",
    "outlook",
    "score",
}


def handed_out(model: object) -> dict[str, object]:
    """Everything that the public names of a fitted estimator give, methods asked with what they need; and the same of what that gives."""
    found: dict[str, object] = {}
    for name in dir(type(model)) + list(vars(model)):
        if name.startswith(("_", "set_")) or name in LEFT:
            continue
        try:
            value = getattr(model, name)
            if callable(value) and not hasattr(value, "coef_"):
                needed = {
                    one.name: one.default
                    for one in inspect.signature(value).parameters.values()
                    if one.default is inspect.Parameter.empty and one.kind is not inspect.Parameter.VAR_KEYWORD
                }
                own = {"moments": getattr(model, "moments_", None), "target": model}
                value = value(**{one: own.get(one) if ASKED.get(one) is None else ASKED[one] for one in needed})
        except (UsageError, AttributeError, TypeError, ValueError, IndexError):
            continue
        found[name] = value
    return found


@pytest.mark.guarantee
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize("model", ["moments", "pls", "glm", "logistic", "lasso"])
def test_nothing_that_a_hollow_fit_hands_out_is_a_prior_that_holds(model: str, tmp_path: Path) -> None:
    """By walking the public names: whatever is taken for an earlier model, also of what a method gives, from a file or a pickle."""
    more = {"method": "moments"} if model == "pls" else {}
    hollow = fit(model, lambda: {"epsilon": math.inf, **more})
    hollow.save(tmp_path / "fit")
    ways = {"itself": hollow, "pickled": pickle.loads(pickle.dumps(hollow)), "loaded": unpooled.load(tmp_path / "fit")}
    given: dict[str, object] = {}
    for way, one in ways.items():
        given[way] = one
        for name, value in handed_out(one).items():
            given[f"{way}: {name}"] = value
            if hasattr(value, "coef_") and way == "itself":
                given |= {f"{name}: {inner}": found for inner, found in handed_out(value).items()}
    taken = []
    for name, value in given.items():
        later = {**WELL, "y_bounds": (-1, 1), "prior": value}
        try:
            plan = PrivateBayesianRegression(**later).plan(600, 2)
        except (UsageError, TypeError, ValueError, AttributeError, KeyError):
            continue
        if "prior" not in plan.study.parameters:  # None
            continue
        taken.append(name)
        assert not plan.statement.holds, name
    assert {"itself", "pickled", "loaded"} <= set(taken)
    assert model == "logistic" or any("as_prior" in name for name in taken)
    if model == "moments":
        assert {"itself: ols", "itself: ridge", "itself: submodel", "itself: from_moments", "itself: to_sklearn"} <= set(
            taken
        )


@pytest.mark.guarantee
def test_numbers_keep_their_origins_through_arithmetic() -> None:
    from unpooled.privacy.origin import origins_of, sourced, unsourced

    one, two = (ReleasedInput("prior", digit * 64, holds=True, release=digit * 64) for digit in "ab")
    a, b = sourced(2.0, (one,)), sourced(np.array([1.0, 2.0]), (two,))
    computed = {
        "sum": a + 1,
        "from the right": 1 - a,
        "quotient": a / 3,
        "power": a**2,
        "negative": -a,
        "size": abs(a),
        "rest": a % 3,
        "floor": a // 3,
    }
    assert all(origins_of(value) == (one,) for value in computed.values())
    assert {name: float(value) for name, value in computed.items()}["power"] == 4.0
    both = {"product": a * b, "product of arrays": b * a, "stack": np.concatenate([b, b * a]), "dot": (b * a) @ np.ones(2)}
    assert all(set(origins_of(value)) == {one, two} for value in both.values())
    alone = {
        "part": b[0],
        "slice": b[:1],
        "mean": b.mean(),
        "function": np.mean(b),
        "matrix": np.ones((2, 2)) @ b,
        "copy": b.copy(),
        "list": b.tolist(),
        "added": np.ones(2) + b,
        "first of a list": next(iter(b)),
        "pickled": pickle.loads(pickle.dumps(b * 2)),
        "reshaped": b.reshape(2, 1).T,
    }
    assert all(origins_of(value) == (two,) for value in alone.values())
    c = sourced(np.zeros(2), (one,))
    c += b
    assert set(origins_of(c)) == {one, two}
    assert (unsourced(c) == [1.0, 2.0]).all()
    plain = np.zeros(2)
    assert np.add(b, 1.0, out=plain) is plain  # an array that somebody made carries nothing
    assert all(origins_of(part) == (two,) for part in np.modf(b))
    assert repr(c) == repr(np.array([1.0, 2.0]))
    assert origins_of(unsourced({"x": a, "y": [a], "z": (b,)})) == ()
