"""Every output for machines matches its committed JSON schema, and no schema changes under an unchanged version.

``docs/schemas`` holds a schema for each command. Each walk below runs the commands of one kind of study with ``--json``, and checks what they
print by a small validator that reads the committed files; what a command prints is decoded strictly as well before it is printed.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from base64 import b64encode
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import numpy as np
import polars as pl
import pytest
import typer
from commands import PARTIES, command, known_commands, two_parties
from typer.main import get_command

import unpooled
from unpooled.cli import main as cli
from unpooled.cli.schemas.__main__ import shape, unraised, write
from unpooled.cli.schemas.files import FILES
from unpooled.cli.schemas.registry import DESCRIBED, OUTPUTS, READ, document, encoded, file_name, schema_of, tag
from unpooled.cli.schemas.serving import ANSWERS, ServeOutput
from unpooled.cli.schemas.studies import NewOutput
from unpooled.cli.serve import Service
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target, Unit
from unpooled.study.party import create_party

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
RENEW = (
    "the output of `unpooled {}` changed: raise the version at the end of its tag in unpooled/cli/schemas, say so in the "
    "changelog, then run `python -m unpooled.cli.schemas --write` (for a version that no release had: --write --unreleased)"
)
#: The outputs that each walk prints.
WALKS = {
    "rows": {
        *(
            "new",
            "plan",
            "party-check",
            "run",
            "result",
            "contrast",
            "submodel",
            "predict",
            "report",
            "report-verify",
            "dossier",
            "register",
            "crate",
            "audit",
            "doctor",
        ),
        *("party-ledger", "party-card", "party-withdraw", "party-withdraw-all", "party-verify", "schema"),
    },
    "columns": {
        *("plan", "party-check", "run", "result", "report", "party-show", "party-show-plans", "party-export", "audit"),
        *("party-forget", "party-rows", "party-ledger"),
    },
    "init": {"party-init", "party-init-helper", "party-init-template", "party-init-refused"},
    "network": {"network-provision", "network-start", "network-up", "propose"},
    "console": {"party-console"},
    "link": {"link"},
    "demo": {"demo"},
    "serve": {"serve"},
}


class Mismatch(AssertionError):
    """A value that does not match its schema."""


class Validator:
    """The part of JSON Schema (draft 2020-12) that the committed schemas use; any other word in one is an error."""

    KNOWN = frozenset(
        [
            "$schema",
            "$defs",
            "$ref",
            "title",
            "description",
            "type",
            "enum",
            "const",
            "anyOf",
            "oneOf",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "prefixItems",
            "minItems",
            "maxItems",
            "default",
            # Words for readers: which form of several it is, and how a text holds bytes.
            "discriminator",
            "contentEncoding",
        ]
    )
    TYPES: ClassVar = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "number": (int, float),
        "integer": int,
    }

    def __init__(self, schema: dict[str, Any]) -> None:
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        self.schema = schema

    def check(self, value: Any) -> None:
        self._check(value, self.schema, "$")

    def _matches(self, value: Any, schema: dict[str, Any], at: str) -> bool:
        try:
            self._check(value, schema, at)
        except Mismatch:
            return False
        return True

    def _check(self, value: Any, schema: Any, at: str) -> None:
        assert set(schema) <= self.KNOWN, set(schema) - self.KNOWN
        if "$ref" in schema:
            self._check(value, self.schema["$defs"][schema["$ref"].removeprefix("#/$defs/")], at)
        for word, right in (("anyOf", lambda n: n >= 1), ("oneOf", lambda n: n == 1)):
            if word in schema and not right(sum(self._matches(value, one, at) for one in schema[word])):
                raise Mismatch(at, f"matches none of its forms, or several: {value!r}")
        if "enum" in schema and value not in schema["enum"]:
            raise Mismatch(at, f"is {value!r}, and not one of {schema['enum']}")
        if "type" in schema:
            names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            if not any(
                isinstance(value, self.TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names
            ):
                raise Mismatch(at, f"is {value!r}, and not of type {names}")
        if isinstance(value, dict):
            self._object(value, schema, at)
        if isinstance(value, list):
            self._array(value, schema, at)

    def _object(self, value: dict[str, Any], schema: dict[str, Any], at: str) -> None:
        if missing := set(schema.get("required", ())) - set(value):
            raise Mismatch(at, f"has no {missing}")
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            if known is False:
                raise Mismatch(at, f"has an unknown key {key!r}")
            if known is not True:
                self._check(inner, known, f"{at}.{key}")

    def _array(self, value: list[Any], schema: dict[str, Any], at: str) -> None:
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            raise Mismatch(at, f"has {len(value)} items")
        first = schema.get("prefixItems", [])
        for k, inner in enumerate(value):
            known = first[k] if k < len(first) else schema.get("items", {})
            if known is False:
                raise Mismatch(at, "has more items than are known")
            self._check(inner, known, f"{at}[{k}]")


def committed(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / file_name(name)).read_text())


def names_of(name: str) -> set[str]:
    return {tag(one).split("/")[1] for one in OUTPUTS[name]}


class Walk:
    """Runs commands in a folder, checks what each prints against its committed schema, and keeps the names of the outputs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen = folder, set[str]()

    def __call__(self, *words: str, code: int = 0) -> dict[str, Any]:
        printed = command(self.folder, *words, "--json", code=code)
        found, _ = json.JSONDecoder().raw_decode(printed)  # nothing may stand before the data
        assert next(iter(found)) == "schema"
        name = max((one for one in OUTPUTS if " ".join(words).startswith(one)), key=len)
        Validator(committed(name)).check(found)
        library, output, version = found["schema"].split("/")
        assert (library, output in names_of(name), version.isdigit()) == ("unpooled", True, True)
        self.seen.add(output)
        return found

    def say(self, *words: str) -> str:
        return command(self.folder, *words)


