"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.estimation.priors import as_numbers
from unpooled.linear.fit import LinearFit
from unpooled.linear.moments import Moments
from unpooled.models.bayes.estimator import PrivateLinearRegression
from unpooled.products.design import ColumnsDesign

if TYPE_CHECKING:
    from unpooled.models.bayes.declared import BayesDesign
    from unpooled.models.bayes.fit import BayesResult
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan[BayesDesign], result: BayesResult) -> PrivateLinearRegression:
    """Return a fitted estimator, made from the released moments where there are any, so that it has everything that follows from them."""
    design: Any = plan.design
    split, layout = isinstance(design, ColumnsDesign), design.layout
    columns = layout.features if split else layout.declared
    estimator = PrivateLinearRegression._of_plan(plan, columns, prior=as_numbers(design.parameters.prior))  # noqa: SLF001 - its own model's
    if result.moments is not None:
        estimator._from(Moments.of(result.moments).of_run(plan))  # noqa: SLF001 - as above
    else:
        coefficients = np.array([c.value for c in result.coefficients])
        fit = LinearFit.without_errors(coefficients, result.intercept, has_intercept=layout.intercept)
        if result.focused is not None:
            estimator.focused_ = Moments.of(result.focused).of_run(plan)
        estimator._take(fit)  # noqa: SLF001 - as above
        if result.drawn is not None:
            estimator.drawn_ = result.drawn
    estimator.projection_, estimator.method_ = result.projection, result.method
    return estimator.of_study(plan, columns)
