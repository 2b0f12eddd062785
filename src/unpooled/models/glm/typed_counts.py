"""Counts on public rows: what the pulls of all people are expected to be at some coefficients where others are the truth, and how they bend and vary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, pdtr, pdtrc, xlogy

from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.split_rows import STEPS
from unpooled.models.glm.typed import TypedBend, TypedRows
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

_TUNED = table("glm_columns")
#: A mean is no smaller than this part of the largest count, and no larger than twice it.
_SMALLEST, _LARGEST = 1e-9, 2.0
#: Means at which second moments are worked out (others lie between two of them), and means from which on counts are taken for normal.
_MEANS, _MANY = 400, 400.0
#: Deviations of a part of the predictor are taken for no more than this where weights begin to fall.
_WIDEST = 2.0


# --- Means over counts -----------------------------------------------------------------------------------------------------
# Means over Poisson's law of mean m, with f(y) = min(1, q/y): of f(Y + 1), of its derivative in m, of (Y f(Y) - m f(Y + 1))^2, and of counts that are cut.


def cut_mean(m: Row, cut: float) -> Row:
    """Return E f(Y + 1): P(Y + 1 <= q) and, as E 1/(Y + 1) over Y >= k is P(Y > k)/m, q/m of the rest."""
    k = math.floor(cut)
    return np.asarray(pdtr(k - 1, m) + cut / m * pdtrc(k, m))


def cut_slope(m: Row, cut: float) -> Row:
    """Return the derivative of :func:`cut_mean`."""
    k = math.floor(cut)
    return np.asarray(-_chance(k - 1, m) - cut / m**2 * pdtrc(k, m) + cut / m * _chance(k, m))


def _chance(y: int | Row, m: Row) -> Row:
    return np.asarray(np.exp(xlogy(y, m) - m - gammaln(np.asarray(y) + 1.0)))


def pull_square(m: Row, cut: float) -> Row:
    """Return E (Y f(Y) - m f(Y + 1))^2, between means at which it is worked out count by count."""
    logs, squares = _squares(float(np.ceil(np.log(m.max()))), float(np.floor(np.log(m.min()))), cut)
    return np.asarray(np.exp(np.interp(np.log(m), logs, squares)))


@lru_cache(maxsize=64)
def _squares(high: float, low: float, cut: float) -> tuple[Row, Row]:
    logs = np.linspace(low, max(high, low + 1.0), _MEANS)
    m = np.exp(logs)
    few, found = m <= _MANY, np.empty(_MEANS)
    y = np.arange(math.ceil(_MANY + 12 * math.sqrt(_MANY)), dtype=np.float64)
    small = m[few][:, None]
    found[few] = (_chance(y, small) * _pulls(y, small, cut) ** 2).sum(axis=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    large = m[~few][:, None]
    found[~few] = (weights / weights.sum() * _pulls(large + np.sqrt(large) * nodes, large, cut) ** 2).sum(axis=1)
    return logs, np.log(np.maximum(found, 1e-300))


def _pulls(y: Row, m: Row, cut: float) -> Row:
    return np.minimum(y, cut) - m * np.minimum(1.0, cut / np.maximum(y + 1, 1.0))


def least_of(m: Row, top: float) -> tuple[Row, Row]:
    """Return E min(Y, K) and its derivative in m, of a whole number K: E min(Y, K) = m P(Y < K) + K P(Y > K - 1) less what is counted twice."""
    below = pdtr(top - 1, m)
    inside = m * pdtr(top - 2, m) if top > 1 else np.zeros_like(m)
    return np.asarray(inside + top * (1 - below)), np.asarray(below)


# --- Typed counts ----------------------------------------------------------------------------------------------------------
# Typed rows with counts: where weights begin to fall and counts are cut in the next round, and what is expected there.


class CountWeights(NamedTuple):
    """What weighs counts in a round: where the weights of the holder and of the other party begin to fall, and the cut of counts."""

    first: float
    second: float
    cut: float

    @property
    def unit(self) -> float:
        """Return the pull for each squared step of a released product: q/g over the squared length of a vector."""
        ratio = math.exp(self.first + self.second) / self.cut
        return self.cut / math.sqrt(1 - ratio / 4) / (STEPS - 2) ** 2


@dataclass(frozen=True)
class TypedCounts(TypedRows[CountWeights]):
    """Typed rows with counts of Poisson's law within a declared range, and the offset of each row; the constant is the holder's."""

    offset: Row
    high: float

    def _parts(self, b: Row) -> tuple[Row, Row]:
        first, second = self.predictors(b, 1.0)
        return first + self.offset, second

    def means(self, b: Row) -> Row:
        """Return the mean count of every row."""
        first, second = self._parts(b)
        return np.exp(np.clip(first + second, math.log(self.high * _SMALLEST), math.log(self.high * _LARGEST)))

    def setting(self, b: Row) -> CountWeights:
        """Return where weights begin to fall: deviations above the middle of each part; and the cut: as many root means above the mean there."""
        ends = [float(u.mean()) + _TUNED.count_end * min(float(u.std()), _WIDEST) for u in self._parts(b)]
        over = max(sum(ends) - math.log(self.high), 0.0) / 2
        first, second = (end - over for end in ends)
        most = math.exp(first + second)
        return CountWeights(first, second, max(1.0, most, min(most + _TUNED.count_cut * math.sqrt(most), self.high)))

    def sent(self, b: Row, setting: CountWeights, holds: tuple[bool, ...]) -> tuple[float, ...]:
        """Return the constant's parts and where weights begin to fall, party by party, and the cut."""
        constant = CONSTANT * float(b[-1])
        ends = (setting.first if held else setting.second for held in holds)
        return (*(constant if held else 0.0 for held in holds), *ends, setting.cut)

    def unit(self, setting: CountWeights) -> float:
        """Return the pull for each squared step of a released product."""
        return setting.unit

    def _weights(self, b: Row, setting: CountWeights) -> Row:
        first, second = self._parts(b)
        return np.asarray(np.exp(np.minimum(setting.first - first, 0.0) + np.minimum(setting.second - second, 0.0)))

    def bend(self, b: Row, setting: CountWeights) -> TypedBend:
        """Return curvature and second moments of the pulls of all people at these coefficients, if they are the truth."""
        m, h = self.means(b), self._weights(b, setting)
        return self.bent(h * m * cut_mean(m, setting.cut), h**2 * pull_square(m, setting.cut))

    def pull(self, at: Row, setting: CountWeights, truth: Row) -> Row:
        """Return the score of all people that is expected at some coefficients where others are the truth."""
        m = self.means(truth)
        return self.summed(self._weights(at, setting) * (m - self.means(at)) * cut_mean(m, setting.cut))

    def slope(self, at: Row, setting: CountWeights, truth: Row) -> Matrix:
        """Return the derivative of :meth:`pull` in the truth."""
        m, there, cut = self.means(truth), self.means(at), setting.cut
        return self.outer(self._weights(at, setting) * m * (cut_mean(m, cut) + (m - there) * cut_slope(m, cut)))

    def excess(self, mean: float, top: float, truth: Row) -> tuple[Row, Matrix]:
        """Return the expected products of columns with counts less their mean, as parts of where they are cut, and their derivative in the truth."""
        m = self.means(truth)
        expected, slope = least_of(m, top)
        return self.summed((expected - mean) / top), self.outer(slope * m / top)

    def scatter(self, mean: float, top: float) -> float:
        """Return the typical variance of a count, as a part of where it is cut."""
        return mean / top**2
