"""``unpooled serve``: estimators by their names, plans before data, and budgets that several calls share, as another program asks for them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from serving import answers, ask, error, factor, line, numbers, ok, texts

import unpooled
from unpooled.cli import calls
from unpooled.models.pls.estimator import PrivatePLSRegression

SEXES = ("f", "m")
KNOWN = {"age": [0, 128], "sex": list(SEXES), "dose": [0, 16]}
PARTIES = {"clinic": ["age", "sex"], "lab": ["dose"]}
ROWS = 800


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    age, sex, dose = rng.uniform(20, 90, ROWS), rng.integers(0, 2, ROWS), rng.uniform(0, 10, ROWS)
    middle = 0.05 * age + 0.3 * dose + sex
    return {
        "age": age,
        "sex": sex,
        "dose": dose,
        "y": (middle + rng.normal(size=ROWS)).clip(-5, 15),
        "ill": (rng.random(ROWS) < 1 / (1 + np.exp(5 - middle))).astype(float),
        "grade": np.digitize(middle, [3.0, 5.0]),
        "time": rng.exponential(5.0, ROWS).clip(0.01, 9),
        "event": (rng.random(ROWS) < 0.7).astype(float),
    }


@pytest.fixture(scope="module")
def data(rows: dict[str, Any]) -> dict[str, Any]:
    return {"age": numbers(rows["age"]), "sex": factor(rows["sex"], SEXES), "dose": numbers(rows["dose"])}


@pytest.fixture(scope="module")
def frame(rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame({"age": rows["age"], "sex": [SEXES[k] for k in rows["sex"]], "dose": rows["dose"]})


GRADES = ("low", "mid", "high")
#: For each estimator its response, and the arguments that a caller hands over, with those of Python where they differ.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "PrideRegressor": ("y", {"parties": PARTIES}),
    "PrideClassifier": ("ill", {"parties": PARTIES, "classes": [0, 1]}),
    "PrideGLM": ("grade", {"parties": PARTIES, "family": "ordinal", "classes": list(GRADES)}),
    "PrivateStackingClassifier": ("grade", {"parties": PARTIES, "classes": list(GRADES)}),
    "PrivateLogisticRegression": ("ill", {"classes": [0, 1], "method": "perturbation"}),
    "PrivateLasso": ("y", {"parties": PARTIES, "y_bounds": [-5, 15]}),
    "PrivateLassoClassifier": ("ill", {"parties": PARTIES, "classes": [0, 1]}),
}


def response(rows: dict[str, Any], name: str) -> tuple[Any, Any]:
    """A response as it goes over the pipe, and as Python takes it."""
    if name == "grade":
        words = [GRADES[k] for k in rows[name]]
        return texts(words), np.array(words, dtype=object)
    return numbers(rows[name]), rows[name]


def estimate(data: Any, estimator: str, told: dict[str, Any], arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    given = {"epsilon": 5, "random_state": 1, "bounds": KNOWN} | arguments
    return {"call": "estimate", "estimator": estimator, "data": data, "response": told, "arguments": given, **more}


@pytest.mark.slow_for("PrideGLM")
@pytest.mark.parametrize("name", CASES)
def test_an_estimator_is_that_of_python(name: str, rows: dict[str, Any], data: dict[str, Any], frame: pl.DataFrame) -> None:
    of, arguments = CASES[name]
    sent, own = response(rows, of)
    told = ok(estimate(data, name, {of: sent}, arguments))
    given = {key: tuple(value) if key == "y_bounds" else value for key, value in arguments.items()}
    model = getattr(unpooled, name)(epsilon=5, random_state=1, bounds=KNOWN, **given).fit(frame, own)
    assert (told["plan"], told["nobs"], told["columns"]) == (model.plan_.hash, ROWS, ["age", "sex", "dose"])
    lines = {(one["group"], one["term"]): one["estimate"] for one in told["terms"]}
    if hasattr(model, "models_"):
        for one in model.models_:
            assert [lines[one.name, term] for term in one.names] == list(one.coefficients)
            assert lines[one.name, "(intercept)"] == one.intercept
        assert told["details"]["share"] == {"clinic": 0.5, "lab": 0.5}
    else:
        slopes = [lines["", term] for term in ("age", "sex = f", "sex = m", "dose")]
        assert slopes == np.ravel(model.coef_).tolist()
        constants = [value for (_, term), value in lines.items() if term.startswith("(intercept)")]
        assert constants == np.ravel(model.intercept_).tolist()
    assert "vcov" not in told
    meant = {"of": "saved", "saved": told["saved"]}
    new = ok({"call": "predict", "model": meant, "data": data})["predictions"]
    assert new["prediction"] == model.predict(frame).tolist()
    if of == "grade":
        found = [new[f"probability: {label}"] for label in model.classes_.tolist()]
        assert np.transpose(found) == pytest.approx(model.predict_proba(frame))
    elif of == "ill":
        assert new["probability"] == model.predict_proba(frame)[:, 1].tolist()
        assert new["link"] == pytest.approx(model.decision_function(frame))
    found = error({"call": "summary", "model": meant})
    assert "no table of standard errors" in found["message"] or "no standard errors" in found["message"]


def test_rounds_over_rows_have_a_table_whatever_they_are_a_function_of(rows: dict[str, Any], data: dict[str, Any]) -> None:
    arguments = {"epsilon": "inf", "delta": 1e-6, "method": "rounds", "classes": [0, 1], "random_state": None}
    asked = estimate(data, "PrivateLogisticRegression", {"ill": numbers(rows["ill"])}, arguments, formula="age * sex")
    told = ok({**asked, "rows": {"sites": texts(["north", "coast"] * (ROWS // 2))}, "references": {"sex": "m"}})
    assert [one["term"] for one in told["terms"]][:2] == ["age", "sex: f - m"]
    assert len(told["vcov"]) == 4
    assert told["method"] == "rounds"
    refused = error(estimate(data, "PrivateLasso", {"y": numbers(rows["y"])}, {"y_bounds": [-5, 15]}, formula="age * sex"))
    assert "as they are" in refused["message"]


@pytest.mark.slow
def test_hazards_at_times_that_are_asked_for(rows: dict[str, Any], data: dict[str, Any], frame: pl.DataFrame) -> None:
    asked = estimate(data, "PrideGLM", {"time": numbers(rows["time"])}, {"family": "cox", "parties": PARTIES})
    told = ok({**asked, "rows": {"event": numbers(rows["event"])}})
    model = unpooled.PrideGLM("cox", epsilon=5, random_state=1, bounds=KNOWN, parties=PARTIES)
    model.fit(frame, rows["time"], rows["event"])
    meant = {"of": "saved", "saved": told["saved"]}
    new = ok({"call": "predict", "model": meant, "data": data, "times": [1, 2.5]})["predictions"]
    assert np.transpose([new["survival to 1"], new["survival to 2.5"]]) == pytest.approx(
        model.predict_survival(frame, [1, 2.5])
    )
    lasso = ok(estimate(data, "PrivateLasso", {"y": numbers(rows["y"])}, {"y_bounds": [-5, 15], "parties": PARTIES}))
    for more, said in (({"times": [1]}, "times to an event"), ({"scores": True}, "components")):
        found = error({"call": "predict", "model": {"of": "saved", "saved": lasso["saved"]}, "data": data, **more})
        assert (found["kind"], said in found["message"]) == ("usage", True)


def test_components_of_several_responses(rows: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(ROWS, 2))
    spectra = hidden @ np.array([np.sin(np.arange(8)), np.cos(np.arange(8))]) + rng.normal(0, 0.05, (ROWS, 8))
    columns = {f"nm{k}": numbers(spectra[:, k]) for k in range(8)}
    both = hidden.clip(-4, 4)
    told_as = {"fat": numbers(both[:, 0]), "water": numbers(both[:, 1])}
    arguments = {"bounds": None, "norm": 9.0, "y_bounds": [[-4, 4], [-4, 4]], "n_components": 2, "basis": "none"}
    told = ok(estimate(columns, "PrivatePLSRegression", told_as, arguments))
    model = PrivatePLSRegression(
        2, epsilon=5, random_state=1, bounds=unpooled.Bounds(norm=9.0), y_bounds=[(-4, 4), (-4, 4)], basis="none"
    ).fit(pl.DataFrame({name: spectra[:, k] for k, name in enumerate(columns)}), both)
    assert {one["group"] for one in told["terms"]} == {"fat", "water"}
    slopes = [
        [one["estimate"] for one in told["terms"] if one["group"] == name and one["term"] != "(intercept)"]
        for name in told_as
    ]
    assert slopes == model.coef_.tolist()
    assert told["matrices"]["x_rotations"] == model.x_rotations_.tolist()
    assert told["details"]["components"] == {"all": 2.0}
    meant = {"of": "saved", "saved": told["saved"]}
    scores = ok({"call": "predict", "model": meant, "data": columns, "scores": True})["predictions"]
    assert np.transpose([scores["score 1"], scores["score 2"]]) == pytest.approx(
        model.transform(pl.DataFrame({name: spectra[:, k] for k, name in enumerate(columns)}))
    )


@pytest.mark.guarantee
def test_weights_of_an_earlier_fit_carry_their_price(rows: dict[str, Any], data: dict[str, Any]) -> None:
    asked = {"parties": PARTIES, "classes": [0, 1], "random_state": None}
    first = ok(estimate(data, "PrivateStackingClassifier", {"ill": numbers(rows["ill"])}, asked))
    prior = {"of": "saved", "saved": first["saved"]}
    second = ok(estimate(data, "PrivateStackingClassifier", {"ill": numbers(rows["ill"])}, {**asked, "prior": prior}))
    assert second["statement"]["epsilon_per_unit"]["record"] > 1.5 * first["statement"]["epsilon_per_unit"]["record"]


# --- before data ---------------------------------------------------------------------------------------------------------------


def test_a_plan_before_data_is_that_of_the_fit(rows: dict[str, Any], data: dict[str, Any]) -> None:
    arguments = {"epsilon": 5, "random_state": 1, "bounds": KNOWN, "parties": PARTIES, "y_bounds": [-5, 15]}
    shape = {"call": "plan", "estimator": "PrivateLasso", "samples": ROWS, "features": 3, "arguments": arguments}
    planned = ok(shape)
    assert planned["plan"] == ok(estimate(data, "PrivateLasso", {"y": numbers(rows["y"])}, arguments))["plan"]
    assert {one["party"] for one in planned["releases"]} == {"clinic", "lab"}
    assert "leave sites out" in error({**shape, "sites": {"a": 1, "b": 2}})["message"]
    several = ok(
        {
            "call": "plan",
            "estimator": "PrivateLinearRegression",
            "samples": 900,
            "features": 1,
            "sites": {"north": 400, "coast": 500},
            "arguments": {"bounds": {"age": [0, 128]}, "y_bounds": [-5, 15], "formula": "age"},
        }
    )
    assert {one["party"] for one in several["releases"]} == {"north", "coast"}


# --- shared budgets ------------------------------------------------------------------------------------------------------------


def describe(data: Any, epsilon: float, budget: Any) -> dict[str, Any]:
    arguments = {"bounds": {"age": [0, 128]}, "epsilon": epsilon, "delta": 1e-6}
    return {
        "call": "release",
        "function": "describe",
        "data": {"age": data["age"]},
        "arguments": arguments,
        "budget": budget,
    }


@pytest.mark.guarantee
def test_calls_share_a_budget_that_refuses_what_has_no_room(rows: dict[str, Any], data: dict[str, Any]) -> None:
    made = ok({"call": "budget", "epsilon": 2.0, "delta": 1e-6})
    assert (made["spent"], made["fits"], made["unit"]) == (0, 0, "record")
    kept = {"of": "memory", "name": made["name"]}
    ok(describe(data, 1.0, kept))
    asked = {"bounds": {"age": [0, 128]}, "y_bounds": [-5, 15], "epsilon": 0.5, "delta": 1e-6}
    columns = {"age": data["age"], "y": numbers(rows["y"])}
    fitted = ok(
        {"call": "fit", "model": "linear", "formula": "y ~ age", "data": columns, "arguments": asked, "budget": kept}
    )
    meant = {"of": "saved", "saved": fitted["saved"]}
    diagnosed = {"call": "diagnose", "model": meant, "data": columns, "response": columns["y"]}
    ok({**diagnosed, "arguments": {"epsilon": 0.3, "delta": 1e-6, "y_bounds": [-5, 15]}, "budget": kept})
    state = ok({"call": "budget", "of": kept})
    assert state["fits"] == 3
    assert 1 < state["spent"] < 1.8
    found = error(describe(data, 1.9, kept))
    assert (found["kind"], found["code"]) == ("budget", 3)
    assert ok({"call": "budget", "of": kept})["spent"] == state["spent"]
    treated = {"treatment": "sex", "outcome": "y", "covariates": "age", "epsilon": 1.9, "delta": 1e-6}
    treated["bounds"] = {"age": [0, 128], "sex": list(SEXES), "y": [-5, 15]}
    everything = {**columns, "sex": data["sex"]}
    dear = {"call": "release", "function": "effect", "data": everything, "arguments": treated, "budget": kept}
    assert error(dear)["kind"] == "budget"
    lasso = estimate(
        {"age": data["age"]},
        "PrivateLasso",
        {"y": columns["y"]},
        {**asked, "epsilon": 1.9, "parties": 1, "random_state": None},
    )
    assert error({**lasso, "budget": kept})["kind"] == "budget"


@pytest.mark.guarantee
def test_a_budget_of_another_process_is_refused_and_one_in_a_file_is_not(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ok({"call": "budget", "epsilon": 2.0, "delta": 1e-6})
    kept = {"of": "memory", "name": made["name"]}
    held = {"of": "file", "path": str(tmp_path / "people"), "epsilon": 2.0, "delta": 1e-6}
    ok(describe(data, 1.0, kept))
    ok(describe(data, 1.0, held))
    monkeypatch.setattr(calls, "_BUDGETS", {})  # as in a process that was started since
    for call in (describe(data, 0.1, kept), {"call": "budget", "of": kept}):
        found = error(call)
        assert (found["kind"], "ended with the process" in found["message"]) == ("budget", True)
    assert ok({"call": "budget", "of": held})["spent"] == pytest.approx(1.0, rel=1e-3)
    assert error(describe(data, 1.99, held))["kind"] == "budget"
    if Path("/proc/self/fd").exists():
        opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        assert not [file for file in opened if file.startswith(str(tmp_path))]


def test_what_is_no_budget_is_refused(data: dict[str, Any]) -> None:
    assert "give both" in error({"call": "budget", "epsilon": 1.0})["message"]
    assert error({"call": "budget", "epsilon": 1.0, "delta": 2.0})["kind"] == "usage"
    assert error(describe(data, 0.1, {"of": "nothing"}))["kind"] == "usage"


def test_errors_and_warnings_name_the_syntax_of_the_asker(data: dict[str, Any], rows: dict[str, Any]) -> None:
    import json

    call = {"call": "fit", "model": "linear", "formula": "y ~ age", "data": {"age": data["age"], "y": numbers(rows["y"])}}
    request = {"schema": "unpooled/serve-request/1", "id": 1, "ask": {**call, "arguments": {"y_bounds": 3}}}
    (python,), (r,) = (answers(json.dumps(request | more).encode() + b"\n") for more in ({}, {"words": "r"}))
    assert python["error"]["message"].endswith("(low, high) or None, not int")
    assert r["error"]["message"].endswith("c(low, high) or NULL, not a number")
    asked = {**call, "arguments": {"y_bounds": [-5, 15]}}
    told = ask(asked)
    (told_r,) = answers(line(asked).replace(b'"id": 1', b'"id": 1, "words": "r"'))
    assert "Bounds(low=" in told["warnings"][0]["message"]
    assert "bounds = list(age = c(0, 110)" in told_r["warnings"][0]["message"]
    assert math.isfinite(told_r["ok"]["terms"][0]["estimate"])
