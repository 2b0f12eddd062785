"""The figures of results: the colours and axes that all share, and the drawing of any panel as matplotlib has it."""

from __future__ import annotations

import math
from itertools import cycle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from unpooled.protocol.registry import Panel


# --- Drawing ---------------------------------------------------------------------------------------------------------------
# The colours and the axes of every figure, on the pages of reports and in notebooks.

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


def new_figure(width: float, height: float, columns: int = 1, rows: Sequence[float] = (1.0,)) -> tuple[Any, list[Any]]:
    """Return a matplotlib figure of this size in inches, which shows itself in notebooks, and its axes row by row, in the style of all figures.

    ``rows`` are the heights of the rows, as parts of each other.
    """
    import matplotlib as mpl

    from unpooled.inference.notebook import NotebookFigure

    with mpl.rc_context(style()):
        figure = NotebookFigure(figsize=(width, height), layout="constrained")
        found = list(figure.subplots(len(rows), columns, squeeze=False, height_ratios=rows).ravel())
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


# --- Panels ----------------------------------------------------------------------------------------------------------------
# Any result drawn from its panels: intervals one below the other, or a curve with its band.

#: Inches of a panel of lines one below the other, and of a curve.
_LINES, _CURVE = 6.0, (5.4, 3.6)
#: Panels of a figure that stand in one row.
_ROW = 3


def drawn(panels: Sequence[Panel]) -> Any:  # noqa: ANN401 - a matplotlib figure
    """Return the figure of these panels; step curves over the same axes share a pair of axes."""
    groups: list[list[Panel]] = []
    for panel in panels:
        if groups and panel.steps and groups[-1][0].steps and groups[-1][0].axes == panel.axes:
            groups[-1].append(panel)
        else:
            groups.append([panel])
    columns = min(len(groups), _ROW)
    width = _CURVE[0] * columns if len(groups) > 1 or groups[0][0].ordered else _LINES
    sizes = [_CURVE[1] if group[0].ordered else 0.8 + 0.28 * max(len(group[0].names), 1) for group in groups]
    rows = [max(sizes[start : start + columns]) for start in range(0, len(groups), columns)]
    figure, found = new_figure(width, sum(rows), columns, rows)
    for axes, group in zip(found, groups, strict=False):
        if group[0].ordered:
            _curves(axes, group)
        else:
            _forest(axes, group[0])
    for axes in found[len(groups) :]:
        axes.remove()
    return figure


def _forest(axes: Any, panel: Panel) -> None:  # noqa: ANN401 - matplotlib axes
    """Draw values one below the other, with their intervals; the size of a square is the weight of its line."""
    start, most = 1.0 if panel.ratio else 0.0, max(panel.weights, default=0.0)
    for place, value in enumerate(panel.values):
        weight = panel.weights[place] if panel.weights else None
        colour = OTHER if weight == 0.0 else ACCENT
        if panel.low:
            ends = (panel.low[place], panel.high[place])
            part = panel.without_privacy[place] if panel.without_privacy else 1.0
            interval(axes, place, ends, _inner(value, ends, part, ratio=panel.ratio), colour)
        mark = "o" if weight is None else "s" if weight else "D"
        size = {} if weight is None else {"markersize": 4 + 6 * math.sqrt(weight / most) if weight else 7}
        axes.plot([value], [place], mark, color=colour, **size)
    axes.axvline(start, color=SOFT, lw=0.8, zorder=0)
    if panel.ratio:
        axes.set_xscale("log")
    forest(axes, panel.names)
    axes.set_xlabel(plain(panel.title))


def _inner(value: float, ends: tuple[float, float], part: float, *, ratio: bool) -> tuple[float, float]:
    """Return the part of an interval that would be there without privacy."""
    if ratio:
        low, high = (math.exp(math.log(value) + part * math.log(end / value)) for end in ends)
    else:
        low, high = (value + part * (end - value) for end in ends)
    return low, high


def _curves(axes: Any, panels: Sequence[Panel]) -> None:  # noqa: ANN401 - matplotlib axes
    """Draw curves with their bands; the darker part of a band would be there without privacy, too."""
    for panel, colour in zip(panels, cycle(CURVES), strict=False):
        at = panel.places or tuple(range(len(panel.values)))
        step = {"step": "post"} if panel.steps else {}
        line = {"drawstyle": "steps-post"} if panel.steps else {}
        if panel.low:
            axes.fill_between(at, panel.low, panel.high, color=colour, alpha=BAND, lw=0, **step)
        if panel.low and any(part < 1 for part in panel.without_privacy):
            low, high = (
                [
                    value + part * (end - value)
                    for value, end, part in zip(panel.values, ends, panel.without_privacy, strict=True)
                ]
                for ends in (panel.low, panel.high)
            )
            axes.fill_between(at, low, high, color=colour, alpha=WITHOUT_PRIVACY, lw=0)
        mark = "o" if panel.low and not panel.steps and len(at) <= _MARKED else ""
        axes.plot(at, panel.values, color=colour, marker=mark, markersize=4, label=plain(panel.title), **line)
    if panel.diagonal:
        axes.plot([0, 1], [0, 1], color=SOFT, linestyle=":")
    elif not panel.steps:
        axes.axhline(0.0, color=SOFT, lw=0.8, zorder=0)
    across, along = map(plain, panel.axes)
    axes.set(xlabel=across, ylabel=along, xlim=(at[0], at[-1]) if at[0] < at[-1] else None)
    if len(panels) > 1:
        axes.legend(frameon=False)
    else:
        axes.set_title(plain(panel.title))


#: A curve of at most this number of points has a mark for each.
_MARKED = 30
