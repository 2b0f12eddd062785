"""Violations that an audit found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unpooled.privacy.unit import Unit


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that moved where it must not, or farther than declared, was not debited, or left a party unreleased. Holds no data value."""

    unit: Unit
    party: str
    where: str
    what: str


__all__ = ["Violation"]
