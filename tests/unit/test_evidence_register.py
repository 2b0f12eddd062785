"""Records for the public registry of deployments: valid under its vendored schema, never promising more than the statement."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml
from commands import PARTIES, approve, command, two_parties

from unpooled.evidence.document import Facts
from unpooled.evidence.record import PRODUCTS, SECTORS, Answers, as_yaml, left, record

SCHEMA = yaml.safe_load(files("unpooled.evidence").joinpath("registry/deployments-schema.yaml").read_text(encoding="utf-8"))
SCHEMA_DIGEST = "9d607ad7e587fd440f5164d407e7a77089b46b8caa016f5d8c7d127cfc1d5291"
ANSWERS = ("--published", "2026-11-30", "--type", "Summary statistics")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


def check(held: object) -> None:
    jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER).validate(held)


def test_the_vendored_schema_is_the_registrys_own() -> None:
    """A changed file would make the validation below worth nothing."""
    origin = files("unpooled.evidence").joinpath("registry/ORIGIN.txt").read_text(encoding="utf-8")
    assert "3e9c812a924cf01d228f26f6c462c59c391c3f2a" in origin
    raw = files("unpooled.evidence").joinpath("registry/deployments-schema.yaml").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == SCHEMA_DIGEST
    assert b"MIT License" in files("unpooled.evidence").joinpath("registry/LICENSE").read_bytes()


def test_a_record_is_valid_and_says_what_is_left(world: Path) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    said = command(world, "register", "study.toml", *ANSWERS, "--run", "study.run", "--out", "study.yaml")
    held = yaml.safe_load((world / "study.yaml").read_text())
    check(held)
    assert (held["status"], held["tier"]) == ("Draft", 3)
    assert held["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert "deployment.basic.name" in said
    assert "The run ended on " in held["deployment"]["administrative"]["notes"]
    told = json.loads(command(world, "register", "study.toml", *ANSWERS, "--run", "study.run", "--json"))
    assert (told["record"], told["written"]) == (held, None)
    assert yaml.safe_load(command(world, "register", "study.toml", *ANSWERS, "--run", "study.run")) == held
    assert "exists already" in command(world, "register", "study.toml", *ANSWERS, "--out", "study.yaml", code=2)
    given = (
        "--name",
        "Ages",
        "--region",
        "Norway",
        "--sector",
        "Healthcare",
        "--curator",
        "North",
        "--curator",
        "South",
        "--author",
        "A",
    )
    filled = json.loads(command(world, "register", "study.toml", *ANSWERS, *given, "--json"))
    check(filled["record"])
    basic = filled["record"]["deployment"]["basic"]
    assert (basic["name"], basic["data_curators"], basic["data_product_sector"]) == (
        "Ages",
        ["North", "South"],
        "Healthcare",
    )
    assert set(told["fill"]) - set(filled["fill"]) == {
        *(f"deployment.basic.{key}" for key in ("name", "data_curators", "data_product_region")),
        "deployment.administrative.registry_authors",
    }


def test_what_is_a_date_or_a_word_of_a_list_is_asked_for(world: Path) -> None:
    basic = SCHEMA["properties"]["deployment"]["properties"]["basic"]["properties"]
    assert tuple(basic["data_product_type"]["enum"]) == PRODUCTS
    assert tuple(basic["data_product_sector"]["enum"]) == SECTORS
    for words, said in (
        ((), "--published YYYY-MM-DD"),
        (("--published", "2026-02-30", "--type", "Dataset"), "--published YYYY-MM-DD"),
        (("--published", "2026-02-03"), "--type with one of 'Summary statistics'"),
        ((*ANSWERS, "--sector", "Space"), "--sector is one of Technology"),
        ((*ANSWERS, "--region", "a\nb"), "one line of printable characters"),
    ):
        assert said in command(world, "register", "study.toml", *words, code=2)


def test_a_record_that_breaks_the_schema_is_caught(world: Path) -> None:
    held = record(Facts.read(world / "study.toml"), Answers("2026-11-30", "Dataset"))
    check(held)
    held["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] = "1"
    with pytest.raises(jsonschema.ValidationError):
        check(held)


def test_texts_survive_as_yaml() -> None:
    held = {
        "a": 'quote " colon: # hash \U0001f600 \\ tab',
        "b": {"c": ["- x", "yes", "1e-5"], "d": 1e-300, "e": 3, "f": 1e22},
    }
    assert yaml.safe_load(as_yaml(held)) == held
    assert list(left({"a": "[to be filled in by you]", "b": {"c": ["[to be filled in by you]"], "d": "x"}})) == ["a", "b.c"]
