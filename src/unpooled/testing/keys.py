"""Whatever moves what a party releases moves the key of its noise: the same noise is never over two different statistics (F.6)."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.audit.stage import Stage
from unpooled.models import load
from unpooled.privacy.mechanisms import Objective
from unpooled.privacy.table import Table
from unpooled.testing.cases import Case


def changed(table: Table, name: str) -> Table | None:
    """Return the table with another value of this column in its first row; None where all rows have the same."""
    values = table[name]
    other = [v for v in values[1:].tolist() if v is not None and v == v and v != values[0]]  # noqa: PLR0124 - nan
    return table.replace(0, {name: other[0]}) if other else None


def statistic(act) -> bytes:
    """Return the statistic of an act as bytes: the minimiser without a linear term, or the numbers."""
    given = act.given
    numbers = given.solve(np.zeros(act.mechanism.size)) if isinstance(given, Objective) else given.values
    return np.ascontiguousarray(numbers).tobytes()


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_no_two_statistics_share_their_noise(case: Case) -> None:
    stage, moved = Stage(load(case.model), case.study, load), 0
    run = stage.run(case.tables, 0, frozen=True)
    for card in case.study.parties:
        for column in (*(c.name for c in card.columns), *card.labels):
            other = changed(case.tables[card.name], column)
            if other is None:
                continue
            theirs = stage.beside(run, {**case.tables, card.name: other})
            for one, two in zip(run.acts[card.name], theirs[card.name], strict=True):
                if statistic(one) != statistic(two):
                    moved += 1
                    assert one.mechanism.content(one.given) != two.mechanism.content(two.given), (column, one.release)
    assert moved, "a change of the data is felt"
