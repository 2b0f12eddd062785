"""From noisy exits to curves, restricted means and tests, line by line and as figures. All of it is post-processing (THEORY.md, section 3)."""

from __future__ import annotations

import math
from hashlib import sha256
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.inference.life_table import LifeTable
from unpooled.kernels import survival as survival_tests
from unpooled.models.survival.declared import EXITS
from unpooled.protocol.messages import Array
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm, known
from unpooled.schedules import table
from unpooled.totals.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.inference.life_table import KaplanMeier
    from unpooled.kernels.survival import Compared
    from unpooled.models.survival.declared import SurvivalDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation

    Floats = NDArray[np.float64]


# --- Result ----------------------------------------------------------------------------------------------------------------
# Results of a comparison of survival: a curve for every arm, restricted means, and tests of arms against each other.


class ArmMean(msgspec.Struct, frozen=True):
    """Restricted mean survival time of one arm, or its difference from the first arm's; None where noise hides it."""

    arm: str
    value: float
    std_error: float
    #: The part of the standard error that privacy adds.
    noise: float
    low: float
    high: float


class CurveDifference(msgspec.Struct, frozen=True):
    """Survival of an arm less that of the first one, at the end of every interval, with pointwise intervals."""

    arm: str
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class ArmsTest(msgspec.Struct, frozen=True):
    """A test that all arms survive alike. Without a p-value where the noise adds more to its statistic than the draw of persons."""

    name: str
    statistic: float
    degrees: int
    p_value: float | None = None
    #: Why there is none, in words.
    why: str = ""


class SurvivalResult(msgspec.Struct, frozen=True):
    """The released table of exits, and everything that follows from it."""

    arms: tuple[str, ...]
    strata: tuple[str, ...]
    edges: tuple[float, ...]
    #: Noisy numbers of persons: (stratum, arm, exit).
    cells: Array
    #: The deviation of a cell's noise.
    deviation: float
    confidence: float
    horizon: float
    participants: tuple[str, ...]
    #: Persons of every arm, and events, as far as noise lets them be known: (arm, persons, events).
    counts: tuple[tuple[str, float, float], ...]
    tests: tuple[ArmsTest, ...]
    means: tuple[ArmMean, ...]
    mean_differences: tuple[ArmMean, ...]
    curve_differences: tuple[CurveDifference, ...]
    #: Arms that noise hides, of whom nothing else is said.
    hidden: tuple[str, ...] = ()


# --- Comparison ------------------------------------------------------------------------------------------------------------
# Curves, restricted means and tests from noisy exits. All of it is post-processing (THEORY.md, section 3).

_TUNED = table("survival")
DRAWS = _TUNED.whole("draws")
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
        if n < max(2.0, _TUNED.surely * deviation * math.sqrt(strata * exits))
    )
    silent = events.sum() < max(1.0, _TUNED.surely * deviation * math.sqrt(strata * arms * (exits // 2)))
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
    return table.kaplan_meier(result.confidence)


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: add up everybody's exits, and compare arms by them.


def coordinate(plan: Plan[SurvivalDesign]) -> Conversation:
    """Exchange keys, and ask for the one total."""
    rounds = Rounds(plan)
    yield from rounds.begin()
    total = yield from rounds.total(EXITS)
    cells = total.values.reshape(plan.design.layout.shape)
    return compare(plan.design, cells, float(total.deviations.max()), total.participants, plan.hash.encode())


# --- Lines -----------------------------------------------------------------------------------------------------------------
# A comparison of survival, line by line, as a table and as figures.


def terms(plan: Plan, result: SurvivalResult) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Return persons and events of every arm, restricted means and their differences, and the tests."""
    first = result.arms[0]
    lines = [
        ResultTerm(what, number, group=arm)
        for arm, people, events in result.counts
        if arm not in result.hidden
        for what, number in (("persons", people), ("events", events))
    ]
    lines += [_line("restricted mean survival", one) for one in result.means]
    lines += [_line(f"restricted mean survival, difference from {first}", one) for one in result.mean_differences]
    lines += [
        ResultTerm(f"{test.name} test, {test.degrees} df", test.statistic, p_value=test.p_value)
        for test in result.tests
        if test.p_value is not None
    ]
    return tuple(lines)


def _line(name: str, one: ArmMean) -> ResultTerm:
    return ResultTerm(
        name,
        one.value,
        std_error=known(one.std_error),
        conf_low=known(one.low),
        conf_high=known(one.high),
        privacy=known(one.noise),
        group=one.arm,
    )


def foot(plan: Plan, result: SurvivalResult) -> tuple[str, ...]:  # noqa: ARG001 - as every model's
    """Return what the table does not say by itself."""
    inside = f", compared inside {len(result.strata)} strata" if result.strata else ""
    said = [
        f"{len(result.edges)} intervals up to {result.edges[-1]:g}; restricted means up to {result.horizon:g}, of curves that are straight inside an interval{inside}",
        f"numbers of persons have noise of standard deviation {result.deviation:.3g} in each of {result.cells.numpy().size} cells",
    ]
    if any(test.p_value is not None for test in result.tests):
        said.append(f"p-values are by {DRAWS} tables drawn as if all arms had one hazard, with the same noise")
    said += [f"{test.name} test: {test.why}" for test in result.tests if test.why]
    said += [f"{arm}: not identified, for the noise hides whether anybody is in this arm" for arm in result.hidden]
    return (*said, f"rows of {', '.join(result.participants)}")


def panels(plan: Plan, result: SurvivalResult) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model's
    """Return the curve of every arm, and the differences of curves from the first one."""
    found, names = [], ("0", *(f"{edge:g}" for edge in result.edges))
    for arm in result.arms:
        if arm in result.hidden:
            continue
        own = curve(result, arm)
        found.append(
            Panel(
                f"survival, {arm}",
                names,
                own.survival,
                own.low,
                own.high,
                ordered=True,
                steps=True,
                places=own.times,
                axes=("time", "survival"),
            )
        )
    found += [
        Panel(
            f"difference of survival, {one.arm} - {result.arms[0]}",
            names[1:],
            one.values,
            one.low,
            one.high,
            ordered=True,
            places=result.edges,
            axes=("time", "difference"),
        )
        for one in result.curve_differences
    ]
    return tuple(found)
