"""The lasso's coefficients, line by line; columns that are not listed have the coefficient 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.protocol.terms import ResultTerm

if TYPE_CHECKING:
    from unpooled.models.lasso.coordinator import LassoResult
    from unpooled.privacy.plan import Plan


def terms(plan: Plan, result: LassoResult) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Return coefficients in the data's own units, each with the party that holds the column; the constant is of the centred response."""
    found = tuple(ResultTerm(c.name, c.value, group=c.party) for c in result.coefficients)
    return (*found, ResultTerm("(intercept)", result.intercept))
