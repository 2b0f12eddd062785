"""Several analyses of the same people in one study: one plan, one approval, one budget, a result each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.estimation.contained import steps_under
from unpooled.models import load
from unpooled.models.analyses.declared import compile_plan
from unpooled.models.analyses.fit import (
    coordinate,
    foot,
    panels,
    parts,
    result_of,
    tables,
    terms,
)
from unpooled.protocol.registry import Model, ResultReading

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Step


def _steps(plan: Plan | None) -> tuple[Step, ...]:
    """Return the steps of all analyses, under their names; none without a plan."""
    return steps_under(plan, load)


def _check(plan: Plan, party: str, table: Table) -> None:
    """Let every analysis refuse data that its plan cannot use."""
    for inner in plan.analyses.values():
        if any(card.name == party for card in inner.study.parties):
            load(inner.study.row).check(inner, party, table)


def _notes(plan: Plan) -> tuple[str, ...]:
    return tuple(f"{name}: {note}" for name, inner in plan.analyses.items() for note in load(inner.study.row).notes(inner))


MODEL: Model = Model(
    "analyses",
    compile_plan,
    (),
    coordinate,
    ResultReading(panels=panels, terms=terms, tables=tables, foot=foot, parts=parts, read_again=result_of),
    households=True,
    gaps=True,
    completeness=True,
    check=_check,
    notes=_notes,
    more_steps=_steps,
)
