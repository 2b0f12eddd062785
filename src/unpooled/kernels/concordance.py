"""Harrell's concordance of risks with censored times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def concordance(time: NDArray[Any], event: NDArray[Any], risk: NDArray[np.float64]) -> float:
    """Return the share of comparable pairs (the earlier time is that of an event) whose earlier one has the larger risk; ties count half.

    >>> concordance(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), np.array([2.0, 1.0, 0.0]))
    1.0
    """
    right = pairs = 0.0
    for i in np.flatnonzero(np.asarray(event) > 0):
        # A row censored at the time of an event was still at risk then.
        later = (time > time[i]) | ((time == time[i]) & (np.asarray(event) == 0))
        pairs += float(later.sum())
        right += float((risk[later] < risk[i]).sum()) + 0.5 * float((risk[later] == risk[i]).sum())
    return right / pairs if pairs else 0.5
