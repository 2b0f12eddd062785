"""Earlier models that a fit is drawn to: what a study says of them, how much weight a few noisy numbers give to each, and precisions as a user writes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.privacy.origin import PRIOR
from unpooled.privacy.sentence import Sentence
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.inference.coordinates import Coordinates
    from unpooled.inference.estimates import Estimates
    from unpooled.privacy.plan import Study

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]


# --- Priors ----------------------------------------------------------------------------------------------------------------
# Earlier models that a fit is drawn to: what a study says of them, and how much weight a few noisy numbers give to each.
#
# An earlier model is a linear function of the declared columns. A study with some of them learns the weight of each and what they lack, so a
# model that is useless here gets no weight, and a good one leaves little to learn. All of it is post-processing (THEORY.md of ``bayes``, section 14).

_TUNED = table("priors")
#: More earlier models than this are more weights than a small study can tell apart.
MOST = _TUNED.whole("most")
#: Weights are drawn from the simplex: their sum is at most 1. With some of the mass each is all or nothing.
_DRAWS, _WHOLE = _TUNED.whole("draws"), _TUNED.all_or_nothing
#: Deviations of what no weights explain, of each length along the models and of the mean, in deviations of the response. The
#: first has half of the mass, the others share the rest.
_MORE, _SHIFTS = _TUNED.several("more"), _TUNED.several("shifts")
#: Deviations of what earlier models lack, in typical slopes.
_DEVIATIONS = np.geomspace(*_TUNED.pair("lacking"), 14)
#: A direction that adds less than this part of its length to those before is one of them.
_SAME = 1e-6


class EarlierModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[parameters.prior]]``: a model of the same response, by the names of the columns that a fit's coefficients have."""

    #: What the foot of the table calls it.
    name: str
    #: Coefficients in the data's own units; of a column that is not named the model says nothing.
    coefficients: dict[str, float]
    intercept: float = 0.0


class Weight(msgspec.Struct, frozen=True):
    """The weight that a fit gives to an earlier model: 1 takes it as it is, 0 not at all."""

    name: str
    weight: float
    #: Its standard deviation after the release; None where the fit has no posterior.
    deviation: float | None = None


class Pull(msgspec.Struct, frozen=True):
    """The coefficient of a term with the earlier models, and without them where the release tells it."""

    term: str
    value: float
    alone: float | None


class DrawnTo(msgspec.Struct, frozen=True):
    """The weights of the earlier models that drew a fit, and how far they drew each term."""

    weights: tuple[Weight, ...]
    terms: tuple[Pull, ...]
    #: All coefficients without earlier models, of which only what the release determines means anything (two levels' difference, say); and which are slopes.
    alone: tuple[float, ...] = ()
    slopes: tuple[bool, ...] = ()


def check_models(models: Sequence[EarlierModel], names: Sequence[str], *, intercept: bool) -> None:
    """Refuse earlier models that cannot be meant: of no columns, of others, without a name of their own, or with wild numbers."""
    if len(models) > MOST:
        msg = f"prior names {len(models)} earlier models, and at most {MOST} can be weighed: leave out those that say least"
        raise UsageError(msg)
    called = [model.name for model in models]
    if len(set(called)) != len(called) or not all(called):
        raise UsageError("prior: every earlier model has a name of its own")
    for model in models:
        if strange := [name for name in model.coefficients if name not in names]:
            msg = f"prior {model.name!r} has a coefficient of {listed(strange)}; the coefficients here are {listed(list(names))}"
            raise UsageError(msg)
        if not all(math.isfinite(value) for value in (*model.coefficients.values(), model.intercept)):
            msg = f"prior {model.name!r} has a coefficient that is no finite number"
            raise UsageError(msg)
        if not any(model.coefficients.values()):
            msg = f"prior {model.name!r} has no coefficient but 0, so it says nothing of any column"
            raise UsageError(msg)
        if not intercept and model.intercept:
            msg = f"prior {model.name!r} has an intercept, and the coefficients here are {listed(list(names))}"
            raise UsageError(msg)


def rows_of(models: Sequence[EarlierModel], names: Sequence[str], *, intercept: bool) -> Matrix:
    """Return the coefficients of every model in the data's own units, a row each; the constant is last."""
    return np.array(
        [[*(model.coefficients.get(name, 0.0) for name in names), *([model.intercept] * intercept)] for model in models]
    ).reshape(len(models), len(names) + intercept)


