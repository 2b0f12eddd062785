"""One low-level model of a stack: how a party's rows are scaled, which columns it ranks first, and the line from its score to probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from scipy.special import logit

from unpooled.errors import UsageError
from unpooled.kernels.score_posterior import (
    CELLS,
    ScoreCounts,
    Slopes,
    mean_log_odds,
    score_counts,
    score_posterior,
)
from unpooled.models.stacking.declared import LOG_ODDS, TWO, Fit, Noise, Outcomes, Parameters, by_law, combiner_of
from unpooled.privacy.accounting import SAFETY, budget_mu
from unpooled.privacy.bounds import Coding
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Release
from unpooled.privacy.sensitivity import category_counts
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Calibration, Unit
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.coding import FormulaColumns
    from unpooled.models.stacking.declared import Penalties
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.events import Event
    from unpooled.privacy.plan import Card
    from unpooled.privacy.study import Study

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]


# --- Low level -------------------------------------------------------------------------------------------------------------
# One low-level model of a stack: how a party's rows are scaled, and what becomes of released weights.

_TUNED = table("stacking")
#: A coded row shorter than this is a row of zeros.
_NOTHING = 1e-100
#: Rows that are turned from column-major to row-major at a time.
_TURNED = 1024


@dataclass(frozen=True)
class LowLevel:
    """One low-level model: a party's columns, how its rows are scaled, and its share q of the sensitivity.

    A row of all parties has length at most R, in the data's own units (``norm``) or in coded ones; the part of it that is here is
    shortened to q R and then divided by R, so that its length is at most q (the precondition of S.1). Where parts are scaled
    (``parts = "scale"``, as in the stacking paper), ``norm`` or ``length`` is all that its own bounds allow, and the part is multiplied by q.
    """

    card: Card
    columns: tuple[Column, ...]
    weight: float
    #: q R in the data's own units (R where parts are scaled); None where columns alone are bounded.
    norm: float | None
    #: q R in coded units, where columns alone are bounded; never more than this party's columns can reach.
    length: float
    intercept: bool
    centre: tuple[float, ...]
    #: Whether every row gets the length of the longest one.
    unit: bool = False
    outcomes: Outcomes = TWO
    #: What a formula makes of the party's columns; None: ``columns`` are its own.
    made: FormulaColumns | None = None

    @cached_property
    def coding(self) -> Coding:
        """Return the code of its columns."""
        return Coding(self.columns, 1, self.norm)

    @property
    def size(self) -> int:
        """Return the number of weights of a linear predictor: coded columns, then the constant."""
        return len(self.coding.attribute) + self.intercept

    @property
    def numbers(self) -> int:
        """Return the number of weights of all linear predictors."""
        return self.size * self.outcomes.predictors

    @property
    def _shortens(self) -> bool:
        """Return True if rows inside the declared ranges may be longer than allowed."""
        return self.unit or self.norm is not None or self.length < math.sqrt(len(self.columns))

    def fit(self, rows: int) -> Fit:
        """Return the shape of its fit to ``rows`` rows."""
        length = float(math.hypot(*self.centre))
        if self.made is not None:
            apart = self._gone(self.made)
            return Fit(self.size, rows, self.weight, apart, length, self.outcomes.classes, self.outcomes.rest)
        marked = any(column.missing == "indicator" for column in self.columns)
        apart = 0.0  # as beside a constant, which stays, and leaves the rest of a row shorter by sqrt 2
        if not self.intercept and self._shortens and (marked or len(self.columns) > 1):
            apart = math.sqrt(2.0)
        elif not self.intercept and marked:
            apart = math.sqrt(2.0) / self.length
        return Fit(self.size, rows, self.weight, apart, length, self.outcomes.classes, self.outcomes.rest)

    def _gone(self, made: FormulaColumns) -> float:
        """Return the most that the rows with and without one declared value are apart, in lengths of a row (Theorem S.15)."""
        beside = math.sqrt(2.0) if self.intercept else 1.0  # a constant stays, and leaves the rest of a row shorter
        most = 2 / beside
        return most if self._shortens else min(most, made.gone(self.columns) / self.length / beside)

    @property
    def _constant(self) -> float:
        """Return the constant in every scaled row."""
        return self.weight * (1 - SAFETY) / math.sqrt(2.0)

    @property
    def scale(self) -> float:
        """Return the factor of every coded value, such that no row is longer than q, its constant included."""
        shrink = math.sqrt(2.0) if self.intercept else 1.0
        return self.weight * (1 - SAFETY) / shrink / (1.0 if self.norm is not None else self.length)

    @property
    def deviation(self) -> float:
        """Return the deviation that a number of its scaled rows is believed to have before data, the constant apart."""
        longest = self.length if self.norm is None else 1.0
        typical = _TUNED.deviation * math.sqrt(len(self.coding.attribute)) if self.norm is None else _TUNED.length
        return self.scale * (longest if self.unit else min(typical, longest)) / math.sqrt(len(self.coding.attribute))

    def rows(self, table: Table, chosen: NDArray[np.intp] | None = None) -> Matrix:
        """Return the scaled rows (x, 1) of a table, or some of them."""
        parts = [self.coding.real(block) for block in self._seen(table).blocks(self.coding.names)]
        coded = table.whole(np.concatenate(parts) if len(parts) > 1 else parts[0])
        coded = coded if chosen is None else coded[chosen]
        out = np.empty((coded.shape[0], self.size))
        for at in range(0, coded.shape[0], _TURNED):  # from columns to rows, within the cache
            np.multiply(coded[at : at + _TURNED], self.scale, out=out[at : at + _TURNED, : coded.shape[1]])
        out[:, coded.shape[1] :] = self._constant
        if self.unit:
            lengths = np.sqrt(np.einsum("ij,ij->i", coded, coded))
            longest = self.length if self.norm is None else 1.0
            out[:, : coded.shape[1]] *= (longest / np.maximum(lengths, _NOTHING))[:, None]
        elif self.norm is None and self._shortens:
            lengths = np.sqrt(np.einsum("ij,ij->i", coded, coded))
            out[:, : coded.shape[1]] *= (self.length / np.maximum(lengths, self.length))[:, None]
        return table.blank(out, chosen)

    def natural(self, new: Mapping[str, NDArray[Any]]) -> Matrix:
        """Return new rows in the columns of this model, in the data's own units."""
        if self.made is None:
            return self.coding.natural([new[name] for name in self.coding.names])
        table, count = two_rows(new)
        return np.concatenate([self.coding.natural(b) for b in self._seen(table).blocks(self.coding.names)])[:count]

    def scaled(self, new: Mapping[str, NDArray[Any]]) -> Matrix:
        """Return new rows as those of the fit were: clipped, and scaled to its lengths."""
        table, count = two_rows(new)
        return self.rows(table)[:count]

    def _seen(self, table: Table) -> Table:
        return table if self.made is None else self.made.seen(table)

    def predicted(self, rows: Matrix, weights: NDArray[np.float64]) -> Matrix:
        """Return probabilities of scaled rows: of the second of two classes, or of every class."""
        found = self.outcomes.of(rows, weights)
        return found if self.outcomes.several else found[:, 1]

    def in_own_units(self, weights: NDArray[np.float64]) -> tuple[Matrix, NDArray[np.float64]]:
        """Return (coefficients, intercepts), a row for every linear predictor, for the columns as they are.

        For unit rows they are of coded rows before they are scaled to one length.
        """
        width, centre = self.coding.units
        own = weights.reshape(self.outcomes.predictors, -1)
        coefficients = own[:, : width.size] * self.scale / width
        intercepts = own[:, -1] * self._constant if self.intercept else np.zeros(own.shape[0])
        if not self.unit:  # rows that are scaled one by one are scaled about the centre, so nothing of it can be taken up
            intercepts = intercepts - coefficients @ centre
        return coefficients, intercepts


