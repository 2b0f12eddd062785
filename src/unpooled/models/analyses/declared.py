"""Several analyses in one plan, each with its share of the budget (Theorem F.26); and those that are fitted at every site by itself (Theorem F.27)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from unpooled.errors import UsageError, listed
from unpooled.estimation.contained import releases_under, union, within_budget
from unpooled.inference.printed_terms import printed_terms
from unpooled.inference.sites import PooledTerm
from unpooled.models import load
from unpooled.privacy.plan import TRUSTING, Plan, digest_of
from unpooled.privacy.study import NAME, Analyses, Analysis, analyses_of, budget_of, part_of
from unpooled.privacy.unit import Calibration, Split
from unpooled.protocol.registry import LINK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from unpooled.inference.summary import SummaryTerm
    from unpooled.privacy.study import Study


# --- Fitted apart, pooled afterwards ---------------------------------------------------------------------------------------
# Analyses that are fitted at every site by itself, with their terms pooled afterwards (Theorem F.27).


def names_of(study: Study, one: Analysis) -> dict[str, str]:
    """Return the names of the plans of an analysis, each with the party whose rows it uses; the empty one uses those of all."""
    if not one.apart:
        if one.pool:
            msg = f"analysis {one.name!r}: pool names terms of fits at every site: it goes with apart = true"
            raise UsageError(msg)
        return {one.name: ""}
    if len(study.parties) == 1:
        msg = f"analysis {one.name!r} is fitted at every site by itself (apart), and this study has one: leave apart out"
        raise UsageError(msg)
    named = {f"{one.name} at {card.name}": card.name for card in study.parties}
    if all(re.fullmatch(NAME, name) for name in named):
        return named
    # Names of parties may be longer and of more letters than those of analyses: then sites are numbered in their order.
    named = {f"{one.name} at site {number}": card.name for number, card in enumerate(study.parties, 1)}
    if longest := next((name for name in named if not re.fullmatch(NAME, name)), ""):
        msg = f"the analysis at one site would be called {longest!r}, which is too long: shorten {one.name!r}"
        raise UsageError(msg)
    return named


def check_pool(one: Analysis, plan: Plan) -> None:
    """Refuse terms that the fits of an analysis do not have, and models that have no terms."""
    layout: Any = getattr(plan.design, "layout", None)
    parameters: Any = getattr(plan.design, "parameters", None)
    if not (hasattr(layout, "terms") and hasattr(parameters, "reference")):
        msg = f"analysis {one.name!r}: model {plan.study.model!r} has no terms with standard errors to pool: 'bayes' and 'glm' have them"
        raise UsageError(msg)
    labels = getattr(getattr(plan.design, "family", None), "labels", ())
    reference = dict(parameters.reference)
    against = reference.pop(parameters.response, labels[0] if labels else "")
    printed = printed_terms(layout.terms.with_constants(layout.constants), reference, parameters.coding)
    if labels:
        printed = printed.of_classes(labels, against)
    for term in one.pool:
        try:
            printed.contrasts(term)
        except UsageError as error:
            msg = f"analysis {one.name!r}, pool: {error}"
            raise UsageError(msg) from None


def pooled_of(plan: Plan[Any], results: Mapping[str, Any]) -> dict[str, tuple[PooledTerm, ...]]:
    """Return the meta-analyses of the terms of every analysis that was fitted apart; none of one whose fits have not all ended."""
    found = {}
    for one in plan.design.parameters.analyses:
        names = names_of(plan.study, one)
        if one.pool and all(name in results for name in names):
            found[one.name] = tuple(pooled for term in one.pool for pooled in _pooled(plan, results, names, term))
    return found


def _pooled(plan: Plan, results: Mapping[str, Any], names: Mapping[str, str], term: str) -> Iterator[PooledTerm]:
    """Yield the meta-analysis of every line of a term: a column of categories has several."""
    lines: dict[str, dict[str, SummaryTerm]] = {}
    why: dict[str, str] = {}
    confidence = 0.95
    for name, site in names.items():
        inner = plan.parts[name]
        confidence = inner.design.parameters.confidence
        told, reason = _lines(inner, results[name], term, confidence)
        why[site] = reason
        for line in told:
            lines.setdefault(line.term, {})[site] = line
    for own, sites in (lines or {term: {}}).items():
        yield PooledTerm.of(own, confidence, sites, {site: why[site] or _HIDDEN for site in why if site not in sites})


_HIDDEN = "the term is not determined there (no row varies along it, or the noise exceeds what the data say of it)"


def _lines(plan: Plan, result: Any, term: str, confidence: float) -> tuple[tuple[SummaryTerm, ...], str]:  # noqa: ANN401 - any model's result
    """Return the lines of a term at one site, and why there are none."""
    if failed := getattr(result, "failed", ""):
        return (), failed
    tables = load(plan.study.row).tables(plan, result)
    if tables is None:
        return (
            (),
            f"its fit has no standard errors (method {result.method!r}: {sum(c.rows for c in plan.study.parties)} rows are too few for this epsilon)",
        )
    tables = replace(tables, common={})  # what is common differs between sites, and their lines have to be the same
    try:
        return tuple(t for t in tables.contrast(term, confidence=confidence).terms if t.identified and t.std_error > 0), ""
    except UsageError:
        return (), _HIDDEN


# --- Plan ------------------------------------------------------------------------------------------------------------------
# One plan that contains plans: every analysis compiled with its share of the budget, its releases and steps under its name (Theorem F.26).


@dataclass(frozen=True)
class AnalysesDesign:
    """The analyses of the study, with their shares of the budget."""

    parameters: Analyses
    shares: Mapping[str, float]
    #: Which sites of a meta-analysis will be left out, for their fits have no table; empty where none is.
    untabled: str = ""


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
    without = [
        party for one, _, name, party in every_part if one.apart and getattr(plans[name].design, "untabled", "") != ""
    ]
    left = (
        f"{listed(without)} will be left out of what is pooled: with so few rows and this epsilon a fit at a single site makes no table"
        if without
        else ""
    )
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
        notes=(*_notes(plans, shares), *_notes_apart(asked), *filter(None, (left,))),
        design=AnalysesDesign(asked, shares, left),
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