def in_coordinates(own: Matrix, frame: Coordinates, *, intercept: bool) -> Matrix:
    """Return models (a row each) in the coordinates of a fit."""
    moved = own.copy()
    if intercept:
        moved[:, -1] -= frame.response_centre
    return np.asarray(np.linalg.solve(frame.back(intercept=intercept), moved.T).T)


def directions(models: Matrix) -> Matrix:
    """Return orthonormal directions of slopes that span those of the models (a row each), a row each; models that agree share one."""
    left, sizes, right = np.linalg.svd(models, full_matrices=False)
    del left
    return np.asarray(right[sizes > _SAME * sizes[0]]) if sizes.size and sizes[0] > 0 else np.empty((0, models.shape[1]))


@dataclass(frozen=True)
class Weighed:
    """The means of lengths and constant given noisy ones, and the weights of the models behind them."""

    lengths: Row
    constant: float
    weights: Row
    deviations: Row


def simplex(count: int) -> tuple[Matrix, Row]:
    """Return weights of ``count`` models that add up to at most 1, a row each, and how likely each row is before any data.

    Half of the mass is on one model alone or on none, for most earlier models either hold here or do not. The draws are the same in every
    study: they are a rule of integration, and no noise.
    """
    corners = np.vstack([np.zeros(count), np.eye(count)])
    drawn = np.random.default_rng(count).dirichlet(np.ones(count + 1), _DRAWS * count)[:, :count]
    likely = np.concatenate([np.full(count + 1, _WHOLE / (count + 1)), np.full(len(drawn), (1 - _WHOLE) / len(drawn))])
    return np.vstack([corners, drawn]), likely


def weighed(lengths: Row, error: float, constant: float, shift_error: float, models: Matrix, constants: Row) -> Weighed:
    """Return what noisy lengths along directions, and a noisy constant, say of them and of the weights of the models.

    ``models`` has the lengths of every model along the same directions, a row each, and ``constants`` their constants. Errors are standard
    deviations; all numbers are in deviations of the response.
    """
    points, likely = simplex(len(models))
    middle, level = points @ models, points @ constants
    log = np.log(likely)[:, None, None] + _mass(_MORE)[:, None] + _mass(_SHIFTS)
    more, shift = np.square(_MORE), np.square(_SHIFTS)
    spread, wide = more + max(error, 1e-9) ** 2, shift + max(shift_error, 1e-9) ** 2
    far = np.square(lengths - middle).sum(axis=1)
    off = np.square(constant - level)
    log = log - 0.5 * (far[:, None] / spread + lengths.size * np.log(spread))[:, :, None]
    log = log - 0.5 * (off[:, None] / wide + np.log(wide))[:, None, :]
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    by_more, by_shift, by_point = mass.sum(axis=2), mass.sum(axis=1), mass.sum(axis=(1, 2))
    kept, moved = by_more * (more / spread), by_shift * (shift / wide)
    found = by_point @ middle + kept.sum() * lengths - kept.sum(axis=1) @ middle
    mean = float(by_point @ level + moved.sum() * constant - moved.sum(axis=1) @ level)
    weights = by_point @ points
    return Weighed(found, mean, weights, np.sqrt(np.maximum(by_point @ np.square(points) - weights**2, 0.0)))


@dataclass(frozen=True)
class Told:
    """The likelihood exp(s.b - b'Pb/2) of coefficients b in the coordinates of a fit: its precision P and score s (THEORY.md of ``bayes``, section 14)."""

    precision: Matrix
    score: Row

    @classmethod
    def of(cls, mean: Row, covariance: Matrix, still: Matrix, prior: Row | None = None) -> Told:
        """Return what a normal posterior holds beyond its own prior variances (None: it has none), along all directions but the still ones.

        A posterior that is averaged over unknown noise is not quite normal. Along a direction of which the release says less than that prior
        does, dividing by what it says could put the coefficients anywhere; there they are taken at twice the posterior's mean.
        """
        own = _complement(still)
        inner = np.linalg.inv(own.T @ covariance @ own)
        if prior is None:
            whole = own @ inner @ own.T
            return cls((whole + whole.T) / 2, own @ (inner @ (own.T @ mean)))
        # In units of the prior's deviations along the directions that are not still, it has precision 1.
        before = np.linalg.cholesky(np.linalg.inv((own.T / prior) @ own))
        whole = before.T @ inner @ before
        values, vectors = np.linalg.eigh((whole + whole.T) / 2 - np.eye(own.shape[1]))
        values = np.maximum(values, 0.0)
        back = own @ np.linalg.solve(before.T, vectors)
        middle = vectors.T @ np.linalg.solve(before, own.T @ mean)
        return cls((back * values) @ back.T, back @ (np.minimum(1 + values, 2 * values) * middle))

    def plus(self, along: Matrix, mean: Row, covariance: Matrix) -> Told:
        """Return the same with a mean of this covariance along orthonormal directions of which nothing was known, a column each."""
        told = along @ np.linalg.solve(along.T @ covariance @ along, along.T)
        return Told(self.precision + told, self.score + told @ mean)


