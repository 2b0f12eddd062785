"""Plan of a treatment effect: two models as parts, histograms, and the sums that tell the effect; and what a party computes of its rows for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from scipy.special import expit

from unpooled.errors import PlanMismatch, UsageError
from unpooled.estimation.contained import releases_under, union, within_budget
from unpooled.inference.priors import assumed
from unpooled.linear.design import noise_of
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.residuals import ResidualCells
from unpooled.linear.schedule import stretch_of
from unpooled.models import load
from unpooled.models.effects import partial
from unpooled.models.effects.declared import (
    OUTCOME,
    PRESENCE,
    PROPENSITY,
    DeclaredEffect,
    Estimand,
    Estimator,
    OutcomeFamily,
    Parameters,
    declared_of,
)
from unpooled.models.effects.partial import RELATIONS, PartialRows
from unpooled.models.effects.sums import (
    ArmCells,
    Balance,
    EffectSlopes,
    ExitsOfArms,
    Pieces,
    overlap_cells,
    spread_cuts,
    units_of,
)
from unpooled.privacy.bounds import COMPLETE, Coding, Column
from unpooled.privacy.plan import Plan, digest_of
from unpooled.privacy.study import Analysis, Study, budget_of, part_of
from unpooled.privacy.unit import Adjacency, Calibration
from unpooled.schedules import table
from unpooled.totals import whole_rows as whole
from unpooled.totals.modes import aggregation_of, steps_of
from unpooled.totals.rounds import plan_of_totals, strength, totals_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.total import COUNT, Aggregation, Summed, rows_counted
from unpooled.totals.whole_rows import is_there, whole_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context

    Floats = NDArray[np.float64]
    Held = Mapping[str, NDArray[Any]]
    Ints = NDArray[np.int64]
    Settings = tuple[float, ...]


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Plan of a treatment effect: two models as parts, histograms of what follows from them, and the sums that tell the effect.

#: The names of the totals of this model itself.
OVERLAP, SPREAD, SUMS, SLOPES, BALANCE, EXITS = "overlap", "spread", "sums", "slopes", "balance", "exits"
_TUNED = table("effects")
#: Shares of the squared budget, by the names of the totals and of the parts.
_SHARES: dict[Estimator, dict[str, float]] = {
    Estimator.AIPW: _TUNED.shares("aipw_shares"),
    Estimator.IPTW: _TUNED.shares("iptw_shares"),
    Estimator.OUTCOME: _TUNED.shares("outcome_shares"),
    Estimator.PARTIAL: _TUNED.shares("partial_shares"),
}
#: Weights are cut here in a table of balance and in a life table.
_MOST = {Estimand.ALL: _TUNED.weight_most, Estimand.TREATED: _TUNED.odds_most}
_EXITS = _TUNED.exits_part
#: The methods of a part that have no standard errors and may leave most of a confounder out.
_SHRUNK = frozenset({"direction", "mean", "gradient"})


@dataclass(frozen=True)
class EffectDesign:
    """A study, understood."""

    declared: DeclaredEffect
    aggregation: Aggregation
    totals: dict[str, Summed]
    shares: dict[str, float]
    #: The layouts of the rows of both models; the propensity's is None for the g-formula.
    outcome: MomentsLayout
    propensity: MomentsLayout | None
    rows: int
    #: The rows of partialling out; None where two models are parts.
    partial: PartialRows | None = None
    #: The layout of the rows of the model of whose outcome is on record; None where all have one, are left out, or no weights ask for it.
    presence: MomentsLayout | None = None

    def seen(self, table: Table) -> Table:
        """Return a party's rows that count."""
        return whole_rows(table, self.declared.always)

    @property
    def parameters(self) -> Parameters:
        """Return the parameters of the study."""
        return self.declared.parameters

    @property
    def partial_rows(self) -> PartialRows:
        """Return the rows of partialling out, of a study that is one."""
        assert self.partial is not None
        return self.partial

    @property
    def estimator(self) -> Estimator:
        """Return the way to the effect."""
        return Estimator(self.declared.parameters.estimator)

    @property
    def layouts(self) -> dict[str, MomentsLayout]:
        """Return the layouts of the rows of all models that there are."""
        made = {OUTCOME: self.outcome, PROPENSITY: self.propensity, PRESENCE: self.presence}
        return {name: layout for name, layout in made.items() if layout is not None}

    def further(self, name: str) -> int:
        """Return how many numbers a request for this total carries in addition to both models: middles and bounds, or lifts."""
        layouts = self.layouts
        lifts = {part: size * (len(layout.names) + 1) for part, size in self.sizes.items() if (layout := layouts.get(part))}
        if name == SLOPES:
            return sum(lifts.values()) + len(lifts)
        return {SUMS: 2, BALANCE: lifts.get(PROPENSITY, 0)}.get(name, 0)

    @property
    def most(self) -> float:
        """Return the largest weight in a table of balance and in a life table, where a row whose arm is certain has 1."""
        return _MOST[Estimand(self.declared.parameters.estimand)]

    @cached_property
    def overlap(self) -> ArmCells:
        """Return the cells of propensities."""
        return overlap_cells(OVERLAP, self.declared.parameters.overlap)

    @cached_property
    def spread(self) -> ResidualCells:
        """Return the cells of contributions to the effect, for the control and for the treated."""
        return ResidualCells(spread_cuts(self.declared.widest, self.declared.parameters.overlap))

    @cached_property
    def pieces(self) -> Pieces:
        """Return the sums that tell the effect: of all rows, or of each arm."""
        return Pieces(SUMS, 2 if self.estimator is Estimator.IPTW else 1, self.rows)

    @cached_property
    def slopes(self) -> EffectSlopes:
        """Return how the effect moves with the coefficients of a model."""
        return EffectSlopes(SLOPES, tuple(self.sizes.values()), self.rows)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of fitted coordinates of every model whose coefficients move the effect."""
        hazards = len(self.declared.hazard_cuts) if self.declared.family is OutcomeFamily.SURVIVAL else 0
        found = {name: layout.size for name, layout in self.layouts.items() if name != OUTCOME}
        return found if self.estimator is Estimator.IPTW else found | {OUTCOME: self.outcome.size + hazards}

    @cached_property
    def balance(self) -> Balance:
        """Return the sums of columns by arm, before and after weighting."""
        assert self.propensity is not None  # there is none without weights
        return Balance(BALANCE, self.propensity.size, self.rows)

    @cached_property
    def exits(self) -> ExitsOfArms:
        """Return the weighted life table of both arms."""
        return ExitsOfArms(EXITS, self.declared, self.most, self.rows)


def _totals(design: EffectDesign, adjacency: Adjacency) -> Iterator[Summed]:
    shares = design.shares
    own = math.fsum(share for name, share in shares.items() if name not in {PROPENSITY, OUTCOME, PRESENCE})
    for name in (EXITS, OVERLAP, SPREAD, SUMS, SLOPES, BALANCE):
        if name in shares and name != SPREAD:
            yield getattr(design, "pieces" if name == SUMS else name).vector(shares[name] / own, adjacency)
        elif name in shares:
            yield replace(design.spread.vector(shares[name] / own, units_of(adjacency)), name=SPREAD)


def compile_plan(study: Study) -> Plan:
    """Return the plan of a treatment effect: its parts, and after them its own releases."""
    if study.calibration != Calibration.SOUND:
        raise UsageError('an effect has a sound form alone: leave calibration out, or set it to "sound"')
    declared = declared_of(study)
    aggregation = aggregation_of(study, declared.parameters.tolerate, declared.parameters.nodes)
    declared, why = _chosen(study, declared, aggregation)
    p = declared.parameters
    why = (*why, *_gaps_noted(study, declared))
    if p.estimator == Estimator.PARTIAL:
        return _partial_plan(study, declared, aggregation, why)
    shares = dict(_SHARES[Estimator(p.estimator)])
    if declared.family is OutcomeFamily.SURVIVAL and PROPENSITY in shares:
        shares |= {EXITS: _EXITS * shares[SUMS], SUMS: (1 - _EXITS) * shares[SUMS]}
    if declared.unseen is not None and PROPENSITY in shares:  # it stands in the weights where the propensity stands
        shares[PRESENCE] = shares[PROPENSITY]
        shares = {name: share / (1 + shares[PROPENSITY]) for name, share in shares.items()}
    digest = digest_of(study)
    rows = sum(card.rows for card in study.parties)

    def plans(scale: float) -> dict[str, Plan]:
        made = {
            one.name: _part(one.name, part_of(study, one, digest, *budget_of(study, shares[one.name], scale)), declared)
            for one in _analyses(study, declared)
        }
        own = math.fsum(share for name, share in shares.items() if name not in made)
        epsilon, delta = budget_of(study, own, scale)
        layouts = {name: plan.design.layout for name, plan in made.items()}
        design = EffectDesign(
            declared,
            aggregation,
            {},
            shares,
            layouts[OUTCOME],
            layouts.get(PROPENSITY),
            rows,
            presence=layouts.get(PRESENCE),
        )
        alone = msgspec.structs.replace(study, epsilon=epsilon, delta=delta)
        gaps = bool(declared.always)
        design = replace(design, totals=totals_of(alone, lambda how: _totals(design, how), gaps=gaps))
        return made | {"": plan_of_totals(alone, design)}

    *parts, (_, own) = within_budget(study, plans).items()
    return replace(
        own,
        study=study,
        releases=(*releases_under(dict(parts)), *own.releases),
        public=union(plan.public for _, plan in parts),
        not_protected=union((own.not_protected, *(plan.not_protected for _, plan in parts))),
        assumptions=union((own.assumptions, *(plan.assumptions for _, plan in parts), assumed(study, p.prior))),
        trusted=union((own.trusted, *(plan.trusted for _, plan in parts))),
        notes=(*why, *_notes(dict(parts), declared, shares)),
        parts=dict(parts),
    )


def _chosen(study: Study, declared: DeclaredEffect, aggregation: Aggregation) -> tuple[DeclaredEffect, tuple[str, ...]]:
    """Return the study with its estimator, and the plan's note on why it is that one: rows, budget and columns alone decide, before any data."""
    if declared.parameters.estimator != Estimator.AUTO:
        return declared, ()
    coefficients = _layout(study, declared, declared.propensity_formula).size
    each = strength(study, aggregation) / coefficients
    weighted = each >= _TUNED.aipw_from
    found = (Estimator.AIPW, Estimand.ALL) if weighted else (Estimator.PARTIAL, Estimand.OVERLAP)
    said = (
        f"estimator auto: {found[0]}, for rows times mu are {each:.3g} for each of {coefficients} coefficients "
        f"({'at least' if weighted else 'below'} {_TUNED.aipw_from:g}, from which on weighted residuals of two models tell an effect)"
    )
    return declared.by(*found), (said,)


