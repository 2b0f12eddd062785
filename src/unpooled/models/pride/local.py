"""Local fit of a party from its own columns and the sketches it received: one setting, an average by evidence (THEORY.md, section 10), earlier models (section 11)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg import eigh

from unpooled.errors import UsageError
from unpooled.families import Family
from unpooled.families.gaussian import Gaussian
from unpooled.inference.priors import rows_of
from unpooled.kernels.newton import NewtonPath, OffsetLoss
from unpooled.kernels.ridge import RidgePath, noise_aware_smoothing, product, shrink_singular_values
from unpooled.kernels.threads import one_thread
from unpooled.models.pride.declared import GramJointPath, JointDesignPath, JointFamily
from unpooled.models.pride.gram import GramNewtonPath, GramPath, Kernel, Setting, Share, sketches_likelihood
from unpooled.models.pride.plan import unit_of
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.pride.declared import Parameters
    from unpooled.models.pride.gram import Heard
    from unpooled.models.pride.plan import Part, PrideDesign, Received
    from unpooled.protocol.context import Context

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


# --- One setting -----------------------------------------------------------------------------------------------------------
# Local fit of a party from its own columns and the sketches it received: regression calibration, penalty, coefficients.
#
# Pure functions of arrays, shared by the party's steps and by the tests (THEORY.md, sections 4, 5 and 8). A problem is what a party fits
# on: its columns and the received ones, or its columns and a model of the others' Gram matrix.

#: Penalties tried by cross-validation, relative to the mean squared singular value of the design.
RELATIVE_PENALTIES = np.logspace(-6, 6, 25)


@dataclass(frozen=True)
class RegressionCalibration:
    """E[Z | X, Z + W] for known noise: a ridge of Z on X with marginal-likelihood penalty, plus the shrunken residual."""

    own_means: Vector
    noisy_means: Vector
    coefficients: Matrix

    @classmethod
    def fit(cls, own: Matrix, noisy: Matrix, noise: Vector) -> RegressionCalibration:
        """Learn the ridge from the training rows; ``noise`` is the standard deviation of every column of ``noisy``."""
        own_means, noisy_means = own.mean(axis=0), noisy.mean(axis=0)
        # One common penalty over all columns: they are brought to noise 1 first.
        coefficients, _ = noise_aware_smoothing(own - own_means, (noisy - noisy_means) / noise, 1.0)
        return cls(own_means, noisy_means, coefficients * noise)

    def residual(self, own: Matrix, noisy: Matrix) -> Matrix:
        """Return what the own columns do not explain of the noisy ones."""
        return noisy - self.noisy_means - (own - self.own_means) @ self.coefficients

    def apply(self, own: Matrix, noisy: Matrix, noise: Vector) -> Matrix:
        """Calibrated columns of these rows; their residual is shrunk by itself, so new rows need no training rows."""
        expected = (own - self.own_means) @ self.coefficients
        residual = (noisy - self.noisy_means - expected) / noise
        return expected + shrink_singular_values(residual, 1.0) * noise + self.noisy_means


def path_of(family: Family, design: Matrix, response: Vector, *, fit_intercept: bool) -> RidgePath | NewtonPath:
    """Solutions for every penalty: in closed form where the loss is squared, by Newton's method else."""
    if isinstance(family, Gaussian):
        return RidgePath.of(design, response, fit_intercept=fit_intercept)
    return NewtonPath.of(design, response, family, fit_intercept=fit_intercept)


class Penalised(Protocol):
    """The methods of a path of solutions that a choice of the penalty needs."""

    @property
    def squares(self) -> Vector:
        """Return eigenvalues of the kernel, or squared singular values of the design: the scale of a penalty."""

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood."""

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return the held-out loss of every penalty."""


class LocalPath(Penalised, Protocol):
    """A party's shares for every penalty."""

    def solve(self, alpha: float) -> Share:
        """At this penalty."""


