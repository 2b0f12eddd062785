"""The row of the registry: everything of this model."""

from private_correlation.coordinator import Correlation, coordinate, foot, terms
from private_correlation.outlook import outlook
from private_correlation.party import STEPS
from private_correlation.plan import RELEASE, TEMPLATE, compile_plan
from unpooled.protocol.registry import Model, ResultReading, of_terms

MODEL = Model(
    "private_correlation",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(panels=lambda plan, result: of_terms(terms(plan, result)), types=(Correlation,), terms=terms, foot=foot),
    outlook=outlook,
    template=TEMPLATE,
    releases={RELEASE: "sums, sums of squares and the sum of products of both columns"},
    saved=("private_correlation.estimator:PrivateCorrelation",),
)
