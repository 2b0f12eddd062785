"""Hidden linking of frames in this process, by the messages that members on a network exchange: for estimators, and for rehearsals."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.linkage.hidden.places import places_of
from unpooled.linkage.hidden.plan import ONE
from unpooled.linkage.model import MODEL
from unpooled.linkage.plan import BOTH, LinkKey
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import MOST_ROWS, Card, HelperCard, Study, default_delta
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import NOTHING
from unpooled.privacy.table import NoRows, Table
from unpooled.protocol.identity import Identity
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from unpooled.privacy.places import Places
    from unpooled.privacy.plan import Plan

#: The name of the helper, which is none of the frames'.
_HELPER = "matcher"


def hidden_places(frames: Mapping[str, Any], on: str | Sequence[str], **options: Any) -> dict[str, Any]:  # noqa: ANN401 - see hidden_run
    """Return where the rows of frames lie among the places of a hidden link, by the whole protocol in this process (:func:`hidden_run`)."""
    return hidden_run(frames, on, **options)[1]


def hidden_run(
    frames: Mapping[str, Any],
    on: str | Sequence[str],
    *,
    normalise: Sequence[str] = ("strip",),
    epsilon: float = 0.1,
    delta: float | None = None,
    population: str = BOTH,
    holder: str = "",
    hub: str = "",
    caps: Mapping[str, int] | None = None,
    seed: int | None = None,
) -> tuple[Plan, dict[str, Any]]:
    """Return the plan of a hidden link in this process, and where the rows of frames lie among its places, by the whole protocol.

    The caller holds all frames, so nothing is kept from anybody here. ``on`` is the column with the ids, or the columns of one key. ``caps`` are the lengths that the
    study tells in the place of the numbers of rows (default: these). ``seed`` makes it a simulation, the same every time. The result has for each of two parties its
    :class:`~unpooled.privacy.places.Places`; of a hub, for each hospital, and for the hub a mapping from the hospitals.
    """
    columns = (on,) if isinstance(on, str) else tuple(on)
    tables = {name: Table({column: _ids(frame, column) for column in columns}) for name, frame in frames.items()}
    held = {name: table.n_rows for name, table in tables.items()} | dict(caps or {})
    if unknown := sorted(set(held) - set(tables)):
        msg = f"caps names {unknown[0]!r}, which is none of the frames: correct it"
        raise UsageError(msg)
    if longer := [name for name, table in tables.items() if table.n_rows > held[name]]:
        msg = f"frame {longer[0]!r} has more rows than its cap of {held[longer[0]]}: raise it"
        raise UsageError(msg)
    helper = _HELPER
    while helper in tables:
        helper += "'"
    with ExitStack() as opened:
        ledgers = {name: Ledger.in_memory(_root_of(name, seed)) for name in (*tables, helper)}
        for ledger in ledgers.values():
            opened.callback(ledger.close)
        keys = {name: Identity(ledger.root_key).public for name, ledger in ledgers.items()}
        cards = tuple(Card(name, held[name], (), columns, keys[name], capped=True) for name in tables)
        key = LinkKey("id", columns, tuple(normalise))
        asked = {"keys": [msgspec.to_builtins(key)], "reveal": NOTHING, "population": population}
        asked |= {"holder": holder} if holder else {}
        asked |= {"hub": hub, "several": ONE} if hub else {}
        study = Study(
            MODEL.name,
            cards,
            epsilon,
            default_delta(sum(held.values())) if delta is None else delta,
            parameters=asked,
            helpers=(HelperCard(helper, keys[helper]),),
            derived=(),
        )
        plan = MODEL.compile(study)
        rules = replace(Policy.in_process(), psi_max_rows=MOST_ROWS)  # the caller holds all rows: none is a guess
        parties = {
            card.name: Party(
                card.name,
                tables.get(card.name, NoRows()),
                card,
                ledgers[card.name],
                KeySource(ledgers[card.name].root_key),
                rules,
                lambda _: MODEL,
            )
            for card in study.members
        }
        for name, table in tables.items():
            MODEL.check(plan, name, table)  # here everybody may know which rows
        result = drive(MODEL, plan, in_process(parties)).result
        found = {name: places_of(parties[name].keeper, result.ids) for name in tables}
    return plan, {name: own if name == hub else _only(own) for name, own in found.items()}


def _only(own: Mapping[str, Places]) -> Places:
    (found,) = own.values()
    return found


def _root_of(name: str, seed: int | None) -> bytes:
    """Return the root key of a member's ledger: nobody's, or that of a simulation, which protects nobody."""
    return os.urandom(32) if seed is None else hashlib.sha256(f"unpooled hidden {seed} {name}".encode()).digest()


def _ids(frame: Any, column: str) -> Any:  # noqa: ANN401 - any frame and column
    """Return a column of ids; whole numbers as text, so that long ones are not rounded; missing ones as None."""
    if not isinstance(frame, dict) and not hasattr(frame, "columns"):
        raise UsageError("a frame is one of pandas or polars, or a mapping from names to columns")
    if column not in (frame if isinstance(frame, dict) else list(frame.columns)):
        msg = f"there is no column {column!r} in the data"
        raise UsageError(msg).at(column=column)
    values = frame[column]
    missing = np.asarray(values.isna()) if hasattr(values, "isna") else None
    found = np.asarray(values)
    if found.dtype.kind in "iu":
        return np.array([str(value) for value in found.tolist()], dtype=object)
    if missing is not None and missing.any():
        found = found.astype(object)
        found[missing] = None
    return found
