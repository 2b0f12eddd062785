"""The only file of this model that touches raw data: perturbed logistic fits, and predictions of the high-level rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.models.stacking.declared import (
    BLOCK,
    GRID,
    HIGH,
    LOW,
    META,
    META_ROLE,
    PREDICTIONS,
    Noise,
    meta_rows,
)
from unpooled.models.stacking.low_level import PROBABILITIES, RANKED, RATE, SCORE, counted, release_of, score_of
from unpooled.models.stacking.plan import (
    CountsReply,
    MetaRequest,
    NoisyPredictions,
    Predictions,
    RankedRequest,
    Score,
    ScoresRequest,
    Weights,
    ranks_of,
)
from unpooled.privacy.classes import places
from unpooled.privacy.mechanisms import GaussianObjective, Objective, ObjectivePerturbation
from unpooled.privacy.mechanisms import Vector as Statistic
from unpooled.privacy.unit import Split
from unpooled.protocol.context import Context, check_signed
from unpooled.protocol.messages import Array, Entrusted, Nothing, digest
from unpooled.protocol.registry import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.stacking.low_level import LowLevel
    from unpooled.models.stacking.plan import StackingDesign

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Floats = NDArray[np.float64]

KEPT, KEPT_RANK = "weights", "rank"


def _fit(
    context: Context[StackingDesign],
    name: str,
    rows: Matrix,
    labels: NDArray[Any],
    centre: Vector,
    *settings: bytes,
    level: str = BLOCK,
) -> Weights:
    """Release the minimiser of a perturbed objective over these rows."""
    mechanism = context.plan.release(context.name, name).mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    law = Noise.GAUSSIAN if isinstance(mechanism, GaussianObjective) else Noise.GAMMA
    wanted = context.design.penalty(level, mechanism.rows, context.plan.study.epsilon, law)
    count = rows.shape[0]
    if count != mechanism.rows:
        raise PlanMismatch("the rows of this fit are not as many as the plan was calibrated for")

    outcomes = context.design.outcomes

    def solve(b: Vector) -> Vector:
        # lambda/2 |w - u|^2 + Delta/2 |w|^2 is one square around u lambda / (lambda + Delta), whatever the two are.
        pulled = centre * (wanted / mechanism.penalty)
        # The tolerance is above all rounding, and is fixed before data: whether a fit reached it is not told, least of all before it is paid for.
        stop = mechanism.residual / 2
        return outcomes.minimum(rows, labels, count * mechanism.penalty, linear=b, centre=pulled, tolerance=stop)

    return Weights(context.release(name, Objective(solve, (rows, labels, centre, *settings))))


def _labels(context: Context[StackingDesign], chosen: NDArray[np.intp] | None) -> NDArray[Any]:
    """Return the response as -1 and 1, or as places among several classes."""
    parameters = context.design.parameters
    labels = context.design.outcomes.coded(context.table[parameters.response], parameters.classes, parameters.response)
    labels = context.table.whole(np.asarray(labels))
    return labels if chosen is None else np.asarray(labels[chosen])


def _own(context: Context[StackingDesign]) -> tuple[StackingDesign, LowLevel]:
    design = context.design
    block = design.block(context.name)
    if block is None:
        msg = f"party {context.name!r} fits no low-level model in this plan"
        raise PlanMismatch(msg)
    return design, block


def _part(context: Context[StackingDesign], name: str) -> NDArray[np.intp] | None:
    design = context.design
    return design.part(context.table.n_rows, name, context.plan.study.public_seed)


def fit_block(context: Context, request: Nothing) -> Weights:  # noqa: ARG001 - the request is no more than its name
    """Release this party's low-level model."""
    _, block = _own(context)
    chosen = _part(context, LOW)
    centre = np.array(block.centre) if block.centre else np.zeros(block.numbers)
    reply = _fit(context, BLOCK, block.rows(context.table, chosen), _labels(context, chosen), centre)
    context.keep(KEPT, reply.weights.values.numpy())
    return reply


def score_columns(context: Context, request: Nothing) -> Score:  # noqa: ARG001
    """Release how far this party's columns tell the classes apart: their order alone is used."""
    context.planned(SCORE)
    design, block = _own(context)
    parameters = design.parameters
    labels = context.table.whole(places(context.table[parameters.response], parameters.classes, parameters.response))
    # Rows of length at most 1, whatever share the party will be given.
    rows = block.rows(context.table) / block.weight
    score = context.release(SCORE, Statistic(score_of(rows, labels, parameters.base_rates)))
    return Score(score, context.sign(score))


