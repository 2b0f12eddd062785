"""Budget to releases: one histogram per party over the cells of a table, its sensitivity, its noise (THEORY.md, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.models.tables.layout import TableLayout, cuts_of
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.sensitivity import category_counts
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import Adjacency, Split, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

STEP, RELEASE = "table", "table"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters that a study may set for this model."""

    #: The columns of the table: the first one's levels are compared by the last one's; those in between are strata.
    columns: tuple[str, ...]
    #: Cut points of every column that is a number, or a number of equally wide bins.
    cuts: dict[str, tuple[float, ...] | int] = {}
    #: Public numbers of rows of some levels, over all parties, by column and level.
    totals: dict[str, dict[str, int]] = {}
    #: Confidence of the reported intervals.
    confidence: float = 0.95

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
    if study.trust:
        msg = f"model 'tables' needs no trust; remove {', '.join(study.trust)}"
        raise UsageError(msg)
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
