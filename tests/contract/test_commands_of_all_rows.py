"""Every row of the registry through every command, from ``new`` to ``withdraw``, and the same account of the spending everywhere.

A row is planned, checked, run and read back from the study file that ``unpooled new`` writes for it: the published rows too, whose cost may be
unbounded. One row of each model runs unmarked; the other rows are slow.
"""

from __future__ import annotations

import html
import json
import math
from pathlib import Path

import polars as pl
import pytest
from cases import CASES, FIRST
from commands import command

from unpooled.models import row_names
from unpooled.privacy.unit import Target, Unit
from unpooled.study.party import create_party

#: The cards of a row where it takes fewer parties than its model's case has.
FEWER = {"pls-published": ("mill",)}
#: What the study of a row says differently from its template, because the case's data do.
CHANGED = {
    "lasso": {"response_bound = 1.0": "response_bound = 2.0"},
    "lasso-published": {
        "response_bound = 1.0": "response_bound = 2.0",
        "rounds = 20": "rounds = 3",
        "sketch_rows = 100": "sketch_rows = 8",
    },
    "pls-published": {"n_components = 10": "n_components = 3"},
    "glm": {'# method = "auto" ': 'method = "newton" '},
}
#: Rows whose model stays at the parties, and rows that release none: the sentence of ``predict``.
UNPREDICTED = {
    "pride": "its coefficients stay at the parties",
    "pride-published": "its coefficients stay at the parties",
    "describe": "releases nothing that predicts",
    "diagnose": "releases nothing that predicts",
    "survival": "releases nothing that predicts",
    "effects": "releases nothing that predicts",
    "analyses": "several analyses: name one with --analysis (describe, bayes)",
    "tables": "releases nothing that predicts",
}
#: Rows of unknown cost.
UNBOUNDED = {"pride-published", "lasso-published", "pls-published"}
#: Rows that release no model, and rows of which a party keeps one.
SILENT = {"pride", "pride-published"}
KEEPS = SILENT | {"stacking", "stacking-published"}
FAST = {
    "analyses",
    "describe",
    "tables",
    "pride",
    "bayes",
    "glm",
    "stacking",
    "diagnose",
    "lasso-published",
    "pls-published",
}
ROWS = [pytest.param(row, marks=() if row in FAST else pytest.mark.slow) for row in row_names()]


class Parties:
    """The parties of a row's case as folders, each with room for many studies."""

    def __init__(self, root: Path, row: str) -> None:
        case = CASES[FIRST[row.partition("-")[0]]]()
        self.root, self.row, self.case = root, row, case
        self.cards = [card for card in case.study.parties if card.name in FEWER.get(row, case.tables)]
        for card in self.cards:
            self._made(card.name)
        self.names = [card.name for card in self.cards]

    def _made(self, name: str) -> None:
        card, table, home = self.case.study.card(name), self.case.tables[name], self.root / name
        home.mkdir()
        values = {column: table[column].tolist() for column in table.names}
        columns = {column: [None if v is None or v != v else v for v in held] for column, held in values.items()}  # noqa: PLR0124 - nan
        pl.DataFrame(columns).write_parquet(home / "data.parquet")
        unit = "attribute" if self.unit == "attribute" else "record"
        create_party(
            home,
            name,
            home / "data.parquet",
            card.columns,
            Target(1000.0, 0.2, Unit(unit)),
            None,
            card.labels,
            new_budget=True,
        )
        text = (home / "party.toml").read_text()
        text = text.replace('calibrations = ["sound"]', 'calibrations = ["sound", "published"]')
        (home / "party.toml").write_text(text.replace("trust = []", 'trust = ["trusted"]'))

    @property
    def unit(self) -> str:
        return "attribute" if self.row.partition("-")[0] in {"pride", "lasso"} else "record"

    @property
    def options(self) -> list[str]:
        return [word for name in self.names for word in ("--party", f"{name}/party.toml")]

    def new(self) -> str:
        """Write the study with ``unpooled new``, and say in it what the case's data are called."""
        model, _, form = self.row.partition("-")
        cards = [word for name in self.names for word in ("--card", f"{name}/{name}.card.toml")]
        words = ("--calibration", form) if form else ()
        models = ("describe", "bayes") if model == "analyses" else (model,)
        assert "written: study.toml" in command(self.root, "new", *models, *words, *cards, "--out", "study.toml")
        path, parameters = self.root / "study.toml", self.case.study.parameters
        if model == "analyses":
            parameters = next(one for one in parameters["analyses"] if one["model"] == "bayes")["parameters"]
        text = path.read_text().replace('goal = "table"', 'goal = "auto"')  # so few rows have no table
        if (response := parameters.get("response")) is not None:
            text = text.replace('response = "y"', f'response = "{response}"')
        if (coefficients := parameters.get("coefficients")) is not None:
            said = ", ".join(f'"{name}" = {value}' for name, value in coefficients.items())
            text = text.replace("coefficients = {}", f"coefficients = {{ {said} }}")
        for old, new in CHANGED.get(self.row, {}).items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
        return text

    def ledger(self, name: str) -> dict:
        return data_of(self.root, "party", "ledger", "--config", f"{name}/party.toml")


