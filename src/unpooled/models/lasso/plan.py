"""Plan of a LASSO study: T picks and scores per party, and the columns that the iterate needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.errors import UsageError
from unpooled.models.lasso.declared import Coupling, Parameters, check, check_bound
from unpooled.privacy.accounting import SAFETY, budget_rho
from unpooled.privacy.bounds import Coding
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.mechanisms import Block, GaussianRelease, NoisyChoice, Reach, ScaledGaussian
from unpooled.privacy.plan import Card, Plan, Release, Study, check_parameters
from unpooled.privacy.sensitivity import column_moments
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import ROWWISE, Adjacency, Split, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.models.lasso.messages import Term

MEAN, PICK, SCORE, COLUMN, REFIT = "mean", "pick", "score", "column", "refit"
#: Products of two grids, summed over the rows, must stay exact in float64.
_EXACT_BITS = 53
RESPONSE_KNOWN = Sentence(
    "lasso.response-known",
    "The response at the parties: every party knows it. The guarantee for a whole record covers it; the guarantee for one value is for the "
    "declared columns only.",
)
#: Weights of the response, the constant and the released columns in a column's moments: squares that add up to at most 1 (L.5).
RESPONSE_WEIGHT, CONSTANT_WEIGHT, COLUMNS_WEIGHT = 0.5, 0.25, 0.825
#: Where in the moments the products with the released columns begin.
LEADING = 3
#: Grid of the response's mean, and the part of the budget that pays for it.
MEAN_GRID, _MEAN_SHARE = 1 << 20, 0.02


@dataclass(frozen=True)
class LassoDesign:
    """A study, understood."""

    parameters: Parameters
    coupling: Coupling
    #: The largest C whose cost in picks is worth its smaller bias.
    ceiling: float
    #: Noise of a released column, in coded units, and of picks: Gumbel scale per unit of sensitivity.
    column_scale: float
    choice_epsilon: float
    score_multiplier: float
    #: Noise of a column's moments, and of the response's mean, per unit of sensitivity.
    refit_multiplier: float
    mean_multiplier: float
    #: How many coded columns each party has.
    widths: Mapping[str, int]
    #: Whether iterates stay in the ball.
    feasible: ClassVar[bool] = True

    @property
    def refits(self) -> bool:
        """Return True if the coefficients of the chosen columns are fitted anew at the end."""
        return self.parameters.refit > 0

    @property
    def centres(self) -> bool:
        """Return True if there is a constant in addition to the columns."""
        return self.parameters.fit_intercept

    @property
    def eta(self) -> float:
        """Return the bound on the sum of absolute coefficients, in units of the response: one half range of it where none is named.

        Coded columns lie in [-1, 1], so that predictions of a ball of one half range lie in a range as wide as the declared one.
        """
        bound = self.parameters.bound
        return self.parameters.response_bound if bound is None else bound

    @property
    def longest(self) -> float:
        """Return the largest sum of absolute coefficients that an iterate can have."""
        return self.eta * (1 + 1e-9)

    @property
    def length(self) -> int | None:
        """Return the length of a released column, if it is not the number of rows."""
        return None

    @property
    def slots(self) -> int:
        """Return the most columns that can be released in all."""
        rounds = self.parameters.rounds * (1 if self.coupling is Coupling.BALL else len(self.widths))
        return min(rounds, sum(self.widths.values()))

    @property
    def competes(self) -> bool:
        """Return True if only the best pick of a round steps and is shared."""
        return self.coupling is Coupling.BALL

    def width(self, card: Card) -> int:
        """Return the number of coded columns of a party."""
        return self.widths[card.name]

    def sampled(self, card: Card) -> int:
        """Return the number of a party's columns that it looks at per round."""
        return min(self.parameters.sampled or self.width(card), self.width(card))

    def columns(self, study: Study, card: Card, t: int) -> NDArray[np.intp] | None:
        """Which ones in round t: public randomness, independent of all values; None: all of them."""
        width, count = self.width(card), self.sampled(card)
        if count == width:
            return None
        place = [c.name for c in study.parties].index(card.name)
        return np.sort(np.random.default_rng((study.public_seed, 4, t, place)).choice(width, count, replace=False))

    def picked(self, study: Study, card: Card, t: int, choice: int) -> tuple[int, float]:
        """Return (coded column, sign of the step) of an index among the 2 tau signed columns."""
        columns, count = self.columns(study, card, t), self.sampled(card)
        return choice % count if columns is None else int(columns[choice % count]), 1.0 if choice < count else -1.0

    def clip(self, iterate: Sequence[Term]) -> float:
        """C of a round: eta bounds every true prediction, 2 sigma |x|_2 is about where those of noisy columns end."""
        if self.parameters.clip:
            return self.parameters.clip
        end = 2 * self.column_scale * math.sqrt(math.fsum(term.value**2 for term in iterate))
        return max(self.eta, min(end, self.ceiling))

    def radius(self, study: Study) -> float:
        """Return the radius of one step: the ball's, or an equal part of it for each party."""
        return self.eta / (len(study.parties) if self.coupling is Coupling.BLOCKS else 1)

    def step(self, study: Study, t: int) -> float:
        """gamma_t = 2 / (p t + 2), p the smallest inclusion probability of a column."""
        p = min(self.sampled(card) / self.width(card) for card in study.parties)
        return 2 / (p * t + 2)


