"""Every command alike: help with examples that parse, -h, data for machines; approval asks first; templates are commented."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import typer
from commands import PARTIES, STUDY, approve, command, two_parties
from commands import known_commands as commands

from unpooled.cli import say as progress
from unpooled.cli.say import EXAMPLES
from unpooled.errors import UsageError
from unpooled.privacy.bounds import Column
from unpooled.privacy.study import Card, Study
from unpooled.protocol.messages import Dropped, open_envelope
from unpooled.protocol.transcript import Exchanged, Transcript
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


@pytest.mark.long
@pytest.mark.slow
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
    assert "unknown model" in command(world, "new", "prude", "--out", "x.toml", code=2)
    assert not (world / "x.toml").exists()


# --- signed replies ---------------------------------------------------------------------------------------------------------

CARDS = ("--card", "north/north.card.toml", "--card", "south/south.card.toml")


def test_every_reply_of_a_transcript_carries_its_partys_signature(tmp_path: Path) -> None:
    world = two_parties(tmp_path)
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    said = command(world, "report", "study.run", "--verify", *CARDS)
    assert "every reply carries the signature of its party (2 of north, 2 of south)" in said
    assert json.loads(command(world, "report", "study.run", "--verify", *CARDS, "--json"))["replies"] == {
        "north": 2,
        "south": 2,
    }
    assert "the card of every party" in command(world, "report", "study.run", "--verify", *CARDS[:2], code=2)
    (world / "south/other.card.toml").write_text(
        (world / "south/south.card.toml").read_text().replace("rows = 200", "rows = 201")
    )
    assert "not the one you gave" in command(
        world, "report", "study.run", "--verify", *CARDS[:2], "--card", "south/other.card.toml", code=2
    )


@pytest.mark.slow
def test_a_transcript_edited_anywhere_is_refused(tmp_path: Path) -> None:
    """V10: a mean that the coordinator made up was once replayed as if the party had said so."""
    world = two_parties(tmp_path)
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    whole = Transcript.open(world / "study.run/transcript")
    entries = list(whole.entries)
    whole.close()

    def written(changed: list[Exchanged]) -> None:
        (world / "study.run/transcript").unlink()
        transcript = Transcript.open(world / "study.run/transcript")
        for entry in changed:
            transcript.record(entry.to, entry.request, Dropped(entry.to, "") if entry.reply is None else entry.reply)
        transcript.close()

    for place, entry in enumerate(entries):
        envelope = open_envelope(entry.reply)
        body = bytearray(bytes(envelope.body))
        for at in {len(body) // 2, len(body) - 1}:
            body[at] ^= 1
            forged = msgspec.msgpack.encode(msgspec.structs.replace(envelope, body=msgspec.Raw(bytes(body))))
            written([*entries[:place], msgspec.structs.replace(entry, reply=forged), *entries[place + 1 :]])
            command(world, "report", "study.run", code=2)
            command(world, "report", "study.run", "--verify", *CARDS, code=2)
            body[at] ^= 1
    unsigned = msgspec.structs.replace(open_envelope(entries[2].reply), signature="")
    written([*entries[:2], msgspec.structs.replace(entries[2], reply=msgspec.msgpack.encode(unsigned)), entries[3]])
    assert "does not carry the signature of the key on its card" in command(world, "report", "study.run", code=2)
    written(entries[:-1])
    assert "ends before" in command(world, "report", "study.run", "--verify", *CARDS, code=2)
    written([entries[1], entries[0], *entries[2:]])
    command(world, "report", "study.run", "--verify", *CARDS, code=2)
    written(entries)
    command(world, "report", "study.run", "--verify", *CARDS)


@pytest.mark.slow
def test_a_reply_of_another_party_or_run_is_refused(tmp_path: Path) -> None:
    world = two_parties(tmp_path)
    for name in ("north", "south"):
        file = world / name / "party.toml"
        file.write_text(file.read_text().replace("epsilon = 1.0", "epsilon = 9.0"))
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    command(world, "run", "study.toml", *PARTIES, "--out", "again.run")
    of_study = {place: Transcript.read(world / place / "transcript").entries for place in ("study.run", "again.run")}
    entries = of_study["study.run"]
    assert of_study["again.run"] == entries, "the same plan once more: every party sends the bytes that it sent before"
    (world / "study.toml").write_text(STUDY.replace('"describe"', '"describe"\nrun = 2'))
    approve(world)
    command(world, "run", "study.toml", *PARTIES, "--out", "second.run")
    later = Transcript.read(world / "second.run/transcript").entries
    assert [(entry.to, entry.reply is None) for entry in later] == [(entry.to, entry.reply is None) for entry in entries]
    renamed = msgspec.structs.replace(open_envelope(later[2].reply), plan=open_envelope(entries[2].reply).plan)
    replies = [entry.reply for entry in entries]
    for forged in (
        [*replies[:2], later[2].reply, replies[3]],
        [*replies[:2], msgspec.msgpack.encode(renamed), replies[3]],
        [*replies[:2], replies[3], replies[2]],
        [replies[1], replies[0], *replies[2:]],
        [replies[0], replies[1], replies[0], replies[3]],
    ):
        (world / "study.run/transcript").unlink()
        transcript = Transcript.open(world / "study.run/transcript")
        for entry, reply in zip(entries, forged, strict=True):
            transcript.record(entry.to, entry.request, reply)
        transcript.close()
        command(world, "report", "study.run", code=2)
        command(world, "report", "study.run", "--verify", *CARDS, code=2)


def test_a_run_without_a_terminal_says_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Y5: 115 seconds of silence in a log. A terminal gets its spinner, and a quiet run nothing."""
    monkeypatch.setattr(progress, "EVERY", 0.02)
    with progress.progress() as say:
        say("step 'sums': waiting for north")
        time.sleep(0.2)
    said = capfd.readouterr().err.splitlines()
    assert len(said) >= 2
    assert said[-1].endswith("s: step 'sums': waiting for north")
    with progress.progress(quiet=True) as say:
        time.sleep(0.1)
    assert capfd.readouterr().err == ""


