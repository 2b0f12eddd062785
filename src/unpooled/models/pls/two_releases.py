"""The promise of a model that is computed from the releases of two domains: each domain's people keep their own, and both add up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from unpooled.privacy.exposure import account
from unpooled.privacy.origin import SAME, ReleasedInput, by_draw, origins_of, sourced
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from unpooled.linear.moments import Moments


@dataclass(frozen=True)
class DomainRelease:
    """The release of one domain that a transferred model rests on, and its plan."""

    #: In words: "the source", "the target".
    domain: str
    #: What was released, in words.
    released: str
    rows: int
    #: The plan of the release after those of its own public inputs.
    origins: tuple[ReleasedInput, ...]
    unit: str = Unit.RECORD
    #: The delta of the plan; 0 where only moments are at hand, which do not hold it.
    delta: float = 0.0

    @classmethod
    def of(cls, domain: str, released: str, moments: Moments, plan: Any = None) -> Self:  # noqa: ANN401 - a plan of any design
        """Return the release of moments, by their plan where it is at hand."""
        if plan is None:
            return cls(domain, released, moments.rows, moments.origins)
        return cls(domain, released, moments.rows, moments.origins, str(plan.study.unit), plan.study.delta)

    @property
    def holds(self) -> bool:
        """Return True if nothing behind this release is without a promise."""
        return not any(origin.voids for origin in self.origins)

    def __str__(self) -> str:
        cost = together((self,))
        said = "no guarantee holds for that release"
        if self.holds:
            said = (
                "its own statement holds the promise"
                if cost is None
                else f"{_number(cost)} for a {self.unit} of {self.domain}"
            )
        return f"{self.domain} released {self.released} of {self.rows} rows (plan {self.origins[-1].plan[:12]}): {said}."


@dataclass(frozen=True)
class TwoReleases:
    """The releases that a transferred model rests on. It adds none: a function of what was released costs nothing more (Theorem C.7)."""

    releases: tuple[DomainRelease, ...]
    #: What else the model was computed from, in words: public pairs.
    public: str = ""

    @property
    def holds(self) -> bool:
        """Return True if the promise of every release holds: no part of the model is then without one."""
        return all(release.holds for release in self.releases)

    @property
    def origins(self) -> tuple[ReleasedInput, ...]:
        """Return every release behind the model, each once: the fits, then their public inputs."""
        return origins_of(*(sourced((), release.origins[-1:] + release.origins[:-1]) for release in self.releases))

    @property
    def epsilon(self) -> float | None:
        """Return the composed epsilon of somebody who is in every domain, at :attr:`delta`; None where a release does not say what it cost."""
        return together(self.releases)

    @property
    def delta(self) -> float:
        """Return the delta at which costs are composed: the largest of the releases'."""
        return max(release.delta for release in self.releases)

    def __str__(self) -> str:
        lines = [
            "This model is computed from what was released before. It is post-processing, and costs nobody anything more."
        ]
        lines += [str(release)[:1].upper() + str(release)[1:] for release in self.releases]
        lines += [self.public] if self.public else []
        if len(self.releases) > 1:
            lines += ["Everybody is protected by the promise of the domain that holds their rows."]
            cost = self.epsilon
            price = "" if cost is None or not self.holds else f": {_number(cost)} at delta = {self.delta:g}"
            lines.append(f"Somebody with rows in both domains pays for both, and the costs compose{price}.")
        if not self.holds:
            lines.append("No guarantee holds for the model: at least one of the releases behind it has none.")
        return "\n".join(lines)


def together(releases: tuple[DomainRelease, ...]) -> float | None:
    """Return the epsilon of one unit that is in all of these releases; None where one does not say what it cost, or has another unit."""
    origins = TwoReleases(releases).origins
    if not all(release.holds for release in releases):
        return math.inf
    if len({release.unit for release in releases}) > 1 or not all(
        origin.events for origin in origins if origin.rows == SAME
    ):
        return None
    unit = Unit(releases[0].unit)
    parts = {draw: found for draw, origin in by_draw(origins).items() if (found := origin.parts(unit))}
    return float(account(list(parts.values())).epsilon(max(release.delta for release in releases)))


def _number(epsilon: float) -> str:
    return f"epsilon = {epsilon:.4g}"
