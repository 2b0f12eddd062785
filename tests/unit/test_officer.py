"""What a privacy officer does after a study: withdraw, renew a card, forget what is kept, export a ledger and have it verified."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from commands import PARTIES, approve, command, two_parties

from unpooled.study.files import read_card

NORTH = ("--config", "north/party.toml")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


@pytest.mark.slow
def test_a_withdrawn_study_does_not_run_here_and_can_be_approved_again(world: Path) -> None:
    approve(world)
    assert "nothing of it had been released" in command(world, "party", "withdraw", "study.toml", *NORTH)
    assert "not approved" in command(world, "run", "study.toml", *PARTIES, code=3)
    command(world, "party", "check", "study.toml", *NORTH, "--approve")
    command(world, "run", "study.toml", *PARTIES)
    told = json.loads(command(world, "party", "withdraw", "study.toml", *NORTH, "--json"))
    assert (told["approved"], told["released_before"]) == (False, 1)
    assert "1 release(s) of it were debited before" in command(world, "party", "withdraw", "study.toml", *NORTH)
    # Not even a stored answer is given again, also where the policy lists the plan.
    path = world / "north/party.toml"
    path.write_text(path.read_text().replace('approval = "ask"', f'approval = ["{told["plan"]}"]'))
    assert "withdrew its approval" in command(world, "run", "study.toml", *PARTIES, "--out", "other", code=3)
    assert "withdrawal" in command(world, "party", "ledger", *NORTH, "--all")
    listing = command(world, "party", "ledger", *NORTH)
    assert "withdrawn" in listing
    assert "spent: epsilon = 1 of 1" in listing


@pytest.mark.guarantee
def test_an_officer_stops_everything_over_a_ledger(world: Path) -> None:
    """What is approved, and what the policy lists although this ledger never saw it."""
    approve(world)
    text = (world / "study.toml").read_text()
    (world / "third.toml").write_text(text.replace("[study]", "[study]\nrun = 3", 1))
    third = json.loads(command(world, "plan", "third.toml", "--json"))["plan"]
    path = world / "north/party.toml"
    path.write_text(path.read_text().replace('approval = "ask"', f'approval = ["{third}"]'))
    told = json.loads(command(world, "party", "withdraw", "--all", *NORTH, "--reason", "a leak", "--json"))
    assert third in told["plans"]
    assert len(told["plans"]) == 2
    for study in ("study.toml", "third.toml"):
        refused = command(world, "run", study, *PARTIES, "--out", f"{study}.again", code=3)
        assert "withdrew its approval" in refused or "not approved here" in refused
    assert "withdrawn: 0 plan(s)" in command(world, "party", "withdraw", "--all", *NORTH)
    assert "a leak" in command(world, "party", "ledger", *NORTH, "--all")
    for wrong in ((), ("study.toml", "--all")):
        assert "one of the two" in command(world, "party", "withdraw", *wrong, *NORTH, code=2)


def test_one_persons_rows_are_erased_and_the_card_renewed(world: Path) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    assert "unchanged" in command(world, "party", "card", *NORTH)
    old = read_card(world / "north/north.card.toml")
    frame = pl.read_csv(world / "north/data.csv")
    frame.filter(pl.col("id") != 7).write_csv(world / "north/data.csv")
    told = json.loads(command(world, "party", "card", *NORTH, "--json"))
    assert (told["changed"], told["rows"]) == (True, 299)
    new = read_card(world / "north/north.card.toml")
    assert (new.rows, new.key, new.columns) == (299, old.key, old.columns)
    # The study is another one now: it wants approval, and what was spent before still counts.
    refused = command(world, "party", "check", "study.toml", *NORTH, code=3)
    assert "no room" in refused
    (world / "north/north.card.toml").unlink()
    assert "wrote" in command(world, "party", "card", *NORTH)


@pytest.mark.slow
def test_what_is_kept_is_deleted_and_the_ledger_stays(world: Path) -> None:
    from unpooled.study.files import read_study
    from unpooled.study.party import keeper_of
    from unpooled.study.run import compile_study

    keeper, plan = keeper_of(world / "north/party.toml"), compile_study(read_study(world / "study.toml")).hash
    keeper.keep(plan, "coefficients", pl.Series([1.0]).to_numpy())
    keeper.keep("f" * 64, "coefficients", pl.Series([1.0]).to_numpy())
    assert "deleted coefficients" in command(world, "party", "forget", "study.toml", *NORTH)
    assert json.loads(command(world, "party", "forget", "study.toml", *NORTH, "--json"))["deleted"] == []
    assert "nothing is kept" in command(world, "party", "forget", "study.toml", *NORTH)
    assert keeper.plans() == ["f" * 32]


@pytest.mark.guarantee
def test_an_auditor_recomputes_an_exported_ledger(world: Path) -> None:
    approve(world)
    early = json.loads(command(world, "party", "ledger", *NORTH, "--json"))["head"]
    command(world, "run", "study.toml", *PARTIES)
    command(world, "party", "ledger", *NORTH, "--export", "ledger.json")
    assert oct((world / "ledger.json").stat().st_mode)[-3:] == "600"
    assert "exists already" in command(world, "party", "ledger", *NORTH, "--export", "ledger.json", code=2)
    said = command(world, "party", "verify", "ledger.json", "--head", early)
    assert "unbroken chain" in said
    assert "approval" in said
    told = json.loads(command(world, "party", "verify", "ledger.json", "--json"))
    assert told["head"] == json.loads(command(world, "party", "ledger", *NORTH, "--json"))["head"]
    assert "never ended in the head" in command(world, "party", "verify", "ledger.json", "--head", "00" * 32, code=2)
    (world / "ledger.json").write_text((world / "ledger.json").read_text().replace("approval", "approvel", 1))
    assert "do not make its head" in command(world, "party", "verify", "ledger.json", code=2)


# --- data that change between approval and run -------------------------------------------------------------------------------


def changed(world: Path, by: float = 1.0) -> None:
    """Change one person's value; the number of rows stays."""
    path = world / "north/data.csv"
    frame = pl.read_csv(path)
    column = next(name for name, kind in frame.schema.items() if kind.is_float())
    first = pl.int_range(pl.len()) == 0
    frame.with_columns(pl.when(first).then(pl.col(column) - by).otherwise(pl.col(column)).alias(column)).write_csv(path)


