"""Partialling out, at a party: moments of covariates and treatment, cells of residuals, and the score sums of an effect (THEORY.md, section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unpooled.kernels import rows as kernel
from unpooled.linear.residuals import SignedCells
from unpooled.linear.scales import CountedScales
from unpooled.linear.standard import CONSTANT, SCALES, Scales, StandardRows, public_numbers
from unpooled.privacy.bounds import integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import partialled_scores
from unpooled.schedules import table
from unpooled.totals.total import Summed, no_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import Standard
    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Adjacency
    from unpooled.protocol.context import Context
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Settings = tuple[float, ...]

_TUNED = table("effects")
#: The names of the totals of partialling out, in their order: means and deviations, second moments, cells of residuals, score sums.
RELATIONS, RESIDUALS, SCORES = "relations", "residuals", "scores"
#: The weights of (a - e)^2 and of squared scores, both of which cost nothing in addition to the scores (Theorem E.4).
_FREE = 1.66 / math.sqrt(2)


class Scored(NamedTuple):
    """Released sums of scores, of squared residual treatments and of squared scores, and the deviations of their noise; bounds are 1."""

    score: float
    treatment: float
    square: float
    score_noise: float
    treatment_noise: float
    square_noise: float


@dataclass(frozen=True)
class PartialScores:
    """Sums of (h q, h^2, (h q)^2): h is what is left of a row's treatment, q what is left of its outcome, in parts of their bounds."""

    name: str
    rows: int

    @cached_property
    def grid(self) -> int:
        """Return steps per unit."""
        return integer_grid(self.rows, 2)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise (Theorem E.4)."""
        g = float(self.grid)
        blocks = (Block(1, g), Block(2, g * g / _FREE))
        moves = StandardRows.moves(adjacency)
        reach = {who: Reach(partialled_scores(_FREE, _FREE, how), 3) for who, how in moves.items()}
        return Summed(self.name, blocks, reach, self.grid**2, share)

    def added_up(self, treatment: Floats, outcome: Floats) -> Ints:
        """Return the exact sums of these rows; what is beyond 1 counts as 1. Rounded toward zero, no score is longer than its treatment."""
        h, q = (
            np.trunc(np.clip(np.nan_to_num(part), -1.0, 1.0) * self.grid).astype(np.int64) for part in (treatment, outcome)
        )
        product = h * q
        score = np.sign(product) * (np.abs(product) // self.grid)
        return np.array([score.sum(), np.square(h).sum(), np.square(score).sum()], dtype=np.int64)

    def decode(self, total: Total) -> Scored:
        """Return the sums in units of the bounds."""
        scale = np.array([1.0, self.grid, self.grid]) * self.grid
        return Scored(*(total.values / scale).tolist(), *(total.deviations / scale).tolist())


@dataclass(frozen=True)
class PartialRows:
    """Standardised rows of treatment and covariates, with the outcome as response: everything that partialling out adds up."""

    standard: StandardRows
    #: The layout of the covariates alone.
    covariates: MomentsLayout
    #: The name of the treatment, and its place among the coded columns.
    treatment: str
    at: int
    #: Whether means and deviations come from counts of values.
    counted: bool
    #: The bound on rows in typical lengths.
    opens: float = 1.0

    @classmethod
    def of(
        cls, layout: MomentsLayout, covariates: MomentsLayout, treatment: tuple[str, str], rows: int, *, counted: bool
    ) -> PartialRows:
        """Return the rows of a layout of treatment and covariates; ``treatment``: the column and its second level."""
        at = layout.names.index(f"{treatment[0]} = {treatment[1]}")
        return cls(StandardRows(layout, rows, 1.0), covariates, treatment[0], at, counted)

    def opened(self, stretch: float) -> PartialRows:
        """Return the rows with a bound of this many typical lengths, of rows whose columns have these parts."""
        typical = math.sqrt(float(np.square(self.parts).sum()) + CONSTANT**2)
        whole = math.sqrt(self.layout.unit_columns + CONSTANT**2)
        return replace(self, standard=replace(self.standard, stretch=stretch * typical / whole), opens=stretch)

    @cached_property
    def parts(self) -> Floats:
        """Return the deviation to which every coded column is brought: K levels are as long as K - 1 numbers, and the treatment has a weight of its own.

        Levels add up to the constant, so one of them says nothing new. A longer treatment has less noise in its products with the covariates.
        """
        attribute = np.array(self.layout.coding.attribute)
        found = np.ones(attribute.size)
        for k, column in enumerate(self.layout.features):
            own = attribute == k
            if column.categories is not None and own.sum() > 1:
                found[own] = math.sqrt(1 - 1 / own.sum())
            if self.at in np.flatnonzero(own):
                found[own] *= _TUNED.partial_treatment
        return found

    def sent(self, standard: Standard) -> Standard:
        """Return the numbers by which a request standardises rows."""
        return replace(standard, width=standard.width / np.append(self.parts, 1.0))

    @property
    def layout(self) -> MomentsLayout:
        """Return the layout of the rows: treatment, covariates, and the constant last."""
        return self.standard.layout

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Return the places of the covariates and of the constant among the columns of a row, in the order of the covariates' own layout."""
        where = {name: k for k, name in enumerate(self.layout.names)}
        return np.array([*(where[name] for name in self.covariates.names), self.layout.size - 1], dtype=np.intp)

    @property
    def scales(self) -> Scales:
        """Return the sums by which columns are standardised."""
        return CountedScales(self.layout) if self.counted else Scales(self.layout)

    @property
    def cells(self) -> SignedCells:
        """Return the cells of what is left of the outcome, in its deviations."""
        return SignedCells()

    @property
    def scores(self) -> PartialScores:
        """Return the score sums."""
        return PartialScores(SCORES, self.standard.rows)

    def totals(self, shares: dict[str, float], adjacency: Adjacency) -> Iterator[Summed]:
        """Yield what is added up, for these shares by name."""
        yield self.scales.vector(shares[SCALES], adjacency)
        yield self.standard.residual(shares[RELATIONS], adjacency, RELATIONS)
        yield replace(self.cells.vector(shares[RESIDUALS], self.standard.moves(adjacency)), name=RESIDUALS)
        yield self.scores.vector(shares[SCORES], adjacency)

    # --- at a party ------------------------------------------------------------------------------------------------------

    def left(self, table: Table, standard: tuple[Floats, Floats], start: Floats) -> Iterator[tuple[Floats, Floats]]:
        """(what is left of the treatment, what is left of the outcome) of a party's rows, in deviations; ``start``: the coefficients of both."""
        treatment, outcome = np.split(start, 2)
        grid = float(self.standard.grid)
        for block, (response,) in self.standard.blocks(self.layout.seen(table), standard):
            found, unused = np.empty((2, response.size)), np.empty(response.size)
            # Row by row in the order of the columns, so that no bit depends on blocks.
            kernel.leave_from(block, 0, np.zeros_like(response), -treatment, grid, found[0], unused)
            kernel.leave_from(block, 0, np.ascontiguousarray(response), outcome, grid, found[1], unused)
            yield found[0], found[1]


