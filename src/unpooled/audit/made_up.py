"""Data that fit a study's cards and mean nothing, so that a study can be audited by people who hold no data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.privacy.household import BoundedTable
from unpooled.privacy.table import NoRows, Table
from unpooled.privacy.unit import Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card, Study
    from unpooled.protocol.step import Model


def made_up(model: Model, study: Study, rows: int, seed: int = 0) -> tuple[Study, dict[str, Table]]:
    """Return the study with at most ``rows`` rows at each party, for parties of one process, and tables that its cards admit.

    Values are uniform in their ranges, categories equally likely, a tenth of what may be missing is. Label columns are -1 or 1, which suits
    classes as well as numbers, or what the model says that it takes; where columns are split, all parties have the same ones.
    """
    split = model.compile(study).split
    rng = np.random.default_rng(seed)
    cards = tuple(_smaller(card, rows) for card in study.parties)
    helpers = tuple(msgspec.structs.replace(card, key="") for card in study.helpers)
    fitted = msgspec.structs.replace(study, parties=cards, helpers=helpers, ids="", coordinator="", simulation_seed=None)
    shared: dict[str, NDArray[Any]] = {}
    tables: dict[str, Table] = {}
    for card in cards:
        together = card.household
        # Every id but the first, which is audited, has between one row and all that may count.
        sizes = [] if together is None else [together.rows, *rng.integers(1, together.rows + 1, together.ids - 1).tolist()]
        count = sum(sizes) or card.rows
        columns = {column.name: _values(column, count, rng) for column in card.columns}
        if split is not Split.VERTICAL or not shared:
            shared.update(model.made_up_labels(study, count, rng))
        for label in card.labels:
            known = shared.get(label) if split is Split.VERTICAL or label in shared else None
            columns[label] = shared[label] = rng.choice([-1.0, 1.0], count) if known is None else known
        table = Table(columns)
        tables[card.name] = (
            table if together is None else BoundedTable(table, np.repeat(np.arange(together.ids), sizes), together.rows)
        )
    return fitted, tables | {card.name: NoRows() for card in helpers}


def _smaller(card: Card, rows: int) -> Card:
    """Return the card with at most ``rows`` rows, of a party in one process."""
    if card.household is None:
        return msgspec.structs.replace(card, rows=min(card.rows, rows), key="")
    together = msgspec.structs.replace(card.household, ids=max(2, min(card.household.ids, rows // card.household.rows)))
    return msgspec.structs.replace(card, rows=together.ids * together.rows, household=together, key="")


def _values(column: Column, rows: int, rng: np.random.Generator) -> list[Any] | NDArray[np.float64]:
    missing = rng.random(rows) < (0.1 if column.may_be_absent else 0.0)
    if column.categories is not None:
        drawn = rng.integers(len(column.categories), size=rows)
        return [None if gone else column.categories[i] for i, gone in zip(drawn, missing, strict=True)]
    return np.where(missing, np.nan, rng.uniform(*column.range, rows))
