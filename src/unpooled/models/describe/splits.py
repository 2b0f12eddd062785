"""Descriptions of either split: rows at different parties, or columns of the same rows at different parties, whose kernels are imported late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.models.describe import compared, coordinator, plan
from unpooled.models.describe.compared import ArmsSummary
from unpooled.models.describe.coordinator import JointSummary
from unpooled.protocol.registry import Panel

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.registry import Conversation


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study: of joint moments where it says how the data are split, else of every party's sums."""
    if "split" not in study.parameters:
        return plan.compile_plan(study)
    from unpooled.models.describe.columns import compile_columns

    return compile_columns(study)


def coordinate(compiled: Plan) -> Conversation:
    """Return the conversation of a study of either split."""
    if not compiled.joint and compiled.design.arms is not None:
        return (yield from compared.coordinate(compiled))
    if not compiled.joint:
        return (yield from coordinator.coordinate(compiled))
    from unpooled.models.describe.columns import coordinate_columns

    return (yield from coordinate_columns(compiled))


def render(result: Any) -> str:  # noqa: ANN401 - summaries, ranges, or both splits' own
    """Return a result as a table."""
    if isinstance(result, ArmsSummary):
        return compared.render(result)
    if not isinstance(result, JointSummary):
        return coordinator.render(result)
    from unpooled.models.describe.columns import render as render_columns

    return render_columns(result)


def panels(compiled: Plan, result: Any) -> tuple[Panel, ...]:  # noqa: ANN401 - as for ``render``
    """Return the means and counts, and the correlations with their intervals."""
    if isinstance(result, ArmsSummary):
        return compared.panels(result)
    if not isinstance(result, JointSummary):
        return coordinator.panels(compiled, result)
    found = coordinator.panels(compiled, result.summaries)
    if not result.correlations:
        return found
    names = tuple(f"{c.first}, {c.second}" for c in result.correlations)
    values, low, high = zip(*((c.value.value, c.value.low, c.value.high) for c in result.correlations), strict=True)
    return (*found, Panel("correlations", names, values, low, high))
