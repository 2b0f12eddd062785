"""Plan of a generalised linear model: the base rate, what standardises, rounds of gradients, Newton steps; and the sums that a party makes for each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.families import Response
from unpooled.families.logistic import Logistic
from unpooled.inference.coding import Seen, check_formula
from unpooled.inference.coordinates import typically_crowded
from unpooled.inference.printed_terms import check_coding
from unpooled.inference.priors import assumed
from unpooled.inference.sites import SiteEffects, sites_of
from unpooled.linear.goals import Goal, Prospect, check_goal, goal_of, untabled
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.releases import release_notes
from unpooled.linear.residuals import CELLS, MEAT, MEAT_SHARE, Covariance, covariance_of, without_meat
from unpooled.linear.standard import LARGEST_SQUARE, SCALES, SPREAD, Scales, public_numbers, remembered
from unpooled.linear.tilted import check, check_response
from unpooled.models.glm import completeness as gaps
from unpooled.models.glm.completeness import Completeness, CompletenessRows, Influence, tilt_of
from unpooled.models.glm.declared import (
    LONG,
    SHORT,
    SHORTEN,
    UNIT_ROWS,
    UNSHIFTED,
    WORTH_ERRORS,
    WORTH_LINES,
    GlmMethod,
    GlmSchedule,
    Parameters,
    check_prior,
    estimated,
    responses_of,
    schedule_of,
    with_completeness_of,
)
from unpooled.models.glm.families import (
    LOGISTIC,
    MULTINOMIAL,
    SURVIVAL,
    ClassRates,
    ClassRows,
    ExitCells,
    Hazards,
    PersonRows,
    Softmax,
)
from unpooled.models.glm.rows import (
    BASE,
    HISTOGRAM,
    INFORMATION,
    MOMENTS,
    PROBABILITIES,
    SCORE,
    BaseRate,
    DirectionRows,
    Directions,
    GlmRows,
    Responses,
    ScoreCells,
    ShortRows,
)
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Plan, Study, check_parameters
from unpooled.schedules import table
from unpooled.totals.modes import aggregation_of, steps_of
from unpooled.totals.rounds import passes_note, plan_of_totals, strength, totals_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.total import COUNT, DESCENT, no_settings, rows_counted
from unpooled.totals.weights import WEIGHTS, weights_added_up
from unpooled.totals.whole_rows import (
    WholeRows,
    filled_note,
    leaving_out,
    marked_rows,
    modelled,
    needed,
    notes_of,
    refuse_filled,
    refuse_limit,
    whole_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.models.glm.completeness import Tilt
    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Adjacency
    from unpooled.protocol.context import Context
    from unpooled.totals.total import Aggregation, Summed
    from unpooled.totals.weights import Weighting

    Floats = NDArray[np.float64]
    Blocks = Iterator[tuple[Floats, Floats]]
    Settings = tuple[float, ...]


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Plan of a generalised linear model: the base rate, what standardises, rounds of gradients, Newton steps.

_DISPERSION, MOST_ENTRIES = table("glm").dispersion, table("glm").whole("entries_most")
_PRODUCTS = table("glm").completeness_products
_TOO_LARGE = "without noise a fit takes Newton steps, and their second moments are too large here: fewer columns or classes"
#: The totals of the families whose records have more than one linear predictor, or are followed for a time.
_KINDS: dict[str, tuple[type[BaseRate], type[GlmRows]]] = {
    MULTINOMIAL: (ClassRates, ClassRows),
    SURVIVAL: (ExitCells, PersonRows),
}
#: Steps per unit of coded rows where there is no noise.
_FINEST = 1 << 26
#: The target of a table whose pulls are balanced.
BALANCED = (
    "target: records count by one over twice the larger of the chances of their two classes, which halves the noise: the same coefficients where the "
    "log odds are linear in the columns, else those of the fit so weighted"
)


@dataclass(frozen=True)
class GlmDesign:
    """A study, understood."""

    parameters: Parameters
    aggregation: Aggregation
    layout: MomentsLayout
    responses: Responses
    schedule: GlmSchedule
    rows: int
    #: What is added up, by name and in this order.
    totals: dict[str, Summed]
    #: What the standard errors assume, and the most rows of an id that count where those of one id may depend on each other.
    covariance: Covariance = Covariance.MODEL
    clusters: int = 0
    #: Why a study that asks for no goal makes no table, and what would do; empty where it makes one, or says what it is for.
    untabled: str = ""
    #: The model of which rows are whole; None where none is asked for.
    completeness: Completeness | None = None

    def seen(self, table: Table) -> Table:
        """Return a party's rows that count, with the columns that the formula makes."""
        return self.layout.seen(whole_rows(table, self.layout.left_out))

    def marked(self, table: Table) -> Table:
        """Return all rows of a table that :meth:`seen` returned, those with gaps too, with a column that says which rows are whole."""
        assert self.completeness is not None
        raw = table.raw if isinstance(table, Seen) else table
        raw = raw.raw if isinstance(raw, WholeRows) else raw
        plainly = tuple(column for column in self.layout.left_out if column not in self.completeness.columns)
        return self.layout.seen(marked_rows(whole_rows(raw, plainly), self.completeness.columns))

    def at_site(self, table: Table, party: str) -> Table:
        """Return a party's table with the column of sites, where they have constants of their own."""
        return table if self.layout.sites is None else self.layout.sites.seen(table, party)

    @property
    def weighting(self) -> Weighting | None:
        """Return the declared weights of records; None where every record counts alike."""
        return self.responses.weighting

    @property
    def method(self) -> str:
        """Return how the budget is spent."""
        return str(self.schedule.method)

    @property
    def target(self) -> str:
        """Return the sentence on what the coefficients are of, where pulls are balanced; empty where they are those of maximum likelihood."""
        return BALANCED if isinstance(self.family, Logistic) and self.family.balanced else ""

    @property
    def mean_only(self) -> bool:
        """Return True if "auto" buys the base rate alone."""
        return self.schedule.method is GlmMethod.MEAN and self.parameters.method == GlmMethod.AUTO

    @property
    def family(self) -> Response:
        """Return the family of the response."""
        return self.responses.family

    @cached_property
    def base(self) -> BaseRate:
        """Return the base rate that a fit begins from."""
        return _KINDS.get(self.family.name, (BaseRate, GlmRows))[0](self.responses, self.rows)

    @cached_property
    def scales(self) -> Scales:
        """Return the sums by which columns are standardised."""
        return Scales(self.layout, response=False)

    @cached_property
    def directions(self) -> Directions | None:
        """Return rows of bounded length, where one release of moments says the direction of the slopes."""
        if self.schedule.method is not GlmMethod.MOMENTS:
            return None
        return Directions(self.layout, self.responses, self.rows, self.parameters.rows == UNIT_ROWS)

    @cached_property
    def short(self) -> GlmRows:
        """Return rows of a round of gradients."""
        if self.directions is not None:
            return self.along
        if self.schedule.method is GlmMethod.DIRECTION:
            rows = ShortRows(self.layout, self.rows, 1.0, self.responses)
            return replace(rows, longest=self.schedule.clip * rows.radius)
        return self._of(SHORT)

    @property
    def outcomes(self) -> ScoreCells:
        """Return the histogram of classes along a score."""
        return ScoreCells()

    @cached_property
    def along(self) -> DirectionRows:
        """Return rows of a round along one direction."""
        rows = DirectionRows(self.layout, self.rows, LONG, self.responses, directions=self.directions)
        return replace(rows, longest=LONG * rows.radius)

    @property
    def shrinks(self) -> float:
        """About how much a typical row of the rounds is scaled down."""
        return SHORT if self.directions is None else LONG

    @cached_property
    def long(self) -> GlmRows:
        """Return rows of a Newton step, of which fewer are scaled down."""
        return self._of(self.schedule.long, self.schedule.stretch)

    @cached_property
    def short_marked(self) -> CompletenessRows:
        """Return the rows of a round of the model of which rows are whole."""
        return self._marked(SHORT)

    @cached_property
    def long_marked(self) -> CompletenessRows:
        """Return the rows at the end of the fit of that model."""
        return self._marked(self.schedule.long, self.schedule.stretch)

    @cached_property
    def influence(self) -> Influence:
        """Return how far the coefficients move with the model of which rows are whole."""
        assert self.completeness is not None
        return Influence(self.long, self.completeness)

    def _marked(self, part: float, stretch: float = 1.0) -> CompletenessRows:
        exact, family = self.schedule.exact, Logistic(balanced=self.schedule.balanced)
        whole = Responses(Column("whole", categories=("no", "yes")), family)
        stretch = 1.0 if exact else stretch
        rows = CompletenessRows(
            self.layout, self.rows, 1.0, whole, exact, self.completeness, self.responses, stretch=stretch
        )
        longest = rows.responses.family.most[0] if exact else part
        return replace(rows, longest=longest / stretch * rows.radius)

    def _of(self, part: float, stretch: float = 1.0) -> GlmRows:
        exact = self.schedule.exact
        stretch = 1.0 if exact else stretch
        kind = _KINDS.get(self.family.name, (BaseRate, GlmRows))[1]
        square = _exact_square(self.rows) if exact else LARGEST_SQUARE
        rows = kind(
            self.layout, self.rows, 1.0, self.responses, exact, square=square, stretch=stretch, clusters=self.clusters
        )
        longest = self.family.most[0] if exact else part
        return replace(rows, longest=longest / stretch * rows.radius)

    @property
    def scattered(self) -> bool:
        """Return True if the residuals of the rounds tell the dispersion of the Newton step."""
        return self.family.scattered and estimated(self.parameters)


