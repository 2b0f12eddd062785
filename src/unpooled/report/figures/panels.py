"""The figures of a result: a line over ordered names or numbers, or bars, with intervals where there are some."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.aggregation.drawing import ACCENT, BAND, SOFT, WITHOUT_PRIVACY, plain
from unpooled.report.figures.svg import UPRIGHT, Drawn, in_two_lines, label, short, svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.protocol.step import Panel

#: More bars than this are hard to read: the largest are shown.
_MOST_BARS = 30


def panel(shown: Panel) -> Drawn:
    """Return a result: a line over ordered names or numbers, or bars, with intervals where there are some."""
    return _line(shown) if shown.ordered else _bars(shown)


def _line(shown: Panel) -> Drawn:
    names, held = shown.names, "post" if shown.steps else None
    places = list(shown.places) or (
        [float(name) for name in names] if shown.steps else [float(k) for k in range(len(names))]
    )

    def line(axes: Any, letters: int) -> None:  # noqa: ANN401
        if shown.diagonal:
            axes.plot([0, 1], [0, 1], color=SOFT, lw=0.8, linestyle=":")
        else:
            axes.axhline(0, color=SOFT, lw=0.8)
        if shown.low:
            axes.fill_between(places, shown.low, shown.high, color=ACCENT, alpha=BAND, lw=0, step=held)
            if shown.without_privacy:  # the darker part of a band is there without privacy, too
                inner = [_inner(shown, ends) for ends in (shown.low, shown.high)]
                axes.fill_between(places, *inner, color=ACCENT, alpha=WITHOUT_PRIVACY, lw=0, step=held)
        axes.plot(places, shown.values, color=ACCENT, lw=1.5, drawstyle="steps-post" if shown.steps else "default")
        across, along = shown.axes
        axes.set(xlabel=label(across, 2 * letters), ylabel=label(along, UPRIGHT))
        if shown.places:
            if shown.diagonal or places[0] < places[-1]:
                axes.set_xlim(*((0, 1) if shown.diagonal else (places[0], places[-1])))
            axes.locator_params(axis="x", nbins=letters // 5)
        else:
            step = max(1, len(names) // (letters // 6))
            axes.set_xticks(places[::step], [plain(short(name, 8)) for name in names[::step]])

    return svg(line, 2.6, _heard(shown))


def _inner(shown: Panel, ends: Sequence[float]) -> list[float]:
    """Return what an end of the band would be without privacy."""
    return [v + part * (end - v) for v, end, part in zip(shown.values, ends, shown.without_privacy, strict=True)]


def _heard(shown: Panel) -> str:
    """Say a line for those who cannot see it."""
    seen = [value for value in shown.values if math.isfinite(value)]
    ends = f"lowest {min(seen):.3g}, highest {max(seen):.3g}" if seen else "nothing of it is determined"
    if not shown.places:
        kind = "times" if shown.steps else "channels"
        return f"{shown.title}: a line over {len(shown.names)} {kind}; {ends}. All numbers are in the table below."
    across = f"{shown.axes[0]} " if shown.axes[0] else "numbers "
    gaps = ". It has gaps where the release determines nothing" if len(seen) < len(shown.values) else ""
    dark = ". The darker part of the band would be there without privacy, too" if shown.without_privacy else ""
    return f"{shown.title}: a curve over {across}from {shown.places[0]:.3g} to {shown.places[-1]:.3g}; {ends}{gaps}{dark}."


def _bars(shown: Panel) -> Drawn:
    order = range(len(shown.names))
    largest = sorted(sorted(order, key=lambda i: -abs(shown.values[i]))[:_MOST_BARS])

    def bars(axes: Any, letters: int) -> None:  # noqa: ANN401
        places = list(range(len(largest)))
        values = [shown.values[i] for i in largest]
        parts = [shown.without_privacy[i] for i in largest] if shown.without_privacy else []
        if shown.low:
            spread = [[v - shown.low[i] for v, i in zip(values, largest, strict=True)]]
            spread += [[shown.high[i] - v for v, i in zip(values, largest, strict=True)]]
            axes.errorbar(values, places, xerr=spread, fmt="o", color=ACCENT, ecolor=SOFT, capsize=2, markersize=4)
            if shown.without_privacy:  # the darker part of an interval is there without privacy, too
                inner = [[part * own for part, own in zip(parts, half, strict=True)] for half in spread]
                axes.errorbar(values, places, xerr=inner, fmt="none", ecolor=ACCENT, elinewidth=2.5)
        else:
            axes.barh(places, values, color=ACCENT, height=0.6)
        if not shown.low or min(shown.low) <= 0 <= max(shown.high):
            axes.axvline(0, color=SOFT, lw=0.8)
        names = [plain(in_two_lines(shown.names[i], letters)) for i in largest]
        # Two lines of small letters are as high as one bar.
        axes.set_yticks(places, names, fontsize=7.5 if any("\n" in name for name in names) else 9, linespacing=0.95)
        axes.set_ylim(len(largest) - 0.4, -0.6)

    told = [
        f"{shown.names[i]} {shown.values[i]:.3g}" + (f" ({shown.low[i]:.3g} to {shown.high[i]:.3g})" if shown.low else "")
        for i in largest
    ]
    left = len(order) - len(largest)
    more = f", and {left} smaller ones" if left else ""
    more += ". The darker part of an interval would be there without privacy, too" if shown.without_privacy else ""
    return svg(bars, 0.7 + 0.24 * len(largest), f"{shown.title}: {'; '.join(told)}{more}.")
