"""Spending of a ledger in one form for every command, and a ledger on paper for an auditor who has neither its key nor its files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from unpooled.errors import DataError, UnpooledError
from unpooled.privacy.ledger.chain import History, Row, link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.ledger.chain import Entry


# --- Spending --------------------------------------------------------------------------------------------------------------
# Spending of a ledger, in one form for every command: a number, or "unbounded" with the known cost of the rest.

UNBOUNDED_WORD: Final = "unbounded"


@dataclass(frozen=True, slots=True)
class Spending:
    """The epsilon of everything debited, at one delta and for one unit."""

    #: Infinite where the cost of a study is not known.
    epsilon: float
    #: The epsilon of the other studies alone, and the number of studies whose cost is not known.
    known: float
    unknown: int

    @property
    def number(self) -> float | Literal["unbounded"]:
        """Epsilon for machines: a number, or "unbounded"."""
        return self.epsilon if math.isfinite(self.epsilon) else UNBOUNDED_WORD

    @property
    def words(self) -> str:
        """Epsilon for people.

        >>> print(Spending(math.inf, 0.5, 2).words)
        unbounded (2 studies of unknown cost; epsilon = 0.5 by all others)
        """
        if math.isfinite(self.epsilon):
            return f"epsilon = {self.epsilon:.6g}"
        studies = f"{self.unknown} stud{'ies' if self.unknown != 1 else 'y'} of unknown cost"
        return f"{UNBOUNDED_WORD} ({studies}; epsilon = {self.known:.6g} by all others)"


@dataclass(frozen=True, slots=True)
class StudyBalance:
    """The spending of a ledger after one of its studies: that of all studies up to and including this one."""

    plan: str
    #: Seconds since 1970 of the study's first charge; 0 where a ledger of the first version does not say.
    time: int
    about: str
    after: Spending


@dataclass(frozen=True, slots=True)
class StudyLine:
    """The entries and the cost of one plan in a ledger."""

    plan: str
    entries: tuple[Entry, ...]
    cost: Spending
    withdrawn: bool

    @property
    def approval(self) -> Entry | None:
        """Return the last approval of the plan, if the ledger holds one."""
        return next((entry for entry in reversed(self.entries) if entry.kind == "approval"), None)

    @property
    def releases(self) -> int:
        """Return the number of releases of the plan that were debited."""
        return sum(entry.kind == "charge" for entry in self.entries)

    @property
    def decision(self) -> Entry | None:
        """Return the last approval, withdrawal or refusal of the plan by this party's people, if the ledger holds one."""
        return next((entry for entry in reversed(self.entries) if entry.key is None), None)

    @property
    def decisions(self) -> int:
        """Return how often this party's people decided about the plan."""
        return sum(entry.key is None for entry in self.entries)

    @property
    def about(self) -> str:
        """Return the model and the purpose that were approved, or declined."""
        said = self.approval or self.decision
        return said.about if said else ""

    @property
    def state(self) -> str:
        """Where the plan stands: approved, declined, debited or withdrawn."""
        if self.withdrawn:
            return "withdrawn" if self.approval else "declined"
        return f"{self.releases} release{'' if self.releases == 1 else 's'}" if self.releases else "approved"


# --- Export ----------------------------------------------------------------------------------------------------------------
# A ledger on paper: every row of its chain as text, for an auditor who has neither its key nor its replies, and can still recompute its head.

_FORMAT = "unpooled ledger rows 2"


class _Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    head: str
    rows: list[list[int | str]]


def export(rows: Sequence[Row], head: str) -> bytes:
    """Return the rows and their head. Bytes stand as hexadecimal text; replies are not among them, nor the key."""
    told = [[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]
    return msgspec.json.format(msgspec.json.encode(_Export(_FORMAT, head, told)))


def read_export(raw: bytes) -> History:
    """Return the history that an export tells, every row tied to the one before; refused where its rows do not make its head."""
    history = History()
    try:
        told = msgspec.json.decode(raw, type=_Export, strict=True)
        if told.format != _FORMAT:
            raise ValueError
        for row in told.rows:
            columns = [_read(value, name) for value, name in zip(row, Row._fields, strict=True)]
            history.take_in(columns, link(history.head.digest, columns))
        history.settle()
        if history.head.digest.hex() != told.head:
            raise ValueError
    except (ValueError, LookupError, TypeError, OverflowError, msgspec.MsgspecError, UnpooledError):
        msg = "this is no export of a ledger (`unpooled party ledger --export`), or it was edited: its rows do not make its head"
        raise DataError(msg) from None
    return history


def _read(value: float | str, name: str) -> Any:  # noqa: ANN401 - of the column's own type
    return bytes.fromhex(str(value)) if isinstance(Row._field_defaults[name], bytes) else value
