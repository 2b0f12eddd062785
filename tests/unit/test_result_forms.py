"""Every result in every form: text, page, Markdown, frames, JSON under its schema, and figure; and the results that are hard to print."""

from __future__ import annotations

import builtins
import importlib
import json
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest

import unpooled
from unpooled.errors import UsageError
from unpooled.inference.drawing import new_figure
from unpooled.inference.results import Result, TableOutput
from unpooled.models import load
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import PrintedTable, ResultTerm, as_table
from unpooled.study.saved import homes
from unpooled.testing.results import check_forms

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "table.json").read_text())
ODD = "a|b <i>*$c"
N = 3000


@cache
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    age, arm, ward = rng.uniform(20, 90, N), rng.choice(["old", "new"], N), rng.choice(["a", "b"], N)
    days = np.minimum(rng.exponential(np.where(arm == "new", 900, 500)), 365)
    stay = np.clip(4 + 0.1 * age - (arm == "new") + rng.normal(0, 1, N), 0, 20)
    ill = np.where(rng.uniform(size=N) < 1 / (1 + np.exp((55 - age) / 15)), "yes", "no")
    columns = {"age": age, "arm": arm, "ward": ward, "stay": stay, "ill": ill, "days": days}
    return pl.DataFrame(columns | {"died": (days < 365).astype(float), "site": np.arange(N) % 3})


BOUNDS = {"age": (20, 90), "arm": ["old", "new"], "ward": ["a", "b"]}
ASKED: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "random_state": 0}


def known(*names: str, **more: Any) -> dict[str, Any]:
    return {name: BOUNDS[name] for name in names} | more


@cache
def linear() -> Any:
    model = unpooled.PrivateLinearRegression(bounds=BOUNDS, y_bounds=(0, 20), method="moments", **ASKED)
    return model.fit(frame(), formula="stay ~ bs(age, knots=[50]) + ward + arm")


@cache
def logistic() -> Any:
    return unpooled.PrivateGLM("logistic", bounds=known("age"), classes=["no", "yes"], **ASKED).fit(
        frame().select("age"), frame()["ill"].to_numpy()
    )


@cache
def effect() -> Any:
    columns = frame().select("age", "arm", "stay")
    return unpooled.TreatmentEffect("arm", outcome="stay", bounds=known("age", "arm", stay=(0, 20)), **ASKED).fit(columns)


@cache
def meta() -> Any:
    model = unpooled.PrivateLinearRegression(bounds=known("age"), y_bounds=(0, 20), **ASKED)
    return unpooled.meta_analysis(
        model, frame().select("age"), frame()["stay"].to_numpy(), sites=frame()["site"], terms="age"
    )


@cache
def study() -> Any:
    analyses = {
        "baseline": lambda rows: unpooled.describe(rows.select("age", "arm"), known("age", "arm"), by="arm"),
        "stay": unpooled.PrivateLinearRegression(bounds=known("age"), y_bounds=(0, 20), formula="stay ~ age"),
    }
    return unpooled.Study(analyses, epsilon=4.0, random_state=0).fit(frame())


def survival() -> Any:
    bounds = known("arm", days=(0, 365), died=(0, 1))
    return unpooled.survival(frame(), "days", "died", "arm", bounds, **ASKED)


def fitted_by_moments() -> Any:
    return linear().moments_.ols()


def two_stage() -> Any:
    model = unpooled.PrivateLinearRegression(bounds=known("age", stay=(0, 20)), y_bounds=(0, 20), method="moments", **ASKED)
    found = model.fit(frame().select("age", "stay"), frame()["stay"].to_numpy())
    return found.two_stage("stay", instruments=["age"]).summary()


def described(**more: Any) -> Any:
    return unpooled.describe(frame().select("age", "arm"), known("age", "arm"), **ASKED, **more)


