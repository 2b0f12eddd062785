"""The study that ``unpooled new`` writes compiles for every model as it stands, and with each of its comments taken at their word."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from cases import CASES

from unpooled.models import REGISTRY
from unpooled.study.files import read_study, write_card
from unpooled.study.run import compile_study
from unpooled.study.templates import MODELS, template


def test_every_model_has_a_template() -> None:
    assert set(MODELS) == {row for row in REGISTRY if "-" not in row}


@pytest.mark.parametrize("model", MODELS)
def test_a_template_compiles(model: str, tmp_path: Path) -> None:
    case = CASES[model]()
    names = []
    for k, card in enumerate(case.study.parties):
        (tmp_path / f"{card.name}.toml").write_text(write_card(msgspec.structs.replace(card, key=f"{k:064x}")))
        names.append(f"{card.name}.toml")
    text = template(model, names)
    if (response := case.study.parameters.get("response")) is not None:
        text = text.replace('response = "y"', f'response = "{response}"')
    if (coefficients := case.study.parameters.get("coefficients")) is not None:
        said = ", ".join(f'"{name}" = {value}' for name, value in coefficients.items())
        text = text.replace("coefficients = {}", f"coefficients = {{ {said} }}")
    file = tmp_path / "study.toml"
    file.write_text(text)
    plan = compile_study(read_study(file))
    assert plan.statement.holds
    head, parameters = text.split("[parameters]")[0], text.split("[parameters]")[1].split("[privacy]")[0]
    for line in re.findall(r"^# (\w+ = \S+)", parameters, re.MULTILINE):  # the defaults that comments name are the defaults
        if line.startswith(("columns", "norm", "task", 'family = "squared"')):
            continue
        file.write_text(head + "[parameters]\n" + line + parameters + "[privacy]" + text.split("[privacy]")[1])
        assert compile_study(read_study(file)).design.parameters == plan.design.parameters, line
