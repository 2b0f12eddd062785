"""The steps of a party, which alone touch raw data: sketch, estimate, cross-validate, predict."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import DataError, PlanMismatch, ProtocolError, UsageError
from unpooled.kernels.survival import PartialLikelihood
from unpooled.models.pride import local
from unpooled.models.pride.declared import places
from unpooled.models.pride.gram import Heard
from unpooled.models.pride.local import (
    DesignPath,
    DesignProblem,
    GramProblem,
    RegressionCalibration,
    centres,
    choose_alpha,
    nearest_at_home,
    nearest_share,
    random_folds,
)
from unpooled.models.pride.plan import (
    COEFFICIENTS,
    ESTIMATE,
    FOLDS,
    PREDICT,
    SCORE,
    SKETCH,
    Estimated,
    EstimateRequest,
    Folds,
    FoldsRequest,
    Own,
    Part,
    PenaltyLosses,
    Predicted,
    PredictRequest,
    Received,
    ScoreRequest,
    Sketch,
    clip_length,
    coded,
    coefficients_reach,
    sketch_of,
    unit_of,
)
from unpooled.privacy.classes import code
from unpooled.privacy.mechanisms import GaussianRelease, ScaledGaussian
from unpooled.privacy.mechanisms import Vector as Statistic
from unpooled.privacy.unit import Unit
from unpooled.protocol.context import Context
from unpooled.protocol.messages import (
    Array,
    Disclosed,
    Entrusted,
    Nothing,
    Public,
    Released,
)
from unpooled.protocol.registry import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from unpooled.kernels.newton import NewtonPath
    from unpooled.kernels.ridge import RidgePath
    from unpooled.models.pride.declared import Parameters
    from unpooled.models.pride.gram import Share
    from unpooled.models.pride.local import Centre, LocalProblem
    from unpooled.models.pride.plan import PrideDesign
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    #: Coefficients and intercept of a local problem at a penalty.
    Solver = Callable[[Context, RidgePath | NewtonPath, float], tuple[Vector, float]]


# --- Responses -------------------------------------------------------------------------------------------------------------
# Label columns of a party by family: coded classes and levels, counts, censored times; unfit ones are refused in words.


def response_of(parameters: Parameters, table: Table) -> NDArray[np.float64]:
    """Return the response as the family takes it: a number a row, or a row of them; refused with :class:`DataError` if it is none of it."""
    law = parameters.law
    if parameters.is_joint and parameters.has_classes:
        return places(table[parameters.response], parameters.classes, parameters.response)[:, None]
    if parameters.has_classes:
        return np.asarray(code(table[parameters.response], parameters.classes, parameters.response), dtype=np.float64)
    columns = [table[name] for name in parameters.labels]
    for name, values in zip(parameters.labels, columns, strict=True):
        if values.dtype == object:
            msg = f"column {name!r} holds text: a regression's response is numbers"
            raise DataError(msg).at(column=name)
    found = np.column_stack(columns).astype(np.float64) if parameters.is_joint else np.asarray(columns[0], dtype=np.float64)
    if parameters.publish and parameters.response_bound is not None:
        found = np.clip(found, -parameters.response_bound, parameters.response_bound)
    try:
        law.check(found)
    except ValueError as error:
        msg = f"column {parameters.response!r}: {error}"
        raise DataError(msg).at(column=parameters.response) from None
    return found


def baseline(response: Matrix, decisions: Vector) -> tuple[Vector, Vector]:
    """Return Breslow's baseline of censored times: the times of events, and the cumulative hazard up to each where the decision is 0."""
    loss = PartialLikelihood(response[:, 0], response[:, 1])
    return loss.event_times, np.cumsum(loss.hazards(decisions))


# --- The exact sketch ------------------------------------------------------------------------------------------------------
# The exact sketch of a party's columns: integers, block of rows by block of rows, before any noise; and how much of them it keeps.

#: Rows sketched at a time: coded block and sketch stay in the cache.
BLOCK_ROWS = 4096


def exact_sketch(part: Part, table: Table, clip: int | None, block_rows: int = BLOCK_ROWS) -> NDArray[np.int64]:
    """Return the integers X_k Pi_k, rows shortened to length ``clip`` where it is given."""
    assert part.sketch is not None
    out = np.empty((table.n_rows, part.sketch.size), dtype=np.int64)
    at = 0
    for block in table.blocks(part.private.names, block_rows):
        coded, _ = part.private.code(block)
        rows = part.sketch.apply(coded)
        if clip is not None:
            length = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
            long = length > clip
            # Toward zero, and a hair below the bound, so that rounding cannot lengthen a row.
            rows[long] = rows[long] * (clip * (1 - 2.0**-40) / length[long])[:, None]
        out[at : at + rows.shape[0]] = rows
        at += rows.shape[0]
    return out


