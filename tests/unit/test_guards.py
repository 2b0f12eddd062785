"""Guards ask what a model's row declares, whatever holds the model: a subclass, a wrapper, a pipeline, an unpickled object (P9, P14)."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import unpooled
from unpooled.errors import UsageError
from unpooled.estimation.base import StudyEstimator
from unpooled.models import load, row_names
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Household, Study
from unpooled.privacy.unit import Unit
from unpooled.protocol.registry import KEPT, OWN, RELEASED

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (300, 3))
Y = np.clip(X @ [0.8, -0.4, 0.2] + RNG.normal(0, 0.1, 300), -2, 2)
LABELS = (Y > 0).astype(int)
#: The arguments of every public estimator that fits coefficients, and whether its response has two classes.
ESTIMATORS: dict[str, tuple[dict[str, Any], bool]] = {
    "PrideRegressor": ({"alpha": 1.0, "sketch_dim": 2, "y_bounds": (-2, 2)}, False),
    "PrideClassifier": ({"alpha": 1.0, "sketch_dim": 2, "classes": (0, 1)}, True),
    "PrideGLM": ({"alpha": 1.0, "sketch_dim": 2, "classes": (0, 1)}, True),
    "PrivateBayesianRegression": ({"y_bounds": (-2, 2)}, False),
    "PrivateLinearRegression": ({"y_bounds": (-2, 2)}, False),
    "PrivateGLM": ({"classes": (0, 1)}, True),
    "PrivateLasso": ({"y_bounds": (-2, 2)}, False),
    "PrivateLassoClassifier": ({"classes": (0, 1)}, True),
    "PrivateLogisticRegression": ({"classes": (0, 1)}, True),
    "PrivatePLSRegression": ({"y_bounds": (-2, 2), "n_components": 2, "basis_size": 3}, False),
    "PrivateStackingClassifier": ({"classes": (0, 1), "combiner": "log-odds", "probabilities_share": 0.0}, True),
}
#: An effect has arms, and no coefficients of a model.
WITHOUT_COEFFICIENTS = {"TreatmentEffect"}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def fit(kind: type[Any], name: str) -> Any:
    given, classes = ESTIMATORS[name]
    return kind(epsilon=20.0, bounds=(-1, 1), random_state=0, **given).fit(X, LABELS if classes else Y)


class Wrapped:
    """An object that hands everything on to the model that it holds, as wrappers of other packages do."""

    def __init__(self, model: Any) -> None:
        self.held = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["held"], name)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def held(name: str) -> dict[str, Any]:
    """Return one model, held in each of four ways, and as it is."""
    kind = getattr(unpooled, name)
    model = fit(kind, name)
    return {
        "as it is": model,
        "a subclass": fit(type("MyModel", (kind,), {}), name),
        "a wrapper": Wrapped(model),
        "a pipeline": Pipeline([("nothing", "passthrough"), ("model", model)]),
        "unpickled": pickle.loads(pickle.dumps(model)),
    }


def test_every_public_estimator_is_asked() -> None:
    public = {
        name
        for name in dir(unpooled)
        if isinstance(one := getattr(unpooled, name), type) and issubclass(one, StudyEstimator)
    }
    assert public == set(ESTIMATORS) | WITHOUT_COEFFICIENTS


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_is_diagnosed_by_what_its_row_declares_however_it_is_held(name: str) -> None:
    """A subclass of PrideRegressor passed, with raw coefficients: the guard looked at the first letters of the class's name."""
    said = {how: diagnosed(model, name) for how, model in held(name).items()}
    assert len(set(said.values())) == 1, said
    kept = getattr(unpooled, name)._model.coefficients == KEPT
    assert kept == name.startswith("Pride")
    assert ("stay at the parties" in said["as it is"]) == kept
    if not kept:
        assert said["as it is"] == ("linear in their columns" if name == "PrivateStackingClassifier" else "diagnosed")


