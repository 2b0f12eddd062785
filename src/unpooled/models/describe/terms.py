"""The summaries, line by line: counts, means and deviations by source, or the ends of private ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.describe.coordinator import JointSummary
from unpooled.models.describe.ranges import Range
from unpooled.protocol.terms import ResultTerm, known

if TYPE_CHECKING:
    from unpooled.models.describe.coordinator import Summary
    from unpooled.privacy.plan import Plan


def terms(plan: Plan, result: tuple[Summary | Range, ...] | JointSummary) -> tuple[ResultTerm, ...]:
    """Return one line per number; ``privacy`` is the standard deviation of the noise alone."""
    if isinstance(result, JointSummary):
        pairs = ((f"correlation: {c.first}, {c.second}", c.value) for c in result.correlations)
        more = (_between(ResultTerm(name, e.value, privacy=known(e.noise)), e.low, e.high) for name, e in pairs)
        return (*terms(plan, result.summaries), *more)
    return _of_summaries(result)


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
    import msgspec

    return msgspec.structs.replace(term, conf_low=known(low), conf_high=known(high))
