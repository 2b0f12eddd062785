"""Limits of detection: how values under them are read, from files and frames, that they leave their rows out, and what is refused."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest
from commands import PARTIES, approve, command

import unpooled
from unpooled import Bounds, PrivateGLM, PrivateLinearRegression
from unpooled.errors import DataError, UsageError
from unpooled.privacy.bounds import COMPLETE, Column, number_above
from unpooled.study.reading import DataFormat, values_of
from unpooled.study.sniff import declaration, kind_of, proposal
from unpooled.totals.whole_rows import needed

N = 3000
RNG = np.random.default_rng(4)
CRP = np.exp(RNG.normal(0.5, 1.0, N)).clip(0, 100)
AGE = RNG.uniform(20, 90, N)
STAY = 2 + 0.05 * AGE + 0.3 * CRP.clip(0, 20) + RNG.normal(size=N)
SEEN = CRP >= 1.0
TEXT = [f"{value:.6f}" if seen else "<1.0" for value, seen in zip(CRP, SEEN, strict=True)]
BOUNDS = Bounds({"crp": (0, 20), "age": (20, 90)}, below={"crp": 1.0})
CARD = Column("crp", 0.0, 300.0, below=0.5)


# --- declarations ----------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_a_limit_leaves_rows_out_where_nothing_else_is_said() -> None:
    assert CARD.missing == COMPLETE
    assert needed(CARD) == Column("crp", 0.0, 300.0)
    assert msgspec.convert(msgspec.to_builtins(CARD), Column) == CARD
    assert "below" not in msgspec.to_builtins(Column("crp", 0.0, 300.0))  # older cards stay as they are
    assert BOUNDS.columns(["crp", "age"])[0].below == 1.0
    assert BOUNDS.columns(["crp", "age"])[1].missing == "refuse"
    assert Bounds(0, 9, below={1: 2}).columns(["a", "b"])[1].below == 2.0
    assert BOUNDS.without("crp").below == {}
    assert BOUNDS.of("crp") == Column("crp", 0.0, 20.0, missing=COMPLETE, below=1.0)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"low": 0.0, "high": 9.0, "below": 9.0}, "inside the declared range"),
        ({"low": 0.0, "high": 9.0, "below": 0.0}, "inside the declared range"),
        ({"low": 0.0, "high": 9.0, "below": math.nan}, "inside the declared range"),
        ({"categories": ("a", "b"), "below": 1.0}, "limit of detection of a number"),
        ({"low": 0.0, "high": 9.0, "dates": "days since 2020-01-01", "below": 1.0}, "limit of detection of a number"),
        ({"low": 0.0, "high": 9.0, "below": 1.0, "missing": "absent"}, "are left out .*'absent' would"),
        ({"low": 0.0, "high": 9.0, "below": 1.0, "missing": "indicator"}, "are left out .*'indicator' would"),
    ],
)
def test_limits_that_mean_nothing_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Column("crp", **given)


def test_bounds_refuse_limits_of_what_is_not_there_and_of_other_types() -> None:
    with pytest.raises(UsageError, match="bounds name the column 'crb'"):
        Bounds({"crp": (0, 20)}, below={"crb": 1.0}).columns(["crp"])
    with pytest.raises(UsageError, match="below"):
        Bounds({"crp": (0, 20)}, below={"crp": "<0.5"}).columns(["crp"])  # type: ignore[dict-item]


@pytest.mark.parametrize("text", ["crp=0:300;<0.5", "crp=0:300;complete;<0.5", "crp=0:300;<0.5;complete"])
def test_a_typed_declaration_has_a_limit(text: str) -> None:
    assert declaration(text) == CARD


def test_a_typed_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="limit of detection"):
        declaration("crp=0:300;<low")


# --- reading ---------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("text", ["<0.5", "<0,5", "< 0.5", "<=0.3", "≤0.5", " <.5 ", "0.2", "0,49", ""])
def test_what_lies_under_the_limit_is_missing(text: str) -> None:
    assert math.isnan(number_above(text, 0.5))
    form = DataFormat(decimal="," if "," in text else ".", separator=";")
    assert np.isnan(values_of(pl.Series("crp", [text, "7"]), CARD, form)).tolist() == [True, False]


@pytest.mark.guarantee
@pytest.mark.parametrize("text", ["<0.6", "<1", ">0.5", "<", "<x", "high", "<-1", "1.2.3"])
def test_what_is_under_another_limit_or_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        number_above(text, 0.5)
    assert (
        values_of(pl.Series("crp", [text, "7"]), CARD, DataFormat()).dtype == object
    )  # text, which is refused where it is coded


@pytest.mark.guarantee
def test_numbers_of_any_kind_of_file_are_held_against_the_limit() -> None:
    for values in ([0.2, 0.5, None], [0, 1, 7]):
        read = values_of(pl.Series("crp", values), CARD, DataFormat())
        assert np.isnan(read).tolist() == [value is None or value < 0.5 for value in values]
    plain = Column("crp", 0.0, 300.0)
    assert values_of(pl.Series("crp", ["<0.5", "1"]), plain, DataFormat()).dtype == object


def test_a_column_with_limits_is_told_from_text() -> None:
    kind = kind_of(pl.Series("crp", ["<0.5", "1.5", None]), DataFormat())
    assert kind == "numbers, some of them written as under a limit (<)"
    assert proposal("crp", kind) == "crp=LOW:HIGH;<LIMIT"
    assert kind_of(pl.Series("crp", ["<0.5", "low"]), DataFormat()).startswith("text")


# --- fits ------------------------------------------------------------------------------------------------------------------


def held(kind: str) -> tuple[Any, Bounds]:
    frame = {"crp": TEXT, "age": AGE}
    by_place = Bounds([0, 20], [20, 90], below={0: 1.0})
    return {
        "pandas": (pd.DataFrame(frame), BOUNDS),
        "polars": (pl.DataFrame(frame), BOUNDS),
        "numbers": (pd.DataFrame({"crp": CRP, "age": AGE}), BOUNDS),
        "commas": (pd.DataFrame({"crp": [text.replace(".", ",") for text in TEXT], "age": AGE}), BOUNDS),
        "array": (np.column_stack([CRP, AGE]), by_place),
        "objects": (np.array(list(zip(TEXT, AGE.tolist(), strict=True)), dtype=object), by_place),
    }[kind]


@pytest.mark.guarantee
@pytest.mark.parametrize("kind", ["pandas", "polars", "numbers", "commas", "array", "objects"])
def test_a_fit_is_that_of_the_values_above_the_limit(kind: str) -> None:
    rows, bounds = held(kind)
    fit = PrivateLinearRegression(epsilon=math.inf, bounds=bounds, y_bounds=(0, 20)).fit(rows, STAY)
    design = np.column_stack([CRP.clip(0, 20), AGE, np.ones(N)])[SEEN]
    wanted = np.linalg.lstsq(design, STAY.clip(0, 20)[SEEN], rcond=None)[0]
    assert [t.estimate for t in fit.summary().terms] == pytest.approx(wanted, abs=1e-3)
    assert fit.moments_.rows == SEEN.sum()
    assert (np.isnan(fit.predict(rows)) == ~SEEN).all()
    name = "crp" if kind not in {"array", "objects"} else "x0"
    said = str(fit.summary())
    assert f"values under a limit of detection count as missing: {name} under 1" in said
    assert f"rows without a value of {name} are left out" in said


def test_tables_and_descriptions_leave_such_values_out_too() -> None:
    frame = pd.DataFrame({"crp": TEXT, "age": AGE})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = unpooled.describe(frame, BOUNDS, epsilon=math.inf)
    mean = found["all", "crp"].mean.value
    assert mean == pytest.approx(CRP.clip(0, 20)[SEEN].mean(), abs=0.01)


def test_an_effect_leaves_such_people_out() -> None:
    frame = {"crp": np.array(TEXT, dtype=object), "arm": np.where(np.arange(N) % 2, "new", "old"), "stay": STAY}
    bounds = Bounds({"crp": (0, 20), "arm": ["old", "new"], "stay": (0, 20)}, below={"crp": 1.0})
    found = unpooled.TreatmentEffect("arm", outcome="stay", bounds=bounds, epsilon=math.inf).fit(frame)
    assert found.result_.rows == SEEN.sum()
    assert "crp under 1" in str(found.summary())


@pytest.mark.guarantee
def test_a_response_has_no_limit() -> None:
    bounds = Bounds({"crp": (0, 20), "age": (20, 90)}, below={"crp": 1.0})
    for fit in (
        lambda: PrivateLinearRegression(bounds=bounds).fit(pd.DataFrame({"crp": CRP, "age": AGE}), "crp"),
        lambda: PrivateGLM("poisson", bounds=bounds).fit(pd.DataFrame({"crp": CRP, "age": AGE}), "crp"),
        lambda: unpooled.TreatmentEffect(
            "arm", outcome="crp", bounds=Bounds({"crp": (0, 20), "arm": ["a", "b"]}, below={"crp": 1.0})
        ).plan(1000),
    ):
        with pytest.raises(UsageError, match=r"'crp' is the response and has a limit of detection .*two categories"):
            fit()


def test_what_is_no_number_and_other_models_are_refused() -> None:
    frame = pd.DataFrame({"crp": ["high", *TEXT[1:]], "age": AGE})
    with pytest.raises(DataError, match="'crp' holds something that is neither a number nor") as caught:
        PrivateLinearRegression(bounds=BOUNDS, y_bounds=(0, 20)).fit(frame, STAY)
    assert "high" not in str(caught.value)
    with pytest.raises(UsageError, match="model 'pls' leaves no rows out"):
        unpooled.PrivatePLSRegression(n_components=1, bounds=BOUNDS, y_bounds=(0, 20)).fit(held("numbers")[0], STAY)


def test_every_value_may_lie_under_the_limit() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = PrivateLinearRegression(bounds=BOUNDS, y_bounds=(0, 20), goal="table", random_state=0).fit(
            pd.DataFrame({"crp": ["<1"] * N, "age": AGE}), STAY
        )
    assert not fit.summary().terms


# --- files -----------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_a_study_of_files_reads_limits(tmp_path: Path) -> None:
    half = N // 2
    for name, at, decimal in (("north", slice(0, half), ","), ("south", slice(half, N), ".")):
        (tmp_path / name).mkdir()
        texts = [text.replace(".", decimal) for text in TEXT[at]]
        frame = pd.DataFrame({"crp": texts, "age": AGE[at].round(3), "stay": STAY[at].round(4)})
        frame.to_csv(tmp_path / name / "data.csv", index=False, sep=";", decimal=decimal)
        told = command(
            tmp_path,
            *("party", "init", str(tmp_path / name / "data.csv"), "--name", name, "--folder", str(tmp_path / name)),
            *("--column", "crp=0:20;<1", "--column", "age=20:90", "--column", "stay=0:20"),
            *("--epsilon", "20", "--delta", "1e-5"),
        )
        assert "under its limit of detection, which counts as missing" in told
        assert "below = 1.0" in (tmp_path / name / f"{name}.card.toml").read_text(encoding="utf-8")
    (tmp_path / "study.toml").write_text(
        '[study]\nmodel = "bayes"\n\n[parameters]\nresponse = "stay"\nmethod = "refinement"\n\n[privacy]\nepsilon = 10.0\ndelta = 1e-5\n\n'
        '[[party]]\ncard = "north/north.card.toml"\n\n[[party]]\ncard = "south/south.card.toml"\n',
        encoding="utf-8",
    )
    approve(tmp_path)
    command(tmp_path, "run", "study.toml", *PARTIES)
    found = json.loads(command(tmp_path, "result", "study.run", "--json"))
    assert "crp under 1" in json.dumps(found)
    line = next(term for term in found["terms"] if term["term"] == "crp")
    assert abs(line["estimate"] - 0.3) < 5 * line["std_error"]
    assert "crp under" in command(tmp_path, "result", "study.run")
