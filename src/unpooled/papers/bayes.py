"""Bayesian regression with the paper's own noise: the classical formula and equation (12); no guarantee (THEORY.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.linear.fit import plain
from unpooled.linear.layout import Geometry, MomentsLayout, blocks_of
from unpooled.linear.moments import Moments
from unpooled.linear.schedule import Method
from unpooled.models import bayes
from unpooled.models.bayes.declared import ABSOLUTE, DEVIATIONS, KEPT, MOMENTS, NAIVE, Parameters, design_of, plan_of
from unpooled.models.bayes.fit import coefficients_of, posterior
from unpooled.papers.settings import lacking, settings_of, with_settings
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.sensitivity import moments_box
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.registry import ROWS, ModelForm, Template
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.linear.fit import LinearFit
    from unpooled.models.bayes.declared import BayesDesign
    from unpooled.protocol.registry import Conversation

#: Sums and noise of so many deviations stay below this; a grid that is coarser than the other is none.
_ROOM, _TAIL, _COARSEST = 2.0**61, 12.0, 16

_FORMULA = Sentence(
    "bayes-published.formula",
    "The noise follows the classical formula with equation (12), whose proof fails for large epsilon (THEORY.md). The ledger holds what these "
    "releases cost.",
)
_MEANS = Sentence(
    "bayes-published.means", "The paper assumes that every column has mean zero at the centre of its declared range."
)


#: What the authors' program has: no constant, both precisions known, and Algorithm 2 with a part of epsilon and delta for marginal deviations.
SETTINGS = {
    "delta": 1e-4,
    "method": Method.MOMENTS.value,
    "fit_intercept": False,
    "posterior": NAIVE,
    "prior_precision": 1.0,
    "noise_precision": 1.0,
    "projection": 0.3,
    "indefinite": ABSOLUTE,
}
#: The paper has one release of the moments of all columns of a box, of rows that are records and count alike.
LACKS = lacking(
    "adjacency unit rows_per_household parties response_at helpers check geometry norm covariance focus prior method "
    "max_passes expected_missing weights weights_bounds site_effects formula goal"
)


def compile_plan(study: Study) -> Plan:
    """Return the same totals as in the sound form, with noise as printed, and the paper's settings where the study names none."""
    if study.adjacency != Adjacency.REPLACE or study.unit != Unit.RECORD:
        raise UsageError("the paper's neighbours differ in one record: unit = 'record' and adjacency = 'replace'")
    filled = with_settings(study, Parameters, SETTINGS, LACKS)
    if not isinstance(filled.parameters.get("prior_precision"), int | float) or isinstance(
        filled.parameters.get("noise_precision"), str
    ):
        raise UsageError("the paper takes both precisions as known: prior_precision and noise_precision are numbers")
    design = design_of(filled, Method.MOMENTS)
    given = design.parameters
    share = given.projection
    of_delta = (share if given.projection_delta is None else given.projection_delta) if share else 0.0
    sigma = _classical(study, 1 - share, 1 - of_delta)
    grid = design.layout.grid
    # Only columns are bounded in the paper: a row is a point of a box.
    while (
        not _fits(study, moments_as_published(_box(design, grid), Adjacency.REPLACE, 1 - share, sigma)) and grid > _COARSEST
    ):
        grid //= 2
    if grid < design.layout.grid:
        design = design_of(filled, Method.MOMENTS, grid)
    layout = _box(design, grid)
    moments = moments_as_published(layout, Adjacency.REPLACE, 1 - share, sigma)
    totals = {MOMENTS: moments}
    if design.deviations is not None:
        noise = _classical(study, share, of_delta) * design.deviations.reach[Unit.RECORD].distance
        totals = {DEVIATIONS: replace(design.deviations, scale=noise), MOMENTS: moments}
    design = replace(design, layout=layout, totals=totals)
    plan = plan_of(study, design, (_FORMULA, _MEANS))
    return replace(plan, notes=(*plan.notes, settings_of(filled, SETTINGS)))


def _box(design: BayesDesign, grid: int) -> MomentsLayout:
    """Return the layout of rows that are points of a box, on a grid."""
    return replace(design.layout, geometry=Geometry.BOX, grid=grid)


def _fits(study: Study, moments: Summed) -> bool:
    """Return True if every party's noise on these moments leaves room in 64 bits: equal noise on all of them is wide where ranges are unequal."""
    parties = len(study.parties)
    assert moments.scale is not None
    width = max(block.width for block in moments.blocks)
    rows = sum(card.rows for card in study.parties)
    return bool(rows * moments.per_row + _TAIL * moments.scale * width * parties < _ROOM)


def coordinate(plan: Plan[BayesDesign]) -> Conversation:
    """Add up as in the sound form; the Gram matrix that was released then becomes positive, where the study says so."""
    result = yield from bayes.MODEL.coordinate(plan)
    if plan.design.parameters.indefinite == KEPT or result.moments is None:
        return result
    moments = Moments.of(result.moments)
    moments = replace(moments, gram=_absolute(moments))
    fit = plain(posterior(plan.design, moments))
    coefficients = coefficients_of(fit, plan.design.layout.names, result.confidence)
    return msgspec.structs.replace(result, coefficients=coefficients, intercept=fit.intercept_, moments=moments.stored())


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


def _classical(study: Study, share: float, of_delta: float) -> float:
    """Return the classical sigma per unit of sensitivity for these shares of (epsilon, delta): not private for large epsilon (Theorem B.3)."""
    epsilon, delta = study.epsilon * share, study.delta * of_delta
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
    values, vectors = np.linalg.eigh(moments.xx[0] * np.outer(width, width))  # that of the layout, which may be narrowed
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
method = "moments"                  # the paper's one release
fit_intercept = false               # the paper has no constant
posterior = "naive"                 # the paper's, which takes the noise for data; also "noise-aware"
prior_precision = 1.0               # known, as in the paper
noise_precision = 1.0
projection = 0.3                    # part of epsilon for the deviations of Algorithm 2; 0 projects nothing
# projection_delta = 0.3            # their part of delta; without it that of epsilon
indefinite = "absolute"             # eigenvalues of a Gram matrix that noise made indefinite, as in the authors' program; "kept": as printed
# multiple = 2.0                    # thresholds of the projection in deviations; without it the best on synthetic data
# tolerate = 0                      # parties that may collude or drop out
# nodes = []                        # parties of the secure sum; none: all of them
# confidence = 0.95                      # of the intervals
# reference = { ward = "b" }        # the level that the others of a column are compared with; else the first declared one
# coding = "treatment"              # or "sum": levels are compared with the mean of all
# max_passes, expected_missing, site_effects, prior, goal, norm, formula, weights, covariance, focus and geometry are not for this form: it has one release of moments, and a row is a point of a box""",
    delta=0.0001,
    calibration="published",
)

MODEL = replace(
    bayes.MODEL,
    name="bayes-published",
    compile_plan=compile_plan,
    outlook=None,
    coordinate=coordinate,
    form=ModelForm(promises=False, defaults=SETTINGS, lacks=LACKS),
    template=TEMPLATE,
    households=False,
)
