"""From the parties' noisy moments, and what their first axes have in common, to coefficients: numbers alone, all post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.l1_ball import quadratic_in_balls
from unpooled.models.lasso.in_common import believed_moments
from unpooled.models.lasso.standard_plan import AXIS_CAP, CAP, longest_row

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    #: (second moments, products with the response, what a standardised coefficient is in coded ones) -> coefficients in the ball, constant.
    Solve = Callable[[Matrix, Vector, Vector], tuple[Vector, float]]
    #: Noisy products of each pair of axes, both ways, and the variances of their noise.
    Products = tuple[Matrix, Matrix]

#: What is added to the eigenvalues of a party's noisy correlations, a part of the noise's norm, and to what part of their mean they are raised.
_RIDGE, _FLOOR = 0.4, 0.2
#: The same for all parties' together.
_LEAST = 0.1
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
        """The mean of the diagonal: what shortening left of standardised rows."""
        return max(float(self.gram.diagonal().mean()), 0.1)

    @property
    def repaired(self) -> tuple[Matrix, Vector]:
        """(the Gram matrix, more by its noise than it was told, its first axis, of variance 1)."""
        values, vectors = np.linalg.eigh(self.gram)
        noise = self.gram_noise * math.sqrt(2 * self.cross.size)
        # What varies less than is believed costs little; what varies more is explained many times over.
        values = np.maximum(values, _FLOOR * self.level) + _RIDGE * noise
        return np.asarray((vectors * values) @ vectors.T), np.asarray(vectors[:, -1] / math.sqrt(values[-1] / self.level))

    def slopes(self, many: int) -> Vector:
        """Products with the response on the scale of correlations, less what the largest of so many noises is about."""
        loss = self.cross_noise * math.sqrt(2 * math.log(max(many, 2)))
        return np.asarray(np.sign(self.cross) * np.maximum(np.abs(self.cross) - loss, 0.0) / self.level)


@dataclass(frozen=True)
class Axis:
    """A direction of one party's standardised columns along which rows have variance 1 (or none: all zeros), and its product with the response."""

    direction: Vector
    told: float

    @classmethod
    def of(cls, own: OwnMoments, direction: Vector, slopes: Vector) -> Axis:
        """Along these coefficients."""
        variance = float(direction @ own.repaired[0] @ direction) / own.level
        unit = direction / math.sqrt(variance) if variance > 0 else np.zeros_like(direction)
        return cls(unit, float(unit @ slopes))


def _untold(count: int) -> Products:
    """What is known of axes that nobody released: next to nothing."""
    return np.zeros((count, count)), np.full((count, count), 1e6)


def fitting(
    owns: Sequence[OwnMoments], scale: Vector, solve: Solve, stages: int
) -> Generator[list[Axis], Products, tuple[Vector, float]]:
    """Coefficients of all parties' coded columns, and the constant; yields the axes whose products it has to know, once for each stage (if any).

    The last stage weighs what the parties' columns say, a number for each party: nothing is weighed whose products were not measured; or, where
    no stage would tell anything, with what is believed of them before.
    """
    many = scale.size
    if len(owns) == 1:
        return solve(*combined(owns, None, many), scale)
    scales = np.split(scale, np.cumsum([own.cross.size for own in owns])[:-1])
    if stages <= 1:
        fits = [solve(*combined([own], None, many), part)[0] / part for own, part in zip(owns, scales, strict=True)]
    else:
        # The first axes tie the parties' columns to each other; what they leave untied, the last stage bounds.
        first = [Axis.of(own, own.repaired[1], own.slopes(many)) for own in owns]
        common = shared_axes(*(yield first), np.array([axis.told for axis in first]))
        found = solve(*combined(owns, common, many), scale)[0] / scale
        fits = np.split(found, np.cumsum([own.cross.size for own in owns])[:-1])
    axes = [Axis.of(own, fit, own.slopes(many)) for own, fit in zip(owns, fits, strict=True)]
    products, variance = (yield axes) if stages else _untold(len(owns))
    # A party whose columns say nothing has no axis, and no part in what the others have in common.
    speaks = np.array([k for k, axis in enumerate(axes) if axis.direction.any()], dtype=np.intp)
    told = np.array([axes[k].told for k in speaks])
    common = shared_axes(products[np.ix_(speaks, speaks)], variance[np.ix_(speaks, speaks)], told)
    coded = [axes[k].direction * scales[k] for k in speaks]
    lengths = np.array([np.abs(part).sum() for part in coded])
    left = np.arange(speaks.size)
    while True:
        weights, constant = solve(common[np.ix_(left, left)], told[left], lengths[left])
        against = weights * np.sign(told[left]) / lengths[left]
        # A fit to the response that counts against it is what noise makes of axes that are much alike, unless they are known well.
        if stages > 1 or not (against < 0).any():
            break
        left = np.delete(left, int(against.argmin()))
    out = [np.zeros_like(part) for part in scales]
    for at, weight in zip(left.tolist(), weights.tolist(), strict=True):
        out[int(speaks[at])] = coded[at] * (weight / lengths[at])
    return np.concatenate(out), constant


def standards_of(first: Vector, second: Vector, noises: tuple[Vector, Vector], *, centred: bool) -> tuple[Vector, Vector]:
    """Means and deviations from noisy means of values and of squares, at least as far as their noise lets them."""
    middle = np.zeros(first.size)
    if centred:
        middle = np.clip(first * _MEAN_PRIOR**2 / (_MEAN_PRIOR**2 + noises[0] ** 2), -1.0, 1.0)
    # A deviation near its noise is no unit of anything: clipped values then say less, and nothing breaks.
    least = np.maximum(np.maximum(noises[1], _NARROWEST**2), np.square(middle / CAP) * 1e-3)
    return middle, np.sqrt(np.clip(second - middle**2, least, 1.0))


def shared_axes(products: Matrix, variance: Matrix, told: Vector) -> Matrix:
    """Second moments of axes, from noisy products of each pair, both ways; ``told``: those of each axis with the response."""
    pairs = np.triu_indices(told.size, 1)
    noise = float((variance + variance.T)[pairs].mean() / 4) if told.size > 1 else 0.0
    return believed_moments((products + products.T) / 2 / _KEPT, math.sqrt(noise) / _KEPT, told)


def heard_rows(scores: Matrix, noise: float) -> tuple[Matrix, float]:
    """Rows of others' noisy scores, the longest shortened, and what part of a product with something else that leaves.

    A release of products has noise in the length of the longest row, which is the largest of so many noises: of a typical length nothing is lost
    that matters. By Stein's lemma products are a multiple of the exact ones, of the mean derivative of what shortens.
    """
    count = scores.shape[1]
    lengths = np.linalg.norm(scores, axis=1)
    factors = np.minimum(1.0, longest_row(count, noise) / np.maximum(lengths, 1e-300))
    left = np.where(factors < 1, factors * (1 - 1 / count), 1.0)
    return scores * factors[:, None], max(float(left.mean()), _KEPT_LEAST)


def combined(owns: Sequence[OwnMoments], common: Matrix | None, many: int) -> tuple[Matrix, Vector]:
    """(Gram, cross) of all parties' columns, on the scale of correlations; ``many``: as many products with the response were released.

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
    """Coefficients x of coded columns with |x|_1 <= radius: ``scale`` is what one standardised coefficient is in them."""
    if not cross.any():
        return np.zeros(cross.size)
    return np.asarray(quadratic_in_balls(gram / np.outer(scale, scale), cross / scale, radius).coefficients)
