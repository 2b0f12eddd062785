"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.priors import as_numbers
from unpooled.models.lasso.declared import LOGISTIC
from unpooled.models.lasso.estimator import PrivateLasso, PrivateLassoClassifier
from unpooled.privacy.bounds import Coding

if TYPE_CHECKING:
    from unpooled.models.lasso.frank_wolfe_fit import LassoResult
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan, result: LassoResult) -> PrivateLasso | PrivateLassoClassifier:
    """Return an estimator with the released coefficients; new rows need the columns of all parties in one place."""
    given_columns = tuple(column for card in plan.study.parties for column in card.columns)
    columns = plan.design.layout.features if plan.joint else given_columns
    if len({column.name for column in columns}) != len(columns):
        raise UsageError("two parties have columns of one name, which new rows in one place cannot tell apart")
    kind = PrivateLassoClassifier if plan.design.parameters.loss == LOGISTIC else PrivateLasso
    own: dict[str, Any] = {"classes": (-1, 1)} if kind is PrivateLassoClassifier else {}
    prior = as_numbers(plan.design.parameters.prior)
    estimator = kind._of_plan(plan, columns, ("loss", "radius"), prior=prior, **own)  # noqa: SLF001 - its own model's
    if isinstance(estimator, PrivateLassoClassifier):
        estimator.classes_ = np.array([-1, 1])
    place = {name: k for k, name in enumerate(Coding(columns, 1).coded_names)}
    estimator.coef_ = np.zeros(len(place))
    for coefficient in result.coefficients:
        estimator.coef_[place[coefficient.name]] = coefficient.value
    estimator.intercept_ = result.intercept
    estimator._keep_drawn(result)  # noqa: SLF001 - its own model's
    return estimator
