"""Result of a study of a generalised linear model: coefficients, and the Newton step behind their standard errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.inference import profiles
from unpooled.inference.coordinates import Clipping
from unpooled.inference.estimates import CONSTANT_TERM, Estimates, wald_lines
from unpooled.inference.life_table import LifeTable
from unpooled.inference.printed_terms import class_terms
from unpooled.inference.priors import DrawnTo, words
from unpooled.inference.summary import CREDIBLE, is_credible, notes, untold
from unpooled.inference.tables import Tables
from unpooled.linear.residuals import ASSUMED
from unpooled.models.glm.families import POISSON
from unpooled.products.hidden import in_common
from unpooled.protocol.registry import Panel, of_terms
from unpooled.protocol.terms import ResultTerm, finite
from unpooled.schedules import table
from unpooled.totals.weights import ASSUMPTION
from unpooled.totals.whole_rows import WholeRowsModel, sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.models.glm.columns import PullDesign
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.privacy.plan import Plan

_DISPERSED = table("glm").dispersed


class GlmCoefficient(msgspec.Struct, frozen=True):
    """A coefficient in the data's own units with its confidence interval; None where nothing is known of its error."""

    name: str
    value: float
    low: float | None
    high: float | None
    #: Whether the release tells of it more than its own noise does.
    identified: bool


class GlmResult(msgspec.Struct, frozen=True):
    """Coefficients for predictions, shrunk by what is known of their noise, and unshrunk estimates where the method has standard errors."""

    family: str
    coefficients: tuple[GlmCoefficient, ...]
    intercept: float
    confidence: float
    #: Parties whose rows are in it, and how many rows they have.
    participants: tuple[str, ...]
    rows: int
    method: str
    #: The factor of the variance: 1 where the family has none.
    dispersion: float
    newton: Estimates | None = None
    #: What the Newton step cut off; None where there was none, or no noise.
    clipping: Clipping | None = None
    #: Of several classes: their labels and constants; the coefficients stand class after class.
    classes: tuple[str, ...] = ()
    intercepts: tuple[float, ...] = ()
    #: Of times to an event: the intervals' log hazards at a row of zeros, and the life table.
    log_hazards: tuple[float, ...] = ()
    life_table: LifeTable | None = None
    #: Of method "direction": lines (constant, factor) of the log odds, over which probabilities are averaged (``kernels/score_posterior.py``).
    lines: tuple[tuple[float, float], ...] = ()
    #: How earlier models drew the fit; None without any.
    drawn: DrawnTo | None = None
    #: The commonest level or class, as it was released, of columns whose declared reference is rare; of classes under the response's name.
    common: dict[str, str] = {}
    #: Sentences about the columns of which most rows that were scaled down are likely long.
    crowded: tuple[str, ...] = ()
    #: What the study tells of which rows are whole; None where that is not modelled.
    whole: WholeRowsModel | None = None
    #: Why no line follows from so few whole rows; empty where lines may.
    few: str = ""
    #: The estimates of the model without the terms that the noise hides, which are those of the table; None where it hides none.
    without: Estimates | None = None


def coefficients_of(
    names: Sequence[str], values: NDArray[np.float64], newton: Estimates | None, confidence: float
) -> tuple[GlmCoefficient, ...]:
    """Return coefficients that predict, with the intervals of the table's estimates where they have a value of their own there."""
    told: dict[str, tuple[float | None, float | None, bool]] = {}
    if newton is not None:
        found = wald_lines(newton.names, *newton.own, confidence)
        sure = newton.determined(np.eye(len(found))).tolist()
        told = {
            t.term: (finite(t.conf_low), finite(t.conf_high), True) for t, tells in zip(found, sure, strict=True) if tells
        }
    return tuple(
        GlmCoefficient(name, value, *told.get(name, (None, None, False)))
        for name, value in zip(names, values.tolist(), strict=True)
    )


def terms(plan: Plan, result: GlmResult) -> tuple[ResultTerm, ...]:
    """Return estimates with standard errors and tests where there are any, else the values alone; of times to an event also the curve."""
    return (*_estimates(plan, result), *_survived(result))


def _survived(result: GlmResult) -> tuple[ResultTerm, ...]:
    if result.life_table is None:
        return ()
    curve = result.life_table.kaplan_meier(result.confidence)
    points = zip(curve.times[1:], curve.survival[1:], curve.low[1:], curve.high[1:], strict=True)
    return tuple(
        ResultTerm(f"survival to {time:g}", value, conf_low=low, conf_high=high, group="Kaplan-Meier")
        for time, value, low, high in points
    )


def _estimates(plan: Plan, result: GlmResult) -> tuple[ResultTerm, ...]:
    found = tables(plan, result)
    if found is None:
        return _without_levels(plan, result)
    return tuple(t.line for t in found.summary(result.confidence).terms)


def _without_levels(plan: Plan[GlmDesign | PullDesign], result: GlmResult) -> tuple[ResultTerm, ...]:
    """Return the coefficients that predict but those of levels, which read as effects and are none without second moments."""
    levels = plan.design.layout.terms.of_levels(plan.design.layout.names)
    hidden = {*levels, *class_terms(result.classes, sorted(levels))}
    return tuple(line for line in predicting(plan, result) if line.term not in hidden)


def predicting(plan: Plan[GlmDesign | PullDesign], result: GlmResult) -> tuple[ResultTerm, ...]:
    """Return the coefficients that predict: one for every level of a column, shrunk by what is known of their noise."""
    found = tuple(ResultTerm(c.name, c.value) for c in result.coefficients)
    if not plan.design.layout.intercept:
        return found
    constants = [ResultTerm(name, value) for name, value in _constants(result)]
    if not result.classes:
        return (*found, *constants)
    p = len(found) // len(result.classes)
    return tuple(term for a, constant in enumerate(constants) for term in (*found[a * p : (a + 1) * p], constant))


