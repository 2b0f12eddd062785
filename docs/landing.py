"""Draw the picture of README and landing page: `python docs/landing.py [FILE]` writes docs/landing.svg or FILE.

The table of the picture is the one that README.md prints: the script runs the first example of README and draws its `table`. Without FILE it also
writes what the example prints into README: seeded noise is another as soon as the plan has another hash, so run it when a plan changes. Letters have 13 units of
440, so that the picture can be read on a telephone. It has a background of its own, and is read in light and dark pages.
"""

from __future__ import annotations

import contextlib
import doctest
import html
import io
import math
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
#: Lines of the foot of a table that README leaves out.
LONG = ("standard errors assume ", "% of rows are longer than ")
FACE = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'
TICKS = (0.5, 1, 2, 4)
Z = 1.959964
STYLE = """
  .panel { fill: #ffffff; stroke: #c9ced6 }
  .party { fill: #f2f5fa; stroke: #6b7c93 }
  .cell { fill: #c5d0e0 }
  .gate { fill: #fdf0d5; stroke: #a86a00 }
  .sum { fill: #e3f1e6; stroke: #2f7a45 }
  .line { stroke: #48566a; fill: none; stroke-width: 1.6 }
  .thin { stroke: #8a97a8; fill: none }
  .tip { fill: #48566a }
  .point { fill: #1f5a32 }
  .span { stroke: #8fc3a0; stroke-width: 5 }
  .core { stroke: #2f7a45; stroke-width: 5 }
  text { fill: #1d2733; font: 13px FACE }
  .strong { font-weight: 600 }
  .small { font-size: 11.5px }
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
    .point { fill: #d3f0dc }
    .span { stroke: #35684a }
    .core { stroke: #69b981 }
    text { fill: #e6ebf2 }
  }
""".replace("FACE", FACE)


def example() -> dict[str, Any]:
    """Return the names that the first example of README.md defines, after it ran."""
    page = README.read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[:1]
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for one in doctest.DocTestParser().get_examples(block):
            exec(compile(one.source, "README.md", "single"), names)  # noqa: S102 - lines of our own page
    return names


def box(kind: str, x: float, y: float, width: float, height: float, corner: float = 6) -> str:
    """Return a rectangle with round corners."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner:g}"/>'


def words(x: float, y: float, text: str, kind: str = "middle") -> str:
    """Return one line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{html.escape(text)}</text>'


def arrow(x: float, top: float, to: float, bottom: float) -> str:
    """Return an arrow down from one point to another."""
    bend = (top + bottom) / 2
    path = f'<path class="line" d="M{x:g} {top:g} C{x:g} {bend:g} {to:g} {bend:g} {to:g} {bottom - 6:g}"/>'
    return path + f'<path class="tip" d="M{to - 4.5:g} {bottom - 7:g} h9 l-4.5 7 z"/>'


def party(name: str, rows: int, left: float) -> list[str]:
    """Return one party: its table, and under it the release and the ledger through which totals leave."""
    middle = left + 49
    drawn = [box("party", left, 36, 98, 152), words(middle, 54, name, "middle strong")]
    drawn += [words(middle, 70, f"{rows:,} rows", "middle small")]
    drawn += [box("cell", left + 11 + 26 * column, 78 + 12 * row, 24, 10, 1.5) for row in range(4) for column in range(3)]
    drawn += [
        box("gate", left + 6, 132, 86, 48, 4),
        words(left + 11, 150, "release", "left"),
        words(left + 11, 171, "ledger", "left"),
    ]
    noise = "".join(f" {'l' if step else 'm'}3.5 {height}" for step, height in enumerate((0, -7, 9, -12, 13, -6, 5)))
    drawn.append(f'<path class="line" d="M{left + 58:g} 147{noise}"/>')
    drawn += [f'<path class="thin" d="M{left + 60:g} {161 + 4 * line} h26"/>' for line in range(4)]
    return drawn


