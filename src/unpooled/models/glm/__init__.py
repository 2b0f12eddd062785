"""Generalised linear models: rows at several parties by rounds through the secure sum, columns at two parties by products under masks."""

from unpooled.linear.releases import JOINT, ROUNDS
from unpooled.models.glm.columns import PULLS
from unpooled.models.glm.columns_fit import STEPS, compile_plan, coordinate
from unpooled.models.glm.completeness import WORDS as COMPLETENESS_WORDS
from unpooled.models.glm.declared import TEMPLATE
from unpooled.models.glm.families import earlier
from unpooled.models.glm.outlook import outlook
from unpooled.models.glm.plan import STATISTICS
from unpooled.models.glm.result import GlmResult, foot, panels, predicting, tables, terms
from unpooled.privacy.plan import AGGREGATION
from unpooled.protocol.registry import RELEASED, Citing, Model, ResultReading

MODEL = Model(
    "glm",
    compile_plan,
    STEPS,
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
        "rate": "the number of people with the second class, the sums of counts and of exposures, or how many people left in which interval, from which the fit starts",
        **dict.fromkeys(
            PULLS,
            "the sum over people of how each pulls at the coefficients (of two classes twice), once in every round of the fit",
        ),
    },
    coefficients=RELEASED,
    saved=("unpooled.models.glm.estimator:PrivateGLM",),
    says="a regression for yes or no, counts, rates or times until an event",
    earlier=Citing(earlier),
)

#: ``STATISTICS``, what a party adds up by the name of the total, is for studies that contain this model and play it before data.
__all__ = ["MODEL", "STATISTICS"]
