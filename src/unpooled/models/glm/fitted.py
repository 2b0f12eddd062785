"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.glm.estimator import PrivateGLM

if TYPE_CHECKING:
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.models.glm.result import GlmResult
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan[GlmDesign], result: GlmResult) -> PrivateGLM:
    """With the coefficients of the result; exposures and offsets are asked for in predictions, as they were declared."""
    design = plan.design
    given, responses = design.parameters, design.responses
    estimator = PrivateGLM(
        result.family,
        epsilon=plan.study.epsilon,
        delta=plan.study.delta,
        calibration=plan.study.calibration,
        method=result.method,
        dispersion=given.dispersion,
        covariance=given.covariance,
        exposure_bounds=None if responses.exposure is None else responses.exposure.range,
        offset_bounds=None if responses.offset is None or not given.offset else responses.offset.range,
        weights_bounds=None if responses.weighting is None else responses.weighting.column.range,
        cuts=given.cuts,
        y_bounds=responses.response.range if result.life_table is not None else None,
        ridge=given.ridge,
        fit_intercept=given.fit_intercept,
    )
    if responses.response.categories is not None:
        estimator.classes_ = np.array(responses.response.categories, dtype=object)
    return estimator.of_study(plan, design.layout.declared)._take(result)  # noqa: SLF001 - its own model's
