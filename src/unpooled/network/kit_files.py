"""Files of a kit for the person who gets it: instructions, a systemd unit, and a Dockerfile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled import __version__

if TYPE_CHECKING:
    from pathlib import Path

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
