"""The public declaration of one column, and what its values are called."""

from __future__ import annotations

import math
from numbers import Real
from typing import Literal, get_args

import msgspec
import numpy as np

from unpooled.errors import UsageError

#: What a missing value becomes. refuse: an error before any charge; absent: it contributes zero;
#: indicator: zero, and one more coded column says that it was missing.
Missing = Literal["refuse", "absent", "indicator"]
_RULES = get_args(Missing)  # once: there are many columns


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The public declaration of one column: a range or a list of categories, and the rule for missing values."""

    name: str
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] | None = None
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            msg = f"column {self.name!r}: {problem}"
            raise UsageError(msg)

    def _problem(self) -> str | None:  # noqa: PLR0911 - one line per rule
        if self.missing not in _RULES:
            return f"unknown rule for missing values; choose one of {', '.join(_RULES)}"
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
    def centre(self) -> float:
        """The middle of the range, where coded values are zero."""
        return self.range[0] / 2 + self.range[1] / 2

    @property
    def half_width(self) -> float:
        """What one coded unit means in the column's own units."""
        return self.range[1] / 2 - self.range[0] / 2

    @property
    def range(self) -> tuple[float, float]:
        """(low, high) of a numeric column."""
        if self.low is None or self.high is None:
            msg = f"column {self.name!r} has categories, not a range"
            raise UsageError(msg)
        return self.low, self.high

    @property
    def may_be_absent(self) -> bool:
        """Whether a value may be missing without being refused."""
        return self.missing != "refuse"

    @property
    def unfit_for_sparse(self) -> str | None:
        """What keeps a column that is held sparse from being coded sparse: its zeros would not stay zeros."""
        if self.categories is not None or self.range[0] != -self.range[1]:
            return "a sparse column's range must be symmetric about zero, so that zeros stay zeros: declare low = -high"
        if self.missing == "indicator":
            return "a sparse column has no indicator, which would not be sparse: declare missing = 'absent' or 'refuse'"
        return None


def text_of(value: object) -> str:
    """A value as a category: text as it is; 1, 1.0 and True (all stored as 1.0) are '1'."""
    if not isinstance(value, Real | np.bool_):
        return str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() else str(number)
