"""Several analyses of the same people in one study: one plan, one approval, one budget, a result each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from unpooled.models import load
from unpooled.models.analyses.coordinator import coordinate, foot, panels, parts, result_of, tables, terms
from unpooled.models.analyses.plan import compile_plan
from unpooled.privacy.exposure import BETWEEN
from unpooled.protocol.step import Model

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import Table
    from unpooled.protocol.step import Step


def _steps(plan: Plan | None) -> tuple[Step, ...]:
    """Return the steps of all analyses, under their names; none without a plan."""
    return tuple(
        replace(
            step,
            name=f"{name}{BETWEEN}{step.name}",
            of=step.of and f"{name}{BETWEEN}{step.of}",
            times=_times(name, step.times),
        )
        for name, inner in (plan.analyses if plan else {}).items()
        for model in (load(inner.study.row),)
        for step in (*model.steps, *model.more_steps(inner))
    )


def _times(name: str, times: Callable[[Plan], int] | None) -> Callable[[Plan], int] | None:
    return None if times is None else lambda plan: times(plan.analyses[name])


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
    panels=panels,
    terms=terms,
    tables=tables,
    foot=foot,
    parts=parts,
    read_result=result_of,
    households=True,
    check=_check,
    notes=_notes,
    more_steps=_steps,
)
