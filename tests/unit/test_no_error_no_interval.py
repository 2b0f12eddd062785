"""A term without a standard error has no statistic, no p-value, no interval and no place in a figure, however it is printed (FINDINGS W1)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from commands import command

from unpooled import Bounds, PrivateBayesianRegression, PrivateGLM, PrivateLogisticRegression
from unpooled.errors import UsageError
from unpooled.inference.summary import SummaryTerm
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target
from unpooled.protocol.registry import of_terms
from unpooled.protocol.terms import as_csv, as_rows
from unpooled.study.party import create_party

N = 3000
RNG = np.random.default_rng(4)
FRAME = pl.DataFrame(
    {
        "age": RNG.uniform(20, 80, N),
        "arm": RNG.choice(["a", "b", "c"], N, p=[0.6, 0.37, 0.03]),
        "wide": RNG.uniform(0, 1, N),
        "still": np.full(N, 3.0),
    }
)
BOUNDS = Bounds({"age": (0, 100), "arm": ["a", "b", "c", "never"], "wide": (-500, 500), "still": (0, 8)})
U = (FRAME["age"].to_numpy() - 50) / 20 + (FRAME["arm"] == "b").to_numpy()
CLASS = (U + RNG.logistic(size=N) > 0).astype(int)
COMMON = {"bounds": BOUNDS, "epsilon": 4.0, "delta": 1e-5, "random_state": 1}
FITS = {
    "regression": lambda: PrivateBayesianRegression(y_bounds=(-8, 8), **COMMON).fit(FRAME, U + RNG.normal(size=N)),
    "moments": lambda: PrivateBayesianRegression(y_bounds=(-8, 8), method="moments", **COMMON).fit(FRAME, U),
    "logistic": lambda: PrivateGLM(classes=(0, 1), **COMMON).fit(FRAME, CLASS),
    "poisson": lambda: PrivateGLM("poisson", y_bounds=(0, 20), **COMMON).fit(FRAME, RNG.poisson(np.exp(U / 2))),
    "multinomial": lambda: PrivateGLM("multinomial", classes=(0, 1, 2), method="newton", **(COMMON | {"epsilon": 10.0})).fit(
        FRAME, CLASS + (U > 1)
    ),
    "rounds": lambda: PrivateLogisticRegression(classes=(0, 1), method="rounds", **COMMON).fit(FRAME, CLASS),
}
SURE = ("std_error", "privacy", "statistic", "p_value", "conf_low", "conf_high")
#: How a table may be asked for.
WAYS = (
    {},
    {"reference": {"arm": "b"}},
    {"coding": "sum"},
    {"adjust": "holm", "confidence": 0.9},
)


@pytest.fixture(scope="module", params=FITS)
def model(request: pytest.FixtureRequest) -> object:
    return FITS[request.param]()


def is_level(term: str) -> bool:
    """Whether it is a single level, which has no value of its own beside the constant."""
    return " = " in term


@pytest.mark.slow_for("multinomial-{}")
@pytest.mark.parametrize("asked", WAYS, ids=str)
def test_nothing_is_printed_without_a_standard_error(model: object, asked: dict[str, object]) -> None:
    """FINDINGS W1: an unused level and a constant column are in no table, and neither is a level by itself."""
    summary = model.summary(**asked)
    printed = {term.term for term in summary.terms}
    assert printed
    assert not any(map(is_level, printed))
    assert any("age" in term for term in printed), "age has a standard error"
    assert str(summary).startswith("not adjusted for "), "what the lines hold is named where they are read"
    assert any("arm: " in term for term in printed) == ("coding" not in asked), (
        "and the arms beside each other, but not beside one that is not there"
    )
    assert not any("never" in term or "still" in term for term in printed)
    assert "not determined" in str(summary)
    assert "spend more epsilon" not in str(summary)
    assert any("never" in name for name in summary.not_determined)
    for term, line, told in zip(summary.terms, summary._lines()[1:], summary.to_dict()["terms"], strict=True):
        assert all(math.isfinite(getattr(term, name)) for name in SURE)
        assert term.std_error > 0
        assert all(line)
        assert told["identified"]
        assert all(getattr(term.line, name) is not None for name in SURE)
    html = summary._repr_html_()
    assert html.count("<tr>") == len(summary.terms) + 1
    if hasattr(model, "credible_interval"):
        assert np.isfinite(model.credible_interval()).all(axis=1).sum() <= len(printed)


def test_contrasts_and_tests_rest_on_what_is_determined(model: object) -> None:
    several = hasattr(model, "classes_") and len(model.classes_) > 2
    head = "1: " if several else ""
    names = [term.term for term in model.contrast(f"{head}arm").terms]
    assert names in ([f"{head}arm: b - a", f"{head}arm: c - a"], [f"{head}arm: b - a"])
    (line,) = model.contrast(f"{head}arm: b - a").terms
    same = next(t for t in model.summary().terms if t.term == line.term)
    assert [getattr(line, name) for name in SURE] == pytest.approx([getattr(same, name) for name in SURE])
    for wrong in ("arm: never - a", "arm: b", "still", "arm: a + b - 2 * never"):
        with pytest.raises(UsageError, match="is not determined"):
            model.contrast(f"{head}{wrong}")
    tests = {test.name: test.degrees for test in model.anova().tests}
    assert "still" not in tests
    assert {"age", "arm"} <= set(tests)
    with pytest.raises(UsageError, match="'still', which the smaller model leaves out"):
        model.anova(["age", "arm", "wide"])


def test_a_term_cannot_be_made_with_more_than_it_has() -> None:
    for error, identified in ((math.nan, True), (math.inf, True), (0.1, False)):
        term = SummaryTerm("x", 1.0, error, 0.1, 10.0, 1e-9, 0.8, 1.2, identified)
        assert not term.identified
        assert all(math.isnan(getattr(term, name)) for name in SURE)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression and a logistic regression of two hospitals, run by the command."""
    folder = tmp_path_factory.mktemp("ran")
    columns = (
        Column("age", 0.0, 100.0),
        Column("arm", categories=("a", "b", "c", "never")),
        Column("y", -8.0, 8.0),
        Column("ill", categories=("no", "yes")),
    )
    frame = FRAME.select("age", "arm").with_columns(
        y=pl.Series(U + RNG.normal(size=N)), ill=pl.Series(np.where(CLASS, "yes", "no"))
    )
    frame = frame.with_columns(fresh=pl.Series(np.random.default_rng().random(N)))  # other data than in any run before
    parties, cards = [], ""
    for name, part in (("north", frame[: N // 2]), ("south", frame[N // 2 :])):
        (folder / name).mkdir()
        part.write_csv(folder / name / "data.csv")
        create_party(folder / name, name, folder / name / "data.csv", columns, Target(50.0, 1e-4))
        parties += ["--party", f"{name}/party.toml"]
        cards += f'\n[[party]]\ncard = "{name}/{name}.card.toml"\n'
    for model, response in (("bayes", "y"), ("glm", "ill")):
        text = f'[study]\nmodel = "{model}"\n\n[privacy]\nepsilon = 5.0\ndelta = 1e-6\n\n[parameters]\nresponse = "{response}"\n{cards}'
        (folder / f"{model}.toml").write_text(text)
        for name in ("north", "south"):
            command(folder, "party", "check", f"{model}.toml", "--config", f"{name}/party.toml", "--approve")
        (folder / f"{model}.said").write_text(command(folder, "run", f"{model}.toml", *parties))
        command(folder, "report", f"{model}.run")
    return folder


@pytest.mark.slow
@pytest.mark.long_for("glm", "bayes")
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_every_command_prints_one_table_and_no_interval_of_a_level(ran: Path, model: str) -> None:
    """W16: `run` printed .546 and `result` .558 of one study."""
    shown = command(ran, "result", f"{model}.run")
    table = shown[: shown.index("\n\n")].splitlines()
    said = (ran / f"{model}.said").read_text().splitlines()
    assert said[: len(table)] == table
    assert (ran / f"{model}.run/result.txt").read_text().splitlines() == table
    whole = json.loads(command(ran, "result", f"{model}.run", "--json"))
    told, predicting = whole["terms"], whole["predicting"]
    assert "arm: b - a" in {term["term"] for term in told}
    for term in told:
        assert all(term[name] is not None for name in SURE)
        assert not is_level(term["term"])
    assert {"arm = a", "arm = never"} < {term["term"] for term in predicting}
    assert all(term[name] is None for term in predicting for name in SURE)
    assert np.sqrt(np.diag(whole["vcov"])) == pytest.approx([term["std_error"] for term in told])
    assert (whole["nobs"], whole["epsilon"], whole["delta"], whole["confidence"]) == (N, 5.0, 1e-6, 0.95)
    assert (whole["family"], whole["response"]) == (("linear", "y") if model == "bayes" else ("logistic", "ill"))
    assert (whole["levels"]["arm"], whole["references"]["arm"]) == (["a", "b", "c", "never"], "a")
    assert any("never" in name for name in whole["not_determined"])
    csv = command(ran, "result", f"{model}.run", "--csv").splitlines()
    assert len(csv) == 1 + len(told)
    assert not any(is_level(line.split(",")[0]) for line in csv)
    stored = json.loads((ran / f"{model}.run/result.json").read_text())["result"]
    for coefficient in stored["coefficients"]:
        assert (coefficient["low"] is None) == (coefficient["high"] is None)
        assert coefficient["low"] is None or not is_level(coefficient["name"])
    page = (ran / f"{model}.run/report.html").read_text()
    figures = [part.split('"')[0] for part in page.split('aria-label="')[1:]]
    drawn = [words for words in figures if words.startswith("estimates with")]
    assert drawn
    assert not any(is_level(words) or "never" in words for words in drawn)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_a_contrast_of_a_run(ran: Path, model: str) -> None:
    (line,) = (line for line in command(ran, "result", f"{model}.run").splitlines() if line.startswith("arm: b - a"))
    shown = command(ran, "contrast", f"{model}.run", "arm: b - a")
    assert float(shown.splitlines()[1].split()[4]) == pytest.approx(float(line.split()[4]), rel=1e-4)
    told = json.loads(command(ran, "contrast", f"{model}.run", "arm: b - a", "age = 0.5", "--json", "--confidence", "0.9"))
    assert [term["term"] for term in told["terms"]] == ["arm: b - a", "age"]
    assert told["joint"]["degrees"] == 2
    assert told["joint"]["p_value"] < told["terms"][0]["p_value"]
    assert told["confidence"] == 0.9
    for asked, words in (
        ("arm: b", "is not determined"),
        ("arm: b - x", "cannot be read at 'x'"),
        ("weight", "cannot be read at 'weight'"),
        ("arm: b - a;", "cannot be read"),
    ):
        assert words in command(ran, "contrast", f"{model}.run", asked, code=2)
    if model == "bayes":
        assert "a linear model has differences" in command(ran, "contrast", "bayes.run", "age", "--exponentiate", code=2)
    else:
        assert "odds ratio" in command(ran, "contrast", "glm.run", "arm: b - a", "--exponentiate")
    assert "`against` names a class" in command(ran, "contrast", f"{model}.run", "age", "--against", "b", code=2)


def test_a_figure_has_a_mark_for_every_line_and_for_nothing_else(model: object) -> None:
    for asked in ({}, {"exponentiate": True}):
        if asked and not hasattr(model, "classes_") and getattr(model, "family", "") != "poisson":
            continue
        summary = model.summary(**asked)
        (axes,) = summary.figure().axes
        assert [label.get_text() for label in axes.get_yticklabels()] == [term.term for term in summary.terms]
        lines = axes.get_lines()[:-1]
        assert len(lines) == 3 * len(summary.terms)
        for term, whole, inner in zip(summary.terms, lines[::3], lines[1::3], strict=True):
            assert list(whole.get_xdata()) == [term.conf_low, term.conf_high]
            low, high = inner.get_xdata()
            assert term.conf_low <= low <= term.estimate <= high <= term.conf_high


@pytest.mark.guarantee
def test_lines_and_tables_say_the_same(model: object) -> None:
    lines = [term.line for term in model.summary().terms]
    rows = as_rows(lines)
    assert [row[0] for row in rows[1:]] == [line.term for line in lines]
    assert as_csv(lines).count("\n") == len(lines) + 1
    (panel,) = of_terms(lines)
    assert panel.names == tuple(line.term for line in lines if line.std_error is not None)
    assert of_terms(line for line in lines if line.std_error is None) == ()
    assert all(0 < part < 1 for part in panel.without_privacy)
    alone = [msgspec.structs.replace(line, privacy=None) for line in lines]
    assert of_terms(alone)[0].without_privacy == (), "nothing is known of what privacy adds"
