"""Generalised linear models: rows at several parties by rounds through the secure sum, columns at two parties by products under masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.linear.releases import JOINT, ROUNDS
from unpooled.models.glm import fit, plan
from unpooled.models.glm.columns import PULLS, STEPS_OF_COLUMNS, PullDesign, compile_columns
from unpooled.models.glm.columns_fit import coordinate_columns
from unpooled.models.glm.completeness import WORDS as COMPLETENESS_WORDS
from unpooled.models.glm.declared import TEMPLATE
from unpooled.models.glm.families import earlier
from unpooled.models.glm.outlook import outlook
from unpooled.models.glm.plan import STATISTICS
from unpooled.models.glm.result import GlmResult, foot, panels, predicting, tables, terms
from unpooled.privacy.declared import COLUMNS
from unpooled.privacy.plan import AGGREGATION
from unpooled.protocol.registry import RELEASED, Citing, Model, ResultReading

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.registry import Conversation


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study: of products under masks where it says that columns are split, else of totals over rows."""
    return compile_columns(study) if study.parameters.get("split") == COLUMNS else plan.compile_plan(study)


def coordinate(compiled: Plan) -> Conversation:
    """Return the conversation of a study of either split."""
    by_columns = isinstance(compiled.design, PullDesign)
    return (yield from coordinate_columns(compiled) if by_columns else fit.coordinate(compiled))


MODEL = Model(
    "glm",
    compile_plan,
    (*plan.STEPS, *STEPS_OF_COLUMNS),
    coordinate,
    ResultReading(panels=panels, foot=foot, types=(GlmResult,), terms=terms, tables=tables, predicting=predicting),
    outlook=outlook,
    households=True,
    gaps=True,
    completeness=True,
    template=TEMPLATE,
    roles=(AGGREGATION,),
    releases={
        "moments": "sums of products of all columns with each other and with the response",
        **ROUNDS,
        **COMPLETENESS_WORDS,
        **JOINT,
        "rate": "the number of people with the second class, from which the fit starts",
        **dict.fromkeys(PULLS, "the sum over people of how each pulls at the coefficients, twice, once in every round of the fit"),
    },
    coefficients=RELEASED,
    saved=("unpooled.models.glm.estimator:PrivateGLM",),
    says="a regression for yes or no, counts, rates or times until an event",
    earlier=Citing(earlier),
)

#: ``STATISTICS``, what a party adds up by the name of the total, is for studies that contain this model and play it before data.
__all__ = ["MODEL", "STATISTICS"]
