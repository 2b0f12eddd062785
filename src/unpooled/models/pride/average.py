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
from unpooled.models.pride.gram import GramPath, Setting, Share
from unpooled.models.pride.local import DesignProblem
from unpooled.models.pride.plan import unit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
    """Return True if a party's prediction is the average: squared loss, penalty by evidence, and sketches that have noise."""
    return isinstance(parameters.law, Gaussian) and parameters.alpha == "marginal-likelihood" and epsilon < math.inf


@dataclass(frozen=True)
class AverageMember:
    """A candidate: its log weight up to a common constant, its penalty, and its solution as one array."""

    log_weight: float
    alpha: float
    solution: Vector


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


# --- the party's share of a joint prediction -------------------------------------------------------------------------------


def kernels(problem: GramProblem, *, fit_intercept: bool, path: Sequence[float] = PATH) -> list[tuple[float, Kernel]]:
    """Return kernels with their log weights before the response: no sketch used; its energies alone; its directions, as sigma' believes them."""
    setting = Setting.of(problem.own, problem.heard, fit_intercept=fit_intercept)
    if setting.is_alone or not problem.heard.sketched.any():
        return [(0.0, setting.without_sketches(*setting.energies()))]
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
    if problem.calibration is not None:
        for assumed in path:
            if not problem.reliability(assumed, sure=True).any():
                continue  # what the own columns explain of the sketches is no direction of its own
            features = setting.features(problem.calibrated(assumed, sure=True))
            found.append((used + problem.likelihood(assumed), setting.kernel(features, inside, beyond)))
    return found


def share(problem: GramProblem, response: Vector, *, fit_intercept: bool) -> tuple[float, Share]:
    """Return the party's share, averaged over kernels and penalties by the evidence of the response, and the heaviest penalty."""
    members, kernel = [], None
    for before, kernel in kernels(problem, fit_intercept=fit_intercept):
        path = GramPath.of(kernel, response, fit_intercept=fit_intercept)
        best = path.evidence_alpha()
        for factor in FACTORS:
            alpha = best * factor
            members.append(AverageMember(before - path.evidence(alpha) / 2, alpha, path.solve(alpha).own))
    assert kernel is not None  # there is always one
    alpha, own = averaged(members)
    mean = float(response.mean()) if fit_intercept else 0.0
    return alpha, Share(own, np.empty(0), mean - float(kernel.own_means @ own), mean)


# --- the party's prediction at home ----------------------------------------------------------------------------------------


def home_members(
    problem: GramProblem, response: Vector, *, fit_intercept: bool, path: Sequence[float] = PATH
) -> list[AverageMember]:
    """Return the members of the prediction at one party, as coefficients of [what is known, residual of the sketches, 1].

    They are the ridge and the least squares of what is known without noise (the own columns and public ones), and the ridge on these and the
    calibrated sketches for every assumed sigma'.
    """
    known = problem.known
    ridge = RidgePath.of(known, response, fit_intercept=fit_intercept)
    noisy = 0 if problem.calibration is None else problem.calibration.coefficients.shape[1]
    found = _of_path(ridge, math.log(UNUSED / 2), noisy)
    found += _least_squares(ridge, math.log(UNUSED / 2), noisy)
    calibration = problem.calibration
    if calibration is None:
        return found
    for assumed in path:
        shrinkage = problem.shrinkage(assumed)
        if not shrinkage.any():  # nothing rises above this noise
            continue
        design = np.hstack([known, problem.calibrated(assumed)[:, problem.heard.noise > 0]])
        ridge = RidgePath.of(design, response, fit_intercept=fit_intercept)
        for member in _of_path(ridge, math.log((1 - UNUSED) / len(path)), 0):
            own, received = member.solution[: known.shape[1]], member.solution[known.shape[1] : -1]
            constant = member.solution[-1] + float(
                (calibration.noisy_means - calibration.own_means @ calibration.coefficients) @ received
            )
            solution = np.concatenate([own + calibration.coefficients @ received, shrinkage @ received, [constant]])
            found.append(AverageMember(member.log_weight, member.alpha, solution))
    return found


def _of_path(ridge: RidgePath, before: float, noisy: int) -> list[AverageMember]:
    best, found = ridge.evidence_alpha(), []
    for factor in FACTORS:
        coefficients, constant = ridge.solve(best * factor)
        solution = np.concatenate([coefficients, np.zeros(noisy), [constant]])
        found.append(
            AverageMember(before - math.log(len(FACTORS)) - ridge.evidence(best * factor) / 2, best * factor, solution)
        )
    return found


def _least_squares(ridge: RidgePath, before: float, noisy: int) -> list[AverageMember]:
    """Return the least squares, with the evidence of a prior that is worth one row; none where they fit every row."""
    rank, degrees = ridge.squares.size, ridge.target.size - ridge.fit_intercept
    if not 0 < rank < degrees:
        return []
    inside = float((ridge.rotated**2).sum())
    rest = max(float(ridge.target @ ridge.target) - inside, 0.0)
    evidence = degrees * math.log(max(rest + inside / (1 + degrees), 1e-300)) + rank * math.log1p(degrees)
    coefficients, constant = ridge.solve(0.0)
    return [AverageMember(before - evidence / 2, 0.0, np.concatenate([coefficients, np.zeros(noisy), [constant]]))]


def at_home(problem: GramProblem, response: Vector, *, fit_intercept: bool) -> Share:
    """Return the solution that predicts new rows at this party: of the sketches' columns, coefficients of what the known ones leave of them."""
    _, found = averaged(home_members(problem, response, fit_intercept=fit_intercept))
    own, noisy = problem.own.shape[1], problem.heard.noise > 0
    received, known = np.empty(noisy.size), found[own : own + int((~noisy).sum())]
    received[~noisy], received[noisy] = known, found[own + known.size : -1]
    return Share(found[:own], received, float(found[-1]), float(response.mean()) if fit_intercept else 0.0)


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
