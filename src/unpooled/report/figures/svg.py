"""Figures as SVG text that lies inside a page. The same run gives the same bytes."""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
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
#: The word on everything that no data are behind; its colour, and the points that it needs above a figure.
SIMULATED = "SIMULATED"
_MARK, _ABOVE = "#a8402c", 16
_FRAME = re.compile(r'width="[\d.]+pt" height="[\d.]+pt" viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"')
#: Letters of a line along a vertical axis.
UPRIGHT = 36


@dataclass(frozen=True)
class Drawn:
    """A figure for a page and one for a telephone, of which the page shows one."""

    wide: str
    narrow: str


def marked(drawn: Drawn) -> Drawn:
    """Return a figure with the word SIMULATED inside it: above the drawing, across it, and in what is said of it."""
    return Drawn(_marked(drawn.wide), _marked(drawn.narrow))


def _marked(text: str) -> str:
    found = _FRAME.search(text)
    assert found is not None  # matplotlib writes it
    width, height = float(found["width"]), float(found["height"])
    taller = f'width="{width:g}pt" height="{height + _ABOVE:g}pt" viewBox="0 -{_ABOVE} {width:g} {height + _ABOVE:g}"'
    colour = f"var(--bad, {_MARK})"
    letters = f'<text font-family="sans-serif" font-weight="bold" text-anchor="middle" fill="{colour}"'
    turn = math.degrees(math.atan2(height, width))
    mark = (
        f'{letters} font-size="10" x="{width / 2:g}" y="-4">{SIMULATED}: made-up data</text>'
        f'{letters} font-size="{width / 9:g}" opacity="0.12" transform="translate({width / 2:g} {height / 2:g}) rotate(-{turn:.1f})">{SIMULATED}</text>'
    )
    text = text[: found.start()] + taller + text[found.end() :]
    text = text.replace('aria-label="', f'aria-label="{SIMULATED}, of made-up data. ', 1)
    return text.replace("</svg>", f"{mark}</svg>", 1)


def label(text: str, letters: int) -> str:
    """Return the text of an axis, each of its lines of at most this number of letters."""
    return "\n".join(plain(short(line, letters)) for line in text.split("\n"))


def short(name: str, letters: int) -> str:
    """Return a name cut to this number of letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def in_two_lines(name: str, letters: int) -> str:
    """Return a name on one line or two of at most this number of letters, cut where these are too few."""
    if len(name) <= letters:
        return name
    first, *rest = textwrap.wrap(name, letters, break_on_hyphens=False) or [""]
    return f"{first}\n{short(' '.join(rest), letters)}" if rest else first


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
        figure = Figure(figsize=(width, height), dpi=72, layout="constrained", facecolor="none", edgecolor="none")
        canvas: Any = FigureCanvasSVG(figure)  # matplotlib has no types for its canvas
        out = io.StringIO()
        draw(figure.add_subplot(facecolor="none"), letters)
        warnings.filterwarnings("ignore", "Glyph")  # the reader's own fonts draw the text, whatever alphabet it is in
        warnings.filterwarnings(
            "ignore", "constrained_layout not applied"
        )  # names that leave no room are cut off, not refused
        # `savefig` would draw twice, the first time for the layout alone.
        layout: Any = figure.get_layout_engine()
        layout.execute(figure)
        figure.set_layout_engine("none")
        canvas.print_svg(out, metadata={"Date": None, "Creator": None})
    text = re.sub("<!--.*?-->", "", out.getvalue()[out.getvalue().index("<svg") :], flags=re.DOTALL)
    for colour, name in _THEMED.items():
        text = text.replace(f": {colour}", f": var(--{name}, {colour})")
    return _unstyled(text).replace("<svg ", f'<svg role="img" aria-label="{html.escape(words)}" ', 1)


def _unstyled(text: str) -> str:
    """Return a figure whose elements have attributes in place of style sheets, which pages with a strict content security policy refuse."""

    def attributes(style: re.Match[str]) -> str:
        pairs = (pair.split(": ", 1) for pair in style[1].split("; "))
        return " ".join(f'{name}="{value}"' for name, value in pairs)

    def tag(found: re.Match[str]) -> str:
        return re.sub(r'style="([^"]*)"', attributes, found[0])

    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    return re.sub("<[^<>]*>", tag, text).replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)
