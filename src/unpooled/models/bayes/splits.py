"""Regression of either split: rows at different parties, or columns of the same rows at different parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from unpooled.aggregation.columns.design import JointDesign
from unpooled.aggregation.columns.moments import joint_moments
from unpooled.aggregation.columns.words import COLUMNS
from unpooled.models.bayes import coordinator, plan
from unpooled.models.bayes.columns import plan as columns
from unpooled.models.bayes.coordinator import BayesResult, coefficients_of

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.step import Conversation


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study: of joint moments where it says that columns are split, else of totals over rows."""
    split = study.parameters.get("split")
    return columns.compile_plan(study) if split == COLUMNS else plan.compile_plan(study)


def coordinate(compiled: Plan) -> Conversation:
    """Return the conversation of a study of either split."""
    design = compiled.design
    if not isinstance(design, JointDesign):
        return (yield from coordinator.coordinate(compiled))
    moments = yield from joint_moments(compiled)
    fit = moments.posterior()
    level = cast("columns.Parameters", design.parameters).level
    found = coefficients_of(fit, design.layout.names, level)
    return BayesResult(found, fit.intercept_, level, design.parties, (), moments.stored(), "joint moments")
