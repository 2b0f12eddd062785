"""The pull of logistic regression as a product of a number of one party and one of another: what is multiplied, how far a person moves it, a party's rows.

With u = u_a + u_b and s = 1 or -1 for the two classes, psi = s min(1, e^(-s u_a)) min(1, e^(-s u_b)) is a positive weight times (y - p), p the probability
at u: its mean is 0 at the truth for every row (Theorem G.14). The holder of the response sends its number, with its sign and without, and both times its
row; the other party sends what its number is for either class, and both times its row. What is released is TWICE the score (Theorem G.15).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from unpooled.errors import UsageError
from unpooled.families.logistic import Logistic
from unpooled.kernels import field as field_arithmetic
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.split import STEPS, RoundRows, SplitForm, SplitWords, at_random
from unpooled.models.glm.typed import TypedBend, TypedRows
from unpooled.privacy.mechanisms import Block
from unpooled.privacy.sensitivity import clipped_products
from unpooled.products.rows import shortened, within
from unpooled.products.sums import CONSTANT_STEPS, GRID, JOINT_CONSTANT, ProductShape, RowPart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.families import Response
    from unpooled.linear.layout import MomentsLayout
    from unpooled.models.glm.rows import Responses
    from unpooled.models.glm.split import Begun, TypedTable
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.noise import Stream
    from unpooled.privacy.unit import Adjacency

    Floats = NDArray[np.float64]
    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Places = tuple[NDArray[np.intp], NDArray[np.intp]]

#: The parts of the holder of the response: its number with the sign of the class and without, and both times its row.
SIGNED, PLAIN, SIGNED_ROWS, PLAIN_ROWS = "signed", "plain", "signed rows", "plain rows"
#: The parts of the other party: its number for a row of the second class and for one of the first, and both times its row.
SECOND, FIRST, SECOND_ROWS, FIRST_ROWS = "second", "first", "second rows", "first rows"
NUMBERS = frozenset({SIGNED, PLAIN, SECOND, FIRST})
_TWO = 2
#: The parts of the constant at the holder of the classes that are tried.
_TRIED = tuple(part / 10 for part in range(11))
#: Mean curvatures that differ by less are one.
_EQUAL = 1 - 1e-9


# --- What is multiplied ----------------------------------------------------------------------------------------------------
# The four parts of both parties, and the integers that are released of their products: twice the score of every column, and of the constant.


@dataclass(frozen=True)
class PullShape(ProductShape):
    """The parts of both parties in one round. Released is twice the score: of all columns in the study's order, and the sum of twice the pulls."""

    holder: str
    repeated: int = 1

    @classmethod
    def of(cls, columns: Mapping[str, tuple[int, int]], holder: str, rows: int, repeated: int = 1) -> PullShape:
        """Return the shape for these numbers of columns and squared limits of rows in squared steps, by party; the holder may have no columns."""
        parts: list[RowPart] = []
        for party, (count, square) in columns.items():
            one, other, *products = (
                (SIGNED, PLAIN, SIGNED_ROWS, PLAIN_ROWS) if party == holder else (SECOND, FIRST, SECOND_ROWS, FIRST_ROWS)
            )
            parts += [RowPart(party, 1, STEPS**2, name) for name in (one, other)]
            parts += [RowPart(party, count, square, name) for name in products if count]
        return cls(tuple(parts), rows, holder, repeated)

    @property
    def rounds(self) -> int:
        """Return how often the release of this shape is made."""
        return self.repeated

    @property
    def settings(self) -> int:
        """Return the number of coefficients: one for every column of both parties, and each party's part of the constant."""
        return self.size + 1

    @cached_property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return every pair of parts of different parties but those of two rows, which nothing needs."""
        return tuple(
            (i, j)
            for i, one in enumerate(self.parts)
            for j, other in enumerate(self.parts)
            if i < j and one.party != other.party and {one.name, other.name} & NUMBERS
        )

    @cached_property
    def terms(self) -> tuple[tuple[Places, ...], Places]:
        """Return the places in the matrix of the three terms of every released integer that are added, and of the one that is taken off.

        With g and r the holder's number with its sign and without, G and P both times its row, b1 and b0 the other party's numbers, Y1 and Y0 both times
        its row: G (b1 + b0) + P (b1 - b0), then g (Y1 + Y0) + r (Y1 - Y0), in the order of the parties, and g (b1 + b0) + r (b1 - b0).
        """
        at = {part.name: span for part, span in zip(self.parts, self.spans, strict=True)}
        added: list[list[tuple[int, int]]] = [[], [], []]
        taken: list[tuple[int, int]] = []

        def products(g: int, r: int, second: int, first: int) -> None:
            for one, pair in zip(added, ((g, second), (g, first), (r, second)), strict=True):
                one.append(pair)
            taken.append((r, first))

        for party in self.parties:
            g, r, second, first = SIGNED, PLAIN, SECOND, FIRST
            if party == self.holder and SIGNED_ROWS in at:
                for k in range(at[SIGNED_ROWS].stop - at[SIGNED_ROWS].start):
                    products(at[SIGNED_ROWS].start + k, at[PLAIN_ROWS].start + k, at[second].start, at[first].start)
            elif party != self.holder:
                for k in range(at[SECOND_ROWS].stop - at[SECOND_ROWS].start):
                    products(at[g].start, at[r].start, at[SECOND_ROWS].start + k, at[FIRST_ROWS].start + k)
        products(at[SIGNED].start, at[PLAIN].start, at[SECOND].start, at[FIRST].start)
        return tuple(_places(one) for one in added), _places(taken)

    def released(self, whole: Words) -> Words:
        """Return twice the score of every column, and the sum of twice the pulls."""
        (one, two, three), taken = self.terms
        found = field_arithmetic.add(field_arithmetic.add(whole[one], whole[two]), whole[three])
        return field_arithmetic.subtract(found, whole[taken])

    @property
    def size(self) -> int:
        """Return the number of columns of both parties, and the constant."""
        return sum(part.columns for part in self.parts if part.name in {SIGNED_ROWS, SECOND_ROWS}) + 1

    @property
    def square(self) -> int:
        """Return R^2 in squared steps: the largest squared length of the columns of both parties, the constant included."""
        rows = sum(part.square for part in self.parts if part.name in {SIGNED_ROWS, SECOND_ROWS})
        return rows + (CONSTANT_STEPS * (STEPS // GRID)) ** 2

    @property
    def most(self) -> int:
        """Return the largest absolute value that one person adds to an integer."""
        return 2 * STEPS * (math.isqrt(max(part.square for part in self.parts)) + 1)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise: the sum of pulls is released without the constant, by which it is multiplied later, and has more."""
        return Block(self.size - 1, 1.0), Block(1, 1 / JOINT_CONSTANT)

    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves twice the score: 4 R under replace, 2 R under zero-out, in squared steps (Theorem G.15)."""
        return clipped_products(2 * STEPS * math.sqrt(self.square), adjacency)


def _places(pairs: Sequence[tuple[int, int]]) -> Places:
    """Return places of the matrix of products: the part of the earlier party gives the row."""
    rows, columns = np.sort(np.array(pairs, dtype=np.intp), axis=1).T
    return rows, columns


# --- A party's rows --------------------------------------------------------------------------------------------------------
# A party's four parts of every row of a round.


@dataclass(frozen=True)
class PullRows(RoundRows):
    """A party's four parts of every row in one round, at the coefficients of its own columns and its part of the constant."""

    def made(self, z: Floats, y: Floats, offset: Floats | float = 0.0) -> Floats:
        """Return (numbers, rows times numbers) in steps before they are rounded: two numbers, then both times the row; of the holder the signs last."""
        u = self.predictor(z) + offset
        short = shortened(z * STEPS, self.columns - math.sqrt(z.shape[1])) if z.shape[1] else z
        if self.holds:
            sign = 2 * y - 1
            number = np.exp(np.minimum(-sign * u, 0.0))
            return np.column_stack([number * STEPS, short * number[:, None], sign])
        second, first = np.exp(np.minimum(-u, 0.0)), np.exp(np.minimum(u, 0.0))
        return np.column_stack([second * STEPS, first * STEPS, short * second[:, None], short * first[:, None]])

    def part_of(self, rows: Floats, coins: Stream, first: int) -> Ints:
        """Return the part of this name of rows that :meth:`made` returned, rounded at random; ``first`` is the number of the first row."""
        own, name, steps = len(self.layout.coding.attribute), self.part.name, STEPS**2
        numbers = name in NUMBERS
        if self.holds:
            signs = rows[:, -1:].astype(np.int64)
            found = at_random(rows[:, :1] if numbers else rows[:, 1 : 1 + own], coins, first)
            found = found * signs if name in {SIGNED, SIGNED_ROWS} else found
        else:
            start = {SECOND: 0, FIRST: 1, SECOND_ROWS: 2, FIRST_ROWS: 2 + own}[name]
            found = at_random(rows[:, start : start + (1 if numbers else own)], coins, first)
        return within(found, steps if numbers else self.part.square)


