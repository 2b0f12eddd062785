"""Arms as they are, and how far they are apart: the table of baseline characteristics, from noisy sums of every arm."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from unpooled.models.describe.arms import ARMS, ArmsLayout
from unpooled.models.describe.coordinator import POOLED, Estimate, Summary, numeric, shares_of
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.messages import Ask, Dropped, Nothing
from unpooled.protocol.registry import Panel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.models.describe.plan import DescribeDesign
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation

    Floats = NDArray[np.float64]

#: A variance below this many deviations of its noise, and an arm of fewer people than that, divide nothing.
_SURELY = 3.0


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


def coordinate(plan: Plan[DescribeDesign]) -> Conversation:
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


def render(result: ArmsSummary) -> str:
    """Return the table of baseline characteristics: of all sites where there are several, else of the only one."""
    source = result.rows[0][0] if result.rows else ""
    rows = {arm: e for s, arm, e in result.rows if s == source}
    heads = [f"{arm} (n = {rows[arm].value:.0f} ±{_half(rows[arm]):.0f})" for arm in result.arms]
    apart = [f"{arm} - {result.arms[0]} (in sd)" for arm in result.arms[1:]]
    lines = [[result.by, *heads, *apart]]
    own = [(arm, s) for arm, s in result.summaries if s.source == source]
    for column, category in dict.fromkeys((s.column, s.category) for _, s in own):
        cells = {arm: s for arm, s in own if (s.column, s.category) == (column, category)}
        name = f"{column}, mean (sd)" if category is None else f"{column} = {category}, n (%)"
        differences = [d for d in result.differences if (d.source, d.column, d.category) == (source, column, category)]
        lines.append([name, *(_cell(cells[arm], rows[arm]) for arm in result.arms), *(_apart(d.value) for d in differences)])
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


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


def panels(result: ArmsSummary) -> tuple[Panel, ...]:
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
