"""Bayesian regression with the paper's own noise: the classical formula and equation (12); no guarantee (THEORY.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from unpooled.aggregation.layout import Geometry, MomentsLayout, blocks_of
from unpooled.aggregation.totals import Summed
from unpooled.errors import UsageError
from unpooled.models import bayes
from unpooled.models.bayes.plan import DEVIATIONS, ESTIMATE, MOMENTS, design_of, plan_of
from unpooled.models.bayes.rounds import Method
from unpooled.models.bayes.template import PUBLISHED_TEMPLATE
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.sensitivity import moments_box, moments_box_as_published
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import Adjacency, Unit

_FORMULA = Sentence(
    "bayes-published.formula",
    "The noise follows the classical formula with equation (12), whose proof fails for large epsilon (THEORY.md). The ledger holds what these "
    "releases cost.",
)
_MEANS = Sentence(
    "bayes-published.means", "The paper assumes that every column has mean zero at the centre of its declared range."
)


def compile_plan(study: Study) -> Plan:
    """The same totals as in the sound form, with noise as printed."""
    if study.parameters.get("formula"):
        raise UsageError("a formula is not for this form: the paper's rows are points of a box of declared columns")
    design = design_of(study, Method.MOMENTS)
    share = design.parameters.projection
    # Only columns are bounded in the paper: a row is a point of a box.
    layout = replace(design.layout, geometry=Geometry.BOX)
    moments = moments_as_published(layout, Adjacency(study.adjacency), 1 - share, _classical(study, 1 - share))
    totals = {MOMENTS: moments}
    if design.deviations is not None:
        noise = _classical(study, share) * design.deviations.reach[Unit.RECORD].distance
        totals = {DEVIATIONS: replace(design.deviations, scale=noise), MOMENTS: moments}
    given = design.parameters  # the paper takes both precisions as known
    prior, precision = (1.0 if p == ESTIMATE else p for p in (given.prior_precision, given.noise_precision))
    parameters = msgspec.structs.replace(given, prior_precision=prior, noise_precision=precision)
    design = replace(design, parameters=parameters, layout=layout, totals=totals)
    return plan_of(study, design, (_FORMULA, _MEANS))


def moments_as_published(layout: MomentsLayout, adjacency: Adjacency, share: float, sigma: float) -> Summed:
    """Equal noise on every entry in the data's own units: ``sigma`` per unit of equation (12)'s sensitivity.

    The reach, for the ledger, is the true one in the same units.
    """
    first, second = layout.pairs
    half = np.append(layout.half_widths, layout.response.half_width)
    bounds, response = half[:-1].tolist(), float(half[-1])
    scale = sigma * float(layout.grid**2) * moments_box_as_published(bounds, response)
    shape = blocks_of(1 / (half[first] * half[second]))
    return layout.summed(MOMENTS, shape, partial(moments_box, bounds, response), adjacency, share, scale)


def _classical(study: Study, share: float) -> float:
    """The classical sigma per unit of sensitivity for a share of (epsilon, delta): not private for large epsilon (Theorem B.3)."""
    epsilon, delta = study.epsilon * share, study.delta * share
    if not delta:
        raise UsageError("the published calibration needs a positive delta")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


MODEL = replace(
    bayes.MODEL,
    name="bayes-published",
    compile_plan=compile_plan,
    outlook=None,
    template=PUBLISHED_TEMPLATE,
    households=False,
)
