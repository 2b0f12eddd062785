"""Parties with columns of the same people, and a helper: studies of joint moments for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from unpooled.linear.standard import Standard
from unpooled.models import load
from unpooled.models.glm.columns import PullDesign
from unpooled.models.glm.columns_fit import PullFit
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import NoRows, Table
from unpooled.protocol.party import Party

MODEL = load("bayes")
INF = float("inf")


def world(
    parties: int = 2, rows: int = 40, *, helper: bool = True, seed: int = 0
) -> tuple[tuple[Card, ...], dict[str, Table]]:
    """Cards and tables: every party has two numbers and, but for the first, a category; the last one has the response as well."""
    rng = np.random.default_rng(seed)
    cards, tables = [], {}
    signal = np.zeros(rows)
    for k in range(parties):
        values: dict[str, Any] = {f"a{k}": rng.uniform(-1, 1, rows), f"b{k}": rng.uniform(-1, 1, rows)}
        columns = [Column(f"a{k}", -1.0, 1.0), Column(f"b{k}", -1.0, 1.0)]
        signal += values[f"a{k}"]
        if k:
            values[f"c{k}"] = rng.choice(np.array(["u", "v"], dtype=object), rows)
            columns.append(Column(f"c{k}", categories=("u", "v")))
        if k == parties - 1:
            values["y"] = (signal + 0.3 * rng.normal(size=rows)).clip(-4, 4)
            columns.append(Column("y", -4.0, 4.0))
        name = f"p{k}"
        cards.append(Card(name, rows, tuple(columns)))
        tables[name] = Table(values)
    if helper:
        tables["helper"] = NoRows()
    return tuple(cards), tables


def study_of(cards: tuple[Card, ...], epsilon: float = 1.0, *, helper: bool = True, **parameters: Any) -> Study:
    """A study of the columns of these parties, by second moments if nothing else is asked for."""
    asked = {"response": "y", "split": "columns", "method": "moments", **parameters}
    helpers = (HelperCard("helper", "cd" * 32 if cards[0].key else ""),) if helper else ()
    return Study("bayes", cards, epsilon, 1e-6, parameters=asked, derived=(), helpers=helpers)


def people(study: Study, tables: Mapping[str, Table], rules: Policy | None = None) -> dict[str, Party]:
    """All members, with ledgers in memory."""
    found = {}
    for card in study.members:
        ledger = Ledger.in_memory(card.name.encode().ljust(32, b"."))
        keys = KeySource(ledger.root_key)
        found[card.name] = Party(card.name, tables[card.name], card, ledger, keys, rules or Policy.in_process(), load)
    return found


def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[float, ...]], list[np.ndarray], list[PullFit]]:
    """The coefficients and the opened totals of all rounds of the runs that follow, and the fits."""
    at: list[tuple[float, ...]] = []
    values: list[np.ndarray] = []
    fits: list[PullFit] = []
    real = PullFit.take

    def spy(self: PullFit, total: np.ndarray, deviation: float) -> float:
        at.append(self.at)
        values.append(total.copy())
        fits.append(self)
        return real(self, total, deviation)

    monkeypatch.setattr(PullFit, "take", spy)
    return at, values, fits


def standards_of(design: PullDesign, members: Any, plan: Any) -> dict[str, Standard]:
    """The means and deviations that members released in a run."""
    found = {}
    for name in design.scaled:
        keeper = members[name].keeper
        context = type("C", (), {"plan": plan, "name": name, "kept": lambda _, n, k=keeper: k.kept(plan.hash, n)})()
        found[name] = design.standard(context)
    return found