def lossless(context: Context, part: Part) -> bool:
    """Return True if a party's sketch gives the Gram matrix of its columns exactly: no noise, and a matrix that loses nothing."""
    return part.sketch is not None and context.plan.study.epsilon == math.inf and part.sketch.is_isometry


def kept_energy(context: Context, part: Part, others: Sequence[Part]) -> float:
    """Return the share of the energy of a party's columns that its sketch keeps, taken from the own columns: 1 where the sketch is isotropic."""
    study, parameters = context.plan.study, context.design.parameters
    isotropic, shortened = parameters.sketch in ("srht", "gaussian"), study.unit == Unit.RECORD and study.epsilon < math.inf
    if isotropic and not shortened:
        return 1.0
    width = len(part.private.attribute)
    if part.sketch is None and (parameters.sketch != "matrix" or part.card.name in parameters.matrices):
        part = replace(part, sketch=sketch_of(study, part.card, width))  # nobody reads it: it is drawn for this alone
    sketches = [other.sketch for other in others if other.sketch is not None]
    fallback = float(np.mean([sketch.mean_square for sketch in sketches]))
    if part.sketch is None:
        return fallback

    def energy(rows: Matrix) -> float:
        return float(((rows - rows.mean(axis=0)) ** 2).sum())

    whole, unit = exact_sketch(part, context.table, None).astype(np.float64), part.sketch.unit / part.private.grid
    before = energy(whole * unit) if isotropic else energy(coded(part, context.table).rows)
    clip = clip_length(study, part) if shortened else None
    after = energy(exact_sketch(part, context.table, clip).astype(np.float64) * unit) if clip else energy(whole * unit)
    return after / before if after > 0 and before > 0 else fallback


# --- The party's steps -----------------------------------------------------------------------------------------------------
# Sketch, estimate, cross-validate, predict.


def part_of(context: Context[PrideDesign]) -> Part:
    """Return the part of the design that this party holds and sends."""
    part = context.design.part(context.name)
    assert part is not None  # every party of a study has one
    return part


def _parameters(context: Context[PrideDesign]) -> Parameters:
    return context.design.parameters


# --- step 1: the sketch --------------------------------------------------------------------------------------------------


def sketch(context: Context, request: Nothing) -> Sketch:  # noqa: ARG001 - the request is no more than its name
    """Z_k = X_k Pi_k + W_k, once for everybody."""
    return sent(context, _statistic)


def _statistic(context: Context, part: Part) -> Statistic:
    assert part.sketch is not None
    if isinstance(context.plan.release(part.card.name, SKETCH).mechanism, ScaledGaussian):  # without noise
        return Statistic(part.sketch.apply_real(coded(part, context.table).rows).ravel())
    return Statistic(context.added_up(_sketched, joined=True).ravel())


def _sketched(context: Context, settings: tuple[float, ...]) -> NDArray[np.int64]:  # noqa: ARG001 - there are none
    part = part_of(context)
    clip = clip_length(context.plan.study, part) if context.plan.study.unit == Unit.RECORD else None
    return exact_sketch(part, context.table, clip)


def sent(context: Context, statistic: Callable[[Context, Part], Statistic]) -> Sketch:
    """Return the party's message of the first step: its released sketch, if the plan has one, and its public columns."""
    part, table = part_of(context), context.table
    if part.knows_response and _parameters(context).fitted is None:
        _response(context)  # a label that does not fit is refused before anything is debited
    released: tuple[Released, ...] = ()
    if part.sketch is not None:
        released = (context.release(SKETCH, statistic(context, part)),)
    disclosed: tuple[Disclosed, ...] = ()
    if part.public.columns and part.is_read:
        columns = np.concatenate([part.public.real(block) for block in table.blocks(part.public.names)])
        disclosed = (Disclosed(part.public.names, Array.of(columns)),)
    return Sketch(released, disclosed)


# --- the local design --------------------------------------------------------------------------------------------------


def _own(context: Context[PrideDesign], part: Part) -> Own:
    """Return the party's own coded columns, private then public: raw, because nothing computed from them leaves."""
    own = context.design.own(context, part)
    if not part.public.columns:
        return own
    public = np.concatenate([part.public.real(block) for block in context.table.blocks(part.public.names)])
    width = public.shape[1]
    return Own(np.hstack([own.rows, public]), np.append(own.mean, np.zeros(width)), np.append(own.deviation, np.ones(width)))