def diagnosed(model: Any, name: str) -> str:
    """Return that a model was diagnosed, or why not."""
    _, classes = ESTIMATORS[name]
    asked: dict[str, Any] = {"y_bounds": None if classes else (-2, 2), "epsilon": 1.0, "random_state": 0}
    try:
        unpooled.diagnose(model, X, LABELS if classes else Y, **asked)
    except UsageError as error:
        return "linear in their columns" if "linear in their columns" in str(error) else str(error)
    return "diagnosed"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_prior_is_taken_of_what_a_row_declares_as_released_however_it_is_held(name: str) -> None:
    kind, released = getattr(unpooled, name), getattr(unpooled, name)._model.coefficients == RELEASED
    later = unpooled.PrivateLinearRegression(epsilon=20.0, bounds=(-1, 1), y_bounds=(-2, 2), random_state=0)
    for how, model in held(name).items():
        if released or how == "a pipeline":
            continue
        with pytest.raises(UsageError, match="stay at"):
            model.as_prior()
    if not released:
        for model in held(name).values():
            with pytest.raises(UsageError, match="stay at"):
                unpooled.PrivateLinearRegression(**later.get_params() | {"prior": model}).fit(X, Y)
    assert kind._model.coefficients in {RELEASED, KEPT}


class Silent:
    """An object with everything that a linear model has, and no declaration of what became of its coefficients."""

    def __init__(self, model: Any) -> None:
        for name in ("coef_", "intercept_", "declared_columns", "n_features_in_"):
            setattr(self, name, getattr(model, name))
        self._is_linear = True

    def __sklearn_is_fitted__(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["PrideRegressor", "PrivateLinearRegression"])
def test_an_object_that_declares_nothing_is_refused(name: str) -> None:
    model = fit(getattr(unpooled, name), name)
    for one in (Silent(model), make_pipeline(Silent(model))):
        with pytest.raises(UsageError, match="does not say whether its coefficients were released"):
            unpooled.diagnose(one, X, Y, y_bounds=(-2, 2), epsilon=1.0)


def test_an_estimator_whose_row_declares_nothing_is_no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = unpooled.PrivateLinearRegression
    model = fit(kind, "PrivateLinearRegression")
    assert model.as_prior()
    monkeypatch.setattr(kind, "_model", replace(kind._model, coefficients=""))
    with pytest.raises(UsageError, match="does not say whether its coefficients were released, so as_prior"):
        model.as_prior()


def test_steps_before_a_model_are_refused_for_no_statement_counts_them() -> None:
    made = make_pipeline(
        StandardScaler(), unpooled.PrivateLinearRegression(epsilon=20.0, bounds=(-3, 3), y_bounds=(-2, 2), random_state=0)
    )
    with pytest.raises(UsageError, match=r"standardscaler.*before the model"):
        unpooled.diagnose(made.fit(X, Y), X, Y, y_bounds=(-2, 2), epsilon=1.0)


def test_every_row_with_coefficients_declares_what_becomes_of_them() -> None:
    declared = {name: load(name).coefficients for name in OWN}
    assert {name for name, word in declared.items() if word == KEPT} == {"pride"}
    assert {name for name, word in declared.items() if word == RELEASED} == {
        "bayes",
        "effects",
        "glm",
        "lasso",
        "pls",
        "stacking",
    }
    for name in row_names():
        system, _, form = name.rpartition("-")
        if system in declared and form:  # a form of the same system does not make its coefficients public
            assert load(name).coefficients in {declared[system], ""}


@pytest.mark.guarantee
def test_the_refusal_of_households_names_every_model_that_has_a_proof() -> None:
    """P14: the sentence was written by hand, and had forgotten effects."""
    columns = (Column("a", 0.0, 1.0), Column("y", 0.0, 1.0))
    card = Card("north", 20, columns, household=Household("id", 10, 2))
    study = Study("lasso", (card,), 1.0, 1e-5, unit=str(Unit.HOUSEHOLD), parameters={"response": "y"}, derived=())
    with pytest.raises(UsageError) as refused:
        load("lasso").compile(study)
    said = set(re.findall(r"[a-z]+", str(refused.value).partition("these have one: ")[2]))
    assert {name for name in OWN if load(name).households} == said & set(OWN)
    assert "effects" in said
