"""The report of a replay: how far every release moved, and what moved that must not."""

from __future__ import annotations

from dataclasses import dataclass, field

from unpooled.audit.pairs import Pairs
from unpooled.audit.violation import Violation
from unpooled.privacy.unit import Unit


@dataclass(slots=True)
class Report:
    """Report of an audit: the largest measured fraction of each declared bound, and every violation."""

    #: (unit, party, release) -> measured change / declared event.
    largest: dict[tuple[Unit, str, str], float] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    #: Of each promise of the whole study: the epsilon that one person attained at its delta, and the one that is promised.
    attained: dict[str, tuple[float, float]] = field(default_factory=dict)
    neighbours: int = 0
    #: The farthest pair of every release that came near its bound.
    pairs: Pairs = field(default_factory=Pairs)
    #: Releases, as "party.name", that a kept pair moves less than it did: the same statistic no longer, or other noise before it.
    slower: list[str] = field(default_factory=list)
    #: Releases, as "party.name", that no neighbour moved, or that are no vectors whose movement can be measured (choices, minimisers).
    unmeasured: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Return True if nothing moved farther than declared."""
        return not self.violations

    def __str__(self) -> str:
        lines = [f"{self.neighbours} neighbouring data sets: {'no violation' if self.passed else 'VIOLATIONS'}"]
        lines += [
            f"  {unit} {party}.{name}: at most {ratio:.4f} of the declared bound"
            for (unit, party, name), ratio in sorted(self.largest.items())
        ]
        lines += [
            f"  {name}: one person, changed at every party at once, attains epsilon = {ours:.4g} of {promised:.4g}"
            for name, (ours, promised) in sorted(self.attained.items())
        ]
        lines += [f"  not measured: {', '.join(self.unmeasured)} (see the model's own tests)"] if self.unmeasured else []
        lines += [f"  moved less than by the kept pairs: {', '.join(self.slower)}"] if self.slower else []
        lines += [f"  {v.unit} {v.party}: {v.where}: {v.what}" for v in self.violations[:10]]
        return "\n".join(lines)


__all__ = ["Report"]
