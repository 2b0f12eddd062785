"""Advice on a plan: the budget that it wastes, and the checks that it leaves out, in words: before anybody looks at data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import JointRowsError, UsageError
from unpooled.estimation.utility import glance
from unpooled.models import load
from unpooled.privacy.unit import Split
from unpooled.study.run import compile_study

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study

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


def compiled_or_instead(study: Study) -> Plan:
    """Return the plan of a study; where a party lets no masked rows travel, the refusal says what sketches are expected to give."""
    try:
        return compile_study(study)
    except JointRowsError as refused:
        instead = without_joint_rows(study)
        raise JointRowsError(f"{refused}. {instead}" if instead else str(refused)) from None


def without_joint_rows(study: Study) -> str:
    """Return a sentence on what sketches are expected to give in the place of joint moments; empty where they answer another question."""
    response = study.parameters.get("response")
    holder = next((card.name for card in study.parties if any(c.name == response for c in card.columns)), "")
    if not holder or study.parameters.get("loss") or math.isinf(study.epsilon):
        return ""
    cards = tuple(
        msgspec.structs.replace(
            card,
            columns=tuple(c for c in card.columns if c.name != response),
            labels=(str(response),) if card.name == holder else (),
            key="",
        )
        for card in study.parties
    )
    sketches = load("pride")
    asked = msgspec.structs.replace(
        study, model="pride", parties=cards, helpers=(), trust={}, parameters={"response": response}, ids=""
    )
    try:
        found = glance(sketches, asked)
    except UsageError:  # its columns or parties are not for sketches
        return ""
    if found is None:
        return ""
    return (
        f"Expected of PRIDE for the same persons and epsilon, by simulations without data: {found.measure} {found.error:.3g} at {holder!r}, "
        f"whose own columns alone give {found.nothing_released:.3g}; no table for publication"
    )
