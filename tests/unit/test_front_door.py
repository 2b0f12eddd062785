"""After a study: results line by line, what a party keeps, a page for each side."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import PARTIES, approve, command, known_commands, two_parties

import unpooled
from unpooled import PrideRegressor, PrivateBayesianRegression, PrivateStackingClassifier
from unpooled.inference.tables import JointTest
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target, Unit
from unpooled.protocol.registry import nothing
from unpooled.protocol.terms import ResultTerm
from unpooled.report.page import PartyView
from unpooled.study.finished import BudgetLeft
from unpooled.study.party import DiskKeeper, create_party

TWO = ("--party", "clinic/party.toml", "--party", "laboratory/party.toml")

COLUMNS = """\
[study]
model = "pride"

[parameters]
response = "y"

[privacy]
epsilon = 5.0
delta = 1e-6
unit = "attribute"

[[party]]
card = "clinic/clinic.card.toml"

[[party]]
card = "laboratory/laboratory.card.toml"
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


@pytest.fixture
def columns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column-split study that has run."""
    tmp_path = tmp_path_factory.mktemp("columns")
    rng = np.random.default_rng(0)
    n = 200
    age, sex, marker = rng.uniform(20, 80, n), rng.choice(["f", "m"], n), rng.normal(5, 1, n)
    y = 0.1 * age + (sex == "f") - marker + rng.normal(size=n)
    held = {
        "clinic": ({"age": age, "sex": sex}, (Column("age", 0.0, 100.0), Column("sex", categories=("f", "m")))),
        "laboratory": (
            {"marker": marker, "other": rng.normal(size=n)},
            (Column("marker", 0.0, 10.0), Column("other", -4.0, 4.0)),
        ),
    }
    for name, (data, declared) in held.items():
        home = tmp_path / name
        home.mkdir()
        pl.DataFrame(data | {"y": y}).write_csv(home / "data.csv")
        create_party(home, name, home / "data.csv", declared, Target(20.0, 1e-5, Unit.ATTRIBUTE), None, ("y",))
    (tmp_path / "study.toml").write_text(COLUMNS)
    for name in held:
        command(tmp_path, "party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    command(tmp_path, "run", "study.toml", "--force", *TWO)
    return tmp_path


# --- the analyst --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_result_in_words_as_csv_and_as_json(world: Path) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    shown = command(world, "result", "study.run")
    assert re.search(r"^pooled +age +\d+ ", shown, re.MULTILINE)
    assert "Differentially private with epsilon = 1" in shown
    data = json.loads(command(world, "result", "study.run", "--json"))
    schema = {"term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high", "privacy"}
    assert all(schema < set(term) for term in data["terms"])
    rows = list(csv.DictReader(io.StringIO(command(world, "result", "study.run", "--csv"))))
    assert [float(row["estimate"]) for row in rows] == [term["estimate"] for term in data["terms"]]
    (mean,) = (t for t in data["terms"] if (t["group"], t["term"]) == ("pooled", "age: mean"))
    # Noise differs in every run: three half widths are almost six deviations, where the interval itself would miss one run in twenty.
    assert mean["conf_low"] < mean["estimate"] < mean["conf_high"]
    assert abs(mean["estimate"] - 50) < 3 * (mean["conf_high"] - mean["estimate"])
    assert "choose --csv or --json" in command(world, "result", "study.run", "--csv", "--json", code=2)
    # Without the transcript, as after a networked run.
    (world / "study.run/transcript").unlink()
    told = json.loads(command(world, "result", "study.run", "--json"))
    assert (told["terms"], told["recomputed"]) == (data["terms"], False)
    page = json.loads(command(world, "report", "study.run", "--json"))
    assert "from the record that it sent" in Path(world / page["written"]).read_text()


@pytest.mark.long
@pytest.mark.slow
def test_a_result_that_was_changed_is_told(world: Path) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    (world / "study.run/result.json").write_text("{}")
    for gone in (False, True):
        if gone:
            (world / "study.run/transcript").unlink()
        assert "WARNING: result.json is not" in command(world, "result", "study.run")
        assert "WARNING: result.json is not" in command(world, "report", "study.run")


def test_a_folder_without_a_run_is_refused_in_words(tmp_path: Path) -> None:
    assert "no transcript and no record" in command(tmp_path, "result", ".", code=2)
    (tmp_path / "study.toml").write_text(COLUMNS)
    assert "is a file" in command(tmp_path, "report", "study.toml", code=2)


# --- safe defaults ------------------------------------------------------------------------------------------------------------


def with_ids(folder: Path, shuffled: bool = False) -> None:
    """Both parties of the column-split study name an id column; one may hold its rows in another order."""
    for name in ("clinic", "laboratory"):
        home = folder / name
        frame = pl.read_csv(home / "data.csv").with_row_index("patient")
        frame = frame.reverse() if shuffled and name == "laboratory" else frame
        frame.write_csv(home / "data.csv")
        text = (home / "party.toml").read_text()
        (home / "party.toml").write_text(text.replace("labels =", 'id = "patient"\nlabels =', 1))
        card = (home / f"{name}.card.toml").read_text()
        (home / f"{name}.card.toml").write_text(card.replace("labels =", 'id = "patient"\nlabels =', 1))


@pytest.mark.long
@pytest.mark.slow
def test_rows_are_compared_wherever_every_card_names_an_id_column(columns: Path) -> None:
    from unpooled.study.files import read_study

    assert "nobody checks" in command(columns, "plan", "study.toml")
    with_ids(columns)
    study = read_study(columns / "study.toml")
    assert [card.id for card in study.parties] == ["patient", "patient"]
    assert study.ids == "aligned"
    planned = json.JSONDecoder().raw_decode(command(columns, "plan", "study.toml", "--json"))[0]
    assert planned["notes"] == []
    assert "same row ids" in command(columns, "plan", "study.toml")
    (columns / "study.toml").write_text(COLUMNS.replace('"pride"', '"pride"\nids = "unchecked"'))
    assert read_study(columns / "study.toml").ids == ""
    # One card without: nothing to compare.
    (columns / "study.toml").write_text(COLUMNS)
    card = columns / "clinic/clinic.card.toml"
    card.write_text(card.read_text().replace('id = "patient"\n', ""))
    assert read_study(columns / "study.toml").ids == ""
    # Whoever compiles a study says what is wrong with it; reading it does not.
    card.write_text(card.read_text().replace("labels =", 'id = "patient"\nlabels =', 1))
    (columns / "study.toml").write_text(COLUMNS.replace('"pride"', '"prude"'))
    assert read_study(columns / "study.toml").ids == ""
    assert "unknown model" in command(columns, "plan", "study.toml", code=2)


@pytest.mark.long
@pytest.mark.slow
def test_a_shuffled_file_ends_the_study_before_anything_is_released(columns: Path) -> None:
    with_ids(columns, shuffled=True)
    (columns / "study.toml").write_text(COLUMNS.replace('"pride"', '"pride"\nrun = 2'))
    for name in ("clinic", "laboratory"):
        command(columns, "party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    said = command(columns, "run", "study.toml", "--force", *TWO, "--out", "again", code=2)
    assert "row ids of laboratory are not those of 'clinic'" in said


def test_rows_of_different_people_are_not_compared(world: Path) -> None:
    from unpooled.study.files import read_card, read_study

    assert read_card(world / "north/north.card.toml").id == "id"
    assert read_study(world / "study.toml").ids == ""
    assert "Note:" not in command(world, "plan", "study.toml")


@pytest.mark.slow
def test_a_plan_says_what_it_wastes(columns: Path) -> None:
    for name in ("clinic/party.toml", "clinic/clinic.card.toml"):
        file = columns / name
        file.write_text(re.sub(r"labels = \[[^]]*\]\n", "", file.read_text()))
    printed = command(columns, "plan", "study.toml", "--json")
    notes = json.JSONDecoder().raw_decode(printed)[0]["notes"]
    assert "laboratory releases nothing" in notes[0]


def test_a_card_from_before_ids_were_named_is_still_the_partys(world: Path) -> None:
    for name in ("north", "south"):
        card = world / name / f"{name}.card.toml"
        card.write_text(card.read_text().replace('id = "id"\n', ""))
    approve(world)


@pytest.mark.long
@pytest.mark.slow
def test_a_statement_names_its_unit_and_reads_epsilon(world: Path, columns: Path) -> None:
    shown = command(columns, "plan", "study.toml")
    assert re.search(
        r"A guarantee holds: epsilon = 5 for one value of one person; (none|epsilon = [\d.]+) for the whole person\.",
        shown,
    )
    assert "Suppose an attacker knows all data but this one value" in shown
    from dataclasses import replace

    from unpooled.study.files import read_study
    from unpooled.study.run import compile_study

    one = compile_study(read_study(columns / "study.toml")).statement
    none = replace(one, epsilon_per_unit={"attribute": 9.0, "record": float("inf")}, delta=0.0, failure=0.0)
    assert replace(one, adjacency="zero-out", failure=0.0).reading.count("except") == 0  # a pure promise has no exceptions
    assert none.headline == "A guarantee holds: epsilon = 9 for one value of one person; none for the whole person."
    assert ", and none for the whole person: if one value" in str(none)
    assert repr(none).endswith("per attribute; none for the whole person)")
    assert none.strength == replace(none, epsilon_per_unit={"attribute": 2.0, "record": 10.1}).strength == "caution"
    strong = replace(none, epsilon_per_unit={"attribute": 2.0, "record": 10.0})
    assert strong.strength == "good"
    assert replace(strong, coarse=True).strength == replace(strong, only_against="friends").strength == "caution"
    assert replace(strong, holds=False).strength == "none"
    household = replace(strong, unit="household", epsilon_per_unit={"household": 12.0, "record": 3.0, "attribute": 1.0})
    assert household.strength == "caution"
    assert "coarse" not in strong.to_dict()
    assert "to at most almost 100 %. Epsilon does not limit" in none.reading
    assert replace(one, holds=False).headline == "No privacy guarantee holds for this result."
    assert replace(one, holds=False).reading == ""
    row = command(world, "plan", "study.toml")
    assert "A guarantee holds for one person's whole row." in row
    assert (
        "thinks there is a 50 % chance that this person has a certain condition. After seeing the results, the attacker's estimate can rise to at most 73 %"
        in row
    )
    data = json.loads(command(world, "plan", "study.toml", "--json"))["statement"]
    assert data["headline"] in row
    assert data["reading"] in row
    out = (world / "study.toml").read_text().replace("epsilon = 1.0", 'epsilon = 1.0\nadjacency = "zero-out"')
    (world / "study.toml").write_text(out)
    asked = command(world, "plan", "study.toml")
    assert re.search(
        r"that this person took part\. .* can rise to at most 73 %, except with .* \(for a property of the data: 88 %, with more exceptions\)",
        asked,
    )
    (stated,) = re.findall(r"to at most 73 %, except with a probability of at most (\S+)\. Epsilon", row)
    assert 10e-6 < float(stated) < 100e-6  # many times delta, which is 1e-6 here
    assert float(stated) >= data["failure"]
    assert none.reading.count("except") == 0


# --- a party ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_party_shows_and_exports_what_it_keeps(columns: Path) -> None:
    said = command(columns, "result", "study.run")
    assert "unpooled party show" in said
    at = ("--config", "clinic/party.toml")
    shown = command(columns, "party", "show", "study.toml", *at)
    assert "sex = f" in shown
    assert "coded_coefficients" in shown
    assert "for nobody else" in shown
    data = json.loads(command(columns, "party", "show", "study.toml", *at, "--json"))
    values = {term["term"]: term["estimate"] for term in data["terms"]}
    assert values["age"] == pytest.approx(0.1, abs=0.05)  # in years, not in halves of a declared range
    assert values["age"] * 50 == pytest.approx(data["arrays"]["coded_coefficients"][0])
    listed = json.loads(command(columns, "party", "show", *at, "--json"))["plans"]
    assert list(listed) == [data["plan"][:32]]
    assert "coded_coefficients" in command(columns, "party", "show", *at)
    for name in ("own.csv", "own.json", "own.npz"):
        command(columns, "party", "export", "study.toml", *at, "--out", name)
        assert (columns / name).stat().st_mode & 0o777 == 0o600
    rows = list(csv.DictReader(io.StringIO((columns / "own.csv").read_text())))
    assert {row["term"]: float(row["estimate"]) for row in rows} == values
    with np.load(columns / "own.npz") as arrays:
        assert {name: arrays[name].tolist() for name in arrays.files} == data["arrays"]
    assert "exists already" in command(columns, "party", "export", "study.toml", *at, "--out", "own.csv", code=2)
    assert "name the file" in command(columns, "party", "export", "study.toml", *at, "--out", "own.txt", code=2)


@pytest.mark.slow
def test_the_ledger_says_when(columns: Path) -> None:
    from datetime import UTC, datetime

    from unpooled.study.finished import moment

    text = command(columns, "party", "ledger", "--config", "clinic/party.toml", "--all")
    assert text.count(datetime.now(UTC).strftime("%Y-%m")) >= 2
    assert (moment(0), moment(86400)) == ("", "1970-01-02 00:00")


@pytest.mark.slow
def test_a_party_that_keeps_nothing_says_so(columns: Path) -> None:
    (columns / "study.toml").write_text(COLUMNS.replace('"pride"', '"pride"\nrun = 2'))
    at = ("--config", "clinic/party.toml")
    assert "has it run" in command(columns, "party", "show", "study.toml", *at, code=2)
    assert "has it run" in command(columns, "party", "export", "study.toml", *at, "--out", "own.csv", code=2)
    (columns / "clinic/party.toml").write_text((columns / "clinic/party.toml").read_text().replace('"clinic"', '"ward"', 1))
    assert "is not in study.toml" in command(columns, "party", "show", "study.toml", *at, code=2)


@pytest.mark.slow
def test_arrays_without_names_of_their_own_are_exported_as_arrays(columns: Path) -> None:
    from unpooled.study.files import read_study
    from unpooled.study.run import compile_study

    plan = compile_study(read_study(columns / "study.toml")).hash
    for file in (columns / "clinic/clinic.ledger.kept").glob("*-coded_coefficients.npy"):
        file.unlink()
    at = ("--config", "clinic/party.toml")
    assert "alpha" in command(columns, "party", "show", "study.toml", *at)
    assert "export the arrays" in command(columns, "party", "export", "study.toml", *at, "--out", "own.csv", code=2)
    keeper = DiskKeeper(columns / "nowhere")
    assert (keeper.plans(), keeper.names(plan)) == ([], [])
    assert "Nothing is kept here" in command(columns, "party", "show", "--config", _fresh(columns))


def _fresh(folder: Path) -> str:
    (folder / "other").mkdir()
    pl.DataFrame({"a": [1.0, 2.0]}).write_csv(folder / "other/data.csv")
    create_party(folder / "other", "other", folder / "other/data.csv", (Column("a", 0.0, 3.0),), Target(1.0, 1e-5))
    return "other/party.toml"


@pytest.mark.slow
def test_the_page_of_a_party_shows_what_it_may_see(columns: Path) -> None:
    said = json.loads(command(columns, "report", "study.toml", "--config", "clinic/party.toml", "--json"))
    text = (columns / said["written"]).read_text()
    assert said["written"] == "study.clinic.html"
    assert "as clinic sees it" in text
    assert "What this party keeps" in text
    assert "What this party's ledger says of it" in text
    assert ">approval pride for the data with digest " in text
    assert "Budget of clinic" in text
    assert "What travelled" not in text
    assert "those who may see them" in text
    coded = np.load(next((columns / "laboratory/laboratory.ledger.kept").glob("*-coded_coefficients.npy")))
    assert f"{coded[0] / 5:.6g}" not in text  # the other party's own


def test_the_parts_of_all_parties_add_up_to_the_model() -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 3, (150, 6))
    y = X[:, 0] - 2 * X[:, 4] + 1 + 0.1 * rng.normal(size=150)
    for fit_intercept in (True, False):
        model = PrideRegressor(
            {"a": [0, 1, 2], "b": [3, 4, 5]}, bounds=(-1, 3), epsilon=3.0, fit_intercept=fit_intercept, random_state=0
        ).fit(X, y)
        row, plan = load("pride"), model.plan_
        parts = {party: row.reading.kept_terms(plan, party, dict(kept)) for party, kept in model.kept_.items()}
        own = [term.estimate for terms in parts.values() for term in terms if not term.term.startswith("(")]
        assert own == pytest.approx(model.coef_.tolist())
        constants = [terms[-1].estimate for terms in parts.values()]
        found = np.mean(constants) - X.mean(axis=0) @ model.coef_ if fit_intercept else sum(constants)
        assert found == pytest.approx(model.intercept_, abs=1e-5)


@pytest.mark.guarantee
def test_a_stacks_party_keeps_the_model_that_it_released() -> None:
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (300, 4))
    y = X[:, 0] > 0
    model = PrivateStackingClassifier(
        {"a": [0, 1], "b": [2, 3]}, bounds=(-1, 1), classes=(False, True), epsilon=5.0, random_state=0
    ).fit(X, y)
    row = load("stacking")
    low = model.models_[0]
    terms = row.reading.kept_terms(model.plan_, "a", {"weights": np.array(low.weights)})
    assert [t.estimate for t in terms] == pytest.approx([*low.coefficients, low.intercept])
    assert row.reading.kept_terms(model.plan_, "a", {}) == ()


# --- what a notebook shows ----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_results_are_short_in_a_console_and_tables_in_a_notebook() -> None:
    rng = np.random.default_rng(7)
    X = rng.uniform(-1, 1, (4000, 2))
    frame = pl.DataFrame(X, schema=["<b>age</b>", "dose"])
    described = unpooled.describe(frame, bounds=(-1, 1), epsilon=2.0)
    ranges = unpooled.describe(frame, bounds=True, epsilon=8.0)
    model = unpooled.PrivateBayesianRegression(bounds=(-1, 1), y_bounds=(-2, 2), method="moments").fit(frame, X[:, 0])
    untold = described.__class__(described.summaries_, unpooled.describe(X, bounds=(-1, 1), random_state=0).plan_, (), {})
    bare = model.lasso(0.1)
    results = [
        described,
        ranges,
        described.statement_,
        untold.statement_,
        untold,
        model.ols(),
        bare,
        model.moments_,
        model.summary(),
    ]
    for result in results:
        page = result._repr_html_()
        assert page.startswith(("<table>", "<p>"))
        assert "<b>age" not in page
        assert (
            "nan" not in page.partition("<img")[0].lower().replace("finance", "")
            or result is bare
            or "summary" in type(result).__name__.lower()
        )
        if not hasattr(result, "terms"):
            assert len(repr(result)) < 200
            assert "\n" not in repr(result)
    assert repr(described.statement_).startswith("Statement(epsilon = ")
    assert repr(untold.statement_) == "Statement(no guarantee)"
    assert "2 columns" in repr(described)
    assert "A guarantee holds for one person" in described._repr_html_()
    assert "not identified" in repr(bare)
    assert "of 4000 rows" in repr(model.moments_)


def test_a_party_that_keeps_no_coefficients_has_no_figure_of_them() -> None:
    plan = PrideRegressor(parties=2, bounds=(-1, 1)).plan(50, 4)
    left = BudgetLeft("party0", 0.0, 1.0, 1e-6, "record")
    assert PartyView("party0", plan, (), (), "", left).panels == ()
    assert PartyView("party0", plan, (ResultTerm("(intercept)", 1.0),), (), "", left).panels == ()
    (panel,) = PartyView("party0", plan, (ResultTerm("age", 1.0), ResultTerm("(intercept)", 1.0)), (), "", left).panels
    assert panel.names == ("age",)


def test_a_model_that_names_nothing_lists_nothing() -> None:
    plan = PrideRegressor(parties=2, bounds=(-1, 1)).plan(50, 4)
    assert nothing(plan, "party0", {}) == ()


# --- what people see while they wait, and in a console ------------------------------------------------------------------------


@pytest.mark.guarantee
def test_tests_components_plans_and_releases_are_short_in_a_console_and_tables_in_a_notebook() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    fit = PrivateBayesianRegression(epsilon=3.0, bounds=(-1, 1), y_bounds=(-4, 4), method="moments", random_state=0)
    fit.fit(X, X @ [1.0, -1.0, 0.0] + 0.1 * rng.normal(size=4000))
    joint = fit.anova(["x0"])
    components = fit.pca()
    release = fit.plan_.releases[0]
    for shown in (joint, components, fit.plan_):
        assert len(repr(shown)) < 200
        assert "<table>" in shown._repr_html_()
        assert "<script>" not in shown._repr_html_()
    assert repr(joint).startswith("JointTest(")
    assert "3 directions of 3 columns" in repr(components)
    assert repr(fit.plan_).startswith("Plan(bayes: 2 releases, epsilon = 3 at delta = ")
    assert repr(release).startswith(f"Release({release.name} of all: ")
    hostile = JointTest("<script>x", 1.0, 2, 0.5)
    assert "&lt;script&gt;" in hostile._repr_html_()
    many = PrideRegressor(parties=2, bounds=(-1, 1)).plan(50, 4)
    from dataclasses import replace

    crowded = replace(many, releases=many.releases * 40)
    assert "and 50 more" in crowded._repr_html_()


def test_waiting_counts_rounds_and_names_who_is_waited_for() -> None:
    from unpooled.cli.say import progress, waiting
    from unpooled.protocol.messages import Ask, Nothing

    said: list[str] = []
    watch = waiting(said.append)
    for _ in range(2):
        watch([Ask("north", "gradient", Nothing()), Ask("coast", "gradient", Nothing())])
    assert said == [
        "step 'gradient': waiting for north, coast",
        "step 'gradient', round 2: waiting for north, coast",
    ]
    with progress() as say:  # no terminal: not a word
        say("words")


def test_ctrl_c_says_how_to_go_on(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    approve(world)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unpooled.study.run.run_study", interrupted)
    said = command(world, "run", "study.toml", "--party", "north/party.toml", "--party", "south/party.toml", code=130)
    assert "Nothing is lost: run the same command again" in said


def test_the_first_compilation_says_so_once_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import types

    from unpooled.kernels.compiled import CompileNotice

    def event(module: str) -> object:
        return types.SimpleNamespace(
            data={"dispatcher": types.SimpleNamespace(py_func=types.SimpleNamespace(__module__=module))}
        )

    class Terminal(io.StringIO):
        def __init__(self, *, seen: bool) -> None:
            super().__init__()
            self.seen = seen

        def isatty(self) -> bool:
            return self.seen

    for seen, modules, count in (
        (True, ["other", "unpooled.kernels.ridge", "unpooled.papers.sdca"], 1),
        (False, ["unpooled.kernels.ridge"], 0),
    ):
        terminal, notice = Terminal(seen=seen), CompileNotice()
        monkeypatch.setattr("sys.stderr", terminal)
        for module in modules:
            notice.on_start(event(module))
            notice.on_end(event(module))
        assert terminal.getvalue().count("compiles its kernels") == count


# --- kits and the doctor ------------------------------------------------------------------------------------------------------


def test_the_doctor_understands_studies_on_one_disk(world: Path) -> None:
    said = command(world, "doctor", "--study", "study.toml", "--config", "north/party.toml", code=2)
    assert [line for line in said.splitlines() if line.startswith("PROBLEM")] == [
        "PROBLEM  party: 'north': the plan fits the policy, but nobody has approved it: `unpooled party check STUDY`"
    ]
    approve(world)
    said = command(world, "doctor", "--study", "study.toml", "--config", "north/party.toml")
    assert "this study runs with all parties on one disk" in said
    assert "PROBLEM" not in said
    text = (world / "study.toml").read_text()
    (world / "study.toml").write_text(text.replace("[study]", f'[study]\ncoordinator = "{"a" * 64}"'))
    found = json.loads(command(world, "doctor", "--study", "study.toml", "--json"))["findings"]
    assert [one["what"] for one in found] == ["versions", "cards", "coordinator"]


@pytest.mark.parametrize("role", ["server", "client", "admin"])
def test_a_kit_carries_our_own_words_and_ways_to_run_it(role: str, tmp_path: Path) -> None:
    import configparser
    import shlex

    from unpooled.network.kits import write_kit_files

    folder = tmp_path / "north"
    folder.mkdir()
    (folder / "readme.txt").write_text("run start.sh")  # the engine's
    write_kit_files(folder, role)
    assert not (folder / "readme.txt").exists()
    text = (folder / "README.md").read_text()
    assert unpooled.__version__ in text
    assert "start.sh" not in text
    shown = re.findall(r"^ +unpooled (.+)$", text, flags=re.MULTILINE)
    assert shown
    for line in shown:
        name = next(known for known in known_commands() if line.startswith(known))
        with known_commands()[name].make_context(name, shlex.split(line)[len(name.split()) :]):
            pass
    if role == "admin":
        assert [file.name for file in folder.iterdir()] == ["README.md"]
        return
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string((folder / "unpooled.service").read_text())
    assert unit["Service"]["ExecStart"].endswith("unpooled network start /srv/unpooled/north")
    assert unit["Service"]["Environment"] == "NUMBA_CACHE_DIR=/var/cache/unpooled"
    lines = [line for line in (folder / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    assert [line.split()[0] for line in lines] == ["FROM", "COPY", "RUN", "USER", "ENV", "VOLUME", "ENTRYPOINT", "CMD"]
    assert "[network]" in lines[2]
    assert lines[1].split()[1] in lines[2]
    assert json.loads(lines[6].removeprefix("ENTRYPOINT ")) == ["unpooled", "network", "start"]
    assert json.loads(lines[7].removeprefix("CMD ")) == ["/srv/unpooled/north"]
