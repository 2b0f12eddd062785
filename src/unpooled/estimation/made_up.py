"""Made-up columns and responses of declared laws, inside declared ranges: what outlooks simulate in the place of anybody's data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column

    Matrix = NDArray[np.float64]

#: The laws that columns may have: normal ones; exponential ones, which are skewed; and groups of near copies, normal within.
NORMAL, SKEWED, COPIES = "normal", "skewed", "near copies"
SHAPES = (NORMAL, SKEWED, COPIES)
#: Columns in a group of near copies, and the correlation of two of them.
_GROUP, _ALIKE = 4, 0.95
#: The least number of made-up rows of a fit, and the number of values in all of them.
_FEWEST, _VALUES = 2500, 100_000


def rows_to_make(rows: int, columns: int) -> int:
    """Return the number of rows to make up for a study of this size: more would differ in the error alone that they have for being few."""
    return min(rows, max(_FEWEST, _VALUES // columns))


def checked_shapes(shapes: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Return the shapes that made-up studies take in turn."""
    found = (shapes,) if isinstance(shapes, str) else tuple(shapes)
    if not found or not set(found) <= set(SHAPES):
        msg = f"shapes: one or several of {listed(list(SHAPES))}"
        raise UsageError(msg)
    return found


def shapes_in_words(shapes: tuple[str, ...]) -> str:
    """Return the shapes as a statement of what is assumed."""
    return f"columns {', '.join(shapes)}" + (", as often each" if len(shapes) > 1 else "")


def standard_columns(count: int, width: int, correlation: float, shape: str, rng: np.random.Generator) -> Matrix:
    """Return rows of columns with mean 0 and variance 1 that share one common factor; near copies have one in every group of four."""
    rows = rng.normal(size=(count, width))
    common = rng.normal(size=(count, 1))
    if shape == COPIES:
        factors = rng.normal(size=(count, -(-width // _GROUP)))
        rows = math.sqrt(1 - _ALIKE) * rows + math.sqrt(_ALIKE) * factors[:, np.arange(width) % factors.shape[1]]
        return np.asarray(rows)
    rows = math.sqrt(1 - correlation) * rows + math.sqrt(correlation) * common
    if shape == SKEWED:
        from scipy.special import log_ndtr

        rows = -log_ndtr(-rows) - 1.0
    return np.asarray(rows)


def made_up_features(
    features: tuple[Column, ...],
    count: int,
    correlation: float,
    ranges: float,
    rng: np.random.Generator,
    shape: str = NORMAL,
) -> tuple[dict[str, Any], Matrix]:
    """Return columns inside declared ranges, categories by their order; and the same as standardised rows."""
    rows = standard_columns(count, len(features), correlation, shape, rng)
    columns: dict[str, Any] = {}
    for column, values in zip(features, rows.T, strict=True):
        if column.categories is not None:  # equally many of each, with effects of their own order
            places = np.searchsorted(np.quantile(values, np.linspace(0, 1, len(column.categories) + 1)[1:-1]), values)
            columns[column.name] = np.array(column.categories, dtype=object)[places]
            values[:] = (places - places.mean()) / max(places.std(), 1e-9)
        else:
            values[:] = np.clip(values, -ranges, ranges)
            columns[column.name] = np.clip(column.centre + column.half_width * values / ranges, *column.range)
    return columns, rows


def made_up_rows(
    features: tuple[Column, ...],
    response: Column,
    count: int,
    r2: float,
    correlation: float,
    ranges: float,
    rng: np.random.Generator,
    relevant: int | None = None,
    shape: str = NORMAL,
) -> Table:
    """Return columns of this shape with a linear response.

    ``relevant`` is the number of columns with an effect; None: all of them.
    """
    columns, rows = made_up_features(features, count, correlation, ranges, rng, shape)
    effects = rng.normal(size=len(features))
    if relevant is not None and relevant < len(features):
        effects[rng.permutation(len(features))[relevant:]] = 0.0
    signal = rows @ effects
    y = math.sqrt(r2) * signal / max(float(signal.std()), 1e-9) + math.sqrt(1 - r2) * rng.normal(size=count)
    columns[response.name] = np.clip(response.centre + response.half_width * y / ranges, *response.range)
    return Table(columns)
