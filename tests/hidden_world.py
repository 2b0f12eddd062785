"""Parties with ids and a helper who link their rows without telling anybody whose they are, in this process, for the tests of hidden linking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from unpooled.linkage.hidden import cells
from unpooled.linkage.hidden.places import places_of
from unpooled.linkage.hidden.plan import HiddenResult
from unpooled.linkage.plan import usable_keys_of
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.places import Places
from unpooled.privacy.plan import Card, HelperCard, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import NoRows, Table
from unpooled.protocol.identity import Identity, MemoryKeeper
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import encode
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript

MODEL = load("link")
HELPER = "matcher"
#: Planted entries of a cell in tests that are not about them.
FEW = 6


@dataclass
class HiddenWorld:
    """Parties with ids, a helper, and what they keep over crashes: ledger and kept values."""

    ids: Mapping[str, Sequence[Any]]
    cap: int = 12
    epsilon: float = 8.0
    hub: str = ""
    run: int = 1
    keys: tuple[dict[str, Any], ...] = ({"name": "id", "columns": ["id"]},)
    policy: Policy = field(default_factory=Policy.in_process)
    more: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    keepers: dict[str, MemoryKeeper] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for k, name in enumerate((*self.ids, HELPER)):
            root = bytes([k + 1]) * 31 + bytes([self.seed])
            self.ledgers.setdefault(name, Ledger.in_memory(root))
            self.keepers.setdefault(name, MemoryKeeper())

    def key_of(self, name: str) -> str:
        return Identity(self.ledgers[name].root_key).public

    @property
    def tables(self) -> dict[str, Table]:
        return {name: Table({"id": np.array(list(own), dtype=object)}) for name, own in self.ids.items()}

    @property
    def study(self) -> Study:
        cards = tuple(Card(name, self.cap, (), ("id",), self.key_of(name), capped=True) for name in self.ids)
        asked = {"keys": list(self.keys), "reveal": "nothing", **self.more}
        asked |= {"hub": self.hub, "several": "one"} if self.hub else {}
        helpers = (HelperCard(HELPER, self.key_of(HELPER)),)
        return Study("link", cards, self.epsilon, 1e-6, parameters=asked, run=self.run, helpers=helpers, derived=())

    @property
    def plan(self) -> Plan:
        return MODEL.compile(self.study)

    def parties(self) -> dict[str, Party]:
        tables = self.tables
        return {
            card.name: Party(
                card.name,
                tables.get(card.name, NoRows()),
                card,
                self.ledgers[card.name],
                KeySource(self.ledgers[card.name].root_key),
                self.policy,
                load,
                self.keepers[card.name],
            )
            for card in self.study.members
        }

    def link(self, exchange: Any = None, transcript: Transcript | None = None) -> HiddenResult:
        result: HiddenResult = drive(MODEL, self.plan, exchange or in_process(self.parties()), transcript).result
        return result

    def places(self, result: HiddenResult) -> dict[str, dict[str, Places]]:
        """Of every party its places by the party with whom it has them in common."""
        return {name: places_of(self.keepers[name], result.ids) for name in self.ids}

    def at(self, result: HiddenResult, party: str, other: str) -> dict[bytes, int]:
        """Where the people of a party lie in its array with another one."""
        keys = usable_keys_of([list(self.ids[party])], ("strip",), "id")
        rows = self.places(result)[party][other].rows.tolist()
        return {key: place for key, place in zip(keys, rows, strict=True) if key is not None}


def hidden(*lists: Sequence[Any], **more: Any) -> HiddenWorld:
    return HiddenWorld({f"p{k}": list(own) for k, own in enumerate(lists)}, **more)


def words(*numbers: int) -> list[str]:
    return [f"person-{n}" for n in numbers]


def altered(made: HiddenWorld, to: str, step: str, change: Callable[[Any], Any], index: int = 0) -> Any:
    """An exchange whose coordinator asks one member something else at one place."""
    parties = made.parties()

    def exchange(batch: Any) -> Any:
        changed = []
        for ask, request in batch:
            if (ask.to, ask.step, ask.index) == (to, step, index):
                changed.append((ask, encode(made.plan.hash, step, index, change(ask.payload))))
            else:
                changed.append((ask, request))
        return in_process(parties)(changed)

    return exchange


def plant_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant few entries: lists are short, and a run takes a tenth of a second."""
    monkeypatch.setattr(cells, "_TUNED", cells._TUNED.but(planted=FEW))