@pytest.fixture
def parties(request: pytest.FixtureRequest, tmp_path: Path) -> Parties:
    return Parties(tmp_path, request.param)


def data_of(root: Path, *words: str) -> dict:
    """What a command prints for machines, without what it says to people on standard error."""
    printed = command(root, *words, "--json")
    return json.JSONDecoder().raw_decode(printed[printed.index("{\n") :])[0]


def numbers(found: object) -> float:
    """A spending for machines as a number."""
    return math.inf if found == "unbounded" else float(found)


# Noise differs in every run, and now and then a calibration of so few rows learns nothing: then `predict` warns, as it should.
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The released moments tell nothing:UserWarning")
@pytest.mark.parametrize("parties", ROWS, indirect=True)
def test_a_row_goes_through_every_command(parties: Parties) -> None:
    root, row, names = parties.root, parties.row, parties.names
    text = parties.new()
    assert ('calibration = "published"' in text) == row.endswith("-published")

    # Plan: the printed one, and as data.
    planned = command(root, "plan", "study.toml")
    data = data_of(root, "plan", "study.toml")
    assert data["plan"][:16] in planned
    assert data["statement"]["holds"] == (not row.endswith("-published"))

    # Preview: a result on simulated data, or why there is none, and every figure and table of it is marked.
    shown = data_of(root, "plan", "study.toml", "--preview", "--out", "preview.html")["preview"]
    page = (root / "preview.html").read_text()
    results = page.split("<h2>SIMULATED results</h2>")[1].split("</section>", maxsplit=1)[0]
    assert shown["failed"] == "", shown["failed"]
    assert results.count("<svg") == results.count('aria-label="SIMULATED')
    assert results.count("<table") == results.count("<caption>SIMULATED")
    assert results.count("<pre>") == results.count("<pre>SIMULATED")
    assert any(mark in results for mark in ("<table", "<pre>"))

    # Check and approve.
    at = {name: ("--config", f"{name}/party.toml") for name in names}
    after = {}
    for name in names:
        told = data_of(root, "party", "check", "study.toml", *at[name], "--approve")
        assert told["approved"]
        assert numbers(told["spent_epsilon"]) == 0
        after[name] = numbers(told["after_this_plan"])
        assert (after[name] == math.inf) == (row in UNBOUNDED)

    # Run, and again: the second says that nothing is charged.
    assert "this run's files are in study.run" in command(root, "run", "study.toml", *parties.options, "--force")
    first = {name: parties.ledger(name) for name in names}
    assert "nothing is charged" in command(root, "run", "study.toml", *parties.options, "--force")
    assert {name: parties.ledger(name)["head"] for name in names} == {name: told["head"] for name, told in first.items()}

    # Read it back.
    command(root, "result", "study.run")
    told = data_of(root, "result", "study.run")
    assert (told["plan"], told["holds"]) == (data["plan"], data["statement"]["holds"])
    lines = command(root, "result", "study.run", "--csv").splitlines()
    assert len(lines) == 1 + len(told["terms"])
    hidden = told.get("not_determined", []) or row in {
        "diagnose",
        "survival",
        "effects",
    }  # where so few rows tell of nothing, or cells are empty by noise
    assert (len(lines) == 1) == (row in SILENT) or hidden
    command(root, "report", "study.run")
    page = html.unescape((root / "study.run/report.html").read_text())
    predicted(parties)

    # The documents for those who sign: a row without a guarantee has a dossier that says so, and no record.
    every = [word for name in names for word in at[name]]
    assert "written: study.dossier/dossier.md" in command(root, "dossier", "study.toml", *every, "--run", "study.run")
    words = ("register", "study.toml", "--published", "2026-11-30", "--type", "Machine learning model")
    holds = data["statement"]["holds"]
    assert "nothing is written" in command(root, *words, code=2) if not holds else data_of(root, *words)["record"]
    found = data_of(root, "crate", "study.run", *every, "--dossier", "study.dossier", "--out", "study.crate")
    assert ("study.crate/result.csv" in found["written"]) == (row not in SILENT and bool(told["terms"]))

    # One account of the spending: ledger, about.json, report, officer's page and the next check.
    about = json.loads((root / "study.run/about.json").read_text())
    for budget in about["budgets"]:
        name = budget["party"]
        now = parties.ledger(name)
        words = now["spent"]
        assert numbers(now["spent_epsilon"]) == numbers(budget["spent"]) <= after[name] * (1 + 1e-9)
        assert (words.startswith("unbounded (1 study of unknown cost; epsilon = 0 by all others)")) == (row in UNBOUNDED)
        assert words == budget["said"]
        assert f"spent: {words} of" in command(root, "party", "ledger", *at[name])
        assert words in page
        checked = data_of(root, "party", "check", "study.toml", *at[name])
        assert numbers(checked["spent_epsilon"]) == numbers(now["spent_epsilon"])
        assert words in command(root, "party", "check", "study.toml", *at[name])
        command(root, "report", "study.toml", *at[name])
        assert words in html.unescape((root / f"study.{name}.html").read_text())

    # What a party keeps, and the end.
    for name in names:
        keeps = row in KEEPS and parties.case.study.card(name).labels
        shown = command(root, "party", "show", "study.toml", *at[name], code=None)
        assert shown.strip()
        command(root, "party", "export", "study.toml", *at[name], "--out", f"{name}.csv", code=0 if keeps else 2)
        assert (root / f"{name}.csv").exists() == bool(keeps)
        before = parties.ledger(name)
        command(root, "party", "withdraw", "study.toml", *at[name])
        ended = parties.ledger(name)
        assert (ended["spent_epsilon"], ended["spent"]) == (before["spent_epsilon"], before["spent"])
        assert ended["studies"][0]["state"] == "withdrawn"


