"""LASSO on column-split data by private block-coordinate Frank-Wolfe."""

from unpooled.models.lasso.coordinator import coordinate, panels, render
from unpooled.models.lasso.party import STEPS
from unpooled.models.lasso.plan import compile_plan
from unpooled.privacy.unit import Split
from unpooled.protocol.roles import Model

MODEL = Model("lasso", Split.VERTICAL, compile_plan, STEPS, coordinate, render, panels, covers_labels=True)