def _others(context: Context[PrideDesign], received: Sequence[Received]) -> tuple[Matrix, Vector, NDArray[np.bool_]]:
    """Return the received columns side by side, the standard deviation of the noise in each (0 for public columns), and which lost something."""
    rows = context.table.n_rows
    columns: list[Matrix] = [np.empty((rows, 0))]
    noise, sketched = [np.empty(0)], [np.empty(0, dtype=np.bool_)]
    for other in received:
        part = context.design.part(other.party)
        if part is None or part.card.name == context.name:
            msg = f"what another party released came under the name {other.party!r}"
            raise ProtocolError(msg)
        for released in other.sketch:
            values, deviation = decode_sketch(context, part, released.values.numpy())
            columns.append(values)
            noise.append(np.full(values.shape[1], deviation))
            sketched.append(np.full(values.shape[1], not lossless(context, part)))
        for disclosed in other.disclosed:
            plain = disclosed.values.numpy()
            if plain.shape != (rows, len(disclosed.columns)) or plain.dtype != np.float64 or not (np.abs(plain) <= 1).all():
                raise ProtocolError("disclosed columns of another shape than announced, or beyond their bounds")
            columns.append(plain)
            noise.append(np.zeros(plain.shape[1]))
            sketched.append(np.zeros(plain.shape[1], dtype=np.bool_))
    return np.hstack(columns), np.concatenate(noise), np.concatenate(sketched)


def decode_sketch(context: Context, part: Part, values: NDArray[np.generic]) -> tuple[Matrix, float]:
    """Another party's released sketch in coded units, and the standard deviation of its noise."""
    if part.sketch is None:
        msg = f"party {part.card.name!r} releases no sketch in this plan"
        raise ProtocolError(msg)
    mechanism = context.plan.release(part.card.name, SKETCH).mechanism
    expected = np.int64 if isinstance(mechanism, GaussianRelease) else np.float64
    if values.dtype != expected or values.shape != (mechanism.size,) or not np.isfinite(values).all():
        raise ProtocolError("a sketch of another size or type than the plan has, or with values that are no numbers")
    if not isinstance(mechanism, GaussianRelease):
        # Without noise, or with noise of a level that the release does not tell.
        return values.astype(np.float64).reshape(-1, part.sketch.size), 0.0
    unit = part.sketch.unit / part.private.grid
    decoded = mechanism.decode(values.astype(np.int64)) * unit
    return decoded.reshape(-1, part.sketch.size), mechanism.scale * unit


def _response(context: Context) -> Vector:
    return response_of(_parameters(context), context.table)


def _problem(context: Context[PrideDesign], own: Matrix, received: Sequence[Received]) -> LocalProblem:
    """Return the problem that the party fits, noisy columns calibrated where that was asked for; keep the values that new rows will need."""
    parameters = _parameters(context)
    columns_received, noise, sketched = _others(context, received)
    noisy, calibrated, calibration = noise > 0, columns_received, None
    if parameters.noise_model != "plain" and noisy.any():
        # Public columns are free of noise: they stand on the side of what is known exactly.
        known = np.hstack([own, columns_received[:, ~noisy]])
        calibration = RegressionCalibration.fit(known, columns_received[:, noisy], noise[noisy])
        calibrated = columns_received.copy()
        calibrated[:, noisy] = calibration.apply(known, columns_received[:, noisy], noise[noisy])
        context.keep("known_means", calibration.own_means)
        context.keep("noisy_means", calibration.noisy_means)
        context.keep("calibration", calibration.coefficients)
    if not context.design.models_gram:
        return DesignProblem(own, calibrated)
    part = part_of(context)
    others = [other for other in context.design.parts if other.card.name != part.card.name and not lossless(context, other)]
    columns = sum(len(other.private.attribute) for other in others)
    kept = kept_energy(context, part, others) if sketched.any() else 1.0
    heard = Heard(columns, columns_received, noise, calibrated, sketched, kept, parameters.others)
    return GramProblem(own, heard, calibration)


# --- step 2: coefficients ------------------------------------------------------------------------------------------------


def minimum(context: Context, path: RidgePath | NewtonPath, alpha: float) -> tuple[Vector, float]:  # noqa: ARG001 - as other solvers
    """Return the solution to machine precision: in closed form, or by Newton's method."""
    return path.solve(alpha)


