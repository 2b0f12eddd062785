"""The audit must catch studies that are broken on purpose: too little sensitivity, control flow from data, a raw public value."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import CASES

from unpooled.audit.replay import Report, differences, replay
from unpooled.errors import DataError
from unpooled.kernels import rows as standard_rows
from unpooled.linear.layout import MomentsLayout
from unpooled.models import load
from unpooled.models.describe.rows import SumsReply
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Unit
from unpooled.protocol.messages import Array, Ask, Disclosed, Entrusted, Nothing, Public, Released, Sealed
from unpooled.protocol.registry import Step
from unpooled.testing.replays import *
from unpooled.totals.total import Quantity

COLUMNS = (Column("age", 18.0, 100.0), Column("dose", -1.0, 3.0, missing="absent"))
#: Written by ``python tests/audit/pairs.py``.
PAIRS = Path(__file__).with_name("pairs.json")
RNG = np.random.default_rng(3)
TABLES = {name: Table({"age": RNG.uniform(20, 90, 25), "dose": RNG.uniform(-1, 3, 25)}) for name in ("a", "b")}
STUDY = Study("describe", tuple(Card(name, 25, COLUMNS) for name in TABLES), 1.0, 1e-5, derived=())
MODEL = load("describe")

#: Cases that CI leaves out: on data that mean nothing those that take longest, on their own data most variants, which take longer than their models.
LONG = {
    "test_every_model_passes_on_data_that_fit_its_cards_and_mean_nothing": [
        *(
            "pride",
            "pride, multinomial",
            "pride, prior",
            "bayes, prior",
            "lasso",
            "pls",
            "effects",
            "effects, partial",
            "effects, survival",
        ),
        *("glm", "glm, sites", "glm, multinomial", "glm, survival", "stacking", "stacking, classes", "stacking, ranked"),
        *(
            "stacking, probabilities",
            "analyses, apart",
            "analyses, columns",
            "bayes, sines",
            "lasso, moments",
            "pride, cox",
            "pride, poisson",
        ),
        *("glm, columns of counts", "glm, columns of times", "glm, cluster"),
    ],
    "test_every_model_passes_on_its_own_data": [
        "analyses",
        *(
            {name for name in CASES if "," in name}
            - {"describe, arms", "tables, numbers", "bayes, columns", "diagnose, classes"}
        ),
    ],
}


def audit(model=MODEL, study: Study = STUDY) -> Report:
    return replay(model, study, TABLES, registry=load, rounds=8)


def compiled_with(change):
    def compile_plan(study):
        plan = MODEL.compile(study)
        return dataclasses.replace(
            plan, releases=tuple(dataclasses.replace(r, mechanism=change(r.mechanism)) for r in plan.releases)
        )

    return dataclasses.replace(MODEL, compile_plan=compile_plan)


def with_step(reply_type, answer):
    def coordinate(plan):
        replies = yield [Ask(card.name, "sums", Nothing()) for card in plan.study.parties]
        return len(replies)

    return dataclasses.replace(MODEL, steps=(Step("sums", Nothing, reply_type, answer),), coordinate=coordinate)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("unit", list(ROWWISE))
def test_the_honest_study_passes_and_attains_its_bounds(unit: Unit, adjacency: str) -> None:
    report = audit(study=msgspec.structs.replace(STUDY, unit=str(unit), adjacency=adjacency))
    assert report.passed, str(report)
    for (_, party, _), share in report.largest.items():
        assert share > 0.95, party
    assert "no violation" in str(report)


def test_a_sensitivity_five_per_cent_too_small_is_caught() -> None:
    """The noise is five per cent smaller than calibrated, the declared reach is shrunk to hide it."""

    def shrink(mechanism):
        reach = tuple((unit, dataclasses.replace(r, distance=0.95 * r.distance)) for unit, r in mechanism.reach)
        return dataclasses.replace(mechanism, reach=reach, scale=0.95 * mechanism.scale)

    report = audit(compiled_with(shrink))
    assert not report.passed
    assert {v.unit for v in report.violations} == {Unit.RECORD, Unit.ATTRIBUTE}
    assert "VIOLATIONS" in str(report)


def test_a_raw_value_in_a_public_field_is_caught() -> None:
    class Leaky(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        sums: Released
        largest: Public[float]

    def leaky(context, request):
        return Leaky(MODEL.steps[0].answer(context, request).sums, Public(float(context.table["age"].max())))

    report = audit(with_step(Leaky, leaky))
    assert any("public field" in v.what for v in report.violations)
    assert not any(str(TABLES["a"]["age"].max()) in str(v) for v in report.violations)


def test_control_flow_that_depends_on_data_is_caught() -> None:
    class Several(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        sums: tuple[Released, ...]

    def sometimes(context, request):
        reply = MODEL.steps[0].answer(context, request)
        return Several((reply.sums,) if context.table["age"][0] > 60 else ())

    report = audit(with_step(Several, sometimes))
    assert any("number of messages" in v.what for v in report.violations)


def test_a_refusal_that_depends_on_data_is_caught() -> None:
    def moody(context, request):
        if context.table["age"][0] >= 100:
            raise DataError("too old")
        return MODEL.steps[0].answer(context, request)

    report = audit(with_step(SumsReply, moody), msgspec.structs.replace(STUDY))
    assert any("refused" in v.what for v in report.violations)


def test_shapes_names_and_forms_that_depend_on_data_are_caught() -> None:
    two, three = Array.of(np.zeros(2)), Array.of(np.zeros(3))
    release = Array.of(np.zeros(5, dtype=np.int64))
    pairs = {
        "another form": (Public(1), Entrusted("aggregator", two)),
        "sealed": (Sealed("node", b"xxx"), Sealed("node", b"xxxx")),
        "receiver": (Sealed("node", b"xxx"), Sealed("edon", b"xxx")),
        "shape": (Entrusted("aggregator", two), Entrusted("aggregator", three)),
        "the shape": (Disclosed(("age",), two), Disclosed(("age",), three)),
        "which release": (Released("sums", 0, release), Released("sums", 1, release)),
    }
    for words, (ours, theirs) in pairs.items():
        assert any(words in found for found in differences(ours, theirs)), words
        assert not list(differences(ours, ours))


@pytest.mark.long
def test_rows_whose_guarantee_covers_the_response_are_audited_with_other_responses() -> None:
    case = CASES["lasso"]()
    study = msgspec.structs.replace(case.study, unit="record")
    report = replay(load("lasso"), study, case.tables, registry=load, rounds=1)
    assert report.passed, str(report)
    name = study.parties[0].name
    assert report.largest[Unit.RECORD, name, "mean"] > 0.1
    assert report.largest[Unit.RECORD, name, "pick"] > 0.1
    assert not {f"{name}.pick", f"{name}.mean"} & set(report.unmeasured)


@pytest.mark.long
@pytest.mark.parametrize("missing", ["absent", "indicator"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_value_gone_missing_that_leaves_another_row_is_audited(
    intercept: bool, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G3: under zero-out one value had the reach of a record that vanishes; the neighbours are such that the audit finds it."""
    columns = (*(Column(f"x{j}", -1.0, 1.0, missing=missing) for j in range(2)), Column("y", -1.0, 1.0))
    rng = np.random.default_rng(1)
    tables = {name: Table({c.name: rng.uniform(-1, 1, 12) for c in columns}) for name in ("a", "b")}
    parameters = {"response": "y", "norm": 1.0, "fit_intercept": intercept}
    cards = tuple(Card(name, 12, columns) for name in tables)
    trusted = {"aggregation": "trusted"}
    asked = Study("bayes", cards, 1.0, 1e-5, adjacency="zero-out", trust=trusted, parameters=parameters, derived=())
    report = replay(load("bayes"), asked, tables, registry=load, rounds=8)
    assert report.passed, str(report)
    monkeypatch.setattr(MomentsLayout, "makes_other_rows", False)
    broken = replay(load("bayes"), msgspec.structs.replace(asked, run=2), tables, registry=load, rounds=8)
    assert not broken.passed, str(broken)  # under a norm what stays is shortened less, whatever the rule
    assert all(v.unit is Unit.ATTRIBUTE for v in broken.violations)


