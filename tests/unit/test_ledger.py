"""The ledger's rules: what is debited, what is refused, and what it does with files that are not as it left them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from unpooled.errors import (
    AccountingError,
    BudgetRefusal,
    DataError,
    LedgerDamaged,
    PlanMismatch,
    PolicyRefusal,
    Refusal,
    ReleaseConflict,
    UsageError,
)
from unpooled.privacy.accounting import SAFETY, gaussian_mu
from unpooled.privacy.events import NO_COST, UNBOUNDED, Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger import (
    Charge,
    Ledger,
    ReleaseKey,
    account,
    chain,
)
from unpooled.privacy.ledger import (
    store as failures,
)
from unpooled.privacy.ledger.chain import Entry
from unpooled.privacy.ledger.spending import read_export
from unpooled.privacy.ledger.store import Store
from unpooled.privacy.unit import Target, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("error")

PLAN, OTHER_PLAN = "ab" * 32, "cd" * 32
REQUEST, OTHER_REQUEST = bytes(range(32)), bytes(range(1, 33))
BUDGET = Target(1.0, 1e-5)
#: Spends the whole of BUDGET, exactly.
FULL = Event(Kind.GAUSSIAN, gaussian_mu(1.0, 1e-5) * (1 - SAFETY))
QUARTER = Event(Kind.GAUSSIAN, FULL.value / 2)
TINY = Event(Kind.GAUSSIAN, 1e-3)
ENDINGS = ("", ".anchor", ".key")


def costs(record: Event, attribute: Event | None = None) -> tuple[Cost, ...]:
    return Cost(Unit.RECORD, "", record), Cost(Unit.ATTRIBUTE, "", record if attribute is None else attribute)


def charge(index: int = 0, event: Event = TINY, name: str = "sketch", fingerprint: bytes = REQUEST) -> Charge:
    return Charge(ReleaseKey(PLAN, "release", index, name), fingerprint, costs(event))


def files(path: Path) -> dict[str, bytes]:
    """Everything that lies where the ledger lies."""
    return {file.name: file.read_bytes() for file in sorted(path.parent.iterdir()) if file.is_file()}


def read(ledger: Ledger) -> object:
    """Everything a ledger says."""
    replies = [ledger.reply(PLAN, "release", index, REQUEST) for index in range(3)]
    return ledger.entries(), replies, ledger.approved(PLAN), ledger.head, ledger.root_key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with every kind of row: an approval, three charges, two replies."""
    folder = tmp_path / "party"
    folder.mkdir()
    with Ledger.create(folder / "ledger.db") as ledger:
        ledger.approve(PLAN)
        for index in range(3):
            ledger.reserve([charge(index)], BUDGET)
        for index in range(2):
            ledger.commit(PLAN, "release", index, REQUEST, b"reply %d" % index * 100)
    return folder / "ledger.db"


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "ledger.db") if request.param == "file" else Ledger.in_memory() as ledger:
        yield ledger


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def assert_refused_untouched(path: Path, match: str | None = None) -> None:
    before = files(path)
    with pytest.raises(LedgerDamaged, match=match) as refusal:
        Ledger.open(path)
    assert str(path) in str(refusal.value)
    assert "Restore" in str(refusal.value)
    assert files(path) == before


# --- reserve, commit, reply ----------------------------------------------------------------------------------------


def test_a_release_is_reserved_committed_and_sent_again(ledger: Ledger) -> None:
    assert ledger.reply(PLAN, "release", 0, REQUEST) is None
    ledger.reserve([charge(0, name="a"), charge(0, name="b"), charge(1)], BUDGET)
    assert [entry.state for entry in ledger.entries()] == ["reserved"] * 3
    ledger.commit(PLAN, "release", 0, REQUEST, b"noisy")
    assert [entry.state for entry in ledger.entries()] == ["committed", "committed", "reserved"]
    assert ledger.reply(PLAN, "release", 0, REQUEST) == b"noisy"
    assert ledger.reply(PLAN, "release", 1, REQUEST) is None
    entry = ledger.entries()[1]
    assert (entry.kind, entry.plan, entry.key) == ("charge", PLAN, charge(0, name="b").key)
    assert (entry.position, entry.costs) == (2, costs(TINY))
    assert ledger.composition(Unit.RECORD).compositions[0].events == (TINY,) * 3


def test_a_charge_after_the_reply_is_not_part_of_it(ledger: Ledger) -> None:
    ledger.commit(PLAN, "release", 0, REQUEST, b"a step without releases")
    ledger.reserve([charge()], BUDGET)
    assert [entry.state for entry in ledger.entries()] == ["reserved"]


def test_reserving_again_costs_nothing_even_when_nothing_is_left(ledger: Ledger) -> None:
    ledger.reserve([charge(event=FULL)], BUDGET)
    head = ledger.head
    ledger.reserve([charge(event=FULL), charge(event=FULL)], BUDGET)
    ledger.reserve([charge(event=FULL)], Target(1e-3, 1e-9))
    ledger.check([charge(event=FULL)], BUDGET)
    ledger.reserve([], BUDGET)
    assert (ledger.head, len(ledger.entries())) == (head, 1)


