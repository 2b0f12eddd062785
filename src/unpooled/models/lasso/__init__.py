"""LASSO on column-split data by private block-coordinate Frank-Wolfe."""

from unpooled.models.lasso.coordinator import LassoResult, coordinate, panels, render
from unpooled.models.lasso.party import STEPS
from unpooled.models.lasso.plan import compile_plan
from unpooled.models.lasso.terms import terms
from unpooled.protocol.step import Model

MODEL = Model(
    "lasso", compile_plan, STEPS, coordinate, render, panels, covers_labels=True, results=(LassoResult,), terms=terms
)
