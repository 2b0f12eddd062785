"""Files of a party after a study that linked its rows: the party file and the card with which it takes part in later ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import StudyError
from unpooled.linkage.plan import MAP_NAME
from unpooled.study.files import read_party, read_study, write_card, write_party
from unpooled.study.party import keeper_of, open_party, place_in, section_in
from unpooled.study.rules import policy_of
from unpooled.study.run import compile_study

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan


def map_of(config: Path, plan: Plan) -> str:
    """Return the name of the row map that a party keeps of a plan."""
    keeper = keeper_of(config)
    if not keeper.has(plan.hash, MAP_NAME):
        msg = f"{config}: this party keeps no row map of plan {plan.hash[:16]}: run the study first"
        raise StudyError(msg)
    return keeper.kept(plan.hash, MAP_NAME).tobytes().hex()


def linked_party(config: Path, study: Path, folder: Path) -> tuple[Path, Path]:
    """Write a party file and a card of the linked rows: the same data, ledger, key and policy, fewer rows in another order."""
    text, name = read_party(config), map_of(config, compile_study(read_study(study)))
    own, new, card = text.party, folder / "party.toml", folder / f"{text.party.name}.card.toml"
    for path in (new, card):
        if path.exists():
            msg = f"{path} exists already: choose another folder"
            raise StudyError(msg)
    place = place_in(config.parent, text)
    party = msgspec.structs.replace(
        own,
        data=os.path.relpath(place, folder) if isinstance(place, Path) else own.data,
        ledger=os.path.relpath(config.parent / own.ledger, folder),
        linked=name,
    )
    budget = policy_of(text.policy).budget
    assert budget is not None  # a party file always has one
    folder.mkdir(parents=True, exist_ok=True)
    new.write_text(
        write_party(
            party,
            text.columns,
            budget,
            text.format,
            source=section_in(place, folder),
            engine=text.engine.moved(config.parent, folder),
        )
    )
    try:
        with open_party(new) as opened:
            card.write_text(write_card(msgspec.structs.replace(opened.declared)))
    except BaseException:
        new.unlink()  # too few people for a study, or other data
        raise
    return new, card