def test_one_batch_debits_equal_charges_once(ledger: Ledger) -> None:
    ledger.reserve([charge(event=FULL), charge(event=FULL)], BUDGET)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    "other",
    [charge(fingerprint=OTHER_REQUEST), charge(event=QUARTER), replace(charge(), costs=costs(TINY, NO_COST))],
    ids=["other data", "other cost", "other cost to one unit"],
)
def test_a_key_with_other_content_is_a_conflict(ledger: Ledger, other: Charge) -> None:
    with pytest.raises(ReleaseConflict):
        ledger.reserve([charge(), other], None)
    assert ledger.entries() == ()
    ledger.reserve([charge()], BUDGET)
    with pytest.raises(ReleaseConflict, match="release 'sketch' of step 'release', index 0"):
        ledger.reserve([charge(1), other], None)
    assert len(ledger.entries()) == 1


def test_a_step_is_answered_once(ledger: Ledger) -> None:
    ledger.commit(PLAN, "release", 0, REQUEST, b"first")
    head = ledger.head
    ledger.commit(PLAN, "release", 0, REQUEST, b"first")
    for request, reply in ((REQUEST, b"second"), (OTHER_REQUEST, b"first")):
        with pytest.raises(ReleaseConflict):
            ledger.commit(PLAN, "release", 0, request, reply)
    with pytest.raises(ReleaseConflict):
        ledger.reply(PLAN, "release", 0, OTHER_REQUEST)
    assert ledger.head == head
    ledger.commit(PLAN, "release", 1, REQUEST, b"first")  # the same bytes for another step are stored once
    assert ledger.reply(PLAN, "release", 1, REQUEST) == ledger.reply(PLAN, "release", 0, REQUEST) == b"first"


def test_an_empty_reply_is_a_reply(ledger: Ledger) -> None:
    ledger.commit(PLAN, "release", 0, REQUEST, b"")
    assert ledger.reply(PLAN, "release", 0, REQUEST) == b""


@pytest.mark.guarantee
def test_approvals_are_rows_of_the_chain(ledger: Ledger) -> None:
    start = ledger.head
    assert not ledger.approved(PLAN)
    ledger.approve(PLAN)
    head = ledger.head
    ledger.approve(PLAN)
    assert start != head == ledger.head
    assert (ledger.approved(PLAN), ledger.approved(OTHER_PLAN)) == (True, False)
    (entry,) = ledger.entries()
    assert (entry.kind, entry.plan, entry.key, entry.state) == ("approval", PLAN, None, "committed")
    assert ledger.composition(Unit.RECORD).epsilon(0.0) == 0


@pytest.mark.guarantee
def test_an_approval_that_is_withdrawn_ends_the_plan_until_it_is_given_again(ledger: Ledger) -> None:
    ledger.approve(PLAN)
    ledger.reserve([charge()], BUDGET)
    ledger.commit(PLAN, "release", 0, REQUEST, b"answer")
    spent = ledger.composition(Unit.RECORD).epsilon(1e-9)
    ledger.withdraw(PLAN)
    head = ledger.head
    ledger.withdraw(PLAN)
    assert (ledger.head, ledger.approved(PLAN)) == (head, False)
    with pytest.raises(PolicyRefusal, match="withdrew its approval"):
        ledger.reserve([charge(1)], BUDGET)
    with pytest.raises(PolicyRefusal, match="withdrew its approval"):
        ledger.reply(PLAN, "release", 0, REQUEST)
    assert ledger.head == head
    assert ledger.composition(Unit.RECORD).epsilon(1e-9) == spent > 0  # what was released stays debited
    assert [entry.kind for entry in ledger.entries()] == ["approval", "charge", "withdrawal"]
    assert ledger.reply(OTHER_PLAN, "release", 0, REQUEST) is None
    ledger.approve(PLAN)
    assert ledger.reply(PLAN, "release", 0, REQUEST) == b"answer"
    ledger.reserve([charge(1)], BUDGET)