def _gaps_noted(study: Study, declared: DeclaredEffect) -> Iterator[str]:
    """Say which people will be left out, of what, and what that costs: of the columns that cards declare, and no others."""
    yield from whole.notes_of(declared.always, study)
    if declared.unseen is None:
        return
    expected = 0.0 if declared.always else whole.expected_missing(study)
    yield (
        f"rows without a value of {declared.unseen.name} count by what the outcome model expects of them, which is fitted to the others"
        f"{f': its rounds and clips are those of {expected:.0%} without one' if expected else ''}. The outlook says what 0%, 10% and 30% of them cost"
    )
    if declared.parameters.estimator != Estimator.OUTCOME:
        yield (
            f"rows with a value of {declared.unseen.name} count by one over the chance to have one, which is a model of its own: where hardly any row lacks it, "
            'the noise hides which ones do, and errors are larger than with more of them (missing = "refuse" goes without that model)'
        )


def strength_of(plan: Plan[EffectDesign]) -> float:
    """Return rows times mu for each coefficient of the covariates, by which "auto" chooses."""
    design, study = plan.design, plan.study
    return strength(study, design.aggregation) / _layout(study, design.declared, design.declared.propensity_formula).size


def _layout(study: Study, declared: DeclaredEffect, formula: str) -> MomentsLayout:
    """Return the layout of the rows of a formula, with the outcome as response where it is a number."""
    needs = {declared.response.name, declared.treatment.name, *declared.propensity_needs}
    columns = [column for column in study.parties[0].columns if column.name in needs]
    rows = sum(card.rows for card in study.parties)
    return MomentsLayout.of(columns, declared.response.name, rows, formula=formula)


