"""What a privacy officer does after a study: withdraw, renew a card, forget what is kept, export a ledger and have it verified."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from commands import PARTIES, approve, command, two_parties

from unpooled.study.files import read_card

NORTH = ("--config", "north/party.toml")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


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
