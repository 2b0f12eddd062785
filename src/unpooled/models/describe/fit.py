"""Pure generators: from the parties' noisy sums to means and deviations with intervals, to arms and how far they are apart; and the result's lines."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from unpooled.errors import StudyAborted
from unpooled.models.describe.declared import ARMS, BINS, HISTOGRAM, RELEASE, STEP, ArmsLayout, DescribeDesign, Range
from unpooled.models.describe.declared import render as render_ranges
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.messages import Ask, Dropped, Nothing
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import PrintedTable, ResultTerm, known
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.models.describe.declared import RangesLayout, SumsLayout
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation

    Floats = NDArray[np.float64]


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: collect the parties' noisy sums, add them up, turn sums into means and deviations with intervals.
#
# Everything here is post-processing of releases (THEORY.md, section 3).

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


#: The words of a line that says how many rows have a value of a column that may miss some.
WITH_A_VALUE = "rows with a value"


def with_a_value(counts: Sequence[Estimate], rows: int) -> Estimate:
    """Return the number of rows that have a value of a column, from what was released: its own count, or the sum of those of its categories.

    A count that is cut at 0 is taken as it was released, as far as the end of its interval shows it. Their noise adds up.
    """
    if len(counts) == 1:
        return counts[0]
    z = max(((e.high - e.low) / (2 * e.noise) for e in counts if e.noise), default=0.0)
    value = sum(e.high - z * e.noise if e.noise and e.value <= 0 else e.value for e in counts)
    return _possible(value, math.hypot(*(e.noise for e in counts)), rows, z)


def values_of(plan: Plan, summaries: Sequence[Summary]) -> dict[tuple[str, str], Estimate]:
    """Return the number of rows with a value by source and column, of columns that may miss some; columns that are split have no such counts."""
    cards, found = {card.name: card for card in plan.study.parties}, {}
    for source, column in dict.fromkeys((s.source, s.column) for s in summaries):
        held = [cards[source]] if source in cards else [*cards.values()]
        if not plan.joint and any(c.name == column and c.may_be_absent for c in held[0].columns):
            own = [s.count for s in summaries if (s.source, s.column) == (source, column)]
            found[source, column] = with_a_value(own, sum(card.rows for card in held))
    return found


def printed_summaries(
    summaries: Sequence[Summary], values: Mapping[tuple[str, str], Estimate] | None = None
) -> PrintedTable:
    """Return the summaries as a table, with a line for the number of rows that have a value, where it is given."""
    lines = []
    for k, s in enumerate(summaries):
        mean, sd = (f"{e.value:.5g} [{e.low:.5g}, {e.high:.5g}]" if e is not None else "" for e in (s.mean, s.sd))
        if s.sd is not None and s.sd.noise and not s.sd.value:  # the noise left a negative square: no number stands for that
            sd = f"below the noise, at most {s.sd.high:.5g}"
        name = s.column if s.category is None else f"{s.column} = {s.category}"
        lines.append((s.source, name, _counted(s.count), mean, sd))
        last = k + 1 == len(summaries) or (summaries[k + 1].source, summaries[k + 1].column) != (s.source, s.column)
        if last and values and (s.source, s.column) in values:
            lines.append((s.source, f"{s.column}, {WITH_A_VALUE}", _counted(values[s.source, s.column]), "", ""))
    head = ("source", "column", "count ±", "mean [interval]", "sd [interval]")
    return PrintedTable(head, tuple(lines), words=2, text="\n".join(_aligned(line) for line in (head, *lines)))


def _counted(e: Estimate) -> str:
    return f"{e.value:.0f} ±{_half(e):.0f}"


def _aligned(cells: tuple[str, ...]) -> str:
    source, name, count, mean, sd = cells
    number, _, spread = count.partition(" ±")
    return f"{source:<12}{name:<24}{number:>8} ±{spread:<7}{mean:<34}{sd}".rstrip()


def printed(plan: Plan, result: tuple[Summary, ...] | tuple[Range, ...] | ArmsSummary) -> tuple[PrintedTable, ...]:
    """Return the summaries as a table, the ranges, or the table of baseline characteristics."""
    if isinstance(result, ArmsSummary):
        return (printed_arms(plan, result),)
    ranges = [r for r in result if isinstance(r, Range)]
    if not ranges:
        summaries = [s for s in result if isinstance(s, Summary)]
        return (printed_summaries(summaries, values_of(plan, summaries)),)
    rows = ((r.column, f"{r.low:.6g}", f"{r.high:.6g}", f"{r.clipped:.1%}", f"{r.missing:.1%}") for r in ranges)
    return (PrintedTable(("column", "low", "high", "clipped", "missing"), tuple(rows), text=render_ranges(tuple(ranges))),)


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


# --- Arms compared ---------------------------------------------------------------------------------------------------------
# Arms as they are, and how far they are apart: the table of baseline characteristics, from noisy sums of every arm.

_SURELY = table("describe").surely


class Difference(msgspec.Struct, frozen=True):
    """The difference between an arm and the first one in standard deviations: of means, or of the share of one category."""

    source: str
    column: str
    category: str | None
    arm: str
    #: None where the variance, or the number of people in an arm, is not larger than its noise.
    value: Estimate | None


class ArmsSummary(msgspec.Struct, frozen=True):
    """Summaries of every arm, whose source names it, and the differences between arms."""

    by: str
    arms: tuple[str, ...]
    #: (source, arm, rows of the arm).
    rows: tuple[tuple[str, str, Estimate], ...]
    #: (arm, summary).
    summaries: tuple[tuple[str, Summary], ...]
    differences: tuple[Difference, ...]


def coordinate_arms(plan: Plan[DescribeDesign]) -> Conversation:
    """Ask every party for its sums; a party that drops out is left out of the pooled figures."""
    cards, layout = plan.study.parties, plan.design.arms
    assert layout is not None
    replies = yield [Ask(card.name, ARMS, Nothing()) for card in cards]
    z = NormalDist().inv_cdf(0.5 + plan.design.parameters.confidence / 2)
    sources: list[tuple[str, int, Floats, Floats]] = []
    for card, reply in zip(cards, replies, strict=True):
        if not isinstance(reply, Dropped):
            release = plan.release(card.name, ARMS).mechanism
            assert isinstance(release, GaussianRelease)
            sources.append((card.name, card.rows, release.decode(reply.sums.values.numpy()), release.deviations**2))
    if len(cards) > 1 and sources:
        _, rows, sums, noise = zip(*sources, strict=True)
        sources.insert(0, (POOLED, sum(rows), np.sum(sums, axis=0), np.sum(noise, axis=0)))
    found = [_compared(*source, layout, z) for source in sources]
    return ArmsSummary(
        layout.by.name,
        layout.arms,
        tuple(line for one in found for line in one[0]),
        tuple(line for one in found for line in one[1]),
        tuple(line for one in found for line in one[2]),
    )


def _compared(
    source: str, rows: int, sums: Floats, variance: Floats, layout: ArmsLayout, z: float
) -> tuple[list[tuple[str, str, Estimate]], list[tuple[str, Summary]], list[Difference]]:
    """Return the rows of every arm, the summaries of its columns, and the differences of one source."""
    counts, columns = layout.decoded(sums)
    noises, noise = layout.decoded(np.sqrt(variance))
    # Where the arm is never missing and one row is one unit, the arms add up to the public number of rows.
    known = not layout.by.may_be_absent and layout.most == 1
    if known:
        people = shares_of(rows, counts.tolist(), float(noises[0] ** 2), z)
    else:
        people = [_possible(float(c), float(s), rows, z) for c, s in zip(counts, noises, strict=True)]
    summaries, differences = [], []
    for column, values, spread in zip(layout.columns, columns, noise, strict=True):
        arms = [
            _Arm(column, people[k].value, people[k].noise, values[k], spread[k], rows, source, z)
            for k in range(len(layout.arms))
        ]
        summaries += [(arm, s) for arm, one in zip(layout.arms, arms, strict=True) for s in one.summaries()]
        for arm, one in zip(layout.arms[1:], arms[1:], strict=True):
            differences += [
                Difference(source, column.name, category, arm, value)
                for category, value in zip(column.categories or (None,), one.apart(arms[0]), strict=True)
            ]
    return list(zip([source] * len(people), layout.arms, people, strict=True)), summaries, differences


class _Arm:
    """One column in one arm."""

    def __init__(
        self, column: Column, people: float, noise: float, sums: Floats, spread: Floats, rows: int, source: str, z: float
    ) -> None:
        self.column, self.sums, self.spread, self.rows, self.source, self.z = column, sums, spread, rows, source, z
        counted = column.categories is None and column.may_be_absent
        self.n, self.n_noise = (float(sums[0]), float(spread[0])) if counted else (people, noise)

    @property
    def empty(self) -> bool:
        """Return True if the noise hides whether anybody is in the arm."""
        return self.n < max(2.0, _SURELY * self.n_noise)

    def summaries(self) -> Iterator[Summary]:
        """Yield the mean and deviation, or the count of every category with its share."""
        if self.column.categories is None:
            s, q = self.sums[-2:].tolist()
            noise = [self.n_noise**2, *np.square(self.spread[-2:]).tolist()]
            yield numeric(self.source, self.column, self.rows, [self.n, s, q], noise, self.z)
            return
        for category, count, spread in zip(self.column.categories, self.sums.tolist(), self.spread.tolist(), strict=True):
            yield Summary(self.source, self.column.name, category, _possible(count, spread, self.rows, self.z))

    def moments(self) -> list[_Moments]:
        """Return the moments of the column in coded units, or of every category's indicator."""
        n, dn = self.n, self.n_noise
        if self.column.categories is None:
            s, q = self.sums[-2:].tolist()
            ds, dq = self.spread[-2:].tolist()
            mean = s / n
            v = q / n - mean**2
            hidden = (dq**2 + 4 * mean**2 * ds**2 + (mean**2 - v) ** 2 * dn**2) / n**2
            within = max(v, 0.0)
            return [_Moments(mean, (ds**2 + mean**2 * dn**2) / n**2 + within / n, v, hidden + 2 * v * v / n, hidden)]
        found = []
        for count, spread in zip(self.sums.tolist(), self.spread.tolist(), strict=True):
            p = min(max(count / n, 0.0), 1.0)
            hidden = (spread**2 + p * p * dn**2) / n**2
            error, slope = hidden + p * (1 - p) / n, (1 - 2 * p) ** 2
            found.append(_Moments(p, error, p * (1 - p), slope * error, slope * hidden))
        return found

    def apart(self, first: _Arm) -> list[Estimate | None]:
        """Return the standardised differences from the first arm, by the delta method: sampling and noise add up."""
        if self.empty or first.empty:
            return [None] * len(self.column.categories or (None,))
        return [_difference(one, other, self.z) for one, other in zip(self.moments(), first.moments(), strict=True)]


