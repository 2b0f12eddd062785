"""Private counts, means and standard deviations of declared columns, per party and pooled."""

from unpooled.models.describe.coordinator import coordinate, panels, render
from unpooled.models.describe.party import STEPS
from unpooled.models.describe.plan import compile_plan
from unpooled.protocol.step import Model

MODEL = Model("describe", compile_plan, STEPS, coordinate, render, panels)
