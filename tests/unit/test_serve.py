"""``unpooled serve --stdio``: every call is answered on a line of its own, whatever happened in it; nothing stays open, and nothing else is printed."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import PARTIES, approve, command, two_parties
from serving import WARDS, answers, ask, error, factor, line, numbers, ok, texts

import unpooled
from unpooled.cli import calls
from unpooled.cli.calls import column_of
from unpooled.errors import BudgetRefusal, PolicyRefusal

BOUNDS = {"age": [0, 128], "ward": list(WARDS)}


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    age, ward = rng.uniform(20, 90, 600), rng.integers(0, 3, 600)
    return {"age": age, "ward": ward, "ill": (rng.random(600) < 0.2 + 0.3 * (ward == 1)).astype(float)}


@pytest.fixture(scope="module")
def data(rows: dict[str, Any]) -> dict[str, Any]:
    return {"age": numbers(rows["age"]), "ward": factor(rows["ward"]), "ill": numbers(rows["ill"])}


def fit(data: Any, **more: Any) -> dict[str, Any]:
    arguments = {"family": "logistic", "epsilon": "inf", "bounds": BOUNDS, "classes": [0, 1]} | more.pop("arguments", {})
    return {"call": "fit", "model": "glm", "formula": "ill ~ age + ward", "data": data, "arguments": arguments, **more}


# --- columns -------------------------------------------------------------------------------------------------------------------


def test_numbers_keep_all_bits_and_what_is_missing_is_missing() -> None:
    import msgspec

    from unpooled.cli.schemas.serving import Column

    odd = np.array([0.1, -0.0, 5e-324, 1 / 3, math.nan])
    kept, coded, words = (
        column_of("x", msgspec.json.decode(json.dumps(one), type=Column))
        for one in (numbers(odd), factor([2, -1, 0]), texts(["x", None]))
    )
    assert kept.tobytes() == odd.tobytes()
    assert coded.tolist() == ["c", None, "a"]
    assert words.tolist() == ["x", None]


@pytest.mark.slow_for("column0-a code has no level")
@pytest.mark.parametrize(
    ("column", "said"),
    [
        (factor([0, 3]), "a code has no level"),
        (factor([0, -2]), "a code has no level"),
        ({"kind": "numbers", "values": "AAAA"}, "no whole number of values"),
        (numbers([1.0]), "different lengths"),
        ({"kind": "dates", "values": []}, "Invalid value 'dates'"),
    ],
)
def test_columns_that_are_none_are_refused(column: Any, said: str) -> None:
    found = error({"call": "fit", "model": "linear", "formula": "y ~ x", "data": {"x": column, "y": numbers([1.0, 2.0])}})
    assert (found["kind"], found["code"]) == ("usage", 2)
    assert said in found["message"]


# --- calls ---------------------------------------------------------------------------------------------------------------------


def test_a_fit_and_all_that_follows_from_it_is_that_of_python(rows: dict[str, Any], data: dict[str, Any]) -> None:
    told = ok(fit(data))
    frame = pl.DataFrame({"age": rows["age"], "ward": [WARDS[k] for k in rows["ward"]], "ill": rows["ill"]})
    model = unpooled.PrivateGLM("logistic", epsilon=math.inf, bounds=BOUNDS, classes=(0, 1))
    model.fit(frame, formula="ill ~ age + ward")
    table = model.summary()
    assert [(t["term"], t["estimate"], t["std_error"]) for t in told["terms"]] == [
        (t.term, t.estimate, t.std_error) for t in table.terms
    ]
    assert (told["plan"], told["holds"], told["nobs"], told["columns"]) == (model.plan_.hash, False, 600, ["age", "ward"])
    assert np.sqrt(np.diag(told["vcov"])) == pytest.approx([t.std_error for t in table.terms])
    meant = {"of": "saved", "saved": told["saved"]}

    ratios = ok({"call": "summary", "model": meant, "arguments": {"exponentiate": True, "references": {"ward": "b"}}})
    assert [t["estimate"] for t in ratios["terms"]] == [
        t.estimate for t in model.summary(exponentiate=True, reference={"ward": "b"}).terms
    ]
    assert ratios["ratio"] == "odds ratio"
    apart = ok({"call": "contrast", "model": meant, "asked": ["ward: b - a", "ward: c - a"]})
    assert apart["joint"]["statistic"] == model.contrast(["ward: b - a", "ward: c - a"]).statistic
    assert ok({"call": "anova", "model": meant})["names"] == ["age", "ward"]
    assert ok({"call": "anova", "model": meant, "smaller": ["age"]})["tests"][0]["degrees"] == 2
    new = ok({"call": "predict", "model": meant, "data": {name: data[name] for name in ("age", "ward")}})["predictions"]
    assert new["probability"] == model.predict_proba(frame.drop("ill"))[:, 1].tolist()
    assert new["link"] == model.linear_predictor(frame.drop("ill")).tolist()
    assert ok({"call": "fitted", "model": meant})["terms"] == told["terms"]
    seen = ok({"call": "diagnose", "model": meant, "data": data, "response": data["ill"], "arguments": {"epsilon": 3}})
    assert {"cells", "roc", "auc"} == set(seen["curves"])


def test_levels_are_compared_with_the_first_one_that_the_asker_names(data: dict[str, Any]) -> None:
    told = ok(fit(data, references={"ward": "c"}))
    assert [t["term"] for t in told["terms"]] == ["age", "ward: a - c", "ward: b - c", "(intercept)"]
    assert told["references"] == {"ward": "c"}


@pytest.mark.slow
def test_a_method_without_standard_errors_has_coefficients_alone(data: dict[str, Any]) -> None:
    for model, more in (("glm", {"method": "gradient"}), ("linear", {"method": "gradient", "y_bounds": [0, 1]})):
        call = fit(data, arguments=more | {"epsilon": 1.0})
        if model == "linear":
            call = {**call, "model": model, "arguments": {"epsilon": 1.0, "bounds": BOUNDS, **more}}
        told = ok(call)
        assert "vcov" not in told
        assert [t["term"] for t in told["terms"]] == ["age", "(intercept)"]  # no level's: it would read as an effect
        assert {t["std_error"] for t in told["terms"]} == {None}
        found = error({"call": "summary", "model": {"of": "saved", "saved": told["saved"]}})
        assert found["kind"] == "usage"


@pytest.mark.guarantee
def test_releases_and_their_warnings(data: dict[str, Any]) -> None:
    told = ok(
        {"call": "release", "function": "describe", "data": {"age": data["age"]}, "arguments": {"bounds": {"age": [0, 128]}}}
    )
    assert (told["kind"], told["holds"], told["nobs"]) == ("Description", True, 600)
    assert [t["term"] for t in told["terms"]] == ["age: count", "age: mean", "age: sd"]
    both = {"columns": ["ward", "ill"], "bounds": {"ward": list(WARDS), "ill": ["0", "1"]}}
    assert ok({"call": "release", "function": "tabulate", "data": data, "arguments": both})["kind"] == "Tabulation"
    read = ask({"call": "release", "function": "describe", "data": {"age": data["age"]}})
    assert [one["type"] for one in read["warnings"]] == ["PrivacyLeakWarning"]
    assert not read["ok"]["holds"]


def test_a_treatment_effect_is_that_of_python(rows: dict[str, Any], data: dict[str, Any]) -> None:
    arm = np.arange(600) % 2
    y = 0.05 * rows["age"] + arm + np.sin(np.arange(600))
    known = {"age": [0, 128], "arm": ["old", "new"], "y": [-5, 12]}
    given = {"treatment": "arm", "outcome": "y", "bounds": known, "epsilon": "inf"}
    columns = {"age": data["age"], "arm": factor(arm, ("old", "new")), "y": numbers(y)}
    told = ok({"call": "release", "function": "effect", "data": columns, "arguments": given})
    model = unpooled.TreatmentEffect(**{**given, "epsilon": math.inf})
    model.fit(pl.DataFrame({"age": rows["age"], "arm": np.array(["old", "new"])[arm], "y": y}))
    assert told["kind"] == "TreatmentEffect"
    assert model.effect_ is not None
    assert told["terms"][0]["term"] == "ATE: new - old"
    assert told["terms"][0]["estimate"] == model.effect_.estimate
    times = numbers(np.abs(np.sin(np.arange(600))) * 8 + 0.01)
    survived = given | {"outcome": "y", "event": "e", "horizon": 5, "family": "survival", "covariates": "age"}
    survived["bounds"] = {**known, "y": [0, 9], "e": [0, 1]}
    told = ok(
        {"call": "release", "function": "effect", "data": columns | {"y": times, "e": numbers(arm)}, "arguments": survived}
    )
    assert set(told["curves"]) == {"old", "new"}


@pytest.mark.guarantee
def test_earlier_models_are_numbers_or_what_was_saved(rows: dict[str, Any], data: dict[str, Any]) -> None:
    """A table is a posterior's, whichever way its prior is given; a fit that is passed carries its price."""
    asked = {"epsilon": 8, "bounds": {"age": [0, 128]}, "y_bounds": [-5, 15]}
    columns = {"age": data["age"], "y": numbers(0.05 * rows["age"] + np.sin(np.arange(600)))}
    call = {"call": "fit", "model": "linear", "formula": "y ~ age", "data": columns}
    alone = ok({**call, "arguments": asked})
    saved = {"of": "saved", "saved": alone["saved"]}
    for prior, price in (({"age": 0.05}, 8), (saved, 12), ({"lund": {"age": 0.04}, "first": saved}, 12)):
        told = ok({**call, "arguments": {**asked, "prior": prior}})
        assert {(line["p_value"], line["privacy"]) for line in told["terms"]} == {(None, None)}
        assert price - 1 < told["statement"]["epsilon_per_unit"]["record"] < price + 1
        found = ok({"call": "summary", "model": {"of": "saved", "saved": told["saved"]}})
        assert math.isnan(float(found["r_squared"] or "nan"))
        assert any("drawn to earlier models" in line for line in found["foot"])
    for wrong in (
        {"of": "saved"},
        {"of": "nothing"},
        {"of": "run", "run": "/nowhere"},
        {"age": "x"},
        {"a": {"of": "saved"}},
    ):
        assert error({**call, "arguments": {**asked, "prior": wrong}})["kind"] == "usage"


