"""Linear tables of rows of which it is modelled whether they are whole: what is refused, the plan, and what a party adds up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.estimation.contained import releases_under, union, within_budget
from unpooled.formula.arithmetic import quoted
from unpooled.inference.priors import assumed
from unpooled.inference.sites import SiteEffects
from unpooled.linear.design import gradients
from unpooled.linear.residuals import covariance_of
from unpooled.linear.schedule import Method
from unpooled.linear.tilted import (
    FIRST,
    INFLUENCE,
    INFORMATION,
    SCORE,
    SPREADS,
    FineRows,
    TiltedRows,
    check,
    check_response,
    kept_features,
)
from unpooled.models import load
from unpooled.models.bayes.declared import PARTS, Parameters, design_of, paper_parameters, plan_of
from unpooled.privacy.bounds import COMPLETE, Column, integer_grid
from unpooled.privacy.plan import digest_of
from unpooled.privacy.study import Analysis, budget_of, check_parameters, part_of
from unpooled.schedules import table
from unpooled.totals import whole_rows as gaps
from unpooled.totals.modes import aggregation_of
from unpooled.totals.rounds import strength, totals_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.tilted import TiltedLaw
    from unpooled.models.bayes.declared import BayesDesign
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.study import Study
    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Adjacency
    from unpooled.protocol.context import Context
    from unpooled.totals.total import Summed

    Ints = NDArray[np.int64]
    Settings = tuple[float, ...]

#: The part that is the model of which rows are whole.
PART = PARTS
_TUNED = table("tilted")
#: The most steps of a fit without noise.
_EXACT_STEPS = 40
#: The totals in words, for those who approve a plan.
WORDS = {
    FIRST: "sums of how each whole row pulls at the coefficients given that it is whole, and of products of the columns, for the first step",
    SCORE: "the sum of how each whole row pulls at the coefficients given that it is whole, at the end of the fit",
    SPREADS: "the sum of how each whole row pulls at the spread of the response, at the end of the fit",
    INFORMATION: "sums of products of the columns, weighted as the fit weights them, for standard errors",
    INFLUENCE: "sums of products of the columns with what the model of which rows are whole says of them, for standard errors",
}


def modelled_of(study: Study) -> tuple[Column, ...]:
    """Return the declared columns of which it is modelled whether a row has all of them."""
    return gaps.modelled(study.parties[0].columns)


def check_study(study: Study) -> None:
    """Refuse, by name, what such a table has no proof or no errors for."""
    p, first = check_parameters(study, Parameters), modelled_of(study)[0]
    check_response(study.one_card_for_all().column(p.response))
    given = {
        "weights": p.weights,
        "prior": p.prior,
        "focus": p.focus,
        "fit_intercept = false": not p.fit_intercept,
        "site_effects": p.site_effects != SiteEffects.POOLED,
        **dict.fromkeys(paper_parameters(p), True),
        "several rows of an id": study.household_rows > 1,
    }
    check(first, given, covariance_of(p.covariance, study))
    if p.method not in {Method.AUTO, Method.REFINEMENT}:
        msg = (
            f'column {first.name!r} declares missing = "model", which is for tables: method {str(Method.REFINEMENT)!r}, not {p.method!r}. Or declare '
            '"complete" (right unless missingness depends on the response)'
        )
        raise UsageError(msg).at(column=first.name)


def _check_strength(study: Study) -> None:
    """Refuse a study so small that few lines would be printed, with intervals that are too short; one that names the method takes that on itself."""
    p, first = check_parameters(study, Parameters), modelled_of(study)[0]
    if p.method != Method.AUTO:
        return
    design = design_of(msgspec.structs.replace(study, parameters={**study.parameters, "method": str(Method.REFINEMENT)}))
    each = strength(study, aggregation_of(study, p.tolerate, p.nodes)) / design.layout.size
    if each < _TUNED.lines_from:
        msg = (
            f'column {first.name!r} declares missing = "model", which needs rows times mu of {_TUNED.lines_from:g} for each of {design.layout.size} coefficients, and '
            f'these are {each:.3g}: ask for more epsilon, more rows or fewer columns, or declare "complete" (right unless missingness depends on the response)'
        )
        raise UsageError(msg).at(column=first.name)


def compile_plan(study: Study) -> Plan:
    """Return the plan: the model of which rows are whole as a part, and after it the table's own releases."""
    check_study(study)
    _check_strength(study)
    digest, share = digest_of(study), _TUNED.completeness
    own = msgspec.structs.replace(study, parameters={**study.parameters, "method": str(Method.REFINEMENT)})

    def plans(scale: float) -> dict[str, Plan]:
        part = _part(study, digest, *budget_of(study, share, scale))
        epsilon, delta = budget_of(study, 1 - share, scale)
        alone = msgspec.structs.replace(own, epsilon=epsilon, delta=delta)
        return {PART: part, "": plan_of(alone, _design(alone, part.design.layout))}

    found = within_budget(study, plans)
    part, alone = found[PART], found[""]
    others = [note for note in part.notes if "are left out" not in note]
    names = listed([column.name for column in modelled_of(study)])
    return replace(
        alone,
        study=study,
        releases=(*releases_under({PART: part}), *alone.releases),
        public=union((part.public, alone.public)),
        not_protected=union((alone.not_protected, part.not_protected)),
        assumptions=union((alone.assumptions, part.assumptions, assumed(study, ()))),
        trusted=union((part.trusted, alone.trusted)),
        notes=(
            *alone.notes,
            f"which rows have all of {names} is modelled by the response and the columns that are never missing: {share:.0%} of the squared budget",
            *(f"  {PART}: {note}" for note in others),
        ),
        parts={PART: part},
    )


