"""Exposures and offsets as a caller of the estimator gives them: a number for each row, inside a declared range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Given = tuple[ArrayLike | None, tuple[float, float] | None]

#: Columns of the in-process parties that no feature can be called like.
EXPOSURE, OFFSET = "(exposure)", "(offset)"


def shifts(rows: int, exposure: Given, offset: Given) -> dict[str, NDArray[np.float64]]:
    """Exposures and offsets as columns, where they are declared."""
    found = {}
    for name, (values, bounds) in ((EXPOSURE, exposure), (OFFSET, offset)):
        word = name.strip("()")
        if (values is None) != (bounds is None):
            msg = f"{word} and {word}_bounds go together: a number for each row, and the declared range of such numbers"
            raise UsageError(msg)
        if values is not None:
            column = np.asarray(values, dtype=np.float64)
            if column.shape != (rows,) or not np.isfinite(column).all():
                msg = f"{word} must have a finite number for each of the {rows} rows"
                raise DataError(msg)
            found[name] = column
    return found
