"""Adds up the parties' histograms, and reads diagnostics from noisy cells (THEORY.md), each with a band that holds the noise. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from scipy.special import chdtrc

from unpooled.errors import StudyAborted
from unpooled.kernels.score_posterior import mean_log_odds
from unpooled.models.diagnose.declared import RELEASE, STEP, mean_of
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.messages import Array, Ask, Dropped, Nothing
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import PrintedTable, ResultTerm, known
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.diagnose.declared import DiagnoseDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation

    Floats = NDArray[np.float64]


# --- Readings --------------------------------------------------------------------------------------------------------------
# Diagnostics from noisy cells: ROC curve and area, calibration, mean residuals, each with a band that holds the noise (THEORY.md).

_Z = 1.959963984540054
_TUNED = table("diagnose")
_DRAWS = _TUNED.whole("draws")
#: The band is given at these shares of false positives, and where the curve bends.
_SHARES = np.linspace(0.0, 1.0, 101)


class Cells(msgspec.Struct, frozen=True):
    """Noisy counts over cells of fitted values (rows) and of classes or residuals (columns), and the deviation of each count's noise."""

    counts: Array
    deviation: float
    link: str
    cuts: tuple[float, ...]
    #: Empty where the response has two classes.
    residual_cuts: tuple[float, ...]
    participants: tuple[str, ...]
    #: Lines of the log odds over which the model averages its probabilities.
    lines: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Banded:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class CellReading:
    """A cell of fitted values: the mean that the model predicts in its middle, what was observed there, and a 95 % band."""

    predicted: float
    observed: float
    low: float
    high: float
    rows: float


@dataclass(frozen=True)
class CalibrationTest:
    """Observed against predicted shares, over ``cells`` cells. Each is judged at its middle: very many rows ask for narrower cells."""

    statistic: float
    cells: int
    p_value: float


def roc(counts: Floats) -> tuple[Floats, Floats]:
    """Return (false positives, true positives) as the threshold falls; noise is kept from making either fall."""
    false, true = (np.concatenate([[0.0], np.maximum.accumulate(np.cumsum(part))]) for part in counts[::-1].T)
    false, true = (np.clip(part / max(float(part[-1]), 1e-12), 0.0, 1.0) for part in (false, true))
    return false, true


def _area(counts: Floats) -> float:
    false, true = roc(counts)
    return float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))


def area_under(counts: Floats, deviation: float) -> Banded:
    """Return the area under the ROC curve; its interval holds sampling (Hanley & McNeil 1982) and the noise, drawn again."""
    value = _area(counts)
    first, second = (max(float(part), 2.0) for part in counts.sum(axis=0))
    q1, q2 = value / (2 - value), 2 * value**2 / (1 + value)
    sampling = (value * (1 - value) + (second - 1) * (q1 - value**2) + (first - 1) * (q2 - value**2)) / (first * second)
    rng = np.random.default_rng(0)  # of what is public already: it protects nothing
    noise = (
        float(np.var([_area(counts + deviation * rng.normal(size=counts.shape)) for _ in range(_DRAWS)]))
        if deviation
        else 0.0
    )
    error = _Z * math.sqrt(max(sampling, 0.0) + noise)
    return Banded(value, max(0.0, value - error), min(1.0, value + error))


@dataclass(frozen=True, eq=False)
class RocBand:
    """A band is the ROC curve at rising shares of false positives, with a pointwise 95 % interval that holds sampling and noise."""

    false: Floats
    true: Floats
    low: Floats
    high: Floats
    #: The part of the way from the curve to the ends of the band that there would be without privacy.
    without_privacy: Floats


def roc_band(counts: Floats, deviation: float) -> RocBand:
    """Draw rows and noise again about the released counts, as for the area, and return how far the curve moves at each share of false positives.

    A draw is compared with the curve itself, not with the mean of all draws: what noise moves to one side is in the band, too. Heights of
    draws may leave the range from 0 to 1: kept inside it, a curve that the noise has moved to its edge would seem to be known exactly there.
    """
    bends, heights = roc(counts)
    false = np.union1d(_SHARES, bends)
    true, free = np.interp(false, bends, heights), _free(counts, false)
    rng = np.random.default_rng(0)  # of what is public already: it protects nothing

    def spread(moved: list[Floats]) -> Floats:
        return np.asarray(np.mean([np.square(_free(counts + move, false) - free) for move in moved], axis=0))

    sampling = spread([_rows_again(counts, rng) for _ in range(_DRAWS)])
    noise = spread([deviation * rng.normal(size=counts.shape) for _ in range(_DRAWS)]) if deviation else np.zeros(true.size)
    whole = sampling + noise
    error = _Z * np.sqrt(whole)
    part = np.sqrt(np.divide(sampling, whole, out=np.ones_like(whole), where=whole > 0))
    return RocBand(false, true, np.maximum(true - error, 0.0), np.minimum(true + error, 1.0), part)


def _free(counts: Floats, at: Floats) -> Floats:
    """Return the heights of the curve at shares of false positives, which noise may make fall or leave the range from 0 to 1."""
    heights = np.append(0.0, np.cumsum(counts[::-1, 1]))
    return np.interp(at, roc(counts)[0], heights / max(float(heights[-1]), 1e-12))


