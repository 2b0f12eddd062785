"""Coefficients of coded columns, as the parties keep them, to those of the data's own columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.privacy.bounds import Coding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.models.pride.plan import PrideDesign
    from unpooled.privacy.bounds import Column

    Vector = NDArray[np.float64]


def in_own_units(
    design: PrideDesign,
    kept: Mapping[str, Mapping[str, Vector]],
    columns: Sequence[Column],
    means: Vector,
    *,
    fit_intercept: bool,
) -> tuple[NDArray[np.float64], float | Vector]:
    """Return (coefficients, intercept): b / half width, the intercept takes up the centres; nan where a party only sends.

    ``means`` are those of the coded columns, by which the intercept follows from the parties' mean decision. With a coefficient of every
    class the first has a row for each column and a column for each class; with several constants the second is an array.
    """
    coding = Coding(tuple(columns), 1)
    starts = np.searchsorted(coding.attribute, range(len(columns)))
    first = {column.name: int(i) for column, i in zip(columns, starts, strict=True)}
    shape = next((values["coded_coefficients"].shape[1:] for values in kept.values()), ())
    coefficients = np.full((means.size, *shape), np.nan)
    for part in design.parts:
        if part.card.name not in kept:
            continue
        own = iter(kept[part.card.name]["coded_coefficients"])
        for half in (part.private, part.public):
            for j, column in enumerate(half.columns):
                for k in range(half.attribute.count(j)):
                    coefficients[first[column.name] + k] = next(own)
    estimated = np.asarray(np.isfinite(coefficients.reshape(means.size, -1)).all(axis=1), dtype=np.bool_)
    decision = np.mean([values["mean_decision"] for values in kept.values()], axis=0)
    intercept = decision - means[estimated] @ coefficients[estimated]
    if not fit_intercept:
        intercept = np.asarray(sum(values["offset"] for values in kept.values()))
    for column in columns:
        at = first[column.name]
        if column.categories is None and estimated[at]:
            coefficients[at] /= column.half_width
            intercept = intercept - column.centre * coefficients[at]
    return coefficients, float(intercept[0]) if intercept.size == 1 else intercept
