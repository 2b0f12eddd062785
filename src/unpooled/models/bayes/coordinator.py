"""Pure generator: add up the parties' moments, and turn the noisy total into a posterior. All of it is post-processing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from unpooled.aggregation.keys import exchange_keys
from unpooled.aggregation.modes import collect
from unpooled.aggregation.moments import Moments, StoredMoments
from unpooled.models.bayes.plan import NAIVE
from unpooled.protocol.step import Panel

if TYPE_CHECKING:
    from unpooled.aggregation.moments import LinearFit
    from unpooled.models.bayes.plan import BayesDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Conversation


class Coefficient(msgspec.Struct, frozen=True):
    """A coefficient in the data's own units with its credible interval."""

    name: str
    value: float
    low: float
    high: float
    #: Whether the release tells of it more than its own noise does.
    identified: bool = True


class BayesResult(msgspec.Struct, frozen=True):
    """The posterior, and the released moments it came from, from which other models can be computed free of charge."""

    coefficients: tuple[Coefficient, ...]
    intercept: float
    level: float
    #: Parties whose rows are in it.
    participants: tuple[str, ...]
    #: The ranges that data were projected to, (low, high) per numeric feature and for the response; empty without projection.
    projection: tuple[float, ...]
    moments: StoredMoments


def coordinate(plan: Plan) -> Conversation:
    """Ask for deviations (if the data are to be projected), then for the moments."""
    from unpooled.models.bayes.projection import best_multiple, thresholds

    design: BayesDesign = plan.design
    members = yield from exchange_keys(design.aggregation)
    settings: tuple[float, ...] = ()
    if design.deviations is not None:
        total = yield from collect(plan, design.aggregation, design.deviations, members)
        rows = _rows(plan, total.participants)
        multiple = design.parameters.multiple or best_multiple(design, plan, rows)
        settings = thresholds(design, total, rows, multiple)
    total = yield from collect(plan, design.aggregation, design.moments, members, settings)
    layout = design.narrowed(settings)
    moments = layout.decode(total, _rows(plan, total.participants), plan.hash, str(plan.statement))
    fit = posterior(design, moments)
    interval = fit.interval(design.parameters.level)
    coefficients = tuple(
        Coefficient(name, value, low, high, known)
        for name, value, (low, high), known in zip(
            layout.names, fit.coef_.tolist(), interval.tolist(), fit.identified.tolist(), strict=True
        )
    )
    return BayesResult(coefficients, fit.intercept_, design.parameters.level, total.participants, settings, moments.stored())


def posterior(design: BayesDesign, moments: Moments) -> LinearFit:
    """The posterior that the study asks for."""
    p = design.parameters
    return moments.posterior(p.prior_precision, p.noise_precision, naive=p.posterior == NAIVE)


def _rows(plan: Plan, participants: tuple[str, ...]) -> int:
    return sum(plan.study.card(name).rows for name in participants)


def render(result: BayesResult) -> str:
    """The coefficients as a table."""
    rows = [
        f"{c.name:<24}{c.value:>14.6g}   [{c.low:.6g}, {c.high:.6g}]{'' if c.identified else '   not identified'}"
        for c in result.coefficients
    ]
    if not all(c.identified for c in result.coefficients):
        rows.append(
            "not identified: the release tells less of it than its own noise; value and interval are little more than the prior's"
        )
    return "\n".join(
        [
            f"{'coefficient':<24}{'value':>14}   {result.level:.0%} credible interval",
            *rows,
            f"{'(intercept)':<24}{result.intercept:>14.6g}",
            f"rows of {', '.join(result.participants)}",
        ]
    )


def panels(result: BayesResult) -> tuple[Panel, ...]:
    """The coefficients with their intervals."""
    values, low, high = zip(*((c.value, c.low, c.high) for c in result.coefficients), strict=True)
    title = f"coefficients, {result.level:.0%} credible intervals"
    return (Panel(title, tuple(c.name for c in result.coefficients), values, low, high),)