class LocalProblem(Protocol):
    """The problem that a party fits."""

    def path(self, family: Family | JointFamily, response: Vector, *, fit_intercept: bool) -> LocalPath:
        """Return its solutions for a response."""

    def of_rows(self, rows: NDArray[np.intp]) -> LocalProblem:
        """Return the problem of some rows only."""


@dataclass(frozen=True)
class DesignPath:
    """Solutions on a design whose first columns are the party's own."""

    inner: RidgePath | NewtonPath
    design: Matrix
    own: int

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the design."""
        return self.inner.squares

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood."""
        return self.inner.evidence_alpha()

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return the held-out loss of every penalty."""
        return self.inner.cross_validated(alphas, folds)

    def solve(self, alpha: float) -> Share:
        """Return the coefficients of the own columns and of the received ones."""
        return self.share(*self.inner.solve(alpha))

    def share(self, coefficients: Vector, intercept: float) -> Share:
        """Return the party's share of a solution on the whole design."""
        return Share(
            coefficients[: self.own],
            coefficients[self.own :],
            intercept,
            float(self.design.mean(axis=0) @ coefficients) + intercept,
            self.design @ coefficients + intercept,
        )


@dataclass(frozen=True)
class DesignProblem:
    """[X_k, Z_j for j != k], as the paper has it."""

    own: Matrix
    received: Matrix

    def path(self, family: Family | JointFamily, response: Vector, *, fit_intercept: bool) -> DesignPath | JointDesignPath:
        """Ridge, or Newton's method."""
        design = np.hstack([self.own, self.received])
        if isinstance(family, JointFamily):
            return JointDesignPath.of(family, design, self.own.shape[1], response, fit_intercept=fit_intercept)
        return DesignPath(path_of(family, design, response, fit_intercept=fit_intercept), design, self.own.shape[1])

    def of_rows(self, rows: NDArray[np.intp]) -> DesignProblem:
        """Return some rows only."""
        return DesignProblem(self.own[rows], self.received[rows])


