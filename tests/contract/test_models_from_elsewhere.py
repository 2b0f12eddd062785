"""A model of another distribution: policies list it, plans name its version, and files, templates, citations and commands find it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from cases import CASES
from commands import command, two_parties
from elsewhere import ROW, Declare

import unpooled
from unpooled.errors import DataError, PlanMismatch, PolicyRefusal, StudyError, UsageError
from unpooled.models import load
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import encode
from unpooled.protocol.party import Party
from unpooled.protocol.registry import maker
from unpooled.study.files import policy_of, read_party, read_study
from unpooled.testing.cases import Case, parties, policy

CENSUS = ROW.format(name="census")


def census(**changes: object) -> Study:
    return msgspec.structs.replace(CASES["describe"]().study, model="census", **changes)


def party(rules: Policy | None = None) -> Party:
    case = Case("census", census(), CASES["describe"]().tables)
    return next(iter(parties(case, rules).values()))


def opened(plan: Plan, **changes: object) -> bytes:
    request = OpenRequest(plan.study, **({"maker": plan.maker} | changes))
    return encode(plan.hash, "open", 0, request)


# --- plans -------------------------------------------------------------------------------------------------------------------


def test_a_plan_names_the_distribution_and_its_version_and_our_own_plans_name_nothing(declare: Declare) -> None:
    declare("somebodys", "census", "made_up_row_a", CENSUS)
    plan = load("census").compile(census())
    assert plan.maker == maker("census") == "somebodys 1.0"
    assert "model census of somebodys 1.0" in str(plan)
    for name in ("describe", "glm", "link", "pride-published", "no such model"):
        assert maker(name) == ""
    own = load("describe").compile(CASES["describe"]().study)
    assert own.maker == ""
    assert dataclasses.replace(own, maker="somebodys 1.0").hash != own.hash


def test_another_version_makes_another_plan(declare: Declare) -> None:
    declare("somebodys", "census", "made_up_row_b", CENSUS)
    first = load("census").compile(census()).hash
    folder = declare("somebodys", "census", "made_up_row_b", CENSUS, version="1.1")
    assert maker("census") in {"somebodys 1.0", "somebodys 1.1"}  # the one that is found first is the one that is loaded
    assert sys.path[0] == str(folder)
    assert maker("census") == "somebodys 1.1"
    assert load("census").compile(census()).hash != first


@pytest.mark.guarantee
def test_a_party_with_another_version_refuses_and_names_both(declare: Declare) -> None:
    declare("somebodys", "census", "made_up_row_c", CENSUS)
    plan = load("census").compile(census())
    older = dataclasses.replace(plan, maker="somebodys 0.9")
    asked = party()
    words = "model 'census' is of somebodys 0.9 at the coordinator, and of somebodys 1.0 at party .*: install equal versions everywhere"
    with pytest.raises(PlanMismatch, match=words):
        asked.answer(opened(older))
    with pytest.raises(PlanMismatch, match="of unpooled at the coordinator"):
        asked.answer(opened(dataclasses.replace(plan, maker=""), maker=""))
    # A coordinator that does not say which version it has: the hashes differ, and the party says its own.
    with pytest.raises(PlanMismatch, match=r"is of somebodys 1\.0 here: install equal versions everywhere"):
        asked.answer(opened(older, maker=msgspec.UNSET))
    # The right words over another hash: the study or the code differs.
    with pytest.raises(PlanMismatch, match="this party compiles"):
        asked.answer(encode("0" * 64, "open", 0, OpenRequest(plan.study, maker=plan.maker)))
    assert asked.ledger.entries() == ()
    assert asked.answer(opened(plan))


def test_what_a_coordinator_sends_for_our_own_models_has_no_field_for_it() -> None:
    assert b"maker" not in msgspec.msgpack.encode(OpenRequest(CASES["describe"]().study))


# --- policies ----------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_a_policy_without_a_list_runs_our_own_models_alone(declare: Declare) -> None:
    declare("somebodys", "census", "made_up_row_d", CENSUS)
    case = Case("census", census(), CASES["describe"]().tables)
    plan = load("census").compile(census())
    asked = party(policy(case, models=None))
    words = r'model \'census\' is of distribution somebodys 1\.0, and this party\'s policy runs unpooled\'s own models only: .* models = \["census"\]'
    with pytest.raises(PolicyRefusal, match=words):
        asked.answer(opened(plan))
    assert asked.ledger.entries() == ()
    for rules in (policy(case, models=frozenset({"census", "glm"})), Policy.in_process()):
        assert party(rules).answer(opened(plan))


@pytest.mark.guarantee
def test_a_model_that_the_policy_does_not_list_is_not_even_imported(declare: Declare) -> None:
    """A coordinator may name any model that is installed at a party; its code runs there only if the policy lists it."""
    declare("somebodys", "census", "made_up_row_unlisted", CENSUS)
    case = Case("census", census(), CASES["describe"]().tables)
    request = encode("0" * 64, "open", 0, OpenRequest(census(), maker="somebodys 1.0"))
    for rules in (policy(case, models=None), policy(case, models=frozenset({"describe"}))):
        with pytest.raises(PolicyRefusal, match="census"):
            party(rules).answer(request)
        assert "made_up_row_unlisted" not in sys.modules
    with pytest.raises(PlanMismatch):  # listed, it is imported, and its plan has another hash
        party(policy(case, models=frozenset({"census"}))).answer(request)
    assert "made_up_row_unlisted" in sys.modules


@pytest.mark.guarantee
def test_a_list_is_the_whole_list(declare: Declare) -> None:
    declare("somebodys", "glm-published", "made_up_row_e", ROW.format(name="glm-published"))
    case = CASES["describe"]()
    plan = load("describe").compile(case.study)
    only_glm = policy(case, models=frozenset({"glm"}))
    with pytest.raises(
        PolicyRefusal, match=r'does not list model \'describe\': to allow it, write models = \["describe", "glm"\]'
    ):
        only_glm.check(plan, approved_in_ledger=True)
    policy(case, models=frozenset({"describe"})).check(plan, approved_in_ledger=True)
    # A form of our model that somebody else makes goes by its own name.
    form = dataclasses.replace(
        plan, study=msgspec.structs.replace(case.study, model="glm", calibration="published"), maker="x 1"
    )
    with pytest.raises(
        PolicyRefusal, match=r'does not list model \'glm-published\' of distribution x 1: .*"glm", "glm-published"'
    ):
        only_glm.check(form, approved_in_ledger=True)


def test_studies_that_link_rows_are_a_matter_of_psi() -> None:
    case = CASES["describe"]()
    plan = dataclasses.replace(load("describe").compile(case.study), links=True)
    policy(case, models=frozenset({"glm"})).check(plan, approved_in_ledger=True)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


def listing(world: Path, line: str) -> Path:
    """The party file of north with this line in its policy."""
    file = world / "north" / "party.toml"
    text = file.read_text()
    assert "# models = [" in text
    file.write_text(text.replace('calibrations = ["sound"]', f'calibrations = ["sound"]\n{line}'))
    return file


def test_a_party_file_lists_models(world: Path, declare: Declare) -> None:
    declare("somebodys", "census", "made_up_row_f", CENSUS)
    assert policy_of(read_party(world / "north" / "party.toml").policy).models is None  # also of files of earlier versions
    file = listing(world, 'models = ["describe", "census"]')
    assert policy_of(read_party(file).policy).models == {"describe", "census"}


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("models = []", r"party.toml, \[policy\]: models lists no model, so no study could run: leave it out"),
        ('models = ["describe", "censsus"]', r"models lists 'censsus', which is no model here: install its package"),
        ('models = ["*"]', "is no model here"),
        ('models = ["pride-published"]', "which is a form of a model: list 'pride', and name the form under calibrations"),
        ('models = ["link"]', 'models does not list "link": psi = "intersection" allows it'),
        ('models = "describe"', "models"),
        ("models = [1]", "models"),
        ('model = ["describe"]', "model"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused_in_words(line: str, match: str, world: Path) -> None:
    with pytest.raises(StudyError, match=match):
        read_party(listing(world, line))


@pytest.mark.guarantee
def test_the_commands_name_the_distribution_and_the_line_to_write(world: Path, declare: Declare) -> None:
    declare("somebodys", "census", "made_up_row_g", CENSUS)
    (world / "study.toml").unlink()
    cards = [word for name in ("north", "south") for word in ("--card", f"{name}/{name}.card.toml")]
    assert "written" in command(world, "new", "census", *cards, "--epsilon", "0.5")
    assert "model census of somebodys 1.0" in command(world, "plan", "study.toml")
    at = ("--config", "north/party.toml")
    said = " ".join(command(world, "party", "check", "study.toml", *at, code=3).split())
    assert "model census of somebodys 1.0" in said
    assert 'add models = ["census"] under [policy]' in said
    for name in ("north", "south"):
        file = world / name / "party.toml"
        file.write_text(file.read_text().replace("# models = ", "models = ").replace('"glm"', '"census"'))
        assert "Approved" in command(world, "party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    parties = ("--party", "north/party.toml", "--party", "south/party.toml")
    assert "files are in study.run" in command(world, "run", "study.toml", *parties, "--force")
    assert "releases nothing that predicts" in command(world, "predict", "study.run", "--data", "x.csv", code=2)
    # A citation reads the record through the same door, and says that no model was released there.
    text = (world / "study.toml").read_text().replace('model = "census"', 'model = "stacking"')
    head, rest = text.split("[privacy]")
    (world / "later.toml").write_text(
        f'{head.split("[parameters]")[0]}[parameters]\nprior = "run:study.run"\n\n[privacy]{rest}'
    )
    with pytest.raises(StudyError, match="is a run of model 'census'; a stack starts from a run of stacking"):
        read_study(world / "later.toml")


# --- saved classes -----------------------------------------------------------------------------------------------------------

SAVED = """
from dataclasses import dataclass, replace
from unpooled.inference.saving import Savable
from unpooled.models import load

