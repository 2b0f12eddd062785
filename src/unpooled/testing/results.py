"""Results of every case: the record of a run gives what its transcript gives, is read in every form, and becomes a page."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest

from unpooled.errors import UsageError
from unpooled.estimation.running import ModelResult
from unpooled.inference.results import Result, TableOutput
from unpooled.models import fitted, load
from unpooled.protocol.terms import FIELDS, as_csv, as_table
from unpooled.report.page import page
from unpooled.study.finished import Run
from unpooled.testing.cases import FULL, Case, ran


# A fit of few rows may have learnt nothing, and says so; its record must say the same.
@pytest.mark.filterwarnings("ignore:.*ask for a larger epsilon:UserWarning")
def test_a_record_tells_what_the_transcript_tells(case: Case, tmp_path: Path) -> None:
    folder = ran(tmp_path, case.study, case.tables)
    whole = Run.read(folder)
    (folder / "transcript").unlink()
    told = Run.read(folder)
    assert whole.recomputed
    assert not told.recomputed
    assert told.agrees
    assert told.plan.hash == whole.plan.hash
    assert msgspec.msgpack.encode(told.result) == msgspec.msgpack.encode(whole.result)
    assert told.terms == whole.terms
    assert told.communication == whole.communication
    check_estimator(told)
    check_forms(ModelResult(told.result, told.plan))
    if FULL or case.name == "describe":
        text = page(told)
        assert "from the record that it sent" in text
        assert "worked out from the run's transcript alone" not in text
    # A model either names its numbers or leaves them all at the parties.
    if told.terms:
        assert all(np.isfinite(term.estimate) for term in told.terms)
        assert len({(term.group, term.term) for term in told.terms}) == len(told.terms)
        rows = list(csv.DictReader(io.StringIO(as_csv(told.terms))))
        assert tuple(rows[0]) == FIELDS
        assert [float(row["estimate"]) for row in rows] == [term.estimate for term in told.terms]
        assert len(as_table(told.terms).splitlines()) == len(rows) + 1
        assert msgspec.json.decode(msgspec.json.encode(told.terms), type=tuple[type(told.terms[0]), ...]) == told.terms


class _Tags(HTMLParser):
    """The tags of a page that are open; one that is closed must be the last."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.open += [tag] if tag != "img" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_forms(found: Result) -> None:
    """A result is read in every form, and each of them holds all of its lines."""
    printed, numbers = found._printed(), found._numbers()
    assert "\n" not in repr(found)
    page, tags = found._repr_html_(), _Tags()
    tags.feed(page)
    assert tags.open == []
    assert page.count("<tr>") == sum(1 + len(table.rows) for table in printed if table.head)
    text = found.to_markdown()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    assert [len(row) for row in rows] == [len(t.head) for t in printed if t.head for _ in range(2 + len(t.rows))]
    frame = found.to_polars()
    assert frame.height == len(numbers)
    assert frame.columns == list(numbers[0] if numbers else ())
    data = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert data["schema"] == "unpooled/table/1"
    read = msgspec.json.decode(found.to_json(), type=TableOutput, strict=True)
    assert json.loads(msgspec.json.encode(read)) == data
    assert read == found._data()
    assert [list(line) for line in data["numbers"]] == [list(line) for line in numbers]
    if not found._panels():
        with pytest.raises(UsageError, match="nothing to draw"):
            found.figure()
        return
    assert found.figure()._repr_png_().startswith(b"\x89PNG\r\n\x1a\n")


def check_estimator(run: Run) -> None:
    """An estimator that is made of a run, if the model has one, has the table and the coefficients of the run's result."""
    try:
        model = fitted(run.plan, run.result)
    except UsageError:
        return  # nothing predicts, or it stays at the parties
    predicting = np.array([term.estimate for term in load(run.plan.study.row).reading.predicting(run.plan, run.result)])
    for value in np.ravel(getattr(model, "coef_", 0.0)):
        assert not value or np.isclose(predicting, value, rtol=1e-6, atol=0.0).any()
    try:
        lines = [getattr(term, "line", term) for term in model.summary().terms] if hasattr(model, "summary") else []
    except UsageError:
        return  # a method without standard errors
    shown = [term for term in run.terms if (term.group, term.term) in {(line.group, line.term) for line in lines}]
    assert [line.estimate for line in lines] == pytest.approx([term.estimate for term in shown])
    assert [line.conf_high for line in lines] == pytest.approx([term.conf_high for term in shown])
    assert [line.p_value is None for line in lines] == [term.p_value is None for term in shown]


@pytest.mark.slow
def test_every_model_has_a_page(case: Case, tmp_path: Path) -> None:
    if not FULL and ", " in case.name:
        pytest.skip("at full size: this case is a variant of another one of its model")
    has_a_page(case, tmp_path)


def has_a_page(case: Case, tmp_path: Path, *, simulated: bool = False) -> None:
    """Run the case, with the noise of a simulation if ``simulated``, and read its page."""
    study = case.study if simulated else msgspec.structs.replace(case.study, simulation_seed=None)
    run = Run.read(ran(tmp_path, study, case.tables))
    text = page(run)
    assert run.agrees
    if FULL or case.name == "describe":
        assert text == page(Run.read(tmp_path))
    assert ("No privacy guarantee holds" in text) == simulated
    assert ("the probability of any published result grows by at most a factor of e^" in text) == (not simulated)
    cells = re.sub(r' (data-l|class)="[^"]*"', "", text)
    for release in run.plan.releases:
        assert f"<td>{release.name}</td><td>{release.party}</td>" in cells
    for sentence in (*run.plan.statement.not_protected, *run.plan.statement.assumptions):
        assert sentence.replace("'", "&#39;").replace(">", "&gt;") in text
    assert sum(count.received for count in run.steps) == sum(part["received"] for part in run.communication.values())
    assert not re.search(r"<script|<link|<img|@import|src=|url\((?!#)|href=\"(?!#)", text)
