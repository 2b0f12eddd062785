"""Files of a kit for the person who gets it: instructions, a systemd unit, and a Dockerfile."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from unpooled import __version__
from unpooled.errors import LedgerDamaged, StudyError
from unpooled.protocol.identity import Identity

_ROLES = {
    "server": (
        "the coordinator",
        """\
Start it, and keep it running while parties take part:

    unpooled network start {name}

`local/coordinator.key` signs every request of a study. Back it up, encrypted: with another key every study needs new approvals. Transcripts of studies are in `studies/`; they hold
what the parties released, and nothing else.
""",
    ),
    "client": (
        "a party",
        """\
1. Declare your data, once, on this machine (see `unpooled party init -h`):

       unpooled party init DATA.csv --name {name} --folder {name}-data --column age=0:120 --id patient

2. Link the party file into this kit:

       ln -s "$PWD/{name}-data/party.toml" {name}/local/party.toml

3. Start the kit, and keep it running while studies run:

       unpooled network start {name}

4. Approve a study once you agree with its plan: `unpooled party check study.toml --config {name}-data/party.toml --approve --by NAME --reason TEXT`, or in a browser, where studies
   that were proposed to you wait: `unpooled party console --config {name}-data/party.toml`

Nothing leaves without your approval. `unpooled doctor {name}` says what would fail. The ledger and its key lie in `{name}-data/`, not here: back them up (docs/officer.md).
""",
    ),
    "admin": (
        "the analyst who starts studies",
        """\
Look first, then run:

    unpooled doctor {name} --study study.toml
    unpooled propose study.toml --network {name}
    unpooled run study.toml --network {name}

Results come back to you; transcripts stay with the coordinator. You can start only what the parties have approved.
""",
    ),
}

_README = """\
# {name}: the kit of {who}

Made for unpooled {version}. Everybody needs the same version. Install the wheel that the coordinator
gave you: pip install './{wheel}[network]'