class _Moments(NamedTuple):
    """A mean and a variance, the variance of each, and the part of that of the variance which is noise."""

    mean: float
    mean_error: float
    variance: float
    variance_error: float
    hidden: float


def _difference(one: _Moments, other: _Moments, z: float) -> Estimate | None:
    """(m - m0) / s with s^2 = (v + v0) / 2; its variance is (var m + var m0) / s^2 + (d / 4 s^2)^2 (var v + var v0)."""
    square = (one.variance + other.variance) / 2
    if square <= _SURELY * math.sqrt(one.hidden + other.hidden) / 2 or square <= 0:
        return None
    d = (one.mean - other.mean) / math.sqrt(square)
    error = math.sqrt(
        (one.mean_error + other.mean_error) / square + (d / (4 * square)) ** 2 * (one.variance_error + other.variance_error)
    )
    return Estimate(d, d - z * error, d + z * error, error)


def _possible(count: float, noise: float, rows: int, z: float) -> Estimate:
    """Return a count of this very data set, inside what is possible; its interval holds the noise only."""
    low, middle, high = (min(max(count + side * z * noise, 0.0), float(rows)) for side in (-1, 0, 1))
    return Estimate(middle, low, high, noise)


def printed_arms(plan: Plan, result: ArmsSummary) -> PrintedTable:
    """Return the table of baseline characteristics: of all sites where there are several, else of the only one."""
    source = result.rows[0][0] if result.rows else ""
    rows = {arm: e for s, arm, e in result.rows if s == source}
    heads = [f"{arm} (n = {rows[arm].value:.0f} ±{_half(rows[arm]):.0f})" for arm in result.arms]
    apart = [f"{arm} - {result.arms[0]} (in sd)" for arm in result.arms[1:]]
    lines = []
    own = [(arm, s) for arm, s in result.summaries if s.source == source]
    there = {arm: values_of(plan, [s for a, s in own if a == arm]) for arm in result.arms}
    keys = list(dict.fromkeys((s.column, s.category) for _, s in own))
    for k, (column, category) in enumerate(keys):
        cells = {arm: s for arm, s in own if (s.column, s.category) == (column, category)}
        name = f"{column}, mean (sd)" if category is None else f"{column} = {category}, n (%)"
        differences = [d for d in result.differences if (d.source, d.column, d.category) == (source, column, category)]
        lines.append((name, *(_cell(cells[arm], rows[arm]) for arm in result.arms), *(_apart(d.value) for d in differences)))
        if (source, column) in there[result.arms[0]] and [name for name, _ in keys[k + 1 : k + 2]] != [column]:
            counts = (Summary(source, column, None, there[arm][source, column]) for arm in result.arms)
            values = (_cell(one, rows[arm]) for one, arm in zip(counts, result.arms, strict=True))
            lines.append((f"{column}, {WITH_A_VALUE}, n (%)", *values, *("" for _ in apart)))
    head = (result.by, *heads, *apart)
    return PrintedTable(head, tuple(lines), words=len(head))


