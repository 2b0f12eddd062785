"""Generalised linear models on row-split data: private rounds of gradients and Newton steps through the secure sum."""

from unpooled.models.glm.coordinator import coordinate
from unpooled.models.glm.outlook import outlook
from unpooled.models.glm.party import STEPS
from unpooled.models.glm.plan import compile_plan
from unpooled.models.glm.result import GlmResult, panels, render, terms
from unpooled.protocol.step import Model

MODEL = Model(
    "glm", compile_plan, STEPS, coordinate, render, panels, outlook, results=(GlmResult,), terms=terms, households=True
)
