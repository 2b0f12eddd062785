"""Private logistic regression by objective perturbation, and stacks of such models over columns or over rows."""

from unpooled.linear.releases import ROUNDS
from unpooled.models.stacking.declared import META_ROLE, TEMPLATE, EarlierWeights, former_words
from unpooled.models.stacking.fit import StackingResult, coordinate, kept_terms, panels, render, terms
from unpooled.models.stacking.outlook import made_up_classes, outlook
from unpooled.models.stacking.plan import compile_plan
from unpooled.models.stacking.rows import STEPS
from unpooled.privacy.plan import AGGREGATION
from unpooled.privacy.unit import Unit
from unpooled.protocol.registry import RELEASED, Citing, Model, ResultReading

MODEL = Model(
    "stacking",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(render=render, panels=panels, types=(StackingResult,), terms=terms, kept_terms=kept_terms),
    made_up_labels=made_up_classes,
    covers_labels=frozenset({Unit.RECORD, Unit.ATTRIBUTE}),
    outlook=outlook,
    template=TEMPLATE,
    roles=(META_ROLE, AGGREGATION),
    releases={
        **ROUNDS,
        "block": "the coefficients of a logistic regression on this party's columns",
        "ranked block": "the coefficients of a logistic regression on this party's columns, the parties ordered by their scores",
        "predictions": "the prediction of this party's regression for every row",
        "meta": "the coefficients by which the parties' predictions are combined",
        "score": "how well this party's columns separate the classes",
        "base rate": "the number of rows of each class",
    },
    coefficients=RELEASED,
    saved=(
        "unpooled.models.stacking.estimator:PrivateLogisticRegression",
        "unpooled.models.stacking.estimator:PrivateStackingClassifier",
    ),
    says="a classifier: how likely each class is for a person",
    earlier=Citing(EarlierWeights, several=False, former=former_words),
)
