"""Plan of a Bayes study: standardised rounds, or one release of moments (and before it the deviations of Algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.inference.coding import check_formula
from unpooled.inference.printed_terms import check_coding
from unpooled.inference.priors import assumed, check_models, directions, rows_of
from unpooled.inference.sites import sites_of
from unpooled.linear.design import gradients, left_over, lines, noise_of, opened_rows
from unpooled.linear.layout import Geometry, MomentsLayout
from unpooled.linear.releases import release_notes
from unpooled.linear.residuals import MEAT_SHARE, Covariance, covariance_of, without_meat
from unpooled.linear.scales import CountedScales
from unpooled.linear.schedule import Method, Schedule, clip_of_focus, schedule_of, stretch_of
from unpooled.linear.standard import Scales, StandardRows
from unpooled.models.bayes.declared import AUTO, ESTIMATE, Parameters, check_values, paper_parameters
from unpooled.models.bayes.focus import CROSS, FocusRows
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.plan import Plan, Study, check_parameters
from unpooled.privacy.sensitivity import column_moments
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.totals.modes import aggregation_of
from unpooled.totals.rounds import passes_note, plan_of_totals, strength, totals_of
from unpooled.totals.total import Aggregation, Summed
from unpooled.totals.weights import Weighting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.inference.priors import EarlierModel
    from unpooled.privacy.sentence import Sentence
    from unpooled.privacy.table import Table

_CROSS_TOLD = "sums of products of the focused columns with the others, by which the others are taken out"
MOMENTS, DEVIATIONS, SQUARE = "moments", "deviations", "square"
#: A focus whose noise moves its coefficient by more deviations of the response than this is refused.
_MOST_ERROR = 1.0
#: Share of the squared budget for the sum of y^2, from which precisions are estimated.
_SQUARE_SHARE = 0.03


@dataclass(frozen=True)
class BayesDesign:
    """A study, understood."""

    parameters: Parameters
    aggregation: Aggregation
    layout: MomentsLayout
    schedule: Schedule
    #: What is added up, by name and in this order.
    totals: dict[str, Summed]
    standard: StandardRows
    covariance: Covariance = Covariance.MODEL
    #: The rows of the focused columns; None without a focus.
    focus: FocusRows | None = None
    #: The best multiple of deviations for so many rows, once it was simulated: public, and a tenth of a second of work.
    multiples: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    def seen(self, table: Table) -> Table:
        """Return a party's table with the columns that the formula makes."""
        return self.layout.seen(table)

    def at_site(self, table: Table, party: str) -> Table:
        """Return a party's table with the column of sites, where they have constants of their own."""
        return table if self.layout.sites is None else self.layout.sites.seen(table, party)

    @property
    def weighting(self) -> Weighting | None:
        """Return the declared weights of rows; None where every row counts alike."""
        return self.layout.weighting

    @property
    def models(self) -> tuple[EarlierModel, ...]:
        """Return the earlier models to which the fit is drawn."""
        return self.parameters.prior

    @property
    def method(self) -> Method:
        """Return the method, which says how the budget is spent."""
        return self.schedule.method

    @property
    def mean_only(self) -> bool:
        """Return True if "auto" buys the mean of the response alone."""
        return self.schedule.method is Method.MEAN and self.parameters.method == Method.AUTO

    @property
    def moments(self) -> Summed:
        """Return the one release of moments."""
        return self.totals[MOMENTS]

    @property
    def deviations(self) -> Summed | None:
        """Return the deviations by which Algorithm 2 narrows ranges; None where there are none."""
        return self.totals.get(DEVIATIONS)

    @property
    def last(self) -> StandardRows:
        """Return the rows of the last round: of all columns, or of those of a focus."""
        return self.standard if self.focus is None else self.focus

    @property
    def scales(self) -> Scales:
        """Return the sums by which columns are standardised."""
        return CountedScales(self.layout) if self.schedule.counted else Scales(self.layout)

    @property
    def projected(self) -> tuple[Column, ...]:
        """Return the columns whose ranges Algorithm 2 narrows: numeric features, then the response."""
        return (*(c for c in self.layout.features if c.categories is None), self.layout.response)

    @property
    def coding(self) -> Coding:
        """Return the code of those columns, whose sums and sums of squares are released."""
        return Coding(self.projected, self.layout.grid)

    def narrowed(self, settings: tuple[float, ...]) -> MomentsLayout:
        """Return the layout with the ranges (low, high, low, high ..) that came out of the deviations."""
        if not settings:
            return self.layout
        columns = self.projected
        if len(settings) != 2 * len(columns):
            msg = f"{len(settings)} projection bounds where {len(columns)} columns need two each"
            raise UsageError(msg)
        narrow = {
            column.name: msgspec.structs.replace(column, low=low, high=high)
            for column, low, high in zip(columns, settings[::2], settings[1::2], strict=True)
        }
        features = tuple(narrow.get(column.name, column) for column in self.layout.features)
        layout = self.layout
        return MomentsLayout(
            features, narrow[layout.response.name], layout.grid, layout.geometry, layout.norm, layout.intercept
        )


