"""Hidden links of files, by commands: from data to a folder that names places, and what each person reads on the way."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.commands import command
from tests.hidden_world import plant_few

from unpooled.errors import DataError, PlanMismatch, StudyError, UsageError
from unpooled.linkage.hidden.places import places_of
from unpooled.privacy.plan import Card
from unpooled.privacy.study import HIDDEN
from unpooled.privacy.table import PlacedTable
from unpooled.study.files import read_card, read_study
from unpooled.study.link import map_of
from unpooled.study.party import keeper_of, open_party
from unpooled.study.run import compile_study

pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")
pytestmark = pytest.mark.guarantee

NAMES = ("clinic", "lab", "matcher")


def listed(numbers: range, *more: str) -> str:
    return "".join(f"{word}\n" for word in ("patient,age", *(f"c{k},{20 + k % 60}" for k in numbers), *more))


def set_up(folder: Path) -> Path:
    """Two parties with files of other people, and a helper; their study."""
    for name, rows in (("clinic", listed(range(30), ",44")), ("lab", listed(range(20, 60)))):
        (folder / name).mkdir()
        (folder / name / "data.csv").write_text(rows)
        words = ("--id", "patient", "--column", "age=0:100", "--epsilon", "5", "--new-budget", "--folder", name)
        command(folder, "party", "init", f"{name}/data.csv", "--name", name, "--cap", "80", *words)
        config = folder / name / "party.toml"
        config.write_text(config.read_text().replace('psi = "no"', 'psi = "hidden"'))
    command(folder, "party", "init", "--helper", "matcher", "--folder", "matcher")
    cards = [word for name in NAMES for word in ("--card", f"{name}/{name}.card.toml")]
    command(folder, "new", "link", "--hidden", *cards, "--epsilon", "2", "--out", "link.toml")
    return folder / "link.toml"


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hidden")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "XDG_STATE_HOME", str(folder / "state")
        )  # a list of ledgers of its own: it is set up before the tests' own is
        plant_few(patch)
        set_up(folder)
        said = command(folder, "plan", "link.toml")
        for words in ("cap 80, a list of", "of pseudonyms, which it deletes", "sizes of cells", "epsilon = 2"):
            assert words in said
        for name in NAMES:
            said = command(folder, "party", "check", "link.toml", "--config", f"{name}/party.toml", "--approve")
            assert ("matches pseudonyms" in said) is (name == "matcher")
        said = command(folder, "link", "link.toml", *everybody())
        assert "nobody learned who is in common" in said
        assert "clinic/linked/party.toml" in said
        assert "matcher/linked" not in said
    return folder


def everybody() -> list[str]:
    return [word for name in NAMES for word in ("--party", f"{name}/party.toml")]


@pytest.fixture(autouse=True)
def _few_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_few(monkeypatch)


def test_a_card_with_a_cap_tells_no_number_of_rows(linked: Path) -> None:
    for name in NAMES[:2]:
        card = read_card(linked / f"{name}/{name}.card.toml")
        assert isinstance(card, Card)
        assert (card.rows, card.capped, card.size) == (80, True, "at most 80")
        assert "number of rows" not in (linked / f"{name}/{name}.card.toml").read_text()
        with open_party(linked / name / "party.toml") as party:
            assert party.table.n_rows != 80


def test_linked_files_name_the_places_and_hold_all_rows(linked: Path) -> None:
    plan = compile_study(read_study(linked / "link.toml"))
    found = {}
    for name, other in (("clinic", "lab"), ("lab", "clinic")):
        config = linked / name / "party.toml"
        places = places_of(keeper_of(config), map_of(config, plan))[other]
        with open_party(linked / name / "linked" / "party.toml") as party:
            assert party.declared.linked == places.name
            assert party.declared.capped
            assert isinstance(party.table, PlacedTable)
            assert (party.table.n_rows, party.declared.rows) == (places.total, places.total)
            found[name] = {one: int(at) for one, at in zip(party.table.ids(), party.table.at, strict=True)}
    common = {f"c{k}" for k in range(20, 30)}
    assert {one for one, at in found["clinic"].items() if found["lab"].get(one) == at} == common
    assert len({*found["clinic"].values()} & {*found["lab"].values()}) == 10
    again = msgspec.json.decode(command(linked, "link", "link.toml", *everybody(), "--json"))
    assert again["ids"] == f"{HIDDEN}{map_of(linked / 'lab/party.toml', plan)}"
    said = command(linked, "link", "link.toml", "--config", "clinic/party.toml")
    assert "were there already" in said
    assert "a helper has no rows" in command(linked, "link", "link.toml", "--config", "matcher/party.toml", code=2)


def test_ledgers_and_papers_say_what_it_was(linked: Path) -> None:
    said = command(linked, "party", "ledger", "--config", "clinic/party.toml")
    assert "spent: epsilon = 2 of 5" in said
    assert f"could test {compile_study(read_study(linked / 'link.toml')).design.length('lab')} ids" in said
    assert "nothing published to attack" in command(linked, "audit", "link.toml", code=2)
    assert "nothing to preview" in command(linked, "plan", "link.toml", "--preview", code=2)
    assert "written" in command(linked, "report", "link.run")
    page = (linked / "link.run/report.html").read_text()
    assert "c25" not in page
    command(linked, "dossier", "link.toml", "--out", "papers")
    text = (linked / "papers/dossier.md").read_text()
    for words in (
        "No place learns who is on the list of another place",
        "it sees pseudonyms",
        "matches pseudonyms",
        "Are linked pseudonyms personal data",
    ):
        assert words in text
    assert "told exactly" not in text
    said = command(linked, "doctor", "--study", "link.toml", "--config", "clinic/party.toml")
    assert "clinic (at most 80 rows)" in said


def test_models_that_know_no_places_refuse_the_cards(linked: Path) -> None:
    cards = [word for name in NAMES[:2] for word in ("--card", f"{name}/linked/{name}.card.toml")]
    command(linked, "new", "pride", *cards, "--out", "pride.toml")
    assert "one of a hidden link" in command(linked, "plan", "pride.toml", code=2)
    first = [word for name in NAMES[:2] for word in ("--card", f"{name}/{name}.card.toml")]
    command(linked, "new", "describe", *first, "--out", "describe.toml")
    assert "one of a hidden link" in command(linked, "plan", "describe.toml", code=2)
    command(linked, "new", "link", *first, "--out", "open.toml")
    assert "no cards with a cap" in command(linked, "plan", "open.toml", code=2)
    text = (linked / "pride.toml").read_text()
    (linked / "named.toml").write_text(text.replace('model = "pride"', f'model = "pride"\nids = "{HIDDEN}{"0" * 64}"'))
    with pytest.raises(UsageError, match="one of a hidden link"):
        compile_study(read_study(linked / "named.toml"))
    (linked / "mixed.toml").write_text(text.replace("lab/linked/lab.card.toml", "lab/lab.card.toml"))
    with pytest.raises(StudyError, match="not all linked by one study"):
        read_study(linked / "mixed.toml")


def test_what_a_study_of_files_lacks_is_said_by_name(linked: Path) -> None:
    text = (linked / "link.toml").read_text()
    wrong = {
        "needs a .privacy. table": text[: text.index("[privacy]")] + text[text.index("[trust]") :],
        "has no helper": text.replace('helpers = ["matcher"]', "").replace(
            '[[party]]\ncard = "matcher/matcher.card.toml"', ""
        ),
        'unless reveal = "nothing"': text.replace('reveal = "nothing"', 'reveal = "all"'),
    }
    for match, changed in wrong.items():
        (linked / "wrong.toml").write_text(changed)
        with pytest.raises((StudyError, UsageError), match=match):
            compile_study(read_study(linked / "wrong.toml"))
    said = command(linked, "new", "link", "--hidden", "--card", "clinic/clinic.card.toml", "--out", "w.toml", code=2)
    assert "has one helper" in said
    said = command(linked, "new", "pride", "--hidden", "--out", "w.toml", code=2)
    assert "--hidden is for a study that links rows" in said
    command(linked, "new", "link", "--hidden", "--out", "bare.toml")
    assert "helper.card.toml" in (linked / "bare.toml").read_text()
    assert "epsilon = 0.1" in (linked / "bare.toml").read_text()
    study = read_study(linked / "link.toml")
    assert study.delta == min(1e-5, 0.1 / 160)


def test_more_rows_than_the_cap_changed_data_and_other_places_are_refused(tmp_path: Path) -> None:
    study = set_up(tmp_path)
    config, data = tmp_path / "clinic/party.toml", tmp_path / "clinic/data.csv"
    whole, rows = config.read_text(), data.read_text()
    config.write_text(whole.replace("cap = 80", "cap = 20"))
    with pytest.raises(StudyError, match="raise it"), open_party(config):
        pass
    config.write_text(whole)
    for name in NAMES:
        command(tmp_path, "party", "check", "link.toml", "--config", f"{name}/party.toml", "--approve")
    command(tmp_path, "link", "link.toml", *everybody())
    own = tmp_path / "clinic/linked/party.toml"
    data.write_text(rows + "c99,30\n")  # a number of rows that the cap allows: the card is the same, the data are others
    with pytest.raises(DataError, match="changed since a hidden link"), open_party(own):
        pass
    assert "run = 2" in command(tmp_path, "link", "link.toml", *everybody(), code=2)
    data.write_text(rows)
    text = own.read_text()
    own.write_text(text.replace('linked = "hidden:', 'linked = "hidden:0'))
    with pytest.raises((StudyError, UsageError), match="keeps no places"), open_party(own):
        pass
    own.write_text(text.replace("cap = 80\n", ""))
    with pytest.raises(UsageError, match="places of a hidden link go with a cap"), open_party(own):
        pass
    # Another plan over the same cards, in which this party has another cap, is not of the card that it published.
    card = tmp_path / "clinic/clinic.card.toml"
    card.write_text(card.read_text().replace("rows = 80", "rows = 90"))
    asked = read_study(study)
    with open_party(config) as party, pytest.raises(PlanMismatch, match="not the one this party published"):
        party.consider(compile_study(asked), approved=True)


# --- a study of hidden people --------------------------------------------------------------------------------------------------


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """A clinic and a registry that were linked hidden, whose policies let masked rows travel, with their study of odds."""
    rng = np.random.default_rng(3)
    age, dose = rng.uniform(20, 90, 500).round(1), rng.uniform(0, 4, 500).round(2)
    dead = np.where((age - 55) / 20 + rng.logistic(size=500) > 0.5, "yes", "no")
    for name, rows, header, values in (
        ("clinic", rng.permutation(500)[:420], "patient,age", age),
        ("registry", rng.permutation(500)[:450], "patient,dose,dead", list(zip(dose.tolist(), dead.tolist(), strict=True))),
    ):
        lines = [f"c{k},{values[k] if name == 'clinic' else ','.join(map(str, values[k]))}" for k in rows.tolist()]
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.csv").write_text("\n".join([header, *lines]) + "\n")
        declared = ("age=0:100",) if name == "clinic" else ("dose=0:4", "dead=no,yes")
        words = [word for column in declared for word in ("--column", column)]
        command(
            tmp_path,
            "party",
            "init",
            f"{name}/data.csv",
            "--name",
            name,
            "--cap",
            "460",
            "--id",
            "patient",
            *words,
            "--epsilon",
            "9",
            "--folder",
            name,
        )
        config = tmp_path / name / "party.toml"
        config.write_text(
            config.read_text().replace('psi = "no"', 'psi = "hidden"').replace('joint = "no"', 'joint = "allowed"')
        )
        command(tmp_path, "party", "card", "--config", f"{name}/party.toml")
    command(tmp_path, "party", "init", "--helper", "trust", "--folder", "trust")
    cards = [word for name in ("registry", "clinic", "trust") for word in ("--card", f"{name}/{name}.card.toml")]
    command(tmp_path, "new", "link", "--hidden", *cards, "--epsilon", "2", "--out", "link.toml")
    people = [word for name in ("clinic", "registry", "trust") for word in ("--party", f"{name}/party.toml")]
    for name in ("clinic", "registry", "trust"):
        command(tmp_path, "party", "check", "link.toml", "--config", f"{name}/party.toml", "--approve")
    command(tmp_path, "link", "link.toml", *people)
    linked = [word for name in ("registry", "clinic") for word in ("--card", f"{name}/linked/{name}.card.toml")]
    command(tmp_path, "new", "glm", *linked, "--card", "trust/trust.card.toml", "--epsilon", "6", "--out", "odds.toml")
    text = (tmp_path / "odds.toml").read_text().replace('response = "y"', 'response = "dead"')
    (tmp_path / "odds.toml").write_text(text.replace("# expected = 0", "expected = 380"))
    return tmp_path


@pytest.mark.slow
def test_odds_of_hidden_people_from_files_to_the_report(registry: Path) -> None:
    said = command(registry, "plan", "odds.toml")
    for words in (
        "nobody learns whom two parties have in common",
        "places of the link",
        "About 380 people",
        "else epsilon is",
    ):
        assert words in said
    own = [word for name in ("clinic/linked", "registry/linked", "trust") for word in ("--party", f"{name}/party.toml")]
    for name in ("clinic/linked", "registry/linked", "trust"):
        command(registry, "party", "check", "odds.toml", "--config", f"{name}/party.toml", "--approve")
    assert "Nothing was asked of any party" in command(registry, "run", "odds.toml", *own, "--out", "odds.run", code=3)
    table = command(registry, "run", "odds.toml", *own, "--out", "odds.run", "--force")
    for words in ("age", "dose", "people are at both parties", "Whether a person is on any list but your own"):
        assert words in table
    assert "odds ratio" in command(registry, "contrast", "odds.run", "age", "--exponentiate")
    assert "written" in command(registry, "report", "odds.run")
    page = (registry / "odds.run/report.html").read_text()
    assert "c25" not in page
    assert "places of the link" in page
    said = command(registry, "party", "ledger", "--config", "clinic/party.toml")
    assert "glm" in said
    assert "link" in said


@pytest.mark.slow
def test_a_helper_that_linked_nobody_and_a_hub_s_cards_are_refused(registry: Path) -> None:
    command(registry, "party", "init", "--helper", "other", "--folder", "other")
    text = (registry / "odds.toml").read_text().replace("trust/trust", "other/other").replace('["trust"]', '["other"]')
    (registry / "other.toml").write_text(text)
    own = [word for name in ("clinic/linked", "registry/linked", "other") for word in ("--party", f"{name}/party.toml")]
    for name in ("clinic/linked", "registry/linked", "other"):
        command(registry, "party", "check", "other.toml", "--config", f"{name}/party.toml", "--approve")
    said = command(registry, "run", "other.toml", *own, "--out", "other.run", "--force", code=3)
    assert "does not know the places of the hidden link" in said
    (registry / "few.toml").write_text((registry / "odds.toml").read_text().replace("expected = 380", "expected = 9999"))
    assert "expected = a whole number from 2 to" in command(registry, "plan", "few.toml", code=2)
