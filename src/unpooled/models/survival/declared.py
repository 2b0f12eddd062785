"""Plan of a comparison of survival: one total of everybody's exits, by stratum, arm and interval (THEORY.md, section 2); and how a party counts them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.parameters import LIST
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.declared import Confidence, OverParties, says
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.plan import Plan, Study, check_parameters
from unpooled.privacy.sensitivity import category_counts
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.protocol.registry import ROWS, Template
from unpooled.schedules import table
from unpooled.totals.modes import aggregation_of, steps_of
from unpooled.totals.rounds import plan_of_totals, totals_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.threads import shared_out
from unpooled.totals.total import COUNT, Aggregation, Summed, no_settings, rows_counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

    from unpooled.protocol.context import Context


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Plan of a comparison of survival: one total of everybody's exits, by stratum, arm and interval (THEORY.md, section 2).

#: The name of the total.
EXITS = "exits"
_TWO = 2
_TUNED = table("survival")
_FEWEST, _MOST = _TUNED.whole("intervals_fewest"), _TUNED.whole("intervals_most")


class Parameters(OverParties, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a study of this model, and the arguments of ``unpooled.survival``."""

    time: Annotated[
        str,
        says(
            "The declared column with the time until the event, or until a person left or the end came; from 0 to the end of follow-up. Who is there at the "
            "end counts as without the event, also with one later.",
            "days",
            column=True,
        ),
    ]
    event: Annotated[
        str,
        says(
            "The declared column that says whether there was an event: 0 or 1, or two categories, the second of which is the event.",
            "died",
            column=True,
        ),
    ]
    by: Annotated[
        str, says("The declared column whose levels are compared with the first declared one.", "arm", column=True)
    ]
    strata: Annotated[str, says("A declared column of categories, inside whose levels arms are compared.", column=True)] = ""
    cuts: Annotated[
        tuple[float, ...],
        says(
            "Rising ends of intervals before the end of follow-up. Left out, intervals are equally long, in the number that the budget can tell.",
            kinds=(LIST,),
        ),
    ] = ()
    horizon: Annotated[
        float | None,
        says("The end of an interval up to which mean survival is restricted. None is the end of follow-up.", 365.0),
    ] = None
    confidence: Confidence = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError("confidence must lie between 0 and 1")
        if len({self.time, self.event, self.by, self.strata}) != 4:  # noqa: PLR2004 - all different
            raise ValueError("time, event, by and strata name different columns")