def _partial_plan(study: Study, declared: DeclaredEffect, aggregation: Aggregation, why: tuple[str, ...]) -> Plan:
    """Return the plan of partialling out, which has no parts: treatment and outcome share one release of second moments."""
    rows, shares = sum(card.rows for card in study.parties), _SHARES[Estimator.PARTIAL]
    layout, covariates = (_layout(study, declared, text) for text in (declared.partial_formula, declared.propensity_formula))
    strong = strength(study, aggregation)
    own = PartialRows.of(
        layout,
        covariates,
        (declared.treatment.name, declared.arms[1]),
        rows,
        counted=strong / layout.size < _TUNED.partial_counted,
    )
    noise = noise_of(own.opened(1.0).standard, strong, shares[RELATIONS], Adjacency(study.adjacency))
    own = own.opened(stretch_of(noise, rows))
    design = EffectDesign(declared, aggregation, {}, shares, layout, None, rows, own)
    gaps = bool(declared.left_out)
    design = replace(design, totals=totals_of(study, lambda how: own.totals(shares, how), gaps=gaps))
    p = declared.parameters
    control, treated = declared.arms
    said = (
        *why,
        f"{p.estimand} of {treated} against {control} by {p.estimator}: people count by how open their treatment was",
        ", ".join(f"{name} {share:.0%}" for name, share in shares.items()),
    )
    return plan_of_totals(study, design, assumptions=assumed(study, p.prior), notes=said)


