"""What is typical of categories: a share for each. An outlook plays rare levels as rare; nobody's guarantee and nobody's fit changes."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import unpooled
from unpooled.errors import UsageError
from unpooled.estimation.outlook import glance, made_up_features
from unpooled.models import load
from unpooled.privacy.bounds import Bounds, Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.study.made_up import Truth, made_up
from unpooled.study.sniff import declaration

LEVELS, SHARES = ("a", "b", "c"), (0.6, 0.37, 0.03)


@pytest.mark.guarantee
def test_shares_are_declared_in_python_on_the_command_line_and_in_files() -> None:
    column = Column("ward", categories=LEVELS, typical=SHARES)
    assert declaration("ward=a,b,c;typical=.6,.37,.03") == column
    assert msgspec.json.decode(msgspec.json.encode(column), type=Column) == column
    for said in (SHARES, list(SHARES), {"c": 0.03, "a": 0.6, "b": 0.37}):
        assert Bounds({"ward": LEVELS}, typical={"ward": said}).columns(("ward",)) == (column,)
    assert column.shares == pytest.approx(SHARES)
    assert Column("ward", categories=LEVELS).shares == pytest.approx((1 / 3,) * 3)


@pytest.mark.guarantee
@pytest.mark.parametrize("said", [(0.5, 0.5), (0.6, 0.4, 0.0), (0.6, 0.3, 0.2), (), (1.2, -0.1, -0.1)])
def test_shares_that_are_none_are_refused(said: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="share of each"):
        Column("ward", categories=LEVELS, typical=said)
    with pytest.raises(UsageError, match="share of each"):
        declaration(f"ward=a,b,c;typical={','.join(map(str, said)) or '1'}")


@pytest.mark.guarantee
@pytest.mark.parametrize("said", [(1.0,), (1.0, 2.0, 3.0)])
def test_numbers_have_a_centre_and_a_deviation(said: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="two numbers"):
        Column("age", 0.0, 100.0, typical=said)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "said", [{"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.4, "d": 0.1}, "abc", [0.5, "x", 0.5], [True, False, False]]
)
def test_shares_of_other_levels_are_refused(said: Any) -> None:
    with pytest.raises(UsageError, match="share of each"):
        Bounds({"ward": LEVELS}, typical={"ward": said}).columns(("ward",))


def test_made_up_people_have_them() -> None:
    columns = (Column("ward", categories=LEVELS, typical=SHARES), Column("x", -1.0, 1.0))
    rng = np.random.default_rng(1)
    drawn, _ = made_up_features(columns, 2000, 0.3, 3.0, rng)
    assert [float(np.mean(drawn["ward"] == level)) for level in LEVELS] == pytest.approx(SHARES, abs=0.001)
    study = _study(*columns)
    _, tables = made_up(load("bayes"), study, 1000, truth=Truth())
    ward = np.array(tables["p"]["ward"], dtype=object)
    assert [float(np.mean(ward == level)) for level in LEVELS] == pytest.approx(SHARES, abs=0.002)


def _study(*columns: Column, **parameters: Any) -> Study:
    response = Column("y", -4.0, 4.0)
    return Study(
        "bayes", (Card("p", 1000, (*columns, response)),), 2.0, 1e-6, parameters={"response": "y"} | parameters, derived=()
    )


@pytest.mark.long
@pytest.mark.slow
def test_lines_of_a_rare_level_are_foretold_wide() -> None:
    """With equal shares a level of 3 % was foretold an error a third of what it has."""
    found = {}
    for typical in (None, SHARES):
        columns = Column("ward", categories=LEVELS, typical=typical), Column("x", -2.0, 2.0)
        outlook = glance(load("bayes"), _study(*columns, method="refinement"), lines=True)
        assert outlook is not None
        (line,) = (line for line in outlook.lines if line.term.startswith("ward: c"))
        found[typical] = line.without_privacy
    assert found[SHARES] > 2 * found[None]


@pytest.mark.slow
def test_a_rate_that_is_known_is_the_one_that_is_played() -> None:
    response = Column("sick", categories=("no", "yes"), typical=(0.95, 0.05))
    study = Study(
        "glm",
        (Card("p", 4000, (Column("x", -2.0, 2.0), response)),),
        2.0,
        1e-6,
        parameters={"response": "sick", "family": "logistic"},
        derived=(),
    )
    outlook = load("glm").outlook(study, quick=True)
    assert "mean response over its largest 0.05" in outlook.assumed
    other = load("glm").outlook(study, quick=True, rate=0.4)
    assert "mean response over its largest 0.4" in other.assumed


def test_a_fit_is_the_same_with_them() -> None:
    rng = np.random.default_rng(3)
    x, ward = rng.normal(size=800).clip(-2, 2), rng.choice(LEVELS, 800)
    frame = pd.DataFrame({"x": x, "ward": ward.astype(object), "y": (x + rng.normal(size=800)).clip(-4, 4)})
    fits, plans = [], []
    for typical in (None, {"ward": SHARES}):
        bounds = unpooled.Bounds({"x": (-2, 2), "ward": LEVELS, "y": (-4, 4)}, typical=typical)
        fits.append(
            unpooled.PrivateLinearRegression(epsilon=math.inf, bounds=bounds, method="refinement").fit(
                frame, formula="y ~ x + ward"
            )
        )
        plans.append(
            unpooled.PrivateLinearRegression(epsilon=3.0, bounds=bounds, method="refinement")
            .fit(frame, formula="y ~ x + ward")
            .plan_
        )
    assert fits[0].coef_.tolist() == fits[1].coef_.tolist()
    assert plans[0].releases == plans[1].releases


@pytest.mark.parametrize("how", ["linear", "logistic", "columns"])
def test_a_plan_says_which_typical_column_is_crowded_at_an_end_of_its_range(how: str) -> None:
    crp, age = Column("crp", 0.0, 500.0, typical=(12.0, 8.0)), Column("age", 0.0, 120.0, typical=(60.0, 15.0))
    response = Column("y", categories=("no", "yes")) if how == "logistic" else Column("y", -4.0, 4.0)
    cards: tuple[Card, ...] = (Card("p", 4000, (crp, age, response)),)
    helpers: tuple[HelperCard, ...] = ()
    parameters: dict[str, Any] = {"response": "y"}
    if how == "logistic":
        parameters["family"] = "logistic"
    if how == "columns":
        cards, helpers = (Card("p", 4000, (age, response)), Card("q", 4000, (crp,))), (HelperCard("h"),)
        parameters |= {"split": "columns", "method": "moments"}
    model = "glm" if how == "logistic" else "bayes"
    plan = load(model).compile(Study(model, cards, 2.0, 1e-6, parameters=parameters, derived=(), helpers=helpers))
    (said,) = (note for note in plan.notes if "near the lower end" in note)
    assert said.startswith("crp: its declared range of 0 to 500 is 62.5 of its deviations wide")
    assert "log1p(crp)" in said