def _part(study: Study, digest: str, epsilon: float, delta: float) -> Plan:
    """Return the plan of the logistic regression of whether a row is whole, over all rows without another gap."""
    p, first = check_parameters(study, Parameters), study.one_card_for_all()
    layout = design_of(
        msgspec.structs.replace(study, parameters={**study.parameters, "method": str(Method.REFINEMENT)})
    ).layout
    gone = gaps.modelled(layout.left_out)
    plainly = tuple(column for column in layout.left_out if column not in gone)
    response, names = first.column(p.response), {column.name for column in gone}
    seen = [column.name for column in layout.declared if column.name not in names]
    terms = [*map(quoted, seen), quoted(response.name)]
    aggregation = aggregation_of(study, p.tolerate, p.nodes)
    numbers = [column for column in (response, *map(first.column, seen)) if column.categories is None]
    # Products about a public middle that is far from the data are columns that say nearly the same, and the noise would hide all.
    if all(column.typical for column in numbers) and strength(study, aggregation) >= _TUNED.products_from * (
        2 * len(seen) + 3
    ):
        terms += _products(response, [first.column(name) for name in seen])
    asked: dict[str, Any] = {
        "response": gone[0].name,
        "family": "logistic",
        "formula": " + ".join(terms),
        "method": "newton",
        "tolerate": p.tolerate,
        "nodes": list(p.nodes),
        "max_passes": p.max_passes,
    }
    read = (*seen, response.name, *(column.name for column in (*gone, *plainly)))
    one = Analysis(PART, "glm", None, tuple(dict.fromkeys(read)), asked, dict(study.trust))
    changed = {column.name: msgspec.structs.replace(column, missing=COMPLETE) for column in gone[1:]}
    changed[gone[0].name] = Column(gone[0].name, categories=gaps.PRESENCE)
    if plainly:  # the part reads the response: it has a count of its own, and any value may move a whole row of it
        changed[response.name] = msgspec.structs.replace(response, missing=COMPLETE)
    inner = part_of(study, one, digest, epsilon, delta)
    inner = msgspec.structs.replace(
        inner,
        parties=tuple(
            msgspec.structs.replace(card, columns=tuple(changed.get(c.name, c) for c in card.columns))
            for card in inner.parties
        ),
    )
    plan = load(inner.row).compile(inner)
    own = replace(plan.design.layout, presence=gone, left_out=plainly)
    return replace(plan, design=replace(plan.design, layout=own))


