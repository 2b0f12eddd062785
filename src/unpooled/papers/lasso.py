"""Algorithm 2 of the LASSO paper as printed: kept for comparison, no guarantee (THEORY.md, section 2).

Where the paper prints one thing in two ways that contradict each other, this is the one with which problem (12) is solved: picks by subroutine A and
not by line 11 or (14), the gradient of (12) with 1/n on y and not (13), q = A x / n with the factor eta that line 5 and (15) lack, and J a . q where line 10
multiplies a sketch by a whole feature. Where it prints a thing once it is done so: all K vertices step (line 3), and all noise has the printed scale. G is read
off each party's own columns, because no party sees the others', and a feature is sent once, which section 4 says and line 12 does not.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.linalg import eigh

from unpooled.errors import UsageError
from unpooled.kernels.columns import scores
from unpooled.models import lasso
from unpooled.models.lasso.declared import LARGEST, SQUARED, Coupling, Parameters, check
from unpooled.models.lasso.frank_wolfe_rows import (
    COLUMN,
    PICK,
    ColumnReply,
    ColumnRequest,
    LassoDesign,
    Pick,
    PickRequest,
    coded_columns,
    grids,
    next_column,
    predictions_of,
    response_of,
    widths_of,
)
from unpooled.papers.settings import lacking, settings_of, with_settings
from unpooled.papers.unpriced import Unpriced
from unpooled.privacy.accounting import gaussian_epsilon
from unpooled.privacy.mechanisms import ScaledGaussian, Vector
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import ROWWISE, Split
from unpooled.protocol.registry import COLUMNS, ModelForm, Step, Template

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.noise import RandomBits
    from unpooled.protocol.context import Context


@dataclass(frozen=True, slots=True)
class NoisyMaximum(Unpriced):
    """The index of the largest value after Laplace noise of a scale that is read off the data."""

    kind: ClassVar[str] = "published: report noisy maximum"
    #: Noise per unit of the sensitivity that the run gives.
    multiplier: float
    name: ClassVar[str] = "report noisy maximum"
    size: ClassVar[int] = 1

    def draw(self, given: Vector, bits: RandomBits) -> NDArray[np.float64]:
        """Return the index of the winner."""
        assert given.sensitivity is not None
        uniform = ((bits.words(0, given.values.size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53 - 0.5
        laplace = -np.sign(uniform) * np.log1p(-2 * np.abs(uniform))
        return np.array([float(np.argmax(given.values + self.multiplier * given.sensitivity * laplace))])


class Printed(LassoDesign):
    """Every party steps in every round and is added to the iterate, which leaves the ball; no constant, and no refit."""

    refits = centres = competes = feasible = False
    longest = LARGEST

    @property
    def eta(self) -> float:
        """Return the paper's bound, in units of the response."""
        return 1.0 if self.parameters.radius is None else self.parameters.radius

    @property
    def length(self) -> int | None:
        """Return the rows of the sketch."""
        return self.parameters.sketch_rows or None


def voids(cost: float, epsilon: float) -> tuple[Sentence, ...]:
    """Return why nothing is promised; ``cost`` is the epsilon of one value in one shared column of this plan, alone."""
    return (
        Sentence(
            "lasso-published.too-little",
            "The noise of shared columns and picks does not follow what one person can change: one value in one shared column costs epsilon = {cost:,g} "
            "alone, where the paper claims {epsilon:g} for everything (THEORY.md).",
            cost=float(f"{cost:.3g}"),
            epsilon=epsilon,
        ),
        Sentence("lasso-published.scale", "The scale of the noise on picks is computed from the data without protection."),
        Sentence(
            "lasso-published.ball",
            "Every round adds the vertices of all parties, so the coefficients leave the constraint set.",
        ),
    )


def sketch(study: Study, p: Parameters) -> NDArray[np.float64] | None:
    """J: m x n, Gaussian of variance 1/m, from the public seed; None is the identity."""
    return _gaussian(study.public_seed, p.sketch_rows, study.parties[0].rows) if p.sketch_rows else None


@functools.lru_cache(maxsize=2)
def _gaussian(seed: int, sketched: int, rows: int) -> NDArray[np.float64]:
    """Draw J once: every round of every party needs it."""
    drawn = np.random.default_rng((seed, 5)).normal(size=(sketched, rows)) / math.sqrt(sketched)
    drawn.flags.writeable = False
    return drawn


@functools.lru_cache(maxsize=8)
def _leading(seed: int, sketched: int, rows: int) -> float:
    """Return the leading singular value of J, from the Gram matrix of its shorter side."""
    drawn = _gaussian(seed, sketched, rows)
    gram = drawn @ drawn.T if sketched <= rows else drawn.T @ drawn
    last = gram.shape[0] - 1
    return math.sqrt(float(eigh(gram, eigvals_only=True, subset_by_index=[last, last])[0]))


def pick_scale(radius: float, parties: int, rows: int, rounds: int, epsilon: float, delta: float) -> float:
    r"""Return the scale of the Laplace noise on a pick, per unit of the gradient bound G: :math:`\frac{2\eta}{Kn}\sqrt{2T\ln(2/\delta)} / \frac{\epsilon/(2K)}{2}`.

    >>> round(pick_scale(2.0, 4, 1000, 20, 1.0, 1e-5), 6)
    0.35354
    """
    return 2 * radius / (parties * rows) * math.sqrt(2 * rounds * math.log(2 / delta)) / (epsilon / (2 * parties) / 2)


