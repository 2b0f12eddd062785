"""The models of a stack, line by line, and the one that a party keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.privacy.bounds import text_of
from unpooled.protocol.terms import ResultTerm, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.models.stacking.coordinator import StackingResult
    from unpooled.models.stacking.plan import StackingDesign
    from unpooled.privacy.plan import Plan

_INTERCEPT = "(intercept)"
#: The group of the weights that combine the models.
HIGH = "high level"


def terms(plan: Plan[StackingDesign], result: StackingResult) -> tuple[ResultTerm, ...]:
    """Return log odds per unit of every column, for each party's model; then the weights of the high level, where one was learned."""
    found: list[ResultTerm] = []
    for model in result.models:
        found += plain((*model.names, _INTERCEPT), (*model.coefficients, model.intercept), model.name)
    design = plan.design
    classes = [text_of(c) for c in design.parameters.classes] if design.outcomes.several else [""]
    if not result.high:
        return tuple(found)
    names = [m.name for m in result.models] + [_INTERCEPT] * design.parameters.fit_intercept
    for label, weights in zip(classes, np.array(result.high).reshape(len(classes), -1).tolist(), strict=True):
        found += plain(names, weights, f"{HIGH}, {label}" if label else HIGH)
    return tuple(found)


def kept_terms(plan: Plan[StackingDesign], party: str, kept: Mapping[str, NDArray[Any]]) -> tuple[ResultTerm, ...]:
    """Return the party's own model, which it also released."""
    from unpooled.models.stacking.party import KEPT, KEPT_RANK

    block = plan.design.block(party)
    if block is None or KEPT not in kept:
        return ()
    if KEPT_RANK in kept:
        block = plan.design.ranked(plan.study, party, int(kept[KEPT_RANK][0]))
    outcomes = plan.design.outcomes
    labels = [text_of(c) for c in plan.design.parameters.classes] if outcomes.several else [""]
    found: list[ResultTerm] = []
    for label, own, intercept in zip(labels, *block.in_own_units(kept[KEPT]), strict=True):
        found += plain((*block.coding.coded_names, _INTERCEPT), (*own.tolist(), float(intercept)), label)
    return tuple(found)
