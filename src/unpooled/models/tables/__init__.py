"""Private contingency tables of rows at several parties: counts, tests, odds ratios, risk differences, histograms and quantiles."""

from __future__ import annotations

from unpooled.models.tables.declared import STEPS, TEMPLATE, compile_plan, notes, outlook
from unpooled.models.tables.fit import coordinate
from unpooled.models.tables.result import Contingency, foot, panels, printed, render, terms
from unpooled.protocol.registry import Model, ResultReading

MODEL = Model(
    "tables",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(printed=printed, render=render, panels=panels, types=(Contingency,), terms=terms, foot=foot),
    outlook=outlook,
    households=True,
    gaps=True,
    template=TEMPLATE,
    releases={"table": "the count of rows, or the sum of values, in each cell of the table"},
    notes=notes,
    saved=("unpooled.models.tables.estimator:Tabulation",),
    says="tables that count people by the levels of several columns, with tests",
)
