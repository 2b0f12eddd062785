"""Bayesian linear regression on row-split data: noisy second moments by secure sum, and a posterior that knows the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.estimation.contained import steps_under
from unpooled.estimation.earlier import linear
from unpooled.linear.releases import JOINT, ROUNDS
from unpooled.models import load
from unpooled.models.bayes.declared import TEMPLATE
from unpooled.models.bayes.fit import BayesResult, compile_plan, coordinate, foot, panels, predicting, tables, terms
from unpooled.models.bayes.outlook import outlook
from unpooled.models.bayes.rows import STATISTICS, STEPS
from unpooled.models.bayes.whole import WORDS
from unpooled.privacy.plan import AGGREGATION
from unpooled.products.plan import STEPS as COLUMN_STEPS
from unpooled.protocol.registry import RELEASED, Model, ResultReading

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Step


def _steps(plan: Plan | None) -> tuple[Step, ...]:
    """Return the steps of the model of which rows are whole, under its name; none without one."""
    return steps_under(plan, load)


MODEL = Model(
    "bayes",
    compile_plan,
    (*STEPS, *COLUMN_STEPS),
    coordinate,
    ResultReading(panels=panels, foot=foot, types=(BayesResult,), terms=terms, tables=tables, predicting=predicting),
    outlook=outlook,
    households=True,
    gaps=True,
    gaps_of_columns=True,
    places=True,
    completeness=True,
    more_steps=_steps,
    template=TEMPLATE,
    roles=(AGGREGATION,),
    releases={
        "moments": "sums of products of all columns with each other and with the response",
        "deviations": "the sum and the sum of squares of each column, by which ranges are narrowed",
        "square": "the sum of squares of the response",
        **ROUNDS,
        **JOINT,
        **WORDS,
    },
    coefficients=RELEASED,
    saved=(
        "unpooled.models.bayes.estimator:PrivateBayesianRegression",
        "unpooled.models.bayes.estimator:PrivateLinearRegression",
    ),
    says="a linear regression: how a number depends on other columns",
    earlier=linear("bayes"),
)

#: ``STATISTICS``, what a party adds up by the name of the total, is for studies that contain this model and play it before data.
__all__ = ["MODEL", "STATISTICS"]
