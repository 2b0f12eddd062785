"""Probabilities of a stack: the base rate, a histogram of classes along the released score of every party, and the lines that follow.

A party counts its rows by (cell of its own released score) x class (Theorem S.16). A posterior of each score's line tells what that party's model
adds to the base rate, and these parts are added up, less what they are believed to have in common (Theorem S.17).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from scipy.special import logit

from unpooled.errors import UsageError
from unpooled.kernels.score_posterior import CELLS, ScoreCounts, Slopes, mean_log_odds, score_counts, score_posterior
from unpooled.models.stacking.parameters import LOG_ODDS, Parameters, combiner_of
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Release
from unpooled.privacy.sensitivity import category_counts
from unpooled.privacy.unit import Adjacency, Calibration, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.stacking.low_level import LowLevel
    from unpooled.privacy.events import Event
    from unpooled.privacy.study import Study

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: The releases, which are called like their steps: rows of the second class, and counts of (class, cell of the score).
RATE, PROBABILITIES = "base rate", "probabilities"
#: The square of the base rate's part of this budget is that of a rate with this inverse deviation, between two ends.
_PRECISION, _LEAST, _MOST = 64.0, 0.04, 0.5
#: What is believed of every slope before data: the mass at 0, and a typical slope of a score of deviation 1.
BELIEVED = Slopes(0.7, 0.3)
#: The correlation, within a class, that the scores of different parties are believed to have.
COMMON = 0.4
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
    part = min(_MOST, max(_LEAST, (_PRECISION / (rows * mu)) ** 2))
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
