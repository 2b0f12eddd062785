"""Parties with ids that link their rows in this process, for the tests of linking."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unpooled.linkage.plan import LinkResult
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.identity import ROW_MAP, Identity, MemoryKeeper
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import encode
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript

MODEL = load("link")
ONE = ({"name": "id", "columns": ["id"]},)


@dataclass
class World:
    """Parties with ids, and what they keep over crashes: ledger and kept values."""

    tables: dict[str, Table]
    keys: tuple[dict[str, Any], ...] = ONE
    policy: Policy = field(default_factory=Policy.in_process)
    run: int = 1
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    keepers: dict[str, MemoryKeeper] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for k, name in enumerate(self.tables):
            self.ledgers.setdefault(name, Ledger.in_memory(bytes([k + 1]) * 32))
            self.keepers.setdefault(name, MemoryKeeper())

    @property
    def study(self) -> Study:
        cards = tuple(
            Card(name, table.n_rows, (), table.names, Identity(self.ledgers[name].root_key).public)
            for name, table in self.tables.items()
        )
        return Study("link", cards, math.inf, 0.0, parameters={"keys": list(self.keys)}, run=self.run, derived=())

    @property
    def plan(self) -> Plan:
        return MODEL.compile(self.study)

    def parties(self) -> dict[str, Party]:
        return {
            card.name: Party(
                card.name,
                self.tables[card.name],
                card,
                self.ledgers[card.name],
                KeySource(self.ledgers[card.name].root_key),
                self.policy,
                load,
                self.keepers[card.name],
            )
            for card in self.study.parties
        }

    def link(self, exchange: Any = None, transcript: Transcript | None = None) -> LinkResult:
        return drive(MODEL, self.plan, exchange or in_process(self.parties()), transcript).result

    def linked(self, result: LinkResult, column: str = "id") -> dict[str, list[Any]]:
        """Of every party its ids in the order of its row map."""
        name = result.ids.removeprefix("psi:")
        return {
            party: [self.tables[party][column][row] for row in self.keepers[party].kept(name, ROW_MAP)]
            for party in self.tables
        }


def world(*sets: Any, **more: Any) -> World:
    return World({f"p{k}": Table({"id": np.array(list(ids), dtype=object)}) for k, ids in enumerate(sets)}, **more)


def words(*numbers: int) -> list[str]:
    return [f"person-{n}" for n in numbers]


def altered(made: World, step: str, change: Any, to: str | None = None) -> Any:
    """An exchange whose coordinator changes what it asks of one step."""
    parties = made.parties()

    def exchange(batch: Any) -> Any:
        requests = []
        for ask, request in batch:
            payload = change(ask.payload) if ask.step == step and to in (None, ask.to) else ask.payload
            requests.append(
                (ask, encode(made.plan.hash, ask.step, ask.index, payload) if payload is not ask.payload else request)
            )
        return in_process(parties)(requests)

    return exchange
