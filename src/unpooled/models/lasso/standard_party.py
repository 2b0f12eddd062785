"""Computations of a party in the default form. Every number is a function of one row and of public values, and bounded whatever those are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import ProtocolError
from unpooled.kernels.moments import add_gram
from unpooled.linear.standard import WIDEST
from unpooled.models.lasso.declared import LARGEST
from unpooled.models.lasso.party import coded_columns, response_of
from unpooled.models.lasso.plan import grids, shortened
from unpooled.models.lasso.standard_messages import (
    AxisReply,
    AxisRequest,
    ChooseReply,
    ChooseRequest,
    CrossingReply,
    CrossingRequest,
    ProductsReply,
    ProductsRequest,
    Standards,
    StandardSumsReply,
)
from unpooled.models.lasso.standard_plan import AXIS, AXIS_CAP, CAP, CHOOSE, CROSSING, PAIR, PRODUCTS, SUMS
from unpooled.privacy.mechanisms import Scores
from unpooled.privacy.mechanisms import Vector as Statistic
from unpooled.protocol.messages import Nothing
from unpooled.protocol.registry import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.lasso.standard_plan import StandardDesign
    from unpooled.protocol.context import Context

    Floats = NDArray[np.float64]

#: Public numbers of a request are below this, so that no number of a row overflows.
_LARGEST = 1e6
#: Steps of a product of a column and the response, per unit.
_PAIR_STEPS = 1024.0
#: Rows that are standardised at a time.
_BLOCK = 1 << 14


def _numbers(standards: Standards, columns: int) -> tuple[Floats, Floats, tuple[float, float]]:
    """Return (middles, widths, those of the response) of a request; refuse another count of numbers, or wild ones."""
    middle, width = np.array(standards.middle, dtype=float), np.array(standards.width, dtype=float)
    numbers = np.concatenate([middle, width, standards.response])
    fits = middle.size == width.size == columns and bool((np.abs(numbers) <= _LARGEST).all())
    if not fits or not (width >= 1 / _LARGEST).all() or not standards.response[1] >= 1 / _LARGEST:
        msg = f"a request over standardised columns carries {columns} finite middles and positive deviations"
        raise ProtocolError(msg)
    return middle, width, standards.response


def _chosen(context: Context[StandardDesign], columns: Sequence[int], count: int | None = None) -> list[int]:
    """Return the columns of a request: distinct ones that the party has, in the number that the plan keeps."""
    design = context.design
    width = design.widths[context.name]
    if len(set(columns)) != len(columns) or not all(0 <= j < width for j in columns):
        raise ProtocolError("columns that are named twice, or that this party does not have")
    if count is not None and len(columns) != count:
        raise ProtocolError("moments are of as many columns as the plan keeps")
    return list(columns)


def _response(context: Context, numbers: tuple[float, float]) -> Floats:
    """Return the standardised response, clipped."""
    coded = response_of(context, context.design) / context.design.parameters.response_bound
    return np.asarray(np.clip((coded - numbers[0]) / numbers[1], -CAP, CAP))


def sums(context: Context[StandardDesign], request: Nothing) -> StandardSumsReply:  # noqa: ARG001 - the request is no more than its name
    """Release sums and sums of squares, of the columns and, at the first party, of the response."""
    context.planned(SUMS)
    design = context.design
    g, parts = grids(context.table.n_rows)[0], []
    if not design.mean_only:
        coded = coded_columns(context)
        found = [coded.column(j) for j in range(design.widths[context.name])]
        parts += [np.array([f(values) for values in found]) for f in (np.sum, _square)]
    if context.name == design.parties[0]:
        own = np.trunc(response_of(context, design) / design.parameters.response_bound * g)
        parts.append(np.array([own.sum(), own @ own]))
    return StandardSumsReply(context.release(SUMS, Statistic(np.concatenate(parts).astype(np.int64))))


def _square(values: Floats) -> float:
    return float(values @ values)


def choose(context: Context[StandardDesign], request: ChooseRequest) -> ChooseReply:
    """Choose among the columns not taken yet by their products with the response, each row's clipped to +-PAIR (Theorem L.10)."""
    context.planned(CHOOSE)
    design = context.design
    width, g = design.widths[context.name], float(grids(context.table.n_rows)[0])
    taken = set(_chosen(context, request.taken))
    if not len(taken) < design.kept[context.name]:
        raise ProtocolError("as many columns are chosen as the plan keeps")
    middle, wide, numbers = _numbers(request.standards, width)
    response, coded = _response(context, numbers), coded_columns(context)
    scores = []
    for j in range(width):
        if j not in taken:
            values = np.clip((coded.column(j) / g - middle[j]) / wide[j], -CAP, CAP) * response
            scores.append(int(np.trunc(np.clip(values, -PAIR, PAIR) * _PAIR_STEPS).sum()))
    given = Scores(np.array(scores, dtype=np.int64), int(2 * PAIR * _PAIR_STEPS), signed=True)
    return ChooseReply(context.release(CHOOSE, given))


