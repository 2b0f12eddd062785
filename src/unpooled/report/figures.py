"""The page's figures, as SVG text that lies inside it. The same run gives the same bytes."""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.privacy.statement import UNIT_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Panel
    from unpooled.study.record import StepCount

_INK, _SOFT, _ACCENT, _OTHER = "#1d2733", "#8a97a6", "#1f6f8b", "#c46a2b"
#: The page's own colours, which are others in the dark.
_THEMED = {_INK: "var(--ink)", _SOFT: "var(--faint)", _ACCENT: "var(--good)", _OTHER: "var(--other)"}
#: More bars than this are hard to read: the largest are shown.
_MOST_BARS = 30
#: Inches, and so many letters of a name beside a bar: on a page, and on a telephone.
_WIDE, _NARROW = (6.4, 44), (3.25, 18)

#: Letters of a line along a vertical axis.
_UPRIGHT = 36


@dataclass(frozen=True)
class Drawn:
    """A figure for a page and one for a telephone, of which the page shows one."""

    wide: str
    narrow: str


def _label(text: str, letters: int) -> str:
    """Return the text of an axis, each of its lines of at most this many letters."""
    return "\n".join(_plain(_short(line, letters)) for line in text.split("\n"))


def _svg(draw: Callable[[Any, int], None], height: float, words: str) -> Drawn:
    """Draw on axes for two widths, each with its longest name in letters; ``words`` are for those who cannot see the figure."""
    wide, narrow = (_drawn(draw, width, height, letters, words) for width, letters in (_WIDE, _NARROW))
    return Drawn(wide, narrow)


def _drawn(draw: Callable[[Any, int], None], width: float, height: float, letters: int, words: str) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": f"unpooled {width}",  # two figures of one page share no name
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": _INK,
        "axes.edgecolor": _SOFT,
        "axes.labelcolor": _INK,
        "xtick.color": _SOFT,
        "ytick.color": _SOFT,
        "xtick.labelcolor": _INK,
        "ytick.labelcolor": _INK,
        "axes.formatter.use_mathtext": False,
    }
    with mpl.rc_context(style), warnings.catch_warnings():
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes, letters)
        out = io.StringIO()
        warnings.filterwarnings("ignore", "Glyph")  # the reader's own fonts draw the text, whatever alphabet it is in
        warnings.filterwarnings(
            "ignore", "constrained_layout not applied"
        )  # names that leave no room are cut off, not refused
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub("<!--.*?-->", "", out.getvalue()[out.getvalue().index("<svg") :], flags=re.DOTALL)
    for colour, themed in _THEMED.items():
        text = text.replace(f": {colour}", f": {themed}")
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(words)}" ', 1)


def _short(name: str, letters: int) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _plain(text: str) -> str:
    """Return text that matplotlib shall not read as mathematics."""
    return text.replace("$", r"\$")


