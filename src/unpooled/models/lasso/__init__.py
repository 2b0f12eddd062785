"""LASSO on column-split data: moments of privately standardised columns, or private block-coordinate Frank-Wolfe."""

from unpooled.linear.releases import JOINT
from unpooled.models.lasso.declared import TEMPLATE, earlier, notes
from unpooled.models.lasso.frank_wolfe_fit import LassoResult, panels, render, terms
from unpooled.models.lasso.frank_wolfe_rows import STEPS
from unpooled.models.lasso.joint import compile_plan, coordinate
from unpooled.models.lasso.moments_rows import STANDARD_STEPS
from unpooled.models.lasso.outlook import outlook
from unpooled.privacy.unit import Unit
from unpooled.products.plan import ALONE as COLUMN_STEPS
from unpooled.protocol.registry import RELEASED, Citing, Model, ModelForm, ResultReading

MODEL = Model(
    "lasso",
    compile_plan,
    (*STEPS, *STANDARD_STEPS, *COLUMN_STEPS),
    coordinate,
    ResultReading(render=render, panels=panels, types=(LassoResult,), terms=terms, predicting=terms),
    outlook=outlook,
    covers_labels=frozenset({Unit.RECORD}),
    template=TEMPLATE,
    releases={
        "mean": "the sum of the response",
        "pick": "which column is taken next, chosen at random with a preference for columns that explain more",
        "choose": "which column is taken next, chosen at random with a preference for columns that explain more",
        "score": "how much the chosen column explains of what is left",
        "column": "the values of a chosen column, in random mixtures of rows",
        "refit": "sums of products of the chosen columns with each other and with the response",
        "sums": "sums and sums of squares of this party's columns",
        "products": "sums of products of this party's columns with the response",
        "axis": "the values of a combination of this party's chosen columns",
        "crossing": "sums of products of this party's chosen columns with those of the other parties",
        **JOINT,
    },
    notes=notes,
    coefficients=RELEASED,
    form=ModelForm(renamed={"radius": "radius_in_half_ranges"}),
    saved=("unpooled.models.lasso.estimator:PrivateLasso", "unpooled.models.lasso.estimator:PrivateLassoClassifier"),
    says="a regression that uses few columns",
    earlier=Citing(earlier),
)
