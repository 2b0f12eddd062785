"""Privacy costs of releases, as a ledger writes them down: an :class:`Event` of a :class:`Kind`, to be composed by ``accounting.py``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from unpooled.errors import AccountingError

#: Pairs (n, m) of ``accounting.py``.
Tail = tuple[tuple[int, float], ...]


class Kind(IntEnum):
    """The meaning of the one number of an event. The codes are stored in ledgers: never renumber them."""

    #: mu: L2 sensitivity over standard deviation of Gaussian (or rounded Gaussian) noise.
    GAUSSIAN = 1
    #: rho of zero-concentrated differential privacy.
    ZCDP = 2
    #: eps0 of an exponential-mechanism choice: eps0-DP and (eps0^2/8)-zCDP (bounded range).
    EXPONENTIAL = 3
    #: eps0 of any other eps0-DP mechanism: (eps0^2/2)-zCDP.
    PURE = 4
    #: A release whose cost is not known (published calibrations) or that has no noise at all.
    UNBOUNDED = 5
    #: The minimiser of an objective with Gaussian perturbation: a loss of at most this number and a variable with known tails.
    PERTURBED = 6


@dataclass(frozen=True, slots=True)
class Event:
    """The cost of one release (or of ``count`` equal ones) to one unit."""

    kind: Kind
    value: float = 0.0
    count: int = 1
    total_variation: float = 0.0
    #: Of a perturbed objective: (n, m) of the normal tails that bound the rest of its loss (``accounting.py``), the largest m first.
    tails: Tail = ()

    def __post_init__(self) -> None:
        if type(self.kind) is not Kind:
            msg = f"unknown privacy event {self.kind!r}: its cost cannot be accounted"
            raise AccountingError(msg)
        numbers = (self.value, self.total_variation)
        if not all(type(x) is float and math.isfinite(x) and x >= 0 for x in numbers):
            msg = f"the numbers of a {self.kind.name.lower()} event must be finite floats >= 0"
            raise AccountingError(msg)
        if type(self.count) is not int or self.count < 0:
            msg = "the count of an event must be an integer >= 0"
            raise AccountingError(msg)
        right = all(type(n) is int and n > 0 and type(m) is float and 0 < m < math.inf for n, m in self.tails)
        if not right or bool(self.tails) is not (self.kind is Kind.PERTURBED):
            raise AccountingError(
                "a perturbed objective, and nothing else, is an event with tails: pairs of a count and of a positive float"
            )

    @property
    def rho(self) -> float:
        """Return the zCDP cost of this event."""
        if self.count == 0:
            return 0.0
        per_event = {
            Kind.GAUSSIAN: self.value * self.value / 2,
            Kind.ZCDP: self.value,
            Kind.EXPONENTIAL: self.value * self.value / 8,
            Kind.PURE: self.value * self.value / 2,
            Kind.UNBOUNDED: math.inf,
            Kind.PERTURBED: math.inf,
        }
        return self.count * per_event[self.kind]

    def __str__(self) -> str:
        names = {Kind.GAUSSIAN: "mu", Kind.ZCDP: "rho", Kind.EXPONENTIAL: "epsilon", Kind.PURE: "epsilon"}
        words = self.kind.name.lower()
        if self.kind in names:
            words += f" {names[self.kind]} = {self.value:.6g}"
        if self.tails:
            words += f" c = {self.value:.6g}, mu = {' or '.join(f'{m:.6g}' for _, m in self.tails)}"
        return words + (f" x {self.count}" if self.count != 1 else "")


class Numbers(NamedTuple):
    """The sums over events that the composition rules read, apart from the tails; every curve grows in each of them."""

    #: 1 for every release of which nothing is known.
    unbounded: float
    #: mu squared.
    gaussian: float
    pure_epsilon: float
    #: The zCDP cost of everything but perturbed objectives, and of what is known by it alone.
    rho: float
    rho_only: float
    total_variation: float
    #: What the losses of perturbed objectives begin with.
    constants: float

    @staticmethod
    @lru_cache(1024)  # a ledger asks for the same few at every debit
    def of(event: Event) -> Numbers:
        """Return the numbers of this event, composed ``event.count`` times."""
        kind, value = event.kind, event.value * event.count
        return Numbers(
            float(kind is Kind.UNBOUNDED),
            event.value * value if kind is Kind.GAUSSIAN else 0.0,
            value if kind in {Kind.PURE, Kind.EXPONENTIAL} else 0.0,
            event.rho if kind is not Kind.PERTURBED else 0.0,
            value if kind is Kind.ZCDP else 0.0,
            event.total_variation * event.count,
            value if kind is Kind.PERTURBED else 0.0,
        )


NO_COST = Event(Kind.GAUSSIAN, 0.0)
UNBOUNDED = Event(Kind.UNBOUNDED)
