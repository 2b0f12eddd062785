"""Where the rows of hidden people lie: a party's own places among all places of a link, and those that a helper gave to each party."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Under which name a helper keeps the names of the parties of a hidden link, in the link's order.
NAMES = "hidden_names"


def set_of(party: int, array: int) -> str:
    """Return the name under which a helper keeps the set of places of a party in an array."""
    return f"hidden_set_{party}_{array}"


@dataclass(frozen=True)
class Places:
    """Where a party's rows lie among the places of a hidden link."""

    #: "hidden:" and 64 digits.
    name: str
    #: N: the number of all places, which is public.
    total: int
    #: The place of each row of the own file, in its order; -1 for a row without a usable id.
    rows: NDArray[np.int64]
    #: All places that the helper gave this party, those of pads and of planted entries included, in order.
    given: NDArray[np.int64]

    def foreign(self, first: int, last: int) -> NDArray[np.uint64]:
        """Return, for each place of a range, 1 unless the helper gave it to this party."""
        return foreign_of(self.given, first, last)


def foreign_of(given: NDArray[np.int64], first: int, last: int) -> NDArray[np.uint64]:
    """Return, for each place from first to last, 1 unless it is among those that were given."""
    found = np.ones(last - first, dtype=np.uint64)
    low, high = np.searchsorted(given, (first, last))
    found[given[low:high] - first] = 0
    return found
