"""The coefficients of a PRIDE study, line by line: what a party keeps, in its data's own units, and what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.privacy.bounds import text_of
from unpooled.protocol.terms import ResultTerm, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.models.pride.coordinator import PrideResult
    from unpooled.models.pride.plan import PrideDesign
    from unpooled.privacy.plan import Plan

#: Without an intercept: what the party's columns contribute where all of them are 0. With one: the fit where every column has its mean.
OWN_CONSTANT, AT_THE_MEANS = "(constant of these columns)", "(fit at the columns' means)"


def terms(plan: Plan[PrideDesign], result: PrideResult) -> tuple[ResultTerm, ...]:
    """Privately published coefficients of coded columns (a range is coded as -1 to 1); the others stay at their parties."""
    design = plan.design
    found: tuple[ResultTerm, ...] = ()
    for party, values in result.published.items():
        part = design.part(party)
        assert part is not None
        names = (*part.private.coded_names, *part.public.coded_names)
        found += plain((f"{name} (coded)" for name in names), values, party)
    return found


def kept_terms(plan: Plan[PrideDesign], party: str, kept: Mapping[str, NDArray[Any]]) -> tuple[ResultTerm, ...]:
    """Return coefficients of the party's own columns, and a constant.

    With an intercept, a prediction is the fit at the columns' means plus, over all parties, coefficient times (value - mean of the column).
    """
    design = plan.design
    part = design.part(party)
    if part is None or "coded_coefficients" not in kept:
        return ()
    parameters = design.parameters
    several = parameters.is_joint and parameters.has_classes
    classes = [text_of(each) for each in parameters.classes] if several else []
    coded = kept["coded_coefficients"]
    # A column of coefficients, and what its lines are called; levels share one.
    columns = [(f"{name}: ", coded[:, k]) for k, name in enumerate(classes)] if coded.ndim > 1 else [("", coded)]
    found: tuple[ResultTerm, ...] = ()
    centres = []
    for label, own in columns:
        names, values, centre, at = [], [], 0.0, 0
        for half in (part.private, part.public):
            widths, middles = half.units
            for name, w, c in zip(half.coded_names, widths.tolist(), middles.tolist(), strict=True):
                values.append(float(own[at]) / w)
                centre += c * values[-1]
                names.append(f"{label}{name}")
                at += 1
        found += plain(names, values)
        centres.append(centre)
    if parameters.named == "cox":  # hazards are in proportion to those at the columns' means
        return found
    labels = [f"{name}: " for name in classes] if coded.ndim > 1 else [f"above {name}: " for name in classes[:-1]] or [""]
    if parameters.fit_intercept:
        return (*found, *plain([f"{label}{AT_THE_MEANS}" for label in labels], kept["mean_decision"].tolist()))
    constants = [float(offset) - centre for offset, centre in zip(kept["offset"], centres, strict=True)]
    return (*found, *plain([f"{label}{OWN_CONSTANT}" for label in labels], constants))