def two_rows(new: Mapping[str, NDArray[Any]]) -> tuple[Table, int]:
    """Return new rows as a table, which has at least two of them, and their true number."""
    count = next(iter(new.values())).size
    return Table({name: np.resize(values, max(2, count)) for name, values in new.items()}), count


# --- Ranking ---------------------------------------------------------------------------------------------------------------
# Private importance: noisy scores of the parties' columns, of which the order alone is used; falling shares are given out by rank.
#
# What the fits cost together is fixed before data: for every order of the parties, the shares are the same (Theorem S.13).

#: The step and the release of scores; the step of ranked fits, and what their releases are called.
SCORE, RANKED = "score", "ranked block"
#: Steps of a score per unit row.
_GRID = 1 << 16


def release_of(rank: int) -> str:
    """Return the name of the release of the fit of this rank, counted from 0."""
    return f"{RANKED} {rank + 1}"


def default_ranks(parties: int) -> tuple[float, ...]:
    """Importance in proportion to K, K - 1, .., 1.

    In simulations (5 parties; one, a falling row, or all of them informative; epsilon .3 to 3) this loses least to the best of equal shares,
    1/r and 2^-r, which are better where one party is all, and lose more where none is.
    """
    return tuple(float(parties - rank) for rank in range(parties))


def ranked_shares(p: Parameters, study: Study, *, learns: bool) -> tuple[float, ...]:
    """Return the shares by rank, which sum to 1; none where importance is declared."""
    if not p.ranks:
        return ()
    falling = all(0 < later <= earlier < math.inf for earlier, later in zip(p.ranks, p.ranks[1:], strict=False))
    if len(p.ranks) != len(study.parties) or not falling or not 0 < p.ranks[-1] <= p.ranks[0] < math.inf:
        raise UsageError(
            "ranks gives every rank, from the first to the last, a positive number that is no larger than the one before"
        )
    if p.importance or p.split == "samples" or learns:
        raise UsageError("ranks is for split columns with public weights, in place of importance")
    if not 0 < p.ranking_share < 1:
        raise UsageError("ranking_share must lie between 0 and 1")
    if study.epsilon < math.inf and not study.delta:
        raise UsageError("a private ranking needs a delta: pass delta=1e-5, or a smaller one, or declare the importance")
    total = math.fsum(p.ranks)
    return tuple(rank / total for rank in p.ranks)


