"""Outlook of a study of some shape, before any data are touched: expected error against epsilon, for every model in one form."""

from __future__ import annotations

import html
import itertools
import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.aggregation.drawing import ACCENT, BAND, OTHER, SOFT, new_figure
from unpooled.errors import UsageError
from unpooled.privacy.origin import PRIOR
from unpooled.privacy.unit import real

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.privacy.plan import Study

#: The epsilons that an outlook shows beside the one that is asked for.
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
#: Runs at every epsilon, and the part of them that lies below and above the band.
RUNS, OUTSIDE = 18, 0.05
#: Runs of a quick look at one epsilon.
QUICK_RUNS = 6
Range = float | tuple[float, float]


@dataclass(frozen=True)
class Expected:
    """The error expected at one epsilon: the error without privacy and the mean excess of simulated studies; the band holds nine of ten."""

    epsilon: float
    error: float
    low: float
    high: float


@dataclass(frozen=True)
class Outlook:
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
        return not self.error >= self.mean * 0.99

    @property
    def buys_something(self) -> bool:
        """Return True if a smaller error is expected than with nothing released."""
        return not self.error >= self.nothing_released * 0.98

    @property
    def pays(self) -> bool:
        """Return True if the study is expected to give what neither a mean nor anybody's own columns give without it."""
        return self.worthwhile and self.buys_something

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
        return {
            **{
                name: getattr(self, name)
                for name in ("model", "rows", "columns", "epsilon", "mean", "noise_free", "measure")
            },
            "assumed": self.assumed,
            "worthwhile": self.worthwhile,
            "nothing_released": self.nothing_released,
            "points": [{"epsilon": p.epsilon, "error": p.error, "low": p.low, "high": p.high} for p in self.points],
        }

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
        if not self.buys_something:
            lines.append("  At this epsilon the study buys next to nothing beyond what every party has without it.")
        if not self.worthwhile:
            lines.append(
                "  At this epsilon no more than a mean is expected: ask for more epsilon, more rows or fewer columns."
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{p.epsilon:g}</th><td>{p.error:.3g}</td><td>{p.low:.3g} to {p.high:.3g}</td></tr>" for p in self.points
        )
        head = f"<tr><th>epsilon</th><th>{html.escape(self.measure)}</th><th>band</th></tr>"
        foot = html.escape(f"a mean alone: {self.mean:.3g}; without privacy: {self.noise_free:.3g}. Assumed: {self.assumed}")
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table><p>{foot}</p>"

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


def drawn(value: Range, rng: np.random.Generator) -> float:
    """Return an assumed number as it is, or a draw from the range that is assumed."""
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


def without_prior(study: Study) -> tuple[Study, list[str]]:
    """Return the study without its earlier models, and words for it: before the data nobody knows how good they are."""
    if not study.parameters.get(PRIOR):
        return study, []
    left = {
        name: value for name, value in study.parameters.items() if name != PRIOR and (name, value) != ("method", "weights")
    }
    return msgspec.structs.replace(study, parameters=left), ["earlier models left out"]
