"""A treatment effect, line by line, as a table and as figures."""

from __future__ import annotations

import itertools
from statistics import NormalDist
from typing import TYPE_CHECKING

from unpooled.inference.priors import words
from unpooled.models.effects.declared import Estimand
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.models.effects.result import EffectNumber, EffectResult
    from unpooled.privacy.plan import Plan

#: A difference of columns that is said to be large, in standard deviations.
_LARGE = 0.1
#: With more noise than this a difference is not printed.
_TOLD = 0.25


def terms(plan: Plan, result: EffectResult) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model's
    """Return the effect, the outcomes of both arms where there are any, and the balance of the columns."""
    lines = []
    if result.effect is not None:
        control, treated = result.arms
        lines.append(effect_line(result, result.effect, f"{result.estimand}: {treated} - {control}"))
    lines += [line(result, one, f"mean outcome, {one.name}") for one in result.means]
    for when in ("before", "after"):
        for one in result.balance:
            value, noise = getattr(one, when), getattr(one, f"{when}_noise")
            if noise <= _TOLD:
                lines.append(ResultTerm(one.term, value, privacy=noise, group=f"standardised difference {when} weighting"))
    return tuple(lines)


def effect_line(result: EffectResult, alone: EffectNumber, name: str) -> ResultTerm:
    """Return the effect with its interval and test; drawn to earlier estimates, its posterior with a credible interval and no test."""
    if result.drawn is None:
        return line(result, alone, name, tested=True)
    own = result.drawn
    half = NormalDist().inv_cdf(0.5 + result.level / 2) * own.deviation
    return ResultTerm(name, own.value, own.deviation, conf_low=own.value - half, conf_high=own.value + half)


def line(result: EffectResult, one: EffectNumber, name: str, *, tested: bool = False) -> ResultTerm:
    """Return a number with its interval; ``tested``: also the test that it is 0."""
    normal = NormalDist()
    half = normal.inv_cdf(0.5 + result.level / 2) * one.std_error
    z = one.value / one.std_error if tested and one.std_error else None
    return ResultTerm(
        name,
        one.value,
        one.std_error,
        z,
        None if z is None else 2 * normal.cdf(-abs(z)),
        one.value - half,
        one.value + half,
        one.privacy,
    )


def foot(plan: Plan, result: EffectResult) -> tuple[str, ...]:  # noqa: ARG001 - as every model's
    """Return what the table does not say by itself."""
    return (*_said(result), f"rows of {', '.join(result.participants)}" if result.participants else "nothing else was asked")


def _said(result: EffectResult) -> Iterator[str]:
    control, treated = result.arms
    if result.effect is None:
        yield f"effect of {treated} against {control}: {result.why}"
    whom = "people as those in the treated arm" if result.estimand == Estimand.TREATED else "everybody"
    yield f"{result.estimator}: the mean outcome if {whom} had {treated}, less that if they had {control}; intervals of {result.level:.0%}"
    if result.effect is not None and result.drawn is not None:
        yield from words(result.drawn.drawn)
        yield f"its interval is credible; the rows alone say {result.effect.value:.3g} with a standard error of {result.effect.std_error:.3g}"
    if result.overlap is not None:
        own = result.overlap
        weak = "weak overlap: " if own.weak else ""
        ends = f"{own.cuts[0]:g} or {own.cuts[-1]:g}"
        yield f"{weak}the propensities of {own.cut:.1%} (± {own.cut_noise:.1%}) of the people were cut to {ends}"
        yield (
            f"contributions were cut at {result.bound:.3g} from their middle: those of {result.beyond:.1%} (± {result.beyond_noise:.1%}) of the people"
        )
    for name, told in (("propensity", result.propensity), ("outcome model", result.outcome)):
        if result.effect is not None and not told and (name != "propensity" or result.overlap is not None):
            yield f"the noise hides every line of the {name}: the effect rests on the other model"
    if large := [one.term for one in result.balance if abs(one.after) - 2 * one.after_noise > _LARGE]:
        yield f"after weighting the arms still differ by more than {_LARGE:g} standard deviations in {', '.join(large)}"
    if hidden := [one.term for one in result.balance if one.after_noise > _TOLD]:
        yield f"the noise hides the balance after weighting of {', '.join(hidden)}"
    yield "it is an effect if everything that decided about the treatment and the outcome is among the covariates: no number here can tell"


def panels(plan: Plan, result: EffectResult) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model's
    """Return the effect, overlap, balance and, of survival, the weighted curves."""
    return tuple(_drawn(result))


def _drawn(result: EffectResult) -> Iterator[Panel]:
    if result.effect is not None:
        shown = effect_line(result, result.effect, "effect")
        ends = ((shown.conf_low or 0.0,), (shown.conf_high or 0.0,))
        yield Panel(
            f"{result.estimand} with its {result.level:.0%} interval",
            (" - ".join(reversed(result.arms)),),
            (shown.estimate,),
            *ends,
        )
    if result.overlap is not None:
        cuts = (0.0, *result.overlap.cuts, 1.0)
        names = tuple(f"{low:g} to {high:g}" for low, high in itertools.pairwise(cuts))
        for arm, own in zip(result.arms, result.overlap.counts.numpy(), strict=True):
            near = 2 * result.overlap.deviation
            yield Panel(
                f"people by propensity, {arm}",
                names,
                tuple(own.tolist()),
                tuple((own - near).tolist()),
                tuple((own + near).tolist()),
            )
    for when in ("before", "after") if result.balance else ():
        values = [(getattr(one, when), 2 * getattr(one, f"{when}_noise")) for one in result.balance]
        yield Panel(
            f"standardised differences {when} weighting, with twice their noise",
            tuple(one.term for one in result.balance),
            tuple(value for value, _ in values),
            tuple(value - near for value, near in values),
            tuple(value + near for value, near in values),
        )
    for arm, table in zip(result.arms, result.life_tables, strict=False):
        curve = table.kaplan_meier(result.level)
        names = tuple(f"{time:g}" for time in curve.times)
        yield Panel(
            f"weighted survival, {arm}",
            names,
            curve.survival,
            curve.low,
            curve.high,
            ordered=True,
            steps=True,
            places=curve.times,
            axes=("time", "survival"),
        )