def _rows_again(counts: Floats, rng: np.random.Generator) -> Floats:
    """Return how far the counts of both classes move when their rows are drawn again, with the shares that the cells have now.

    Half a row more in each cell keeps one that happens to be empty from being taken for one that is always empty.
    """
    kept = np.maximum(counts, 0.0) + 0.5
    moved = []
    for own, whole in zip(kept.T, counts.sum(axis=0).tolist(), strict=True):
        rows, shares = max(round(whole), 2), own / own.sum()
        moved.append(rng.multinomial(rows, shares) - rows * shares)
    return np.stack(moved, axis=1)


def middles(cuts: tuple[float, ...]) -> Floats:
    """Return the middles of cells between cuts; an open one is taken to be as wide as its neighbour."""
    edges = np.array(cuts)
    widths = np.diff(edges) if edges.size > 1 else np.ones(1)
    inner = (edges[1:] + edges[:-1]) / 2
    return np.concatenate([[edges[0] - widths[0] / 2], inner, [edges[-1] + widths[-1] / 2]])


def by_cell(found: Cells) -> list[CellReading]:
    """Return every cell that can be seen, from the lowest fitted value up."""
    counts, s = found.counts.numpy(), found.deviation
    weights = middles(found.residual_cuts) if found.residual_cuts else np.array([0.0, 1.0])
    out = []
    for predicted, own in zip(
        mean_of(found.link, mean_log_odds(middles(found.cuts), found.lines)).tolist(), counts, strict=True
    ):
        rows = float(own.sum())
        if rows < max(_TUNED.seen * s * math.sqrt(own.size), 2.0):
            continue
        value = float(own @ weights) / rows
        spread = max(float(own @ (weights - value) ** 2) / rows, 0.0)
        # d value = sum (w_b - value) d c_b / rows.
        error = _Z * math.sqrt(spread / rows + s**2 * float(np.sum((weights - value) ** 2)) / rows**2)
        out.append(CellReading(predicted, value, value - error, value + error, rows))
    return out


def calibration_test(found: Cells) -> CalibrationTest:
    """Hosmer and Lemeshow's sum over the cells that can be seen, its variance with the noise in it."""
    statistic, cells = 0.0, by_cell(found)
    for cell in cells:
        p = cell.predicted
        variance = p * (1 - p) / cell.rows + found.deviation**2 * (1 - 2 * p + 2 * p * p) / cell.rows**2
        statistic += (cell.observed - p) ** 2 / variance
    return CalibrationTest(statistic, len(cells), float(chdtrc(len(cells), statistic)) if cells else math.nan)


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: add up the parties' histograms. What is read off them is above; all of it is post-processing.


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


def printed(plan: Plan, found: Cells) -> tuple[PrintedTable, ...]:  # noqa: ARG001 - as every model
    """Return the area under the curve and the calibration, or mean residuals, as a table."""
    said = []
    if not found.residual_cuts:
        area = area_under(found.counts.numpy(), found.deviation)
        said.append(f"AUC {area.value:.4g} [{area.low:.4g}, {area.high:.4g}]")
        test = calibration_test(found)
        said.append(f"calibration: chi2 = {test.statistic:.4g} with {test.cells} cells, p = {test.p_value:.3g}")
    what = "observed share" if not found.residual_cuts else "mean residual"
    head = ("mean of the cell", what, "[95 % band]")
    rows = tuple((f"{c.predicted:.4g}", f"{c.observed:.4g}", f"[{c.low:.4g}, {c.high:.4g}]") for c in by_cell(found))
    text = [*said, *(f"{cell:<24}{value:>16}   {band}" for cell, value, band in (head, *rows))]
    return (PrintedTable(head, rows, "; ".join(said), text="\n".join(text)),)


def foot(plan: Plan, found: Cells) -> tuple[str, ...]:  # noqa: ARG001 - as every model
    """Return the line under the table."""
    return (f"rows of {', '.join(found.participants)}",)


def panels(plan: Plan, found: Cells) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model
    """Return the calibration curve or the residual plot, and the ROC curve."""
    cells, classes = by_cell(found), not found.residual_cuts
    title = "observed share by predicted probability" if classes else "residuals by fitted mean"
    shown = []
    if cells:
        x, values, low, high = zip(*((c.predicted, c.observed, c.low, c.high) for c in cells), strict=True)
        names = tuple(f"{place:.3g}" for place in x)
        said = ("predicted probability", "observed share") if classes else ("fitted mean", "mean residual")
        shown.append(Panel(title, names, values, low, high, ordered=True, places=x, axes=said, diagonal=classes))
    if classes:
        band = roc_band(found.counts.numpy(), found.deviation)
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


# --- Lines -----------------------------------------------------------------------------------------------------------------
# A diagnosis, line by line.


def terms(plan: Plan, found: Cells) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Return the area under the curve, and every cell."""
    lines = []
    if not found.residual_cuts:
        area = area_under(found.counts.numpy(), found.deviation)
        lines.append(ResultTerm("AUC", area.value, conf_low=area.low, conf_high=area.high))
        test = calibration_test(found)
        lines.append(ResultTerm("calibration chi2", test.statistic, p_value=known(test.p_value)))
    what = "mean residual" if found.residual_cuts else "observed share"
    cells = by_cell(found)
    shown = (ResultTerm(f"{what} at {c.predicted:.4g}", c.observed, conf_low=c.low, conf_high=c.high) for c in cells)
    return (*lines, *shown)
