"""Whom a guarantee protects: the unit, the adjacency, the calibration, and a requested budget.

Every other module takes these types instead of strings, so an unknown word is refused once, here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import Self, assert_never

from unpooled.errors import UsageError

#: Outside this range a finite epsilon is a typing mistake or a denormal number, not a guarantee.
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 1e4
SMALLEST_DELTA = 1e-30


class _Word(StrEnum):
    """An enumeration whose unknown members are refused with the list of known ones."""

    @classmethod
    def parse(cls, word: object) -> Self:
        if isinstance(word, str) and word in cls._value2member_map_:
            return cls(word)
        known = ", ".join(repr(str(member)) for member in cls)
        shown = repr(word) if isinstance(word, str) else type(word).__name__
        msg = f"unknown {cls.__name__.lower()} {shown}: choose one of {known}"
        raise UsageError(msg)


class Unit(_Word):
    """The unit of privacy: the part of the data that may change between two data sets that must look alike."""

    #: One person's whole row, at every party that holds a part of it.
    RECORD = "record"
    #: One value of one person inside its declared range (a category counts as one value).
    ATTRIBUTE = "attribute"
    #: All rows of one id that count (a person with several visits, a household): at most a declared number in the whole study.
    HOUSEHOLD = "household"


#: The units whose price every release has. What a household loses is known only where a study bounds how many of its rows count.
ROWWISE = (Unit.RECORD, Unit.ATTRIBUTE)


class Adjacency(_Word):
    """The kind of change between neighbouring data sets. The number of rows is public under both kinds."""

    #: Any admissible row instead of this one.
    REPLACE = "replace"
    #: The row contributes nothing (only where a row is one term of a sum).
    ZERO_OUT = "zero-out"


class Calibration(_Word):
    """Which noise: the one whose guarantee holds, or the one a paper printed."""

    SOUND = "sound"
    PUBLISHED = "published"


class Scope(_Word):
    """The scope that a policy bounds where several parties know the same people."""

    #: Everything that all parties of a column-split study release about one person.
    PERSON = "person"
    #: What leaves one party alone.
    PARTY = "party"


class Split(_Word):
    """The layout of the parties' data: different columns of the same people, or the same columns of different people."""

    VERTICAL = "vertical"
    HORIZONTAL = "horizontal"

    @property
    def shares_people(self) -> bool:
        """Return True if each person has a part of a row at every party, False if the whole row is at one of them."""
        match self:
            case Split.VERTICAL:
                return True
            case Split.HORIZONTAL:
                return False
            case _ as never:
                assert_never(never)


def real(name: str, value: object) -> float:
    """``value`` as a float; booleans, strings and nan are refused by type."""
    if isinstance(value, bool) or not isinstance(value, Real):
        msg = f"{name} must be a number, not {type(value).__name__}"
        raise UsageError(msg)
    try:
        number = float(value)
    except OverflowError:
        msg = f"{name} is too large for a float"
        raise UsageError(msg) from None
    if math.isnan(number):
        msg = f"{name} is nan: give a number"
        raise UsageError(msg)
    return number


def check_epsilon(value: object, name: str = "epsilon") -> float:
    """Return a finite epsilon in the range that makes sense, or ``inf`` (no noise, no guarantee)."""
    number = real(name, value)
    if number == math.inf or SMALLEST_EPSILON <= number <= LARGEST_EPSILON:
        return number
    msg = f"{name} must lie between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}, or be inf for no privacy"
    raise UsageError(msg)


def check_delta(value: object, name: str = "delta") -> float:
    """Return a delta of 0 (pure differential privacy) or between 1e-30 and 1."""
    number = real(name, value)
    if number == 0 or SMALLEST_DELTA <= number < 1:
        return number
    msg = f"{name} must be 0 or lie between {SMALLEST_DELTA:g} and 1 (1e-6 is a usual choice)"
    raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class Target:
    """A checked (epsilon, delta) for one unit: what a study asks for and what a policy allows in total."""

    epsilon: float
    delta: float
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))
        object.__setattr__(self, "unit", Unit.parse(self.unit))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g} per {self.unit}"
