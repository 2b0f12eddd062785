"""Rows are linked by processes that are killed (-9) before, during and after every message: nothing is counted twice, and nothing changes.

Workers are forked from the test, so that dozens of them cost seconds. Each kills itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unpooled.linkage.plan import LinkResult
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.identity import ROW_MAP, Identity, Keeper, MemoryKeeper
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript
from unpooled.study.party import DiskKeeper

pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")
pytestmark = pytest.mark.minutes

MODEL = load("link")
#: Where processes die, turn by turn: an alignment is written down; an answer is computed and kept but not stored, then stored but not sent;
#: the coordinator has recorded it. And how often, of so many messages between so many parties.
DEATHS: dict[tuple[str, ...], Callable[[int, int], int]] = {
    ("aligned",): lambda messages, parties: parties,
    ("computed", "stored"): lambda messages, parties: 2 * messages,
    ("recorded",): lambda messages, parties: messages,
}


def ids_of(party: int) -> list[str]:
    return [f"person-{k}" for k in range(party, party + 5)]


def plan_of(roots: dict[str, bytes]) -> Plan:
    cards = tuple(Card(name, 5, (), ("id",), Identity(root).public) for name, root in roots.items())
    keys = [{"name": "id", "columns": ["id"]}]
    return MODEL.compile(Study("link", cards, math.inf, 0.0, parameters={"keys": keys}, derived=()))


def linked(ledgers: dict[str, Ledger], keepers: dict[str, Keeper], transcript: Transcript | None = None) -> LinkResult:
    plan, parties = plan_of({name: ledger.root_key for name, ledger in ledgers.items()}), {}
    for k, (name, ledger) in enumerate(ledgers.items()):
        table = Table({"id": np.array(ids_of(k), dtype=object)})
        keys = KeySource(ledger.root_key)
        parties[name] = Party(name, table, plan.study.card(name), ledger, keys, Policy.in_process(), load, keepers[name])
    return drive(MODEL, plan, in_process(parties), transcript).result


def work(folder: Path, names: list[str], point: str) -> None:
    """Go on with the study until the first new thing of a kind has happened; then die."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    align, commit, record = Ledger.align, Ledger.commit, Transcript.record

    def dying_align(self: Ledger, *rest: Any, **words: Any) -> None:
        before = self.guesses
        align(self, *rest, **words)
        if point == "aligned" and self.guesses != before:
            die()

    def dying_commit(self: Ledger, *rest: Any, **words: Any) -> None:
        if point == "computed":
            die()
        commit(self, *rest, **words)
        if point == "stored":
            die()

    def dying_record(self: Transcript, *rest: Any) -> None:
        record(self, *rest)
        if point == "recorded":
            die()

    Ledger.align, Ledger.commit, Transcript.record = dying_align, dying_commit, dying_record
    with contextlib.ExitStack() as stack:
        ledgers = {name: stack.enter_context(Ledger.open(folder / f"{name}.ledger")) for name in names}
        keepers: dict[str, Keeper] = {name: DiskKeeper(folder / f"{name}.kept") for name in names}
        linked(ledgers, keepers, Transcript.open(folder / "transcript"))


def ended(folder: Path, names: list[str], point: str) -> int:
    child = os.fork()
    if not child:
        code = 1
        try:
            work(folder, names, point)
            code = 0
        except BaseException:  # a child of pytest must not run the rest of the tests
            sys.settrace(None)
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.long_for("computed-stored-3", "computed-stored-4", "computed-stored-2", "recorded-3", "recorded-4")
@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("points", DEATHS, ids="-".join)
def test_processes_killed_at_every_message_link_the_same_rows_in_the_end(
    points: tuple[str, ...], count: int, tmp_path: Path
) -> None:
    names = [f"p{k}" for k in range(count)]
    roots = {}
    for name in names:
        with Ledger.create(tmp_path / f"{name}.ledger") as ledger:
            roots[name] = ledger.root_key
    deaths, code = 0, -9
    while code == -9:
        code = ended(tmp_path, names, points[deaths % len(points)])
        deaths += code == -9
        assert deaths < 500
    assert code == 0

    # The same without a death.
    whole, memory = Transcript(), {name: MemoryKeeper() for name in names}
    calm = {name: Ledger.in_memory(root) for name, root in roots.items()}
    result = linked(calm, dict(memory), whole)
    with contextlib.ExitStack() as stack:
        ledgers = {name: stack.enter_context(Ledger.open(tmp_path / f"{name}.ledger")) for name in names}
        found = Transcript.open(tmp_path / "transcript")
        stack.callback(found.close)
        assert [(e.to, e.request, e.reply) for e in found.entries] == [(e.to, e.request, e.reply) for e in whole.entries]
        assert deaths == DEATHS[points](len(whole.entries), count)
        for name, ledger in ledgers.items():
            assert ledger.guesses == calm[name].guesses == 5 * (count - 1)
            rows = DiskKeeper(tmp_path / f"{name}.kept").kept(result.ids[4:], ROW_MAP)
            assert rows.tolist() == memory[name].kept(result.ids[4:], ROW_MAP).tolist()
    people = [[ids_of(k)[row] for row in memory[name].kept(result.ids[4:], ROW_MAP)] for k, name in enumerate(names)]
    assert all(one == people[0] for one in people)
    assert set(people[0]) == set.intersection(*(set(ids_of(k)) for k in range(count)))
    for ledger in calm.values():
        ledger.close()
