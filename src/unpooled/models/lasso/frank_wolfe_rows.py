"""The paper's rounds: T picks and scores per party, the columns that the iterate needs, and how a party computes them from its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from unpooled.errors import DataError, PlanMismatch, ProtocolError, UsageError
from unpooled.kernels.columns import Columns, scores
from unpooled.models.lasso.declared import LARGEST, LOGISTIC, Coupling, Parameters, check, check_bound
from unpooled.privacy.accounting import SAFETY, budget_rho
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.mechanisms import Block, GaussianRelease, NoisyChoice, Reach, ScaledGaussian, Scores
from unpooled.privacy.mechanisms import Vector as Statistic
from unpooled.privacy.plan import Card, Plan, Release, Study, check_parameters
from unpooled.privacy.sensitivity import column_moments
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Split, Unit
from unpooled.protocol.context import Context, check_signed
from unpooled.protocol.messages import Array, Nothing, Released, Signed
from unpooled.protocol.registry import Step
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


# --- Messages --------------------------------------------------------------------------------------------------------------
# Everything that may leave a party: noisy picks and their scores, columns with their moments, once each, and the response's mean.


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One non-zero coefficient of the current iterate, for a coded column of a party."""

    party: str
    column: int
    value: float


class ReleasedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column as it was released: sent to every party once."""

    party: str
    column: int
    values: Array


class MeanReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy mean of the response."""

    mean: Released


class PickRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The iterate, the response's released mean (0 without a constant), and the columns released since the last round."""

    iterate: tuple[Term, ...]
    new: tuple[ReleasedColumn, ...]
    middle: float = 0.0


