"""Both models, histograms of what follows from them, and the effect with its standard error from released totals. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted, UnpooledError
from unpooled.estimation.contained import conversation_under
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.models import load
from unpooled.models.effects.declared import (
    OUTCOME,
    PRESENCE,
    PROPENSITY,
    DeclaredEffect,
    Estimand,
    Estimator,
    OutcomeFamily,
)
from unpooled.models.effects.partial_fit import partialled
from unpooled.models.effects.plan import (
    BALANCE,
    EXITS,
    OVERLAP,
    SLOPES,
    SPREAD,
    SUMS,
    Models,
    ReleasedModel,
)
from unpooled.models.effects.result import BalanceLine, EffectNumber, EffectResult, Overlap, drawn_effect
from unpooled.models.effects.sums import middle_of, spread_of
from unpooled.protocol.messages import Array
from unpooled.schedules import table
from unpooled.totals.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.inference.estimates import Estimates
    from unpooled.inference.life_table import LifeTable
    from unpooled.models.effects.plan import EffectDesign
    from unpooled.models.effects.sums import Contributed, Spread
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Conversation, Replies
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]


# --- The effect and its standard error -------------------------------------------------------------------------------------
# The effect and its standard error from released totals. All of it is post-processing (THEORY.md, section 4).

_TUNED = table("effects")


@dataclass(frozen=True)
class Lift:
    """The way from the coordinates in which a model was fitted to its coefficients, and what a slope of length 1 stands for."""

    name: str
    matrix: Floats
    longest: float
    #: The covariances of the fitted coordinates: all of it, and the part that there would be without privacy.
    covariance: Floats
    sampling: Floats
    #: The directions of these coordinates that the noise hides, a column each, and the length of what is known of the slopes.
    hidden: Floats
    shown: float


@dataclass
class Found:
    """Everything that a run has released."""

    plan: Plan[EffectDesign]
    models: Models
    parts: dict[str, Any]
    rows: int = 0
    participants: tuple[str, ...] = ()
    #: The deviation of the noise in the number of rows, and why nothing follows from so few; 0 and empty without gaps.
    rows_noise: float = 0.0
    next_to_none: str = ""
    overlap: Total | None = None
    spreads: list[Spread] = field(default_factory=list)
    contributed: list[Contributed] = field(default_factory=list)
    #: The middles and bounds that contributions had.
    more: tuple[float, ...] = ()
    #: Released slopes with the deviations of their noise, and what they are slopes of.
    slopes: list[tuple[Lift, tuple[Floats, Floats]]] = field(default_factory=list)
    balance: tuple[Lift, Total] | None = None
    exits: Floats | None = None
    exits_noise: float = 0.0

    @property
    def design(self) -> EffectDesign:
        """Return the design of the plan."""
        return self.plan.design

    def estimates(self, name: str) -> Estimates | None:
        """Return the unshrunk estimates of a part with their covariance; None where its method has none."""
        part = self.plan.parts[name]
        tables = load(part.study.row).tables(part, self.parts[name])
        return None if tables is None else tables.best


def lifts_of(found: Found) -> list[Lift]:
    """Return the lifts of the models whose coefficients move the effect."""
    design, made = found.design, []
    bound = max((one.bound for one in found.spreads), default=0.0)
    for name, size in design.sizes.items():
        p, estimates = len(design.layouts[name].names), found.estimates(name)
        matrix, covariance, sampling = np.zeros((p + 1, size)), np.zeros((size, size)), np.zeros((size, size))
        hidden, shown = np.zeros((size, 0)), 0.0
        if estimates is not None:
            # In parts of the constant's coordinate, which has the unit of the outcome.
            lift, whole, alone = estimates.in_fit()
            own, back = lift.shape[1], np.linalg.pinv(lift)
            covariance[:own, :own], sampling[:own, :own] = whole, alone
            known = np.array(estimates.estimate)[:p]
            shown = float(np.linalg.norm(np.linalg.lstsq(lift[:p], known, rcond=None)[0]))
            if estimates.unknown:
                unknown = back @ estimates.square(estimates.unknown)
                hidden = np.zeros((size, unknown.shape[1]))
                hidden[:own] = unknown / np.maximum(np.linalg.norm(unknown, axis=0), 1e-300)
            parts = np.ones(lift.shape[0] - p)
            if (
                name == OUTCOME and design.declared.family is OutcomeFamily.SURVIVAL
            ):  # every interval's hazard has its part of the constant's slope
                parts = np.zeros(parts.size)
                hazards = hazards_to(design.declared, list(estimates.estimate[p:]))
                parts[: hazards.size] = hazards / max(float(hazards.sum()), 1e-300)
            matrix[:p, :own], matrix[p, :own] = lift[:p], parts @ lift[p:]
        typical = _TUNED.longest_coordinates * math.sqrt(size)
        longest = typical * (2 * steepest(design) if name == OUTCOME else bound / 2)
        if design.estimator is Estimator.IPTW:  # residuals from an arm's mean have longer slopes than those of a model
            longest *= _TUNED.iptw_longest
        made.append(Lift(name, matrix, longest, covariance, sampling, hidden, shown))
    return made


def steepest(design: EffectDesign) -> float:
    """Return the most that a mean moves with its linear predictor."""
    family = design.declared.family
    return {OutcomeFamily.LINEAR: 1.0, OutcomeFamily.LOGISTIC: 0.25, OutcomeFamily.SURVIVAL: math.exp(-1)}.get(
        family, design.declared.limits[1]
    )


def spreads(found: Found, total: Total, rows: int) -> list[Spread]:
    """Return the middle and the bound of contributions: of all rows, or of each arm about 0."""
    design = found.design
    p = design.declared.parameters
    counts = design.spread.decode(total, rows)
    farthest = (1 + 1 / p.overlap) * design.declared.widest
    noise = design.totals[SUMS].deviations(found.plan)[0] / design.pieces.grid / rows
    if design.estimator is Estimator.IPTW:
        arms = (
            replace(counts, whole=own, short=np.zeros_like(own), variance=counts.variance / 2)
            for own in (counts.whole, counts.short)
        )
        return [spread_of(one, noise, farthest, about=0.0, doubt=_TUNED.iptw_doubt) for one in arms]
    if p.estimand != Estimand.TREATED:
        return [spread_of(counts, noise, farthest)]
    # The contributions of the treated have the effect in their middle, those of the control 0.
    treated = replace(
        counts,
        whole=counts.short,
        short=np.zeros_like(counts.short),
        variance=counts.variance / 2,
        rows=max(round(float(counts.short.sum())), 1),
    )
    return [replace(spread_of(counts, noise, farthest, about=0.0), centre=middle_of(treated))]


def hazards_to(declared: DeclaredEffect, log_hazards: list[float]) -> Floats:
    """Return the integrated baseline hazard of every interval up to the horizon."""
    widths = np.diff(np.array([0.0, *declared.edges]))
    return np.asarray(np.exp(np.minimum(np.array(log_hazards[: widths.size]), 50.0)) * widths)


def effect(found: Found) -> EffectResult:
    """Return the effect with everything by which it is judged."""
    design = found.design
    p = design.declared.parameters
    overlap = None if found.overlap is None else _overlap(design, found.overlap)
    lines = {name: load(part.study.row).reading.terms(part, found.parts[name]) for name, part in found.plan.parts.items()}
    why = found.next_to_none or ("" if overlap is None else _hidden(design, overlap))
    if not why and not any(term.term != CONSTANT_TERM for told in lines.values() for term in told):
        why = "not identified: the noise hides what the columns say of treatment and outcome"
    number, means = (None, ()) if why else _estimated(found, overlap)
    # Where an effect rests on one model, what the noise hides of it is a bias; aipw is right if the other model is.
    rests = found.slopes if design.estimator is not Estimator.AIPW else []
    astray = max((_astray(lift, *(part * lift.longest / found.rows for part in told)) for lift, told in rests), default=0.0)
    if number is not None and (not math.isfinite(number.std_error) or astray > _TUNED.astray * number.std_error):
        number, means, why = None, (), "not identified: the noise hides columns of a model on which the effect rests"
    return EffectResult(
        p.estimand,
        p.estimator,
        design.declared.arms,
        p.confidence,
        found.participants,
        found.rows,
        number,
        why,
        tuple(means),
        overlap,
        max((one.bound for one in found.spreads), default=0.0),
        sum(one.beyond for one in found.spreads),
        math.hypot(*(one.beyond_noise for one in found.spreads)),
        () if found.balance is None else _balance(design, *found.balance),
        () if found.exits is None or overlap is None else _life_tables(found, overlap),
        lines.get(PROPENSITY, ()),
        lines[OUTCOME],
        drawn_effect(design.declared, number),
        lines.get(PRESENCE, ()),
    )


def _overlap(design: EffectDesign, total: Total) -> Overlap:
    counts = total.values.reshape(2, -1)
    deviation, persons = float(total.deviations.max()), max(float(counts.sum()), 1.0)
    cut = max(float(counts[:, [0, -1]].sum()), 0.0) / persons
    noise = 2 * deviation / persons
    return Overlap(design.overlap.cuts, Array.of(counts), deviation, cut, noise, cut > max(_TUNED.overlap_weak, 2 * noise))


def _hidden(design: EffectDesign, overlap: Overlap) -> str:
    """Return why nothing can be said; empty where something can."""
    counts = overlap.counts.numpy()
    for arm, own in zip(design.declared.arms, counts, strict=True):
        if own.sum() < max(_TUNED.fewest, _TUNED.surely * overlap.deviation * math.sqrt(own.size)):
            return f"not identified: the noise hides whether anybody is in arm {arm!r}, or hardly anybody is"
    if overlap.cut > _TUNED.overlap_none:
        return "not identified: too many people could hardly have been in one of the arms, where there is nobody to compare them with"
    return ""


def _estimated(found: Found, overlap: Overlap | None) -> tuple[EffectNumber, list[EffectNumber]]:
    """Return the effect, and the outcomes of the arms where the estimator has them."""
    design = found.design
    if design.estimator is Estimator.OUTCOME:
        return _of_outcome(found), []
    assert overlap is not None
    treated = design.declared.parameters.estimand == Estimand.TREATED
    counts = overlap.counts.numpy()
    people = float(counts[1].sum()) if treated else float(found.rows)
    doubt = (overlap.deviation * math.sqrt(counts.shape[1]) if treated else found.rows_noise) / people
    if design.estimator is Estimator.IPTW:
        return _of_weights(found, people, doubt)
    centre, bound = found.more
    (own,) = found.contributed
    value, noise = bound * own.first / people, bound * own.first_noise / people
    (spread,) = found.spreads
    whole = found.rows / people  # what is missing was a mean over all rows
    privacy = noise**2 + (value * doubt) ** 2 + (whole * spread.missing_error) ** 2
    privacy += _through_models(found, people) + _through_exits(found)
    sampling = _spread(own, value, bound, people, 0.0 if treated else 1.0)
    return _number("effect", centre + value + whole * spread.missing, sampling, privacy), []


def _spread(own: Contributed, value: float, bound: float, people: float, centred: float) -> float:
    """Return the variance of a mean of contributions, from their squares: never less than the noise in these, nor than a part of them."""
    square = bound**2 * max(own.second, own.second_noise) / people
    least = max(_TUNED.variance_least * square, bound**2 * own.second_noise / people)
    return max(square - centred * value**2, least) / people


def _number(name: str, value: float, sampling: float, privacy: float) -> EffectNumber:
    return EffectNumber(name, value, math.sqrt(sampling + privacy), math.sqrt(privacy))


def _of_weights(found: Found, people: float, doubt: float) -> tuple[EffectNumber, list[EffectNumber]]:
    """Return the difference of weighted means, and the means: about those of a model of the arms alone."""
    treated = found.design.declared.parameters.estimand == Estimand.TREATED
    starts = _arm_means(found)
    base = starts[:1] * 2 if treated else starts
    whole, centred = found.rows / people, 0.0 if treated else 1.0
    values, sampling, privacy = [], [], []
    for own, spread in zip(found.contributed, found.spreads, strict=True):
        value = spread.bound * own.first / people
        sampling.append(_spread(own, value, spread.bound, people, centred))
        values.append(value + whole * spread.missing)
        privacy.append(
            (spread.bound * own.first_noise / people) ** 2 + (value * doubt) ** 2 + (whole * spread.missing_error) ** 2
        )
    means = [
        _number(arm, start + sign * value, own, near)
        for arm, start, sign, value, own, near in zip(
            found.design.declared.arms, base, (-1, 1), values, sampling, privacy, strict=True
        )
    ]
    # Nobody is in both arms, so the product of their contributions is 0, and their covariance minus that of the means.
    together = sum(sampling) - centred * 2 * values[0] * values[1] / people
    reduced = _through_models(found, people, sampling=True)
    together = max(together - reduced, _TUNED.variance_least * together)
    added = sum(privacy) + _through_models(found, people) + _through_exits(found)
    return _number("effect", base[1] - base[0] + sum(values), together, added), means


def _arm_means(found: Found) -> list[float]:
    """Return the outcome that the model of the arms alone expects in each."""
    from unpooled.models.effects.plan import Rows

    treatment = found.design.declared.treatment
    held = {treatment.name: np.array(found.design.declared.arms, dtype=object)}
    rows = Rows(found.models, held, np.array([False, True]), np.zeros(2), np.ones(2))
    return [float(rows.mean(arm)[0]) for arm in (0, 1)]


def _through_models(found: Found, people: float, *, sampling: bool = False) -> float:
    """Return what the noise of the models adds to the variance; ``sampling``: what the fit of the propensity takes from it (THEORY.md, section 4)."""
    total = 0.0
    for lift, (values, noise) in found.slopes:
        scale = lift.longest / people
        if sampling and lift.name == PROPENSITY:
            total += _form(values * scale, noise * scale, lift.sampling, 3.0)
        elif not sampling:
            total += _form(values * scale, noise * scale, lift.covariance - lift.sampling, 1.0)
            if found.design.estimator is not Estimator.AIPW:  # which is right if the other model is
                total += _astray(lift, values * scale, noise * scale) ** 2
    return total


def _astray(lift: Lift, moves: Floats, noise: Floats) -> float:
    """Return how far the effect may be off if what the noise hides of a model is no longer than what it shows."""
    found = float(np.square(moves @ lift.hidden).sum() - (noise**2) @ np.square(lift.hidden).sum(axis=1))
    return lift.shown * math.sqrt(max(found, 0.0))


def _through_exits(found: Found) -> float:
    """Return what the noise of the life table adds: a mean outcome S moves by about S (1 - S) for a relative error of the chance to be watched."""
    if found.exits is None:
        return 0.0
    exits, total = found.design.exits, 0.0
    logs = np.log(exits.watched(found.exits))[:, -1]
    for arm, own in enumerate(found.exits):
        table = exits.life_table(own, found.exits_noise, 1.0)
        alive = table.kaplan_meier().survival[-1]
        for cell in range(own.size):
            moved = found.exits.copy()
            moved[arm, cell] += found.exits_noise
            total += (alive * (1 - alive) * float(np.log(exits.watched(moved))[arm, -1] - logs[arm])) ** 2
    return total


def _form(moves: Floats, noise: Floats, matrix: Floats, times: float) -> float:
    """Return a quadratic form of noisy numbers less what their noise adds to it, so often; never below 0."""
    return max(float(moves @ matrix @ moves) - times * float(noise**2 @ np.maximum(matrix.diagonal(), 0.0)), 0.0)


def _of_outcome(found: Found) -> EffectNumber:
    """Return the mean difference of expected outcomes: its variance over people, and that of the coefficients."""
    (own,), (_, bound) = found.contributed, found.more
    value = bound * own.first / found.rows
    estimates = found.estimates(OUTCOME)
    ((lift, (slopes, noise)),) = found.slopes
    if estimates is None:
        return EffectNumber("effect", math.nan, math.nan, math.nan)
    moves, noise = slopes * lift.longest / found.rows, noise * lift.longest / found.rows
    sampling, whole = (float(moves @ matrix @ moves) for matrix in (lift.sampling, lift.covariance))
    privacy = whole - sampling + (bound * own.first_noise / found.rows) ** 2 + _astray(lift, moves, noise) ** 2
    privacy += (value * found.rows_noise / found.rows) ** 2
    over = _spread(own, value, bound, found.rows, 1.0)
    return _number("effect", value, over + sampling, privacy)


def _balance(design: EffectDesign, lift: Lift, total: Total) -> tuple[BalanceLine, ...]:
    """Return differences of the propensity's columns between the arms, in the deviations by which its fit standardised them."""
    assert design.propensity is not None  # it was weighted
    told = []
    for values, noise in design.balance.decode(total):
        one = float(lift.matrix[-1, -1]) or 1.0
        persons, near = np.maximum(values[:, -1:] / one, 1.0), noise[:, -1:] / one
        means = values[:, :-1] / persons
        # The noise of the persons moves a mean by the mean itself.
        variances = (noise[:, :-1] ** 2 + (means * near) ** 2) / persons**2
        told.append((means[1] - means[0], np.sqrt(variances.sum(axis=0))))
    return tuple(
        BalanceLine(name, *(float(part[k]) for pair in told for part in pair))
        for k, name in enumerate(design.propensity.names)
    )