def guarantee(plan: Plan) -> Drawn | None:
    """Return the smallest epsilon proved at every delta, for both units, and what was asked; None where nothing is proved."""
    study = plan.study
    deltas = sorted({10.0**-k for k in range(2, 13)} | ({study.delta} if study.delta else set()))
    curves = {unit: [plan.epsilon(delta, unit) for delta in deltas] for unit in plan.units}
    proved = {unit: curve for unit, curve in curves.items() if all(map(math.isfinite, curve))}
    if not proved:
        return None

    def draw(axes: Any, letters: int) -> None:  # noqa: ANN401, ARG001
        for unit, curve in proved.items():
            asked = unit == study.unit
            axes.plot(deltas, curve, color=_ACCENT if asked else _SOFT, lw=2 if asked else 1.2, label=UNIT_WORDS[unit])
        if math.isfinite(study.epsilon) and study.delta:
            axes.plot([study.delta], [study.epsilon], "o", color=_OTHER, label="asked for", zorder=3)
        axes.set(xscale="log", xlabel="delta", ylabel="epsilon", ylim=(0, None))
        axes.legend(frameon=False)

    points = "; ".join(f"{curve[-1]:.3g} at delta = {deltas[-1]:g} per {unit}" for unit, curve in proved.items())
    return _svg(
        draw,
        2.7,
        f"The smallest epsilon proved falls as delta grows: {points}. The table below has the values at this study's delta.",
    )


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
            axes.plot([0, 1], [0, 1], color=_SOFT, lw=0.8, linestyle=":")
        else:
            axes.axhline(0, color=_SOFT, lw=0.8)
        if shown.low:
            axes.fill_between(places, shown.low, shown.high, color=_ACCENT, alpha=0.15, lw=0, step=held)
            if shown.without_privacy:  # the darker part of a band is there without privacy, too
                inner = [_inner(shown, ends) for ends in (shown.low, shown.high)]
                axes.fill_between(places, *inner, color=_ACCENT, alpha=0.3, lw=0, step=held)
        axes.plot(places, shown.values, color=_ACCENT, lw=1.5, drawstyle="steps-post" if shown.steps else "default")
        across, along = shown.axes
        axes.set(xlabel=_label(across, 2 * letters), ylabel=_label(along, _UPRIGHT))
        if shown.places:
            if shown.diagonal or places[0] < places[-1]:
                axes.set_xlim(*((0, 1) if shown.diagonal else (places[0], places[-1])))
            axes.locator_params(axis="x", nbins=letters // 5)
        else:
            step = max(1, len(names) // (letters // 6))
            axes.set_xticks(places[::step], [_plain(_short(name, 8)) for name in names[::step]])

    return _svg(line, 2.6, _heard(shown))


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
            axes.errorbar(values, places, xerr=spread, fmt="o", color=_ACCENT, ecolor=_SOFT, capsize=2, markersize=4)
            if shown.without_privacy:  # the darker part of an interval is there without privacy, too
                inner = [[part * own for part, own in zip(parts, half, strict=True)] for half in spread]
                axes.errorbar(values, places, xerr=inner, fmt="none", ecolor=_ACCENT, elinewidth=2.5)
        else:
            axes.barh(places, values, color=_ACCENT, height=0.6)
        if not shown.low or min(shown.low) <= 0 <= max(shown.high):
            axes.axvline(0, color=_SOFT, lw=0.8)
        axes.set_yticks(places, [_plain(_short(shown.names[i], letters)) for i in largest])
        axes.set_ylim(len(largest) - 0.4, -0.6)

    told = [
        f"{shown.names[i]} {shown.values[i]:.3g}" + (f" ({shown.low[i]:.3g} to {shown.high[i]:.3g})" if shown.low else "")
        for i in largest
    ]
    left = len(order) - len(largest)
    more = f", and {left} smaller ones" if left else ""
    more += ". The darker part of an interval would be there without privacy, too" if shown.without_privacy else ""
    return _svg(bars, 0.7 + 0.24 * len(largest), f"{shown.title}: {'; '.join(told)}{more}.")


def traffic(steps: Sequence[StepCount]) -> Drawn:
    """Return bytes that came from every party, by step."""
    parties = sorted({count.party for count in steps})
    names = list(dict.fromkeys(count.step for count in steps))

    def draw(axes: Any, letters: int) -> None:  # noqa: ANN401
        left = dict.fromkeys(parties, 0)
        for k, name in enumerate(names):
            here = {count.party: count.received for count in steps if count.step == name}
            sizes = [here.get(party, 0) for party in parties]
            places = list(range(len(parties)))
            alpha = 1 - 0.8 * k / max(len(names) - 1, 1)
            axes.barh(places, sizes, left=[left[p] for p in parties], height=0.55, color=_ACCENT, alpha=alpha, label=name)
            left = {party: left[party] + size for party, size in zip(parties, sizes, strict=True)}
        axes.set_yticks(places, [_plain(_short(party, letters)) for party in parties])
        axes.set(xlabel="bytes received from the party")
        axes.locator_params(axis="x", nbins=letters // 5)
        axes.invert_yaxis()
        axes.legend(frameon=False, ncols=max(1, min(len(names), letters // 14)), loc="lower left", bbox_to_anchor=(0, 1))

    total = {party: sum(count.received for count in steps if count.party == party) for party in parties}
    words = "; ".join(f"{party} {received:,}" for party, received in total.items())
    return _svg(draw, 1.2 + 0.32 * len(parties) + 0.1 * len(names), f"Bytes received from every party: {words}.")
