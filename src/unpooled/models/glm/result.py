"""What a study of a generalised linear model comes to: coefficients, and the Newton step behind their standard errors."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from unpooled.aggregation.inference import CONSTANT_TERM
from unpooled.aggregation.newton_step import NewtonStep
from unpooled.models.glm.life_table import LifeTable
from unpooled.protocol.step import Panel
from unpooled.protocol.terms import ResultTerm, known

if TYPE_CHECKING:
    from unpooled.aggregation.summary import SummaryTerm
    from unpooled.privacy.plan import Plan


class GlmCoefficient(msgspec.Struct, frozen=True):
    """A coefficient in the data's own units with its confidence interval; endless where nothing is known of its error."""

    name: str
    value: float
    low: float
    high: float
    #: Whether the release tells of it more than its own noise does.
    identified: bool


class GlmResult(msgspec.Struct, frozen=True):
    """Coefficients for predictions, shrunk by what is known of their noise, and unshrunk estimates where the method has standard errors."""

    family: str
    coefficients: tuple[GlmCoefficient, ...]
    intercept: float
    level: float
    #: Parties whose rows are in it, and how many rows they have.
    participants: tuple[str, ...]
    rows: int
    method: str
    #: The factor of the variance: 1 where the family has none.
    dispersion: float
    newton: NewtonStep | None = None
    #: Of several classes: their labels and constants; the coefficients stand class after class.
    classes: tuple[str, ...] = ()
    intercepts: tuple[float, ...] = ()
    #: Of times to an event: the intervals' log hazards at a row of zeros, and the life table.
    log_hazards: tuple[float, ...] = ()
    life_table: LifeTable | None = None


def terms(plan: Plan, result: GlmResult) -> tuple[ResultTerm, ...]:
    """Estimates with standard errors and tests where there are any, else the values alone; of times to an event also the curve."""
    return (*_estimates(plan, result), *_survived(result))


def _survived(result: GlmResult) -> tuple[ResultTerm, ...]:
    if result.life_table is None:
        return ()
    curve = result.life_table.kaplan_meier(result.level)
    points = zip(curve.times[1:], curve.survival[1:], curve.low[1:], curve.high[1:], strict=True)
    return tuple(
        ResultTerm(f"survival to {time:g}", value, conf_low=low, conf_high=high, group="Kaplan-Meier")
        for time, value, low, high in points
    )


def _estimates(plan: Plan, result: GlmResult) -> tuple[ResultTerm, ...]:
    if result.newton is None:
        found = tuple(ResultTerm(c.name, c.value) for c in result.coefficients)
        if not plan.design.layout.intercept:
            return found
        constants = [ResultTerm(name, value) for name, value in _constants(result)]
        if not result.classes:
            return (*found, *constants)
        p = len(found) // len(result.classes)
        return tuple(term for a, constant in enumerate(constants) for term in (*found[a * p : (a + 1) * p], constant))
    return tuple(_term(t) for t in result.newton.terms(result.level))


def _term(t: SummaryTerm) -> ResultTerm:
    errors = (known(v) for v in (t.std_error, t.statistic, t.p_value, t.conf_low, t.conf_high, t.privacy))
    names = ("std_error", "statistic", "p_value", "conf_low", "conf_high", "privacy")
    return msgspec.structs.replace(ResultTerm(t.term, t.estimate), **dict(zip(names, errors, strict=True)))


def _constants(result: GlmResult) -> tuple[tuple[str, float], ...]:
    """The constants by name: one, one per class, or the intervals' log hazards."""
    if result.life_table is not None:
        edges = (0.0, *result.life_table.edges)
        names = (f"log hazard ({start:g}, {end:g}]" for start, end in itertools.pairwise(edges))
        return tuple(zip(names, result.log_hazards, strict=True))
    if result.classes:
        return tuple(zip((f"{label}: {CONSTANT_TERM}" for label in result.classes), result.intercepts, strict=True))
    return ((CONSTANT_TERM, result.intercept),)


def render(result: GlmResult) -> str:
    """The coefficients as a table."""
    told = result.newton is not None
    head = f"{'coefficient':<24}{'value':>14}" + (f"   {result.level:.0%} confidence interval" if told else "")
    lines = [head]
    for c in result.coefficients:
        interval = f"   [{c.low:.6g}, {c.high:.6g}]" if told and c.identified else "   not identified" if told else ""
        lines.append(f"{c.name:<24}{c.value:>14.6g}{interval}")
    lines += [f"{name:<24}{value:>14.6g}" for name, value in _constants(result)]
    if not told:
        lines.append(f"method {result.method!r} gives predictions without standard errors; 'newton' gives them")
    elif not all(c.identified for c in result.coefficients):
        lines.append("not identified: the release tells less of it than its own noise")
    if result.life_table is not None:
        lines.append(str(result.life_table.kaplan_meier(result.level)))
    lines.append(f"family {result.family}, rows of {', '.join(result.participants)}")
    return "\n".join(lines)


def panels(result: GlmResult) -> tuple[Panel, ...]:
    """The coefficients, with their intervals where there are any; of times to an event the curve before them."""
    return (*_curve(result), *_bars(result))


def _curve(result: GlmResult) -> tuple[Panel, ...]:
    if result.life_table is None:
        return ()
    curve = result.life_table.kaplan_meier(result.level)
    names = tuple(f"{time:g}" for time in curve.times)
    title = f"survival (Kaplan-Meier), {result.level:.0%} pointwise band"
    return (Panel(title, names, curve.survival, curve.low, curve.high, ordered=True, steps=True),)


def _bars(result: GlmResult) -> tuple[Panel, ...]:
    names, values = tuple(c.name for c in result.coefficients), tuple(c.value for c in result.coefficients)
    if result.newton is None or not all(c.identified for c in result.coefficients):
        return (Panel("coefficients", names, values),)
    low, high = tuple(c.low for c in result.coefficients), tuple(c.high for c in result.coefficients)
    return (Panel(f"coefficients, {result.level:.0%} confidence intervals", names, values, low, high),)
