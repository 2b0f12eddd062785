"""Pure generator: collect the parties' noisy counts, and read everything that a table says from them.

Everything here is post-processing of releases (THEORY.md, sections 3 to 6).
"""

from __future__ import annotations

import hashlib
import math
from itertools import product
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import StudyAborted
from unpooled.models.tables.counts import Counts, nearest
from unpooled.models.tables.effects import effects
from unpooled.models.tables.independence import independence
from unpooled.models.tables.plan import RELEASE, STEP, TablesDesign
from unpooled.models.tables.quantiles import quantiles
from unpooled.models.tables.result import POOLED, Cell, Contingency, TableEstimate
from unpooled.models.tables.shares import shares
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.protocol.messages import Ask, Dropped, Nothing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.models.tables.layout import TableLayout
    from unpooled.models.tables.result import Effect, Independence, LineShare, TableQuantile
    from unpooled.privacy.plan import Card, Plan
    from unpooled.protocol.registry import Conversation

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]

#: Declared totals that fit the counts worse than this p-value are said not to fit.
_FITS = 0.001


def coordinate(plan: Plan[TablesDesign]) -> Conversation:
    """Ask every party for its counts; a party that drops out is left out."""
    cards = plan.study.parties
    replies = yield [Ask(card.name, STEP, Nothing()) for card in cards]
    answered = [(card, reply) for card, reply in zip(cards, replies, strict=True) if not isinstance(reply, Dropped)]
    if not answered:
        raise StudyAborted("no party answered: run the study again once they are back")
    raw, variance = [], 0.0
    for card, reply in answered:
        release = plan.release(card.name, RELEASE).mechanism
        assert isinstance(release, GaussianRelease)
        raw.append(release.decode(reply.counts.values.numpy()))
        variance = float(release.deviations[0]) ** 2  # one study, one budget: the same at every party
    return read(plan, tuple(card for card, _ in answered), np.array(raw), variance)


def read(plan: Plan[TablesDesign], cards: Sequence[Card], raw: Floats, variance: float) -> Contingency:
    """Return the result from a row of noisy counts per party."""
    design = plan.design
    counts = counts_of(design, cards, raw, variance, whole=len(cards) == len(plan.study.parties))
    z = NormalDist().inv_cdf(0.5 + design.parameters.confidence / 2)
    # The same counts of the same plan give the same bits: what is drawn here is post-processing of what everybody has.
    seed = hashlib.sha256(plan.hash.encode() + raw.tobytes()).digest()
    layout = design.layout
    rows = None if design.uncertain else sum(card.rows for card in cards)
    reading = _Reading(layout, counts, z)
    return Contingency(
        design.parameters.columns,
        layout.levels,
        rows,
        len(cards),
        tuple(cells_of(layout, cards, counts, rows, z)),
        tuple(reading.shares()),
        reading.independence(rows, np.random.default_rng(int.from_bytes(seed[:16], "big"))),
        tuple(reading.effects()),
        tuple(reading.quantiles()),
        len(reading.strata) * len(cards),
        design.parameters.confidence,
        bool(design.contradicted) or (bool(design.parameters.totals) and counts.fit < _FITS),
    )


def counts_of(design: TablesDesign, cards: Sequence[Card], raw: Floats, variance: float, *, whole: bool) -> Counts:
    """Return the counts with their public sums: rows of the parties where they are public, declared totals where all parties answered."""
    known: list[tuple[Floats, float]] = []
    if not design.uncertain:
        for row, card in zip(np.kron(np.eye(len(cards)), np.ones(raw.shape[1])), cards, strict=True):
            known.append((row, float(card.rows)))
    if whole:
        known += design.margins(len(cards))
    return Counts.of(raw, variance, [row for row, _ in known], [total for _, total in known])


