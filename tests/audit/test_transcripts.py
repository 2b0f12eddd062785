"""No value of the data stands anywhere that people look: in messages, the folder of a run, its report, what is logged or printed, saved models, errors."""

from __future__ import annotations

import logging
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from test_interface import fits
from world import FULL

from unpooled.audit.made_up import made_up
from unpooled.audit.transcripts import audit_transcript, canaries
from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.privacy.table import Table
from unpooled.report.page import page
from unpooled.study.finished import Run

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("unit", "contract")]

from test_estimation import ESTIMATORS  # noqa: E402 - of another folder
from test_report import ran  # noqa: E402

#: Estimators that keep what belongs to a party: their pickles say so (`docs/guarantee.md`).
KEEPING = ("pride", "pride-classifier", "pride-counts")


@pytest.mark.no_cover
@pytest.mark.parametrize("name", CASES)
def test_every_byte_of_a_study_is_a_release_public_or_entrusted(name: str) -> None:
    case = CASES[name]()
    model = load(case.model)
    study, tables = made_up(model, case.study, 12)
    _, others = made_up(model, case.study, 12, seed=1)
    assert audit_transcript(model, study, tables, others, registry=load) == []


@pytest.mark.no_cover
@pytest.mark.minutes
@pytest.mark.parametrize("name", CASES)
def test_a_run_leaves_no_value_behind(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Transcript, results, report, logs and whatever was printed."""
    case = CASES[name]()
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


@pytest.mark.no_cover
@pytest.mark.minutes
@pytest.mark.parametrize("name", ESTIMATORS if FULL else [*KEEPING, "bayes", "pls"])
def test_a_saved_model_has_no_value_of_the_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control beside it: the same search finds a table that was pickled."""
    from test_interface import rows

    fitted = fits(name, monkeypatch)[0]
    X, _ = rows(name, 1)
    hidden = canaries(Table({f"x{j}": X[:, j] for j in range(X.shape[1])}))
    assert any(value in pickle.dumps(X) for value in hidden)
    saved = pickle.dumps(fitted)
    assert not any(value in saved for value in hidden)


@pytest.mark.no_cover
@pytest.mark.parametrize("broken", ["beyond the bounds", "missing", "another class", "another number of rows", "words"])
def test_a_refusal_has_no_value_of_the_data(broken: str) -> None:
    kind, own, y = ESTIMATORS["stacking"]
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 6)) + 1e-10
    values = {value for value in canaries(Table({f"x{j}": X[:, j] for j in range(6)})) if len(value) > 8}
    labels: np.ndarray = np.asarray(y)
    frame: object = X
    if broken == "missing":
        X[3, 2] = np.nan
    elif broken == "another class":
        labels = np.where(np.arange(80) == 5, 7, labels.astype(int))
    elif broken == "another number of rows":
        labels = labels[:-1]
    elif broken == "words":
        frame = X.astype(object)
        frame[2, 2] = "secret-0123456789"
    refused: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            kind(**{"bounds": (-0.2, 0.2), "epsilon": 2.0, **own}).fit(frame, labels)
        except (UnpooledError, ValueError, TypeError) as error:
            refused.append(f"{error!r} {error.__cause__!r}")
    text = " ".join([*refused, *(str(warning.message) for warning in said)])
    assert refused or broken == "beyond the bounds"
    assert "secret" not in text
    assert not any(value.decode()[:9] in text for value in values)
