"""Treatment effects: two released models, and sums of what every row contributes to the effect given them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.estimation.contained import steps_under
from unpooled.models import load
from unpooled.models.effects.declared import TEMPLATE
from unpooled.models.effects.fit import coordinate
from unpooled.models.effects.outlook import outlook
from unpooled.models.effects.plan import STEPS, compile_plan
from unpooled.models.effects.result import EffectResult, earlier, foot, panels, terms
from unpooled.privacy.plan import AGGREGATION
from unpooled.protocol.registry import RELEASED, Citing, Model, ResultReading

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Step


def _steps(plan: Plan | None) -> tuple[Step, ...]:
    """Return the steps of both models, under their names; none without a plan."""
    return steps_under(plan, load)


MODEL: Model = Model(
    "effects",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(panels=panels, types=(EffectResult,), terms=terms, foot=foot),
    outlook=outlook,
    households=True,
    gaps=True,
    coefficients=RELEASED,
    template=TEMPLATE,
    roles=(AGGREGATION,),
    releases={
        "overlap": "the number of people by arm and predicted propensity",
        "spread": "the number of people by the size of their contribution to the effect",
        "sums": "the sums of the people's contributions to the effect",
        "slopes": "the sums of how those contributions change with the coefficients, for the standard error",
        "balance": "weighted sums of each column by arm",
        "scales": "the means and deviations of treatment, covariates and outcome",
        "relations": "the sums of products of treatment, covariates and outcome",
        "residuals": "the number of people by what the covariates leave of their outcome",
        "scores": "the sums of what is left of treatment times what is left of the outcome, with their squares",
        "exits": "the weighted number of people with an event, and without one, in each interval of time",
    },
    more_steps=_steps,
    saved=("unpooled.models.effects.estimator:TreatmentEffect", "unpooled.models.effects.outlook:EffectOutlook"),
    says="the effect of a treatment, adjusted for other columns",
    earlier=Citing(earlier),
)
