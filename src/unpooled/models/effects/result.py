"""Results of a treatment effect, drawn to earlier ones where a study cites them; its lines, its table and its figures."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import StudyError, UsageError, listed
from unpooled.estimation.earlier import declared_columns
from unpooled.inference.drawing import (
    BAND,
    CURVES,
    INK,
    SOFT,
    new_figure,
    plain,
)
from unpooled.inference.life_table import LifeTable
from unpooled.inference.priors import (
    DrawnTo,
    EarlierModel,
    Pull,
    Told,
    drawn_to,
    named,
    rows_of,
    words,
)
from unpooled.models.effects.declared import Estimand, Estimator, OutcomeFamily
from unpooled.protocol.messages import Array
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm
from unpooled.schedules import table
from unpooled.totals.whole_rows import limits_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from unpooled.estimation.earlier import CitedRun, ReadRows
    from unpooled.models.effects.declared import DeclaredEffect
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card, Plan


# --- Result ----------------------------------------------------------------------------------------------------------------
# Results of a treatment effect: the effect, and everything by which a reader judges it.


class EffectNumber(msgspec.Struct, frozen=True):
    """A number with its standard error, and the part of it that privacy adds."""

    name: str
    value: float
    std_error: float
    privacy: float


class DrawnEffect(msgspec.Struct, frozen=True):
    """The posterior of an effect about earlier estimates of it: its mean and deviation, and how they drew it."""

    value: float
    deviation: float
    drawn: DrawnTo


class Overlap(msgspec.Struct, frozen=True):
    """Noisy numbers of persons by arm (rows) and propensity (columns, between cuts)."""

    cuts: tuple[float, ...]
    counts: Array
    #: The deviation of a count's noise.
    deviation: float
    #: The share of persons whose propensity is cut, and the deviation of its noise.
    cut: float
    cut_noise: float
    weak: bool


class BalanceLine(msgspec.Struct, frozen=True):
    """The standardised difference of a column between the arms, before and after weighting, with the deviations of their noise."""

    term: str
    before: float
    before_noise: float
    after: float
    after_noise: float


class EffectResult(msgspec.Struct, frozen=True):
    """A treatment effect; without one where the data do not tell it, with the reason."""

    estimand: str
    estimator: str
    #: The control, and the treatment.
    arms: tuple[str, str]
    confidence: float
    participants: tuple[str, ...]
    rows: int
    effect: EffectNumber | None = None
    #: Why there is no effect, in words.
    why: str = ""
    #: Outcomes of both arms, where the estimator has them.
    means: tuple[EffectNumber, ...] = ()
    overlap: Overlap | None = None
    #: The bound on a contribution, the share of persons beyond it, and the deviation of its noise.
    bound: float = 0.0
    beyond: float = 0.0
    beyond_noise: float = 0.0
    balance: tuple[BalanceLine, ...] = ()
    #: Weighted life tables of both arms.
    life_tables: tuple[LifeTable, ...] = ()
    #: The lines of the models that it adjusts by.
    propensity: tuple[ResultTerm, ...] = ()
    outcome: tuple[ResultTerm, ...] = ()
    #: The same effect with earlier estimates of it, where the study names some.
    drawn: DrawnEffect | None = None
    #: The lines of the model of whose outcome is on record, where people without one count.
    presence: tuple[ResultTerm, ...] = ()


# --- Earlier effects -------------------------------------------------------------------------------------------------------
# An effect with earlier estimates of the same effect: which ones a study takes, and how far it is drawn to them (THEORY.md, section 5).

_TUNED = table("effects")


def drawn_effect(declared: DeclaredEffect, alone: EffectNumber | None) -> DrawnEffect | None:
    """Return the posterior of an effect about earlier ones; None without any, or where the data do not tell the effect."""
    p = declared.parameters
    if alone is None or not p.prior:
        return None
    # An effect without noise and without chance would have an endless precision.
    variance = max(alone.std_error, 1e-9 * declared.widest) ** 2
    told = Told(np.array([[1 / variance]]), np.array([alone.value / variance]))
    there = rows_of(p.prior, (p.estimand,), intercept=False)
    typical = declared.widest / _TUNED.range_deviations
    mean, covariance, weights, deviations = drawn_to(told, there, np.array([True]), typical)
    pull = Pull(p.estimand, float(mean[0]), alone.value)
    return DrawnEffect(float(mean[0]), math.sqrt(covariance[0, 0]), DrawnTo(named(p.prior, weights, deviations), (pull,)))


# --- Cited -----------------------------------------------------------------------------------------------------------------
# ``prior`` in a study file: earlier estimates of the same effect, as numbers or out of an earlier run.

#: Parameters that must be those of the cited run too, for its effect to mean the same, with their defaults.
_ALIKE = {
    "response": "",
    "treatment": "",
    "event": "",
    "horizon": None,
    "family": OutcomeFamily.LINEAR,
}
#: Of these the declared categories must be the same, in the same order.
_IN_ORDER = ("response", "treatment")


@dataclass(frozen=True)
class EarlierEffects:
    """The study whose effect is drawn: its parameters, and its declared columns by name."""

    parameters: Mapping[str, Any]
    columns: Mapping[str, Column]

    def of_run(self, cited: CitedRun) -> EarlierModel:
        """Return the effect that a run found."""
        run, study = cited.folder, cited.plan.study
        if study.model != "effects":
            msg = f"prior: {run} is a run of model {study.model!r}; an effect is drawn to a run of 'effects'"
            raise StudyError(msg)
        theirs, ours = ({**_ALIKE, **given} for given in (study.parameters, self.parameters))
        result, asked = cited.result, self.parameters.get("estimand", Estimand.AUTO)
        differing = [name for name in _ALIKE if theirs[name] != ours[name]]
        differing += ["estimand"] if asked not in {Estimand.AUTO, result.estimand} else []
        held = declared_columns(study.parties)
        for role in _IN_ORDER:
            one, other = held.get(theirs[role]), self.columns.get(ours[role])
            if role not in differing and one is not None and other is not None and one.categories != other.categories:
                differing.append(f"list of categories of the {role}")
        if differing:
            msg = f"prior: {run} was run with another {listed(differing)}, so its effect would mean something else here"
            raise StudyError(msg)
        if result.effect is None:
            msg = f"prior: {run} has no effect ({result.why}): cite a run that has one"
            raise StudyError(msg)
        value = result.effect.value if result.drawn is None else result.drawn.value
        return EarlierModel(run.resolve().name, {result.estimand: value})

    def of_rows(self, path: Path, read: ReadRows) -> EarlierModel:  # noqa: ARG002 - it reads none
        """Refuse public rows."""
        msg = f"prior: public rows ({path.name}) go without a treatment: estimate their effect yourself, and write it as a table under prior"
        raise StudyError(msg)


def earlier(parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> EarlierEffects:
    """Return how a study of these parameters and cards takes earlier effects."""
    return EarlierEffects(parameters, declared_columns(cards))


# --- Lines and panels ------------------------------------------------------------------------------------------------------
# A treatment effect, line by line, as a table and as figures.

#: Whose mean outcomes are compared.
_WHOM = {
    Estimand.TREATED: "people as those in the treated arm",
    Estimand.OVERLAP: "people whose treatment was open (weights e (1 - e))",
}
_LARGE, _TOLD = _TUNED.difference_large, _TUNED.difference_noise


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
    half = NormalDist().inv_cdf(0.5 + result.confidence / 2) * own.deviation
    return ResultTerm(name, own.value, own.deviation, conf_low=own.value - half, conf_high=own.value + half)


def line(result: EffectResult, one: EffectNumber, name: str, *, tested: bool = False) -> ResultTerm:
    """Return a number with its interval; ``tested``: also the test that it is 0."""
    normal = NormalDist()
    half = normal.inv_cdf(0.5 + result.confidence / 2) * one.std_error
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


def foot(plan: Plan, result: EffectResult) -> tuple[str, ...]:
    """Return what the table does not say by itself."""
    return (
        *_said(result, plan.design.declared),
        *_left_out(plan.design.declared, result),
        f"rows of {', '.join(result.participants)}" if result.participants else "nothing else was asked",
    )


def _left_out(declared: DeclaredEffect, result: EffectResult) -> Iterator[str]:
    """Whom the effect is of, where people without some values are left out."""
    if declared.always:
        names = listed([column.name for column in declared.always])
        yield (
            f"people without a value of {names} are left out, and {result.rows} are left by a noisy count: it is the effect among people whose values are on "
            "record, right if, given arm and covariates, whether they are does not depend on the outcome"
        )
        yield from limits_of(declared.always)
    if declared.unseen is not None:
        weights = (
            ""
            if result.estimator == Estimator.OUTCOME
            else (", and those with one by one over the chance to have one, which is modelled by arm and covariates")
        )
        yield (
            f"people without a value of {declared.response.name} count by what the outcome model expects of them{weights}: right if, given arm and covariates, "
            "whether it is on record does not depend on the outcome"
        )


def _said(result: EffectResult, declared: DeclaredEffect) -> Iterator[str]:
    control, treated = result.arms
    if result.effect is None:
        yield f"effect of {treated} against {control}: {result.why}"
    whom = _WHOM.get(Estimand(result.estimand), "everybody on record" if declared.always else "everybody")
    yield f"{result.estimator}: the mean outcome if {whom} had {treated}, less that if they had {control}; intervals of {result.confidence:.0%}"
    if result.estimand == Estimand.OVERLAP:
        yield (
            f"{Estimand.OVERLAP}: a person counts e (1 - e), with e the probability of {treated} given the covariates, if a linear e is right: where the "
            "effect is not the same for everybody, it is that of people whose treatment was open"
        )
    if result.effect is not None and result.drawn is not None:
        yield from words(result.drawn.drawn)
        yield f"its interval is credible; the rows alone say {result.effect.value:.3g} with a standard error of {result.effect.std_error:.3g}"
    if result.overlap is not None:
        own = result.overlap
        weak = "weak overlap: " if own.weak else ""
        ends = f"{own.cuts[0]:g} or {own.cuts[-1]:g}"
        chances = "propensities" if declared.unseen is None else "propensities, times the chance of an outcome on record,"
        yield f"{weak}the {chances} of {own.cut:.1%} (± {own.cut_noise:.1%}) of the people were cut to {ends}"
        yield (
            f"contributions were cut at {result.bound:.3g} from their middle: those of {result.beyond:.1%} (± {result.beyond_noise:.1%}) of the people"
        )
    models = (
        ("propensity", result.propensity),
        ("outcome model", result.outcome),
    )  # of presence it may well hide all: most have an outcome
    for name, told in models if result.estimand != Estimand.OVERLAP else ():
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
            f"{result.estimand} with its {result.confidence:.0%} interval",
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
    for arm, life in zip(result.arms, result.life_tables, strict=False):
        curve = life.kaplan_meier(result.confidence)
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


# --- Figures ---------------------------------------------------------------------------------------------------------------
# The figure of a treatment effect: overlap, balance and, of survival, the weighted curves.


def figure(result: EffectResult) -> Any:  # noqa: ANN401 - a matplotlib figure
    """Draw what a reader judges an effect by."""
    if result.overlap is None:
        msg = f"estimator {result.estimator!r} has no weights, whose overlap and balance could be drawn: 'aipw' and 'iptw' have some"
        raise UsageError(msg)
    count = 2 + bool(result.life_tables)
    drawn, axes = new_figure(4.4 * count, max(3.4, 1.2 + 0.22 * len(result.balance)), count)
    _overlap(axes[0], result)
    _balance(axes[1], result)
    if result.life_tables:
        for k, (arm, table) in enumerate(zip(result.arms, result.life_tables, strict=True)):
            own = table.kaplan_meier(result.confidence)
            axes[2].fill_between(own.times, own.low, own.high, step="post", color=CURVES[k], alpha=BAND, lw=0)
            axes[2].step(own.times, own.survival, where="post", color=CURVES[k], label=arm)
        axes[2].set(xlabel="time", ylabel="weighted survival", ylim=(0, 1.02))
        axes[2].legend()
    return drawn


def _overlap(axes: Any, result: EffectResult) -> None:  # noqa: ANN401 - matplotlib axes
    """Bars of both arms, one upwards and one downwards, with twice the deviation of their noise."""
    assert result.overlap is not None
    edges = np.array([0.0, *result.overlap.cuts, 1.0])
    for k, (arm, own) in enumerate(zip(result.arms, result.overlap.counts.numpy(), strict=True)):
        sign = 2 * k - 1
        axes.bar(
            edges[:-1],
            sign * np.maximum(own, 0.0),
            np.diff(edges),
            align="edge",
            color=CURVES[k],
            alpha=0.7,
            edgecolor="white",
            label=plain(arm),
            yerr=2 * result.overlap.deviation,
            error_kw={"ecolor": INK, "lw": 0.8},
        )
    axes.axhline(0.0, color=SOFT, lw=0.8)
    axes.set(xlabel="propensity", ylabel=f"people ({plain(result.arms[1])} upwards)", xlim=(0, 1))
    axes.legend()


def _balance(axes: Any, result: EffectResult) -> None:  # noqa: ANN401
    """Standardised differences before and after weighting, with twice the deviation of their noise."""
    places = np.arange(len(result.balance))[::-1]
    for k, when in enumerate(("before", "after")):
        values = [getattr(one, when) for one in result.balance]
        near = [2 * getattr(one, f"{when}_noise") for one in result.balance]
        axes.errorbar(
            values,
            places + 0.12 - 0.24 * k,
            xerr=near,
            fmt="o",
            mfc="white" if not k else None,
            color=CURVES[k],
            label=f"{when} weighting",
        )
    axes.axvline(0.0, color=SOFT, lw=0.8)
    for end in (-0.1, 0.1):
        axes.axvline(end, color=SOFT, lw=0.8, linestyle=":")
    axes.set(yticks=places, yticklabels=[plain(one.term) for one in result.balance], xlabel="standardised difference")
    axes.legend()
