"""Columns at several parties in one process: who holds which, how frames of different people are linked, and how columns are joined under masks."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np

from unpooled.errors import DataError, UsageError, listed
from unpooled.estimation.hidden import HIDDEN_ROWS, HiddenLink, HiddenLinkage, HiddenRows
from unpooled.estimation.tables import columns_of, part, rows_of, table_of
from unpooled.linkage import MODEL
from unpooled.linkage.plan import LinkKey
from unpooled.privacy.declared import PROOF, CheckWord, says
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource, seed_of
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.table import Table
from unpooled.protocol.identity import ROW_MAP, Identity
from unpooled.protocol.local import columns_of_parties, drive, in_process
from unpooled.protocol.party import Party

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column

    #: What rows are linked by: the column with the ids, several keys, or a hidden link.
    On = str | Sequence[str | Mapping[str, Any]] | HiddenLink
    #: A frame of pandas or polars, or a mapping from names to columns, of every party.
    Frames = Mapping[str, Any]


# --- Linking ---------------------------------------------------------------------------------------------------------------
# Frames of several parties to the rows of those whom all of them have, by the messages that parties on a network exchange.


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
        study = Study(MODEL.name, tuple(cards), math.inf, 0.0, parameters={"keys": msgspec.to_builtins(keys)}, derived=())
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


def keys_of_study(on: On, normalise: Sequence[str]) -> list[LinkKey]:
    """Return the keys as a study has them; of a hidden link none, whose places are known."""
    if isinstance(on, HiddenLink):
        return []
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


# --- Linkable --------------------------------------------------------------------------------------------------------------
# Who holds which columns, and estimators of columns whose parties have different people in different orders: frames in, linked, fitted.

#: Fewer people than these are in no study.
_FEWEST = 2


@dataclass(frozen=True)
class Linkage:
    """The result of linking the frames of several parties, which the parties learned without noise. It holds no id."""

    #: How many people all parties have, and how many of them each key matched.
    rows: int
    passes: tuple[int, ...]
    #: The name of the parties' row maps, as the study of the fit says it.
    ids: str
    #: Of each party the columns of its frame that were fitted.
    columns: dict[str, tuple[str, ...]]
    #: Of each party how many ids the others could try out on it.
    guesses: dict[str, int]
    #: Parties whose frame has no response: they were handed that of the linked rows, as ``fit(X, y)`` hands it to everybody.
    handed: tuple[str, ...]
    words: tuple[str, ...]

    def __str__(self) -> str:
        tried = ", ".join(f"{name} {count}" for name, count in self.guesses.items())
        lines = [f"{self.rows} people are at every party", *self.words, f"Ids that the others could try out: {tried}."]
        if self.handed:
            lines.append(f"The response of these people was handed to {', '.join(self.handed)}, whose frame has none.")
        return "\n".join(lines)


class Linkable:
    """The part of an estimator that knows who holds which columns, and takes frames of parties with different people in different orders."""

    parties: Any
    delta: float | None
    random_state: int | None
    linkage_: Linkage | HiddenLinkage
    #: Root keys of the parties between linking and the run: both are one party's. No file and no copy has them.
    _roots: ClassVar[str] = "_linked_roots"

    def __getstate__(self) -> dict[str, Any]:
        """Without root keys, which a fit that failed after linking leaves behind until the next one."""
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name not in {self._roots, HIDDEN_ROWS}}

    def _joined(self, X: Any, y: Any, on: On | None, *more: Any) -> tuple[Any, ...]:  # noqa: ANN401 - whatever a user passes
        """Rows, response and what belongs to it, as they are, or where ``on`` names keys those of the people whom all frames have.

        ``y`` and what belongs to it are then names of columns.
        """
        for name in ("linkage_", self._roots, HIDDEN_ROWS):
            vars(self).pop(name, None)
        if on is None:
            # A sparse matrix of keys is a mapping too, and has a shape.
            if (
                isinstance(X, Mapping)
                and not hasattr(X, "shape")
                and len(X)
                and all(isinstance(frame, Mapping) or hasattr(frame, "columns") for frame in X.values())
            ):
                raise UsageError(
                    "X holds frames of several parties: say on=, the column with the ids by which their rows are linked"
                )
            return X, y, *more
        if not isinstance(X, Mapping):
            raise UsageError("with on=, X is a mapping from the parties' names to their frames")
        if not all(isinstance(name, str) for name in (y, *(one for one in more if one is not None))):
            raise UsageError("with on=, the response is the name of its column in the frames, for rows have no order yet")
        return self._of_frames(X, on, y, more)

    def _of_frames(self, frames: Mapping[str, Any], on: On, y: str, more: tuple[str | None, ...]) -> tuple[Any, ...]:
        import polars as pl

        labels = [y, *(one for one in more if one is not None)]
        if isinstance(on, HiddenLink):
            on.check(frames)
            columns = self._columns_of(HiddenRows.seen(frames, on), {*on.columns, *labels}, y)
            hidden = HiddenRows.of(frames, on, columns, y)
            vars(self)[HIDDEN_ROWS], self.linkage_ = hidden, hidden.linkage()
            return hidden.features(), *hidden.told(labels, (y, *more))
        columns = self._columns_of(frames, {*key_columns(keys_of_study(on, ())), *labels}, y)
        linked = link_rows(frames, on, seed=seed_of(self.random_state))
        count = next(iter(linked.rows.values())).size
        if count < _FEWEST:
            msg = f"the parties have {count} people in common: at least {_FEWEST} are needed for a fit"
            raise DataError(msg)
        taken = {name: rows_of(frame, linked.rows[name]) for name, frame in frames.items()}
        told = [None if one is None else _agreed(taken, one) for one in (y, *more)]
        held = {name: table_of(taken[name], own) for name, own in columns.items() if own}
        features = {column: _plain(held[name][column]) for name, own in columns.items() for column in own}
        told_to = () if getattr(self, "_response_stays", False) else getattr(self, "estimating", None) or frames
        handed = tuple(name for name in frames if name in told_to and not set(labels) <= set(columns_of(frames[name])))
        self.linkage_ = Linkage(
            int(count),
            linked.passes,
            linked.ids,
            {name: tuple(own) for name, own in columns.items()},
            linked.guesses,
            handed,
            linked.words,
        )
        vars(self)[self._roots] = linked.roots
        return pl.DataFrame(features), *told

    def _columns_of(self, frames: Mapping[str, Any], apart: set[str], y: str) -> dict[str, list[str]]:
        """Which columns of every frame are fitted: those that ``parties`` names, or all but keys and response."""
        if isinstance(self.parties, Mapping):
            if set(self.parties) != set(frames):
                msg = f"parties names {listed([str(name) for name in self.parties])}, and X has frames of {listed(list(frames))}"
                raise UsageError(msg)
            found = {name: [str(column) for column in self.parties[name]] for name in frames}
        else:
            found = {name: [one for one in columns_of(frame) if one not in apart] for name, frame in frames.items()}
        for name, own in found.items():
            missing = [column for column in own if column not in columns_of(frames[name]) or column in apart]
            alone = getattr(self, "_response_stays", False) and y in columns_of(frames[name])  # it has the response
            if missing or not (own or alone):
                what = f"has no column {missing[0]!r} beside keys and response" if missing else "has no column to fit"
                msg = f"the frame of {name!r} {what}"
                raise UsageError(msg)
        every = [column for own in found.values() for column in own]
        twice = [column for column in every if every.count(column) > 1]
        if twice:
            msg = (
                f"column {twice[0]!r} stands in two frames: rename it, or say which columns are fitted, "
                "parties={name: columns, ..}"
            )
            raise UsageError(msg).at(column=twice[0])
        return found

    def _who(self, names: Sequence[str]) -> int | Mapping[str, Sequence[int | str]]:
        """Who holds these columns: as the frames of the fit said that had them, else as ``parties`` does."""
        linkage: Linkage | HiddenLinkage | None = vars(self).get("linkage_")
        framed = linkage is not None and sorted(c for own in linkage.columns.values() for c in own) == sorted(names)
        who: int | Mapping[str, Sequence[int | str]] = linkage.columns if linkage is not None and framed else self.parties
        return who

    def _groups(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Which columns each party holds (columns split)."""
        parties = self._who(names)
        if isinstance(parties, Mapping):
            return columns_of_parties(parties, names)
        if not 1 <= parties <= len(names):
            msg = (
                f"parties must be at least 1 and at most the number of columns (n_features = {len(names)}), "
                "or a mapping from names to columns"
            )
            raise UsageError(msg)
        return columns_of_parties(int(parties), names)

    def _as_linked(self, study: Study, tables: Mapping[str, Table]) -> tuple[Study, dict[str, bytes], Mapping[str, Table]]:
        """Return the study as it is of linked rows: it names their row map, and its cards carry keys. The members' root keys, and their tables."""
        roots: dict[str, bytes] = vars(self).pop(self._roots, {})
        hidden: HiddenRows | None = vars(self).pop(HIDDEN_ROWS, None)
        if hidden is not None:
            study, placed = hidden.applied(study, given=self.delta is not None)
            return study, {}, placed
        if not roots:
            return study, roots, tables
        # A helper takes no part in linking: it gets a key now, for all members of a study have one, or none has.
        roots |= {helper.name: root_of(helper.name, study.simulation_seed) for helper in study.helpers}
        keyed = {card.name: msgspec.structs.replace(card, key=Identity(roots[card.name]).public) for card in study.members}
        cards = tuple(keyed[card.name] for card in study.parties)
        helpers = tuple(keyed[card.name] for card in study.helpers)
        study = msgspec.structs.replace(study, parties=cards, helpers=helpers, ids=self.linkage_.ids)
        for table in tables.values():
            table.linked = study.linked
        return study, roots, tables