def fit_ranked(context: Context[StackingDesign], request: RankedRequest) -> Weights:
    """Release this party's low-level model, with the share of its rank."""
    design, study = context.design, context.plan.study
    _own(context)
    if not design.shares or [claim.party for claim in request.claims] != [card.name for card in study.parties]:
        raise PlanMismatch(
            "parties are ranked by the scores of all of them, in the order of the study, where the plan says so"
        )
    for claim in request.claims:
        check_signed(context, claim.party, SCORE, 0, (claim.score,), claim.signed)
        values = claim.score.values.numpy()
        if values.shape != (1,) or values.dtype != np.int64:
            raise ProtocolError("a score is one whole number")
    rank = ranks_of(request.claims)[context.name]
    block = design.ranked(study, context.name, rank)
    centre = np.array(block.centre) if block.centre else np.zeros(block.numbers)
    settings = digest(*(claim.score.values.data for claim in request.claims))
    reply = _fit(context, release_of(rank), block.rows(context.table), _labels(context, None), centre, settings)
    context.keep(KEPT, reply.weights.values.numpy())
    context.keep(KEPT_RANK, np.array([rank]))
    return reply


def _second(context: Context[StackingDesign]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return (which rows are of the second class, which rows there are: one that was left out is in no count)."""
    return _labels(context, None) > 0, context.table.blank(np.ones(context.table.n_rows, dtype=bool))


def count_second(context: Context, request: Nothing) -> CountsReply:  # noqa: ARG001
    """Release how many rows are of the second class."""
    context.planned(RATE)
    second, held = _second(context)
    return CountsReply(context.release(RATE, Statistic(np.array([np.count_nonzero(second & held)], dtype=np.int64))))


def count_scores(context: Context[StackingDesign], request: ScoresRequest) -> CountsReply:
    """Release how many rows of each class have a score in each cell, by the model that this party released."""
    context.planned(PROBABILITIES)
    design, block = _own(context)
    if not 0 < request.rate < 1:
        raise ProtocolError("a base rate lies between 0 and 1")
    weights = context.kept(KEPT)
    if design.shares:
        block = design.ranked(context.plan.study, context.name, int(context.kept(KEPT_RANK)[0]))
    second, held = _second(context)
    found = counted(block, block.rows(context.table)[held], second[held], weights, request.rate)
    return CountsReply(context.release(PROBABILITIES, Statistic(found)))


def _probabilities(context: Context) -> Floats:
    """Return probabilities of the high-level rows by this party's released low-level model: of the second of two classes, or of every class."""
    _, block = _own(context)
    chosen = _part(context, HIGH)
    found = block.predicted(block.rows(context.table, chosen), context.kept(KEPT))
    return context.table.blank(found, chosen)


def predict(context: Context, request: Nothing) -> Predictions:  # noqa: ARG001
    """Return probabilities for a trusted coordinator."""
    if not context.plan.study.trusts(META_ROLE):
        raise PlanMismatch("predictions in the clear belong to a plan that trusts the high level with them")
    return Predictions(Entrusted(META_ROLE, Array.of(_probabilities(context))))


def predict_noisily(context: Context, request: Nothing) -> NoisyPredictions:  # noqa: ARG001
    """Return probabilities on a grid, with noise."""
    context.planned(PREDICTIONS)  # refuses, before anything is computed, where the plan has none
    probabilities = _probabilities(context).ravel()
    return NoisyPredictions(context.release(PREDICTIONS, Statistic(np.trunc(probabilities * GRID).astype(np.int64))))


def fit_meta(context: Context[StackingDesign], request: MetaRequest) -> Weights:
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
            if weights.shape != (block.numbers,) or not (np.abs(weights) < LARGEST).all():
                raise ProtocolError(
                    "weights of another size than the low-level models have, or that are no released numbers"
                )
        given = [block.predicted(block.rows(context.table), w) for block, w in zip(design.blocks, given, strict=True)]
    elif any(array.shape != (labels.size, *design.each) for array in given):
        raise ProtocolError("predictions of another number of rows than the high level has")
    features = context.table.blank(
        meta_rows(given, intercept=design.parameters.fit_intercept, centred=design.centred), chosen
    )
    settings = digest(*(array.data for array in request.features))
    centre = np.zeros(features.shape[1] * design.outcomes.predictors)
    return _fit(context, META, features, labels, centre, settings, level=META)


#: Weights beyond this are nobody's: their products with rows would overflow.
LARGEST = 1e90

STEPS = (
    Step(BLOCK, Nothing, Weights, fit_block),
    Step("entrust", Nothing, Predictions, predict),
    Step(PREDICTIONS, Nothing, NoisyPredictions, predict_noisily),
    Step(SCORE, Nothing, Score, score_columns),
    Step(RANKED, RankedRequest, Weights, fit_ranked),
    Step(RATE, Nothing, CountsReply, count_second),
    Step(PROBABILITIES, ScoresRequest, CountsReply, count_scores),
    Step(META, MetaRequest, Weights, fit_meta),
)
