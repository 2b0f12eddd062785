"""PRIDE as printed: columns standardised by their own moments, noise of a range read off them, SDCA; no guarantee (THEORY.md, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.families.logistic import Logistic
from unpooled.kernels.ridge import RidgePath
from unpooled.models import pride
from unpooled.models.pride import rows
from unpooled.models.pride.declared import Parameters, check_sizes
from unpooled.models.pride.plan import (
    DUALITY_GAP,
    ESTIMATE,
    SKETCH,
    Estimated,
    EstimateRequest,
    Own,
    Part,
    PrideDesign,
    Sketch,
    check,
    coded,
    parts_of,
    plan_of,
    widths_of,
)
from unpooled.models.pride.rows import sent
from unpooled.papers.sdca import sdca
from unpooled.papers.settings import lacking, settings_of, with_settings
from unpooled.papers.unpriced import Unpriced
from unpooled.privacy import noise
from unpooled.privacy.mechanisms import ScaledGaussian, Vector
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import Unit
from unpooled.protocol.messages import Nothing
from unpooled.protocol.registry import COLUMNS, ModelForm, Step, Template

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.newton import NewtonPath
    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context

#: P.3 assumes that delta is smaller: its noise has ln(1 / (2 delta)).
LARGEST_DELTA = 0.5
_DELTA = "the published calibration needs a delta above 0 and below 1/2, as Theorem 1 of the PRIDE paper has it: its noise has ln(1 / (2 delta))"
#: What a party keeps of the rows that it fitted, by which it standardises and perturbs new ones: two numbers for each coded column, and theta.
MEANS, DEVIATIONS, RANGE = "column_means", "column_deviations", "largest_range"
#: SDCA ends at a gap of this share of the objective, or after so many epochs.
_GAP, _EPOCHS = 1e-14, 5_000


def published_sigma(theta: float, epsilon: float, delta: float, row_norm: float = 1.0) -> float:
    r"""Return the noise of PRIDE's Theorem 1 (P.3): :math:`\sigma = w\theta\epsilon^{-1}\sqrt{2(\ln(1/(2\delta))+\epsilon)}`.

    The theorem assumes that delta lies between 0 and 1/2; other values are refused.

    >>> round(published_sigma(7.4118, 1.0, 0.05), 2)
    19.05
    """
    if not 0 < delta < LARGEST_DELTA:
        raise UsageError(_DELTA)
    return row_norm * theta / epsilon * math.sqrt(2 * (math.log(1 / (2 * delta)) + epsilon))


@dataclass(frozen=True, slots=True)
class PublishedNoise(Unpriced):
    """Gaussian noise whose theta is the largest range of a standardised column, read off the data (Theorem P.4)."""

    kind: ClassVar[str] = "published: Gaussian on sketches"
    size: int
    multiplier: float
    name: ClassVar[str] = "published Gaussian"

    def draw(self, given: Vector, bits: RandomBits) -> NDArray[np.float64]:
        """Return the sketch plus Gaussian noise of w theta times the multiplier, on a grid of 2^-18 of itself."""
        assert given.sensitivity is not None
        step = self.multiplier * given.sensitivity * 2.0**-18
        drawn = noise.rounded_gaussian(2.0**18, given.values.size, stream=bits)
        noisy: NDArray[np.float64] = given.values + step * drawn.reshape(given.values.shape)
        return noisy


#: Section 5: delta, global cross-validation of the penalty, sketches of a twentieth of the columns, which are taken as they arrive.
SETTINGS = {"delta": 0.05, "alpha": "global-cv", "noise_model": "plain", "sketch_dim": 0.05}
LACKS = lacking(
    "adjacency unit sketch grids matrices noise_model others prior clip_norm publish event quantile dispersion cap"
)


def settings(study: Study) -> dict[str, Any]:
    """Return the paper's settings for a study: new rows need no penalty, and global cross-validation is of regressions."""
    given = study.parameters
    family = given.get("family") or given.get("loss") or ("logistic" if given.get("task") == "classification" else "squared")
    own = dict(SETTINGS)
    if family != "squared":
        own["alpha"] = "local-cv"
    if given.get("fitted") is not None:
        del own["alpha"]
    return own