@dataclass
class {kind}(Savable):
    value: float

MODEL = replace(load("describe"), name={name!r}, saved=("{module}:{kind}",))
"""


@pytest.mark.guarantee
def test_a_saved_class_is_found_by_the_row_that_declares_it(declare: Declare, tmp_path: Path) -> None:
    declare("broken", "another", "made_up_row_h", "raise OSError('disk')")
    declare("somebodys", "census", "made_up_row_i", SAVED.format(kind="Census", name="census", module="made_up_row_i"))
    import made_up_row_i

    made_up_row_i.Census(2.5).save(tmp_path / "saved")
    assert unpooled.load(tmp_path / "saved") == made_up_row_i.Census(2.5)


def test_a_saved_class_that_nobody_declares_or_two_declare_is_refused(declare: Declare, tmp_path: Path) -> None:
    declare("somebodys", "census", "made_up_row_j", SAVED.format(kind="Census", name="census", module="made_up_row_j"))
    import made_up_row_j

    made_up_row_j.Census(2.5).save(tmp_path / "saved")
    declare("others", "counts", "made_up_row_k", SAVED.format(kind="Census", name="counts", module="made_up_row_k"))
    with pytest.raises(
        UsageError, match=r"class 'Census' is declared by others 1\.0 and somebodys 1\.0|uninstall all but one"
    ):
        unpooled.load(tmp_path / "saved")
    sys.path.remove(str(next(Path(place) for place in sys.path if place.endswith("others-1.0"))))
    sys.path.remove(str(next(Path(place) for place in sys.path if place.endswith("somebodys-1.0"))))
    with pytest.raises(DataError, match="does not know, and no installed model declares it"):
        unpooled.load(tmp_path / "saved")
    declare("broken", "another", "made_up_row_l", "raise OSError('disk')")
    with pytest.raises(UsageError, match="cannot be loaded from distribution 'broken'"):
        unpooled.load(tmp_path / "saved")


# --- the plugin --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", ["pytest", "hypothesis"])
def test_without_pytest_the_plugin_says_what_to_install(absent: str) -> None:
    hide = f"import importlib.util as u; find = u.find_spec; u.find_spec = lambda n: None if n == {absent!r} else find(n)"
    command = [sys.executable, "-c", f"{hide}; import unpooled.testing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: unpooled.testing needs pytest and hypothesis: install unpooled with its extra, pip install 'unpooled[testing]'"
    )