def test_survival_times_have_a_curve(data: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    times, event = rng.exponential(3.0, 600).clip(0.01, 9), (rng.random(600) < 0.7).astype(float)
    call = {
        "call": "fit",
        "model": "glm",
        "formula": "Surv(time, event) ~ age",
        "data": {"age": data["age"], "time": numbers(times), "event": numbers(event)},
        "arguments": {"family": "survival", "epsilon": "inf", "bounds": {"age": [0, 128]}, "y_bounds": [0, 9], "cuts": [3]},
    }
    told = ok(call)
    assert told["curve"]["times"] == [0, 3, 9]
    new = ok({"call": "predict", "model": {"of": "saved", "saved": told["saved"]}, "data": {"age": data["age"]}})
    assert set(new["predictions"]) == {"prediction", "survival to 3", "survival to 9", "link"}


# --- what goes wrong -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"nonsense\n", None),
        (b"\xff\xfe\n", None),
        (b'{"id": 7, "ask": 1}\n', 7),
        (b'{"schema": "unpooled/serve-request/2", "id": "x", "ask": {"call": "hello"}}\n', "x"),
        (line({"call": "nothing"}, 8), 8),
        (line({"call": "hello", "more": 1}, 9), 9),
        (b"[" * 5000 + b"\n", None),
    ],
)
def test_a_line_that_is_no_request_is_answered_and_the_next_one_is_read(raw: bytes, name: Any) -> None:
    first, blank_then_second = answers(raw, b"\n", line({"call": "hello"}, "next"))
    assert (first["id"], first["error"]["kind"], first["error"]["code"]) == (name, "usage", 2)
    assert (blank_then_second["id"], blank_then_second["ok"]["version"]) == ("next", unpooled.__version__)


