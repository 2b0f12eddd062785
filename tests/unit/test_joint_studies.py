"""Studies of joint moments as files: helpers, cards, policies, and the commands that two parties and a helper run."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import command as run_command

import unpooled
from unpooled.errors import StudyError, UsageError
from unpooled.privacy.plan import HelperCard
from unpooled.study.files import is_helper, ledger_of, read_card, read_helper, read_party, read_study
from unpooled.study.party import create_helper, open_party

STUDY = """\
[study]
model = "bayes"
[privacy]
epsilon = {epsilon}
[parameters]
response = "y"
split = "columns"
method = "{method}"
[trust]
helpers = {helpers}
"""


def command(*words: str, code: int = 0) -> str:
    """Run the command in the folder that the test is in."""
    return run_command(Path(), *words, code=code)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two parties and a helper on disk, whose policies let masked rows travel, and their study."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 1500
    a, b = rng.uniform(-1, 1, (2, n))
    ids = [f"p{k}" for k in range(n)]
    pl.DataFrame({"id": ids, "a": a, "g": rng.choice(["u", "v"], n)}).write_csv("east.csv")
    pl.DataFrame({"id": ids, "b": b, "y": (a + b + 0.3 * rng.normal(size=n)).clip(-4, 4)}).write_csv("west.csv")
    command(
        "party",
        "init",
        "east.csv",
        "--name",
        "east",
        "--folder",
        "east",
        "--id",
        "id",
        "--column",
        "a=-1:1",
        "--column",
        "g=u,v",
        "--epsilon",
        "20",
    )
    command(
        "party",
        "init",
        "west.csv",
        "--name",
        "west",
        "--folder",
        "west",
        "--id",
        "id",
        "--column",
        "b=-1:1",
        "--column",
        "y=-4:4",
        "--epsilon",
        "20",
    )
    command("party", "init", "--helper", "registry", "--folder", "registry", "--contact", "ask the registry")
    for name in ("east", "west"):
        config = Path(name, "party.toml")
        assert 'joint = "no"' in config.read_text()
        config.write_text(config.read_text().replace('joint = "no"', 'joint = "allowed"'))
        command("party", "card", "--config", str(config))
    write(tmp_path)
    return tmp_path


def write(folder: Path, helpers: str = '["registry"]', *names: str, epsilon: float = 10.0, method: str = "moments") -> None:
    """Write the study."""
    cards = names or ("east", "west", "registry")
    parties = "".join(f'[[party]]\ncard = "{name}/{name}.card.toml"\n' for name in cards)
    (folder / "study.toml").write_text(STUDY.format(helpers=helpers, epsilon=epsilon, method=method) + parties)


PARTIES = ("--party", "east/party.toml", "--party", "west/party.toml", "--party", "registry/party.toml")


@pytest.mark.long
@pytest.mark.slow
def test_two_parties_and_a_helper_plan_approve_run_and_read(folder: Path) -> None:
    plan = command("plan", "study.toml")
    assert "registry for east and west" in plan
    assert "NOT against registry together with a party" in plan
    for name in ("east", "west"):
        said = command("party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
        assert "after this plan epsilon = 10" in said
    helped = command("party", "check", "study.toml", "--config", "registry/party.toml", "--json")
    assert json.loads(helped)["spent_epsilon"] == 0
    assert "is not approved here (helper 'registry')" in command("run", "study.toml", *PARTIES, code=3)
    assert "nothing is debited here" in command(
        "party", "check", "study.toml", "--config", "registry/party.toml", "--approve"
    )
    table = command("run", "study.toml", *PARTIES, "--out", "out")
    assert "waits for all of east, west, registry" in table
    for term in ("a ", "b ", "g: v - u", "columns of east, west"):
        assert term in table
    assert "robust" not in table
    assert "a " in command("result", "out")
    assert "epsilon = 10" in command("party", "ledger", "--config", "east/party.toml")
    assert (folder / "out" / "transcript").is_file()
    assert command("run", "study.toml", *PARTIES, "--out", "out")  # from its transcript
    assert "a" in command("contrast", "out", "a")
    pl.DataFrame({"a": [0.1, 0.3], "g": ["u", "v"], "b": [0.2, 0.4]}).write_csv("new.csv")
    assert command("predict", "out", "--data", "new.csv")
    command("party", "withdraw", "study.toml", "--config", "registry/party.toml")
    assert "is not approved here" in command("run", "study.toml", *PARTIES, "--out", "again", code=3)


@pytest.mark.long
@pytest.mark.slow
def test_rows_with_gaps_are_left_out_and_the_result_says_of_how_many(folder: Path) -> None:
    """The rule stands in one party's file; the other party's gaps are none, and nothing of either list leaves it."""
    rng = np.random.default_rng(1)
    east = pl.read_csv("east.csv")
    gone = {name: pl.Series(rng.random(1500) < 0.2) for name in ("a", "g")}
    east.with_columns(pl.when(~gone[name]).then(pl.col(name)).alias(name) for name in gone).write_csv("east.csv")
    config = Path("east/party.toml")
    text = config.read_text()
    for name in gone:
        assert f'name = "{name}"' in text
        text = text.replace(f'name = "{name}"', f'name = "{name}"\nmissing = "complete"')
    config.write_text(text)
    command("party", "card", "--config", str(config))
    Path("study.toml").write_text(Path("study.toml").read_text().replace("[trust]", "expected_missing = 0.36\n[trust]"))
    for name in ("east", "west", "registry"):
        plan = command("party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    assert "nobody learns whose row has a gap" in plan
    assert "how many rows are whole at east alone" in plan
    assert "rounds and clips are those of 36% left out" in plan
    command("run", "study.toml", *PARTIES, "--out", "out", "--force")
    found = json.loads(command("result", "out", "--json"))
    whole = int((~(gone["a"] | gone["g"])).sum())
    said = re.search(
        r"([\d,]+) \+- \d+ of 1,500 rows had a value of a, g; the others are left out",
        json.dumps(found).replace(" and ", ", "),
    )
    assert said
    assert abs(int(said[1].replace(",", "")) - whole) < 20
    line = next(term for term in found["terms"] if term["term"] == "a")
    assert abs(line["estimate"] - 1) < 5 * line["std_error"]


@pytest.mark.long
@pytest.mark.slow
def test_a_small_study_of_two_parties_goes_by_sines_unless_it_asks_for_a_table(folder: Path) -> None:
    write(folder, method="auto", epsilon=3.0)
    plan = command("plan", "study.toml")
    assert "method sines: 30 rounds of gradients of 4 columns of east, west" in plan
    assert "joint x 30" in plan
    for name in ("east", "west", "registry"):
        command("party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    table = command("run", "study.toml", *PARTIES, "--out", "out")
    assert "method 'sines' gives predictions without standard errors; 'moments' gives them" in table
    assert "columns of east, west" in table
    assert "epsilon = 3" in command("party", "ledger", "--config", "east/party.toml")
    pl.DataFrame({"a": [0.1, 0.3], "g": ["u", "v"], "b": [0.2, 0.4]}).write_csv("new.csv")
    assert command("predict", "out", "--data", "new.csv")
    assert "released no standard errors" in command("contrast", "out", "g: v - u", code=2)
    write(folder, method="sines", epsilon=3.0)
    assert "method sines" in command("plan", "study.toml")
    write(folder, method="secants")
    assert "method is one of auto, moments, sines" in command("plan", "study.toml", code=2)


@pytest.mark.guarantee
def test_a_party_that_says_no_is_named_when_the_plan_is_made(folder: Path) -> None:
    config = folder / "east" / "party.toml"
    config.write_text(config.read_text().replace('joint = "allowed"', 'joint = "no"'))
    command("party", "card", "--config", "east/party.toml")
    said = command("plan", "study.toml", code=2)
    assert "party 'east' does not let masked rows travel" in said
    assert 'joint = "allowed" under [policy]' in said
    assert "pride" in said
    # What it is expected to give instead, at the party that has the response, next to that party's own columns.
    found = re.search(r"variance of y ([\d.]+) at 'west', whose own columns alone give ([\d.]+)", said)
    assert found is not None
    assert 0 < float(found[1]) <= 1.5 * float(found[2])
    config.write_text(config.read_text().replace('joint = "no"', 'joint = "perhaps"'))
    assert 'joint is "no"' in command("party", "card", "--config", "east/party.toml", code=2)


@pytest.mark.slow
def test_trust_names_the_helpers_whose_cards_the_study_has(folder: Path) -> None:
    for helpers, names in (('["other"]', ()), ("[]", ()), ('["registry"]', ("east", "west"))):
        write(folder, helpers, *names)
        with pytest.raises(StudyError, match="helpers is the list of the helpers"):
            read_study(folder / "study.toml")
    write(folder, '"registry"')
    with pytest.raises(StudyError, match="helpers is the list"):
        read_study(folder / "study.toml")
    write(folder)
    study = read_study(folder / "study.toml")
    assert [card.name for card in study.helpers] == ["registry"]
    assert study.ids == "aligned"  # of the parties: a helper has no ids
    assert study.delta == min(1e-5, 0.1 / 1500)


@pytest.mark.slow
def test_a_new_study_with_a_helper_is_one_of_columns(folder: Path) -> None:
    cards = [word for name in ("east", "west", "registry") for word in ("--card", f"{name}/{name}.card.toml")]
    command("new", "bayes", *cards, "--out", "new.toml")
    text = (folder / "new.toml").read_text()
    assert 'split = "columns"' in text
    assert 'helpers = ["registry"]' in text
    assert "columns of the same people" in text
    assert 'goal is "table", and with so few rows' in command("plan", "new.toml", code=2)
    (folder / "new.toml").write_text(text.replace('goal = "table"', 'goal = "auto"'))
    assert "registry for east and west" in command("plan", "new.toml")
    assert "goes without helpers" in command("new", "pls", *cards, "--out", "other.toml", code=2)


@pytest.mark.guarantee
def test_a_helper_is_made_once(tmp_path: Path) -> None:
    config, card = create_helper(tmp_path, "registry")
    before = config.read_bytes(), card.read_bytes()
    with pytest.raises(StudyError, match="exists already"):
        create_helper(tmp_path, "registry")
    assert (config.read_bytes(), card.read_bytes()) == before


@pytest.mark.long
@pytest.mark.slow
def test_the_files_of_a_helper(folder: Path) -> None:
    config = folder / "registry" / "party.toml"
    assert is_helper(config)
    assert not is_helper(folder / "east" / "party.toml")
    assert not is_helper(folder / "nowhere.toml")
    card = read_card(folder / "registry" / "registry.card.toml")
    assert isinstance(card, HelperCard)
    assert card.contact == "ask the registry"
    assert ledger_of(config) == folder / "registry" / "registry.ledger"
    with open_party(config) as helper:
        assert helper.card == card
        assert helper.table.n_rows == 0
        assert helper.table.names == ()
    with pytest.raises(StudyError, match="helper"):
        read_party(config)
    with pytest.raises(UsageError, match="name of a party"):
        create_helper(folder / "two", "a/b")
    assert "give --helper NAME alone" in command("party", "init", "east.csv", "--helper", "x", code=2)
    text = config.read_text()
    for wrong, words in (
        (text.replace('approval = "ask"', 'approval = "always"'), "approval must be"),
        (text.replace('approval = "ask"', 'approval = ["12"]'), "not a plan hash"),
        (text.replace('approval = "ask"', "epsilon = 1.0"), "unknown field"),
        (text + 'models = ["no such model"]\n', "models lists"),
    ):
        config.write_text(wrong)
        with pytest.raises((StudyError, UsageError), match=words):
            read_helper(config)
    config.write_text(text + 'models = ["describe"]\n')
    command("party", "check", "study.toml", "--config", "registry/party.toml", code=3)
    config.write_text(text.replace('approval = "ask"', f'approval = ["{"ab" * 32}"]'))
    assert read_helper(config).policy.approval == ("ab" * 32,)


def test_a_seed_draws_the_same_joint_release_again_and_no_seed_another() -> None:
    rng = np.random.default_rng(0)
    X = {"a": rng.uniform(-1, 1, 2000), "b": rng.uniform(-1, 1, 2000)}
    X["y"] = X["a"] - X["b"] + rng.normal(0, 0.3, 2000)

    def gram(seed: int | None) -> bytes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = unpooled.PrivateLinearRegression(
                parties={"east": ["a"], "west": ["b"]},
                response_at="west",
                bounds=(-1, 1),
                y_bounds=(-3, 3),
                method="moments",
                epsilon=20.0,
                random_state=seed,
            ).fit(pl.DataFrame(X), "y")
        return model.moments_.gram.tobytes()

    assert gram(1) == gram(1)
    assert len({gram(1), gram(2), gram(None), gram(None)}) == 4
