"""New rows of a column-split study: predicted at the parties, in a study of its own that is planned, approved and charged."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import command, two_parties

from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target, Unit
from unpooled.study.files import read_card, read_study
from unpooled.study.party import create_party

PRIOR = '[[parameters.prior]]\nname = "2024"\ncoefficients = { c0 = 4.0, l0 = 4.0 }\n'
STUDY = f"""\
[study]
model = "pride"
purpose = "to be predicted from"

[parameters]
response = "y"

{PRIOR}
[privacy]
epsilon = 8.0
delta = 1e-6
unit = "attribute"
"""
NAMES = ("clinic", "laboratory")


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    """A clinic and a laboratory that have fitted, and files of their new patients."""
    rng = np.random.default_rng(0)
    n, new = 800, 50
    hidden = rng.normal(size=(n + new, 2))
    parts = [np.clip((hidden @ rng.normal(size=(2, 8)) + rng.normal(size=(n + new, 8))) / 5, -1, 1) for _ in NAMES]
    y = 4 * parts[0][:, 0] + 4 * parts[1][:, 0] + 0.1 * rng.normal(size=n + new)
    np.save(tmp_path / "truth.npy", y[n:])
    ids = [f"p{k}" for k in range(n + new)]
    cards = ""
    for name, values in zip(NAMES, parts, strict=True):
        (tmp_path / name).mkdir()
        data = {"patient": ids, **{f"{name[0]}{j}": values[:, j] for j in range(8)}, "y": y}
        frame = pl.DataFrame(data)
        frame.head(n).write_csv(tmp_path / name / "data.csv")
        frame.tail(new).drop("y").write_csv(tmp_path / name / "new.csv")
        declared = tuple(Column(f"{name[0]}{j}", -1.0, 1.0) for j in range(8))
        create_party(
            tmp_path / name,
            name,
            tmp_path / name / "data.csv",
            declared,
            Target(20.0, 1e-6, Unit.ATTRIBUTE),
            "patient",
            ("y",),
        )
        cards += f'\n[[party]]\ncard = "{name}/{name}.card.toml"\n'
    (tmp_path / "study.toml").write_text(STUDY + cards)
    ran(tmp_path, "study.toml", NAMES)
    return tmp_path


def ran(folder: Path, study: str, homes: tuple[str, ...]) -> None:
    for home in homes:
        command(folder, "party", "check", study, "--config", f"{home}/party.toml", "--approve")
    command(folder, "run", study, "--force", *(word for home in homes for word in ("--party", f"{home}/party.toml")))


@pytest.mark.long
@pytest.mark.slow
def test_new_rows_are_predicted_at_the_parties_and_charged(columns: Path) -> None:
    for name in NAMES:
        said = command(
            columns, "party", "rows", f"{name}/new.csv", "--config", f"{name}/party.toml", "--folder", f"{name}-new"
        )
        assert "the ledger and its key stay where they are" in said
        card, old = read_card(columns / f"{name}-new/{name}.card.toml"), read_card(columns / f"{name}/{name}.card.toml")
        assert (card.rows, card.labels, card.key, card.columns) == (50, (), old.key, old.columns)
    cards = [word for name in NAMES for word in ("--card", f"{name}-new/{name}.card.toml")]
    command(columns, "new", "pride", "--fitted", "study.toml", *cards, "--out", "predict.toml")
    asked = read_study(columns / "predict.toml")
    assert (asked.epsilon, asked.unit, asked.ids) == (8.0, "attribute", "aligned")
    assert "prior" not in asked.parameters  # what the parties keep is drawn to it already
    assert "The earlier models (2024) are public" in command(columns, "plan", "study.toml")
    assert "fits nothing" in command(columns, "plan", "predict.toml", "--utility", code=2)
    assert "sketch" in command(columns, "plan", "predict.toml")
    spent = json.loads(command(columns, "party", "ledger", "--config", "clinic/party.toml", "--json"))["spent_epsilon"]
    ran(columns, "predict.toml", tuple(f"{name}-new" for name in NAMES))
    after = json.loads(command(columns, "party", "ledger", "--config", "clinic/party.toml", "--json"))["spent_epsilon"]
    assert after > spent + 1  # it is the same ledger, and the new rows' sketches are in it
    truth, found = np.load(columns / "truth.npy"), {}
    for name in NAMES:
        command(columns, "party", "export", "predict.toml", "--config", f"{name}-new/party.toml", "--out", f"{name}.csv")
        rows = list(csv.DictReader((columns / f"{name}.csv").read_text().splitlines()))
        assert [row["patient"] for row in rows] == [f"p{k}" for k in range(800, 850)]
        found[name] = np.array([float(row["prediction"]) for row in rows])
    for values in found.values():
        assert np.corrcoef(values, truth)[0, 1] > 0.5
    config = columns / "clinic-new/party.toml"
    config.write_text(config.read_text().replace('id = "patient"\n', ""))
    command(columns, "party", "export", "predict.toml", "--config", "clinic-new/party.toml", "--out", "bare.csv")
    assert (columns / "bare.csv").read_text().startswith("prediction\n")


@pytest.mark.guarantee
def test_what_cannot_be_is_refused(columns: Path, tmp_path: Path) -> None:
    rows = ("party", "rows", "clinic/new.csv", "--config", "clinic/party.toml", "--folder")
    assert "exists already" in command(columns, *rows, "clinic", code=2)
    told = json.loads(command(columns, *rows, "clinic-new", "--json"))
    assert told["card"] == "clinic-new/clinic.card.toml"
    (tmp_path / "other").mkdir()
    world = two_parties(tmp_path / "other")
    for model, words in (("pride", "free of charge"), ("bayes", "is for pride")):
        said = command(world, "new", model, "--fitted", "study.toml", "--out", "x.toml", code=2)
        assert words in said
    text = (columns / "study.toml").read_text()
    trust = '[trust]\ncross-validation = "trusted"\n\n[[party]]'
    other = text.replace('response = "y"', 'response = "y"\nalpha = "global-cv"').replace("[[party]]", trust, 1)
    other = other.replace(PRIOR, "")
    (columns / "study.toml").write_text(other)
    command(columns, "new", "pride", "--fitted", "study.toml", "--epsilon", "3", "--out", "y.toml")
    assert "alpha" not in (columns / "y.toml").read_text()
    assert "epsilon = 3.0" in (columns / "y.toml").read_text()
