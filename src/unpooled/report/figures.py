"""The page's figures, as SVG text that lies inside it. The same run gives the same bytes."""

from __future__ import annotations

import io
import math
import warnings
from typing import TYPE_CHECKING, Any

from unpooled.privacy.statement import UNIT_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Panel
    from unpooled.study.record import StepCount

_INK, _SOFT, _ACCENT, _OTHER = "#1d2733", "#8a97a6", "#1f6f8b", "#c46a2b"
#: More bars than this are hard to read: the largest are shown.
_BARS = 30


def _svg(draw: Any, width: float, height: float) -> str:  # noqa: ANN401 - a function of axes
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": "unpooled",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.edgecolor": _SOFT,
        "axes.labelcolor": _INK,
        "xtick.color": _SOFT,
        "ytick.color": _SOFT,
        "xtick.labelcolor": _INK,
        "ytick.labelcolor": _INK,
    }
    with mpl.rc_context(style), warnings.catch_warnings():
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        out = io.StringIO()
        warnings.filterwarnings("ignore", "Glyph")  # the reader's own fonts draw the text, whatever alphabet it is in
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return out.getvalue()[out.getvalue().index("<svg") :]


def _plain(text: str) -> str:
    """Text that matplotlib shall not read as mathematics."""
    return text.replace("$", r"\$")


def guarantee(plan: Plan) -> str | None:
    """The smallest epsilon proved at every delta, for both units, and what was asked; None where nothing is proved."""
    study = plan.study
    deltas = sorted({10.0**-k for k in range(2, 13)} | ({study.delta} if study.delta else set()))
    curves = {unit: [plan.epsilon(delta, unit) for delta in deltas] for unit in plan.units}
    proved = {unit: curve for unit, curve in curves.items() if all(map(math.isfinite, curve))}
    if not proved:
        return None

    def draw(axes: Any) -> None:  # noqa: ANN401
        for unit, curve in proved.items():
            asked = unit == study.unit
            axes.plot(deltas, curve, color=_ACCENT if asked else _SOFT, lw=2 if asked else 1.2, label=UNIT_WORDS[unit])
        if math.isfinite(study.epsilon) and study.delta:
            axes.plot([study.delta], [study.epsilon], "o", color=_OTHER, label="asked for", zorder=3)
        axes.set(xscale="log", xlabel="delta", ylabel="epsilon", ylim=(0, None))
        axes.legend(frameon=False)

    return _svg(draw, 6.4, 2.7)


def panel(shown: Panel) -> str:
    """A result: a line over ordered names, or bars, with intervals where there are some."""
    order = range(len(shown.names))
    if shown.ordered:

        def line(axes: Any) -> None:  # noqa: ANN401
            axes.axhline(0, color=_SOFT, lw=0.8)
            axes.plot(list(order), shown.values, color=_ACCENT, lw=1.5)
            step = max(1, len(shown.names) // 8)
            axes.set_xticks(list(order)[::step], [_plain(name) for name in shown.names[::step]])

        return _svg(line, 6.4, 2.6)
    largest = sorted(sorted(order, key=lambda i: -abs(shown.values[i]))[:_BARS])

    def bars(axes: Any) -> None:  # noqa: ANN401
        places = list(range(len(largest)))
        values = [shown.values[i] for i in largest]
        if shown.low:
            spread = [[v - shown.low[i] for v, i in zip(values, largest, strict=True)]]
            spread += [[shown.high[i] - v for v, i in zip(values, largest, strict=True)]]
            axes.errorbar(values, places, xerr=spread, fmt="o", color=_ACCENT, ecolor=_SOFT, capsize=2, markersize=4)
        else:
            axes.barh(places, values, color=_ACCENT, height=0.6)
        if not shown.low or min(shown.low) <= 0 <= max(shown.high):
            axes.axvline(0, color=_SOFT, lw=0.8)
        axes.set_yticks(places, [_plain(shown.names[i]) for i in largest])
        axes.set_ylim(len(largest) - 0.4, -0.6)

    return _svg(bars, 6.4, 0.7 + 0.24 * len(largest))


def traffic(steps: Sequence[StepCount]) -> str:
    """Bytes that came from every party, by step."""
    parties = sorted({count.party for count in steps})
    names = list(dict.fromkeys(count.step for count in steps))

    def draw(axes: Any) -> None:  # noqa: ANN401
        left = dict.fromkeys(parties, 0)
        for k, name in enumerate(names):
            here = {count.party: count.received for count in steps if count.step == name}
            sizes = [here.get(party, 0) for party in parties]
            axes.barh(parties, sizes, left=[left[p] for p in parties], height=0.55, color=_shade(k, len(names)), label=name)
            left = {party: left[party] + size for party, size in zip(parties, sizes, strict=True)}
        axes.set(xlabel="bytes received from the party")
        axes.invert_yaxis()
        axes.legend(frameon=False, ncols=min(len(names), 3), loc="lower left", bbox_to_anchor=(0, 1))

    return _svg(draw, 6.4, 1.2 + 0.32 * len(parties))


def _shade(k: int, count: int) -> tuple[float, float, float]:
    """From the accent to a light tint of it."""
    from matplotlib.colors import to_rgb

    weight = k / max(count - 1, 1) * 0.75
    return tuple(part + (1 - part) * weight for part in to_rgb(_ACCENT))  # type: ignore[return-value]
