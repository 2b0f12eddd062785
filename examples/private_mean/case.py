"""Small studies of this model with their data: the contract tests run over each of them."""

from __future__ import annotations

import numpy as np

from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table


def two_clinics() -> tuple[Study, dict[str, Table]]:
    """Return a study of two clinics with rows of one column, and what the clinics hold."""
    tables = {"north": Table({"age": np.linspace(10, 90, 30)}), "south": Table({"age": np.linspace(40, 120, 20)})}
    cards = tuple(Card(name, table.n_rows, (Column("age", 18.0, 100.0),)) for name, table in tables.items())
    return Study("private_mean", cards, 1.0, 1e-5, parameters={"column": "age"}, simulation_seed=7, derived=()), tables


CASES = {"private_mean": two_clinics}
