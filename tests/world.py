"""What several test files share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from unpooled.privacy.mechanisms import Objective, Scores, Summand, Vector

#: `make test-full`: statistical tests, audits and random searches at full size; `make test` runs the same assertions on less.
FULL = os.environ.get("UNPOOLED_FULL") == "1"


def sized(full: int, reduced: int) -> int:
    """How often to repeat what may be repeated less in `make test`."""
    return full if FULL else reduced


# --- mechanisms, as tests call them ----------------------------------------------------------------------------------------


def drawn(mechanism, values, bits, sensitivity=None):
    """What a vector becomes."""
    return mechanism.draw(Vector(values, sensitivity), bits)


def summed(mechanism, values, bits):
    """What goes into a total."""
    return mechanism.draw(Summand(values, lambda *_: ()), bits)


def chosen(mechanism, scores, sensitivity, bits, *, signed=False):
    """The index that is chosen."""
    return int(mechanism.draw(Scores(scores, sensitivity, signed), bits)[0])


def minimised(mechanism, solve, bits):
    """The minimiser that is released."""
    return mechanism.draw(Objective(solve, ()), bits)


# --- work, counted and not timed ----------------------------------------------------------------------------------------


def calls(work: Callable[[], object]) -> int:
    """How many functions were entered, of Python and of C."""
    count = 0

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
