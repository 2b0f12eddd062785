"""``unpooled.link``: frames in, frames with the same people in the same order out; and the files of a party whose rows a study linked."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import StudyError
from unpooled.estimation.columns import link_rows
from unpooled.estimation.tables import rows_of
from unpooled.linkage.plan import MAP_NAME
from unpooled.privacy.study import HIDDEN, LINKED
from unpooled.protocol.identity import MAP_DATA
from unpooled.study.files import policy_home, read_party, read_study, write_card, write_party
from unpooled.study.party import keeper_of, open_party, place_in, section_in
from unpooled.study.run import compile_study

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from unpooled.privacy.plan import Plan


# --- Link ------------------------------------------------------------------------------------------------------------------
# ``unpooled.link``: frames in, frames with the same people in the same order out, by the messages that parties on a network exchange.


def link(
    frames: Mapping[str, Any],
    on: str | Sequence[str | Mapping[str, Any]],
    *,
    normalise: Sequence[str] = ("strip",),
) -> dict[str, Any]:
    """Return the rows of people whom all frames have, in the same order everywhere.

    All of it happens in this process, by the very messages that parties on a network exchange: a rehearsal, and a way to prepare files for
    estimators of columns of the same people. The caller holds all the frames, so that nothing is kept from anybody here.

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
    linked = link_rows(frames, on, normalise)
    return {name: rows_of(frame, linked.rows[name]) for name, frame in frames.items()}


# --- Linked party ----------------------------------------------------------------------------------------------------------
# Files of a party after a study that linked its rows: the party file and the card with which it takes part in later ones.

#: No party links its rows more often than this into folders that nobody named.
_MOST = 1000


def map_of(config: Path, plan: Plan) -> str:
    """Return the name of the row map that a party keeps of a plan."""
    keeper = keeper_of(config)
    if not keeper.has(plan.hash, MAP_NAME):
        msg = f"{config}: this party keeps no row map of plan {plan.hash[:16]}: run the study first"
        raise StudyError(msg)
    return keeper.kept(plan.hash, MAP_NAME).tobytes().hex()


def linked_name(config: Path, plan: Plan) -> str:
    """Return what party files and cards of the linked rows call them: the row map by its digits, places of a hidden link behind a word that says so."""
    return f"{HIDDEN if plan.hides else ''}{map_of(config, plan)}"


def ids_of(config: Path, plan: Plan) -> str:
    """Return what later studies of the linked rows say under ``ids``."""
    name = linked_name(config, plan)
    return name if plan.hides else f"{LINKED}{name}"


def linked_party(config: Path, study: Path, folder: Path) -> tuple[Path, Path]:
    """Write a party file and a card of the linked rows: the same data, ledger, key and policy, fewer rows in another order.

    After a hidden link they are all rows as they stand, with the name of their places.
    """
    text, name = read_party(config), linked_name(config, compile_study(read_study(study)))
    own, new, card = text.party, folder / "party.toml", folder / f"{text.party.name}.card.toml"
    if new.exists():
        msg = f"{new} exists already: choose another folder"
        raise StudyError(msg)
    place = place_in(config.parent, text)
    party = msgspec.structs.replace(
        own,
        data=os.path.relpath(place, folder) if isinstance(place, Path) else own.data,
        ledger=os.path.relpath(config.parent / own.ledger, folder),
        linked=name,
        policy_of=os.path.relpath(policy_home(config), folder),
    )
    folder.mkdir(parents=True, exist_ok=True)
    source, engine = section_in(place, folder), text.engine.moved(config.parent, folder)
    made = folder / f"party.toml.{secrets.token_hex(8)}.tmp"
    made.write_text(write_party(party, text.columns, None, text.format, source=source, engine=engine))
    try:
        with open_party(made) as opened:
            said = write_card(opened.declared)
        if card.exists() and card.read_text() != said:
            msg = f"{card} exists already: choose another folder"
            raise StudyError(msg)
        card.write_text(said)
        made.replace(new)  # last: a folder with a party file is a whole one
    finally:
        made.unlink(missing_ok=True)  # too few people for a study, or other data
    return new, card


def folder_of(config: Path, plan: Plan, folder: str | None) -> tuple[Path, bool]:
    """Return the folder of a party's linked rows by this plan, and True if its files are there already: nothing is ever overwritten.

    Without a name the folder is the first of linked, linked-2, linked-3 and so on that holds no rows of another linking.
    """
    keeper = keeper_of(config)
    name = linked_name(config, plan) if keeper.has(plan.hash, MAP_NAME) else ""
    for word in ("linked", *(f"linked-{k}" for k in range(2, _MOST))) if folder is None else (folder,):
        target = config.parent / word
        there = target / "party.toml"
        if not there.exists():
            return target, False
        if name and read_party(there).party.linked == name:
            return target, True
    msg = f"{there} holds the rows of another linking, and nothing is overwritten: name a new folder with --folder"
    raise StudyError(msg)


def check_same_data(config: Path, plan: Plan) -> None:
    """Refuse to link the rows of a plan again that linked other data: its row map would name the people of the old file."""
    keeper = keeper_of(config)
    if not keeper.has(plan.hash, MAP_NAME):
        return
    name = map_of(config, plan)
    with open_party(config) as party:
        if keeper.kept(name, MAP_DATA).tobytes() == party.table.digest:
            return
    run = plan.study.run + 1
    msg = (
        f"{config}: the data have changed since this study linked their rows, so its row map names other people. To link the new data, write "
        f"run = {run} under [study] (with the cards that `unpooled party card` writes): it is another linking, which every party approves, and "
        "which counts against psi_runs of its policy"
    )
    raise StudyError(msg)
