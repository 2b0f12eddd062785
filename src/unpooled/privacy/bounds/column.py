"""The public declaration of one column, and what its values are called."""

from __future__ import annotations

import math
import re
from datetime import date
from numbers import Real
from typing import Literal, get_args

import msgspec
import numpy as np

from unpooled.errors import UsageError

#: What a missing value becomes. refuse: an error before any charge; absent: it contributes zero;
#: indicator: zero, and one more coded column says that it was missing.
Missing = Literal["refuse", "absent", "indicator"]
_RULES = get_args(Missing)  # once: there are many columns

#: Days in each unit that a column of dates may count; a year is the calendar's mean one.
_DAYS = {"days": 1.0, "weeks": 7.0, "months": 365.2425 / 12, "years": 365.2425}
_DATES = re.compile(rf"({'|'.join(_DAYS)}) since (\d{{4}}-\d{{2}}-\d{{2}})")


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The public declaration of one column: a range or a list of categories, and the rule for missing values.

    ``dates`` says that a file holds dates, and what the range counts: "days since 2015-01-01" (or weeks, months, years).
    """

    name: str
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] | None = None
    missing: Missing = "refuse"
    dates: str = ""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            msg = f"column {self.name!r}: {problem}"
            raise UsageError(msg).at(column=self.name)

    def _problem(self) -> str | None:  # noqa: PLR0911 - one line per rule
        if self.missing not in _RULES:
            return f"unknown rule for missing values; choose one of {', '.join(_RULES)}"
        if self.dates and (self.categories is not None or self.calendar is None):
            return f'dates are counted in a range: dates = "days since 2015-01-01" (or {", ".join(_DAYS)}), with low and high so counted'
        if self.categories is not None:
            if self.low is not None or self.high is not None:
                return "declare a range (low, high) or categories, not both"
            if len(self.categories) < 2 or len(set(self.categories)) != len(self.categories):  # noqa: PLR2004
                return "declare at least two categories, each once"
            return None
        if self.low is None or self.high is None:
            return "no bounds: declare low and high, or categories"
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high and self.half_width > 0):
            return "low must be smaller than high, both finite"
        return None

    @property
    def calendar(self) -> tuple[date, float] | None:
        """Return the first day that a column of dates counts from, and the days in its unit; None of other columns."""
        said = _DATES.fullmatch(self.dates)
        try:
            return None if said is None else (date.fromisoformat(said[2]), _DAYS[said[1]])
        except ValueError:  # no such day
            return None

    @property
    def centre(self) -> float:
        """Return the middle of the range, where coded values are zero."""
        return self.range[0] / 2 + self.range[1] / 2

    @property
    def half_width(self) -> float:
        """Return the size of one coded unit in the column's own units: half the width of the range."""
        return self.range[1] / 2 - self.range[0] / 2

    @property
    def range(self) -> tuple[float, float]:
        """Return (low, high) of a numeric column."""
        if self.low is None or self.high is None:
            msg = f"column {self.name!r} has categories, not a range"
            raise UsageError(msg).at(column=self.name)
        return self.low, self.high

    @property
    def may_be_absent(self) -> bool:
        """Return True if a value may be missing without being refused."""
        return self.missing != "refuse"

    @property
    def unfit_for_sparse(self) -> str | None:
        """Return the reason why this column cannot be coded sparse (its zeros would not stay zeros), or None if it can."""
        if self.categories is not None or self.range[0] != -self.range[1]:
            return "a sparse column's range must be symmetric about zero, so that zeros stay zeros: declare low = -high"
        if self.missing == "indicator":
            return "a sparse column has no indicator, which would not be sparse: declare missing = 'absent' or 'refuse'"
        return None


def truth_words(categories: tuple[str, ...]) -> tuple[str, str] | None:
    """Return (false, true) as these categories write them, or None: a file's yes-or-no column holds the words themselves, not 0 and 1."""
    words = {category.lower(): category for category in categories}
    return (words["false"], words["true"]) if words.keys() == {"false", "true"} else None


def text_of(value: object) -> str:
    """Return a value as a category: text as it is; 1, 1.0 and True (all stored as 1.0) are '1'."""
    if not isinstance(value, Real | np.bool_):
        return str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() else str(number)
