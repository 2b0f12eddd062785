"""Sums of columns apart for every level of one column, as a table of two arms has them (THEORY.md, section 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.sensitivity import category_counts, column_moments
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.threads import shared_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table

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


__all__ = ["ARMS", "ArmsLayout"]