# --- the files -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow_for("crate")
@pytest.mark.parametrize("name", DESCRIBED)
def test_the_committed_schema_is_the_generated_one(name: str) -> None:
    file = SCHEMAS / file_name(name)
    assert file.is_file(), f"write {file.name}: python -m unpooled.cli.schemas --write"
    assert file.read_bytes() == document(name), RENEW.format(name)
    assert command(Path.cwd(), "schema", *name.split()).encode() == document(name)
    assert command(Path.cwd(), "schema", name.replace(" ", "-"), "--json").encode() == document(name)


def test_every_command_with_an_option_json_has_a_schema_and_nothing_else_has_one() -> None:
    with_option = {name for name, one in known_commands().items() if any("--json" in option.opts for option in one.params)}
    assert with_option == set(known_commands()) == set(OUTPUTS)
    assert {file.name for file in SCHEMAS.iterdir()} == {file_name(name) for name in (*DESCRIBED, *FILES)}


def test_outputs_are_printed_under_names_that_have_a_schema_and_by_one_door() -> None:
    printed, others = set(), []
    for file in (Path(unpooled.__file__).parent / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"say_json", "json_line"}:
                printed.add(ast.literal_eval(node.args[0]))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "msgspec.json.format":
                others.append(file.name)
    assert printed == {name for command_ in OUTPUTS for name in names_of(command_)} - READ
    assert others == ["party.py"]  # a file that `party export` writes
    assert set.union(*WALKS.values()) == printed


def test_the_outputs_are_listed_and_an_unknown_command_is_refused(tmp_path: Path) -> None:
    lines = command(tmp_path, "schema").splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [
        [tag(one), f"unpooled {name}"] for name, every in OUTPUTS.items() for one in every
    ]
    assert "no command 'nothing' prints data: give one of audit" in command(tmp_path, "schema", "nothing", code=2)
    assert "no command 'party' prints data" in command(tmp_path, "schema", "party", code=2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"written": 1, "model": "bayes", "cards": []},
        {"written": "a", "model": "bayes"},
        {"written": "a", "model": "bayes", "cards": [], "extra": 1},
        {"written": None, "model": "bayes", "cards": []},
        {"written": "a", "model": "bayes", "cards": [], "schema": "unpooled/plan/1"},
    ],
)
def test_an_output_that_does_not_match_is_not_printed(wrong: dict[str, Any]) -> None:
    right = {"written": "a", "model": "bayes", "cards": ["b"]}
    found = json.loads(encoded("new", right))
    assert found == {"schema": tag(NewOutput)} | right
    validator = Validator(committed("new"))
    validator.check(found)
    with pytest.raises(msgspec.ValidationError):
        encoded("new", wrong)
    with pytest.raises(Mismatch):
        validator.check({"schema": tag(NewOutput)} | wrong)


