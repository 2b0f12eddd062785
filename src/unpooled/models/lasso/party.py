"""The only file of this model that touches raw data: scores of columns, picks among them, and released columns.

Scores are exact integers: coded columns and residuals are truncated to grids so coarse that float64 BLAS adds their products
exactly, and so fine that the noise hides it. One row moves a score by at most twice the product of the grids' ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from unpooled.errors import DataError, PlanMismatch, ProtocolError
from unpooled.models.lasso.messages import Claim, ColumnReply, Pick, PickRequest, ShareRequest
from unpooled.models.lasso.plan import COLUMN, GRID, PICK, SCORE, Coupling, Setup, setup, sketch
from unpooled.privacy.table import Table
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import Released
from unpooled.protocol.roles import Context, Step, signed_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: Products of two grids and n rows must stay exact in float64.
_EXACT_BITS = 53
#: Coded columns of a table, so that a round does not code them again; forgotten with the table.
_CODED: WeakKeyDictionary[Table, dict[Any, Matrix]] = WeakKeyDictionary()


def grids(rows: int) -> tuple[int, int]:
    """Ends of the grids of coded columns and of residuals: powers of two whose product times n is at most 2^53."""
    bits = _EXACT_BITS - math.ceil(math.log2(rows))
    first = min(bits // 2, 20)
    return 1 << first, 1 << min(bits - first, 24)


def _coded(context: Context, asked: Setup, grid: int) -> Matrix:
    """The party's coded columns on this grid, as floats that hold integers."""
    cache = _CODED.setdefault(context.table, {})
    key = (context.card.columns, grid)
    if key not in cache:
        coding = asked.coding(context.card, grid)
        out = np.empty((context.table.n_rows, len(coding.attribute)), order="F")
        at = 0
        for block in context.table.blocks(coding.names):
            coding.code_into(block, out[at : at + block[0].size])
            at += block[0].size
        cache[key] = out
    return cache[key]


def _response(context: Context, asked: Setup) -> Vector:
    values = context.table[asked.parameters.response]
    if values.dtype == object:
        msg = f"the response {asked.parameters.response!r} holds text where numbers are needed: convert it"
        raise DataError(msg)
    bound = asked.parameters.response_bound
    return np.asarray(np.clip(values, -bound, bound))


def _name(context: Context, party: str, column: int) -> str:
    """Under which name a received column is kept."""
    places = [card.name for card in context.plan.study.parties]
    if party not in places:
        msg = f"the study has no party {party!r}"
        raise ProtocolError(msg)
    return f"column_{places.index(party)}_{column}"


def _predictions(context: Context, request: PickRequest) -> Vector:
    """sum_j x_j a_j over the released columns of the iterate, which this party keeps as they arrive."""
    rows = setup(context.plan.study).parameters.sketch_rows or context.table.n_rows
    for new in request.new:
        values = new.values.numpy()
        if values.shape != (rows,) or values.dtype != np.float64 or not np.isfinite(values).all():
            raise ProtocolError("a shared column of another length than the data, or with values that are no numbers")
        context.keep(_name(context, new.party, new.column), values)
    total = np.zeros(rows)
    for term in request.iterate:
        if not math.isfinite(term.value):
            raise ProtocolError("an iterate with a coefficient that is no number")
        total += term.value * context.party.keeper.kept(context.plan.hash, _name(context, term.party, term.column))
    return total


def pick(context: Context, request: PickRequest) -> Pick:
    """Choose among the signed columns of this round by the exponential mechanism; where parties compete, release its score too."""
    asked = setup(context.plan.study)
    if asked.published:
        return _pick_as_published(context, asked, request)
    rows = context.table.n_rows
    end = asked.clip(request.iterate)
    clipped = np.clip(_predictions(context, request), -end, end) / rows
    # How large an entry of g = clip(q) - y / n can be: from released and declared values only.
    largest = float(np.abs(clipped).max()) + asked.parameters.response_bound / rows
    columns = asked.columns(context.plan.study, context.card, context.index)
    column_grid, grid = grids(rows)
    step = largest / grid
    residual = np.trunc((clipped - _response(context, asked) / rows) / step)
    scores = (_coded(context, asked, column_grid)[:, columns].T @ residual).astype(np.int64)
    # Only a public response may set the noise: otherwise its scale would give the response away.
    reach = int(np.abs(residual).max()) if asked.parameters.response_public else grid
    signed = np.concatenate([-scores, scores])  # a step up where the gradient is negative
    choice = context.choose(PICK, signed, max(1, 2 * column_grid * reach))
    index = int(choice.values.numpy()[0])
    score: tuple[Released, ...] = ()
    if asked.coupling is Coupling.BALL:
        unit = step / column_grid
        value = np.array([signed[index] * unit])
        score = (context.release(SCORE, value, sensitivity=2 * column_grid * max(1, reach) * unit),)
    return Pick(choice, score, context.sign(choice, *score))


