"""The pull of counts as a product of numbers of two parties: two numbers of each, what they multiply, and how far a person moves it.

With u = u_a + u_b, weights h_a and h_b of the two parts and f(y) = min(1, q/y), the pull h_a h_b (y f(y) - e^u f(y + 1)) has the mean 0 at the truth for
counts of Poisson's law, every row and every q (Theorem G.17). It is q/g times the product of two vectors of two numbers, one of each party, neither
longer than 1, with g^2 = 1 - r/4, r = e^(t_a + t_b)/q, and weights that fall where u_a is above t_a, and u_b above t_b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import gammaln, pdtr, xlogy

from unpooled.errors import UsageError
from unpooled.families.poisson import Poisson
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.split import STEPS, RoundRows, SplitForm, SplitWords, at_random
from unpooled.models.glm.typed import TypedBend, TypedRows
from unpooled.products.rows import shortened, within
from unpooled.products.sines import ANGLE, SineShape
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.families import Response
    from unpooled.linear.layout import MomentsLayout
    from unpooled.models.glm.rows import Responses
    from unpooled.models.glm.split import Begun, TypedTable
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.noise import Stream
    from unpooled.products.sums import RowPart

    Floats = NDArray[np.float64]
    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Ints = NDArray[np.int64]

_TUNED = table("glm_columns")
#: A mean is no smaller than this part of the largest count, and no larger than twice it.
_SMALLEST, _LARGEST = 1e-9, 2.0
#: Means at which means over counts are worked out (others lie between two of them), fewer where settings are compared, and means that are many.
_MEANS, _FEW, _MANY = 300, 60, 200.0
#: Deviations of a part of the predictor are taken for no more than this where weights begin to fall.
_WIDEST = 2.0
#: Typed rows on which settings are compared lie this far apart.
_APART = 10
#: Steps of a vector of length 1: rounding two numbers up makes it no longer than ``STEPS``.
LENGTH = STEPS - 2


# --- What is multiplied ----------------------------------------------------------------------------------------------------
# Both parties' numbers and rows in a round, and their factors of a pull.


@dataclass(frozen=True)
class CountShape(SineShape):
    """The two parts of both parties in a round of counts: as those of a round of sines, with vectors that are no angle in the place of cosine and sine."""

    @property
    def settings(self) -> int:
        """Return the number of coefficients, constants of both parties, and further numbers: both ends of full weight, the cut of counts, and whether vectors are stretched."""
        return self.size + 1 + CountForm.more


class CountNumbers(NamedTuple):
    """Both factors of the product of a person: (first, second) of the holder of the counts, and of the other party."""

    first: Floats
    second: Floats


def after(y: Floats, cut: float) -> Floats:
    """Return f(y + 1) = min(1, q/(y + 1))."""
    return np.asarray(np.minimum(1.0, cut / np.maximum(y + 1, 1.0)))


def of_counts(u: Floats, y: Floats, end: float, cut: float, ratio: float) -> CountNumbers:
    """Return the numbers of the holder of counts, of length 1 at most: with x = h y f(y)/q and v = h e^(u - t) f(y + 1), x - r v/2 and sqrt(r) g v."""
    x = np.exp(np.minimum(end - u, 0.0)) * np.minimum(y / cut, 1.0)
    v = np.exp(np.minimum(u - end, 0.0)) * after(y, cut)
    return CountNumbers(x - ratio / 2 * v, math.sqrt(ratio * (1 - ratio / 4)) * v)


def of_others(u: Floats, end: float, ratio: float, *, stretched: bool = True) -> CountNumbers:
    """Return the numbers of the other party, of length 1 at most: with x = h and v = h e^(u - t), g x and sqrt(r) (x/2 - v); stretched, of length 1."""
    x, v = np.exp(np.minimum(end - u, 0.0)), np.exp(np.minimum(u - end, 0.0))
    first, second = math.sqrt(1 - ratio / 4) * x, math.sqrt(ratio) * (x / 2 - v)
    length = np.hypot(first, second) if stretched else np.ones_like(u)
    return CountNumbers(first / length, second / length)


@dataclass(frozen=True)
class CountRows(RoundRows):
    """A party's two parts of every row in one round: its two numbers, and both times its row."""

    #: Where the party's weight begins to fall, the cut of counts, M as a part of it, and whether vectors are stretched. Any numbers give short vectors.
    end: float
    cut: float
    ratio: float
    stretched: bool

    def made(self, z: Floats, y: Floats, offset: Floats | float = 0.0) -> Floats:
        """Return (numbers, rows times numbers) in steps before they are rounded, in the order that products of sines have."""
        u, limit = self.predictor(z) + offset, self.columns - math.sqrt(2 * z.shape[1])
        if self.holds:
            sine, cosine = of_counts(u, y, self.end, self.cut, self.ratio)
        else:
            cosine, sine = of_others(u, self.end, self.ratio, stretched=self.stretched)
        short = shortened(z * LENGTH, limit) if z.shape[1] else z
        return np.column_stack([cosine * LENGTH, sine * LENGTH, short * sine[:, None], short * cosine[:, None]])

    def part_of(self, rows: Floats, coins: Stream, first: int) -> Ints:
        """Return the part of this name of rows that :meth:`made` returned, rounded at random; ``first`` is the number of the first row."""
        return within(at_random(rows[:, :2] if self.part.name == ANGLE else rows[:, 2:], coins, first), self.part.square)