def longest(rates: Sequence[float]) -> float:
    """Return the longest e_y - r: how long a row of length 1 can be in a score."""
    return max(float(np.linalg.norm(np.eye(len(rates))[c] - np.asarray(rates))) for c in range(len(rates)))


def score_of(rows: Matrix, places: NDArray[np.intp], rates: Sequence[float]) -> NDArray[np.int64]:
    """Return the length of sum (e_y - r) x' over rows of length at most 1, r the public rates: in steps, toward zero."""
    away = np.eye(len(rates))[places] - np.asarray(rates)
    return np.array([math.trunc(float(np.linalg.norm(away.T @ rows)) * _GRID)], dtype=np.int64)


def ranked_releases(
    study: Study,
    p: Parameters,
    blocks: Sequence[LowLevel],
    shares: Sequence[float],
    penalties: Penalties,
    *,
    beside: Sequence[Event],
) -> list[Release]:
    """Return a score of every party; and a fit of every party for every rank, of which all parties together make one each.

    ``beside``: what one unit pays for other releases.
    """
    unit, rows, outcomes = Unit(study.unit), study.parties[0].rows, blocks[0].outcomes
    row = longest(p.base_rates) * _GRID
    # A length moves by no more than the sum does; one step more where two truncated ones are apart.
    away = Reach(2 * row + 1, 1)
    reach = {Unit.RECORD: Reach(row + 1, 1) if study.adjacency == Adjacency.ZERO_OUT else away, Unit.ATTRIBUTE: away}
    mu = (
        budget_mu(study.epsilon * p.ranking_share, study.delta) / math.sqrt(len(study.parties))
        if study.epsilon < math.inf
        else math.inf
    )
    score = GaussianRelease.calibrated((Block(1, 1.0),), reach, unit, mu)
    label = Exposure(label=score.event(Unit.ATTRIBUTE))
    releases = [Release(SCORE, card.name, SCORE, score, exposure=label) for card in study.parties]
    # Whoever has a rank, it costs the same: the widest party stands for all of them.
    widest = max(blocks, key=lambda block: block.size)
    shapes = [
        Fit(widest.size, rows, share, widest.fit(rows).apart, 0.0, outcomes.classes, outcomes.rest) for share in shares
    ]
    fits = by_law(
        study,
        shapes,
        penalties,
        Noise(p.noise),
        beside=[*[score.event(unit)] * len(study.parties), *beside],
    )
    for block in blocks:
        for rank, fit in enumerate(fits):
            own = replace(fit, size=block.numbers, centre=float(math.hypot(*block.centre)))
            releases.append(
                Release(
                    release_of(rank),
                    block.card.name,
                    RANKED,
                    own,
                    exposure=Exposure(together=1, alternative=True, label=own.label),
                )
            )
    return releases


