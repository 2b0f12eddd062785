r"""Prediction by an average over what a party may believe of the others' sketches, weighted by evidence (THEORY.md, section 10: P.12 and P.13).

Members differ in the deviation sigma' >= sigma of the noise that is assumed where the sketches' directions are used; at sigma' = infinity no
sketch is used. The likelihood of the sketches is always that of the true sigma. Everything is local: it reads the own columns, the response,
and what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.families.gaussian import Gaussian
from unpooled.kernels.ridge import RidgePath
from unpooled.models.pride.curve import sketches_likelihood
from unpooled.models.pride.drawn import before, loosenings
from unpooled.models.pride.gram import GramPath, Setting, Share
from unpooled.models.pride.local import DesignProblem
from unpooled.models.pride.plan import unit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.pride.drawn import Centre
    from unpooled.models.pride.gram import Kernel
    from unpooled.models.pride.local import GramProblem
    from unpooled.models.pride.parameters import Parameters
    from unpooled.models.pride.plan import PrideDesign
    from unpooled.protocol.context import Context

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: Assumed deviations of the noise, as multiples of the true one; infinity (no sketch used) is a member of its own.
PATH = (1.0, 2.0, 4.0)
#: Penalties of every member, around the one of largest evidence.
FACTORS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
#: The name under which a party keeps the deviation of the noise in every received column: the mark of an average.
NOISE = "received_noise"
#: Prior weight of the members that use no sketch.
UNUSED = 0.5
#: Off the log weight of energies that were fitted to the sketches, which are likelier under them for that alone.
FITTED = 3.0


def averages(parameters: Parameters, epsilon: float) -> bool:
    """Return True if a party's prediction is the average: squared loss, penalty by evidence, and sketches that have noise or earlier models."""
    by_evidence = isinstance(parameters.law, Gaussian) and parameters.alpha == "marginal-likelihood"
    return by_evidence and (epsilon < math.inf or bool(parameters.prior))


@dataclass(frozen=True)
class AverageMember:
    """A candidate: its log weight up to a common constant, its penalty, and its solution as one array."""

    log_weight: float
    alpha: float
    solution: Vector
    #: The earlier models that it is about; None: none.
    centre: Centre | None = None


def weights(members: Sequence[AverageMember]) -> Vector:
    """Return the members' weights, which sum to 1."""
    logs = np.array([member.log_weight for member in members])
    found = np.exp(logs - logs.max())
    return np.asarray(found / found.sum())


def averaged(members: Sequence[AverageMember]) -> tuple[float, Vector]:
    """Return (penalty of the heaviest member, the average of the solutions)."""
    shares = weights(members)
    total = sum(weight * member.solution for weight, member in zip(shares, members, strict=True))
    return members[int(np.argmax(shares))].alpha, np.asarray(total)


def drawn(members: Sequence[AverageMember]) -> Matrix:
    """Return the weight of each earlier model in an average, and its deviation, a column each."""
    shares = weights(members)
    size = max(0 if member.centre is None else member.centre.weights.size for member in members)
    each = np.array([np.zeros(size) if member.centre is None else member.centre.weights for member in members])
    mean = shares @ each
    return np.column_stack([mean, np.sqrt(np.maximum(shares @ np.square(each) - mean**2, 0.0))])


# --- the party's share of a joint prediction -------------------------------------------------------------------------------


def kernels(problem: GramProblem, *, fit_intercept: bool, path: Sequence[float] = PATH) -> list[tuple[float, Kernel]]:
    """Return kernels with their log weights before the response: no sketch used; its energies alone; its directions, as sigma' believes them."""
    setting = Setting.of(problem.own, problem.heard, fit_intercept=fit_intercept)
    if setting.is_alone or problem.calibration is None:
        return [(0.0, setting.kernel(setting.features(problem.heard.calibrated), *setting.energies()))]
    expected, outside = setting.expected
    seen, kept = setting.observed, problem.heard.kept
    curve = expected.energies[: setting.own.rank]
    inside, beyond = setting.energies()

    def likelihood(energies: Vector, rest: float) -> float:
        return sketches_likelihood(energies * kept, rest * kept, seen, setting.beyond, outside * kept)

    used = math.log((1 - UNUSED) / (1 + len(path))) + likelihood(inside, beyond) - FITTED
    found = [
        (math.log(UNUSED) + likelihood(curve, outside), setting.without_sketches(curve, outside)),
        (used, setting.without_sketches(inside, beyond)),
    ]
    for assumed in path:
        if not problem.reliability(assumed, sure=True).any():
            continue  # what the own columns explain of the sketches is no direction of its own
        features = setting.features(problem.calibrated(assumed, sure=True))
        found.append((used + problem.likelihood(assumed), setting.kernel(features, inside, beyond)))
    return found


