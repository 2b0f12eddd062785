"""The pages' figures, as SVG text that lies inside them: of a ledger, a plan, an outlook, a result, and of who holds what. The same run gives the same bytes."""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.inference.drawing import (
    ACCENT,
    BAND,
    INK,
    OTHER,
    SOFT,
    WITHOUT_PRIVACY,
    plain,
    style,
)
from unpooled.privacy.statement import SPLIT_WORDS, UNIT_WORDS
from unpooled.study.finished import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from unpooled.estimation.outlook import Outlook
    from unpooled.privacy.ledger.spending import Spending, StudyBalance
    from unpooled.privacy.plan import Card, Plan, Study
    from unpooled.privacy.unit import Target
    from unpooled.protocol.registry import Panel
    from unpooled.study.record import StepCount

    #: A line of the figure: its name, the places of the parties that hold it, and whether it is a label.
    Line = tuple[str, tuple[int, ...], bool]


# --- Svg -------------------------------------------------------------------------------------------------------------------
# Figures as SVG text that lies inside a page. The same run gives the same bytes.

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


# --- Budgets ---------------------------------------------------------------------------------------------------------------
# The budget chart: what a party's ledger has spent after each study, and the total that its policy allows.

#: Of more studies than this only some are named, far enough apart to be read: those that cost most.
_MOST_NAMES = 30
#: Inches of a named study, and of all that is not studies.
_ROW, _REST = 0.36, 0.85


