"""One plan that contains plans: every analysis compiled with its share of the budget, its releases and steps under its name (Theorem F.26)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unpooled.errors import UsageError, listed
from unpooled.models import load
from unpooled.models.analyses.apart import check_pool, names_of
from unpooled.privacy.analyses import Analyses, Analysis, analyses_of, budget_of, part_of
from unpooled.privacy.exposure import BETWEEN, Release, Releases
from unpooled.privacy.plan import TRUSTING, Plan, digest_of
from unpooled.privacy.unit import Calibration, Split
from unpooled.protocol.entries import LINK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from unpooled.privacy.sentence import Sentence
    from unpooled.privacy.study import Study

#: Analyses that do not add up to the budget exactly are made anew with another part of it, at most so often, until they cost this part of it; a
#: guess of the right part is made a little smaller, so that it fits.
_TRIED, _ENOUGH = 12, 0.998


@dataclass(frozen=True)
class AnalysesDesign:
    """The analyses of the study, with their shares of the budget."""

    parameters: Analyses
    shares: Mapping[str, float]


def compile_plan(study: Study) -> Plan:
    """Return the plan of all analyses of a study together."""
    asked = analyses_of(study)
    shares = {one.name: share for one, share in zip(asked.analyses, asked.shares, strict=True)}
    every_share = {
        name: share for one, share in zip(asked.analyses, asked.shares, strict=True) for name in names_of(study, one)
    }
    _check(study, asked)
    digest = digest_of(study)

    def parts(scale: float) -> dict[str, Plan]:
        return {
            name: _compiled(part_of(study, one, digest, *budget_of(study, shares[one.name], scale), name, party), name)
            for one in asked.analyses
            for name, party in names_of(study, one).items()
        }

    for name, times in Counter(name for one in asked.analyses for name in names_of(study, one)).items():
        if times > 1:
            msg = f"{times} analyses would be called {name!r}, of which one is a fit at a single site: rename the other"
            raise UsageError(msg)
    plans = _within_budget(study, parts)
    for one in asked.analyses:
        _check_apart(study, one, plans)
    every = tuple(plans.values())
    joint = sorted({plan.joint for plan in every if plan.joint})
    return Plan(
        study,
        every[0].split,
        _releases(plans),
        public=_union(plan.public for plan in every),
        not_protected=_union(plan.not_protected for plan in every),
        assumptions=_union(plan.assumptions for plan in every),
        voids=_union(plan.voids for plan in every),
        trusted=_union(plan.trusted for plan in every),
        hidden=_union(plan.hidden for plan in every),
        notes=(*_notes(plans, every_share), *_notes_apart(asked)),
        design=AnalysesDesign(asked, every_share),
        joint=TRUSTING if TRUSTING in joint else "".join(joint),
        against="; ".join(dict.fromkeys(plan.against for plan in every if plan.against)),
        maker=", ".join(sorted({plan.maker for plan in every if plan.maker})),
        analyses=plans,
    )


def _check(study: Study, asked: Analyses) -> None:
    if study.calibration != Calibration.SOUND:
        raise UsageError(
            'several analyses go together in their sound forms alone: leave calibration out, or set it to "sound"'
        )
    for one in asked.analyses:
        if one.model == LINK:
            msg = f"analysis {one.name!r} links rows, which is a study of its own that comes first"
            raise UsageError(msg)


def _check_apart(study: Study, one: Analysis, plans: Mapping[str, Plan]) -> None:
    """Refuse fits at single sites where rows are not split, and terms that they do not have."""
    if not one.apart:
        return
    for name in names_of(study, one):
        if plans[name].split is not Split.HORIZONTAL:
            msg = f"analysis {one.name!r} is fitted at every site by itself (apart), which needs the rows of people to be split, not their columns"
            raise UsageError(msg)
        check_pool(one, plans[name])


def _notes_apart(asked: Analyses) -> Iterable[str]:
    for one in asked.analyses:
        if one.apart:
            yield (
                f"analysis {one.name!r} is fitted at every site by itself: a row is at one site, so it bears the noise and the cost of one fit alone, "
                "and each fit spends the whole share"
            )


def _compiled(study: Study, name: str) -> Plan:
    try:
        return load(study.row).compile(study)
    except UsageError as error:
        msg = f"analysis {name!r}: {error}"
        raise type(error)(msg).at(party=error.party, column=error.column, release=error.release) from None


def _within_budget(study: Study, parts: Callable[[float], dict[str, Plan]]) -> dict[str, Plan]:
    """Return the plans of all analyses with the largest part of the budget at which they compose to no more than it.

    Of Gaussian releases that is all of it. Other events compose by rules that lose a little: then as much less is spent.
    """
    plans = parts(1.0)
    _check_splits(plans)
    if math.isinf(study.epsilon):
        return plans
    scale, best = 1.0, dict[str, Plan]()
    for tried in range(_TRIED):
        together = Releases(study, next(iter(plans.values())).split, _releases(plans)).cost(study.unit)
        spent = together.epsilon(study.delta)
        if together.within(study.epsilon, study.delta):
            best = plans
            if scale == 1.0 or spent >= _ENOUGH * study.epsilon:
                return best
        # Nothing is proved of what costs too much, and nothing is spent where noise hides all: then half of it, or twice.
        guess = study.epsilon / spent if 0 < spent < math.inf else 0.5 if spent else 2.0
        scale = min(scale * min(guess, 2.0) * (1 - 2.0 ** (tried - 20)), 1.0)
        plans = parts(scale)
    if not best:
        raise UsageError(
            "these analyses cannot share this budget: ask for more epsilon or a larger delta, or make two studies of them"
        )
    return best


def _check_splits(plans: Mapping[str, Plan]) -> None:
    for name, plan in plans.items():
        if plan.links:  # a model of another distribution
            msg = f"analysis {name!r} links rows, which is a study of its own that comes first"
            raise UsageError(msg)
    if len({plan.split for plan in plans.values()}) > 1:
        said = [f"{name} has {plan.split} data" for name, plan in plans.items()]
        msg = f"analyses of one study split their data alike, and here {listed(said)}: make two studies of them"
        raise UsageError(msg)


def _releases(plans: Mapping[str, Plan]) -> tuple[Release, ...]:
    """Return the releases of all analyses, with their names, steps and parts under those of the analyses."""
    return tuple(
        replace(
            release,
            name=f"{name}{BETWEEN}{release.name}",
            step=f"{name}{BETWEEN}{release.step}",
            exposure=replace(release.exposure, part=release.exposure.part and f"{name}{BETWEEN}{release.exposure.part}"),
        )
        for name, plan in plans.items()
        for release in plan.releases
    )


def _union(said: Iterable[tuple[Sentence, ...]]) -> tuple[Sentence, ...]:
    """Return the sentences of all analyses, each once."""
    found = {repr(sentence.identity): sentence for sentences in said for sentence in sentences}
    return tuple(found.values())


def _notes(plans: Mapping[str, Plan], shares: Mapping[str, float]) -> Iterable[str]:
    for name, plan in plans.items():
        study = plan.study
        alone = f"alone it costs epsilon = {study.epsilon:.4g} at delta = {study.delta:.3g}"
        yield f"analysis {name!r}: model {study.model}, {shares[name]:.0%} of the budget ({alone})"
        yield from (f"  {name}: {note}" for note in plan.notes)
