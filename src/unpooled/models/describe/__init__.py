"""Private counts, means and standard deviations of declared columns, per party and pooled; correlations where parties hold different columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.linear.releases import JOINT
from unpooled.models.describe import declared, fit
from unpooled.models.describe.declared import TEMPLATE, Range
from unpooled.models.describe.fit import ArmsSummary, JointSummary, Summary, terms
from unpooled.models.describe.outlook import outlook
from unpooled.models.describe.rows import STEPS
from unpooled.protocol.registry import Model, Panel, ResultReading

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.registry import Conversation, Step
    from unpooled.protocol.terms import PrintedTable


# --- Either split ----------------------------------------------------------------------------------------------------------
# Descriptions of either split: rows at different parties, or columns of the same rows at different parties, whose kernels are imported late.


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study: of joint moments where it says how the data are split, else of every party's sums."""
    if "split" not in study.parameters:
        return declared.compile_plan(study)
    from unpooled.models.describe.columns import compile_columns

    return compile_columns(study)


def coordinate(compiled: Plan) -> Conversation:
    """Return the conversation of a study of either split."""
    if not compiled.joint and compiled.design.arms is not None:
        return (yield from fit.coordinate_arms(compiled))
    if not compiled.joint:
        return (yield from fit.coordinate(compiled))
    from unpooled.models.describe.columns import coordinate_columns

    return (yield from coordinate_columns(compiled))


def printed(compiled: Plan, result: Any) -> tuple[PrintedTable, ...]:  # noqa: ANN401 - summaries, ranges, or both splits' own
    """Return a result as tables."""
    if not isinstance(result, JointSummary):
        return fit.printed(compiled, result)
    from unpooled.models.describe.columns import printed as printed_columns

    return printed_columns(result)


def panels(compiled: Plan, result: Any) -> tuple[Panel, ...]:  # noqa: ANN401 - as for ``printed``
    """Return the means and counts, and the correlations with their intervals."""
    if isinstance(result, ArmsSummary):
        return fit.panels_of_arms(result)
    if not isinstance(result, JointSummary):
        return fit.panels(compiled, result)
    found = fit.panels(compiled, result.summaries)
    if not result.correlations:
        return found
    names = tuple(f"{c.first}, {c.second}" for c in result.correlations)
    values, low, high = zip(*((c.value.value, c.value.low, c.value.high) for c in result.correlations), strict=True)
    return (*found, Panel("correlations", names, values, low, high))


# --- The row ---------------------------------------------------------------------------------------------------------------
# Private counts, means and standard deviations of declared columns, per party and pooled; correlations where parties hold different columns.


def _of_columns(plan: Plan | None) -> tuple[Step, ...]:  # noqa: ARG001 - for a study of any columns
    """Return the steps of joint moments, whose kernels take long to import."""
    from unpooled.products.plan import ALONE

    return ALONE


MODEL = Model(
    "describe",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(
        printed=printed,
        panels=panels,
        types=(tuple[Summary, ...], tuple[Range, ...], ArmsSummary, JointSummary),
        terms=terms,
    ),
    outlook=outlook,
    households=True,
    gaps=True,
    template=TEMPLATE,
    releases={
        "sums": "the number of values, their sum and their sum of squares in each column",
        "histogram": "the number of values in each cell of a column's range",
        "arms": "the number of values, their sum and their sum of squares in each column, for each group",
        **JOINT,
    },
    more_steps=_of_columns,
    saved=(
        "unpooled.models.describe.estimator:ArmsDescription",
        "unpooled.models.describe.estimator:DescribedBounds",
        "unpooled.models.describe.estimator:Description",
        "unpooled.models.describe.estimator:JointDescription",
    ),
    says="counts, means and standard deviations of columns",
)
