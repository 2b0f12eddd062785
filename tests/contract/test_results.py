"""Every model's result is told line by line, and can be read again from the record of a run: the same terms, the same page."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import CASES

from unpooled.errors import DataError, UsageError
from unpooled.models import load
from unpooled.protocol.terms import ResultTerm, as_csv
from unpooled.study.finished import Run
from unpooled.study.record import RECORD, read_record
from unpooled.testing.results import *

SLOW = {"test_a_record_tells_what_the_transcript_tells": ["describe"]}
LONG = {
    "test_a_record_tells_what_the_transcript_tells": ["glm, columns of counts", "glm, columns of times", "analyses, apart"]
}


@pytest.mark.guarantee
def test_a_record_holds_no_message(tmp_path: Path) -> None:
    """The analyst gets the result, and none of the parties' replies."""
    case = CASES["stacking"]()
    folder = ran(tmp_path, case.study, case.tables)
    fields = set(msgspec.msgpack.decode((folder / RECORD).read_bytes()[32:]))
    assert fields == {"format", "study", "plan", "result", "communication", "steps", "draw"}


@pytest.mark.guarantee
def test_what_is_damaged_or_of_another_version_is_refused(tmp_path: Path) -> None:
    import hashlib

    case = CASES["describe"]()
    folder = ran(tmp_path, case.study, case.tables)
    path, good = folder / RECORD, (folder / RECORD).read_bytes()
    for at in (0, 40, len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(DataError, match="is damaged"):
            read_record(folder)

    def sealed(body: bytes) -> None:
        path.write_bytes(hashlib.sha256(body).digest() + body)

    sealed(b"\xc1")
    with pytest.raises(DataError, match="not the record of a run"):
        read_record(folder)
    fields = msgspec.msgpack.decode(good[32:])
    sealed(msgspec.msgpack.encode(fields | {"format": "unpooled run 99"}))
    with pytest.raises(DataError, match="another format"):
        read_record(folder)
    sealed(msgspec.msgpack.encode(fields | {"plan": "0" * 64}))
    with pytest.raises(UsageError, match="use the one it ran with"):
        read_record(folder)
    sealed(msgspec.msgpack.encode(fields | {"result": [{"source": 1}]}))
    with pytest.raises(UsageError, match="cannot read its result"):
        read_record(folder)


def test_every_row_of_the_registry_says_what_its_result_is() -> None:
    from unpooled.models import row_names

    assert all(load(row).reading.types or load(row).reading.read_again for row in row_names())


@pytest.mark.parametrize("name", ["bayes", "lasso", "pls"])
@pytest.mark.filterwarnings("ignore:The released (covariance|moments)")
def test_a_finished_study_is_a_fitted_estimator(name: str, tmp_path: Path) -> None:
    from unpooled.models import fitted

    case = CASES[name]()
    run = Run.read(ran(tmp_path, case.study, case.tables))
    model = fitted(run.plan, run.result)
    assert model.statement_.holds == run.plan.statement.holds
    released = run.result.model.coefficients.numpy() if name == "pls" else [c.value for c in run.result.coefficients]
    assert np.sort(model.coef_[model.coef_ != 0]) == pytest.approx(np.sort([v for v in released if v]))
    assert model.intercept_ == pytest.approx(run.result.intercept if name != "pls" else run.result.model.intercept)
    model.save(tmp_path / "model")
    import unpooled

    assert (unpooled.load(tmp_path / "model").coef_ == model.coef_).all()


#: Fields of results that builds before histograms of residuals and scores did not write.
NEW = {"clipping", "meat", "meat_variance", "nuisance", "focused"}


@pytest.mark.parametrize("name", ["bayes", "glm"])
def test_a_result_without_the_fields_of_later_builds_is_read(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    parameters = (
        {"response": "pressure", "method": "refinement", "max_passes": 6} if name == "bayes" else case.study.parameters
    )
    study = msgspec.structs.replace(case.study, epsilon=500.0, parameters=parameters)
    run = Run.read(ran(tmp_path, study, case.tables))

    def new(key: str, part: object) -> bool:
        return key in NEW or (key == "covariance" and isinstance(part, str))  # the kind, not the matrix

    def without(value: object) -> object:
        if isinstance(value, dict):
            return {key: without(part) for key, part in value.items() if not new(key, part)}
        return [without(part) for part in value] if isinstance(value, list) else value

    written = msgspec.msgpack.decode(msgspec.msgpack.encode(run.result))
    assert without(written) != written
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(without(written)), type=type(run.result))
    terms = load(name).reading.terms(run.plan, read)
    assert [term.term for term in terms] == [term.term for term in run.terms]
    assert [term.estimate for term in terms] == pytest.approx([term.estimate for term in run.terms])


@pytest.mark.guarantee
def test_what_stays_at_the_parties_predicts_nothing_here(tmp_path: Path) -> None:
    from unpooled.models import fitted

    for name, words in (("pride", "stay at the parties"), ("describe", "releases nothing that predicts")):
        case = CASES[name]()
        (tmp_path / name).mkdir()
        run = Run.read(ran(tmp_path / name, case.study, case.tables))
        with pytest.raises(UsageError, match=words):
            fitted(run.plan, run.result)


@pytest.mark.guarantee
@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_no_name_becomes_a_formula_in_a_spreadsheet(start: str) -> None:
    """V11: a column may be called anything."""
    text = as_csv([ResultTerm(f'{start}HYPERLINK("x")', -1.5, group=f"{start}1"), ResultTerm("age", -2.0)])
    (first, second) = csv.DictReader(io.StringIO(text, newline=""))
    assert (first["term"], first["group"]) == (f'\'{start}HYPERLINK("x")', f"'{start}1")
    assert (first["estimate"], second["term"], second["estimate"]) == ("-1.5", "age", "-2.0")
