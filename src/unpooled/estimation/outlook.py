"""Outlook of a study of some shape, before any data are touched: expected error against epsilon, over made-up rows with the noise that its plan has."""

from __future__ import annotations

import importlib
import itertools
import math
import textwrap
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np

from unpooled.errors import Refusal, UsageError, UtilityWarning, listed, warn_caller
from unpooled.estimation.expected_lines import ExpectedLine, PlayedTables, in_text
from unpooled.inference.drawing import ACCENT, BAND, OTHER, SOFT, new_figure
from unpooled.inference.results import Result, records
from unpooled.privacy.bounds import Coding
from unpooled.privacy.origin import PRIOR
from unpooled.privacy.table import Table
from unpooled.privacy.unit import real
from unpooled.protocol.context import Context
from unpooled.protocol.registry import Panel
from unpooled.schedules import table
from unpooled.totals.total import Aggregation, Total
from unpooled.totals.whole_rows import expected_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.coding import FormulaColumns
    from unpooled.linear.moments import Moments
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan, Release, Study
    from unpooled.products.design import ColumnsDesign
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Conversation, Model, Replies
    from unpooled.totals.total import Member, Statistic, Summed

    Matrix = NDArray[np.float64]
    Floats = NDArray[np.float64]


# --- Made up ---------------------------------------------------------------------------------------------------------------
# Made-up columns and responses of declared laws, inside declared ranges: what outlooks simulate in the place of anybody's data.

#: The laws that columns may have: normal ones; exponential ones, which are skewed; and groups of near copies, normal within.
NORMAL, SKEWED, COPIES = "normal", "skewed", "near copies"
SHAPES = (NORMAL, SKEWED, COPIES)
_TUNED = table("outlooks")
#: Columns in a group of near copies, and the correlation of two of them.
_GROUP, _ALIKE = _TUNED.whole("copies"), _TUNED.copies_alike


