"""The study that ``unpooled new`` writes compiles for every row as it stands, and with each of its comments taken at their word."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from cases import CASES, FIRST

from unpooled.errors import UsageError
from unpooled.models import REGISTRY, load, row_names
from unpooled.privacy.declared import parameters_of
from unpooled.privacy.plan import Plan
from unpooled.privacy.study import ANALYSES
from unpooled.study.files import read_study, write_card
from unpooled.study.run import compile_study
from unpooled.study.templates import MODELS, template

#: Every row but the one of several analyses, whose study is written from the templates of its models.
TEMPLATED = [row for row in row_names() if row != ANALYSES]
PUBLISHED = [row for row in row_names() if row.endswith("-published")]
#: Rows whose template names every parameter that the row takes.
COMPLETE = TEMPLATED


def written(row: str, folder: Path) -> tuple[str, Plan]:
    """The template of a row over the cards of its model's case, and the plan of the file."""
    model, _, form = row.partition("-")
    case = CASES[FIRST[model]]()
    names = []
    for k, card in enumerate(case.study.parties[:1] if row == "pls-published" else case.study.parties):
        (folder / f"{card.name}.toml").write_text(write_card(msgspec.structs.replace(card, key=f"{k:064x}")))
        names.append(f"{card.name}.toml")
    text = template(model, names, calibration=form or "sound")
    if (response := case.study.parameters.get("response")) is not None:
        text = text.replace('response = "y"', f'response = "{response}"')
    if 'goal = "table"' in text:
        with pytest.raises(
            UsageError, match='goal is "table"'
        ):  # so few rows have none, and the study says so before it pays
            (folder / "study.toml").write_text(text)
            compile_study(read_study(folder / "study.toml"))
        text = text.replace('goal = "table"', 'goal = "auto"')
    if (coefficients := case.study.parameters.get("coefficients")) is not None:
        said = ", ".join(f'"{name}" = {value}' for name, value in coefficients.items())
        text = text.replace("coefficients = {}", f"coefficients = {{ {said} }}")
    (folder / "study.toml").write_text(text)
    return text, compile_study(read_study(folder / "study.toml"))


def test_every_row_has_a_template() -> None:
    assert set(MODELS) == set(REGISTRY) - {ANALYSES}
    assert all(load(row).template is not None for row in TEMPLATED)


@pytest.mark.guarantee
@pytest.mark.slow_for("stacking")
@pytest.mark.parametrize("row", TEMPLATED)
def test_a_template_compiles(row: str, tmp_path: Path) -> None:
    text, plan = written(row, tmp_path)
    assert plan.statement.holds == load(row).form.promises == (row not in PUBLISHED)
    assert plan.study.row == row
    file = tmp_path / "study.toml"
    head, parameters = text.split("[parameters]")[0], text.split("[parameters]")[1].split("[privacy]")[0]
    # The defaults that comments name are the defaults.
    examples = {
        one.name
        for one in parameters_of(type(plan.design.parameters)).values()
        if one.example is not None or one.default is None
    }
    for line, name in re.findall(r'^# ((\w+) = (?:"[^"]*"|\S+))', parameters, re.MULTILINE):
        if name in examples:
            continue
        file.write_text(head + "[parameters]\n" + line + parameters + "[privacy]" + text.split("[privacy]")[1])
        assert compile_study(read_study(file)).design.parameters == plan.design.parameters, line


@pytest.mark.parametrize("row", COMPLETE)
def test_a_template_names_every_parameter_of_its_row(row: str, tmp_path: Path) -> None:
    """X8: each is set, stands in a comment with its default, or is named as one that this form does not have."""
    text, plan = written(row, tmp_path)
    parameters = text.split("[parameters]")[1].split("[privacy]")[0]
    (foreign,) = re.findall(r"^# (.*) (?:is|are) not for this form", parameters, re.MULTILINE) or [""]
    named = set(re.findall(r"^(?:# )?(\w+) = ", parameters, re.MULTILINE))
    others = set(re.split(r", | and ", foreign)) - {""}
    fields = set(type(plan.design.parameters).__struct_fields__)
    assert named | others == fields
    assert not named & others


def test_a_form_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="has no published form"):
        template("glm", calibration="published")
    with pytest.raises(UsageError, match="no published form"):
        template("link", calibration="published")
