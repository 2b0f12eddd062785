"""Plan of a treatment effect: two models as parts, histograms of what follows from them, and the sums that tell the effect."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UsageError
from unpooled.estimation.contained import releases_under, union, within_budget
from unpooled.inference.priors import assumed
from unpooled.linear.residuals import ResidualCells
from unpooled.models import load
from unpooled.models.effects.cells import ArmCells, overlap_cells, spread_cuts
from unpooled.models.effects.declared import (
    OUTCOME,
    PROPENSITY,
    DeclaredEffect,
    Estimand,
    Estimator,
    OutcomeFamily,
    Parameters,
    declared_of,
)
from unpooled.models.effects.exits import ExitsOfArms
from unpooled.models.effects.sums import Balance, EffectSlopes, Pieces, units_of
from unpooled.privacy.plan import Plan, digest_of
from unpooled.privacy.study import Analysis, Study, budget_of, part_of
from unpooled.privacy.unit import Adjacency, Calibration
from unpooled.totals.modes import aggregation_of
from unpooled.totals.rounds import plan_of_totals, totals_of
from unpooled.totals.total import Aggregation, Summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.linear.layout import MomentsLayout

#: The names of the totals of this model itself.
OVERLAP, SPREAD, SUMS, SLOPES, BALANCE, EXITS = "overlap", "spread", "sums", "slopes", "balance", "exits"
#: Shares of the squared budget, fixed by simulation of declared shapes (experiments/effects/shares.py).
_SHARES: dict[Estimator, dict[str, float]] = {
    Estimator.AIPW: {
        PROPENSITY: 0.25,
        OUTCOME: 0.25,
        OVERLAP: 0.03,
        SPREAD: 0.12,
        SUMS: 0.23,
        SLOPES: 0.08,
        BALANCE: 0.04,
    },
    Estimator.IPTW: {
        PROPENSITY: 0.35,
        OUTCOME: 0.05,
        OVERLAP: 0.03,
        SPREAD: 0.12,
        SUMS: 0.25,
        SLOPES: 0.15,
        BALANCE: 0.05,
    },
    Estimator.OUTCOME: {OUTCOME: 0.8, SUMS: 0.1, SLOPES: 0.1},
}
#: Weights are cut here in a table of balance and in a life table: the odds of the control are smaller than one over a probability.
_MOST = {Estimand.ALL: 5.0, Estimand.TREATED: 3.0}
#: Of survival: the part of the share of sums that exits get.
_EXITS = 0.25
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

    @property
    def parameters(self) -> Parameters:
        """Return the parameters of the study."""
        return self.declared.parameters

    @property
    def estimator(self) -> Estimator:
        """Return the way to the effect."""
        return Estimator(self.declared.parameters.estimator)

    def further(self, name: str) -> int:
        """Return how many numbers a request for this total carries in addition to both models: middles and bounds, or lifts."""
        layouts = {PROPENSITY: self.propensity, OUTCOME: self.outcome}
        lifts = {part: size * (len(layout.names) + 1) for part, size in self.sizes.items() if (layout := layouts[part])}
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
        found = {} if self.propensity is None else {PROPENSITY: self.propensity.size}
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
    own = math.fsum(share for name, share in shares.items() if name not in {PROPENSITY, OUTCOME})
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
    p = declared.parameters
    shares = dict(_SHARES[Estimator(p.estimator)])
    if declared.family is OutcomeFamily.SURVIVAL and PROPENSITY in shares:
        shares |= {EXITS: _EXITS * shares[SUMS], SUMS: (1 - _EXITS) * shares[SUMS]}
    aggregation, digest = aggregation_of(study, p.tolerate, p.nodes), digest_of(study)
    rows = sum(card.rows for card in study.parties)

    def plans(scale: float) -> dict[str, Plan]:
        made = {
            one.name: _part(part_of(study, one, digest, *budget_of(study, shares[one.name], scale)))
            for one in _analyses(study, declared)
        }
        own = math.fsum(share for name, share in shares.items() if name not in made)
        epsilon, delta = budget_of(study, own, scale)
        layouts = {name: plan.design.layout for name, plan in made.items()}
        design = EffectDesign(declared, aggregation, {}, shares, layouts[OUTCOME], layouts.get(PROPENSITY), rows)
        alone = msgspec.structs.replace(study, epsilon=epsilon, delta=delta)
        design = replace(design, totals=totals_of(alone, lambda how: _totals(design, how)))
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
        notes=tuple(_notes(dict(parts), declared, shares)),
        parts=dict(parts),
    )


def _analyses(study: Study, declared: DeclaredEffect) -> Iterator[Analysis]:
    """The studies of the parts. Each is one of the columns that it reads."""
    p = declared.parameters
    told: dict[str, Any] = {"tolerate": p.tolerate, "nodes": list(p.nodes), "max_passes": p.max_passes}
    if p.estimator != Estimator.OUTCOME:
        columns = (*declared.propensity_needs, p.treatment)
        asked = {"response": p.treatment, "family": "logistic", "formula": declared.propensity_formula}
        yield Analysis(PROPENSITY, "glm", None, columns, asked | told, dict(study.trust))
    formula = declared.outcome_formula
    columns = (*declared.outcome_needs, p.treatment, p.response)
    if p.estimator == Estimator.IPTW:  # the arms' own means, about which weighted ones are taken
        formula, columns = declared.arm_formula, (p.treatment, p.response)
    own: dict[str, Any] = {"response": p.response, "formula": formula}
    if declared.family is OutcomeFamily.LINEAR:
        yield Analysis(OUTCOME, "bayes", None, columns, own | told, dict(study.trust))
        return
    own |= {"family": p.family}
    if p.event:
        own |= {"event": p.event, "cuts": list(declared.hazard_cuts)}
        columns = (*columns, p.event)
    yield Analysis(OUTCOME, "glm", None, columns, own | told, dict(study.trust))


def _part(study: Study) -> Plan:
    """Return the plan of a part. Methods that draw slopes to 0 would leave confounding in the effect, so a part is fitted with standard errors."""
    model = load(study.row)
    plan = model.compile(study)
    if method_of(plan) not in _SHRUNK:
        return plan
    full = "refinement" if study.model == "bayes" else "newton"
    return model.compile(msgspec.structs.replace(study, parameters={**study.parameters, "method": full}))


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
