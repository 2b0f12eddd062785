"""Real processes, real certificates, real ledgers on loopback: what a networked study must share with one in this process."""

from __future__ import annotations

import json
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from worlds import Rehearsal, command, kept_digests

from unpooled.errors import UsageError
from unpooled.network.kits import Kit
from unpooled.study.run import compile_study

pytestmark = pytest.mark.network


@pytest.mark.parametrize("model", ["describe", "pride"])
def test_a_networked_run_has_the_bits_of_one_in_this_process(rehearsal: Rehearsal, model: str, tmp_path: Path) -> None:
    world = rehearsal.worlds[model]
    study = world.study
    plan = world.approve(study)
    shown = rehearsal.run(world, study, tmp_path)
    local = world.in_process(study)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["plan"] == plan.hash
    assert msgspec.json.encode(result["result"]) == msgspec.json.encode(msgspec.to_builtins(local.result))
    assert result["communication"] == local.communication
    assert kept_digests(world, study) == world.kept_in_process
    assert world.fully_charged(study)
    assert str(plan.statement) in shown
    assert (tmp_path / "run/result.txt").read_text() in shown

    # Each side has its page: the analyst without the transcript, a party with what it keeps.
    assert not (tmp_path / "run/transcript").exists()
    assert "written" in command("report", str(tmp_path / "run"))
    assert "from the record that it sent" in (tmp_path / "run/report.html").read_text()
    assert json.loads(command("result", str(tmp_path / "run"), "--json"))["plan"] == plan.hash
    first = str(world.root / world.names[0] / "party.toml")
    file = world.write_study(tmp_path / "own.toml", study)
    assert "written" in command("report", str(file), "--config", first)
    assert (
        "keeps nothing" in command("party", "show", str(file), "--config", first, code=2 if model == "describe" else 0)
    ) == (model == "describe")

    # What was logged on the way names parties and steps, and no value of the data.
    folders = [rehearsal.kits / "localhost", *(rehearsal.kits / name for name in world.names)]
    logs = "".join(
        path.read_text(errors="replace") for folder in folders for path in folder.glob("**/*log*") if path.is_file()
    )
    assert f"plan {plan.hash[:16]}: step 'open'" in logs
    values = {repr(v) for table in world.case.tables.values() for n in table.names for v in table[n].tolist()}
    assert not [value for value in values if len(value) > 12 and value in logs]


def test_a_proposed_study_lies_in_every_inbox_of_the_network(rehearsal: Rehearsal, tmp_path: Path) -> None:
    world = rehearsal.worlds["pride"]
    study = world.variant(run=31)
    before = {name: world.entries(name, study) for name in world.names}
    told = json.loads(
        command(
            "propose",
            str(world.write_study(tmp_path / "study.toml", study)),
            "--network",
            str(rehearsal.user.folder),
            "--json",
        )
    )
    assert (told["plan"], told["laid"], told["away"]) == (compile_study(study).hash, world.names, [])
    for name in world.names:
        assert len(list((world.root / name / "inbox").glob("*.proposal"))) == 1
        assert world.entries(name, study) == before[name] == []
    said = rehearsal.run(world, study, tmp_path, code=3)
    assert "is not approved here" in said


def test_a_party_that_refuses_ends_the_study_with_its_reason_and_code_3(rehearsal: Rehearsal, tmp_path: Path) -> None:
    world = rehearsal.worlds["pride"]
    study = world.variant(run=7)
    willing = [name for name in world.names if name != "laboratory"]
    plan = world.approve(study, *willing)
    said = rehearsal.run(world, study, tmp_path, code=3)
    assert "refused: party 'laboratory'" in said
    assert f"plan {plan.hash[:16]} is not approved here" in said
    assert not any(world.charges(study).values())


def test_a_study_for_absent_parties_is_not_even_submitted(rehearsal: Rehearsal, tmp_path: Path) -> None:
    world = rehearsal.worlds["describe"]
    cards = tuple(msgspec.structs.replace(c, name=c.name + "-2") for c in world.study.parties)
    for card in cards:
        (world.root / card.name).mkdir()
    from unpooled.study.files import write_card

    for card in cards:
        (world.root / card.name / f"{card.name}.card.toml").write_text(write_card(card))
    stranger = type(world)(world.root, world.case, world.variant(parties=cards))
    said = rehearsal.run(stranger, stranger.study, tmp_path, code=2)
    assert "not connected: north-2, coast-2, city-2" in said
    assert compile_study(stranger.study).hash[:32] not in "".join(p.name for p in rehearsal.kits.glob("localhost/studies/*"))


# --- certificates -----------------------------------------------------------------------------------------------------------