# --- Typed rows, and the form ----------------------------------------------------------------------------------------------
# Public rows with two classes, on which pulls are expected; and the form of a fit of two classes.


@dataclass(frozen=True)
class TypedPulls(TypedRows[float]):
    """Typed rows with two classes; what weighs their pulls is the part of the constant at the holder."""

    def _weights(self, b: Row, share: float) -> tuple[Row, Row, Row]:
        """Return (p, the pull of the second class, minus that of the first) of every row (Theorem G.14)."""
        first, second = self.predictors(b, share)
        one = np.exp(np.minimum(-first, 0.0) + np.minimum(-second, 0.0))
        none = np.exp(np.minimum(first, 0.0) + np.minimum(second, 0.0))
        return expit(first + second), one, none

    def setting(self, b: Row) -> float:
        """Return the part of the constant at the holder of the classes with the largest mean curvature; of equal ones that nearest to a half."""
        means = np.array([(p * one).mean() for p, one, _ in (self._weights(b, share) for share in _TRIED)])
        best = [share for share, mean in zip(_TRIED, means.tolist(), strict=True) if mean >= _EQUAL * float(means.max())]
        return min(best, key=lambda share: abs(share - 0.5))

    def sent(self, b: Row, setting: float, holds: tuple[bool, ...]) -> tuple[float, ...]:
        """Return the constant's parts, party by party."""
        constant = CONSTANT * float(b[-1])
        return tuple((setting if held else 1 - setting) * constant for held in holds)

    def unit(self, setting: float) -> float:  # noqa: ARG002 - the same for every part of the constant
        """Return a half: twice the score is released."""
        return 0.5 / STEPS**2

    def bend(self, b: Row, setting: float) -> TypedBend:
        """Return curvature and second moments of the pulls of all people at these coefficients, if they are the truth."""
        p, one, none = self._weights(b, setting)
        return self.bent(p * one, p * one**2 + (1 - p) * none**2)

    def pull(self, at: Row, setting: float, truth: Row) -> Row:
        """Return the score of all people that is expected at some coefficients where others are the truth."""
        _, one, none = self._weights(at, setting)
        p = self._chances(truth)
        return self.summed(p * one - (1 - p) * none)

    def slope(self, at: Row, setting: float, truth: Row) -> Matrix:
        """Return the derivative of :meth:`pull` in the truth."""
        _, one, none = self._weights(at, setting)
        p = self._chances(truth)
        return self.outer(p * (1 - p) * (one + none))

    def excess(self, mean: float, top: float, truth: Row) -> tuple[Row, Matrix]:  # noqa: ARG002 - classes are not cut
        """Return the expected products of columns with classes less a rate, and their derivative in the truth."""
        p = self._chances(truth)
        return self.summed(p - mean), self.outer(p * (1 - p))

    def scatter(self, mean: float, top: float) -> float:  # noqa: ARG002 - classes are not cut
        """Return the variance of a class."""
        return mean * (1 - mean)

    def _chances(self, truth: Row) -> Row:
        return np.asarray(expit(self.rows[:, :-1] @ truth[:-1] + CONSTANT * float(truth[-1])))