{what}
The certificate in `startup/` is yours alone: a person who has this folder can act as {name}. (The scripts beside it are the engine's own; you do not need them.)
{service}"""

_SERVICE = """
To run it as a service, `unpooled.service` is a systemd unit and `Dockerfile` an image; put in your own paths.
"""

_UNIT = """\
[Unit]
Description=unpooled: {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
# An account that owns the kit and, at a party, the ledger; nobody else should read either.
User=unpooled
ExecStart=/opt/unpooled/bin/unpooled network start /srv/unpooled/{name}
Restart=on-failure
RestartSec=10
# Kernels are compiled once and kept here.
CacheDirectory=unpooled
Environment=NUMBA_CACHE_DIR=/var/cache/unpooled
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths=/srv/unpooled

[Install]
WantedBy=multi-user.target
"""

_DOCKERFILE = """\
# Put {wheel} beside this file; docker build -t unpooled-{name} . ; then run it with this folder as /srv/unpooled/{name}, and at a party
# with the folder of its ledger and data at the path that local/party.toml links to.
FROM python:3.11-slim
COPY {wheel} /tmp/
RUN pip install --no-cache-dir "/tmp/{wheel}[network]" && useradd --create-home unpooled
USER unpooled
ENV NUMBA_CACHE_DIR=/home/unpooled/.numba
VOLUME /srv/unpooled
ENTRYPOINT ["unpooled", "network", "start"]
CMD ["/srv/unpooled/{name}"]
"""


def write_kit_files(folder: Path, role: str) -> None:
    """Write our own readme next to the engine's; for those who run something, also files to run it as a service."""
    who, what = _ROLES[role]
    runs = role != "admin"
    facts = {"name": folder.name, "version": __version__, "wheel": f"unpooled-{__version__}-py3-none-any.whl"}
    readme = _README.format(who=who, what=what.format(**facts), service=_SERVICE if runs else "", **facts)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    (folder / "readme.txt").unlink(missing_ok=True)  # the engine's: other commands, for people who use it without us
    if runs:
        (folder / "unpooled.service").write_text(_UNIT.format(**facts), encoding="utf-8")
        (folder / "Dockerfile").write_text(_DOCKERFILE.format(**facts), encoding="utf-8")


# --- Kits ------------------------------------------------------------------------------------------------------------------
# Start-up kits: one folder per participant with its certificate, its key, and what its site allows.
#
# Provisioning wraps the engine's own and then narrows what it allows. Jobs may name two classes of ours and no others, may
# carry no code, and nobody may run shell commands or read log files of a party from afar.

#: In the coordinator's kit: a folder per plan with its transcript. In a job: what is fetched.
STUDIES, RESULTS = "studies", "unpooled"
PARTY_CLASS = "unpooled.network.engine.PartyService"
COORDINATOR_CLASS = "unpooled.network.engine.CoordinatorService"
_CONTROLLER, _EXECUTOR = (
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
)
_RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands", "byoc")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A strict table of network.toml."""


class Network(_Section, frozen=True):
    """``[network]``: the coordinator's host name, its two ports, and who may start studies."""

    name: str
    server: str
    analyst: str
    port: int = 8002
    admin_port: int = 8003
    #: How long the certificates are valid.
    days: int = 360


class KitMember(_Section, frozen=True):
    """``[[party]]``: a participant, by the name on its card; ``config`` links an existing party.toml into its kit (rehearsals)."""

    name: str
    config: str | None = None


class NetworkFile(_Section, frozen=True):
    """network.toml."""

    network: Network
    party: tuple[KitMember, ...]


@dataclass(frozen=True, slots=True)
class Kit:
    """One participant's folder."""

    folder: Path
    #: "server", "client" or "admin".
    role: str

    @classmethod
    def of(cls, folder: Path) -> Kit:
        """Return the kit in this folder."""
        folder = folder.resolve()
        for role in ("server", "client", "admin"):
            if (folder / "startup" / f"fed_{role}.json").is_file():
                return cls(folder, role)
        msg = f"{folder} is no start-up kit: give the folder that `unpooled network provision` made for one participant"
        raise StudyError(msg)

    @property
    def name(self) -> str:
        """Return the participant's name, which is also that of its certificate."""
        return self.folder.name

    @property
    def config(self) -> dict[str, Any]:
        """Return the engine's start-up file."""
        content: dict[str, Any] = json.loads((self.folder / "startup" / f"fed_{self.role}.json").read_text())
        return content

    @property
    def certificate(self) -> Path:
        """Return the participant's certificate; its private key lies next to it with the ending .key."""
        return self.folder / "startup" / ("server.crt" if self.role == "server" else "client.crt")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which this participant meets the server."""
        if self.role == "admin":
            admin = self.config["admin"]
            return admin["host"], int(admin["port"])
        host, _, port = self.config["servers"][0]["service"]["target"].rpartition(":")
        return host, int(port)


def kits_in(folder: Path) -> list[Kit]:
    """Return the kits of a network, the server's first."""
    found = [Kit.of(path.parent) for path in sorted(folder.glob("*/startup"))]
    if not any(kit.role == "server" for kit in found):
        msg = f"{folder} holds no server kit: give the folder that `unpooled network provision` wrote"
        raise StudyError(msg)
    return sorted(found, key=lambda kit: (kit.role != "server", kit.name))


def coordinator_identity(folder: Path) -> Identity:
    """Return the signing identity of the coordinator whose kit this is."""
    try:
        root = (folder / "local" / "coordinator.key").read_bytes()
        if len(root) != 32:  # noqa: PLR2004 - the length of a root key
            raise ValueError
    except (OSError, ValueError):
        msg = (
            f"{folder}/local/coordinator.key is missing or damaged: restore it; a new key needs new approvals of every study"
        )
        raise LedgerDamaged(msg) from None
    return Identity(root)


def place_storage(kit: Kit) -> None:
    """Have the server keep its jobs inside its kit, wherever that lies now (the engine takes absolute paths only)."""
    file = kit.folder / "local" / "resources.json"
    resources = json.loads(file.read_text())
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit.folder / "jobs")
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.folder / "snapshots")
    file.write_text(json.dumps(resources, indent=1) + "\n")


