"""The only file of this model that touches raw data: perturbed logistic fits, and predictions of the high-level rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.kernels.logistic import logistic_minimum
from unpooled.models.stacking.messages import MetaRequest, NoisyPredictions, Predictions, Weights
from unpooled.models.stacking.plan import BLOCK, GRID, HIGH, LOW, META, META_ROLE, PREDICTIONS, LowLevel
from unpooled.privacy.accounting import SAFETY
from unpooled.privacy.classes import code
from unpooled.privacy.mechanisms import Objective, ObjectivePerturbation
from unpooled.privacy.mechanisms import Vector as Statistic
from unpooled.privacy.unit import Split
from unpooled.protocol.context import Context
from unpooled.protocol.messages import Array, Entrusted, Nothing, digest
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.stacking.plan import StackingDesign

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

_KEPT = "weights"


def _fit(context: Context, name: str, rows: Matrix, labels: Vector, centre: Vector, *settings: bytes) -> Weights:
    """Release the minimiser of a perturbed objective over these rows."""
    mechanism = context.plan.release(context.name, name).mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    wanted = context.design.penalty(name, mechanism.rows, context.plan.study.epsilon)
    count = rows.shape[0]
    if count != mechanism.rows:
        raise PlanMismatch("the rows of this fit are not as many as the plan was calibrated for")

    def solve(b: Vector) -> Vector:
        # lambda/2 |w - u|^2 + Delta/2 |w|^2 is one square around u lambda / (lambda + Delta), whatever the two are.
        pulled = centre * (wanted / mechanism.penalty)
        # The tolerance is above all rounding, and is fixed before data: whether a fit reached it is not told, least of all before it is paid for.
        stop = mechanism.residual / 2
        return logistic_minimum(
            rows, labels, count * mechanism.penalty, linear=b, centre=pulled, tolerance=stop, best=True
        ).coefficients

    return Weights(context.release(name, Objective(solve, digest(*settings))))


def _labels(context: Context, chosen: NDArray[np.intp] | None) -> Vector:
    """The response as -1 and 1."""
    parameters = context.design.parameters
    labels = code(context.table[parameters.response], parameters.classes, parameters.response)
    return labels if chosen is None else labels[chosen]


def _own(context: Context) -> tuple[StackingDesign, LowLevel]:
    design = context.design
    block = design.block(context.name)
    if block is None:
        msg = f"party {context.name!r} fits no low-level model in this plan"
        raise PlanMismatch(msg)
    return design, block


def _part(context: Context, name: str) -> NDArray[np.intp] | None:
    design: StackingDesign = context.design
    return design.part(context.table.n_rows, name, context.plan.study.public_seed)


def fit_block(context: Context, request: Nothing) -> Weights:  # noqa: ARG001 - the request is no more than its name
    """Release this party's low-level model."""
    _, block = _own(context)
    chosen = _part(context, LOW)
    centre = np.array(block.centre) if block.centre else np.zeros(block.size)
    reply = _fit(context, BLOCK, block.rows(context.table, chosen), _labels(context, chosen), centre)
    context.keep(_KEPT, reply.weights.values.numpy())
    return reply


def _probabilities(context: Context) -> Vector:
    """Of the high-level rows, by the low-level model that this party released."""
    _, block = _own(context)
    weights = context.kept(_KEPT)
    return np.asarray(expit(block.rows(context.table, _part(context, HIGH)) @ weights))


def predict(context: Context, request: Nothing) -> Predictions:  # noqa: ARG001
    """Probabilities for a trusted coordinator."""
    if not context.plan.study.trusts(META_ROLE):
        raise PlanMismatch("predictions in the clear belong to a plan that trusts the high level with them")
    return Predictions(Entrusted(META_ROLE, Array.of(_probabilities(context))))


def predict_noisily(context: Context, request: Nothing) -> NoisyPredictions:  # noqa: ARG001
    """Probabilities on a grid, with noise."""
    context.planned(PREDICTIONS)  # refuses, before anything is computed, where the plan has none
    return NoisyPredictions(
        context.release(PREDICTIONS, Statistic(np.trunc(_probabilities(context) * GRID).astype(np.int64)))
    )


def fit_meta(context: Context, request: MetaRequest) -> Weights:
    """Release the high-level model, learned from predictions of this party's high-level rows."""
    design = context.design
    if context.name != design.holder:
        raise PlanMismatch("the high-level model is learned elsewhere, or not at all, in this plan")
    chosen = _part(context, HIGH)
    labels = _labels(context, chosen)
    given = [array.numpy() for array in request.features]
    if len(given) != len(design.blocks) or any(array.dtype != np.float64 for array in given):
        raise ProtocolError("the high-level model needs one real vector of each low-level model")
    if design.split is Split.HORIZONTAL:
        for weights, block in zip(given, design.blocks, strict=True):
            if weights.shape != (block.size,) or not (np.abs(weights) < LARGEST).all():
                raise ProtocolError(
                    "weights of another size than the low-level models have, or that are no released numbers"
                )
        given = [expit(block.rows(context.table) @ w) for block, w in zip(design.blocks, given, strict=True)]
    elif any(array.shape != labels.shape for array in given):
        raise ProtocolError("predictions of another number of rows than the high level has")
    features = meta_rows(given, intercept=design.parameters.fit_intercept)
    settings = digest(*(array.data for array in request.features))
    return _fit(context, META, features, labels, np.zeros(features.shape[1]), settings)


def meta_rows(probabilities: list[Vector], *, intercept: bool) -> Matrix:
    """2 p - 1 of every low-level model, and a constant, divided by the square root of their number: rows of norm at most 1.

    Whatever is given is clipped first: it may come from a coordinator, and a row's length must not depend on its honesty.
    """
    columns = [2 * np.clip(np.nan_to_num(p, nan=0.5), 0.0, 1.0) - 1 for p in probabilities]
    if intercept:
        columns.append(np.ones(columns[0].size))
    return np.asarray(np.column_stack(columns) * ((1 - SAFETY) / np.sqrt(len(columns))))


#: Weights beyond this are nobody's: their products with rows would overflow.
LARGEST = 1e90

STEPS = (
    Step(BLOCK, Nothing, Weights, fit_block),
    Step("entrust", Nothing, Predictions, predict),
    Step(PREDICTIONS, Nothing, NoisyPredictions, predict_noisily),
    Step(META, MetaRequest, Weights, fit_meta),
)
