"""Pure generator of the default form: standardise, choose, moments, axes, what they have in common, and a fit. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.optimize import brentq

from unpooled.errors import ProtocolError
from unpooled.inference.priors import DrawnTo, Pull, named, rows_of
from unpooled.kernels.l1_ball import (
    TwoClasses,
    logistic_in_ball,
    logistic_with_penalty,
    quadratic_in_balls,
    quadratic_with_penalty,
)
from unpooled.models.lasso.declared import LOGISTIC
from unpooled.models.lasso.frank_wolfe_fit import LassoResult, fills, in_own_units
from unpooled.models.lasso.frank_wolfe_rows import Term, grids, shortened
from unpooled.models.lasso.moments_rows import (
    AXIS,
    AXIS_CAP,
    CAP,
    CHOOSE,
    CLIP,
    CROSSING,
    PRODUCTS,
    SUMS,
    AxisRequest,
    ChooseRequest,
    CrossingRequest,
    ProductsRequest,
    Standards,
    coded_of,
    longest_row,
)
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Array, Ask, Nothing
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.models.lasso.moments_rows import StandardDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    #: (second moments, products with the response, penalties of standardised coefficients, what one of these is in coded ones) -> coded
    #: coefficients, constant. In a ball all penalties are 0.
    Solve = Callable[[Matrix, Vector, Vector, Vector], tuple[Vector, float]]
    #: Noisy products of each pair of axes, both ways, and the variances of their noise.
    Products = tuple[Matrix, Matrix]
    Known = dict[str, tuple[Vector, Vector]]


# --- In common -------------------------------------------------------------------------------------------------------------
# Common part of directions of several parties' rows, believed from noisy correlations: a fit must not explain it once for each party.

#: Parts that may be in common; nothing is as likely as anything else up to all of it.
_LEVELS = np.linspace(0, 1, 101)
_NOTHING = np.concatenate([[1.0], np.full(_LEVELS.size - 1, 1 / (_LEVELS.size - 1))])
_TUNED = table("lasso_moments")
_MOST_IN_COMMON = _TUNED.common_most
#: The least noise that is told apart from none.
_FINEST = 1e-3


def believed_moments(correlations: Matrix, noise: float, told: Vector) -> Matrix:
    """Return second moments of directions of variance one, from noisy correlations; ``told``: each direction's own correlation with the response.

    What all have in common, turned so that each rises with the response, is one number that every pair tells of; what is left of a pair is
    shrunk towards it. Both are posterior means. What they leave unknown is added to the diagonal: a fit that believes of a direction that it
    varies less than it does explains more of it than there is, and ends worse than the mean (THEORY.md, 1c.1). As much more is added as it
    takes for the directions not to explain more of the response than there is.
    """
    count = told.size
    if count <= 1:
        return np.eye(count)
    signs = np.where(told < 0, -1.0, 1.0)
    pairs, alike = np.triu_indices(count, 1), np.outer(signs, signs)
    deviation = max(noise / math.sqrt(pairs[0].size), _FINEST)
    level = _believed(_LEVELS, -np.square((_LEVELS - (alike * correlations)[pairs].mean()) / deviation) / 2, _NOTHING)
    shared = min(level, _MOST_IN_COMMON) * alike
    left = (correlations - shared)[pairs]
    variances = np.square(_MOST_IN_COMMON * _LEVELS)  # that what is left may have
    total = variances + max(noise, _FINEST) ** 2
    part = _believed(variances / total, -(left.size * np.log(total) + float(left @ left) / total) / 2)
    within = np.clip(shared + part * (correlations - shared), -_MOST_IN_COMMON, _MOST_IN_COMMON)
    np.fill_diagonal(within, 1.0)
    values, vectors = np.linalg.eigh(within)
    values = np.maximum(values, _TUNED.combination_least) + _TUNED.unknown * count * math.sqrt(part) * noise
    along = np.square(vectors.T @ told)
    if (along / values).sum() > 1:  # no correlations of anything: at |told|^2 more they are
        values = values + brentq(lambda more: float((along / (values + more)).sum()) - 1, 0.0, float(along.sum()))
    return np.asarray((vectors * values) @ vectors.T)


def _believed(values: Vector, likelihood: Vector, prior: Vector | None = None) -> float:
    """Return the posterior mean, of log likelihoods."""
    weights = np.exp(likelihood - likelihood.max()) * (1.0 if prior is None else prior)
    return float(weights @ values / weights.sum())


# --- Fit -------------------------------------------------------------------------------------------------------------------
# Fit from the parties' noisy moments, and the products of their first axes, to coefficients: numbers alone, all post-processing.

#: The penalty where no radius is named, a part of sqrt(2 log d) deviations of a product with the response.
PENALTY = _TUNED.penalty
_MEAN_PRIOR = _TUNED.mean_prior
#: E clip(t, c)^2 of a standard normal t: how much clipping shrinks what two axes have in common.
_KEPT = 1 - 2 * (
    AXIS_CAP * math.exp(-(AXIS_CAP**2) / 2) / math.sqrt(2 * math.pi)
    + (1 - AXIS_CAP**2) * math.erfc(AXIS_CAP / math.sqrt(2)) / 2
)


@dataclass(frozen=True)
class OwnMoments:
    """One party's noisy correlations, of columns with each other and with the response, and the deviations of their noise."""

    gram: Matrix
    cross: Vector
    gram_noise: float
    cross_noise: float

    @property
    def level(self) -> float:
        """Return the mean of the diagonal: what shortening left of standardised rows."""
        return max(float(self.gram.diagonal().mean()), 0.1)

    @property
    def repaired(self) -> tuple[Matrix, Vector]:
        """Return the Gram matrix, raised in proportion to its noise, and its first axis, of variance 1."""
        values, vectors = np.linalg.eigh(self.gram)
        noise = self.gram_noise * math.sqrt(2 * self.cross.size)
        # What varies less than is believed costs little; what varies more is explained many times over.
        values = np.maximum(values, _TUNED.raised * self.level) + _TUNED.ridge * noise
        return np.asarray((vectors * values) @ vectors.T), np.asarray(vectors[:, -1] / math.sqrt(values[-1] / self.level))

    def slopes(self, many: int) -> Vector:
        """Return the products with the response on the scale of correlations, less about the largest of ``many`` noises."""
        loss = self.cross_noise * math.sqrt(2 * math.log(max(many, 2)))
        return np.asarray(np.sign(self.cross) * np.maximum(np.abs(self.cross) - loss, 0.0) / self.level)

    def priced(self, many: int, chance: float | None, part: float = PENALTY) -> tuple[Vector, Vector]:
        """Return the products with the response that a fit uses, and the penalty of each coefficient, on the scale of correlations.

        ``chance`` is the deviation that drawing the rows gives a correlation: the penalty is ``part`` of what the largest of ``many`` products of
        noise and chance alone is about. None is for a fit in a ball, which has no penalty: there the products lose what noise alone makes.
        """
        if chance is None:
            return self.slopes(many), np.zeros(self.cross.size)
        level = part * math.sqrt(2 * math.log(max(many, 2))) * math.hypot(self.cross_noise, chance)
        return self.cross / self.level, np.full(self.cross.size, level / self.level)