def estimate(context: Context, request: EstimateRequest, solve: Solver = minimum, *, predicts: bool = True) -> Estimated:
    """Solve the local problem and keep its solution: own coefficients, those of the received columns, intercept, alpha.

    A made-up study ``predicts`` no new rows at its parties, for which another problem would have to be solved.
    """
    part, parameters = part_of(context), _parameters(context)
    _need_response(part, parameters)
    if request.alpha is not None:
        _need_global_cv(parameters, "a penalty chosen by the coordinator")
    columns, response = _own(context, part), _response(context)
    problem = _problem(context, columns.rows, request.received)
    folds = random_folds(response.shape[0], parameters.folds, context.plan.study.public_seed)
    averages = local.averages(parameters, context.plan.study.epsilon)
    about = centres(context.design, part, request.received)

    def solved(problem: LocalProblem, unit: float) -> tuple[float, Share]:
        if (averages or about) and isinstance(problem, GramProblem):
            by_evidence = local.share if averages else partial(nearest_share, parameters.law)
            alpha, found, drawn = by_evidence(problem, response / unit, about, fit_intercept=parameters.fit_intercept)
            _keep_drawn(context, "drawn", drawn)
            return alpha, found
        path = problem.path(parameters.law, response / unit, fit_intercept=parameters.fit_intercept)
        alpha = choose_alpha(path, parameters.alpha if request.alpha is None else request.alpha, folds)
        if isinstance(path, DesignPath):
            return alpha, path.share(*solve(context, path.inner, alpha))
        return alpha, path.solve(alpha)

    unit = unit_of(parameters, response)
    alpha, share = solved(problem, unit)
    if parameters.event and share.fitted is not None:
        times, hazard = baseline(response, share.fitted)
        context.keep("baseline_times", times)
        context.keep("baseline_hazard", hazard)
    elif share.fitted is not None and not parameters.is_joint:
        residual_unit = unit_of(parameters, response - unit * share.fitted)
        if residual_unit != unit:  # a threshold that follows the data follows what the fit leaves of them
            unit = residual_unit
            alpha, share = solved(problem, unit)
    coefficients, at_home = unit * share.own, share
    if predicts and isinstance(problem, GramProblem):  # new rows are predicted from sketches of them, if at all
        by_evidence = averages or bool(about)
        at_home = _at_home(context, problem, response / unit, about) if by_evidence else solved(problem.at_home(), unit)[1]
        context.keep("home_coefficients", unit * at_home.own)
    context.keep("coefficients", coefficients)
    context.keep("received_coefficients", unit * at_home.received)
    context.keep("intercept", np.atleast_1d(unit * at_home.intercept))
    context.keep("alpha", np.array([alpha]))
    context.keep("mean_decision", np.atleast_1d(unit * share.mean))
    in_coded_units = (coefficients.T / columns.deviation).T
    context.keep("coded_coefficients", in_coded_units)
    context.keep("offset", np.atleast_1d(-(columns.mean @ in_coded_units)))
    if not parameters.publish:
        return Estimated(())
    assert isinstance(problem, DesignProblem)  # the plan saw to it
    reach = coefficients_reach(part, response.shape[0], parameters, problem.received)
    return Estimated((context.release(COEFFICIENTS, Statistic(coefficients.ravel(), reach)),))


def _at_home(context: Context[PrideDesign], problem: GramProblem, response: Vector, about: Sequence[Centre]) -> Share:
    """Return the prediction of new rows here; of an average, keep the noise that it was fitted at, and what of the sketches is no noise."""
    parameters = _parameters(context)
    if not local.averages(parameters, context.plan.study.epsilon):
        _, found, drawn = nearest_at_home(parameters.law, problem.at_home(), response, about)
    else:
        context.keep(local.NOISE, problem.heard.noise)
        context.keep("reliability", np.empty(0) if problem.calibration is None else problem.reliability()[::-1])
        found, drawn = local.at_home(problem, response, about, fit_intercept=parameters.fit_intercept)
    _keep_drawn(context, "drawn_at_home", drawn)
    return found


def _keep_drawn(context: Context, name: str, drawn: Matrix) -> None:
    """Keep the weights of earlier models where there are any: they are functions of raw data, and stay here."""
    if drawn.size:
        context.keep(name, drawn)


def _need_global_cv(parameters: Parameters, what: str) -> None:
    """Refuse the steps of global cross-validation under every other plan, for every sender."""
    if parameters.alpha != "global-cv":
        msg = f"{what} belongs to global cross-validation, which this plan does not allow"
        raise PlanMismatch(msg)