def share_members(
    problem: GramProblem, response: Vector, centres: Sequence[Centre] = (), *, fit_intercept: bool
) -> list[AverageMember]:
    """Return the members of the party's share: kernels with penalties, about no earlier model or about these."""
    found, (plain, about) = [], before(centres)
    for first, kernel in kernels(problem, fit_intercept=fit_intercept):
        path = GramPath.of(kernel, response, fit_intercept=fit_intercept)
        best = path.evidence_alpha()
        for factor in FACTORS:
            alpha = best * factor
            found.append(AverageMember(first + plain - path.evidence(alpha) / 2, alpha, path.solve(alpha).own))
        loosened: dict[float, Kernel] = {}
        for centre in centres:
            left = response - problem.own @ centre.own
            for scale, loose in loosenings(centre):
                path = GramPath.of(loosened.setdefault(loose, kernel.loosened(loose)), left, fit_intercept=fit_intercept)
                alpha = path.noise_alpha(scale)
                log_weight = first + about - path.evidence(alpha, scale) / 2
                found.append(AverageMember(log_weight, alpha, centre.own + path.solve(alpha).own, centre))
    return found


def share(
    problem: GramProblem, response: Vector, centres: Sequence[Centre] = (), *, fit_intercept: bool
) -> tuple[float, Share, Matrix]:
    """Return the heaviest penalty, the party's share, averaged by the evidence of the response, and the weights of earlier models in it."""
    members = share_members(problem, response, centres, fit_intercept=fit_intercept)
    alpha, own = averaged(members)
    mean = float(response.mean()) if fit_intercept else 0.0
    own_means = problem.own.mean(axis=0) if fit_intercept else np.zeros(own.size)
    return alpha, Share(own, np.empty(0), mean - float(own_means @ own), mean), drawn(members)


# --- the party's prediction at home ----------------------------------------------------------------------------------------


def home_members(
    problem: GramProblem,
    response: Vector,
    centres: Sequence[Centre] = (),
    *,
    fit_intercept: bool,
    path: Sequence[float] = PATH,
) -> list[AverageMember]:
    """Return the members of the prediction at one party, as coefficients of [what is known, residual of the sketches, 1].

    They are the ridge and the least squares of what is known without noise (the own columns and public ones), and the ridge on these and the
    calibrated sketches for every assumed sigma'; each about no earlier model, or about these.
    """
    plain, about = before(centres)
    kinds = [(None, plain), *((centre, about) for centre in centres)]
    known, noise = problem.known, problem.heard.noise > 0
    noisy = 0 if problem.calibration is None else problem.calibration.coefficients.shape[1]
    found: list[AverageMember] = []
    for centre, drawing in kinds:
        ridge, middle = _ridge(known, response, centre, ~noise, fit_intercept=fit_intercept)
        found += _of_path(ridge, middle, drawing + math.log(UNUSED / 2), noisy, centre)
        found += _least_squares(ridge, middle, drawing + math.log(UNUSED / 2), noisy, centre)
    calibration = problem.calibration
    if calibration is None:
        return found
    order = np.concatenate([np.flatnonzero(~noise), np.flatnonzero(noise)])
    for assumed in path:
        shrinkage = problem.shrinkage(assumed)
        if not shrinkage.any():  # nothing rises above this noise
            continue
        design = np.hstack([known, problem.calibrated(assumed)[:, noise]])
        for centre, drawing in kinds:
            ridge, middle = _ridge(design, response, centre, order, fit_intercept=fit_intercept)
            for member in _of_path(ridge, middle, drawing + math.log((1 - UNUSED) / len(path)), 0, centre):
                own, received = member.solution[: known.shape[1]], member.solution[known.shape[1] : -1]
                constant = member.solution[-1] + float(
                    (calibration.noisy_means - calibration.own_means @ calibration.coefficients) @ received
                )
                solution = np.concatenate([own + calibration.coefficients @ received, shrinkage @ received, [constant]])
                found.append(AverageMember(member.log_weight, member.alpha, solution, centre))
    return found