#: A function for every class of results.
EXAMPLES: dict[str, Callable[[], Result]] = {
    "Anova": lambda: linear().anova(),
    "ArmsDescription": lambda: described(by="arm", sites=frame()["site"]),
    "Contrast": lambda: linear().contrast(["ward: b - a", "arm: new - old"]),
    "DescribedBounds": lambda: unpooled.describe(frame().select("age"), bounds=True, **ASKED),
    "Description": described,
    "Diagnosis": lambda: unpooled.diagnose(logistic(), frame().select("age"), frame()["ill"].to_numpy(), **ASKED),
    "EffectOutlook": lambda: effect().outlook(500),
    "GlmSummary": lambda: logistic().summary(exponentiate=True),
    "JointDescription": lambda: unpooled.describe(
        frame().select("age", "arm"), known("age", "arm"), parties={"p": ["age"], "q": ["arm"]}, **ASKED
    ),
    "JointTest": lambda: linear().anova(["ward"]),
    "KaplanMeier": lambda: survival().curve("new"),
    "LinearFit": fitted_by_moments,
    "LinearSummary": lambda: linear().summary(),
    "MetaAnalysis": meta,
    "ModelResult": lambda: study().summary(),
    "Moments": lambda: linear().moments_,
    "Outlook": lambda: unpooled.PrivateLinearRegression(bounds=(-1, 1), y_bounds=(-1, 1)).outlook(800, 2),
    "PooledTerm": lambda: meta()["age"],
    "PrincipalComponents": lambda: linear().pca(),
    "Profile": lambda: linear().profile("age"),
    "SurvivalComparison": survival,
    "Tabulation": lambda: unpooled.tabulate(
        frame().select("arm", "ward", "ill"), ["arm", "ward", "ill"], known("arm", "ward", ill=["no", "yes"]), **ASKED
    ),
    "TwoStageSummary": two_stage,
}


def classes() -> set[type[Result]]:
    """Every class of results that has no further ones, as the files that ``load`` reads and the registry name them."""
    for home in homes().values():
        importlib.import_module(home)
    found, left = set(), [Result]
    while left:
        left += (below := left.pop().__subclasses__())
        found |= set(below)
    return {one for one in found if one.__module__.startswith("unpooled.")}


def test_every_class_of_results_has_an_example_and_is_read_again_by_load() -> None:
    bases = {"SummaryTable", "TermsTable", "PlannedResult", "_Described"}
    names = {one.__name__ for one in classes()} - bases
    assert names == set(EXAMPLES)
    assert names <= set(homes())


@pytest.mark.long_for("ModelResult", "Outlook", "Diagnosis", "EffectOutlook")
@pytest.mark.slow_for(
    "Diagnosis",
    "EffectOutlook",
    "LinearSummary",
    "MetaAnalysis",
    "ModelResult",
    "Outlook",
    "PooledTerm",
    "Tabulation",
    "JointDescription",
    "SurvivalComparison",
)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_result_is_read_in_every_form(name: str, tmp_path: Path) -> None:
    found = EXAMPLES[name]()
    assert type(found).__name__ == name
    check_forms(found)
    jsonschema.validate(json.loads(found.to_json()), SCHEMA)
    assert found.to_json(tmp_path / "result.json") + "\n" == (tmp_path / "result.json").read_text()
    table = found.to_pandas()
    assert len(table) == len(found._numbers())
    if found._numbers():
        assert table.index.name == next(iter(found._numbers()[0]))
        for column in table.columns:
            for one, other in zip(table[column], found.to_polars()[column], strict=True):
                assert one == other or (pd.isna(one) and (other is None or math.isnan(other)))
    found.save(tmp_path / "result")
    again = unpooled.load(tmp_path / "result")
    assert (str(again), again.to_markdown(), again.to_json()) == (str(found), found.to_markdown(), found.to_json())


def test_printed_numbers_are_those_of_the_text_and_a_page_holds_the_picture() -> None:
    table = linear().summary()
    for form in (str(table), table.to_markdown().replace("\\", ""), table._repr_html_()):
        for term in table.terms:
            assert f"{term.estimate:.5g}" in form
    assert 'alt="estimate with 95% intervals" src="data:image/png;base64,iVBOR' in table._repr_html_()
    assert (
        table.to_pandas().loc["ward: b - a", "estimate"] == next(t for t in table.terms if t.term == "ward: b - a").estimate
    )


