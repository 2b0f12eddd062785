"""Releases in words: the content of each, and its noise in people, as those who approve a plan read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.models import load
from unpooled.privacy.mechanisms import Summand

if TYPE_CHECKING:
    from unpooled.privacy.exposure import Release
    from unpooled.privacy.plan import Plan

#: Below this many people of noise, one decimal is shown.
_FEW = 10
_UNITS = {"record": "people", "attribute": "single values", "household": "ids"}


@dataclass(frozen=True)
class ReleaseWords:
    """One release in words, of all parties that make it alike."""

    parties: tuple[str, ...]
    #: The analysis that it belongs to; empty where the study is one analysis.
    part: str
    name: str
    content: str
    #: How many numbers it holds, of each party or of all together, and how often it is made.
    size: str
    #: Its noise, measured by the most that one person (or one value) can change.
    noise: str
    #: The same as a part of the people of each party.
    shares: tuple[float, ...]

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Return the cells of a table's line."""
        content = f"{self.part}: {self.content}" if self.part else self.content
        return ", ".join(self.parties), content, self.size, f"{self.noise}{self._share}"

    @property
    def _share(self) -> str:
        if not self.shares:
            return ""
        low, high = _percent(min(self.shares)), _percent(max(self.shares))
        of = "its people" if len(self.parties) == 1 else "a party's people"
        return f" ({low} of {of})" if low == high else f" ({low} to {high} of {of})"


#: The titles of the columns of :attr:`ReleaseWords.row`.
TITLES = ("parties", "what is released", "numbers", "its noise")


def in_words(plan: Plan) -> tuple[ReleaseWords, ...]:
    """Return every release of a plan in words, in the plan's order; those that parties make alike are one."""
    made: dict[tuple[str, str, str, str, str, str, bool], list[tuple[str, float | None]]] = {}
    for release in plan.releases:
        own, _ = plan.part(release.step)
        prefix = plan.prefix_of(own) or ""
        name = release.name.removeprefix(prefix)
        known = load(own.study.row).releases
        content = known.get(name) or known.get(re.sub(r"\s*\d+$", "", name)) or f"numbers that the model calls {name!r}"
        times = "" if release.count == 1 else f", at most {release.count} times"
        noise, share = _noise(plan, release)
        words = (prefix.rstrip(": "), name, content, str(release.size), times, noise, _together(release))
        made.setdefault(words, []).append((release.party, share))
    found = []
    for (part, name, content, size, times, noise, summed), by in made.items():
        parties = tuple(dict.fromkeys(party for party, _ in by))
        of = (" together" if summed else ", each") if len(parties) > 1 else ""
        shares = tuple(share for _, share in by if share is not None)
        found.append(ReleaseWords(parties, part, name, content, f"{size}{of}{times}", noise, shares))
    return tuple(found)


def numbers_of(plan: Plan) -> int:
    """Return the most numbers that the releases of a plan make public: a total that members open together counts once.

    Exact numbers for a trusted party are not public, and do not count.
    """
    found = 0
    limited: dict[tuple[str, str], list[Release]] = {}
    for release in plan.releases:
        if release.mechanism.needs_trust:
            continue
        if _together(release) or release.exposure.together:
            limited.setdefault((release.step, release.name), []).append(release)
        else:
            found += release.count * release.size
    for same in limited.values():
        times = max(release.count for release in same)
        if not _together(same[0]):
            times = min(sum(release.count for release in same), max(release.exposure.together for release in same))
        found += times * max(release.size for release in same)
    return found


def _together(release: Release) -> bool:
    """Return True if its numbers are part of a total that members open together."""
    return release.mechanism.takes is Summand and not release.mechanism.needs_trust


def _noise(plan: Plan, release: Release) -> tuple[str, float | None]:
    """Return the standard deviation of the noise, divided by the most that one unit can change the release: in words, and as a part of all people."""
    if release.mechanism.needs_trust:
        return "none: exact numbers for the trusted party alone, whose total has the noise", None
    unit = plan.study.unit
    reach, scale = release.sensitivity(unit), release.scale
    if not reach or scale is None:
        return (
            "the choice itself is random" if release.mechanism.name == "exponential mechanism" else "set during the run",
            None,
        )
    many = scale / reach
    number = f"{many:.2g}" if many < _FEW else f"{many:,.0f}"
    people = next((card.people for card in plan.study.parties if card.name == release.party), 0)
    return f"as large as what {number} {_UNITS[unit]} can change", many / people if people else None


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:,.0f} %"