def estimates(terms: list[Any], top: float) -> list[str]:
    """Return the odds ratios, each with its interval; the dark part of an interval would be there without privacy."""
    bottom = top + 58 + 24 * len(terms)
    drawn = [box("panel", 12, top, 416, bottom - top + 10, 4)]
    drawn += [words(24, top + 20, "complication", "left strong"), words(252, top + 20, "odds ratio", "right strong")]
    drawn.append(f'<path class="thin" d="M20 {top + 29:g} H420"/>')

    def place(log: float) -> float:
        return 315 + 47 * log / math.log(2)

    for tick in TICKS:
        x = place(math.log(tick))
        dash = "" if tick == 1 else ' stroke-dasharray="1 4"'
        drawn.append(f'<path class="thin"{dash} d="M{x:g} {top + 33:g} V{bottom - 16:g}"/>')
        drawn.append(words(x, bottom - 1, f"{tick:g}", "middle small"))
    for line, term in enumerate(terms):
        y, log = top + 50 + 24 * line, math.log(term.estimate)
        sampling = math.sqrt(term.std_error**2 - term.privacy**2)
        drawn += [words(24, y, term.term, "left"), words(244, y, f"{term.estimate:.2f}", "right")]
        low, high = (place(math.log(end)) for end in (term.conf_low, term.conf_high))
        core = [place(log + sign * Z * sampling) for sign in (-1, 1)]
        drawn.append(f'<path class="span" d="M{low:.1f} {y - 4:g} H{high:.1f}"/>')
        drawn.append(f'<path class="core" d="M{core[0]:.1f} {y - 4:g} H{core[1]:.1f}"/>')
        drawn.append(f'<circle class="point" cx="{place(log):.1f}" cy="{y - 4:g}" r="4"/>')
    return drawn


def page(table: object) -> str:
    """Return README.md with the table as it is printed now; long lines of its foot are left out."""
    shown: list[str] = []
    for line in str(table).splitlines():
        short = "..." if any(words in line for words in LONG) else line.rstrip()
        if short != "..." or shown[-1] != "...":
            shown.append(short)
    before, _, rest = README.read_text(encoding="utf-8").partition(">>> print(table)\n")
    return before + ">>> print(table)\n" + "\n".join(shown) + "\n\n```\n" + rest.partition("\n```\n")[2]


def picture(names: dict[str, Any]) -> str:
    """Return the whole picture as SVG, of the names that the example defines."""
    terms = [term for term in names["table"].terms if term.term != "(intercept)"]
    hospitals = names["hospitals"]
    drawn = [words(220, 24, "Each hospital keeps its own table")]
    for number, (name, rows) in enumerate(hospitals.items()):
        left = 12 + 106 * number
        drawn += [*party(name, rows, left), arrow(left + 49, 188, 130 + 60 * number, 232)]
    drawn += [box("sum", 80, 232, 280, 48), words(220, 252, "sum of the noisy totals", "middle strong")]
    drawn += [words(220, 270, "no row, no value of one person"), arrow(220, 280, 220, 310)]
    drawn += estimates(terms, 312)
    end = 312 + 68 + 24 * len(terms)
    drawn.append(words(220, end + 18, "dark: what intervals would be without privacy", "middle small"))
    title = (
        "Four hospitals keep their tables. Noisy totals leave through a release and a ledger. "
        "A table of odds ratios with intervals comes out."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="540" height="{round((end + 28) * 540 / 440)}" '
        f'viewBox="0 0 440 {end + 28}" role="img">\n<title>{title}</title>\n<style>{STYLE}</style>\n'
        + "\n".join([box("panel", 0.5, 0.5, 439, end + 27, 8), *drawn])
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    defined = example()
    if len(sys.argv) == 1:
        README.write_text(page(defined["table"]), encoding="utf-8")
    Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "landing.svg").write_text(picture(defined), encoding="utf-8")
