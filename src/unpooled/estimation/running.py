"""A study of this process, as every ``fit`` and function runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.privacy.policy import Policy
from unpooled.protocol.local import run_in_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.keeper import Keeper
    from unpooled.protocol.local import LocalRun
    from unpooled.protocol.step import Model


def run(
    model: Model,
    study: Study,
    tables: Mapping[str, Table],
    keepers: Mapping[str, Keeper] | None = None,
    budget: Budget | None = None,
    roots: Mapping[str, bytes] | None = None,
) -> tuple[Plan, LocalRun]:
    """Return the plan of a study, and its run over tables of this process."""
    plan = model.compile(study)
    return plan, run_in_process(model, plan, dict(tables), Policy.in_process(), lambda _: model, keepers, budget, roots)


__all__ = ["run"]
