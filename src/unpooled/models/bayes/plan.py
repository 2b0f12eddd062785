"""From a study to its releases: the moments, and before them the marginal deviations where the data are to be projected."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from unpooled.aggregation.modes import aggregation_of
from unpooled.aggregation.moments import Geometry, MomentsLayout
from unpooled.aggregation.totals import Aggregation, Summed
from unpooled.errors import UsageError
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.plan import Plan, Study, check_parameters
from unpooled.privacy.sensitivity import column_moments
from unpooled.privacy.unit import Adjacency, Split, Unit

MOMENTS, DEVIATIONS = "moments", "deviations"
AWARE, NAIVE = "noise-aware", "naive"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a Bayes study."""

    response: str
    #: T: parties that may collude or drop out. Meaningless to trusted and local aggregation but for dropouts.
    tolerate: int = 0
    #: Parties that may be nodes of the secure sum, or the trusted aggregator; empty: all, or the first.
    nodes: tuple[str, ...] = ()
    geometry: str = Geometry.BALL
    #: L2 bound on the centred row of features.
    norm: float | None = None
    fit_intercept: bool = True
    prior_precision: float = 1.0
    noise_precision: float = 1.0
    posterior: str = AWARE
    #: Share of the squared budget for the marginal deviations of Algorithm 2; 0 projects nothing.
    projection: float = 0.0
    #: Projection thresholds in deviations; None: the best on synthetic data.
    multiple: float | None = None
    #: Of the intervals that are reported.
    level: float = 0.95


@dataclass(frozen=True)
class BayesDesign:
    """A study, understood."""

    parameters: Parameters
    aggregation: Aggregation
    layout: MomentsLayout
    moments: Summed
    deviations: Summed | None

    @property
    def totals(self) -> dict[str, Summed]:
        """What is added up, by name."""
        return {vector.name: vector for vector in (self.deviations, self.moments) if vector is not None}

    @property
    def projected(self) -> tuple[Column, ...]:
        """The columns whose ranges Algorithm 2 narrows: numeric features, then the response."""
        return (*(c for c in self.layout.features if c.categories is None), self.layout.response)

    @property
    def coding(self) -> Coding:
        """The code of those columns, whose sums and sums of squares are released."""
        return Coding(self.projected, self.layout.grid)

    def narrowed(self, settings: tuple[float, ...]) -> MomentsLayout:
        """The layout with the ranges (low, high, low, high ..) that came out of the deviations."""
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


def _check(parameters: Parameters) -> None:
    """Refuse values that mean nothing, by name."""
    for name in ("prior_precision", "noise_precision"):
        if not 0 < getattr(parameters, name) < math.inf:
            msg = f"{name} must be a positive finite number"
            raise UsageError(msg)
    if parameters.posterior not in {AWARE, NAIVE}:
        msg = f"posterior is {AWARE!r} or {NAIVE!r}, not {parameters.posterior!r}"
        raise UsageError(msg)
    if not 0 < parameters.level < 1 or not 0 <= parameters.projection < 1:
        raise UsageError("level must lie between 0 and 1, and projection in [0, 1)")
    if parameters.multiple is not None and not 0 < parameters.multiple < math.inf:
        raise UsageError("multiple must be a positive number of deviations")
    if parameters.norm is not None and (parameters.projection or not 0 < parameters.norm < math.inf):
        raise UsageError("norm must be positive and finite, and goes without projection, which narrows single columns")
    if parameters.geometry not in set(Geometry):
        msg = f"geometry is one of {', '.join(Geometry)}, not {parameters.geometry!r}"
        raise UsageError(msg)


def design_of(study: Study) -> BayesDesign:
    """What the study asks for, checked."""
    parameters: Parameters = check_parameters(study, Parameters)
    first, *others = study.parties
    for card in others:
        if card.columns != first.columns:
            msg = f"parties {first.name!r} and {card.name!r} declare different columns: rows are split, so columns must be equal"
            raise UsageError(msg)
    _check(parameters)
    aggregation = aggregation_of(study, parameters.tolerate, parameters.nodes)
    rows = sum(card.rows for card in study.parties)
    layout = MomentsLayout.of(
        first.columns,
        parameters.response,
        rows,
        geometry=Geometry(parameters.geometry),
        norm=parameters.norm,
        intercept=parameters.fit_intercept,
    )
    adjacency, rest = Adjacency(study.adjacency), 1 - parameters.projection
    moments = layout.vector(MOMENTS, adjacency, rest)
    design = BayesDesign(parameters, aggregation, layout, moments, None)
    if not parameters.projection:
        return design
    count, unit = len(design.projected), float(layout.grid**2)
    distance = math.sqrt(count) * column_moments(0.0, 1.0, 1.0, adjacency, may_be_absent=False) * unit
    deviations = Summed(
        DEVIATIONS,
        (Block(count, 1 / layout.grid), Block(count, 1.0)),
        # One person moves all columns at once, one value moves one of them.
        {Unit.RECORD: Reach(distance, 2 * count), Unit.ATTRIBUTE: Reach(distance / math.sqrt(count), 2)},
        layout.grid**2,
        parameters.projection,
    )
    return BayesDesign(parameters, aggregation, layout, moments, deviations)


def compile_plan(study: Study) -> Plan:
    """The releases of a Bayes study."""
    return plan_of(study, design_of(study))


def plan_of(study: Study, design: BayesDesign, voids: tuple[str, ...] = ()) -> Plan:
    """The plan that adds up what this setup says."""
    not_protected, assumptions = design.aggregation.sentences
    return Plan(
        study,
        Split.HORIZONTAL,
        tuple(release for vector in design.totals.values() for release in design.aggregation.releases(vector, study)),
        not_protected=not_protected,
        assumptions=assumptions,
        voids=voids,
        trusted=design.aggregation.trusted,
        design=design,
    )