def history(world: Path) -> list[dict[str, str]]:
    told = json.loads(command(world, "party", "ledger", *NORTH, "--all", "--json"))
    return [entry for entry in told["entries"] if entry["kind"] == "approval"]


@pytest.mark.guarantee
def test_other_data_than_those_approved_are_refused_and_nothing_is_debited(world: Path) -> None:
    approve(world)
    (before,) = history(world)
    assert len(before["data"]) == 64
    changed(world)
    said = command(world, "run", "study.toml", *PARTIES, code=3)
    for words in ("for other data", before["data"][:16], "--data-changed", "Nothing was released"):
        assert words in said
    assert history(world) == [before]
    assert "spent: epsilon = 0 of" in command(world, "party", "ledger", *NORTH)
    changed(world, -1.0)  # the approved data again
    command(world, "run", "study.toml", *PARTIES)


@pytest.mark.long
@pytest.mark.slow
def test_other_data_are_approved_with_a_reason_that_ledger_and_report_name(world: Path) -> None:
    approve(world)
    changed(world)
    assert "--data-changed" in command(world, "party", "check", "study.toml", *NORTH, "--approve", code=3)
    assert "--data-changed" in command(world, "party", "check", "study.toml", *NORTH, code=3)
    assert len(history(world)) == 1
    said = command(world, "party", "check", "study.toml", *NORTH, "--data-changed", "a typing error in one age")
    assert "for the data with digest" in said
    first, second = history(world)
    assert first["data"] != second["data"]
    assert (first["changed"], second["changed"]) == ("", "a typing error in one age")
    command(world, "run", "study.toml", *PARTIES)
    listing = command(world, "party", "ledger", *NORTH, "--all")
    assert f"for the data with digest {second['data'][:16]}, which changed: a typing error in one age" in listing
    assert f"for the data with digest {first['data'][:16]}" in listing
    assert second["data"][:16] in command(world, "party", "ledger", *NORTH)
    command(world, "report", "study.toml", "--config", "north/party.toml", "--out", "north.html")
    command(world, "report", "study.run", "--out", "run.html")
    for page in ("north.html", "run.html"):
        text = (world / page).read_text()
        assert second["data"][:16] in text
        assert "a typing error in one age" in text
        assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d", text[text.index(second["data"][:16]) :])


