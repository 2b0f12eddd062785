"""Frames of parties whose people in common nobody is told: a hidden link in this process, and the tables at places that a fit makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.estimation.tables import RESPONSE, columns_of, rows_of, table_of
from unpooled.linkage.in_process import hidden_run
from unpooled.privacy.declared import ExpectedPeople
from unpooled.privacy.places import Places
from unpooled.privacy.plan import Card, default_delta
from unpooled.privacy.table import HeldPlaces, HubTable, PlacedTable, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Study
    from unpooled.privacy.statement import Statement

#: Under which attribute an estimator keeps rows at places between linking and the run. No file and no copy has them.
HIDDEN_ROWS = "_hidden_rows"
_TWO = 2


class PerhapsHidden:
    """Arguments of a call that may be of hidden people."""

    expected: ExpectedPeople = 0


def refuse_rows(expected: int) -> None:
    """Refuse a number of expected people where rows are split."""
    if expected:
        raise UsageError(
            "expected must be left out: it is of hidden people, with frames of two parties and on=hidden_link(...)"
        )


@dataclass(frozen=True)
class HiddenLink:
    """Where the rows of frames lie among the places of a hidden link; later fits take it in the place of ``on``."""

    #: "hidden:" and 64 digits, as studies of the linked rows say it.
    ids: str
    #: The columns of the key.
    columns: tuple[str, ...]
    #: The promise of the link itself. Each later fit has one of its own: the two add up.
    statement: Statement
    #: The registry that was linked with each of the others; empty of two parties.
    hub: str
    #: Of each pair of parties with people in common the places of either; one process holds them all.
    pairs: tuple[dict[str, Places], ...] = field(repr=False)

    @property
    def parties(self) -> tuple[str, ...]:
        """Return the names of the parties: of a hub the hospitals and then the hub."""
        names = tuple(dict.fromkeys(name for pair in self.pairs for name in pair))
        return (*(name for name in names if name != self.hub), *([self.hub] if self.hub else []))

    @property
    def total(self) -> int:
        """Return the number of places, most of which are nobody's."""
        return sum(next(iter(pair.values())).total for pair in self.pairs)

    def __str__(self) -> str:
        return f"{self.total} places of {listed(list(self.parties))}, most of them nobody's\n{self.statement}"

    def check(self, frames: Mapping[str, Any]) -> None:
        """Refuse other frames than those that were linked."""
        if set(frames) != set(self.parties):
            msg = f"the link is of {listed(list(self.parties))}, and X has frames of {listed([str(name) for name in frames])}: link these"
            raise UsageError(msg)
        for name, places in (one for pair in self.pairs for one in pair.items()):
            rows = len(table_of(frames[name], list(self.columns))[self.columns[0]])
            if rows != places.rows.size:
                msg = f"the frame of {name!r} has another number of rows than when it was linked: link the frames anew, which is another link and costs again"
                raise UsageError(msg)


def hidden_link(
    frames: Mapping[str, Any],
    on: str | Sequence[str],
    *,
    hub: str | None = None,
    normalise: Sequence[str] = ("strip",),
    epsilon: float = 0.1,
    delta: float | None = None,
    caps: Mapping[str, int] | None = None,
    random_state: int | None = None,
) -> HiddenLink:
    """Return the places of the rows of frames, {name: frame}, of which between organisations nobody learns whom two have in common.

    ``on`` is the column with the ids, or the columns of one key; ``normalise`` are the normalisers of docs/linkage.md, in their order. There are two frames, or
    those of hospitals with different people and of a registry, which ``hub`` names. ``epsilon`` protects the sizes that the helper sees. ``caps`` are the
    lengths that are told in the place of the numbers of rows. Pass what is returned as ``on`` to ``fit``.
    """
    if len(frames) != _TWO and hub is None:
        msg = (
            f"a hidden link has two parties, and these are {len(frames)}: name the registry that is linked with each of the others (hub=). That somebody is at "
            "three parties is a product of three presences, which no masked product has"
        )
        raise UsageError(msg)
    if hub is not None and hub not in frames:
        msg = f"hub names {hub!r}, which is none of the frames: they are {listed(list(frames))}"
        raise UsageError(msg)
    hub = hub if len(frames) > _TWO else None  # two parties have one array, whichever is called the hub
    options: dict[str, Any] = {
        "normalise": normalise,
        "epsilon": epsilon,
        "delta": delta,
        "caps": caps,
        "seed": random_state,
    }
    plan, places = hidden_run(frames, on, hub=hub or "", **options)
    pairs = tuple({name: places[name], hub: places[hub][name]} for name in frames if name != hub) if hub else (places,)
    ids = next(iter(pairs[0].values())).name
    return HiddenLink(ids, (on,) if isinstance(on, str) else tuple(on), plan.statement, hub or "", pairs)


@dataclass(frozen=True)
class HiddenLinkage:
    """The part of its link that a fit of hidden people keeps: it holds no id, and no number of people."""

    #: The name of the link, as the study of the fit says it.
    ids: str
    #: Of each party the columns of its frame that were fitted; of hospitals, which have the same, those of the first.
    columns: dict[str, tuple[str, ...]]
    #: The promise of the link, which adds to that of the fit.
    statement: Statement

    def __str__(self) -> str:
        return f"Rows lie at the places of a hidden link, a study of its own whose epsilon adds to that of the fit.\n{self.statement}"


