"""Notes of a plan of a LASSO study, made before anybody looks at data, from the study alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.lasso.declared import SQUARED

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan

#: A named radius below this many half ranges is said to be small: predictions then span less than half of the declared range.
_SMALL = 0.5


def notes(plan: Plan) -> tuple[str, ...]:
    """Return what every party must bring, and what a small radius means."""
    p = plan.design.parameters
    found = []
    if len(plan.study.parties) > 1 and not plan.joint:
        found.append(
            f"every party must hold the response {p.response!r}, in the same order of rows and the same units; this study neither hands it to "
            "a party that lacks it nor protects it from the parties, so agree on that before anybody looks at data"
        )
    radius = p.radius_in_half_ranges
    if p.loss == SQUARED and not plan.joint and radius is not None and radius < _SMALL:
        found.append(
            f"with radius_in_half_ranges = {radius:g} predictions differ by at most {2 * radius * p.response_bound:g}, where the response may differ by "
            f"{2 * p.response_bound:g}; without it the noise sets a penalty in the place of a bound"
        )
    return tuple(found)