@pytest.mark.guarantee
def test_the_doctor_says_that_data_changed_since_the_approval(world: Path) -> None:
    from unpooled.network.processes import examine
    from unpooled.study.files import read_study

    approve(world)
    study, config = read_study(world / "study.toml"), world / "north/party.toml"
    assert [one.fine for one in examine(None, config, study) if one.what == "party"] == [True]
    changed(world)
    (found,) = [one for one in examine(None, config, study) if one.what == "party"]
    assert not found.fine
    assert "for other data" in found.words


def test_a_run_on_this_disk_records_why_data_changed(world: Path) -> None:
    approve(world)
    changed(world)
    command(world, "run", "study.toml", *PARTIES, "--data-changed", "late results of the laboratory")
    assert [entry["changed"] for entry in history(world)] == ["", "late results of the laboratory"]
    south = json.loads(command(world, "party", "ledger", "--config", "south/party.toml", "--json"))
    assert [entry["changed"] for entry in south["entries"] if entry["kind"] == "approval"] == [""]


def test_a_reason_for_data_that_did_not_change_is_refused(world: Path) -> None:
    reason = ("--data-changed", "why not")
    assert "is not approved" in command(world, "party", "check", "study.toml", *NORTH, *reason, code=2)
    approve(world)
    assert "are those that were approved" in command(world, "party", "check", "study.toml", *NORTH, *reason, code=2)
    assert "are those that were approved" in command(world, "run", "study.toml", *PARTIES, *reason, code=2)
    assert "--network" in command(world, "run", "study.toml", "--network", "kit", *reason, code=2)
    assert len(history(world)) == 1


@pytest.mark.guarantee
def test_an_approval_of_an_earlier_version_holds_no_digest_and_says_so(world: Path) -> None:
    from unpooled.privacy.ledger import Ledger
    from unpooled.study.files import read_study
    from unpooled.study.run import compile_study

    plan = compile_study(read_study(world / "study.toml")).hash
    command(world, "party", "check", "study.toml", "--config", "south/party.toml", "--approve")
    with Ledger.open(world / "north/north.ledger") as ledger:
        ledger.approve(plan, "glm")
    changed(world)
    command(world, "run", "study.toml", *PARTIES)
    assert "without a digest of the data" in command(world, "party", "ledger", *NORTH, "--all")
    command(world, "report", "study.toml", "--config", "north/party.toml", "--out", "north.html")
    assert "without a digest of the data" in (world / "north.html").read_text()


@pytest.mark.slow
def test_a_plan_that_the_policy_lists_is_approved_for_whatever_data_there_are_and_says_so(world: Path) -> None:
    from unpooled.study.files import read_study
    from unpooled.study.run import compile_study

    plan = compile_study(read_study(world / "study.toml")).hash
    command(world, "party", "check", "study.toml", "--config", "south/party.toml", "--approve")
    path = world / "north/party.toml"
    path.write_text(path.read_text().replace('approval = "ask"', f'approval = ["{plan}"]'))
    changed(world)
    command(world, "run", "study.toml", *PARTIES)
    command(world, "report", "study.run", "--out", "run.html")
    command(world, "report", "study.toml", "--config", "north/party.toml", "--out", "north.html")
    for page in ("run.html", "north.html"):
        assert "its policy lists the plan, which holds no digest of data" in (world / page).read_text()


def test_the_console_keeps_a_digest_of_the_data_too(world: Path) -> None:
    from unpooled.console.desk import OfficeDesk, shown_of, standing
    from unpooled.study.party import open_account

    inbox = world / "inbox"
    inbox.mkdir()
    for name in ("study.toml", *(str(path.relative_to(world)) for path in world.glob("*/*.card.toml"))):
        (inbox / name).parent.mkdir(exist_ok=True)
        (inbox / name).write_text((world / name).read_text())
    desk = OfficeDesk(world / "north/party.toml", inbox, world)
    with open_account(desk.config) as party:
        (item,) = desk.items(party)
        shown = shown_of(item, standing(party, item.hash))
    desk.approve(item.hash, shown, "a person", "it is useful")
    assert len(history(world)[0]["data"]) == 64
