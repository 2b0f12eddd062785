"""The columns that a study reads, of those that its cards declare: found by running its plan on made-up rows, for every model alike."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.privacy.bounds import AsDeclared
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import run_in_process
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


def columns_read(plan: Plan) -> Mapping[str, tuple[str, ...]] | None:
    """Return the declared columns that each party's steps read, in the order of its card; None where the study cannot be run on made-up rows."""
    model = load(plan.study.row)
    if plan.links:
        return None
    try:
        study, tables = made_up(model, plan.study, _ROWS, _SEED, Truth())
        study = msgspec.structs.replace(study, simulation_seed=_SEED)
        seen = {name: watched(table) if table.n_rows else table for name, table in tables.items()}
        run_in_process(model, model.compile(study), seen, Policy.in_process(), load)
    except UnpooledError:
        return None
    found: dict[str, set[str]] = {name: getattr(table, "seen", set()) for name, table in seen.items()}
    return {
        card.name: tuple(column.name for column in card.columns if column.name in found[card.name])
        for card in plan.study.parties
    }
