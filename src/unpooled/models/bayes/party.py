"""The only file of this model that touches raw data: exact integer moments, and sums for the marginal deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.totals import KEYS, Summing
from unpooled.errors import PlanMismatch
from unpooled.models.bayes.plan import DEVIATIONS, MOMENTS, setup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.totals import Aggregation, Summed
    from unpooled.privacy.plan import Study
    from unpooled.protocol.context import Context


def _moments(context: Context, settings: tuple[float, ...]) -> NDArray[np.int64]:
    asked = setup(context.plan.study)
    if bool(settings) != (asked.deviations is not None):
        raise PlanMismatch("projection bounds belong to a plan that releases deviations first, and to no other")
    # Whatever bounds a request carries: clipping to them gives coded values in [-1, 1], and the sensitivity holds.
    return asked.narrowed(settings).statistic(context.table)


def _deviations(context: Context, settings: tuple[float, ...]) -> NDArray[np.int64]:
    if settings:
        raise PlanMismatch("deviations are taken inside the declared ranges: their request has no settings")
    coding = setup(context.plan.study).coding
    count = len(coding.columns)
    total = np.zeros(2 * count, dtype=np.int64)
    first = np.searchsorted(coding.attribute, range(count))
    for block in context.table.blocks(coding.names):
        coded = coding.code(block)[0][:, first]  # without missing-value indicators
        total += np.concatenate([coded.sum(axis=0), (coded * coded).sum(axis=0)])
    return total


def _plan_of_moments(study: Study) -> tuple[Aggregation, Summed]:
    asked = setup(study)
    return asked.aggregation, asked.moments


def _plan_of_deviations(study: Study) -> tuple[Aggregation, Summed]:
    asked = setup(study)
    if asked.deviations is None:
        raise PlanMismatch("this plan projects nothing, so it releases no deviations")
    return asked.aggregation, asked.deviations


STEPS = (
    KEYS,
    *Summing(DEVIATIONS, _plan_of_deviations, _deviations).steps,
    *Summing(MOMENTS, _plan_of_moments, _moments).steps,
)
