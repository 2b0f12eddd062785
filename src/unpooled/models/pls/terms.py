"""The coefficients of a PLS regression, line by line, along the channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.protocol.terms import ResultTerm, plain

if TYPE_CHECKING:
    from unpooled.models.pls.coordinator import PlsResult
    from unpooled.privacy.plan import Plan


def terms(plan: Plan, result: PlsResult) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Coefficients in the channels' own units; PLS has no standard errors."""
    found = plain(result.channels, result.model.coefficients.numpy().tolist())
    return (*found, ResultTerm("(intercept)", result.model.intercept))
