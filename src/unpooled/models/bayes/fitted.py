"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.columns.design import ColumnsDesign
from unpooled.aggregation.linear_fit import LinearFit
from unpooled.aggregation.moments import Moments
from unpooled.estimation.priors import as_numbers
from unpooled.models.bayes.estimator import PrivateLinearRegression

if TYPE_CHECKING:
    from unpooled.models.bayes.coordinator import BayesResult
    from unpooled.models.bayes.plan import BayesDesign
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan[BayesDesign], result: BayesResult) -> PrivateLinearRegression:
    """Return a fitted estimator, made from the released moments where there are any, so that it has everything that follows from them."""
    design: Any = plan.design
    models = as_numbers(design.parameters.prior)
    coefficients = np.array([c.value for c in result.coefficients])
    fit = LinearFit.without_errors(coefficients, result.intercept, has_intercept=design.layout.intercept)
    if isinstance(design, ColumnsDesign):
        budget: dict[str, Any] = {"epsilon": plan.study.epsilon, "delta": plan.study.delta, "prior": models}
        if result.moments is not None:
            of_columns = PrivateLinearRegression.from_moments(Moments.of(result.moments).of_run(plan), **budget)
        else:
            of_columns = PrivateLinearRegression(method=result.method, **budget)._take(fit)  # noqa: SLF001 - its own model's
        of_columns.projection_, of_columns.method_ = result.projection, result.method
        return of_columns.of_study(plan, design.layout.features)
    layout, given = design.layout, design.parameters
    parameters: dict[str, Any] = {
        "epsilon": plan.study.epsilon,
        "delta": plan.study.delta,
        "calibration": plan.study.calibration,
        "prior_precision": given.prior_precision,
        "noise_precision": given.noise_precision,
        "posterior": given.posterior,
        "projection": given.projection,
        "prior": models,
    }
    if result.moments is not None:
        estimator = PrivateLinearRegression.from_moments(Moments.of(result.moments).of_run(plan), **parameters)
    else:
        estimator = PrivateLinearRegression(fit_intercept=given.fit_intercept, method=result.method, **parameters)
        if result.focused is not None:
            estimator.focus, estimator.focused_ = given.focus, Moments.of(result.focused).of_run(plan)
        estimator._take(fit)  # noqa: SLF001 - its own model's
        if result.drawn is not None:
            estimator.drawn_ = result.drawn
    estimator.projection_, estimator.method_ = result.projection, result.method
    return estimator.of_study(plan, layout.declared)
