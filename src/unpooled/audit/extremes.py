"""Values and rows at which a statistic may jump: far beyond every range, at zero, and one step on either side of every cut."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.privacy.household import BoundedTable
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card, Plan

#: A value beyond every declared range, and the smallest number above 0; a table refuses infinite values.
FAR, SMALLEST = 1e300, 5e-324
#: Into how many equal parts a range is cut, beside tenths: edges of bins are mostly there.
_PARTS = (8, 10)
#: The columns of a party that are put beyond their range alone.
_ALONE = 3


def extremes(column: Column) -> list[float]:
    """Return numbers of a column worth trying beyond those inside its range: far out, zeros, and one unit in the last place around every cut."""
    low, high = column.range
    cuts = {low, high, column.centre, *(low + (high - low) * k / parts for parts in _PARTS for k in range(1, parts))}
    steps = [math.nextafter(cut, end) for cut in sorted(cuts) for end in (-math.inf, math.inf)]
    return [FAR, -FAR, 0.0, -0.0, SMALLEST, -SMALLEST, *sorted(cuts), *steps]


def at_norm(plan: Plan, card: Card) -> Iterator[dict[str, Any]]:
    """Yield rows as long as the study's norm, one step shorter and one step longer, where it has one."""
    norm, numbers = plan.study.parameters.get("norm"), [c for c in card.columns if c.categories is None]
    if not isinstance(norm, float) or not numbers:
        return
    for length in (norm, math.nextafter(norm, 0.0), math.nextafter(norm, math.inf)):
        yield {c.name: c.centre + length / math.sqrt(len(numbers)) for c in numbers}


def same_values(plan: Plan, card: Card) -> Iterator[tuple[dict[str, float], list[dict[str, float]], str]]:
    """Yield (values, others that must count the same, what they are): beyond a range and at its end, all columns and one; zeros of both signs.

    Only of a study whose rows are shortened to a norm: elsewhere a value that is not clipped moves a release beyond its bound. Where a constant
    is left out, a range is made symmetric, so only its farther end is one. A range that the norm implies is not clipped to.
    """
    norm = plan.study.parameters.get("norm")
    if not isinstance(norm, float):
        return
    numbers = [c for c in card.columns if c.categories is None and c.range != (-norm, norm)]
    for end, far in enumerate((-FAR, FAR)):
        ends = {c.name: c.range[end] for c in numbers if abs(c.range[end]) >= abs(c.range[1 - end])}
        if ends:
            others = [dict.fromkeys(ends, far), *({name: far} for name in list(ends)[:_ALONE])]
            yield ends, others, "values beyond a declared range count otherwise than its end"
    zeros = {c.name: 0.0 for c in numbers if c.range[0] < 0 < c.range[1]}
    if zeros:
        others = [dict.fromkeys(zeros, -0.0), dict.fromkeys(zeros, SMALLEST)]
        yield zeros, others, "a zero with another sign, or next to nothing, counts otherwise than zero"


def with_values(table: Table, values: dict[str, float], at: int) -> Table:
    """Return the table with these values in the audited unit: in one row, or in all rows of a household."""
    if isinstance(table, BoundedTable):
        return table.exchange([row | values for row in table.first()])
    return table.replace(at, values)


def all_alike(table: Table, card: Card, row: dict[str, Any]) -> Table:
    """Return a table of the same number of rows, all of which hold these values; labels stay what they are. Categories that the row does not have are unused."""
    columns = {
        column.name: np.full(table.n_rows, row[column.name], dtype=table[column.name].dtype) for column in card.columns
    }
    return Table(columns | {label: table[label] for label in card.labels})


__all__ = ["FAR", "all_alike", "at_norm", "extremes", "same_values", "with_values"]