def provision(project: Path, out: Path) -> str:
    """Write the kits of a network into ``out``; returns the coordinator's public key."""
    text = _read(project)
    if out.exists() and any(out.iterdir()):
        msg = f"{out} is not empty: give a new folder (certificates of an existing network are never replaced)"
        raise StudyError(msg)
    with tempfile.TemporaryDirectory(prefix="unpooled-provision-") as name:
        folder = Path(name)
        (folder / "project.yml").write_text(json.dumps(_project(text)))  # JSON is YAML
        command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", "project.yml", "-w", "workspace", "--force"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
        made = folder / "workspace" / text.network.name / "prod_00"
        if done.returncode or not made.is_dir():
            msg = f"provisioning failed: {(done.stderr or done.stdout).strip()[-500:]}"
            raise StudyError(msg)
        out.mkdir(parents=True, exist_ok=True)
        for part in made.iterdir():
            shutil.move(part, out / part.name)
        # The authority's own key: whoever holds it can admit new participants.
        shutil.move(folder / "workspace" / text.network.name / "state", out / "authority")
        (out / "authority").chmod(0o700)
    configs = {member.name: member.config for member in text.party}
    for kit in kits_in(out):
        kit.folder.chmod(0o700)
        write_kit_files(kit.folder, kit.role)
        if kit.role != "admin":
            _narrow(kit)
        config = configs.get(kit.name)
        if kit.role == "client" and config is not None:
            (kit.folder / "local" / "party.toml").symlink_to((project.parent / config).resolve())
    local = out / text.network.server / "local"
    with open(local / "coordinator.key", "wb", opener=lambda file, flags: os.open(file, flags, 0o600)) as key:
        key.write(os.urandom(32))
    public = coordinator_identity(local.parent).public
    (local / "coordinator.pub").write_text(public + "\n")
    return public


def _read(path: Path) -> NetworkFile:
    try:
        text = msgspec.toml.decode(path.read_bytes(), type=NetworkFile, strict=True)
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}): docs/deploy.md shows such a file"
        raise StudyError(msg) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"{path.name}: {error}. docs/deploy.md lists every key"
        raise StudyError(msg) from None
    names = [member.name for member in text.party]
    network = text.network
    if not names or len(set(names)) != len(names) or not all(_NAME.fullmatch(n) for n in [*names, network.name]):
        msg = f"{path.name}: give the network and each [[party]] a name of its own, of small letters, digits and hyphens"
        raise StudyError(msg)
    if network.server in names or "@" not in network.analyst:
        msg = f"{path.name}: the server's host name must not be that of a party, and analyst is an e-mail address"
        raise StudyError(msg)
    return text


def _project(text: NetworkFile) -> dict[str, Any]:
    network, builder = text.network, "nvflare.lighter.impl"
    server = {"name": network.server, "type": "server", "org": "coordinator", "fed_learn_port": network.port}
    return {
        "api_version": 3,
        "name": network.name,
        "description": network.name,
        "participants": [
            {**server, "admin_port": network.admin_port},
            *({"name": member.name, "type": "client", "org": member.name} for member in text.party),
            {"name": network.analyst, "type": "admin", "org": "coordinator", "role": "lead"},
        ],
        "builders": [
            {"path": f"{builder}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{builder}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": f"{builder}.cert.CertBuilder", "args": {"root_valid_days": network.days}},
            {"path": f"{builder}.signature.SignatureBuilder"},
        ],
    }


def _narrow(kit: Kit) -> None:
    """Allow what a study needs and nothing else."""
    local = kit.folder / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] = [_CONTROLLER, COORDINATOR_CLASS] if kit.role == "server" else [_EXECUTOR, PARTY_CLASS]
    resources["allow_log_streaming"] = False
    resources["components"] = [c for c in resources["components"] if not c["id"].startswith(("site_log", "log_"))]
    (local / "resources.json").write_text(json.dumps(resources, indent=1) + "\n")
    none, own = dict.fromkeys(_RIGHTS, "none"), "n:submitter"
    lead = {**none, "submit_job": "any", "manage_job": own, "download_job": own, "view": "any"}
    roles = {"project_admin": {**none, "view": "any"}, "org_admin": {**none, "view": "any"}, "lead": lead, "member": none}
    (local / "authorization.json").write_text(json.dumps({"format_version": "1.0", "permissions": roles}, indent=1) + "\n")