@dataclass(frozen=True)
class GramProblem:
    """The own columns and what a party can know of the others' Gram matrix."""

    own: Matrix
    heard: Heard
    #: The calibration of the noisy columns; None where there are none.
    calibration: RegressionCalibration | None = None

    @property
    def known(self) -> Matrix:
        """Return what the party knows without noise: its own columns, then received ones that have none."""
        return np.hstack([self.own, self.heard.received[:, self.heard.noise == 0]])

    @cached_property
    def _residual(self) -> tuple[Matrix, Matrix]:
        """Return (E[Z | known], what it leaves of Z) of the noisy columns, both centred, in units of the noise's deviation."""
        assert self.calibration is not None
        noisy, noise = self.heard.received[:, self.heard.noise > 0], self.heard.noise[self.heard.noise > 0]
        expected = (self.known - self.calibration.own_means) @ self.calibration.coefficients
        return expected / noise, (noisy - self.calibration.noisy_means - expected) / noise

    @cached_property
    def _directions(self) -> tuple[Vector, Matrix]:
        """Return squared singular values of the residual over the rows, largest last, and its right singular vectors."""
        residual = self._residual[1]
        with one_thread():
            values, vectors = eigh(product(residual.T, residual) / residual.shape[0])
        return np.maximum(values, 0.0), vectors

    def reliability(self, assumed: float = 1.0, *, sure: bool = False) -> Vector:
        """Return for every direction of the residual which part of it is no noise, if the noise were ``assumed`` times what it is.

        Singular values as in equation 7 of Gavish & Donoho 2017, over what they were; 0 where the noise alone may be as large. ``sure``:
        also 0 where the direction does not pay for its numbers (:meth:`gains`).
        """
        rows, columns = self._residual[1].shape
        beta = columns / max(rows, 1)
        square = self._directions[0] / assumed**2
        seen = square > (1 + math.sqrt(beta)) ** 2
        if sure:
            seen &= self.gains(assumed) > 0
        safe = np.where(seen, square, 1.0)
        inner = np.maximum((safe - beta - 1) ** 2 - 4 * beta, 0.0)
        return np.where(seen, np.sqrt(inner) / safe, 0.0)

    def gains(self, assumed: float) -> Vector:
        """Return how much likelier the residual's rows are, at the true noise, with each direction as ``assumed`` believes in it than without.

        Rows are normal, with variance 1 + max(0, x - assumed^2) in a direction whose observed variance is x noise variances. Every direction
        pays for its q numbers as in the Bayesian information criterion, q/2 log n.
        """
        rows, columns = self._residual[1].shape
        observed = self._directions[0]
        variance = 1 + np.maximum(observed - assumed**2, 0.0)
        gained = observed - observed / variance - np.log(variance)
        return np.asarray(rows / 2 * gained - columns / 2 * math.log(max(rows, 1)))

    def likelihood(self, assumed: float) -> float:
        """Return the gains of the directions that are sure, added up."""
        return float(self.gains(assumed)[self.reliability(assumed, sure=True) > 0].sum())

    def shrinkage(self, assumed: float = 1.0) -> Matrix:
        """Return the matrix that shrinks rows of the noisy columns' residual, if the noise were ``assumed`` times what it is."""
        noise = self.heard.noise[self.heard.noise > 0]
        vectors = self._directions[1]
        return np.asarray((vectors * self.reliability(assumed)) @ vectors.T * noise / noise[:, None])

    def calibrated(self, assumed: float = 1.0, *, sure: bool = False) -> Matrix:
        """Return the received columns, the noisy ones calibrated as if their noise were ``assumed`` times what it is."""
        if self.calibration is None:
            return self.heard.received
        noisy = self.heard.noise > 0
        noise, (expected, residual) = self.heard.noise[noisy], self._residual
        found = self.heard.received.copy()
        vectors = self._directions[1]
        shrunk = product(product(residual, vectors) * self.reliability(assumed, sure=sure), vectors.T)
        found[:, noisy] = (expected + shrunk) * noise + self.calibration.noisy_means
        return found

    def at_home(self) -> DesignProblem:
        """Return the problem that predicts new rows from the own columns and newly received sketches: the calibrated design."""
        return DesignProblem(self.own, self.heard.calibrated)

    def path(
        self, family: Family | JointFamily, response: Vector, *, fit_intercept: bool
    ) -> GramPath | GramNewtonPath | GramJointPath:
        """Return the path for a response; it is in closed form where the loss is squared."""
        kernel = Kernel.of(self.own, self.heard, fit_intercept=fit_intercept)
        if isinstance(family, JointFamily):
            return GramJointPath.of(family, kernel, response, fit_intercept=fit_intercept)
        if isinstance(family, Gaussian):
            return GramPath.of(kernel, response, fit_intercept=fit_intercept)
        return GramNewtonPath.of(kernel, response, family, fit_intercept=fit_intercept)

    def of_rows(self, rows: NDArray[np.intp]) -> GramProblem:
        """Return some rows only."""
        return GramProblem(self.own[rows], self.heard.of_rows(rows))


def choose_alpha(path: Penalised, alpha: float | str, folds: list[NDArray[np.intp]]) -> float:
    """Return a number as it is; marginal likelihood; or the penalty of smallest cross-validated loss on the party's own design."""
    if not isinstance(alpha, str):
        return alpha
    if alpha == "marginal-likelihood":
        return path.evidence_alpha()
    penalties = penalty_grid(path)
    return float(penalties[int(np.argmin(path.cross_validated(penalties, folds)))])


def penalty_grid(path: Penalised) -> Vector:
    """Return penalties around the design's own scale."""
    scale = float(path.squares.mean()) if path.squares.size else 1.0
    return scale * RELATIVE_PENALTIES


def random_folds(rows: int, count: int, seed: int) -> list[NDArray[np.intp]]:
    """Folds from the study's public seed, the same at every party."""
    return [np.sort(fold) for fold in np.array_split(np.random.default_rng(seed).permutation(rows), min(count, rows))]


# --- Earlier models --------------------------------------------------------------------------------------------------------
# Earlier models at a party: what they say of its own columns and of what it received (THEORY.md, section 11).

