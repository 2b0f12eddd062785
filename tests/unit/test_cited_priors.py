"""Earlier models in study files: as numbers, out of a run, or of a file of public rows; and what is refused of each."""

from __future__ import annotations

import dataclasses
import json
import sys
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest
from commands import PARTIES, command

from unpooled import PrivateGLM, PrivateLinearRegression, PrivateLogisticRegression, PrivateStackingClassifier
from unpooled.errors import StudyError, UsageError
from unpooled.models import fitted, load
from unpooled.models.stacking.declared import in_new_words, parameters_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Target
from unpooled.protocol.local import Outcome, drive, in_process
from unpooled.protocol.transcript import Transcript
from unpooled.study.earlier import with_cited
from unpooled.study.files import read_study, write_card
from unpooled.study.party import create_party
from unpooled.study.record import write_record
from unpooled.study.run import compile_study
from unpooled.testing.cases import parties as in_cases

#: Tests of one run, which is made once: by one process, in the slow lane.
of_a_run = pytest.mark.xdist_group("cited priors")
RNG = np.random.default_rng(11)
FEATURES = (
    Column("age", 0.0, 100.0),
    Column("ward", categories=("a", "b")),
    Column("dose", 0.0, 10.0, missing="absent"),
)
STAY, ILL, FALLS = Column("stay", -15.0, 15.0), Column("ill", categories=("no", "yes")), Column("falls", 0.0, 40.0)
GRADE = Column("grade", categories=("low", "mid", "top"))
NAMES = {"age", "ward = a", "ward = b", "dose"}
TABLE = (
    '[[parameters.prior]]\nname = "told"\nintercept = 1.0\n[parameters.prior.coefficients]\nage = 0.1\n"ward = b" = -1.0\n'
)


def rows(n: int) -> pl.DataFrame:
    """People, with every response that a test asks for."""
    frame = pl.DataFrame(
        {"age": RNG.uniform(20, 80, n), "ward": RNG.choice(["a", "b"], n).tolist(), "dose": RNG.uniform(0, 10, n)}
    )
    means = 0.1 * frame["age"] + (frame["ward"] == "b") - frame["dose"]
    stay = means + RNG.normal(0, 1, n)
    return frame.with_columns(
        stay=stay,
        ill=pl.Series(np.where(stay > 0.5, "yes", "no")),
        grade=pl.Series(np.array(["low", "mid", "top"])[np.digitize(stay, [-1.0, 2.0])]),
        falls=pl.Series(RNG.poisson(np.exp(0.02 * frame["age"].to_numpy())).astype(float)),
    )


def text(model: str, parameters: str, more: str = "run = 1") -> str:
    cards = "".join(f'\n[[party]]\ncard = "{name}/{name}.card.toml"\n' for name in ("north", "south"))
    return f'[study]\nmodel = "{model}"\n{more}\n\n[parameters]\n{parameters}\n\n[privacy]\nepsilon = 8.0\ndelta = 1e-6\n{cards}'


def parties(folder: Path, *columns: Column) -> None:
    for name in ("north", "south"):
        (folder / name).mkdir(parents=True)
        rows(500).write_csv(folder / name / "data.csv")
        create_party(folder / name, name, folder / name / "data.csv", columns, Target(50.0, 1e-4))
        party = folder / name / "party.toml"
        party.write_text(party.read_text().replace("allow_simulation = false", "allow_simulation = true"))


def run(folder: Path, file: str, *words: str) -> dict:
    for name in ("north", "south"):
        command(folder, "party", "check", file, "--config", f"{name}/party.toml", "--approve")
    command(folder, "run", file, *PARTIES, *words)
    return json.loads((folder / f"{Path(file).stem}.run/result.json").read_text())["result"]


RUNS = {
    "bayes": ("bayes", 'response = "stay"', STAY),
    "glm": ("glm", 'response = "ill"', ILL),
}


@pytest.fixture(scope="module", params=RUNS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str, dict]:
    """Two parties with a study that has run: the folder, its model, its parameters and its result."""
    model, parameters, response = RUNS[request.param]
    folder = tmp_path_factory.mktemp(model)
    with (
        pytest.MonkeyPatch.context() as patched
    ):  # a module's fixture comes before the one that gives every test a state of its own
        patched.setenv("XDG_STATE_HOME", str(folder / "state"))
        parties(folder, *FEATURES, response)
        (folder / "study.toml").write_text(text(model, parameters))
        return folder, model, parameters, run(folder, "study.toml")


def cited(folder: Path, model: str, parameters: str, more: str = "run = 2") -> Study:
    (folder / "later.toml").write_text(text(model, parameters, more))
    return read_study(folder / "later.toml")


