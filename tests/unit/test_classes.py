"""The classes of a classifier are declared and public: whether one of them occurs in the data shows in releases only."""

from __future__ import annotations

import math
import warnings
from typing import Any

import msgspec
import numpy as np
import pytest
from sklearn.base import clone

from unpooled import PrideClassifier, PrivacyLeakWarning, PrivateLogisticRegression, PrivateStackingClassifier
from unpooled.errors import DataError, UsageError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.classes import Classes, code
from unpooled.privacy.plan import CLASSES, Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (40, 4))
ONE = np.where(np.arange(40) == 7, "yes", "no")  # one person alone is in the class "yes"
NONE = np.full(40, "no")
SITES = np.where(np.arange(40) < 20, "north", "south")
DECLARED = {"bounds": (-1, 1)}

MODELS = {
    "logistic": PrivateLogisticRegression(**DECLARED),
    "columns": PrivateStackingClassifier(2, **DECLARED),
    "trusted": PrivateStackingClassifier(2, meta="trusted", **DECLARED),
    "noisy": PrivateStackingClassifier(2, meta="perturbed", epsilon=4.0, **DECLARED),
    "rows": PrivateStackingClassifier(2, split="samples", **DECLARED),
    "pride": PrideClassifier(2, sketch_dim=2, epsilon=5.0, **DECLARED),
    "pride-cv": PrideClassifier(2, sketch_dim=2, alpha="local-cv", **DECLARED),
    "pride-public": PrideClassifier(
        2, sketch_dim=2, alpha=3.0, noise_model="plain", publish=0.5, fit_intercept=False, **DECLARED
    ),
}
#: What a fitted object shows of its releases and, for PRIDE, of what would stay with its parties.
RELEASED = {"released_", "models_", "high_", "coef_", "intercept_", "alpha_", "published_", "kept_"}


def surface(model: Any) -> dict[str, Any]:
    """Everything public of a fitted object that no release accounts for."""
    shown = {name: value for name, value in vars(model).items() if name.endswith("_") and name not in RELEASED}
    shown["classes_"] = (model.classes_.tolist(), model.classes_.dtype.str)
    shown["plan_"] = (model.plan_.hash, str(model.plan_))
    shown["statement_"] = model.statement_.to_dict()
    shown["ledger_"] = [(e.kind, e.plan, e.key, e.costs, e.state) for e in model.ledger_]
    shown["shapes"] = [(name, np.shape(getattr(model, name, 0))) for name in ("coef_", "intercept_", "high_")]
    shown["predictions"] = [
        (np.asarray(found).dtype.str, np.asarray(found).shape)
        for found in (model.predict(X), model.predict_proba(X), model.decision_function(X))
    ]
    return shown


def fitted(name: str, y: np.ndarray, **changes: Any) -> Any:
    return clone(MODELS[name]).set_params(**changes).fit(X, y)


@pytest.mark.long
@pytest.mark.slow_for("pride-cv")
@pytest.mark.minutes
@pytest.mark.parametrize("name", MODELS)
def test_flipping_the_only_row_of_a_class_shows_in_releases_only(name: str) -> None:
    with_it, without = (fitted(name, y, classes=("yes", "no")) for y in (ONE, NONE))
    assert surface(with_it) == surface(without)
    assert with_it.classes_.tolist() == ["no", "yes"]  # as scikit-learn sorts them, not as declared
    assert with_it.statement_.holds
    assert not with_it.plan_.study.derived
    assert set(vars(with_it)) == set(vars(without))


@pytest.mark.guarantee
@pytest.mark.slow_for("pride-cv")
@pytest.mark.parametrize("name", MODELS)
def test_classes_that_are_read_off_the_data_warn_give_the_row_away_and_void_the_statement(name: str) -> None:
    """The control: the same comparison catches derived classes."""
    with pytest.warns(PrivacyLeakWarning, match="no classes were declared"):
        model = fitted(name, ONE)
    assert model.plan_.study.derived == (CLASSES,)
    assert not model.statement_.holds
    assert "Classes were read off the data" in str(model.statement_)
    with pytest.raises(UsageError, match="only one class"):
        fitted(name, NONE)