def told_of(estimates: Estimates, back: Matrix, nearer: tuple[Row, Matrix] | None = None) -> tuple[Told, Matrix]:
    """Return what unshrunk estimates say in the coordinates of a fit, and the directions that are hidden there, a column each.

    ``back`` maps these coordinates to the data's own units. Classes have more coefficients than a fit has contrasts of them. ``nearer`` is a
    better estimate of what the same rows would give without noise, in these coordinates, and its covariance.
    """
    size = len(estimates.names)
    into = np.asarray(np.linalg.inv(back) if back.shape[1] == size else np.linalg.pinv(back), dtype=np.float64)
    hidden, still = (into @ estimates.square(numbers).reshape(size, -1) for numbers in (estimates.unknown, estimates.still))
    found, covariance = into @ np.array(estimates.estimate), into @ estimates.square(estimates.covariance) @ into.T
    if nearer is not None:
        found, covariance = nearer[0], nearer[1] + into @ estimates.square(estimates.sampling) @ into.T
    return Told.of(found, covariance, np.hstack([hidden, still])), hidden


def drawn_to(
    told: Told, there: Matrix, slopes: NDArray[np.bool_], typical: float | None = None
) -> tuple[Row, Matrix, Row, Row]:
    """Return (mean, covariance, weights of the models, their deviations): the posterior about earlier models, a row of ``there`` each.

    Coefficients are those of the weighted models plus what is normal in the coordinates of the fit. The weights, and the deviation of what
    is added, are averaged by how likely they make the release. ``typical`` is a slope of coefficients that explain all of the response together
    (None: of columns and response of deviation 1); deviations far above it are rarer.
    """
    typical = _typical_of(slopes) if typical is None else typical
    points, likely = simplex(len(there))
    middle = points @ there
    left = told.score - middle @ told.precision
    fits = middle @ told.score - 0.5 * np.einsum("ij,ij->i", middle @ told.precision, middle)
    logs, means, spreads = [], [], []
    for deviation in (typical * _DEVIATIONS).tolist():
        prior = np.where(slopes, deviation**2, max(deviation**2, 1.0))
        lower = np.linalg.cholesky(np.diag(1 / prior) + told.precision)
        half = np.linalg.solve(lower, left.T)
        # Half a Cauchy density, and not every magnitude alike: a deviation of nearly nothing would make intervals too short.
        change = (
            math.log(deviation / (1 + (deviation / typical) ** 2))
            - 0.5 * float(np.log(prior).sum())
            - float(np.log(lower.diagonal()).sum())
        )
        logs.append(np.log(likely) + fits + 0.5 * np.square(half).sum(axis=0) + change)
        means.append(middle + np.linalg.solve(lower.T, half).T)
        inverse = np.linalg.solve(lower, np.eye(slopes.size))
        spreads.append(inverse.T @ inverse)
    mass = np.exp(np.array(logs) - np.max(logs))
    mass /= mass.sum()
    mean = np.einsum("ij,ijk->k", mass, np.array(means))
    covariance = np.einsum("i,ijk->jk", mass.sum(axis=1), np.array(spreads))
    for weights, found in zip(mass, means, strict=True):
        covariance += ((found - mean) * weights[:, None]).T @ (found - mean)
    weight = mass.sum(axis=0) @ points
    deviations = np.sqrt(np.maximum(mass.sum(axis=0) @ np.square(points) - weight**2, 0.0))
    return mean, covariance, weight, deviations


