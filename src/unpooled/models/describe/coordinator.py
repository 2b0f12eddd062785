"""Pure generator: collect the parties' noisy sums, add them up, turn sums into means and deviations with intervals.

Everything here is post-processing of releases (THEORY.md, section 3).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import StudyAborted
from unpooled.models.describe.plan import HISTOGRAM, RELEASE, STEP, DescribeDesign
from unpooled.models.describe.ranges import BINS, Range
from unpooled.models.describe.ranges import render as render_ranges
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.messages import Ask, Dropped, Nothing
from unpooled.protocol.registry import Panel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.models.describe.plan import SumsLayout
    from unpooled.models.describe.ranges import RangesLayout
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation

#: The name under which the sum of all parties is reported.
POOLED = "pooled"


class Estimate(msgspec.Struct, frozen=True):
    """A number, its interval, and the standard deviation that the privacy noise alone gives it."""

    value: float
    low: float
    high: float
    noise: float


class Summary(msgspec.Struct, frozen=True):
    """One column (or one category of it) at one party, or pooled."""

    source: str
    column: str
    category: str | None
    count: Estimate
    mean: Estimate | None = None
    sd: Estimate | None = None


class Correlation(msgspec.Struct, frozen=True):
    """The correlation of two coded columns (a level has a column of its own) at any parties."""

    first: str
    second: str
    value: Estimate


class JointSummary(msgspec.Struct, frozen=True):
    """Summaries of every party's columns, and the correlations of all that vary more than their noise."""

    summaries: tuple[Summary, ...]
    correlations: tuple[Correlation, ...]
    #: Coded columns without correlations: their variance is not larger than its noise.
    still: tuple[str, ...] = ()


def coordinate(plan: Plan[DescribeDesign]) -> Conversation:
    """Ask every party for its sums; a party that drops out is left out of the pooled figures."""
    cards, design = plan.study.parties, plan.design
    if design.ranges is not None:
        return (yield from _ranges(plan, design.ranges))
    replies = yield [Ask(card.name, STEP, Nothing()) for card in cards]
    z = NormalDist().inv_cdf(0.5 + design.parameters.confidence / 2)
    summaries: list[Summary] = []
    rows, total, variance = 0, None, None
    for card, reply in zip(cards, replies, strict=True):
        if isinstance(reply, Dropped):
            continue
        release = plan.release(card.name, RELEASE).mechanism
        assert isinstance(release, GaussianRelease)
        sums, noise = release.decode(reply.sums.values.numpy()), release.deviations**2
        layout = design.layouts[card.name]
        summaries += summarise(card.name, layout, card.rows, sums, noise, z)
        rows += card.rows
        total = sums if total is None else total + sums
        variance = noise if variance is None else variance + noise
    if total is not None and variance is not None and len(cards) > 1:
        summaries = [*summarise(POOLED, layout, rows, total, variance, z), *summaries]
    return tuple(summaries)


def _ranges(plan: Plan, layout: RangesLayout) -> Conversation:
    """Ask every party for its counts; a party that drops out is left out."""
    cards = plan.study.parties
    replies = yield [Ask(card.name, HISTOGRAM, Nothing()) for card in cards]
    rows, least, variance = 0, 0, 0.0
    counts = np.zeros(len(layout.columns) * BINS)
    for card, reply in zip(cards, replies, strict=True):
        if isinstance(reply, Dropped):
            continue
        release = plan.release(card.name, HISTOGRAM).mechanism
        assert isinstance(release, GaussianRelease)
        counts += release.decode(reply.sums.values.numpy())
        variance += float(release.deviations[0]) ** 2
        rows += card.rows
        least += card.people
    if not rows:
        raise StudyAborted("no party answered: run the study again once they are back")
    return layout.ranges(counts, math.sqrt(variance), rows, least if plan.study.household_rows > 1 else None)


def summarise(
    source: str, layout: SumsLayout, rows: int, sums: NDArray[np.float64], variance: NDArray[np.float64], z: float
) -> Iterator[Summary]:
    """Summaries of one vector of noisy sums whose coordinates have these noise variances."""
    at = 0
    for i, column in enumerate(layout.columns):
        width = layout.width(i)
        part, noise = sums[at : at + width].tolist(), variance[at : at + width].tolist()
        at += width
        if column.categories is not None:
            if not layout.counts(column):
                for category, estimate in zip(column.categories, shares_of(rows, part, noise[0], z), strict=True):
                    yield Summary(source, column.name, category, estimate)
                continue
            for category, count, v in zip(column.categories, part, noise, strict=True):
                yield Summary(source, column.name, category, _count(count, v, rows, z))
            continue
        if not layout.counts(column):
            part, noise = [float(rows), *part], [0.0, *noise]
        units = (1.0, layout.grid, layout.grid**2)
        coded = [s / unit for s, unit in zip(part, units, strict=True)]
        yield numeric(source, column, rows, coded, [v / unit**2 for v, unit in zip(noise, units, strict=True)], z)


