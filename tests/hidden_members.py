"""Two parties whose people in common nobody knows, with the places of a link that was played: studies of hidden people for tests."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from joint_members import INF, study_of, world

from unpooled.privacy.places import Places
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import HeldPlaces, PlacedTable, Table
from unpooled.protocol.identity import Identity

NAME = "hidden:" + "ab" * 32


def key_of(name: str) -> str:
    """The public key of the ledger that :func:`joint_members.people` gives to a member."""
    return Identity(name.encode().ljust(32, b".")).public


def placed_world(
    rows: int = 60, held: tuple[int, int] = (40, 45), places: int = 150, *, seed: int = 1, pads: int = 5
) -> tuple[tuple[Card, ...], dict[str, Table], dict[str, Table], np.ndarray]:
    """Cards, tables at places, the tables of all people, and the people in common, by their row there."""
    cards, tables = world(2, rows=rows, seed=seed)
    rng = np.random.default_rng(seed + 100)
    whose = {name: rng.permutation(rows)[:count] for name, count in zip(("p0", "p1"), held, strict=True)}
    where = rng.permutation(places)
    of_people, left = where[:rows], where[rows:]
    at: dict[str, Table] = {}
    given = {}
    for number, (name, people) in enumerate(whose.items()):
        given[name] = np.sort(np.concatenate([of_people[people], left[number * pads : (number + 1) * pads]]))
        at[name] = PlacedTable(tables[name].take(people), Places(NAME, places, of_people[people], given[name]))
    at["helper"] = HeldPlaces(NAME, given)
    cards = tuple(
        msgspec.structs.replace(card, rows=places, key=key_of(card.name), linked=NAME, capped=True, joint="allowed")
        for card in cards
    )
    return cards, at, tables, np.intersect1d(*whose.values())


def hidden_study(cards: tuple[Card, ...], epsilon: float = INF, *, expected: int = 30, **parameters: Any) -> Study:
    """A study of the people in common of these parties."""
    asked = study_of(cards, epsilon, expected=expected, **parameters)
    return msgspec.structs.replace(asked, ids=NAME, helpers=(HelperCard("helper", key_of("helper")),))
