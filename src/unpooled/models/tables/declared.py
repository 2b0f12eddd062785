"""Budget to releases: one histogram per party over the cells of a table, its sensitivity, its noise (THEORY.md, section 2), how a party counts, and the expected error."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.estimation.outlook import (
    EPSILONS,
    Expected,
    Outlook,
    Range,
    check_range,
    in_words,
)
from unpooled.estimation.parameters import LIST, WORD
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Coding, text_of
from unpooled.privacy.declared import Confidence, says
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach, Vector
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.sensitivity import category_counts
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.table import BLOCK_ROWS
from unpooled.privacy.unit import Adjacency, Split, Unit
from unpooled.protocol.context import Context
from unpooled.protocol.messages import Nothing, Released
from unpooled.protocol.registry import ROWS, Step, Template
from unpooled.schedules import table
from unpooled.totals.threads import shared_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import Table

    Places = NDArray[np.intp]


# --- Layout ----------------------------------------------------------------------------------------------------------------
# Cells of a table: the levels of each declared column, and the places of the cells that make up a line or a bin.

#: The most cells of a table, and the most bins of a number.
MOST_CELLS, MOST_BINS = 4096, 1000


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns of a table, and the rising cut points of those that are numbers (none for categories)."""

    columns: tuple[Column, ...]
    cuts: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if self.size > MOST_CELLS:
            msg = f"the table has {self.size} cells, and the most are {MOST_CELLS}: take fewer columns, or fewer levels"
            raise UsageError(msg)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of levels of every column, the level of missing values included."""
        return tuple(len(levels) for levels in self.levels)

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return math.prod(self.shape)

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of every column's levels, in the order of its cells."""
        return tuple(self._levels(i) for i in range(len(self.columns)))

    def present(self, i: int) -> int:
        """Return the number of a column's levels without that of missing values."""
        categories = self.columns[i].categories
        return len(self.cuts[i]) + 1 if categories is None else len(categories)

    def edges(self, i: int) -> tuple[float, ...]:
        """Return the ends of a number's bins."""
        low, high = self.columns[i].range
        return (low, *self.cuts[i], high)

    def places(self, parties: int) -> Places:
        """Return the places of all parties' cells, one party after the other, as an array with an axis for parties and one per column."""
        return np.arange(parties * self.size).reshape(parties, *self.shape)

    def _levels(self, i: int) -> tuple[str, ...]:
        column = self.columns[i]
        names = column.categories if column.categories is not None else _bins(self.edges(i))
        missing = "missing" if "missing" not in names else "(missing)"
        return (*names, missing) if column.may_be_absent else names