# --- Means over counts -----------------------------------------------------------------------------------------------------
# Means over Poisson's law of mean m, with f(y) = min(1, q/y): of f(Y + 1), of its derivative in m, and of (Y f(Y) - m f(Y + 1))^2.


class CountMeans(NamedTuple):
    """Means over counts at the logarithms of some means."""

    logs: Row
    after: Row
    slope: Row
    square: Row

    def at(self, m: Row) -> tuple[Row, Row, Row]:
        """Return the three of them at other means, between two of these."""
        logs = np.log(m)
        after, square = (np.exp(np.interp(logs, self.logs, np.log(own))) for own in (self.after, self.square))
        return after, np.interp(logs, self.logs, self.slope), square


def means_over(m: Row, cut: float, points: int = _MEANS) -> CountMeans:
    """Return means over counts, worked out at this number of means in the range of these."""
    return _means_over(math.floor(np.log(m.min())), math.ceil(np.log(m.max())), cut, points)


@lru_cache(maxsize=64)
def _means_over(low: int, high: int, cut: float, points: int) -> CountMeans:
    logs = np.linspace(low, max(high, low + 1), points)
    m = np.exp(logs)
    few, found = m <= _MANY, np.empty((3, points))
    y, small = np.arange(math.ceil(_MANY + 12 * math.sqrt(_MANY)), dtype=np.float64), m[few][:, None]
    found[:, few] = _three(y, np.exp(xlogy(y, small) - small - gammaln(y + 1)), small, cut)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    large = m[~few][:, None]
    found[:, ~few] = _three(large + np.sqrt(large) * nodes, weights / weights.sum(), large, cut)
    return CountMeans(logs, np.maximum(found[0], 1e-300), found[1], np.maximum(found[2], 1e-300))


def _three(y: Row, chances: Row, m: Row, cut: float) -> Row:
    here, there = after(y, cut), after(y + 1, cut)
    pulls = np.minimum(y, cut) - m * here
    return np.array([(chances * one).sum(axis=1) for one in (here, there - here, pulls**2)])


def least_of(m: Row, top: float) -> tuple[Row, Row]:
    """Return E min(Y, K) and its derivative in m, of a whole number K: E min(Y, K) = m P(Y < K) + K P(Y > K - 1) less what is counted twice."""
    below = pdtr(top - 1, m)
    inside = m * pdtr(top - 2, m) if top > 1 else np.zeros_like(m)
    return np.asarray(inside + top * (1 - below)), np.asarray(below)


# --- Typed counts ----------------------------------------------------------------------------------------------------------
# Typed rows with counts: where weights begin to fall and counts are cut in the next round, and what is expected there.