def _analyses(study: Study, declared: DeclaredEffect) -> Iterator[Analysis]:
    """The studies of the parts. Each is one of the columns that it reads."""
    p = declared.parameters
    told: dict[str, Any] = {"tolerate": p.tolerate, "nodes": list(p.nodes), "max_passes": p.max_passes}
    fewer = {"expected_missing": p.expected_missing} if p.expected_missing else {}
    everybody = told | (fewer if declared.always else {})
    if p.estimator != Estimator.OUTCOME:
        columns = (*declared.propensity_needs, p.treatment)
        asked = {"response": p.treatment, "family": "logistic", "formula": declared.propensity_formula}
        yield Analysis(PROPENSITY, "glm", None, columns, asked | everybody, dict(study.trust))
        if declared.unseen is not None:
            asked = {"response": p.response, "family": "logistic", "formula": declared.partial_formula}
            yield Analysis(PRESENCE, "glm", None, (*columns, p.response), asked | everybody, dict(study.trust))
    formula = declared.outcome_formula
    columns = (*declared.outcome_needs, p.treatment, p.response)
    if p.estimator == Estimator.IPTW:  # the arms' own means, about which weighted ones are taken
        formula, columns = declared.arm_formula, (p.treatment, p.response)
    own: dict[str, Any] = {"response": p.response, "formula": formula} | fewer
    if declared.family is OutcomeFamily.LINEAR:
        yield Analysis(OUTCOME, "bayes", None, columns, own | told, dict(study.trust))
        return
    own |= {"family": p.family}
    if p.event:
        own |= {"event": p.event, "cuts": list(declared.hazard_cuts)}
        columns = (*columns, p.event)
    yield Analysis(OUTCOME, "glm", None, columns, own | told, dict(study.trust))


def _part(name: str, study: Study, declared: DeclaredEffect) -> Plan:
    """Return the plan of a part, fitted to the people of the effect; an outcome model to those of them whose outcome is on record.

    Methods that draw slopes to 0 would leave confounding in the effect, so a part is fitted with standard errors.
    """
    model, left_out = load(study.row), declared.left_out if name == OUTCOME else declared.always
    if name == PRESENCE:
        presence = Column(declared.response.name, categories=whole.PRESENCE)
        study = _with_columns(study, {presence.name: presence})
    if left_out:  # every part reads the treatment: it has a count of its own, and any value may move a whole row of it
        study = _with_columns(
            study, {declared.treatment.name: msgspec.structs.replace(declared.treatment, missing=COMPLETE)}
        )
    plan = model.compile(study)
    if method_of(plan) in _SHRUNK:
        full = "refinement" if study.model == "bayes" else "newton"
        plan = model.compile(msgspec.structs.replace(study, parameters={**study.parameters, "method": full}))
    # Who is left out is said of the effect, by the columns that may be missing.
    said = whole.notes_of(plan.design.layout.left_out, study)
    plan = replace(plan, notes=tuple(note for note in plan.notes if note not in said))
    asked: dict[str, Any] = {"left_out": left_out} if left_out else {}
    asked |= {"presence": (declared.unseen,)} if name == PRESENCE else {}
    return replace(plan, design=replace(plan.design, layout=replace(plan.design.layout, **asked))) if asked else plan