_TUNED = table("pride")
#: Prior weight of being about no earlier model.
UNDRAWN = _TUNED.undrawn
#: Deviations of coefficients from an earlier model's, in roots of its mean square. Their logarithms are as far apart as those of the penalties
#: of an average, so that members with an earlier model and without one weigh alike before the response.
OFF = _TUNED.several("off")


@dataclass(frozen=True)
class Centre:
    """Earlier models at some weights, as coefficients of what a party fits on: its solution is these and a fit of what they leave."""

    weights: Vector
    #: Of the own coded columns, and of the received ones in their order.
    own: Vector
    received: Vector
    #: The mean square of a coefficient, over all parties' columns and over the others'.
    size: float
    others: float


def centres(design: PrideDesign, party: Part, received: Sequence[Received]) -> tuple[Centre, ...]:
    """Return the earlier models at every weight that is tried; none without earlier models."""
    models = design.parameters.prior
    if not models:
        return ()
    private, public = (
        {part.card.name: _coded(design, part, half) for part in design.parts} for half in ("private", "public")
    )
    blocks = [np.empty((len(models), 0))]
    for other in received:
        part = design.part(other.party)
        assert part is not None  # what it sent was read
        size = 0 if part.sketch is None else part.sketch.size
        # Columns of a sketch are mixtures of those that the models are about.
        blocks += [np.zeros((len(models), size))] * len(other.sketch) + [public[other.party]] * len(other.disclosed)
    name = party.card.name
    own, beyond = np.hstack([private[name], public[name]]), np.hstack(blocks)
    others = np.hstack([values for half in (private, public) for key, values in half.items() if key != name])
    every = np.hstack([*private.values(), *public.values()])
    return tuple(
        Centre(each, each @ own, each @ beyond, float(np.square(each @ every).mean()), _square(each @ others))
        for each in points(len(models))
        if (each @ every).any()  # the mean of opposite models says nothing
    )


def _square(values: Vector) -> float:
    return float(np.square(values).mean()) if values.size else 0.0


def _coded(design: PrideDesign, part: Part, half: str) -> Matrix:
    """Return coefficients of a party's coded columns, a row for each model; parties that hold one column share its coefficient."""
    coding = getattr(part, half)
    holders = Counter(column.name for other in design.parts for column in other.card.columns)
    shared = np.array([holders[coding.columns[j].name] for j in coding.attribute], dtype=np.float64)
    rows = rows_of(design.parameters.prior, coding.coded_names, intercept=False)
    return np.asarray(rows * coding.units[0] / np.maximum(shared, 1.0))


def points(count: int) -> list[Vector]:
    """Return the weights that are tried: each model alone at a half and at 1, and of several their mean."""
    each = np.eye(count)
    mean = [np.full(count, 1 / count)] if count > 1 else []
    return [*(each / 2), *each, *mean]


def before(centres: Sequence[Centre]) -> tuple[float, float]:
    """Return log prior weights of being about no earlier model, and about each of these."""
    return (math.log(UNDRAWN), math.log((1 - UNDRAWN) / len(centres))) if centres else (0.0, 0.0)


def loosenings(centre: Centre) -> list[tuple[float, float]]:
    """Return variances of own coefficients about an earlier model, each with the factor by which the others' vary more.

    What the model says of columns that the party cannot see is as unknown to it as they are (THEORY.md, P.14).
    """
    return [(scale, 1 + centre.others / scale) for scale in (off**2 * centre.size for off in OFF)]


# --- The nearest earlier model ---------------------------------------------------------------------------------------------
# Losses that are log likelihoods as they stand: the earlier model of largest evidence, or none (THEORY.md, section 11).


@dataclass(frozen=True)
class Tried:
    """A fit about earlier models, or about none: its log weight, and the coefficients that it is about."""

    log_weight: float
    path: GramNewtonPath | DesignPath
    alpha: float
    centre: Centre | None
    #: Of the own columns and of received ones.
    own: Vector
    received: Vector


