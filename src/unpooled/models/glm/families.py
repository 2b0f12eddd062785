"""The families that a generalised linear model on split rows takes: those of one linear predictor, several classes, and times to an event; with their rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import softmax

from unpooled.errors import StudyError, UsageError
from unpooled.estimation.earlier import ALIKE, DrawnModel, EarlierCoefficients, ResponseKind, with_response
from unpooled.families import ROW_FAMILIES, Response
from unpooled.families.logistic import Logistic
from unpooled.families.names import refused_family
from unpooled.families.poisson import Poisson
from unpooled.kernels import rows as row_kernels
from unpooled.kernels.moments import add_gram
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.rows import (
    BASE,
    INFORMATION,
    SCORE,
    BaseRate,
    GlmRows,
    Responses,
    nearest,
)
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts, clipped_products, moments_augmented
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.schedules import table
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Card
    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- Families --------------------------------------------------------------------------------------------------------------
# The families that a generalised linear model on split rows takes, by name: those of one linear predictor, classes, and times to an event.

LOGISTIC, POISSON = Logistic.name, Poisson.name
MULTINOMIAL, SURVIVAL = "multinomial", "survival"
FAMILIES = (*ROW_FAMILIES, MULTINOMIAL, SURVIVAL)
#: Families whose response is one of two classes, and those whose responses are above 0.
TWO_CLASSES = tuple(name for name, family in ROW_FAMILIES.items() if family.classes)
POSITIVE = tuple(name for name, family in ROW_FAMILIES.items() if family.positive)
_KINDS = {MULTINOMIAL: ResponseKind.CLASSES, SURVIVAL: ResponseKind.TIMES}


def public_estimator(family: str, *, shifted: bool = False) -> Any:  # noqa: ANN401 - scikit-learn's own
    """Return the estimator that makes an earlier model of public rows: this family without privacy, and without exposure and offset."""
    from sklearn.linear_model import GammaRegressor

    from unpooled.estimation.priors import SMALL, log_odds, of_counts

    if family == SURVIVAL:
        raise UsageError(
            "prior: public rows go without times to an event: fit them yourself, and pass the log hazard ratios by name"
        )
    if shifted:
        raise UsageError(
            "prior: public rows go without exposure and offset: fit them yourself, and pass the coefficients by name"
        )
    if family in {*TWO_CLASSES, MULTINOMIAL}:
        return log_odds()
    return GammaRegressor(alpha=SMALL) if family in POSITIVE else of_counts()


def check_family(name: str) -> None:
    """Refuse a name that is none of a family; one that other packages have gets the name that it has here."""
    if name not in FAMILIES:
        raise UsageError(refused_family(name, FAMILIES))


def earlier(parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> EarlierCoefficients:
    """Return how a study of these parameters and cards takes earlier coefficients: those of the same family."""
    family = str(parameters.get("family", LOGISTIC))
    kind = ResponseKind.TWO_CLASSES if family in TWO_CLASSES else _KINDS.get(family, ResponseKind.NUMBER)
    shifted = any(parameters.get(role) for role in ("exposure", "offset"))
    estimator = partial(public_estimator, family, shifted=shifted)
    drawing = DrawnModel("glm", kind=kind, family=family, alike={**ALIKE, "family": LOGISTIC}, estimator=estimator)
    found = EarlierCoefficients(drawing, parameters, with_response(parameters, cards))
    try:
        check_family(family)
    except UsageError as error:
        raise StudyError(str(error)) from None
    return found


# --- Several classes -------------------------------------------------------------------------------------------------------
# Several classes: their family, their rates, and everything that is summed over rows with one of C declared classes.
#
# Every class has a linear predictor z.b_a, p is their softmax, and B is a C x D matrix of which a constant may be taken off every column. A record's
# pull is e_y - p, its weight diag p - pp'. Summed are, in addition to what standardises,
#
# * ``base``: how many records are of each class (Theorem F.2);
# * ``descent``, ``score``: h (e_y - p) z', cut until \|h (e_y - p)\| \|z\| <= C (Theorem G.6);
# * ``information``: h (diag p - pp') (x) zz', whose Frobenius norm is at most R^2 (Theorem G.7).

#: Rows that are worked on at a time: pairs of classes times columns times these stay in the cache.
_CACHED_CLASSES = 1024
#: No class is less probable where a deviance needs its logarithm.
_CERTAIN = 1e-12
#: Without noise a class that nobody is in counts as this part of the records.
_RAREST = 1e-6


@dataclass(frozen=True)
class Softmax(Response):
    """The family of C classes."""

    name: ClassVar[str] = MULTINOMIAL
    classes: ClassVar[bool] = True
    high: float = 1.0
    labels: tuple[str, ...] = ("0", "1")

    @property
    def most(self) -> tuple[float, float]:
        """Return the longest pull, and the largest Frobenius norm of a weight."""
        return row_kernels.LONGEST_PULL, 0.5

    def rates_units(self, rates: Floats) -> tuple[float, float]:
        """Return (longest pull, Frobenius norm of the weight) of a record with these rates."""
        return row_kernels.LONGEST_PULL, float(np.linalg.norm(np.diag(rates) - np.outer(rates, rates)))

    def mean(self, u: Floats) -> Floats:
        """Return the probabilities of linear predictors, of every row one per class."""
        return np.asarray(softmax(u, axis=1))

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Minus twice the log likelihood of the classes 0 .. C - 1."""
        told = (mean * (y[:, None] == np.arange(mean.shape[1]))).sum(axis=1)
        return np.asarray(-2 * np.log(np.maximum(told, _CERTAIN)))

    def drawn(self, mean: Floats, rng: np.random.Generator, shape: float = 2.0) -> Floats:
        """Return made-up classes with these probabilities."""
        del shape
        below = rng.random((mean.shape[0], 1)) > np.cumsum(mean, axis=1)
        return np.asarray(np.minimum(below.sum(axis=1), mean.shape[1] - 1).astype(np.float64))


