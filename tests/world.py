"""What several test files share."""

from __future__ import annotations

from unpooled.privacy.mechanisms import Objective, Scores, Summand, Vector
from unpooled.testing.cases import FULL as FULL
from unpooled.testing.cases import sized as sized
from unpooled.testing.damage import calls as calls

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
