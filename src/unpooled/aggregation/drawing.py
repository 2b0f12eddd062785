"""Drawing: the colours and the axes of every figure, on the pages of reports and in notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

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