@pytest.mark.guarantee
def test_a_balance_composes_everything_up_to_and_including_a_study(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ledger.balances(BUDGET) == ()
    ledger.approve(OTHER_PLAN, "describe: ages")
    first, second = charge(0, QUARTER), charge(1, QUARTER)
    late = replace(first, key=ReleaseKey(OTHER_PLAN, "release", 0, "sketch"))
    ledger.reserve([first], None)
    monkeypatch.setattr("unpooled.privacy.ledger.store.time.time", lambda: 2_000_000_000.0)
    ledger.reserve([late], None)
    ledger.reserve([second, replace(late, key=replace(late.key, index=1), costs=costs(UNBOUNDED, NO_COST))], None)
    one, two = ledger.balances(BUDGET)
    assert (one.plan, one.about) == (PLAN, "")
    assert (two.plan, two.time, two.about) == (OTHER_PLAN, 2_000_000_000, "describe: ages")
    assert 0 < one.time < two.time
    alone = Ledger.in_memory()
    alone.reserve([first, second], None)  # a study's late charge is its own, whatever came between
    assert one.after == alone.spending(BUDGET)
    assert two.after == ledger.spending(BUDGET)
    assert two.after.number == "unbounded"
    assert two.after.unknown == 1
    assert one.after.known < two.after.known < 2 * one.after.known  # composed, not added
    value = Target(1.0, 1e-5, Unit.ATTRIBUTE)
    assert ledger.balances(value)[-1].after == ledger.spending(value)


@pytest.mark.guarantee
def test_other_systems_are_refused_in_words(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "SYSTEM", "nt")
    for act in (lambda: Ledger.create(tmp_path / "new.db"), lambda: Ledger.open(path)):
        with pytest.raises(UsageError, match="need Linux or macOS"):
            act()
    assert not (tmp_path / "new.db").exists()
    assert Ledger.in_memory().entries() == ()


@pytest.mark.guarantee
def test_a_withdrawal_outlives_the_process(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.withdraw(PLAN)
    with Ledger.open(path) as ledger:
        assert not ledger.approved(PLAN)
        with pytest.raises(PolicyRefusal):
            ledger.reply(PLAN, "release", 0, REQUEST)


@pytest.mark.guarantee
def test_an_export_makes_the_head_and_no_other_does(path: Path) -> None:
    with Ledger.open(path) as ledger:
        raw, head, early = ledger.export(), ledger.head, ledger.entries()
        key = ledger.root_key
        ledger.withdraw(PLAN)
        later = read_export(ledger.export())
    history = read_export(raw)
    assert history.head.digest.hex() == head
    assert history.entries() == early
    assert head in later.heads
    assert later.head.digest.hex() not in history.heads
    assert key.hex().encode() not in raw
    assert b"reply" not in raw
    told = json.loads(raw)
    edits = [
        lambda t: t["rows"].pop(2),
        lambda t: t["rows"].pop(),
        lambda t: t["rows"][3].__setitem__(9, "00"),
        lambda t: t["rows"][2].pop(),
    ]
    edits += [
        lambda t: t.update(format="other"),
        lambda t: t.update(head="00" * 32),
        lambda t: t["rows"][1].__setitem__(1, "soon"),
    ]
    edits += [lambda t: t["rows"][1].__setitem__(1, 2**63 - 1), lambda t: t["rows"][1].__setitem__(0, 2**80)]
    for edit in edits:
        other = json.loads(json.dumps(told))
        edit(other)
        with pytest.raises(DataError, match="do not make its head"):
            read_export(json.dumps(other).encode())
    with pytest.raises(DataError):
        read_export(b"SECRET")


def test_everything_is_there_after_reopening(path: Path) -> None:
    with Ledger.open(path) as ledger:
        says = read(ledger)
        assert ledger.reply(PLAN, "release", 1, REQUEST) == b"reply 1" * 100
    with Ledger.open(path) as ledger:
        assert read(ledger) == says


def test_floats_come_back_bit_by_bit(tmp_path: Path) -> None:
    awkward = Event(Kind.ZCDP, 0.1 + 0.2, 2**63 - 1, 5e-324)
    with Ledger.create(tmp_path / "ledger.db") as ledger:
        ledger.reserve([charge(event=awkward)], None)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.entries()[0].costs == costs(awkward)
        assert ledger.composition(Unit.ATTRIBUTE).compositions[0].events == (awkward,)
    schema = sqlite3.connect(tmp_path / "ledger.db")
    assert "REAL" not in str(schema.execute("SELECT sql FROM sqlite_master").fetchall())
    schema.close()


# --- the budget ----------------------------------------------------------------------------------------------------


def test_one_full_gaussian_fits_and_nothing_more(ledger: Ledger) -> None:
    ledger.check([charge(0, FULL)], BUDGET)
    ledger.reserve([charge(0, FULL)], BUDGET)
    head = ledger.head
    for ask in (ledger.check, ledger.reserve):
        with pytest.raises(BudgetRefusal, match=r"ask for epsilon = .* spent is epsilon = 1, .* allowed is epsilon = 1,"):
            ask([charge(1)], BUDGET)
    assert ledger.head == head


def test_four_quarters_fit_and_a_fifth_does_not(ledger: Ledger) -> None:
    for index in range(4):
        ledger.reserve([charge(index, QUARTER)], BUDGET)
    with pytest.raises(BudgetRefusal):
        ledger.reserve([charge(4, QUARTER)], BUDGET)
    assert len(ledger.entries()) == 4


def test_a_batch_is_debited_whole_or_not_at_all(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefusal):
        ledger.reserve([charge(index, QUARTER) for index in range(5)], BUDGET)
    assert ledger.entries() == ()
    ledger.reserve([charge(index, QUARTER) for index in range(4)], BUDGET)


def test_two_units_are_counted_separately(ledger: Ledger) -> None:
    per_attribute = Target(1.0, 1e-5, Unit.ATTRIBUTE)
    ledger.reserve([replace(charge(0), costs=costs(FULL, QUARTER))], per_attribute)
    with pytest.raises(BudgetRefusal):
        ledger.reserve([replace(charge(1), costs=costs(FULL, QUARTER))], BUDGET)
    ledger.reserve([replace(charge(1), costs=costs(FULL, QUARTER))], per_attribute)
    assert ledger.composition(Unit.RECORD).compositions[0].events == (FULL, FULL)
    assert ledger.composition("attribute").compositions[0].events == (QUARTER, QUARTER)


def test_mixtures_are_composed_by_the_accountant(ledger: Ledger) -> None:
    ledger.reserve([charge(0, QUARTER)], BUDGET)
    with pytest.raises(BudgetRefusal):
        ledger.reserve([charge(1, Event(Kind.PURE, 0.9))], BUDGET)
    ledger.reserve([charge(1, Event(Kind.PURE, 0.1))], BUDGET)
    assert 0.1 < ledger.composition(Unit.RECORD).epsilon(1e-5) < 1


def test_an_unknown_cost_is_refused_unless_allowed(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefusal, match="ask for unbounded"):
        ledger.reserve([charge(0, UNBOUNDED)], BUDGET)
    ledger.reserve([charge(0, UNBOUNDED), charge(1, QUARTER)], BUDGET, allow_unbounded=True)
    with pytest.raises(BudgetRefusal, match="spent is unbounded"):
        ledger.reserve([charge(2, TINY)], BUDGET)
    with pytest.raises(BudgetRefusal, match=r"spent is epsilon = 0\.4"):
        ledger.reserve([charge(2, FULL)], BUDGET, allow_unbounded=True)
    ledger.reserve([charge(2, QUARTER)], BUDGET, allow_unbounded=True)
    assert ledger.composition(Unit.RECORD).epsilon(1e-5) == float("inf")
    assert len(ledger.entries()) == 3


def test_without_a_budget_everything_is_recorded(ledger: Ledger) -> None:
    ledger.reserve([charge(0, FULL), charge(1, FULL), charge(2, UNBOUNDED)], None)
    assert len(ledger.entries()) == 3


def test_a_plan_is_checked_before_its_requests_are_known(ledger: Ledger) -> None:
    ledger.reserve([charge(0, FULL)], BUDGET)
    ledger.check([charge(0, FULL, fingerprint=OTHER_REQUEST)], BUDGET)
    with pytest.raises(ReleaseConflict, match="another cost"):
        ledger.check([charge(0, TINY)], BUDGET)


# --- what is passed in ---------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("plan", ["ab", "AB" * 32, "xy" * 32, b"a" * 64, None])
def test_a_plan_is_a_hash(plan: object) -> None:
    with Ledger.in_memory() as ledger:
        for ask in (ledger.approve, ledger.approved, lambda plan: ReleaseKey(plan, "step", 0, "name")):
            with pytest.raises(UsageError, match="64 lowercase"):
                ask(plan)


@pytest.mark.guarantee
@pytest.mark.parametrize("word", ["", "x" * 201, "a\0b", "\ud800", 7, None])
def test_a_word_is_short_and_printable(word: object) -> None:
    for words in ((word, "name"), ("step", word)):
        with pytest.raises(UsageError, match="printable"):
            ReleaseKey(PLAN, words[0], 0, words[1])


@pytest.mark.parametrize("index", [-1, True, 1.0, "0", 2**63])
def test_an_index_is_a_number(index: object) -> None:
    with pytest.raises(UsageError, match="index"):
        ReleaseKey(PLAN, "step", index, "name")


@pytest.mark.guarantee
def test_charges_requests_and_replies_are_checked(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ReleaseKey(PLAN, "step", 0, "x" * 200)
    wrong = [
        lambda: Charge("key", REQUEST, costs(TINY)),
        lambda: Charge(key, REQUEST[:31], costs(TINY)),
        lambda: Charge(key, bytearray(REQUEST), costs(TINY)),
        lambda: Charge(key, REQUEST, costs(1.0, TINY)),
        lambda: Charge(key, REQUEST, costs(TINY, Event(Kind.PURE, 1.0, 2**63))),
        lambda: Charge(key, REQUEST, costs(TINY)[:1]),
        lambda: ledger.reserve([key], BUDGET),
        lambda: ledger.reserve([], 1.0),
        lambda: ledger.commit(PLAN, "step", 0, b"short", b"reply"),
        lambda: ledger.commit(PLAN, "step", 0, REQUEST, bytearray(b"reply")),
        lambda: ledger.commit(PLAN, "step", 0, REQUEST, b"too large"),
        lambda: ledger.reply(PLAN, "", 0, REQUEST),
        lambda: ledger.reply(PLAN, "step", 0, "request"),
        lambda: ledger.composition("person"),
        lambda: Ledger.in_memory(b"short"),
    ]
    monkeypatch.setattr(account, "LARGEST_REPLY", 8)
    start = ledger.head
    for ask in wrong:
        with pytest.raises(UsageError):
            ask()
    assert ledger.head == start


@pytest.mark.guarantee
def test_a_closed_ledger_says_so(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.close()
    ledger.close()
    with pytest.raises(UsageError, match="closed"):
        ledger.entries()


def test_root_keys(tmp_path: Path) -> None:
    with Ledger.in_memory(b"k" * 32) as seeded, Ledger.in_memory() as one, Ledger.in_memory() as two:
        assert seeded.root_key == b"k" * 32
        assert one.root_key != two.root_key
        assert one.head != two.head
    with Ledger.create(tmp_path / "ledger.db") as ledger:
        assert ledger.root_key == (tmp_path / "ledger.db.key").read_bytes()
        assert all((tmp_path / f"ledger.db{ending}").stat().st_mode & 0o777 == 0o600 for ending in ENDINGS)


# --- threads and processes -----------------------------------------------------------------------------------------


def test_threads_share_a_ledger(ledger: Ledger) -> None:
    refused = []

    def work(index: int) -> None:
        try:
            ledger.reserve([charge(index, QUARTER)], BUDGET)
            ledger.commit(PLAN, "release", index, REQUEST, b"reply %d" % index)
        except BudgetRefusal:
            refused.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 4
    assert [entry.state for entry in ledger.entries()] == ["committed"] * 4


def test_two_ledgers_on_one_file_see_each_other(path: Path) -> None:
    with Ledger.open(path) as one, Ledger.open(path) as two:
        one.reserve([charge(7)], BUDGET)
        one.commit(PLAN, "release", 7, REQUEST, b"seven")
        assert two.reply(PLAN, "release", 7, REQUEST) == b"seven"
        two.reserve([charge(8)], BUDGET)
        assert one.entries() == two.entries()
        assert one.head == two.head


@pytest.mark.guarantee
def test_a_lock_held_too_long_is_a_refusal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "PATIENCE", 0.05)
    with Ledger.open(path) as ledger:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refusal, match=r"another process .* Nothing is debited twice") as refusal:
            ledger.reserve([charge(9)], BUDGET)
        assert type(refusal.value) is Refusal
        holder.close()
        ledger.reserve([charge(9)], BUDGET)


# --- creating and opening ------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("ending", [*ENDINGS, "-journal", "-wal"])
def test_create_never_overwrites(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "ledger.db"
    path.with_name(path.name + ending).write_bytes(b"somebody's file")
    before = files(path)
    with pytest.raises(UsageError, match="already here"):
        Ledger.create(path)
    assert files(path) == before


@pytest.mark.guarantee
def test_a_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal, match="No such file"):
        Ledger.create(tmp_path / "nowhere" / "ledger.db")
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), at=2 if name == "fsync" else 1))
            with pytest.raises(Refusal, match="No space left"):
                Ledger.create(tmp_path / "ledger.db")
        assert files(tmp_path / "ledger.db") == {}
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_lay_out", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Ledger.create(tmp_path / "ledger.db")
    assert files(tmp_path / "ledger.db") == {}
    Ledger.create(tmp_path / "ledger.db").close()


