"""Parameters that studies of several models share, each declared once: what a model is a function of, what it is drawn to, what its table says."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from unpooled.inference.printed_terms import CODINGS
from unpooled.inference.priors import EarlierModel
from unpooled.inference.sites import SiteEffects
from unpooled.linear.goals import Goal
from unpooled.linear.residuals import Covariance
from unpooled.privacy.declared import says

#: The column that is explained.
Response: TypeAlias = Annotated[str, says("The declared column that the model explains.", "y", column=True, study=True)]
#: A column of weights.
WeightColumn: TypeAlias = Annotated[
    str,
    says(
        "A declared column of numbers from 0 on, by which everything that a row adds to a sum is multiplied.",
        column=True,
        study=True,
        lean=True,
    ),
]
#: What the model is a function of.
FormulaText: TypeAlias = Annotated[
    str,
    says(
        'What the model is a function of, as in "falls ~ age * ward + log(dose)" (docs/formulas.md); left out, every declared column as it is.',
        lean=True,
    ),
]
#: Earlier models to which the fit is drawn.
EarlierModels: TypeAlias = Annotated[
    tuple[EarlierModel, ...],
    says(
        'Earlier models to which the fit is drawn (docs/prior.md): { name = "2024", coefficients = { age = 0.6 }, intercept = 90 }',
        lean=True,
    ),
]
#: What the budget is for, where the method does not say it.
GoalWord: TypeAlias = Annotated[
    str,
    says(
        'What the budget is for: "table" (refused where no line can be expected), "predictions", or "auto", a table where one can. '
        "A refusal comes before anything is spent and says what would do; where auto makes no table, a warning does.",
        Goal.TABLE.value,
        call="{'auto', 'table', 'predictions'}",
        choices=Goal,
        lean=True,
        shown=True,
    ),
]
#: What standard errors assume.
CovarianceWord: TypeAlias = Annotated[
    str,
    says(
        "What standard errors assume: independent rows with the model's variance, independent rows, or independent ids of several rows each. "
        'The last two release second moments of scores. "auto" is "cluster" where an id may have several rows, else "model".',
        choices=(Covariance.AUTO, Covariance.MODEL, Covariance.ROBUST, Covariance.CLUSTER),
    ),
]
#: Whether sites differ by a constant.
SiteEffectsWord: TypeAlias = Annotated[
    str,
    says(
        "Whether sites differ: one constant for all; one for each, in lines against the first; or constants drawn around a mean (linear regression).",
        choices=SiteEffects,
        lean=True,
    ),
]
#: The levels that others are compared with, and how.
ReferenceLevels: TypeAlias = Annotated[
    dict[str, str],
    says(
        "The level that the others of a column are compared with; else the first declared one, or the commonest where the release shows the first to be rare.",
        {"ward": "b"},
        study=True,
    ),
]
CodingWord: TypeAlias = Annotated[
    str,
    says('How levels are compared: with one of them, or with the mean of all ("sum").', choices=CODINGS, study=True),
]
#: The most passes over the data.
MaxPasses: TypeAlias = Annotated[int, says("The most passes over every party's data.")]
#: Whether there is a constant.
Intercept: TypeAlias = Annotated[bool, says("Whether to fit a constant.")]
