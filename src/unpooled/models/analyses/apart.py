"""Analyses that are fitted at every site by itself, with their terms pooled afterwards (Theorem F.27)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from unpooled.errors import UsageError
from unpooled.inference.printed_terms import printed_terms
from unpooled.inference.sites import PooledTerm
from unpooled.models import load
from unpooled.privacy.study import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from unpooled.inference.summary import SummaryTerm
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.study import Analysis, Study


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
    level = 0.95
    for name, site in names.items():
        inner = plan.parts[name]
        level = inner.design.parameters.level
        told, reason = _lines(inner, results[name], term, level)
        why[site] = reason
        for line in told:
            lines.setdefault(line.term, {})[site] = line
    for own, sites in (lines or {term: {}}).items():
        yield PooledTerm.of(own, level, sites, {site: why[site] or _HIDDEN for site in why if site not in sites})


_HIDDEN = "the term is not determined there (no row varies along it, or the noise exceeds what the data say of it)"


def _lines(plan: Plan, result: Any, term: str, level: float) -> tuple[tuple[SummaryTerm, ...], str]:  # noqa: ANN401 - any model's result
    """Return the lines of a term at one site, and why there are none."""
    if failed := getattr(result, "failed", ""):
        return (), failed
    tables = load(plan.study.row).tables(plan, result)
    if tables is None:
        return (
            (),
            f"its fit has no standard errors (method {result.method!r}: {sum(c.rows for c in plan.study.parties)} rows are too few for this epsilon)",
        )
    try:
        return tuple(t for t in tables.contrast(term, level=level).terms if t.identified and t.std_error > 0), ""
    except UsageError:
        return (), _HIDDEN