@dataclass(frozen=True)
class Axis:
    """A direction of one party's standardised columns along which rows have variance 1 (or none: all zeros).

    ``told`` is its product with the response less its penalty, which a fit adds again where it has that penalty itself.
    """

    direction: Vector
    told: float
    penalty: float = 0.0

    @classmethod
    def of(cls, own: OwnMoments, direction: Vector, slopes: Vector, penalty: Vector | None = None) -> Axis:
        """Along these coefficients."""
        variance = float(direction @ own.repaired[0] @ direction) / own.level
        unit = direction / math.sqrt(variance) if variance > 0 else np.zeros_like(direction)
        price = 0.0 if penalty is None else float(penalty @ np.abs(unit))
        return cls(unit, float(unit @ slopes) - price, price)


def _untold(count: int) -> Products:
    """Return products of axes that nobody released: zeros with very large variances."""
    return np.zeros((count, count)), np.full((count, count), 1e6)


def fitting(
    owns: Sequence[OwnMoments],
    scale: Vector,
    solve: Solve,
    stages: int,
    chance: float | None = None,
    part: float = PENALTY,
) -> Generator[list[Axis], Products, tuple[Vector, float]]:
    """Coefficients of all parties' coded columns, and the constant; yields the axes whose products it has to know, once for each stage (if any).

    The last stage weighs what the parties' columns say, a number for each party: nothing is weighed whose products were not measured; or, where
    no stage would tell anything, with what is believed of them before. ``chance`` and ``part`` are those of :meth:`OwnMoments.priced`.
    """
    many = scale.size
    priced = [own.priced(many, chance, part) for own in owns]
    cross, penalty = (np.concatenate(parts) for parts in zip(*priced, strict=True))
    if len(owns) == 1:
        return solve(combined(owns, None, many)[0], cross, penalty, scale)
    ends = np.cumsum([own.cross.size for own in owns])[:-1]
    scales = np.split(scale, ends)
    if stages <= 1:
        fits = [
            solve(combined([own], None, many)[0], *price, wide)[0] / wide
            for own, price, wide in zip(owns, priced, scales, strict=True)
        ]
    else:
        # The first axes tie the parties' columns to each other; what they leave untied, the last stage bounds.
        first = [Axis.of(own, own.repaired[1], own.slopes(many)) for own in owns]
        common = shared_axes(*(yield first), np.array([axis.told for axis in first]))
        fits = np.split(solve(combined(owns, common, many)[0], cross, penalty, scale)[0] / scale, ends)
    axes = [Axis.of(own, fit, *price) for own, fit, price in zip(owns, fits, priced, strict=True)]
    products, variance = (yield axes) if stages else _untold(len(owns))
    # A party whose columns say nothing has no axis, and no part in what the others have in common.
    speaks = [k for k, axis in enumerate(axes) if axis.direction.any()]
    among = np.ix_(speaks, speaks)
    spoken = [axes[k] for k in speaks]
    common = shared_axes(products[among], variance[among], np.array([axis.told for axis in spoken]))
    coded = [axis.direction * scales[k] for k, axis in zip(speaks, spoken, strict=True)]
    weights, constant = _weighed(common, spoken, np.array([np.abs(x).sum() for x in coded]), solve, turns=stages > 1)
    out = [np.zeros_like(wide) for wide in scales]
    for k, direction, weight in zip(speaks, coded, weights.tolist(), strict=True):
        out[k] = direction * weight
    return np.concatenate(out), constant


