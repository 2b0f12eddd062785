"""New rows in a file, predicted by the model that a run released."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import command
from scipy.special import expit

from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target
from unpooled.study.party import create_party
from unpooled.study.run import compile_study

RNG = np.random.default_rng(5)


def study(folder: Path, model: str, parameters: str, labels: tuple[str, ...] = (), asked: str = "") -> Path:
    """Two hospitals with the same columns, and a study of theirs that has run."""
    declared = (
        Column("age", 0.0, 100.0),
        Column("sex", categories=("f", "m")),
        Column("dose", 0.0, 10.0, missing="absent"),
    )
    cards = ""
    for name in ("north", "south"):
        (folder / name).mkdir()
        frame = new_rows(400)
        y = 0.1 * frame["age"] + (frame["sex"] == "f") - frame["dose"]
        frame = frame.with_columns(y=y if not labels else pl.Series(np.where(y > y.median(), "ill", "well")))
        frame.write_csv(folder / name / "data.csv")
        columns = declared if labels else (*declared, Column("y", -15.0, 15.0))
        create_party(folder / name, name, folder / name / "data.csv", columns, Target(20.0, 1e-5), None, labels)
        if asked:
            party = folder / name / "party.toml"
            party.write_text(party.read_text().replace("allow_simulation = false", "allow_simulation = true"))
        cards += f'\n[[party]]\ncard = "{name}/{name}.card.toml"\n'
    text = f'[study]\nmodel = "{model}"\n{asked}\n[parameters]\n{parameters}\n\n[privacy]\nepsilon = 10.0\ndelta = 1e-6\n{cards}'
    (folder / "study.toml").write_text(text)
    for name in ("north", "south"):
        command(folder, "party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    command(folder, "run", "study.toml", "--party", "north/party.toml", "--party", "south/party.toml")
    return folder


def new_rows(n: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"dose": RNG.uniform(0, 10, n), "sex": RNG.choice(["f", "m"], n).tolist(), "age": RNG.uniform(20, 80, n)}
    )


def predicted(folder: Path, *words: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(command(folder, "predict", "study.run", "--data", "new.csv", *words))))


@pytest.mark.long
@pytest.mark.slow
def test_a_regression_predicts_rows_by_name_with_their_standard_deviations(tmp_path: Path) -> None:
    folder = study(tmp_path, "bayes", 'response = "y"\nmethod = "moments"')
    fresh = new_rows(50).with_columns(patient=pl.int_range(50).cast(pl.String))  # another order of columns, and one more
    fresh.write_csv(folder / "new.csv")
    coefficients = {
        c["name"]: c["value"] for c in json.loads((folder / "study.run/result.json").read_text())["result"]["coefficients"]
    }
    intercept = json.loads((folder / "study.run/result.json").read_text())["result"]["intercept"]
    sex = np.where(fresh["sex"] == "f", coefficients["sex = f"], coefficients["sex = m"])
    expected = (
        intercept + coefficients["age"] * fresh["age"].to_numpy() + coefficients["dose"] * fresh["dose"].to_numpy() + sex
    )
    rows = predicted(folder, "--id", "patient")
    assert [float(row["prediction"]) for row in rows] == pytest.approx(expected)
    assert [row["patient"] for row in rows] == fresh["patient"].to_list()
    assert all(float(row["std"]) > 0 for row in rows)
    as_data = json.loads(command(folder, "predict", "study.run", "--data", "new.csv", "--json"))
    assert [row["prediction"] for row in as_data["predictions"]] == pytest.approx(expected)
    assert as_data["holds"]
    assert "written" in command(folder, "predict", "study.run", "--data", "new.csv", "--csv", "out.csv")
    assert pl.read_csv(folder / "out.csv")["prediction"].to_list() == pytest.approx(expected)
    assert "exists already" in command(folder, "predict", "study.run", "--data", "new.csv", "--csv", "out.csv", code=2)
    # The record of a networked run predicts the same.
    (folder / "study.run/transcript").unlink()
    assert predicted(folder, "--id", "patient") == rows
    # A missing value is the middle of its range where the study allows it, also if all of them are missing.
    fresh.with_columns(dose=pl.lit(None, dtype=pl.Float64)).write_csv(folder / "new.csv")
    shifted = expected + coefficients["dose"] * (5 - fresh["dose"].to_numpy())
    assert [float(row["prediction"]) for row in predicted(folder)] == pytest.approx(shifted)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_what_does_not_fit_is_refused_without_a_value(tmp_path: Path) -> None:
    folder = study(tmp_path, "bayes", 'response = "y"\nmethod = "gradient"')
    good = new_rows(5)
    good.write_csv(folder / "new.csv")
    assert set(predicted(folder)[0]) == {"prediction"}
    bad = {
        "has no column": good.drop("age"),
        "missing": good.with_columns(age=pl.Series([None, 20.0, 30.0, 40.0, 50.0])),
        "outside its declared categories": good.with_columns(sex=pl.Series(["canary77"] * 5)),
        "holds text": good.with_columns(age=pl.Series(["canary77"] * 5)),
    }
    for words, frame in bad.items():
        frame.write_csv(folder / "new.csv")
        said = command(folder, "predict", "study.run", "--data", "new.csv", code=2)
        assert "Traceback" not in said
        assert "canary77" not in said
        assert words in said.lower() or "nan" in said.lower(), said
    (folder / "new.csv").write_bytes(b"age,sex\n1,2,3\n\xff")
    command(folder, "predict", "study.run", "--data", "new.csv", code=2)
    command(folder, "predict", "study.run", "--data", "nothing.csv", code=2)
    (folder / "new.npz").write_bytes(b"")
    assert "CSV, Parquet" in command(folder, "predict", "study.run", "--data", "new.npz", code=2)


@pytest.mark.slow
@pytest.mark.parametrize("meta", ["", "high-level"])
def test_a_stack_predicts_classes_and_their_probabilities(tmp_path: Path, meta: str) -> None:
    parameters = 'response = "y"\nclasses = ["well", "ill"]\nsplit = "samples"'
    folder = study(tmp_path, "stacking", parameters + ('\nholder = "south"' if meta else ""), ("y",))
    fresh = new_rows(30)
    fresh.write_csv(folder / "new.csv")
    rows = predicted(folder)
    probability = np.array([float(row["probability"]) for row in rows])
    assert [row["prediction"] for row in rows] == ["ill" if p > 0.5 else "well" for p in probability]
    result = json.loads((folder / "study.run/result.json").read_text())["result"]
    assert bool(result["high"]) == bool(meta)
    if meta:
        return
    mean = np.zeros(30)
    for model in result["models"]:
        values = dict(zip(model["names"], model["coefficients"], strict=True))
        sex = np.where(fresh["sex"] == "f", values["sex = f"], values["sex = m"])
        decision = (
            model["intercept"] + values["age"] * fresh["age"].to_numpy() + values["dose"] * fresh["dose"].to_numpy() + sex
        )
        mean += model["share"] * expit(decision)
    assert probability == pytest.approx(mean / sum(model["share"] for model in result["models"]))


@pytest.mark.guarantee
def test_a_study_starts_from_the_models_of_an_earlier_run(tmp_path: Path) -> None:
    from unpooled.errors import StudyError
    from unpooled.study.files import read_study

    parameters = 'response = "y"\nclasses = ["well", "ill"]\nsplit = "samples"'
    folder = study(tmp_path, "stacking", parameters, ("y",))
    text = (folder / "study.toml").read_text().replace("[study]", "[study]\nrun = 2")
    later = folder / "later.toml"
    later.write_text(text.replace(parameters, f'{parameters}\nprior = "run:study.run"'))
    released = json.loads((folder / "study.run/result.json").read_text())["result"]["models"]
    assert read_study(later).parameters["prior"] == {model["party"]: model["weights"] for model in released}
    for name in ("north", "south"):
        command(folder, "party", "check", "later.toml", "--config", f"{name}/party.toml", "--approve")
    command(folder, "run", "later.toml", "--party", "north/party.toml", "--party", "south/party.toml")
    wrong = {
        'prior = "run:nowhere"': "holds no record",
        'prior = "study.run"': "of an earlier run",
        'prior = "run:study.run"\nrows = "unit"': "another rows",
    }
    for line, words in wrong.items():
        later.write_text(text.replace(parameters, f"{parameters}\n{line}"))
        with pytest.raises(StudyError, match=words):
            read_study(later)
    # The run's price joins the statement; where its people are others, it does not.
    later.write_text(text.replace(parameters, f'{parameters}\nprior = "run:study.run"'))
    joined = compile_study(read_study(later)).statement
    later.write_text(text.replace(parameters, f'{parameters}\nprior = "run:study.run"\nprior_rows = "others"'))
    apart = compile_study(read_study(later)).statement
    assert joined.epsilon_per_unit["record"] == pytest.approx(2 * apart.epsilon_per_unit["record"])
    assert any("supplied the prior" in words for words in joined.assumptions)
    assert any("Other people's data supplied the prior" in words for words in apart.assumptions)
    for line in ('prior_rows = "others"\nprior = {}', 'prior = "run:study.run"\nprior_rows = "all"'):
        later.write_text(text.replace(parameters, f"{parameters}\n{line}"))
        with pytest.raises(StudyError, match="prior_rows is"):
            read_study(later)
    later.write_text(text.replace(parameters, f'{parameters}\nprior = "run:study.run"'))
    card = folder / "north/north.card.toml"
    card.write_text(card.read_text().replace("high = 100.0", "high = 90.0"))
    with pytest.raises(StudyError, match="the same declared columns"):
        read_study(later)


def test_a_run_that_protects_nobody_is_no_source_for_its_own_people(tmp_path: Path) -> None:
    from unpooled.errors import StudyError
    from unpooled.study.files import read_study

    parameters = 'response = "y"\nclasses = ["well", "ill"]\nsplit = "samples"'
    folder = study(tmp_path, "stacking", parameters, ("y",), asked="simulation_seed = 1")
    text = (folder / "study.toml").read_text().replace("simulation_seed = 1", "run = 2")
    later = folder / "later.toml"
    later.write_text(text.replace(parameters, f'{parameters}\nprior = "run:study.run"'))
    with pytest.raises(StudyError, match="no guarantee holds for"):
        read_study(later)
    later.write_text(text.replace(parameters, f'{parameters}\nprior = "run:study.run"\nprior_rows = "others"'))
    assert compile_study(read_study(later)).statement.holds


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_only_a_stack_can_be_started_from(tmp_path: Path) -> None:
    from unpooled.errors import StudyError
    from unpooled.study.files import read_study

    folder = study(tmp_path, "bayes", 'response = "y"\nmethod = "gradient"')
    text = (folder / "study.toml").read_text().replace('"bayes"', '"stacking"')
    (folder / "later.toml").write_text(text.replace('method = "gradient"', 'prior = "run:study.run"'))
    with pytest.raises(StudyError, match="a run of stacking"):
        read_study(folder / "later.toml")


@pytest.mark.guarantee
def test_a_study_says_how_its_models_are_put_together(tmp_path: Path) -> None:
    from unpooled.errors import UsageError
    from unpooled.models.stacking.declared import combiner_of, rates_of

    parameters = 'response = "y"\nclasses = ["well", "ill"]\nsplit = "samples"\ncombiner = "log-odds"'
    folder = study(tmp_path, "stacking", parameters, ("y",))
    new_rows(30).write_csv(folder / "new.csv")
    added = [float(row["probability"]) for row in predicted(folder)]
    result = json.loads((folder / "study.run/result.json").read_text())["result"]
    fresh = pl.read_csv(folder / "new.csv")
    total = np.zeros(30)
    for model in result["models"]:
        values = dict(zip(model["names"], model["coefficients"], strict=True))
        sex = np.where(fresh["sex"] == "f", values["sex = f"], values["sex = m"])
        total += (
            model["intercept"] + values["age"] * fresh["age"].to_numpy() + values["dose"] * fresh["dose"].to_numpy() + sex
        )
    assert added == pytest.approx(expit(total / 2))  # the mean of the log odds, not of the probabilities
    with pytest.raises(UsageError, match="combiner is auto or one of"):
        combiner_of("loudest", "features")
    with pytest.raises(UsageError, match="rates lie between"):
        rates_of(1.0, 2)
