"""LASSO on column-split data: moments of privately standardised columns, or private block-coordinate Frank-Wolfe."""

from unpooled.aggregation.columns.steps import ALONE as COLUMN_STEPS
from unpooled.models.lasso.coordinator import LassoResult, panels, render
from unpooled.models.lasso.forms import compile_plan, coordinate
from unpooled.models.lasso.notes import notes
from unpooled.models.lasso.outlook import outlook
from unpooled.models.lasso.party import STEPS
from unpooled.models.lasso.standard_party import STANDARD_STEPS
from unpooled.models.lasso.template import TEMPLATE
from unpooled.models.lasso.terms import terms
from unpooled.privacy.unit import Unit
from unpooled.protocol.step import Model

MODEL = Model(
    "lasso",
    compile_plan,
    (*STEPS, *STANDARD_STEPS, *COLUMN_STEPS),
    coordinate,
    render,
    panels,
    outlook=outlook,
    covers_labels=frozenset({Unit.RECORD}),
    results=(LassoResult,),
    terms=terms,
    template=TEMPLATE,
    notes=notes,
    renamed={"radius": "radius_in_half_ranges"},
)
