"""Bayesian linear regression on row-split data: noisy second moments by secure sum, and a posterior that knows the noise."""

from unpooled.models.bayes.coordinator import BayesResult, coordinate, panels, render
from unpooled.models.bayes.outlook import outlook
from unpooled.models.bayes.party import STEPS
from unpooled.models.bayes.plan import compile_plan
from unpooled.models.bayes.terms import terms
from unpooled.protocol.step import Model

MODEL = Model(
    "bayes", compile_plan, STEPS, coordinate, render, panels, outlook, results=(BayesResult,), terms=terms, households=True
)
