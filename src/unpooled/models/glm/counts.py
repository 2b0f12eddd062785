"""The pull of counts as a product of numbers of two parties: two numbers of each, what they multiply, and how far a person moves it.

With u = u_a + u_b, weights h_a and h_b of the two parts and f(y) = min(1, q/y), the pull h_a h_b (y f(y) - e^u f(y + 1)) has the mean 0 at the truth for
counts of Poisson's law, every row and every q (Theorem G.17). It is q/g times the product of two vectors of two numbers, one of each party, neither
longer than 1, with g^2 = 1 - r/4, r = e^(t_a + t_b)/q, and weights that fall where u_a is above t_a, and u_b above t_b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unpooled.errors import UsageError
from unpooled.families.poisson import Poisson
from unpooled.models.glm.split_forms import SplitForm, SplitWords
from unpooled.models.glm.split_rows import STEPS, RoundRows, at_random
from unpooled.models.glm.typed_counts import TypedCounts, after
from unpooled.products.rows import shortened, within
from unpooled.products.sines import ANGLE, SineShape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.families import RowFamily
    from unpooled.linear.layout import MomentsLayout
    from unpooled.models.glm.rows import Responses
    from unpooled.models.glm.split_forms import TypedTable
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.noise import Stream
    from unpooled.products.sums import RowPart

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: Steps of a vector of length 1: rounding two numbers up makes it no longer than ``STEPS``.
LENGTH = STEPS - 2


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

    def family(self, response: Column) -> Poisson:
        """Return the family within the declared range."""
        return Poisson(*response.range)

    def shape(self, columns: Mapping[str, tuple[int, int]], holder: str, rows: int, repeated: int) -> CountShape:  # noqa: ARG002 - both parties have the same parts
        """Return the products of a round."""
        return CountShape.of(columns, rows, repeated, STEPS)

    def rows(
        self,
        about: tuple[MomentsLayout, RowPart, int, int, float, Responses],
        coefficients: tuple[Floats, float],
        place: int,
        more: Sequence[float],
    ) -> CountRows:
        """Return the coding of a party's rows; ``more``: both parties' ends of full weight in the study's order, the cut of counts, and whether vectors are stretched."""
        *ends, cut, stretched = more
        cut = max(cut, 1.0)
        ratio = min(math.exp(min(sum(ends), math.log(cut))) / cut, 1.0)
        return CountRows(*about, *coefficients, ends[place], cut, ratio, stretched > 0)

    def coin(self, part: RowPart, *, holds: bool) -> str:  # noqa: ARG002 - every part has its own
        """Return the part's name."""
        return part.name

    def top(self, mean: float) -> float:
        """Return twice the mean and some deviations, at least 1."""
        return max(1.0, math.ceil(2 * mean + math.sqrt(2 * mean)))

    def typed(self, rows: TypedTable, family: RowFamily, noise: float) -> TypedCounts:
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