def _check(parameters: Parameters) -> None:
    """Refuse values that mean nothing, by name."""
    estimated(parameters)
    if parameters.method not in set(GlmMethod):
        msg = f"method is one of {', '.join(GlmMethod)}, not {parameters.method!r}"
        raise UsageError(msg)
    if parameters.max_passes < 1:
        raise UsageError("max_passes must be at least 1")
    if not 0 < parameters.confidence < 1:
        raise UsageError("confidence must lie between 0 and 1")
    if not 0 <= parameters.ridge < math.inf:
        raise UsageError("ridge must be 0 or a positive finite number")
    if parameters.site_effects == SiteEffects.RANDOM:
        raise UsageError(
            "site_effects 'random' is of linear regression: for this model pool the sites' own estimates (unpooled.meta_analysis), or use 'fixed'"
        )
    if parameters.site_effects != SiteEffects.POOLED and parameters.method not in {GlmMethod.AUTO, GlmMethod.NEWTON}:
        msg = (
            f"site_effects {parameters.site_effects!r} goes with methods 'auto' and 'newton', not with {parameters.method!r}"
        )
        raise UsageError(msg)


def _shifted(parameters: Parameters, layout: MomentsLayout, responses: Responses) -> Responses:
    """Return the responses with the offset that a formula makes."""
    if layout.made is None:
        return responses
    if parameters.method == GlmMethod.MOMENTS:
        raise UsageError("method 'moments' bounds rows of the declared columns: a formula goes with the other methods")
    offset = layout.made.derived.offset_column
    if offset is None:
        return responses
    if parameters.offset or parameters.family in _KINDS:
        raise UsageError(
            UNSHIFTED if parameters.family in _KINDS else "the formula has an offset, and so has the study: keep one of them"
        )
    if offset.missing != "refuse":
        raise UsageError("what an offset reads must never be missing: declare missing = 'refuse' for its columns")
    return replace(responses, offset=offset.declared)