def compile_plan(study: Study) -> Plan:
    """Return one sketch per party, with the noise of Theorem 1 of the PRIDE paper, and the paper's settings where the study names none."""
    own = settings(study)
    filled = with_settings(study, Parameters, own, LACKS)
    parameters = check_parameters(filled, Parameters)
    if not 0 < study.delta < LARGEST_DELTA:
        raise UsageError(_DELTA)
    check_sizes(parameters.sketch_dim, widths_of(study.parties))
    check(filled, parameters)
    if Unit(study.unit) is not Unit.ATTRIBUTE or parameters.sketch != "srht":
        raise UsageError("the published calibration is for unit 'attribute' and the SRHT only")
    if parameters.named not in ("squared", "huber", "logistic"):
        msg = f"the published calibration is for ridge, Huber and logistic regression: family = {parameters.named} needs calibration = 'sound'"
        raise UsageError(msg)
    if parameters.prior:
        raise UsageError("the published calibration has no earlier models: prior needs calibration = 'sound'")
    if parameters.publish:
        raise UsageError("the paper publishes no coefficients: publish needs calibration = 'sound'")
    parts = parts_of(filled)
    releases = tuple(
        Release(SKETCH, part.card.name, SKETCH, _mechanism(study, part.card.rows * part.sketch.size))
        for part in parts
        if part.sketch is not None
    )
    plan = plan_of(study, releases, PrideDesign(parameters, parts, standardised_here, states_noise=False))
    plan = replace(plan, notes=(*plan.notes, settings_of(filled, own)))
    if parameters.fitted is None:
        return plan
    return replace(plan, voids=(*plan.voids, _of_new_rows(parameters)))


def _of_new_rows(parameters: Parameters) -> Sentence:
    """Return the sentence that says who predicts new rows from which releases, and that these have no price."""
    return Sentence(
        "pride-published.new-rows",
        "New rows are predicted at {who}, from the own columns there and newly released sketches of the other parties' columns of these rows (section 7 "
        "of the paper). Every party that predicts gets these sketches. Their noise has the deviation of the paper's theorem for the largest range in the fitted "
        "rows, which is read off the data, so nobody can say what the release costs: the ledger debits it as unbounded.",
        who=listed([repr(name) for name in parameters.predicting]) if parameters.predicting else "every party",
    )


def _mechanism(study: Study, numbers: int) -> ScaledGaussian | PublishedNoise:
    if study.epsilon == math.inf:
        return ScaledGaussian.silent(numbers)
    return PublishedNoise(numbers, published_sigma(1.0, study.epsilon, study.delta))


def standardised(part: Part, table: Table) -> Own:
    """Return the mean 0 and variance 1, read off the data."""
    real = coded(part, table).rows
    mean, deviation = real.mean(axis=0), real.std(axis=0)
    deviation[deviation == 0] = 1.0
    return Own((real - mean) / deviation, mean, deviation)


def standardised_here(context: Context[PrideDesign], part: Part) -> Own:
    """Return a step's columns, standardised by their own moments, or new rows by the moments that the party keeps of the rows that it fitted."""
    fitted = context.design.parameters.fitted
    if fitted is None:
        return standardised(part, context.table)
    mean, deviation = _kept(context, MEANS, fitted), _kept(context, DEVIATIONS, fitted)
    return Own((coded(part, context.table).rows - mean) / deviation, mean, deviation)


def _kept(context: Context, name: str, fitted: str) -> NDArray[np.float64]:
    try:
        return context.kept(name, fitted)
    except UsageError:
        msg = (
            f"this party keeps no {name.replace('_', ' ')} of the study that fitted: it took no part in it, or that study ran with an earlier version of "
            "unpooled; run that study again with every party"
        )
        raise UsageError(msg) from None


def sketch(context: Context[PrideDesign], request: Nothing) -> Sketch:  # noqa: ARG001 - the request is no more than its name
    """Z_k = X_k Pi_k + W_k of standardised columns; theta is the largest range of one of them, in the rows of the fit."""
    if context.design.parameters.fitted is None:
        part = rows.part_of(context)
        own = standardised(part, context.table)
        for name, values in ((MEANS, own.mean), (DEVIATIONS, own.deviation), (RANGE, _largest_range(own))):
            context.keep(name, values)
    return sent(context, _statistic)


def _largest_range(own: Own) -> NDArray[np.float64]:
    return np.array([np.ptp(own.rows, axis=0).max(initial=0.0)])