def _pick_as_published(context: Context, asked: Setup, request: PickRequest) -> Pick:
    """Line 10 as it is meant: v_i = (J a_i).q - a_i.y / n with Laplace noise of a scale that follows the data's own G."""
    rows, study = context.table.n_rows, context.plan.study
    columns = asked.columns(study, context.card, context.index)
    own = _coded(context, asked, GRID)[:, columns] / GRID
    matrix = sketch(study, asked.parameters)
    predictions = _predictions(context, request) / rows
    gradient = (own if matrix is None else matrix @ own).T @ predictions - own.T @ _response(context, asked) / rows
    signed = np.concatenate([-gradient, gradient])
    choice = context.release(PICK, signed, sensitivity=max(float(np.abs(gradient).max()), 1e-300))
    return Pick(choice, (), context.sign(choice))


def share(context: Context, request: ShareRequest) -> ColumnReply:
    """Release a column that this party picked and, where parties compete, that won its round. Each column is released once."""
    plan, asked = context.plan, setup(context.plan.study)
    own = _winner(context, asked, request).picked
    columns = asked.columns(plan.study, context.card, request.round)
    if not 0 <= own < 2 * columns.size or not 0 <= request.round < asked.parameters.rounds:
        raise ProtocolError("a claim beyond the columns or the rounds of the plan")
    column, _ = asked.picked(plan.study, context.card, request.round, own)
    context.planned(COLUMN)
    _once(context, column)
    if asked.published:
        values = _coded(context, asked, GRID)[:, column] / GRID
        matrix = sketch(plan.study, asked.parameters)
        return ColumnReply(context.release(COLUMN, values if matrix is None else matrix @ values, sensitivity=1.0))
    statistic = _coded(context, asked, GRID)[:, column].astype(np.int64)
    return ColumnReply(context.release(COLUMN, statistic))


def _winner(context: Context, asked: Setup, request: ShareRequest) -> Claim:
    """The own pick of the round, after everybody's signature and the order of the scores were checked."""
    plan, name = context.plan, context.party.name
    ball = asked.competes
    expected = [card.name for card in plan.study.parties] if ball else [name]
    if [claim.party for claim in request.claims] != expected or any(len(c.score) != ball for c in request.claims):
        msg = f"a column is shared for the signed picks of {', '.join(expected)}, in this order"
        raise PlanMismatch(msg)
    for claim in request.claims:
        # Its own key it knows; the others' are pinned by their cards (parties of one process pin none).
        pinned = plan.study.card(claim.party).key or claim.signed.identity
        key = context.party.identity.public if claim.party == name else pinned
        parts = signed_parts(plan, claim.party, PICK, request.round, (claim.choice, *claim.score))
        verify(key, claim.signed.signature, *parts)
    best = max(request.claims, key=lambda claim: claim.value)
    if best.party != name:
        msg = f"party {best.party!r} has the better score in this round: only its column is shared"
        raise PlanMismatch(msg)
    return best


def _once(context: Context, column: int) -> None:
    """Remember which request a column was released for; refuse another one."""
    keeper, name = context.party.keeper, f"shared_{column}"
    if keeper.has(context.plan.hash, name):
        if int(keeper.kept(context.plan.hash, name)[0]) != context.index:
            raise PlanMismatch("this column was released before: it is not released twice")
    else:
        context.keep(name, np.array([context.index]))


STEPS = (Step(PICK, PickRequest, Pick, pick), Step(COLUMN, ShareRequest, ColumnReply, share))