def test_an_estimator_without_standard_errors_has_a_summary_too() -> None:
    model = unpooled.PrivateLasso(bounds=(-1, 1), y_bounds=(-1, 1), epsilon=4.0, random_state=0)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 3))
    with pytest.raises(Exception, match="not fitted"):
        model.summary()
    found = model.fit(X, X[:, 0] / 2).summary()
    assert found.terms[0].term == "x0"
    assert found.statement_.headline in str(found)
    check_forms(found)
    del model._record  # as an earlier version wrote it
    with pytest.raises(UsageError, match="holds no result of a study"):
        model.summary()
    with pytest.raises(UsageError, match="not fitted yet"):
        unpooled.Study([model]).summary()


@pytest.mark.guarantee
def test_a_study_prints_each_analysis_under_its_name_and_why_one_has_no_result() -> None:
    found = study().summary()
    baseline, _ = load("analyses").reading.parts(found.plan_, found.result_)
    failed = replace(baseline, result=None, failed="nobody answered")
    (table,) = failed.printed
    assert (table.head, table.rows, str(table)) == ((), (), "baseline (describe)\nno result: nobody answered")
    assert failed.table == "baseline (describe)\n\nno result: nobody answered"
    assert baseline.printed[0].foot == ()
    alone = load("survival")
    (own,) = replace(baseline, name="survival", model=alone, plan=survival().plan_, result=survival().result_).printed
    assert own.title == "survival"
    assert own.foot == alone.reading.foot(survival().plan_, survival().result_)
    titles = [table.title for table in found._printed()]
    assert titles == ["baseline (describe)", "stay (bayes)"]
    assert "<caption>baseline (describe)</caption>" in found._repr_html_()
    assert "**stay (bayes)**" in found.to_markdown()
    assert set(found.to_pandas()["group"].str.partition(":")[0].str.split(" ").str[0]) >= {"baseline"}


@pytest.mark.guarantee
def test_a_table_is_printed_in_columns_words_to_the_left_and_numbers_to_the_right() -> None:
    table = PrintedTable(("group", "term", "n"), (("a", "long", "5"), ("bc", "x", "12")), "Title", ("under it",), words=2)
    assert str(table) == "Title\ngroup  term   n\na      long   5\nbc     x     12\nunder it"
    assert str(PrintedTable(foot=("alone",))) == "alone"
    assert str(PrintedTable(("a", "b"), (("c", ""),))) == "a  b\nc"
    assert str(PrintedTable(("a", "b"), (("c", "1"),), text="a = c", foot=("said",))) == "a = c\nsaid"


# --- results that are hard to print ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Made(Result):
    """A result of a test."""

    rows: tuple[tuple[str, float], ...]
    title: str = ""
    drawn: bool = True

    def _printed(self) -> tuple[PrintedTable, ...]:
        return (PrintedTable(("term", "value"), tuple((n, f"{v:g}") for n, v in self.rows), self.title, (f"of {ODD}",)),)

    def _numbers(self) -> list[dict[str, Any]]:
        return [
            {"term": name, "value": value, "whole": k, "there": True, "none": None}
            for k, (name, value) in enumerate(self.rows)
        ]

    def _panels(self) -> tuple[Panel, ...]:
        names, values = zip(*self.rows, strict=True) if self.rows else ((), ())
        return (Panel(f"panel {ODD}", names, values),) if self.drawn else ()

    def _arrays(self) -> dict[str, Any]:
        return {"values": np.array([[value for _, value in self.rows]])}


HARD = (
    Made(()),
    Made((), drawn=False),
    Made(((ODD, math.inf), ("nan", math.nan), ("-", -math.inf)), ODD),
    Made((("a\nb", 1.0),)),
)


@pytest.mark.parametrize("found", HARD)
def test_a_result_without_lines_or_with_odd_names_and_numbers_has_every_form(found: Made) -> None:
    check_forms(found)
    jsonschema.validate(json.loads(found.to_json()), SCHEMA)
    assert "<i>" not in found._repr_html_().partition("<img")[0]
    assert "<i>" not in found.to_markdown()
    assert ("<img" in found._repr_html_()) == bool(found.rows and found.drawn)


