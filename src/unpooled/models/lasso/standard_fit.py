"""Fit from the parties' noisy moments, and the products of their first axes, to coefficients: numbers alone, all post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.l1_ball import quadratic_in_balls, quadratic_with_penalty
from unpooled.models.lasso.in_common import believed_moments
from unpooled.models.lasso.standard_plan import AXIS_CAP, CAP, longest_row

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    #: (second moments, products with the response, penalties of standardised coefficients, what one of these is in coded ones) -> coded
    #: coefficients, constant. In a ball all penalties are 0.
    Solve = Callable[[Matrix, Vector, Vector, Vector], tuple[Vector, float]]
    #: Noisy products of each pair of axes, both ways, and the variances of their noise.
    Products = tuple[Matrix, Matrix]

#: What is added to the eigenvalues of a party's noisy correlations, a part of the noise's norm, and to what part of their mean they are raised.
_RIDGE, _FLOOR = 0.4, 0.2
#: The same for all parties' together.
_LEAST = 0.1
#: The penalty where no radius is named, a part of sqrt(2 log d) deviations of a product with the response (experiments/lasso/penalty.py).
PENALTY = 0.25
#: The least part that shortened rows are taken to leave of a product.
_KEPT_LEAST = 0.1
#: What is believed of a mean before it is released, in half widths, and the narrowest deviation.
_MEAN_PRIOR, _NARROWEST = 0.35, 0.003
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
        values = np.maximum(values, _FLOOR * self.level) + _RIDGE * noise
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
    least = np.maximum(np.maximum(noises[1], _NARROWEST**2), np.square(middle / CAP) * 1e-3)
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
    return scores * factors[:, None], max(float(left.mean()), _KEPT_LEAST)


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
    return np.asarray((vectors * np.maximum(values, _LEAST)) @ vectors.T), np.concatenate([own.slopes(many) for own in owns])


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
