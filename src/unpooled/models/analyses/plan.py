"""One plan that contains plans: every analysis compiled with its share of the budget, its releases and steps under its name (Theorem F.26)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.errors import UsageError, listed
from unpooled.estimation.contained import releases_under, union, within_budget
from unpooled.models import load
from unpooled.models.analyses.apart import check_pool, names_of
from unpooled.privacy.plan import TRUSTING, Plan, digest_of
from unpooled.privacy.study import Analyses, Analysis, analyses_of, budget_of, part_of
from unpooled.privacy.unit import Calibration, Split
from unpooled.protocol.registry import LINK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from unpooled.privacy.study import Study


@dataclass(frozen=True)
class AnalysesDesign:
    """The analyses of the study, with their shares of the budget."""

    parameters: Analyses
    shares: Mapping[str, float]


def compile_plan(study: Study) -> Plan:
    """Return the plan of all analyses of a study together."""
    asked = analyses_of(study)
    every_part = _parts(study, asked)
    shares = {name: share for _, share, name, _ in every_part}
    _check(study, asked)
    digest = digest_of(study)

    def parts(scale: float) -> dict[str, Plan]:
        return {
            name: _compiled(part_of(study, one, digest, *budget_of(study, shares[name], scale), name, party), name)
            for one, _, name, party in every_part
        }

    _check_splits(parts(1.0))
    plans = within_budget(study, parts)
    for one, _, name, _ in every_part:
        if one.apart:
            _check_apart(one, plans[name])
    every = tuple(plans.values())
    joint = sorted({plan.joint for plan in every if plan.joint})
    return Plan(
        study,
        every[0].split,
        releases_under(plans),
        public=union(plan.public for plan in every),
        not_protected=union(plan.not_protected for plan in every),
        assumptions=union(plan.assumptions for plan in every),
        voids=union(plan.voids for plan in every),
        trusted=union(plan.trusted for plan in every),
        hidden=union(plan.hidden for plan in every),
        notes=(*_notes(plans, shares), *_notes_apart(asked)),
        design=AnalysesDesign(asked, shares),
        joint=TRUSTING if TRUSTING in joint else "".join(joint),
        against="; ".join(dict.fromkeys(plan.against for plan in every if plan.against)),
        excepted=tuple(dict.fromkeys(who for plan in every for who in plan.excepted)),
        maker=", ".join(sorted({plan.maker for plan in every if plan.maker})),
        parts=plans,
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


def _parts(study: Study, asked: Analyses) -> list[tuple[Analysis, float, str, str]]:
    """Return (analysis, its share, the name of its plan, the one party whose rows it uses or none) of every plan; refuse two of one name."""
    found = [
        (one, share, name, party)
        for one, share in zip(asked.analyses, asked.shares, strict=True)
        for name, party in names_of(study, one).items()
    ]
    for name, times in Counter(name for _, _, name, _ in found).items():
        if times > 1:
            msg = f"{times} analyses would be called {name!r}, of which one is a fit at a single site: rename the other"
            raise UsageError(msg)
    return found


def _check_apart(one: Analysis, plan: Plan) -> None:
    """Refuse fits at single sites where rows are not split, and terms that they do not have."""
    if plan.split is not Split.HORIZONTAL:
        msg = f"analysis {one.name!r} is fitted at every site by itself (apart), which needs the rows of people to be split, not their columns"
        raise UsageError(msg)
    check_pool(one, plan)


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


def _check_splits(plans: Mapping[str, Plan]) -> None:
    for name, plan in plans.items():
        if plan.links:  # a model of another distribution
            msg = f"analysis {name!r} links rows, which is a study of its own that comes first"
            raise UsageError(msg)
    if len({plan.split for plan in plans.values()}) > 1:
        said = [f"{name} has {plan.split} data" for name, plan in plans.items()]
        msg = f"analyses of one study split their data alike, and here {listed(said)}: make two studies of them"
        raise UsageError(msg)


def _notes(plans: Mapping[str, Plan], shares: Mapping[str, float]) -> Iterable[str]:
    for name, plan in plans.items():
        study = plan.study
        alone = f"alone it costs epsilon = {study.epsilon:.4g} at delta = {study.delta:.3g}"
        yield f"analysis {name!r}: model {study.model}, {shares[name]:.0%} of the budget ({alone})"
        yield from (f"  {name}: {note}" for note in plan.notes)
