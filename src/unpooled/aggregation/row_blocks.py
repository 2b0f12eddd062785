"""Blocks of a party's table as the rows of a study: coded, kept between the rounds, and the numbers that a request carries about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from unpooled.errors import PlanMismatch
from unpooled.privacy.bounds import Coding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from unpooled.aggregation.layout import MomentsLayout
    from unpooled.privacy.table import Table

    Floats = NDArray[np.float64]

#: Public numbers of a request are below this, so that no residual overflows.
_LARGEST = 1e6
#: The smallest divisor of a request: a quotient of it is finite, and 0 times that is 0.
_SMALLEST = 1e-100
#: Coded rows of at most this number of values are kept between the rounds of one study.
KEPT = 1 << 23
#: The standardised rows of a table and by what, so that a small one is not coded again in every round; forgotten with the table.
_MADE: WeakKeyDictionary[Table, tuple[object, list[Any]]] = WeakKeyDictionary()


def coded_blocks(layout: MomentsLayout, table: Table) -> Iterator[tuple[Floats, ...]]:
    """Coded features and responses of a table, block by block, as floats that hold integers; last the parts of weights."""
    yield from coded_rows(layout, table.blocks(layout.names_read))


def coded_rows(layout: MomentsLayout, blocks: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Floats, ...]]:
    """Coded features and responses (each by itself) of these raw blocks, and the parts of weights where there are some."""
    coding, response = layout.coding, Coding((layout.response, *layout.others), layout.grid)
    count, end = len(coding.names), len(coding.names) + layout.responses
    for block in blocks:
        coded = np.empty((block[0].size, len(coding.attribute)), order="F")
        if coding.columns:
            coding.code_into(block[:count], coded)
        own = np.empty((block[0].size, layout.responses), order="F")
        response.code_into(block[count:end], own)
        weighting = layout.weighting
        yield coded, *own.T, *([weighting.parts(block[-1])] if weighting is not None and len(block) > end else [])


def coded_features(layout: MomentsLayout, table: Table, others: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Coded features of a table, block by block, and after them other columns as they are."""
    yield from feature_rows(layout, table.blocks((*layout.coding.names, *others)))


def feature_rows(layout: MomentsLayout, blocks: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Coded features of these raw blocks, and whatever else they hold."""
    coding = layout.coding
    for block in blocks:
        coded = np.empty((block[0].size, len(coding.attribute)), order="F")
        coding.code_into(block[: len(coding.columns)], coded)
        yield coded, *block[len(coding.columns) :]


def remembered(table: Table, by: object, size: int, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Return the blocks made of a table in the round before, if they are small and of the same public numbers; else make them anew."""
    if table.n_rows * size > KEPT:
        return make()
    known = _MADE.get(table)
    if known is None or known[0] != by:
        known = _MADE[table] = by, list(make())
    return iter(known[1])


def public_numbers(
    layout: MomentsLayout, settings: tuple[float, ...], more: int, *, responses: int = 1, coefficients: int | None = None
) -> tuple[tuple[Floats, Floats], Floats, Floats]:
    """Return ((means, deviations), coefficients, other numbers) of a request; refuse another count of numbers, or wild ones.

    No sensitivity depends on them. Their bounds only keep every number of a record finite.
    """
    p, d = layout.size - layout.intercept + responses, layout.size if coefficients is None else coefficients
    numbers = np.asarray(settings, dtype=np.float64)
    if numbers.size != 2 * p + d + more or not (np.abs(numbers) <= _LARGEST).all():
        msg = f"a request over standardised rows carries {2 * p + d + more} finite numbers"
        raise PlanMismatch(msg)
    middle, width, start, rest = np.split(numbers, [p, 2 * p, 2 * p + d])
    if not (width >= 1 / _LARGEST).all() or not (rest >= _SMALLEST).all():
        raise PlanMismatch("the deviations and the clip of a request must be positive")
    return (middle, width), start, rest
