"""Sums over the whole rows of a linear model given that they are whole: pulls, second derivatives, and how both rest on which rows are whole.

Let W say that a row has all values, u be its columns that are never missing and z all of them. If W is independent of what may be missing given
(u, y) and P(W | u, y) = pi(u, y), then among whole rows y has the density f(y | z) pi(u, y) over its integral (Theorem B.22). f is normal with mean z.b
and log variance linear in some of the columns that are never missing; pi is a released logistic regression. Every mean over y is a sum over nodes of
a normal law, so what a row adds is a function of that row and of public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import PlanMismatch, UsageError, listed
from unpooled.inference.coding import Seen
from unpooled.linear.residuals import Covariance
from unpooled.linear.standard import CONSTANT, StandardRows, public_numbers
from unpooled.privacy.bounds import MODELLED, Coding, integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import clipped_products, moments_augmented
from unpooled.schedules import table
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import Standard
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Adjacency, Unit
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Settings = tuple[float, ...]

_TUNED = table("tilted")
#: The totals of a fit of whole rows given that they are: its first steps, its end, and how it rests on the model of which rows are whole.
FIRST, SCORE, SPREADS, INFORMATION, INFLUENCE = (
    "tilted_first",
    "tilted_score",
    "tilted_spreads",
    "tilted_information",
    "tilted_influence",
)
#: Nodes and weights of a standard normal law.
NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(_TUNED.whole("nodes"))
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
#: No row's deviation is farther than this factor from that of a row at the mean of all columns.
WIDER = _TUNED.wider
#: Numbers of a request are below this, and log odds of being whole too.
_LARGEST, _SUREST = 1e9, 30.0
#: Rows that are worked on at a time.
_CACHED = 2048


def kept_features(layout: MomentsLayout, columns: tuple[Column, ...]) -> tuple[int, ...]:
    """Return the features that read none of these columns."""
    names = {column.name for column in columns}
    declared = layout.features if layout.made is None else layout.made.derived.needs
    lost = {k for column, own in zip(declared, layout.together, strict=True) if column.name in names for k in own}
    return tuple(k for k in range(len(layout.features)) if k not in lost)


def check(column: Column, given: Mapping[str, object], covariance: Covariance) -> None:
    """Refuse, by name, what a study with a model of completeness has no proof or no errors for; ``given``: parts of the study by what they are called."""
    rule = f'column {column.name!r} declares missing = "model"'
    others = [name for name, said in given.items() if said]
    if others:
        msg = f'{rule}, which goes without {listed(others)}: declare "complete" (right unless missingness depends on the response), or leave these out'
        raise UsageError(msg).at(column=column.name)
    if covariance is not Covariance.MODEL:
        msg = (
            f"{rule}, whose errors are those of its likelihood, and covariance is {str(covariance)!r}: declare "
            '"complete", or ask for covariance = "model" (right where rows are independent)'
        )
        raise UsageError(msg).at(column=column.name)


def check_response(column: Column) -> None:
    """Refuse a response of which it is modelled whether it is there: the model of completeness reads it in every row."""
    if column.missing == MODELLED:
        msg = f'the model of which rows are whole reads the response {column.name!r} in every row: leave out its gaps at every party before, or declare "complete" for all columns with gaps'
        raise UsageError(msg).at(column=column.name)


@dataclass(frozen=True)
class Bounded:
    """Sums over rows of vectors of at most a public length; longer ones are shortened to it (Theorem B.5).

    ``second``: the vectors are positive semidefinite matrices, on and above the diagonal, entries above it times the root of two (Theorem B.23).
    """

    name: str
    count: int
    rows: int
    second: bool = False

    @cached_property
    def steps(self) -> int:
        """Return steps per longest vector."""
        return integer_grid(self.rows, 1, 1 << 40)

    def vector(self, share: float, moves: Mapping[Unit, Adjacency], times: int = 1) -> Summed:
        """Return the statistic with its noise, ``times`` releases of its own."""
        distance = moments_augmented if self.second else clipped_products
        reach = {who: Reach(distance(1.0, how), self.count) for who, how in moves.items()}
        return Summed(self.name, (Block(self.count, float(self.steps)),), reach, self.steps, share, count=times)

    def added_up(self, vectors: Floats) -> Ints:
        """Return the exact sum of these vectors, a row each, in units of the longest.

        They are some steps shorter than that, so that rounded toward zero none is longer, and no two matrices are farther apart than before.
        """
        square = np.zeros(len(vectors))
        for column in vectors.T:  # record after record, in the order of columns
            square += column * column
        factor = (self.steps - 1 - 2 * math.sqrt(self.count)) / np.maximum(np.sqrt(square), 1.0)
        return np.asarray(np.trunc(vectors * factor[:, None]).astype(np.int64).sum(axis=0))

    def decode(self, total: Total, longest: float = 1.0) -> tuple[Floats, float]:
        """Return (sum, deviation of the noise of an entry), for vectors of at most this length."""
        unit = longest / self.steps
        return total.values * unit, float(total.deviations.max(initial=0.0)) * unit


@dataclass(frozen=True)
class TiltedLaw:
    """The law of whole rows at some coefficients: public numbers, as a request carries them."""

    standard: Standard | tuple[Floats, Floats]
    #: Coefficients of standardised rows, and of the log variance.
    start: Floats
    spread: Floats
    #: The log odds of being whole, in the columns' own units: slopes and constant.
    chances: Floats
    #: What a row of derivatives is divided by, and the way from columns to the coordinates in which that model was fitted.
    unit: float = 1.0
    lift: Floats | None = None

    @property
    def deviation(self) -> float:
        """Return the deviation of a row at the mean of all columns."""
        return math.exp(CONSTANT * float(self.spread[-1]) / 2)

    @property
    def settings(self) -> Settings:
        """Return the numbers of a request, in the order in which :meth:`TiltedRows.asked` reads them."""
        head = self.standard.settings if not isinstance(self.standard, tuple) else ()
        rest = [] if self.lift is None else [self.unit, *self.lift.ravel().tolist()]
        found = [*self.start.tolist(), *self.spread.tolist(), *self.chances.tolist(), *rest]
        return (*head, *np.clip(np.nan_to_num(found), -_LARGEST, _LARGEST).tolist())


@dataclass(frozen=True)
class FineRows(StandardRows):
    """Rows of a study without noise, on a grid so fine that rounding moves no coefficient; their squares are not exact, and nothing is bounded by them."""

    @cached_property
    def grid(self) -> int:
        """Return steps per unit."""
        return 1 << 26


@dataclass(frozen=True)
class TiltedPart:
    """Some rows: standardised, as they are shortened, and the means over y of what their sums need."""

    z: Floats
    factor: Floats
    #: A row's deviation as a part of that of a row at the mean of all columns.
    wide: Floats
    #: The clipped residual and its clipped square, less their means; both in the row's own deviations.
    pull: Floats
    square: Floats
    #: Covariances of the clipped residual and of its clipped square with the residual and its square.
    by_mean: Floats
    between: Floats
    by_spread: Floats
    #: Covariances of both with (1 - pi) times 1, y and y^2, of y in coded units; empty where they are not asked for.
    rests: tuple[Floats, Floats]


@dataclass(frozen=True)
class TiltedRows:
    """Sums over whole rows; ``standard`` has the rows, ``chances`` the columns of the model of which rows are whole."""

    standard: StandardRows
    chances: MomentsLayout
    #: The places of the columns that the log variance follows, and the last place, of the constant.
    spread: NDArray[np.intp]
    exact: bool = False

    @property
    def size(self) -> int:
        """Return the coefficients of the mean and of the log variance."""
        return self.standard.width + self.spread.size

    @property
    def clips(self) -> tuple[float, float]:
        """Return the bounds on residuals and on their squares, in deviations."""
        return (math.inf, math.inf) if self.exact else (_TUNED.clip, _TUNED.square)

    @cached_property
    def gains(self) -> tuple[float, float]:
        """Return by what bounded residuals and squares are divided, so that they move with mean and log variance as unbounded normal ones do."""
        bounded, squares = self._bounded(NODES)
        return float(_WEIGHTS @ (bounded * NODES)), float(_WEIGHTS @ (squares * NODES**2) - _WEIGHTS @ squares) / 2

    @cached_property
    def efficiency(self) -> float:
        """Return the sampling variance of unbounded normal residuals as a part of that of bounded ones."""
        bounded, _ = self._bounded(NODES)
        return float(_WEIGHTS @ (bounded * NODES)) ** 2 / float(_WEIGHTS @ bounded**2)

    def _bounded(self, t: Floats) -> tuple[Floats, Floats]:
        """Return residuals, in deviations, and their squares, each drawn to its bound."""
        clip, most = self.clips
        square = t * t
        return t / np.sqrt(1 + square / clip**2), square / (1 + square / most)

    @property
    def lengths(self) -> tuple[float, float, float, float]:
        """Return the longest vectors of the score, of that of the log variance, of second derivatives, and of a row of derivatives in its unit."""
        rows, most = self.standard.radius, 1000.0 if self.exact else 1.0
        own = self.standard.stretch * math.sqrt(self.spread.size - 1 + CONSTANT**2)
        far, clip, square = _TUNED.far, _TUNED.clip, _TUNED.square
        one, two = self.gains
        return most * clip / one * rows, most * square / two / 2 * own, most * far * rows**2, most * far * rows

    @property
    def first(self) -> Bounded:
        """Return the score, that of the log variance and the second derivatives together, each in units of its longest over the root of three."""
        return Bounded(FIRST, self.size + self._pairs, self.standard.rows)

    @property
    def score(self) -> Bounded:
        """Return how rows pull at the mean."""
        return Bounded(SCORE, self.standard.width, self.standard.rows)

    @property
    def spreads(self) -> Bounded:
        """Return how rows pull at the log variance."""
        return Bounded(SPREADS, self.spread.size, self.standard.rows)

    @property
    def information(self) -> Bounded:
        """Return the second derivatives, on and above the diagonal."""
        return Bounded(INFORMATION, self._pairs, self.standard.rows, second=True)

    @property
    def influence(self) -> Bounded:
        """Return how the pulls move with the model of which rows are whole."""
        return Bounded(INFLUENCE, self.size * self.chances.size, self.standard.rows)

    @property
    def _pairs(self) -> int:
        return self.size * (self.size + 1) // 2

    # --- at a party ------------------------------------------------------------------------------------------------------

    def asked(self, settings: Settings, *, rests: bool) -> TiltedLaw:
        """Return the law of a request; refuse another count of numbers, or wild ones. No sensitivity depends on them."""
        d, m, p = self.standard.width, self.spread.size, len(self.chances.names) + 1
        more = 1 + p * self.chances.size if rests else 0
        end = len(settings) - m - p - more
        numbers = np.asarray(settings[max(end, 0) :], dtype=np.float64)
        if end < 0 or not (np.abs(numbers) <= _LARGEST).all() or (rests and not numbers[m + p] >= 1 / _LARGEST):
            msg = f"a request over whole rows ends with {m + p + more} finite numbers on their spread and on which rows are whole"
            raise PlanMismatch(msg)
        standard, start, _ = public_numbers(self.standard.layout, settings[:end], 0, coefficients=d)
        spread, chances, rest = np.split(numbers, [m, m + p])
        law = TiltedLaw(standard, start, spread, chances)
        return law if not rests else TiltedLaw(standard, start, spread, chances, float(rest[0]), rest[1:].reshape(p, -1))

    def parts(
        self, table: Table, law: TiltedLaw, *, rests: bool = False
    ) -> Iterator[tuple[TiltedPart, tuple[Floats, Floats, Floats]]]:
        """Rows some thousand at a time, and with ``rests`` their columns of the model of completeness: those times 1, y and y^2."""
        assert isinstance(law.standard, tuple)
        layout, raw = self.standard.layout, table.raw if isinstance(table, Seen) else table
        names = tuple(dict.fromkeys((*self._reads, layout.response.name)))
        rows = self.standard.blocks(table, law.standard)
        for (block, beside), held in zip(rows, raw.blocks(names), strict=True):
            columns = dict(zip(names, held, strict=True))
            at = 0
            for part, residual, square in self.standard._left(iter([(block, beside)]), law.start):  # noqa: SLF001 - the same rows
                some = {name: values[at : at + residual.size] for name, values in columns.items()}
                lines = self.lines_of(some)
                odds = tuple(self._odds(line, law.chances) for line in lines)
                fitted = beside[0][at : at + residual.size] - residual
                yield self._made(law, part, residual, square, fitted, odds, rests=rests), lines if rests else lines[:0]  # type: ignore[misc]
                at += residual.size

    @cached_property
    def _reads(self) -> tuple[str, ...]:
        made = self.chances.made
        return (
            tuple(column.name for column in self.chances.features)
            if made is None
            else tuple(c.name for c in self.chances.sources)
        )

    def lines_of(self, held: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats, Floats]:
        """Return the columns of the model of completeness as functions of y: what they are times 1, y and y^2, of y in coded units."""
        response, made, own = self.standard.layout.response, self.chances.made, self.chances
        names, found = [column.name for column in own.features], []
        for y in (-1.0, 0.0, 1.0):
            at = {**held, response.name: np.full(next(iter(held.values())).size, response.centre + y * response.half_width)}
            raw = [at[name] for name in names] if made is None else made.values(at, names)
            found.append(np.asarray(Coding(own.features, 1).natural(raw)))
        low, middle, high = found
        return middle, (high - low) / 2, (high + low) / 2 - middle

    @staticmethod
    def _odds(rows: Floats, chances: Floats) -> Floats:
        """Return these rows times the slopes, record after record."""
        total = np.zeros(len(rows))
        for column, slope in zip(rows.T, chances[:-1].tolist(), strict=True):
            total += column * slope
        return total

    def _made(
        self,
        law: TiltedLaw,
        part: Floats,
        residual: Floats,
        square: Floats,
        fitted: Floats,
        odds: tuple[Floats, ...],
        *,
        rests: bool,
    ) -> TiltedPart:
        middle, width = law.standard  # type: ignore[misc]
        grid, rows = float(self.standard.grid), self.standard
        z = part / grid
        logs = np.zeros(len(z))
        for at, slope in zip(self.spread[:-1].tolist(), law.spread[:-1].tolist(), strict=True):
            logs += z[:, at] * slope
        wide = np.exp(np.clip(logs / 2, -math.log(WIDER), math.log(WIDER)))
        deviation = wide * law.deviation
        t = residual / deviation
        level, slope, bent = odds[0] + law.chances[-1], odds[1], odds[2]
        whole, at_nodes = np.empty((NODES.size, len(z))), np.empty((NODES.size, len(z)))
        for k, node in enumerate(NODES.tolist()):
            y = np.clip(middle[-1] + width[-1] * (fitted + deviation * node), -1.0, 1.0)
            at_nodes[k] = y
            whole[k] = np.clip(level + slope * y + bent * y * y, -_SUREST, _SUREST)
        logs = -np.logaddexp(0.0, -whole)
        weights = np.exp(logs - logs.max(axis=0)) * _WEIGHTS[:, None]
        weights /= weights.sum(axis=0)
        x, xx, (one, two) = NODES, NODES**2, self.gains
        cut, cut_square = (values / gain for values, gain in zip(self._bounded(x), (one, two), strict=True))
        own, own_square = (values / gain for values, gain in zip(self._bounded(t), (one, two), strict=True))

        def mean(values: Floats) -> Floats:
            total = np.zeros(len(z))
            for k in range(NODES.size):
                total += weights[k] * values[k]
            return total

        first, second, of_cut, of_square = mean(x), mean(xx), mean(cut), mean(cut_square)
        gone = -np.expm1(logs) if rests else logs  # 1 - pi
        powers = [gone, gone * at_nodes, gone * at_nodes**2] if rests else []

        def with_powers(values: Floats, about: Floats) -> Floats:
            return np.column_stack([mean(values[:, None] * power) - about * mean(power) for power in powers])

        far = math.inf if self.exact else rows.radius * grid
        length = np.sqrt(square)
        return TiltedPart(
            z,
            np.minimum(1.0, np.divide(far, length, out=np.ones_like(length), where=length > 0)) ** 2,
            wide,
            own - of_cut,
            own_square - of_square,
            mean(cut * x) - of_cut * first,
            (mean(cut * xx) - of_cut * second + mean(cut_square * x) - of_square * first) / 2,
            mean(cut_square * xx) - of_square * second,
            (with_powers(cut, of_cut), with_powers(cut_square, of_square)) if rests else (z[:0], z[:0]),
        )

    def _scores(self, part: TiltedPart) -> tuple[Floats, Floats]:
        """Return what rows pull at the mean and at the log variance, in units of the longest."""
        score, spreads, *_ = self.lengths
        pull = part.z * (part.factor * part.pull / part.wide / score)[:, None]
        return pull, part.z[:, self.spread] * (part.factor * part.square / 2 / spreads)[:, None]

    def _derived(self, part: TiltedPart) -> Floats:
        """Return second derivatives, on and above the diagonal, in units of the longest."""
        d, far = self.standard.width, self.lengths[2]
        rows = np.concatenate([part.z / part.wide[:, None], part.z[:, self.spread]], axis=1)
        between = np.clip(part.between, -np.sqrt(part.by_mean * part.by_spread), np.sqrt(part.by_mean * part.by_spread))
        by = part.factor / far * np.array([part.by_mean, between / 2, part.by_spread / 4])
        found, at = np.empty((len(rows), self._pairs)), 0
        for i in range(self.size):
            for j in range(i, self.size):
                found[:, at] = rows[:, i] * rows[:, j] * by[int(i >= d) + int(j >= d)] * (1.0 if i == j else math.sqrt(2))
                at += 1
        return found

    def added_first(self, table: Table, law: TiltedLaw) -> Ints:
        """Return the exact sum of scores and second derivatives."""
        total = np.zeros(self.first.count, dtype=np.int64)
        for part, _ in self.parts(table, law):
            total += self.first.added_up(np.concatenate([*self._scores(part), self._derived(part)], axis=1) / math.sqrt(3))
        return total

    def added_score(self, table: Table, law: TiltedLaw) -> Ints:
        """Return the exact sum of pulls at the mean."""
        return self._summed(self.score, (self._scores(part)[0] for part, _ in self.parts(table, law)))

    def added_spreads(self, table: Table, law: TiltedLaw) -> Ints:
        """Return the exact sum of pulls at the log variance."""
        return self._summed(self.spreads, (self._scores(part)[1] for part, _ in self.parts(table, law)))

    def added_information(self, table: Table, law: TiltedLaw) -> Ints:
        """Return the exact sum of second derivatives."""
        return self._summed(self.information, (self._derived(part) for part, _ in self.parts(table, law)))

    def added_influence(self, table: Table, law: TiltedLaw) -> Ints:
        """Return the exact sum of what pulls move by with each fitted coefficient of the model of completeness."""
        made = (self._resting(part, lines, law) for part, lines in self.parts(table, law, rests=True))
        return self._summed(self.influence, made)

    @staticmethod
    def _summed(bounded: Bounded, vectors: Iterator[Floats]) -> Ints:
        total = np.zeros(bounded.count, dtype=np.int64)
        for some in vectors:
            total += bounded.added_up(some)
        return total

    def _resting(self, part: TiltedPart, lines: tuple[Floats, Floats, Floats], law: TiltedLaw) -> Floats:
        assert law.lift is not None
        far, (first, second) = self.lengths[3], part.rests
        moved = np.zeros((2, len(part.z), self.chances.size))
        for power, line in enumerate(lines):
            for slope, column in zip(law.lift[:-1], line.T, strict=True):
                for which, covariance in enumerate((first, second)):
                    moved[which] += (column * covariance[:, power])[:, None] * slope
        for which, covariance in enumerate((first, second)):
            moved[which] += covariance[:, :1] * law.lift[-1]
        scale = part.factor / far / law.unit
        rows = [part.z * (scale / part.wide)[:, None], part.z[:, self.spread] * (scale / 2)[:, None]]
        own = [rows[0][:, :, None] * moved[0][:, None, :], rows[1][:, :, None] * moved[1][:, None, :]]
        return np.concatenate(own, axis=1).reshape(len(part.z), -1)

    # --- from the totals -------------------------------------------------------------------------------------------------

    def matrix(self, upper: Floats) -> Floats:
        """Return a symmetric matrix from its entries on and above the diagonal, those above it times the root of two."""
        found = np.zeros((self.size, self.size))
        rows, columns = np.triu_indices(self.size)
        found[rows, columns] = found[columns, rows] = np.where(rows == columns, 1.0, math.sqrt(0.5)) * upper
        return found

    def noises(self, size: int, deviation: float) -> Floats:
        """Return the variances of the noise of such a matrix, of which each number that was released has this deviation."""
        return np.full((size, size), deviation**2 / 2) + np.eye(size) * deviation**2 / 2

    def first_of(self, total: Total) -> tuple[Floats, Floats, tuple[float, float, float]]:
        """Return (scores, second derivatives, deviations of the noise of an entry of both scores and of these)."""
        values, noise = self.first.decode(total)
        d, size, (one, two, three, _) = self.standard.width, self.size, self.lengths
        root = math.sqrt(3)
        scores = values[:size] * root
        scores[:d] *= one
        scores[d:] *= two
        return (
            scores,
            self.matrix(values[size:] * root * three),
            (noise * root * one, noise * root * two, noise * root * three),
        )


# --- Resting ---------------------------------------------------------------------------------------------------------------
# How a fit rests on a model that was released before it: what that takes of the variance of its scores, and what its noise adds (Theorem G.12).

#: Of the variance of a score no more than this is taken to be that of the model that was released before.
_MOST_KNOWN = 0.95


def known_scores(scores: Floats, derivative: Floats, noise: float, sampling: Floats) -> Floats:
    """Return second moments of scores less what the fit of the earlier model takes of them: K H^-1 K', without its noise.

    Each part is at most what there is, so that noise leaves no score without a variance.
    """
    told = met(derivative, noise, sampling)
    values, vectors = np.linalg.eigh(scores)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    root = vectors[:, kept] * np.sqrt(values[kept])
    white = vectors[:, kept] / np.sqrt(values[kept])
    parts, axes = np.linalg.eigh(white.T @ told @ white)
    taken = root @ axes
    return np.asarray((taken * (1 - np.clip(parts, 0.0, _MOST_KNOWN))) @ taken.T)


def met(derivative: Floats, noise: float, covariance: Floats) -> Floats:
    """Return what this covariance of the earlier model is in the score: with noise in K its expectation would be larger by the noise's variance times the trace."""
    return np.asarray(derivative @ covariance @ derivative.T - noise**2 * covariance.trace() * np.eye(len(derivative)))