# --- The party's steps -----------------------------------------------------------------------------------------------------


def _scales(context: Context[Any], settings: Settings) -> Ints:
    """Return sums, or counts, of columns."""
    no_settings(settings)
    rows: PartialRows = context.design.partial
    return rows.scales.statistic(rows.layout.seen(context.table))


def _relations(context: Context[Any], settings: Settings) -> Ints:
    """Return second moments of rows and outcomes."""
    rows: PartialRows = context.design.partial
    standard, _, (clip,) = public_numbers(rows.layout, settings, 1, coefficients=0)
    blocks = rows.standard.blocks(rows.layout.seen(context.table), standard)
    return rows.standard.products(blocks, np.zeros(rows.layout.size), float(clip))


def _residuals(context: Context[Any], settings: Settings) -> Ints:
    """Return the cells of what is left of outcomes."""
    rows: PartialRows = context.design.partial
    standard, start, _ = public_numbers(rows.layout, settings, 0, coefficients=2 * rows.layout.size)
    total = np.zeros(rows.cells.count, dtype=np.int64)
    for _, outcome in rows.left(context.table, standard, start):
        total += rows.cells.added_up(outcome)
    return total


def _scores(context: Context[Any], settings: Settings) -> Ints:
    """Return the score sums."""
    rows: PartialRows = context.design.partial
    standard, start, (farthest, clip) = public_numbers(rows.layout, settings, 2, coefficients=2 * rows.layout.size)
    total = np.zeros(3, dtype=np.int64)
    for treatment, outcome in rows.left(context.table, standard, start):
        total += rows.scores.added_up(treatment / farthest, outcome / clip)
    return total


#: What a party adds up, by the name of the total.
STATISTICS = {SCALES: _scales, RELATIONS: _relations, RESIDUALS: _residuals, SCORES: _scores}
