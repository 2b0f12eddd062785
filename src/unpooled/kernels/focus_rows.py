"""Pairs of rows of integers whose product is bounded, record by record."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.kernels.compiled import njit
from unpooled.kernels.standard_rows import ceil_root

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]


@njit(nogil=True)
def shorten_products(first: Floats, second: Floats, most: int) -> None:
    """Shorten rows of ``first`` until their length times that of the row of ``second`` is at most ``most``, in place, rounded toward zero."""
    for i in range(first.shape[0]):
        own, other = 0.0, 0.0
        for j in range(first.shape[1]):
            own += first[i, j] * first[i, j]
        for j in range(second.shape[1]):
            other += second[i, j] * second[i, j]
        length = ceil_root(other)
        if length == 0:
            continue
        far = most // length
        if own <= float(far) * float(far):
            continue
        factor = float(far) / math.sqrt(own) * (1 - 2.0**-40)
        own = 0.0
        for j in range(first.shape[1]):
            first[i, j] = math.trunc(first[i, j] * factor)
            own += first[i, j] * first[i, j]
        if own > float(far) * float(far):  # which cannot be
            for j in range(first.shape[1]):
                first[i, j] = 0.0