def _agreed(taken: Mapping[str, Any], column: str) -> NDArray[Any]:
    """Return a column of the linked rows, which all frames that have it must tell alike."""
    held = [np.asarray(frame[column]) for frame in taken.values() if column in columns_of(frame)]
    if not held:
        msg = f"no frame has a column {column!r}: y names the column with the response"
        raise UsageError(msg)
    if not all(np.array_equal(held[0], other) for other in held[1:]):
        msg = f"the frames that have column {column!r} do not tell the same of the people whom all have: correct it, or leave it in one of them"
        raise DataError(msg)
    return held[0]


def _plain(values: NDArray[Any]) -> Any:  # noqa: ANN401
    """Return a column as a frame takes it."""
    return values.tolist() if values.dtype == object else values


# --- Joint -----------------------------------------------------------------------------------------------------------------
# Parties in one process whose columns are joined under masks: their cards and tables, who holds the response, and the helper.


class UnderMasks:
    """What every call takes whose parties join their columns under masks."""

    helpers: Annotated[
        int,
        says(
            "Of joint sums, whether an outside organisation knows the masks: 1 or 0. With 0 there are three parties or more, who help each other."
        ),
    ] = 1
    response_at: Annotated[
        str | None,
        says("Of joint sums, who holds the response; None is the first party, or of frames the one that has it."),
    ] = None
    check: CheckWord = PROOF