class CountWeights(NamedTuple):
    """The weights of counts in a round: where the weights of the holder and of the other party begin to fall, the cut of counts, and whether vectors are stretched."""

    first: float
    second: float
    cut: float
    #: Whether every vector of the other party is made as long as is proven; without noise weights are 1 where they do not fall.
    stretched: bool = True

    @property
    def ratio(self) -> float:
        """Return M as a part of the cut."""
        return math.exp(self.first + self.second) / self.cut

    @property
    def unit(self) -> float:
        """Return the pull for each squared step of a released product: q/g over the squared length of a vector."""
        return self.cut / math.sqrt(1 - self.ratio / 4) / LENGTH**2

    def of(self, first: Row, second: Row) -> Row:
        """Return the weights of rows with these parts of the predictor."""
        x, v = np.exp(np.minimum(self.second - second, 0.0)), np.exp(np.minimum(second - self.second, 0.0))
        length = np.hypot(math.sqrt(1 - self.ratio / 4) * x, math.sqrt(self.ratio) * (x / 2 - v)) if self.stretched else 1.0
        return np.asarray(np.exp(np.minimum(self.first - first, 0.0)) * x / length)


@dataclass(frozen=True)
class TypedCounts(TypedRows[CountWeights]):
    """Typed rows with counts of Poisson's law within a declared range, and the offset of each row; the constant is the holder's."""

    offset: Row
    high: float
    #: The deviation of the noise in every released product of all rounds together, in squared steps.
    noise: float = 0.0

    def _parts(self, b: Row) -> tuple[Row, Row]:
        first, second = self.predictors(b, 1.0)
        return first + self.offset, second

    def _means(self, u: Row) -> Row:
        return np.asarray(np.exp(np.clip(u, math.log(self.high * _SMALLEST), math.log(self.high * _LARGEST))))

    def means(self, b: Row) -> Row:
        """Return the mean count of every row."""
        return self._means(np.sum(self._parts(b), axis=0))

    def setting(self, b: Row) -> CountWeights:
        """Return where weights fall so that typed rows expect the smallest error of a coefficient, of those that are tried."""
        first, second = (part[::_APART] for part in self._parts(b))
        m = self._means(first + second)
        return min(self._tried(first, second), key=lambda one: self._error(one, first, second, m))

    def _tried(self, first: Row, second: Row) -> Iterator[CountWeights]:
        """The settings that are tried: ends some deviations above the middle of each part, and the cut as large as what the weights let pass."""
        for above in _TUNED.several("count_ends"):
            ends = [float(u.mean()) + above * min(float(u.std()), _WIDEST) for u in (first, second)]
            over = max(sum(ends) - math.log(self.high), 0.0) / 2
            yield CountWeights(ends[0] - over, ends[1] - over, max(1.0, math.exp(sum(ends) - 2 * over)), self.noise > 0)

    def _error(self, setting: CountWeights, first: Row, second: Row, m: Row) -> float:
        """Return the squared error of a coefficient, in units that all settings share."""
        h = setting.of(first, second)
        below, _, square = means_over(m, setting.cut, _FEW).at(m)
        weight, scatter = float((h * m * below).mean()), float((h**2 * square).mean())
        return (self.people * scatter + (self.noise * setting.unit) ** 2) / (self.people * weight) ** 2

    def sent(self, b: Row, setting: CountWeights, holds: tuple[bool, ...]) -> tuple[float, ...]:
        """Return the constant's parts and where weights begin to fall, party by party, the cut, and whether vectors are stretched."""
        constant = CONSTANT * float(b[-1])
        ends = (setting.first if held else setting.second for held in holds)
        return (*(constant if held else 0.0 for held in holds), *ends, setting.cut, float(setting.stretched))

    def unit(self, setting: CountWeights) -> float:
        """Return the pull for each squared step of a released product."""
        return setting.unit

    def alike(self, b: Row, setting: CountWeights, other: CountWeights) -> float:
        """Return the ratio of mean curvatures: another cut is another unit of pulls."""
        return 1.0 if other == setting else self.bend(b, setting).weight / self.bend(b, other).weight

    def bend(self, b: Row, setting: CountWeights) -> TypedBend:
        """Return curvature and second moments of the pulls of all people at these coefficients, if they are the truth."""
        m, h = self.means(b), setting.of(*self._parts(b))
        below, _, square = means_over(m, setting.cut).at(m)
        return self.bent(h * m * below, h**2 * square)

    def pull(self, at: Row, setting: CountWeights, truth: Row) -> Row:
        """Return the score of all people that is expected at some coefficients where others are the truth."""
        m = self.means(truth)
        below, _, _ = means_over(m, setting.cut).at(m)
        return self.summed(setting.of(*self._parts(at)) * (m - self.means(at)) * below)

    def slope(self, at: Row, setting: CountWeights, truth: Row) -> Matrix:
        """Return the derivative of :meth:`pull` in the truth."""
        m, there = self.means(truth), self.means(at)
        below, bends, _ = means_over(m, setting.cut).at(m)
        return self.outer(setting.of(*self._parts(at)) * m * (below + (m - there) * bends))

    def excess(self, mean: float, top: float, truth: Row) -> tuple[Row, Matrix]:
        """Return the expected products of columns with counts less their mean, as parts of where they are cut, and their derivative in the truth."""
        m = self.means(truth)
        expected, slope = least_of(m, top)
        return self.summed((expected - mean) / top), self.outer(slope * m / top)

    def scatter(self, mean: float, top: float) -> float:
        """Return the typical variance of a count, as a part of where it is cut."""
        return mean / top**2