def test_numbers_that_json_has_no_word_for_are_null() -> None:
    data = {
        "plan": "0",
        "holds": True,
        "confidence": 0.95,
        "ratio": "",
        "terms": [],
        "joint": {"statistic": float("nan"), "degrees": 1, "p_value": float("inf")},
    }
    assert json.loads(encoded("contrast", data))["joint"] == {"statistic": None, "degrees": 1, "p_value": None}


# --- versions ------------------------------------------------------------------------------------------------------------------


def test_words_may_change_and_anything_else_needs_a_new_version(tmp_path: Path) -> None:
    write(tmp_path)
    assert unraised(tmp_path) == []
    file = tmp_path / file_name("new")
    before = schema_of("new")
    part = before["$defs"]["NewOutput"]
    part["description"] = "Other words."
    file.write_bytes(msgspec.json.encode(before))
    assert unraised(tmp_path) == []
    part["properties"]["title"] = {"type": "string", "title": "A property of this name is no word"}
    assert "title" in shape(before)["$defs"]["NewOutput"]["properties"]
    file.write_bytes(msgspec.json.encode(before))
    assert unraised(tmp_path) == ["new"]
    with pytest.raises(typer.Exit) as refused:
        write(tmp_path)
    assert refused.value.exit_code == 2
    assert json.loads(file.read_text()) == before
    part["properties"]["schema"]["enum"] = ["unpooled/new/0"]  # as if the version had been raised since
    file.write_bytes(msgspec.json.encode(before))
    (tmp_path / "gone.json").write_text("{}")
    write(tmp_path)
    assert file.read_bytes() == document("new")
    assert not (tmp_path / "gone.json").exists()
    part["properties"]["schema"]["enum"] = [tag(NewOutput)]
    file.write_bytes(msgspec.json.encode(before))
    write(tmp_path, unreleased=True)
    assert file.read_bytes() == document("new")


@pytest.mark.slow
def test_the_module_writes_the_files(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "unpooled.cli.schemas", "--write", "--folder", str(tmp_path / "there")]
    subprocess.run(words, check=True, capture_output=True)
    assert {file.name: file.read_bytes() for file in (tmp_path / "there").iterdir()} == {
        file.name: file.read_bytes() for file in SCHEMAS.iterdir()
    }


