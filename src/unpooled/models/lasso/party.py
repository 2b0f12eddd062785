"""The only file of this model that touches raw data: scores of columns, picks among them, and released columns.

Scores are exact integers: coded columns and residuals are truncated to grids so coarse that float64 BLAS adds their products
exactly, and so fine that the noise hides it. One row moves a score by at most twice the product of the grids' ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from unpooled.errors import DataError, PlanMismatch, ProtocolError
from unpooled.kernels.columns import Columns, scores
from unpooled.models.lasso.declared import LARGEST, LOGISTIC, Coupling, Parameters
from unpooled.models.lasso.messages import (
    Bid,
    ColumnReply,
    ColumnRequest,
    MeanReply,
    MomentsReply,
    Pick,
    PickRequest,
    RefitRequest,
    ReleasedColumn,
    Slot,
    Term,
)
from unpooled.models.lasso.plan import (
    COLUMN,
    COLUMNS_WEIGHT,
    CONSTANT_WEIGHT,
    LEADING,
    MEAN,
    MEAN_GRID,
    PICK,
    REFIT,
    RESPONSE_WEIGHT,
    SCORE,
    LassoDesign,
    grids,
    shortened,
)
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.mechanisms import Scores
from unpooled.privacy.mechanisms import Vector as Statistic
from unpooled.privacy.table import Table
from unpooled.protocol.context import Context, check_signed
from unpooled.protocol.messages import Nothing, Released
from unpooled.protocol.registry import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

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