def _weighed(common: Matrix, axes: Sequence[Axis], lengths: Vector, solve: Solve, *, turns: bool) -> tuple[Vector, float]:
    """Return the weight of each axis, and the constant; ``lengths`` are l1 norms of coded axes. ``turns``: a weight may turn an axis round."""
    price = np.array([axis.penalty for axis in axes])
    cross = np.array([axis.told for axis in axes]) + price
    left, out = np.arange(len(axes)), np.zeros(len(axes))
    while True:
        found, constant = solve(common[np.ix_(left, left)], cross[left], price[left], lengths[left])
        weights = found / lengths[left]
        against = weights * np.sign(cross[left])
        # A fit to the response that counts against it is what noise makes of axes that are much alike, unless they are known well.
        if turns or not (against < 0).any():
            out[left] = weights
            return out, constant
        left = np.delete(left, int(against.argmin()))


def standards_of(first: Vector, second: Vector, noises: tuple[Vector, Vector], *, centred: bool) -> tuple[Vector, Vector]:
    """Return means and deviations from noisy means of values and of squares, at least as far as their noise lets them."""
    middle = np.zeros(first.size)
    if centred:
        middle = np.clip(first * _MEAN_PRIOR**2 / (_MEAN_PRIOR**2 + noises[0] ** 2), -1.0, 1.0)
    # A deviation near its noise is no unit of anything: clipped values then say less, and nothing breaks.
    least = np.maximum(np.maximum(noises[1], _TUNED.narrowest**2), np.square(middle / CAP) * 1e-3)
    return middle, np.sqrt(np.clip(second - middle**2, least, 1.0))


