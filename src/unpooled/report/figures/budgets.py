"""The budget chart: what a party's ledger has spent after each study, and the total that its policy allows."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from unpooled.aggregation.drawing import ACCENT, BAND, OTHER, plain
from unpooled.privacy.statement import UNIT_WORDS
from unpooled.report.figures.svg import Drawn, short, svg
from unpooled.study.about import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.ledger.spending import Spending, StudyBalance
    from unpooled.privacy.unit import Target

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

    return svg(draw, _REST + _ROW * min(max(len(places), 1), _MOST_NAMES + 2), _heard(rows, allowed, after))


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


def _heard(rows: Sequence[StudyBalance], allowed: Target, after: Spending | None) -> str:
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
