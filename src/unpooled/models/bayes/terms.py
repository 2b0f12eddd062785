"""The result of a Bayesian regression, line by line: a summary of the released moments where there are any, else the coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from unpooled.aggregation.inference import CONSTANT_TERM
from unpooled.aggregation.moments import Moments
from unpooled.protocol.terms import ResultTerm, known

if TYPE_CHECKING:
    from unpooled.aggregation.summary import SummaryTerm
    from unpooled.models.bayes.coordinator import BayesResult
    from unpooled.privacy.plan import Plan


def terms(plan: Plan, result: BayesResult) -> tuple[ResultTerm, ...]:
    """Generalised least squares with standard errors and tests, as ``summary()`` gives them; without moments the values alone."""
    if result.moments is None:
        found = tuple(ResultTerm(c.name, c.value) for c in result.coefficients)
        return (*found, ResultTerm(CONSTANT_TERM, result.intercept)) if plan.design.layout.intercept else found
    return tuple(_term(t) for t in Moments.of(result.moments).summary(result.level).terms)


def _term(t: SummaryTerm) -> ResultTerm:
    errors = {
        name: known(getattr(t, name)) for name in ("std_error", "statistic", "p_value", "conf_low", "conf_high", "privacy")
    }
    return msgspec.structs.replace(ResultTerm(t.term, t.estimate), **errors)
