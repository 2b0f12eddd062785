"""Run the worked example: two clinics, one mean, and the statement of what it promises."""

from __future__ import annotations

import numpy as np
from private_mean import MODEL

from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process

rng = np.random.default_rng(0)
tables = {name: Table({"age": rng.normal(60, 12, rows)}) for name, rows in (("north", 300), ("south", 500))}
cards = tuple(Card(name, table.n_rows, (Column("age", 18.0, 100.0),)) for name, table in tables.items())
study = Study("private_mean", cards, 1.0, 1e-6, parameters={"column": "age"}, derived=())
plan = MODEL.compile(study)
found = run_in_process(MODEL, plan, tables, Policy.in_process(), lambda _: MODEL)
print(MODEL.render(found.outcome.result))
print(plan.statement)