def shared_axes(products: Matrix, variance: Matrix, told: Vector) -> Matrix:
    """Return second moments of axes, from noisy products of each pair, both ways; ``told``: those of each axis with the response."""
    pairs = np.triu_indices(told.size, 1)
    noise = float((variance + variance.T)[pairs].mean() / 4) if told.size > 1 else 0.0
    return believed_moments((products + products.T) / 2 / _KEPT, math.sqrt(noise) / _KEPT, told)


def heard_rows(scores: Matrix, noise: float) -> tuple[Matrix, float]:
    """Return rows of others' noisy scores, the longest shortened, and what part of a product with something else that leaves.

    A release of products has noise in the length of the longest row, which is the largest of all rows' noises: of a typical length nothing is lost
    that matters. By Stein's lemma products are a multiple of the exact ones, of the mean derivative of what shortens.
    """
    count = scores.shape[1]
    lengths = np.linalg.norm(scores, axis=1)
    factors = np.minimum(1.0, longest_row(count, noise) / np.maximum(lengths, 1e-300))
    left = np.where(factors < 1, factors * (1 - 1 / count), 1.0)
    return scores * factors[:, None], max(float(left.mean()), _TUNED.kept_least)


def combined(owns: Sequence[OwnMoments], common: Matrix | None, many: int) -> tuple[Matrix, Vector]:
    """Return (Gram, cross) of all parties' columns, on the scale of correlations; ``many``: the number of released products with the response.

    Between parties k and l columns have in common what their first axes have: G_k u_k c_kl u_l' G_l, and so has what c_kk is beyond 1 within
    a party. None: nothing.
    """
    ends = np.cumsum([0, *(own.cross.size for own in owns)])
    gram, along = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], len(owns)))
    for k, own in enumerate(owns):
        mine = slice(ends[k], ends[k + 1])
        raised, axis = own.repaired
        gram[mine, mine] = raised / own.level
        along[mine, k] = raised @ axis / own.level
    if common is not None:
        gram += along @ (common - np.eye(len(owns))) @ along.T
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors * np.maximum(values, _TUNED.raised_together)) @ vectors.T), np.concatenate(
        [own.slopes(many) for own in owns]
    )


def in_ball(gram: Matrix, cross: Vector, scale: Vector, radius: float) -> Vector:
    """Return coefficients x of coded columns with |x|_1 <= radius: ``scale`` is what one standardised coefficient is in them."""
    if not cross.any():
        return np.zeros(cross.size)
    return np.asarray(quadratic_in_balls(gram / np.outer(scale, scale), cross / scale, radius).coefficients)


def penalised(gram: Matrix, cross: Vector, penalty: Vector, scale: Vector) -> Vector:
    """Return coefficients x of coded columns, of the least squares with a penalty of the standardised ones: they do not depend on any units."""
    if not cross.any():
        return np.zeros(cross.size)
    return np.asarray(quadratic_with_penalty(gram, cross, penalty).coefficients * scale)


# --- Earlier models --------------------------------------------------------------------------------------------------------
# Fits that are drawn to earlier models: the fit without them and the models share the weight, by what the release says of each (THEORY.md, 1e).

#: The least that a combination of models is taken to vary, as a part of the largest.
_SLIGHT = 1e-9


