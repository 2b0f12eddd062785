"""Advice on a plan: the budget that it wastes, and the checks that it leaves out, in words: before anybody looks at data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unpooled.models import load
from unpooled.privacy.unit import Split

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan

#: A plan that spends less than this part of what is asked says so.
_SPENT = 0.95


def advice(plan: Plan) -> tuple[str, ...]:
    """Notes on a plan; none where there is nothing to say."""
    study = plan.study
    found: list[str] = list(load(study.row).notes(plan))
    vertical = plan.split is Split.VERTICAL and len(study.parties) > 1
    senders = {release.party for release in plan.releases}
    silent = [card.name for card in study.parties if vertical and senders and card.columns and card.name not in senders]
    found += [f"{name} releases nothing: nobody else reads its columns, so they help nobody but {name}" for name in silent]
    spent = plan.statement.epsilon_per_unit[study.unit]
    if math.isfinite(study.epsilon) and spent < _SPENT * study.epsilon:
        found.append(f"of epsilon = {study.epsilon:g} the plan spends {spent:.4g}: the rest buys nothing, ask for less")
    if vertical and not study.ids and not plan.links:
        found.append(
            "nobody checks that the parties hold the same rows in the same order; rows that do not line up give a result about nobody. "
            "Name an id column in every party file (`id`), and use the new cards"
        )
    return tuple(found)