def _rows(context: Context, columns: list[int], middle: Floats, width: Floats, grid: int) -> Floats:
    """Standardised rows of these columns as floats that hold integers; what is shortened later need not be clipped now."""
    coded, g = coded_columns(context), float(grids(context.table.n_rows)[0])
    out = np.empty((context.table.n_rows, len(columns)), order="F")
    for at, (j, centre, wide) in enumerate(zip(columns, middle.tolist(), width.tolist(), strict=True)):
        out[:, at] = np.trunc(np.clip((coded.column(j) / g - centre) / wide, -WIDEST, WIDEST) * grid)
    return out


def _shortened(rows: Floats, response: Floats, grid: int, longest: int, clip: int) -> Floats:
    """Return rows of integers shortened to ``longest``, and last the response by the same factor, clipped, in steps of the grid.

    A row that rounding left too long cannot be, and would count as nothing. Squares are exact: at most 2^53, for grids are at most 2^20.
    """
    count = rows.shape[1]
    factor = np.minimum(1.0, longest / np.sqrt(np.maximum(_lengths(rows), 1.0)) * (1 - 2.0**-40))
    out = np.empty((response.size, count + 1), order="F")
    out[:, :count] = np.trunc(rows * factor[:, None])
    out[:, count] = np.trunc(np.clip(response * factor * grid, -clip, clip))
    out[_lengths(out[:, :count]) > float(longest) ** 2] = 0.0
    return out


def _lengths(rows: Floats) -> Floats:
    """Return the squared lengths of rows of integers, column by column."""
    total = np.zeros(rows.shape[0])
    for column in rows.T:
        total += column * column
    return total


def products(context: Context[StandardDesign], request: ProductsRequest) -> ProductsReply:
    """Release second moments of shortened rows: diagonal, above it, products with the response in units of its clip over R."""
    context.planned(PRODUCTS)
    design = context.design
    name, grid = context.name, design.grid(context.name)
    columns = _chosen(context, request.columns, design.kept[name])
    middle, width, numbers = _numbers(request.standards, len(columns))
    rows, response = _rows(context, columns, middle, width, grid), _response(context, numbers)
    count, (longest, clip) = len(columns), design.longest(name)
    total = np.zeros((count + 1, count + 1), dtype=np.int64)
    for start in range(0, response.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        out = _shortened(rows[part], response[part], grid, longest, clip)
        out[:, count] = np.clip(np.trunc(out[:, count] * (longest / clip)), -longest, longest)
        add_gram(out, longest, total)
    above = total[:count, :count][np.triu_indices(count, 1)]
    statistic = np.concatenate([total.diagonal()[:count], above, total[:count, count]])
    return ProductsReply(context.release(PRODUCTS, Statistic(statistic)))


def _axis(context: Context[StandardDesign], request: AxisRequest) -> Floats:
    """Return the rows' scores along a direction, clipped to AXIS_CAP, in steps of the columns' grid."""
    design = context.design
    columns = _chosen(context, request.columns, design.kept[context.name])
    middle, width, _ = _numbers(request.standards, len(columns))
    direction = np.array(request.direction, dtype=float)
    if direction.size != len(columns) or not (np.abs(direction) <= _LARGEST).all():
        raise ProtocolError("a direction has a finite number for each of the columns")
    grid = design.grid(context.name)
    rows, scores = _rows(context, columns, middle, width, grid), np.zeros(context.table.n_rows)
    for j, part in enumerate(direction.tolist()):  # one after the other, so that a score does not depend on its place
        scores += rows[:, j] * (part / grid)
    return np.asarray(np.trunc(np.clip(scores / AXIS_CAP, -1, 1) * grids(context.table.n_rows)[0]))


def axis(context: Context, request: AxisRequest) -> AxisReply:
    """Release the rows' scores along a direction, each with noise."""
    context.planned(AXIS)
    return AxisReply(context.release(AXIS, Statistic(_axis(context, request).astype(np.int64))))


def crossing(context: Context, request: CrossingRequest) -> CrossingReply:
    """Release the products of the exact scores with the others' released ones, whose rows are divided by the longest."""
    context.planned(CROSSING)
    others = request.others.numpy()
    count = len(context.design.parties) - 1
    if others.shape != (context.table.n_rows, count) or others.dtype != np.float64 or not (np.abs(others) < LARGEST).all():
        raise ProtocolError("the others' scores are one released number for every row and party")
    factors = np.trunc(shortened(others)[0] * grids(context.table.n_rows)[1])
    own = _axis(context, request.axis)
    return CrossingReply(context.release(CROSSING, Statistic((own @ factors).astype(np.int64))))


STANDARD_STEPS = (
    Step(SUMS, Nothing, StandardSumsReply, sums),
    Step(CHOOSE, ChooseRequest, ChooseReply, choose),
    Step(PRODUCTS, ProductsRequest, ProductsReply, products),
    Step(AXIS, AxisRequest, AxisReply, axis),
    Step(CROSSING, CrossingRequest, CrossingReply, crossing),
)