def _cell(s: Summary, people: Estimate) -> str:
    # Of numbers those count that are not missing.
    if any(e.value < max(2.0, _SURELY * e.noise) for e in (people, *([] if s.mean is None else [s.count]))):
        return "not identified"
    if s.mean is not None and s.sd is not None:
        spread = f"{s.sd.value:.3g}" if s.sd.low > 0 else "not identified"
        return f"{s.mean.value:.4g} ±{_half(s.mean):.2g} ({spread})"
    return f"{s.count.value:.0f} ±{_half(s.count):.0f} ({100 * min(s.count.value / max(people.value, 1.0), 1.0):.1f})"


def _half(e: Estimate) -> float:
    return (e.high - e.low) / 2


def _apart(value: Estimate | None) -> str:
    return "not identified" if value is None else f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def panels_of_arms(result: ArmsSummary) -> tuple[Panel, ...]:
    """Return the standardised differences of every arm from the first one."""
    found = []
    source = result.rows[0][0] if result.rows else ""
    for arm in result.arms[1:]:
        own = [d for d in result.differences if (d.source, d.arm) == (source, arm)]
        shown = [(d.column if d.category is None else f"{d.column} = {d.category}", d.value) for d in own if d.value]
        if shown:
            names, values = zip(*shown, strict=True)
            title = f"standardised difference, {arm} - {result.arms[0]}"
            found.append(
                Panel(
                    title, names, tuple(v.value for v in values), tuple(v.low for v in values), tuple(v.high for v in values)
                )
            )
    return tuple(found)


