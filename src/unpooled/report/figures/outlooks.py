"""The figures of an outlook: the error to expect against epsilon and, of a treatment effect, the power of its test."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.report.figures.svg import Drawn, svg

if TYPE_CHECKING:
    from unpooled.estimation.outlook import Outlook


def outlook(found: Outlook) -> list[tuple[str, Drawn]]:
    """Return the figures of an outlook, each with its title."""
    drawn = []
    for title, draw in found.drawings:

        def on(axes: Any, letters: int, draw: Any = draw) -> None:  # noqa: ANN401, ARG001
            draw(axes)

        drawn.append((title, svg(on, 2.8, f"{title}: {_heard(found)}")))
    return drawn


def _heard(found: Outlook) -> str:
    """Say the errors for those who cannot see them."""
    told = [f"{p.error:.3g} at epsilon = {p.epsilon:g}" for p in found.points if math.isfinite(p.error)]
    return f"{found.measure} expected by simulations without data: {'; '.join(told) or 'none is identified'}."