@dataclass(frozen=True)
class ExitsLayout:
    """The cells of the released histogram: stratum by arm by exit. Exits are, interval by interval, censored and event; and last who stayed."""

    time: Column
    event: Column
    by: Column
    strata: Column | None
    edges: tuple[float, ...]

    @property
    def arms(self) -> tuple[str, ...]:
        """Return the levels that are compared."""
        assert self.by.categories is not None
        return self.by.categories

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of strata, arms and exits."""
        levels = 1 if self.strata is None or self.strata.categories is None else len(self.strata.categories)
        return levels, len(self.arms), 2 * len(self.edges) + 1

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns that a row's cell depends on."""
        return (self.time, self.event, self.by, *([] if self.strata is None else [self.strata]))

    def counted(self, blocks: Iterator[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
        """Return the exact number of rows in every cell. A row with a missing value among these columns is in none."""
        total = np.zeros(math.prod(self.shape), dtype=np.int64)
        for block in blocks:
            levels, present = zip(*(_level(c, raw) for c, raw in zip(self.columns, block, strict=True)), strict=True)
            time, event, arm = levels[:3]
            event = np.where(block[0] > self.edges[-1], 0.0, event)  # an event after the end has not happened at the end
            interval = np.searchsorted(np.array(self.edges), time, side="left").clip(0, len(self.edges) - 1)
            # Whoever was followed to the end without an event stayed.
            stayed = (time >= self.edges[-1]) & (event == 0)
            exits = np.where(stayed, self.shape[2] - 1, 2 * interval + event).astype(np.intp)
            stratum = levels[3] if self.strata is not None else np.zeros(time.size)
            cell = np.ravel_multi_index((stratum.astype(np.intp), arm.astype(np.intp), exits), self.shape)
            total += np.bincount(cell[np.logical_and.reduce(present)], minlength=total.size)
        return total

    def vectors(self) -> Iterator[tuple[Adjacency, Summed]]:
        """Yield the total for each adjacency: a row is in one cell at most, and whatever changes in it may move it to another (Theorem V.1)."""
        moved = Reach(math.sqrt(2.0), 2)
        for how in Adjacency:
            row = Reach(category_counts(how), 2 if how is Adjacency.REPLACE else 1)
            reach = dict.fromkeys(ROWWISE, moved) | {Unit.RECORD: row}
            yield how, Summed(EXITS, (Block(math.prod(self.shape), 1.0),), reach, 1)


def _level(column: Column, raw: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return (number, or place of the category; whether it is there) of every value of a column."""
    coded, present = Coding((column,), 1).code((raw,))  # which refuses what does not fit the declaration
    if column.categories is not None:
        return coded[:, : len(column.categories)].argmax(axis=1).astype(float), present[:, 0]
    low, high = column.range
    values = np.clip(np.where(present[:, 0], raw, low).astype(float), low, high)
    return (values > (low + high) / 2).astype(float) if (low, high) == (0.0, 1.0) else values, present[:, 0]


@dataclass(frozen=True)
class SurvivalDesign:
    """A study, understood."""

    parameters: Parameters
    layout: ExitsLayout
    aggregation: Aggregation
    totals: dict[str, Summed]

    @property
    def horizon(self) -> int:
        """Return the number of the interval at whose end mean survival is restricted."""
        edges, asked = self.layout.edges, self.parameters.horizon
        return len(edges) - 1 if asked is None else edges.index(asked)


def design_of(study: Study) -> SurvivalDesign:
    """Return the checked design that the study asks for."""
    p = check_parameters(study, Parameters)
    first = study.one_card_for_all()
    time, event, by = (first.column(name) for name in (p.time, p.event, p.by))
    strata = first.column(p.strata) if p.strata else None
    if time.categories is not None or time.range[0] != 0:
        msg = f"time = {p.time!r} is a declared number from 0 to the end of follow-up"
        raise UsageError(msg).at(column=p.time)
    numbered = event.categories is None
    if (numbered and event.range != (0.0, 1.0)) or (not numbered and len(event.categories or ()) != _TWO):
        msg = f"event = {p.event!r} is a declared column of 0 and 1, or of two categories, the second of which is the event"
        raise UsageError(msg).at(column=p.event)
    for name, column in ((p.by, by), (p.strata, strata)):
        if column is not None and (column.categories is None or len(column.categories) < _TWO):
            msg = f"{name!r} is a declared column of two categories or more: arms, and strata, are its levels"
            raise UsageError(msg).at(column=name)
    aggregation = aggregation_of(study, p.tolerate, p.nodes)
    tables = len(by.categories or ()) * len((strata.categories if strata else None) or (1,)) / 2
    edges = _edges(study, p, aggregation, time.range[1], tables)
    layout = ExitsLayout(time, event, by, strata, edges)
    if p.horizon is not None and p.horizon not in edges:
        msg = f"horizon is the end of an interval: one of {', '.join(f'{edge:g}' for edge in edges)}"
        raise UsageError(msg)
    moved = dict(layout.vectors())
    design = SurvivalDesign(p, layout, aggregation, {})
    return replace(design, totals=totals_of(study, lambda how: (moved[how],)))


def _edges(study: Study, p: Parameters, aggregation: Aggregation, end: float, tables: float) -> tuple[float, ...]:
    """Return the ends of the intervals; ``tables``: how many times the cells of two arms there are.

    Every interval adds noise to a test, and little that it could not see before (THEORY.md, section 4).
    """
    if p.cuts:
        rising = all(math.isfinite(cut) and 0 < cut < end for cut in p.cuts) and all(
            a < b for a, b in itertools.pairwise(p.cuts)
        )
        if not rising or len(p.cuts) >= 200:  # noqa: PLR2004
            msg = f"cuts rise between 0 and {end:g}, the end of follow-up, and are fewer than 200"
            raise UsageError(msg)
        return (*p.cuts, end)
    count = _MOST
    if math.isfinite(study.epsilon):
        rows = sum(card.rows for card in study.parties) / study.household_rows
        deviation = category_counts(Adjacency(study.adjacency)) / aggregation.multiplier(study) * study.household_rows
        # Where every party adds all of its noise, the total has that of all of them.
        noises = deviation**2 * (1 if aggregation.seals else len(study.parties))
        count = int(min(max(_TUNED.per_interval * rows / (noises * tables), _FEWEST), _MOST))
    return tuple(end * (k + 1) / count for k in range(count))


def compile_plan(study: Study) -> Plan:
    """Return the plan of a comparison of survival."""
    design = design_of(study)
    shape = design.layout.shape
    note = f"{len(design.layout.edges)} intervals, {math.prod(shape)} cells: {shape[0]} strata, {shape[1]} arms, {shape[2]} exits"
    return plan_of_totals(study, design, notes=(note,))


# --- The party's steps -----------------------------------------------------------------------------------------------------
# The only part of this model that touches raw data: exact counts of exits.


def _exits(context: Context[SurvivalDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:
    no_settings(settings)
    layout = context.design.layout
    return shared_out(context.table.blocks(tuple(column.name for column in layout.columns)), layout.counted)


#: What a party adds up, by the name of the total.
STATISTICS = {COUNT: rows_counted, EXITS: _exits}

STEPS = (KEYS, *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)))


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of a comparison of survival.

TEMPLATE = Template.of(
    Parameters, "Survival of arms: curves with bands, log-rank tests, restricted mean survival and its differences.", ROWS
)
