"""The mean of one numeric column that several parties hold rows of: the smallest model there is, and the worked example of the docs."""

from private_mean.coordinator import coordinate, render
from private_mean.party import STEPS
from private_mean.plan import compile_plan
from unpooled.protocol.step import Model

MODEL = Model("private_mean", compile_plan, STEPS, coordinate, render)