def _with_columns(study: Study, columns: Mapping[str, Column]) -> Study:
    """Return the study in which every party declares these columns, by their names, in the place of its own."""
    return msgspec.structs.replace(
        study,
        parties=tuple(
            msgspec.structs.replace(card, columns=tuple(columns.get(c.name, c) for c in card.columns))
            for card in study.parties
        ),
    )


def method_of(plan: Plan) -> str:
    """Return how a part spends its budget."""
    design = plan.design
    return str(getattr(design, "method", None) or design.schedule.method)


def _notes(parts: dict[str, Plan], declared: DeclaredEffect, shares: dict[str, float]) -> Iterator[str]:
    p = declared.parameters
    control, treated = declared.arms
    yield f"{p.estimand} of {treated} against {control} by {p.estimator}; propensities are kept between {p.overlap:g} and {1 - p.overlap:g}"
    for name, plan in parts.items():
        yield f"{name}: model {plan.study.model}, {shares[name]:.0%} of the budget"
        yield from (f"  {name}: {note}" for note in plan.notes)
    yield "then " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if name not in parts)


# --- Values of rows --------------------------------------------------------------------------------------------------------
# Values of single rows: what two released models say of a row, and what the row contributes to the effect.

#: Public numbers of a request are below this, so that every value of a row is finite.
_LARGEST = 1e9
#: The largest linear predictor.
_FARTHEST = 300.0


@dataclass(frozen=True)
class ReleasedModel:
    """A released linear predictor: of coded columns in the data's own units."""

    layout: MomentsLayout
    slopes: Floats
    constant: float

    def natural(self, held: Held) -> Floats:
        """Return the rows that the coefficients multiply."""
        made = self.layout.made
        names = [column.name for column in self.layout.features]
        raw = made.values(held, names) if made is not None else [held[name] for name in names]
        return np.asarray(Coding(self.layout.features, 1).natural(raw))

    def fitted(self, held: Held, lift: Floats) -> Floats:
        """Return the rows in the coordinates in which the model was fitted; ``lift`` leads from these to coefficients and constant."""
        natural = self.natural(held)
        return np.asarray(natural @ lift[:-1] + lift[-1])

    def predictor(self, held: Held) -> Floats:
        """Return the linear predictors of these rows."""
        return np.clip(np.nan_to_num(self.natural(held) @ self.slopes + self.constant), -_FARTHEST, _FARTHEST)


@dataclass(frozen=True)
class Models:
    """Both released models, as everybody evaluates them, and the numbers that later requests carry."""

    design: EffectDesign
    outcome: ReleasedModel
    propensity: ReleasedModel | None
    #: Of survival: the integrated baseline hazard to the horizon.
    hazard: float = 0.0
    #: Of survival: both arms' probability of still being watched, at the ends of the intervals.
    watched: Floats | None = None
    more: tuple[float, ...] = ()
    #: Whose outcome is on record; None where that is nobody's question.
    presence: ReleasedModel | None = None

    @classmethod
    def of(cls, design: EffectDesign, settings: tuple[float, ...], further: int) -> Models:
        """Return the models of a request, and this number of further numbers; refuse another count, or wild ones. No sensitivity depends on them."""
        numbers = np.asarray(settings, dtype=np.float64)
        models: dict[str, ReleasedModel] = {}
        at = 0
        least = sum(len(layout.names) + 1 for layout in design.layouts.values())
        survival = design.declared.family is OutcomeFamily.SURVIVAL
        ends = 2 * len(design.exits.edges) if survival else 0
        count = least + survival + ends + further
        if numbers.size != count or not (np.abs(numbers) <= _LARGEST).all():
            msg = f"this request about an effect carries {count} finite numbers"
            raise PlanMismatch(msg)
        for name, layout in design.layouts.items():
            p = len(layout.names)
            models[name] = ReleasedModel(layout, numbers[at : at + p], float(numbers[at + p]))
            at += p + 1
        hazard = float(numbers[at]) if survival else 0.0
        at += survival
        watched = numbers[at : at + ends].reshape(2, -1) if ends else None
        more = tuple(numbers[at + ends :].tolist())
        return cls(design, models[OUTCOME], models.get(PROPENSITY), hazard, watched, more, models.get(PRESENCE))

    @property
    def settings(self) -> tuple[float, ...]:
        """Return the numbers of a request, in the order in which :meth:`of` reads them."""
        found: list[float] = []
        for model in (self.outcome, self.propensity, self.presence):
            found += [] if model is None else [*model.slopes.tolist(), model.constant]
        if self.design.declared.family is OutcomeFamily.SURVIVAL:
            assert self.watched is not None
            found += [self.hazard, *self.watched.ravel().tolist()]
        # Coefficients of a model that the noise has carried off: what follows from them is said to be nothing, and no row overflows.
        return tuple(np.clip(np.nan_to_num([*found, *self.more]), -_LARGEST, _LARGEST).tolist())


