"""The page of a run: worked out from the transcript alone, the same bytes again, and nothing loaded from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from cases import CASES

from unpooled.errors import ProtocolError, UsageError
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import encode
from unpooled.protocol.party import Party
from unpooled.protocol.step import Panel, no_panels
from unpooled.protocol.transcript import Transcript
from unpooled.report import figures
from unpooled.report.page import page
from unpooled.report.run import Run
from unpooled.study.run import write_results


def ran(folder: Path, study: Study, tables: dict[str, Table]) -> Path:
    """The folder of a finished run, as `unpooled run` leaves it."""
    model = load(study.model)
    plan, people = model.compile(study), {}
    for card in study.parties:
        ledger = Ledger.in_memory()
        people[card.name] = Party(
            card.name, tables[card.name], card, ledger, KeySource(ledger.root_key), Policy.in_process(), load
        )
    transcript = Transcript.open(folder / "transcript")
    outcome = drive(model, plan, in_process(people), transcript)
    transcript.close()
    write_results(folder, plan, outcome)
    return folder


@pytest.mark.no_cover
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("simulated", [True, False])
def test_every_model_has_a_page(name: str, simulated: bool, tmp_path: Path) -> None:
    case = CASES[name]()
    study = case.study if simulated else msgspec.structs.replace(case.study, simulation_seed=None)
    run = Run.read(ran(tmp_path, study, case.tables))
    text = page(run)
    assert run.agrees
    assert text == page(Run.read(tmp_path))
    assert ("No privacy guarantee holds" in text) == simulated
    assert ("no published result becomes more than e^epsilon" in text) == (not simulated)
    for release in run.plan.releases:
        assert f"<td>{release.name}</td><td>{release.party}</td>" in text
    for sentence in (*run.plan.statement.not_protected, *run.plan.statement.assumptions):
        assert sentence.replace("'", "&#39;").replace(">", "&gt;") in text
    assert sum(count.received for count in run.steps) == sum(part["received"] for part in run.communication.values())
    assert not re.search(r"<script|<link|<img|@import|src=|url\((?!#)|href=\"(?!#)", text)


def describe(tmp_path: Path) -> Path:
    case = CASES["describe"]()
    return ran(tmp_path, case.study, case.tables)


def test_a_stored_result_that_does_not_follow_from_the_transcript_is_told(tmp_path: Path) -> None:
    folder = describe(tmp_path)
    stored = (folder / "result.json").read_text()
    (folder / "result.json").write_text(stored.replace('"value": 90.0', '"value": 91.0', 1))
    assert (run := Run.read(folder)).agrees is False
    assert "NOT the recomputed one" in page(run)
    (folder / "result.json").write_text("{")
    assert Run.read(folder).agrees is False
    (folder / "result.json").unlink()
    assert (run := Run.read(folder)).agrees is None
    assert "no stored result" in page(run)


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no transcript"):
        Run.read(tmp_path)
    (tmp_path / "transcript").touch()
    with pytest.raises(UsageError, match="empty"):
        Run.read(tmp_path)
    folder = describe(tmp_path)
    whole = (folder / "transcript").read_bytes()
    (folder / "transcript").write_bytes(whole[:-10])
    with pytest.raises(ProtocolError, match="ends before"):
        Run.read(folder)
    other = Transcript.open(tmp_path / "other")
    other.record("north", encode("f" * 64, "sums", 0, msgspec.defstruct("Empty", [])()), b"")
    other.close()
    (folder / "transcript").write_bytes((tmp_path / "other").read_bytes())
    with pytest.raises(ProtocolError, match="does not begin with a study"):
        Run.read(folder)


def test_a_run_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = describe(tmp_path)
    monkeypatch.setattr("unpooled.privacy.plan.PLAN_VERSION", 999)
    with pytest.raises(UsageError, match="use the one it ran with"):
        Run.read(folder)


def test_names_are_text_and_nothing_else() -> None:
    odd = ("<b>bold</b>", "$x_1$ & co", "Größe 高さ", 'a"quote')
    bars = figures.panel(Panel("title", odd, (1.0, -2.0, 3.0, 0.0)))
    assert "&lt;b&gt;" in bars
    assert "<b>" not in bars
    assert "$x_1$ &amp; co" in bars
    assert "高さ" in bars
    assert "<svg" in figures.panel(Panel("title", odd, (1.0, 2.0, 3.0, 4.0), ordered=True))
    many = Panel("title", tuple(f"column {j}" for j in range(50)), tuple(float(j) for j in range(50)))
    assert "column 49" in figures.panel(many)
    assert "column 3<" not in figures.panel(many)


def test_a_model_without_figures_has_none() -> None:
    assert no_panels(None) == ()
