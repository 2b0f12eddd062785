"""Crates: valid under the vendored shapes of the Five Safes profile, and claiming no more than ledgers and policies say."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from commands import PARTIES, approve, command, two_parties

from unpooled.cli import demo

SHAPES = Path(__file__).parents[1] / "data/five_safes"
NORTH, SOUTH = ("--config", "north/party.toml"), ("--config", "south/party.toml")
#: Recommendations (SHOULD) that a crate leaves aside, because nothing in a study says so: nobody downloaded a workflow or made checksums of a bag,
#: nobody checked the crate against the profile while writing it, the account that ran the study has no known organisation.
LEFT_ASIDE = {
    "RootDataEntity SHOULD mention a check value object.",
    "RootDataEntity SHOULD mention a ValidationCheck object.",
    "An entity typed DownloadAction SHOULD exist.",
    "The agent of a CreateAction entity SHOULD have an affiliation",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that both parties approved, north with a name and a reason."""
    # Parties are remembered in a folder of this world's own.
    root = tmp_path_factory.mktemp("crate")
    with demo._own_state(root / "state"):
        world = two_parties(root)
        words = ("--approve", "--by", "Dr. A. Example", "--reason", "vote 12/2026")
        command(world, "party", "check", "study.toml", *NORTH, *words)
        command(world, "party", "check", "study.toml", *SOUTH, "--approve")
        command(world, "run", "study.toml", *PARTIES)
        command(world, "dossier", "study.toml", *NORTH, "--run", "study.run", "--out", "papers")
        more = ("--dossier", "papers", "--license", "https://example.org/l")
        command(world, "crate", "study.run", *NORTH, *SOUTH, *more, "--out", "crate")
        command(world, "crate", "study.run", "--out", "bare")
        return world


def graph(folder: Path) -> dict[str, dict[str, Any]]:
    return {one["@id"]: one for one in json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]}


def typed(folder: Path, kind: str) -> dict[str, dict[str, Any]]:
    return {
        key: one for key, one in graph(folder).items() if one.get("additionalType", {}).get("@id", "").endswith(f"#{kind}")
    }


