"""Places of a hidden link as a party keeps them: under the name of the link, an array for each party with whom it has places in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.places import Places
from unpooled.privacy.study import HIDDEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.protocol.identity import Keeper

    Ints = NDArray[np.int64]

_OTHER, _TOTAL, _ROWS, _GIVEN = "hidden_other", "hidden_total", "hidden_rows", "hidden_given"


def kept_as(number: int, other: str, total: int, rows: Ints, given: Ints) -> dict[str, NDArray[np.int64]]:
    """Return what a party keeps of its array of this number, by name."""
    return {
        f"{_OTHER}_{number}": np.frombuffer(other.encode(), dtype=np.uint8).astype(np.int64),
        f"{_TOTAL}_{number}": np.array([total], dtype=np.int64),
        f"{_ROWS}_{number}": rows,
        f"{_GIVEN}_{number}": given,
    }


def has_places(keeper: Keeper, name: str) -> bool:
    """Return True if a party keeps places of this name."""
    return keeper.has(name.removeprefix(HIDDEN), f"{_TOTAL}_0")


def places_of(keeper: Keeper, name: str) -> dict[str, Places]:
    """Return the places that a party keeps of a hidden link, by the party with whom it has them in common: one, or for a hub one of each hospital."""
    digits = name.removeprefix(HIDDEN)
    if not has_places(keeper, name):
        msg = f"this party keeps no places of the name {HIDDEN}{digits[:16]}: only a hidden link of its own rows makes them"
        raise UsageError(msg)
    found: dict[str, Places] = {}
    while keeper.has(digits, f"{_TOTAL}_{len(found)}"):
        other, total, rows, given = (keeper.kept(digits, f"{what}_{len(found)}") for what in (_OTHER, _TOTAL, _ROWS, _GIVEN))
        found[other.astype(np.uint8).tobytes().decode()] = Places(f"{HIDDEN}{digits}", int(total[0]), rows, given)
    return found
