"""Bayesian regression with the paper's own noise: the classical formula and equation (12); no guarantee (THEORY.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from unpooled.aggregation.moments import Design, Geometry, blocks_of
from unpooled.aggregation.totals import Summed
from unpooled.errors import UsageError
from unpooled.models import bayes
from unpooled.models.bayes.plan import MOMENTS, plan_of, setup
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.sensitivity import moments_box, moments_box_as_published
from unpooled.privacy.unit import Adjacency, Unit

_FORMULA = (
    "The noise is that of the classical formula with equation (12), whose own argument fails for large epsilon (THEORY.md): what "
    "these releases really cost is in the ledger."
)
_MEANS = "The paper assumes that every column has mean zero at the centre of its declared range."


def compile_plan(study: Study) -> Plan:
    """The same totals as in the sound form, with noise as printed."""
    asked = setup(study)
    share = asked.parameters.projection
    # Only columns are bounded in the paper: a row is a point of a box.
    design = replace(asked.design, geometry=Geometry.BOX)
    moments = moments_as_published(design, Adjacency(study.adjacency), 1 - share, _classical(study, 1 - share))
    deviations = asked.deviations
    if deviations is not None:
        noise = _classical(study, share) * deviations.reach[Unit.RECORD].distance
        deviations = replace(deviations, scale=noise)
    return plan_of(study, replace(asked, design=design, moments=moments, deviations=deviations), (_FORMULA, _MEANS))


def moments_as_published(design: Design, adjacency: Adjacency, share: float, sigma: float) -> Summed:
    """Equal noise on every entry in the data's own units: ``sigma`` per unit of equation (12)'s sensitivity.

    The reach, for the ledger, is the true one in the same units.
    """
    first, second = design.pairs
    half = np.append(design.half_widths, design.response.half_width)
    bounds, response = half[:-1].tolist(), float(half[-1])
    scale = sigma * float(design.grid**2) * moments_box_as_published(bounds, response)
    shape = blocks_of(1 / (half[first] * half[second]))
    return design.summed(MOMENTS, shape, partial(moments_box, bounds, response), adjacency, share, scale)


def _classical(study: Study, share: float) -> float:
    """The classical sigma per unit of sensitivity for a share of (epsilon, delta): not private for large epsilon (Theorem B.3)."""
    epsilon, delta = study.epsilon * share, study.delta * share
    if not delta:
        raise UsageError("the published calibration needs a positive delta")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


MODEL = replace(bayes.MODEL, name="bayes-published", compile_plan=compile_plan)