def _check_rows(parameters: Parameters, responses: Responses) -> None:
    """Refuse what goes with other methods or families than are asked for."""
    if parameters.rows not in {SHORTEN, UNIT_ROWS}:
        msg = f"rows is {SHORTEN!r} or {UNIT_ROWS!r}, not {parameters.rows!r}"
        raise UsageError(msg)
    if parameters.method != GlmMethod.MOMENTS:
        if parameters.norm is not None or parameters.rows != SHORTEN:
            raise UsageError("norm and rows are for method 'moments' alone: elsewhere columns are standardised")
        return
    if parameters.family != LOGISTIC or responses.shifted or parameters.ridge or responses.weighting is not None:
        raise UsageError("method 'moments' is for the logistic family, without exposure, offset, weights and ridge")
    if parameters.norm is not None and not 0 < parameters.norm < math.inf:
        raise UsageError("norm must be positive and finite")


def _calibrates(parameters: Parameters, responses: Responses) -> bool:
    """Return True if a histogram of classes along the score tells probabilities: two classes, every record alike, and no penalty asked for."""
    return (
        parameters.family == LOGISTIC
        and not responses.shifted
        and responses.weighting is None
        and not parameters.ridge
        and parameters.method != GlmMethod.MOMENTS
    )


def _effective(responses: Responses, columns: int) -> float:
    """Return the coefficients that a study's rows are counted for: a coefficient of one of C classes is C/2 times as hard to learn.

    A pull is sqrt 2 long, and the weight of C equally frequent classes is 1/C in every direction: with two classes 1/2.
    """
    if isinstance(responses.family, Hazards):
        return columns - 1 + len(responses.family.edges)
    classes = len(responses.family.labels) if isinstance(responses.family, Softmax) else 2
    return columns * (classes - 1) * classes / 2


