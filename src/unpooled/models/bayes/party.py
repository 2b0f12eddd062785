"""The only file of this model that touches raw data: exact integer moments, and sums for the marginal deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.keys import KEYS
from unpooled.aggregation.modes import steps_of
from unpooled.errors import PlanMismatch
from unpooled.models.bayes.plan import DEVIATIONS, MOMENTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.bayes.plan import BayesDesign
    from unpooled.protocol.context import Context


def _moments(context: Context, settings: tuple[float, ...]) -> NDArray[np.int64]:
    design: BayesDesign = context.design
    if bool(settings) != (design.deviations is not None):
        raise PlanMismatch("projection bounds belong to a plan that releases deviations first, and to no other")
    # Whatever bounds a request carries: clipping to them gives coded values in [-1, 1], and the sensitivity holds.
    return design.narrowed(settings).statistic(context.table)


def _deviations(context: Context, settings: tuple[float, ...]) -> NDArray[np.int64]:
    if settings:
        raise PlanMismatch("deviations are taken inside the declared ranges: their request has no settings")
    coding = context.design.coding
    count = len(coding.columns)
    total = np.zeros(2 * count, dtype=np.int64)
    first = np.searchsorted(coding.attribute, range(count))
    for block in context.table.blocks(coding.names):
        coded = coding.code(block)[0][:, first]  # without missing-value indicators
        total += np.concatenate([coded.sum(axis=0), (coded * coded).sum(axis=0)])
    return total


STEPS = (
    KEYS,
    *steps_of(DEVIATIONS, _deviations),
    *steps_of(MOMENTS, _moments),
)