def _life_tables(found: Found, overlap: Overlap) -> tuple[LifeTable, ...]:
    """Return the weighted life tables, each with the persons that its weights are worth."""
    assert found.exits is not None
    middles, counts = found.design.overlap.middles, np.maximum(overlap.counts.numpy(), 0.0)
    least = found.design.declared.parameters.overlap
    e = np.clip(middles, least, 1 - least)
    treated = found.design.declared.parameters.estimand == Estimand.TREATED
    weights = (e / (1 - e) if treated else 1 / (1 - e)), (np.ones_like(e) if treated else 1 / e)
    tables = []
    for own, cells, weight in zip(counts, found.exits, weights, strict=True):
        kept = np.minimum(weight, found.design.most)
        worth = float(own @ kept) / max(float(own @ kept**2), 1e-300)
        tables.append(found.design.exits.life_table(cells, found.exits_noise, worth))
    return tuple(tables)


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: both models, histograms of what follows from them, and the sums that tell the effect.


def coordinate(plan: Plan[EffectDesign]) -> Conversation:
    """Fit both models, then ask for what follows from them. What the data do not tell is no error: it is paid for, and said in words."""
    design, parts = plan.design, dict[str, Any]()
    if design.partial is not None:
        return (yield from _partialled(plan))
    for name, part in plan.parts.items():
        try:
            parts[name] = yield from conversation_under(name, load(part.study.row).coordinate(part))
        except (ProtocolError, PlanMismatch, StudyAborted):
            raise
        except (UnpooledError, ArithmeticError, np.linalg.LinAlgError):
            return _without(design, f"the {name} model has no result: the noise hides it, or no row varies along a column")
    rounds = Rounds(plan)
    yield from rounds.begin()
    found = Found(plan, _models(plan, parts), parts)
    yield from _released(rounds, found)
    found.rows, found.participants = rounds.rows, rounds.participants
    found.rows_noise, found.next_to_none = rounds.doubt, rounds.next_to_none or _few(parts[OUTCOME])
    return effect(found)


