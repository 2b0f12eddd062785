"""The pulls of times to an event as products of numbers of two parties: all pieces of a person together, how far a person moves them, and typed persons.

Declared cuts divide the time that a person was followed into pieces, each with a hazard of its own. With u = u_a + u_b the pull of piece j is
h_b (d_j - L_j e^(u_a) e^(u_b)), d_j the event in it and L_j the cumulative hazard there: the other party's factors, h_b and h_b e^(u_b), are the same for
all pieces. So the holder of time and event sends its two numbers as sums over the pieces, and the pieces themselves as columns of its rows; they share one
person and one bound (Theorem G.18). The holder follows nobody beyond the time at which the cumulative hazard times e^(u_a) reaches a public number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from unpooled.inference.life_table import LifeTable
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.counts import CountForm, CountRows, CountShape, of_others
from unpooled.models.glm.families import ExitCells, Hazards
from unpooled.models.glm.split import STEPS, Begun, DeviationRows, SplitWords
from unpooled.models.glm.typed import TypedBend, TypedRows
from unpooled.privacy.mechanisms import Block
from unpooled.products.rows import rounded, shortened
from unpooled.products.sines import PRODUCTS
from unpooled.products.sums import GRID
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.families import Response
    from unpooled.linear.layout import MomentsLayout
    from unpooled.models.glm.rows import BaseRate, Responses
    from unpooled.models.glm.split import TypedTable
    from unpooled.privacy.bounds import Column
    from unpooled.products.sums import RowPart
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Ints = NDArray[np.int64]

_TUNED = table("glm_columns")
#: Public numbers of a round behind slopes and log hazards: where persons are followed to, where weights fall, whether vectors are stretched.
_LAST = 3
#: How much finer steps are without noise.
_FINER = 16
#: Exponents are no larger.
_LARGEST = 600.0
#: Log hazards of typed persons are no farther from 0.
_FARTHEST = 60.0
#: Below this a mean of an exponential function is taken for its first terms.
_SMALL = 1e-4
#: Typed persons on which settings are compared lie this far apart.
_APART = 10
#: Deviations of a part of the predictor are taken for no more than this where weights begin to fall.
_WIDEST = 2.0


# --- What is multiplied ----------------------------------------------------------------------------------------------------
# The pieces of every person as columns of the holder's rows, and the numbers of a person by piece.


@dataclass(frozen=True)
class TimeShape(CountShape):
    """The two parts of both parties in a round of times: as of counts, with the pieces as last columns of the holder's rows and no constant."""

    pieces: int = 1

    @classmethod
    def of_pieces(
        cls, columns: Mapping[str, tuple[int, int]], holder: str, pieces: int, rows: int, repeated: int, steps: int
    ) -> Self:
        """Return the shape for these numbers of columns and squared limits of rows in squared steps, by party: pieces make the holder's rows longer by sqrt 2 constants."""
        count, square = columns[holder]
        longer = math.ceil(math.sqrt(square + 2 * (CONSTANT * steps) ** 2)) + math.ceil(math.sqrt(2 * (count + pieces)))
        found = cls.of({**columns, holder: (count + pieces, longer**2)}, rows, repeated, steps)
        return replace(found, pieces=pieces)

    @property
    def settings(self) -> int:
        """Return the number of slopes, log hazards of the pieces, and further numbers."""
        return self.size + _LAST

    @property
    def size(self) -> int:
        """Return the number of columns of both parties, and of pieces."""
        return super().size - 1

    def released(self, whole: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the pulls times the columns of both parties, and those of the pieces behind the holder's; their sum is that of all pulls."""
        return super().released(whole)[:-1]

    @property
    def square(self) -> int:
        """Return R^2 in squared steps: the largest squared length of the rows of both parties, pieces included."""
        return sum(part.square for part in self.parts if part.name == PRODUCTS)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise: alike in all columns, and in the pieces in parts of a constant."""
        return (Block(self.size, 1.0),)


class PieceNumbers(NamedTuple):
    """The holder's numbers of every person, a column each for the pieces: (first, second)."""

    first: Floats
    second: Floats


def of_pieces(met: Floats, place: Ints, happened: Floats, cut: float, ratio: float) -> PieceNumbers:
    """Return the holder's numbers by piece. Of each person their sums are a vector no longer than 1, and all of them together no longer than sqrt 2.

    ``met``: the cumulative hazard in every piece times e^(u_a), in parts of where a person is followed to; ``place``: the piece of exit; with d = 1 where
    the event was met before that and v the parts of ``met`` before it, the numbers are d/q - r v/2 and sqrt(r) g v.
    """
    whole = np.cumsum(met, axis=1)
    v = np.diff(np.minimum(whole, 1.0), axis=1, prepend=0.0)
    x = np.zeros_like(met)
    x[np.arange(len(met)), place] = happened * (whole[:, -1] <= 1) / cut
    return PieceNumbers(x - ratio / 2 * v, math.sqrt(ratio * (1 - ratio / 4)) * v)


# --- A party's rows --------------------------------------------------------------------------------------------------------
# A party's parts of every row: in a round, and of second moments.


@dataclass(frozen=True)
class TimeRows(CountRows):
    """A party's two parts of every row in one round: its two numbers, and both times its row; of the holder by piece as well."""

    family: Hazards
    #: The log hazards of the pieces, and the logarithm of where a person is followed to.
    logs: Floats
    stop: float
    #: Steps of a vector of length 1.
    length: int

    def made(self, z: Floats, y: Floats, offset: Floats | float = 0.0) -> Floats:
        """Return (numbers, rows times numbers) in steps before they are rounded, of standardised rows, times and events, in the order of products of sines."""
        u, limit = self.predictor(z), self.columns - math.sqrt(2 * z.shape[1])
        one = self.length
        short = shortened(z * one, limit) if z.shape[1] else z
        if not self.holds:
            cosine, sine = of_others(u, self.end, self.ratio, stretched=self.stretched)
            return np.column_stack([cosine * one, sine * one, short * sine[:, None], short * cosine[:, None]])
        own = self.pieces(u, y, np.asarray(offset))
        sine, cosine = own.first.sum(axis=1), own.second.sum(axis=1)
        by_sine, by_cosine = (CONSTANT * one * part for part in own)
        rows = short * sine[:, None], by_sine, short * cosine[:, None], by_cosine
        return np.column_stack([cosine * one, sine * one, *rows])

    def pieces(self, u: Floats, time: Floats, happened: Floats) -> PieceNumbers:
        """Return the holder's numbers of persons with these parts of the predictor."""
        grown = np.exp(np.clip(u[:, None] + self.logs - self.stop, -_LARGEST, _LARGEST))
        return of_pieces(self.family.within(time) * grown, *exits_of(self.family, time, happened), self.cut, self.ratio)


def exits_of(family: Hazards, time: Floats, happened: Floats) -> tuple[Ints, Floats]:
    """Return the piece in which every person left, and whether by an event within the time that is declared."""
    place = np.minimum(np.searchsorted(family.edges, time), len(family.edges) - 1)
    return place, happened * (time <= family.edges[-1])


@dataclass(frozen=True)
class ResidualRows(DeviationRows):
    """A party's part of the rows of second moments, with an event less the cumulative hazard of the life table in the place of a response."""

    hazards: tuple[float, ...] = ()

    def made(self, z: Floats, y: Floats, offset: Floats | float = 0.0) -> Ints:
        """Return rows as integers within the limits: shortened, then rounded to nearest."""
        assert isinstance(self.responses.family, Hazards)
        family = self.responses.family
        _, happened = exits_of(family, y, np.asarray(offset))
        met = (family.within(y) * np.array(self.hazards)).sum(axis=1)  # row by row, whatever the block
        left = (happened - met) / self.top
        beside = np.clip(left * GRID, -GRID, GRID)
        return rounded(np.column_stack([shortened(z * GRID, float(self.columns)), beside]), self.part.square)


# --- Typed persons ---------------------------------------------------------------------------------------------------------
# Typed rows with times: how long persons are expected to be followed in every piece, and so what the pulls of all people are, and how they bend and vary.


class TimeWeights(NamedTuple):
    """The weights of persons in a round: where one is followed to, as a cumulative hazard times e^(u_a); where the other party's weights begin to fall."""

    stop: float
    end: float
    #: Whether every vector of the other party is made as long as is proven; without noise weights are 1 where they do not fall.
    stretched: bool = True

    @property
    def most(self) -> float:
        """Return M: the largest expected part of a pull, as an event is 1."""
        return self.stop * math.exp(self.end)

    @property
    def ratio(self) -> float:
        """Return M as a part of the largest of both."""
        return min(self.most, 1.0)

    @property
    def unit(self) -> float:
        """Return q/g, q = max(1, M): the pull of two vectors of length 1."""
        return max(self.most, 1.0) / math.sqrt(1 - self.ratio / 4)

    def of(self, second: Row) -> Row:
        """Return the weights of rows with these parts of the predictor at the other party."""
        x, v = np.exp(np.minimum(self.end - second, 0.0)), np.exp(np.minimum(second - self.end, 0.0))
        length = np.hypot(math.sqrt(1 - self.ratio / 4) * x, math.sqrt(self.ratio) * (x / 2 - v)) if self.stretched else 1.0
        return np.asarray(x / length)


class Watched(NamedTuple):
    """Typed persons under watch, a column for every piece: hazards, the longest time in it, the chance to be there when it begins, the expected time in it."""

    hazard: Matrix
    longest: Matrix
    there: Matrix
    time: Matrix
    #: The derivative of the expected time in the logarithm of the hazard, as far as that of the same piece goes.
    bends: Matrix


@dataclass(frozen=True)
class TypedTimes(TypedRows[TimeWeights]):
    """Typed rows with times to an event; people leave at the rates of the life table, whatever their columns are. Log hazards stand behind the slopes."""

    life: LifeTable
    #: Steps of a vector of length 1; the deviation of the noise in every released product of all rounds together, in squared steps.
    length: int
    noise: float = 0.0

    @property
    def _widths(self) -> Row:
        return np.diff(np.array([0.0, *self.life.edges]))

    @property
    def _leaving(self) -> Row:
        """Return the rate at which people leave without an event in every piece."""
        return np.array(self.life.censored) / np.maximum(self.life.exposure, 1e-9 * self.life.edges[-1])

    def _parts(self, b: Row) -> tuple[Row, Row, Row]:
        """Return the parts of the linear predictor at the holder and at the other party, and the log hazards of the pieces."""
        z, d = self.rows[:, :-1], self.held.size
        return z @ (b[:d] * self.held), z @ (b[:d] * ~self.held), CONSTANT * b[d:]

    @staticmethod
    def _hazards(first: Row, second: Row, logs: Row) -> Matrix:
        return np.asarray(np.exp(np.clip((first + second)[:, None] + logs, -_FARTHEST, _FARTHEST)))

    def _within(self, first: Row, logs: Row, stop: float) -> Matrix:
        """Return the longest time in every piece, of persons with these parts of the predictor at the holder."""
        hazard = np.exp(np.clip(logs, -_FARTHEST, _FARTHEST))
        before = np.cumsum(hazard * self._widths) - hazard * self._widths
        allowed = np.minimum(stop * np.exp(np.clip(-first, -_LARGEST, _LARGEST)), 1e300)
        return np.asarray(np.clip((allowed[:, None] - before) / hazard, 0.0, self._widths))

    def _watched(self, hazard: Matrix, longest: Matrix) -> Watched:
        """Return persons with these hazards who are followed for these times at most."""
        rate = hazard + self._leaving
        met = np.maximum(rate * longest, 1e-12)
        there = np.exp(np.cumsum(met, axis=1)[:, :-1] * -1.0)
        there = np.column_stack([np.ones(len(met)), there])
        mean = -np.expm1(-met) / met
        curved = np.where(met > _SMALL, (np.exp(-met) - mean) / met, -0.5)
        return Watched(hazard, longest, there, there * longest * mean, there * longest**2 * curved * hazard)

    def _seen(self, b: Row, setting: TimeWeights, every: int = 1) -> tuple[Row, Matrix]:
        """Return the weights of typed persons, and the events to expect of them in every piece, if these coefficients are the truth."""
        first, second, logs = self._parts(b)
        first, second = first[::every], second[::every]
        seen = self._watched(self._hazards(first, second, logs), self._within(first, logs, setting.stop))
        return setting.of(second), seen.hazard * seen.time

    def setting(self, b: Row) -> TimeWeights:
        """Return where persons are followed to and weights fall so that typed persons expect the smallest error of a coefficient, of those that are tried."""
        first, second, logs = self._parts(b)
        whole = float(np.exp(np.clip(logs, -_FARTHEST, _FARTHEST)) @ self._widths)
        if not self.noise:  # beyond all data
            far = _TUNED.time_beyond
            ends = [float(u.mean()) + far * float(u.std()) for u in (first, second)]
            return TimeWeights(whole * math.exp(min(ends[0], _FARTHEST)), min(ends[1], _FARTHEST), stretched=False)
        return min(self._tried(whole, first, second), key=lambda one: self._error(one, b))

    def _tried(self, whole: float, first: Row, second: Row) -> Iterator[TimeWeights]:
        """The settings that are tried: ends some deviations above the middle, and several largest pulls, none beyond what anybody has."""
        most = math.log(whole) + float(first.max())
        for above in _TUNED.several("count_ends"):
            end = float(second.mean()) + above * min(float(second.std()), _WIDEST)
            for pull in _TUNED.several("time_pulls"):
                yield TimeWeights(math.exp(max(min(math.log(pull) - end, most, _LARGEST), -_LARGEST)), end)

    def _error(self, setting: TimeWeights, b: Row) -> float:
        """Return the squared error of a coefficient, in units that all settings share."""
        h, events = self._seen(b, setting, _APART)
        events = events.sum(axis=1)
        weight, scatter = float((h * events).mean()), float((h**2 * events).mean())
        return (self.people * scatter + (self.noise * self.unit(setting)) ** 2) / (self.people * weight) ** 2

    def sent(self, b: Row, setting: TimeWeights, holds: tuple[bool, ...]) -> tuple[float, ...]:  # noqa: ARG002 - both parties get all
        """Return the log hazards, the logarithm of where persons are followed to, where weights begin to fall, and whether vectors are stretched."""
        logs = CONSTANT * b[self.held.size :]
        return (*logs.tolist(), math.log(setting.stop), setting.end, float(setting.stretched))

    def unit(self, setting: TimeWeights) -> float:
        """Return the pull for each squared step of a released product."""
        return setting.unit / self.length**2

    def alike(self, b: Row, setting: TimeWeights, other: TimeWeights) -> float:
        """Return the ratio of mean curvatures: other weights are another unit of pulls."""
        return 1.0 if other == setting else self.bend(b, setting).weight / self.bend(b, other).weight

    def bend(self, b: Row, setting: TimeWeights) -> TypedBend:
        """Return curvature and second moments of the pulls of all people at these coefficients, if they are the truth."""
        h, events = self._seen(b, setting)
        weights, squares = h[:, None] * events, h[:, None] ** 2 * events
        curved, meat = (self._bordered(w.sum(axis=1), w, w, np.diag(w.sum(axis=0))) for w in (weights, squares))
        return TypedBend(curved, meat, float(weights.sum(axis=1).mean()), float(squares.sum(axis=1).mean()))

    def _bordered(self, slopes: Row, across: Matrix, down: Matrix, pieces: Matrix) -> Matrix:
        """Return a matrix over slopes and pieces of all people: weights of slopes, of slopes with pieces and of pieces with slopes, and sums over pieces."""
        z = self.rows[:, :-1]
        one = (z * slopes[:, None]).T @ z
        found = np.block([[one, CONSTANT * (z.T @ across)], [CONSTANT * (down.T @ z), CONSTANT**2 * pieces]])
        return np.asarray(found * self._each)

    def pull(self, at: Row, setting: TimeWeights, truth: Row) -> Row:
        """Return the score of all people that is expected at some coefficients where others are the truth."""
        h, left, _ = self._left(at, setting, truth)
        return self._summed(h[:, None] * left)

    def _summed(self, pulls: Matrix) -> Row:
        """Return the score of all people with these pulls of every piece."""
        return np.asarray(np.append(self.rows[:, :-1].T @ pulls.sum(axis=1), CONSTANT * pulls.sum(axis=0)) * self._each)

    def _left(self, at: Row, setting: TimeWeights, truth: Row) -> tuple[Row, Matrix, Watched]:
        """Return weights, the expected pulls of every piece without them, and the persons under watch."""
        first, second, logs = self._parts(at)
        seen = self._watched(self._hazards(*self._parts(truth)), self._within(first, logs, setting.stop))
        return setting.of(second), (seen.hazard - self._hazards(first, second, logs)) * seen.time, seen

    def slope(self, at: Row, setting: TimeWeights, truth: Row) -> Matrix:
        """Return the derivative of :meth:`pull` in the truth."""
        return self.expected(at, setting, truth)[1]

    def expected(self, at: Row, setting: TimeWeights, truth: Row) -> tuple[Row, Matrix]:
        """Return both, of the same persons under watch."""
        h, left, seen = self._left(at, setting, truth)
        return self._summed(h[:, None] * left), self._bordered(*_derivative(h, left, seen))

    def excess(self, mean: float, top: float, truth: Row) -> tuple[Row, Matrix]:  # noqa: ARG002 - the life table has more than a mean
        """Return the expected products of columns and constant with events less the life table's cumulative hazard, and their derivative in the truth."""
        seen = self._watched(
            self._hazards(*self._parts(truth)), np.broadcast_to(self._widths, (len(self.rows), self._widths.size))
        )
        left = (seen.hazard - self.life.hazards) * seen.time
        slopes, across, _, _ = _derivative(np.ones(len(left)), left, seen)
        z = self.rows[:, :-1]
        derivative = np.column_stack([(self.rows * slopes[:, None]).T @ z, CONSTANT * (self.rows.T @ across)])
        return self.summed(left.sum(axis=1) / top), np.asarray(derivative * self._each / top)

    def scatter(self, mean: float, top: float) -> float:  # noqa: ARG002 - as above
        """Return the typical variance of an event less its cumulative hazard: that of the events there are."""
        return self.life.rate / top**2


def _derivative(h: Row, left: Matrix, seen: Watched) -> tuple[Row, Matrix, Matrix, Matrix]:
    """Return how expected pulls with these weights move with slopes and with log hazards: of all pieces together, of them by log hazard, of every piece, of both.

    A log hazard of piece k moves what is met there, and shortens the time in all later pieces by the chance to get there.
    """
    own = h[:, None] * (
        seen.hazard * seen.time + np.divide(left, seen.time, out=np.zeros_like(left), where=seen.time > 0) * seen.bends
    )
    met, pulls = seen.hazard * seen.longest, h[:, None] * left
    later = pulls[:, ::-1].cumsum(axis=1)[:, ::-1] - pulls
    by_log = own - met * later
    by_piece = own - pulls * (met.cumsum(axis=1) - met)
    both = -np.tril(pulls.T @ met, -1) + np.diag(own.sum(axis=0))
    return by_log.sum(axis=1), by_log, by_piece, both


# --- The form --------------------------------------------------------------------------------------------------------------
# The form of a fit of times to an event.


@dataclass(frozen=True)
class TimeForm(CountForm):
    """Hazards in proportion that change at declared cuts; time and event belong to one party."""

    own: Hazards = field(default_factory=Hazards)
    #: Steps per unit of numbers and of rows: more without noise, so that a fit ends where the likelihood has its maximum.
    steps: int = STEPS

    words = SplitWords(
        "survival regression",
        "log hazard",
        "count of exits",
        "the rounds did not arrive at coefficients at which the pulls of the events balance, so no line is printed: effects that are very "
        "large, or noise. Fewer columns, or the largest effects left out, would",
        "; errors take people to leave without an event at the rates of the life table, whatever their columns are",
    )

    def of(self, responses: Responses, *, exact: bool) -> TimeForm:
        """Return the form with the pieces of these responses, once they are known."""
        found = replace(self, steps=_FINER * STEPS if exact else STEPS)
        return replace(found, own=responses.family) if isinstance(responses.family, Hazards) else found

    @property
    def pieces(self) -> int:
        """Return the number of pieces."""
        return len(self.own.edges)

    def check(self, response: Column) -> None:
        """Times are checked with cuts and events."""

    def family(self, response: Column) -> Response:  # noqa: ARG002 - the pieces are known
        """Return the family with its pieces."""
        return self.own

    def base(self, responses: Responses, rows: int) -> BaseRate:
        """Return the counts of exits."""
        return ExitCells(responses, rows)

    def begun(self, base: BaseRate, total: Total, rows: int) -> Begun:
        """Return the life table."""
        assert isinstance(base, ExitCells)
        life = LifeTable.of_cells(base.ends, total.values, float(total.deviations.max()), rows)
        return Begun(life.rate, life.rate, life)

    def top(self, begun: Begun) -> float:
        """Return the largest distance of an event from its cumulative hazard, which is at least 1."""
        assert begun.life is not None
        return max(1.0, float(begun.life.hazards @ self.own.widths))

    def deviations(
        self, about: tuple[MomentsLayout, RowPart, int, int, float, Responses], begun: Begun | None
    ) -> DeviationRows:
        """Return the coding of a party's part of the rows of second moments."""
        if begun is None or begun.life is None:
            return DeviationRows(*about, 0.0)
        return ResidualRows(*about, 0.0, self.top(begun), tuple(begun.life.hazards.tolist()))

    def shape(self, columns: Mapping[str, tuple[int, int]], holder: str, rows: int, repeated: int) -> TimeShape:
        """Return the products of a round."""
        finer = self.steps // STEPS
        own = {party: (count, square * finer**2) for party, (count, square) in columns.items()}
        return TimeShape.of_pieces(own, holder, self.pieces, rows, repeated, self.steps)

    def rows(
        self,
        about: tuple[MomentsLayout, RowPart, int, int, float, Responses],
        slopes: Floats,
        place: int,  # noqa: ARG002 - no party has a constant
        more: Sequence[float],
    ) -> TimeRows:
        """Return the coding of a party's rows; ``more``: log hazards, and the last numbers of a round."""
        *logs, stop, end, stretched = more
        most = stop + end
        cut, ratio = math.exp(min(max(most, 0.0), _LARGEST)), math.exp(min(most, 0.0))
        layout, part, columns, _, weight, responses = about
        own = layout, part, columns * (self.steps // STEPS), self.steps, weight, responses
        last = self.own, np.asarray(logs, dtype=float), stop, self.steps - 2
        return TimeRows(*own, slopes, 0.0, end, cut, ratio, stretched > 0, *last)

    def typed(self, rows: TypedTable, family: Response, noise: float, begun: Begun) -> TypedTimes:  # noqa: ARG002 - the life table has the pieces
        """Return typed rows with times."""
        assert begun.life is not None
        return TypedTimes(rows.rows, rows.held, rows.people, begun.life, self.steps - 2, noise)

    def added(self, parties: Sequence[str], holder: str, made: Mapping[str, Floats]) -> Floats:
        """Return what the products of a round add up to, of rows as they are made before they are rounded."""
        return super().added(parties, holder, made)[:-1]
