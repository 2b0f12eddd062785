"""Outlook of the rounds of a study of this shape, before any data are touched.

The algorithm is simulated in the space of its scores. Columns are taken as independent, with variance ``VARIANCE`` on their coded
scale if nothing else is said; ``relevant`` of them carry the signal, with coefficients from 1/2 to 1 of the largest that fill the ball, and half of the
response's variance is theirs. Then a score is the gradient plus noises whose deviations the plan knows: of the sample, of the released columns, and
of the pick. Nothing of the size of the data is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.l1_ball import nearest
from unpooled.models.lasso.declared import Coupling
from unpooled.models.lasso.plan import RESPONSE_WEIGHT, design_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.lasso.plan import LassoDesign
    from unpooled.privacy.plan import Study

    Vector = NDArray[np.float64]
    Index = NDArray[np.intp]

#: Settings that are tried: T, the part of the refit, and those of columns, picks and scores.
ROUNDS, REFITS, SHARES = (5, 10, 20, 40), (0.15, 0.25, 0.4), ((0.6, 0.2, 0.2), (0.4, 0.3, 0.3), (0.25, 0.5, 0.25))
#: Of a coded column: that of a normal one clipped at two deviations is 0.2, of a uniform one 0.33.
VARIANCE = 0.2
#: Columns without signal are simulated one by one up to here; beyond, each stands for several with the same score.
_SIMULATED = 500


@dataclass(frozen=True)
class ScoreOutlook:
    """The averages that the simulated study came to."""

    #: Relative excess risk (f(x) - f*) / (f(0) - f*).
    excess: float
    #: The part of the relevant columns that was released.
    found: float
    #: C in the last round.
    clip: float


def outlook(
    study: Study, *, relevant: int = 6, variance: float = VARIANCE, repetitions: int = 30, seed: int = 0
) -> ScoreOutlook:
    """Simulate this study."""
    if relevant < 1 or not 0 < variance <= 1:
        raise UsageError("relevant is at least 1, and the variance of columns coded to [-1, 1] between 0 and 1")
    rng, design = np.random.default_rng(seed), design_of(study)
    runs = [_Run(design, study, relevant, variance, rng) for _ in range(repetitions)]
    means = np.mean([run.play(study) for run in runs], axis=0)
    return ScoreOutlook(*(float(value) for value in means))


def recommend(
    study: Study, *, relevant: int = 6, variance: float = VARIANCE, repetitions: int = 40
) -> tuple[dict[str, object], ScoreOutlook]:
    """Return the settings of this study's rounds and budget whose simulation came out best, and what it came to."""
    found = []
    for rounds, refit, shares in product(ROUNDS, REFITS, SHARES):
        settings: dict[str, object] = {"rounds": rounds, "refit": refit, "shares": shares}
        design = msgspec.structs.replace(study, parameters={**study.parameters, **settings, "shares": list(shares)})
        found.append((outlook(design, relevant=relevant, variance=variance, repetitions=repetitions), settings))
    best, settings = min(found, key=lambda pair: pair[0].excess)
    return settings, best


class _Run:
    """One simulated data set."""

    def __init__(self, design: LassoDesign, study: Study, relevant: int, variance: float, rng: np.random.Generator) -> None:
        width, radius = sum(design.widths.values()), design.eta
        relevant = min(relevant, width)
        size = min(width, _SIMULATED + relevant)
        self._variance = variance
        self._asked, self._rng, self._rows, self._radius = design, rng, study.parties[0].rows, design.radius(study)
        self._truth = np.zeros(size)
        self._truth[:relevant] = np.linspace(1.0, 0.5, relevant)
        self._truth *= radius / self._truth.sum()
        # The largest of c equal scores with Gumbel noise is one of them plus log c.
        self._crowd = np.zeros(size)
        if size > relevant:
            self._crowd[relevant:] = math.log((width - relevant) / (size - relevant))
        owner = rng.permutation(np.arange(size) % len(design.widths))
        self._owned = [own for k in range(len(design.widths)) if (own := np.flatnonzero(owner == k)).size]
        # The residual varies as much as the signal.
        spread = math.sqrt(2 * self._variance * float(self._truth @ self._truth))
        self._sample = spread * self._blur()
        #: Of every released column, what its noise does to the scores.
        self._released: dict[int, Vector] = {}

    def _blur(self) -> Vector:
        """Return the product of every column with n independent standard normal numbers, over n."""
        return self._rng.normal(size=self._truth.size) * math.sqrt(self._variance / self._rows)

    def play(self, study: Study) -> tuple[float, float, float]:
        """Excess risk, part of the relevant columns released, and the last C."""
        design, x, end = self._asked, np.zeros(self._truth.size), 0.0
        for t in range(design.parameters.rounds):
            scores, reach, end = self._scores(x)
            gamma = design.step(study, t)
            x *= 1 - gamma
            for column, sign in self._steps(scores, reach):
                x[column] += gamma * self._radius * sign
                if column not in self._released:
                    self._released[column] = design.column_scale * self._blur()
        if design.refits:
            x = self._refitted()
        relevant = np.flatnonzero(self._truth)
        found = np.isin(relevant, list(self._released)).mean()
        excess = np.square(x - self._truth).sum() / np.square(self._truth).sum()
        return float(excess), float(found), end

    def _scores(self, x: Vector) -> tuple[Vector, float, float]:
        """Descents of all columns, how far one unit moves them, and C."""
        p, noise = self._asked.parameters, self._asked.column_scale * float(np.linalg.norm(x))
        eta = self._asked.eta
        end = p.clip or max(eta, min(2 * noise, self._asked.ceiling))
        slope = math.erf(end / (noise * math.sqrt(2))) if noise else 1.0  # what clipping leaves of a small change
        blur = sum((x[j] * own for j, own in self._released.items()), np.zeros(x.size))
        reach = 2 * (min(end, 4 * noise + eta) + p.response_bound) / self._rows
        return self._variance * (self._truth - slope * x) + self._sample - slope * blur, reach, end

    def _steps(self, scores: Vector, reach: float) -> list[tuple[int, float]]:
        """Return the signed columns that are stepped to: every party's noisy pick, or the best of them."""
        design, rng = self._asked, self._rng
        scale = 2 * reach / design.choice_epsilon
        picks = []
        for own in self._owned:
            signed = np.concatenate([scores[own], -scores[own]])
            best = int(np.argmax(signed + scale * (np.tile(self._crowd[own], 2) + rng.gumbel(size=signed.size))))
            value = signed[best] + design.score_multiplier * reach * rng.normal()
            picks.append((value, int(own[best % own.size]), 1.0 if best < own.size else -1.0))
        moving = [max(picks)] if design.coupling is Coupling.BALL else picks
        return [(column, sign) for _, column, sign in moving]

    def _refitted(self) -> Vector:
        """Return the coefficients from noisy products with the response: independent columns need no others."""
        p, chosen = self._asked.parameters, list(self._released)
        noise = 2 * self._asked.refit_multiplier * p.response_bound / (RESPONSE_WEIGHT * self._rows)
        correlations = (
            self._variance * self._truth[chosen] + self._sample[chosen] + noise * self._rng.normal(size=len(chosen))
        )
        threshold = noise * math.sqrt(2 * math.log(len(chosen)))
        fitted = np.sign(correlations) * np.maximum(np.abs(correlations) - threshold, 0) / self._variance
        x = np.zeros(self._truth.size)
        x[chosen] = fitted
        balls = [np.arange(x.size)] if self._asked.coupling is Coupling.BALL else self._owned
        for own in balls:
            x[own] = nearest(x[own], self._radius)
        return x
