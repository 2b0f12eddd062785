"""From files with different people in different orders to a study of those whom all have: on disk, by commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from tests.commands import command

import unpooled
from unpooled.errors import DataError, PlanMismatch, PolicyRefusal, StudyError, UsageError
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import encode
from unpooled.study.files import read_study
from unpooled.study.link import linked_party
from unpooled.study.party import create_party, open_party
from unpooled.study.run import compile_study, run_study

pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")

COLUMNS = {"clinic": Column("age", 0.0, 100.0), "lab": Column("crp", 0.0, 300.0), "registry": Column("income", 0.0, 9.0)}
COMMON = [f"00{k}" for k in range(20)]
PRIVACY = "\n[privacy]\nepsilon = 5.0\ndelta = 1e-6\nunit = 'attribute'\n"


def files(folder: Path, common: list[str] = COMMON) -> None:
    """Three parties: the common people with values that follow from the id, and others, shuffled."""
    rng = np.random.default_rng(3)
    for k, (name, column) in enumerate(COLUMNS.items()):
        ids = rng.permutation([*common, *(f"9{k}{j}" for j in range(5 + k))])
        home = folder / name
        home.mkdir()
        values = [int(i) % 9 + 0.5 * k for i in ids]
        pl.DataFrame({"patient": ids.tolist(), column.name: values, "y": [float(int(i) % 7) for i in ids]}).write_csv(
            home / "data.csv"
        )
        create_party(home, name, home / "data.csv", (column,), Target(50.0, 1e-5), "patient", ("y",), new_budget=True)
        allow(home / "party.toml")
    (folder / "link.toml").write_text(f'[study]\nmodel = "link"\n{references("")}')


def allow(config: Path) -> None:
    config.write_text(config.read_text().replace('psi = "no"', 'psi = "intersection"'))


def references(below: str) -> str:
    return "".join(f'\n[[party]]\ncard = "{name}/{below}{name}.card.toml"\n' for name in COLUMNS)


def parties(folder: Path, below: str = "") -> list[str]:
    return [word for name in COLUMNS for word in ("--party", f"{name}/{below}party.toml")]


def approved(folder: Path, study: str, below: str = "") -> None:
    for name in COLUMNS:
        command(folder, "party", "check", study, "--config", f"{name}/{below}party.toml", "--approve")


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("linked")
    files(folder)
    approved(folder, "link.toml")
    said = command(folder, "link", "link.toml", *parties(folder))
    assert "20 people are at every party" in said
    assert "how many ids are held by exactly each combination" in said
    return folder


def ids_of(folder: Path) -> str:
    data: dict[str, Any] = msgspec.json.decode(command(folder, "link", "link.toml", *parties(folder), "--json"))
    return str(data["ids"])


def test_linked_parties_hold_the_same_people_in_one_order_and_all_else_as_before(linked: Path) -> None:
    held, tables = [], {}
    for name in COLUMNS:
        with open_party(linked / name / "linked" / "party.toml") as party:
            held.append(party.table.ids())
            tables[name] = party.table
            assert party.card.rows == 20
            assert party.ledger.guesses == {"clinic": 53, "lab": 52, "registry": 51}[name]
            party.table.verify()
    assert held[0] == held[1] == held[2]
    assert sorted(map(str, held[0])) == sorted(COMMON)
    for k, (name, column) in enumerate(COLUMNS.items()):
        assert tables[name][column.name].tolist() == [int(str(i)) % 9 + 0.5 * k for i in held[0]]
    said = command(linked, "party", "ledger", "--config", "clinic/party.toml")
    assert "could test 53 ids" in said


@pytest.mark.long
@pytest.mark.slow
def test_a_column_split_study_of_linked_rows_runs_and_names_its_row_map(linked: Path) -> None:
    study = linked / "pride.toml"
    study.write_text(
        f'[study]\nmodel = "pride"\nids = "{ids_of(linked)}"\n\n[parameters]\nresponse = "y"\nsketch_dim = 1\nalpha = 1.0\n'
        f"{PRIVACY}{references('linked/')}"
    )
    assert "by the row map" in command(linked, "plan", "pride.toml")
    approved(linked, "pride.toml", "linked/")
    command(linked, "run", "pride.toml", *parties(linked, "linked/"), "--force")
    assert (linked / "pride.run" / "result.json").is_file()
    assert "told every party, without noise, which of its ids" in (linked / "pride.run" / "statement.txt").read_text()


@pytest.mark.guarantee
def test_a_new_study_over_cards_of_linked_rows_takes_them_by_their_row_map(linked: Path) -> None:
    """Y5: without ``ids`` the study compared ids, and every party refused it."""
    cards = {name: linked / f"{name}/linked/{name}.card.toml" for name in COLUMNS}
    said = [word for card in cards.values() for word in ("--card", str(card))]
    command(linked, "new", "pride", *said, "--out", "of_linked.toml")
    assert read_study(linked / "of_linked.toml").ids == ids_of(linked)
    for card in [*cards.values()]:
        assert f'linked = "{ids_of(linked).removeprefix("psi:")}"' in card.read_text()
    # Rows that are split have no common row map, and a card of other rows is not of this one.
    command(linked, "new", "describe", *said[:2], "--out", "rows.toml")
    assert "for rows that are split use the card of the party's first file" in command(linked, "plan", "rows.toml", code=2)
    first = ("--card", str(linked / "clinic/clinic.card.toml"))
    command(linked, "new", "pride", *first, *said[2:], "--out", "mixed.toml")
    assert "not all linked by one study" in command(linked, "plan", "mixed.toml", code=2)
    damaged = linked / "damaged.card.toml"
    damaged.write_text(cards["lab"].read_text().replace('linked = "', 'linked = "0'))
    command(linked, "new", "pride", *said[:2], "--card", str(damaged), "--out", "damaged.toml")
    assert "64 hexadecimal digits" in command(linked, "plan", "damaged.toml", code=2)


@pytest.mark.guarantee
def test_new_rows_of_a_linked_party_are_not_those_of_its_row_map_and_who_only_sent_predicts_nothing(
    linked: Path, tmp_path: Path
) -> None:
    study, cards = linked / "sending.toml", []
    own = references("linked/").replace("registry/linked/registry.card.toml", "registry/linked/sending.card.toml")
    card = (linked / "registry/linked/registry.card.toml").read_text()
    (linked / "registry/linked/sending.card.toml").write_text(card.replace('labels = [\n    "y",\n]', "labels = []"))
    study.write_text(
        f'[study]\nmodel = "pride"\nids = "{ids_of(linked)}"\n\n[parameters]\nresponse = "y"\nsketch_dim = 1\n{PRIVACY}{own}'
    )
    for name, column in COLUMNS.items():
        fresh = tmp_path / f"{name}.csv"
        pl.DataFrame({"patient": ["n1", "n2", "n3"], column.name: [1.0, 2.0, 3.0]}).write_csv(fresh)
        words = ("--config", f"{name}/linked/party.toml", "--folder", str(tmp_path / name))
        command(linked, "party", "rows", str(fresh), *words)
        with open_party(tmp_path / name / "party.toml") as party:
            assert [str(one) for one in party.table.ids()] == ["n1", "n2", "n3"]
            assert party.table.linked == ""
        cards += ["--card", str(tmp_path / name / f"{name}.card.toml")]
    command(linked, "new", "pride", "--fitted", "sending.toml", *cards, "--out", str(tmp_path / "predict.toml"))
    asked = read_study(tmp_path / "predict.toml")
    assert asked.parameters["predicting"] == ["clinic", "lab"]
    assert asked.ids == "aligned"
    compile_study(asked)


@pytest.mark.slow
def test_a_run_that_linked_rows_can_be_looked_at_like_any_other(linked: Path) -> None:
    assert "20 people" in command(linked, "result", "link.run")
    command(linked, "report", "link.run")
    command(linked, "party", "show", "link.toml", "--config", "clinic/party.toml")
    command(linked, "doctor", "--study", "link.toml", "--config", "clinic/party.toml")
    planned = command(linked, "plan", "link.toml")
    assert "Linking rows has no epsilon" in planned
    warned = [line for line in planned.splitlines() if line.startswith("Warning: ")]
    assert len(set(warned)) == len(warned)
    assert not any("Linking rows has no epsilon" in line for line in warned)  # it is the headline
    assert "no claim to attack" in command(linked, "audit", "link.toml", code=2)


@pytest.mark.guarantee
def test_a_study_that_names_another_map_or_none_is_refused_by_parties_that_were_linked(linked: Path) -> None:
    text = f'[study]\nmodel = "pride"\nids = "{{ids}}"\n\n[parameters]\nresponse = "y"\nsketch_dim = 1\n{PRIVACY}{references("linked/")}'
    for ids in ("psi:" + "0" * 64, "unchecked", "aligned"):
        study = linked / "other.toml"
        study.write_text(text.format(ids=ids))
        asked = read_study(study)
        plan = compile_study(asked)
        with open_party(linked / "clinic" / "linked" / "party.toml") as party, pytest.raises(PlanMismatch, match="row map"):
            party.answer(encode(plan.hash, "open", 0, OpenRequest(asked)))
    with pytest.raises(StudyError, match="ids = "):
        study.write_text(text.format(ids="psi:12"))
        read_study(study)


@pytest.mark.guarantee
def test_a_changed_file_or_a_map_of_nobody_is_refused_in_words(tmp_path: Path) -> None:
    files(tmp_path, ["001"])
    approved(tmp_path, "link.toml")
    configs = [tmp_path / name / "party.toml" for name in COLUMNS]
    with pytest.raises(StudyError, match="run the study first"):
        linked_party(configs[0], tmp_path / "link.toml", tmp_path / "early")
    _, outcome = run_study(tmp_path / "link.toml", configs, tmp_path / "run")
    assert outcome.result.rows == 1
    with pytest.raises(DataError, match="1 people in common"):
        linked_party(configs[0], tmp_path / "link.toml", tmp_path / "linked")
    assert not (tmp_path / "linked" / "party.toml").exists()
    data = tmp_path / "clinic" / "data.csv"
    data.write_text(data.read_text() + "777,1.0,2.0\n")
    with pytest.raises(DataError, match="changed since their rows were linked"):
        linked_party(configs[0], tmp_path / "link.toml", tmp_path / "linked")


@pytest.mark.guarantee
def test_a_row_map_of_somebody_else_is_refused(linked: Path, tmp_path: Path) -> None:
    config = linked / "clinic" / "linked" / "party.toml"
    other = linked / "clinic" / "linked" / "other.toml"
    other.write_text(config.read_text().replace(ids_of(linked)[4:], "1" * 64))
    with pytest.raises(StudyError, match="keeps no row map"), open_party(other):
        pass
    with pytest.raises(StudyError, match="exists already"):
        linked_party(linked / "clinic" / "party.toml", linked / "link.toml", linked / "clinic" / "linked")


@pytest.mark.guarantee
def test_studies_and_policies_that_mean_something_else_are_refused(linked: Path, tmp_path: Path) -> None:
    study = linked / "wrong.toml"
    study.write_text(f'[study]\nmodel = "link"\n{PRIVACY}{references("")}')
    with pytest.raises(StudyError, match="membership is told exactly"):
        read_study(study)
    study.write_text(f'[study]\nmodel = "pride"\n{references("")}')
    with pytest.raises(StudyError, match=r"needs a \[privacy\] table"):
        read_study(study)
    files(tmp_path)
    config = tmp_path / "clinic" / "party.toml"
    allowed = config.read_text()
    for wrong in (
        'psi = "cardinality"',
        'psi = "no"\npsi_runs = 0',
        'psi = "no"\npsi_max_guesses = 0',
        'psi = "no"\nelsewhere = "doubted"',
    ):
        config.write_text(allowed.replace('psi = "intersection"', wrong))
        with pytest.raises(StudyError, match=r"psi is|elsewhere is"), open_party(config):
            pass
    config.write_text(allowed.replace('psi = "intersection"', 'psi = "no"'))
    with pytest.raises(PolicyRefusal, match="does not link rows"):
        run_study(tmp_path / "link.toml", [tmp_path / name / "party.toml" for name in COLUMNS], tmp_path / "run")


def test_the_template_of_a_study_that_links_rows_is_one(linked: Path) -> None:
    cards = [word for name in COLUMNS for word in ("--card", f"{name}/{name}.card.toml")]
    command(linked, "new", "link", *cards, "--out", "template_of_linked.toml")
    assert compile_study(read_study(linked / "template_of_linked.toml")).links


# --- the policy is that of the ledger ------------------------------------------------------------------------------------------------


def fresh(folder: Path, **policy: str) -> Path:
    """Return three parties whose rows are linked, of which the clinic's policy says more than the default one."""
    files(folder)
    clinic = folder / "clinic" / "party.toml"
    text = clinic.read_text().replace("# models = [", "models = [").replace('["describe", "glm"]', '["describe", "pride"]')
    for key, said in policy.items():
        text = "\n".join(f"{key} = {said}" if line.startswith(f"{key} = ") else line for line in text.splitlines()) + "\n"
    clinic.write_text(text)
    approved(folder, "link.toml")
    command(folder, "link", "link.toml", *parties(folder))
    return folder


