"""The noise of every case: it is there, with the planned law, under every key. A replay with frozen noise cannot see noise that is absent.

Every case runs under many root keys, with real (not simulated) keys. Each mechanism's statistic and answer are written down at the mechanism itself.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import pytest

from unpooled.audit.presence import audit_noise
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import MECHANISMS, DistributedGaussian, GaussianRelease, Mechanism, Objective
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Split
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party
from unpooled.testing.cases import Case, parties, sized

KEYS = 12


@dataclass
class DrawnAct:
    """Hold one act of a mechanism: the mechanism, its stream, its statistic and its answer."""

    mechanism: Any
    stream: bytes
    given: Any
    gave: np.ndarray
    perturbation: np.ndarray | None = None


@dataclass
class Notes:
    """Hold all acts of one run, in order, and all streams that were derived."""

    drawn: list[DrawnAct] = field(default_factory=list)
    streams: dict[tuple[Any, ...], list[bytes]] = field(default_factory=lambda: defaultdict(list))


@contextmanager
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    notes = Notes()

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def act(self: Any, given: Any, bits: Stream) -> Any:
            perturbation = []
            if isinstance(given, Objective):
                solve = given.solve
                given = replace(given, solve=lambda b: (perturbation.append(b.copy()), solve(b))[1])
            gave = original(self, given, bits)
            values = None if isinstance(given, Objective) else np.copy(given.values)
            notes.drawn.append(DrawnAct(self, bits.key, values, np.asarray(gave), *perturbation))
            return gave

        return act

    stream = KeySource.stream

    def streamed(self: KeySource, *names: str | int | bytes, content: bytes = b"") -> Stream:
        made = stream(self, *names, content=content)
        notes.streams[names].append(made.key)
        return made

    with monkeypatch.context() as patch:
        for kind in MECHANISMS:
            patch.setattr(kind, "draw", watched(kind.draw))
        patch.setattr(KeySource, "stream", streamed)
        yield notes


def run(case: Case, seed: int, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Table] | None = None) -> Notes:
    """Run the case once, with root keys that follow from ``seed`` and the party's place."""
    model = load(case.model)
    study = msgspec.structs.replace(case.study, simulation_seed=None)
    people = {}
    for card in study.members:
        ledger = Ledger.in_memory(sha256(f"{seed} {card.name}".encode()).digest())
        table = (tables or case.tables)[card.name]
        people[card.name] = Party(card.name, table, card, ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    with noted(monkeypatch) as notes:
        drive(model, model.compile(study), in_process(people))
    return notes


@pytest.fixture
def runs(case: Case, monkeypatch: pytest.MonkeyPatch) -> list[Notes]:
    return [run(case, seed, monkeypatch) for seed in range(KEYS)]


def deviations(drawn: DrawnAct) -> np.ndarray | None:
    """Return the noise of an act in standard deviations of the planned law; None if the act adds nothing to a vector."""
    mechanism = drawn.mechanism
    if isinstance(mechanism, GaussianRelease | DistributedGaussian):
        # Rounding to an integer adds a variance of 1/12 to a rounded Gaussian.
        steps = np.concatenate([np.full(block.size, mechanism._step(block)) for block in mechanism.blocks])
        rounding = 1 / 12 if isinstance(mechanism, GaussianRelease) else 0.0
        return (drawn.gave - mechanism.floor(drawn.given)) / np.sqrt(steps**2 + rounding)
    return None


def test_noise_has_the_planned_law_and_differs_between_keys(case: Case) -> None:
    assert not audit_noise(load(case.model), case.study, case.tables, registry=load, keys=KEYS)


def test_every_act_has_a_key_of_its_own_in_every_run(runs: list[Notes]) -> None:
    keys = [drawn.stream for notes in runs for drawn in notes.drawn]
    assert keys
    assert len(set(keys)) == len(keys)


def test_another_statistic_under_the_same_key_gets_unrelated_noise(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two answers of one ledger that was rolled back must not differ by the change of the data alone."""
    changed = dict(case.tables)
    for card in case.study.parties:
        column = next(c for c in card.columns if c.low is not None)
        table = case.tables[card.name]
        values = {column.name: column.low}
        for label in card.labels:
            values[label] = next(
                each for each in table[label].tolist() if each != table[label][0]
            )  # one that fits its family
        changed[card.name] = table.replace(0, values).replace(1, {column.name: column.high})
    products, count = 0.0, 0
    for seed in range(sized(KEYS, 4)):
        one, other = run(case, seed, monkeypatch), run(case, seed, monkeypatch, changed)
        again = run(case, seed, monkeypatch)
        assert [d.gave.tobytes() for d in again.drawn] == [d.gave.tobytes() for d in one.drawn]
        known = {d.stream: d for d in one.drawn}
        for drawn in other.drawn:  # a key that both worlds have belongs to one and the same statistic
            if drawn.stream in known:
                assert drawn.given is not None
                assert np.array_equal(drawn.given, known[drawn.stream].given)
        for first, second in zip(one.drawn, other.drawn, strict=False):
            z, y = deviations(first), deviations(second)
            if z is not None and y is not None and z.size == y.size and first.stream != second.stream:
                products, count = products + float(z @ y), count + z.size
            if first.perturbation is not None and second.perturbation is not None:
                assert not np.array_equal(first.perturbation, second.perturbation)
    assert abs(products) < 6 * np.sqrt(count) or not count


def test_two_parties_with_equal_data_draw_different_noise_even_in_a_simulation(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of a simulation are the same everywhere, so the party's name alone makes them different."""
    model = load(case.model)
    if model.compile(case.study).split is Split.VERTICAL:
        pytest.skip("parties of a vertical study hold different columns")
    first = case.study.parties[0]
    cards = tuple(msgspec.structs.replace(first, name=card.name) for card in case.study.parties)
    study = msgspec.structs.replace(case.study, parties=cards)
    people = {}
    for card in cards:
        ledger = Ledger.in_memory(bytes(32))
        table = case.tables[first.name]
        people[card.name] = Party(card.name, table, card, ledger, KeySource(bytes(32)), Policy.in_process(), load)
    with noted(monkeypatch) as notes:
        drive(model, model.compile(study), in_process(people))
    added = [(d.given.tobytes(), deviations(d)) for d in notes.drawn]
    equal = [(a, b) for k, (g, a) in enumerate(added) for h, b in added[:k] if g == h and a is not None and b is not None]
    if not equal:
        pytest.skip("no two parties release the same statistic with noise of this kind")
    assert not any(np.array_equal(a, b) for a, b in equal if a.size > 3)  # of fewer numbers some may be equal by chance
    assert not all(np.array_equal(a, b) for a, b in equal)


def test_every_draw_follows_its_own_debit(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw is paid for before it happens, so a crash after it costs nothing more (FINDINGS G19)."""
    log: list[str] = []
    inside = 0

    def spied(draw):
        def spy(*given):
            nonlocal inside
            if not inside:
                log.append("draw")
            inside += 1
            try:
                return draw(*given)
            finally:
                inside -= 1

        return spy

    def kinds(of: type[Mechanism]) -> set[type[Mechanism]]:
        return {of}.union(*map(kinds, of.__subclasses__()))

    for kind in kinds(Mechanism):
        if "draw" in vars(kind):
            monkeypatch.setattr(kind, "draw", spied(kind.draw))
    reserve = Ledger.reserve

    def noted(*given, **rules):
        reserve(*given, **rules)
        log.append("debit")

    monkeypatch.setattr(Ledger, "reserve", noted)
    model = load(case.model)
    plan = model.compile(case.study)
    drive(model, plan, in_process(parties(case, Policy.in_process())))
    assert log
    paid = " ".join(log).replace("debit draw", "paid").split()
    free = sum(r.count for r in plan.releases if r.party in {card.name for card in plan.study.helpers})
    assert paid.count("draw") == free  # a helper's noise is about nobody's rows
    assert set(paid) <= {"paid", "draw"}
