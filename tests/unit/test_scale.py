"""The bytes of a secure sum are those of the formula in docs/sources.md, to the byte."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party

sys.path.insert(0, str(Path(__file__).parents[2]))


def counted(study: Study, tables: dict[str, Table]) -> tuple[Counter, Counter]:
    """Bytes (to, from) the parties by step."""
    model = load(study.row)
    plan = model.compile(study)
    asked, answered, parties = Counter(), Counter(), {}
    for card in study.parties:
        ledger = Ledger.in_memory()
        parties[card.name] = Party(
            card.name, tables[card.name], card, ledger, KeySource(ledger.root_key), Policy.in_process(), load
        )
    exchange = in_process(parties)

    def counting(batch):
        answers = exchange(batch)
        for (ask, request), answer in zip(batch, answers, strict=True):
            asked[ask.step, ask.index] += len(request)
            answered[ask.step, ask.index] += len(answer)
        return answers

    drive(model, plan, counting)
    for party in parties.values():
        party.ledger.close()
    return asked, answered


@pytest.mark.slow_for("5-2-20", "20-3-1", "17-15-3")
@pytest.mark.parametrize(("parties", "tolerate", "features"), [(3, 0, 2), (5, 2, 20), (17, 15, 3), (20, 3, 1)])
def test_the_bytes_of_a_secure_sum_are_those_of_the_formula(parties: int, tolerate: int, features: int) -> None:
    from experiments.secure_sum_bytes import SecureSum

    names = tuple(f"site{k}" * (1 + 6 * (k % 3)) for k in range(parties))  # short and long ones
    rng = np.random.default_rng(parties)
    columns = tuple(Column(f"x{j}", -3.0, 3.0) for j in range(features + 1))
    tables = {name: Table({c.name: rng.normal(size=30) for c in columns}) for name in names}
    study = Study(
        "bayes",
        tuple(Card(name, 30, columns) for name in names),
        1.0,
        1e-6,
        parameters={"response": "x0", "method": "moments", "tolerate": tolerate},
        derived=(),
    )
    asked, answered = counted(study, tables)
    size = (features + 1) * (features + 2) // 2 + features + 1
    expected = SecureSum("moments", names, max(2, tolerate + 1), size)
    for step in ("fragment", "agree", "total"):
        assert asked[f"moments-{step}", 0] == expected.asked()[step], step
        assert answered[f"moments-{step}", 0] == expected.answered()[step], step
    whole = sum(n for found in (asked, answered) for (step, _), n in found.items() if step.startswith("moments-"))
    assert whole == expected.whole


@pytest.mark.slow
def test_the_bytes_of_rounds_are_those_of_the_formula_too() -> None:
    from experiments.secure_sum_bytes import SecureSum

    names, columns = ("a", "b", "c"), tuple(Column(f"x{j}", -3.0, 3.0) for j in range(3))
    rng = np.random.default_rng(1)
    tables = {name: Table({c.name: rng.normal(size=300) for c in columns}) for name in names}
    cards = tuple(Card(name, 300, columns) for name in names)
    parameters = {"response": "x0", "method": "gradient"}
    asked, answered = counted(Study("bayes", cards, 1.0, 1e-6, parameters=parameters, derived=()), tables)
    rounds = sorted(index for step, index in asked if step == "descent-total")
    assert len(rounds) > 2
    for index in rounds:  # means and deviations of three columns, and three coefficients, go along
        expected = SecureSum("descent", names, 2, 3, index, 9)
        for step in ("fragment", "agree", "total"):
            assert asked[f"descent-{step}", index] == expected.asked()[step]
            assert answered[f"descent-{step}", index] == expected.answered()[step]
