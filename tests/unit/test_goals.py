"""What a budget is for: a table that is refused before it pays where no line can be expected, or predictions, which say so."""

from __future__ import annotations

import re
import warnings
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import unpooled
from unpooled.cli.calls import fitted_data
from unpooled.errors import UsageError, UtilityWarning
from unpooled.models import load
from unpooled.models.glm.declared import WORTH_ERRORS, WORTH_LINES, GlmMethod

BOUNDS: dict[str, Any] = {"age": (0, 100), "arm": ["usual", "new"], "ward": ["a", "b", "c"]}
CLASSES = {"y": [0, 1]}


def people(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.uniform(20, 90, rows), "arm": rng.choice(["usual", "new"], rows)})
    frame["ward"] = rng.choice(["a", "b", "c"], rows)
    frame["y"] = (rng.random(rows) < 0.3 + 0.3 * (frame["arm"] == "new")).astype(int)
    return frame


def glm(epsilon: float, **asked: Any) -> Any:
    return unpooled.PrivateGLM(epsilon=epsilon, bounds=BOUNDS | CLASSES, **({"random_state": 0} | asked))


def linear(epsilon: float, **asked: Any) -> Any:
    return unpooled.PrivateLinearRegression(epsilon=epsilon, bounds=BOUNDS | {"y": (0, 1)}, **({"random_state": 0} | asked))


MAKERS = pytest.mark.parametrize("make", [glm, linear], ids=["glm", "linear"])


def five(goal: str, epsilon: float = 1.0, rows: int = 2500, **asked: Any) -> Any:
    model = unpooled.PrivateGLM(epsilon=epsilon, bounds=(-4, 4), classes=[0, 1], goal=goal, **asked)
    return model.plan(rows, 8)


# --- the method that a goal takes ------------------------------------------------------------------------------------------


def test_a_table_is_made_from_where_it_has_lines_and_predictions_keep_their_own_rule() -> None:
    assert WORTH_LINES < WORTH_ERRORS
    assert five("predictions").design.schedule.method is GlmMethod.GRADIENT
    assert five("auto").design.schedule.method is GlmMethod.NEWTON
    assert five("table").design.schedule.method is GlmMethod.NEWTON
    assert five("auto", rows=50_000).design.schedule == five("predictions", rows=50_000).design.schedule


def test_the_goal_changes_the_question_only_where_it_is_said() -> None:
    assert "goal" not in five("auto").study.parameters or five("auto").study.parameters["goal"] == "auto"
    assert five("table").hash != five("auto").hash


# --- a refusal before anything is spent ------------------------------------------------------------------------------------


@MAKERS
def test_a_table_without_a_line_is_refused_before_it_pays(make: Any) -> None:
    frame, budget = people(300), unpooled.Budget(10.0, 1e-4)
    with pytest.raises(UsageError, match=r'goal is "table".*What would do: epsilon.*rows.*goal = "predictions"'):
        make(0.2, goal="table", budget=budget, random_state=None).fit(frame, "y")
    assert budget.spent == 0
    make(0.2, goal="predictions").fit(frame, "y")


@MAKERS
def test_each_remedy_that_a_refusal_names_does(make: Any) -> None:
    model = make(0.5, goal="table", delta=1e-5)
    with pytest.raises(UsageError) as refused:
        model.fit(people(500), "y")
    words = str(refused.value)
    epsilon = float(re.search(r"epsilon = ([\d.]+)", words)[1])
    rows = int(re.search(r"([\d,]+) rows", words.partition("do: ")[2])[1].replace(",", ""))
    make(epsilon, goal="table", delta=1e-5).fit(people(500), "y").summary()
    make(0.5, goal="table", delta=1e-5).fit(people(rows), "y").summary()
    with pytest.raises(UsageError, match='goal is "table"'):
        make(epsilon * 0.97, goal="table", delta=1e-5).fit(people(500), "y")


def test_a_method_without_standard_errors_is_no_table() -> None:
    with pytest.raises(UsageError, match="method 'gradient' tells no standard errors"):
        five("table", rows=50_000, method="gradient")
    with pytest.raises(UsageError, match="goal is one of auto, table, predictions, not 'tables'"):
        five("tables")


def test_the_papers_have_no_goal() -> None:
    model = unpooled.PrivateBayesianRegression(bounds=(-1, 1), y_bounds=(-1, 1), calibration="published", goal="table")
    with pytest.raises(UsageError, match="goal is not in the paper"):
        model.plan(500, 3)


# --- columns at two parties ------------------------------------------------------------------------------------------------


def test_columns_of_parties_are_refused_a_table_of_noise_too() -> None:
    asked: dict[str, Any] = {"bounds": (-1, 1), "y_bounds": (-1, 1), "parties": 2, "helpers": 1}
    weak = unpooled.PrivateLinearRegression(epsilon=0.1, goal="table", **asked)
    with pytest.raises(UsageError, match=r'goal is "table".*Nothing is spent'):
        weak.plan(200, 4)
    with pytest.raises(UsageError, match="sines tells no standard errors"):
        unpooled.PrivateLinearRegression(epsilon=100.0, goal="table", method="sines", **asked).plan(200_000, 4)
    assert unpooled.PrivateLinearRegression(epsilon=3.0, goal="table", **asked).plan(200_000, 4)
    auto = unpooled.PrivateLinearRegression(epsilon=0.1, **asked).plan(200, 4)
    assert "makes no table and is for predictions" in str(auto)


