"""The engine's processes on this machine: one participant, or a whole network for a rehearsal."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

from unpooled.errors import StudyError, UsageError
from unpooled.network.kits import Kit, kits_in, place_storage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STOP_PATIENCE = 8.0
_ENVIRONMENT = {
    # One thread, so that bits do not depend on a machine's number of cores.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # A study that has ended does not keep its user waiting for a party that is still computing (the engine's default: 15 minutes).
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "5",
}


def start(kit: Kit) -> subprocess.Popen[bytes]:
    """Start the server or the party of a kit; what it says goes to ``engine.log`` in the kit."""
    if kit.role == "admin":
        msg = f"{kit.folder} is a user's kit: it starts studies, with `unpooled run STUDY --network {kit.folder}`"
        raise StudyError(msg)
    party = kit.folder / "local" / "party.toml"
    if kit.role == "client" and not party.is_file():
        msg = f"{party} is missing: make it there with `unpooled party init`, or link the one you have to that place"
        raise StudyError(msg)
    if kit.role == "server":
        place_storage(kit)
    (kit.folder / "transfer").mkdir(exist_ok=True)
    settings = ["secure_train=true", "config_folder=config", "org=coordinator"]
    if kit.role == "client":
        settings = ["secure_train=true", "config_folder=config", f"org={kit.name}", f"uid={kit.name}"]
    module = f"nvflare.private.fed.app.{kit.role}.{kit.role}_train"
    command = [sys.executable, "-u", "-m", module, "-m", str(kit.folder), "-s", f"fed_{kit.role}.json", "--set", *settings]
    log = os.open(kit.folder / "engine.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    alone = _alone(kit)
    try:
        environment = {**_ENVIRONMENT, **os.environ}
        return subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            command,
            cwd=kit.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environment,
            pass_fds=(alone,),  # the lock is held as long as the process lives, however its parent ends
        )
    finally:
        os.close(alone)
        os.close(log)


def _alone(kit: Kit) -> int:
    """Return a file descriptor that holds the lock of a kit; refused where another process holds it."""
    lock = os.open(kit.folder / "running.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        msg = f"{kit.name} is running already from {kit.folder}: stop that one first, or leave it"
        raise UsageError(msg) from None
    return lock


def stop(*processes: subprocess.Popen[bytes]) -> None:
    """End processes that :func:`start` started, with the job processes that they started: first asked, then killed."""
    family: list[psutil.Process] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            family += [parent, *parent.children(recursive=True)]
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.terminate()
    _, stubborn = psutil.wait_procs(family, timeout=_STOP_PATIENCE)
    for member in stubborn:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    for process in processes:
        process.wait(timeout=_STOP_PATIENCE)


@contextmanager
def up(folder: Path, patience: float = 60.0) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The server and all parties of a provisioned folder as processes of this machine, connected; stopped on leaving."""
    from unpooled.network.submit import connected

    kits = kits_in(folder)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for kit in kits:
            if kit.role != "admin":
                processes[kit.name] = start(kit)
        parties = {kit.name for kit in kits if kit.role == "client"}
        user = next(kit for kit in kits if kit.role == "admin")
        until = time.monotonic() + patience
        while (missing := parties - connected(user)) and time.monotonic() < until:
            for name, process in processes.items():
                if process.poll() is not None:
                    msg = f"{name} ended with code {process.returncode}: read {folder / name / 'engine.log'}"
                    raise UsageError(msg)
            time.sleep(0.2)
        if missing:
            msg = f"{', '.join(sorted(missing))} did not connect within {patience:g} s: read engine.log in their kits"
            raise UsageError(msg)
        yield processes
    finally:
        stop(*processes.values())
