"""A ledger on paper: every row of its chain as text, for an auditor who has neither its key nor its replies, and can still recompute its head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import DataError, UnpooledError
from unpooled.privacy.ledger.chain import Row, link
from unpooled.privacy.ledger.history import History

if TYPE_CHECKING:
    from collections.abc import Sequence

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