def _few(outcome: Any) -> str:  # noqa: ANN401 - the result of either outcome model
    """Return why nothing follows from so few people whose outcome is on record; empty where something may."""
    return str(getattr(outcome, "few", "") or getattr(getattr(outcome, "moments", None), "few", ""))


def _released(rounds: Rounds[EffectDesign], found: Found) -> Generator[list[Ask], Replies, None]:
    """Ask for the totals that the estimator needs after the two models, and keep them."""
    if found.design.estimator is Estimator.OUTCOME:
        yield from _by_outcome(rounds, found)
    else:
        yield from _by_weights(rounds, found)


def _partialled(plan: Plan[EffectDesign]) -> Conversation:
    """Partialling out, which has no models as parts."""
    rounds = Rounds(plan)
    yield from rounds.begin()
    return (yield from partialled(rounds))


def _by_weights(rounds: Rounds[EffectDesign], found: Found) -> Generator[list[Ask], Replies, None]:
    """Weighted exits, overlap, spread, sums, slopes and balance."""
    design = found.design
    if EXITS in design.totals:
        total = yield from rounds.total(EXITS, found.models.settings)
        found.exits, found.exits_noise = design.exits.decode(total)
        found.models = replace(found.models, watched=design.exits.watched(found.exits))
    settings = found.models.settings
    found.overlap = yield from rounds.total(OVERLAP, settings)
    total = yield from rounds.total(SPREAD, settings)
    found.spreads = spreads(found, total, rounds.rows)
    found.more = tuple(one.bound for one in found.spreads)
    if design.estimator is Estimator.AIPW:
        found.more = (found.spreads[0].centre, *found.more)
    yield from _sums(rounds, found)
    lift = next(lift for lift, _ in found.slopes if lift.name == PROPENSITY)
    more = tuple(lift.matrix.ravel().tolist())
    found.balance = lift, (yield from rounds.total(BALANCE, replace(found.models, more=more).settings))