class ClassForm(SplitForm):
    """Two declared classes, with the logit link."""

    words = SplitWords(
        "logistic regression",
        "log odds",
        "base rate",
        "the rounds did not arrive at coefficients at which the pulls of both classes balance, so no line is printed: classes that "
        "some columns part, or noise. Fewer columns, or the largest effects left out, would",
    )

    def check(self, response: Column) -> None:
        """Refuse a response that has not two classes, or may be missing."""
        if response.categories is None or len(response.categories) != _TWO or response.may_be_absent:
            msg = (
                f"the response {response.name!r} of the logistic family has two classes and is never missing: declare categories of two labels, "
                'missing = "refuse"'
            )
            raise UsageError(msg).at(column=response.name)

    def family(self, response: Column) -> Logistic:  # noqa: ARG002 - classes are 0 and 1
        """Return the family."""
        return Logistic()

    def shape(self, columns: Mapping[str, tuple[int, int]], holder: str, rows: int, repeated: int) -> PullShape:
        """Return the products of a round."""
        return PullShape.of(columns, holder, rows, repeated)

    def rows(
        self,
        about: tuple[MomentsLayout, RowPart, int, int, float, Responses],
        slopes: Floats,
        place: int,
        more: Sequence[float],
    ) -> PullRows:
        """Return the coding of a party's rows; ``more``: the parts of the constant at both parties, in the study's order."""
        return PullRows(*about, slopes, float(more[place]))

    def coin(self, part: RowPart, *, holds: bool) -> str:
        """Return the name of the coins: the holder's numbers with and without the sign are one number, and so are its rows."""
        if not holds:
            return part.name
        return "number" if part.name in NUMBERS else "row"

    def top(self, begun: Begun) -> float:  # noqa: ARG002 - whatever the rate
        """Return 1: classes are not cut."""
        return 1.0

    def typed(self, rows: TypedTable, family: Response, noise: float, begun: Begun) -> TypedPulls:  # noqa: ARG002 - whatever the noise
        """Return typed rows with classes."""
        return TypedPulls(rows.rows, rows.held, rows.people)

    def added(self, parties: Sequence[str], holder: str, made: Mapping[str, Floats]) -> Floats:
        """Return twice the score of all columns, and the sum of twice the pulls."""
        held = made[holder]
        (other,) = (rows for party, rows in made.items() if party != holder)
        own, sign = held.shape[1] - 2, held[:, -1]
        theirs = (other.shape[1] - 2) // 2
        answer = np.where(sign > 0, other[:, 0], other[:, 1]) * sign
        row = np.where((sign > 0)[:, None], other[:, 2 : 2 + theirs], other[:, 2 + theirs :])
        found = {holder: held[:, 1 : 1 + own].T @ answer}
        found |= {party: row.T @ (sign * held[:, 0]) for party in parties if party != holder}
        return 2 * np.concatenate([*(found[party] for party in parties), [held[:, 0] @ answer]])
