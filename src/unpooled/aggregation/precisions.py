"""Precisions: a positive number, or the word that asks for its estimate."""

from __future__ import annotations

import math

from unpooled.errors import UsageError

#: In the place of a precision: estimated from the moments themselves.
ESTIMATE = "estimate"


def is_estimated(precision: object) -> bool:
    """Return True if a precision is to be estimated; another word is an error."""
    if isinstance(precision, str) and precision != ESTIMATE:
        msg = f"a precision is a positive number or {ESTIMATE!r}"
        raise UsageError(msg)
    return isinstance(precision, str)


def positive(precision: float | str) -> float:
    """Return a precision that is a positive finite number; refused otherwise."""
    number = float(precision)
    if not 0 < number < math.inf:
        raise UsageError("a precision must be a positive finite number")
    return number