def test_awkward_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "a b?mode=memory&cache=shared#%41 é.db"
    Ledger.create(name).close()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(name + ending for ending in ENDINGS)
    Ledger.open(name).close()


@pytest.mark.guarantee
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_missing_file_is_never_made_anew(path: Path, ending: str) -> None:
    path.with_name(path.name + ending).unlink()
    assert_refused_untouched(path, "No such file")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_link_or_a_directory_is_not_a_ledger(path: Path, tmp_path: Path, ending: str) -> None:
    file = path.with_name(path.name + ending)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert_refused_untouched(path, "plain files")
    file.unlink()
    file.mkdir()
    assert_refused_untouched(path, "plain files")


@pytest.mark.guarantee
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused(path: Path, ending: str, share: float) -> None:
    file = path.with_name(path.name + ending)
    os.truncate(file, int(file.stat().st_size * share))
    assert_refused_untouched(path)


@pytest.mark.guarantee
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_may_read_is_refused(path: Path, mode: int) -> None:
    path.with_name("ledger.db.key").chmod(mode)
    assert_refused_untouched(path, "mode 0600")


@pytest.mark.guarantee
@pytest.mark.parametrize("ending", [".anchor", ".key"])
def test_a_file_of_another_ledger_is_refused(path: Path, tmp_path: Path, ending: str) -> None:
    Ledger.create(tmp_path / "other.db").close()
    shutil.copy(tmp_path / f"other.db{ending}", path.with_name(path.name + ending))
    assert_refused_untouched(path, "another ledger")