def budget(balances: Sequence[StudyBalance], allowed: Target, after: Spending | None = None) -> Drawn:
    """Return epsilon spent, study by study, against the total that is allowed; ``after`` is what a plan that nobody ran yet would make of it.

    A study of unknown cost is marked: the line goes on with the cost of all others, and no total holds.
    """
    rows = [*balances]
    spent = [0.0, *(one.after.known for one in rows), *([] if after is None else [after.known])]
    unknown = _unknown(rows, after)
    named = _named(spent, len(rows))
    places = list(range(len(spent) - 1))

    def draw(axes: Any, letters: int) -> None:  # noqa: ANN401
        _steps(axes, spent, len(rows))
        if math.isfinite(allowed.epsilon):
            words = f"allowed: epsilon = {allowed.epsilon:.4g}"
            axes.axvline(allowed.epsilon, color=OTHER, lw=1.6, linestyle="--", label=words)
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderpad=0)
        axes.plot([spent[k] for k in unknown], unknown, "X", color=OTHER, markersize=8, clip_on=False)
        most = max([*spent, allowed.epsilon if math.isfinite(allowed.epsilon) else 0.0, 1e-9])
        for k in [*named, *places[len(rows) :]]:
            cost = "cost unknown" if k in unknown else f"{spent[k + 1]:.3g}"
            axes.text(
                spent[k + 1] + (0.04 if k in unknown else 0.02) * most, k, cost, va="center", fontsize=8, in_layout=False
            )
        names = {k: _name(rows[k], letters, dated=len(rows) <= _MOST_NAMES) for k in named}
        names |= dict.fromkeys(places[len(rows) :], "after this plan")
        axes.set_yticks(list(names), list(names.values()))
        lines = (f"epsilon spent for {UNIT_WORDS[allowed.unit]}", f"at delta = {allowed.delta:g}")
        axes.set(
            xlabel="\n".join(textwrap.fill(line, letters + 4) for line in lines),
            xlim=(0, 1.22 * most),
            ylim=(max(len(places) - 0.4, 0.6), -0.6),
        )
        axes.locator_params(axis="x", nbins=letters // 5)

    return svg(draw, _REST + _ROW * min(max(len(places), 1), _MOST_NAMES + 2), _budgets_heard(rows, allowed, after))


def _steps(axes: Any, spent: Sequence[float], studies: int) -> None:  # noqa: ANN401 - matplotlib axes
    """Draw a step across for the cost of every study, and one down to the next; dotted where the plan is not run yet."""
    corners = [(spent[k + end], k) for k in range(len(spent) - 1) for end in (0, 1)]
    done = 2 * studies
    axes.barh(range(studies), spent[1 : studies + 1], height=1.0, color=ACCENT, alpha=BAND, lw=0)
    for part, line in ((corners[:done], "-"), (corners[max(done - 1, 0) :], ":")):
        axes.plot([x for x, _ in part], [y for _, y in part], color=ACCENT, lw=2, linestyle=line)


def _unknown(rows: Sequence[StudyBalance], after: Spending | None) -> list[int]:
    """Return the places of the studies with which the number of studies of unknown cost grows."""
    counts = [0, *(one.after.unknown for one in rows), *([] if after is None else [after.unknown])]
    return [k for k in range(len(counts) - 1) if counts[k + 1] > counts[k]]


def _named(spent: Sequence[float], studies: int) -> list[int]:
    """Return the places of the studies that are named: all, or of many those that cost most and are far enough apart."""
    apart = math.ceil(studies / _MOST_NAMES)
    named: list[int] = []
    for k in sorted(range(studies), key=lambda k: spent[k] - spent[k + 1]):
        if all(abs(k - other) >= apart for other in named):
            named.append(k)
    return sorted(named)


def _name(one: StudyBalance, letters: int, *, dated: bool) -> str:
    """Return a study's name for the axis, and under it the day of its first charge."""
    name, day = plain(short(one.about or f"plan {one.plan[:12]}", letters)), moment(one.time)[:10]
    return f"{name}\n{day}" if dated and day else name


def _budgets_heard(rows: Sequence[StudyBalance], allowed: Target, after: Spending | None) -> str:
    """Say the chart for those who cannot see it."""
    total = f"epsilon = {allowed.epsilon:.4g}" if math.isfinite(allowed.epsilon) else "any epsilon"
    words = f"Epsilon spent at delta = {allowed.delta:g} for {UNIT_WORDS[allowed.unit]}; allowed is {total}. "
    words += f"{len(rows)} stud{'y' if len(rows) == 1 else 'ies'}" if rows else "No study was charged yet"
    shown = rows if len(rows) <= _MOST_NAMES else [rows[0], rows[-1]]
    told = [f"after {one.about or one.plan[:12]} {_day(one)}{one.after.words}" for one in shown]
    words += "".join(f"; {line}" for line in told)
    return words + (f"; after this plan {after.words}." if after else ".")


def _day(one: StudyBalance) -> str:
    return f"({day}) " if (day := moment(one.time)[:10]) else ""


# --- Holdings --------------------------------------------------------------------------------------------------------------
# The figure of who holds what: parties by columns, with the rows of each party, its labels, and helpers that hold nothing.

#: More columns than this are drawn in groups, those with the same holders together; and the most lines that are drawn.
_SINGLY, _MOST_LINES = 24, 40
#: Columns of one party that are named to those who cannot see the figure.
_HEARD = 8
#: The most parties whose names stand upright in a narrow and in a wide figure.
_UPRIGHT = {True: 2, False: 4}
#: Letters of a name below which a figure is narrow; and the most parties whose rows stand under their names there.
_NARROW_CELL, _TIGHT = 30, 5


def holdings(plan: Plan) -> Drawn:
    """Return which party holds which columns and labels of a study, and how many rows."""
    study = plan.study
    lines = _lines(study)
    shown = lines[:_MOST_LINES]
    parties = [(card.name, _size(card)) for card in study.parties]
    parties += [(helper.name, "no data") for helper in study.helpers]

    def draw(axes: Any, letters: int) -> None:  # noqa: ANN401
        for place, (_, holders, own) in enumerate(shown):
            axes.axhline(place, color=SOFT, lw=0.5, alpha=0.5, zorder=0)
            mark, colour = ("D", OTHER) if own else ("s", ACCENT)
            axes.plot(holders, [place] * len(holders), mark, color=colour, markersize=7)
        for mark, colour, name in (("s", ACCENT, "column"), ("D", OTHER, "label (own use)")):
            if any(own == (mark == "D") for _, _, own in shown):
                axes.plot([], [], mark, color=colour, label=name)
        axes.legend(loc="upper left", bbox_to_anchor=(-0.1, 0), ncols=1 if letters < _NARROW_CELL else 2, borderpad=0.2)
        narrow = letters < _NARROW_CELL
        turned = len(parties) > _UPRIGHT[narrow]
        tight = narrow and len(parties) > _TIGHT
        room = 18 if tight else 16 if turned else letters // len(parties)
        names = [plain(short(name, room)) + ("" if tight else f"\n{rows}") for name, rows in parties]
        axes.set_xticks(range(len(parties)), names, rotation=90 if turned else 0, fontsize=8 if tight else 9)
        axes.set_yticks(range(len(shown)), [plain(short(name, 13 if tight else letters)) for name, _, _ in shown])
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set(xlim=(-0.6, len(parties) - 0.4), ylim=(len(shown) - 0.4, -0.6))

    rest = 0.95 if len(parties) <= _UPRIGHT[True] else 1.95
    return svg(draw, rest + 0.24 * max(len(shown), 1), _holdings_heard(plan, len(lines) - len(shown)))


def _size(card: Card) -> str:
    return f"{card.people:,} {'rows' if card.household is None else 'ids'}"


def _lines(study: Study) -> list[Line]:
    """Return a line for every column and label, or where there are many for those that the same parties hold."""
    holders: dict[tuple[str, bool], list[int]] = {}
    for place, card in enumerate(study.parties):
        for name, own in [*((c.name, False) for c in card.columns), *((label, True) for label in card.labels)]:
            holders.setdefault((name, own), []).append(place)
    if len(holders) <= _SINGLY:
        return [(name, tuple(places), own) for (name, own), places in holders.items()]
    groups: dict[tuple[tuple[int, ...], bool], list[str]] = {}
    for (name, own), places in holders.items():
        groups.setdefault((tuple(places), own), []).append(name)
    return [(_group(names, own=own), places, own) for (places, own), names in groups.items()]


def _group(names: list[str], *, own: bool) -> str:
    """Return the name of a group of columns or labels: how many they are, the first one and the last one."""
    if len(names) == 1:
        return names[0]
    ends = f"{short(names[0], 12)} to {short(names[-1], 12)}"
    return f"{len(names)} {'labels' if own else 'columns'}, {ends}"


def _holdings_heard(plan: Plan, hidden: int) -> str:
    """Say who holds what for those who cannot see it."""
    split = SPLIT_WORDS[plan.split]
    told = []
    for card in plan.study.parties:
        names = [c.name for c in card.columns]
        more = f" and {len(names) - _HEARD} more" if len(names) > _HEARD else ""
        labels = f", labels {', '.join(card.labels)}" if card.labels else ""
        told.append(f"{card.name} ({_size(card)}): {', '.join(names[:_HEARD]) or 'no columns'}{more}{labels}")
    told += [f"{helper.name}: a helper without data" for helper in plan.study.helpers]
    rest = f" Another {hidden} groups of columns are in the table below." if hidden else ""
    return f"Who holds what: {split}. {'; '.join(told)}.{rest}"


# --- Outlooks --------------------------------------------------------------------------------------------------------------
# The figures of an outlook: the error to expect against epsilon and, of a treatment effect, the power of its test.


def outlook(found: Outlook) -> list[tuple[str, Drawn]]:
    """Return the figures of an outlook, each with its title."""
    drawn = []
    for title, draw in found.drawings:

        def on(axes: Any, letters: int, draw: Any = draw) -> None:  # noqa: ANN401, ARG001
            draw(axes)

        drawn.append((title, svg(on, 2.8, f"{title}: {_outlook_heard(found)}")))
    return drawn


def _outlook_heard(found: Outlook) -> str:
    """Say the errors for those who cannot see them."""
    told = [f"{p.error:.3g} at epsilon = {p.epsilon:g}" for p in found.points if math.isfinite(p.error)]
    return f"{found.measure} expected by simulations without data: {'; '.join(told) or 'none is identified'}."


# --- Panels ----------------------------------------------------------------------------------------------------------------
# The figures of a result: a line over ordered names or numbers, or bars, with intervals where there are some.

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

    return svg(line, 2.6, _panel_heard(shown))


def _inner(shown: Panel, ends: Sequence[float]) -> list[float]:
    """Return what an end of the band would be without privacy."""
    return [v + part * (end - v) for v, end, part in zip(shown.values, ends, shown.without_privacy, strict=True)]


def _panel_heard(shown: Panel) -> str:
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


# --- Plans -----------------------------------------------------------------------------------------------------------------
# The figures of a plan and its run: the guarantee at every delta, and the bytes that came from every party.


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


# --- Figures ---------------------------------------------------------------------------------------------------------------
# The pages' figures, as SVG text that lies inside them: of a ledger, a plan, an outlook, a result, a run.


__all__ = ["SIMULATED", "Drawn", "budget", "guarantee", "holdings", "marked", "outlook", "panel", "traffic"]