def _ridge(
    design: Matrix, response: Vector, centre: Centre | None, received: NDArray[np.generic], *, fit_intercept: bool
) -> tuple[RidgePath, Vector]:
    """Return the ridge of what an earlier model leaves of the response, and the model's coefficients; ``received``: which of its columns, in order."""
    middle = np.zeros(design.shape[1]) if centre is None else np.concatenate([centre.own, centre.received[received]])
    return RidgePath.of(design, response - design @ middle, fit_intercept=fit_intercept), middle


def _of_path(ridge: RidgePath, middle: Vector, before: float, noisy: int, centre: Centre | None) -> list[AverageMember]:
    best, found = ridge.evidence_alpha(), []
    for factor in FACTORS:
        coefficients, constant = ridge.solve(best * factor)
        solution = np.concatenate([middle + coefficients, np.zeros(noisy), [constant]])
        log_weight = before - math.log(len(FACTORS)) - ridge.evidence(best * factor) / 2
        found.append(AverageMember(log_weight, best * factor, solution, centre))
    return found


def _least_squares(
    ridge: RidgePath, middle: Vector, before: float, noisy: int, centre: Centre | None
) -> list[AverageMember]:
    """Return the least squares, with the evidence of a prior that is worth one row; none where they fit every row."""
    rank, degrees = ridge.squares.size, ridge.target.size - ridge.fit_intercept
    if not 0 < rank < degrees:
        return []
    inside = float((ridge.rotated**2).sum())
    rest = max(float(ridge.target @ ridge.target) - inside, 0.0)
    evidence = degrees * math.log(max(rest + inside / (1 + degrees), 1e-300)) + rank * math.log1p(degrees)
    coefficients, constant = ridge.solve(0.0)
    solution = np.concatenate([middle + coefficients, np.zeros(noisy), [constant]])
    return [AverageMember(before - evidence / 2, 0.0, solution, centre)]


def at_home(
    problem: GramProblem, response: Vector, centres: Sequence[Centre] = (), *, fit_intercept: bool
) -> tuple[Share, Matrix]:
    """Return the solution that predicts new rows at this party, and the weights of earlier models in it.

    Of the sketches' columns it has coefficients of what the known ones leave of them.
    """
    members = home_members(problem, response, centres, fit_intercept=fit_intercept)
    _, found = averaged(members)
    own, noisy = problem.own.shape[1], problem.heard.noise > 0
    received, known = np.empty(noisy.size), found[own : own + int((~noisy).sum())]
    received[~noisy], received[noisy] = known, found[own + known.size : -1]
    return Share(found[:own], received, float(found[-1]), float(response.mean()) if fit_intercept else 0.0), drawn(members)


def fades(fitted: Vector, now: Vector) -> Vector:
    """Return the factors on coefficients of noisy columns where the new rows' noise is larger than that of the fitted rows.

    The best factor is t^2/(t^2 - s^2 + s'^2) for a residual variance t^2 at noise s; it is at least s^2/s'^2, which needs no t.
    """
    return np.minimum(1.0, fitted / np.maximum(now, np.finfo(np.float64).tiny)) ** 2


def noise_then(context: Context[PrideDesign], fitted: str) -> Vector | None:
    """Return the noise of the fitted columns; None where the fit was no average, or older than it."""
    try:
        found: Vector = context.kept(NOISE, fitted)
    except UsageError:
        return None
    return found


def own_decisions(parameters: Parameters, rows: Matrix, response: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return decisions for new rows by models of a party's own columns: the ``rows`` behind those of the response are new.

    The first is the family's fit with the penalty of largest evidence; a squared loss has a second, least squares.
    """
    count, constant = response.shape[0], parameters.fit_intercept
    unit = unit_of(parameters, response)
    path = DesignProblem(rows[:count], np.empty((count, 0))).path(parameters.law, response / unit, fit_intercept=constant)
    found = path.solve(path.evidence_alpha())
    decisions = [unit * _decided(rows[count:] @ found.own, found.intercept)]
    if isinstance(parameters.law, Gaussian):
        slopes, intercept = RidgePath.of(rows[:count], response, fit_intercept=constant).solve(0.0)
        decisions.append(rows[count:] @ slopes + intercept)
    return decisions


def _decided(linear: NDArray[np.float64], intercept: float | Vector) -> NDArray[np.float64]:
    """Return linear predictors with their constants, a column for each constant where there are several."""
    return (linear[:, None] if np.size(intercept) > 1 and linear.ndim == 1 else linear) + intercept