def asking(folder: Path, model: str, name: str, more: str = "sketch_dim = 1\nalpha = 1.0\n") -> str:
    """Write a study of the linked rows, and return its name."""
    (folder / name).write_text(
        f'[study]\nmodel = "{model}"\n\n[parameters]\nresponse = "y"\n{more}{PRIVACY}{references("linked/")}'
    )
    return name


@pytest.mark.guarantee
def test_a_study_that_a_policy_refuses_is_refused_over_linked_rows(tmp_path: Path) -> None:
    """P11: the linked party file had a default policy of its own, which ran every model."""
    folder = fresh(tmp_path)
    at = ("--config", "clinic/linked/party.toml")
    allowed, refused = asking(folder, "pride", "pride.toml"), asking(folder, "stacking", "stacking.toml", "")
    said = command(folder, "party", "check", allowed, *at, "--approve")
    assert "Approved" in said
    assert "not run yet" not in said  # P17: the link has run, although it debited nothing
    said = command(folder, "party", "check", refused, *at, "--approve", code=3)
    assert "does not list model 'stacking'" in said
    with open_party(folder / "clinic" / "party.toml") as own, open_party(folder / "clinic/linked/party.toml") as party:
        assert party.policy == own.policy
        assert party.policy.models == {"describe", "pride"}
        assert party.policy.psi == "intersection"
        assert own.ledger.head == party.ledger.head


