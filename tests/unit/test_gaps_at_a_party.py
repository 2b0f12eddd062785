"""What a party is shown of its gaps when it is set up and by the doctor: which columns, and which together; and that nothing of it travels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import command

from unpooled.privacy.bounds import Column
from unpooled.study.data import gaps_in_words, gaps_of_rows
from unpooled.study.files import read_card

COLUMNS = (
    Column("age", 20.0, 90.0),
    Column("crp", 0.0, 300.0, below=0.5),
    Column("ward", categories=("a", "b"), missing="complete"),
)
ROWS = 97


def data(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    crp = [f"{value:.2f}" for value in rng.uniform(1, 9, ROWS)]
    ward = ["a" if value else "b" for value in rng.integers(0, 2, ROWS)]
    crp[:11], crp[11:18] = [""] * 11, ["<0.5"] * 7
    ward[5:18] = [""] * 13
    pd.DataFrame({"age": rng.uniform(20, 90, ROWS).round(1), "crp": crp, "ward": ward}).to_csv(
        folder / "data.csv", index=False
    )
    return folder / "data.csv"


def made(folder: Path, *more: str) -> str:
    return command(
        folder,
        *("party", "init", str(data(folder)), "--name", "north", "--folder", str(folder)),
        *("--column", "age=20:90", "--column", "crp=0:300;<0.5", "--column", "ward=a,b;complete"),
        *("--epsilon", "2", "--delta", "1e-5", *more),
    )


def test_patterns_are_counted_by_the_columns_that_lack_a_value_together() -> None:
    blocks = [
        [np.array([30.0, 40.0, 50.0]), np.array([np.nan, np.nan, 1.0]), np.array(["a", None, "c"], dtype=object)],
        [np.array([30.0]), np.array([np.nan]), np.array(["b"], dtype=object)],
    ]
    found = gaps_of_rows(blocks, COLUMNS)
    assert dict(found) == {("crp",): 2, ("crp", "ward"): 1, ("ward",): 1}
    assert found[0] == (("crp",), 2)
    words = "\n".join(gaps_in_words(found, 4))
    assert "0 of 4 rows are whole (100.0% are not); without a value: crp 75.0%, ward 50.0%" in words
    assert "crp in 2 rows; " in words
    assert list(gaps_in_words((), 4)) == []


@pytest.mark.guarantee
def test_a_party_is_shown_its_gaps_and_the_card_has_none_of_them(tmp_path: Path) -> None:
    told = made(tmp_path)
    assert "gaps     79 of 97 rows are whole (18.6% are not); without a value: crp 18.6%, ward 13.4%" in told
    assert "crp and ward in 13 rows; crp in 5 rows" in told
    assert "7 rows" in told  # under the limit
    card = (tmp_path / "north.card.toml").read_text(encoding="utf-8")
    assert read_card(tmp_path / "north.card.toml").rows == ROWS
    for number in ("79", "18.6", "13.4", "13", "gaps", "whole"):
        assert number not in card.split("key")[0]
    doctor = command(tmp_path, "doctor", "--config", "party.toml")
    assert "79 of 97 rows are whole" in doctor


def test_it_is_data_for_machines_too(tmp_path: Path) -> None:
    found = json.loads(made(tmp_path, "--json", "--new-budget"))
    assert found["gaps"] == [{"columns": ["crp", "ward"], "rows": 13}, {"columns": ["crp"], "rows": 5}]


def test_a_party_without_gaps_is_shown_none(tmp_path: Path) -> None:
    pd.DataFrame({"age": np.linspace(20, 90, 50)}).to_csv(tmp_path / "data.csv", index=False)
    told = command(
        tmp_path,
        *("party", "init", "data.csv", "--name", "north", "--folder", ".", "--column", "age=20:90"),
        *("--epsilon", "2", "--delta", "1e-5"),
    )
    assert "gaps" not in told
    assert "gaps: no value is missing" in command(tmp_path, "doctor", "--config", "party.toml")