def test_columns_that_differ_are_named() -> None:
    cards = [
        Card(name, 9, (Column("age", 0.0, high), Column("sex", categories=("f", "m"))))
        for name, high in (("a", 100.0), ("b", 90.0))
    ]
    with pytest.raises(UsageError, match="column 'age' of one is not that of the other"):
        Study("bayes", tuple(cards), 1.0, 1e-5, derived=()).one_card_for_all()
    turned = Card("c", 9, cards[0].columns[::-1])
    with pytest.raises(UsageError, match="the order of the columns"):
        Study("bayes", (cards[0], turned), 1.0, 1e-5, derived=()).one_card_for_all()


# --- formulas ------------------------------------------------------------------------------------------------------------

CARD = ("--card", "north/north.card.toml", "--card", "south/south.card.toml")


@pytest.mark.guarantee
@pytest.mark.parametrize("model", ["bayes", "glm", "stacking"])
def test_a_new_study_carries_its_formula(model: str, world: Path) -> None:
    from unpooled.study.files import read_study

    words = ("new", model, "--formula", "sex*age + I( 1+age )", *CARD, "--out", "f.toml", "--json")
    told = json.loads(command(world, *words))
    canonical = "~ sex + age + I(age + 1) + age:sex"
    assert told["formula"] == canonical
    study = read_study(world / "f.toml")
    assert study.parameters["formula"] == canonical
    assert study.parameters["response"] == "y"
    assert study.parameters.get("split", "samples") == "samples", "no party of split columns has all of them"
    text = (world / "f.toml").read_text()
    assert text.count("formula") == 2, "the line of its default went: the key, and the page that explains it"
    # Without a formula nothing of it is written.
    assert "formula" not in json.loads(command(world, "new", model, *CARD, "--out", "plain.toml", "--json"))
    assert "formula" not in read_study(world / "plain.toml").parameters


@pytest.mark.long
@pytest.mark.slow
def test_the_left_side_of_a_new_formula_is_the_response(world: Path) -> None:
    command(world, "new", "glm", "--formula", "old ~ C(sex, ref='m') * age", *CARD, "--out", "f.toml")
    assert 'goal is "table", and with 500 rows' in command(world, "plan", "f.toml", code=2)
    text = (world / "f.toml").read_text()
    (world / "f.toml").write_text(text.replace('goal = "table"', 'goal = "auto"'))
    shown = command(world, "plan", "f.toml")
    assert "formula: ~ C(sex, ref='m') + age + age:C(sex, ref='m')" in shown
    assert "derived columns: 5, with bounds that follow from the cards" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("  age:sex[f]"))
    assert line.split() == ["age:sex[f]", "0", "to", "100", "of", "age,", "sex"]
    told = json.loads(command(world, "plan", "f.toml", "--json"))
    assert told["formula"]["text"] == "~ C(sex, ref='m') + age + age:C(sex, ref='m')"
    assert [column["name"] for column in told["formula"]["columns"]] == [
        "sex[f]",
        "sex[m]",
        "age",
        "age:sex[f]",
        "age:sex[m]",
    ]
    assert told["formula"]["columns"][3] == {"name": "age:sex[f]", "low": 0.0, "high": 100.0, "sources": ["age", "sex"]}
    assert "offset" not in told["formula"]


def test_a_plan_without_a_formula_says_nothing_of_one(world: Path) -> None:
    assert "formula" not in command(world, "plan", "study.toml")
    assert "formula" not in json.loads(command(world, "plan", "study.toml", "--json"))