@dataclass(frozen=True)
class Rows:
    """A block of rows: arms, outcomes, and what the models say of them."""

    models: Models
    held: Held
    treated: NDArray[np.bool_]
    #: The outcome between its limits, and the weight by which those count of whom it is known.
    outcome: Floats
    known: Floats

    @classmethod
    def blocks(cls, table: Table, models: Models) -> Iterator[Rows]:
        """Blocks of a party's table."""
        declared = models.design.declared
        names = tuple(dict.fromkeys((*declared.reads, *declared.outcome_needs, *declared.propensity_needs)))
        for block in table.blocks(names):
            held = dict(zip(names, block, strict=True))
            treated = np.asarray(Coding((declared.treatment,), 1).code((held[declared.treatment.name],))[0][:, 1] > 0)
            if declared.event is None:
                raw, known = held[declared.response.name], np.ones(treated.size)
                if declared.unseen is not None:
                    known = is_there(declared.unseen, raw).astype(np.float64)
                if declared.response.categories is not None:
                    outcome = Coding((declared.unseen or declared.response,), 1).code((raw,))[0][:, 1].astype(np.float64)
                else:
                    outcome = np.where(known > 0, np.clip(raw, *declared.limits), declared.limits[0])
            else:
                outcome, known = models.design.exits.at_horizon(held, treated, models.watched)
            yield cls(models, held, treated, outcome, known)

    @property
    def propensity(self) -> Floats:
        """Return the probability of treatment that the model gives these rows, as it is."""
        assert self.models.propensity is not None
        return np.asarray(expit(self.models.propensity.predictor(self.held)))

    @property
    def presence(self) -> Floats:
        """Return the chance that the model gives these rows, in their own arms, to have an outcome on record."""
        assert self.models.presence is not None
        return np.asarray(expit(self.models.presence.predictor(self.held)))

    @property
    def chance(self) -> Floats:
        """Return the propensity, times the chance of an outcome on record where not all have one: in its arm a row is so much nearer to the end of the other."""
        if self.models.presence is None:
            return self.propensity
        e, there = self.propensity, self.presence
        return np.where(self.treated, e * there, 1 - (1 - e) * there)

    @property
    def kept_propensity(self) -> Floats:
        """Return the same between the declared ends."""
        least = self.models.design.declared.parameters.overlap
        return np.clip(self.propensity, least, 1 - least)

    def _under(self, arm: int) -> Held:
        """Return the rows as if all had this treatment."""
        declared = self.models.design.declared
        return {**self.held, declared.treatment.name: np.full(self.treated.size, declared.arms[arm], dtype=object)}

    def mean(self, arm: int) -> Floats:
        """Return the outcome that is expected of these rows under this treatment, between its limits."""
        return self._mean_of(self.models.outcome.predictor(self._under(arm)))

    def _mean_of(self, u: Floats) -> Floats:
        declared = self.models.design.declared
        if declared.family is OutcomeFamily.LOGISTIC:
            return np.asarray(expit(u))
        if declared.family is OutcomeFamily.SURVIVAL:
            return np.asarray(np.exp(-abs(self.models.hazard) * np.exp(np.minimum(u, 50.0))))
        return np.clip(np.exp(u) if declared.logs else u, *declared.limits)

    def moved(self, arm: int, lift: Floats) -> Floats:
        """Return how that mean moves with the outcome model's coefficients, as they were fitted, a column each."""
        held = self._under(arm)
        declared, model = self.models.design.declared, self.models.outcome
        mean = self._mean_of(model.predictor(held))
        steep = {OutcomeFamily.LINEAR: np.ones_like(mean), OutcomeFamily.LOGISTIC: mean * (1 - mean)}.get(
            declared.family, mean
        )
        if declared.family is OutcomeFamily.SURVIVAL:
            steep = mean * np.log(np.maximum(mean, 1e-300))
        return np.asarray(steep[:, None] * model.fitted(held, lift))

    # --- contributions ---------------------------------------------------------------------------------------------------

    @property
    def weights(self) -> Floats:
        """Return one over the probability of the arm that a row is in; of the effect on the treated, the odds in the control."""
        e, estimand = self.kept_propensity, self.models.design.declared.parameters.estimand
        if estimand == Estimand.TREATED:
            return np.where(self.treated, 1.0, e / (1 - e))
        return np.where(self.treated, 1 / e, 1 / (1 - e))

    @property
    def counted(self) -> Floats:
        """Return the weight of every row's residual: 0 where the outcome is not known, else one over the chance of its arm and of being known in it (Theorem E.6)."""
        if self.models.presence is None:
            return self.weights * self.known
        e, parameters = self.kept_propensity, self.models.design.declared.parameters
        arm = np.where(self.treated, e, 1 - e)
        whom = e if parameters.estimand == Estimand.TREATED else 1.0
        return np.asarray(whom * self.known / np.maximum(arm * self.presence, parameters.overlap))

    @property
    def parts_of_weights(self) -> Floats:
        """Return the same as parts of the largest weight that counts."""
        return np.minimum(self.weights / self.models.design.most, 1.0)

    @property
    def standard(self) -> Floats:
        """Return the rows in the coordinates in which the propensity was fitted: standardised columns, and the constant."""
        model = self.models.propensity
        assert model is not None  # weights have one
        return model.fitted(self.held, np.array(self.models.more).reshape(len(model.layout.names) + 1, -1))

    def contributions(self) -> Floats:
        """Return what every row adds to n times the effect, as the estimator has it."""
        design = self.models.design
        if design.estimator is Estimator.OUTCOME:
            return self.mean(1) - self.mean(0)
        sign, means = np.where(self.treated, 1.0, -1.0), (self.mean(0), self.mean(1))
        treated = design.declared.parameters.estimand == Estimand.TREATED
        if treated and self.models.presence is None:
            return np.asarray(sign * self.counted * (self.outcome - means[0]))
        whole = sign * self.counted * (self.outcome - np.where(self.treated, means[1], means[0]))
        if design.estimator is Estimator.IPTW:
            return np.asarray(whole)
        return np.asarray(whole + (means[1] - means[0]) * (self.treated if treated else 1.0))

    def pieces(self) -> list[Floats]:
        """Return contributions about their middles in parts of their bounds: of all rows, or of each arm."""
        design, values = self.models.design, self.contributions()
        if design.estimator is not Estimator.IPTW:
            centre, bound = self.models.more
            about = centre * self.treated if design.declared.parameters.estimand == Estimand.TREATED else centre
            return [(values - about) / bound]
        return [
            np.where(self.treated == arm, values / bound, 0.0)
            for arm, bound in zip((False, True), self.models.more, strict=True)
        ]

    def slopes(self) -> list[Floats]:
        """Return how contributions move with coefficients, in parts of the largest length: a row's vector for each model."""
        design, more = self.models.design, np.array(self.models.more)
        found = []
        for name, size in design.sizes.items():
            count = size * (len(design.layouts[name].names) + 1)
            longest, lift, more = more[0], more[1 : count + 1].reshape(-1, size), more[count + 1 :]
            by = {PROPENSITY: self._by_propensity, PRESENCE: self._by_presence, OUTCOME: self._by_outcome}[name]
            found.append(by(lift) / longest)
        return found

    def _by_propensity(self, lift: Floats) -> Floats:
        design, model = self.models.design, self.models.propensity
        assert model is not None  # it has a slope
        e, least = self.propensity, design.declared.parameters.overlap
        inside = (e > least) & (e < 1 - least)  # where it is cut, it does not move
        treated = design.declared.parameters.estimand == Estimand.TREATED
        own = self.mean(0) if treated else np.where(self.treated, self.mean(1), self.mean(0))
        known = self.known
        if self.models.presence is not None:
            there = self.presence
            inside &= np.where(self.treated, e, 1 - e) * there > least
            known = np.divide(known, there, out=np.zeros_like(there), where=inside)
        residual = np.where(inside, known * (self.outcome - own), 0.0)
        odds = np.divide(e, 1 - e, out=np.ones_like(e), where=inside)
        steep = np.where(self.treated, 0.0, odds) if treated else np.where(self.treated, 1 / odds, odds)
        return np.asarray((-residual * steep)[:, None] * model.fitted(self.held, lift))

    def _by_presence(self, lift: Floats) -> Floats:
        model, there = self.models.presence, self.presence
        assert model is not None  # it has a slope
        e, least = self.kept_propensity, self.models.design.declared.parameters.overlap
        inside = np.where(self.treated, e, 1 - e) * there > least
        residual = np.where(self.treated, 1.0, -1.0) * (self.outcome - np.where(self.treated, self.mean(1), self.mean(0)))
        steep = np.where(inside, -self.counted * (1 - there) * residual, 0.0)
        return np.asarray(steep[:, None] * model.fitted(self.held, lift))

    def _by_outcome(self, lift: Floats) -> Floats:
        design, moved = self.models.design, [self.moved(arm, lift) for arm in (0, 1)]
        if design.estimator is Estimator.OUTCOME:
            return moved[1] - moved[0]
        weights = self.counted
        if design.declared.parameters.estimand == Estimand.TREATED:
            if self.models.presence is not None:
                return (
                    np.where(self.treated, 1 - weights, 0.0)[:, None] * moved[1]
                    + np.where(self.treated, -1.0, weights)[:, None] * moved[0]
                )
            return np.where(self.treated, -1.0, weights)[:, None] * moved[0]
        used = np.where(self.treated, 1 - weights, 1.0)[:, None] * moved[1]
        return np.asarray(used - np.where(self.treated, 1.0, 1 - weights)[:, None] * moved[0])