@dataclass(frozen=True)
class ClassResponses(Responses):
    """The column of classes."""

    def read(self, block: tuple[NDArray[np.float64], ...]) -> tuple[Floats, Floats]:
        """Return (the class as a number from 0, no offset) of a block of raw columns."""
        code = Coding((self.response,), 1).code(block[:1])[0]
        return code.argmax(axis=1).astype(np.float64), np.zeros(code.shape[0])


@dataclass(frozen=True)
class ClassRates(BaseRate):
    """Number of records of each class."""

    @property
    def count(self) -> int:
        """Return one for every class."""
        assert self.responses.response.categories is not None
        return len(self.responses.response.categories)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise: a record is in one cell, and one value moves it to another."""
        moved = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}
        reach = {who: Reach(category_counts(how), self.count) for who, how in moved.items()}
        return Summed(BASE, (Block(self.count, 1.0),), reach, 1, share)

    def statistic(self, table: Table) -> Ints:
        """Return the exact counts of one party's rows."""
        total = np.zeros(self.count, dtype=np.int64)
        for block in table.blocks(self.responses.names):
            y, _ = self.responses.read(block)
            total += np.bincount(y.astype(np.int64), minlength=self.count)
        return total

    def rates(self, total: Total, rows: int) -> Floats:
        """Return the rates of the classes, each at least as large as its noise."""
        parts, noise = total.values / rows, total.deviations / rows
        least = np.clip(2 * noise, 1e-4 if noise.any() else _RAREST, 0.5 / self.count)
        found = np.maximum(parts, least)
        return np.asarray(found / found.sum())