def _entries(responses: Responses, columns: int) -> int:
    """Return released numbers of one Newton step's second moments."""
    classes = len(responses.family.labels) if isinstance(responses.family, Softmax) else 1
    return classes * (classes + 1) // 2 * columns * (columns + 1) // 2


def _covariance(parameters: Parameters, study: Study) -> Covariance:
    """Return what the standard errors assume; refuse a sandwich for families whose records have several scores."""
    found = covariance_of(parameters.covariance, study)
    if parameters.family not in _KINDS:
        return found
    if parameters.covariance not in {Covariance.AUTO, Covariance.MODEL}:
        msg = f"covariance {parameters.covariance!r} is for families with one linear predictor, and {parameters.family!r} has several"
        raise UsageError(msg)
    return Covariance.MODEL


def _schedule(
    parameters: Parameters, responses: Responses, layout: MomentsLayout, prospect: Prospect, rows: int, meat: float
) -> GlmSchedule:
    """Return the rounds of a study with these prospects: those of its method, or of the method that serves it best."""
    method, most = GlmMethod(parameters.method), parameters.max_passes
    if layout.sites is not None and method is GlmMethod.AUTO:  # a table is what sites are for
        method = GlmMethod.NEWTON
    calibrates = _calibrates(parameters, responses)
    if method is GlmMethod.DIRECTION and not calibrates:
        raise UsageError("method 'direction' is for the logistic family, without exposure, offset, weights and ridge")
    columns, goal = _columns(layout), goal_of(parameters.goal)
    k, tailed = prospect.k, responses.family.tailed
    wider = responses.family.wider if responses.family.scattered and estimated(parameters) else 1.0
    found = schedule_of(
        method,
        k,
        columns,
        most,
        rows=rows,
        tailed=tailed,
        wider=wider,
        meat=meat,
        calibrates=calibrates,
        drawn=bool(parameters.prior),
        balances=_balances(parameters, responses),
        errors_from=WORTH_ERRORS if goal is Goal.PREDICTIONS else min(WORTH_ERRORS, WORTH_LINES),
    )
    large = method is GlmMethod.AUTO and _entries(responses, len(layout.coding.attribute) + 1) > MOST_ENTRIES
    if large and found.method is GlmMethod.NEWTON:
        if found.exact:
            raise UsageError(_TOO_LARGE)
        found = schedule_of(GlmMethod.GRADIENT, k, columns, most, calibrates=calibrates)
    if found.method is GlmMethod.MEAN and not layout.intercept:
        if method is GlmMethod.MEAN:
            raise UsageError("method 'mean' is the base rate: it goes without fit_intercept=False")
        found = schedule_of(GlmMethod.GRADIENT, k, columns, most, calibrates=calibrates)
    if goal is Goal.TABLE:
        refuse_filled(layout.declared)
    check_goal(goal, prospect, found.method, found.method is GlmMethod.NEWTON)
    return found