#: The most numbers of a Gaussian sketch: a gigabyte.
_MOST_NUMBERS = 1 << 27
#: Definition 1: neighbours differ in one data sample. The paper names no delta, and of T, tau and the sketch's rows orders alone.
SETTINGS = {"delta": 1e-5, "unit": "record", "method": "frank-wolfe", "fit_intercept": False, "refit": 0.0}
#: (12) has one ball, no constant, and the squared loss; its coefficients are the rounds' own.
LACKS = lacking(
    "adjacency method prior coupling clip shares refit fit_intercept response_public tolerate check helpers response_at loss"
)


def compile_plan(study: Study) -> Plan:
    """Return the releases of Algorithm 2 with the noise as printed; half of epsilon and delta for each kind."""
    p = check_parameters(with_settings(study, Parameters, SETTINGS, LACKS), Parameters)
    if p.radius_in_half_ranges is not None:
        raise UsageError(
            "radius_in_half_ranges is not for the published form: its bound is radius, the paper's eta, in units of the response"
        )
    check(study, p, named="radius")
    if p.coupling != Coupling.BALL or study.epsilon == math.inf or not study.delta > 0:
        raise UsageError("the published form has one ball, a finite epsilon and a positive delta")
    if p.sketch_rows * study.parties[0].rows > _MOST_NUMBERS:
        msg = f"sketch_rows must be at most {_MOST_NUMBERS // study.parties[0].rows} for so many rows: every party holds the whole matrix; 0 sends the columns themselves"
        raise UsageError(msg)
    if p.loss != SQUARED:
        raise UsageError("the published form has the squared loss alone")
    design = Printed(p, Coupling.BALL, math.inf, 0.0, math.inf, 0.0, 0.0, 0.0, widths_of(study))
    parties, rows = len(study.parties), study.parties[0].rows
    laplace = pick_scale(design.eta, parties, rows, p.rounds, study.epsilon, study.delta)
    matrix = sketch(study, p)
    # The leading singular value, which sets the noise, and the longest column, by which one value moves what is sent.
    norm = 1.0 if matrix is None else _leading(study.public_seed, p.sketch_rows, rows)
    longest = 1.0 if matrix is None else float(np.linalg.norm(matrix, axis=0).max())
    spread = math.sqrt(2 * (math.log(1 / study.delta) + study.epsilon / 2)) / (rows * study.epsilon / 2)
    unknown = tuple((unit, math.inf) for unit in ROWWISE)
    column = ScaledGaussian(p.sketch_rows or rows, unknown, norm * math.sqrt(parties * p.rounds) * spread)
    cost = gaussian_epsilon(study.delta, 2 * longest / column.multiplier)
    releases = [
        release
        for card in study.parties
        for release in (
            Release(PICK, card.name, PICK, NoisyMaximum(laplace), p.rounds),
            Release(COLUMN, card.name, COLUMN, column, min(p.rounds, design.width(card))),
        )
    ]
    return Plan(
        study,
        Split.VERTICAL,
        tuple(releases),
        notes=(settings_of(study, SETTINGS),),
        voids=voids(cost, study.epsilon),
        design=design,
    )


def pick(context: Context, request: PickRequest) -> Pick:
    """Subroutine A: v_i = +-((J a_i).q - a_i.y / n) with Laplace noise of a scale that follows G, the largest entry of this party's own gradient."""
    rows, study, design = context.table.n_rows, context.plan.study, context.design
    predictions, matrix = predictions_of(context, design, request) / rows, sketch(study, design.parameters)
    residual = (predictions if matrix is None else matrix.T @ predictions) - response_of(context, design) / rows
    columns = design.columns(study, context.card, context.index)
    gradient = scores(coded_columns(context), columns, residual) / grids(rows)[0]
    signed = np.concatenate([-gradient, gradient])
    choice = context.release(PICK, Vector(signed, max(float(np.abs(gradient).max()), 1e-300)))
    return Pick(choice, (), context.sign(choice))


def share(context: Context, request: ColumnRequest) -> ColumnReply:
    """Release the column that this party picked, or its sketch."""
    values = next_column(context, request)
    values, matrix = values / grids(values.size)[0], sketch(context.plan.study, context.design.parameters)
    return ColumnReply(context.release(COLUMN, Vector(values if matrix is None else matrix @ values, 1.0)))


#: The paper's own study.
TEMPLATE = Template(
    "Distributed Frank-Wolfe as printed (Algorithm 2), with sketched columns. It protects nobody and leaves the ball (THEORY.md, section 2).",
    COLUMNS,
    "record",
    """\
# Every party must hold the response, in the same order of rows and the same units: give it to the parties that lack it before this study.
response = "y"                      # every party's own label column, under `labels` in its party file
response_bound = 1.0                # bound on its absolute value: what is possible, not what you saw
radius = 1.0                        # eta: bound on the sum of absolute coefficients of scaled columns, in units of the response
method = "frank-wolfe"              # the paper's rounds
fit_intercept = false               # the paper has no constant
refit = 0.0                         # nor a last fit of the chosen columns
rounds = 20                         # T
sampled = 0                         # tau: columns that a party looks at per round; 0: all of them
sketch_rows = 100                   # m: rows of the sketch of shared columns; 0: no sketch
# radius_in_half_ranges, coupling, clip, shares, response_public, tolerate, check, prior and loss are not for this form""",
    delta=1e-05,
    calibration="published",
)

MODEL = replace(
    lasso.MODEL,
    name="lasso-published",
    outlook=None,
    template=TEMPLATE,
    compile_plan=compile_plan,
    steps=(Step(PICK, PickRequest, Pick, pick), Step(COLUMN, ColumnRequest, ColumnReply, share)),
    form=ModelForm(promises=False, defaults=SETTINGS, lacks=LACKS),
)
