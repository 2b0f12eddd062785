"""A budget follows its ledger, and a ledger its data: copies, moves, second budgets, ledgers of an older version (FINDINGS G6, G12)."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from unpooled import Budget, describe
from unpooled.cli.main import app
from unpooled.errors import BudgetRefusal, DataError, LedgerDamaged, LedgerMoved, Refusal, StudyError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger import (
    Charge,
    Ledger,
    ReleaseKey,
    chain,
)
from unpooled.privacy.ledger import (
    store as files,
)
from unpooled.privacy.ledger.spending import export, read_export
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Scope, Target, Unit
from unpooled.protocol.local import run_in_process
from unpooled.study import party as budgets
from unpooled.study.party import create_party, open_party

PLAN, REQUEST = "ab" * 32, bytes(range(32))
ENDINGS = ("", ".anchor", ".key")
OLD = Path(__file__).parents[1] / "data" / "ledger_0.1.0" / "north.ledger"
#: What the builds between 0.2.0 and format 4 wrote: a party's files after two runs, a link and a withdrawal, a budget, and what that build said of them.
THIRD = Path(__file__).parents[1] / "data" / "format_3"


def pure(value: float) -> tuple[Cost, ...]:
    return tuple(Cost(unit, "", Event(Kind.PURE, value)) for unit in ROWWISE)


def charge(value: float, plan: str = PLAN, *, shared: bool = False) -> Charge:
    return Charge(ReleaseKey(plan, "s", 0, "all" if shared else "own"), REQUEST, pure(value), shared)


def copied(source: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for ending in ENDINGS:
        target = folder / (source.name + ending)
        shutil.copy(source.with_name(source.name + ending), target)
        target.chmod(0o600)
    return folder / source.name


# --- place -----------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_a_copy_is_refused_until_its_owner_says_that_it_was_moved(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "here.ledger") as ledger:
        ledger.reserve([charge(0.5)], None)
        entries = ledger.entries()
    copy = copied(tmp_path / "here.ledger", tmp_path / "there")
    before = copy.read_bytes()
    with pytest.raises(LedgerMoved, match="--moved") as refusal:
        Ledger.open(copy)
    assert str(tmp_path / "here.ledger") in str(refusal.value)
    assert copy.read_bytes() == before
    with Ledger.open(copy, moved=True) as moved:
        assert moved.entries() == entries
    with Ledger.open(copy) as again:  # said once
        assert again.entries() == entries
    with Ledger.open(tmp_path / "here.ledger") as first:
        assert first.entries() == entries


@pytest.mark.guarantee
def test_another_machine_is_another_place_and_an_unknown_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "_machine", lambda: "one")
    Ledger.create(tmp_path / "a.ledger").close()
    monkeypatch.setattr(chain, "_machine", lambda: "two")
    with pytest.raises(LedgerMoved):
        Ledger.open(tmp_path / "a.ledger")
    monkeypatch.setattr(chain, "_machine", lambda: "")  # a container without an identity
    Ledger.open(tmp_path / "a.ledger").close()


@pytest.mark.guarantee
def test_the_identity_of_a_machine_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "machine-id"
    secret.write_text("0123456789abcdef\n")
    monkeypatch.setattr(chain, "_MACHINE_FILES", (str(tmp_path / "none"), str(secret)))
    Ledger.create(tmp_path / "a.ledger").close()
    assert b"0123456789abcdef" not in (tmp_path / "a.ledger").read_bytes()
    secret.write_text("\n")
    assert chain.Place.of(tmp_path / "a.ledger").machine == ""


def test_a_ledger_reached_through_a_link_is_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    Ledger.create(tmp_path / "link" / "a.ledger").close()
    Ledger.open(tmp_path / "real" / "a.ledger").close()


# --- the data a budget belongs to ------------------------------------------------------------------------------------------

COLUMNS, TOTAL = (Column("age", 0.0, 100.0),), Target(1.0, 1e-5)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data" / "patients.csv"
    file.parent.mkdir()
    file.write_text("age\n40\n50\n60\n")
    return file


def test_a_second_budget_for_the_same_file_is_refused(data: Path, tmp_path: Path) -> None:
    create_party(tmp_path / "first", "north", data, COLUMNS, TOTAL)
    with pytest.raises(StudyError, match="--new-budget") as refusal:
        create_party(tmp_path / "elsewhere" / "second", "north", data, COLUMNS, TOTAL)
    assert "north.ledger" in str(refusal.value)
    assert not (tmp_path / "elsewhere").exists()
    create_party(tmp_path / "elsewhere" / "second", "north", data, COLUMNS, TOTAL, new_budget=True)


@pytest.mark.guarantee
def test_a_copy_of_the_file_is_recognised_by_what_it_holds(data: Path, tmp_path: Path) -> None:
    create_party(tmp_path / "first", "north", data, COLUMNS, TOTAL)
    other = tmp_path / "far" / "away" / "renamed.csv"
    other.parent.mkdir(parents=True)
    shutil.copy(data, other)
    with pytest.raises(StudyError, match="kept already"):
        create_party(other.parent, "south", other, COLUMNS, TOTAL)
    other.write_text("age\n41\n50\n60\n")  # other people
    create_party(other.parent, "south", other, COLUMNS, TOTAL)


@pytest.mark.guarantee
def test_a_file_that_was_edited_in_its_place_is_the_same_people(data: Path, tmp_path: Path) -> None:
    create_party(tmp_path / "first", "north", data, COLUMNS, TOTAL)
    data.write_text("age\n40\n50\n60\n70\n")
    with pytest.raises(StudyError, match="kept already"):
        create_party(tmp_path / "second", "north", data, COLUMNS, TOTAL)


@pytest.mark.guarantee
def test_without_a_state_folder_ledgers_nearby_are_found_all_the_same(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))  # no folder can be made in a file
    create_party(tmp_path / "data" / "first", "north", data, COLUMNS, TOTAL)
    assert len(budgets.other_budgets(data, tmp_path / "anywhere")) == 1
    assert not budgets.other_budgets(Path(__file__), tmp_path / "anywhere")


@pytest.mark.guarantee
def test_a_broken_ledger_nearby_does_not_stop_anybody(data: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "broken.ledger").write_text("no ledger")
    create_party(tmp_path / "first", "north", data, COLUMNS, TOTAL)


# --- what a policy counts --------------------------------------------------------------------------------------------------


def test_a_policy_counts_all_parties_of_a_column_split_study_unless_it_says_otherwise() -> None:
    with Ledger.in_memory() as ledger:
        both = [charge(0.1), charge(1.0, shared=True)]
        ledger.reserve(both, Target(1.0, 0.0))
        assert ledger.composition(Unit.RECORD).epsilon(0.0) == 0.1
        assert ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(0.0) == 1.0
        other = [charge(0.1, "cd" * 32), charge(1.0, "cd" * 32, shared=True)]
        with pytest.raises(BudgetRefusal, match="all parties together"):
            ledger.reserve(other, Target(1.0, 0.0))
        assert len(ledger.entries()) == 2
        ledger.reserve(other, Target(1.0, 0.0), scope=Scope.PARTY)
        assert ledger.composition(Unit.RECORD).epsilon(0.0) == pytest.approx(0.2)
        with pytest.raises(BudgetRefusal, match="this party alone"):
            ledger.reserve([charge(0.9, "ef" * 32)], Target(1.0, 0.0), scope=Scope.PARTY)
        assert [entry.kind for entry in ledger.entries()] == ["charge", "shared"] * 2
        assert ledger.entries()[1].words(Unit.RECORD) == "pure epsilon = 1"


# --- ledgers of unpooled 0.1.0 -----------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_an_old_ledger_is_refused_with_the_command_that_takes_it_over(tmp_path: Path) -> None:
    old = copied(OLD, tmp_path)
    before = old.read_bytes()
    with pytest.raises(Refusal, match="ledger --migrate"):
        Ledger.open(old)
    assert old.read_bytes() == before


@pytest.mark.guarantee
def test_a_ledger_that_was_taken_over_keeps_what_it_spent_and_says_what_it_did_not_count(tmp_path: Path) -> None:
    old = copied(OLD, tmp_path)
    with Ledger.migrate(old) as ledger:
        # What unpooled 0.1.0 printed for this very ledger.
        assert ledger.composition(Unit.RECORD).epsilon(1e-5) == pytest.approx(1.4263415039984455, rel=1e-9)
        assert ledger.composition(Unit.ATTRIBUTE).epsilon(1e-5) == pytest.approx(1.1200044983104993, rel=1e-9)
        assert ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(1e-5) == ledger.composition(Unit.RECORD).epsilon(1e-5)
        kinds = [(entry.kind, entry.state) for entry in ledger.entries()]
        assert kinds == [
            ("approval", "committed"),
            ("charge", "committed"),
            ("approval", "committed"),
            *[("charge", "reserved")] * 2,
        ]
        assert ledger.reply(PLAN, "sums", 0, REQUEST) == b"an old reply"
        assert ledger.approved(PLAN)
        assert any(f"at nothing ({'cd' * 8})" in words for words in ledger.warnings)
        with pytest.raises(BudgetRefusal):
            ledger.reserve([charge(0.5, "ef" * 32)], Target(1.5, 1e-5))
        said = ledger.warnings
        ledger.reserve([charge(0.0, "ab" * 32)], Target(1.5, 1e-5))
        assert ledger.warnings == said, "what is debited from now on is no old entry"
    with Ledger.open(old) as again:
        assert len(again.warnings) == 2
    assert (tmp_path / "north.ledger.format1").read_bytes() == OLD.read_bytes()
    assert not list(tmp_path.glob("*migrating*"))


def test_a_new_ledger_has_nothing_to_say_of_old_entries_and_a_name_of_its_own(tmp_path: Path) -> None:
    names = set()
    for name in "ab":
        with Ledger.create(tmp_path / name) as ledger:
            for plan in ("ab" * 32, "cd" * 32):
                ledger.reserve([charge(0.0, plan)], Target(1.5, 1e-5))
            assert ledger.warnings == ()
        names.add(json.loads((tmp_path / f"{name}.anchor").read_text())["ledger"])
    assert [len(name) for name in names] == [64, 64]


@pytest.mark.guarantee
def test_taking_over_can_be_cut_short_anywhere_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PowerWentOut(BaseException):
        pass

    original, replace = files.write_new, Path.replace
    left = 0

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise PowerWentOut

    for survived in range(1, 40):
        (tmp_path / str(survived)).mkdir()
        old, left = copied(OLD, tmp_path / str(survived)), survived
        with monkeypatch.context() as patch:
            patch.setattr(files, "write_new", lambda *a: (step(), original(*a))[1])
            patch.setattr(Path, "replace", lambda self, target: (step(), replace(self, target))[1])
            try:
                Ledger.migrate(old).close()
            except PowerWentOut:
                pass
            else:
                break
        with Ledger.migrate(old) as ledger:
            assert ledger.composition(Unit.RECORD).epsilon(1e-5) == pytest.approx(1.4263415039984455, rel=1e-9)
    assert 7 < survived < 39  # every step was the last one once, replacing the files included


@pytest.mark.guarantee
def test_an_old_ledger_that_was_edited_is_not_taken_over(tmp_path: Path) -> None:
    old = copied(OLD, tmp_path)
    connection = sqlite3.connect(old)
    connection.execute("UPDATE chain SET record_value = 0 WHERE position = 2")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerDamaged, match="a row was edited"):
        Ledger.migrate(old)
    with pytest.raises(LedgerDamaged):
        Ledger.migrate(tmp_path / "none.ledger")


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM chain WHERE position = 6", "anchor"),
        ("UPDATE replies SET body = x'00'", "reply"),
        ("DELETE FROM chain", "empty"),
    ],
)
def test_an_old_ledger_with_something_missing_is_not_taken_over(tmp_path: Path, statement: str, words: str) -> None:
    old = copied(OLD, tmp_path)
    connection = sqlite3.connect(old)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(LedgerDamaged, match=words):
        Ledger.migrate(old)


@pytest.mark.guarantee
@pytest.mark.parametrize("former", [1, 2])
def test_a_file_that_says_to_be_an_older_ledger_and_is_none_is_refused(tmp_path: Path, former: int) -> None:
    Ledger.create(tmp_path / "new.ledger").close()
    anchor = tmp_path / "new.ledger.anchor"
    anchor.write_text(json.dumps(json.loads(anchor.read_text()) | {"format": former}))
    with pytest.raises(LedgerDamaged, match=f"no ledger of format {former}"):
        Ledger.migrate(tmp_path / "new.ledger")
    assert not list(tmp_path.glob("*.format*"))


def test_a_ledger_of_today_is_not_taken_over(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "new.ledger").close()
    with pytest.raises(LedgerDamaged, match="no older format"):
        Ledger.migrate(tmp_path / "new.ledger")
    assert not list(tmp_path.glob("*.format*"))
    Ledger.open(tmp_path / "new.ledger").close()


@pytest.mark.guarantee
def test_the_command_takes_over_moves_and_lists(data: Path, tmp_path: Path) -> None:
    config, _ = create_party(tmp_path / "party", "north", data, COLUMNS, TOTAL)
    for ending in ENDINGS:
        (tmp_path / "party" / f"north.ledger{ending}").unlink()
    copied(OLD, tmp_path / "party")
    run = CliRunner()
    refused = run.invoke(app, ["party", "ledger", "--config", str(config)])
    assert isinstance(refused.exception, Refusal)
    taken = run.invoke(app, ["party", "ledger", "--config", str(config), "--migrate"])
    assert taken.exit_code == 0, taken.output
    assert "Warning: Unpooled 0.1.0 debited releases of 1 plan(s) at nothing" in taken.output
    assert "spent: epsilon = 1.42634 of 1" in taken.output
    shutil.move(tmp_path / "party", tmp_path / "office")
    config = tmp_path / "office" / config.name
    assert isinstance(run.invoke(app, ["party", "ledger", "--config", str(config)]).exception, LedgerMoved)
    assert run.invoke(app, ["party", "ledger", "--config", str(config), "--moved", "--json"]).exit_code == 0
    with open_party(config) as party:
        assert party.ledger.warnings


# --- ledgers of format 3, and the names of draws ---------------------------------------------------------------------------------


@pytest.fixture
def third(tmp_path: Path) -> Path:
    """A copy of the files of format 3, with the rights that a version control system does not keep."""
    shutil.copytree(THIRD, tmp_path / "third")
    for key in (tmp_path / "third").rglob("*.key"):
        key.chmod(0o600)
    return tmp_path / "third"


def forged(path: Path, row: chain.Row) -> None:
    """Append a row to a ledger as its own code would, anchor and all."""
    with Ledger.open(path) as ledger, ledger._store.locked(), pytest.raises(Refusal):
        ledger._store.append(row)


@pytest.mark.guarantee
def test_a_ledger_of_format_3_is_taken_over_with_its_spending_balances_and_studies(third: Path) -> None:
    said, path = json.loads((third / "expected.json").read_text()), third / "north/north.ledger"
    before = path.read_bytes()
    at = ("party", "ledger", "--config", str(third / "north/party.toml"))
    refused = CliRunner().invoke(app, at).exception
    assert isinstance(refused, Refusal)
    assert "before 0.3.0" in str(refused)
    assert "ledger --migrate" in str(refused)
    assert path.read_bytes() == before
    taken = CliRunner().invoke(app, [*at, "--migrate", "--json"])
    told = json.loads(taken.output)
    kept = [{name: one[name] for name in old} for one, old in zip(told["studies"], said["told"]["studies"], strict=True)]
    assert kept == said["told"]["studies"]
    assert not any(one["data"] for one in told["studies"])  # format 3 did not keep for which data an approval was
    assert (told["spent_epsilon"], told["spent_by_this_party"]) == (
        said["told"]["spent_epsilon"],
        said["told"]["spent_by_this_party"],
    )
    assert told["warnings"] == []
    with Ledger.open(path) as ledger:
        spent = {f"{u}, {s}": ledger.composition(u, s).epsilon(1e-5) for u in ROWWISE for s in Scope}
        assert spent == {name: value for name, value in said["spent"].items() if value is not None}
        listed = []
        for e in ledger.entries():
            words = [e.words(unit) for unit in ROWWISE]
            listed.append([e.kind, e.plan, str(e.key or ""), *words, e.state, e.time, e.about, e.by, e.reason, e.purpose])
        assert listed == said["entries"]
        assert {entry.release for entry in ledger.entries()} == {""}, "that format named no draw"
        history = ledger._store._history
        assert sorted(history.approved) == said["approved"]
        assert sorted(history.withdrawn) == said["withdrawn"]
        assert sorted(history.alignments) == said["alignments"]
        assert len(history.answers) == said["replies"]
        ledger.reserve([charge(0.0)], None)
        assert [len(entry.release) for entry in ledger.entries()][-1] == 64
    with Ledger.open(path) as again:
        assert len(again.entries()) == len(said["entries"]) + 1
    assert (third / "north/north.ledger.format3").read_bytes() == before


@pytest.mark.guarantee
def test_draws_of_a_budget_that_was_taken_over_have_no_name_and_count_each(third: Path) -> None:
    """Both fits of this budget had one plan: a name that one of them had, or none at all, must not make them one draw."""
    with pytest.raises(Refusal, match=r"Ledger\.migrate\(path\)"):
        Budget(2.0, 1e-5, path=third / "budget")
    Ledger.migrate(third / "budget").close()
    budget = Budget(2.0, 1e-5, path=third / "budget")
    assert budget.spent == json.loads((third / "expected.json").read_text())["budget"]
    assert [(entry.kind, entry.release) for entry in budget.entries] == [("shared", "")] * 2
    assert len({entry.plan for entry in budget.entries}) == 1


@pytest.mark.guarantee
def test_a_budget_that_knows_an_earlier_draw_by_no_name_debits_it_again() -> None:
    """The dearer reading: whether the unnamed debit was of this draw nobody can tell."""
    rows = {"age": np.random.default_rng(1).uniform(0, 100, 500)}
    named, unnamed = Budget(9.0, 1e-5), Budget(9.0, 1e-5)
    found = describe(rows, bounds=True, epsilon=0.5, delta=1e-6, budget=named).bounds_
    (debit,) = named.entries
    store = unnamed._ledger._store
    with store.locked():
        (row,) = (one for one in named._ledger._store._history.rows if one.kind == "shared")
        store.append(row._replace(detail=chain.spell_costs(debit.costs)), chain.Row(kind="migration", number=3))
    assert unnamed.spent == named.spent
    for budget, debits in ((named, 2), (unnamed, 3)):
        describe(rows, found, epsilon=0.5, delta=1e-6, budget=budget)
        assert len(budget.entries) == debits
    assert unnamed.spent > named.spent


def test_every_draw_has_a_name_and_no_two_draws_share_one(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "a.ledger") as ledger:
        kept = tmp_path / "kept"
        copied(tmp_path / "a.ledger", kept)
        ledger.reserve([charge(0.1), charge(0.1, shared=True), charge(0.1, "cd" * 32)], None)
        names = [entry.release for entry in ledger.entries()]
        assert all(re.fullmatch("[0-9a-f]{64}", name) for name in names)
        assert len(set(names)) == 3
    with Ledger.open(kept / "a.ledger", moved=True) as old:  # restored: the same key, and nothing of it was spent
        old.reserve([replace(charge(0.1), fingerprint=bytes(32))], None)
        assert old.entries()[0].release not in names, "other data or another request: another draw"
    with Ledger.create(tmp_path / "b.ledger") as other:
        other.reserve([charge(0.1)], None)
        assert other.entries()[0].release not in names, "another party: another draw"


def test_draws_of_one_plan_have_other_names_where_the_data_changed_and_one_name_where_the_bytes_are_the_same() -> None:
    """The ledgers of both runs have one key, as that of a ledger which was restored from an old copy has."""
    study = Study("describe", (Card("north", 40, COLUMNS),), 1.0, 1e-5, derived=())
    model, roots = load("describe"), {"north": bytes(range(32))}
    ages = np.linspace(20, 90, 40)

    def run(values: np.ndarray) -> tuple[set[str], object]:
        table = Table({"age": values})
        done = run_in_process(model, model.compile(study), {"north": table}, Policy.in_process(), load, roots=roots)
        return {entry.release for entry in done.ledger if entry.kind == "charge"}, done.outcome.result

    (first, result), (again, same), (changed, _) = run(ages), run(ages), run(np.append(ages[:-1], 20.0))
    assert (again, str(same)) == (first, str(result))
    assert len(first) == len(changed) == 1
    assert not first & changed


@pytest.mark.guarantee
def test_a_name_that_was_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with Ledger.create(path) as ledger:
        ledger.reserve([charge(0.1)], None)
        name = ledger.entries()[0].release
    connection = sqlite3.connect(path)
    ((detail,),) = connection.execute("SELECT detail FROM chain WHERE kind = 'charge'").fetchall()
    other = detail.replace(name.encode(), name[::-1].encode())
    assert other != detail
    connection.execute("UPDATE chain SET detail = ? WHERE kind = 'charge'", (other,))
    connection.commit()
    connection.close()
    with pytest.raises(LedgerDamaged, match="edited"):
        Ledger.open(path)


@pytest.mark.guarantee
def test_a_debit_without_a_name_that_was_not_taken_over_is_refused(tmp_path: Path) -> None:
    path, row = tmp_path / "a.ledger", chain.Row.of(charge(0.1))._replace(detail=chain.spell_costs(pure(0.1)))
    Ledger.create(path).close()
    forged(path, row)
    with pytest.raises(LedgerDamaged, match="a debit has no name"):
        Ledger.open(path)
    with Ledger.in_memory() as ledger:
        rows = [*ledger._store._history.rows]
        (genesis,) = rows
        columns = list(row._replace(position=1, time=1))
        head = chain.link(ledger._store._history.head.digest, columns)
        with pytest.raises(DataError, match="do not make its head"):
            read_export(export([genesis, chain.Row._make(columns)], head.hex()))


@pytest.mark.guarantee
def test_a_row_of_a_kind_that_nobody_writes_is_refused(tmp_path: Path) -> None:
    """Decision 0049 reserved a kind for signatures under heads; a reader that passed them over would seem to hold them."""
    Ledger.create(tmp_path / "a.ledger").close()
    forged(tmp_path / "a.ledger", chain.Row(kind="countersignature", name="south"))
    with pytest.raises(LedgerDamaged, match="newer version"):
        Ledger.open(tmp_path / "a.ledger")
