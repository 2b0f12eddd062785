"""The interface of a mechanism, its noise and its privacy event in one object so that they cannot drift apart; and what a step hands to it."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.unit import ROWWISE, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.privacy.events import Event
    from unpooled.privacy.noise import RandomBits


# --- Given -----------------------------------------------------------------------------------------------------------------
# Inputs that a step hands to a mechanism: a vector, scores to choose by, an objective to minimise, or a vector for a sum of several parties.


@dataclass(frozen=True, slots=True)
class Vector:
    """A statistic that gets noise. ``sensitivity`` is for noise that follows the run: a closed form of values that are public by then."""

    values: NDArray[Any]
    sensitivity: float | None = None

    def content(self) -> tuple[bytes, ...]:
        """Return everything that the released value depends on, apart from the noise."""
        return self.values.tobytes(), repr(self.sensitivity).encode()


@dataclass(frozen=True, slots=True)
class Scores:
    """Integer scores to choose by, each moved by one unit by at most ``sensitivity``. ``signed``: choose among [values, -values]."""

    values: NDArray[Any]
    sensitivity: int
    signed: bool = False

    def content(self) -> tuple[bytes, ...]:
        """Return everything that the released value depends on, apart from the noise."""
        return self.values.tobytes(), repr((self.sensitivity, self.signed)).encode()


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective: ``solve`` finds its minimum for a given linear perturbation.

    A function has no bytes, so ``over`` is everything that it depends on: coded rows and labels, values of a request.
    """

    solve: Callable[[NDArray[Any]], NDArray[Any]]
    over: tuple[NDArray[Any] | bytes, ...]

    def content(self) -> tuple[bytes | memoryview, ...]:
        """Return everything that the released value depends on, apart from the noise."""
        found: list[bytes | memoryview] = []
        for part in self.over:
            if isinstance(part, bytes):
                found.append(part)
            else:
                found += [
                    repr((part.shape, part.dtype.str)).encode(),
                    np.ascontiguousarray(part).reshape(-1).view(np.uint8).data,
                ]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Summand:
    """A vector that goes into a sum over parties: ``seal`` encrypts what is drawn for those who add up.

    It is given the drawn vector and a secret that belongs to this release alone.
    """

    values: NDArray[Any]
    seal: Callable[[NDArray[Any], bytes], tuple[Any, ...]]

    def content(self) -> tuple[bytes, ...]:
        """Return everything that the released value depends on, apart from the noise."""
        return (self.values.tobytes(),)


Given = Vector | Scores | Objective | Summand


# --- Base ------------------------------------------------------------------------------------------------------------------
# The interface of a mechanism: its noise and its privacy event in one object, so that they cannot drift apart.

#: What mechanisms publish: integers on a grid, real numbers, or words modulo 2^64.
INTEGERS, REALS, WORDS = "<i8", "<f8", "<u8"


class Mechanism(ABC):
    """One way to make a value public. Subclasses are frozen dataclasses whose fields define them.

    ``event(unit)`` is what the accountant composes; ``draw`` makes the noise from a stream. Nothing else in unpooled adds noise to anything.
    """

    __slots__ = ()
    #: The name that plans' hashes hold: a class has one of its own, and keeps it wherever its file goes.
    kind: ClassVar[str]
    #: What it is given: one of the kinds of ``base.py``.
    takes: ClassVar[type[Any]] = Vector
    #: The type of the numbers that it publishes, as an array in a message names it.
    dtype: ClassVar[str] = INTEGERS
    #: Whether the receiver is trusted with exact values, which the study must ask for and a policy may refuse.
    needs_trust: ClassVar[bool] = False

    if TYPE_CHECKING:
        # Fields, properties or constants of the subclasses. Declared for the type checker only: a dataclass takes what its base class holds
        # under the name of a field for that field's default.
        @property
        def name(self) -> str:
            """Return the name of the mechanism in plans and ledgers."""

        @property
        def size(self) -> int:
            """Return the number of values that one release publishes."""

        @property
        def scale(self) -> float | None:
            """Return the scale of its noise; None where it is known during the run only."""

    def prices(self, unit: Unit) -> bool:
        """Return True if the mechanism prices this unit. Only mechanisms made for it know the joint loss of all rows of an id."""
        return unit in ROWWISE

    @abstractmethod
    def sensitivity(self, unit: Unit) -> float | None:
        """Return the sensitivity of the statistic to one unit, in the units of ``scale``; None where it is known only during the run."""

    @abstractmethod
    def event(self, unit: Unit) -> Event:
        """Return the privacy event of one release for one unit."""

    @abstractmethod
    def draw(self, given: Any, bits: RandomBits) -> NDArray[Any]:  # noqa: ANN401 - of the kind that it takes
        """Return the vector that is published (or, for a sum, the vector that goes into it)."""

    def check(self, given: Given) -> None:
        """Refuse what this mechanism cannot draw from, before anything is debited. Looks at kinds and shapes, never at values."""
        if type(given) is not self.takes:
            msg = f"a release by {self.name} takes a {self.takes.__name__}, not a {type(given).__name__}"
            raise UsageError(msg)

    def content(self, given: Given) -> bytes:
        """Return a digest of everything that the released value depends on apart from the noise: the noise key depends on it."""
        total = sha256()
        for part in given.content():
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
        return total.digest()

    def change(self, one: NDArray[Any], other: NDArray[Any]) -> float | None:
        """Return the distance of two releases with equal noise, in the unit of ``event(...).value``; an audit measures it.

        None where that cannot be measured so (choices, minimisers).
        """
        del one, other
        return None

    def describe(self) -> tuple[object, ...]:
        """Return everything that defines this mechanism, for the plan's hash: the name of its class and all its fields."""
        if "kind" not in type(self).__dict__:
            msg = f"{type(self).__qualname__} has no name of its own for plans' hashes: give the class a `kind`"
            raise UsageError(msg)
        own = [(f.name, _plain(getattr(self, f.name))) for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return (self.kind, *own)


def _plain(value: object) -> object:
    """Return a field as plain data; a dataclass as its class and fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value).__qualname__, *((f.name, _plain(getattr(value, f.name))) for f in dataclasses.fields(value)))
    if isinstance(value, tuple | list):
        return tuple(_plain(part) for part in value)
    return value


def check_integers(values: NDArray[Any], size: int) -> None:
    """Refuse a vector of another shape or type than planned."""
    if values.shape != (size,) or values.dtype != np.int64:
        msg = f"this release is of {size} int64 values, not {values.shape} {values.dtype}"
        raise UsageError(msg)
