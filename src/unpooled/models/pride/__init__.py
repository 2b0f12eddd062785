"""PRIDE: vertical ridge and logistic regression by perturbed sketches (Heinze-Deml, McWilliams & Meinshausen 2017)."""

from dataclasses import replace
from functools import partial

from unpooled.models.pride.declared import TEMPLATE, earlier
from unpooled.models.pride.fit import PrideResult, coordinate, kept_terms, panels, render, terms
from unpooled.models.pride.outlook import admissible_labels, outlook
from unpooled.models.pride.plan import compile_plan, predictions, without_joint_rows
from unpooled.models.pride.rows import STEPS
from unpooled.protocol.registry import KEPT, Citing, Model, ResultReading

MODEL = Model(
    "pride",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(render=render, panels=panels, types=(PrideResult,), terms=terms, kept_terms=kept_terms),
    made_up_labels=admissible_labels,
    template=TEMPLATE,
    roles=("cross-validation",),
    releases={
        "sketch": "random mixtures of this party's columns for every row (a sketch)",
        "folds": "random mixtures of this party's columns for every row, by which settings are chosen",
        "score": "how well each setting predicts rows that were left out",
        "coefficients": "the coefficients of this party's columns",
        "predict": "random mixtures of this party's columns for every new row",
    },
    coefficients=KEPT,
    saved=(
        "unpooled.models.pride.estimator:PrideClassifier",
        "unpooled.models.pride.estimator:PrideGLM",
        "unpooled.models.pride.estimator:PrideRegressor",
    ),
    says="a regression over columns of several parties, of which each party keeps its own part",
    earlier=Citing(earlier),
    predictions=predictions,
    without_joint_rows=without_joint_rows,
)
MODEL = replace(MODEL, outlook=partial(outlook, MODEL))