@dataclass(frozen=True)
class Agreement:
    """Released moments of some columns, which tell how far coefficients x of these agree with the rows: b'x - x'Gx/2, along directions weighed by W."""

    weigh: Matrix
    gram: Matrix
    cross: Vector
    #: G without directions that vary as little as noise, the deviation of noise and chance in a product with the response, and the penalty of a
    #: coefficient of the fit without earlier models.
    raised: Matrix
    noise: float
    penalty: float

    @classmethod
    def of_party(cls, own: OwnMoments, chance: float, many: int, *, alone: bool) -> Agreement:
        """Return what one party's moments say, for the ``chance`` and the columns of the fit (:meth:`OwnMoments.priced`).

        What other parties' columns explain is in b too, and nobody knows their products with these. It lies along directions that vary more
        than a mean one, where columns have something in common: these have less weight, unless the party is ``alone``.
        """
        values, vectors = np.linalg.eigh(own.gram)
        more = 0.0 if alone else np.maximum(values / own.level - 1, 0.0)
        weigh = (vectors / (1 + _TUNED.others * np.square(more))) @ vectors.T
        noise = math.hypot(own.cross_noise, chance) / own.level
        cross, penalty = own.priced(many, chance)
        return cls(weigh, own.gram / own.level, cross, own.repaired[0] / own.level, noise, float(penalty[0]))

    def learnt(self, x: Vector) -> float:
        """Return how much noise a fit x has learnt, about: the covariance of x with the noise in the products, along the directions as weighed (Theorem L.11).

        On its columns a LASSO is x = s inv(G) (b - penalty), with s = 1 or how far x was shrunk after that.
        """
        used = np.flatnonzero(x)
        if not used.size:
            return 0.0
        among = np.ix_(used, used)
        told = float(x @ self.cross) - self.penalty * float(np.abs(x).sum())
        shrunk = float(x @ self.raised @ x) / max(told, self.noise * float(np.linalg.norm(x)))
        return shrunk * self.noise**2 * float(np.trace(np.linalg.solve(self.raised[among], self.weigh[among])))


@dataclass(frozen=True)
class Mixture:
    """Coefficients that are a mixture of a fit and of earlier models, the weights of these, and the constant; the fit has what is left of a weight of 1."""

    mixed: Vector
    weights: Vector
    constant: float

    @classmethod
    def of(cls, own: Vector, models: Matrix, heard: Sequence[Agreement], solve: Solve) -> Mixture:
        """Return the mixture whose models have the weights with the least loss that the release shows, of at least 0 and at most 1 in all.

        ``own`` is the fit without models, and ``models`` has a row for each, both in standardised coefficients of the columns that were ``heard``.
        ``solve`` is a fit in the l1 ball of radius 1, of mixtures in the place of columns: one number for each model is all that is fitted.
        """
        each = np.vstack([own, models])
        gram, cross = _said(each, heard, weigh=True)
        cross[0] -= sum(one.learnt(part) for part, one in zip(_apart(own, heard), heard, strict=True))
        values, vectors = np.linalg.eigh(gram)
        gram = (vectors * np.maximum(values, _SLIGHT * max(float(values[-1]), _SLIGHT))) @ vectors.T
        weights, left = np.zeros(len(each)), np.arange(len(each))
        while left.size:
            found, _ = solve(gram[np.ix_(left, left)], cross[left], np.zeros(left.size), np.ones(left.size))
            if (found >= 0).all():
                weights[left] = found + 0.0  # no zero has a sign
                break
            left = np.delete(left, int(found.argmin()))
        rest = float(1 - weights[1:].sum())
        weights[0] = (
            rest if rest > _SLIGHT else 0.0
        )  # the fit without models is shrunk as it should be, and rounding leaves none of it
        mixed = weights @ each
        size, told = _said(mixed[None], heard, weigh=False)
        _, constant = solve(np.maximum(size, _SLIGHT), told, np.zeros(1), np.ones(1))
        return cls(mixed, weights[1:], constant)


def _said(each: Matrix, heard: Sequence[Agreement], *, weigh: bool) -> tuple[Matrix, Vector]:
    """Return second moments of linear predictors (a row of coefficients each), and their products with the response."""
    gram, cross = np.zeros((len(each), len(each))), np.zeros(len(each))
    for part, one in zip(_apart(each, heard), heard, strict=True):
        along = part @ one.weigh if weigh else part
        both = along @ one.gram @ part.T
        gram += (both + both.T) / 2
        cross += along @ one.cross
    return gram, cross


def _apart(each: Matrix, heard: Sequence[Agreement]) -> list[Matrix]:
    """Return the coefficients of the columns of each that was heard."""
    return np.split(each, np.cumsum([one.cross.size for one in heard])[:-1], axis=-1)


