"""Two parties whose people in common nobody knows, with the places of a link that was played: studies of hidden people for tests."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
from joint_members import INF, study_of, world

from unpooled.privacy.places import Places
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import HeldPlaces, HubTable, PlacedTable, Table
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
    at["helper"] = HeldPlaces(NAME, {pair: given[pair[0]] for pair in itertools.permutations(given, 2)})
    cards = tuple(
        msgspec.structs.replace(card, rows=places, key=key_of(card.name), linked=NAME, capped=True, joint="allowed")
        for card in cards
    )
    return cards, at, tables, np.intersect1d(*whose.values())


def hub_world(
    held: tuple[int, ...] = (30, 20, 25), registry: int = 70, *, seed: int = 1, pads: int = 4
) -> tuple[tuple[Card, ...], dict[str, Table], dict[str, Table], dict[str, np.ndarray]]:
    """Hospitals with people of their own, and a registry that has most of them: cards, tables at places, those of all people, and whom each hospital shares."""
    total = sum(held)
    cards, tables = world(2, rows=total, seed=seed)
    rng = np.random.default_rng(seed + 100)
    known = np.sort(rng.permutation(total)[:registry])
    whose = np.split(rng.permutation(total), np.cumsum(held)[:-1])
    own: dict[str, Table] = {}
    arrays: dict[str, Places] = {}
    given: dict[tuple[str, str], np.ndarray] = {}
    for number, people in enumerate(whose):
        name, size = f"h{number}", total + 2 * pads
        where = rng.permutation(size)
        given[name, "p1"] = np.sort(np.concatenate([where[people], where[total : total + pads]]))
        given["p1", name] = np.sort(np.concatenate([where[known], where[total + pads :]]))
        own[name] = PlacedTable(tables["p0"].take(people), Places(NAME, size, where[people], given[name, "p1"]))
        arrays[name] = Places(NAME, size, where[known], given["p1", name])
    own["p1"] = HubTable(tables["p1"].take(known), arrays)
    own["helper"] = HeldPlaces(NAME, given)
    told = {"linked": NAME, "capped": True, "joint": "allowed"}
    hospitals = [
        msgspec.structs.replace(cards[0], name=name, rows=own[name].n_rows, key=key_of(name), **told) for name in arrays
    ]
    hub = msgspec.structs.replace(cards[1], rows=own["p1"].n_rows, key=key_of("p1"), **told)
    common = {name: np.intersect1d(people, known) for name, people in zip(arrays, whose, strict=True)}
    return (*hospitals, hub), own, tables, common


def hidden_study(cards: tuple[Card, ...], epsilon: float = INF, *, expected: int = 30, **parameters: Any) -> Study:
    """A study of the people in common of these parties."""
    asked = study_of(cards, epsilon, expected=expected, **parameters)
    return msgspec.structs.replace(asked, ids=NAME, helpers=(HelperCard("helper", key_of("helper")),))