@dataclass(frozen=True)
class HiddenRows:
    """Tables of parties at their places, from linking until the run; and their people in common, which this process alone works out."""

    link: HiddenLink
    columns: dict[str, tuple[str, ...]]
    frames: dict[str, Any]
    response: str

    @staticmethod
    def seen(frames: Mapping[str, Any], link: HiddenLink) -> dict[str, Any]:
        """Return the frames that tell which columns there are: of hospitals, which have the same ones, the first; refused where another lacks one."""
        if not link.hub:
            return dict(frames)
        first, *others = (name for name in link.parties if name != link.hub)
        for name in others:
            if set(columns_of(frames[name])) != set(columns_of(frames[first])):
                unlike = sorted({*columns_of(frames[name])} ^ {*columns_of(frames[first])})
                msg = f"hospitals have the same columns, and {unlike[0]!r} is in the frame of one of {first!r} and {name!r} alone: rename it, or leave it out"
                raise UsageError(msg).at(column=unlike[0])
        return {first: frames[first], link.hub: frames[link.hub]}

    @classmethod
    def of(
        cls, frames: Mapping[str, Any], link: HiddenLink, columns: Mapping[str, Sequence[str]], response: str
    ) -> HiddenRows:
        """Return the rows of these frames, of which these columns are fitted."""
        return cls(link, {name: tuple(own) for name, own in columns.items()}, dict(frames), response)

    def linkage(self) -> HiddenLinkage:
        """Return what the estimator keeps."""
        return HiddenLinkage(self.link.ids, self.columns, self.link.statement)

    def _common(self, party: str, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return columns of people in common, in one order: they tell names and kinds of columns to the estimator, and no value is used."""
        found = []
        for pair in self.link.pairs:
            one, other = pair
            _, at, there = np.intersect1d(pair[one].rows, pair[other].rows, return_indices=True)
            kept = pair[one].rows[at] >= 0
            mine = party if party in pair else one  # a hospital, for the first of them
            rows = (at if mine == one else there)[kept]
            held = table_of(rows_of(self.frames[mine], rows), list(names))
            found.append({name: held[name] for name in names})
        return {name: np.concatenate([one[name] for one in found]) for name in names}

    def features(self) -> Any:  # noqa: ANN401 - a frame
        """Return the columns of people in common as a frame."""
        import polars as pl

        values = {name: each for party, own in self.columns.items() for name, each in self._common(party, own).items()}
        return pl.DataFrame({name: each.tolist() if each.dtype == object else each for name, each in values.items()})

    def told(self, labels: Sequence[str], asked: Sequence[str | None]) -> list[NDArray[Any] | None]:
        """Return the response, and what belongs to it, of people in common."""
        holder = self.holder
        missing = [label for label in labels if label not in columns_of(self.frames[holder])]
        if missing:
            msg = f"the frame of {holder!r}, which has the response, has no column {missing[0]!r}"
            raise UsageError(msg).at(column=missing[0])
        found = self._common(holder, list(dict.fromkeys(label for label in asked if label is not None)))
        return [None if label is None else found[label] for label in asked]

    @property
    def holder(self) -> str:
        """Return whose frame has the response; refused where none has, or both kinds of parties."""
        holders = [name for name in self.columns if self.response in columns_of(self.frames[name])]
        if len(holders) != 1:
            msg = f"y names the column with the response in the frame of one party: {self.response!r} is in {'both' if holders else 'none'}"
            raise UsageError(msg).at(column=self.response)
        return holders[0]

    def applied(self, study: Study, *, given: bool) -> tuple[Study, dict[str, Table]]:
        """Return the study as it is of rows at places, and its members' tables; ``given``: whether delta was."""
        link, tables, cards = self.link, dict[str, Table](), list[Card]()
        for card in study.parties:
            acting = (
                [name for name in link.parties if name != link.hub] if link.hub and card.name != link.hub else [card.name]
            )
            for name in acting:
                own = {other: pair[name] for pair in link.pairs if name in pair for other in pair if other != name}
                called = {c.name: self.response if c.name == RESPONSE else c.name for c in card.columns}
                held = table_of(self.frames[name], list(called.values()))
                rows = Table({to: held[column] for to, column in called.items()})
                (first, *others) = own.values()
                tables[name] = HubTable(rows, own) if others else PlacedTable(rows, first)
                told = {"rows": tables[name].n_rows, "linked": link.ids, "capped": True}
                cards.append(msgspec.structs.replace(card, name=name, **told))
        # Neither the number of people in common nor that of a list may decide anything public.
        delta = study.delta if given else default_delta(link.total)
        study = msgspec.structs.replace(study, parties=tuple(cards), ids=link.ids, delta=delta)
        known = {(one, other): pair[one].given for pair in link.pairs for one in pair for other in pair if other != one}
        return study, tables | {card.name: HeldPlaces(link.ids, known) for card in study.helpers}


def in_frames(frames: Any, on: Any) -> Any:  # noqa: ANN401 - whatever a user passes
    """Return the frames that tell who holds what: of a hidden link with hospitals the first of these and the hub, else all of them."""
    if not isinstance(on, HiddenLink) or not isinstance(frames, Mapping):
        return frames
    on.check(frames)
    return HiddenRows.seen(frames, on)