def drawn_by(
    models: Sequence[EarlierModel], mixture: Mixture, coefficients: Mapping[str, float], alone: Mapping[str, float]
) -> DrawnTo:
    """Return the weights of earlier models, and how far they drew each coefficient, by name; ``alone``: those without them."""
    moved = (Pull(name, coefficients.get(name, 0.0), alone.get(name, 0.0)) for name in {**coefficients, **alone})
    return DrawnTo(named(models, mixture.weights), tuple(pull for pull in moved if pull.value != pull.alone))


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator of the default form: standardise, choose, moments, axes, what they have in common, and a fit.


def coordinate_standard(plan: Plan[StandardDesign]) -> Conversation:
    """Ask for sums, picks, moments and axes; the fit of what was released."""
    design = plan.design
    bound = design.parameters.response_bound
    known, response = yield from _standards(plan)
    logistic = design.parameters.loss == LOGISTIC
    if design.mean_only:
        return LassoResult((), _log_odds(response[0], design.rows) if logistic else bound * response[0], (), (), ())
    chosen = yield from _chosen(plan, known, response)
    requests = {name: ProductsRequest(_numbers(known[name], response, columns), columns) for name, columns in chosen.items()}
    replies = yield from everybody([Ask(name, PRODUCTS, request) for name, request in requests.items()])
    owns = {name: _own(plan, name, reply) for name, reply in zip(requests, replies, strict=True)}
    places = [(name, j) for name, columns in chosen.items() for j in columns]
    widths, means = (np.array([known[name][part][j] for name, j in places]) for part in (1, 0))
    radius = design.parameters.bound
    solve, deviation = _solve(design, response, radius)
    scale = deviation / widths
    chance = 1 / math.sqrt(design.rows)
    steps = fitting(list(owns.values()), scale, solve, design.stages, None if radius is not None else chance)
    x, constant = yield from _measured(plan, requests, steps)
    if design.parameters.prior:
        return _drawn(plan, known, (x, scale, places), [*owns.values()], chance, _solve(design, response, 1.0)[0])
    return _result(plan, places, x, constant - float(means @ x), radius)


def _result(
    plan: Plan[StandardDesign],
    places: Sequence[tuple[str, int]],
    x: Vector,
    intercept: float,
    radius: float | None = None,
    drawn: DrawnTo | None = None,
) -> LassoResult:
    """Return the coefficients that are not zero, of coded columns and in the data's own units."""
    found = sorted((Term(*place, value) for place, value in zip(places, x.tolist(), strict=True) if value), key=_order)
    terms = tuple(found)
    return LassoResult(*in_own_units(plan, terms, intercept), terms, (), (), fills(np.abs(x).sum(), radius), drawn=drawn)


def _drawn(
    plan: Plan[StandardDesign],
    known: Known,
    fit: tuple[Vector, Vector, Sequence[tuple[str, int]]],
    owns: Sequence[OwnMoments],
    chance: float,
    solve: Solve,
) -> LassoResult:
    """Return the mixture of a fit (coded coefficients, their scale, their places) with earlier models, which also have columns that no party kept."""
    x, scale, kept = fit
    models = plan.design.parameters.prior
    names, widths, places = coded_of(plan.study)
    told = rows_of(models, names, intercept=False) * widths
    at = [places.index(place) for place in kept]
    heard = [Agreement.of_party(own, chance, len(kept), alone=len(owns) == 1) for own in owns]
    mixture = Mixture.of(x / scale, told[:, at] / scale, heard, solve)
    alone, mixed = np.zeros(len(places)), mixture.weights @ told
    alone[at], mixed[at] = x, mixture.mixed * scale
    means = np.concatenate([known[name][0] for name in plan.design.parties])
    before, after = (dict(zip(names, (own / widths).tolist(), strict=True)) for own in (alone, mixed))
    drawn = drawn_by(models, mixture, after, before)
    return _result(plan, places, mixed, mixture.constant - float(means @ mixed), drawn=drawn)


def _solve(design: StandardDesign, response: tuple[float, float], radius: float | None) -> tuple[Solve, float]:
    """Return the fit of the study's loss in a ball, or with a penalty, and one deviation of the response in the units of coefficients."""
    if design.parameters.loss == LOGISTIC:
        return _classes(design, response, radius), 1.0
    bound = design.parameters.response_bound
    return _squares(bound * response[0], radius), response[1] * bound


