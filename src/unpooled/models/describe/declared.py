"""Budget to releases: one vector of sums per party, or of sums by arm, or private ranges, with its layout, its sensitivity and its noise (THEORY.md, sections 2 and 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.declared import COLUMNS as SPLIT
from unpooled.privacy.declared import PROOF, CheckWord, Colluding, Confidence, SplitWord, says
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Card, Plan, Release, Study, check_parameters
from unpooled.privacy.sensitivity import category_counts, column_moments, household_row
from unpooled.privacy.unit import Adjacency, Split, Unit
from unpooled.protocol.registry import COLUMNS, ROWS, Template
from unpooled.schedules import table
from unpooled.totals.threads import shared_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.privacy.table import Table


# --- Private ranges --------------------------------------------------------------------------------------------------------
# Private ranges as declared bounds: one noisy histogram per column over public bins, from which low and high are read.
#
# Bins are public before anybody looks: between powers of sqrt 2 up to :math:`2^{40}` on both sides of zero, what is nearer to zero than
# :math:`2^{-20}`, what is farther than :math:`2^{40}`, and a missing value. One record is in one bin of every column (Theorem Q.1).

_TUNED = table("describe")
#: Exponents of 2 of the smallest and largest edge, and edges per power of two.
_SMALLEST, _LARGEST, _PER_POWER = -20, 40, _TUNED.whole("edges_per_power")
_POSITIVE = 2.0 ** np.arange(_SMALLEST, _LARGEST + 1 / _PER_POWER, 1 / _PER_POWER)
#: Edges of the bins, rising; the outermost bins are open.
EDGES: NDArray[np.float64] = np.concatenate([-_POSITIVE[::-1], _POSITIVE])
#: Bins of a column: between and beyond the edges, and one for what is missing.
BINS = EDGES.size + 2
#: What a column is declared as before it has a range: everything that a bin with two ends holds.
FARTHEST = float(_POSITIVE[-1])


class Range(msgspec.Struct, frozen=True):
    """A column's private range: the bins that hold more than noise, and one more on each side."""

    column: str
    low: float
    high: float
    #: Estimated share of the values that lie outside, and of those that are missing.
    clipped: float
    missing: float


@dataclass(frozen=True, slots=True)
class RangesLayout:
    """The counts of all bins of these columns, one after the other."""

    columns: tuple[Column, ...]

    def mechanism(self, study: Study) -> GaussianRelease:
        """Return equal noise on every count (Theorem Q.1)."""
        d, adjacency = len(self.columns), Adjacency(study.adjacency)
        moved = 2.0 if adjacency is Adjacency.REPLACE else 1.0
        # A value that goes missing is counted as missing: it leaves one bin for another, under both adjacencies.
        reach = {Unit.RECORD: Reach(math.sqrt(moved * d), 2 * d), Unit.ATTRIBUTE: Reach(math.sqrt(2.0), 2)}
        if study.unit == Unit.HOUSEHOLD:
            reach[Unit.HOUSEHOLD] = reach[Unit.RECORD].times(study.household_rows)
        mu = budget_mu(study.epsilon, study.delta)
        return GaussianRelease.calibrated((Block(d * BINS, 1.0),), reach, Unit(study.unit), mu)

    def statistic(self, table: Table) -> NDArray[np.int64]:
        """Return the exact counts of one party's rows."""
        total = np.zeros((len(self.columns), BINS), dtype=np.int64)
        for block in table.blocks(tuple(column.name for column in self.columns)):
            for i, values in enumerate(block):
                total[i] += np.bincount(bins_of(values), minlength=BINS)
        return total.ravel()

    def ranges(
        self, counts: NDArray[np.float64], deviation: float, rows: int, least: int | None = None
    ) -> tuple[Range, ...]:
        """Return low and high of every column from its noisy counts of ``rows`` rows; of at least ``least`` where the number is not known."""
        d = len(self.columns)
        level = deviation * NormalDist().inv_cdf(1 - (1 - _TUNED.confidence) / (d * BINS))
        found = []
        for column, own in zip(self.columns, counts.reshape(d, BINS), strict=True):
            present = own[:-1]
            full = np.flatnonzero(present > max(level, 0.0))
            if not full.size:
                msg = f"no bin of column {column.name!r} holds more than noise: ask for more epsilon, or describe fewer columns at once"
                raise UsageError(msg).at(column=column.name)
            # One bin more on each side, for values too few to be seen.
            first, last = max(int(full[0]) - 1, 0), min(int(full[-1]) + 1, BINS - 2)
            low = float(EDGES[first - 1]) if first else -FARTHEST
            high = float(EDGES[last]) if last < EDGES.size else FARTHEST
            held = float(present[first : last + 1].sum() + max(float(own[-1]), 0.0))
            of = rows if least is None else min(max(held, least), rows)
            outside = float(present.sum() - present[first : last + 1].sum())
            clipped, missing = (min(max(number / of, 0.0), 1.0) for number in (outside, float(own[-1])))
            found.append(Range(column.name, low, high, clipped, missing))
        return tuple(found)


