"""Rows that belong together, in one process: at most a declared number of an id over all sites, and cards that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.household import BoundedTable, counted, texts_of
from unpooled.privacy.plan import Card, Household
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import Table

#: What cards of parties in one process call the column of ids; no feature can be called so.
_COLUMN = "(household)"


def site_tables(table: Table, sites: Any, unit: str, unit_id: Any, most: int) -> dict[str, Table]:  # noqa: ANN401 - array-likes
    """Return the rows of every site; where households are protected, at most ``most`` of an id over all of them."""
    _check(unit, most)
    if (unit == Unit.HOUSEHOLD) != (unit_id is not None):
        raise UsageError('unit="household" and unit_id (an id for every row) go together: give both or neither')
    if unit_id is None:
        return table.by_site(sites)
    ids = texts_of(unit_id)
    if ids.size != table.n_rows:
        msg = f"unit_id has {ids.size} ids for {table.n_rows} rows: give one id per row"
        raise UsageError(msg)
    if sites is not None and np.shape(sites) != (table.n_rows,):
        return table.by_site(sites)  # which says what is wrong with it
    rows = np.flatnonzero(counted(ids, most))
    labels = None if sites is None else np.asarray(sites, dtype=object)[rows]
    held = table.take(rows).by_site(labels)
    owners = {name: ids[rows] if labels is None else ids[rows][[str(label) == name for label in labels]] for name in held}
    return {name: BoundedTable(own, owners[name], int(most)) for name, own in held.items()}


def _check(unit: str, most: int) -> None:
    if most < 1 or (most != 1 and unit != Unit.HOUSEHOLD):
        raise UsageError('rows_per_household must be at least 1, and goes with unit="household"')


def counts_of(tables: Mapping[str, Table]) -> dict[str, int | Household]:
    """Return the number of rows of every party; of a party with households, the number of them, and of rows that count of each."""
    # Rows of an id were bounded over all sites together: any site may hold all of them, or some.
    return {
        name: table.n_rows if table.household is None else Household(_COLUMN, *table.household, together=True)
        for name, table in tables.items()
    }


def planned_counts(rows: Mapping[str, int], unit: str, most: int) -> dict[str, int | Household]:
    """Return the same for data of this shape: numbers of rows, or of households."""
    _check(unit, most)
    if unit != Unit.HOUSEHOLD:
        return dict(rows)
    return {name: Household(_COLUMN, count, int(most), together=True) for name, count in rows.items()}


def row_cards(counts: Mapping[str, int | Household], columns: tuple[Column, ...]) -> tuple[Card, ...]:
    """Return the cards of parties that hold rows of the same columns."""
    return tuple(
        Card(name, count, columns)
        if isinstance(count, int)
        else Card(name, count.ids * count.rows, columns, household=count)
        for name, count in counts.items()
    )
