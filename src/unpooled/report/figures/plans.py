"""The figures of a plan and its run: the guarantee at every delta, and the bytes that came from every party."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.aggregation.drawing import ACCENT, OTHER, SOFT, plain
from unpooled.privacy.statement import UNIT_WORDS
from unpooled.report.figures.svg import Drawn, short, svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.plan import Plan
    from unpooled.study.record import StepCount


def guarantee(plan: Plan) -> Drawn | None:
    """Return the smallest epsilon proved at every delta, for both units, and what was asked; None where nothing is proved."""
    study = plan.study
    deltas = sorted({10.0**-k for k in range(2, 13)} | ({study.delta} if study.delta else set()))
    curves = {unit: [plan.epsilon(delta, unit) for delta in deltas] for unit in plan.units}
    proved = {unit: curve for unit, curve in curves.items() if all(map(math.isfinite, curve))}
    if not proved:
        return None

    def draw(axes: Any, letters: int) -> None:  # noqa: ANN401
        for unit, curve in proved.items():
            asked = unit == study.unit
            axes.plot(deltas, curve, color=ACCENT if asked else SOFT, lw=2 if asked else 1.2, label=UNIT_WORDS[unit])
        if math.isfinite(study.epsilon) and study.delta:
            axes.plot([study.delta], [study.epsilon], "o", color=OTHER, label="asked for", zorder=3)
        axes.set(xscale="log", xlabel="delta", ylabel="epsilon", ylim=(0, None))
        axes.locator_params(axis="x", numticks=letters // 6)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.legend(frameon=False)

    points = "; ".join(f"{curve[-1]:.3g} at delta = {deltas[-1]:g} per {unit}" for unit, curve in proved.items())
    return svg(
        draw,
        2.7,
        f"The smallest epsilon proved falls as delta grows: {points}. The table below has the values at this study's delta.",
    )


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
            axes.barh(places, sizes, left=[left[p] for p in parties], height=0.55, color=ACCENT, alpha=alpha, label=name)
            left = {party: left[party] + size for party, size in zip(parties, sizes, strict=True)}
        axes.set_yticks(places, [plain(short(party, letters)) for party in parties])
        axes.set(xlabel="bytes received from the party")
        axes.locator_params(axis="x", nbins=letters // 5)
        axes.invert_yaxis()
        axes.legend(frameon=False, ncols=max(1, min(len(names), letters // 14)), loc="lower left", bbox_to_anchor=(0, 1))

    total = {party: sum(count.received for count in steps if count.party == party) for party in parties}
    words = "; ".join(f"{party} {received:,}" for party, received in total.items())
    return svg(draw, 1.2 + 0.32 * len(parties) + 0.1 * len(names), f"Bytes received from every party: {words}.")