def findings(folder: Path, *shapes: str) -> set[str]:
    """The messages of the shapes in these folders about a crate, without network: the context is that of the library."""
    import rdflib
    import rocrate
    from pyshacl import validate

    context = json.loads((Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_text())["@context"]
    # Versions 1.1 and 1.2 of the context spell these so; the shapes are of that time.
    context |= {name: f"https://bioschemas.org/{name}" for name in ("ComputationalWorkflow", "FormalParameter")}
    told = json.loads((folder / "ro-crate-metadata.json").read_text()) | {"@context": context}
    base = "file:///crate/"
    data = rdflib.Graph().parse(data=json.dumps(told), format="json-ld", publicID=base)
    ours = rdflib.Namespace("https://github.com/crs4/rocrate-validator/profiles/ro-crate/")
    # What rules of the base profile find out in the validator that the shapes were written for.
    data.add((rdflib.URIRef(base), rdflib.RDF.type, ours.RootDataEntity))
    data.add((rdflib.URIRef(f"{base}ro-crate-metadata.json"), rdflib.RDF.type, ours.ROCrateMetadataFileDescriptor))
    for key, entity in graph(folder).items():
        kinds = entity["@type"] if isinstance(entity["@type"], list) else [entity["@type"]]
        kind = ours.File if "File" in kinds else ours.Directory if key.endswith("/") and key != "./" else None
        if kind is not None:
            data.add((rdflib.URIRef(f"{base}{key}"), rdflib.RDF.type, kind))
    rules = rdflib.Graph()
    for name in ("base", *shapes):
        for file in sorted((SHAPES / name).glob("*.ttl")):
            rules.parse(file, publicID=base)
    _, report, _ = validate(data, shacl_graph=rules, advanced=True, inference="none", allow_warnings=True)
    shacl = rdflib.Namespace("http://www.w3.org/ns/shacl#")
    return {str(message) for _, message in report.subject_objects(shacl.resultMessage)}


@pytest.mark.long_for("bare", "crate")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries among each other
@pytest.mark.parametrize("folder", ["crate", "bare"])
def test_a_crate_keeps_to_the_profile(ran: Path, folder: str) -> None:
    assert findings(ran / folder, "must") == set()
    assert findings(ran / folder / "workflow", "workflow") == set()
    less = (
        set()
        if folder == "crate"
        else {
            "There SHOULD be a Sign-Off Phase in the Final RO-Crate",
            "The Root Data Entity SHOULD mention a Sign-Off Phase Object",
            "`RootDataEntity` SHOULD mention a disclosure object.",
        }
    )
    assert findings(ran / folder, "must", "should") - LEFT_ASIDE <= less
    assert findings(ran / folder, "must", "should") >= LEFT_ASIDE


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries among each other
def test_a_crate_that_breaks_the_profile_is_caught(ran: Path, tmp_path: Path) -> None:
    whole = (ran / "crate/ro-crate-metadata.json").read_text()
    for right, wrong, said in (
        ('"sourceOrganization"', '"sourceOrganisation"', "`sourceOrganization` property"),
        ('"AssessAction"', '"CreativeWork"', "MUST be a `AssessAction`"),
        ('"http://schema.org/CompletedActionStatus"', '"done"', "allowed value"),
        ("https://w3id.org/workflowhub/workflow-ro-crate/1.0", "https://example.org", "workflow-ro-crate"),
        ('"datePublished"', '"dateWritten"', "datePublished"),
    ):
        assert right in whole
        (tmp_path / "ro-crate-metadata.json").write_text(whole.replace(right, wrong))
        assert any(said in one for one in findings(tmp_path, "must")), said


@pytest.mark.slow
def test_a_library_reads_the_crate(ran: Path) -> None:
    from rocrate.rocrate import ROCrate

    found = ROCrate(str(ran / "crate"))
    assert found.mainEntity.id == "workflow/"
    assert {one.id for one in found.data_entities} >= {"plan.txt", "result.json", "report.html", "dossier/dossier.md"}
    inner = ROCrate(str(ran / "crate/workflow"))
    assert inner.mainEntity.id == "study.toml"


@pytest.mark.slow
def test_the_crate_holds_what_may_be_shown_and_nothing_else(ran: Path) -> None:
    files = {str(path.relative_to(ran / "crate")): path for path in (ran / "crate").rglob("*") if path.is_file()}
    assert set(files) == {
        *("ro-crate-metadata.json", "plan.txt", "statement.txt", "result.json", "result.csv", "report.html"),
        *("dossier/dossier.md", "dossier/dossier.html"),
        *("workflow/ro-crate-metadata.json", "workflow/study.toml", "workflow/study.json"),
    }
    inner = {f"workflow/{key}": one for key, one in graph(ran / "crate/workflow").items()}
    for name, entity in (graph(ran / "crate") | inner).items():
        if "sha256" in entity:
            body = files[name].read_bytes()
            assert (entity["sha256"], entity["contentSize"]) == (sha256(body).hexdigest(), str(len(body)))
    secrets = [(ran / "study.run/transcript").read_bytes(), (ran / "north/north.ledger.key").read_bytes()]
    data = (ran / "north/data.csv").read_text().splitlines()[1].split(",")[1]  # an age, with all its digits
    for path in files.values():
        body = path.read_bytes()
        assert not any(secret in body or secret.hex().encode() in body for secret in secrets)
        assert data.encode() not in body


@pytest.mark.slow
def test_actions_are_those_of_ledgers_and_policies(ran: Path) -> None:
    assert typed(ran / "bare", "SignOff") == typed(ran / "bare", "DisclosureCheck") == {}
    signed = typed(ran / "crate", "SignOff")
    assert set(signed) == {"#sign-off-north", "#sign-off-south"}
    north = signed["#sign-off-north"]
    assert (north["description"], north["agent"]) == ("vote 12/2026", {"@id": "#signed-by-north"})
    assert graph(ran / "crate")["#signed-by-north"]["name"] == "Dr. A. Example"
    assert "2 releases, made random" not in json.dumps(signed)
    assert {one["agent"]["@id"] for one in typed(ran / "crate", "DisclosureCheck").values()} == {"#unpooled"}
    mentioned = {one["@id"] for one in graph(ran / "crate")["./"]["mentions"]}
    assert mentioned == {"#run", *signed, *typed(ran / "crate", "DisclosureCheck")}


@pytest.mark.slow
def test_an_approval_that_was_withdrawn_failed(tmp_path: Path) -> None:
    world = two_parties(tmp_path)
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    command(world, "party", "withdraw", "study.toml", *NORTH, "--by", "Dr. B. Example", "--reason", "a mistake")
    command(world, "crate", "study.run", *NORTH, "--out", "crate")
    (found,) = typed(world / "crate", "SignOff").values()
    assert found["actionStatus"].endswith("FailedActionStatus")
    assert (found["name"], found["description"]) == ("Approval of the plan withdrawn by north", "a mistake")


@pytest.mark.slow
def test_a_plan_that_the_policy_lists_is_signed_by_the_organisation(tmp_path: Path) -> None:
    world = two_parties(tmp_path)
    plan = json.loads(command(world, "plan", "study.toml", "--json"))["plan"]
    for name in ("north", "south"):
        config = world / name / "party.toml"
        config.write_text(config.read_text().replace('approval = "ask"', f'approval = ["{plan}"]'))
    command(world, "run", "study.toml", *PARTIES)
    command(world, "crate", "study.run", *NORTH, "--out", "crate")
    (found,) = typed(world / "crate", "SignOff").values()
    assert found["agent"] == {"@id": "#organisation-north"}
    assert "endTime" not in found


@pytest.mark.slow
def test_refusals_write_nothing(ran: Path) -> None:
    assert "bare exists already" in command(ran, "crate", "study.run", "--out", "bare", code=2)
    assert "address of a licence" in command(ran, "crate", "study.run", "--license", "MIT", "--out", "x", code=2)
    (ran / "other.toml").write_text((ran / "study.toml").read_text().replace("epsilon = 1.0", "epsilon = 0.5"))
    assert "makes another plan" in command(ran, "crate", "study.run", "--study", "other.toml", "--out", "x", code=2)
    command(ran, "dossier", "other.toml", "--out", "other")
    assert "dossier of another plan" in command(ran, "crate", "study.run", "--dossier", "other", "--out", "x", code=2)
    assert "check the path" in command(ran, "crate", "study.run", "--dossier", "nothing", "--out", "x", code=2)
    assert "no transcript and no record" in command(ran, "crate", "nothing.run", "--out", "x", code=2)
    assert "is a file" in command(ran, "crate", "study.toml", "--out", "x", code=2)
    assert not (ran / "x").exists()


@pytest.mark.long
@pytest.mark.slow
def test_a_note_that_tells_no_time_is_left_out(tmp_path: Path) -> None:
    world = two_parties(tmp_path)
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    note = world / "study.run/about.json"
    note.write_text(json.dumps({"finished": "<yesterday>", "by": ""}))
    command(world, "crate", "study.run", "--out", "a")
    assert "endTime" not in graph(world / "a")["#run"]
    assert graph(world / "a")["#run-by"]["name"] == "Run by: [to be filled in by you]"
    note.unlink()
    command(world, "crate", "study.run", "--out", "b")
    assert graph(world / "b")["#project"]["name"] == "Project: [to be filled in by you]"