def _products(response: Column, seen: list[Column]) -> Iterator[str]:
    """Yield the square of the response and its products with other columns, about their typical values, as terms of a formula."""

    def about(column: Column) -> str:
        return f"({quoted(column.name)} - {(column.typical or (0.0, 1.0))[0]!r})"

    yield f"I({about(response)} ** 2)"
    for column in seen:
        yield (
            f"I({about(response)} * {about(column)})"
            if column.categories is None
            else f"{quoted(column.name)}:I({about(response)})"
        )


def _design(study: Study, chances: MomentsLayout) -> BayesDesign:
    """Return the design of the table's own releases: rounds as ever, and in the place of the last one those of whole rows given that they are."""
    exact, rows = study.epsilon == math.inf, sum(card.rows for card in study.parties)
    design = design_of(study, grid=integer_grid(rows, 2, 1 << 26) if exact else None)
    layout = design.layout
    kept = kept_features(layout, gaps.modelled(layout.left_out))
    places = np.flatnonzero(np.isin(layout.coding.attribute, kept))
    if not exact and strength(study, design.aggregation) < _TUNED.spread_from * (places.size + 1):
        places = places[:0]
    standard = FineRows(layout, rows, 1.0) if exact else design.standard
    whole = TiltedRows(standard, chances, np.append(places, layout.size - 1), exact)
    design = replace(design, whole=whole)
    return replace(design, totals=totals_of(study, lambda how: _vectors(design, whole, how), gaps=True))


def _vectors(design: BayesDesign, whole: TiltedRows, adjacency: Adjacency) -> Iterator[Summed]:
    rows, of, rounds = design.standard, _TUNED.shares("tilted_shares"), _TUNED.rounds
    shares = ("scales", "descent", "first", "spread")
    schedule = replace(design.schedule, **{name: rounds * getattr(design.schedule, name) for name in shares})
    yield design.scales.vector(schedule.scales, adjacency)
    yield from gradients(schedule, rows, adjacency)
    yield rows.spread(schedule.spread)
    rest, moves = 1 - sum(getattr(schedule, name) for name in shares), rows.moves(adjacency)
    yield whole.first.vector(rest * of["first"], moves, _EXACT_STEPS if whole.exact else _TUNED.whole("first_steps"))
    yield whole.score.vector(rest * of["score"], moves)
    yield whole.spreads.vector(rest * of["spreads"], moves)
    yield whole.information.vector(rest * of["information"], moves)
    yield whole.influence.vector(rest * of["influence"], moves)


# --- The party's steps -----------------------------------------------------------------------------------------------------


def _statistic(name: str) -> Callable[[Context[BayesDesign], Settings], Ints]:
    """Return the sum of this name over a party's whole rows."""

    def statistic(context: Context[BayesDesign], settings: Settings) -> Ints:
        whole = context.design.whole
        assert whole is not None  # it has no such total
        law = whole.asked(settings, rests=name == INFLUENCE)
        added: dict[str, Callable[[Table, TiltedLaw], Ints]] = {
            FIRST: whole.added_first,
            SCORE: whole.added_score,
            SPREADS: whole.added_spreads,
            INFORMATION: whole.added_information,
            INFLUENCE: whole.added_influence,
        }
        return added[name](context.table, law)

    return statistic


#: What a party adds up, by the name of the total.
STATISTICS = {name: _statistic(name) for name in (FIRST, SCORE, SPREADS, INFORMATION, INFLUENCE)}
