"""From the parties' noisy moments, and what their first axes have in common, to coefficients: numbers alone, all post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.l1_ball import quadratic_in_balls
from unpooled.models.lasso.standard_plan import AXIS_CAP, CAP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: To what eigenvalues of a party's noisy correlations are raised: parts of the noise's norm, and of their mean.
_RIDGE, _FLOOR = 0.3, 0.2
#: The same for all parties' together, and the most that two axes can have in common.
_LEAST, _MOST = 0.1, 0.95
#: How many deviations of what stays unknown of common axes their smallest eigenvalue keeps.
_UNKNOWN = 0.5
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
        """(the Gram matrix with eigenvalues raised to its noise, its first axis, of variance 1)."""
        values, vectors = np.linalg.eigh(self.gram)
        noise = self.gram_noise * math.sqrt(2 * self.cross.size)
        values = np.maximum(values, max(_RIDGE * noise, _FLOOR * self.level))
        return np.asarray((vectors * values) @ vectors.T), np.asarray(vectors[:, -1] / math.sqrt(values[-1] / self.level))


def standards_of(first: Vector, second: Vector, noises: tuple[Vector, Vector], *, centred: bool) -> tuple[Vector, Vector]:
    """Means and deviations from noisy means of values and of squares, at least as far as their noise lets them."""
    middle = np.zeros(first.size)
    if centred:
        middle = np.clip(first * _MEAN_PRIOR**2 / (_MEAN_PRIOR**2 + noises[0] ** 2), -1.0, 1.0)
    # A deviation near its noise is no unit of anything: clipped values then say less, and nothing breaks.
    least = np.maximum(np.maximum(noises[1], _NARROWEST**2), np.square(middle / CAP) * 1e-3)
    return middle, np.sqrt(np.clip(second - middle**2, least, 1.0))


def shared_axes(products: Matrix, variance: Matrix) -> Matrix:
    """Correlations between the parties' axes from noisy products of each pair, both ways, shrunk by what is known of their noise.

    The mean square of the entries less that of their noise is the signal's (empirical Bayes); all are multiplied by signal / (signal + noise).
    """
    count = products.shape[0]
    off = ~np.eye(count, dtype=bool)
    common, noise = (products + products.T) / 2 / _KEPT, (variance + variance.T) / 4 / _KEPT**2
    left = float(noise[off].mean()) if count > 1 else 0.0
    signal = max(float(np.square(common[off]).mean()) - left, 0.0) if count > 1 else 0.0
    part = signal / (signal + left) if signal else 0.0
    common = np.where(off, np.clip(common * part, -_MOST, _MOST), 0.0)
    # What stays unknown of them must not make one axis look like the others' mirror image: the smallest eigenvalue stays above it.
    unknown = _UNKNOWN * math.sqrt(part * left * count)
    lowest = -float(np.linalg.eigvalsh(common)[0])
    common *= min(1.0, (1 - min(max(unknown, 1 - _MOST), _MOST)) / lowest) if lowest > 0 else 1.0
    return common + np.eye(count)


def combined(owns: Sequence[OwnMoments], common: Matrix | None) -> tuple[Matrix, Vector]:
    """(Gram, cross) of all parties' columns, on the scale of correlations.

    Between parties k and l columns have in common what their first axes have: G_k u_k c_kl u_l' G_l. None: nothing.
    """
    repaired = [own.repaired for own in owns]
    ends = np.cumsum([0, *(own.cross.size for own in owns)])
    gram, cross = np.zeros((ends[-1], ends[-1])), np.zeros(ends[-1])
    many = max(int(ends[-1]), 2)
    for k, own in enumerate(owns):
        mine = slice(ends[k], ends[k + 1])
        gram[mine, mine] = repaired[k][0] / own.level
        # Every entry loses what the largest of so many noises is about.
        loss = own.cross_noise * math.sqrt(2 * math.log(many))
        cross[mine] = np.sign(own.cross) * np.maximum(np.abs(own.cross) - loss, 0.0) / own.level
        for j in range(k if common is not None else 0):
            assert common is not None
            along = [repaired[i][0] @ repaired[i][1] / owns[i].level for i in (k, j)]
            block = common[k, j] * np.outer(*along)
            gram[mine, slice(ends[j], ends[j + 1])] = block
            gram[slice(ends[j], ends[j + 1]), mine] = block.T
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors * np.maximum(values, _LEAST)) @ vectors.T), cross


def in_ball(gram: Matrix, cross: Vector, scale: Vector, radius: float) -> Vector:
    """Coefficients x of coded columns with |x|_1 <= radius: ``scale`` is what one standardised coefficient is in them."""
    if not cross.any():
        return np.zeros(cross.size)
    return np.asarray(quadratic_in_balls(gram / np.outer(scale, scale), cross / scale, radius).coefficients)
