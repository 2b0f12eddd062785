"""The summaries, line by line: counts, means and deviations by source, or the ends of private ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from unpooled.models.describe.compared import ArmsSummary
from unpooled.models.describe.coordinator import JointSummary
from unpooled.models.describe.ranges import Range
from unpooled.protocol.terms import ResultTerm, known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.models.describe.coordinator import Summary
    from unpooled.privacy.plan import Plan


def terms(plan: Plan, result: tuple[Summary | Range, ...] | JointSummary | ArmsSummary) -> tuple[ResultTerm, ...]:
    """Return one line per number; ``privacy`` is the standard deviation of the noise alone."""
    if isinstance(result, JointSummary):
        pairs = ((f"correlation: {c.first}, {c.second}", c.value) for c in result.correlations)
        more = (_between(ResultTerm(name, e.value, privacy=known(e.noise)), e.low, e.high) for name, e in pairs)
        return (*terms(plan, result.summaries), *more)
    if isinstance(result, ArmsSummary):
        return tuple(_of_arms(result))
    return _of_summaries(result)


def _of_arms(result: ArmsSummary) -> Iterator[ResultTerm]:
    """Yield the rows of every arm, the summaries of its columns, and the standardised differences from the first arm."""
    for source, arm, e in result.rows:
        yield _between(
            ResultTerm(f"{result.by} = {arm}: count", e.value, group=source, privacy=known(e.noise)), e.low, e.high
        )
    for arm, summary in result.summaries:
        for term in _of_summaries((summary,)):
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
