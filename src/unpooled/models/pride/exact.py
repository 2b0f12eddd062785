"""The exact sketch of a party's columns: integers, block of rows by block of rows, before any noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.pride.plan import Part
    from unpooled.privacy.table import Table

#: Rows sketched at a time: coded block and sketch stay in the cache.
BLOCK_ROWS = 4096


def exact_sketch(part: Part, table: Table, clip: int | None, block_rows: int = BLOCK_ROWS) -> NDArray[np.int64]:
    """Return the integers X_k Pi_k, rows shortened to length ``clip`` where it is given."""
    assert part.sketch is not None
    out = np.empty((table.n_rows, part.sketch.size), dtype=np.int64)
    at = 0
    for block in table.blocks(part.private.names, block_rows):
        coded, _ = part.private.code(block)
        rows = part.sketch.apply(coded)
        if clip is not None:
            length = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
            long = length > clip
            # Toward zero, and a hair below the bound, so that rounding cannot lengthen a row.
            rows[long] = rows[long] * (clip * (1 - 2.0**-40) / length[long])[:, None]
        out[at : at + rows.shape[0]] = rows
        at += rows.shape[0]
    return out