def _by_outcome(rounds: Rounds[EffectDesign], found: Found) -> Generator[list[Ask], Replies, None]:
    """Sums of differences of means, and how they move with the coefficients."""
    found.more = (0.0, found.design.declared.widest)
    yield from _sums(rounds, found)


def _sums(rounds: Rounds[EffectDesign], found: Found) -> Generator[list[Ask], Replies, None]:
    total = yield from rounds.total(SUMS, replace(found.models, more=found.more).settings)
    found.contributed = found.design.pieces.decode(total)
    lifts = lifts_of(found)
    more = tuple(number for lift in lifts for number in (lift.longest, *lift.matrix.ravel().tolist()))
    total = yield from rounds.total(SLOPES, replace(found.models, more=more).settings)
    found.slopes = list(zip(lifts, found.design.slopes.decode(total), strict=True))


def _models(plan: Plan[EffectDesign], parts: dict[str, Any]) -> Models:
    """Return both released models: their coefficients for predictions, in the data's own units."""
    design = plan.design
    made: dict[str, ReleasedModel] = {}
    hazard = 0.0
    for name, layout in design.layouts.items():
        part = plan.parts[name]
        model = load(part.study.row)
        tables = model.tables(part, parts[name])
        # Unshrunk where they are told: what is drawn to 0 leaves confounding in the effect.
        values = (
            [term.estimate for term in model.reading.predicting(part, parts[name])]
            if tables is None
            else [*tables.best.estimate]
        )
        slopes, constants = np.array(values[: len(layout.names)]), values[len(layout.names) :]
        if name == OUTCOME and design.declared.family is OutcomeFamily.SURVIVAL:
            hazard = float(hazards_to(design.declared, constants).sum())
            constants = [0.0]
        made[name] = ReleasedModel(layout, slopes, constants[0] if constants else 0.0)
    watched = np.ones((2, len(design.declared.edges))) if design.declared.event is not None else None
    return Models(design, made[OUTCOME], made.get(PROPENSITY), hazard, watched, presence=made.get(PRESENCE))


def _without(design: EffectDesign, why: str) -> EffectResult:
    p = design.declared.parameters
    return EffectResult(p.estimand, p.estimator, design.declared.arms, p.confidence, (), design.rows, why=why)