# --- edited, forged and rolled back ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chain SET detail = x'5b5d' WHERE position = 2",
        "UPDATE chain SET time = time + 1 WHERE position = 5",
        "UPDATE chain SET name = 'sketci' WHERE position = 4",
        "UPDATE chain SET kind = 'approval' WHERE position = 3",
        "UPDATE chain SET digest = zeroblob(32) WHERE position = 6",
        "UPDATE chain SET fingerprint = zeroblob(32) WHERE position = 0",
        "UPDATE replies SET body = zeroblob(700) WHERE rowid = 1",
        "UPDATE replies SET content = zeroblob(32) WHERE rowid = 1",
        "DELETE FROM replies WHERE rowid = 1",
        "DELETE FROM chain WHERE position = 0",
        "DELETE FROM chain WHERE position = 3",
        "DELETE FROM chain WHERE position = 6",
        "DELETE FROM chain",
        "CREATE TRIGGER quiet BEFORE INSERT ON chain BEGIN SELECT raise(IGNORE); END",
        "CREATE TABLE more (x)",
        "ALTER TABLE replies ADD COLUMN more TEXT",
        "DROP TABLE replies",
    ],
)
def test_an_edited_database_is_refused(path: Path, statement: str) -> None:
    edit(path, statement)
    assert_refused_untouched(path)


def test_a_file_that_sqlite_finds_wrong_is_refused(path: Path) -> None:
    with path.open("r+b") as file:  # a page said to be free that is not: nothing that a row tells
        file.seek(39)
        file.write(b"\1")
    assert_refused_untouched(path, "truncated or overwritten")


def test_an_added_row_is_refused(path: Path) -> None:
    copy = "CREATE TEMP TABLE added AS SELECT * FROM chain WHERE position = 4"
    edit(path, copy, "UPDATE added SET position = 7, number = 9", "INSERT INTO chain SELECT * FROM added")
    assert_refused_untouched(path, "row 7")