# --- Probabilities ---------------------------------------------------------------------------------------------------------
# Probabilities of a stack: the base rate, a histogram of classes along the released score of every party, and the lines that follow.
#
# A party counts its rows by (cell of its own released score) x class (Theorem S.16). A posterior of each score's line tells what that party's model
# adds to the base rate, and these parts are added up, less what they are believed to have in common (Theorem S.17).

#: The releases, which are called like their steps: rows of the second class, and counts of (class, cell of the score).
RATE, PROBABILITIES = "base rate", "probabilities"
#: What is believed of every slope before data: the mass at 0, and a typical slope of a score of deviation 1.
BELIEVED = Slopes(_TUNED.no_slope, _TUNED.slope)
#: The correlation, within a class, that the scores of different parties are believed to have.
COMMON = _TUNED.common
_TINY = 1e-12


class ScoreLine(msgspec.Struct, frozen=True):
    """One party's score: lines (constant, factor) of its log odds over which probabilities are averaged, and the log odds of their mean."""

    lines: tuple[tuple[float, float], ...]
    base: float

    def evidence(self, log_odds: Vector) -> Vector:
        """Return the log odds that the model adds to the base rate's."""
        return mean_log_odds(log_odds, self.lines) - self.base


class Calibrated(msgspec.Struct, frozen=True):
    """The rule that makes one probability of all scores: the base rate's log odds, a line for each model, and the factor of their summed evidence."""

    base: float
    factor: float
    scores: tuple[ScoreLine, ...]

    def log_odds(self, each: Matrix) -> Vector:
        """Return the log odds of the second class from those of all models (rows x models)."""
        evidence = np.array([score.evidence(each[:, k]) for k, score in enumerate(self.scores)])
        return np.asarray(self.base + self.factor * evidence.sum(axis=0))


