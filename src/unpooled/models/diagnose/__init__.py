"""Diagnosis of a released model's fit: one noisy histogram of fitted values and classes, or residuals, over public cells."""

from unpooled.models.diagnose.declared import STEPS, TEMPLATE, compile_plan
from unpooled.models.diagnose.fit import Cells, coordinate, foot, panels, printed, terms
from unpooled.protocol.registry import Model, ResultReading

MODEL = Model(
    "diagnose",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(printed=printed, panels=panels, types=(Cells,), terms=terms, foot=foot),
    households=True,
    template=TEMPLATE,
    releases={"cells": "the number of rows in each cell of predictions and responses"},
    saved=("unpooled.models.diagnose.estimator:Diagnosis",),
    says="a check of how well an earlier model fits",
)