def _squares(constant: float, radius: float | None) -> Solve:
    """Return the smallest squared error in the ball, or with a penalty."""
    if radius is None:
        return lambda gram, cross, penalty, scale: (penalised(gram, cross, penalty, scale), constant)
    return lambda gram, cross, _, scale: (in_ball(gram, cross, scale, radius), constant)


def _classes(design: StandardDesign, response: tuple[float, float], radius: float | None) -> Solve:
    """Return the smallest logistic loss of two normal classes in the ball, or with a penalty."""
    share, slope = _share(response[0], design.rows), _slope(response)

    def solve(gram: Vector, cross: Vector, penalty: Vector, scale: Vector) -> tuple[Vector, float]:
        classes = TwoClasses.of(gram, cross / slope, share)
        if radius is not None:
            return logistic_in_ball(classes, scale, radius)
        # Where nothing is fitted yet, the loss falls by half of what the squared one falls by.
        w, constant = logistic_with_penalty(classes, penalty / (2 * slope))
        return w * scale, constant

    return solve


def _share(mean: float, rows: int) -> float:
    """Return the share of the second class, which neither noise nor luck makes nothing or all."""
    return min(max((1 + mean) / 2, 1 / rows), 1 - 1 / rows)


def _log_odds(mean: float, rows: int) -> float:
    share = _share(mean, rows)
    return math.log(share / (1 - share))


def _slope(response: tuple[float, float]) -> float:
    """Return the slope of a party's clipped, standardised class: with two values, clipping keeps it a straight line of the class."""
    low, high = (min(max((value - response[0]) / response[1], -CLIP), CLIP) for value in (-1.0, 1.0))
    return max((high - low) / 2, 1e-3)


def _order(term: Term) -> tuple[str, int]:
    return term.party, term.column


def _numbers(known: tuple[Vector, Vector], response: tuple[float, float], columns: tuple[int, ...]) -> Standards:
    middle, width = (part[list(columns)] for part in known)
    return Standards(tuple(middle.tolist()), tuple(width.tolist()), response)


def _standards(plan: Plan[StandardDesign]) -> Generator[Any, Any, tuple[Known, tuple[float, float]]]:
    """Means and deviations of every party's columns, and those of the response."""
    design = plan.design
    names = design.parties[:1] if design.mean_only else design.parties
    replies = yield from everybody([Ask(name, SUMS, Nothing()) for name in names])
    g, known, response = float(grids(design.rows)[0]), {}, (0.0, 1.0)
    for name, reply in zip(names, replies, strict=True):
        mechanism: Any = plan.release(name, SUMS).mechanism
        width = 0 if design.mean_only else design.widths[name]
        values, noise = mechanism.decode(reply.sums.values.numpy()) / design.rows, mechanism.deviations / design.rows
        columns = (slice(width), slice(width, 2 * width))
        first, second = (values[part] / g ** (i + 1) for i, part in enumerate(columns))
        noises = tuple(noise[part] / g ** (i + 1) for i, part in enumerate(columns))
        known[name] = standards_of(first, second, (noises[0], noises[1]), centred=design.centres)
        if name == names[0]:
            own, own_noise = values[2 * width :] / [g, g * g], noise[2 * width :] / [g, g * g]
            middle, deviation = standards_of(own[:1], own[1:], (own_noise[:1], own_noise[1:]), centred=design.centres)
            response = float(middle[0]), float(deviation[0])
    return known, response


