"""Private logistic regression by objective perturbation, and stacks of such models over columns or over rows."""

from unpooled.models.stacking.coordinator import coordinate, panels, render
from unpooled.models.stacking.party import STEPS
from unpooled.models.stacking.plan import compile_plan
from unpooled.protocol.step import Model

MODEL = Model("stacking", compile_plan, STEPS, coordinate, render, panels, covers_labels=True)