# --- runs ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("bayes", "glm")
@of_a_run
@pytest.mark.slow
def test_a_run_is_cited_by_what_predicts(ran: tuple) -> None:
    folder, model, parameters, result = ran
    study = cited(folder, model, f'{parameters}\nprior = "run:study.run"')
    (earlier,) = study.parameters["prior"]
    assert earlier["name"] == "study.run"
    assert earlier["coefficients"] == {c["name"]: c["value"] for c in result["coefficients"]}
    assert earlier["intercept"] == result["intercept"]
    assert {origin.input for origin in study.origins} == {"prior"}
    # The price of the run joins the statement, unless its people are others.
    alone = compile_study(cited(folder, model, parameters)).statement.epsilon_per_unit["record"]
    said = compile_study(study).statement
    assert said.holds
    assert said.epsilon_per_unit["record"] > 1.2 * alone
    assert "the prior (plan " in str(said)
    others = cited(folder, model, f'{parameters}\nprior = "run:study.run"\nprior_rows = "others"')
    apart = compile_study(others).statement
    assert apart.epsilon_per_unit["record"] == pytest.approx(alone, rel=0.05)
    assert any("Other people's data supplied the prior" in words for words in apart.assumptions)
    assert "prior_rows" not in others.parameters
    # And the study runs.
    (folder / "later.toml").write_text(text(model, f'{parameters}\nprior = ["run:study.run"]', "run = 2"))
    (weight,) = run(folder, "later.toml")["drawn"]["weights"]
    assert weight["name"] == "study.run"
    assert 0 <= weight["weight"] <= 1
    assert "study.run" in command(folder, "result", "later.run")


WRONG_RUNS = {
    'prior = "run:nowhere"': "holds no record",
    'prior = "study.run"': 'each is "run:FOLDER"',
    'prior = "files:study.run"': 'each is "run:FOLDER"',
    "prior = [3]\nconfidence = 0.9": "prior",
    'prior = ["run:study.run", 3]': 'each is "run:FOLDER"',
    'prior = ["run:study.run", {name = "b", coefficients = {age = 1.0}, slope = 2}]': "slope",
    'prior = "run:study.run"\nprior_rows = "all"': "prior_rows is",
    'prior_rows = "others"': "prior_rows is",
    'prior_analysis = "one"': "prior_analysis names",
    'prior_analysis = "one"\nprior = "run:study.run"': "analys",
    'prior = "run:study.run"\nprior_file = "x"': "prior_file",
    'prior = ["run:study.run", "run:study.run"]': "a name of its own",
}


@of_a_run
@pytest.mark.slow
@pytest.mark.parametrize("line", WRONG_RUNS)
def test_a_citation_that_means_nothing_is_refused(ran: tuple, line: str) -> None:
    folder, model, parameters, _ = ran
    with pytest.raises((StudyError, UsageError), match=WRONG_RUNS[line]):
        compile_study(cited(folder, model, f"{parameters}\n{line}"))


@of_a_run
@pytest.mark.slow
def test_a_run_of_something_else_is_refused(ran: tuple, tmp_path: Path) -> None:
    folder, model, parameters, _ = ran
    line = f'prior = "run:{folder / "study.run"}"'
    other, response = ("glm", FALLS) if model == "bayes" else ("bayes", FALLS)

    def refused(words: str, model: str, columns: tuple[Column, ...], parameters: str) -> None:
        for name in ("north", "south"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{name}.card.toml").write_text(
                write_card(Card(name, 500, columns, key=sha256(name.encode()).hexdigest()))
            )
        with pytest.raises(StudyError, match=words):
            cited(tmp_path, model, f"{parameters}\n{line}")

    refused("is a run of model", other, (*FEATURES, response), 'response = "falls"\nfamily = "poisson"')
    refused("another response", model, (*FEATURES, response), 'response = "falls"\nfamily = "logistic"')
    own = STAY if model == "bayes" else ILL
    refused(r"a coefficient of dose, and this study has no such column: declare it", model, (*FEATURES[:2], own), parameters)
    refused("name the response first", model, (*FEATURES, own), "confidence = 0.9")
    if model == "glm":
        refused("another family", model, (*FEATURES, ILL), f'{parameters}\nfamily = "poisson"')
        turned = Column("ill", categories=("yes", "no"))
        refused("another list of categories of the response", model, (*FEATURES, turned), parameters)
        refused("another family", model, (*FEATURES, ILL), f'{parameters}\nfamily = "multinomial"')
        refused("family is one of", model, (*FEATURES, ILL), f'{parameters}\nfamily = "binary"')
    # A study with one column more takes the others by name.
    for name in ("north", "south"):
        columns = (*FEATURES, Column("weight", 0.0, 200.0), own)
        (tmp_path / name / f"{name}.card.toml").write_text(
            write_card(Card(name, 500, columns, key=sha256(name.encode()).hexdigest()))
        )
    (earlier,) = cited(tmp_path, model, f"{parameters}\n{line}").parameters["prior"]
    assert set(earlier["coefficients"]) == NAMES


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_protects_nobody_is_cited_for_other_people_alone(tmp_path: Path) -> None:
    parties(tmp_path, *FEATURES, STAY)
    (tmp_path / "study.toml").write_text(text("bayes", 'response = "stay"', "simulation_seed = 1"))
    run(tmp_path, "study.toml")
    line = 'response = "stay"\nprior = "run:study.run"'
    with pytest.raises(StudyError, match="no guarantee holds for"):
        cited(tmp_path, "bayes", line)
    assert compile_study(cited(tmp_path, "bayes", f'{line}\nprior_rows = "others"')).statement.holds
    # A copy of the run is the same plan: its price is counted once, so it is one model.
    (tmp_path / "copy.run").mkdir()
    (tmp_path / "copy.run/run.msgpack").write_bytes((tmp_path / "study.run/run.msgpack").read_bytes())
    with pytest.raises(StudyError, match="are runs of one plan"):
        cited(tmp_path, "bayes", 'response = "stay"\nprior_rows = "others"\nprior = ["run:study.run", "run:copy.run"]')