def _bins(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Return the names of bins: an end with a square bracket belongs to the bin."""
    ends = [f"{edge:.6g}" for edge in edges]
    if len(set(ends)) < len(ends):
        ends = [text_of(edge) for edge in edges]
    closing = [")"] * (len(edges) - 2) + ["]"]
    return tuple(f"[{low}, {high}{end}" for (low, high), end in zip(itertools.pairwise(ends), closing, strict=True))


def cuts_of(column: Column, cuts: Mapping[str, tuple[float, ...] | int]) -> tuple[float, ...]:
    """Return the cut points of one column; none for categories. A whole number asks for that many equally wide bins."""
    said = cuts.get(column.name)
    if column.categories is not None:
        if said is not None:
            msg = f"column {column.name!r} has categories: cuts are of numbers"
            raise UsageError(msg).at(column=column.name)
        return ()
    low, high = column.range
    if said is None:
        msg = f"column {column.name!r} is a number: name its cut points in cuts, or the number of its bins; or declare its values as categories, as texts"
        raise UsageError(msg).at(column=column.name)
    if isinstance(said, int):
        if not 1 < said <= MOST_BINS:
            msg = f"cuts of column {column.name!r}: a number of bins is between 2 and {MOST_BINS}"
            raise UsageError(msg).at(column=column.name)
        said = tuple(float(edge) for edge in np.linspace(low, high, said + 1)[1:-1])
    rising = all(one < other for one, other in itertools.pairwise((low, *said, high)))
    if not said or len(said) >= MOST_BINS or not rising:
        msg = f"cuts of column {column.name!r} are rising numbers inside its declared range, at least one and fewer than {MOST_BINS}"
        raise UsageError(msg).at(column=column.name)
    return said


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Budget to releases: one histogram per party over the cells of a table, its sensitivity, its noise (THEORY.md, section 2).

STEP, RELEASE = "table", "table"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters that a study may set for this model."""

    columns: Annotated[
        tuple[str, ...],
        says(
            "The columns of the table. The levels of the first are compared by those of the last; columns in between are strata, and so are sites. Of an "
            "array, names for all of its columns.",
            ["arm", "outcome"],
            column=True,
            kinds=(LIST, WORD),
            call="str or sequence of str",
            written="str | Sequence[str]",
        ),
    ]
    cuts: Annotated[
        dict[str, tuple[float, ...] | int],
        says(
            "For every column that is a number: rising cut points, or a number of equally wide bins. A value equal to a cut point belongs to the bin above it.",
            {"age": [40, 60]},
            lean=True,
        ),
    ] = {}
    totals: Annotated[
        dict[str, dict[str, int]],
        says(
            "Numbers of rows of levels, over all parties, that are public already, such as the sizes of a trial's arms: the counts are made consistent with "
            "them.",
            {"arm": {"control": 500}},
            lean=True,
        ),
    ] = {}
    confidence: Confidence = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError("confidence must lie between 0 and 1")
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise ValueError("columns must name at least one column, each once")
        for name, named in (("cuts", self.cuts), ("totals", self.totals)):
            unknown = [column for column in named if column not in self.columns]
            if unknown:
                msg = f"{name} names {unknown[0]!r}, which is not among columns"
                raise ValueError(msg)


@dataclass(frozen=True)
class TablesDesign:
    """The design that the model made of a study."""

    parameters: Parameters
    layout: TableLayout
    #: Whether nobody knows how many rows count.
    uncertain: bool
    #: Columns whose declared totals contradict the numbers of rows, and are not used.
    contradicted: tuple[str, ...] = ()

    def margins(self, parties: int) -> Iterator[tuple[NDArray[np.float64], float]]:
        """Yield the declared totals that are used: 1 at the cells of every party that a total counts, and the total."""
        places, levels = self.layout.places(parties), self.layout.levels
        used = {name: said for name, said in self.parameters.totals.items() if name not in self.contradicted}
        for name, totals in used.items():
            at = self.parameters.columns.index(name)
            for level, total in totals.items():
                row = np.zeros(places.size)
                row[places.take(levels[at].index(level), axis=at + 1).ravel()] = 1.0
                yield row, float(total)


def mechanism(study: Study, layout: TableLayout) -> GaussianRelease:
    """Return one party's release: equal noise on every cell (Theorem N.1)."""
    # One value moves its row from a cell to another one, under both adjacencies.
    reach = {Unit.RECORD: Reach(category_counts(Adjacency(study.adjacency)), 2), Unit.ATTRIBUTE: Reach(math.sqrt(2.0), 2)}
    if study.unit == Unit.HOUSEHOLD:
        reach[Unit.HOUSEHOLD] = reach[Unit.RECORD].times(study.household_rows)
    mu = budget_mu(study.epsilon, study.delta)
    return GaussianRelease.calibrated((Block(layout.size, 1.0),), reach, Unit(study.unit), mu)


def compile_plan(study: Study) -> Plan:
    """Return the plan of a table."""
    parameters = check_parameters(study, Parameters)
    first = study.parties[0]
    columns = tuple(first.column(name) for name in parameters.columns)
    for card in study.parties:
        for column in columns:
            if card.column(column.name) != column:
                msg = (
                    f"column {column.name!r} is declared differently by {card.name!r} and {first.name!r}: "
                    "parties that are added up must agree on bounds, categories and the missing rule"
                )
                raise UsageError(msg).at(column=column.name)
    layout = TableLayout(columns, tuple(cuts_of(column, parameters.cuts) for column in columns))
    design = TablesDesign(parameters, layout, study.household_rows > 1, _checked(study, parameters, layout))
    releases = tuple(Release(RELEASE, card.name, STEP, mechanism(study, layout)) for card in study.parties)
    declared = Sentence(
        "tables.totals",
        "The study names totals of {columns}; they are published as they were declared.",
        columns=listed(list(parameters.totals)),
    )
    return Plan(study, Split.HORIZONTAL, releases, not_protected=(declared,) if parameters.totals else (), design=design)


def _checked(study: Study, parameters: Parameters, layout: TableLayout) -> tuple[str, ...]:
    """Return the columns whose totals contradict the parties' numbers of rows; unknown levels are refused."""
    if parameters.totals and study.household_rows > 1:
        msg = "totals go with numbers of rows that are public: with several rows of an id they are not, so leave totals out"
        raise UsageError(msg)
    rows = sum(card.rows for card in study.parties)
    for name, totals in parameters.totals.items():
        levels = layout.levels[parameters.columns.index(name)]
        unknown = [level for level in totals if level not in levels]
        if unknown:
            msg = f"totals of column {name!r} name {unknown[0]!r}, which is not among its levels {listed(list(levels))}"
            raise UsageError(msg).at(column=name)
        if not totals or min(totals.values()) < 0:
            msg = f"totals of column {name!r} are numbers of rows, at least one and none of them negative"
            raise UsageError(msg).at(column=name)
    sums = {name: (sum(totals.values()), totals) for name, totals in parameters.totals.items()}
    whole = {name: layout.shape[parameters.columns.index(name)] for name in sums}
    return tuple(name for name, (n, totals) in sums.items() if n > rows or (len(totals) == whole[name] and n != rows))


def notes(plan: Plan[TablesDesign]) -> tuple[str, ...]:
    """Return the number of cells and the noise of a count, at one party and of all together."""
    release = plan.release(plan.study.parties[0].name, RELEASE).mechanism
    assert isinstance(release, GaussianRelease)
    own, parties, design = float(release.deviations[0]), len(plan.study.parties), plan.design
    together = f", {own * math.sqrt(parties):.3g} of all {parties} parties" if parties > 1 else ""
    cells = f"a table of {design.layout.size} cells; the noise of a count has the standard deviation {own:.3g} at a party{together}"
    unused = f"the totals of {listed(list(design.contradicted))} contradict the parties' numbers of rows, and are not used"
    return (cells, unused) if design.contradicted else (cells,)


# --- Messages --------------------------------------------------------------------------------------------------------------
# Everything that may leave a party: one released vector of counts.


class TableReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy counts of the cells of :class:`unpooled.models.tables.declared.TableLayout`."""

    counts: Released


# --- The party's steps -----------------------------------------------------------------------------------------------------
# The only part of this model that touches raw data: exact counts of the cells of a table.


def cells(table: Table, layout: TableLayout, block_rows: int = BLOCK_ROWS) -> NDArray[np.int64]:
    """Return the statistic: the number of rows in every cell, the last column's level changing fastest."""
    return shared_out(table.blocks(tuple(column.name for column in layout.columns), block_rows), partial(_counted, layout))


def _counted(layout: TableLayout, blocks: Iterator[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
    total = np.zeros(layout.size, dtype=np.int64)
    for block in blocks:
        places = [level_of(layout, i, raw) for i, raw in enumerate(block)]
        total += np.bincount(np.ravel_multi_index(places, layout.shape), minlength=total.size)
    return total


def level_of(layout: TableLayout, i: int, raw: NDArray[Any]) -> NDArray[np.intp]:
    """Return the level of every value of one column; the last one is for what is missing, where that may be."""
    column, cuts = layout.columns[i], layout.cuts[i]
    coded, present = Coding((column,), 1).code((raw,))  # which refuses what does not fit the declaration
    if column.categories is not None:
        level = coded[:, : len(column.categories)].argmax(axis=1)
    else:
        level = np.searchsorted(cuts, np.where(present[:, 0], raw, 0.0), side="right")
    return np.where(present[:, 0], level, layout.present(i))


def answer(context: Context, request: Nothing) -> TableReply:  # noqa: ARG001 - the request is no more than its name
    """Release this party's counts."""
    context.planned(RELEASE)
    return TableReply(context.release(RELEASE, Vector(context.added_up(_cells))))


def _cells(context: Context[TablesDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:  # noqa: ARG001 - there are none
    return cells(context.table, context.design.layout)


STEPS = (Step(STEP, Nothing, TableReply, answer),)


# --- Outlook ---------------------------------------------------------------------------------------------------------------
# Outlook of a table of some shape: the error of a difference of two shares, from the plan's noise and the sampling that nobody avoids.

#: The share of the level in question, where nothing is said.
SHARES = table("outlooks").pair("table_shares")


def outlook(study: Study, *, shares: Range = SHARES, quick: bool = False) -> Outlook:
    """Return the root mean squared error of a share's difference between two lines of equal size, against epsilon; of one column, of a share.

    No simulation: sampling has the variance p (1 - p) over the rows of a line, and noise that of the plan, for the assumed ``shares``.
    """
    check_range("shares", shares, 0.001, 0.999)
    low, high = shares if isinstance(shares, tuple | list) else (shares, shares)
    rows = sum(card.rows for card in study.parties)
    plan = compile_plan(study)
    lines = plan.design.layout.shape[0] if len(plan.design.layout.columns) > 1 else 1
    grid = (study.epsilon,) if quick else sorted({*EPSILONS, study.epsilon})
    compared = min(lines, 2)

    def expected(epsilon: float) -> Expected:
        cell = _cell(msgspec.structs.replace(study, epsilon=epsilon))
        levels = plan.design.layout.shape[-1]
        errors = []
        for share in ((low + high) / 2, low, high):
            noise = cell * ((1 - share) ** 2 + (levels - 1) * share**2) * lines / rows
            errors.append(math.sqrt(compared * (share * (1 - share) + noise) * lines / rows))
        return Expected(epsilon, errors[0], min(errors), max(errors))

    middle = (low + high) / 2
    words = "error of a difference of two shares" if compared > 1 else "error of a share"
    return Outlook(
        "tables",
        rows,
        len(plan.design.layout.columns),
        study.epsilon,
        tuple(expected(epsilon) for epsilon in grid),
        math.nan,
        math.sqrt(compared * middle * (1 - middle) * lines / rows),
        words,
        in_words("share of the level", shares) + ", lines of equal size, sampling error included",
    )


def _cell(study: Study) -> float:
    """Return the variance of the noise of the count of a line and level, over all parties and strata."""
    plan = compile_plan(study)
    shape: tuple[int, ...] = plan.design.layout.shape
    total = 0.0
    for card in study.parties:
        release = plan.release(card.name, RELEASE).mechanism
        assert isinstance(release, GaussianRelease)
        total += float(release.deviations[0]) ** 2
    return total * math.prod(shape[1:-1])


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of a table.

TEMPLATE = Template.of(
    Parameters,
    "Counts of two columns' levels, tests, odds ratios and risk differences; histograms and quantiles of a number.",
    ROWS,
)
