"""The table of estimates with standard errors, tests and intervals as statisticians read it, for every model that has one, and the style of all figures."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.inference.saving import Savable
from unpooled.protocol.terms import ResultTerm, known

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# --- Drawing ---------------------------------------------------------------------------------------------------------------
# Drawing: the colours and the axes of every figure, on the pages of reports and in notebooks.

#: Text; frames and the line at zero; what was found; what it is compared with. On a page they are its variables, which differ in the dark.
INK, SOFT, ACCENT, OTHER = "#1d2733", "#8a97a6", "#1f6f8b", "#b4581c"
#: Of several curves in one figure, in their order; each has a contrast of at least 4.5 on white.
CURVES = (ACCENT, OTHER, "#6d4c9f", "#3d7a3a", "#a03050", "#5b6876")
#: How dark a band is, and the part of it that would be there without privacy, too.
BAND, WITHOUT_PRIVACY = 0.15, 0.3


def style() -> dict[Any, Any]:
    """Return matplotlib's settings for a figure, other than its width."""
    return {
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": SOFT,
        "axes.labelcolor": INK,
        "axes.titlesize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "legend.frameon": False,
        "axes.formatter.use_mathtext": False,
    }


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Any, list[Any]]:
    """Return a matplotlib figure of this size in inches, and its axes from left to right, in the style of all figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(style()):
        figure = Figure(figsize=(width, height), layout="constrained")
        found = list(figure.subplots(1, columns, squeeze=False)[0])
    for axes in found:  # ticks are made when they are drawn, with the settings of then
        axes.tick_params(colors=SOFT, labelcolor=INK, labelsize=9)
    return figure, found


def plain(text: str) -> str:
    """Return text that matplotlib shall not read as mathematics."""
    return text.replace("$", r"\$")


def forest(axes: Any, names: Iterable[str]) -> None:  # noqa: ANN401 - matplotlib axes
    """Write the names of lines down the vertical axis, the first one at the top."""
    shown = [plain(name) for name in names]
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(len(shown) - 0.4, -0.6)


def interval(
    axes: Any,  # noqa: ANN401 - matplotlib axes
    place: float,
    ends: tuple[float, float],
    inner: tuple[float, float],
    colour: str = ACCENT,
) -> None:
    """Draw an interval as a thin line, and as a thick one the part of it that would be there without privacy, too."""
    axes.plot(ends, [place, place], color=SOFT, lw=1.2)
    axes.plot(inner, [place, place], color=colour, lw=3)


# --- Summary ---------------------------------------------------------------------------------------------------------------
# A table of estimates with standard errors, tests and intervals, as statisticians are used to read them: for every model that has them.


@dataclass(frozen=True)
class SummaryTerm:
    """A line of a summary. ``privacy`` is the part of the standard error that privacy adds: the root of its share of the variance."""

    term: str
    estimate: float
    std_error: float
    privacy: float
    statistic: float
    p_value: float
    conf_low: float
    conf_high: float
    identified: bool = True

    def __post_init__(self) -> None:
        if not (self.identified and math.isfinite(self.std_error)):  # no standard error: then nothing else that rests on one
            for name in _SURE:
                object.__setattr__(self, name, math.nan)
            object.__setattr__(self, "identified", False)

    def with_p(self, value: float) -> SummaryTerm:
        """Return the line with another p-value."""
        return replace(self, p_value=value)

    def credible(self) -> SummaryTerm:
        """Return the line of a posterior: its interval says what is believed, no test of a value goes with it, and nobody knows what privacy adds."""
        return replace(self, privacy=math.nan, statistic=math.nan, p_value=math.nan)

    def exponential(self) -> SummaryTerm:
        """Return the line with the exponentials of its estimate and interval; standard error and test stay those of the logarithm."""
        estimate, low, high = (math.exp(min(v, 700.0)) for v in (self.estimate, self.conf_low, self.conf_high))
        return replace(self, estimate=estimate, conf_low=low, conf_high=high)

    @property
    def line(self) -> ResultTerm:
        """Return the term as a line of a result."""
        sure = {name: known(getattr(self, name)) for name in _SURE}
        return msgspec.structs.replace(ResultTerm(self.term, self.estimate), **sure)


#: What a term has only with a standard error.
_SURE = ("std_error", "privacy", "statistic", "p_value", "conf_low", "conf_high")
#: Why a line is missing.
NOT_DETERMINED = "not determined, so not printed (no row varies along it, or the noise exceeds what the data say of it): "

#: The note under a table of a fit with earlier models.
CREDIBLE = "intervals are credible: they hold what the rows and the earlier models say together, so there are no p-values"


def notes(not_determined: Iterable[str]) -> list[str]:
    """Which lines are not printed and why; nothing where all are."""
    names = list(not_determined)
    return [NOT_DETERMINED + listed(names)] if names else []


def cells_of(
    terms: Iterable[SummaryTerm], level: float, adjust: str | None = None, ratio: str = ""
) -> list[tuple[str, ...]]:
    """Return the cells of a table, its head first."""
    p = "p" if adjust is None else f"p ({adjust})"
    ends = f"[{(1 - level) / 2:.3g}", f"{(1 + level) / 2:.3g}]"
    terms = [t for t in terms if t.identified]
    tested = not is_credible(terms)
    columns = ("std error", "privacy", "z", p) if tested else ("deviation",)
    lines: list[tuple[str, ...]] = [("", ratio or "estimate", *(columns if terms else ()), *ends)]
    for t in terms:
        numbers = (f"{v:.5g}" for v in (t.estimate, t.std_error, *([t.privacy] if tested else [])))
        test = (f"{t.statistic:.2f}", f"{t.p_value:.3g}") if tested else ()
        lines.append((t.term, *numbers, *test, f"{t.conf_low:.5g}", f"{t.conf_high:.5g}"))
    return lines


def is_credible(terms: Iterable[SummaryTerm]) -> bool:
    """Return True for the lines of a posterior, which have intervals and no tests."""
    found = [math.isnan(t.statistic) for t in terms if t.identified]
    return bool(found) and all(found)


def as_text(lines: Sequence[tuple[str, ...]]) -> str:
    """Return cells as text: the first column to the left, numbers to the right."""
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(f"{v:<{w}}" if k == 0 else f"{v:>{w}}" for k, (v, w) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )


def as_html_table(lines: Sequence[tuple[str, ...]], foot: Iterable[str] = ()) -> str:
    """Return cells as a table for notebooks, with lines of text below it; names are text, whatever they are."""
    head, *rows = lines
    titles = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
        for name, *cells in rows
    )
    below = "".join(f"<p>{html.escape(line)}</p>" for line in foot)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>{below}"


class SummaryTable(Savable):
    """The table of a summary; its classes are dataclasses with these fields, and say what stands below the table."""

    terms: tuple[SummaryTerm, ...]
    level: float
    #: Epsilon and what else the release promises, in words.
    statement: str
    adjust: str | None
    #: Lines that are not printed, because the release does not determine them.
    not_determined: tuple[str, ...]
    #: What the lines are compared with, in words; and what the estimates are where they are exponentials.
    compared: tuple[str, ...]
    ratio: str

    def figure(self) -> Any:  # noqa: ANN401 - a matplotlib figure
        """Return the lines with their intervals, as a matplotlib figure: the darker part of an interval would be there without privacy, too.

        Intervals of a posterior have no darker part, for nobody knows what they would be.
        """
        figure, (axes,) = new_figure(6, 0.8 + 0.28 * max(len(self.terms), 1))
        for place, t in enumerate(self.terms):
            part = 0.0 if math.isnan(t.privacy) else max(1.0 - (t.privacy / t.std_error) ** 2, 0.0) ** 0.5
            middle = math.log(t.estimate) if self.ratio else t.estimate
            half = (math.log(t.conf_high) if self.ratio else t.conf_high) - middle
            inner = (middle - part * half, middle + part * half)
            if self.ratio:
                inner = (math.exp(inner[0]), math.exp(inner[1]))
            interval(axes, place, (t.conf_low, t.conf_high), inner)
            axes.plot([t.estimate], [place], "o", color=ACCENT)
        axes.axvline(1.0 if self.ratio else 0.0, color=SOFT, lw=0.8, zorder=0)
        if self.ratio:
            axes.set_xscale("log")
        forest(axes, (t.term for t in self.terms))
        axes.set_xlabel(f"{self.ratio or 'estimate'} with {self.level:.0%} intervals")
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return asdict(cast("Any", self))

    def to_pandas(self) -> Any:  # noqa: ANN401 - a frame of a package that need not be there
        """Return the terms as a pandas data frame, indexed by term."""
        try:
            import pandas as pd  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise UsageError("to_pandas needs pandas: pip install pandas, or use to_dict()") from None
        return pd.DataFrame([asdict(term) for term in self.terms]).set_index("term")

    def _lines(self) -> list[tuple[str, ...]]:
        return cells_of(self.terms, self.level, self.adjust, self.ratio)

    def _foot(self) -> list[str]:
        foot = [*self.compared, *notes(self.not_determined)]
        if is_credible(self.terms):
            foot.append(CREDIBLE)
        elif self.terms:
            foot.append("std error is of sampling and privacy noise together; privacy is the part that privacy adds")
            if self.ratio:
                foot.append("std error, privacy and z are those of the logarithm")
        return [*foot, *self.statement.splitlines()[:1]]

    def __str__(self) -> str:
        return "\n".join([as_text(self._lines()), *self._foot()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks; names are text, whatever they are."""
        return as_html_table(self._lines(), self._foot())


# --- Glm summary -----------------------------------------------------------------------------------------------------------
# The summary of a generalised linear model: Wald tests on the scale of its link, or ratios.

#: What the exponential of a coefficient is called.
RATIOS = {
    "logistic": "odds ratio",
    "multinomial": "odds ratio",
    "poisson": "rate ratio",
    "negative-binomial": "rate ratio",
    "gamma": "ratio of means",
    "survival": "hazard ratio",
}


@dataclass(frozen=True, repr=False)
class GlmSummary(SummaryTable):
    """Estimates, standard errors, Wald tests and intervals of a generalised linear model, on the scale of its link or as ratios."""

    terms: tuple[SummaryTerm, ...]
    rows: int
    family: str
    #: The factor of the variance.
    dispersion: float
    level: float
    statement: str
    adjust: str | None = None
    not_determined: tuple[str, ...] = ()
    #: What the lines are compared with, in words.
    compared: tuple[str, ...] = ()
    #: What the estimates are where they are exponentials: "odds ratio"; else empty.
    ratio: str = ""
    _saved_types: ClassVar = (SummaryTerm,)

    def _foot(self) -> list[str]:
        return [f"n = {self.rows}, family {self.family}, dispersion {self.dispersion:.4g}", *super()._foot()]
