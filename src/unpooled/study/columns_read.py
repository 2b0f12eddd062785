"""The columns that a study reads, and those that it sends as they are: found by running its plan on made-up rows, for every model alike."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.privacy.bounds import AsDeclared
from unpooled.privacy.policy import Policy
from unpooled.protocol.conversation import find_step
from unpooled.protocol.local import run_in_process
from unpooled.protocol.messages import Disclosed, open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.study.made_up import Truth, made_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csc_array

    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import OverRows, Table

#: Rows of each party, at most: enough for every model to take its usual way; and the most columns that are listed by name.
_ROWS, _SEED, _LISTED = 60, 20261126, 20


class _Watching:
    """A table that writes down which columns are asked for; the look at all of them that goes before every plan is no reading."""

    seen: set[str]

    def blocks(self, names: tuple[str, ...], *rows: int) -> Iterator[tuple[NDArray[Any], ...]]:
        """Return the named columns, block by block."""
        self.seen.update(names)
        found: Iterator[tuple[NDArray[Any], ...]] = super().blocks(names, *rows)  # type: ignore[misc]  # of the table, which comes behind it
        return found

    def sparse(self, names: Sequence[str]) -> csc_array | None:
        """Return the named columns as one array, where they are held so."""
        self.seen.update(names)
        found: csc_array | None = super().sparse(names)  # type: ignore[misc]  # as above
        return found

    def __getitem__(self, name: str) -> NDArray[Any]:
        self.seen.add(name)
        found: NDArray[Any] = super().__getitem__(name)  # type: ignore[misc]  # as above
        return found

    def passed(self, work: OverRows) -> NDArray[Any]:
        """Return the result of the work over all rows."""
        before = set(self.seen)
        found: NDArray[Any] = super().passed(work)  # type: ignore[misc]  # as above
        if isinstance(work, AsDeclared):
            self.seen = before
        return found


def watched(table: Table) -> Table:
    """Return the same table, with a set ``seen`` of the columns that were asked for."""
    found = copy.copy(table)
    found.__class__ = type(f"Watched{type(table).__name__}", (_Watching, type(table)), {})
    found.seen = set()  # type: ignore[attr-defined]  # of the class above
    return found


def said_of(names: Sequence[str], every: int) -> str:
    """Return names of columns for people; of many their number."""
    if not names:
        return "none"
    if len(names) == every:
        return "all declared columns"
    return ", ".join(names) if len(names) <= _LISTED else f"{len(names)} of the {every} declared columns"


@dataclass(frozen=True)
class Trial:
    """The columns of each party, in the order of its card: those that a run on made-up rows read, and those that it sent as they are."""

    read: Mapping[str, tuple[str, ...]]
    #: A value for each person travels of these.
    clear: Mapping[str, tuple[str, ...]]


def columns_read(plan: Plan) -> Mapping[str, tuple[str, ...]] | None:
    """Return the declared columns that each party's steps read, in the order of its card; None where the study cannot be run on made-up rows."""
    found = trial_of(plan)
    return None if found is None else found.read


def trial_of(plan: Plan) -> Trial | None:
    """Return the findings of a run of the plan on made-up rows; None where the study cannot be run on them."""
    model = load(plan.study.row)
    if plan.links:
        return None
    try:
        study, tables = made_up(model, plan.study, _ROWS, _SEED, Truth())
        study = msgspec.structs.replace(study, simulation_seed=_SEED)
        seen = {name: watched(table) if table.n_rows else table for name, table in tables.items()}
        made, transcript = model.compile(study), Transcript()
        run_in_process(model, made, seen, Policy.in_process(), load, transcript=transcript)
    except UnpooledError:
        return None
    found: dict[str, set[str]] = {name: getattr(table, "seen", set()) for name, table in seen.items()}
    sent: dict[str, set[str]] = {name: set() for name in seen}
    for entry in transcript.entries:
        if entry.reply is not None:
            sent[entry.to].update(_disclosed(made, entry.reply))

    def of_cards(names: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
        cards = plan.study.parties
        return {card.name: tuple(c.name for c in card.columns if c.name in names[card.name]) for card in cards}

    return Trial(of_cards(found), of_cards(sent))


def _disclosed(plan: Plan, reply: bytes) -> Iterator[str]:
    """Yield the names of the columns that a reply holds as they are."""
    envelope = open_envelope(reply)
    part, name = plan.part(envelope.step)
    said = msgspec.msgpack.decode(envelope.body, type=find_step(load(part.study.row), name, part).reply)
    for value in (getattr(said, field) for field in said.__struct_fields__):
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Disclosed):
                yield from one.columns