def _columns(layout: MomentsLayout) -> int:
    """Return the coefficients of one linear predictor that rows are counted for."""
    return layout.unit_columns + 1 + (layout.sites is not None)


def design_of(study: Study) -> GlmDesign:
    """Return the checked design that the study asks for."""
    parameters = check_parameters(study, Parameters)
    first = study.one_card_for_all()
    _check(parameters)
    rows = sum(card.rows for card in study.parties)
    for column in first.columns:
        if column.name in {parameters.response, parameters.event}:
            refuse_limit(column)
    responses = responses_of(parameters, {column.name: needed(column) for column in first.columns}, rows)
    _check_rows(parameters, responses)
    aggregation = aggregation_of(study, parameters.tolerate, parameters.nodes)
    features = tuple(column for column in first.columns if column.name not in responses.names)
    # The layout codes the features; the response, which has a scale of its own, only has a name there.
    named = Column(responses.response.name, 0.0, 1.0)
    layout = MomentsLayout.of(
        (*features, named),
        named.name,
        rows,
        norm=parameters.norm,
        intercept=parameters.fit_intercept,
        formula=parameters.formula,
        sites=sites_of(study, parameters.site_effects, parameters.formula, intercept=parameters.fit_intercept),
    )
    used = {*responses.names, *(column.name for column in layout.declared)}
    layout = replace(layout, left_out=leaving_out(first.columns, used))
    check_formula(parameters.formula, tuple(name for name in (parameters.response, parameters.event) if name))
    responses = _shifted(parameters, layout, responses)
    check_prior(parameters, layout, responses)
    levels = {factor.name: factor.levels for factor in layout.terms.factors}
    if parameters.family == MULTINOMIAL:
        levels[named.name] = responses.response.categories or ()
    check_coding(parameters.coding, parameters.reference, levels)
    covariance = _covariance(parameters, study)
    whole = _completeness(parameters, study, aggregation, layout, responses, covariance)
    meat = 0.0 if covariance is Covariance.MODEL else MEAT_SHARE
    effective = _effective(responses, _columns(layout))
    prospect = Prospect(study, aggregation, responses.weighting, effective, WORTH_LINES)
    if whole is None:
        schedule = _schedule(parameters, responses, layout, prospect, rows, meat)
    else:
        schedule = with_completeness_of(prospect.k, _columns(layout), parameters.max_passes, rows)
        check_goal(goal_of(parameters.goal), prospect, schedule.method, tells=True)
    if schedule.balanced:
        responses = replace(responses, family=Logistic(balanced=True))
    if schedule.exact:
        layout = replace(layout, grid=_FINEST)
        whole = None if whole is None else replace(whole, layout=layout)
    if not schedule.meat:
        covariance = without_meat(parameters.covariance, schedule.method, GlmMethod.NEWTON)
    clusters = study.household_rows if covariance is Covariance.CLUSTER else 0
    said = untabled(Goal(parameters.goal), prospect) if parameters.method == GlmMethod.AUTO and not layout.sites else ""
    design = GlmDesign(parameters, aggregation, layout, responses, schedule, rows, {}, covariance, clusters, said, whole)
    return replace(
        design,
        totals=totals_of(
            study, lambda adjacency: _totals(design, adjacency), responses.weighting, gaps=bool(layout.left_out)
        ),
    )


def _completeness(
    parameters: Parameters,
    study: Study,
    aggregation: Aggregation,
    layout: MomentsLayout,
    responses: Responses,
    covariance: Covariance,
) -> Completeness | None:
    """Return the model of which rows are whole, where a column asks for it; refuse what it has no proof or no errors for."""
    check_response(study.parties[0].column(responses.response.name))
    columns = modelled(layout.left_out)
    if not columns:
        return None
    newton = (GlmMethod.AUTO, GlmMethod.NEWTON)
    gaps.check_model(columns[0], parameters.family, parameters.method, logistic=LOGISTIC, newton=newton)
    given = {
        "exposure or offset": responses.shifted,
        "weights": responses.weighting,
        "ridge": parameters.ridge,
        "prior": parameters.prior,
        "fit_intercept = false": not layout.intercept,
        # It begins from the share of whole rows: of all rows, which no release counts where ids have room for rows that they have not, or others are left out.
        "several rows of an id": study.household_rows > 1,
        f'"complete" for {listed([c.name for c in layout.left_out if c not in columns])}': len(columns)
        < len(layout.left_out),
    }
    check(columns[0], given, covariance)
    plain = Completeness(layout, columns, products=False)
    enough = strength(study, aggregation) >= _PRODUCTS * (2 * plain.places.size + 3)
    return replace(plain, products=bool(enough and plain.places.size > layout.at_sites.size))


