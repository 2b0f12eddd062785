"""A comparison of survival, line by line, as a table and as figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.survival.comparing import DRAWS, curve
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm, known

if TYPE_CHECKING:
    from unpooled.models.survival.result import ArmMean, SurvivalResult
    from unpooled.privacy.plan import Plan


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