def closed_by_the_server(port: int, context: ssl.SSLContext) -> bool:
    """Whether the server ends this connection by itself: in TLS 1.3 a client learns of its refusal with the first read."""
    try:
        with (
            socket.create_connection(("localhost", port), timeout=2) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            return tls.recv(1) == b""
    except TimeoutError:
        return False  # the server waits for what this client has to say
    except (ssl.SSLError, ConnectionResetError):
        return True


def certificate(folder: Path, authority: Path | None, days: tuple[int, int]) -> ssl.SSLContext:
    """A client that trusts the network's server and shows a certificate of this authority (None: its own), valid in these days."""
    now, key, own = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "clinic")])
    issuer, signer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rehearsal")]), own
    if authority is not None:
        state = json.loads((authority / "cert.json").read_text())
        issuer = x509.load_pem_x509_certificate(state["root_cert"].encode()).subject
        signer = serialization.load_pem_private_key(state["root_pri_key"].encode(), None)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "client.crt").write_bytes(made.public_bytes(pem))
    form = (pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "client.key").write_bytes(key.private_bytes(*form))
    context = (
        ssl.create_default_context(cafile=str(authority.parent / "clinic/startup/rootCA.pem")) if authority else anyone()
    )
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    return context


def anyone() -> ssl.SSLContext:
    """A client that does not care who the server is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_connections_without_a_valid_certificate_of_this_network_are_closed(rehearsal: Rehearsal, tmp_path: Path) -> None:
    authority = rehearsal.kits / "authority"
    ports = [Kit.of(rehearsal.kits / "clinic").address[1], rehearsal.user.address[1]]
    for port in ports:
        assert not closed_by_the_server(port, certificate(tmp_path, authority, (-1, 1)))  # the control: a good one
        assert closed_by_the_server(port, anyone())
        assert closed_by_the_server(port, certificate(tmp_path, None, (-1, 1)))
        assert closed_by_the_server(port, certificate(tmp_path, authority, (-10, -1)))
        assert closed_by_the_server(port, certificate(tmp_path, authority, (1, 10)))


def test_a_kit_of_another_network_cannot_connect(rehearsal: Rehearsal, tmp_path: Path) -> None:
    """Its server's certificate is not of this network: the user's side notices and says so."""
    from worlds import make_rehearsal

    other = make_rehearsal(tmp_path, "describe")
    admin = other.user.folder / "startup/fed_admin.json"
    content = json.loads(admin.read_text())
    content["admin"]["port"] = rehearsal.user.address[1]
    admin.write_text(json.dumps(content))
    said = other.run(other.worlds["describe"], other.worlds["describe"].study, tmp_path / "out", code=2)
    assert "no session with the server at localhost" in said


# --- jobs that ask for more than a study ----------------------------------------------------------------------------------------


@pytest.mark.network_slow
@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("config_fed_client.json", "components", "unpooled.network.service.Desk"),
        ("config_fed_client.json", "components", "nvflare.app_common.psi.file_psi_writer.FilePSIWriter"),
        ("config_fed_client.json", "components", "subprocess.Popen"),
    ],
)
def test_a_job_that_names_other_classes_is_not_run(
    rehearsal: Rehearsal, tmp_path: Path, file: str, path: str, value: str
) -> None:
    from unpooled.network import submit

    world = rehearsal.worlds["describe"]
    study = world.variant(run=40)
    world.approve(study)
    job = submit._write_job(tmp_path, study, compile_study(study), patience=10.0, resume=False)
    content = json.loads((job / "app/config" / file).read_text())
    content[path].append({"id": "extra", "path": value, "args": {}})
    (job / "app/config" / file).write_text(json.dumps(content))
    with submit.session(rehearsal.user) as opened:
        meta = submit._wait(opened, opened.submit_job(str(job)), lambda _: None)
    assert meta["status"] != "FINISHED:COMPLETED"
    assert not any(world.charges(study).values())


@pytest.mark.network_slow
def test_a_job_that_carries_code_is_refused(rehearsal: Rehearsal, tmp_path: Path) -> None:
    from unpooled.network import submit

    world = rehearsal.worlds["describe"]
    study = world.variant(run=41)
    world.approve(study)
    job = submit._write_job(tmp_path, study, compile_study(study), patience=10.0, resume=False)
    (job / "app/custom").mkdir()
    (job / "app/custom/sitecustomize.py").write_text("raise SystemExit\n")
    with submit.session(rehearsal.user) as opened:
        try:
            status = submit._wait(opened, opened.submit_job(str(job)), lambda _: None)["status"]
        except Exception as error:
            status = type(error).__name__
    assert status != "FINISHED:COMPLETED"
    assert not any(world.charges(study).values())


def test_nobody_reads_a_partys_folder_from_afar(rehearsal: Rehearsal) -> None:
    """The engine would let a user list a site's folder and print its .csv and .json files; our kits do not."""
    from unpooled.network import submit

    file = "local/authorization.json"
    for read, words in (
        ("cat_target", [file]),
        ("head_target", [file]),
        ("grep_target", ["byoc", file]),
        ("ls_target", ["local"]),
    ):
        with pytest.raises(UsageError, match="AuthorizationError"), submit.session(rehearsal.user) as opened:
            getattr(opened, read)("clinic", None, *words)


def test_the_doctor_finds_a_healthy_network_fine(rehearsal: Rehearsal, tmp_path: Path) -> None:
    world = rehearsal.worlds["pride"]
    study = world.variant(run=50)
    world.approve(study)
    file = str(world.write_study(tmp_path / "study.toml", study))
    for name in ("localhost", "clinic", rehearsal.user.name):
        found = json.loads(command("doctor", str(rehearsal.kits / name), "--study", file, "--json"))["findings"]
        assert all(one["fine"] for one in found)
        server = next(one["words"] for one in found if one["what"] == "server")
        assert "clocks agree" in server