def _balances(parameters: Parameters, responses: Responses) -> bool:
    """Return True where pulls of two classes may be balanced: of a fit with a constant, without an offset and a penalty."""
    plain = not (parameters.ridge or responses.shifted)
    return isinstance(responses.family, Logistic) and plain and parameters.fit_intercept


def _totals(design: GlmDesign, adjacency: Adjacency) -> Iterator[Summed]:
    schedule = design.schedule
    yield design.base.vector(schedule.base, adjacency)
    if schedule.scales:
        yield design.scales.vector(schedule.scales, adjacency)
    if design.directions is not None:
        yield design.directions.vector(schedule.moments, adjacency)
    if design.completeness is not None:
        yield from _of_completeness(design, adjacency)
    if schedule.rounds:
        yield design.short.descent(schedule.descent, adjacency, schedule.rounds)
    if schedule.steps:
        squared = schedule.exact and design.scattered
        rest = 1 - _DISPERSION if squared else 1.0
        if schedule.cells:
            yield design.long.cells.vector(schedule.cells, design.long.moves(adjacency))
        yield design.long.score(schedule.score * rest, adjacency, schedule.steps)
        yield design.long.information(schedule.information * rest, adjacency, schedule.steps)
        if squared:
            yield design.long.spread((schedule.score + schedule.information) * _DISPERSION)
        if schedule.meat:
            yield design.long.meat.vector(schedule.meat, design.long.moves(adjacency))
    if schedule.probabilities:
        yield design.outcomes.vector(schedule.probabilities, design.long.moves(adjacency))


def _of_completeness(design: GlmDesign, adjacency: Adjacency) -> Iterator[Summed]:
    """Yield the totals of the model of which rows are whole, and of how the coefficients rest on it."""
    schedule, long = design.schedule, design.long_marked
    if schedule.whole_rounds:
        rounds = design.short_marked.descent(schedule.whole_descent, adjacency, schedule.whole_rounds)
        yield replace(rounds, name=gaps.ROUNDS)
    yield replace(long.score(schedule.whole_score, adjacency, schedule.steps), name=gaps.SCORE)
    yield replace(long.information(schedule.whole_information, adjacency, schedule.steps), name=gaps.INFORMATION)
    yield design.influence.vector(schedule.influence, design.long.moves(adjacency))


