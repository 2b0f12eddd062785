"""The models of a stack, line by line, and the one that a party keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.protocol.terms import ResultTerm, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.models.stacking.coordinator import StackingResult
    from unpooled.privacy.plan import Plan

_INTERCEPT = "(intercept)"
#: The group of the weights that combine the models.
HIGH = "high level"


def terms(plan: Plan, result: StackingResult) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Log odds per unit of every column, for each party's model; then the weights of the high level, where one was learned."""
    found: list[ResultTerm] = []
    for model in result.models:
        found += plain((*model.names, _INTERCEPT), (*model.coefficients, model.intercept), model.party)
    names = [model.party for model in result.models][: len(result.high)]
    names += [_INTERCEPT] * (len(result.high) - len(names))
    return (*found, *plain(names, result.high, HIGH))


def kept_terms(plan: Plan, party: str, kept: Mapping[str, NDArray[Any]]) -> tuple[ResultTerm, ...]:
    """The party's own model, which it also released."""
    from unpooled.models.stacking.party import KEPT

    block = plan.design.block(party)
    if block is None or KEPT not in kept:
        return ()
    coefficients, intercept = block.in_own_units(kept[KEPT])
    return plain((*block.coding.coded_names, _INTERCEPT), (*coefficients.tolist(), intercept))