def _chosen(
    plan: Plan[StandardDesign], known: Known, response: tuple[float, float]
) -> Generator[Any, Any, dict[str, tuple[int, ...]]]:
    """The columns that every party keeps: all of them, or its picks."""
    design = plan.design
    found: dict[str, list[int]] = {name: list(design.known.get(name, ())) for name in design.parties}
    everything = {name: tuple(range(width)) for name, width in design.widths.items()}
    picking = [name for name in design.parties if design.picks(name)]
    for t in range(max((design.picked(name) for name in picking), default=0)):
        turn = [name for name in picking if t < design.picked(name)]
        asks = [
            Ask(name, CHOOSE, ChooseRequest(_numbers(known[name], response, everything[name]), tuple(found[name])), t)
            for name in turn
        ]
        for name, reply in zip(turn, (yield from everybody(asks)), strict=True):
            left = [j for j in everything[name] if j not in found[name]]
            picked = int(reply.choice.values.numpy()[0])
            if not 0 <= picked < 2 * len(left):
                msg = f"party {name!r} picked a column that it does not have"
                raise ProtocolError(msg)
            found[name].append(left[picked % len(left)])
    return {name: tuple(sorted(found[name])) if design.picks(name) else everything[name] for name in design.parties}


def _own(plan: Plan[StandardDesign], name: str, reply: Any) -> OwnMoments:  # noqa: ANN401 - a ProductsReply
    """Return a party's moments as correlations."""
    design = plan.design
    mechanism: Any = plan.release(name, PRODUCTS).mechanism
    count, unit = design.kept[name], float(design.grid(name)) ** 2 * design.rows
    values, noise = mechanism.decode(reply.products.values.numpy()) / unit, mechanism.deviations / unit
    off = count * (count - 1) // 2
    gram = np.diag(values[:count])
    gram[np.triu_indices(count, 1)] = values[count : count + off]
    gram += np.triu(gram, 1).T
    # The response was counted in units of its clip over R.
    back = CLIP / design.radius(name)
    return OwnMoments(gram, values[count + off :] * back, float(noise[0]), float(noise[-1]) * back)


def _measured(
    plan: Plan, requests: dict[str, ProductsRequest], steps: Generator[list[Axis], Products, tuple[Vector, float]]
) -> Generator[Any, Any, tuple[Vector, float]]:
    """Return the fit made of the products of the axes that it asks for, stage by stage."""
    products: Any = None
    for stage in range(plan.design.stages + 1):
        try:
            axes = steps.send(products)
        except StopIteration as ended:
            return cast("tuple[Vector, float]", ended.value)
        products = yield from _products(plan, requests, axes, stage)
    raise AssertionError("a fit of more stages than were planned")  # pragma: no cover - both count the same stages


def _products(
    plan: Plan[StandardDesign], requests: dict[str, ProductsRequest], axes: list[Axis], stage: int
) -> Generator[Any, Any, Products]:
    """Return the products of the parties' axes, from their released scores, and the variances of their noise."""
    design = plan.design
    first, second = grids(design.rows)
    asked = {
        name: AxisRequest(request.standards, request.columns, tuple(axis.direction.tolist()))
        for (name, request), axis in zip(requests.items(), axes, strict=True)
    }
    replies = yield from everybody([Ask(name, AXIS, request, stage) for name, request in asked.items()])
    scores, noises = {}, {}
    for name, reply in zip(asked, replies, strict=True):
        mechanism: Any = plan.release(name, AXIS).mechanism
        scores[name] = mechanism.decode(reply.scores.values.numpy()) * (AXIS_CAP / first)
        noises[name] = float(mechanism.deviations[0]) * AXIS_CAP / first
    names, heard = list(asked), max(noises.values())
    products, variance = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)))
    others, kept = {}, {}
    for name in asked:
        others[name], kept[name] = heard_rows(np.column_stack([scores[n] for n in asked if n != name]), heard)
    asks = [Ask(name, CROSSING, CrossingRequest(request, Array.of(others[name])), stage) for name, request in asked.items()]
    replies = yield from everybody(asks)
    for k, (name, reply) in enumerate(zip(names, replies, strict=True)):
        mechanism = plan.release(name, CROSSING).mechanism
        unit = AXIS_CAP / first / second * shortened(others[name])[1] / design.rows
        place = [j for j in range(len(names)) if j != k]
        products[k, place] = mechanism.decode(reply.products.values.numpy()) * (unit / kept[name])
        # The release's noise, and that of the others' scores, which meets scores of variance at most 1.
        noise = (float(mechanism.deviations[0]) * unit) ** 2 + np.square(others[name]).mean(axis=0) / design.rows
        variance[k, place] = noise / kept[name] ** 2
    return products, variance
