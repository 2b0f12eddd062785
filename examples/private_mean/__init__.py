"""The mean of one numeric column that several parties hold rows of: the smallest model there is, and the worked example of the docs."""

from private_mean.coordinator import Result, coordinate, render, terms
from private_mean.outlook import outlook
from private_mean.party import STEPS
from private_mean.plan import compile_plan
from private_mean.template import TEMPLATE
from unpooled.protocol.step import Model

MODEL = Model(
    "private_mean",
    compile_plan,
    STEPS,
    coordinate,
    render,
    outlook=outlook,
    results=(Result,),
    terms=terms,
    template=TEMPLATE,
)
