"""Places of a hidden link: where the rows of a party lie among public places of which nobody at a party knows whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Places:
    """Where a party's rows lie among the places of a hidden link."""

    #: "hidden:" and 64 hexadecimal digits: the same at every member of the link.
    name: str
    #: The number of places, which is public: the sum of the lengths of the two lists.
    total: int
    #: The place of each row of the own file, in its order; -1 for a row without a usable id.
    rows: NDArray[np.int64]
    #: All places that the helper gave this party, sorted: those of pads and of planted entries too.
    given: NDArray[np.int64]