def numeric(source: str, column: Column, rows: int, sums: list[float], noise: list[float], z: float) -> Summary:
    """Return the mean and deviation from (N, S, Q) = sum (1, z, z^2), by the delta method; sampling error and noise add up.

    d mean = (dS - mean dN) / N; with V = Q/N - mean^2: d V = (dQ - 2 mean dS + (mean^2 - V) dN) / N. The sampling part is V / N for
    the mean and, as for normal data, 2 V^2 / N for V.
    """
    n = max(sums[0], 2.0)
    unknown = math.inf if sums[0] < n else 0.0  # of fewer than two nothing is known, whatever noise there is
    mean = min(max(sums[1] / n, -1.0), 1.0)
    v = min(max(sums[2] / n - mean**2, 0.0), 1.0)
    mean_noise = (noise[1] + mean**2 * noise[0]) / n**2
    v_noise = (noise[2] + 4 * mean**2 * noise[1] + (mean**2 - v) ** 2 * noise[0]) / n**2
    mean_error = z * math.sqrt(mean_noise + v / n) + unknown
    v_error = z * math.sqrt(v_noise + 2 * v**2 / n) + unknown
    unbias = n / (n - 1)
    half, centre = column.half_width, column.centre
    low, high = column.range
    deviation = half * math.sqrt(v * unbias)
    return Summary(
        source,
        column.name,
        None,
        _count(sums[0], noise[0], rows, z),
        Estimate(
            centre + half * mean,
            max(low, centre + half * (mean - mean_error)),
            min(high, centre + half * (mean + mean_error)),
            half * math.sqrt(mean_noise),
        ),
        Estimate(
            deviation,
            half * math.sqrt(max(v - v_error, 0.0) * unbias),
            half * math.sqrt(min(v + v_error, 1.0) * unbias),
            half * math.sqrt(v_noise) / (2 * math.sqrt(v)) if v > 0 else half * v_noise**0.25,
        ),
    )


def shares_of(rows: int, counts: list[float], variance: float, z: float) -> list[Estimate]:
    """Return counts >= 0 that add up to a known total and are the nearest to these, which all have noise of this variance.

    Without the bound at 0 the nearest ones are the counts less an equal share of their excess, c - (sum c - n)/k, whose noise has variance
    v (1 - 1/k): the intervals are theirs, and hold what the bound moves out of them.
    """
    k = len(counts)
    level = [count - (math.fsum(counts) - rows) / k for count in counts]
    noise = math.sqrt(variance * (1 - 1 / k))
    # max(0, level - t), with the t at which they add up to the total: over the j largest, (their sum - n) / j.
    above, cut = 0.0, 0.0
    for j, value in enumerate(sorted(level, reverse=True), 1):
        above += value
        if value > (above - rows) / j:
            cut = (above - rows) / j
    nearest = [max(0.0, value - cut) for value in level]

    def interval(value: float, middle: float) -> Estimate:
        low, high = (min(max(middle + side * z * noise, 0.0), float(rows)) for side in (-1, 1))
        return Estimate(value, min(low, value), max(high, value), noise)

    return [interval(value, middle) for value, middle in zip(nearest, level, strict=True)]


def _count(count: float, variance: float, rows: int, z: float) -> Estimate:
    """Return a count of this very data set: its interval holds the noise only, and its bounds are known."""
    noise = math.sqrt(variance)

    def possible(value: float) -> float:
        return float(min(max(value, 0.0), rows))

    return Estimate(possible(count), possible(count - z * noise), possible(count + z * noise), noise)


def render(summaries: tuple[Any, ...]) -> str:
    """Return the summaries as a table, or the ranges."""
    return render_ranges(summaries) if summaries and isinstance(summaries[0], Range) else render_summaries(summaries)


def render_summaries(summaries: tuple[Summary, ...]) -> str:
    """Return the summaries as a table."""
    lines = [f"{'source':<12}{'column':<24}{'count':>8} ±{'':<7}{'mean [interval]':<34}sd [interval]"]
    for s in summaries:
        name = s.column + (f" = {s.category}" if s.category is not None else "")
        spread = (s.count.high - s.count.low) / 2
        mean, sd = (f"{e.value:.5g} [{e.low:.5g}, {e.high:.5g}]" if e is not None else "" for e in (s.mean, s.sd))
        if s.sd is not None and s.sd.noise and not s.sd.value:  # the noise left a negative square: no number stands for that
            sd = f"below the noise, at most {s.sd.high:.5g}"
        lines.append(f"{s.source:<12}{name:<24}{s.count.value:>8.0f} ±{spread:<7.0f}{mean:<34}{sd}".rstrip())
    return "\n".join(lines)


def panels(plan: Plan, summaries: tuple[Any, ...]) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model
    """Return the means of every number by source, and the pooled counts of every category."""
    if summaries and isinstance(summaries[0], Range):
        names, low, high = zip(*((r.column, r.low, r.high) for r in summaries), strict=True)
        middle = tuple((a + b) / 2 for a, b in zip(low, high, strict=True))
        return (Panel("private ranges", names, middle, low, high),)
    found = []
    for column in dict.fromkeys(s.column for s in summaries):
        own = [s for s in summaries if s.column == column]
        means = [(s.source, s.mean) for s in own if s.mean is not None]
        counts = [(str(s.category), s.count) for s in own if s.category is not None and s.source == own[0].source]
        for title, shown in ((f"mean of {column}", means), (f"{column}: count, {own[0].source}", counts)):
            if shown:
                values, low, high = zip(*((e.value, e.low, e.high) for _, e in shown), strict=True)
                found.append(Panel(title, tuple(name for name, _ in shown), values, low, high))
    return tuple(found)