def rounds_study(method: str, unit: str, adjacency: str) -> tuple[Study, dict[str, Table]]:
    columns = (Column("x0", -1.0, 1.0), Column("g", categories=("u", "v")), Column("y", -1.0, 1.0))
    rng = np.random.default_rng(1)
    tables = {
        name: Table(
            {
                "x0": rng.uniform(-1, 1, 12),
                "g": rng.choice(np.array(["u", "v"], dtype=object), 12),
                "y": rng.uniform(-1, 1, 12),
            }
        )
        for name in ("a", "b")
    }
    parameters = {"response": "y", "method": method, "max_passes": {"direction": 48, "gradient": 17}.get(method, 5)}
    cards = tuple(Card(name, 12, columns) for name in tables)
    trusted = {"aggregation": "trusted"}
    asked = Study(
        "bayes", cards, 1.0, 1e-5, unit=unit, adjacency=adjacency, trust=trusted, parameters=parameters, derived=()
    )
    return asked, tables


@pytest.mark.long_for(
    "gradient-attribute-replace",
    "direction-record-replace",
    "direction-attribute-replace",
    "gradient-record-replace",
    "refinement-record-replace",
    "refinement-attribute-replace",
    "mean-record-replace",
    "mean-attribute-replace",
)
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("unit", list(ROWWISE))
@pytest.mark.parametrize("method", ["refinement", "gradient", "direction", "mean"])
def test_rounds_of_the_regression_are_audited_in_every_unit(method: str, unit: Unit, adjacency: str) -> None:
    asked, tables = rounds_study(method, str(unit), adjacency)
    long = method in {"gradient", "direction"}
    report = replay(load("bayes"), asked, tables, registry=load, rounds=3 if long else 6)
    assert report.passed, str(report)
    reached = {name for who, _, name in report.largest if who == unit and report.largest[who, _, name] > 0.1}
    # Under zero-out no single value of columns that are never missing can be left out.
    wanted = {"descent", "length"} if long else {"descent"}
    assert wanted <= reached or (unit is Unit.ATTRIBUTE and adjacency == "zero-out")


