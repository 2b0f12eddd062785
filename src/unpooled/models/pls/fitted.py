"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.estimation.priors import as_numbers
from unpooled.linear.moments import Moments
from unpooled.models.pls.estimator import PrivatePLSRegression

if TYPE_CHECKING:
    from unpooled.models.pls.declared import PlsDesign
    from unpooled.models.pls.fit import PlsResult
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan[PlsDesign], result: PlsResult) -> PrivatePLSRegression:
    """Return an estimator with the released coefficients, weights and loadings."""
    given = plan.design.parameters
    channels = [column for column in plan.study.parties[0].columns if column.name not in given.responses]
    own: dict[str, Any] = {
        "prior": as_numbers(given.prior),
        "reference": np.array(given.reference) if given.reference else None,
    }
    own |= {"basis": np.array(given.matrix)} if given.matrix else {}
    estimator = PrivatePLSRegression._of_plan(plan, channels, ("matrix",), **own)  # noqa: SLF001 - its own model's
    estimator.method_ = result.method
    if result.moments is not None:
        found = tuple(Moments.of(one).of_run(plan) for one in (result.moments, *result.more))
        estimator.moments_ = found if result.more else found[0]
    if result.drawn is not None:
        estimator.drawn_ = result.drawn
    return estimator._from(result.model).of_study(plan, channels)  # noqa: SLF001 - as above