def _need_response(part: Part, parameters: Parameters) -> None:
    if not part.knows_response:
        msg = f"party {part.card.name!r} has no label column {parameters.response!r} and only sends"
        raise UsageError(msg)


# --- global cross-validation, as in the paper: not private -----------------------------------------------------------------


def folds(context: Context, request: FoldsRequest) -> Folds:
    """Held-out contributions x_k . beta_k(alpha) of this party's block for every penalty: raw functions of the data."""
    part, parameters = part_of(context), _parameters(context)
    _need_global_cv(parameters, "step 'folds'")
    _need_response(part, parameters)
    columns, response = _own(context, part), _response(context)
    problem = _problem(context, columns.rows, request.received)
    contributions = np.empty((len(request.alphas), response.size))
    for fold in random_folds(response.size, parameters.folds, context.plan.study.public_seed):
        train = np.setdiff1d(np.arange(response.size), fold)
        path = problem.of_rows(train).path(parameters.law, response[train], fit_intercept=parameters.fit_intercept)
        centre = columns.rows[train].mean(axis=0) if parameters.fit_intercept else 0.0
        for a, alpha in enumerate(request.alphas):
            contributions[a, fold] = (columns.rows[fold] - centre) @ path.solve(alpha).own
    return Folds(Entrusted("cross-validation", Array.of(contributions)))


def score(context: Context, request: ScoreRequest) -> PenaltyLosses:
    """Return the mean squared error of the summed contributions for every penalty, by a party that knows the response."""
    _need_global_cv(_parameters(context), "step 'score'")
    parameters, response = _parameters(context), _response(context)
    total = request.contributions.values.numpy()
    errors = np.empty_like(total)
    for fold in random_folds(response.size, parameters.folds, context.plan.study.public_seed):
        train = np.setdiff1d(np.arange(response.size), fold)
        errors[:, fold] = response[fold] - (response[train].mean() if parameters.fit_intercept else 0.0) - total[:, fold]
    return PenaltyLosses(Entrusted("cross-validation", Array.of((errors**2).mean(axis=1))))


# --- new rows --------------------------------------------------------------------------------------------------------------


def predict(context: Context, request: PredictRequest) -> Predicted:
    """Predict new rows with the kept solution of an earlier plan; the predictions stay here."""
    part, parameters = part_of(context), _parameters(context)
    fitted = parameters.fitted
    if fitted is None:
        raise PlanMismatch("this plan fits coefficients: predicting with earlier ones is another plan")
    if parameters.predicting and part.card.name not in parameters.predicting:
        raise PlanMismatch("this party predicts nothing in this plan: the others do")

    def kept(name: str) -> NDArray[np.float64]:
        return context.kept(name, fitted)

    own = _own(context, part).rows
    others, noise, _ = _others(context, request.received)
    if others.shape[1] != kept("received_coefficients").shape[0]:
        raise PlanMismatch(
            "the fitted plan received other columns than this one sends: a study of new rows needs every party of the study that fitted. If all "
            "are in it, give the study of new rows its sketch_dim"
        )
    noisy = noise > 0
    if parameters.noise_model != "plain" and noisy.any():
        known = np.hstack([own, others[:, ~noisy]])
        calibration = RegressionCalibration(kept("known_means"), kept("noisy_means"), kept("calibration"))
        others = others.copy()
        then = local.noise_then(context, fitted)
        if then is None:
            others[:, noisy] = calibration.apply(known, others[:, noisy], noise[noisy])
        else:
            others[:, noisy] = calibration.residual(known, others[:, noisy]) * local.fades(then[noisy], noise[noisy])
    decision = own @ kept("home_coefficients" if context.design.models_gram else "coefficients")
    decision = decision + others @ kept("received_coefficients")
    constant = kept("intercept")
    if decision.ndim == 1 and constant.size > 1:  # several decisions with common coefficients
        decision = decision[:, None]
    context.keep("predictions", decision + (constant if constant.size > 1 else constant[0]))
    return Predicted(Public(part.card.rows))


STEPS = (
    Step(SKETCH, Nothing, Sketch, sketch),
    Step(FOLDS, FoldsRequest, Folds, folds),
    Step(SCORE, ScoreRequest, PenaltyLosses, score),
    Step(ESTIMATE, EstimateRequest, Estimated, estimate),
    Step(PREDICT, PredictRequest, Predicted, predict),
)