@pytest.mark.slow
def test_what_an_officer_changes_or_stops_holds_over_linked_rows_and_new_ones(tmp_path: Path) -> None:
    """The policy is read where it stands, each time: linked files hold no copy that would stay as it was."""
    folder = fresh(tmp_path)
    study, first = asking(folder, "pride", "pride.toml"), folder / "clinic" / "party.toml"
    new = tmp_path / "new.csv"
    pl.DataFrame({"patient": ["n1", "n2", "n3"], "age": [1.0, 2.0, 3.0]}).write_csv(new)
    command(folder, "party", "rows", str(new), "--config", "clinic/linked/party.toml", "--folder", "clinic/rows")
    configs = [folder / "clinic" / below / "party.toml" for below in ("linked", "rows")]
    approved(folder, study, "linked/")
    command(folder, "party", "withdraw", study, "--config", "clinic/party.toml")
    said = command(folder, "run", study, *parties(folder, "linked/"), "--force", code=3)
    assert "is not approved here (party 'clinic')" in said
    assert not (folder / "pride.run" / "result.json").exists()
    for before, after in (
        ('joint = "no"', 'joint = "trusting"'),
        ("epsilon = 50.0", "epsilon = 2.0"),
        ("trust = []", 'trust = ["trusted"]'),
    ):
        first.write_text(first.read_text().replace(before, after))
        for config in configs:
            with open_party(first) as own, open_party(config) as party:
                assert party.policy == own.policy