def rows_to_make(rows: int, columns: int) -> int:
    """Return the number of rows to make up for a study of this size: more would differ in the error alone that they have for being few."""
    return min(rows, max(_TUNED.whole("fewest_rows"), _TUNED.whole("values") // columns))


def checked_shapes(shapes: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Return the shapes that made-up studies take in turn."""
    found = (shapes,) if isinstance(shapes, str) else tuple(shapes)
    if not found or not set(found) <= set(SHAPES):
        msg = f"shapes: one or several of {listed(list(SHAPES))}"
        raise UsageError(msg)
    return found


def shapes_in_words(shapes: tuple[str, ...]) -> str:
    """Return the shapes as a statement of what is assumed."""
    return f"columns {', '.join(shapes)}" + (", as often each" if len(shapes) > 1 else "")


def standard_columns(count: int, width: int, correlation: float, shape: str, rng: np.random.Generator) -> Matrix:
    """Return rows of columns with mean 0 and variance 1 that share one common factor; near copies have one in every group of four."""
    assert shape in SHAPES, "shapes have names"
    rows = rng.normal(size=(count, width))
    common = rng.normal(size=(count, 1))
    if shape == COPIES:
        factors = rng.normal(size=(count, -(-width // _GROUP)))
        rows = math.sqrt(1 - _ALIKE) * rows + math.sqrt(_ALIKE) * factors[:, np.arange(width) % factors.shape[1]]
        return np.asarray(rows)
    rows = math.sqrt(1 - correlation) * rows + math.sqrt(correlation) * common
    if shape == SKEWED:
        from scipy.special import log_ndtr

        rows = -log_ndtr(-rows) - 1.0
    return np.asarray(rows)


def made_up_features(
    features: tuple[Column, ...],
    count: int,
    correlation: float,
    ranges: float,
    rng: np.random.Generator,
    shape: str = NORMAL,
    made: FormulaColumns | None = None,
) -> tuple[dict[str, Any], Matrix]:
    """Return columns inside declared ranges, categories by their order; and the same as standardised rows.

    Features that a formula ``made`` follow from made-up columns of its sources: an interaction is the product of what it is made of.
    """
    if made is not None:
        return _of_formula(
            features, made, made_up_features(made.derived.needs, count, correlation, ranges, rng, shape)[0], rng
        )
    rows = standard_columns(count, len(features), correlation, shape, rng)
    columns: dict[str, Any] = {}
    for column, values in zip(features, rows.T, strict=True):
        if column.categories is not None:  # with effects of their own order
            places = np.searchsorted(np.quantile(values, np.minimum(np.cumsum(column.shares)[:-1], 1.0)), values)
            columns[column.name] = np.array(column.categories, dtype=object)[places]
            values[:] = (places - places.mean()) / max(places.std(), 1e-9)
        else:
            columns[column.name] = in_range(column, values, ranges)
            middle, deviation = usually(column, ranges)
            values[:] = (columns[column.name] - middle) / deviation
    return columns, rows


def usually(column: Column, ranges: float) -> tuple[float, float]:
    """Return the centre and deviation of a made-up column: the typical ones, else half its range is this number of deviations."""
    if column.typical is None:
        return column.centre, column.half_width / ranges
    centre, deviation = column.typical
    return centre, deviation


def in_range(column: Column, values: Matrix, ranges: float) -> Matrix:
    """Return standardised values as those of a column, cut to its range."""
    middle, deviation = usually(column, ranges)
    return np.asarray(np.clip(middle + deviation * values, *column.range))


def _of_formula(
    features: tuple[Column, ...], made: FormulaColumns, sources: dict[str, Any], rng: np.random.Generator
) -> tuple[dict[str, Any], Matrix]:
    """Return the features of a formula over these columns, and the same as standardised rows; a column of sites is drawn by itself."""
    count = len(next(iter(sources.values())))
    own = tuple(feature.column.name for feature in made.features)
    blocks = list(made.seen(Table(sources)).blocks(own))
    columns: dict[str, Any] = {name: np.concatenate([block[j] for block in blocks]) for j, name in enumerate(own)}
    rows = np.empty((count, len(features)))
    for j, feature in enumerate(features):
        if feature.name not in columns:
            assert feature.categories is not None  # sites
            columns[feature.name] = np.array(feature.categories, dtype=object)[
                rng.integers(len(feature.categories), size=count)
            ]
        values = columns[feature.name]
        if feature.categories is not None:
            values = [feature.categories.index(value) if value in feature.categories else 0 for value in values.tolist()]
        numbers = np.nan_to_num(
            np.asarray(values, dtype=np.float64), nan=feature.centre if feature.categories is None else 0.0
        )
        rows[:, j] = (numbers - numbers.mean()) / max(float(numbers.std()), 1e-9)
    return columns, rows


def made_up_rows(
    features: tuple[Column, ...],
    response: Column,
    count: int,
    r2: float,
    correlation: float,
    ranges: float,
    rng: np.random.Generator,
    relevant: int | None = None,
    shape: str = NORMAL,
    made: FormulaColumns | None = None,
) -> Table:
    """Return columns of this shape with a linear response.

    ``relevant`` is the number of columns with an effect; None: all of them.
    """
    columns, rows = made_up_features(features, count, correlation, ranges, rng, shape, made)
    effects = rng.normal(size=len(features))
    if relevant is not None and relevant < len(features):
        effects[rng.permutation(len(features))[relevant:]] = 0.0
    signal = rows @ effects
    y = math.sqrt(r2) * signal / max(float(signal.std()), 1e-9) + math.sqrt(1 - r2) * rng.normal(size=count)
    columns[response.name] = in_range(response, y, ranges)
    return Table(columns)


# --- Outlook ---------------------------------------------------------------------------------------------------------------
# Outlook of a study of some shape, before any data are touched: expected error against epsilon, for every model in one form.

#: The epsilons that an outlook shows beside the one that is asked for.
EPSILONS = _TUNED.several("epsilons")
#: Runs at every epsilon, and the part of them that lies below and above the band.
RUNS, OUTSIDE = _TUNED.whole("runs"), _TUNED.outside
#: Runs of a quick look at one epsilon.
QUICK_RUNS = _TUNED.whole("quick_runs")
Range = float | tuple[float, float]


@dataclass(frozen=True)
class Expected:
    """The error expected at one epsilon: the error without privacy and the mean excess of simulated studies; the band holds nine of ten."""

    epsilon: float
    error: float
    low: float
    high: float
    #: The lines of the table, where the method makes one and it was played.
    lines: tuple[ExpectedLine, ...] = ()


@dataclass(frozen=True, repr=False)
class Outlook(Result):
    """The outcome of simulated studies of a declared shape; nothing of it comes from data.

    Errors are those of ``measure``; ``mean`` is the error of a prediction by a mean alone (nan where there is no such thing), and
    ``noise_free`` that of the same model without privacy.
    """

    model: str
    rows: int
    columns: int
    #: What the study asks for.
    epsilon: float
    points: tuple[Expected, ...]
    mean: float
    noise_free: float
    measure: str
    #: What was assumed of signal, correlation and ranges, in words.
    assumed: str
    #: The error where nothing is released at all (columns split: the best model of a party's own columns, or what is better still); nan where that gives nothing.
    nothing_released: float = math.nan
    _saved_types: ClassVar = (Expected, ExpectedLine)

    @property
    def at(self) -> Expected:
        """Return the point of the epsilon that is asked for."""
        return next(point for point in self.points if point.epsilon == self.epsilon)

    @property
    def left_out(self) -> tuple[float, ...]:
        """Return epsilons of the curve at which this study cannot be planned."""
        known = {point.epsilon for point in self.points}
        return tuple(e for e in EPSILONS if e not in known) if len(known) > 1 else ()

    @property
    def error(self) -> float:
        """Return the expected error at that epsilon."""
        return self.at.error

    @property
    def worthwhile(self) -> bool:
        """Return True if a smaller error is expected than that of a mean alone."""
        return not self.error >= self.mean * _TUNED.worth_mean

    @property
    def buys_something(self) -> bool:
        """Return True if a smaller error is expected than with nothing released."""
        return not self.error >= self.nothing_released * _TUNED.worth_nothing

    @property
    def pays(self) -> bool:
        """Return True if the study is expected to give what neither a mean nor anybody's own columns give without it."""
        return self.worthwhile and self.buys_something

    @property
    def lines(self) -> tuple[ExpectedLine, ...]:
        """Return the lines of the table to expect at the epsilon that is asked for; empty where the study makes none."""
        return self.at.lines

    def with_gaps(self, study: Study, left_out: Sequence[Column]) -> Self:
        """Return the outlook of a study that leaves rows out: the part of them that it expects, and what a tenth and three tenths of them cost."""
        if not left_out:
            return self
        expected = expected_missing(study)
        points = tuple(replace(p, lines=tuple(line.with_gaps(expected) for line in p.lines)) for p in self.points)
        return replace(self, points=points, assumed=f"{self.assumed}, {expected:.0%} of the rows left out for gaps")

    def beside(self, alone: Mapping[str, float]) -> Self:
        """Return the outlook with the errors that the response's holder alone can expect of the lines at the same epsilon."""
        lines = tuple(replace(line, alone=alone.get(line.term, math.nan)) for line in self.lines)
        points = tuple(replace(point, lines=lines) if point.epsilon == self.epsilon else point for point in self.points)
        return replace(self, points=points)

    def lines_in_text(self, name: str = "") -> str:
        """Return the lines to expect as text, and what they assume; of an analysis with its ``name``."""
        of = f"{name}: " if name else ""
        return f"{of}the table to expect at epsilon {self.epsilon:g}, in studies played without data:\n{in_text(self.lines)}\n  assumed: {self.assumed}"

    def for_line(self, term: str, std_error: float) -> tuple[float, float]:
        """Return the smallest epsilon at which a line is expected to have this standard error or less, and the rows at which it has it at this epsilon.

        Infinite where no played study has it. The first is interpolated between the epsilons of the curve; ``quick`` outlooks have one alone.
        """
        wanted = real("std_error", std_error)
        curve = [(p.epsilon, next((line for line in p.lines if line.term == term), None)) for p in self.points]
        own = next((line for epsilon, line in curve if epsilon == self.epsilon), None)
        if own is None:
            msg = f"no line {term!r} is expected at epsilon {self.epsilon:g}: there are {listed([line.term for line in self.lines])}"
            raise UsageError(msg)
        known = [(epsilon, line.std_error) for epsilon, line in sorted(curve) if line is not None and line.is_expected]
        return _reached(known, wanted), own.at_rows(wanted, self.rows)

    def epsilon_for(self, error: float) -> float:
        """Return the smallest epsilon whose expected error is at most this (interpolated); infinite where none of those simulated reaches it."""
        error = real("error", error)
        points = sorted(self.points, key=lambda point: point.epsilon)
        if points[0].error <= error:
            return points[0].epsilon
        for before, after in itertools.pairwise(points):
            if after.error <= error:
                part = (before.error - error) / (before.error - after.error)
                low, high = math.log(before.epsilon), math.log(after.epsilon)
                return math.exp(low + part * (high - low))
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        names = ("model", "rows", "columns", "epsilon", "mean", "noise_free", "measure", "assumed", "worthwhile")
        own = {name: getattr(self, name) for name in (*names, "nothing_released")}
        return own | {"points": self._numbers(), "lines": records(self.lines)}

    def __str__(self) -> str:
        lines = [
            f"{self.model}, {self.rows} rows, {self.columns} columns: {self.measure} that simulations without data expect"
        ]
        for p in self.points:
            asked = "  <- asked" if p.epsilon == self.epsilon else ""
            lines.append(f"  epsilon {p.epsilon:<8.4g} {p.error:.3g}   [{p.low:.3g}, {p.high:.3g}]{asked}")
        if self.left_out:
            lines.append(f"  no study at epsilon {', '.join(f'{e:g}' for e in self.left_out)}: what it asks for needs more")
        if not math.isnan(self.mean):
            lines.append(f"  a mean alone       {self.mean:.3g}")
        lines += [f"  without privacy    {self.noise_free:.3g}", f"  assumed: {self.assumed}"]
        if not math.isnan(self.nothing_released):
            lines.insert(
                -1, f"  nothing released   {self.nothing_released:.3g}   (the best that parties have from their own columns)"
            )
        if self.lines:
            lines += ["  the table, in played studies:", in_text(self.lines)]
        if not self.buys_something:
            lines.append("  At this epsilon the study buys next to nothing beyond what every party has without it.")
        if not self.worthwhile:
            lines.append(
                "  At this epsilon no more than a mean is expected: ask for more epsilon, more rows or fewer columns."
            )
        return "\n".join(lines)

    def _said(self) -> str:
        return f"{self.model}, {self.rows} rows, {self.columns} columns: {self.error:.3g} at epsilon {self.epsilon:g}"

    def _lines(self) -> list[tuple[str, ...]]:
        rows = ((f"{p.epsilon:g}", f"{p.error:.3g}", f"{p.low:.3g} to {p.high:.3g}") for p in self.points)
        return [("epsilon", self.measure, "band"), *rows]

    def _foot(self) -> list[str]:
        mean = "" if math.isnan(self.mean) else f"a mean alone: {self.mean:.3g}; "
        return [f"{mean}without privacy: {self.noise_free:.3g}. Assumed: {self.assumed}"]

    def _numbers(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in point.items() if name != "lines"} for point in records(self.points)]

    def _panels(self) -> tuple[Panel, ...]:
        at, values, low, high = (
            tuple(getattr(p, name) for p in self.points) for name in ("epsilon", "error", "low", "high")
        )
        title, words = f"{self.measure} against epsilon", ("epsilon", self.measure)
        return (Panel(title, tuple(map(str, at)), values, low, high, ordered=True, places=at, axes=words),)

    @property
    def drawings(self) -> tuple[tuple[str, Callable[[Any], None]], ...]:
        """Return the title of each drawing, and the function that draws it on matplotlib axes."""
        return ((f"{self.measure} against epsilon", self._draw_error),)

    def figure(self) -> Any:  # noqa: ANN401 - a matplotlib figure
        """Error against epsilon with its band, the mean's error and the noise-free one, as a matplotlib figure."""
        drawings = self.drawings
        figure, found = new_figure(5 * len(drawings), 3.2, len(drawings))
        for (_, draw), axes in zip(drawings, found, strict=True):
            draw(axes)
        return figure

    def _draw_error(self, axes: Any) -> None:  # noqa: ANN401 - matplotlib axes
        points = [p for p in self.points if math.isfinite(p.epsilon) and math.isfinite(p.error)]
        epsilon = [p.epsilon for p in points]
        axes.fill_between(epsilon, [p.low for p in points], [p.high for p in points], color=ACCENT, alpha=BAND, lw=0)
        axes.plot(epsilon, [p.error for p in points], color=ACCENT, marker="o", markersize=4, label="expected")
        for value, line, name in (
            (self.nothing_released, "-.", "nothing released"),
            (self.mean, "--", "a mean alone"),
            (self.noise_free, ":", "without privacy"),
        ):
            if math.isfinite(value):
                axes.axhline(value, color=SOFT, linestyle=line, lw=1.2, label=name)
        if math.isfinite(self.epsilon):
            axes.axvline(self.epsilon, color=OTHER, lw=1.2, label="asked for")
        axes.set(xscale="log", xlabel="epsilon", ylabel=textwrap.fill(self.measure, 36))
        axes.set_xticks(epsilon, [f"{value:g}" for value in epsilon])
        axes.minorticks_off()
        axes.legend()


def _reached(curve: Sequence[tuple[float, float]], wanted: float) -> float:
    """Return the epsilon at which a falling curve of errors is at most this, between two of its points on logarithmic axes."""
    if not curve or curve[-1][1] > wanted:
        return math.inf
    if curve[0][1] <= wanted:
        return curve[0][0]
    for (first, above), (second, below) in itertools.pairwise(curve):
        if below <= wanted < above:
            part = math.log(above / wanted) / math.log(above / below)
            return math.exp(math.log(first) + part * (math.log(second) - math.log(first)))
    return curve[-1][0]


#: Steps of the points of made-up studies over the ranges that are assumed, one for each number in turn.
_STEPS = tuple(math.sqrt(prime) for prime in (2, 5, 7, 11))


class Evenly:
    """Numbers of one made-up study that lie, over the studies of an outlook, evenly in the ranges that are assumed: few studies stand for all of it."""

    def __init__(self, number: int, seed: int) -> None:
        self._places = (math.fmod((number + 1) * step + 0.618 * seed, 1.0) for step in _STEPS)

    def uniform(self, low: float, high: float) -> float:
        """Return the next number."""
        return low + (high - low) * next(self._places)


def drawn(value: Range, rng: np.random.Generator | Evenly) -> float:
    """Return an assumed number as it is, or one from the range that is assumed."""
    return float(rng.uniform(*value)) if isinstance(value, tuple | list) else float(value)


def in_words(name: str, value: Range) -> str:
    """Return an assumption as text."""
    return f"{name} {value[0]:g} to {value[1]:g}" if isinstance(value, tuple | list) else f"{name} {value:g}"


def check_range(name: str, value: Range, low: float, high: float) -> None:
    """Refuse an assumption outside what it can be."""
    first, last = value if isinstance(value, tuple | list) else (value, value)
    if not low <= first <= last <= high:
        msg = f"{name} must be a number from {low:g} to {high:g}, or two of them (low, high)"
        raise UsageError(msg)


def simulated(
    asked: float, run: Callable[[float, int], tuple[float, float]], *, part: float = 1.0, quick: bool = False
) -> tuple[tuple[Expected, ...], float]:
    """Return the expected error at every epsilon of the grid and at the one asked for, and the error without privacy: averages of one kind.

    ``run(epsilon, k)`` plays made-up study number k and gives its error, and that of the model by which its rows were made up. Without privacy
    the study is played at an infinite epsilon. What is averaged is the excess of one over the other, over the same studies at every epsilon; so
    noise never seems to help. Where fewer rows are made up than the study has, ``part`` is their share: the error that they have for being few
    is as much smaller. ``quick`` plays few studies at the epsilon asked for, enough to say whether it is worth its budget. An epsilon at which
    this study cannot be planned (standard errors that it asks for need more) is left out.
    """
    count = QUICK_RUNS if quick else RUNS
    grid = sorted({*EPSILONS, asked}) if math.isfinite(asked) else (*EPSILONS, asked)
    exact = np.array([run(math.inf, k) for k in range(count)])
    free = float(np.mean(exact[:, 1] + part * (exact[:, 0] - exact[:, 1])))
    points = []
    for epsilon in (asked,) if quick else grid:
        try:
            errors = np.array([run(epsilon, k)[0] for k in range(count)]) if math.isfinite(epsilon) else exact[:, 0]
        except UsageError:
            if epsilon == asked:
                raise
            continue
        excess = errors - exact[:, 0]
        three = (np.mean(excess), np.quantile(excess, OUTSIDE), np.quantile(excess, 1 - OUTSIDE))
        error, low, high = (free + max(float(value), 0.0) for value in three)
        points.append(Expected(epsilon, error, min(low, error), max(high, error)))
    return tuple(points), free


def with_lines(
    seen: PlayedTables,
    run: Callable[[float, int], object],
    points: tuple[Expected, ...],
    free: float,
    asked: float,
) -> tuple[tuple[Expected, ...], float]:
    """Return the points with the lines of the tables of their played studies, where they are wanted; at the epsilon that is asked for enough are played to tell shares."""
    if not seen.wanted:
        return points, free
    if math.isfinite(asked):
        for epsilon, number in seen.missing(asked):
            run(epsilon, number)
    return tuple(replace(point, lines=seen.lines(point.epsilon)) for point in points), free


def without_prior(study: Study) -> tuple[Study, list[str]]:
    """Return the study without its earlier models, and words for it: before the data nobody knows how good they are."""
    if not study.parameters.get(PRIOR):
        return study, []
    left = {
        name: value for name, value in study.parameters.items() if name != PRIOR and (name, value) != ("method", "weights")
    }
    return msgspec.structs.replace(study, parameters=left), ["earlier models left out"]


# --- Imagined --------------------------------------------------------------------------------------------------------------
# A study's own rounds, played over made-up rows with the noise that its plan has: what outlooks of row-split models simulate.


@dataclass(frozen=True, slots=True)
class Imagined(Aggregation):
    """Totals of made-up rows, scaled to the study's number of rows, with noise of the plan's deviations: nobody is asked."""

    table: Table | None = None
    real: Plan | None = None
    rng: np.random.Generator | None = None
    statistics: Mapping[str, Statistic] = field(default_factory=dict)

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """None: nothing is planned by it."""
        del vector, study
        return ()

    def collect(
        self, plan: Plan, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...], index: int = 0
    ) -> Generator[list[Ask], Replies, Total]:
        """The total as the study would have it."""
        yield from ()
        del members
        assert self.table is not None and self.real is not None and self.rng is not None  # noqa: PT018 - set where it is made
        context: Any = Context("imagined", self.table, plan, vector.name, index, None)
        exact = self.statistics[vector.name](context, settings)
        rows = sum(card.rows for card in plan.study.parties)
        noise = vector.deviations(self.real)
        values = exact * (rows / self.table.n_rows) + noise * self.rng.standard_normal(exact.size)
        return Total(values, noise, self.parties)


def imagine_rounds(
    plan: Plan,
    coordinate: Callable[[Plan], Conversation],
    statistics: Mapping[str, Statistic],
    table: Table,
    rng: np.random.Generator,
) -> Any:  # noqa: ANN401 - the model's own result
    """Return the result of a study over these made-up rows, and of the plans that are parts of it."""
    parts = {}
    for name, part in plan.parts.items():
        of_part = importlib.import_module(f"unpooled.models.{part.study.model}").STATISTICS
        own = Imagined(
            part.design.aggregation.parties, 0, table=part.design.seen(table), real=part, rng=rng, statistics=of_part
        )
        parts[name] = replace(part, design=replace(part.design, aggregation=own))
    plan = replace(plan, parts=parts)
    seen = getattr(plan.design, "seen", None)  # with the columns of a formula
    table = table if seen is None else seen(table)
    parties = plan.design.aggregation.parties
    aggregation = Imagined(parties, 0, table=table, real=plan, rng=rng, statistics=statistics)
    conversation = coordinate(replace(plan, design=replace(plan.design, aggregation=aggregation)))
    try:
        next(conversation)
    except StopIteration as end:
        return end.value
    raise AssertionError("an imagined study asks nobody")


# --- Joint outlook ---------------------------------------------------------------------------------------------------------
# Made-up rows of parties that join their columns, and the error of models on new ones: what outlooks of joint moments simulate.

#: Made-up rows of a fit, and new ones.
MADE_UP, _NEW = _TUNED.whole("joint_rows"), _TUNED.whole("joint_new_rows")


@dataclass(frozen=True)
class MadeUp:
    """Rows that a study of columns at different parties might have, and new rows of the same people."""

    design: ColumnsDesign
    used: Table
    new: Table

    @classmethod
    def of(
        cls,
        design: ColumnsDesign,
        r2: float,
        correlation: float,
        ranges: float,
        rng: np.random.Generator,
        relevant: int | None = None,
        shape: str = NORMAL,
    ) -> MadeUp:
        """Return rows with these properties (:func:`~unpooled.estimation.outlook.made_up_rows`)."""
        layout, count = design.layout, min(design.rows, MADE_UP)
        whole = made_up_rows(layout.features, layout.response, count + _NEW, r2, correlation, ranges, rng, relevant, shape)
        names = (*(c.name for c in layout.features), layout.response.name)
        used, new = (Table({name: whole[name][part] for name in names}) for part in (slice(count), slice(count, None)))
        return cls(design, used, new)

    @property
    def tables(self) -> dict[str, Table]:
        """Return the rows of the fit as the parties hold them."""
        design, held = self.design, {}
        for party, own in zip(design.parties, design.features, strict=True):
            response = [design.layout.response.name] if party == design.holder else []
            held[party] = Table({name: self.used[name] for name in (*(c.name for c in own), *response)})
        return held

    def moments(self, rng: np.random.Generator) -> Moments:
        """Return the moments that the study would release."""
        from unpooled.products.design import JointDesign
        from unpooled.products.moments import imagine

        assert isinstance(self.design, JointDesign)  # others release none
        return imagine(self.design, self.tables, rng)

    def error(self, slopes: Floats, intercept: float) -> float:
        """Return the squared error of predictions of new rows over the variance of y."""
        return self._error(self.design.layout.features, slopes, intercept)

    def alone(self) -> float:
        """Return the error of the least squares that the holder of the response can fit alone, and nobody sees."""
        own = self.design.features[self.design.parties.index(self.design.holder)]
        if not own:
            return 1.0
        slopes, intercept = self.pooled(own)
        return self._error(own, slopes, intercept)

    def without_privacy(self) -> float:
        """Return the error of the least squares on all columns, without noise."""
        return self.error(*self.pooled(self.design.layout.features))

    def pooled(self, columns: tuple[Column, ...]) -> tuple[Floats, float]:
        """Return the least squares on these columns without noise."""
        natural = Coding(columns, 1).natural([self.used[c.name] for c in columns])
        rows = np.column_stack([natural, np.ones(len(natural))])
        beta = np.linalg.lstsq(rows, self.used[self.design.layout.response.name], rcond=None)[0]
        return beta[:-1], float(beta[-1])

    def _error(self, columns: tuple[Column, ...], slopes: Floats, intercept: float) -> float:
        y = self.new[self.design.layout.response.name]
        found = Coding(columns, 1).natural([self.new[c.name] for c in columns]) @ slopes + intercept
        return float(np.mean((y - found) ** 2) / np.var(y))


# --- Utility ---------------------------------------------------------------------------------------------------------------
# Utility of a study compared with its budget, checked before anybody's data: once, for every model that has an outlook.


def glance(model: Model, study: Study, *, lines: bool = False) -> Outlook | None:
    """Return the outlook at the epsilon of the study alone, by few runs; None where the model has none, or where there is nothing to spend.

    ``lines``: with runs enough to tell how often each line of its table is printed.
    """
    if model.outlook is None or math.isinf(study.epsilon) or study.parameters.get("fitted"):
        return None  # a study of new rows fits nothing: what it is worth was decided by the one that did
    told = {"lines": True} if lines and model.reading.tables is not None else {}
    found: Outlook | None = model.outlook(study, quick=True, **told)
    return found


def poor(outlook: Outlook) -> str:
    """Return the warning about a study that is not worth its budget."""
    shape = f"at epsilon {outlook.epsilon:g} with {outlook.rows} rows and {outlook.columns} columns, simulations without data expect"
    if outlook.worthwhile:
        return (
            f"{shape} next to nothing beyond the best that parties have from their own columns, which costs nothing "
            f"({outlook.measure}: {outlook.error:.3g}, nothing released: {outlook.nothing_released:.3g}): ask for more epsilon or more rows"
        )
    return (
        f"{shape} no more than a mean of this study ({outlook.measure}: {outlook.error:.3g}, a mean alone: {outlook.mean:.3g}): "
        "ask for more epsilon, more rows or fewer columns"
    )


_HALF = 0.5
_ALL_THE_SAME = "Nothing was asked of any party; --force, or `force = true` under [study], runs it all the same"


def _empty_table(study: Study, outlook: Outlook) -> bool:
    """Return True if a table is what a study is for, and most played studies print none of its lines."""
    asked = study.parameters.get("goal") == "table" and bool(outlook.lines)
    return asked and all(line.printed <= _HALF for line in outlook.lines)


def refuse_if_poor(asked: Iterable[tuple[Model, Study]]) -> None:
    """Refuse a study that is not worth its budget, before any party is asked; of several analyses, each must be worth its share."""
    for model, study in asked:
        outlook = glance(model, study, lines=study.parameters.get("goal") == "table")
        if outlook is None or (outlook.pays and not _empty_table(study, outlook)):
            continue
        if outlook.pays:
            msg = (
                f'goal is "table", and no line of it is printed in more than half of the studies that were played without data:\n'
                f"{outlook.lines_in_text(study.analysis)}\nAsk for more epsilon, more rows or fewer columns. {_ALL_THE_SAME}"
            )
            raise Refusal(msg)
        words = f"analysis {study.analysis!r}: {poor(outlook)}" if study.analysis else poor(outlook)
        msg = f"{words[0].upper()}{words[1:]}. {_ALL_THE_SAME}"
        raise Refusal(msg)


def warn_of_little(plan: Plan) -> None:
    """Warn, before it is spent, of a budget that buys the mean of the response alone, or no table; nothing is simulated for it."""
    for said in _little(plan):
        warn_caller(f"{said[0].upper()}{said[1:]}", UtilityWarning)


def _little(plan: Plan) -> Iterator[str]:
    """Yield what a plan, or one of its analyses, is too small for."""
    if getattr(plan.design, "mean_only", False):
        if not plan.study.derived:
            yield (
                f"at epsilon {plan.study.epsilon:g} with {sum(card.rows for card in plan.study.parties)} rows this fit is no more than a mean: noise "
                "would hide what columns explain. Ask for more epsilon, more rows or fewer columns; outlook(rows, columns) says what each would give"
            )
    elif said := getattr(plan.design, "untabled", ""):
        yield said
    for name, part in plan.analyses.items():
        if len(part.study.parties) == len(plan.study.parties):  # of fits at single sites the study itself speaks
            yield from (f"analysis {name!r}: {said}" for said in _little(part))
