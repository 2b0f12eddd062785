"""A diagnosis, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.diagnose import reading
from unpooled.protocol.terms import ResultTerm, known

if TYPE_CHECKING:
    from unpooled.models.diagnose.reading import Cells
    from unpooled.privacy.plan import Plan


def terms(plan: Plan, found: Cells) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Return the area under the curve, and every cell."""
    lines = []
    if not found.residual_cuts:
        area = reading.area(found.counts.numpy(), found.deviation)
        lines.append(ResultTerm("AUC", area.value, conf_low=area.low, conf_high=area.high))
        test = reading.calibration_test(found)
        lines.append(ResultTerm("calibration chi2", test.statistic, p_value=known(test.p_value)))
    what = "mean residual" if found.residual_cuts else "observed share"
    cells = reading.by_cell(found)
    shown = (ResultTerm(f"{what} at {c.predicted:.4g}", c.observed, conf_low=c.low, conf_high=c.high) for c in cells)
    return (*lines, *shown)
