"""Budget to releases: one vector of sums per party, its layout, its sensitivity, its noise (THEORY.md, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from unpooled.errors import UsageError
from unpooled.models.describe.arms import ARMS, ArmsLayout
from unpooled.models.describe.ranges import RangesLayout
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Column, integer_grid
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Card, Plan, Release, Study, check_parameters
from unpooled.privacy.sensitivity import category_counts, column_moments, household_row
from unpooled.privacy.unit import Adjacency, Split, Unit

#: Relative weights of (count, sum of z, sum of z^2). Up to sqrt 2 the squares are free under ``replace``: the worst pair is
#: then still z = -1 against z = 1, which moves only the sum (THEORY.md, section 2).
WEIGHTS = (1.0, 1.0, math.sqrt(2.0))

STEP, RELEASE = "sums", "sums"
HISTOGRAM = "histogram"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters that a study may set for this model."""

    #: Which columns to describe; None: all that the first party declares.
    columns: tuple[str, ...] | None = None
    #: Confidence of the reported intervals.
    confidence: float = 0.95
    #: Describe the other columns apart for every level of this one, and compare the levels: a table of arms.
    by: str = ""
    #: Release histograms, from which ranges are read, in the place of sums inside declared ones.
    ranges: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError("confidence must lie between 0 and 1")
        if self.columns is not None and (not self.columns or len(set(self.columns)) != len(self.columns)):
            raise ValueError("columns must name at least one column, each once")
        if self.by and self.ranges:
            raise ValueError("ranges are of all rows together: leave by out")


@dataclass(frozen=True, slots=True)
class SumsLayout:
    """Which coordinates the released vector has. Numeric column: [count], sum z, sum z^2; categories: one count each.

    The count of a column that cannot be absent is the public number of rows and is not released, but where ids have several rows.
    """

    columns: tuple[Column, ...]
    adjacency: Adjacency
    grid: int
    #: Whether nobody knows how many rows count.
    uncertain: bool = False
    #: Whether rows of an id that leave one party may appear at another.
    rows_move: bool = False

    def counts(self, column: Column) -> bool:
        """Return True if the number of a column's values is not public."""
        return self.uncertain or column.may_be_absent

    def blocks(self, i: int) -> tuple[Block, ...]:
        """Return the blocks of column i; widths make a noise of scale D_i the calibrated one for mu = 1."""
        column = self.columns[i]
        reach = self.distance(i)
        if column.categories is not None:
            return (Block(len(column.categories), reach),)
        units = (1, self.grid, self.grid**2)
        first = 0 if self.counts(column) else 1
        return tuple(Block(1, reach * u / w) for u, w in list(zip(units, WEIGHTS, strict=True))[first:])

    def distance(self, i: int) -> float:
        """Return the L2 sensitivity of column i's weighted coordinates in coded units (Theorems F.1 and F.2)."""
        column = self.columns[i]
        if column.categories is not None:
            return category_counts(self.adjacency)
        counted = self.counts(column)
        weights = (WEIGHTS[0] if counted else 0.0, *WEIGHTS[1:])
        inside = column_moments(*weights, self.adjacency, may_be_absent=counted)
        if not self.uncertain:
            return inside
        return household_row(inside, math.hypot(*weights), self.adjacency, rows_move=self.rows_move)

    def width(self, i: int) -> int:
        """Return the number of coordinates of column i."""
        return sum(block.size for block in self.blocks(i))


@dataclass(frozen=True)
class DescribeDesign:
    """The design that the model made of a study."""

    parameters: Parameters
    #: Of every party's vector.
    layouts: dict[str, SumsLayout]
    #: Of the histograms, where ranges are asked for.
    ranges: RangesLayout | None = None
    #: Of the sums of every arm, where columns are described by one of them.
    arms: ArmsLayout | None = None


def layout(study: Study, card: Card, parameters: Parameters) -> SumsLayout:
    """Return the layout of one party's vector."""
    wanted = parameters.columns or tuple(c.name for c in study.parties[0].columns)
    if not wanted:
        msg = f"party {study.parties[0].name!r} declares no columns to describe: labels are its own affair"
        raise UsageError(msg)
    columns = tuple(card.column(name) for name in wanted)
    for column, first in zip(columns, (study.parties[0].column(name) for name in wanted), strict=True):
        if column != first:
            msg = (
                f"column {column.name!r} is declared differently by {card.name!r} and {study.parties[0].name!r}: "
                "parties that are added up must agree on bounds, categories and the missing rule"
            )
            raise UsageError(msg).at(column=column.name)
    grid = integer_grid(max(c.rows for c in study.parties), degree=2)
    return SumsLayout(columns, Adjacency(study.adjacency), grid, study.household_rows > 1, study.rows_move)


def mechanism(study: Study, layout: SumsLayout) -> GaussianRelease:
    """Return one party's release: every column gets an equal share of the squared budget."""
    indices = range(len(layout.columns))
    # In units of the widths every column has reach 1: a row moves them all, an attribute one of them. Where the number of rows is uncertain
    # the widths cover a row that appears, too; where an id has one row there is no such row.
    reach = {
        Unit.RECORD: Reach(math.sqrt(len(layout.columns)), sum(map(layout.width, indices))),
        Unit.ATTRIBUTE: Reach(1.0, max(map(layout.width, indices))),
    }
    if study.unit == Unit.HOUSEHOLD:
        reach[Unit.HOUSEHOLD] = reach[Unit.RECORD].times(study.household_rows)
    blocks = [block for i in indices for block in layout.blocks(i)]
    return GaussianRelease.calibrated(blocks, reach, Unit(study.unit), budget_mu(study.epsilon, study.delta))


def compile_plan(study: Study) -> Plan:
    """Return the plan of a describe study."""
    if study.trust:
        msg = f"model 'describe' needs no trust; remove {', '.join(study.trust)}"
        raise UsageError(msg)
    parameters = check_parameters(study, Parameters)
    if parameters.ranges:
        return _ranges(study, parameters)
    if parameters.by:
        return _by_arm(study, parameters)
    layouts = {card.name: layout(study, card, parameters) for card in study.parties}
    releases = tuple(Release(RELEASE, name, STEP, mechanism(study, layout)) for name, layout in layouts.items())
    return Plan(study, Split.HORIZONTAL, releases, design=DescribeDesign(parameters, layouts))


def _by_arm(study: Study, parameters: Parameters) -> Plan:
    """Return the plan of a study that describes every arm apart."""
    names = parameters.columns or tuple(column.name for column in study.parties[0].columns)
    layout = ArmsLayout.of(study, parameters.by, names)
    releases = tuple(Release(ARMS, card.name, ARMS, layout.mechanism(study)) for card in study.parties)
    return Plan(study, Split.HORIZONTAL, releases, design=DescribeDesign(parameters, {}, arms=layout))


def _ranges(study: Study, parameters: Parameters) -> Plan:
    """Return the plan of a study that releases histograms."""
    first = study.parties[0]
    columns = tuple(first.column(name) for name in parameters.columns or tuple(c.name for c in first.columns))
    for column in columns:
        if column.categories is not None:
            msg = f"column {column.name!r} has categories: ranges are of numbers, so leave it out"
            raise UsageError(msg).at(column=column.name)
        for card in study.parties:
            card.column(column.name)
    layout = RangesLayout(columns)
    releases = tuple(Release(HISTOGRAM, card.name, HISTOGRAM, layout.mechanism(study)) for card in study.parties)
    return Plan(study, Split.HORIZONTAL, releases, design=DescribeDesign(parameters, {}, layout))