#: Rows whose plan says what error to expect.
EXPECTED = {"effects", "analyses", "describe", "tables", "pride", "bayes", "glm", "stacking", "lasso", "pls"}


@pytest.mark.long_for("pride", "stacking", "glm", "pls", "analyses")
@pytest.mark.parametrize(
    "parties", [pytest.param(row, marks=pytest.mark.slow if row in EXPECTED else ()) for row in row_names()], indirect=True
)
def test_a_plan_says_what_to_expect_or_that_nobody_knows(parties: Parties) -> None:
    """X1: a published row had the outlook of the sound form, which refused its studies or said the error of other noise."""
    parties.new()
    expected = parties.row in EXPECTED
    said = command(parties.root, "plan", "study.toml", "--utility", code=0 if expected else 2)
    assert ("<- asked" if expected else "has no outlook: leave --utility out") in said


def predicted(parties: Parties) -> None:
    """Predict three rows with everybody's columns, or read why not."""
    root, case = parties.root, parties.case
    rows = {}
    for name in parties.names:
        table = case.tables[name]
        rows |= {column.name: table[column.name][:3].tolist() for column in case.study.card(name).columns}
    pl.DataFrame(
        {
            name: [None if v is None or (isinstance(v, float) and math.isnan(v)) else v for v in held]
            for name, held in rows.items()
        }
    ).write_csv(root / "new.csv")
    words = ("predict", "study.run", "--data", "new.csv")
    if (why := UNPREDICTED.get(parties.row)) is not None:
        assert why in command(root, *words, code=2)
        return
    found = data_of(root, *words)
    assert len(found["predictions"]) == 3


@pytest.mark.long_for("pls-published", "lasso-published")
@pytest.mark.parametrize(
    "parties", ["lasso-published", pytest.param("pls-published", marks=pytest.mark.slow)], indirect=True
)
def test_a_sound_study_after_one_of_unknown_cost_is_read_like_any_other(parties: Parties) -> None:
    """X2: about.json held null for the spending, and every command that read it said that it was damaged."""
    root = parties.root
    parties.new()
    for name in parties.names:
        command(root, "party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    command(root, "run", "study.toml", *parties.options, "--force")
    # Now a sound study of one of them.
    name = parties.names[0]
    at = ("--config", f"{name}/party.toml")
    command(root, "new", "describe", "--card", f"{name}/{name}.card.toml", "--out", "after.toml")
    before = parties.ledger(name)["spent"]
    assert before == "unbounded (1 study of unknown cost; epsilon = 0 by all others)"
    told = data_of(root, "party", "check", "after.toml", *at, "--approve")
    assert (told["spent_epsilon"], told["after_this_plan"]) == ("unbounded", "unbounded")
    command(root, "run", "after.toml", "--party", f"{name}/party.toml", "--force")
    now = parties.ledger(name)
    known = next(study["epsilon"] for study in now["studies"] if study["epsilon"] != "unbounded")
    words = f"unbounded (1 study of unknown cost; epsilon = {known:.6g} by all others)"
    assert now["spent"] == words
    assert words in command(root, "party", "check", "after.toml", *at)
    (budget,) = json.loads((root / "after.run/about.json").read_text())["budgets"]
    assert (budget["spent"], budget["said"]) == ("unbounded", words)
    for run in ("study.run", "after.run"):
        command(root, "result", run)
        command(root, "report", run)
        command(
            root,
            "run",
            run.replace(".run", ".toml"),
            *(parties.options if run == "study.run" else ("--party", f"{name}/party.toml")),
        )
    assert words in html.unescape((root / "after.run/report.html").read_text())
    predicted(parties)
    for study in ("study.toml", "after.toml"):
        command(root, "report", study, *at)
        assert words in html.unescape((root / f"{study.removesuffix('.toml')}.{name}.html").read_text())
