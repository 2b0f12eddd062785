"""What unpooled 0.2.0 wrote: the new version opens it, or says in one sentence what to do."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from commands import PARTIES, command

import unpooled
from unpooled.errors import DataError, LedgerMoved, PlanMismatch, Refusal
from unpooled.linear.residuals import ASSUMED, Covariance
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.unit import Scope, Target, Unit
from unpooled.study.files import read_card, read_study
from unpooled.study.finished import Run
from unpooled.study.saved import homes

OLD = Path(__file__).parents[1] / "data" / "format_0.2.0"
NORTH = ("--config", "north/party.toml")
TARGET = Target(1.0, 1e-6, Unit.RECORD)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A copy of the files, with the rights that a version control system does not keep."""
    folder = tmp_path / "old"
    shutil.copytree(OLD, folder)
    for key in folder.rglob("*.key"):
        key.chmod(0o600)
    return folder


def test_studies_and_cards_are_read_as_they_are(world: Path) -> None:
    study = read_study(world / "study.toml")
    assert [card.name for card in study.parties] == ["north", "south"]
    assert read_card(world / "north/north.card.toml") == study.parties[0]
    assert "epsilon = 0.3" in command(world, "plan", "study.toml")


#: 0.2.0 called one of them otherwise, and had none of the others.
LATER = {
    "Anova",
    "ArmsDescription",
    "Contrast",
    "EffectOutlook",
    "JointTest",
    "KaplanMeier",
    "MetaAnalysis",
    "ModelResult",
    "Outlook",
    "PooledTerm",
    "PrincipalComponents",
    "Profile",
    "SurvivalComparison",
    "Tabulation",
    "JointDescription",
    "PrivateLinearRegression",
    "TreatmentEffect",
    "TwoStageSummary",
}


#: What 0.2.0 called the confidence of their intervals is no word any more.
RENAMED = {"GlmSummary", "LinearSummary", "PrivateGLM"}


@pytest.mark.guarantee
@pytest.mark.parametrize("name", sorted(RENAMED))
def test_a_file_with_a_word_of_before_says_that_another_version_saved_it(name: str) -> None:
    with pytest.raises(DataError, match=f"^{name}: the content of this file .* saved by another version"):
        unpooled.load(OLD / "saved" / name)


@pytest.mark.guarantee
@pytest.mark.parametrize("name", [*sorted(homes().keys() - LATER - RENAMED), "paid_bounds"])
def test_a_saved_model_of_every_class_opens_and_is_saved_anew(name: str, tmp_path: Path) -> None:
    found = unpooled.load(OLD / "saved" / name)
    if name in {"LinearFit", "Moments"}:
        assert type(found).__name__ == name
        return
    statement = found.statement_
    assert statement.holds
    assert any("worked out again from the study by a later version" in words for words in statement.assumptions)
    if hasattr(found, "predict") and not type(found).__name__.startswith("Pride"):
        assert np.isfinite(np.asarray(found.predict(np.zeros((3, found.n_features_in_))), dtype=float)).all()
    found.save(tmp_path / "again")
    again = unpooled.load(tmp_path / "again")
    assert again.plan_ == found.plan_
    assert again.statement_ == statement


@pytest.mark.parametrize("name", ["PrivateBayesianRegression", "Moments"])
def test_tables_of_models_that_were_saved_without_a_covariance_assume_what_they_did(name: str) -> None:
    found = unpooled.load(OLD / "saved" / name)
    table = found.summary()
    assert ASSUMED[Covariance.MODEL] in str(table)
    assert all(np.isfinite(term.std_error) for term in table.terms)
    if name == "Moments":
        assert (found.covariance, found.meat, found.nuisance) == (Covariance.MODEL, None, ())


@pytest.mark.slow
def test_a_whole_run_is_read_from_its_record(world: Path) -> None:
    run = Run.read(world / "whole.run")
    assert (run.recomputed, run.agrees) == (False, True)
    assert "age" in command(world, "result", "whole.run")
    command(world, "report", "whole.run")


@pytest.mark.guarantee
def test_a_run_of_another_version_without_its_record_names_the_version(world: Path) -> None:
    (world / "whole.run/run.msgpack").unlink()
    with pytest.raises(PlanMismatch, match="are of version 2"):
        Run.read(world / "whole.run")


@pytest.mark.guarantee
def test_half_a_run_says_what_to_do(world: Path) -> None:
    for name in ("north", "south"):
        command(world, "party", "ledger", "--config", f"{name}/party.toml", "--migrate")
    said = command(world, "run", "half.toml", *PARTIES, "--out", "half.run", "--force", code=3)
    assert "A run that another version began is finished with that version, or begun anew with a larger `run`" in said


