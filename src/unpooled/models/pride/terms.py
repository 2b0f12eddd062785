"""The coefficients of a PRIDE study, line by line: what a party keeps, in its data's own units, and what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.protocol.terms import ResultTerm, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.models.pride.coordinator import PrideResult
    from unpooled.models.pride.plan import PrideDesign
    from unpooled.privacy.plan import Plan

#: Without an intercept: what the party's columns contribute where all of them are 0. With one: the fit where every column has its mean.
OWN_CONSTANT, AT_THE_MEANS = "(constant of these columns)", "(fit at the columns' means)"


def terms(plan: Plan, result: PrideResult) -> tuple[ResultTerm, ...]:
    """Privately published coefficients of coded columns (a range is coded as -1 to 1); the others stay at their parties."""
    design: PrideDesign = plan.design
    found: tuple[ResultTerm, ...] = ()
    for party, values in result.published.items():
        part = design.part(party)
        assert part is not None
        names = (*part.private.coded_names, *part.public.coded_names)
        found += plain((f"{name} (coded)" for name in names), values, party)
    return found


def kept_terms(plan: Plan, party: str, kept: Mapping[str, NDArray[Any]]) -> tuple[ResultTerm, ...]:
    """Coefficients of the party's own columns, and a constant.

    With an intercept, a prediction is the fit at the columns' means plus, over all parties, coefficient times (value - mean of the column).
    """
    design: PrideDesign = plan.design
    part = design.part(party)
    if part is None or "coded_coefficients" not in kept:
        return ()
    names, values, constant, at = [], [], float(kept["offset"][0]), 0
    coded = kept["coded_coefficients"].tolist()
    for half in (part.private, part.public):
        width, centre = half.units
        for name, w, c in zip(half.coded_names, width.tolist(), centre.tolist(), strict=True):
            values.append(coded[at] / w)
            constant -= c * values[-1]
            names.append(name)
            at += 1
    if design.parameters.fit_intercept:
        return plain((*names, AT_THE_MEANS), (*values, float(kept["mean_decision"][0])))
    return plain((*names, OWN_CONSTANT), (*values, constant))