def design_of(study: Study, method: str | None = None, grid: int | None = None) -> BayesDesign:
    """Return the checked design that the study asks for; ``method`` for a form that has one only, ``grid`` for one whose noise needs a coarser one."""
    parameters = check_parameters(study, Parameters)
    first = study.one_card_for_all()
    check_values(parameters)
    if method is None and (parameters.indefinite != AUTO or parameters.projection_delta is not None):
        raise UsageError(
            "indefinite and projection_delta are of the published form: leave them out, or set calibration = 'published'"
        )
    aggregation = aggregation_of(study, parameters.tolerate, parameters.nodes)
    rows = sum(card.rows for card in study.parties)
    layout = MomentsLayout.of(
        first.columns,
        parameters.response,
        rows,
        geometry=Geometry(parameters.geometry),
        norm=parameters.norm,
        intercept=parameters.fit_intercept,
        formula=parameters.formula,
        weights=parameters.weights,
        sites=sites_of(study, parameters.site_effects, parameters.formula, intercept=parameters.fit_intercept),
    )
    layout = layout if grid is None else replace(layout, grid=grid)
    check_formula(parameters.formula, (parameters.response,))
    if layout.made is not None and layout.made.derived.offset_column is not None:
        raise UsageError("a linear model has no offset: subtract it from the response")
    check_coding(parameters.coding, parameters.reference, {factor.name: factor.levels for factor in layout.terms.factors})
    check_models(parameters.prior, layout.names, intercept=layout.intercept)
    wanted = Method.MOMENTS if paper_parameters(parameters) else Method.FOCUS if parameters.focus else parameters.method
    if layout.sites is not None and wanted == Method.AUTO:  # a table is what sites are for
        wanted = Method.MOMENTS if study.epsilon == math.inf else Method.REFINEMENT
    design = _spent(study, parameters, aggregation, layout, Method(method or wanted))

    def vectors(adjacency: Adjacency) -> Iterator[Summed]:
        if design.method is Method.MOMENTS:
            return _moments(design, adjacency, estimates=method is None)
        return _rounds(design, adjacency)

    return replace(design, totals=totals_of(study, vectors, layout.weighting))


def _spent(
    study: Study, parameters: Parameters, aggregation: Aggregation, layout: MomentsLayout, wanted: Method
) -> BayesDesign:
    """Return the design without its totals: how the budget is spent, and on which rows."""
    rows = sum(card.rows for card in study.parties)
    covariance = covariance_of(parameters.covariance, study)
    meat = 0.0 if covariance is Covariance.MODEL else MEAT_SHARE
    coefficients = layout.unit_columns + 1 + (layout.sites is not None)
    strong = strength(study, aggregation, layout.weighting)
    lengths = layout.intercept and not parameters.prior
    schedule = schedule_of(
        wanted,
        strong / coefficients,
        coefficients,
        parameters.max_passes,
        meat,
        known=_known(parameters, layout),
        lengths=lengths,
    )
    used = layout
    if schedule.method is Method.DIRECTION and schedule.passes > parameters.max_passes:
        msg = f"method 'direction' reads the data {schedule.passes} times: max_passes must be at least that"
        raise UsageError(msg)
    if schedule.method in {Method.MEAN, Method.DIRECTION}:
        if not layout.intercept and wanted is not Method.AUTO:
            msg = f"method {str(wanted)!r} begins with the mean of the response: it goes without fit_intercept=False"
            raise UsageError(msg)
        if not layout.intercept:
            schedule = schedule_of(Method.GRADIENT, strong / coefficients, coefficients, parameters.max_passes)
        elif schedule.method is Method.MEAN:
            used = replace(layout, features=())
    if not schedule.meat:
        covariance = without_meat(parameters.covariance, schedule.method, Method.REFINEMENT)
    clusters = study.household_rows if covariance is Covariance.CLUSTER else 0
    standard = StandardRows(used, rows, schedule.longest, square=schedule.square, clusters=clusters)
    design = BayesDesign(parameters, aggregation, layout, schedule, {}, standard, covariance)
    adjacency = Adjacency(study.adjacency)
    if schedule.cross:
        if study.epsilon == math.inf:
            raise UsageError("focus says where a budget goes, and epsilon = inf has none: leave it out")
        focus = replace(FocusRows.of(layout, parameters.focus, rows), longest=schedule.longest, clusters=clusters)
        noise = noise_of(focus, strong, schedule.products, adjacency)
        _check_focus(schedule, noise, rows)
        stretch = stretch_of(noise, rows)
        return replace(design, focus=replace(focus, stretch=stretch), standard=replace(standard, stretch=stretch))
    schedule, standard = opened_rows(schedule, standard, strong, adjacency)
    return replace(design, schedule=schedule, standard=standard)