def test_names_are_text_in_markdown_and_on_a_page_and_numbers_that_are_none_are_null() -> None:
    found = HARD[2]
    assert "| a\\|b &lt;i>\\*\\$c | inf |" in found.to_markdown()
    assert "**a\\|b &lt;i>\\*\\$c**" in found.to_markdown()
    assert "| a b | 1 |" in HARD[3].to_markdown()
    assert "<th>a|b &lt;i&gt;*$c</th><td>inf</td>" in found._repr_html_()
    data = msgspec.json.decode(found.to_json(), type=TableOutput)
    assert [line["value"] for line in data.numbers] == [None, None, None]
    assert msgspec.structs.astuple(data.arrays["values"]) == ((1, 3), (None, None, None))
    assert msgspec.structs.asdict(data.panels[0])["values"] == (None, None, None)
    assert found.to_polars().schema == {
        "term": pl.String, "value": pl.Float64, "whole": pl.Int64, "there": pl.Boolean, "none": pl.Float64
    }  # fmt: skip
    assert found.to_polars()["value"].to_list() == [math.inf, None, -math.inf]


@pytest.mark.parametrize(
    ("text", "cell", "line"),
    [
        ("-0.5", "-0.5", "\\-0.5"),
        ("p < 3/999", "p < 3/999", "p < 3/999"),
        ("std_error _x_", "std_error \\_x\\_", "std_error \\_x\\_"),
        ("# a", "# a", "\\# a"),
        ("12. a &lt; b", "12. a &amp;lt; b", "12\\. a &amp;lt; b"),
        ("1.5 a", "1.5 a", "1.5 a"),
        ("[a](b) <b", "[a]\\(b) &lt;b", "[a]\\(b) &lt;b"),
        ("`x` ~y~ \\", "\\`x\\` \\~y\\~ \\\\", "\\`x\\` \\~y\\~ \\\\"),
    ],
)
def test_markdown_reads_a_name_and_a_line_as_text(text: str, cell: str, line: str) -> None:
    @dataclass(frozen=True, repr=False)
    class Named(Result):
        def _lines(self) -> list[tuple[str, ...]]:
            return [("term", "value"), (text, "1")]

        def _foot(self) -> list[str]:
            return [text]

    assert Named().to_markdown() == f"| term | value |\n| :--- | ---: |\n| {cell} | 1 |\n\n{line}\n"


def test_lines_that_are_hidden_are_in_no_form() -> None:
    table = linear().summary()
    gone = table.terms[1].term
    hidden = replace(table, terms=(table.terms[0], *table.terms[2:]), not_determined=(gone,))
    check_forms(hidden)
    assert f"| {gone} |" not in hidden.to_markdown()
    assert gone not in hidden.to_pandas().index
    assert gone not in [line["term"] for line in json.loads(hidden.to_json())["numbers"]]
    assert "not determined, so not printed" in hidden.to_markdown()
    none = replace(table, terms=(), not_determined=(gone,))
    check_forms(none)
    assert "<img" not in none._repr_html_()


@pytest.mark.parametrize(("package", "form"), [("pandas", "to_pandas"), ("polars", "to_polars")])
def test_a_package_that_is_missing_is_named_with_the_way_to_install_it(
    package: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == package:
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=f"{form} needs {package}: pip install {package}"):
        getattr(HARD[0], form)()


def test_without_matplotlib_a_page_has_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "<img" in HARD[2]._repr_html_()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "<img" not in HARD[2]._repr_html_()
    assert "<table>" in HARD[2]._repr_html_()


def test_a_figure_shows_itself_without_pyplot_and_travels() -> None:
    figure, (axes,) = new_figure(3, 2)
    axes.plot([0, 1], [0, 1])
    assert pickle.loads(pickle.dumps(figure))._repr_png_().startswith(b"\x89PNG\r\n\x1a\n")


def test_ipython_shows_the_table_and_a_plain_console_the_short_form() -> None:
    class Printer:
        said = ""

        def text(self, words: str) -> None:
            self.said += words

    for cycle in (False, True):
        printer = Printer()
        HARD[2]._repr_pretty_(printer, cycle)
        assert printer.said == (repr(HARD[2]) if cycle else str(HARD[2]))
    assert repr(HARD[2]) == "Made(3 lines)"


@pytest.mark.guarantee
def test_a_table_of_lines_has_the_columns_of_which_something_is_known() -> None:
    text = as_table((ResultTerm("age", 0.5, std_error=0.1), ResultTerm("dose", -1.0, std_error=0.2)))
    assert [line.split()[0] for line in text.splitlines()] == ["term", "age", "dose"]
    assert "std_error" in text
    assert "conf_low" not in text