def clip_ceiling(response_bound: float, rows: int, choice_epsilon: float) -> float:
    """Return the C at which the Gumbel scale of a pick, 4 (C + Y) / (n eps0), is 1/300 of Y, a tenth or so of a typical score.

    Predictions carry the noise of the released columns. Clipping them tightly biases them, which is what limits accurate picks; clipping
    them loosely makes picks noisier. Simulations (`experiments/lasso/private.py`) are flat around this value.
    """
    return response_bound * rows * choice_epsilon / 1200 - response_bound


def widths_of(study: Study) -> dict[str, int]:
    """Return the number of coded columns of each party."""
    return {card.name: len(Coding(card.columns, 1).attribute) for card in study.parties}


def design_of(study: Study) -> LassoDesign:
    """Return the checked design that the study asks for (Theorem L.3)."""
    p = check_parameters(study, Parameters)
    check_bound(p)
    check(study, p)
    if p.sketch_rows:
        raise UsageError("sketch_rows belongs to another form of the model: a sketch saves bytes and no noise")
    coupling, widths = Coupling(p.coupling), widths_of(study)
    silent = LassoDesign(p, coupling, 0.0, 0.0, math.inf, 0.0, 0.0, 0.0, widths)
    if study.epsilon == math.inf:
        return silent
    rho = budget_rho(study.epsilon, study.delta) * (1 - SAFETY)
    mean = rho * _MEAN_SHARE if p.fit_intercept else 0.0
    refit, rest = (rho - mean) * p.refit, (rho - mean) * (1 - p.refit)
    columns, picks, scores = (rest * share for share in p.shares)
    if coupling is Coupling.BLOCKS:
        columns, picks, scores = columns / (1 - p.shares[2]), picks / (1 - p.shares[2]), 0.0
    record = study.unit == Unit.RECORD
    # How many picks and scores, and how many columns, one unit is part of.
    touched = len(widths) * p.rounds if record else p.rounds
    shared = silent.slots if record else _per_value(study)
    epsilon = math.sqrt(8 * picks / touched)
    return replace(
        silent,
        ceiling=clip_ceiling(p.response_bound, study.parties[0].rows, epsilon),
        column_scale=2 * math.sqrt(shared / (2 * columns)),
        choice_epsilon=epsilon,
        score_multiplier=math.sqrt(touched / (2 * scores)) if scores else 0.0,
        refit_multiplier=math.sqrt(shared / (2 * refit)) if refit else 0.0,
        mean_multiplier=math.sqrt(1 / (2 * mean)) if mean else 0.0,
    )