class Pick(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which signed column a party picks, its noisy score where parties compete, and the party's signature under both."""

    choice: Released
    score: tuple[Released, ...]
    signed: Signed


class Bid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's signed pick of one round, as another party is shown it."""

    party: str
    choice: Released
    score: tuple[Released, ...]
    signed: Signed

    @property
    def picked(self) -> int:
        """Return the index that was chosen."""
        return int(self.choice.values.numpy()[0])

    @property
    def value(self) -> float:
        """Return the noisy score; 0 where parties do not compete."""
        return float(self.score[0].values.numpy()[0]) if self.score else 0.0


class ColumnRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the column that was picked in this round: the claims show that it won (all parties') or was picked (its own)."""

    round: int
    claims: tuple[Bid, ...]


class ColumnReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The released column."""

    column: Released


class Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A coded column of a party."""

    party: str
    column: int


class RefitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the moments of one of your released columns with all of them, in this order; and those you were not sent yet."""

    column: int
    order: tuple[Slot, ...]
    new: tuple[ReleasedColumn, ...]


class MomentsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noisy products with the response, with itself, and with every column of the order."""

    moments: Released


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Plan of a LASSO study: T picks and scores per party, and the columns that the iterate needs.

MEAN, PICK, SCORE, COLUMN, REFIT = "mean", "pick", "score", "column", "refit"
#: Products of two grids, summed over the rows, must stay exact in float64.
_EXACT_BITS = 53
RESPONSE_KNOWN = Sentence(
    "lasso.response-known",
    "The response at the parties: every party knows it. The guarantee for a whole record covers it; the guarantee for one value is for the "
    "declared columns only.",
)
#: Weights of the response, the constant and the released columns in a column's moments: squares that add up to at most 1 (L.5).
_TUNED = table("frank_wolfe")
RESPONSE_WEIGHT, CONSTANT_WEIGHT, COLUMNS_WEIGHT = _TUNED.response_weight, _TUNED.constant_weight, _TUNED.columns_weight
#: Where in the moments the products with the released columns begin.
LEADING = 3
#: Grid of the response's mean.
MEAN_GRID = 1 << 20


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
    mean = rho * _TUNED.mean_share if p.fit_intercept else 0.0
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


# --- The party's steps -----------------------------------------------------------------------------------------------------
# What touches raw data in these rounds: scores of columns, picks among them, and released columns.
#
# Scores are exact integers: coded columns and residuals are truncated to grids so coarse that float64 BLAS adds their products
# exactly, and so fine that the noise hides it. One row moves a score by at most twice the product of the grids' ends.

#: The declared columns of a table and their code, so that a round does not code them again; forgotten with the table.
_CODED: WeakKeyDictionary[Table, tuple[tuple[Column, ...], Columns]] = WeakKeyDictionary()


def coded_columns(context: Context) -> Columns:
    """Return the party's coded columns on the grid of scores: floats that hold integers. Sparse ones stay sparse."""
    table, columns = context.table, context.card.columns
    known = _CODED.get(table)
    if known is not None and (known[0] is columns or known[0] == columns):
        return known[1]
    coding = Coding(columns, grids(table.n_rows)[0])
    sparse = None if any(column.unfit_for_sparse for column in columns) else table.sparse(coding.names)
    if sparse is not None:
        coded = Columns.of(coding.code_sparse(sparse))
    else:
        out = np.empty((table.n_rows, len(coding.attribute)), order="F")
        at = 0
        for block in table.blocks(coding.names):
            coding.code_into(block, out[at : at + block[0].size])
            at += block[0].size
        coded = Columns.of(out)
    _CODED[table] = columns, coded
    return coded


class Parametrised(Protocol):
    """A design of either form."""

    @property
    def parameters(self) -> Parameters:
        """Return the parameters of the study."""


def response_of(context: Context, design: Parametrised) -> Vector:
    """Return the response, clipped to its bound."""
    values = context.table[design.parameters.response]
    if values.dtype == object:
        msg = f"the response {design.parameters.response!r} holds text where numbers are needed: convert it"
        raise DataError(msg)
    if (
        design.parameters.loss == LOGISTIC
    ):  # whatever a party holds: a function of the one value, so that nothing need be refused
        return np.where(values > 0, 1.0, -1.0)
    bound = design.parameters.response_bound
    return np.asarray(np.clip(values, -bound, bound))


def _name(context: Context, party: str, column: int) -> str:
    """Under which name a released column is kept."""
    widths = context.design.widths
    if party not in widths or not 0 <= column < widths[party]:
        msg = f"the study has no party {party!r} with a coded column {column}"
        raise ProtocolError(msg)
    return f"column_{list(widths).index(party)}_{column}"


def _columns(context: Context, places: Sequence[Slot | Term], new: tuple[ReleasedColumn, ...]) -> list[Vector]:
    """Return the released columns in these places. New ones are kept as they arrive, once it is sure that none is missing or wild."""
    rows = context.design.length or context.table.n_rows
    arrived = {}
    for shared in new:
        values = shared.values.numpy()
        if values.shape != (rows,) or values.dtype != np.float64 or not (np.abs(values) < LARGEST).all():
            raise ProtocolError(
                "a shared column of another length than the data, or with values that are no released numbers"
            )
        arrived[_name(context, shared.party, shared.column)] = values
    names = [_name(context, place.party, place.column) for place in places]
    found = [arrived[name] if name in arrived else context.kept(name) for name in names]
    for name, values in arrived.items():
        context.keep(name, values)
    return found


def mean(context: Context, request: Nothing) -> MeanReply:  # noqa: ARG001 - the request is no more than its name
    """Release the sum of the response, in grid steps."""
    context.planned(MEAN)
    design = context.design
    steps = np.trunc(response_of(context, design) / design.parameters.response_bound * MEAN_GRID).astype(np.int64)
    return MeanReply(context.release(MEAN, Statistic(steps.sum(keepdims=True))))


def predictions_of(context: Context, design: LassoDesign, request: PickRequest) -> Vector:
    """sum_j x_j a_j over the released columns of the iterate, which lies in the ball."""
    # A coefficient that is no number makes the sum none, which is not below the bound either.
    length = math.fsum(abs(term.value) for term in request.iterate)
    if not length <= design.longest:
        raise ProtocolError("an iterate outside the ball of the plan, or with a coefficient that is no number")
    if not abs(request.middle) <= design.parameters.response_bound:
        raise ProtocolError("a mean of the response beyond its bound, or that is no number")
    total = np.zeros(design.length or context.table.n_rows)
    for term, values in zip(request.iterate, _columns(context, request.iterate, request.new), strict=True):
        total += term.value * values
    return total


def pick(context: Context, request: PickRequest) -> Pick:
    """Choose among the signed columns of this round by the exponential mechanism; where parties compete, release its score too."""
    design = context.design
    if design.coupling is Coupling.BALL:
        context.affordable(PICK, SCORE)
    rows, predictions = context.table.n_rows, predictions_of(context, design, request)
    end = design.clip(request.iterate)
    if design.centres:  # what a constant of its own would make of them
        predictions -= predictions.mean()
    clipped = (np.clip(predictions, -end, end) + request.middle) / rows
    # How large an entry of g = clip(q) - y / n can be: from released and declared values only.
    largest = float(np.abs(clipped).max()) + design.parameters.response_bound / rows
    columns = design.columns(context.plan.study, context.card, context.index)
    column_grid, grid = grids(rows)
    step = largest / grid
    residual = np.trunc((clipped - response_of(context, design) / rows) / step)
    descents = -scores(coded_columns(context), columns, residual).astype(
        np.int64
    )  # a step up where the gradient is negative
    # Only a public response may set the noise: otherwise its scale would give the response away.
    reach = int(np.abs(residual).max()) if design.parameters.response_public else grid
    choice = context.release(PICK, Scores(descents, max(1, 2 * column_grid * reach), signed=True))
    index = int(choice.values.numpy()[0])
    score: tuple[Released, ...] = ()
    if design.coupling is Coupling.BALL:
        unit = step / column_grid
        descent = descents[index] if index < descents.size else -descents[index - descents.size]
        value = np.array([descent * unit])
        score = (context.release(SCORE, Statistic(value, 2 * column_grid * max(1, reach) * unit)),)
    return Pick(choice, score, context.sign(choice, *score))


def share(context: Context, request: ColumnRequest) -> ColumnReply:
    """Release a column that this party picked and, where parties compete, that won its round. Each column is released once."""
    return ColumnReply(context.release(COLUMN, Statistic(next_column(context, request).astype(np.int64))))


def next_column(context: Context, request: ColumnRequest) -> Vector:
    """Return the column that this request releases, in the integers of its code."""
    plan, design = context.plan, context.design
    own = _winner(context, design, request).picked
    if not 0 <= own < 2 * design.sampled(context.card) or not 0 <= request.round < design.parameters.rounds:
        raise ProtocolError("a claim beyond the columns or the rounds of the plan")
    column, _ = design.picked(plan.study, context.card, request.round, own)
    context.planned(COLUMN)
    values = coded_columns(context).column(column)
    _once(context, COLUMN, column)
    return values


def refit(context: Context, request: RefitRequest) -> MomentsReply:
    """Release the products of a released column, as it is, with the response, itself and every released column. Once for each."""
    design, rows = context.design, context.table.n_rows
    context.planned(REFIT)
    if request.column not in _marks(context, COLUMN):
        raise PlanMismatch("moments are released for columns that this party has released before, and for no others")
    if not 1 <= len(request.order) <= design.slots:
        raise ProtocolError("no columns, or more of them than the plan can release")
    released = np.column_stack(_columns(context, request.order, request.new))
    first, second = grids(rows)
    own = coded_columns(context).column(request.column)
    factors = np.zeros((rows, design.slots + LEADING), order="F")
    bound = design.parameters.response_bound
    factors[:, 0] = np.trunc(response_of(context, design) * (RESPONSE_WEIGHT / bound * second))
    factors[:, 1] = own * (second // first)
    factors[:, 2] = np.trunc(CONSTANT_WEIGHT * second)
    factors[:, LEADING : LEADING + len(request.order)] = np.trunc(shortened(released)[0] * (COLUMNS_WEIGHT * second))
    _once(context, REFIT, request.column)
    return MomentsReply(context.release(REFIT, Statistic((own @ factors).astype(np.int64))))


def _winner(context: Context, design: LassoDesign, request: ColumnRequest) -> Bid:
    """Return the own pick of the round, after everybody's signature and the order of the scores were checked."""
    plan, name = context.plan, context.name
    ball = design.competes
    expected = [card.name for card in plan.study.parties] if ball else [name]
    if [claim.party for claim in request.claims] != expected or any(len(c.score) != ball for c in request.claims):
        msg = f"a column is shared for the signed picks of {', '.join(expected)}, in this order"
        raise PlanMismatch(msg)
    for claim in request.claims:
        check_signed(context, claim.party, PICK, request.round, (claim.choice, *claim.score), claim.signed)
    best = max(request.claims, key=lambda claim: claim.value)
    if best.party != name:
        msg = f"party {best.party!r} has the better score in this round: only its column is shared"
        raise PlanMismatch(msg)
    return best


def _marks(context: Context, what: str) -> list[int]:
    """Return the columns that were released so far, in the order of their requests."""
    return context.kept(f"{what}s").tolist() if context.has(f"{what}s") else []


def _once(context: Context, what: str, column: int) -> None:
    """Mark the column as the next one released, just before it is; refuse one that was, and requests out of order.

    The order is the ledger's too: were the marks lost, it would show.
    """
    marks = _marks(context, what)
    if context.index > len(marks):
        raise PlanMismatch(
            "columns are asked for in order; if this one is the next, what this party keeps beside its ledger is lost"
        )
    if column in marks and marks.index(column) != context.index:
        raise PlanMismatch("this column was released before: it is not released twice, and neither are its moments")
    if context.index == len(marks):
        context.keep(f"{what}s", np.array([*marks, column]))
    elif marks[context.index] != column:
        raise PlanMismatch("another column was released under this number")


STEPS = (
    Step(MEAN, Nothing, MeanReply, mean),
    Step(PICK, PickRequest, Pick, pick),
    Step(COLUMN, ColumnRequest, ColumnReply, share),
    Step(REFIT, RefitRequest, MomentsReply, refit),
)