# --- Lines -----------------------------------------------------------------------------------------------------------------
# The summaries, line by line: counts, means and deviations by source, or the ends of private ranges.


def terms(plan: Plan, result: tuple[Summary | Range, ...] | JointSummary | ArmsSummary) -> tuple[ResultTerm, ...]:
    """Return one line per number; ``privacy`` is the standard deviation of the noise alone."""
    if isinstance(result, JointSummary):
        pairs = ((f"correlation: {c.first}, {c.second}", c.value) for c in result.correlations)
        more = (_between(ResultTerm(name, e.value, privacy=known(e.noise)), e.low, e.high) for name, e in pairs)
        return (*terms(plan, result.summaries), *more)
    if isinstance(result, ArmsSummary):
        return tuple(_of_arms(plan, result))
    values = values_of(plan, [s for s in result if isinstance(s, Summary)])
    return (*_of_summaries(result), *_of_values(values))


def _of_values(values: Mapping[tuple[str, str], Estimate]) -> Iterator[ResultTerm]:
    """Yield how many rows have a value of each column that may miss some."""
    for (source, column), e in values.items():
        yield _between(ResultTerm(f"{column}: {WITH_A_VALUE}", e.value, group=source, privacy=known(e.noise)), e.low, e.high)


def _of_arms(plan: Plan, result: ArmsSummary) -> Iterator[ResultTerm]:
    """Yield the rows of every arm, the summaries of its columns, and the standardised differences from the first arm."""
    for source, arm, e in result.rows:
        yield _between(
            ResultTerm(f"{result.by} = {arm}: count", e.value, group=source, privacy=known(e.noise)), e.low, e.high
        )
    for arm, summary in result.summaries:
        for term in _of_summaries((summary,)):
            yield msgspec.structs.replace(term, group=f"{term.group}, {result.by} = {arm}")
    for arm in result.arms:
        for term in _of_values(values_of(plan, [s for a, s in result.summaries if a == arm])):
            yield msgspec.structs.replace(term, group=f"{term.group}, {result.by} = {arm}")
    for d in result.differences:
        if d.value is not None:
            name = d.column if d.category is None else f"{d.column} = {d.category}"
            what = f"{name}: standardised difference, {d.arm} - {result.arms[0]}"
            term = ResultTerm(what, d.value.value, std_error=known(d.value.noise), group=d.source)
            yield _between(term, d.value.low, d.value.high)


def _of_summaries(summaries: tuple[Summary | Range, ...]) -> tuple[ResultTerm, ...]:
    found = []
    for s in summaries:
        if isinstance(s, Range):
            found += [ResultTerm(f"{s.column}: {end}", value) for end, value in (("low", s.low), ("high", s.high))]
            continue
        name = s.column if s.category is None else f"{s.column} = {s.category}"
        for what, e in (("count", s.count), ("mean", s.mean), ("sd", s.sd)):
            if e is not None:
                term = ResultTerm(f"{name}: {what}", e.value, group=s.source, privacy=known(e.noise))
                found.append(_between(term, e.low, e.high))
    return tuple(found)


def _between(term: ResultTerm, low: float, high: float) -> ResultTerm:
    return msgspec.structs.replace(term, conf_low=known(low), conf_high=known(high))