@pytest.mark.parametrize("swap", [(1, 2), (0, 6)])
def test_rows_in_another_order_are_refused(path: Path, swap: tuple[int, int]) -> None:
    one, two = swap
    move = "UPDATE chain SET position = {} WHERE position = {}"
    edit(path, move.format(99, one), move.format(one, two), move.format(two, 99))
    assert_refused_untouched(path)


@pytest.mark.guarantee
def test_a_rolled_back_database_is_refused(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "older")
    with Ledger.open(path) as ledger:
        ledger.reserve([charge(8)], BUDGET)
    shutil.copy(tmp_path / "older", path)
    assert_refused_untouched(path, "older copy")


@pytest.mark.guarantee
def test_an_open_ledger_notices_a_rollback_and_a_lost_anchor(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path) as ledger:
        shutil.copy(path, tmp_path / "older")
        ledger.reserve([charge(8)], BUDGET)
        anchor = path.with_name("ledger.db.anchor").read_bytes()
        path.with_name("ledger.db.anchor").unlink()
        with pytest.raises(LedgerDamaged, match="anchor"):
            ledger.reserve([charge(9)], BUDGET)
        path.with_name("ledger.db.anchor").write_bytes(anchor)
        ledger.reserve([charge(9)], BUDGET)
        path.write_bytes((tmp_path / "older").read_bytes())
        with pytest.raises(LedgerDamaged):
            ledger.reserve([charge(10)], BUDGET)


@pytest.mark.guarantee
def test_an_open_ledger_verifies_a_reply_each_time(path: Path) -> None:
    with Ledger.open(path) as ledger:
        edit(path, "UPDATE replies SET body = zeroblob(700)")
        with pytest.raises(LedgerDamaged, match="reply"):
            ledger.reply(PLAN, "release", 0, REQUEST)


@pytest.mark.parametrize(
    "change",
    [
        lambda anchor: anchor | {"format": 2},
        lambda anchor: anchor | {"ledger": "00" * 32},
        lambda anchor: anchor | {"heads": []},
        lambda anchor: anchor | {"heads": 7},
        lambda anchor: anchor | {"heads": [{"rows": 6, "head": anchor["heads"][0]["head"]}]},
        lambda anchor: anchor | {"more": 1},
        lambda anchor: [anchor],
    ],
)
def test_an_edited_anchor_is_refused(path: Path, change: Callable[[dict], object]) -> None:
    file = path.with_name("ledger.db.anchor")
    file.write_text(json.dumps(change(json.loads(file.read_text())), indent=1) + "\n")
    assert_refused_untouched(path)


@pytest.mark.guarantee
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_flipped_bit_is_refused_or_changes_nothing(path: Path, ending: str) -> None:
    """Some bits of a database mean nothing (free space, counters): then everything reads as before."""
    with Ledger.open(path) as ledger:
        says = read(ledger)
    file, random = path.with_name(path.name + ending), Random(7)
    good, refused = files(path), 0
    for _ in range(250 if ending == "" else 60):
        body = bytearray(good[file.name])
        # Half of the flips go where the rows are: the database is mostly free space.
        position = random.choice([random.randrange(len(body)), random.choice([i for i, x in enumerate(body) if x])])
        body[position] ^= 1 << random.randrange(8)
        for leftover in set(files(path)) - set(good):
            path.with_name(leftover).unlink()
        file.write_bytes(body)
        try:
            with Ledger.open(path) as ledger:
                assert read(ledger) == says
        except LedgerDamaged:
            refused += 1
            assert file.read_bytes() == body
    assert refused >= (100 if ending == "" else 60)


def forge(path: Path, row: chain.Row) -> None:
    """Append a row with a right digest and a right anchor: what a newer version, or a skilled hand, would write."""
    with Ledger.open(path) as ledger:
        ledger._store.connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refusal, match="nothing may be sent"):
            ledger._store.append(row)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "row",
    [
        chain.Row(kind="refund"),
        chain.Row(kind="genesis"),
        chain.Row.of(charge(0)),
        chain.Row.of(charge(9))._replace(plan="short"),
        chain.Row.of(charge(9))._replace(fingerprint=b""),
        chain.Row(0, 0, "commit", "ab" * 32, "s", 0, "", bytes(32), bytes(32), b"another kind of commit"),
    ],
    ids=["unknown", "second genesis", "second charge", "no plan", "no fingerprint", "unknown kind of commit"],
)
def test_a_row_that_no_honest_ledger_writes_is_refused(path: Path, row: chain.Row) -> None:
    forge(path, row)
    assert_refused_untouched(path, "newer version")


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "household"),
        (0, ""),
        (2, 9),
        (2, 0),
        (3, "-0x1p+0"),
        (3, "1"),
        (3, "nan"),
        (4, -1),
        (4, 1.5),
        (5, "inf"),
        (5, None),
    ],
)
def test_an_unknown_unit_or_event_is_refused_not_guessed(path: Path, place: int, value: object) -> None:
    spelled = json.loads(chain.spell_costs(costs(TINY)))
    spelled[1][place] = value
    detail = json.dumps(spelled).encode()
    if (place, value) == (3, "1"):  # another spelling of a number that is fine
        detail = b"[]"
    forge(path, chain.Row.of(charge(9))._replace(detail=detail))
    assert_refused_untouched(path, "newer version")


