"""Every command alike: help with examples that parse, -h, data for machines; approval asks first; templates are commented."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from commands import command, two_parties
from commands import known_commands as commands

from unpooled.cli.say import EXAMPLES
from unpooled.study.templates import MODELS, template


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_with_examples_that_parse(name: str, tmp_path: Path) -> None:
    for flag in ("-h", "--help"):
        shown = command(tmp_path, *name.split(), flag)
        assert "Examples" in shown
        assert "--json" in shown
    assert EXAMPLES[name]
    for example in EXAMPLES[name]:
        words = shlex.split(example)[1 + len(name.split()) :]
        assert example.startswith(f"unpooled {name}")
        with commands()[name].make_context(name, words) as context:  # an unknown option is an error
            assert context.params
    assert set(EXAMPLES) == set(commands())


@pytest.mark.minutes
def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "unpooled", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("unpooled ")
    done = subprocess.run(
        [sys.executable, "-m", "unpooled", "plan", "nothing.toml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_approval_asks_first_in_a_terminal(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = ("party", "check", "study.toml", "--config", "north/party.toml")
    asked: list[str] = []

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    for answer, said in ((False, "Not approved"), (True, "Approved"), (True, "already approved")):
        monkeypatch.setattr(typer, "confirm", lambda question, answer=answer: asked.append(question) or answer)
        assert said in command(world, *at)
    assert len(asked) == 2
    assert all(question.startswith("Approve plan ") for question in asked)


def test_checks_and_set_ups_as_data(world: Path) -> None:
    at = ("party", "check", "study.toml", "--config", "north/party.toml", "--json")
    told = json.loads(command(world, *at))
    assert (told["party"], told["spent_epsilon"], told["approved"]) == ("north", 0.0, False)
    assert told["after_this_plan"] == pytest.approx(1.0)
    assert told["statement"]["holds"]
    assert json.loads(command(world, *at, "--approve"))["approved"]
    (world / "east.csv").write_text("age\n1\n2\n3\n")
    words = ("party", "init", "east.csv", "--name", "east", "--column", "age=0:100", "--folder", "east", "--json")
    told = json.loads(command(world, *words))
    assert (told["rows"], told["card"]) == (3, "east/east.card.toml")


@pytest.mark.parametrize("model", MODELS)
def test_a_new_study_is_commented_and_reads_back(model: str, world: Path) -> None:
    from unpooled.study.files import read_study

    cards = ("--card", "north/north.card.toml", "--card", "south/south.card.toml")
    told = json.loads(command(world, "new", model, *cards, "--out", "south/new.toml", "--json"))
    assert told["cards"] == ["../north/north.card.toml", "south.card.toml"]
    study = read_study(world / "south/new.toml")
    assert (study.model, study.epsilon, len(study.parties)) == (model, 1.0, 2)
    assert "exists already" in command(world, "new", model, "--out", "south/new.toml", code=2)
    text = (world / "south/new.toml").read_text()
    assert text == template(model, told["cards"])
    assert text.count("#") > 6


def test_a_new_study_runs_up_to_its_plan(world: Path) -> None:
    said = command(
        world, "new", "describe", "--card", "north/north.card.toml", "--card", "south/south.card.toml", "--out", "own.toml"
    )
    assert "unpooled plan own.toml" in said
    assert "Differentially private" in command(world, "plan", "own.toml")
    assert "there is no model" in command(world, "new", "prude", "--out", "x.toml", code=2)
    assert not (world / "x.toml").exists()
