"""Pure generator: the conversations of all analyses, one after the other, in the order of the study.

An analysis from whose replies no result follows is a failed one: its budget is spent, and the others go on. What makes a study stop and be
continued later (a party that is away, a reply that does not fit the plan) stops all of it, and finished analyses can be read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import DataError, PlanMismatch, ProtocolError, StudyAborted, UnpooledError
from unpooled.estimation.contained import conversation_under
from unpooled.inference.sites import PooledTables
from unpooled.models import load
from unpooled.models.analyses.declared import pooled_of
from unpooled.privacy.exposure import BETWEEN
from unpooled.protocol.registry import Analysed, Panel

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation
    from unpooled.protocol.terms import ResultTerm


class Failed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An analysis that was paid for and has no result, with the reason in words."""

    failed: str


def coordinate(plan: Plan, until: str = "") -> Conversation:
    """Run all analyses, or those up to the one of this name, and return their results by name."""
    results: dict[str, Any] = {}
    for name, inner in plan.analyses.items():
        results[name] = yield from _analysis(name, inner)
        if name == until:
            break
    return results


def _analysis(name: str, plan: Plan) -> Conversation:
    """One conversation; what makes its replies useless is its own failure."""
    try:
        return (yield from conversation_under(name, load(plan.study.row).coordinate(plan)))
    except (ProtocolError, PlanMismatch, StudyAborted):
        raise
    except (UnpooledError, ArithmeticError, np.linalg.LinAlgError) as error:
        return Failed(str(error) if isinstance(error, UnpooledError) else "no result follows from these replies")


def parts(plan: Plan, results: dict[str, Any]) -> tuple[Analysed, ...]:
    """Return the analyses that have ended, each with its model, plan and result."""
    found = []
    for name, result in results.items():
        inner = plan.analysis(name)
        failed = result.failed if isinstance(result, Failed) else ""
        found.append(Analysed(name, load(inner.study.row), inner, None if failed else result, failed))
    return tuple(found)


def terms(plan: Plan, results: dict[str, Any]) -> tuple[ResultTerm, ...]:
    """Return the lines of all analyses, and of those that are pooled over sites; the group says whose they are."""
    own = tuple(
        msgspec.structs.replace(term, group=f"{one.name}{BETWEEN}{term.group}" if term.group else one.name)
        for one in parts(plan, results)
        if not one.failed
        for term in one.model.reading.terms(one.plan, one.result)
    )
    found = tables(plan, results)
    return own if found is None else own + found.lines


def tables(plan: Plan, results: dict[str, Any]) -> PooledTables | None:
    """Return the meta-analyses; None without any."""
    found = pooled_of(plan, results)
    return PooledTables(found) if found else None


def foot(plan: Plan, results: dict[str, Any]) -> tuple[str, ...]:
    """Return the tables of the meta-analyses."""
    found = tables(plan, results)
    return () if found is None else found.texts


def panels(plan: Plan, results: dict[str, Any]) -> tuple[Panel, ...]:
    """Return the figures of all analyses, and forest plots of those that are pooled over sites."""
    found = tables(plan, results)
    return (() if found is None else found.panels) + tuple(
        replace(panel, title=f"{one.name}{BETWEEN}{panel.title}")
        for one in parts(plan, results)
        if not one.failed
        for panel in one.model.reading.panels(one.plan, one.result)
    )


def result_of(plan: Plan, raw: bytes) -> dict[str, Any]:
    """Return the results of all analyses from the record of a run."""
    found: dict[str, Any] = {}
    for name, own in msgspec.msgpack.decode(raw, type=dict[str, msgspec.Raw]).items():
        inner = plan.analysis(name)
        try:
            found[name] = msgspec.msgpack.decode(own, type=Failed, strict=True)
        except msgspec.ValidationError:
            row = load(inner.study.row)
            found[name] = row.reading.again(row.name, inner, bytes(own))
    if list(found) != list(plan.analyses):
        raise DataError("the record does not hold the analyses of its study")
    return found
