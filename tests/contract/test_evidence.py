"""Dossiers and records of every model: every kind of study has words, and no record promises more than its statement."""

from __future__ import annotations

import html
import math
import re
from importlib.resources import files

import jsonschema
import msgspec
import pytest
import yaml
from cases import CASES

from unpooled.errors import UsageError
from unpooled.evidence.document import Facts, Mark, markdown, page
from unpooled.evidence.dossier import dossier
from unpooled.evidence.record import Answers, _upward, as_yaml, record
from unpooled.models import load
from unpooled.report.page import number

SCHEMA = yaml.safe_load(files("unpooled.evidence").joinpath("registry/deployments-schema.yaml").read_text(encoding="utf-8"))


@pytest.fixture(params=sorted(CASES))
def facts(request: pytest.FixtureRequest) -> Facts:
    study = msgspec.structs.replace(CASES[request.param]().study, simulation_seed=None)
    return Facts("study", load(study.row).compile(study), "why")


@pytest.mark.slow
def test_every_model_has_a_dossier(facts: Facts) -> None:
    made, statement = dossier(facts), facts.statement
    text = markdown(made)
    said = html.unescape(re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", text))
    for sentence in (statement.headline, *statement.not_protected, *statement.assumptions, *map(str, facts.plan.public)):
        assert " ".join(sentence.split()) in said
    for name, epsilon in statement.epsilon_per_unit.items():
        assert f"| {number(epsilon) if math.isfinite(epsilon) else 'none is proved'} |" in text, name
    if facts.plan.joint or facts.plan.trusted or facts.plan.voids:
        assert "No row of data leaves" not in text
        assert "Your data stay where they are" not in text
    assert ("This limits what the numbers" in text) == statement.holds
    assert not re.search(r"\b(inf|nan|None)\b", said)
    assert {line.mark for line in made.lines()} == {None, *Mark}
    assert page(made).count("[for your lawyer]") == made.marked(Mark.LAWYER)


@pytest.mark.slow_but("bayes", "describe")
def test_the_record_of_every_model_is_valid_or_refused_in_words(facts: Facts) -> None:
    answers, statement = Answers("2026-11-30", "Machine learning model"), facts.statement
    if not statement.holds:
        with pytest.raises(UsageError, match="nothing is written"):
            record(facts, answers)
        return
    held = record(facts, answers)
    jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER).validate(held)
    assert yaml.safe_load(as_yaml(held)) == held
    loss = held["deployment"]["privacy_loss"]
    stated = statement.epsilon_per_unit[statement.unit]
    assert stated * (1 - 1e-11) <= loss["privacy_parameters"]["epsilon"] <= stated * 1.002
    if statement.unit == "attribute":
        assert f"for a whole person, epsilon is {_upward(statement.epsilon_per_unit['record'])})" in loss["privacy_unit"]