@pytest.mark.guarantee
def test_the_stored_codes_of_events_never_change() -> None:
    assert [(kind.name, kind.value) for kind in Kind] == [
        ("GAUSSIAN", 1), ("ZCDP", 2), ("EXPONENTIAL", 3), ("PURE", 4), ("UNBOUNDED", 5), ("PERTURBED", 6),
    ]  # fmt: skip
    event = Event(Kind.PURE, 1.0, 3, 0.5)
    assert (
        chain.spell_costs([Cost(Unit.RECORD, "low", event)])
        == b'[["record","low",4,"0x1.0000000000000p+0",3,"0x1.0000000000000p-1"]]'
    )
    tailed = Cost(Unit.RECORD, "", Event(Kind.PERTURBED, 1.0, 1, 0.0, ((1, 0.5), (2, 0.25))))
    spelled = chain.spell_costs([tailed])
    assert spelled == (
        b'[["record","",6,"0x1.0000000000000p+0",1,"0x0.0p+0",[[1,"0x1.0000000000000p-1"],[2,"0x1.0000000000000p-2"]]]]'
    )
    assert chain.read_costs(spelled) == (tailed,)
    for wrong in (
        (Kind.PERTURBED, ()),
        (Kind.PURE, ((1, 0.5),)),
        (Kind.PERTURBED, ((0, 0.5),)),
        (Kind.PERTURBED, ((1, 0.0),)),
    ):
        with pytest.raises(AccountingError, match="tails"):
            Event(wrong[0], 1.0, 1, 0.0, wrong[1])
    assert chain.read_costs(chain.spell_costs([Cost(Unit.RECORD, "low", event)])) == (Cost(Unit.RECORD, "low", event),)


def test_no_two_rows_are_spelled_alike() -> None:
    start = bytes(32)
    spelled = [("a", "bc"), ("ab", "c"), ("abc", ""), ("abc",), (b"abc",), (b"a", "bc"), (1, 2), (1, b"2"), (2, 1), ()]
    assert len({chain.link(start, columns) for columns in spelled}) == len(spelled)
    assert chain.link(bytes(31) + b"1", ("a",)) != chain.link(start, ("a",))


# --- disks that are full or read-only --------------------------------------------------------------------------------


def failing(call: Callable, at: int, number: int = errno.ENOSPC) -> Callable:
    """``call``, except that its ``at``-th use fails as on a full disk."""
    uses = iter(range(1, 1000))

    def fails(*arguments: object, **options: object) -> object:
        if next(uses) == at:
            raise OSError(number, os.strerror(number))
        return call(*arguments, **options)

    return fails


def assert_nothing_debited_then_healed(path: Path, ledger: Ledger) -> None:
    assert len(ledger.entries()) == 4
    with Ledger.open(path) as other:
        assert other.entries() == ledger.entries()
    ledger.reserve([charge(9)], BUDGET)
    with Ledger.open(path) as other:
        assert len(other.entries()) == 5


@pytest.mark.guarantee
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize(("call", "at"), [("fsync", 1), ("fsync", 2), ("replace", 1), ("open", 1), ("open", 2)])
def test_an_anchor_that_cannot_be_written_debits_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, at: int, number: int
) -> None:
    with Ledger.open(path) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(getattr(os, call), at, number))
            with pytest.raises(Refusal, match="othing is debited twice") as refusal:
                ledger.reserve([charge(9)], BUDGET)
        assert os.strerror(number) in str(refusal.value)
        assert_nothing_debited_then_healed(path, ledger)


@pytest.mark.guarantee
@pytest.mark.parametrize(("call", "at"), [("fsync", 3), ("fsync", 4), ("replace", 2), ("open", 3), ("open", 4)])
def test_when_only_the_last_step_fails_the_debit_stands(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, at: int
) -> None:
    shutil.copy(path, tmp_path / "older")
    with Ledger.open(path) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(getattr(os, call), at))
            with pytest.raises(Refusal, match="nothing may be sent"):
                ledger.reserve([charge(9)], BUDGET)
        assert len(ledger.entries()) == 5
        ledger.reserve([charge(9)], BUDGET)
        assert len(ledger.entries()) == 5
    shutil.copy(tmp_path / "older", path)  # once the retry has passed, the older copy is not good any more
    assert_refused_untouched(path, "older copy")


def test_a_failing_commit_debits_nothing(path: Path) -> None:
    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            if sql == "COMMIT" and broken:
                super().execute("PRAGMA no_such_pragma")
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return super().execute(sql, *arguments)

    broken = True
    with Ledger.open(path) as ledger:
        ledger._store.connection.close()
        ledger._store.connection = sqlite3.connect(path, isolation_level=None, factory=Failing)
        with pytest.raises(Refusal, match=r"disk reports an error.* Nothing is debited twice"):
            ledger.reserve([charge(9)], BUDGET)
        broken = False
        assert_nothing_debited_then_healed(path, ledger)


@pytest.mark.guarantee
def test_a_full_database_debits_nothing(path: Path) -> None:
    with Ledger.open(path) as ledger:
        (pages,) = ledger._store.connection.execute("PRAGMA page_count").fetchone()
        ledger._store.connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(Refusal, match=r"disk is full.* Nothing is debited twice"):
            ledger.commit(PLAN, "release", 2, REQUEST, os.urandom(100_000))
        assert ledger.reply(PLAN, "release", 2, REQUEST) is None
        ledger._store.connection.execute("PRAGMA max_page_count = 100000")
        assert_nothing_debited_then_healed(path, ledger)
        ledger.commit(PLAN, "release", 2, REQUEST, os.urandom(100_000))