@dataclass(frozen=True)
class Probabilities:
    """The releases that make probabilities of scores, with their part of the budget; ``share`` 0: there are none."""

    share: float
    rate: GaussianRelease
    counts: GaussianRelease

    def releases(self, parties: Sequence[str]) -> list[Release]:
        """Return the base rate of the first party, and the histogram of every one."""

        def made(name: str, party: str, mechanism: GaussianRelease) -> Release:
            return Release(name, party, name, mechanism, exposure=Exposure(label=mechanism.event(Unit.ATTRIBUTE)))

        return [made(RATE, parties[0], self.rate), *(made(PROBABILITIES, party, self.counts) for party in parties)]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the words of a plan for them."""
        words = (
            "how many rows of each class have a score, by the party's own released model, in each of"
            f" {CELLS} cells, from which the probabilities of the classes follow"
        )
        together = f"{self.share:.0%} of epsilon together"
        return (f"{RATE}: how many rows are of the second class; {PROBABILITIES}: {words} ({together})",)

    def events(self, parties: int, unit: Unit) -> list[Event]:
        """Return what one unit pays for all of them."""
        return [self.rate.event(unit), *[self.counts.event(unit)] * parties]


def share_of(p: Parameters, study: Study, parties: int, *, learns: bool) -> float:
    """Return the part of the budget that probabilities get: none where nothing is put together by log odds, or no delta pays for normal noise."""
    if not 0 <= p.probabilities_share < 1 or p.probabilities_share + (p.ranking_share if p.ranks else 0.0) >= 1:
        raise UsageError("probabilities_share lies between 0 and 1, and leaves something for the fits beside ranking_share")
    together = p.split == "features" and not learns and parties > 1 and len(p.classes) == 2  # noqa: PLR2004 - one score of a row
    sound = study.calibration == Calibration.SOUND and study.delta > 0
    return p.probabilities_share if together and sound and combiner_of(p.combiner, p.split) == LOG_ODDS else 0.0


def probabilities(study: Study, share: float, parties: int) -> Probabilities:
    """Return the releases: a person is counted once in the base rate and once in the histogram of every party (Theorem S.16)."""
    unit, rows = Unit(study.unit), study.parties[0].rows
    mu = budget_mu(study.epsilon * share, study.delta) if study.epsilon < math.inf else math.inf
    part = min(_TUNED.rate_most, max(_TUNED.rate_least, (_TUNED.rate_precision / (rows * mu)) ** 2))
    moved = category_counts(Adjacency(study.adjacency))
    # A value that changes, or a label, makes another row: it may be in another cell.
    cells = {Unit.RECORD: Reach(moved, 2 * CELLS), Unit.ATTRIBUTE: Reach(category_counts(Adjacency.REPLACE), 2 * CELLS)}
    rate = GaussianRelease.calibrated(
        (Block(1, 1.0),), dict.fromkeys((Unit.RECORD, Unit.ATTRIBUTE), Reach(1.0, 1)), unit, mu * math.sqrt(part)
    )
    counts = GaussianRelease.calibrated((Block(2 * CELLS, 1.0),), cells, unit, mu * math.sqrt((1 - part) / parties))
    return Probabilities(share, rate, counts)


def place_and_width(block: LowLevel, weights: Vector, rate: float) -> tuple[float, float]:
    """Return the log odds that stand in the middle of the cells, and the width of a cell's unit: functions of what was released."""
    middle = float(logit(rate)) if block.intercept else 0.0
    slopes = weights[: block.size - block.intercept]
    return middle, max(block.deviation * float(np.linalg.norm(slopes)), _TINY)


def counted(block: LowLevel, rows: Matrix, second: NDArray[np.bool_], weights: Vector, rate: float) -> NDArray[np.int64]:
    """Return the exact counts of scaled rows by (class, cell of their score)."""
    middle, width = place_and_width(block, weights, rate)
    return score_counts((rows @ weights - middle) / width, second)


@dataclass(frozen=True)
class ReleasedRate:
    """The base rate as it was released, the deviation of its noise, and the number of rows."""

    released: float
    deviation: float
    rows: int

    @property
    def sent(self) -> float:
        """Return the rate that parties are sent: it lies between 0 and 1."""
        return min(max(self.released, 1 / (self.rows + 2)), 1 - 1 / (self.rows + 2))


def calibrated(
    blocks: Sequence[LowLevel], weights: Sequence[Vector], counts: Sequence[Vector], deviation: float, base: ReleasedRate
) -> Calibrated:
    """Return how scores become probabilities, from the released counts of every party and the released base rate."""
    scores, lengths, rates = [], [], []
    for block, own, noisy in zip(blocks, weights, counts, strict=True):
        released = ScoreCounts(noisy.reshape(2, CELLS), deviation, base.released, base.deviation, base.rows)
        found = score_posterior(released, believed=BELIEVED)
        middle, width = place_and_width(block, own, base.sent)
        lines = tuple((a - s * middle / width, s / width) for a, s in found.draws.tolist())
        scores.append(ScoreLine(lines, float(logit(found.rate))))
        lengths.append(found.slope * found.scores[1] + _TINY)
        rates.append(found.rate)
    return Calibrated(float(logit(np.mean(rates))), factor_of(np.array(lengths)), tuple(scores))


def factor_of(lengths: Vector) -> float:
    """Return the factor of a sum of evidence whose parts have these deviations and are correlated within a class (Theorem S.17)."""
    squares = float((lengths**2).sum())
    return squares / (squares + COMMON * (float(lengths.sum()) ** 2 - squares))
