"""Replays over households: every release of the models that offer the unit, in every way to add up, and studies broken on purpose."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from world import sized

from unpooled.audit.replay import Report, replay
from unpooled.models import load
from unpooled.privacy import table as household
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import Reach
from unpooled.privacy.plan import Card, Household, Study
from unpooled.privacy.unit import Unit
from unpooled.study.made_up import made_up

COLUMNS = (Column("age", 18.0, 100.0), Column("y", -1.0, 3.0))
#: What some models need beside them.
MORE = {
    "effects": (*COLUMNS, Column("smoker", categories=("no", "yes"))),
    "partial": (*COLUMNS, Column("smoker", categories=("no", "yes"))),
    "multinomial": (*COLUMNS, Column("outcome", categories=("home", "ward", "died"))),
    "survival": (*COLUMNS, Column("days", 0.0, 60.0), Column("died", categories=("no", "yes"))),
    "arms": (*COLUMNS, Column("smoker", categories=("no", "yes"))),
    "exits": (
        *COLUMNS,
        Column("smoker", categories=("no", "yes")),
        Column("days", 0.0, 60.0),
        Column("died", categories=("no", "yes")),
    ),
}
MODELS = {
    "describe": ("describe", {}),
    "ranges": ("describe", {"ranges": True}),
    "tables": ("tables", {"columns": ["age", "y"], "cuts": {"age": [40.0], "y": 3}}),
    "arms": ("describe", {"by": "smoker"}),
    "moments": ("bayes", {"response": "y", "method": "moments"}),
    "refinement": ("bayes", {"response": "y", "method": "refinement", "max_passes": 5}),
    "gradient": ("bayes", {"response": "y", "method": "gradient", "max_passes": 4}),
    "direction": ("bayes", {"response": "y", "method": "direction"}),
    "mean": ("bayes", {"response": "y", "method": "mean", "max_passes": 4}),
    "glm": ("glm", {"response": "age", "family": "gamma", "method": "newton", "max_passes": 5}),
    "multinomial": ("glm", {"response": "outcome", "family": "multinomial", "method": "newton", "max_passes": 5}),
    "survival": (
        "glm",
        {
            "response": "days",
            "event": "died",
            "cuts": [7.0, 30.0],
            "family": "survival",
            "method": "newton",
            "max_passes": 5,
        },
    ),
    "exits": ("survival", {"time": "days", "event": "died", "by": "smoker"}),
    "effects": (
        "effects",
        {"response": "y", "treatment": "smoker", "covariates": "age", "estimator": "aipw", "max_passes": 5},
    ),
    "partial": ("effects", {"response": "y", "treatment": "smoker", "covariates": "age", "estimator": "partial"}),
    "diagnose": (
        "diagnose",
        {"response": "y", "coefficients": {"age": 0.02}, "cuts": [0.5, 1.5], "residual_cuts": [-1.0, 1.0]},
    ),
    "pls": ("pls", {"response": "y", "basis": "none", "norm": 41.0, "n_components": 1}),
}


def study(kind: str, adjacency: str = "replace", trust: str = "trusted", most: int = 3) -> Study:
    model, parameters = MODELS[kind]
    columns = MORE.get(kind, COLUMNS)
    cards = tuple(Card(name, 8 * most, columns, household=Household("person", 8, most, elsewhere=False)) for name in "abc")
    trusts = {} if model in {"describe", "tables", "diagnose"} else {"aggregation": trust}
    # Private ranges need more than noise in some bin.
    epsilon = 400.0 if kind == "ranges" else 1.0
    return Study(
        model, cards, epsilon, 1e-5, unit="household", adjacency=adjacency, parameters=parameters, trust=trusts, derived=()
    )


def audit(asked: Study, rounds: int = 3) -> Report:
    model = load(asked.model)
    return replay(model, *made_up(model, asked, 24), registry=load, rounds=rounds)


def largest(report: Report) -> dict[str, float]:
    found: dict[str, float] = {}
    for (unit, _, name), ratio in report.largest.items():
        if unit is Unit.HOUSEHOLD:
            found[name] = max(found.get(name, 0.0), ratio)
    return found


@pytest.mark.long_for(
    "refinement-replace",
    "direction-replace",
    "glm-replace",
    "multinomial-replace",
    "survival-replace",
    "effects-replace",
    "pls-replace",
    "pls-zero-out",
    "gradient-replace",
    "partial-replace",
    "moments-replace",
    "mean-replace",
    "exits-replace",
    "effects-zero-out",
)
@pytest.mark.minutes
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_households_move_nothing_further_than_declared(kind: str, adjacency: str) -> None:
    report = audit(study(kind, adjacency), sized(3, 2))
    assert report.passed, str(report)
    assert max(largest(report).values()) > 0.3, str(report)


@pytest.mark.long_for("distributed", "local")
@pytest.mark.minutes
@pytest.mark.parametrize("trust", ["distributed", "local"])
def test_households_are_audited_in_every_way_to_add_up(trust: str) -> None:
    report = audit(study("gradient", trust=trust), 1)
    assert report.passed, str(report)
    assert max(largest(report).values()) > 0.2


def test_a_description_of_households_attains_its_bound() -> None:
    report = audit(study("describe"))
    assert report.passed, str(report)
    assert largest(report)["sums"] > 0.95  # all rows of the first id went from one corner to the other


def test_a_price_of_one_row_for_all_of_them_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reach, "times", lambda self, _rows: self)
    assert not audit(study("describe")).passed


@pytest.mark.long
def test_rows_beyond_what_counts_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit's tables have ids with more rows than count: a party that counts them all is caught."""
    asked = study("describe", most=1)
    three = msgspec.structs.replace(
        asked,
        parties=tuple(
            msgspec.structs.replace(c, rows=24, household=Household("person", 8, 3, elsewhere=False)) for c in asked.parties
        ),
    )
    _, tables = made_up(load("describe"), three, 24)

    def bounded() -> dict[str, household.BoundedTable]:
        found = {}
        for name, table in tables.items():
            assert isinstance(table, household.BoundedTable)
            found[name] = household.BoundedTable(table._own(), table._owners, 1)
        return found

    assert replay(load("describe"), asked, bounded(), registry=load, rounds=2).passed
    monkeypatch.setattr(household, "counted", lambda ids, *_: np.ones(ids.size, dtype=bool))
    assert not replay(load("describe"), asked, bounded(), registry=load, rounds=2).passed