@pytest.mark.slow_for("pride-cv")
@pytest.mark.minutes
@pytest.mark.parametrize("name", MODELS)
def test_an_infinite_epsilon_never_warns(name: str) -> None:
    if name != "noisy":
        fitted(name, ONE, epsilon=math.inf)
        fitted(name, NONE, epsilon=math.inf, classes=("no", "yes"))


@pytest.mark.parametrize("name", MODELS)
def test_a_label_outside_the_declared_classes_is_refused_unnamed(name: str) -> None:
    wild = np.where(np.arange(40) == 11, "secret", ONE)
    with pytest.raises(DataError, match="neither of the declared classes") as caught:
        fitted(name, wild, classes=("no", "yes"))
    assert "secret" not in str(caught.value)
    assert "11" not in str(caught.value)


@pytest.mark.parametrize(
    ("classes", "y", "shown"),
    [
        ((1, 0), np.array([0, 1, 1, 0]), [0, 1]),
        ((0, 1), np.array([0.0, 1.0, 1.0, 0.0]), [0, 1]),
        ((False, True), np.array([False, True, True, False]), [False, True]),
        ((0, 1), np.array([False, True, True, False]), [0, 1]),
        (("b", "a"), np.array(["a", "b", "b", "a"], dtype=object), ["a", "b"]),
        ((2.5, -1.5), np.array([-1.5, 2.5, 2.5, -1.5]), [-1.5, 2.5]),
        ((10, 9), np.array([9, 10, 10, 9], dtype=object), [9, 10]),
        (("10", "9"), np.array(["10", "9", "9", "10"]), ["10", "9"]),
    ],
)
def test_any_two_labels_are_coded_by_their_sorted_order_at_the_party_too(classes, y, shown) -> None:
    given = Classes.given(classes)
    assert given.labels.tolist() == shown
    table = Table({"y": given.column(y)})
    assert code(table["y"], given.texts, "y").tolist() == [-1.0, 1.0, 1.0, -1.0]
    assert np.array_equal(given.labels[(code(table["y"], given.texts, "y") > 0).astype(int)], y)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "classes",
    [
        (),
        ("a",),
        ("a", "a"),
        ("a", "b", "c"),
        (0, "a"),
        (1, 1.0),
        ("1", "1.0"),
        (math.nan, 1),
        (math.inf, 1),
        ("", "a"),
        (None, 1),
    ],
)
def test_classes_that_are_not_two_labels_are_refused(classes) -> None:
    with pytest.raises(UsageError, match="classes"):
        Classes.given(classes)


@pytest.mark.guarantee
@pytest.mark.minutes
def test_a_plan_without_data_needs_the_classes_and_they_are_part_of_its_hash() -> None:
    for name, model in MODELS.items():
        with pytest.raises(UsageError, match="a plan needs the classes"):
            clone(model).plan(40, 4) if hasattr(model, "plan") else Classes.given(None)
        if hasattr(model, "plan"):
            hashes = {clone(model).set_params(classes=c).plan(40, 4).hash for c in (("no", "yes"), ("ill", "well"))}
            assert len(hashes) == 2
            assert fitted(name, ONE, classes=("no", "yes")).plan_.hash in hashes


# --- studies on disk ------------------------------------------------------------------------------------------------------


def study(model: str, epsilon: float = 2.0, **parameters: Any) -> Study:
    cards = tuple(Card(party, 40, (Column(f"x{k}", -1.0, 1.0),), ("y",)) for k, party in enumerate("ab"))
    task = {"task": "classification", "sketch_dim": 1} if model == "pride" else {}
    return Study(
        model, cards, epsilon, 1e-6, unit="attribute" if model == "pride" else "record",
        parameters={**task, **parameters}, simulation_seed=1, derived=(),
    )  # fmt: skip