@dataclass(frozen=True)
class ClassRows(GlmRows):
    """Sums over standardised rows with a class each."""

    @property
    def classes(self) -> int:
        """C."""
        categories = self.responses.response.categories
        assert categories is not None
        return len(categories)

    @property
    def width(self) -> int:
        """Return the number of coefficients in a request: those of every class."""
        return self.classes * self.layout.size

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """Return (classes, pairs of them, columns, pairs of them)."""
        c, d = self.classes, self.layout.size
        return c, c * (c - 1) // 2, d, d * (d - 1) // 2

    def information(self, share: float, adjacency: Adjacency, steps: int) -> Summed:
        """Weighted second moments (Theorem G.7): every entry once, its noise smaller by the root of how often it stands in the matrix."""
        unit = float(self._steps[1] ** 2)
        c, pairs, d, off = self._sizes
        sizes = ((c * d, 1.0), (c * off, math.sqrt(0.5)), (pairs * d, math.sqrt(0.5)), (pairs * off, 0.5))
        blocks = tuple(Block(size, unit * part) for size, part in sizes if size)
        count = sum(size for size, _ in sizes)
        reach = {who: Reach(moments_augmented(1.0, how), count) for who, how in self.moves(adjacency).items()}
        return Summed(INFORMATION, blocks, reach, self._steps[1] ** 2, share, count=steps)

    # --- at a party ------------------------------------------------------------------------------------------------------

    def class_pulls(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats
    ) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """(rows, pulls of every class, weights of every pair of classes, squared lengths), some thousand rows at a time."""
        longest, heaviest = self.bound
        limits = float(units[0]), longest, heaviest * float(units[1])
        c, pairs, d, _ = self._sizes
        own = start.reshape(c, d)
        for rows, other in blocks:
            for at in range(0, other.shape[0], _CACHED_CLASSES):
                part = rows[at : at + _CACHED_CLASSES]
                y, _, *parts = np.ascontiguousarray(other[at : at + _CACHED_CLASSES].T)
                left, weight, square = np.empty((c, y.size)), np.empty((pairs, y.size)), np.empty(y.size)
                for a in range(c):
                    row_kernels.leave(part, np.zeros(y.size), own[a], float(self.grid), left[a], square)
                row_kernels.class_pulls(left, y, square, float(self.grid), limits, np.empty(c), weight)
                for heavy in parts:  # none without weights
                    left *= heavy
                    weight *= heavy
                yield part, left, weight, square

    def cells_of_pulls(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the numbers of records that are not scaled down, and of those that are."""
        total, longest = np.zeros(2, dtype=np.int64), self.bound
        limits = float(units[0]), longest[0], longest[1] * float(units[1])
        c, _, d, _ = self._sizes
        own = start.reshape(c, d)
        for rows, _ in blocks:
            left, (square, scaled) = np.empty((c, rows.shape[0])), np.empty((2, rows.shape[0]))
            for a in range(c):
                row_kernels.leave(rows, np.zeros(square.size), own[a], float(self.grid), left[a], square)
            row_kernels.classes_are_scaled_down(left, square, float(self.grid), limits, np.empty(c), scaled)
            total += np.bincount(scaled.astype(np.int64), minlength=2)
        return total

    def gradients(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact sum of one round of gradients, class after class."""
        c, _, d, _ = self._sizes
        total, longest = np.zeros((c, d), dtype=np.int64), self._steps[0]
        farthest, exact = int(self.farthest * self.grid), max(1, (1 << 53) // longest)
        for rows, pull, _, square in self.class_pulls(blocks, start, units):
            row_kernels.cut_vectors(pull, square, float(self.grid), farthest, longest)
            for at in range(0, square.size, exact):  # sums of so many products are exact in any order
                part = slice(at, at + exact)
                total += (pull[:, part] @ rows[part]).astype(np.int64)
        return total.ravel()

    def weighted(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact second moments: of every class the diagonal, then what is above it; of every pair of classes the same."""
        c, pairs, d, _ = self._sizes
        longest = self._steps[1]
        sums = np.zeros((pairs, d, d), dtype=np.int64)
        for rows, _, weight, square in self.class_pulls(blocks, start, units):
            out = np.empty((pairs, d, square.size)).transpose(0, 2, 1)
            scale = self.coarse / self.grid
            row_kernels.weigh_pairs(rows, weight / units[1], scale, float(longest**2), out)
            for k in range(pairs):
                add_gram(out[k], longest, sums[k])
        own = np.zeros((c, d, d), dtype=np.int64)
        for k, (a, b) in enumerate(zip(*np.triu_indices(c, 1), strict=True)):
            own[a] += sums[k]
            own[b] += sums[k]
        corner, upper = np.arange(d), np.triu_indices(d, 1)
        parts = (own[:, corner, corner], own[:, *upper], -sums[:, corner, corner], -sums[:, *upper])
        return np.concatenate([part.ravel() for part in parts])

    # --- from the totals -------------------------------------------------------------------------------------------------

    def information_of(self, total: Total) -> tuple[Floats, Floats]:
        """Return (weighted moments in units of the weight, class after class; everywhere the variance of a diagonal entry's noise)."""
        unit = float(self.coarse) ** 2
        c, pairs, d, off = self._sizes
        ends = np.cumsum([c * d, c * off, pairs * d])
        diagonal, upper, cross, crossed = np.split(total.values / unit, ends)
        blocks = np.zeros((c, c, d, d))
        first, second = np.triu_indices(c, 1)
        corner, (row, column) = np.arange(d), np.triu_indices(d, 1)
        whole = np.zeros((c + pairs, d, d))
        whole[:, corner, corner] = np.concatenate([diagonal.reshape(c, d), cross.reshape(pairs, d)])
        beside = np.concatenate([upper.reshape(c, off), crossed.reshape(pairs, off)])
        whole[:, row, column] = whole[:, column, row] = beside
        blocks[np.arange(c), np.arange(c)] = whole[:c]
        blocks[first, second] = blocks[second, first] = whole[c:]
        gram = blocks.transpose(0, 2, 1, 3).reshape(c * d, c * d)
        deviation = float(total.deviations[0]) / unit if total.deviations.size else 0.0
        return gram, np.full(gram.shape, deviation**2)


# --- Times to an event -----------------------------------------------------------------------------------------------------
# Times to an event: declared intervals with a hazard each, and everything that is summed over persons who were followed for a time.
#
# In interval j a person with row x has the hazard exp(a_j + x.b): a piecewise exponential model. A person counts once, with the totals over the
# intervals. Summed are, in addition to what standardises,
#
# * ``base``: how many persons left in which interval, with an event or without, or not at all (Theorem F.2): 2 J + 1 cells;
# * ``descent``: h r z with the person's whole pull r (Theorem G.2), the shape of the baseline as the cells say;
# * ``score``: h (k r_1, .., k r_J, r z) with the pulls of the intervals and the constant k (Theorem G.9);
# * ``information``: the sum over j of h w_j (k e_j, z)(k e_j, z)' (Theorem G.10).

#: Persons who are worked on at a time.
_CACHED_PERSONS = 2048
#: A person is followed until the model's own hazards have added up to this: with noise, and without.
FOLLOWED, _EXACTLY = table("glm").followed, 20.0
#: Steps of a squared row times its weight, per unit: so few that sums of thousands are exact in float64. Without noise more.
_FINE, _FINEST = 1 << 38, 1 << 44


@dataclass(frozen=True)
class Hazards(Response):
    """The family of times to an event, with the ends of its intervals."""

    name: ClassVar[str] = SURVIVAL
    high: float = 1.0
    edges: tuple[float, ...] = (1.0,)

    @property
    def most(self) -> tuple[float, float]:
        """Return the longest pull (both signs of it) and the largest weight of a person who is followed to the end."""
        return 1.5 * _EXACTLY, _EXACTLY

    @property
    def widths(self) -> Floats:
        """Return the lengths of the intervals."""
        return np.diff(np.array([0.0, *self.edges]))

    def within(self, time: Floats) -> Floats:
        """Return the time that somebody followed to this time was in each interval: a row for each time."""
        starts = np.array([0.0, *self.edges[:-1]])
        return np.asarray(np.clip(time[:, None] - starts, 0.0, self.widths))


@dataclass(frozen=True)
class PersonResponses(Responses):
    """The columns of times and of events."""

    event: Column = field(default_factory=lambda: Column("event", 0, 1))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Both."""
        return self.response, self.event

    @property
    def shifted(self) -> bool:
        """There is no offset."""
        return False

    def read(self, block: tuple[NDArray[np.float64], ...]) -> tuple[Floats, Floats]:
        """Return (times, events as 0 and 1) of a block of raw columns; of two categories the second is the event."""
        code = Coding(self.columns, 1).code(block)[0]  # refuses what was declared not to occur, without naming it
        happened = code[:, 2] if self.event.categories is not None else np.asarray(block[1]) > self._middle
        return np.maximum(np.asarray(block[0], dtype=np.float64), 0.0), happened.astype(np.float64)

    @property
    def _middle(self) -> float:
        return sum(self.event.range) / 2


@dataclass(frozen=True)
class ExitCells(BaseRate):
    """Number of persons who left in each interval, with an event or without."""

    @property
    def ends(self) -> Floats:
        """Return the ends of the intervals."""
        assert isinstance(self.responses.family, Hazards)
        return np.array(self.responses.family.edges)

    @property
    def count(self) -> int:
        """Return two cells for every interval: censored, then events; and one of those who were there at the end."""
        return 2 * self.ends.size + 1

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise: a person is in one cell, and one value moves it to another."""
        moved = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}
        reach = {who: Reach(category_counts(how), self.count) for who, how in moved.items()}
        return Summed(BASE, (Block(self.count, 1.0),), reach, 1, share)

    def statistic(self, table: Table) -> Ints:
        """Return the exact counts of one party's persons."""
        total = np.zeros(self.count, dtype=np.int64)
        for block in table.blocks(self.responses.names):
            time, happened = self.responses.read(block)
            cells = np.empty(time.size)
            row_kernels.exits(time, happened, self.ends, cells)
            total += np.bincount(cells.astype(np.int64), minlength=self.count)
        return total


@dataclass(frozen=True)
class PersonRows(GlmRows):
    """Sums over standardised rows of persons."""

    @property
    def family(self) -> Hazards:
        """With the intervals."""
        assert isinstance(self.responses.family, Hazards)
        return self.responses.family

    @property
    def intervals(self) -> int:
        """J."""
        return len(self.family.edges)

    @property
    def slopes(self) -> int:
        """P: coded columns, without the constant."""
        return self.layout.size - 1

    @property
    def width(self) -> int:
        """Return the coefficients of a request: slopes, and the log hazards of the intervals in units of the constant."""
        return self.slopes + self.intervals

    @property
    def _one(self) -> int:
        """Return the constant on the grid."""
        return math.trunc(CONSTANT * self.grid)

    @cached_property
    def _fine(self) -> tuple[int, int]:
        """Return steps per unit of rows and of weights in second moments."""
        most = _FINEST if self.exact else _FINE
        whole = integer_grid(self.rows * math.ceil(self.radius**2), 1, most)
        # Without noise weights have more of the steps: of a model of few levels they take few values, so that their rounding adds up.
        row = 1 << ((whole.bit_length() - 1) * (5 if self.exact else 3) // (16 if self.exact else 9))
        return row, whole // row**2

    @property
    def _heaviest(self) -> int:
        """Return a person's second moments at their bound, in their own steps."""
        row, weight = self._fine
        return int(self.radius**2 * row**2 * weight)

    def score(self, share: float, adjacency: Adjacency, steps: int) -> Summed:
        """Return the gradients of Newton steps (Theorem G.9)."""
        longest = self._steps[0]
        reach = {who: Reach(clipped_products(1.0, how), self.width) for who, how in self.moves(adjacency).items()}
        return Summed(SCORE, (Block(self.width, float(longest)),), reach, longest, share, count=steps)

    def descent(self, share: float, adjacency: Adjacency, rounds: int) -> Summed:
        """Return the gradients of rounds: slopes, and one constant."""
        found = super().descent(share, adjacency, rounds)
        size = self.layout.size
        reach = {who: Reach(one.distance, size) for who, one in found.reach.items()}
        return replace(found, blocks=(Block(size, float(self._steps[0])),), reach=reach)

    def information(self, share: float, adjacency: Adjacency, steps: int) -> Summed:
        """Weighted second moments of persons (Theorem G.10): diagonals, then what stands twice."""
        p, unit = self.slopes, float(self._heaviest)
        off = p * (p - 1) // 2 + p * self.intervals
        blocks = (Block(self.width, unit), *((Block(off, unit * math.sqrt(0.5)),) if off else ()))
        count = self.width + off
        reach = {who: Reach(moments_augmented(1.0, how), count) for who, how in self.moves(adjacency).items()}
        return Summed(INFORMATION, blocks, reach, self._heaviest, share, count=steps)

    @property
    def _followed(self) -> float:
        """Return the cumulative hazard to which a person is followed: more where the budget affords longer rows."""
        return _EXACTLY if self.exact else min(_EXACTLY, FOLLOWED * max(1.0, self.stretch / 2))

    # --- at a party ------------------------------------------------------------------------------------------------------

    def person_pulls(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats
    ) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """(rows, pulls of every interval, weights of every interval, squared lengths of rows without the constant), some at a time."""
        longest, heaviest = self.bound
        cap = self._followed
        p, ends = self.slopes, np.array(self.family.edges)
        with np.errstate(over="ignore"):
            hazard = np.minimum(np.exp(start[p:] * CONSTANT), 1e12)
        limits = float(units[0]), longest, heaviest * float(units[1]), cap, CONSTANT
        for rows, other in blocks:
            for at in range(0, other.shape[0], _CACHED_PERSONS):
                part, own = rows[at : at + _CACHED_PERSONS, :p], other[at : at + _CACHED_PERSONS]
                left, square = np.empty((2, own.shape[0]))
                pull, weight = np.empty((2, ends.size, own.shape[0]))
                row_kernels.leave(part, np.zeros(own.shape[0]), start[:p], float(self.grid), left, square)
                row_kernels.person_pulls(left, own, hazard, ends, square, float(self.grid), limits, pull, weight)
                yield rows[at : at + _CACHED_PERSONS], pull, weight, square

    def cells_of_pulls(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the numbers of persons who are not scaled down, and of those who are."""
        total, p = np.zeros(2, dtype=np.int64), self.slopes
        longest, heaviest = self.bound
        limits = float(units[0]), longest, heaviest * float(units[1]), self._followed, CONSTANT
        with np.errstate(over="ignore"):
            whole = float(np.minimum(np.exp(start[p:] * CONSTANT), 1e12) @ self.family.widths)
        for rows, other in blocks:
            left, square, scaled = np.empty((3, other.shape[0]))
            row_kernels.leave(rows[:, :p], np.zeros(left.size), start[:p], float(self.grid), left, square)
            row_kernels.people_are_scaled_down(left, whole, square, float(self.grid), limits, scaled)
            total += np.bincount(scaled.astype(np.int64), minlength=2)
        return total

    def descend(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact sum of one round of gradients: of the slopes, and of a constant that all intervals share."""
        total, longest = np.zeros(self.layout.size, dtype=np.int64), self._steps[0]
        farthest, exact = int(self.farthest * self.grid), max(1, (1 << 53) // longest)
        for rows, pull, _, square in self.person_pulls(blocks, start, units):
            whole = np.empty(square.size)
            row_kernels.cut_sums(pull, square + float(self._one) ** 2, float(self.grid), farthest, longest, whole)
            for at in range(0, square.size, exact):
                part = slice(at, at + exact)
                total += (rows[part].T @ whole[part]).astype(np.int64)
        return total

    def gradients(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact sum of the gradients of a Newton step: slopes, then intervals."""
        total, longest = np.zeros(self.width, dtype=np.int64), self._steps[0]
        farthest, exact, p = int(self.farthest * self.grid), max(1, (1 << 53) // longest), self.slopes
        for rows, pull, _, square in self.person_pulls(blocks, start, units):
            whole = np.empty(square.size)
            row_kernels.cut_totals(self._rounded(pull), square, float(self.grid), float(self._one), farthest, longest, whole)
            for at in range(0, square.size, exact):  # sums of so many products are exact in any order
                part = slice(at, at + exact)
                total[:p] += (rows[part, :p].T @ whole[part]).astype(np.int64)
                total[p:] += (pull[:, part].sum(axis=1) * self._one).astype(np.int64)
        return total

    def weighted(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact second moments: diagonals of slopes and of intervals, slopes with each other, slopes with intervals."""
        p, (row, fine) = self.slopes, self._fine
        one, heaviest = math.trunc(CONSTANT * row), self._heaviest
        exact = max(1, (1 << 53) // heaviest)
        gram, cross = np.zeros((p, p), dtype=np.int64), np.zeros((p, self.intervals), dtype=np.int64)
        own = np.zeros(self.intervals, dtype=np.int64)
        for rows, _, weight, square in self.person_pulls(blocks, start, units):
            whole, part = np.empty(square.size), np.array(rows[:, :p], order="F")
            scale = row / self.grid
            if self.exact:
                nearest(part, scale)
                nearest(weight, fine / units[1])
            row_kernels.weigh_totals(part, weight, scale, fine / units[1], float(one), float(heaviest), whole)
            for at in range(0, square.size, exact):
                some = slice(at, at + exact)
                gram += ((part[some] * whole[some, None]).T @ part[some]).astype(np.int64)
                cross += (part[some].T @ (weight[:, some].T * one)).astype(np.int64)
                own += weight[:, some].sum(axis=1).astype(np.int64) * one**2
        return np.concatenate([gram.diagonal(), own, gram[np.triu_indices(p, 1)], cross.ravel()])

    # --- from the totals -------------------------------------------------------------------------------------------------

    def information_of(self, total: Total) -> tuple[Floats, Floats]:
        """Return (weighted moments in units of the weight, variances of their noise): no person is in two intervals' corner together."""
        p, d, (row, fine) = self.slopes, self.width, self._fine
        unit = float(row) ** 2 * fine
        upper = np.triu_indices(p, 1)
        first, second = (side.ravel() for side in np.indices((p, self.intervals)))
        rows = np.concatenate([np.arange(d), upper[0], first])
        columns = np.concatenate([np.arange(d), upper[1], second + p])
        gram, variance = np.zeros((2, d, d))
        gram[rows, columns] = gram[columns, rows] = total.values / unit
        if self.exact:  # the constant that was summed, on the grid of these rows, is not quite the one of the coefficients
            whole = np.ones(d)
            whole[p:] = CONSTANT * row / math.trunc(CONSTANT * row)
            gram *= whole[:, None] * whole
        variance[rows, columns] = variance[columns, rows] = (total.deviations / unit) ** 2
        return gram, variance