def _mass(levels: Sequence[float]) -> Row:
    """Return the logarithm of how likely each of several levels is."""
    return np.log([_WHOLE, *[(1 - _WHOLE) / (len(levels) - 1)] * (len(levels) - 1)])


def named(models: Sequence[EarlierModel], weights: Row, deviations: Row | None = None) -> tuple[Weight, ...]:
    """Return the weights of earlier models with their names, and with their deviations where there are any."""
    spreads = [None] * len(models) if deviations is None else deviations.tolist()
    each = zip((model.name for model in models), weights.tolist(), spreads, strict=True)
    return tuple(Weight(*one) for one in each)


def posterior_of(
    estimates: Estimates, mean: Row, covariance: Matrix, weights: tuple[Weight, ...]
) -> tuple[Estimates, DrawnTo]:
    """Return the estimates of a posterior in the data's own units, and how far it drew each term; ``weights``: those of the earlier models.

    What the release alone does not determine stays hidden, for of it the belief is nearly all that is said (a column that never varies). What
    hides of a line that is determined is no bias here: the posterior holds it.
    """
    alone = estimates.determined(np.eye(len(estimates.names))).tolist()
    each = zip(estimates.names, mean.tolist(), estimates.estimate, alone, strict=True)
    pulls = tuple(Pull(name, value, before if told else None) for name, value, before, told in each)
    spread = tuple(np.ravel(covariance).tolist())
    own = {"estimate": tuple(mean.tolist()), "covariance": spread, "sampling": spread, "slopes": ()}
    return msgspec.structs.replace(estimates, **own), DrawnTo(weights, pulls, estimates.estimate, estimates.slopes)


def _typical_of(slopes: NDArray[np.bool_]) -> float:
    """Return a slope of columns of deviation 1 that explain a response of deviation 1 together."""
    return 1 / math.sqrt(max(int(slopes.sum()), 1))


def _complement(directions: Matrix) -> Matrix:
    """Return orthonormal columns that span what is orthogonal to these columns."""
    if not directions.size:
        return np.eye(directions.shape[0])
    left, sizes, _ = np.linalg.svd(directions, full_matrices=True)
    return np.asarray(left[:, int((sizes > _SAME * sizes[0]).sum()) :])


def assumed(study: Study, models: Sequence[EarlierModel]) -> tuple[Sentence, ...]:
    """Return the assumption about earlier models that no earlier plan is named for."""
    if not models or any(origin.input == PRIOR for origin in study.origins):
        return ()
    return (
        Sentence(
            "prior.declared",
            "The earlier models ({models}) are public: they were released before with a guarantee of their own, or computed without these "
            "rows. The study declares them, and nothing here checks where they come from.",
            models=", ".join(model.name for model in models),
        ),
    )


def words(drawn: DrawnTo) -> tuple[str, ...]:
    """Return the lines at the foot of a table that say what earlier models did."""
    spreads = ("" if w.deviation is None else f" (+-{w.deviation:.2f})" for w in drawn.weights)
    weights = listed([f"{w.name!r} {w.weight:.2f}{spread}" for w, spread in zip(drawn.weights, spreads, strict=True)])
    found = [f"drawn to earlier models, with weight of each (1: as it is, 0: not at all): {weights}"]
    far = [pull for pull in drawn.terms if pull.alone is not None]
    if far:
        moved = listed([f"{p.term} {p.value - (p.alone or 0.0):+.3g}" for p in far])
        found.append(f"how far they drew each term: {moved}")
    return tuple(found)


# --- Precisions ------------------------------------------------------------------------------------------------------------
# Precisions: a positive number, or the word that asks for its estimate.

#: In the place of a precision: estimated from the moments themselves.
ESTIMATE = "estimate"


def is_estimated(precision: object) -> bool:
    """Return True if a precision is to be estimated; another word is an error."""
    if isinstance(precision, str) and precision != ESTIMATE:
        msg = f"a precision is a positive number or {ESTIMATE!r}"
        raise UsageError(msg)
    return isinstance(precision, str)


def positive(precision: float | str) -> float:
    """Return a precision that is a positive finite number; refused otherwise."""
    number = float(precision)
    if not 0 < number < math.inf:
        raise UsageError("a precision must be a positive finite number")
    return number
