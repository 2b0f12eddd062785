"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.aggregation.moments import Moments
from unpooled.models.pls.estimator import PrivatePLSRegression

if TYPE_CHECKING:
    from unpooled.models.pls.coordinator import PlsResult
    from unpooled.models.pls.plan import PlsDesign
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan[PlsDesign], result: PlsResult) -> PrivatePLSRegression:
    """With the released coefficients, weights and loadings."""
    estimator = PrivatePLSRegression(epsilon=plan.study.epsilon, delta=plan.study.delta, calibration=plan.study.calibration)
    estimator.method_ = result.method
    if result.moments is not None:
        found = tuple(Moments.of(one).of_run(plan) for one in (result.moments, *result.more))
        estimator.moments_ = found if result.more else found[0]
    if result.drawn is not None:
        estimator.drawn_ = result.drawn
    responses = plan.design.parameters.responses
    channels = [column for column in plan.study.parties[0].columns if column.name not in responses]
    return estimator._from(result.model).of_study(plan, channels)  # noqa: SLF001 - its own model's