def test_an_argument_that_python_does_not_have_is_refused_by_name(data: dict[str, Any]) -> None:
    assert "takes no 'epsilom'" in error(fit(data, arguments={"epsilom": 1}))["message"]
    assert "takes no 'budget'" in error(fit(data, arguments={"budget": 1}))["message"]
    assert "takes no 'wieghts': did you mean 'weights'" in error(fit(data, rows={"wieghts": data["age"]}))["message"]
    assert "declare the columns in bounds" in error(fit(data, arguments={"missing": "absent", "bounds": None}))["message"]


def test_what_is_missing_is_refused_until_it_is_declared(rows: dict[str, Any], data: dict[str, Any]) -> None:
    holes = data | {"age": numbers(np.where(np.arange(600) == 3, np.nan, rows["age"]))}
    found = error(fit(holes))
    assert (found["kind"], found["column"]) == ("usage", "age")
    assert ok(fit(holes, arguments={"missing": {"age": "absent"}}))["nobs"] == 600


def test_errors_of_every_class_and_none_quotes_data(monkeypatch: pytest.MonkeyPatch) -> None:
    thrown: list[Exception] = [BudgetRefusal("no room"), PolicyRefusal("not here"), RuntimeError("row 3 is 141.7")]
    kinds = []
    for one in thrown:

        def fails(call: Any, one: Exception = one) -> Any:
            warnings.warn("a value is 141.7", RuntimeWarning, stacklevel=1)
            raise one

        monkeypatch.setattr(calls, "answer", fails)
        found = ask({"call": "hello"})
        kinds.append((found["error"]["kind"], found["error"]["code"], found["error"]["type"]))
        assert "141.7" not in json.dumps(found)
    assert kinds == [("budget", 3, "BudgetRefusal"), ("refused", 3, "PolicyRefusal"), ("failed", 1, "RuntimeError")]


