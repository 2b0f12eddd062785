"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.stacking.estimator import PrivateStackingClassifier
from unpooled.models.stacking.shared import released_weights
from unpooled.privacy.unit import Split

if TYPE_CHECKING:
    from unpooled.models.stacking.coordinator import StackingResult
    from unpooled.models.stacking.plan import StackingDesign
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan[StackingDesign], result: StackingResult) -> PrivateStackingClassifier:
    """Return a stack of the released models; where columns are split, new rows need all of them in one place."""
    design = plan.design
    cards = [block.card for block in design.blocks]
    rows = design.split is Split.HORIZONTAL
    estimator = PrivateStackingClassifier(
        split="samples" if rows else "features",
        epsilon=plan.study.epsilon,
        delta=plan.study.delta,
        calibration=plan.study.calibration,
        combiner=design.parameters.combiner,
        rates=design.parameters.rates,
        multi_class=design.parameters.multi_class,
        fit_intercept=design.parameters.fit_intercept,
    )
    columns = {column.name: column for card in (cards[:1] if rows else cards) for column in card.columns}
    estimator.models_, estimator.high_ = result.models, np.array(result.high)
    estimator.calibrated_ = result.calibrated
    estimator.__dict__["released_"] = released_weights(result)
    estimator.classes_ = np.array(design.parameters.classes)
    made = design.made
    return estimator.of_study(plan, list(columns.values()) if made is None else made.derived.needs)
