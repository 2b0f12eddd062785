"""Releases whose cost nobody knows: the published forms, kept for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from unpooled.privacy.events import UNBOUNDED
from unpooled.privacy.mechanisms.base import REALS, Mechanism

if TYPE_CHECKING:
    from unpooled.privacy.events import Event
    from unpooled.privacy.unit import Unit


class Unpriced(Mechanism):
    """Noise whose scale or bounds are read off the data, so that its event is unbounded (Theorem F.18)."""

    __slots__ = ()
    dtype: ClassVar[str] = REALS

    @property
    def scale(self) -> None:
        """Read off the data during the run."""
        return

    def sensitivity(self, unit: Unit) -> None:
        """Read off the data during the run."""
        del unit

    def event(self, unit: Unit) -> Event:
        """Unbounded."""
        del unit
        return UNBOUNDED