# --- The party's steps -----------------------------------------------------------------------------------------------------
# The only part of this model that touches raw data: counts and sums of what rows contribute to an effect.


def _added(name: str, added_up: Callable[[EffectDesign, Rows], Ints]) -> Callable[[Context[EffectDesign], Settings], Ints]:
    """Return the statistic that adds a vector up over the blocks of a party's rows."""

    def statistic(context: Context[EffectDesign], settings: Settings) -> Ints:
        models = Models.of(context.design, settings, context.design.further(name))
        blocks = (added_up(context.design, rows) for rows in Rows.blocks(context.table, models))
        return np.asarray(sum(blocks), dtype=np.int64)

    return statistic


#: What a party adds up, by the name of the total.
STATISTICS = {
    COUNT: rows_counted,
    EXITS: _added(EXITS, lambda design, rows: design.exits.added_up(rows.held, rows.treated, rows.parts_of_weights)),
    OVERLAP: _added(OVERLAP, lambda design, rows: design.overlap.added_up(rows.chance, rows.treated)),
    SPREAD: _added(SPREAD, lambda design, rows: design.spread.added_up(rows.contributions(), rows.treated)),
    SUMS: _added(SUMS, lambda design, rows: design.pieces.added_up(rows.pieces())),
    SLOPES: _added(SLOPES, lambda design, rows: design.slopes.added_up(rows.slopes())),
    BALANCE: _added(
        BALANCE, lambda design, rows: design.balance.added_up(rows.standard, rows.treated, rows.parts_of_weights)
    ),
    **partial.STATISTICS,
}

STEPS = (KEYS, *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)))
