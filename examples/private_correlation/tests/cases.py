"""Small studies of this model with their data: the contract and the attacks run over each of them."""

from __future__ import annotations

import numpy as np
from private_correlation import PrivateCorrelation

from unpooled.audit.interface import Shown
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

COLUMNS = (Column("age", 18.0, 100.0), Column("pressure", 70.0, 230.0))


def two_clinics() -> tuple[Study, dict[str, Table]]:
    """Return a study of two clinics with rows of two columns, and the tables that the clinics hold."""
    rng = np.random.default_rng(1)
    tables = {}
    for name, rows in (("north", 30), ("south", 20)):
        age = rng.uniform(10, 110, rows)
        tables[name] = Table({"age": age, "pressure": np.clip(100 + age / 2 + rng.normal(0, 20, rows), 60, 240)})
    cards = tuple(Card(name, table.n_rows, COLUMNS) for name, table in tables.items())
    parameters = {"columns": ["age", "pressure"]}
    return Study("private_correlation", cards, 1.0, 1e-5, parameters=parameters, simulation_seed=7, derived=()), tables


CASES = {"private_correlation": two_clinics}


def fitted(rows: int, noise: int) -> PrivateCorrelation:
    """Return the estimator fitted to the rows of one seed, with the noise of another."""
    x = np.random.default_rng(rows).uniform(-1, 1, 200)
    model = PrivateCorrelation(20.0, bounds=(-1, 1), random_state=noise)
    return model.fit(np.column_stack([x, np.clip(x + np.random.default_rng(rows + 1).normal(0, 0.5, 200), -1, 1)]))


ESTIMATORS = {"PrivateCorrelation": fitted}
SHOWN = {
    "PrivateCorrelation": {
        "calibration": Shown.PUBLIC,
        "correlation_": Shown.RELEASED,
        "std_error_": Shown.RELEASED,
        "interval_": Shown.RELEASED,
        "result_": Shown.RELEASED,
    },
}
