"""The second-moment statistic: what is summed, and how far one person moves it.

A row is coded into integers (:class:`~unpooled.privacy.bounds.Coding`): x in [-1, 1]^p, a constant 1 for the intercept, y in [-1, 1], all
times the grid. Summed are products of two coded values, exact in int64, in one of four geometries:

* ``ball``: xx and xy under the L2 bound R; y weighted up to R, off-diagonal noise smaller by sqrt 2 (Theorem F.9.3), the default;
* ``box``: xx and xy under the bounds of single columns, equal noise on every entry (Theorem F.9.1);
* ``augmented``: all of z z^T with z = (a_x x/R, a_y y, a_1), which holds the sums and y^2 too (Theorem F.9.4);
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.inference.coding import SITE, CodedTerms, coded_terms, formula_columns
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.inference.sites import with_sites
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import moments_augmented, moments_ball, moments_box
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.schedules import table
from unpooled.totals.threads import shared_out
from unpooled.totals.total import Summed
from unpooled.totals.weights import Weighting, weighting_of
from unpooled.totals.whole_rows import leaving_out, needed, presence_rows, refuse_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.coding import FormulaColumns
    from unpooled.inference.sites import SiteConstants
    from unpooled.privacy.table import Table

    Row = NDArray[np.float64]

#: Squared weights of x, y and the constant in the augmented row.
AUGMENTED_WEIGHTS = table("rows").several("augmented_weights")


class Geometry(StrEnum):
    """Which moments are released, and under which bound on a row."""

    BALL = "ball"
    BOX = "box"
    AUGMENTED = "augmented"


@dataclass(frozen=True)
class MomentsLayout:
    """The coded row (x, 1, y) of a study and the statistic that is summed over rows."""

    features: tuple[Column, ...]
    response: Column
    grid: int
    geometry: Geometry = Geometry.BALL
    #: L2 bound on the centred row of features, in the data's own units; None where only columns are bounded.
    norm: float | None = None
    intercept: bool = True
    #: Further responses, in the augmented geometry alone: together they are as long as one.
    others: tuple[Column, ...] = ()
    #: A formula, and the declared columns that its features are made of; empty: the features are the declared columns themselves.
    formula: str = ""
    sources: tuple[Column, ...] = ()
    #: By what a row's part of every sum is multiplied.
    weighting: Weighting | None = None
    #: The sites that have a constant of their own; None: they share one.
    sites: SiteConstants | None = None
    #: The declared columns whose missing values leave a row out.
    left_out: tuple[Column, ...] = ()
    #: The declared columns that the response says are all there, or not; empty where the response is what it is.
    presence: tuple[Column, ...] = ()

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        response: str,
        rows: int,
        *,
        geometry: Geometry = Geometry.BALL,
        norm: float | None = None,
        intercept: bool = True,
        others: tuple[Column, ...] = (),
        formula: str = "",
        weights: str = "",
        sites: SiteConstants | None = None,
    ) -> MomentsLayout:
        """Return the design of these declared columns, one of which is the response, for this many rows in all."""
        for column in columns:
            if column.name == response:
                refuse_limit(column)
        asked, columns = columns, [needed(column) for column in columns]
        named = [column for column in columns if column.name == response]
        weighting = weighting_of(weights, {column.name: column for column in columns}, (response,), rows)
        features = tuple(column for column in columns if column.name not in {response, weights})
        sources: tuple[Column, ...] = ()
        if sites is not None:
            formula = formula and with_sites(formula, [column.name for column in features])
            features = (*features, sites.column)
        if formula:
            made = formula_columns(formula, features)
            features, sources = tuple(feature.column for feature in made.features), made.derived.needs
            intercept = intercept and made.derived.constant
        if len(named) != 1 or not features:
            msg = f"the response {response!r} must be one declared column, beside at least one feature"
            raise UsageError(msg)
        if named[0].categories is not None or named[0].may_be_absent:
            msg = (
                f'the response {response!r} must be a number that is never missing: declare low and high, missing = "refuse"'
            )
            raise UsageError(msg)
        if not intercept:  # without a constant nothing can be centred: ranges are made symmetric about 0
            features, named = tuple(symmetric(c) for c in features), [symmetric(named[0])]
        grid = integer_grid(rows, 2)
        left_out = leaving_out(asked, {response, weights, *(column.name for column in sources or features)})
        return cls(features, named[0], grid, geometry, norm, intercept, others, formula, sources, weighting, sites, left_out)

    @cached_property
    def coding(self) -> Coding:
        """Return the code of the features."""
        return Coding(self.features, self.grid, self.norm)

    @cached_property
    def size(self) -> int:
        """Return coded features, and the constant."""
        return len(self.coding.attribute) + self.intercept

    @property
    def responses(self) -> int:
        """Return the number of responses."""
        return 1 + len(self.others)

    @property
    def response_names(self) -> tuple[str, ...]:
        """Return the responses by name."""
        return tuple(column.name for column in (self.response, *self.others))

    @cached_property
    def made(self) -> FormulaColumns | None:
        """Return the columns that the formula makes of the sources; None without a formula."""
        return formula_columns(self.formula, self.sources) if self.formula else None

    def seen(self, table: Table) -> Table:
        """Return the table with the columns of the formula, where there is one."""
        if self.presence:
            table = presence_rows(table, self.presence)
        return table if self.made is None else self.made.seen(table)

    @property
    def declared(self) -> tuple[Column, ...]:
        """Return the declared columns that a row is made of: what new rows have, too."""
        asked = {column.name: column for column in self.left_out}  # what new rows lack, the rows of a fit never did
        held = (column for column in self.sources or self.features if self.sites is None or column.name != SITE)
        return tuple(asked.get(column.name, column) for column in held)

    def is_site(self, feature: int) -> bool:
        """Return True if this feature is the column of sites."""
        return self.sites is not None and self.features[feature].name == SITE

    @cached_property
    def at_sites(self) -> NDArray[np.intp]:
        """Return the places of the sites' indicators among the coded features."""
        return np.array([j for j, k in enumerate(self.coding.attribute) if self.is_site(k)], dtype=np.intp)

    @property
    def steps(self) -> Row:
        """Return how many times farther a descent steps along each coefficient: the rows of a site alone tell of its constant."""
        steps = np.ones(self.size)
        if self.sites is not None:
            steps[self.at_sites] = self.sites.steps
        return steps

    def present(self, participants: Sequence[str]) -> MomentsLayout:
        """Return the layout with the rows of the sites that took part."""
        return self if self.sites is None else replace(self, sites=self.sites.of(participants))

    @property
    def unit_columns(self) -> int:
        """Return the number of coded features that are not the indicators of sites."""
        return len(self.coding.attribute) - self.at_sites.size

    @property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """Return the places of the features that one value of a person moves, for every declared column."""
        return tuple((k,) for k in range(len(self.features))) if self.made is None else self.made.together(self.features)

    @cached_property
    def terms(self) -> CodedTerms:
        """Return the term that every coded feature belongs to. Sites are compared with the largest, of which most is known."""
        if self.made is not None:
            coded = self.made.terms(self.features)
        else:  # rows that are shortened add up to something else in each
            coded = coded_terms(self.features, whole=self.norm is None)
        if self.sites is None or re.search(rf"C\({SITE},.*ref", "" if self.made is None else self.made.text):
            return coded
        factors = tuple(replace(f, reference=self.sites.largest) if f.name == SITE else f for f in coded.factors)
        return replace(coded, factors=factors)

    @property
    def constants(self) -> tuple[str, ...]:
        """Return the name of the constant, where there is one."""
        return (CONSTANT_TERM,) * self.intercept

    @cached_property
    def still(self) -> NDArray[np.float64]:
        """Return coefficients in the data's own units, a column each, that are 0 for every row whatever the data: levels less the constant."""
        return self.terms.with_constants(self.constants).still

    @property
    def radius(self) -> float:
        """R: the L2 bound of the coded row of features and constant. A declared column is at most 1 long, however it is coded."""
        return math.sqrt((1 if self.norm is not None else len(self.features)) + self.intercept)

    @property
    def mean_square(self) -> float:
        """Return the largest square of a coded feature that the bounds allow, as the mean over the coded features of a row."""
        return (self.radius**2 - self.intercept) / (self.size - self.intercept)

    @property
    def makes_other_rows(self) -> bool:
        """Return True if a row without one of its values has changed coded values other than a zero: an indicator set, the rest shortened less."""
        return self.norm is not None or bool(self.formula) or any(column.missing == "indicator" for column in self.features)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return (rows, columns) of the released entries of the Gram of (x, 1, y), in the order of the vector."""
        d = self.size + (self.responses if self.geometry is Geometry.AUGMENTED else 0)
        upper = np.triu_indices(d, 1)
        ends = [(np.arange(d), np.arange(d)), upper]
        if self.geometry is not Geometry.AUGMENTED:
            ends.append((np.arange(d), np.full(d, d)))
        return tuple(np.concatenate([end[side] for end in ends]) for side in (0, 1))  # type: ignore[return-value]

    @cached_property
    def _weights(self) -> Row:
        """Return the weights that turn the coded row (x, 1, y) into the augmented row z, one for each value."""
        d = self.size
        x, y, one = np.sqrt(AUGMENTED_WEIGHTS)
        reach = math.sqrt(self.radius**2 - self.intercept)
        q = self.responses
        return np.array([*[x / reach] * (d - self.intercept), *[one] * self.intercept, *[y / math.sqrt(q)] * q])

    def singles(self) -> Iterator[tuple[MomentsLayout, NDArray[np.intp]]]:
        """For every response the layout of it alone, and where its entries are in the vector of all."""
        first, second = self.pairs
        for k, response in enumerate((self.response, *self.others)):
            alone = replace(self, response=response, others=())
            own = {self.size: self.size + k}
            places = {pair: at for at, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))}
            wanted = zip(*(part.tolist() for part in alone.pairs), strict=True)
            yield alone, np.array([places[own.get(i, i), own.get(j, j)] for i, j in wanted], dtype=np.intp)

    def vector(self, name: str, adjacency: Adjacency, share: float = 1.0) -> Summed:
        """Return the statistic as something to add up, with noise shaped to its geometry."""
        d, off = self.size, self.size * (self.size - 1) // 2
        distance: Callable[[Adjacency], float]
        if self.geometry is Geometry.AUGMENTED:
            first, second = self.pairs
            shape = np.where(first == second, 1.0, math.sqrt(0.5)) / (self._weights[first] * self._weights[second])
            blocks = blocks_of(shape)
            distance = partial(moments_augmented, math.sqrt(sum(AUGMENTED_WEIGHTS[: 2 + self.intercept])))
        elif self.geometry is Geometry.BOX:
            y = math.sqrt(d)  # as long as x, like in a ball
            blocks = (Block(d + off, 1.0), Block(d, 1 / y))
            distance = partial(moments_box, [1.0] * d, y)
        else:
            r = self.radius
            middle = (Block(off, math.sqrt(0.5)),) if off else ()
            blocks = (Block(d, 1.0), *middle, Block(d, 1 / r))
            distance = partial(moments_ball, r, r)
        return self.summed(name, blocks, distance, adjacency, share)

    def summed(
        self,
        name: str,
        blocks: tuple[Block, ...],
        distance: Callable[[Adjacency], float],
        adjacency: Adjacency,
        share: float,
        scale: float | None = None,
    ) -> Summed:
        """Return the statistic with noise of this shape, given how far a row moves it in coded units."""
        count, unit = sum(block.size for block in blocks), float(self.grid**2)
        # One value of a person moves no more than the whole person does, where the row it leaves behind is a part of the row it was.
        one = Adjacency.REPLACE if self.makes_other_rows else adjacency
        moved = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: one}
        reach = {who: Reach(distance(how) * unit, count) for who, how in moved.items()}
        return Summed(name, blocks, reach, self.grid**2, share, scale)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name of every coefficient: a column, one of its categories, or its being missing."""
        return self.coding.coded_names

    @property
    def half_widths(self) -> Row:
        """Return the data's own units per coded unit of every coded feature, and 1 for the constant and for categories."""
        return np.append(self.coding.units[0], [1.0] * self.intercept)

    @property
    def centres(self) -> Row:
        """Return the centre that was subtracted from every coded feature, in the data's own units; 0 for the constant and for categories."""
        return np.append(self.coding.units[1], [0.0] * self.intercept)

    @property
    def largest(self) -> float:
        """Return the largest weight, of which every weight is a part; 1 without weights."""
        return 1.0 if self.weighting is None else self.weighting.largest

    # --- at a party ------------------------------------------------------------------------------------------------------

    @property
    def names_read(self) -> tuple[str, ...]:
        """Return the columns of a party that a row is made of: features, responses, and last the weights where there are some."""
        weights = () if self.weighting is None else (self.weighting.column.name,)
        return (*self.coding.names, *self.response_names, *weights)

    def statistic(self, table: Table) -> NDArray[np.int64]:
        """Return the exact integer vector of one party's rows, streamed over its blocks."""
        if self.weighting is not None:
            return shared_out(table.blocks(self.names_read), self._weighted)
        return self.added_up(table.blocks(self.names_read))

    def _weighted(self, blocks: Iterator[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
        """Return the same of rows that are multiplied by the root of their weight's part, the constant with them, rounded toward zero."""
        from unpooled.kernels.moments import add_gram

        assert self.weighting is not None
        total = np.zeros((self.size + 1, self.size + 1), dtype=np.int64)
        response, features = Coding((self.response,), self.grid), self.size - self.intercept
        for block in blocks:
            rows = np.full((block[0].size, self.size + 1), float(self.grid), order="F")
            self.coding.code_into(block[:-2], rows[:, :features])
            response.code_into(block[-2:-1], rows[:, -1:])
            rows *= np.sqrt(self.weighting.parts(block[-1]))[:, None]
            add_gram(np.trunc(rows), self.grid, total)
        return total[self.pairs]

    def added_up(self, blocks: Iterable[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
        """Return the same for blocks of raw features and, last, the responses: of a table, or made from one row by row."""
        return shared_out(blocks, self._added_up)

    def _added_up(self, blocks: Iterator[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
        from unpooled.kernels.moments import add_gram

        responses, features = self.responses, self.size - self.intercept
        width = features + responses
        gram, sums, count = np.zeros((width, width), dtype=np.int64), np.zeros(width, dtype=np.int64), 0
        response = Coding((self.response, *self.others), self.grid)
        buffer = np.empty((0, width), order="F")
        for block in blocks:
            rows = block[0].size
            if buffer.shape[0] < rows:
                buffer = np.empty((rows, width), order="F")
            coded = buffer[:rows]
            self.coding.code_into(block[:-responses], coded[:, :features])
            response.code_into(block[-responses:], coded[:, features:])
            add_gram(coded, self.grid, gram)
            count += rows
            if self.intercept:
                sums += coded.sum(axis=0).astype(np.int64)  # integers, so any order of adding them up is exact
        if not self.intercept:
            return gram[self.pairs]
        # What a constant column would have added, which BLAS is spared: its products are sums.
        total = np.empty((width + 1, width + 1), dtype=np.int64)
        others = np.delete(np.arange(width + 1), features)
        total[np.ix_(others, others)] = gram
        total[features, others] = total[others, features] = self.grid * sums
        total[features, features] = self.grid * self.grid * count
        return total[self.pairs]


def symmetric(column: Column) -> Column:
    """Return the column with a range that has 0 in its middle; without a constant nothing can be centred, and what is typical is the distance from 0."""
    if column.categories is not None:
        return column
    end = max(abs(end) for end in column.range)
    typical = None if column.typical is None else (0.0, min(math.hypot(*column.typical), end))
    return msgspec.structs.replace(column, low=-end, high=end, typical=typical)


def blocks_of(widths: Row) -> tuple[Block, ...]:
    """Runs of equal noise."""
    edges = [0, *(np.flatnonzero(np.diff(widths)) + 1).tolist(), widths.size]
    return tuple(Block(end - start, float(widths[start])) for start, end in itertools.pairwise(edges))
