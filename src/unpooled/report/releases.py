"""Releases in words: the content of each, and its noise in people, as those who approve a plan read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.models import load

if TYPE_CHECKING:
    from unpooled.privacy.exposure import Release
    from unpooled.privacy.plan import Plan

#: Below this many people of noise, one decimal is shown.
_FEW = 10
_UNITS = {"record": "people", "attribute": "single values", "household": "ids"}


@dataclass(frozen=True)
class ReleaseWords:
    """One release in words."""

    party: str
    #: The analysis that it belongs to; empty where the study is one analysis.
    part: str
    name: str
    content: str
    #: How often it is made, and how many numbers it holds.
    size: str
    #: Its noise, measured by the most that one person (or one value) can change.
    noise: str

    @property
    def row(self) -> tuple[str, ...]:
        """Return the cells of a table's line."""
        content = f"{self.part}: {self.content}" if self.part else self.content
        return self.party, content, self.size, self.noise


#: The titles of the columns of :attr:`ReleaseWords.row`.
TITLES = ("party", "what is released", "numbers", "its noise")


def in_words(plan: Plan) -> tuple[ReleaseWords, ...]:
    """Return every release of a plan in words, in the plan's order."""
    return tuple(_in_words(plan, release) for release in plan.releases)


def _in_words(plan: Plan, release: Release) -> ReleaseWords:
    own, _ = plan.part(release.step)
    prefix = plan.prefix_of(own) or ""
    name = release.name.removeprefix(prefix)
    known = load(own.study.row).releases
    content = known.get(name) or known.get(re.sub(r"\s*\d+$", "", name)) or f"numbers that the model calls {name!r}"
    times = "" if release.count == 1 else f", at most {release.count} times"
    return ReleaseWords(release.party, prefix.rstrip(": "), name, content, f"{release.size}{times}", noise_of(plan, release))


def noise_of(plan: Plan, release: Release) -> str:
    """Return the standard deviation of the noise, divided by the most that one unit can change the release, in words.

    The number needs no data. A share of all people stands with it where the party has more than it.
    """
    unit = plan.study.unit
    reach, scale = release.sensitivity(unit), release.scale
    if not reach or scale is None:
        return "the choice itself is random" if release.mechanism.name == "exponential mechanism" else "set during the run"
    many = scale / reach
    said = (
        f"as large as what {many:.2g} {_UNITS[unit]} can change"
        if many < _FEW
        else f"as large as what {many:,.0f} {_UNITS[unit]} can change"
    )
    people = next((card.people for card in plan.study.parties if card.name == release.party), 0)
    return (
        f"{said} ({many / people:.2g} times all {people:,})"
        if people and many > people
        else (f"{said}, {many / people:.1%} of {people:,}" if people else said)
    )
