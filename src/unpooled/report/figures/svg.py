"""Figures as SVG text that lies inside a page. The same run gives the same bytes."""

from __future__ import annotations

import html
import io
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.aggregation.drawing import ACCENT, INK, OTHER, SOFT, plain, style

if TYPE_CHECKING:
    from collections.abc import Callable

#: The page's variable of each colour, which is another colour in the dark; a figure copied out of the page keeps its own.
_THEMED = {INK: "ink", SOFT: "faint", ACCENT: "good", OTHER: "other"}
#: Inches, and the letters of a name at the side of a bar: on a page, and on a telephone.
_WIDE, _NARROW = (6.4, 44), (3.25, 18)
#: Letters of a line along a vertical axis.
UPRIGHT = 36


@dataclass(frozen=True)
class Drawn:
    """A figure for a page and one for a telephone, of which the page shows one."""

    wide: str
    narrow: str


def label(text: str, letters: int) -> str:
    """Return the text of an axis, each of its lines of at most this number of letters."""
    return "\n".join(plain(short(line, letters)) for line in text.split("\n"))


def short(name: str, letters: int) -> str:
    """Return a name cut to this number of letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def svg(draw: Callable[[Any, int], None], height: float, words: str) -> Drawn:
    """Draw on axes for two widths, each with its longest name in letters; ``words`` are for those who cannot see the figure."""
    wide, narrow = (_drawn(draw, width, height, letters, words) for width, letters in (_WIDE, _NARROW))
    return Drawn(wide, narrow)


def _drawn(draw: Callable[[Any, int], None], width: float, height: float, letters: int, words: str) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # Two figures of one page share no name.
    own = {"svg.hashsalt": f"unpooled {width} {words}", "svg.fonttype": "none"}
    with mpl.rc_context(style() | own), warnings.catch_warnings():
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot(), letters)
        out = io.StringIO()
        warnings.filterwarnings("ignore", "Glyph")  # the reader's own fonts draw the text, whatever alphabet it is in
        warnings.filterwarnings(
            "ignore", "constrained_layout not applied"
        )  # names that leave no room are cut off, not refused
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub("<!--.*?-->", "", out.getvalue()[out.getvalue().index("<svg") :], flags=re.DOTALL)
    for colour, name in _THEMED.items():
        text = text.replace(f": {colour}", f": var(--{name}, {colour})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(words)}" ', 1)