#: The name of the helper of parties in one process.
_HELPER = "(helper)"


def holder_of(groups: Mapping[str, Sequence[str]], response_at: str | None) -> str:
    """Return the party that holds the response: as ``response_at`` says, else the first."""
    holder = next(iter(groups)) if response_at is None else response_at
    if holder not in groups:
        msg = f"response_at must be one of the parties, {listed(list(groups))}, not {holder!r}"
        raise UsageError(msg)
    return holder


def held_by(frames: Any, y: Any, response_at: str | None) -> str:  # noqa: ANN401 - whatever a user passes
    """Return whose frame has the response; refuse frames of which two or none have it, or another one than ``response_at`` says."""
    held = [name for name, frame in frames.items() if y in columns_of(frame)]
    if len(held) != 1 or response_at not in {None, held[0]}:
        where = f"{listed(held)} have it" if held else "none has it"
        msg = f"the response {y!r} must be a column of one frame (of {response_at!r}, if response_at says so): {where}"
        raise UsageError(msg)
    return str(held[0])


def joint_cards(
    groups: Mapping[str, Sequence[str]],
    declared: Sequence[Column],
    response: Column | None,
    rows: int,
    holder: str,
    check: str,
    beside: tuple[Column, ...] = (),
) -> tuple[Card, ...]:
    """Return the cards of parties that each hold some of the declared columns, and the holder of the response with it and what stands beside it."""
    from unpooled.privacy.declared import PROOF

    columns = {column.name: column for column in declared}
    joint = ALLOWED if check == PROOF else TRUSTING
    return tuple(
        Card(
            name,
            rows,
            (*(columns[own] for own in held), *([*beside, response] if response is not None and name == holder else [])),
            joint=joint,
        )
        for name, held in groups.items()
    )


def helped(study: Study, helpers: int) -> Study:
    """Return the study with this number of helpers that hold no data."""
    if helpers not in {0, 1}:
        raise UsageError(
            "helpers must be 1 (an organisation without data) or 0 (three parties or more help each other): three helpers have no proof yet"
        )
    return msgspec.structs.replace(study, helpers=(HelperCard(_HELPER),) * helpers)


def joint_tables(
    study: Study, features: Table, response: NDArray[Any] | None, beside: Mapping[str, NDArray[Any]] | None = None
) -> dict[str, Table]:
    """Return the table of every party, the response and what stands beside it at its holder alone."""
    told = part(features, features.names, response)
    whole = {name: told[name] for name in told.names} | dict(beside or {})
    return {card.name: Table({column.name: whole[column.name] for column in card.columns}) for card in study.parties}
