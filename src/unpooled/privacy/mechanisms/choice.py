"""One of many candidates by the exponential mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from unpooled.errors import AccountingError
from unpooled.privacy import noise
from unpooled.privacy.events import NO_COST, UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms.base import Mechanism, Scores
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms.base import Given
    from unpooled.privacy.noise import RandomBits


@dataclass(frozen=True, slots=True)
class NoisyChoice(Mechanism):
    """One of many candidates by the exponential mechanism; (epsilon^2/8)-zCDP per choice (Theorem F.14).

    The scores' sensitivity may be a closed form of public values that is known only during the run, so
    ``scale`` is None here and :class:`Scores` bring it.
    """

    kind: ClassVar[str] = "exponential mechanism"
    epsilon: tuple[tuple[Unit, float], ...]
    #: Whose epsilon sets the noise: the study's unit.
    unit: Unit
    takes: ClassVar[type[Any]] = Scores
    name: ClassVar[str] = "exponential mechanism"
    size: ClassVar[int] = 1
    scale: ClassVar[None] = None

    def sensitivity(self, unit: Unit) -> None:  # noqa: ARG002 - the protocol's signature
        """Known during the run only."""
        return

    def event(self, unit: Unit) -> Event:
        """Return the cost of one choice."""
        epsilon = dict(self.epsilon)[unit]
        if epsilon == math.inf:
            return UNBOUNDED
        return Event(Kind.EXPONENTIAL, epsilon, 1, noise.TOTAL_VARIATION) if epsilon else NO_COST

    def check(self, given: Given) -> None:
        """Refuse scores whose sensitivity is no number to divide by."""
        Mechanism.check(self, given)
        assert isinstance(given, Scores)
        if not 0 < given.sensitivity < math.inf:
            msg = "the sensitivity of the scores must be positive and finite"
            raise AccountingError(msg)

    def draw(self, given: Scores, bits: RandomBits) -> NDArray[np.int64]:
        """Return the index of the choice, as an array of one number."""
        self.check(given)
        scores, epsilon = given.values, dict(self.epsilon)[self.unit]
        if epsilon == math.inf:
            high, low = int(scores.argmax()), int(scores.argmin())
            mirrored = given.signed and -int(scores[low]) > int(scores[high])
            return np.array([scores.size + low if mirrored else high])
        return np.array([noise.choose(scores, epsilon / (2 * given.sensitivity), signed=given.signed, stream=bits)])
