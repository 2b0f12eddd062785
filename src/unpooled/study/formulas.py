"""Checks formulas of the command line against public cards before a study file is written, and shows them with a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tomli_w

from unpooled.aggregation.formula_columns import made_by
from unpooled.errors import UsageError, listed
from unpooled.formula import Formula
from unpooled.models import REGISTRY, load
from unpooled.privacy.study import Card
from unpooled.protocol.template import FORMULA
from unpooled.study.files import read_card

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from unpooled.formula import DerivedColumn
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.template import Template

#: The line of a template that names the response.
_RESPONSE = 'response = "y"'
#: The column in which the comments of a template begin.
_COMMENT = 36
#: How many derived columns a plan shows.
SHOWN = 20


def checked_formula(text: str, cards: Sequence[Path]) -> Formula:
    """Read a formula, and refuse one that cannot be computed from what any of these cards declares."""
    said = Formula.parse(text)
    if said.survival:
        raise UsageError(
            "--formula takes no Surv(time, event): leave the left side out, and name response, event and cuts in the study file"
        )
    for path in cards:
        card = read_card(path)
        if not isinstance(card, Card):
            continue
        missing = [name for name in said.response if name not in {*(c.name for c in card.columns), *card.labels}]
        if missing:
            msg = f"{path.name}: the card has no column {missing[0]!r}, which the formula has on its left side: correct one of them"
            raise UsageError(msg)
        try:
            said.derive([column for column in card.columns if column.name not in said.response])
        except UsageError as error:
            msg = f"{path.name}: {error}"
            raise UsageError(msg) from None
    return said


def with_formula(model: str, own: Template, said: Formula) -> Template:
    """Return the template with this formula, and with its left side as the response."""
    if not own.takes_formula:
        able = [
            name for name, row in ((name, load(name)) for name in REGISTRY) if row.template and row.template.takes_formula
        ]
        form = "" if own.calibration == "sound" else f" in the {own.calibration} form"
        msg = f"model {model!r} takes no formula{form}: leave --formula out, or choose one of {listed(able)}"
        raise UsageError(msg)
    if said.offsets and not own.offsets:
        msg = f"model {model!r} has no offset: leave it out of the formula, or choose model 'glm'"
        raise UsageError(msg)
    others = dict(own.beside_formula)
    if said.response:
        others[_RESPONSE] = _toml("response", said.response[0])
    lines = []
    for line in own.parameters.splitlines():
        key = next((key for key in others if line.startswith(key)), None)
        if line.startswith(FORMULA):
            lines.append(f"{_toml('formula', right_side(said))}  # what the model is a function of (docs/formulas.md)")
        elif key is None:
            lines.append(line)
        else:
            lines.append(f"{others[key]:<{_COMMENT - 1}} #{line.partition('#')[2]}")
    return replace(own, parameters="\n".join(lines))


def right_side(said: Formula) -> str:
    """Return the canonical text of the right side, as a study's parameter has it."""
    return str(replace(said, response=(), survival=False))


def _toml(key: str, value: str) -> str:
    return tomli_w.dumps({key: value}).strip()


def formula_of(plan: Plan) -> dict[str, Any] | None:
    """Return the formula of a plan and the columns that it derives, as data; None without a formula."""
    made = made_by(plan.design)
    if made is None:
        return None
    found: dict[str, Any] = {"text": made.text, "columns": [_column(column) for column in made.derived.columns]}
    if made.derived.offset_column is not None:
        found["offset"] = _column(made.derived.offset_column)
    return found


def formula_lines(plan: Plan) -> list[str]:
    """Return the same in words, the first columns alone."""
    found = formula_of(plan)
    if found is None:
        return []
    columns: list[dict[str, Any]] = found["columns"]
    offset: dict[str, Any] | None = found.get("offset")
    shown = [*columns[:SHOWN], *([offset] if offset else [])]
    width = max((len(column["name"]) for column in shown), default=0)
    lines = [f"formula: {found['text']}", f"  derived columns: {len(columns)}, with bounds that follow from the cards"]
    for column in shown:
        ends = f"{column['low']:g} to {column['high']:g}"
        known = ", without a coefficient" if column is offset else ""
        lines.append(f"  {column['name']:<{width}}  {ends:<20}of {listed(column['sources'])}{known}")
    left_out = len(columns) - SHOWN
    if left_out > 0:
        lines.append(f"  and {left_out} more: --json has all of them")
    return lines


def _column(column: DerivedColumn) -> dict[str, Any]:
    return {"name": column.name, "low": column.low, "high": column.high, "sources": sorted(column.sources)}
