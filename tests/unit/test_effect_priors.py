"""An effect that is drawn to earlier estimates of it: its posterior by definition, what it wins and risks, and how it is printed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from treated import KNOWN, people, study

import unpooled
from unpooled.errors import UsageError
from unpooled.inference.priors import _DEVIATIONS, EarlierModel, simplex
from unpooled.models.effects import MODEL
from unpooled.models.effects.declared import declared_of
from unpooled.models.effects.result import DrawnEffect, EffectNumber, drawn_effect


def drawn(value: float, error: float, **earlier: float) -> DrawnEffect:
    """Return an effect of this value and standard error on stays of 0 to 30 days, drawn to earlier ones."""
    models = [{"name": name, "coefficients": {"ATE": one}} for name, one in earlier.items()]
    found = drawn_effect(declared_of(study({"prior": models})), EffectNumber("effect", value, error, error / 2))
    assert found is not None
    return found


def test_the_posterior_is_that_of_its_definition() -> None:
    """Means of weights times earlier effects plus a normal part, averaged over both by the chance of what was found: by scipy's density."""
    value, error, typical = -1.7, 0.6, 30 / 4
    points, likely = simplex(2)
    middle = points @ np.array([-2.0, 1.0])
    mass, means, variances = [], [], []
    for part in _DEVIATIONS:
        deviation = typical * part
        whole = math.hypot(deviation, error)
        mass.append(likely * part / (1 + part**2) * stats.norm.pdf(value, middle, whole))
        kept = (deviation / whole) ** 2
        means.append(middle + kept * (value - middle))
        variances.append(np.full(middle.size, kept * error**2))
    weights = np.array(mass) / np.sum(mass)
    mean = float((weights * means).sum())
    spread = float((weights * (variances + np.square(np.array(means) - mean))).sum())
    found = drawn(value, error, lund=-2.0, oslo=1.0)
    assert found.value == pytest.approx(mean, rel=1e-9)
    assert found.deviation == pytest.approx(math.sqrt(spread), rel=1e-9)
    assert [one.weight for one in found.drawn.weights] == pytest.approx((weights.sum(axis=0) @ points).tolist())
    (pull,) = found.drawn.terms
    assert (pull.term, pull.value, pull.alone) == ("ATE", found.value, value)


@pytest.mark.slow
@pytest.mark.parametrize(("earlier", "most"), [("good", 0.8), ("useless", 1.2), ("misleading", 1.5)])
def test_a_good_estimate_helps_and_a_bad_one_costs_little(earlier: str, most: float) -> None:
    """Mean squares of errors over those of the rows alone, at standard errors from a fortieth of the outcome's deviation to five times it."""
    rng = np.random.default_rng(7)
    truth, held, ratios = -2.0, [], []
    for error in (0.1, 0.3, 1.0, 3.0, 20.0):
        squares = []
        for _ in range(60):
            before = {"good": truth * rng.normal(1, 0.15), "useless": truth * rng.normal(), "misleading": -truth}[earlier]
            found = drawn(truth + error * rng.normal(), error, before=before)
            squares.append(((found.value - truth) / error) ** 2)
            held.append(abs(found.value - truth) < 1.96 * found.deviation)
        ratios.append(float(np.mean(squares)))
    assert np.mean(ratios) < most, ratios
    assert max(ratios) < most + 0.5, ratios
    assert np.mean(held) > 0.9


def test_exact_numbers_are_kept_and_noise_leaves_the_earlier_estimate() -> None:
    assert drawn(-1.5, 0.0, before=2.0).value == pytest.approx(-1.5, abs=1e-6)
    assert abs(drawn(100.0, 1000.0, before=-2.0).value) < 20


SEEN: dict[str, Any] = {"outcome": "stay", "covariates": ["age", "ward"], "bounds": KNOWN, "random_state": 3}


@pytest.fixture(scope="module")
def fitted() -> unpooled.TreatmentEffect:
    return unpooled.TreatmentEffect("arm", prior={"2023": {"ATE": -1.8}, "Lund": {"ATE": 3.0}}, **SEEN).fit(people(4000))


@pytest.mark.slow
def test_the_table_has_a_credible_interval_and_no_test(fitted: unpooled.TreatmentEffect) -> None:
    effect, own = fitted.effect_, fitted.result_.drawn
    assert effect is not None
    assert own is not None
    assert effect.statistic is None
    assert effect.p_value is None
    assert effect.privacy is None
    assert (effect.conf_low + effect.conf_high) / 2 == pytest.approx(effect.estimate)
    assert (effect.conf_high - effect.conf_low) / 2 == pytest.approx(1.959964 * own.deviation, rel=1e-6)
    assert fitted.summary().terms[0].estimate == effect.estimate
    words = str(fitted.summary())
    assert "'2023'" in words
    assert "'Lund'" in words
    assert f"its interval is credible; the rows alone say {fitted.result_.effect.value:.3g}" in words
    assert [one.name for one in fitted.drawn_.weights] == ["2023", "Lund"]
    assert fitted.drawn_.weights[0].weight > fitted.drawn_.weights[1].weight
    (panel, *_) = MODEL.reading.panels(fitted.plan_, fitted.result_)
    assert panel.values == (effect.estimate,)


