"""Private contingency tables of rows at several parties: counts, tests, odds ratios, risk differences, histograms and quantiles."""

from __future__ import annotations

from unpooled.models.tables.coordinator import coordinate
from unpooled.models.tables.outlook import outlook
from unpooled.models.tables.party import STEPS
from unpooled.models.tables.plan import compile_plan, notes
from unpooled.models.tables.result import Contingency
from unpooled.models.tables.template import TEMPLATE
from unpooled.models.tables.terms import foot, panels, render, terms
from unpooled.protocol.registry import Model, ResultReading

MODEL = Model(
    "tables",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(render=render, panels=panels, types=(Contingency,), terms=terms, foot=foot),
    outlook=outlook,
    households=True,
    template=TEMPLATE,
    releases={"table": "the count of rows, or the sum of values, in each cell of the table"},
    notes=notes,
    saved=("unpooled.models.tables.estimator:Tabulation",),
    says="tables that count people by the levels of several columns, with tests",
)
