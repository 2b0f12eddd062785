"""Private counts, means and standard deviations of declared columns, per party and pooled."""

from unpooled.models.describe.coordinator import Summary, coordinate, panels, render
from unpooled.models.describe.outlook import outlook
from unpooled.models.describe.party import STEPS
from unpooled.models.describe.plan import compile_plan
from unpooled.models.describe.ranges import Range
from unpooled.models.describe.template import TEMPLATE
from unpooled.models.describe.terms import terms
from unpooled.protocol.step import Model

MODEL = Model(
    "describe",
    compile_plan,
    STEPS,
    coordinate,
    render,
    panels,
    outlook=outlook,
    results=(tuple[Summary, ...], tuple[Range, ...]),
    terms=terms,
    households=True,
    template=TEMPLATE,
)
