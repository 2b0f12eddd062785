"""Regression of either split: rows at different parties, or columns of the same rows at different parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from unpooled.linear.drawn import drawn_fit
from unpooled.linear.fit import plain
from unpooled.models.bayes import coordinator, plan
from unpooled.models.bayes.columns import plan as columns
from unpooled.models.bayes.columns.sines import SineDesign, by_sines
from unpooled.models.bayes.coordinator import BayesResult, coefficients_of
from unpooled.privacy.study import COLUMNS
from unpooled.products.design import JointDesign
from unpooled.products.moments import joint_moments

if TYPE_CHECKING:
    from unpooled.linear.fit import LinearFit
    from unpooled.linear.moments import StoredMoments
    from unpooled.privacy.plan import Plan, Study
    from unpooled.products.design import ColumnsDesign
    from unpooled.protocol.registry import Conversation


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study: of joint sums where it says that columns are split, else of totals over rows."""
    split = study.parameters.get("split")
    return columns.compile_plan(study) if split == COLUMNS else plan.compile_plan(study)


def coordinate(compiled: Plan) -> Conversation:
    """Return the conversation of a study of either split."""
    design = compiled.design
    if isinstance(design, SineDesign):
        return _result(design, (yield from by_sines(compiled)), None, columns.SINES)
    if isinstance(design, JointDesign):
        moments = yield from joint_moments(compiled)
        models = cast("columns.Parameters", design.parameters).prior
        fit, drawn = drawn_fit(moments, models) if models else (plain(moments.posterior()), None)
        return msgspec.structs.replace(_result(design, fit, moments.stored(), "joint moments"), drawn=drawn)
    return (yield from coordinator.coordinate(compiled))


def _result(design: ColumnsDesign, fit: LinearFit, moments: StoredMoments | None, method: str) -> BayesResult:
    level = cast("columns.Parameters", design.parameters).level
    found = coefficients_of(fit, design.layout.names, level)
    return BayesResult(found, fit.intercept_, level, design.parties, (), moments, method)
