"""Frames of two parties whose people in common nobody is told: a hidden link in this process, and the tables at places that a fit makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.estimation.tables import RESPONSE, columns_of, rows_of, table_of
from unpooled.linkage.in_process import hidden_run
from unpooled.privacy.declared import ExpectedPeople
from unpooled.privacy.places import Places
from unpooled.privacy.plan import default_delta
from unpooled.privacy.table import HeldPlaces, PlacedTable, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Study
    from unpooled.privacy.statement import Statement

#: Under which attribute an estimator keeps rows at places between linking and the run. No file and no copy has them.
HIDDEN_ROWS = "_hidden_rows"
_TWO = 2


class PerhapsHidden:
    """What a call takes that may be of hidden people."""

    expected: ExpectedPeople = 0


def refuse_rows(expected: int) -> None:
    """Refuse a number of expected people where rows are split."""
    if expected:
        raise UsageError("expected is of hidden people, with frames of two parties and on=hidden_link(...): leave it out")


@dataclass(frozen=True)
class HiddenLink:
    """Where the rows of two frames lie among the places of a hidden link; later fits take it in the place of ``on``."""

    #: "hidden:" and 64 digits, as studies of the linked rows say it.
    ids: str
    #: The number of places, most of which are nobody's.
    total: int
    #: The columns of the key.
    columns: tuple[str, ...]
    #: The promise of the link itself. Each later fit has one of its own: the two add up.
    statement: Statement
    #: Of each party its places; one process holds them all.
    places: dict[str, Places] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.total} places of {listed(list(self.places))}, most of them nobody's\n{self.statement}"

    def check(self, frames: Mapping[str, Any]) -> None:
        """Refuse other frames than those that were linked."""
        if set(frames) != set(self.places):
            msg = f"the link is of {listed(list(self.places))}, and X has frames of {listed([str(name) for name in frames])}: link these"
            raise UsageError(msg)
        for name, places in self.places.items():
            rows = len(table_of(frames[name], list(self.columns))[self.columns[0]])
            if rows != places.rows.size:
                msg = f"the frame of {name!r} has another number of rows than when it was linked: link the frames anew, which is another link and costs again"
                raise UsageError(msg)


def hidden_link(
    frames: Mapping[str, Any],
    on: str | Sequence[str],
    *,
    normalise: Sequence[str] = ("strip",),
    epsilon: float = 0.1,
    delta: float | None = None,
    caps: Mapping[str, int] | None = None,
    random_state: int | None = None,
) -> HiddenLink:
    """Return the places of the rows of two frames, {name: frame}, of which between organisations nobody learns whom both have.

    ``on`` is the column with the ids, or the columns of one key; ``normalise`` are the normalisers of docs/linkage.md, in their order. ``epsilon`` protects the
    sizes that the helper sees. ``caps`` are the lengths that are told in the place of the numbers of rows. Pass what is returned as ``on`` to ``fit``.
    """
    if len(frames) != _TWO:
        msg = f"a hidden link has two parties, and these are {len(frames)}: that somebody is at three is a product of three presences, which no masked product has"
        raise UsageError(msg)
    plan, places = hidden_run(frames, on, normalise=normalise, epsilon=epsilon, delta=delta, caps=caps, seed=random_state)
    first = next(iter(places.values()))
    return HiddenLink(first.name, first.total, (on,) if isinstance(on, str) else tuple(on), plan.statement, places)


@dataclass(frozen=True)
class HiddenLinkage:
    """What a fit of hidden people keeps of its link. It holds no id, and nobody's number."""

    #: The name of the link, as the study of the fit says it.
    ids: str
    #: Of each party the columns of its frame that were fitted.
    columns: dict[str, tuple[str, ...]]
    #: The promise of the link, which adds to that of the fit.
    statement: Statement

    def __str__(self) -> str:
        return f"Rows lie at the places of a hidden link, a study of its own whose epsilon adds to that of the fit.\n{self.statement}"


@dataclass(frozen=True)
class HiddenRows:
    """Tables of two parties at their places, from linking until the run; and their people in common, which this process alone works out."""

    link: HiddenLink
    columns: dict[str, tuple[str, ...]]
    frames: dict[str, Any]
    response: str

    @classmethod
    def of(
        cls,
        frames: Mapping[str, Any],
        link: HiddenLink,
        columns: Mapping[str, Sequence[str]],
        response: str,
    ) -> HiddenRows:
        """Return the rows of these frames, of which these columns are fitted."""
        return cls(link, {name: tuple(own) for name, own in columns.items()}, dict(frames), response)

    def linkage(self) -> HiddenLinkage:
        """Return what the estimator keeps."""
        return HiddenLinkage(self.link.ids, self.columns, self.link.statement)

    def _common(self) -> dict[str, NDArray[np.intp]]:
        """Return the rows of people in common, in one order: a frame of them tells names and kinds of columns to the estimator, and no value is used."""
        (one, first), (other, second) = self.link.places.items()
        _, at, there = np.intersect1d(first.rows, second.rows, return_indices=True)
        kept = first.rows[at] >= 0
        return {one: at[kept], other: there[kept]}

    def features(self) -> Any:  # noqa: ANN401 - a frame
        """Return the columns of people in common as a frame."""
        import polars as pl

        rows = self._common()
        held = {name: table_of(rows_of(self.frames[name], rows[name]), own) for name, own in self.columns.items() if own}
        values = {column: held[name][column] for name, own in self.columns.items() for column in own}
        return pl.DataFrame({name: each.tolist() if each.dtype == object else each for name, each in values.items()})

    def told(self, labels: Sequence[str], asked: Sequence[str | None]) -> list[NDArray[Any] | None]:
        """Return the response, and what belongs to it, of people in common."""
        rows, holder = self._common(), self.holder
        missing = [label for label in labels if label not in columns_of(self.frames[holder])]
        if missing:
            msg = f"the frame of {holder!r}, which has the response, has no column {missing[0]!r}"
            raise UsageError(msg).at(column=missing[0])
        frame = rows_of(self.frames[holder], rows[holder])
        return [None if label is None else np.asarray(frame[label]) for label in asked]

    @property
    def holder(self) -> str:
        """Return whose frame has the response; refused where none has, or both."""
        holders = [name for name, frame in self.frames.items() if self.response in columns_of(frame)]
        if len(holders) != 1:
            msg = f"y names the column with the response in the frame of one party: {self.response!r} is in {'both' if holders else 'none'}"
            raise UsageError(msg).at(column=self.response)
        return holders[0]

    def applied(self, study: Study, *, given: bool) -> tuple[Study, dict[str, Table]]:
        """Return the study as it is of rows at places, and its members' tables; ``given``: whether delta was."""
        total, ids = self.link.total, self.link.ids
        cards = tuple(msgspec.structs.replace(card, rows=total, linked=ids, capped=True) for card in study.parties)
        # Neither the number of people in common nor that of a list may decide anything public.
        delta = study.delta if given else default_delta(total)
        study = msgspec.structs.replace(study, parties=cards, ids=ids, delta=delta)
        tables: dict[str, Table] = {}
        for card in cards:
            whole = self.frames[card.name]
            names = {c.name: self.response if c.name == RESPONSE else c.name for c in card.columns}
            held = table_of(whole, list(names.values()))
            tables[card.name] = PlacedTable(
                Table({name: held[own] for name, own in names.items()}), self.link.places[card.name]
            )
        places = {name: own.given for name, own in self.link.places.items()}
        return study, tables | {card.name: HeldPlaces(ids, places) for card in study.helpers}