def run_of_case(
    name: str, study: Study, transcript: Transcript | None = None, tables: dict[str, Table] | None = None
) -> Outcome:
    """Run a study over the rows of a contract case, or over these."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
    from cases import CASES

    case = CASES[name]()
    case = dataclasses.replace(case, study=study, tables=tables or case.tables)
    people = in_process(in_cases(case, dataclasses.replace(Policy.in_process(), allow_simulation=True)))
    return drive(load(study.model), load(study.model).compile(study), people, transcript)


def cited_from_case(
    folder: Path, name: str, times: int = 1, first: dict[str, object] | None = None, **more: object
) -> tuple[dict, Study, object]:
    """Run a contract case, and cite its run in a study like it: (the earlier model, that study, the result).

    With ``times`` above 1 it has every row so often, and next to no noise; ``first`` are parameters of the run alone.
    """
    sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
    from cases import CASES

    case, transcript = CASES[name](), Transcript()
    study, tables = case.study, None
    if times > 1:
        tables = {name: Table({one: np.tile(own[one], times) for one in own.names}) for name, own in case.tables.items()}
        cards = tuple(msgspec.structs.replace(card, rows=tables[card.name].n_rows) for card in study.parties)
        study = msgspec.structs.replace(study, parties=cards, epsilon=1000.0)
    run = msgspec.structs.replace(study, parameters=study.parameters | (first or {}))
    outcome = run_of_case(name, run, transcript, tables)
    write_record(folder, load(run.model).compile(run), outcome, transcript.entries)
    later = study.parameters | {"prior": "run:.", "prior_rows": "others"} | more
    parameters, origins = with_cited(study.model, later, study.parties, folder)
    (earlier,) = parameters["prior"]
    return earlier, msgspec.structs.replace(study, parameters=parameters, origins=origins), outcome.result


@pytest.mark.parametrize("name", ["bayes, columns", "bayes, sines"])
def test_a_run_of_columns_at_several_parties_is_cited(tmp_path: Path, name: str) -> None:
    earlier, study, result = cited_from_case(tmp_path, name, method="moments")
    assert earlier["coefficients"] == {c.name: c.value for c in result.coefficients}
    assert "Other people's data supplied the prior" in str(load("bayes").compile(study).statement)


@pytest.mark.slow
def test_a_run_of_classes_and_one_of_times_are_cited(tmp_path: Path) -> None:
    """Of classes with their constants, of times without the hazards of its intervals; both studies are planned and run."""
    for name, constants in (("multinomial", 3), ("survival", 0)):
        folder = tmp_path / name
        folder.mkdir()
        earlier, study, result = cited_from_case(folder, f"glm, {name}")
        slopes = {c.name: c.value for c in result.coefficients}
        assert {term: value for term, value in earlier["coefficients"].items() if term in slopes} == slopes
        assert len(earlier["coefficients"]) == len(slopes) + constants
        assert earlier["intercept"] == 0.0
        assert "Other people's data supplied the prior" in str(load("glm").compile(study).statement)


@pytest.mark.slow
def test_an_effect_is_drawn_to_that_of_a_run_which_means_the_same(tmp_path: Path) -> None:
    """Whatever the effect rests on is the same there: outcome, treatment and its control, estimand, family, horizon."""
    (tmp_path / "noise").mkdir()
    with pytest.raises(StudyError, match=r"has no effect .not identified"):
        cited_from_case(tmp_path / "noise", "effects")
    earlier, study, result = cited_from_case(tmp_path, "effects", times=20)
    assert earlier["coefficients"] == {"ATE": result.effect.value}
    assert "Other people's data supplied the prior" in str(load("effects").compile(study).statement)
    own = {name: value for name, value in study.parameters.items() if name != "prior"} | {"prior_rows": "others"}

    def refused(cards: tuple[Card, ...] = study.parties, prior: str = "run:.", **changes: object) -> str:
        with pytest.raises(StudyError) as caught:
            with_cited("effects", own | {"prior": prior} | changes, cards, tmp_path)
        return str(caught.value)

    others = {
        "response": "age",
        "treatment": "smoker",
        "event": "died",
        "horizon": 9.0,
        "estimand": "ATT",
        "family": "gamma",
    }
    for name, value in others.items():
        assert f"another {name}" in refused(**{name: value}), name
    turned = [
        msgspec.structs.replace(
            card,
            columns=tuple(
                msgspec.structs.replace(c, categories=c.categories[::-1]) if c.name == own["treatment"] else c
                for c in card.columns
            ),
        )
        for card in study.parties
    ]
    assert "another list of categories of the treatment" in refused(tuple(turned))
    assert "public rows (old.csv) go without a treatment" in refused(prior="rows:old.csv", prior_rows="")
    # An effect that was drawn itself is cited as it was printed.
    (tmp_path / "drawn").mkdir()
    before = [{"name": "Lund", "coefficients": {"ATE": 2.0}}]
    twice, _, again = cited_from_case(tmp_path / "drawn", "effects", times=20, first={"prior": before})
    assert twice["coefficients"] == {"ATE": again.drawn.value} != {"ATE": again.effect.value}
    with pytest.raises(StudyError, match="a run of model 'effects'"):
        with_cited(
            "bayes", {"response": "stay", "prior": "run:.", "prior_rows": "others"}, (Card("north", 9, (STAY,)),), tmp_path
        )


def test_spectra_start_from_a_run_and_from_public_spectra(tmp_path: Path) -> None:
    earlier, study, result = cited_from_case(tmp_path, "pls", times=20)
    assert earlier["coefficients"] == dict(zip(result.channels, result.model.coefficients.numpy().tolist(), strict=True))
    assert earlier["intercept"] == result.model.intercept
    assert "Other people's data supplied the prior" in str(
        load("pls").compile(msgspec.structs.replace(study, epsilon=50.0)).statement
    )
    channels = result.channels
    spectra = RNG.uniform(-1, 1, (40, len(channels)))
    public = pl.DataFrame(dict(zip(channels, spectra.T, strict=True)))
    asked = {name: value for name, value in study.parameters.items() if name != "prior"}
    public.with_columns(pl.Series(asked["response"], 9 + spectra[:, 0] * 0.1)).write_csv(tmp_path / "public.csv")
    found, origins = with_cited("pls", asked | {"prior": "rows:public.csv"}, study.parties, tmp_path)
    assert set(found["prior"][0]["coefficients"]) == set(channels)
    assert origins == ()
    with pytest.raises(StudyError, match="prior goes with one response"):
        with_cited("pls", asked | {"response": ["one", "two"], "prior": "rows:public.csv"}, study.parties, tmp_path)


@pytest.mark.parametrize("name", ["lasso, moments", "lasso, logistic"])
def test_the_lasso_starts_from_a_run_and_from_public_rows(tmp_path: Path, name: str) -> None:
    """Its response is a label of every party, called y where the study does not say so, and no card declares it as a column."""
    earlier, study, result = cited_from_case(tmp_path, name, radius_in_half_ranges=None)
    assert earlier["coefficients"] == {c.name: c.value for c in result.coefficients} != {}
    assert earlier["intercept"] == result.intercept
    assert "Other people's data supplied the prior" in str(load("lasso").compile(study).statement)
    rng, features = np.random.default_rng(3), [c for card in study.parties for c in card.columns]
    X = {c.name: rng.choice(c.categories, 80) if c.categories else rng.uniform(*c.range, 80) for c in features}
    ages = X["age"] - X["age"].mean()
    X["y"] = np.where(ages > 0, 1.0, -1.0) if name == "lasso, logistic" else ages / 50
    pl.DataFrame(X).write_csv(tmp_path / "public.csv")
    asked = study.parameters | {"prior": "rows:public.csv"}
    found, origins = with_cited("lasso", asked, study.parties, tmp_path)
    assert origins == ()
    (rows,) = found["prior"]
    assert rows["coefficients"]["age"] > 0.01
    drawn = load("lasso").compile(msgspec.structs.replace(study, parameters=found, origins=()))
    assert "The earlier models (public.csv) are public" in str(drawn.statement)
    # And the study runs: every reader of its result sees the weight.
    result = run_of_case(name, drawn.study).result
    (weight,) = result.drawn.weights
    assert weight.name == "public.csv"
    assert 0 <= weight.weight <= 1
    assert "drawn to earlier models" in load("lasso").table(drawn, result)
    assert fitted(drawn, result).drawn_ == result.drawn
    other = {"logistic": "squared"}.get(study.parameters.get("loss"), "logistic")
    with pytest.raises(StudyError, match="another loss"):
        with_cited("lasso", asked | {"prior": "run:.", "prior_rows": "others", "loss": other}, study.parties, tmp_path)
    with pytest.raises(StudyError, match="name the response first"):
        with_cited("lasso", asked | {"response": "z"}, study.parties, tmp_path)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_one_analysis_of_a_run_is_cited_by_name(tmp_path: Path) -> None:
    parties(tmp_path, *FEATURES, STAY)
    listed = "".join(
        f'[[analysis]]\nname = "{name}"\nmodel = "bayes"\n[analysis.parameters]\nresponse = "stay"\n'
        for name in ("one", "two")
    )
    whole = text("bayes", "", "run = 1").replace('model = "bayes"\n', "").replace("[parameters]\n", listed)
    (tmp_path / "study.toml").write_text(whole)
    run(tmp_path, "study.toml")
    line = 'response = "stay"\nprior = "run:study.run"'
    with pytest.raises(StudyError, match="name one with prior_analysis"):
        cited(tmp_path, "bayes", line)
    found = cited(tmp_path, "bayes", f'{line}\nprior_analysis = "two"')
    assert set(found.parameters["prior"][0]["coefficients"]) == NAMES
    # An analysis of several cites as a study of one does.
    (tmp_path / "later.toml").write_text(
        whole.replace("run = 1", "run = 2").replace(
            'response = "stay"\n', 'response = "stay"\nprior = "run:study.run"\nprior_analysis = "one"\n', 1
        )
    )
    study = read_study(tmp_path / "later.toml")
    assert [len(one.get("parameters", {}).get("prior", ())) for one in study.parameters["analyses"]] == [1, 0]
    assert compile_study(study).statement.holds


@pytest.mark.parametrize(("model", "parameters"), [("describe", ""), ("stacking", 'split = "samples"')])
def test_models_without_earlier_ones_refuse_them(tmp_path: Path, model: str, parameters: str) -> None:
    parties(tmp_path, *FEATURES, STAY)
    for given in ('"rows:other.csv"', '["run:study.run"]'):
        with pytest.raises(StudyError, match="prior"):
            cited(tmp_path, model, f"{parameters}\nprior = {given}")


# --- public rows -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        card = Card(name, 500, (*FEATURES, STAY, ILL, FALLS, GRADE), key=sha256(name.encode()).hexdigest())
        (tmp_path / name / f"{name}.card.toml").write_text(write_card(card))
    return tmp_path


def only(folder: Path, response: Column) -> None:
    """Cards with this response alone."""
    for name in ("north", "south"):
        card = Card(name, 500, (*FEATURES, response), key=sha256(name.encode()).hexdigest())
        (folder / name / f"{name}.card.toml").write_text(write_card(card))


BY_FAMILY = {
    "linear": ("bayes", "stay", STAY),
    "logistic": ("glm", "ill", ILL),
    "poisson": ("glm", "falls", FALLS),
    "multinomial": ("glm", "grade", GRADE),
}


@pytest.mark.parametrize("family", BY_FAMILY)
def test_public_rows_are_fitted_as_in_python(cards: Path, family: str) -> None:
    model, name, response = BY_FAMILY[family]
    only(cards, response)
    public = rows(300)
    public.write_csv(cards / "public.csv")
    public.with_columns(pl.lit(1).alias("more")).write_parquet(cards / "public.parquet")
    parameters = f'response = "{name}"' + (f'\nfamily = "{family}"' if model == "glm" else "")
    found = [cited(cards, model, f'{parameters}\nprior = "rows:{file}"') for file in ("public.csv", "public.parquet")]
    (earlier,) = found[0].parameters["prior"]
    assert found[0].parameters["prior"][0]["coefficients"] == found[1].parameters["prior"][0]["coefficients"]
    assert found[0].origins == ()
    bounds = {"age": (0, 100), "ward": ["a", "b"], "dose": (0, 10)}
    X, y = pd.DataFrame(public.select("age", "ward", "dose").to_dict(as_series=False)), public[name].to_numpy()
    if model == "bayes":
        made = PrivateLinearRegression(bounds=bounds, y_bounds=(-15, 15), prior=(X, y))
    else:
        ranges = {"y_bounds": (0, 40)} if response.categories is None else {"classes": response.categories}
        made = PrivateGLM(family, bounds=bounds, prior=(X, y), **ranges)
    (theirs,) = made.set_params(delta=1e-6)._study({"all": 500}, made._declared(["age", "ward", "dose"])).parameters["prior"]
    assert earlier["name"] == "public.csv"
    assert earlier["coefficients"] == pytest.approx(theirs["coefficients"], rel=1e-5, abs=1e-12)
    assert earlier["intercept"] == pytest.approx(theirs["intercept"], rel=1e-5)
    assert all(float(f"{value:.6g}") == value for value in earlier["coefficients"].values())
    assert compile_study(found[0]).statement.holds


def test_the_three_forms_stand_in_one_list_and_in_tables(cards: Path) -> None:
    only(cards, STAY)
    rows(300).write_csv(cards / "public.csv")
    (cards / "old").mkdir()
    rows(300).write_csv(cards / "old/public.csv")
    told = '{name = "told", intercept = 1.0, coefficients = {age = 0.1}}'
    study = cited(cards, "bayes", f'response = "stay"\nprior = ["rows:public.csv", {told}, "rows:old/public.csv"]')
    assert [one["name"] for one in study.parameters["prior"]] == ["public.csv", "told", "old/public.csv"]
    assert compile_study(study).statement.holds
    plain = cited(cards, "bayes", f'response = "stay"\n{TABLE}')
    assert plain.parameters["prior"] == [{"name": "told", "intercept": 1.0, "coefficients": {"age": 0.1, "ward = b": -1.0}}]
    assert compile_study(plain).statement.holds
    with pytest.raises(UsageError, match="slope"):
        compile_study(cited(cards, "bayes", f'response = "stay"\n{TABLE.replace("intercept", "slope")}'))
    with pytest.raises(StudyError, match="without a formula"):
        cited(cards, "bayes", 'response = "stay"\nformula = "age"\nprior = "rows:public.csv"')


def test_public_rows_go_with_columns_at_several_parties(tmp_path: Path) -> None:
    held = {"a": (FEATURES[0],), "b": (FEATURES[1],), "c": (STAY,)}
    listed = ""
    for k, (name, columns) in enumerate(held.items()):
        (tmp_path / f"{name}.toml").write_text(write_card(Card(name, 400, columns, key=f"{k:064x}", joint="allowed")))
        listed += f'\n[[party]]\ncard = "{name}.toml"\n'
    rows(300).write_csv(tmp_path / "public.csv")
    parameters = 'response = "stay"\nsplit = "columns"\nmethod = "moments"\nprior = "rows:public.csv"'
    (tmp_path / "study.toml").write_text(text("bayes", parameters).split("\n[[party]]")[0] + listed)
    study = read_study(tmp_path / "study.toml")
    assert set(study.parameters["prior"][0]["coefficients"]) == NAMES - {"dose"}
    assert compile_study(study).statement.holds


CANARY = 77.125
WRONG_ROWS = {
    "no file": (lambda _: None, "there is no file"),
    "empty": (lambda _: "", "cannot be read"),
    "header": (lambda f: f.head(0), "at least 1 is needed"),
    "one row": (lambda f: f.head(1), "at least 2 are needed"),
    "no response": (lambda f: f.drop("stay", "ill"), "has no column '(stay|ill)'"),
    "no feature": (lambda f: f.drop("ward"), "has no column 'ward'"),
    "response missing": (lambda f: f.with_columns(stay=pl.lit(None), ill=pl.lit(None)), "all values of '(stay|ill)'"),
    "feature missing": (lambda f: f.with_columns(dose=pl.lit(None)), "all values of 'dose'"),
    "some missing": (
        lambda f: f.with_columns(age=pl.when(pl.int_range(pl.len()) < 3).then(None).otherwise("age")),
        "lacks values of 'age'",
    ),
    "one level": (lambda f: f.with_columns(stay=pl.lit(CANARY), ill=pl.lit("no")), "holds one value of"),
    "words": (lambda f: f.with_columns(age=pl.lit(f"canary{CANARY}")), "that is no number"),
    "unknown ward": (lambda f: f.with_columns(ward=pl.lit(f"canary{CANARY}")), "ward"),
    "unknown response": (
        lambda f: f.with_columns(stay=pl.lit(f"canary{CANARY}"), ill=pl.lit(f"canary{CANARY}")),
        "no number|outside its declared categories",
    ),
    "ragged": (lambda _: f"age,ward\n1,a,{CANARY}\n2", "cannot be read|has no column"),
    "few of a class": (
        lambda f: f.with_columns(
            stay=pl.lit(f"canary{CANARY}"),
            ill=pl.when(pl.int_range(pl.len()) < 2).then(pl.lit("yes")).otherwise(pl.lit("no")),
        ),
        "no number|5 rows or more",
    ),
}


@pytest.mark.parametrize("family", ["linear", "logistic"])
@pytest.mark.parametrize("wrong", WRONG_ROWS)
def test_public_rows_that_cannot_be_fitted_are_refused_without_a_value(cards: Path, wrong: str, family: str) -> None:
    model, name, response = BY_FAMILY[family]
    only(cards, response)
    change, words = WRONG_ROWS[wrong]
    changed = change(rows(100))
    if isinstance(changed, str):
        (cards / "public.csv").write_text(changed)
    elif changed is not None:
        changed.write_csv(cards / "public.csv")
    with pytest.raises(StudyError, match=words) as caught:
        cited(cards, model, f'response = "{name}"\nprior = "rows:public.csv"')
    assert str(CANARY) not in str(caught.value)
    assert str(caught.value).startswith("prior")


def test_a_response_that_the_family_cannot_have_is_refused(cards: Path) -> None:
    rows(100).with_columns(falls=pl.lit(-1.0) * pl.int_range(pl.len())).write_csv(cards / "public.csv")
    only(cards, FALLS)
    with pytest.raises(StudyError, match="a response that the family 'poisson' cannot have"):
        cited(cards, "glm", 'response = "falls"\nfamily = "poisson"\nprior = "rows:public.csv"')
    with pytest.raises(StudyError, match="has two categories"):
        cited(cards, "glm", 'response = "falls"\nprior = "rows:public.csv"')
    with pytest.raises(StudyError, match="a response that has categories"):
        cited(cards, "glm", 'response = "falls"\nfamily = "multinomial"\nprior = "rows:public.csv"')
    for more, words in (
        ('"poisson"\nexposure = "dose"', "without exposure and offset"),
        ('"survival"\nevent = "dose"', "without times"),
    ):
        with pytest.raises(StudyError, match=words):
            cited(cards, "glm", f'response = "falls"\nfamily = {more}\nprior = "rows:public.csv"')


def test_public_rows_of_several_classes_have_each_of_them(cards: Path) -> None:
    only(cards, GRADE)
    asked = 'response = "grade"\nfamily = "multinomial"\nprior = "rows:public.csv"'
    rows(200).filter(pl.col("grade") != "mid").write_csv(cards / "public.csv")
    with pytest.raises(StudyError, match="needs 5 rows or more of each category of 'grade'"):
        cited(cards, "glm", asked)


# --- stacks: the words of the version before -------------------------------------------------------------------------------------

TWO = {"bounds": (-1, 1), "classes": (0, 1)}
WEIGHTS = {"group0": [0.1] * 3, "group1": [0.1] * 3}


def stack(**more: object) -> Study:
    return PrivateStackingClassifier(2, **TWO, **more).plan(300, 4).study


def test_the_former_words_of_stacks_work_and_warn() -> None:
    with pytest.warns(FutureWarning, match="`source` is `prior` now"):
        former = stack(source=WEIGHTS)
    assert former == stack(prior=WEIGHTS)
    for rates in (0.3, (0.7, 0.3), np.array([0.7, 0.3])):
        with pytest.warns(FutureWarning, match="`prior` is `rates` now"):
            former = stack(prior=rates)
        assert parameters_of(former) == parameters_of(stack(rates=np.asarray(rates).tolist()))
    with pytest.warns(FutureWarning, match="`source` is `prior` now"):
        former = PrivateLogisticRegression(source=[0.1] * 5, **TWO).plan(300, 4).study
    now = [PrivateLogisticRegression(prior=given, **TWO).plan(300, 4).study for given in ([0.1] * 5, {"all": [0.1] * 5})]
    assert former == now[0] == now[1]
    assert parameters_of(former).prior == {"all": (0.1,) * 5}


def test_stacks_without_a_prior_keep_their_hashes() -> None:
    """The former names are part of what a study without either says."""
    assert {name: stack().parameters[name] for name in ("source", "prior")} == {"source": {}, "prior": None}
    assert "rates" not in stack().parameters
    alone = PrivateLogisticRegression(**TWO).plan(300, 4).study.parameters
    assert alone["source"] == {}
    assert "prior" not in alone
    assert parameters_of(stack()).prior == {}
    assert parameters_of(stack()).rates is None


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"prior": WEIGHTS, "source": WEIGHTS}, "source was the name of prior"),
        ({"prior": 0.3, "rates": 0.3}, "which is what rates is for"),
        ({"prior": {"group0": 3}}, "prior must be released weights"),
    ],
)
def test_one_thing_has_one_name(given: dict, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        stack(**given)
    with pytest.raises(UsageError, match=match if "source" in given or "rates" in given else "prior"):
        parameters_of(msgspec.structs.replace(stack(), parameters=given))


def test_the_words_of_a_study_file_are_read_as_they_are_meant() -> None:
    assert in_new_words({"source": {}, "prior": None}) == {}
    assert in_new_words({"prior": 0.5}) == {"rates": 0.5}
    assert in_new_words({"prior": [0.2, 0.8], "source": {"a": [1.0]}}) == {"rates": [0.2, 0.8], "prior": {"a": [1.0]}}
    assert in_new_words({"prior": {"a": [1.0]}, "rates": 0.5}) == {"prior": {"a": [1.0]}, "rates": 0.5}


def test_a_study_file_of_a_stack_with_former_words_warns(tmp_path: Path) -> None:
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.card.toml").write_text(
            write_card(Card(name, 500, FEATURES, ("y",), key=sha256(name.encode()).hexdigest()))
        )
    base = 'split = "samples"'
    weights = "{north = [0.1, 0.1, 0.1, 0.1, 0.1]}"
    with pytest.warns(FutureWarning, match=r"\[parameters\] source is prior now"):
        former = compile_study(cited(tmp_path, "stacking", f"{base}\nsource = {weights}"))
    now = compile_study(cited(tmp_path, "stacking", f"{base}\nprior = {weights}"))
    assert former.design.parameters == now.design.parameters
    assert former.statement.epsilon_per_unit == now.statement.epsilon_per_unit
    with pytest.warns(FutureWarning, match=r"\[parameters\] prior is rates now"):
        former = compile_study(cited(tmp_path, "stacking", f"{base}\nprior = 0.3"))
    assert former.design.parameters == compile_study(cited(tmp_path, "stacking", f"{base}\nrates = 0.3")).design.parameters
    with pytest.warns(FutureWarning) as caught, pytest.raises(StudyError, match="holds no record"):
        cited(tmp_path, "stacking", f'{base}\nsource = "run:nowhere"\nsource_rows = "others"')
    assert [str(one.message).split(" now")[0] for one in caught] == [
        "[parameters] source is prior",
        "[parameters] source_rows is prior_rows",
    ]


@pytest.mark.slow_for("bayes, columns-more2")
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("bayes, prior", {"method": "moments"}),
        ("bayes, prior", {"method": "refinement"}),
        ("bayes, columns", {"prior": [{"name": "known", "coefficients": {"age": 0.5}, "intercept": 100.0}]}),
    ],
)
def test_an_estimator_of_a_run_is_drawn_as_the_run_was(name: str, more: dict[str, object]) -> None:
    """It had been made of the moments alone: `unpooled contrast` and `unpooled predict` left the earlier models out."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
    from cases import CASES

    study = CASES[name]().study
    study = msgspec.structs.replace(study, epsilon=500.0, parameters=study.parameters | more)
    result = run_of_case(name, study).result
    plan = load("bayes").compile(study)
    model = fitted(plan, result)
    assert model.drawn_ == result.drawn
    released = {c.name: c.value for c in result.coefficients}
    assert model.coef_.tolist() == pytest.approx(list(released.values()))
    assert model.intercept_ == pytest.approx(result.intercept)
    lines = [term.line for term in model.summary().terms]
    assert lines == list(load("bayes").reading.terms(plan, result))
    assert lines or "columns" in name  # twelve rows of six columns determine none
    assert all(line.p_value is None and line.privacy is None for line in lines)
    with pytest.raises(UsageError, match="leave prior out"):
        model.anova()
    if (
        lines
    ):  # the foot names every line of the table, categories among them, and how far it moved from that of the rows alone
        tables, alone = model._tables(), model.moments_.tables().summary()
        own = {line.term: line.estimate for line in alone.terms}
        moved = {pull.term: (pull.value, pull.alone) for pull in tables.pulled(tables.printed()).terms}
        assert any(": " in term for term in moved)
        for line in lines:
            assert moved[line.term][0] == pytest.approx(line.estimate)
            if moved[line.term][1] is not None and line.term in own:
                assert f"{line.term} {moved[line.term][0] - moved[line.term][1]:+.3g}" in str(model.summary())
        model.summary().figure()
        older = msgspec.structs.replace(tables.drawn, alone=(), slopes=())  # as earlier builds wrote it
        kept = dataclasses.replace(tables, drawn=older)
        assert kept.pulled(kept.printed()) == older
        seen = any(pull.alone is not None for pull in older.terms)
        assert str(kept.summary()).count("how far they drew each term") == seen