def test_a_database_that_cannot_be_written_debits_nothing(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger._store.connection.execute("PRAGMA query_only = ON")
        with pytest.raises(Refusal, match=r"cannot be written.* Nothing is debited twice"):
            ledger.reserve([charge(9)], BUDGET)
        ledger._store.connection.execute("PRAGMA query_only = OFF")
        assert_nothing_debited_then_healed(path, ledger)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB, where this machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if mount is None or subprocess.run([mount, *options], check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs more rights")
    yield folder
    subprocess.run([shutil.which("umount") or "umount", str(folder)], check=True)


@pytest.mark.guarantee
def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    path = small_disk / "ledger.db"
    with Ledger.create(path) as ledger:
        ledger.reserve([charge(0)], BUDGET)
        with pytest.raises(Refusal, match="othing is debited twice"):
            ledger.commit(PLAN, "release", 0, REQUEST, os.urandom(400_000))
        with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(1024))
        paid = 1
        with pytest.raises(Refusal, match="othing is debited twice"):
            for paid in range(1, 100):  # SQLite may still find room in a page that it has
                ledger.reserve([charge(paid)], BUDGET)
        (small_disk / "filler").unlink()
        assert len(ledger.entries()) == paid
        ledger.reserve([charge(paid)], BUDGET)
        ledger.commit(PLAN, "release", 0, REQUEST, b"small")
    with Ledger.open(path) as ledger:
        assert len(ledger.entries()) == paid + 1


@pytest.mark.guarantee
def test_a_disk_that_is_really_read_only(small_disk: Path) -> None:
    path = small_disk / "ledger.db"
    mount = shutil.which("mount") or "mount"
    with Ledger.create(path) as ledger:
        ledger.reserve([charge(0)], BUDGET)
    subprocess.run([mount, "-o", "remount,ro", str(small_disk)], check=True)
    try:
        before = files(path)
        with pytest.raises(Refusal, match="cannot be written") as refusal:
            Ledger.open(path)
        assert type(refusal.value) is Refusal
        assert files(path) == before
        with pytest.raises(Refusal, match="Read-only"):
            Ledger.create(small_disk / "another.db")
    finally:
        subprocess.run([mount, "-o", "remount,rw", str(small_disk)], check=True)
    with Ledger.open(path) as ledger:
        ledger.reserve([charge(1)], BUDGET)
        assert len(ledger.entries()) == 2


@pytest.mark.guarantee
def test_an_entry_says_what_it_costs_each_unit() -> None:
    """Equal parts add up, other parts are alternatives, and what costs a unit nothing is not listed."""
    one, two, none = Event(Kind.GAUSSIAN, 0.5), Event(Kind.PURE, 0.25), Event(Kind.GAUSSIAN, 0.7, 0)
    costs = (
        Cost(Unit.RECORD, "a", one),
        Cost(Unit.RECORD, "a", two),
        Cost(Unit.RECORD, "b", two),
        Cost(Unit.RECORD, "c", none),
        Cost(Unit.ATTRIBUTE, "", none),
    )
    entry = Entry(1, "charge", "ab" * 32, None, costs, "committed", 0)
    assert entry.words(Unit.RECORD) == f"{one} + {two} or {two}"
    assert entry.words(Unit.ATTRIBUTE) == "nothing"
    assert entry.words(Unit.HOUSEHOLD) == str(UNBOUNDED)
    assert entry.units == (Unit.RECORD, Unit.ATTRIBUTE)


@pytest.mark.guarantee
def test_a_reply_whose_digest_alone_is_kept_is_made_again_with_the_same_bytes(tmp_path: Path) -> None:
    plan, asked = "ab" * 32, bytes(32)
    with Ledger.create(tmp_path / "one.ledger") as ledger:
        ledger.commit(plan, "bulky", 0, asked, b"a long reply", keep=False)
        assert ledger.reply(plan, "bulky", 0, asked) is None
        ledger.commit(plan, "bulky", 0, asked, b"a long reply", keep=False)
        with pytest.raises(ReleaseConflict, match="answered before"):
            ledger.commit(plan, "bulky", 0, asked, b"another one", keep=False)
        with pytest.raises(ReleaseConflict, match="answered before"):
            ledger.reply(plan, "bulky", 0, bytes([1]) * 32)
    assert b"a long reply" not in (tmp_path / "one.ledger").read_bytes()
    with Ledger.open(tmp_path / "one.ledger") as ledger:
        assert ledger.reply(plan, "bulky", 0, asked) is None


@pytest.mark.guarantee
def test_a_decision_of_somebody_who_knew_fewer_decisions_is_refused() -> None:
    plan = "a" * 64
    with Ledger.in_memory(bytes(32)) as ledger:
        ledger.approve(plan, after=0)
        before = ledger.head
        with pytest.raises(PlanMismatch, match="read it again"):
            ledger.withdraw(plan, after=0)
        assert ledger.head == before
        ledger.withdraw(plan, after=1)
        before = ledger.head
        with pytest.raises(PlanMismatch, match="read it again"):
            ledger.approve(plan, after=1)
        assert ledger.head == before
        ledger.approve(plan, after=2)
        ledger.withdraw(plan)  # who does not say what was known decides as ever
        assert not ledger.approved(plan)
