"""A generalised linear model of either split: rows at several parties, or columns of the same people at two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.glm import fit, plan
from unpooled.models.glm.columns import STEPS_OF_COLUMNS, PullDesign, compile_columns
from unpooled.models.glm.columns_fit import coordinate_columns
from unpooled.privacy.declared import COLUMNS

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.registry import Conversation

#: What a party may be asked for, in a study of either split.
STEPS = (*plan.STEPS, *STEPS_OF_COLUMNS)


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study: of products under masks where it says that columns are split, else of totals over rows."""
    return compile_columns(study) if study.parameters.get("split") == COLUMNS else plan.compile_plan(study)


def coordinate(compiled: Plan) -> Conversation:
    """Return the conversation of a study of either split."""
    by_columns = isinstance(compiled.design, PullDesign)
    return (yield from coordinate_columns(compiled) if by_columns else fit.coordinate(compiled))