# --- commands ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


def run(world: Path, *words: str) -> dict[str, Any]:
    return {"call": "command", "command": list(words), "folder": str(world)}


def test_commands_run_in_their_folder_and_leave_no_ledger_open(world: Path) -> None:
    here = Path.cwd()
    refused = error(run(world, "run", "study.toml", *PARTIES))
    assert (refused["kind"], refused["code"]) == ("refused", 3)
    for name in ("north", "south"):
        at = ("--config", f"{name}/party.toml")
        assert ok(run(world, "party", "check", "study.toml", *at, "--approve"))["output"]["approved"]
    assert ok(run(world, "run", "study.toml", *PARTIES))["output"]["schema"] == "unpooled/run/1"
    again = ask(run(world, "run", "study.toml", *PARTIES))
    assert any("has run before" in one["message"] for one in again["warnings"])
    assert ok(run(world, "result", "study.run"))["output"]["holds"]
    assert Path.cwd() == here
    # The ledger opens again, and no file of it is held.
    assert "spent: " in command(world, "party", "ledger", "--config", "north/party.toml")
    if Path("/proc/self/fd").exists():
        held = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        assert not [file for file in held if "ledger" in file]


def test_a_budget_that_has_no_room_is_an_error_of_its_own(world: Path) -> None:
    (world / "study.toml").write_text((world / "study.toml").read_text().replace("epsilon = 1.0", "epsilon = 7.0"))
    found = error(run(world, "party", "check", "study.toml", "--config", "north/party.toml", "--approve"))
    assert (found["kind"], found["code"]) == ("budget", 3)