@pytest.mark.long
@pytest.mark.slow
def test_a_plan_shows_some_of_many_derived_columns_and_the_offset(world: Path) -> None:
    knots = ", ".join(str(k) for k in range(2, 40))
    words = f"old ~ bs(age, knots=[{knots}]) + offset(log(age + 1))"
    command(world, "new", "glm", "--formula", words, *CARD, "--epsilon", "1000", "--out", "f.toml")
    shown, _, lines = command(world, "plan", "f.toml").partition("the table to expect")
    assert "bs(age)[21]" in lines  # every line of the table is foretold
    told = json.loads(command(world, "plan", "f.toml", "--json").partition("\nwarning:")[0])["formula"]
    count = len(told["columns"])
    assert count > 30
    assert f"derived columns: {count}," in shown
    assert f"and {count - 20} more: --json has all of them" in shown
    assert "bs(age)[20]" in shown
    assert "bs(age)[21]" not in shown
    assert told["offset"]["sources"] == ["age"]
    assert "of age, without a coefficient" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("glm", "--formula", "age + height"), "height"),
        (("glm", "--formula", "log(age)"), "above 0"),
        (("glm", "--formula", "scale(age)"), "reads the mean"),
        (("glm", "--formula", "age +"), "formula"),
        (("glm", "--formula", "weight ~ age"), "no column 'weight'"),
        (("glm", "--formula", "Surv(age, old) ~ sex"), "takes no Surv"),
        (("bayes", "--formula", "sex + offset(age)"), "has no offset"),
        (("stacking", "--formula", "sex + offset(age)"), "has no offset"),
        (("lasso", "--formula", "age"), "takes no formula: leave --formula out, or choose one of bayes, glm"),
        (("pride", "--formula", "age"), "takes no formula"),
        (("describe", "--formula", "age"), "takes no formula"),
        (("link", "--formula", "age"), "fits no model"),
        (("bayes", "--formula", "age", "--calibration", "published"), "in the published form"),
        (("pride", "--formula", "age", "--fitted", "study.toml"), "leave --formula out"),
        (("prude", "--formula", "age"), "unknown model"),
    ],
)
def test_a_formula_that_means_nothing_is_refused_before_anything_is_written(
    words: tuple[str, ...], said: str, world: Path
) -> None:
    assert said in command(world, "new", *words, *CARD, "--out", "f.toml", code=2)
    assert not (world / "f.toml").exists()


@pytest.mark.parametrize(
    ("model", "lines", "said"),
    [
        ("bayes", 'covariance = "x"', "covariance is one of auto, model, robust, cluster"),
        ("bayes", "covariance = 3", "covariance"),
        ("bayes", 'covariance = "cluster"', "without ids nobody knows"),
        ("bayes", 'covariance = "robust"\nmethod = "moments"', "is of method 'refinement'"),
        ("bayes", 'focus = ["height"]', "focus names 'height'"),
        ("bayes", "focus = 3", "focus"),
        ("glm", 'family = "poisson"\ncovariance = "robust"\nmethod = "mean"', "is of method 'newton'"),
        ("glm", 'family = "poisson"\ndispersion = "x"', "dispersion must be a positive number or 'estimate', not 'x'"),
        ("glm", 'family = "poisson"\ndispersion = -1', "dispersion"),
        ("glm", 'family = "poisson"\ndispersion = true', "dispersion"),
    ],
)
def test_a_parameter_of_standard_errors_that_means_nothing_ends_a_plan_with_usage(
    model: str, lines: str, said: str, world: Path
) -> None:
    text = (world / "study.toml").read_text().replace('"describe"', f'"{model}"')
    text = text.replace("[[party]]", f'[parameters]\nresponse = "age"\n{lines}\n\n[[party]]', 1)
    (world / "wild.toml").write_text(text)
    for words in (
        ("plan", "wild.toml"),
        ("plan", "wild.toml", "--utility"),
        ("run", "wild.toml", *PARTIES, "--out", "wild.run"),
    ):
        assert said in command(world, *words, code=2)
    assert not (world / "wild.run").exists()


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        ("glm", 'family = "poisson"\ndispersion = 1.0\nmax_passes = 103'),
        ("glm", 'family = "poisson"\ndispersion = 1'),
        ("bayes", 'method = "refinement"\nmax_passes = 103'),
    ],
)
def test_a_study_with_the_parameters_of_an_earlier_build_is_planned(model: str, lines: str, world: Path) -> None:
    text = (world / "study.toml").read_text().replace('"describe"', f'"{model}"')
    text = text.replace("[[party]]", f'[parameters]\nresponse = "age"\n{lines}\n\n[[party]]', 1)
    (world / "earlier.toml").write_text(text)
    assert "epsilon = 1" in command(world, "plan", "earlier.toml")


@pytest.mark.guarantee
def test_a_formula_without_cards_is_read_all_the_same(world: Path) -> None:
    assert "written" in command(world, "new", "glm", "--formula", "anything * `at all`", "--out", "f.toml")
    assert "formula" in command(world, "new", "glm", "--formula", "anything *", "--out", "g.toml", code=2)
    assert command(world, "new", "glm", "--formula", "age", "--card", "nowhere.toml", "--out", "g.toml", code=2)
    assert not (world / "g.toml").exists()
