"""The figure of who holds what: parties by columns, with the rows of each party, its labels, and helpers that hold nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.aggregation.drawing import ACCENT, OTHER, SOFT, plain
from unpooled.privacy.unit import Split
from unpooled.report.figures.svg import Drawn, short, svg

if TYPE_CHECKING:
    from unpooled.privacy.plan import Card, Plan, Study

    #: A line of the figure: its name, the places of the parties that hold it, and whether it is a label.
    Line = tuple[str, tuple[int, ...], bool]

#: More columns than this are drawn in groups, those with the same holders together; and the most lines that are drawn.
_SINGLY, _MOST_LINES = 24, 40
#: Columns of one party that are named to those who cannot see the figure.
_HEARD = 8
#: The most parties whose names stand upright in a narrow and in a wide figure.
_UPRIGHT = {True: 2, False: 4}
#: Letters of a name below which a figure is narrow; and the most parties whose rows stand under their names there.
_NARROW, _TIGHT = 30, 5


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
        axes.legend(loc="upper left", bbox_to_anchor=(-0.1, 0), ncols=1 if letters < _NARROW else 2, borderpad=0.2)
        narrow = letters < _NARROW
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
    return svg(draw, rest + 0.24 * max(len(shown), 1), _heard(plan, len(lines) - len(shown)))


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


def _heard(plan: Plan, hidden: int) -> str:
    """Say who holds what for those who cannot see it."""
    split = "columns of the same people" if plan.split is Split.VERTICAL else "rows of different people"
    told = []
    for card in plan.study.parties:
        names = [c.name for c in card.columns]
        more = f" and {len(names) - _HEARD} more" if len(names) > _HEARD else ""
        labels = f", labels {', '.join(card.labels)}" if card.labels else ""
        told.append(f"{card.name} ({_size(card)}): {', '.join(names[:_HEARD]) or 'no columns'}{more}{labels}")
    told += [f"{helper.name}: a helper without data" for helper in plan.study.helpers]
    rest = f" Another {hidden} groups of columns are in the table below." if hidden else ""
    return f"Who holds what: {split}. {'; '.join(told)}.{rest}"