def result(model: str, labels: Any, **parameters: Any) -> Any:
    asked = study(model, **parameters)
    tables = {party: Table({f"x{k}": X[:, k], "y": labels}) for k, party in enumerate("ab")}
    return run_in_process(load(model), load(model).compile(asked), tables, Policy.in_process(), load)


@pytest.mark.guarantee
@pytest.mark.parametrize("model", ["pride", "stacking"])
def test_a_studys_labels_are_coded_by_the_declared_order(model: str) -> None:
    signs = np.where(X[:, 0] > 0, 1.0, -1.0)
    words = np.where(signs > 0, "ill", "well").astype(object)

    def shown(run: Any) -> list[Any]:
        return [values.tolist() for p in "ab" for (_, key), values in run.kept[p].items() if key == "coded_coefficients"]

    if model == "pride":
        noise_free = {"alpha": 1.0, "sketch_dim": 0}
        plain = shown(result(model, signs, **noise_free))
        assert shown(result(model, words, classes=["well", "ill"], **noise_free)) == plain
        assert shown(result(model, signs > 0, classes=[0, 1], **noise_free)) == plain
        assert np.allclose(shown(result(model, words, classes=["ill", "well"], **noise_free)), -np.array(plain))
    else:
        exact = {"epsilon": math.inf}
        plain = result(model, signs, **exact).outcome.result
        assert result(model, words, classes=["well", "ill"], **exact).outcome.result == plain
        assert result(model, signs > 0, classes=[0, 1], **exact).outcome.result == plain
        turned = result(model, words, classes=["ill", "well"], **exact).outcome.result
        assert [np.allclose(a.weights, -np.array(b.weights)) for a, b in zip(turned.models, plain.models, strict=True)] == [
            True
        ] * 2
    for bad in (words, np.where(np.arange(40) == 3, 2.0, signs)):
        with pytest.raises(DataError, match="the two declared classes, -1 and 1"):
            result(model, bad)


@pytest.mark.guarantee
@pytest.mark.parametrize("model", ["pride", "stacking"])
def test_a_label_that_does_not_fit_is_refused_before_the_party_debits_anything(model: str) -> None:
    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.noise import KeySource
    from unpooled.protocol.conversation import OpenRequest
    from unpooled.protocol.messages import Nothing, encode
    from unpooled.protocol.party import Party

    asked = study(model)
    plan, ledger = load(model).compile(asked), Ledger.in_memory()
    table = Table({"x0": X[:, 0], "y": np.where(np.arange(40) == 3, 2.0, 1.0)})
    party = Party("a", table, asked.parties[0], ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(asked)))
    for step in load(model).steps[:1]:
        with pytest.raises(DataError):
            party.answer(encode(plan.hash, step.name, 0, Nothing()))
    assert not [entry for entry in ledger.entries() if entry.kind == "charge"]


@pytest.mark.guarantee
@pytest.mark.parametrize("model", ["pride", "stacking"])
def test_studies_refuse_classes_that_are_not_two(model: str) -> None:
    for classes in (["a", "a"], ["a"], [1, 1.0], ["", "b"]):
        with pytest.raises(UsageError):
            load(model).compile(study(model, classes=classes))
    with pytest.raises(UsageError, match="classification"):
        load("pride").compile(study("pride", task="regression", classes=["a", "b"]))
    text = msgspec.msgpack.decode(msgspec.msgpack.encode(study(model, classes=["a", "b"])), type=Study)
    assert load(model).compile(text).hash == load(model).compile(study(model, classes=["a", "b"])).hash


def test_declared_classes_with_derived_bounds_warn_once_of_bounds_only() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = PrivateLogisticRegression(classes=("no", "yes"), random_state=0).fit(X, ONE)
    assert [("bounds" in str(w.message)) for w in seen if w.category is PrivacyLeakWarning] == [True]
    assert model.plan_.study.derived == ("bounds",)


@pytest.mark.guarantee
def test_three_classes_are_too_many_where_two_are_wanted() -> None:
    with pytest.raises(UsageError, match="Only binary classification"):
        Classes.given(None, np.array([0, 1, 2]))
