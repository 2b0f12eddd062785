"""Run the worked example: two clinics, one correlation, and the statement of its privacy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "private_correlation" / "src"))  # as if it were installed

from private_correlation import MODEL

from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process

rng = np.random.default_rng(0)
columns = (Column("age", 18.0, 100.0), Column("pressure", 70.0, 230.0))
tables = {}
for name, rows in (("north", 1500), ("south", 2500)):
    age = rng.normal(60, 16, rows)
    tables[name] = Table({"age": age, "pressure": 90 + 0.7 * age + rng.normal(0, 20, rows)})
cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
study = Study("private_correlation", cards, 1.0, 1e-6, parameters={"columns": ["age", "pressure"]}, derived=())
plan = MODEL.compile(study)
found = run_in_process(MODEL, plan, tables, Policy.in_process(), lambda _: MODEL)
print(MODEL.table(plan, found.outcome.result))
print(plan.statement)