# --- predictions say so ----------------------------------------------------------------------------------------------------


@MAKERS
def test_a_study_that_makes_no_table_says_so_before_it_is_spent(make: Any) -> None:
    budget = unpooled.Budget(10.0, 1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        with pytest.raises(UtilityWarning, match=r"makes no table.*What would do"):
            make(0.3, budget=budget, random_state=None).fit(people(400), "y")
        assert budget.spent == 0
        make(0.3, goal="predictions").fit(people(400), "y")
        make(3.0).fit(people(5000), "y")
    plan = make(0.3).fit(people(400), "y").plan_
    assert "this study makes no table and is for predictions" in str(plan)
    assert "makes no table" not in str(make(3.0).fit(people(5000), "y").plan_)


def test_a_meta_analysis_says_before_it_pays_which_sites_it_leaves_out() -> None:
    rng = np.random.default_rng(0)
    sites = np.repeat(["lyon", "oslo", "riga"], [4000, 3000, 150])
    rows = rng.uniform(-1, 1, (sites.size, 2))
    budget = unpooled.Budget(10.0, 1e-4)
    model = unpooled.PrivateLinearRegression(epsilon=1.0, bounds=(-1, 1), y_bounds=(-3, 3), budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        with pytest.raises(UtilityWarning, match=r"^Riga will be left out of what is pooled"):
            unpooled.meta_analysis(model, rows, rows[:, 0], sites=sites, terms="x0")
        assert budget.spent == 0
        big = sites != "riga"
        found = unpooled.meta_analysis(model, rows[big], rows[big, 0], sites=sites[big], terms="x0")
    assert set(found["x0"].sites) == {"lyon", "oslo"}
    assert "left out" not in str(found.plan_)


# --- coefficients of levels ------------------------------------------------------------------------------------------------


@MAKERS
@pytest.mark.parametrize("formula", ["y ~ age + arm + ward", "y ~ age * arm + ward", "y ~ age + arm:ward"])
def test_without_second_moments_no_level_has_a_coefficient_anywhere(make: Any, formula: str) -> None:
    fit = make(0.3).fit(people(400), formula=formula)
    row = load(fit.plan_.study.row)
    result = msgspec.msgpack.decode(fit._record, type=row.reading.types[0])
    terms = row.reading.terms(fit.plan_, result)
    words = [term.term for term in terms]
    assert words[0] == "age"
    assert not [word for word in words if "arm" in word or "ward" in word]
    assert not [name for panel in row.reading.panels(fit.plan_, result) for name in panel.names if "arm" in name]
    table = row.table(fit.plan_, result)
    assert "the levels of arm, ward have coefficients for predictions alone" in table
    assert not re.search(r"usual +-?\d", table)
    assert not [term["term"] for term in fitted_data(fit, None)["terms"] if "arm" in term["term"]]
    assert fit.predict(people(5)).shape == (5,)


def test_classes_show_no_level_either() -> None:
    frame = people(400)
    frame["y"] = np.random.default_rng(1).choice(["red", "green", "blue"], 400)
    model = unpooled.PrivateGLM("multinomial", epsilon=0.5, bounds=BOUNDS | {"y": ["red", "green", "blue"]}, random_state=0)
    fit = model.fit(frame, "y")
    terms = load("glm").reading.terms(fit.plan_, msgspec.msgpack.decode(fit._record, type=load("glm").reading.types[0]))
    assert not [term.term for term in terms if "arm" in term.term or "ward" in term.term]


@MAKERS
def test_a_table_shows_levels_as_differences(make: Any) -> None:
    fit = make(3.0).fit(people(20_000), formula="y ~ age + arm")
    assert "arm: new - usual" in [line.term for line in fit.summary().terms]


# --- references ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@MAKERS
def test_sites_are_compared_with_the_largest_unless_somebody_says_with_whom(make: Any) -> None:
    frame = people(6000)
    sites = np.repeat(["a", "b", "c"], [600, 1400, 4000])
    formula = "y ~ age + arm"
    fit = make(3.0, site_effects="fixed").fit(frame[["age", "arm", "y"]], formula=formula, sites=sites)
    lines = [line.term for line in fit.summary().terms]
    assert {"site: a - c", "site: b - c"} <= set(lines)
    assert "site = c" in str(fit.summary())
    assert "site: b - a" in [line.term for line in fit.summary(reference={"site": "a"}).terms]
    told = make(3.0, site_effects="fixed").fit(frame, formula="y ~ age + C(site, ref='a')", sites=sites)
    assert {"site: b - a", "site: c - a"} <= {line.term for line in told.summary().terms}
