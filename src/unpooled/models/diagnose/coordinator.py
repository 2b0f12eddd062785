"""Pure generator: add up the parties' histograms. What is read off them is in ``reading.py``; all of it is post-processing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import StudyAborted
from unpooled.models.diagnose import reading
from unpooled.models.diagnose.plan import RELEASE, STEP
from unpooled.models.diagnose.reading import Cells
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.messages import Array, Ask, Dropped, Nothing
from unpooled.protocol.registry import Panel

if TYPE_CHECKING:
    from unpooled.models.diagnose.plan import DiagnoseDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation


def coordinate(plan: Plan[DiagnoseDesign]) -> Conversation:
    """Ask every party for its counts; one that drops out is left out."""
    cards, design = plan.study.parties, plan.design
    replies = yield [Ask(card.name, STEP, Nothing()) for card in cards]
    total, variance, there = np.zeros(design.shape), 0.0, []
    for card, reply in zip(cards, replies, strict=True):
        if isinstance(reply, Dropped):
            continue
        release = plan.release(card.name, RELEASE).mechanism
        assert isinstance(release, GaussianRelease)
        total += release.decode(reply.cells.values.numpy()).reshape(design.shape)
        variance += float(release.deviations[0]) ** 2
        there.append(card.name)
    if not there:
        raise StudyAborted("no party answered: run the study again once they are back")
    return _cells(design, total, math.sqrt(variance), tuple(there))


def _cells(design: DiagnoseDesign, total: np.ndarray, deviation: float, there: tuple[str, ...]) -> Cells:
    p = design.parameters
    return Cells(Array.of(total), deviation, p.link, p.cuts, p.residual_cuts, there, p.lines)


def render(found: Cells) -> str:
    """Return the area under the curve and the calibration, or mean residuals, as a table."""
    lines = []
    if not found.residual_cuts:
        area = reading.area(found.counts.numpy(), found.deviation)
        lines.append(f"AUC {area.value:.4g} [{area.low:.4g}, {area.high:.4g}]")
        test = reading.calibration_test(found)
        lines.append(f"calibration: chi2 = {test.statistic:.4g} with {test.cells} cells, p = {test.p_value:.3g}")
    said = "observed share" if not found.residual_cuts else "mean residual"
    lines.append(f"{'mean of the cell':<24}{said:>16}   [95 % band]")
    lines += [f"{c.predicted:<24.4g}{c.observed:>16.4g}   [{c.low:.4g}, {c.high:.4g}]" for c in reading.by_cell(found)]
    return "\n".join([*lines, f"rows of {', '.join(found.participants)}"])


def panels(plan: Plan, found: Cells) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model
    """Return the calibration curve or the residual plot, and the ROC curve."""
    cells, classes = reading.by_cell(found), not found.residual_cuts
    title = "observed share by predicted probability" if classes else "residuals by fitted mean"
    shown = []
    if cells:
        x, values, low, high = zip(*((c.predicted, c.observed, c.low, c.high) for c in cells), strict=True)
        names = tuple(f"{place:.3g}" for place in x)
        said = ("predicted probability", "observed share") if classes else ("fitted mean", "mean residual")
        shown.append(Panel(title, names, values, low, high, ordered=True, places=x, axes=said, diagonal=classes))
    if classes:
        band = reading.roc_band(found.counts.numpy(), found.deviation)
        shown.append(
            Panel(
                "ROC: true positives by false positives, 95 % pointwise band",
                tuple(f"{x:.3g}" for x in band.false.tolist()),
                tuple(band.true.tolist()),
                tuple(band.low.tolist()),
                tuple(band.high.tolist()),
                tuple(band.without_privacy.tolist()) if found.deviation else (),
                ordered=True,
                places=tuple(band.false.tolist()),
                axes=("false positives", "true positives"),
                diagonal=True,
            )
        )
    return tuple(shown)
