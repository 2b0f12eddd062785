"""Bayesian regression with the paper's own noise: the classical formula and equation (12); no guarantee (THEORY.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.aggregation.layout import Geometry, MomentsLayout, blocks_of
from unpooled.aggregation.linear_rounds import Method
from unpooled.aggregation.totals import Summed
from unpooled.errors import UsageError
from unpooled.models import bayes
from unpooled.models.bayes.declared import ESTIMATE
from unpooled.models.bayes.plan import DEVIATIONS, MOMENTS, design_of, plan_of
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.sensitivity import moments_box
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.template import ROWS, Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.aggregation.linear_fit import LinearFit
    from unpooled.aggregation.moments import Moments

#: What is done with a Gram matrix that noise made indefinite.
KEPT, ABSOLUTE = "kept", "absolute"

_FORMULA = Sentence(
    "bayes-published.formula",
    "The noise follows the classical formula with equation (12), whose proof fails for large epsilon (THEORY.md). The ledger holds what these "
    "releases cost.",
)
_MEANS = Sentence(
    "bayes-published.means", "The paper assumes that every column has mean zero at the centre of its declared range."
)


def compile_plan(study: Study) -> Plan:
    """Return the same totals as in the sound form, with noise as printed."""
    if study.parameters.get("formula"):
        raise UsageError("a formula is not for this form: the paper's rows are points of a box of declared columns")
    if study.parameters.get("weights"):
        raise UsageError("the published form has no weights: its rows count alike")
    if study.parameters.get("focus"):
        raise UsageError("the published form has no focus: it releases the moments of all columns")
    if study.parameters.get("prior"):
        raise UsageError("the published form has no earlier models: its prior is a precision about 0")
    design = design_of(study, Method.MOMENTS)
    share = design.parameters.projection
    # Only columns are bounded in the paper: a row is a point of a box.
    layout = replace(design.layout, geometry=Geometry.BOX)
    moments = moments_as_published(layout, Adjacency(study.adjacency), 1 - share, _classical(study, 1 - share))
    totals = {MOMENTS: moments}
    if design.deviations is not None:
        noise = _classical(study, share) * design.deviations.reach[Unit.RECORD].distance
        totals = {DEVIATIONS: replace(design.deviations, scale=noise), MOMENTS: moments}
    given = design.parameters
    known = {name: MODEL.filled(name, getattr(given, name), ESTIMATE) for name in MODEL.defaults}
    parameters = msgspec.structs.replace(given, **known)
    design = replace(design, parameters=parameters, layout=layout, totals=totals)
    return plan_of(study, design, (_FORMULA, _MEANS))


def moments_box_as_published(bounds: Sequence[float], response: float) -> float:
    """Equation (12) of the Bayes paper's supplement: valid, and about 1.4 times larger than needed."""
    squares = [c * c for c in bounds]
    pairs = (math.fsum(squares) ** 2 - math.fsum(c2 * c2 for c2 in squares)) / 2  # sum over j < k of c_j^2 c_k^2
    return math.sqrt(math.fsum(c2 * c2 for c2 in squares) + 4 * pairs + 4 * math.fsum(squares) * response**2)


def moments_as_published(layout: MomentsLayout, adjacency: Adjacency, share: float, sigma: float) -> Summed:
    """Return equal noise on every entry in the data's own units: ``sigma`` per unit of equation (12)'s sensitivity.

    The reach, for the ledger, is the true one in the same units.
    """
    first, second = layout.pairs
    half = np.append(layout.half_widths, layout.response.half_width)
    bounds, response = half[:-1].tolist(), float(half[-1])
    scale = sigma * float(layout.grid**2) * moments_box_as_published(bounds, response)
    shape = blocks_of(1 / (half[first] * half[second]))
    return layout.summed(MOMENTS, shape, partial(moments_box, bounds, response), adjacency, share, scale)


def _classical(study: Study, share: float) -> float:
    """Return the classical sigma per unit of sensitivity for a share of (epsilon, delta): not private for large epsilon (Theorem B.3)."""
    epsilon, delta = study.epsilon * share, study.delta * share
    if not delta:
        raise UsageError("the published calibration needs a positive delta")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def posterior_as_published(
    moments: Moments, prior_precision: float = 1.0, noise_precision: float = 1.0, *, indefinite: str = KEPT
) -> LinearFit:
    """Return the posterior that takes noisy moments for exact ones, from a release of the published form.

    ``indefinite`` says what happens to a Gram matrix whose noise made it indefinite. "kept" leaves it as it is, as the supplement prints it: there
    may be no posterior then. "absolute" replaces its eigenvalues, in the data's own units, by their absolute values, as the authors' program does.
    """
    if indefinite not in {KEPT, ABSOLUTE}:
        msg = f"indefinite is {KEPT!r} or {ABSOLUTE!r}, not {indefinite!r}"
        raise UsageError(msg)
    if _FORMULA not in moments.statement:
        raise UsageError("these moments are of the sound form, whose posterior knows of the noise: moments.posterior()")
    if indefinite == ABSOLUTE:
        moments = replace(moments, gram=_absolute(moments))
    return moments.posterior(prior_precision, noise_precision, naive=True)


def _absolute(moments: Moments) -> NDArray[np.float64]:
    """Return the moments with the eigenvalues of their Gram matrix, in the data's own units, made positive."""
    d, width = moments.layout.size, moments.layout.half_widths
    values, vectors = np.linalg.eigh(moments.xx[0] * np.outer(width, width))
    gram = moments.gram.copy()
    gram[:d, :d] = (vectors * np.abs(values)) @ vectors.T / np.outer(width, width)
    return gram


#: The paper's own study.
TEMPLATE = Template(
    "Bayesian linear regression as printed: moments with the classical Gaussian noise of equation (12). It protects nobody (THEORY.md).",
    ROWS,
    "record",
    """\
response = "y"                      # a declared column, with a range
fit_intercept = false               # the paper has no constant
posterior = "naive"                 # the paper's, which takes the noise for data; also "aware"
prior_precision = 1.0               # known, as in the paper
noise_precision = 1.0
projection = 0.2                    # part of the squared budget for the deviations of Algorithm 2; 0 projects nothing
# multiple = 2.0                    # thresholds of the projection in deviations; without it the best on synthetic data
# max_passes, method, site_effects, prior, norm, formula, weights, covariance, focus and geometry are not for this form: it has one release of moments, and a row is a point of a box
# tolerate = 0                      # parties that may collude or drop out
# nodes = []                        # parties of the secure sum; none: all of them
# level = 0.95                      # of the intervals
# reference = { ward = "b" }        # the level that the others of a column are compared with; else the first declared one
# coding = "treatment"              # or "sum": levels are compared with the mean of all""",
    delta=0.0001,
    calibration="published",
)

MODEL = replace(
    bayes.MODEL,
    name="bayes-published",
    compile_plan=compile_plan,
    outlook=None,
    promises=False,
    # The paper takes both precisions as known.
    defaults={"prior_precision": 1.0, "noise_precision": 1.0},
    template=TEMPLATE,
    households=False,
)