@pytest.mark.guarantee
def test_the_papers_of_a_link_name_its_members_and_no_number_that_is_released(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    configs = [word for name in COLUMNS for word in ("--config", f"{name}/party.toml")]
    command(folder, "dossier", "link.toml", *configs, "--run", "link.run", "--out", "papers")
    text = (folder / "papers" / "dossier.md").read_text()
    assert '<section class="verdict none">' in (folder / "papers" / "dossier.html").read_text()
    assert "No name and no id leaves it in clear" in text
    assert "are released, in all steps" not in text
    assert "Your data stay where they are now" not in text
    receive = text.partition("### Who receives it")[2].partition("## ")[0]
    assert all(name in receive for name in COLUMNS)
    assert "Rows may be linked with other organisations." in text  # the policy is that of each party
    assert "Accepted models: describe and pride." in text


@pytest.mark.guarantee
def test_a_linked_file_with_a_policy_of_its_own_is_refused_by_name(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    config = folder / "clinic" / "linked" / "party.toml"
    text = config.read_text()
    assert "[policy]" not in text
    own = "\n[policy]\nepsilon = 50.0\ndelta = 1e-5\n"
    for wrong, words in (
        (text + own, r"\[policy\].*belongs to its ledger.*delete \[policy\]"),
        (text.replace('policy_of = "../party.toml"\n', "") + own, r"\[policy\].*policy_of"),
        (text.replace('policy_of = "../party.toml"\n', ""), r"neither \[policy\] nor policy_of"),
        (text.replace('"../party.toml"', '"party.toml"'), "names itself"),
        (text.replace('"../party.toml"', '"../../lab/party.toml"'), "another ledger"),
        (text.replace('"../party.toml"', '"../gone.toml"'), "gone.toml"),
    ):
        config.write_text(wrong)
        with pytest.raises(StudyError, match=words), open_party(config):
            pass
    config.write_text(text)
    with open_party(config):
        pass


@pytest.mark.slow
def test_linking_again_overwrites_nothing_and_says_what_it_wrote(tmp_path: Path) -> None:
    """P11, U13: the second year's linking said that it wrote the files of the first."""
    folder = fresh(tmp_path)
    for name in COLUMNS:
        config = folder / name / "party.toml"
        config.write_text(config.read_text() + "psi_runs = 3\n")
    files_there = {path: path.read_bytes() for path in sorted(folder.glob("*/linked/*"))}
    said = command(folder, "link", "link.toml", *parties(folder))
    assert said.count("were there already") == 3
    assert "wrote" not in said
    # The data of the next year: the same study would hand out the rows of the old data.
    for name in COLUMNS:
        data = folder / name / "data.csv"
        lines = data.read_text().splitlines()
        data.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    said = command(folder, "link", "link.toml", *parties(folder), code=2)
    assert "run = 2" in said
    assert "psi_runs" in said
    (folder / "link.toml").write_text((folder / "link.toml").read_text().replace('"link"\n', '"link"\nrun = 2\n'))
    command(folder, "party", "check", "link.toml", "--config", "clinic/party.toml")
    approved(folder, "link.toml")
    said = command(folder, "link", "link.toml", *parties(folder), "--out", "second.run", "--folder", "linked", code=2)
    assert "holds the rows of another linking" in said
    assert not (folder / "second.run").exists()
    said = command(folder, "link", "link.toml", *parties(folder), "--out", "second.run")
    assert said.count("linked-2/party.toml") == 3
    assert said.count("wrote") == 3
    assert {path: path.read_bytes() for path in sorted(folder.glob("*/linked/*"))} == files_there
    with open_party(folder / "clinic" / "linked-2" / "party.toml") as party:
        assert party.card.rows == 20


@pytest.mark.slow
def test_linking_that_died_between_two_files_is_finished_by_the_same_command(tmp_path: Path) -> None:
    """The card is there before the party file is, so a folder with a party file is a whole one."""
    folder = fresh(tmp_path)
    config, card = (folder / "clinic" / "linked" / name for name in ("party.toml", "clinic.card.toml"))
    text = config.read_bytes(), card.read_bytes()
    config.unlink()
    assert "wrote clinic/linked/party.toml" in command(folder, "link", "link.toml", *parties(folder))
    assert (config.read_bytes(), card.read_bytes()) == text
    config.unlink()
    card.write_text("another card\n")
    assert "exists already" in command(folder, "link", "link.toml", *parties(folder), code=2)
    assert card.read_text() == "another card\n"
    assert sorted(path.name for path in config.parent.iterdir()) == [card.name]


# --- in Python ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_frames_come_out_with_the_same_people_in_the_same_order() -> None:
    ids = [10**17 + k for k in range(6)]
    one = pl.DataFrame({"id": ids, "a": list(range(6))})
    found = unpooled.link({"one": one, "two": {"id": ids[::-1][:4], "b": [5.0, 4.0, 3.0, 2.0]}}, on="id")
    assert isinstance(found["one"], pl.DataFrame)
    assert found["one"]["a"].to_list() == found["two"]["b"].tolist()
    assert sorted(found["one"]["a"].to_list()) == [2, 3, 4, 5]


def test_frames_of_pandas_stay_such() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ["x", "y", "z"], "c": ["2", "3", "4"]})
    found = unpooled.link({"one": frame, "two": {"id": ["z", "x"], "d": [4, 2]}}, on="id")
    assert isinstance(found["one"], pandas.DataFrame)
    assert [int(c) for c in found["one"]["c"]] == found["two"]["d"].tolist()