def test_the_command_starts_without_the_schemas() -> None:
    code = (
        "import sys, unpooled.cli.main; print([name for name in sys.modules if 'cli.schemas' in name or name == 'msgspec'])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


# --- every command -------------------------------------------------------------------------------------------------------------


def study(model: str, parameters: str, unit: str, names: tuple[str, ...]) -> str:
    cards = "".join(f'\n[[party]]\ncard = "{name}/{name}.card.toml"\n' for name in names)
    privacy = f'[privacy]\nunit = "{unit}"\nepsilon = 5.0\ndelta = 1e-6\n'
    return f'[study]\nmodel = "{model}"\npurpose = "to be read"\n\n[parameters]\n{parameters}\n\n{privacy}{cards}'


@pytest.mark.long
@pytest.mark.slow
def test_every_command_of_a_study_whose_rows_are_split(tmp_path: Path) -> None:
    names, n, rng = ("north", "south"), 2000, np.random.default_rng()
    declared = (Column("age", 0.0, 100.0), Column("arm", categories=("a", "b")), Column("y", -8.0, 8.0))
    for name in names:
        (tmp_path / name).mkdir()
        age, arm = rng.uniform(20, 80, n), rng.choice(["a", "b"], n)
        frame = pl.DataFrame({"age": age, "arm": arm, "y": 0.05 * age + (arm == "b") - 3 + 0.5 * rng.normal(size=n)})
        frame.write_csv(tmp_path / name / "data.csv")
        create_party(tmp_path / name, name, tmp_path / name / "data.csv", declared, Target(50.0, 1e-4))
    frame[:5].with_row_index("k").write_csv(tmp_path / "new.csv")
    (tmp_path / "study.toml").write_text(study("bayes", 'response = "y"', "record", names))
    walk, at = Walk(tmp_path), ("--config", "north/party.toml")
    parties = [word for name in names for word in ("--party", f"{name}/party.toml")]
    cards = [word for name in names for word in ("--card", f"{name}/{name}.card.toml")]

    walk("schema")
    assert "formula" not in walk("new", "bayes", *cards, "--out", "empty.toml")
    assert walk("new", "bayes", *cards, "--formula", "arm * age", "--out", "formula.toml")["formula"]
    assert "formula" in walk("plan", "formula.toml")
    assert {"statement", "releases"} < set(walk("plan", "study.toml"))
    assert walk("plan", "study.toml", "--utility")["outlook"]["points"]
    assert not walk("party", "check", "study.toml", *at)["approved"]
    found = walk("doctor", "--study", "study.toml", *at, code=2)["findings"]
    assert not all(one["fine"] for one in found)
    for name in names:
        assert walk("party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")["approved"]
    ran = walk("run", "study.toml", *parties)
    stored = json.loads((tmp_path / "study.run/result.json").read_text())
    assert {key: value for key, value in ran.items() if key != "schema"} == stored
    assert walk("result", "study.run")["vcov"]
    assert walk("contrast", "study.run", "arm: b - a", "age")["joint"]["degrees"] == 2
    assert walk("contrast", "study.run", "arm: b - a")["terms"]
    assert [term["term"] for term in walk("submodel", "study.run", "arm")["terms"]] == ["arm: b - a", "(intercept)"]
    assert [row["k"] for row in walk("predict", "study.run", "--data", "new.csv", "--id", "k")["predictions"]]
    walk("report", "study.run")
    walk("report", "study.run", "--verify", *cards)
    assert len(walk("dossier", "study.toml", *at, "--run", "study.run")["written"]) == 2
    answers = ("--published", "2026-11-30", "--type", "Summary statistics")
    assert walk("register", "study.toml", *answers)["written"] is None
    assert walk("register", "study.toml", *answers, "--out", "study.yaml")["fill"]
    assert walk("crate", "study.run", *at, "--dossier", "study.dossier", "--out", "crate")["holds"]
    walk("audit", "study.toml", "--rows", "8", "--rounds", "1", "--attacks", "2", "--canaries", "8")
    told = walk("party", "ledger", *at, "--export", "ledger.json")
    assert {entry["kind"] for entry in told["entries"]} == {"charge", "approval"}
    assert walk("party", "verify", "ledger.json")["head"] == told["head"]
    walk("party", "card", *at)
    walk("party", "withdraw", "study.toml", *at)
    assert walk("party", "ledger", *at)["studies"][0]["state"] == "withdrawn"
    assert walk("party", "withdraw", "--all", *at)["plans"] == []  # the one study is withdrawn already
    assert walk.seen == WALKS["rows"]


@pytest.mark.slow
def test_every_command_of_a_study_whose_columns_are_split(tmp_path: Path) -> None:
    names, n, rng = ("clinic", "laboratory"), 200, np.random.default_rng()
    y = rng.normal(size=n)
    for name in names:
        (tmp_path / name).mkdir()
        columns = {f"{name[0]}{j}": np.clip(rng.normal(size=n) / 3, -1, 1) for j in range(3)}
        frame = pl.DataFrame({"patient": [f"p{k}" for k in range(n)], **columns, "y": y})
        frame.write_csv(tmp_path / name / "data.csv")
        frame[:5].drop("y").write_csv(tmp_path / name / "new.csv")
        declared = tuple(Column(column, -1.0, 1.0) for column in columns)
        total = Target(50.0, 1e-5, Unit.ATTRIBUTE)
        create_party(tmp_path / name, name, tmp_path / name / "data.csv", declared, total, "patient", ("y",))
    (tmp_path / "study.toml").write_text(study("pride", 'response = "y"', "attribute", names))
    walk, at = Walk(tmp_path), ("--config", "clinic/party.toml")
    parties = [word for name in names for word in ("--party", f"{name}/party.toml")]

    walk("plan", "study.toml")
    assert walk("party", "show", *at)["plans"] == {}
    for name in names:
        walk("party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    walk("run", "study.toml", *parties, "--force")
    assert walk("result", "study.run")["terms"] == []
    walk("report", "study.run")
    walk("report", "study.toml", *at)
    assert len(walk("party", "show", *at)["plans"]) == 1
    assert walk("party", "show", "study.toml", *at)["terms"]
    walk("party", "export", "study.toml", *at, "--out", "own.npz")
    walk("party", "rows", "clinic/new.csv", *at, "--folder", "clinic-new")
    walk("audit", "study.toml", "--rows", "8", "--rounds", "1")
    assert {entry["kind"] for entry in walk("party", "ledger", *at)["entries"]} == {"charge", "shared", "approval"}
    assert walk("party", "forget", "study.toml", *at)["deleted"]
    assert walk.seen == WALKS["columns"]


@pytest.mark.guarantee
def test_parties_that_are_set_up_described_and_refused(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    (tmp_path / "east.csv").write_text("family;age\n1;1,5\n1;2,5\n2;3,5\n")
    (tmp_path / "holes.csv").write_text("age,dose\n1,1\n,2\n3,3\n")
    words = ("party", "init", "east.csv", "--name", "east")
    assert walk(*words, "--template", "--folder", "west")["format"]["separator"] == ";"
    text = (tmp_path / "west/party.toml").read_text()
    assert "ids" not in walk(*words, "--column", "age=0:100", "--folder", "east")
    houses = ("--household", "family", "--household-rows", "2", "--new-budget")
    assert walk(*words, "--column", "age=0:100", "--folder", "houses", *houses)["ids"] == 2
    config = tmp_path / "west/party.toml"
    config.write_text((tmp_path / "east/party.toml").read_text())
    assert text
    assert "budget" not in walk("party", "init", "--config", "west/party.toml", "--new-budget")
    refused = walk("party", "init", "holes.csv", "--name", "holes", "--column", "age=0:9", "--folder", "holes", code=2)
    assert refused["findings"][0]["refused"]
    assert walk("party", "init", "--helper", "registry", "--folder", "registry")["helper"] == "registry"
    assert walk.seen == WALKS["init"]


def test_requests_and_answers_of_a_process_that_serves(tmp_path: Path) -> None:
    """Each is a line; the two forms of one schema are told apart by their names."""
    world, validator, seen = two_parties(tmp_path), Validator(committed("serve")), set()
    rng = np.random.default_rng()
    column = {"kind": "numbers", "values": b64encode(rng.uniform(0, 1, 300).tobytes()).decode()}
    words = {"kind": "factor", "levels": ["a", "b"], "codes": b64encode(np.arange(300, dtype="<i4") % 2).decode()}
    data, bounds = {"x": column, "y": column, "ward": words}, {"x": [0, 1], "ward": ["a", "b"]}
    fit = {"call": "fit", "model": "linear", "formula": "y ~ x * ward", "data": data}
    fit |= {"arguments": {"bounds": bounds, "y_bounds": [0, 1], "epsilon": "inf"}, "rows": {"sites": words}}
    service = Service(get_command(cli.app))

    def ask(call: Any) -> Any:
        request = {"schema": "unpooled/serve-request/1", "id": 1, "ask": call}
        validator.check(request)
        answer = service.answer_to(json.dumps(request).encode())
        assert (answer.count(b"\n"), answer.endswith(b"\n")) == (1, True)
        found = json.loads(answer)
        validator.check(found)
        assert (next(iter(found)), found["schema"]) == ("schema", tag(ServeOutput))
        seen.add(found["ok"]["answer"] if "ok" in found else found["error"]["kind"])
        return found.get("ok")

    ask({"call": "hello"})
    model = {"of": "saved", "saved": ask(fit)["saved"]}
    for call in ("fitted", "summary", "anova"):
        ask({"call": call, "model": model})
    ask({"call": "contrast", "model": model, "asked": ["ward: b - a"]})
    ask({"call": "submodel", "model": model, "columns": ["ward"]})
    ask({"call": "predict", "model": model, "data": data})
    ask({"call": "release", "function": "describe", "data": data, "arguments": {"bounds": bounds | {"y": [0, 1]}}})
    ask({"call": "diagnose", "model": model, "data": data, "response": column, "arguments": {"y_bounds": [0, 1]}})
    spectra = {"call": "estimate", "estimator": "PrivatePLSRegression", "data": {"x": column}, "response": {"y": column}}
    ask(
        spectra | {"arguments": {"bounds": [0, 1], "y_bounds": [0, 1], "epsilon": "inf", "basis": "none", "n_components": 1}}
    )
    shape = {"samples": 300, "features": 1, "arguments": {"bounds": [0, 1], "y_bounds": [0, 1]}}
    ask({"call": "plan", "estimator": "PrivateLasso", **shape, "arguments": {**shape["arguments"], "parties": 1}})
    ask({"call": "budget", "epsilon": 1, "delta": 1e-6})
    ask({"call": "command", "command": ["plan", "study.toml"], "folder": str(world)})
    ask({"call": "command", "command": ["run", "study.toml", *PARTIES], "folder": str(world)})
    ask(fit | {"arguments": {"wrong": 1}})
    assert seen >= {one.__struct_config__.tag for one in ANSWERS} | {"usage", "refused"}
    with pytest.raises(Mismatch):
        validator.check({"schema": "unpooled/serve-request/1", "id": 1, "ask": {"call": "hello", "more": 1}})


def test_linked_rows(tmp_path: Path) -> None:
    pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")
    cards = parties = ()
    for k, name in enumerate(("clinic", "lab")):
        (tmp_path / name).mkdir()
        frame = pl.DataFrame({"patient": [f"p{j}" for j in range(k, 12 + k)], f"x{k}": np.random.default_rng().random(12)})
        frame.write_csv(tmp_path / name / "data.csv")
        create_party(
            tmp_path / name, name, tmp_path / name / "data.csv", (Column(f"x{k}", 0.0, 1.0),), Target(9.0, 1e-5), "patient"
        )
        config = tmp_path / name / "party.toml"
        config.write_text(config.read_text().replace('psi = "no"', 'psi = "intersection"'))
        cards += (f'\n[[party]]\ncard = "{name}/{name}.card.toml"\n',)
        parties += ("--party", f"{name}/party.toml")
    (tmp_path / "link.toml").write_text(f'[study]\nmodel = "link"\n{"".join(cards)}')
    for name in ("clinic", "lab"):
        command(tmp_path, "party", "check", "link.toml", "--config", f"{name}/party.toml", "--approve")
    walk = Walk(tmp_path)
    assert len(walk("link", "link.toml", *parties)["parties"]) == 2
    assert walk.seen == WALKS["link"]


def test_kits_and_participants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is not started: what the commands print of it is the same."""
    pytest.importorskip("fcntl", reason="networks need Linux or macOS")
    pytest.importorskip("psutil", reason="networks need unpooled[network]")
    from unpooled.network import kits, processes, submit

    def provision(_: Path, out: Path) -> str:
        for name, role in (("host", "server"), ("north", "client"), ("analyst", "admin")):
            (out / name / "startup").mkdir(parents=True)
            (out / name / "startup" / f"fed_{role}.json").write_text("{}")
        return "a" * 64

    process = SimpleNamespace(poll=lambda: None, returncode=0)
    ended = SimpleNamespace(poll=lambda: 0, returncode=0)

    @contextmanager
    def up(_: Path):
        yield {"host": process, "north": process}

    for module, name, fake in (
        (kits, "provision", provision),
        (processes, "start", lambda _: ended),
        (processes, "stop", lambda _: None),
        (processes, "up", up),
        (submit, "propose_networked", lambda *_, **__: ("south",)),
    ):
        monkeypatch.setattr(module, name, fake)
    walk = Walk(tmp_path)
    assert len(walk("network", "provision", "network.toml", "--out", "kits")["kits"]) == 3
    assert walk("network", "start", "kits/north")["starting"] == "north"
    assert walk("network", "up", "kits", "--exit-after", "0.1")["up"] == ["host", "north"]
    two_parties(tmp_path)
    told = walk("propose", "study.toml", "--network", "kits/analyst", code=1)  # one of them is away
    assert (told["laid"], told["away"]) == (["north"], ["south"])
    assert walk.seen == WALKS["network"]


def test_the_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is not started: what the command prints is the same."""
    pytest.importorskip("uvicorn", reason="the console needs unpooled[console]")
    from unpooled.console import app as serving

    monkeypatch.setattr(
        serving, "serve", lambda desk, port, opened, *, read_only: opened("http://127.0.0.1:1/enter?ticket=x")
    )
    walk = Walk(two_parties(tmp_path))
    told = walk("party", "console", "--config", "north/party.toml", "--read-only")
    assert (told["party"], told["inbox"], told["read_only"]) == ("north", "north/inbox", True)
    assert walk.seen == WALKS["console"]


@pytest.mark.slow
@pytest.mark.minutes
def test_the_tour(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    assert set(walk("demo", "--out", "tour")["studies"]) == {"rows", "columns", "spectra"}
    assert walk.seen == WALKS["demo"]
