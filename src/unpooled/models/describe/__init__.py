"""Private counts, means and standard deviations of declared columns, per party and pooled; correlations where parties hold different columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.linear.releases import JOINT
from unpooled.models.describe.compared import ArmsSummary
from unpooled.models.describe.coordinator import JointSummary, Summary
from unpooled.models.describe.outlook import outlook
from unpooled.models.describe.party import STEPS
from unpooled.models.describe.ranges import Range
from unpooled.models.describe.splits import compile_plan, coordinate, panels, render
from unpooled.models.describe.template import TEMPLATE
from unpooled.models.describe.terms import terms
from unpooled.protocol.registry import Model, ResultReading

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Step


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
        render=render, panels=panels, types=(tuple[Summary, ...], tuple[Range, ...], ArmsSummary, JointSummary), terms=terms
    ),
    outlook=outlook,
    households=True,
    template=TEMPLATE,
    releases={
        "sums": "the number of values, their sum and their sum of squares in each column",
        "histogram": "the number of values in each cell of a column's range",
        "arms": "the number of values, their sum and their sum of squares in each column, for each group",
        **JOINT,
    },
    more_steps=_of_columns,
    saved=(
        "unpooled.models.describe.results:ArmsDescription",
        "unpooled.models.describe.results:DescribedBounds",
        "unpooled.models.describe.results:Description",
        "unpooled.models.describe.results:JointDescription",
    ),
    says="counts, means and standard deviations of columns",
)
