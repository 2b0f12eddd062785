"""A budget follows its ledger, and a ledger its data: copies, moves, second budgets, ledgers of an older version (FINDINGS G6, G12)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unpooled.cli.main import app
from unpooled.errors import BudgetRefusal, LedgerDamaged, LedgerMoved, Refusal, StudyError
from unpooled.privacy.bounds import Column
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger import Charge, Ledger, ReleaseKey, files, place
from unpooled.privacy.unit import ROWWISE, Scope, Target, Unit
from unpooled.study import budgets
from unpooled.study.party import create_party, open_party

PLAN, REQUEST = "ab" * 32, bytes(range(32))
ENDINGS = ("", ".anchor", ".key")
OLD = Path(__file__).parents[1] / "data" / "ledger_0.1.0" / "north.ledger"


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


def test_another_machine_is_another_place_and_an_unknown_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_machine", lambda: "one")
    Ledger.create(tmp_path / "a.ledger").close()
    monkeypatch.setattr(place, "_machine", lambda: "two")
    with pytest.raises(LedgerMoved):
        Ledger.open(tmp_path / "a.ledger")
    monkeypatch.setattr(place, "_machine", lambda: "")  # a container without an identity
    Ledger.open(tmp_path / "a.ledger").close()


def test_the_identity_of_a_machine_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "machine-id"
    secret.write_text("0123456789abcdef\n")
    monkeypatch.setattr(place, "_MACHINE_FILES", (str(tmp_path / "none"), str(secret)))
    Ledger.create(tmp_path / "a.ledger").close()
    assert b"0123456789abcdef" not in (tmp_path / "a.ledger").read_bytes()
    secret.write_text("\n")
    assert place.Place.of(tmp_path / "a.ledger").machine == ""


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


def test_a_copy_of_the_file_is_recognised_by_what_it_holds(data: Path, tmp_path: Path) -> None:
    create_party(tmp_path / "first", "north", data, COLUMNS, TOTAL)
    other = tmp_path / "far" / "away" / "renamed.csv"
    other.parent.mkdir(parents=True)
    shutil.copy(data, other)
    with pytest.raises(StudyError, match="kept already"):
        create_party(other.parent, "south", other, COLUMNS, TOTAL)
    other.write_text("age\n41\n50\n60\n")  # other people
    create_party(other.parent, "south", other, COLUMNS, TOTAL)


def test_a_file_that_was_edited_in_its_place_is_the_same_people(data: Path, tmp_path: Path) -> None:
    create_party(tmp_path / "first", "north", data, COLUMNS, TOTAL)
    data.write_text("age\n40\n50\n60\n70\n")
    with pytest.raises(StudyError, match="kept already"):
        create_party(tmp_path / "second", "north", data, COLUMNS, TOTAL)


def test_without_a_state_folder_ledgers_nearby_are_found_all_the_same(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))  # no folder can be made in a file
    create_party(tmp_path / "data" / "first", "north", data, COLUMNS, TOTAL)
    assert len(budgets.other_budgets(data, tmp_path / "anywhere")) == 1
    assert not budgets.other_budgets(Path(__file__), tmp_path / "anywhere")


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


def test_an_old_ledger_is_refused_with_the_command_that_takes_it_over(tmp_path: Path) -> None:
    old = copied(OLD, tmp_path)
    before = old.read_bytes()
    with pytest.raises(Refusal, match="ledger --migrate"):
        Ledger.open(old)
    assert old.read_bytes() == before


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