@pytest.mark.guarantee
def test_a_ledger_is_taken_over_with_everything_it_spent(world: Path) -> None:
    refused = command(world, "party", "ledger", *NORTH, code=3)
    assert "written by unpooled 0.2.0" in refused
    assert "--migrate" in refused
    before = {file.name: file.read_bytes() for file in (world / "north").glob("north.ledger*")}
    listing = command(world, "party", "ledger", *NORTH, "--migrate")
    assert (world / "north/north.ledger.format2").read_bytes() == before["north.ledger"]
    assert "2 releases" not in listing
    assert listing.count("1 release ") == 2, "the whole run, and half of the other one"
    told = json.loads(command(world, "party", "ledger", *NORTH, "--json"))
    # Two releases of epsilon .3 each.
    assert 0.4 < told["spent_epsilon"] < 0.6
    assert told["warnings"] == [], "nothing was debited too low: that was 0.1.0"
    with Ledger.open(world / "north/north.ledger") as ledger:
        assert ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(1e-6) == told["spent_epsilon"]
        kinds = [row.kind for row in ledger._store._history.rows]
    assert (kinds.count("migration"), kinds[0]) == (1, "genesis")
    with pytest.raises(Refusal, match="cannot be taken over"):
        Ledger.migrate(world / "south/../north/north.ledger.format2")


@pytest.mark.guarantee
def test_a_ledger_with_the_key_of_another_or_an_edited_reply_is_not_taken_over(world: Path) -> None:
    key, path = world / "north/north.ledger.key", world / "north/north.ledger"
    own = key.read_bytes()
    key.write_bytes(bytes(len(own)))
    with pytest.raises(Refusal, match="key is that of another ledger"):
        Ledger.migrate(path)
    key.write_bytes(own)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE replies SET body = x'00'")
    connection.commit()
    connection.close()
    with pytest.raises(Refusal, match="a stored reply was edited"):
        Ledger.migrate(path)
    key.write_bytes(own)


@pytest.mark.guarantee
def test_a_migration_that_was_cut_short_is_run_again(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world / "north/north.ledger"
    real = Path.replace
    for cut in (1, 2):
        count = 0

        def replace(self: Path, target: Path, *, cut: int = cut) -> Path:
            nonlocal count
            if self.name.startswith("north.ledger.migrating") and not self.name.endswith(".new"):
                count += 1
                if count == cut:
                    raise OSError(28, "No space left on device")
            return real(self, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", replace)
            with pytest.raises(Refusal, match="cannot be taken over"):
                Ledger.migrate(path)
    with Ledger.migrate(path) as ledger:
        assert 0.4 < ledger.spending(TARGET, Scope.PERSON).epsilon < 0.6


@pytest.mark.guarantee
def test_a_ledger_that_was_edited_is_not_taken_over(world: Path) -> None:
    path = world / "north/north.ledger"
    anchor = path.with_name("north.ledger.anchor")
    was = anchor.read_bytes()
    told = json.loads(was)
    told["heads"][0]["rows"] -= 1
    anchor.write_text(json.dumps(told))
    with pytest.raises(Refusal, match="does not end where its anchor says"):
        Ledger.migrate(path)
    anchor.write_bytes(was)
    key = path.with_name("north.ledger.key")
    key.chmod(0o600)
    good = key.read_bytes()
    key.write_bytes(bytes(32))
    with pytest.raises(Refusal, match="key is that of another ledger"):
        Ledger.migrate(path)
    key.write_bytes(good)
    Ledger.migrate(path).close()


def test_a_copy_at_its_own_path_is_noticed(tmp_path: Path) -> None:
    """V7: on a machine without an id a ledger that was put back opened with nothing spent."""
    path, kept = tmp_path / "ledger", tmp_path / "kept"
    Ledger.create(path).close()
    kept.mkdir()
    for file in tmp_path.glob("ledger*"):
        shutil.copy2(file, kept / file.name)
        file.rename(tmp_path / f"gone.{file.name}")  # still there, so that no inode is given out again
    for file in kept.iterdir():
        shutil.copy2(file, tmp_path / file.name)
    with pytest.raises(LedgerMoved, match="copied or restored there"):
        Ledger.open(path)
    Ledger.open(path, moved=True).close()
    Ledger.open(path).close()


@pytest.mark.guarantee
def test_a_number_that_no_json_holds_is_read_as_unbounded(world: Path) -> None:
    """X2: 0.2.0 wrote null, and then called its own file damaged."""
    about = world / "whole.run/about.json"
    told = json.loads(about.read_text())
    told["budgets"][0]["spent"] = None
    about.write_text(json.dumps(told))
    assert Run.read(world / "whole.run").about.budgets[0].words.startswith("unbounded of 1 is spent")