def grids(rows: int) -> tuple[int, int]:
    """Ends of the grids of coded columns and of what they are multiplied by: powers of two whose product times n is at most 2^53."""
    bits = _EXACT_BITS - math.ceil(math.log2(rows))
    first = min(bits // 2, 20)
    return 1 << first, 1 << min(bits - first, 24)


def _moments(design: LassoDesign, rows: int) -> GaussianRelease:
    """Return the products of one column with the response, itself, the constant, and every released column (L.5)."""
    first, second = grids(rows)
    distance = column_moments(0.0, 1.0, 1.0, Adjacency.REPLACE, may_be_absent=False) * first * second
    size = design.slots + LEADING
    return _gaussian(size, Reach(distance, size), design.refit_multiplier)


def _gaussian(size: int, either: Reach, multiplier: float) -> GaussianRelease:
    """Return a release of integers that either unit moves by ``either``, with noise of ``multiplier`` times its distance; 0 is no noise."""
    block, reach = Block(size, 1.0), dict.fromkeys(ROWWISE, either)
    if not multiplier:
        return GaussianRelease((block,), tuple(reach.items()), 0.0)
    return GaussianRelease.calibrated((block,), reach, Unit.RECORD, 1 / multiplier)


def shortened(columns: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return (the released columns divided by the norm of their longest row, that norm): rows of norm at most 1, whatever the numbers are."""
    top = float(np.abs(columns).max(initial=0.0))
    if not top:
        return columns, 1.0
    scaled = columns / top  # squares of these neither overflow nor, where it matters, underflow
    norm = float(np.sqrt(np.square(scaled).sum(axis=1).max())) * (1 + 2.0**-40)
    return scaled / norm, top * norm


def _per_value(study: Study) -> int:
    """Return the most coded columns that one value of a person moves (Theorem L.1)."""
    return max(
        2 if column.categories is not None or column.missing == "indicator" else 1
        for card in study.parties
        for column in card.columns
    )


def compile_plan(study: Study) -> Plan:
    """Return the releases of a LASSO study (Theorem L.2)."""
    design = design_of(study)
    rounds, rows = design.parameters.rounds, study.parties[0].rows
    ball = design.coupling is Coupling.BALL
    column = _gaussian(rows, Reach(2.0 * grids(rows)[0], 1), design.column_scale / 2)
    # A public response plays no part in a record's guarantee, which is then none.
    record_epsilon = math.inf if design.parameters.response_public else design.choice_epsilon
    choice = NoisyChoice(((Unit.RECORD, record_epsilon), (Unit.ATTRIBUTE, design.choice_epsilon)), Unit(study.unit))
    mu = 1 / design.score_multiplier if design.score_multiplier else math.inf
    score = ScaledGaussian(1, tuple((unit, mu) for unit in ROWWISE), design.score_multiplier)
    moments = _moments(design, rows) if design.refits else None
    shared = Exposure(per_value=_per_value(study), together=design.slots)
    releases: list[Release] = []
    if design.centres:  # everybody has the same response: one party tells its mean
        mean = _gaussian(1, Reach(2.0 * MEAN_GRID, 1), design.mean_multiplier)
        releases.append(Release(MEAN, study.parties[0].name, MEAN, mean))
    for card in study.parties:
        releases.append(Release(PICK, card.name, PICK, choice, rounds))
        if ball:
            releases.append(Release(SCORE, card.name, PICK, score, rounds))
        count = min(rounds, design.width(card))
        releases.append(Release(COLUMN, card.name, COLUMN, column, count, shared))
        if moments:
            releases.append(Release(REFIT, card.name, REFIT, moments, count, shared))
    return Plan(
        study,
        Split.VERTICAL,
        tuple(releases),
        not_protected=(
            Sentence("lasso.response-public", "The response, which every party knows and the study declares public.")
            if design.parameters.response_public
            else RESPONSE_KNOWN,
        ),
        assumptions=(
            Sentence(
                "lasso.one-shares",
                "In each round at most one party shares a column. Every party checks the signed scores of the others before it shares.",
            ),
        )
        if ball
        else (),
        design=design,
    )
