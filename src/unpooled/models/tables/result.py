"""The result of a table: counts, shares, a test, effects and quantiles, as they are recorded."""

from __future__ import annotations

from typing import Literal

import msgspec

#: The name under which the sum of all parties is reported.
POOLED = "pooled"


class TableEstimate(msgspec.Struct, frozen=True):
    """A number, its interval, its standard error (None: the interval holds the noise only), and the part of it that the privacy noise adds."""

    value: float
    low: float
    high: float
    noise: float
    std_error: float | None = None


class Cell(msgspec.Struct, frozen=True):
    """The count of one cell at one party, or pooled: of rows with these levels, one of every column."""

    source: str
    levels: tuple[str, ...]
    count: TableEstimate


class LineShare(msgspec.Struct, frozen=True):
    """The share of a level of the last column among the rows of a level of the first (``""``: among all rows); None: the noise hides it."""

    line: str
    level: str
    value: TableEstimate | None


class Independence(msgspec.Struct, frozen=True):
    """The chi-squared test of independence of the first and the last column; no p-value where it is not identified, and why not."""

    statistic: float | None
    p_value: float | None
    freedom: int
    why: str = ""


class Effect(msgspec.Struct, frozen=True):
    """A comparison of two levels of the first column by two levels of the last.

    ``form`` says which set of values the data agree with: "interval" (low to high), "above" (low and everything above it), "below" (everything up to
    high), "outside" (up to low, and from high on) or "unknown" (everything: not identified). Only an interval has a standard error.
    """

    name: str
    line: str
    reference: str
    form: Literal["interval", "above", "below", "outside", "unknown"]
    value: float | None = None
    low: float | None = None
    high: float | None = None
    std_error: float | None = None
    noise: float | None = None


class TableQuantile(msgspec.Struct, frozen=True):
    """A quantile of the last column among the rows of a level of the first (``""``: of all rows); no value: the noise hides it."""

    line: str
    part: float
    value: float | None = None
    low: float | None = None
    high: float | None = None


class Contingency(msgspec.Struct, frozen=True):
    """Everything that a table says."""

    columns: tuple[str, ...]
    #: The levels of every column, in order.
    levels: tuple[tuple[str, ...], ...]
    #: The number of rows of the parties that answered; None: nobody knows how many count.
    rows: int | None
    sources: int
    cells: tuple[Cell, ...]
    shares: tuple[LineShare, ...] = ()
    independence: Independence | None = None
    effects: tuple[Effect, ...] = ()
    quantiles: tuple[TableQuantile, ...] = ()
    #: The strata that Mantel-Haenszel estimates add up.
    strata: int = 1
    #: Confidence of the intervals.
    confidence: float = 0.95
    #: Whether declared totals are farther from the counts than noise explains, or contradict the numbers of rows.
    misfit: bool = False