def _statistic(context: Context[PrideDesign], part: Part) -> Vector:
    assert part.sketch is not None
    own, fitted = standardised_here(context, part), context.design.parameters.fitted
    theta = _largest_range(own) if fitted is None else _kept(context, RANGE, fitted)
    return Vector(part.sketch.apply_real(own.rows).ravel(), float(theta[0]))


def estimate(context: Context, request: EstimateRequest) -> Estimated:
    """Step 5 as printed: stochastic dual coordinate ascent at the penalty that was chosen."""
    return rows.estimate(context, request, ascend)


def ascend(context: Context, path: RidgePath | NewtonPath, alpha: float) -> tuple[NDArray[np.float64], float]:
    """Return coefficients and intercept by SDCA; keeps the duality gap, which bounds how far they are from the minimum.

    Where a small penalty makes the ascent crawl, the exact solver finishes, and the gap is that of its solution. Huber's loss, and a logistic
    loss with an unpenalised intercept, are no problems of that dual: they are solved as in the sound form and keep no gap.
    """
    loss: Literal["squared", "logistic"] = "squared"
    mean = 0.0
    if isinstance(path, RidgePath):
        mean = path.target_mean  # design and target are centred where there is an intercept
    elif isinstance(path.loss, Logistic) and not path.fit_intercept:
        loss = "logistic"
    else:
        return path.solve(alpha)
    found = sdca(path.design, path.target, alpha, loss=loss, tolerance=_GAP, max_epochs=_EPOCHS)
    coefficients, gap = found.coefficients, found.certificate
    if not found.converged:
        coefficients = path.solve(alpha)[0]
        gap = float(np.sum(_gradient(path, coefficients, alpha) ** 2)) / (2 * alpha)
    context.keep(DUALITY_GAP, np.array([gap]))
    return coefficients, mean - float(path.column_means @ coefficients)


def _gradient(path: RidgePath | NewtonPath, coefficients: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Return the gradient of the objective. With a_i = f_i'(x_i b) as dual variables the duality gap at b is its square over 2 alpha."""
    decision = path.design @ coefficients
    pull = path.target - decision if isinstance(path, RidgePath) else path.loss.pull(decision, path.target)
    gradient: NDArray[np.float64] = alpha * coefficients - path.design.T @ pull
    return gradient


#: The paper's own study.
TEMPLATE = Template(
    "PRIDE as printed: sketches with the noise of Theorem 1, and dual coordinate ascent at every party. It protects nobody (THEORY.md, section 3).",
    COLUMNS,
    "attribute",
    """\
response = "y"                      # a label column of every party that estimates, under `labels` in its party file
alpha = "global-cv"                 # the paper's penalty, by cross-validation over all parties; also "local-cv", or a number
folds = 5
noise_model = "plain"               # the sketches as they arrive, as in the paper; also "calibrated", "gram"
sketch_dim = 0.05                   # columns of a sketch as a part of the party's: 0.01 to 0.2 in the paper
# task = "regression"               # or "classification", with classes = ["-1", "1"] and a number alpha
# classes = ["-1","1"]
# family = ""                       # "squared", "huber" or "logistic"; without it what task says
# loss = ""                         # the older name of family
# threshold = 1.345                 # of Huber's loss, in units of the response; without it robust deviations choose
# fit_intercept = true
# others = "like mine"              # for noise_model = "gram"
# public = []                       # columns that are sent as they are
# fitted = "..."                    # the plan whose coefficients predict new rows: `unpooled new pride --fitted STUDY` writes such a study
# predicting = []                   # which parties predict new rows
# sketch, grids, matrices, prior, clip_norm, publish, response_bound, event, quantile, dispersion and cap are not for this form""",
    delta=0.05,
    calibration="published",
    trust='cross-validation = "trusted"',
)

_OWN = {
    step.name: step for step in (Step(SKETCH, Nothing, Sketch, sketch), Step(ESTIMATE, EstimateRequest, Estimated, estimate))
}
MODEL = replace(
    pride.MODEL,
    name="pride-published",
    compile_plan=compile_plan,
    outlook=None,
    template=TEMPLATE,
    steps=tuple(_OWN.get(step.name, step) for step in pride.MODEL.steps),
    form=ModelForm(promises=False, defaults=SETTINGS, lacks=LACKS),
)
