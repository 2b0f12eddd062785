"""Frames of several parties to the rows of those whom all of them have, by the messages that parties on a network exchange."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.tables import columns_of, table_of
from unpooled.linkage import MODEL
from unpooled.linkage.plan import LinkKey
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.identity import Identity
from unpooled.protocol.keeper import ROW_MAP
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    #: What rows are linked by: the column with the ids, or several keys.
    On = str | Sequence[str | Mapping[str, Any]]
    #: A frame of pandas or polars, or a mapping from names to columns, of every party.
    Frames = Mapping[str, Any]


@dataclass(frozen=True)
class LinkedRows:
    """The result of linking frames in this process: each party's row numbers in the order that all share, and its ledger's root key."""

    rows: dict[str, NDArray[np.int64]]
    roots: dict[str, bytes]
    guesses: dict[str, int]
    passes: tuple[int, ...]
    ids: str
    #: Who learns what, in the words of the plan.
    words: tuple[str, ...]


def link_rows(
    frames: Mapping[str, Any], on: On, normalise: Sequence[str] = ("strip",), seed: int | None = None
) -> LinkedRows:
    """Link the rows of frames by the messages that parties on a network exchange; ``seed`` is a simulation's."""
    keys = keys_of_study(on, normalise)
    columns = key_columns(keys)
    tables = {name: Table({column: _text(frame, column) for column in columns}) for name, frame in frames.items()}
    roots = {name: root_of(name, seed) for name in frames}
    parties: dict[str, Party] = {}
    cards: list[Card] = []
    try:
        for name, table in tables.items():
            ledger = Ledger.in_memory(roots[name])
            cards.append(Card(name, table.n_rows, (), columns, Identity(ledger.root_key).public))
            policy = Policy.in_process()
            parties[name] = Party(name, table, cards[-1], ledger, KeySource(ledger.root_key), policy, lambda _: MODEL)
        study = Study("link", tuple(cards), math.inf, 0.0, parameters={"keys": msgspec.to_builtins(keys)}, derived=())
        plan = MODEL.compile(study)
        for name, table in tables.items():
            MODEL.check(plan, name, table)  # here everybody may be told which rows
        result = drive(MODEL, plan, in_process(parties)).result
        found = result.ids.partition(":")[2]
        rows = {name: parties[name].keeper.kept(found, ROW_MAP).astype(np.int64) for name in frames}
        guesses = {name: party.ledger.guesses for name, party in parties.items()}
        return LinkedRows(rows, roots, guesses, result.passes, result.ids, tuple(map(str, plan.public)))
    finally:
        for party in parties.values():
            party.ledger.close()


def rows_of(frame: Any, rows: NDArray[np.int64]) -> Any:  # noqa: ANN401 - a frame of the same kind
    """Return some rows of a frame, in this order."""
    if hasattr(frame, "iloc"):
        return frame.iloc[rows]
    if isinstance(frame, Mapping):
        return {name: np.asarray(column)[rows] for name, column in frame.items()}
    return frame[rows.tolist()]


def keys_of_study(on: On, normalise: Sequence[str]) -> list[LinkKey]:
    """Return the keys as a study has them."""
    return [_key(one, normalise) for one in ([on] if isinstance(on, str) else on)]


def key_columns(keys: Sequence[LinkKey]) -> tuple[str, ...]:
    """Return the columns that keys are made of, each once."""
    return tuple(dict.fromkeys(column for key in keys for column in key.columns))


def _key(one: str | Mapping[str, Any], normalise: Sequence[str]) -> LinkKey:
    told = {"name": one, "columns": [one]} if isinstance(one, str) else dict(one)
    try:
        return msgspec.convert({"normalise": list(normalise), **told}, LinkKey)
    except msgspec.ValidationError as error:
        msg = f"on: {error}. A key is a column, or has name, columns and normalise"
        raise UsageError(msg) from None


def _text(frame: Any, column: str) -> NDArray[Any]:  # noqa: ANN401 - any frame
    """Return a column of ids; whole numbers as text, so that long ones are not rounded."""
    if not isinstance(frame, Mapping) and not hasattr(frame, "columns"):
        raise UsageError("a frame is one of pandas or polars, or a mapping from names to columns")
    values = np.asarray(frame[column]) if column in columns_of(frame) else None
    if values is None:
        msg = f"there is no column {column!r} in the data"
        raise UsageError(msg).at(column=column)
    if values.dtype.kind not in "iu":
        return table_of(frame, [column])[column]
    return np.array([str(value) for value in values.tolist()], dtype=object)


def root_of(name: str, seed: int | None) -> bytes:
    """Return the root key of a party's ledger: nobody's, or that of a simulation, which protects nobody."""
    return os.urandom(32) if seed is None else hashlib.sha256(f"unpooled linked {seed} {name}".encode()).digest()