def tables(plan: Plan[GlmDesign | PullDesign], result: GlmResult) -> Tables | None:
    """Return the tables to publish: the estimates of the Newton step, unshrunk; None where the method makes none."""
    if result.newton is None:
        return None
    found = _tables(plan, result)
    return found if result.whole is None else replace(found, assumed=(*_of_whole(found, result), *found.assumed))


def _of_whole(found: Tables, result: GlmResult) -> tuple[str, ...]:
    """Return the sentence on which rows are whole, with the first line of the table as the whole rows alone have it."""
    whole = result.whole
    assert whole is not None
    if not whole.alone:
        return whole.sentences(found.response)
    alone = replace(found, estimates=msgspec.structs.replace(found.estimates, estimate=whole.alone))
    (here, *_), (there, *_) = ((*t.summary().terms, None) for t in (found, alone))
    compared = None if here is None or there is None else (here.term, there.estimate, here.estimate)
    return whole.sentences(found.response, compared)


def _tables(plan: Plan[GlmDesign | PullDesign], result: GlmResult) -> Tables:
    """Return the same without a sentence on which rows are whole."""
    assert result.newton is not None
    design = plan.design
    layout, given = design.layout, design.parameters
    constants = layout.constants if result.life_table is None else result.life_table.interval_names
    return Tables(
        result.newton if result.without is None else result.without,
        layout.terms.with_constants(constants),
        result.rows,
        result.family,
        given.response,
        str(plan.statement),
        result.dispersion,
        result.classes,
        reference=given.reference,
        coding=given.coding,
        common=result.common,
        assumed=tuple(_assumed(plan, result)),
        made=layout.made,
        cut=result.clipping,
        crowded=result.crowded,
        drawn=result.drawn,
        adjusted=None if result.without is None else result.newton,
    )


def _assumed(plan: Plan[GlmDesign | PullDesign], result: GlmResult) -> Iterator[str]:
    """The sentences under the table: weights, the covariance, what was cut off, and a family that describes such counts better."""
    design = plan.design
    yield from sentences(design.layout.left_out, design.layout.declared, result.few)
    if design.responses.weighting is not None:
        yield ASSUMPTION
    yield ASSUMED[design.covariance].partition(" (")[0] if result.whole is not None else ASSUMED[design.covariance]
    if design.target:
        yield design.target
    if result.family == POISSON and result.dispersion > _DISPERSED:
        yield (
            f"the variance of the counts is {result.dispersion:.3g} times their mean, and the standard errors hold that. Where it grows with the square "
            "of the mean, family 'negative-binomial' has smaller ones"
        )


def _constants(result: GlmResult) -> tuple[tuple[str, float], ...]:
    """Return the constants by name: one, one per class, or the intervals' log hazards."""
    if result.life_table is not None:
        return tuple(zip(result.life_table.interval_names, result.log_hazards, strict=True))
    if result.classes:
        return tuple(zip(class_terms(result.classes, [CONSTANT_TERM]), result.intercepts, strict=True))
    return ((CONSTANT_TERM, result.intercept),)


def foot(plan: Plan, result: GlmResult) -> tuple[str, ...]:
    """Return the lines under the table of the result."""
    found = tables(plan, result)
    if found is None:
        lines = [f"method {result.method!r} gives predictions without standard errors; 'newton' gives them"]
        lines += untold(plan.design.layout.terms.factors)
        lines += [] if result.drawn is None else words(result.drawn)
    else:
        table = found.summary(result.confidence)
        credible = [CREDIBLE] if is_credible(table.terms) else []
        lines = [
            f"intervals of {result.confidence:.0%}",
            *table.compared,
            *credible,
            *notes(table.not_determined, table.terms),
        ]
    if result.lines:
        lines.append(
            f"probabilities are means over {len(result.lines)} lengths of the slopes, of which these coefficients are the mean: `unpooled predict` works them out"
        )
    if result.life_table is not None:
        lines.append(str(result.life_table.kaplan_meier(result.confidence)))
    held = "columns" if plan.joint else "rows"
    lines += in_common(plan.study, result.rows)
    return (*lines, f"family {result.family}, {held} of {', '.join(result.participants)}")


def panels(plan: Plan, result: GlmResult) -> tuple[Panel, ...]:
    """Return the coefficients, with their intervals and the curves of variables where there are any; of times to an event their curve before them."""
    return (*_curve(result), *_bars(plan, result))


def _curve(result: GlmResult) -> tuple[Panel, ...]:
    if result.life_table is None:
        return ()
    curve = result.life_table.kaplan_meier(result.confidence)
    names = tuple(f"{time:g}" for time in curve.times)
    title = f"survival (Kaplan-Meier), {result.confidence:.0%} pointwise band"
    return (Panel(title, names, curve.survival, curve.low, curve.high, ordered=True, steps=True),)


def _bars(plan: Plan, result: GlmResult) -> tuple[Panel, ...]:
    found = tables(plan, result)
    if found is None:
        told = {line.term for line in _without_levels(plan, result)}
        slopes = {c.name: c.value for c in result.coefficients if c.name in told}
        return (Panel("coefficients", tuple(slopes), tuple(slopes.values())),) if slopes else ()
    constants = {name for name, owner in zip(found.printed().names, found.printed().terms, strict=True) if not owner}
    shown = of_terms((t.line for t in found.summary(result.confidence).terms if t.term not in constants), result.confidence)
    return (*shown, *profiles.panels(found, result.confidence))