def nearest_share(
    family: Family | JointFamily,
    problem: GramProblem,
    response: Vector,
    centres: Sequence[Centre],
    *,
    fit_intercept: bool = True,
) -> tuple[float, Share, Matrix]:
    """Return the penalty and the party's share of largest evidence, and the weights of earlier models in it."""
    assert isinstance(family, Family)  # the parameters saw to it
    plain, about = before(centres)
    kernel = Kernel.of(problem.own, problem.heard, fit_intercept=fit_intercept)
    path = GramNewtonPath.of(kernel, response, family, fit_intercept=fit_intercept)
    alpha, none = path.evidence_alpha(), np.empty(0)
    tried = [Tried(plain - path.evidence(alpha) / 2, path, alpha, None, np.zeros(problem.own.shape[1]), none)]
    for centre in centres:
        loss = OffsetLoss(family, (problem.own - kernel.own_means) @ centre.own)
        for scale, loose in loosenings(centre):
            path = GramNewtonPath.of(kernel.loosened(loose), response, loss, fit_intercept=fit_intercept)
            weight = about - path.evidence(1 / scale) / 2
            tried.append(Tried(weight, path, 1 / scale, centre, centre.own, none))
    return _best(tried, kernel.own_means)


def nearest_at_home(
    family: Family | JointFamily,
    problem: DesignProblem,
    response: Vector,
    centres: Sequence[Centre],
    *,
    fit_intercept: bool = True,
) -> tuple[float, Share, Matrix]:
    """Return the penalty and the prediction at the party of largest evidence, and the weights of earlier models in it."""
    assert isinstance(family, Family)  # the parameters saw to it
    design, width = np.hstack([problem.own, problem.received]), problem.own.shape[1]
    means, tried = design.mean(axis=0), []
    for centre, weight in ((None, before(centres)[0]), *((centre, before(centres)[1]) for centre in centres)):
        middle = np.zeros(design.shape[1]) if centre is None else np.concatenate([centre.own, centre.received])
        loss = OffsetLoss(family, (design - means) @ middle)
        inner = NewtonPath.of(design, response, loss, fit_intercept=fit_intercept)
        alpha = inner.evidence_alpha()
        path = DesignPath(inner, design, width)
        tried.append(Tried(weight - inner.evidence(alpha) / 2, path, alpha, centre, middle[:width], middle[width:]))
    return _best(tried, means)


def _best(tried: Sequence[Tried], means: Vector) -> tuple[float, Share, Matrix]:
    """Return the heaviest: the offset has the mean 0, so the decision at the columns' means is that of the fit."""
    best = max(tried, key=lambda one: one.log_weight)
    size = max(one.centre.weights.size for one in tried if one.centre is not None)
    weights = np.zeros(size) if best.centre is None else best.centre.weights
    found = best.path.solve(best.alpha)
    moved = replace(
        found,
        own=found.own + best.own,
        received=found.received + best.received,
        intercept=found.intercept - float(means @ np.concatenate([best.own, best.received])),
    )
    return best.alpha, moved, np.column_stack([weights, np.zeros(size)])


# --- An average by evidence ------------------------------------------------------------------------------------------------
# Prediction by an average over what a party may believe of the others' sketches, weighted by evidence (THEORY.md, section 10: P.12 and P.13).
#
# Members differ in the deviation sigma' >= sigma of the noise that is assumed where the sketches' directions are used; at sigma' = infinity no
# sketch is used. The likelihood of the sketches is always that of the true sigma. Everything is local: it reads the own columns, the response,
# and what was released.

#: Assumed deviations of the noise, as multiples of the true one; infinity (no sketch used) is a member of its own.
PATH = _TUNED.several("noises")
#: Penalties of every member, around the one of largest evidence.
FACTORS = _TUNED.several("penalty_factors")
#: The name under which a party keeps the deviation of the noise in every received column: the mark of an average.
NOISE = "received_noise"
#: Prior weight of the members that use no sketch.
UNUSED = _TUNED.unused
#: Off the log weight of energies that were fitted to the sketches, which are likelier under them for that alone.
FITTED = _TUNED.fitted


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
