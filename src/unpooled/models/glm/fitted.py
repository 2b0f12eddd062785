"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.estimation.priors import as_numbers
from unpooled.models.glm.estimator import PrivateGLM

if TYPE_CHECKING:
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.models.glm.result import GlmResult
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan[GlmDesign], result: GlmResult) -> PrivateGLM:
    """Return an estimator with the coefficients of the result; predictions ask for exposures and offsets, as they were declared."""
    design = plan.design
    given, responses = design.parameters, design.responses
    estimator = PrivateGLM._of_plan(  # noqa: SLF001 - its own model's
        plan,
        design.layout.declared,
        prior=as_numbers(given.prior),
        exposure_bounds=None if responses.exposure is None else responses.exposure.range,
        offset_bounds=None if responses.offset is None or not given.offset else responses.offset.range,
        weights_bounds=None if responses.weighting is None else responses.weighting.column.range,
    )
    if responses.response.categories is not None:
        estimator.classes_ = np.array(responses.response.categories, dtype=object)
    return estimator._take(result)  # noqa: SLF001 - as above
