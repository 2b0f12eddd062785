"""Draw the picture of the landing page: `python docs/landing.py [FILE]` writes docs/landing.svg or FILE.

Letters have 13 units of 360, so that the picture can be read on a telephone. It has a background of its own, and is read in light and dark pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
PARTIES = ("north", "coast", "city")
ESTIMATES = (("age", "0.42", 0.30, 0.54), ("dose", "-1.10", -1.32, -0.88), ("smoker", "0.75", 0.41, 1.09))
STYLE = """
  .panel { fill: #ffffff; stroke: #c9ced6 }
  .party { fill: #f2f5fa; stroke: #6b7c93 }
  .cell { fill: #c5d0e0 }
  .gate { fill: #fdf0d5; stroke: #a86a00 }
  .sum { fill: #e3f1e6; stroke: #2f7a45 }
  .line { stroke: #48566a; fill: none; stroke-width: 1.6 }
  .thin { stroke: #8a97a8; fill: none }
  .tip { fill: #48566a }
  .point { fill: #2f7a45 }
  .span { stroke: #2f7a45; stroke-width: 2.4 }
  text { fill: #1d2733; font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
  .strong { font-weight: 600 }
  .middle { text-anchor: middle }
  .right { text-anchor: end }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #1a1f27; stroke: #465062 }
    .party { fill: #252d39; stroke: #8594aa }
    .cell { fill: #4d5c74 }
    .gate { fill: #43341a; stroke: #d9a441 }
    .sum { fill: #1f3a28; stroke: #69b981 }
    .line { stroke: #b4c0d0 }
    .thin { stroke: #6c7a8e }
    .tip { fill: #b4c0d0 }
    .point { fill: #69b981 }
    .span { stroke: #69b981 }
    text { fill: #e6ebf2 }
  }
"""


def box(kind: str, x: float, y: float, width: float, height: float, corner: float = 6) -> str:
    """Return a rectangle with round corners."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner:g}"/>'


def words(x: float, y: float, text: str, kind: str = "middle") -> str:
    """Return one line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{text}</text>'


def arrow(x: float, top: float, to: float, bottom: float) -> str:
    """Return an arrow down from one point to another."""
    bend = (top + bottom) / 2
    path = f'<path class="line" d="M{x:g} {top:g} C{x:g} {bend:g} {to:g} {bend:g} {to:g} {bottom - 6:g}"/>'
    return path + f'<path class="tip" d="M{to - 4.5:g} {bottom - 7:g} h9 l-4.5 7 z"/>'


def party(name: str, left: float) -> list[str]:
    """Return one party: its table, and under it the release and the ledger through which totals leave."""
    middle = left + 52
    drawn = [box("party", left, 36, 104, 138), words(middle, 54, name, "middle strong")]
    drawn += [box("cell", left + 14 + 26 * column, 62 + 12 * row, 24, 10, 1.5) for row in range(4) for column in range(3)]
    drawn += [
        box("gate", left + 8, 118, 88, 48, 4),
        words(left + 14, 136, "release", "left"),
        words(left + 14, 157, "ledger", "left"),
    ]
    noise = "".join(f" {'l' if step else 'm'}3.5 {height}" for step, height in enumerate((0, -7, 9, -12, 13, -6, 5)))
    drawn.append(f'<path class="line" d="M{left + 63:g} 133{noise}"/>')
    drawn += [f'<path class="thin" d="M{left + 62:g} {147 + 4 * line} h28"/>' for line in range(4)]
    return drawn


def estimates(top: float) -> list[str]:
    """Return the table of estimates, with an interval for each."""
    drawn = [box("panel", 40, top, 280, 100, 4), words(52, top + 19, "column", "left strong")]
    drawn += [words(182, top + 19, "estimate", "right strong"), words(252, top + 19, "95 % interval", "middle strong")]
    drawn.append(f'<path class="thin" d="M48 {top + 28:g} H312"/>')
    for line, (name, value, low, high) in enumerate(ESTIMATES):
        y = top + 47 + 22 * line
        start, end = (252 + 44 * edge for edge in (low, high))
        drawn += [words(52, y, name, "left"), words(182, y, value.replace("-", "\N{MINUS SIGN}"), "right")]
        drawn.append(f'<path class="span" d="M{start:g} {y - 4:g} H{end:g}"/>')
        drawn.append(f'<circle class="point" cx="{(start + end) / 2:g}" cy="{y - 4:g}" r="4"/>')
    drawn.append(f'<path class="thin" stroke-dasharray="2 3" d="M252 {top + 32:g} V{top + 96:g}"/>')
    return drawn


def picture() -> str:
    """Return the whole picture as SVG."""
    drawn = [box("panel", 0.5, 0.5, 359, 433, 8), words(180, 24, "Each party keeps its own table")]
    for number, name in enumerate(PARTIES):
        left = 12 + 116 * number
        drawn += [*party(name, left), arrow(left + 52, 174, 120 + 60 * number, 218)]
    drawn += [box("sum", 70, 218, 220, 48), words(180, 238, "sum of the noisy totals", "middle strong")]
    drawn += [words(180, 256, "no row, no value of one person"), arrow(180, 266, 180, 296)]
    drawn += [*estimates(298), words(180, 420, "Everybody may read the estimates")]
    title = (
        "Three parties keep their tables. Noisy totals leave through a release and a ledger. A table of estimates comes out."
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="440" height="530" viewBox="0 0 360 434" role="img">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n" + "\n".join(drawn) + "\n</svg>\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "landing.svg").write_text(picture(), encoding="utf-8")
