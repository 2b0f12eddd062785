"""Witnesses of every mechanism of a replayed study, with its input and output: the exact statistic, scores, objective and perturbation.

Witnesses stand in a model's plans in place of the mechanisms. Hashes and costs stay what they are.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.privacy.mechanisms import Contribution, Objective

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms import Given, Mechanism
    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.plan import Plan, Release, Study
    from unpooled.protocol.step import Model


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """One draw of a planned release."""

    release: str
    mechanism: Mechanism
    given: Given
    gave: NDArray[Any]
    #: Of an objective: the linear term that its mechanism drew.
    perturbation: NDArray[np.float64] | None = None


@dataclass(slots=True)
class Acts:
    """The acts of one party, in order; and those recorded in another world, which its steps are handed instead of their own.

    What a party does next is a function of what it has released. With equal releases in both worlds each act is compared under
    the condition on which adaptive composition rests, although a party may keep a release to itself.
    """

    recorded: tuple[Act, ...] = ()
    #: Whether what is entrusted to an aggregator, which is no release, goes on as it is in this world.
    entrusts: bool = False
    done: list[Act] = field(default_factory=list)

    def note(self, act: Act) -> NDArray[Any]:
        """Write an act down; what its step is handed."""
        at = len(self.done)
        self.done.append(act)
        if self.entrusts and isinstance(act.mechanism, Contribution):
            return act.gave
        same = at < len(self.recorded) and self.recorded[at].release == act.release
        return self.recorded[at].gave if same and self.recorded[at].gave.shape == act.gave.shape else act.gave


def _watching(mechanism: Mechanism, release: str, acts: Callable[[], Acts]) -> Mechanism:
    """Return the same mechanism, of a class of its own, which also writes down each draw."""
    kind = type(mechanism)

    def draw(self: Mechanism, given: Given, bits: RandomBits) -> NDArray[Any]:
        del self
        terms: list[NDArray[np.float64]] = []
        asked = given
        if isinstance(given, Objective):
            solve = given.solve

            def noted(term: NDArray[np.float64]) -> NDArray[Any]:
                terms.append(np.copy(term))
                return solve(term)

            asked = replace(given, solve=noted)
        gave = mechanism.draw(asked, bits)
        return acts().note(Act(release, mechanism, given, gave, terms[0] if terms else None))

    made: Mechanism = object.__new__(
        type(kind.__name__, (kind,), {"draw": draw, "describe": lambda _: mechanism.describe()})
    )
    for each in dataclasses.fields(mechanism):  # type: ignore[arg-type]
        object.__setattr__(made, each.name, getattr(mechanism, each.name))
    return made


def watched(model: Model, written: Mapping[str, Acts]) -> Model:
    """Return the model with witnesses in its plans, which write to the list of the party that draws.

    A plan is a function of its study alone, so each is compiled once, not anew for every neighbour.
    """
    plans: dict[bytes, Plan] = {}

    def watch(release: Release) -> Release:
        return replace(release, mechanism=_watching(release.mechanism, release.name, lambda: written[release.party]))

    def compile_plan(study: Study) -> Plan:
        asked = msgspec.msgpack.encode(study)
        if asked not in plans:
            plan = model.compile(study)
            releases = tuple(watch(release) for release in plan.releases)
            plans[asked] = _with(plan, releases)
        return plans[asked]

    return replace(model, compile_plan=compile_plan)


def _with(plan: Plan, releases: tuple[Release, ...]) -> Plan:
    """Return a plan with these releases, and its parts with their mechanisms: parties draw from those of the parts, whose releases come first."""
    left = iter(releases)
    parts = {
        name: _with(inner, tuple(replace(own, mechanism=next(left).mechanism) for own in inner.releases))
        for name, inner in plan.parts.items()
    }
    return replace(plan, releases=releases, parts=parts)


__all__ = ["Act", "Acts", "watched"]