def bins_of(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the bin of every value: left-closed on the positive side and on the negative one alike; the last one is for what is missing."""
    if values.dtype == object:
        raise UsageError("private ranges are of numbers: declare the categories of text columns")
    found = np.searchsorted(EDGES, values, side="right")
    return np.where(np.isnan(values), BINS - 1, found)


def render(ranges: tuple[Range, ...]) -> str:
    """Return the ranges as a table."""
    lines = [f"{'column':<24}{'low':>14}{'high':>14}{'clipped':>10}{'missing':>10}"]
    lines += [f"{r.column:<24}{r.low:>14.6g}{r.high:>14.6g}{r.clipped:>10.1%}{r.missing:>10.1%}" for r in ranges]
    return "\n".join(lines)


# --- Sums by arm -----------------------------------------------------------------------------------------------------------
# Sums of columns apart for every level of one column, as a table of two arms has them (THEORY.md, section 7).

#: The release of these sums, and its step.
ARMS = "arms"
#: Weights of (count, sum of z, sum of z^2): a row that goes to another arm moves all of them twice, so no square is free.
_WEIGHTS = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class ArmsLayout:
    """Which coordinates the released vector has: rows of every arm; then of every column, arm after arm, its own sums.

    Numbers: [count], sum z, sum z^2, the count only where a value may be missing. Categories: one count each.
    """

    by: Column
    columns: tuple[Column, ...]
    adjacency: Adjacency
    grid: int
    #: The number of rows that one unit may have.
    most: int = 1

    @classmethod
    def of(cls, study: Study, by: str, names: tuple[str, ...]) -> ArmsLayout:
        """Return the layout that a study asks for; refused where parties declare its columns differently."""
        first = study.parties[0]
        arm = first.column(by)
        columns = tuple(first.column(name) for name in names if name != by)
        if arm.categories is None or len(arm.categories) < 2 or not columns:  # noqa: PLR2004
            msg = f"by = {by!r} is a declared column of two categories or more, and there are other columns to describe"
            raise UsageError(msg).at(column=by)
        for card in study.parties:
            for column in (arm, *columns):
                if card.column(column.name) != column:
                    msg = (
                        f"column {column.name!r} is declared differently by {card.name!r} and {first.name!r}: "
                        "parties that are added up must agree on bounds, categories and the missing rule"
                    )
                    raise UsageError(msg).at(column=column.name)
        grid = integer_grid(max(card.rows for card in study.parties), degree=2)
        return cls(arm, columns, Adjacency(study.adjacency), grid, study.household_rows)

    @property
    def arms(self) -> tuple[str, ...]:
        """Return the levels that tell the arms."""
        assert self.by.categories is not None
        return self.by.categories

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Return where the coordinates of every column are, behind the counts of the arms."""
        at, found = len(self.arms), []
        for column in self.columns:
            size = len(self.arms) * self.each(column)
            found.append(slice(at, at + size))
            at += size
        return tuple(found)

    @property
    def size(self) -> int:
        """Return the number of coordinates."""
        return int(self.places[-1].stop)

    @staticmethod
    def each(column: Column) -> int:
        """Return the number of coordinates that a column has in one arm."""
        return len(column.categories) if column.categories is not None else 2 + column.may_be_absent

    def distance(self, column: Column | None) -> float:
        """Return the L2 sensitivity of a column's weighted coordinates to one row, or of the arms' counts (Theorem Q.2)."""
        if column is None or column.categories is not None:
            return category_counts(self.adjacency)
        weights = (_WEIGHTS[0] if column.may_be_absent else 0.0, *_WEIGHTS[1:])
        inside = column_moments(*weights, self.adjacency, may_be_absent=column.may_be_absent)
        across = math.hypot(*weights)  # what a row adds to its arm
        return max(inside, across * (math.sqrt(2.0) if self.adjacency is Adjacency.REPLACE else 1.0))

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks: of every column, and of the arms' counts, an equal share of the squared budget."""
        yield Block(len(self.arms), self.distance(None))
        for column in self.columns:
            reach = self.distance(column)
            if column.categories is not None:
                yield Block(len(self.arms) * len(column.categories), reach)
                continue
            units = (1, self.grid, self.grid**2)[0 if column.may_be_absent else 1 :]
            weights = _WEIGHTS[0 if column.may_be_absent else 1 :]
            for _ in self.arms:
                yield from (Block(1, reach * unit / weight) for unit, weight in zip(units, weights, strict=True))

    def mechanism(self, study: Study) -> GaussianRelease:
        """Return one party's release. A value may be the arm's, which moves everything: it reaches as far as the whole row."""
        whole = Reach(math.sqrt(len(self.columns) + 1), self.size)
        reach = {Unit.RECORD: whole, Unit.ATTRIBUTE: whole}
        if study.unit == Unit.HOUSEHOLD:
            reach[Unit.HOUSEHOLD] = whole.times(study.household_rows)
        return GaussianRelease.calibrated(
            list(self.blocks()), reach, Unit(study.unit), budget_mu(study.epsilon, study.delta)
        )

    def statistic(self, table: Table) -> NDArray[np.int64]:
        """Return the exact sums: integers, so that neither the order of rows nor blocks change a bit of them."""
        names = (self.by.name, *(column.name for column in self.columns))
        return shared_out(table.blocks(names), partial(_added_up, self))

    def decoded(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
        """Return (rows of every arm, a line of sums in coded units for every arm of each column)."""
        units = (1.0, float(self.grid), float(self.grid) ** 2)
        found = []
        for column, place in zip(self.columns, self.places, strict=True):
            own = values[place].reshape(len(self.arms), -1)
            found.append(own if column.categories is not None else own / units[0 if column.may_be_absent else 1 :])
        return values[: len(self.arms)], found


def _added_up(layout: ArmsLayout, blocks: Iterator[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
    coding = Coding((layout.by, *layout.columns), layout.grid)
    starts = np.searchsorted(coding.attribute, range(len(layout.columns) + 1))
    total = np.zeros(layout.size, dtype=np.int64)
    for block in blocks:
        coded, present = coding.code(block)
        for arm in range(len(layout.arms)):
            inside = coded[:, starts[0] + arm] > 0
            total[arm] += inside.sum()
            for i, (column, place) in enumerate(zip(layout.columns, layout.places, strict=True), 1):
                each = layout.each(column)
                z = coded[inside, starts[i]]
                if column.categories is not None:
                    part = coded[inside, starts[i] : starts[i] + each].sum(axis=0) // layout.grid
                elif column.may_be_absent:
                    part = np.array([present[inside, i].sum(), z.sum(), z @ z])
                else:
                    part = np.array([z.sum(), z @ z])
                at = place.start + arm * each
                total[at : at + each] += part
    return total


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Budget to releases: one vector of sums per party, its layout, its sensitivity, its noise (THEORY.md, section 2).

#: Relative weights of (count, sum of z, sum of z^2). Up to sqrt 2 the squares are free under ``replace``: the worst pair is
#: then still z = -1 against z = 1, which moves only the sum (THEORY.md, section 2).
WEIGHTS = (1.0, 1.0, math.sqrt(2.0))

STEP, RELEASE = "sums", "sums"
HISTOGRAM = "histogram"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters that a study may set for this model."""

    columns: Annotated[
        tuple[str, ...] | None,
        says(
            "The columns to describe. Left out: all that the first party declares.",
            ["age", "smoker"],
            column=True,
            study=True,
        ),
    ] = None
    confidence: Confidence = 0.95
    by: Annotated[
        str,
        says(
            "A column with categories, an arm of a trial for one: describe the others apart for each of its levels, with standardised differences from the "
            "first level.",
            "arm",
            column=True,
            lean=True,
        ),
    ] = ""
    ranges: Annotated[
        bool,
        says(
            "Release histograms, from which private ranges are read, in the place of sums inside declared ones.", study=True
        ),
    ] = False

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError("confidence must lie between 0 and 1")
        if self.columns is not None and (not self.columns or len(set(self.columns)) != len(self.columns)):
            raise ValueError("columns must name at least one column, each once")
        if self.by and self.ranges:
            raise ValueError("ranges are of all rows together: leave by out")


class JointParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a description of columns at several parties."""

    split: SplitWord = SPLIT
    confidence: Confidence = 0.95
    tolerate: Colluding = 0
    check: CheckWord = PROOF

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError("confidence must lie between 0 and 1")
        if self.split != SPLIT:
            msg = f'split is "{SPLIT}", or left out'
            raise ValueError(msg)

    @property
    def response(self) -> str:
        """Return the name of no column: none is a response."""
        return ""


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


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of counts, means and standard deviations.


_JOINED = Template.of(
    JointParameters,
    "Means and deviations of columns at several parties, and correlations of all of them, from joint second moments.",
    COLUMNS,
)

TEMPLATE = Template.of(
    Parameters,
    "Counts, means and standard deviations, per party and pooled.",
    ROWS,
    with_helpers=_JOINED,
)


__all__ = ["ARMS", "ArmsLayout"]
