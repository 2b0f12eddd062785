"""Private importance: noisy scores of the parties' columns, of which the order alone is used; falling shares are given out by rank.

What the fits cost together is fixed before data: for every order of the parties, the shares are the same (Theorem S.13).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.models.stacking.fits import Fit, Noise, by_law
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Release
from unpooled.privacy.unit import Adjacency, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.stacking.fits import Penalties
    from unpooled.models.stacking.low_level import LowLevel
    from unpooled.models.stacking.parameters import Parameters
    from unpooled.privacy.events import Event
    from unpooled.privacy.study import Study

    Matrix = NDArray[np.float64]

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