@pytest.mark.long
def test_directions_of_several_responses_are_audited() -> None:
    columns = (Column("x0", -1.0, 1.0), Column("y0", -1.0, 1.0), Column("y1", 0.0, 4.0))
    rng = np.random.default_rng(1)
    tables = {name: Table({c.name: rng.uniform(*c.range, 4) for c in columns}) for name in ("a", "b")}
    parameters = {"response": ["y0", "y1"], "basis": "none", "method": "direction"}
    cards, trusted = tuple(Card(name, 4, columns) for name in tables), {"aggregation": "trusted"}
    asked = Study("pls", cards, 1.0, 1e-5, trust=trusted, parameters=parameters, derived=())
    report = replay(load("pls"), asked, tables, registry=load, rounds=2)
    assert report.passed, str(report)
    reached = {name for who, _, name in report.largest if report.largest[who, _, name] > 0.1}
    assert {"base", "descent", "length"} <= reached


@pytest.mark.long
def test_rounds_whose_products_are_not_cut_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncut(residual, square, fine, farthest, longest) -> None:
        residual[:] = np.trunc(np.clip(residual * fine, -farthest, farthest))

    asked, tables = rounds_study("gradient", "record", "replace")
    monkeypatch.setattr(standard_rows, "cut_residuals", uncut)
    monkeypatch.setattr(Quantity, "own", lambda self, context, settings: self.statistic(context, settings))
    broken = replay(load("bayes"), asked, tables, registry=load, rounds=6)
    assert not broken.passed, str(broken)
