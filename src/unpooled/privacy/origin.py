"""Where a public input of a study comes from: the plan that released it, whether that plan promises anything, and what it cost.

A statement holds only if the origin of every public input holds: bounds that were paid for, weights of a source, coefficients that are
diagnosed. An input without an origin was declared by people, and the statement names it under "Assumed".
"""

from __future__ import annotations

from typing import Self

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.unit import Unit

#: What may have an origin, and how statements call it.
BOUNDS_INPUT, SOURCE, COEFFICIENTS = "bounds", "source", "coefficients"
INPUT_WORDS = {BOUNDS_INPUT: "the bounds", SOURCE: "the source's weights", COEFFICIENTS: "the model's coefficients"}
#: Whose rows an input was computed from: the study's own, or those of other people.
SAME, OTHERS = "same", "others"


class PastEvent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The cost of an earlier plan to one unit, in one of its alternatives (:func:`unpooled.privacy.exposure.alternatives`)."""

    unit: str
    part: str
    kind: str
    value: float
    count: int
    total_variation: float = 0.0
    tails: tuple[tuple[int, float], ...] = ()

    @property
    def event(self) -> Event:
        """The event; a kind that this version does not know is refused."""
        if self.kind not in Kind.__members__:
            msg = f"the origin of an input names an event {self.kind!r}: its cost cannot be accounted"
            raise UsageError(msg)
        return Event(Kind[self.kind], self.value, self.count, self.total_variation, self.tails)


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The release that a public input of a study comes from."""

    #: "bounds", "source" or "coefficients".
    input: str
    #: The hash of the plan that released it.
    plan: str
    #: Whether that plan's statement holds.
    holds: bool
    #: What the plan cost one unit of its rows.
    events: tuple[PastEvent, ...] = ()
    #: "others": somebody declares that its rows are other people's, whose loss is no part of this study's.
    rows: str = SAME

    def __post_init__(self) -> None:
        if self.input not in INPUT_WORDS or self.rows not in {SAME, OTHERS}:
            msg = f"an origin is of {listed(list(INPUT_WORDS))}, and of the {SAME!r} rows or of {OTHERS!r}"
            raise UsageError(msg)
        for past in self.events:
            Unit.parse(past.unit)
            past.event  # noqa: B018 - refuses an unknown kind or a number that is none

    @property
    def voids(self) -> bool:
        """Return True if nothing that rests on this input is private: it came from these rows under no guarantee."""
        return not self.holds and self.rows == SAME

    def parts(self, unit: Unit) -> dict[str, tuple[Event, ...]]:
        """The events of every alternative of the earlier plan, the empty one for everybody; none where its rows are other people's."""
        if self.rows == OTHERS:
            return {}
        if self.voids:
            return {"": (UNBOUNDED,)}
        found: dict[str, tuple[Event, ...]] = {}
        for past in self.events:
            if past.unit == unit:
                found[past.part] = (*found.get(past.part, ()), past.event)
        # Nobody bounded how many rows of a household counted.
        return found or ({"": (UNBOUNDED,)} if unit is Unit.HOUSEHOLD else {})

    def of_others(self) -> Self:
        """The same input, declared to come from other people's rows."""
        return msgspec.structs.replace(self, rows=OTHERS)