# --- The form --------------------------------------------------------------------------------------------------------------
# The form of a fit of counts.


class CountForm(SplitForm):
    """Poisson's law, with the logarithm as link; exposure and offset belong to the holder of the counts."""

    words = SplitWords(
        "Poisson regression",
        "log mean",
        "mean count",
        "the rounds did not arrive at coefficients at which the pulls of the counts balance, so no line is printed: effects that are very "
        "large, or noise. Fewer columns, or the largest effects left out, would",
        "; counts are taken for Poisson's law given the columns: where they vary more, coefficients are drawn to 0 and standard errors too small",
    )
    more = 4

    def check(self, response: Column) -> None:
        """Refuse a response that is no declared range of counts from 0 on, or may be missing."""
        if response.categories is not None or response.may_be_absent or response.range[0] != 0:
            msg = (
                f"the response {response.name!r} of the poisson family is a count and is never missing: declare low = 0 and as high the largest count, "
                'missing = "refuse"'
            )
            raise UsageError(msg).at(column=response.name)

    def family(self, response: Column) -> Response:
        """Return the family within the declared range."""
        return Poisson(*response.range)

    def shape(self, columns: Mapping[str, tuple[int, int]], holder: str, rows: int, repeated: int) -> CountShape:  # noqa: ARG002 - both parties have the same parts
        """Return the products of a round."""
        return CountShape.of(columns, rows, repeated, STEPS)

    def rows(
        self,
        about: tuple[MomentsLayout, RowPart, int, int, float, Responses],
        slopes: Floats,
        place: int,
        more: Sequence[float],
    ) -> CountRows:
        """Return the coding of a party's rows; ``more``: constants and ends of full weight of both parties in the study's order, the cut of counts, and whether vectors are stretched."""
        *numbers, cut, stretched = more
        constants, ends = numbers[:2], numbers[2:]
        cut = max(cut, 1.0)
        ratio = min(math.exp(min(sum(ends), math.log(cut))) / cut, 1.0)
        return CountRows(*about, slopes, float(constants[place]), ends[place], cut, ratio, stretched > 0)

    def coin(self, part: RowPart, *, holds: bool) -> str:  # noqa: ARG002 - every part has its own
        """Return the part's name."""
        return part.name

    def top(self, begun: Begun) -> float:
        """Return twice the mean and some deviations, at least 1."""
        return max(1.0, math.ceil(2 * begun.mean + math.sqrt(2 * begun.mean)))

    def typed(self, rows: TypedTable, family: Response, noise: float, begun: Begun) -> TypedRows[Any]:  # noqa: ARG002 - the fit knows where it begins
        """Return typed rows with counts."""
        return TypedCounts(*rows, family.high, noise)

    def added(self, parties: Sequence[str], holder: str, made: Mapping[str, Floats]) -> Floats:
        """Return what the products of a round add up to, of rows as they are made before they are rounded."""
        (other,) = (party for party in parties if party != holder)
        found = {}
        for party, across in ((holder, other), (other, holder)):
            own = (made[party].shape[1] - 2) // 2
            by_sine, by_cosine = made[party][:, 2 : 2 + own], made[party][:, 2 + own :]
            found[party] = by_sine.T @ made[across][:, 0] + by_cosine.T @ made[across][:, 1]
        pulls = made[holder][:, 1] @ made[other][:, 0] + made[holder][:, 0] @ made[other][:, 1]
        return np.concatenate([*(found[party] for party in parties), [pulls]])
