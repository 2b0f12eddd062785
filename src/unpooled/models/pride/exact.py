"""The exact sketch of a party's columns: integers, block of rows by block of rows, before any noise; and how much of them it keeps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.pride.plan import clip_length, coded, sketch_of
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.pride.plan import Part
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context

    Matrix = NDArray[np.float64]

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


def lossless(context: Context, part: Part) -> bool:
    """Return True if a party's sketch gives the Gram matrix of its columns exactly: no noise, and a matrix that loses nothing."""
    return part.sketch is not None and context.plan.study.epsilon == math.inf and part.sketch.is_isometry


def kept_energy(context: Context, part: Part, others: Sequence[Part]) -> float:
    """Return the share of the energy of a party's columns that its sketch keeps, taken from the own columns: 1 where the sketch is isotropic."""
    study, parameters = context.plan.study, context.design.parameters
    isotropic, shortened = parameters.sketch in ("srht", "gaussian"), study.unit == Unit.RECORD and study.epsilon < math.inf
    if isotropic and not shortened:
        return 1.0
    width = len(part.private.attribute)
    if part.sketch is None and (parameters.sketch != "matrix" or part.card.name in parameters.matrices):
        part = replace(part, sketch=sketch_of(study, part.card, width))  # nobody reads it: it is drawn for this alone
    sketches = [other.sketch for other in others if other.sketch is not None]
    fallback = float(np.mean([sketch.mean_square for sketch in sketches]))
    if part.sketch is None:
        return fallback

    def energy(rows: Matrix) -> float:
        return float(((rows - rows.mean(axis=0)) ** 2).sum())

    whole, unit = exact_sketch(part, context.table, None).astype(np.float64), part.sketch.unit / part.private.grid
    before = energy(whole * unit) if isotropic else energy(coded(part, context.table).rows)
    clip = clip_length(study, part) if shortened else None
    after = energy(exact_sketch(part, context.table, clip).astype(np.float64) * unit) if clip else energy(whole * unit)
    return after / before if after > 0 and before > 0 else fallback
