"""Partial least squares on row-split spectra: rounds of regression in a public basis, or one release of its second moments."""

from unpooled.estimation.earlier import linear
from unpooled.linear.releases import ROUNDS
from unpooled.models.pls.declared import STEPS, TEMPLATE, compile_plan
from unpooled.models.pls.fit import PlsResult, coordinate, panels, render, terms
from unpooled.models.pls.outlook import outlook
from unpooled.privacy.plan import AGGREGATION
from unpooled.protocol.registry import RELEASED, Model, ResultReading

MODEL = Model(
    "pls",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(render=render, panels=panels, types=(PlsResult,), terms=terms, predicting=terms),
    outlook=outlook,
    households=True,
    template=TEMPLATE,
    roles=(AGGREGATION,),
    releases={
        "moments": "sums of products of the spectra's coordinates with each other and with the responses",
        "exact": "sums of products of the spectra's coordinates with each other and with the responses",
        **ROUNDS,
    },
    coefficients=RELEASED,
    saved=("unpooled.models.pls.estimator:PrivatePLSRegression",),
    says="a calibration that predicts a number from spectra",
    earlier=linear("pls"),
)
