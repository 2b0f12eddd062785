"""Traces of every case: no value of the data stands in messages, in the folder of a run, in its report, or in anything logged or printed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from unpooled.audit.transcripts import audit_sealed, audit_transcript, canaries
from unpooled.models import load
from unpooled.report.page import page
from unpooled.study.finished import Run
from unpooled.study.made_up import made_up
from unpooled.testing.cases import Case, ran


def test_every_byte_of_a_study_is_a_release_public_or_entrusted(case: Case) -> None:
    model = load(case.model)
    study, tables = made_up(model, case.study, 12)
    _, others = made_up(model, case.study, 12, seed=1)
    assert audit_transcript(model, study, tables, others, registry=load) == []


def test_no_salt_and_no_fragment_occurs_twice(case: Case) -> None:
    assert audit_sealed(load(case.study.row), case.study, case.tables, registry=load) == []


@pytest.mark.minutes
def test_a_run_leaves_no_value_behind(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """No value stands in the transcript, the results, the report, the logs or the printed text."""
    model = load(case.model)
    study, tables = made_up(model, case.study, 12)
    public = study.parameters.get("public", ())
    hidden = {value for table in tables.values() for value in canaries(table, public if isinstance(public, list) else ())}
    assert len(hidden) > 30
    with caplog.at_level(logging.DEBUG):
        folder = ran(tmp_path, study, tables)
        written = {"report": page(Run.read(folder)).encode()}
    printed = capfd.readouterr()
    written |= {"log": caplog.text.encode(), "printed": (printed.out + printed.err).encode()}
    written |= {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert len(written) > 4
    found = {place for place, text in written.items() if any(value in text for value in hidden)}
    assert not found
