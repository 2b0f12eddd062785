"""Pure generator: add up what the plan's rounds ask for, and turn noisy totals into coefficients. All of it is post-processing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.inference.priors import DrawnTo
from unpooled.linear.conversation import directed, standardised
from unpooled.linear.descent import descent
from unpooled.linear.drawn import drawn_fit
from unpooled.linear.fit import LinearFit, plain
from unpooled.linear.moments import Moments, StoredMoments
from unpooled.linear.schedule import Method
from unpooled.linear.standard import CONSTANT, Standard
from unpooled.models.bayes.declared import NAIVE
from unpooled.models.bayes.focused import focused
from unpooled.models.bayes.plan import DEVIATIONS, MOMENTS, SQUARE
from unpooled.protocol.terms import finite
from unpooled.totals.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.models.bayes.plan import BayesDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Conversation, Replies

    Row = NDArray[np.float64]


class Coefficient(msgspec.Struct, frozen=True):
    """A coefficient in the data's own units with its credible interval; None where it has none."""

    name: str
    value: float
    low: float | None
    high: float | None
    #: Whether the release tells of it more than its own noise does.
    identified: bool = True


class BayesResult(msgspec.Struct, frozen=True):
    """The coefficients, and the released moments behind them (where there are any), from which other models follow free of charge."""

    coefficients: tuple[Coefficient, ...]
    intercept: float
    level: float
    #: Parties whose rows are in it.
    participants: tuple[str, ...]
    #: The ranges that data were projected to, (low, high) per numeric feature and for the response; empty without projection.
    projection: tuple[float, ...]
    #: None where the method releases none: there are no standard errors then.
    moments: StoredMoments | None
    method: str = Method.MOMENTS
    #: The moments of the focused columns, the others taken out; None without a focus.
    focused: StoredMoments | None = None
    #: How earlier models drew the fit; None without any.
    drawn: DrawnTo | None = None


def coordinate(plan: Plan[BayesDesign]) -> Conversation:
    """Exchange keys, then the rounds of the plan's method."""
    rounds, design = Rounds(plan), plan.design
    yield from rounds.begin(design.weighting)
    if design.method is Method.MOMENTS:
        moments, settings = yield from _one_release(rounds)
        return _of_moments(rounds, moments, settings)
    if design.focus is not None:
        fit, left = yield from focused(rounds, design.focus)
        return msgspec.structs.replace(_result(rounds, fit, None, ()), focused=left.stored())
    fit, found, drawn = yield from _standardised(rounds)
    if found is not None and design.models:
        return _of_moments(rounds, found, ())
    return msgspec.structs.replace(_result(rounds, fit, found, ()), drawn=drawn)


def _of_moments(rounds: Rounds[BayesDesign], moments: Moments, settings: tuple[float, ...]) -> BayesResult:
    """Return the result of released moments: what the study asks of them, or what they and earlier models say."""
    design = rounds.design
    if not design.models:
        return _result(rounds, posterior(design, moments), moments, settings)
    fit, drawn = drawn_fit(moments, design.models)
    return msgspec.structs.replace(_result(rounds, fit, moments, settings), drawn=drawn)


def _one_release(rounds: Rounds[BayesDesign]) -> Generator[list[Ask], Replies, tuple[Moments, tuple[float, ...]]]:
    """Deviations (if the data are to be projected), the sum of y^2 (if precisions are to be estimated), the moments."""
    from unpooled.models.bayes.projection import best_multiple, thresholds

    plan, design = rounds.plan, rounds.design
    settings: tuple[float, ...] = ()
    if design.deviations is not None:
        total = yield from rounds.total(DEVIATIONS)
        multiple = design.parameters.multiple or best_multiple(design, plan, rounds.rows)
        settings = thresholds(design, total, rounds.rows, multiple)
    squares = None
    if SQUARE in design.totals:
        squares = yield from rounds.total(SQUARE, settings)
    layout = design.narrowed(settings)
    total = yield from rounds.total(MOMENTS, settings)
    moments = Moments.decode(layout, total, rounds.rows, plan.hash, str(plan.statement), holds=plan.statement.holds)
    moments = replace(moments, narrowed=bool(settings))
    if squares is not None:
        moments.gram[-1, -1] = float(squares.values[0]) / layout.grid**2
        moments.variance[-1, -1] = (float(squares.deviations[0]) / layout.grid**2) ** 2
    if layout.weighting is not None:  # for models whose penalty is of the mean loss
        moments = replace(moments, standard=replace(moments.frame, mean_weight=rounds.weight))
    return moments, settings


def _standardised(
    rounds: Rounds[BayesDesign],
) -> Generator[list[Ask], Replies, tuple[LinearFit, Moments | None, DrawnTo | None]]:
    """Rounds over standardised rows, or over the response alone."""
    design = rounds.design
    if design.method is not Method.MEAN:
        by_direction = design.method in {Method.DIRECTION, Method.WEIGHTS}
        found = yield from (directed(rounds) if by_direction else standardised(rounds))
        return found.fit, found.moments, found.drawn
    standard = Standard.declared()
    (start,), _ = yield from descent(rounds, standard)
    return _mean_alone(design, CONSTANT * float(start) * float(standard.width[-1])), None, None


def _mean_alone(design: BayesDesign, mean: float) -> LinearFit:
    """No slopes, and this mean of the response in half ranges, inside them."""
    p, y = len(design.layout.coding.attribute), design.layout.response
    own = y.centre + y.half_width * min(max(mean, -1.0), 1.0)
    return LinearFit.without_errors(np.zeros(p), own, has_intercept=True)


def posterior(design: BayesDesign, moments: Moments) -> LinearFit:
    """Return the posterior that the study asks for."""
    p = design.parameters
    return moments.posterior(p.prior_precision, p.noise_precision, naive=p.posterior == NAIVE)


def _result(
    rounds: Rounds[BayesDesign], fit: LinearFit, moments: Moments | None, settings: tuple[float, ...]
) -> BayesResult:
    design, fit = rounds.design, plain(fit)
    level = design.parameters.level
    coefficients = coefficients_of(fit, design.layout.names, level)
    stored = None if moments is None else moments.stored()
    return BayesResult(coefficients, fit.intercept_, level, rounds.participants, settings, stored, str(design.method))


def coefficients_of(fit: LinearFit, names: tuple[str, ...], level: float) -> tuple[Coefficient, ...]:
    """Return the coefficients of a fit with their intervals of this level."""
    values, interval, known = fit.coef_.tolist(), fit.interval(level).tolist(), fit.identified.tolist()
    return tuple(
        Coefficient(name, value, finite(low), finite(high), tells)
        for name, value, (low, high), tells in zip(names, values, interval, known, strict=True)
    )
