"""Curves, restricted means and tests from noisy exits. All of it is post-processing (THEORY.md, section 3)."""

from __future__ import annotations

import math
from hashlib import sha256
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from unpooled.inference.life_table import LifeTable
from unpooled.kernels import survival as survival_tests
from unpooled.models.survival.result import ArmMean, ArmsTest, CurveDifference, SurvivalResult
from unpooled.protocol.messages import Array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.inference.life_table import KaplanMeier
    from unpooled.kernels.survival import Compared
    from unpooled.models.survival.plan import SurvivalDesign

    Floats = NDArray[np.float64]

#: Draws from the null law of a test.
DRAWS = 499
#: An arm, or events, of fewer than this number of deviations of their noise are hidden by it.
_SURELY = 3.0
_HIDDEN = "not identified: the noise hides whether there are people in every arm, or events"
_NOISY = "not identified: the noise adds more to it than the draw of persons"


def compare(
    design: SurvivalDesign, cells: Floats, deviation: float, participants: tuple[str, ...], key: bytes
) -> SurvivalResult:
    """Return everything that follows from the table of exits; ``key`` seeds the draws from null laws, the same for the same release."""
    layout, p = design.layout, design.parameters
    edges = np.array(layout.edges)
    strata, arms, exits = layout.shape
    people = cells.sum(axis=(0, 2))
    events = cells[..., 1:-1:2].sum(axis=(0, 2))
    hidden = tuple(
        arm
        for arm, n in zip(layout.arms, people, strict=True)
        if n < max(2.0, _SURELY * deviation * math.sqrt(strata * exits))
    )
    silent = events.sum() < max(1.0, _SURELY * deviation * math.sqrt(strata * arms * (exits // 2)))
    z = NormalDist().inv_cdf(0.5 + p.confidence / 2)
    constant, weights = survival_tests.areas(edges, design.horizon)
    seen = [k for k, arm in enumerate(layout.arms) if arm not in hidden]
    values, sampling, noise = survival_tests.of_curves(cells, deviation, weights)
    apart = survival_tests.differences(cells, deviation, weights)
    compared = [k for k in seen if k and 0 in seen]
    return SurvivalResult(
        layout.arms,
        () if layout.strata is None else layout.strata.categories or (),
        layout.edges,
        Array.of(cells),
        deviation,
        p.confidence,
        layout.edges[design.horizon],
        participants,
        tuple((arm, float(n), float(d)) for arm, n, d in zip(layout.arms, people, events, strict=True)),
        tuple(_tests(cells, deviation, weights, key, identified=not (hidden or silent))),
        tuple(_mean(layout.arms[k], constant + values[k], sampling[k], noise[k], z) for k in seen),
        tuple(
            _mean(layout.arms[k], apart.apart[k - 1], apart.sampling[k - 1, k - 1], apart.noise[k - 1, k - 1], z)
            for k in compared
        ),
        tuple(_curves(layout.arms, compared, cells, deviation, z)),
        hidden,
    )


def _mean(arm: str, value: float, sampling: float, noise: float, z: float) -> ArmMean:
    error = math.sqrt(sampling + noise)
    return ArmMean(arm, float(value), error, math.sqrt(noise), float(value - z * error), float(value + z * error))


def _curves(
    arms: tuple[str, ...], compared: list[int], cells: Floats, deviation: float, z: float
) -> Iterator[CurveDifference]:
    """Yield the difference of every arm's curve from the first one's, at the end of every interval."""
    intervals = (cells.shape[-1] - 1) // 2
    found = [survival_tests.differences(cells, deviation, np.eye(intervals)[j]) for j in range(intervals)]
    for k in compared:
        values = np.array([one.apart[k - 1] for one in found])
        errors = np.sqrt([one.sampling[k - 1, k - 1] + one.noise[k - 1, k - 1] for one in found])
        low, high = np.clip(values - z * errors, -1, 1), np.clip(values + z * errors, -1, 1)
        yield CurveDifference(arms[k], tuple(values.tolist()), tuple(low.tolist()), tuple(high.tolist()))


def _tests(cells: Floats, deviation: float, weights: Floats, key: bytes, *, identified: bool) -> Iterator[ArmsTest]:
    """Yield the tests, each with its p-value from tables drawn under one hazard for all arms, with fresh noise and tested alike."""

    def tested(table: Floats) -> dict[str, Compared]:
        return {
            "log-rank": survival_tests.log_rank(table, deviation),
            "log-rank, early events weighted": survival_tests.log_rank(table, deviation, early=True),
            "restricted mean survival": survival_tests.differences(table, deviation, weights),
        }

    degrees, observed = cells.shape[1] - 1, tested(cells)
    seed = int.from_bytes(sha256(key + np.ascontiguousarray(cells).tobytes()).digest()[:16], "big")
    drawn = tested(survival_tests.null_tables(cells, deviation, DRAWS, np.random.default_rng(seed))) if identified else {}
    for name, found in observed.items():
        statistic = float(found.statistic)
        if not identified or bool(found.is_noise):
            yield ArmsTest(name, statistic, degrees, None, _NOISY if identified else _HIDDEN)
            continue
        above = int((drawn[name].statistic >= statistic).sum())
        yield ArmsTest(name, statistic, degrees, (1 + above) / (1 + DRAWS))


def curve(result: SurvivalResult, arm: str) -> KaplanMeier:
    """Return the curve of Kaplan and Meier of one arm, strata together, with its band."""
    cells = result.cells.numpy()
    own = cells[:, result.arms.index(arm)].sum(axis=0)
    strata = cells.shape[0]
    table = LifeTable.of_cells(
        np.array(result.edges), own, result.deviation * math.sqrt(strata), round(max(float(own.sum()), 0.0))
    )
    return table.kaplan_meier(result.level)