def _exact_square(rows: int) -> float:
    """Return a bound on squared residuals without noise, at which their sum stays inside 64 bits."""
    return min(float(1 << 40), float(1 << 50) / rows)


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study of a generalised linear model."""
    design = design_of(study)
    passes = design.schedule.passes + (SPREAD in design.totals) + (WEIGHTS in design.totals)
    notes = (
        *filter(None, (design.untabled,)),
        *passes_note(design.schedule.method, passes),
        *notes_of(design.layout.left_out, study),
        *filled_note(design.parameters.goal, design.layout.declared),
        *typically_crowded(design.layout.features),
        *release_notes(design.totals, design.covariance, {PROBABILITIES: HISTOGRAM, **gaps.NOTES}),
    )
    return plan_of_totals(study, design, assumptions=assumed(study, design.parameters.prior), notes=notes)


# --- The party's steps -----------------------------------------------------------------------------------------------------
# The only part of this model that touches raw data: sums of responses, of columns, and over standardised rows.


def _base(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    design = context.design
    no_settings(settings)
    return design.base.statistic(context.table)


def _scales(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    design = context.design
    no_settings(settings)
    return design.scales.statistic(context.table)


def _descent(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    design = context.design
    if design.directions is None:
        return design.short.descend(*_asked(context, design.short, settings))
    rows = design.along
    slopes, start, units = rows.numbers(settings)
    by = (context.plan.hash, slopes.tobytes())
    return rows.gradients(remembered(context.table, by, rows.width, lambda: rows.along(context.table, slopes)), start, units)


def _moments(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    design = context.design
    no_settings(settings)
    assert design.directions is not None  # it has no such total
    return design.directions.statistic(context.table)


def _score(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.gradients(*_asked(context, rows, settings))


def _information(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.weighted(*_asked(context, rows, settings))


def _spread(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.squared_residuals(*_asked(context, rows, settings))


def _cells(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.cells_of_pulls(*_asked(context, rows, settings))


def _meat(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.meat.added_up(rows.scores_of_pulls(*_asked(context, rows, settings)), context.table)


def _probabilities(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    blocks, start, _ = _asked(context, rows, settings)
    return context.design.outcomes.added_up(rows, blocks, start)


def _asked(context: Context, rows: GlmRows, settings: Settings) -> tuple[Blocks, Floats, Floats]:
    """Return the standardised rows (of a small table from the round before), the coefficients of a request, and its units."""
    settings, tilt = _tilted(context.design, settings)
    standard, start, units = public_numbers(rows.layout, settings, 3, responses=0, coefficients=rows.width)
    by = (context.plan.hash, type(rows), rows.grid, standard[0].tobytes(), standard[1].tobytes(), tilt and tilt.settings)

    def make() -> Blocks:
        for block, beside in rows.blocks(context.table, standard):
            if tilt is not None:
                beside[:, 1] += tilt.offsets(block, float(rows.grid))
            yield block, beside

    return remembered(context.table, by, rows.layout.size, make), start, units


def _tilted(design: GlmDesign, settings: Settings) -> tuple[Settings, Tilt | None]:
    """Return the settings of a request over whole rows, and the model of which rows are whole that it ends with."""
    if design.completeness is None:
        return settings, None
    end = len(settings) - design.completeness.size - 3
    return settings[:end], tilt_of(design.completeness, np.asarray(settings[max(end, 0) :], dtype=np.float64))


def _all_rows(context: Context[GlmDesign], rows: CompletenessRows, settings: Settings) -> tuple[Blocks, Floats, Floats]:
    """Return the standardised rows of the model of which rows are whole, its coefficients and units; they are of all rows, whole or not."""
    standard, start, units = public_numbers(rows.layout, settings, 5, responses=0, coefficients=rows.width)
    table, of_class = context.design.marked(context.table), (float(units[3]), float(units[4]))
    by = (context.plan.hash, type(rows), rows.grid, standard[0].tobytes(), standard[1].tobytes(), of_class)
    return remembered(table, by, rows.width, lambda: rows.marked(table, standard, of_class)), start, units


def _whole_rounds(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.short_marked
    return rows.gradients(*_all_rows(context, rows, settings))


def _whole_score(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long_marked
    return rows.gradients(*_all_rows(context, rows, settings))


def _whole_information(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long_marked
    return rows.weighted(*_all_rows(context, rows, settings))


def _influence(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    tilt = _tilted(context.design, settings)[1]
    assert tilt is not None  # else there is no such total
    return context.design.influence.added_up(*_asked(context, context.design.long, settings), tilt)


#: What a party adds up, by the name of the total.
STATISTICS = {
    COUNT: rows_counted,
    WEIGHTS: weights_added_up,
    BASE: _base,
    SCALES: _scales,
    MOMENTS: _moments,
    gaps.ROUNDS: _whole_rounds,
    gaps.SCORE: _whole_score,
    gaps.INFORMATION: _whole_information,
    gaps.INFLUENCE: _influence,
    DESCENT: _descent,
    SCORE: _score,
    INFORMATION: _information,
    SPREAD: _spread,
    CELLS: _cells,
    MEAT: _meat,
    PROBABILITIES: _probabilities,
}

STEPS = (KEYS, *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)))