@pytest.mark.guarantee
def test_several_keys_and_what_is_no_key() -> None:
    frames = {"one": {"id": ["1", "2"], "name": ["Robert", "Anna"]}, "two": {"id": ["2", "7"], "name": ["Eve", "Rupert"]}}
    keys = ["id", {"name": "sound", "columns": ["name"], "normalise": ["soundex"]}]
    found = unpooled.link(frames, on=keys)
    assert found["one"]["name"].tolist() == ["Anna", "Robert"]
    assert found["two"]["name"].tolist() == ["Eve", "Rupert"]
    with pytest.raises(UsageError, match="A key is a column"):
        unpooled.link(frames, on=[{"column": "id"}])
    with pytest.raises(UsageError, match="no column 'other'"):
        unpooled.link(frames, on="other")
    with pytest.raises(DataError, match="before in row 2"):
        unpooled.link({"one": {"id": [1, 1]}, "two": {"id": [1, 2]}}, on="id")
    with pytest.raises(DataError, match="malformed"):
        unpooled.link({"one": {"id": [1e17, 1.0]}, "two": {"id": [1, 2]}}, on="id")


@pytest.mark.slow
def test_the_command_that_links_says_what_it_needs(linked: Path) -> None:
    assert "say where the parties are" in command(linked, "link", "link.toml", code=2)
    (linked / "other-model.toml").write_text(
        f'[study]\nmodel = "pride"\n\n[parameters]\nresponse = "y"\nsketch_dim = 1\n{PRIVACY}{references("linked/")}'
    )
    assert "`unpooled run` runs it" in command(linked, "link", "other-model.toml", *parties(linked), code=2)
    command(linked, "link", "link.toml", "--config", "clinic/party.toml", "--folder", "again")
    assert (linked / "clinic" / "again" / "clinic.card.toml").read_text() == (
        linked / "clinic" / "linked" / "clinic.card.toml"
    ).read_text()