def _known(parameters: Parameters, layout: MomentsLayout) -> int:
    """Return the number of directions that the earlier models span."""
    return len(directions(rows_of(parameters.prior, layout.names, intercept=False))) if parameters.prior else 0


def _check_focus(schedule: Schedule, noise: float, rows: int) -> None:
    """Refuse a focus whose answer would be noise: an error of more than one deviation of the response, from noise alone."""
    error = clip_of_focus(noise) * noise
    if error > _MOST_ERROR:
        msg = (
            f"{schedule.method}: with {rows} rows and this epsilon the noise alone moves a coefficient by {error:.2g} standard deviations of the "
            "response per standard deviation of its column: ask for more rows or a larger epsilon"
        )
        raise UsageError(msg)


def _rounds(design: BayesDesign, adjacency: Adjacency) -> Iterator[Summed]:
    """Means and deviations, gradients, and what standard errors need."""
    schedule, rows = design.schedule, design.standard
    if schedule.method in {Method.DIRECTION, Method.WEIGHTS}:
        yield from lines(schedule, rows, adjacency)
        return
    if schedule.scales:
        yield design.scales.vector(schedule.scales, adjacency)
    yield from gradients(schedule, rows, adjacency)
    if design.focus is not None:
        focus = design.focus
        if schedule.spread:
            yield rows.spread(schedule.spread)
        yield focus.cells_of_all.vector(schedule.cells, focus.moves(adjacency))
        yield focus.cross(schedule.cross, adjacency)
        yield focus.residual(schedule.products, adjacency)
    elif schedule.products:
        yield from left_over(schedule, rows, adjacency)
    if schedule.meat:
        yield design.last.meat.vector(schedule.meat, rows.moves(adjacency))


def _moments(design: BayesDesign, adjacency: Adjacency, *, estimates: bool) -> Iterator[Summed]:
    """One release of moments, before it the deviations of Algorithm 2, and the sum of y^2 where a precision is to be estimated."""
    parameters, layout = design.parameters, design.layout
    estimates = estimates and ESTIMATE in {parameters.prior_precision, parameters.noise_precision}
    square = _SQUARE_SHARE if estimates and layout.geometry is not Geometry.AUGMENTED else 0.0
    rest = (1 - parameters.projection) * (1 - square)
    if parameters.projection:
        count, unit = len(design.projected), float(layout.grid**2)
        distance = math.sqrt(count) * column_moments(0.0, 1.0, 1.0, adjacency, may_be_absent=False) * unit
        yield Summed(
            DEVIATIONS,
            (Block(count, 1 / layout.grid), Block(count, 1.0)),
            # One person moves all columns at once, one value moves one of them.
            {Unit.RECORD: Reach(distance, 2 * count), Unit.ATTRIBUTE: Reach(distance / math.sqrt(count), 2)},
            layout.grid**2,
            parameters.projection,
        )
    if square:  # y^2 lies between 0 and 1 in coded units, under both adjacencies
        reach = {unit: Reach(float(layout.grid**2), 1) for unit in ROWWISE}
        yield Summed(SQUARE, (Block(1, 1.0),), reach, layout.grid**2, (1 - parameters.projection) * square)
    yield layout.vector(MOMENTS, adjacency, rest)


def compile_plan(study: Study) -> Plan:
    """Return the releases of a Bayes study."""
    return plan_of(study, design_of(study))


def plan_of(study: Study, design: BayesDesign, voids: tuple[Sentence, ...] = ()) -> Plan:
    """Return the plan that adds up what this setup says."""
    passes = max(design.schedule.passes, len(design.totals))
    notes = (*passes_note(design.method, passes), *release_notes(design.totals, design.covariance, {CROSS: _CROSS_TOLD}))
    if design.focus is not None:
        notes = (*notes, _focus_note(design))
    return plan_of_totals(study, design, assumptions=assumed(study, design.models), voids=voids, notes=notes)


def _focus_note(design: BayesDesign) -> str:
    """Return the plan's note on what a focus costs the other terms."""
    focus = design.focus
    assert focus is not None
    others, part = len(focus.nuisance), design.schedule.products + design.schedule.cross
    return (
        f"focus on {listed(list(design.parameters.focus))}: {part:.0%} of the squared budget is for these terms. The other {others} columns and the "
        "intercept have coefficients for predictions, and no standard errors"
    )