def test_commands_that_are_misspelt_or_endless_are_usage_errors(world: Path) -> None:
    for words, said in (
        (("plan", "--foo"), "--foo"),
        (("plan",), "study"),
        (("nothing",), "nothing"),
        (("network", "up", "kits"), "does not end by itself"),
        (("serve", "--stdio"), "does not end by itself"),
        (("plan", "--help"), "printed no data"),
    ):
        found = error(run(world, *words))
        assert found["kind"] == "usage", words
        assert said in found["message"], words


@pytest.mark.long
@pytest.mark.slow
def test_the_model_of_a_run_answers_like_a_fit(world: Path) -> None:
    text = (world / "study.toml").read_text().replace('model = "describe"', 'model = "bayes"')
    (world / "study.toml").write_text(f'{text}\n[parameters]\nresponse = "age"\n')
    approve(world)
    command(world, "run", "study.toml", *PARTIES, "--force")
    meant = {"of": "run", "run": str(world / "study.run")}
    told = ok({"call": "fitted", "model": meant})
    assert told["saved"] is None
    assert told["nobs"] == 500
    assert told["columns"] == ["sex", "old"]
    new = {"sex": texts(["f", "m"]), "old": texts(["1", "0"])}
    assert len(ok({"call": "predict", "model": meant, "data": new})["predictions"]["prediction"]) == 2
    assert "no column old" in error({"call": "predict", "model": meant, "data": {"sex": new["sex"]}})["message"]


# --- the process ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def process() -> Any:
    words = [sys.executable, "-m", "unpooled", "serve", "--stdio"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as started:
        yield started
        started.kill()


def talk(process: Any, raw: bytes) -> dict[str, Any]:
    process.stdin.write(raw)
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_a_process_answers_until_its_input_ends(process: Any, data: dict[str, Any]) -> None:
    assert talk(process, line({"call": "hello"}))["ok"]["process"] == process.pid
    assert talk(process, b"nonsense\n")["error"]["kind"] == "usage"
    assert talk(process, line(fit(data), "f"))["ok"]["nobs"] == 600
    process.stdin.close()
    assert process.wait(20) == 0
    assert process.stdout.read() == b""
    assert process.stderr.read() == b""


@pytest.mark.slow
@pytest.mark.minutes
def test_an_interrupt_ends_the_call_that_it_meets_and_no_other(process: Any) -> None:
    talk(process, line({"call": "hello"}))
    process.send_signal(signal.SIGINT)  # between two calls it does nothing
    assert "ok" in talk(process, line({"call": "hello"}, 2))
    rng = np.random.default_rng(0)
    many = {"x": numbers(rng.uniform(-1, 1, 400_000)), "y": numbers(rng.poisson(1, 400_000))}
    arguments = {"family": "poisson", "epsilon": "inf", "bounds": {"x": [-1, 1]}, "y_bounds": [0, 20]}
    long = {"call": "fit", "model": "glm", "formula": "y ~ x + I(x**2) + exp(x)", "data": many, "arguments": arguments}
    answered = threading.Event()

    def interrupt() -> None:
        """One that comes before the call has begun does nothing, so it comes again."""
        while not answered.wait(0.5):
            process.send_signal(signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    begun = time.monotonic()
    found = talk(process, line(long, 3))
    answered.set()
    assert time.monotonic() - begun < 20
    assert (found["id"], found["error"]["kind"], found["error"]["code"]) == (3, "interrupted", 130)
    assert "ok" in talk(process, line({"call": "hello"}, 4))


@pytest.mark.minutes
def test_one_request_is_a_process_of_its_own(tmp_path: Path) -> None:
    """The fallback where two pipes cannot be held open: a file in, a file out."""
    (tmp_path / "in").write_bytes(line({"call": "hello"}, "once"))
    with (tmp_path / "in").open("rb") as asked:
        done = subprocess.run(
            [sys.executable, "-m", "unpooled", "serve", "--stdio"], stdin=asked, capture_output=True, check=True
        )
    assert json.loads(done.stdout)["id"] == "once"


def test_without_stdio_it_says_so(tmp_path: Path) -> None:
    assert "say where requests come from" in command(tmp_path, "serve", code=2)
