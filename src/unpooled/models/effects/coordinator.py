"""Pure generator: both models, histograms of what follows from them, and the sums that tell the effect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted, UnpooledError
from unpooled.estimation.contained import conversation_under
from unpooled.models import load
from unpooled.models.effects import estimating
from unpooled.models.effects.declared import OUTCOME, PROPENSITY, Estimator, OutcomeFamily
from unpooled.models.effects.estimating import Found
from unpooled.models.effects.plan import BALANCE, EXITS, OVERLAP, SLOPES, SPREAD, SUMS
from unpooled.models.effects.result import EffectResult
from unpooled.models.effects.values import Models, ReleasedModel
from unpooled.totals.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.models.effects.plan import EffectDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Conversation, Replies


def coordinate(plan: Plan[EffectDesign]) -> Conversation:
    """Fit both models, then ask for what follows from them. What the data do not tell is no error: it is paid for, and said in words."""
    design, parts = plan.design, dict[str, Any]()
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
    if design.estimator is Estimator.OUTCOME:
        yield from _by_outcome(rounds, found)
    else:
        yield from _by_weights(rounds, found)
    found.rows, found.participants = rounds.rows, rounds.participants
    return estimating.effect(found)


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
    found.spreads = estimating.spreads(found, total, rounds.rows)
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
    lifts = estimating.lifts(found)
    more = tuple(number for lift in lifts for number in (lift.longest, *lift.matrix.ravel().tolist()))
    total = yield from rounds.total(SLOPES, replace(found.models, more=more).settings)
    found.slopes = list(zip(lifts, found.design.slopes.decode(total), strict=True))


def _models(plan: Plan[EffectDesign], parts: dict[str, Any]) -> Models:
    """Return both released models: their coefficients for predictions, in the data's own units."""
    design = plan.design
    made: dict[str, ReleasedModel] = {}
    hazard = 0.0
    for name, layout in ((OUTCOME, design.outcome), (PROPENSITY, design.propensity)):
        if layout is None:
            continue
        part = plan.parts[name]
        model = load(part.study.row)
        tables = model.tables(part, parts[name])
        # Unshrunk where they are told: what is drawn to 0 leaves confounding in the effect.
        values = (
            [term.estimate for term in model.reading.predicting(part, parts[name])]
            if tables is None
            else [*tables.estimates.estimate]
        )
        slopes, constants = np.array(values[: len(layout.names)]), values[len(layout.names) :]
        if name == OUTCOME and design.declared.family is OutcomeFamily.SURVIVAL:
            hazard = float(estimating.hazards_to(design.declared, constants).sum())
            constants = [0.0]
        made[name] = ReleasedModel(layout, slopes, constants[0] if constants else 0.0)
    watched = np.ones((2, len(design.declared.edges))) if design.declared.event is not None else None
    return Models(design, made[OUTCOME], made.get(PROPENSITY), hazard, watched)


def _without(design: EffectDesign, why: str) -> EffectResult:
    p = design.declared.parameters
    return EffectResult(p.estimand, p.estimator, design.declared.arms, p.level, (), design.rows, why=why)
