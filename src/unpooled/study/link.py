"""``unpooled.link``: frames in, frames with the same people in the same order out, by the messages that parties on a network exchange."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.tables import table_of
from unpooled.linkage import MODEL
from unpooled.linkage.plan import LinkKey
from unpooled.models import load
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


def link(
    frames: Mapping[str, Any],
    on: str | Sequence[str | Mapping[str, Any]],
    *,
    normalise: Sequence[str] = ("strip",),
) -> dict[str, Any]:
    """The rows of people whom all frames have, in the same order everywhere.

    All of it happens in this process, by the very messages that parties on a network exchange: a rehearsal, and a way to prepare files for
    estimators of columns of the same people. Whoever calls it holds all the frames, so that nothing is kept from anybody here.

    Parameters
    ----------
    frames : mapping from names to frames
        A frame of pandas or polars, or a mapping from column names to columns, for each of 2 to 10 parties.
    on : str, or a sequence of keys
        The column with the ids. Of several keys (columns, or mappings with ``name``, ``columns`` and ``normalise``) each is tried in turn on
        the rows that no earlier one matched.
    normalise : sequence of str
        What is done to a key before it is compared, in this order: "nfc", "casefold", "strip", "digits", "soundex".

    Returns
    -------
    dict
        Under every name the frame's common rows. The order is the same in all of them, and random.

    Examples
    --------
    >>> import unpooled
    >>> clinic = {"patient": ["ada", "ben", "cleo"], "age": [41, 52, 63]}
    >>> lab = {"patient": ["cleo ", "dan", "ada"], "crp": [7.0, 8.0, 9.0]}
    >>> both = unpooled.link({"clinic": clinic, "lab": lab}, on="patient")
    >>> sorted(zip(both["clinic"]["age"].tolist(), both["lab"]["crp"].tolist()))
    [(41, 9.0), (63, 7.0)]
    """
    keys = [_key(one, normalise) for one in ([on] if isinstance(on, str) else on)]
    columns = list(dict.fromkeys(column for key in keys for column in key.columns))
    parties: dict[str, Party] = {}
    cards: list[Card] = []
    tables = {name: Table({column: _text(frame, column) for column in columns}) for name, frame in frames.items()}
    try:
        for name, table in tables.items():
            ledger = Ledger.in_memory()
            cards.append(Card(name, table.n_rows, (), tuple(columns), Identity(ledger.root_key).public))
            policy = Policy.in_process()
            parties[name] = Party(name, table, cards[-1], ledger, KeySource(ledger.root_key), policy, load)
        study = Study("link", tuple(cards), math.inf, 0.0, parameters={"keys": msgspec.to_builtins(keys)}, derived=())
        plan = MODEL.compile(study)
        for name, table in tables.items():
            MODEL.check(plan, name, table)  # here everybody may be told which rows
        found = drive(MODEL, plan, in_process(parties)).result.ids.partition(":")[2]
        return {name: _rows(frames[name], parties[name].keeper.kept(found, ROW_MAP)) for name in frames}
    finally:
        for party in parties.values():
            party.ledger.close()


def _key(one: str | Mapping[str, Any], normalise: Sequence[str]) -> LinkKey:
    """A key as the study has it."""
    told = {"name": one, "columns": [one]} if isinstance(one, str) else dict(one)
    try:
        return msgspec.convert({"normalise": list(normalise), **told}, LinkKey)
    except msgspec.ValidationError as error:
        msg = f"on: {error}. A key is a column, or has name, columns and normalise"
        raise UsageError(msg) from None


def _text(frame: Any, column: str) -> NDArray[Any]:  # noqa: ANN401 - any frame
    """A column of ids; whole numbers as text, so that long ones are not rounded."""
    try:
        values = np.asarray(frame[column])
    except (KeyError, TypeError, IndexError, ValueError):
        values = None
    if values is None or values.dtype.kind not in "iu":
        return table_of(frame, [column])[column]
    return np.array([str(value) for value in values.tolist()], dtype=object)


def _rows(frame: Any, rows: NDArray[np.int64]) -> Any:  # noqa: ANN401 - a frame of the same kind
    """Some rows of a frame, in this order."""
    if hasattr(frame, "iloc"):
        return frame.iloc[rows]
    if isinstance(frame, Mapping):
        return {name: np.asarray(column)[rows] for name, column in frame.items()}
    return frame[rows.tolist()]
