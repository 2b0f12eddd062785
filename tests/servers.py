"""A PostgreSQL server of one's own for tests: its folder, its port on loopback, stopped by its own process id."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PLACES = [Path("/usr/lib/postgresql"), Path("/usr/local/pgsql"), Path("/opt/homebrew/opt")]
PASSWORD = "correct horse"
READER = "reader"


def programs() -> Path | None:
    """The folder of the newest installed server's programs, or None."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    there = [path.parent for place in _PLACES if place.is_dir() for path in place.glob("*/bin/initdb")]
    return max(there, default=None)


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    folder: Path
    port: int
    user: list[str]
    bin: Path

    def run(self, sql: str) -> str:
        """As its owner, over the socket in its own folder."""
        command = [*self.user, str(self.bin / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", str(self.folder), "-p", str(self.port), "-U", "owner", "-d", "postgres"]
        return subprocess.run(command, input=sql, text=True, capture_output=True, check=True, cwd="/", timeout=60).stdout

    @property
    def address(self) -> str:
        """As a source names it: without a password."""
        return f"postgres:host=127.0.0.1 port={self.port} dbname=postgres user={READER} connect_timeout=5"


def _as_owner() -> list[str] | None:
    """What comes before a command so that it does not run as root, which a server refuses."""
    if os.geteuid():
        return []
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return None
    return ["runuser", "-u", "postgres", "--"] if shutil.which("runuser") else None


def why_not() -> str:
    """Why no server can be started here, or nothing."""
    if programs() is None:
        return "no PostgreSQL server is installed"
    return "" if _as_owner() is not None else "a PostgreSQL server does not run as root, and there is no user postgres"


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A fresh server that asks for passwords, stopped at the end."""
    binaries, user = programs(), _as_owner()
    assert binaries is not None
    assert user is not None
    folder = Path(tempfile.mkdtemp(prefix="unpooled-pg-"))
    try:
        if user:
            shutil.chown(folder, "postgres")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        data = folder / "data"

        def call(program: str, *arguments: str) -> None:
            # Its own session and no pipes: the server would hold them open.
            command = [*user, str(binaries / program), *arguments]
            subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)

        call(
            "initdb",
            "-D",
            str(data),
            "-U",
            "owner",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
        )
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off -c max_connections=40"
        call("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            server = Postgres(folder, port, user, binaries)
            server.run(f"CREATE ROLE {READER} LOGIN PASSWORD '{PASSWORD}'; GRANT pg_read_all_data TO {READER};")
            yield server
        finally:
            call("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