@pytest.mark.slow_for("attribute", "household")
@pytest.mark.parametrize("unit", ["attribute", "household"])
def test_under_every_unit_the_effect_is_drawn_from_what_its_rows_say(unit: str) -> None:
    """A prior changes nothing that is released: the rows alone say what they say without one."""
    more = {"rows_per_household": 2, "unit": unit} if unit == "household" else {"unit": unit}
    who = {"unit_id": np.arange(3000) // 2} if unit == "household" else {}
    given = {**SEEN, **more, "epsilon": 8.0}
    found = unpooled.TreatmentEffect("arm", prior={"ATE": -1.8}, **given).fit(people(3000), **who)
    effect, own = found.result_.effect, found.result_.drawn
    assert effect is not None
    assert own is not None
    assert effect.value - 3 * effect.std_error < own.value < effect.value + 3 * effect.std_error
    assert own.deviation < 1.1 * effect.std_error
    assert own.drawn.weights[0].weight > 0.3
    plain = unpooled.TreatmentEffect("arm", **given)
    priced, alone = (one.plan(3000).statement.epsilon_per_unit for one in (found, plain))
    assert priced == pytest.approx(alone, rel=1e-6)


@pytest.mark.slow
def test_an_effect_without_earlier_ones_has_its_test_and_plan() -> None:
    alone = unpooled.TreatmentEffect("arm", **SEEN)
    assert "prior" not in alone.plan(4000).study.parameters
    found = alone.fit(people(4000))
    assert found.effect_.p_value is not None
    with pytest.raises(AttributeError):
        _ = found.drawn_


@pytest.mark.slow
def test_it_is_saved_and_starts_a_later_one(fitted: unpooled.TreatmentEffect, tmp_path: Path) -> None:
    """With the earlier fits as numbers; and its people pay for both, unless they are others."""
    before = fitted.as_prior()
    assert dict(before) == {"ATE": fitted.effect_.estimate}
    drawn_twice = unpooled.TreatmentEffect("arm", prior={"last": fitted, "Lund": {"ATE": 3.0}}, **SEEN).fit(people(4000, 1))
    drawn_twice.save(tmp_path / "effect")
    loaded = unpooled.load(tmp_path / "effect")
    assert str(loaded.summary()) == str(drawn_twice.summary())
    assert loaded.prior["last"]["ATE"] == fitted.effect_.estimate
    assert clone(drawn_twice).prior["Lund"] == {"ATE": 3.0}
    assert not drawn_twice.statement_.holds  # the earlier fit is a simulation
    real = SEEN | {"random_state": None}
    others = unpooled.TreatmentEffect("arm", prior=before.of_others(), **real).plan(4000).statement
    assert others.holds
    assert any("Other people's data supplied the prior" in words for words in others.assumptions)
    declared = unpooled.TreatmentEffect("arm", prior={"ATE": -2.0}, **real).plan(4000).statement
    assert any("The earlier models (prior) are public" in words for words in declared.assumptions)


WRONG: dict[str, tuple[Any, str]] = {
    "another estimand": ({"ATT": -1.0}, "has a coefficient of ATT; the coefficients here are ATE"),
    "no number": ({"ATE": "low"}, "a mapping from names of coefficients to numbers"),
    "endless": ({"ATE": math.inf}, "no finite number"),
    "nothing": ({"ATE": 0.0}, "says nothing of any column"),
    "an intercept": ({"ATE": -1.0, "(intercept)": 2.0}, "has an intercept"),
    "public rows": (([[1.0], [2.0]], [0.0, 1.0]), "public rows go without a treatment"),
    "not fitted": (unpooled.TreatmentEffect("arm", **SEEN), "is not fitted"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_meant_is_refused(wrong: str) -> None:
    given, words = WRONG[wrong]
    with pytest.raises(UsageError, match=words):
        unpooled.TreatmentEffect("arm", prior=given, **SEEN).plan(4000)


def test_where_the_data_tell_no_effect_there_is_none_with_earlier_ones_either() -> None:
    hidden = unpooled.TreatmentEffect("arm", prior={"ATE": -2.0}, **(SEEN | {"epsilon": 0.05})).fit(people(200))
    assert hidden.effect_ is None
    assert hidden.result_.drawn is None
    assert "not identified" in str(hidden.summary()) or "no result" in str(hidden.summary())
    with pytest.raises(UsageError, match="no effect for a later one"):
        hidden.as_prior()


def test_an_outlook_leaves_earlier_ones_out() -> None:
    asked = study({"prior": [{"name": "x", "coefficients": {"ATE": -2.0}}]})
    assert "earlier models left out" in MODEL.outlook(asked, quick=True).assumed


def test_a_name_of_its_own_for_every_earlier_estimate() -> None:
    twice = [EarlierModel("x", {"ATE": -1.0}), EarlierModel("x", {"ATE": -2.0})]
    with pytest.raises(UsageError, match="a name of its own"):
        declared_of(study({"prior": [{"name": m.name, "coefficients": m.coefficients} for m in twice]}))
