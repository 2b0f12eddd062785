"""Spending of a ledger, in one form for every command: a number, or "unbounded" with the known cost of the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from unpooled.privacy.ledger.charges import Entry

UNBOUNDED_WORD: Final = "unbounded"


@dataclass(frozen=True, slots=True)
class Spending:
    """The epsilon of everything debited, at one delta and for one unit."""

    #: Infinite where the cost of a study is not known.
    epsilon: float
    #: The epsilon of the other studies alone, and the number of studies whose cost is not known.
    known: float
    unknown: int

    @property
    def number(self) -> float | Literal["unbounded"]:
        """Epsilon for machines: a number, or "unbounded"."""
        return self.epsilon if math.isfinite(self.epsilon) else UNBOUNDED_WORD

    @property
    def words(self) -> str:
        """Epsilon for people.

        >>> print(Spending(math.inf, 0.5, 2).words)
        unbounded (2 studies of unknown cost; epsilon = 0.5 by all others)
        """
        if math.isfinite(self.epsilon):
            return f"epsilon = {self.epsilon:.6g}"
        studies = f"{self.unknown} stud{'ies' if self.unknown != 1 else 'y'} of unknown cost"
        return f"{UNBOUNDED_WORD} ({studies}; epsilon = {self.known:.6g} by all others)"


@dataclass(frozen=True, slots=True)
class StudyBalance:
    """The spending of a ledger after one of its studies: that of all studies up to and including this one."""

    plan: str
    #: Seconds since 1970 of the study's first charge; 0 where a ledger of the first version does not say.
    time: int
    about: str
    after: Spending


@dataclass(frozen=True, slots=True)
class StudyLine:
    """The entries and the cost of one plan in a ledger."""

    plan: str
    entries: tuple[Entry, ...]
    cost: Spending
    withdrawn: bool

    @property
    def approval(self) -> Entry | None:
        """Return the last approval of the plan, if the ledger holds one."""
        return next((entry for entry in reversed(self.entries) if entry.kind == "approval"), None)

    @property
    def releases(self) -> int:
        """Return the number of releases of the plan that were debited."""
        return sum(entry.kind == "charge" for entry in self.entries)

    @property
    def decision(self) -> Entry | None:
        """Return the last approval, withdrawal or refusal of the plan by this party's people, if the ledger holds one."""
        return next((entry for entry in reversed(self.entries) if entry.key is None), None)

    @property
    def decisions(self) -> int:
        """Return how often this party's people decided about the plan."""
        return sum(entry.key is None for entry in self.entries)

    @property
    def about(self) -> str:
        """Return the model and the purpose that were approved, or declined."""
        said = self.approval or self.decision
        return said.about if said else ""

    @property
    def state(self) -> str:
        """Where the plan stands: approved, declined, debited or withdrawn."""
        if self.withdrawn:
            return "withdrawn" if self.approval else "declined"
        return f"{self.releases} release{'' if self.releases == 1 else 's'}" if self.releases else "approved"
