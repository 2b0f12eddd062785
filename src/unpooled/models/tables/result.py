"""The result of a table as it is recorded, as text, line by line, and as figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from unpooled.errors import listed
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import PrintedTable, ResultTerm, finite, known

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unpooled.privacy.plan import Plan


# --- Result ----------------------------------------------------------------------------------------------------------------
# The result of a table: counts, shares, a test, effects and quantiles, as they are recorded.

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


# --- Lines -----------------------------------------------------------------------------------------------------------------
# The table as text, line by line, and as figures.

#: Cells that a terminal shows one by one.
_MOST = 400


def terms(plan: Plan, result: Contingency) -> tuple[ResultTerm, ...]:  # noqa: ARG001 - as every model
    """Return one line per number; the intervals of counts hold the noise only."""
    found = []
    for cell in result.cells:
        name = ", ".join(f"{c} = {level}" for c, level in zip(result.columns, cell.levels, strict=True))
        found.append(_term(f"count: {name}", cell.count, cell.source))
    found += [_term(f"share: {_of(result, s.line, s.level)}", s.value) for s in result.shares if s.value is not None]
    test = result.independence
    if test is not None and test.statistic is not None and test.p_value is not None:
        name = f"independence of {result.columns[0]} and {result.columns[-1]}: chi2"
        found.append(ResultTerm(name, test.statistic, statistic=test.statistic, p_value=test.p_value))
    for e in result.effects:
        if e.value is not None:
            name = f"{e.name}: {_compared(result, e)}"
            error, own = finite(e.std_error), finite(e.noise)
            found.append(
                ResultTerm(name, e.value, error, conf_low=e.low, conf_high=e.high, privacy=own)
                if e.form != "outside"
                else ResultTerm(name, e.value)
            )
    for q in result.quantiles:
        if q.value is not None:
            name = f"quantile {q.part:g}: {_of(result, q.line)}"
            found.append(ResultTerm(name, q.value, conf_low=q.low, conf_high=q.high))
    return tuple(found)


def _term(name: str, e: TableEstimate, group: str = "") -> ResultTerm:
    return ResultTerm(
        name, e.value, e.std_error, conf_low=known(e.low), conf_high=known(e.high), privacy=known(e.noise), group=group
    )


def _of(result: Contingency, line: str, level: str = "") -> str:
    """Return the words for a level of the last column in a line of the first."""
    last = f"{result.columns[-1]} = {level}" if level else result.columns[-1]
    return f"{last}, {result.columns[0]} = {line}" if line else last


def _compared(result: Contingency, e: Effect) -> str:
    event = result.levels[-1][1]
    return f"{result.columns[-1]} = {event}, {result.columns[0]} = {e.line} against {e.reference}"


def foot(plan: Plan, result: Contingency) -> tuple[str, ...]:  # noqa: ARG001 - as every model
    """Return the lines under the table."""
    return (
        *_foot(result),
        *(
            f"{e.name[0].upper()}{e.name[1:]} of {_compared(result, e)}: {_set(e)}."
            for e in result.effects
            if e.form != "interval"
        ),
    )


def _foot(result: Contingency) -> Iterator[str]:
    yield f"Intervals of counts hold the noise only: they are about these rows. All others ({result.confidence:.0%}) hold sampling and noise."
    if result.rows is None:
        yield "Rows of an id may depend on each other; all intervals but those of counts, and the test, take them as independent."
    hidden = [_of(result, s.line) for s in result.shares if s.value is None and s.level == result.shares[0].level]
    if hidden:
        yield f"Not identified, for the noise hides whether there are rows: shares of {listed(hidden)}."
    test = result.independence
    if test is not None and test.p_value is None:
        yield f"Independence of {result.columns[0]} and {result.columns[-1]}: not identified ({test.why})."
    if any(q.value is not None for q in result.quantiles):
        yield "Quantiles have intervals from one cut to another: the table does not say where in a bin values lie."
    if result.effects and result.strata > 1:
        yield f"Tests, shares and plain effects are of all rows together; Mantel-Haenszel and common effects compare within {result.strata} strata."
    if result.misfit:
        yield "The declared totals are farther from the counts than noise explains, or contradict the numbers of rows: check them."


def _set(e: Effect) -> str:
    """Return the words for a set of values that is no interval."""
    if e.form == "above":
        return f"above {e.low:.4g}, without an upper end"
    if e.form == "below":
        return f"below {e.high:.4g}, without a lower end"
    if e.form == "outside":
        return f"below {e.low:.4g} or above {e.high:.4g}, and not in between"
    return "not identified"


def render(result: Contingency) -> str:
    """Return the pooled counts with their shares, the test, the effects and the quantiles, and the lines under them."""
    shares, quantiles = _shares(result), _quantiles(result)
    lines = [str(_counts(result)), *(["", str(shares)] if len(result.columns) > 2 and result.shares else [])]  # noqa: PLR2004 - strata
    effects = _effects(result)
    lines += ["", *effects.foot] if effects.foot else []
    named = ""
    for compared, name, value, ends in effects.rows:
        lines += [compared] if compared != named else []
        lines.append(f"  {name:<30}{value:>9}  {ends}")
        named = compared
    lines += ["", str(quantiles)] if quantiles.rows else []
    return "\n".join((*lines, "", *_foot(result)))


def printed(plan: Plan, result: Contingency) -> tuple[PrintedTable, ...]:  # noqa: ARG001 - as every model
    """Return the tables of a result: counts, shares over all strata, effects and quantiles, as far as there are any."""
    found = [_counts(result), _shares(result), _effects(result), _quantiles(result)]
    return tuple(table for table in found if table.rows or table.foot)


def _counts(result: Contingency) -> PrintedTable:
    source = result.cells[0].source
    own = [cell for cell in result.cells if cell.source == source]
    people = "an unknown number of rows" if result.rows is None else f"{result.rows} rows"
    title = f"{' x '.join(result.columns)}: {people}, {result.sources} {'party' if result.sources == 1 else 'parties'}"
    shares = {(s.line, s.level): s.value for s in result.shares}
    rows = []
    for cell in own[:_MOST]:
        c = cell.count
        key = (cell.levels[0] if len(result.columns) > 1 else "", cell.levels[-1])
        share = shares.get(key) if len(result.columns) < 3 else None  # noqa: PLR2004 - no strata
        of_line = f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]" if share is not None else ""
        rows.append((*cell.levels, f"{c.value:.0f}", f"[{c.low:.0f}, {c.high:.0f}]", of_line))
    head = (*result.columns, "count", "interval", "of its line" if len(result.columns) > 1 else "share")
    foot = (f"and {len(own) - _MOST} more cells",) if len(own) > _MOST else ()
    return PrintedTable(head, tuple(rows), title, foot, words=len(result.columns))


def _shares(result: Contingency) -> PrintedTable:
    """Return the shares over all strata."""
    if len(result.columns) < 3:  # noqa: PLR2004 - no strata
        return PrintedTable()
    rows = tuple(
        (s.line, s.level, f"{s.value.value:.1%}", f"[{s.value.low:.1%}, {s.value.high:.1%}]")
        for s in result.shares
        if s.value is not None
    )
    return PrintedTable((result.columns[0], result.columns[-1], "of its line", "interval"), rows, words=2)


def _effects(result: Contingency) -> PrintedTable:
    test, rows = result.independence, []
    for e in result.effects:
        value = "" if e.value is None else f"{e.value:.4g}"
        ends = f"[{e.low:.4g}, {e.high:.4g}]" if e.form == "interval" else _set(e)
        rows.append((_compared(result, e), e.name, value, ends))
    foot = []
    if test is not None:
        said = "not identified" if test.p_value is None else f"chi2 = {test.statistic:.4g}, p = {test.p_value:.3g}"
        foot.append(f"independence of {result.columns[0]} and {result.columns[-1]}: {said}")
    head = ("compared", "effect", "value", "interval") if rows else ()
    return PrintedTable(head, tuple(rows), foot=tuple(foot), words=2)


def _quantiles(result: Contingency) -> PrintedTable:
    lines, parts = (list(dict.fromkeys(getattr(q, name) for q in result.quantiles)) for name in ("line", "part"))
    rows = tuple((line, *(_quantile(q) for q in result.quantiles if q.line == line)) for line in lines)
    return PrintedTable((f"quantiles of {result.columns[-1]}", *(f"{part:g}" for part in parts)), rows)


def _quantile(q: TableQuantile) -> str:
    return "not identified" if q.value is None else f"{q.value:.4g} [{q.low:.4g}, {q.high:.4g}]"


def panels(plan: Plan, result: Contingency) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model
    """Return the counts of one source, the shares, and each line's quantiles."""
    source = POOLED if result.sources > 1 else result.cells[0].source
    counts = [(", ".join(cell.levels), cell.count) for cell in result.cells if cell.source == source]
    found = [_panel(f"count, {source}", [(name, e.value, e.low, e.high) for name, e in counts])]
    drawn = [
        (f"{s.line}: {s.level}" if s.line else s.level, s.value.value, s.value.low, s.value.high)
        for s in result.shares
        if s.value is not None
    ]
    if drawn:
        found.append(_panel(f"share of {result.columns[-1]}", drawn))
    for kind in dict.fromkeys(e.name for e in result.effects):
        effects = [
            (f"{e.line} against {e.reference}", e.value, e.low, e.high)
            for e in result.effects
            if e.name == kind and e.value is not None and e.low is not None and e.high is not None and e.form == "interval"
        ]
        if effects:
            found.append(_panel(f"{kind} of {result.columns[-1]} = {result.levels[-1][1]}", effects))
    for part in dict.fromkeys(q.part for q in result.quantiles):
        quantiles = [
            (q.line or result.columns[-1], q.value, q.low, q.high)
            for q in result.quantiles
            if q.part == part and q.value is not None and q.low is not None and q.high is not None
        ]
        if quantiles:
            found.append(_panel(f"quantile {part:g} of {result.columns[-1]}", quantiles))
    return tuple(found)


def _panel(title: str, drawn: Sequence[tuple[str, float, float, float]]) -> Panel:
    names, values, low, high = zip(*drawn, strict=True)
    return Panel(title, names, values, low, high)
