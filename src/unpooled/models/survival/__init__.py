"""Private comparison of survival between arms: curves, log-rank tests and restricted mean survival, from one table of exits."""

from __future__ import annotations

from unpooled.models.survival.declared import STEPS, TEMPLATE, compile_plan
from unpooled.models.survival.fit import SurvivalResult, coordinate, foot, panels, terms
from unpooled.privacy.plan import AGGREGATION
from unpooled.protocol.registry import Model, ResultReading

MODEL = Model(
    "survival",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(panels=panels, types=(SurvivalResult,), terms=terms, foot=foot),
    households=True,
    template=TEMPLATE,
    roles=(AGGREGATION,),
    releases={"exits": "the number of people with an event, and without one, in each interval of time"},
    saved=("unpooled.models.survival.estimator:SurvivalComparison",),
    says="survival curves of groups, with tests",
)
