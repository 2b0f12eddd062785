"""The length to which rows are left, from what the noise of a round affords: one rule for regression and for generalised linear models."""

from __future__ import annotations

#: The noise of the last round over the sampling error up to which rows are left longer: standard errors are then 12 % larger (THEORY.md of
#: ``models/bayes``, section 9).
AFFORDED = 0.5
#: Beyond this many typical rows few rows are left to shorten, and the noise counts for more.
_LONG = 4.0
#: Where rows of this many typical ones are affordable, the last round gets most of the budget.
AMPLE = 16.0


def opened(afforded: float) -> float:
    """Return the bound on rows in lengths of a typical row, at least 1: what is afforded, and beyond 4 lengths only its fourth root more."""
    if afforded <= _LONG:
        return max(afforded, 1.0)
    return float(_LONG * (afforded / _LONG) ** 0.25)
