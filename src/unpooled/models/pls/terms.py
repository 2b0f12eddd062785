"""The coefficients of a PLS regression, line by line, along the channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.pls.coordinator import by_response
from unpooled.protocol.terms import ResultTerm
from unpooled.protocol.terms import plain as plain_terms

if TYPE_CHECKING:
    from unpooled.models.pls.coordinator import PlsResult
    from unpooled.privacy.plan import Plan


def terms(plan: Plan, result: PlsResult) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Return coefficients in the channels' own units; PLS has no standard errors."""
    columns, constants = by_response(result)
    return tuple(
        line
        for (name, values), constant in zip(columns.items(), constants, strict=True)
        for line in (*plain_terms(result.channels, values, group=name), ResultTerm("(intercept)", constant, group=name))
    )