def cells_of(layout: TableLayout, cards: Sequence[Card], counts: Counts, rows: int | None, z: float) -> Iterator[Cell]:
    """Return the counts of all cells, pooled first where there are several parties; intervals hold the noise only."""
    levels = tuple(product(*layout.levels))
    most = float(sum(card.rows for card in cards))
    values, deviations, shown = counts.pooled()
    if len(cards) > 1:
        yield from _cells(POOLED, levels, values, deviations, shown, most, z)
    ones = np.ones((0 if rows is None else 1, layout.size))
    for card, raw in zip(cards, counts.raw, strict=True):
        if len(cards) > 1:
            values = raw - ((raw.sum() - card.rows) / raw.size if rows is not None else 0.0)
            own = counts.variance * (1 - (1 / raw.size if rows is not None else 0.0))
            deviations = np.full(raw.size, math.sqrt(own))
            shown = nearest(values, ones, np.array([float(card.rows)][: ones.shape[0]]))
        yield from _cells(card.name, levels, values, deviations, shown, float(card.rows), z)


def _cells(
    source: str,
    levels: tuple[tuple[str, ...], ...],
    values: Floats,
    deviations: Floats,
    shown: Floats,
    most: float,
    z: float,
) -> Iterator[Cell]:
    for names, value, deviation, count in zip(levels, values.tolist(), deviations.tolist(), shown.tolist(), strict=True):
        low, high = (min(max(value + side * z * deviation, 0.0), most) for side in (-1, 1))
        yield Cell(source, names, TableEstimate(count, min(low, count), max(high, count), deviation))


class _Reading:
    """The first column's levels as lines, the last one's as their parts, and what stands in between as strata."""

    def __init__(self, layout: TableLayout, counts: Counts, z: float) -> None:
        self._layout, self._counts, self._z = layout, counts, z
        places = layout.places(counts.raw.shape[0])
        last = len(layout.columns) - 1
        self._levels = layout.levels[last][: layout.present(last)]
        self._edges = () if layout.columns[last].categories is not None else layout.edges(last)
        self._lines = layout.levels[0][: layout.present(0)] if last else ("",)
        # Axes: parties, lines, strata, levels; missing values are in no line and no level.
        shaped = places.reshape(places.shape[0], places.shape[1] if last else 1, -1, places.shape[-1])
        self._places = shaped[:, : len(self._lines), :, : len(self._levels)]
        self.strata = range(self._places.shape[2])

    def _cells(self, line: int) -> list[Places]:
        """Return the places of every level of a line, over all parties and strata."""
        return [self._places[:, line, :, j].ravel() for j in range(len(self._levels))]

    def shares(self) -> Iterator[LineShare]:
        for i, line in enumerate(self._lines):
            yield from shares(self._counts, self._cells(i), self._z, line, self._levels)

    def quantiles(self) -> Iterator[TableQuantile]:
        for i, line in enumerate(self._lines if self._edges else ()):
            yield from quantiles(self._counts, self._cells(i), self._edges, self._z, line)

    def independence(self, rows: int | None, rng: np.random.Generator) -> Independence | None:
        if len(self._layout.columns) == 1:
            return None
        table = self._counts.raw.ravel()[self._places].sum(axis=(0, 2))
        deviation = math.sqrt(self._counts.variance * self._places.shape[0] * self._places.shape[2])
        some_missing = self._layout.columns[0].may_be_absent or self._layout.columns[-1].may_be_absent
        return independence(table, deviation, None if some_missing else rows, rng)

    def effects(self) -> Iterator[Effect]:
        if len(self._layout.columns) == 1 or len(self._levels) != 2:  # noqa: PLR2004 - an event, or none
            return
        for i, line in enumerate(self._lines[1:], 1):
            two = self._places[:, [0, i]]
            strata = [[two[k, a, t, [j]] for a in (0, 1) for j in (0, 1)] for k in range(two.shape[0]) for t in self.strata]
            yield from effects(self._counts, strata, self._z, line, self._lines[0])
