"""The estimator that a finished study amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.models.stacking.estimator import PrivateStackingClassifier
from unpooled.models.stacking.stacked import released_weights
from unpooled.privacy.unit import Split

if TYPE_CHECKING:
    from unpooled.models.stacking.fit import StackingResult
    from unpooled.models.stacking.plan import StackingDesign
    from unpooled.privacy.plan import Plan


def fitted(plan: Plan[StackingDesign], result: StackingResult) -> PrivateStackingClassifier:
    """Return a stack of the released models; where columns are split, new rows need all of them in one place."""
    design = plan.design
    cards = [block.card for block in design.blocks]
    rows = design.split is Split.HORIZONTAL
    given = design.parameters
    columns = {column.name: column for card in (cards[:1] if rows else cards) for column in card.columns}
    made = design.made
    own: dict[str, Any] = {"split": "samples" if rows else "features", "prior": dict(given.prior) or None}
    own |= (
        {"importance": "private", "falling": list(given.ranks)}
        if given.ranks
        else {"importance": dict(given.importance) or None}
    )
    own |= {"meta": "high-level"} if rows and given.holder else {}
    estimator = PrivateStackingClassifier._of_plan(  # noqa: SLF001 - its own model's
        plan, list(columns.values()) if made is None else made.derived.needs, ("ranks",), **own
    )
    estimator.models_, estimator.high_ = result.models, np.array(result.high)
    estimator.calibrated_ = result.calibrated
    estimator.__dict__["released_"] = released_weights(result)
    estimator.classes_ = np.array(design.parameters.classes)
    return estimator
