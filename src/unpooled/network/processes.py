"""The engine's processes on this machine, and failures found before they happen: certificates, clock, server, versions, roster, cards, policy."""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import platform
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import psutil
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from unpooled.errors import PolicyRefusal, StudyError, UnpooledError, UsageError
from unpooled.network.kits import Kit, coordinator_identity, kits_in, place_storage
from unpooled.network.submit import connected
from unpooled.study.data import gaps_in_words, gaps_of_rows
from unpooled.study.party import open_party
from unpooled.study.run import compile_study

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from unpooled.privacy.plan import Study


# --- Processes -------------------------------------------------------------------------------------------------------------
# The engine's processes on this machine: one participant, or a whole network for a rehearsal.

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


# --- Doctor ----------------------------------------------------------------------------------------------------------------
# Find failures before they happen: certificates, clock, server, versions, roster, cards, policy. Changes nothing, sends no data.

#: Certificates that end within so many days are a problem today: renewing them takes several organisations.
_NOTICE = 14
#: Seconds by which two clocks may differ. Certificates and logs are read by the clock.
_CLOCK = 60.0
_PATIENCE = 5.0
_ENGINE = "2.9."


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    fine: bool
    words: str


def examine(kit: Kit | None, config: Path | None, study: Study | None) -> list[Finding]:
    """Look at everything that these three allow to be looked at."""
    # Without a kit, and with a study that pins no coordinator, all parties are on one disk: the engine is not needed.
    local = kit is None and (study is None or not study.coordinator)
    checks: list[tuple[str, Callable[[], str]]] = [("versions", _version if local else _versions)]
    if kit is not None:
        checks += [("certificate", lambda: _certificate(kit)), ("private files", lambda: _private(kit))]
        checks += [("server", lambda: _server(kit))]
        if kit.role == "client" and config is None:
            config = kit.folder / "local" / "party.toml"
    if study is not None:
        checks += [("cards", lambda: _cards(study))]
        if local:
            checks += [
                (
                    "where",
                    lambda: (
                        "no coordinator is pinned: this study runs with all parties on one disk (`unpooled run --party`)"
                    ),
                )
            ]
        else:
            checks += [("coordinator", lambda: _coordinator(kit, study))]
        if kit is not None and kit.role == "admin":
            checks += [("roster", lambda: _roster(kit, study))]
    if config is not None:
        checks += [("party", lambda: _party(config.resolve(), kit, study)), ("gaps", lambda: _gaps(config.resolve()))]
    return [_look(what, check) for what, check in checks]


def _look(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, fine=True, words=check())
    except (UnpooledError, OSError, ValueError) as error:
        return Finding(what, fine=False, words=str(error) or type(error).__name__)


def _version() -> str:
    return f"python {platform.python_version()}, unpooled {importlib.metadata.version('unpooled')}"


def _versions() -> str:
    found = {name: importlib.metadata.version(name) for name in ("unpooled", "nvflare")}
    if not found["nvflare"].startswith(_ENGINE):
        msg = f"nvflare {found['nvflare']} is installed, and {_ENGINE}* is needed: pip install 'unpooled[network]'"
        raise UsageError(msg)
    return (
        f"python {platform.python_version()}, unpooled {found['unpooled']}, nvflare {found['nvflare']}: all sides need these"
    )


def _certificate(kit: Kit) -> str:
    own = x509.load_pem_x509_certificate(kit.certificate.read_bytes())
    authority = x509.load_pem_x509_certificate((kit.folder / "startup" / "rootCA.pem").read_bytes())
    key = load_pem_private_key(kit.certificate.with_suffix(".key").read_bytes(), None).public_key()
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_bytes(*form) != own.public_key().public_bytes(*form):
        msg = f"{kit.certificate.name} does not belong to the private key beside it: take both from one kit"
        raise UsageError(msg)
    try:
        own.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - InvalidSignature, or a wrong issuer or key type
        msg = f"{kit.certificate.name} was not issued by the authority in rootCA.pem: take both from one kit"
        raise UsageError(msg) from None
    now = datetime.now(UTC)
    for what, one in (("certificate", own), ("authority", authority)):
        left = (one.not_valid_after_utc - now).days
        if now < one.not_valid_before_utc:
            msg = f"the {what} is valid only from {one.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: is this clock right?"
            raise UsageError(msg)
        if left < _NOTICE:
            state = "has ended" if left < 0 else f"ends in {left} days"
            msg = (
                f"the {what} {state} ({one.not_valid_after_utc:%Y-%m-%d}): provision the network anew and hand out its kits"
            )
            raise UsageError(msg)
    return f"{kit.role} {kit.name!r}, valid until {min(own.not_valid_after_utc, authority.not_valid_after_utc):%Y-%m-%d}"


def _private(kit: Kit) -> str:
    files = [kit.certificate.with_suffix(".key"), kit.folder / "local" / "coordinator.key"]
    for file in files:
        if file.exists() and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            msg = f"{file} can be read by other users of this machine: chmod 600 {file}"
            raise UsageError(msg)
    return "keys are readable by their owner only"


def _server(kit: Kit) -> str:
    host, port = kit.address
    context = ssl.create_default_context(cafile=str(kit.folder / "startup" / "rootCA.pem"))
    context.load_cert_chain(kit.certificate, kit.certificate.with_suffix(".key"))
    try:
        with (
            socket.create_connection((host, port), timeout=_PATIENCE) as raw,
            context.wrap_socket(raw, server_hostname=host) as tls,
        ):
            tls.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = tls.recv(4096).decode("ascii", "replace")
    except OSError as error:
        msg = f"the server at {host}:{port} cannot be used ({error}): is it up, is the port open, are both kits of one network?"
        raise UsageError(msg) from None
    dates = [line.partition(":")[2] for line in answer.splitlines() if line.lower().startswith("date:")]
    if not dates:
        return f"{host}:{port} accepts this certificate (it did not tell its time)"
    difference = abs(parsedate_to_datetime(dates[0].strip()).timestamp() - time.time())
    if difference > _CLOCK:
        msg = f"the clocks of this machine and of {host} differ by {difference:.0f} s: set both by a time server"
        raise UsageError(msg)
    return f"{host}:{port} accepts this certificate; the clocks agree within {max(1.0, difference):.0f} s"


def _cards(study: Study) -> str:
    plan = compile_study(study)
    rows = {card.name: card.rows for card in study.parties}
    if plan.split.shares_people and not plan.links and len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in rows.items())
        msg = f"the parties of a column-split study declare different numbers of rows ({listed}): link their rows first (docs/linkage.md), or align their files and renew the cards"
        raise UsageError(msg)
    return f"plan {plan.hash[:16]} for {', '.join(f'{card.name} ({card.size} rows)' for card in study.parties)}"


def _coordinator(kit: Kit | None, study: Study) -> str:
    if not study.coordinator:
        msg = "the study names no coordinator key: set [study] coordinator to what `unpooled network provision` printed"
        raise UsageError(msg)
    if kit is not None and kit.role == "server" and coordinator_identity(kit.folder).public != study.coordinator:
        msg = f'the study pins another coordinator: set [study] coordinator = "{coordinator_identity(kit.folder).public}"'
        raise UsageError(msg)
    return f"key {study.coordinator[:16]}"


def _roster(kit: Kit, study: Study) -> str:
    present = connected(kit)
    missing = [card.name for card in study.members if card.name not in present]
    if missing:
        msg = f"not connected: {', '.join(missing)} (connected: {', '.join(sorted(present)) or 'nobody'})"
        raise UsageError(msg)
    return f"connected: {', '.join(sorted(present))}"


def _gaps(config: Path) -> str:
    """Say which columns lack values, and which of them together: at this party alone, for these are exact numbers."""
    with open_party(config) as party:
        columns = () if party.helps else party.declared.columns
        if not columns:
            return "no columns are declared here"
        names = tuple(column.name for column in columns)
        found = gaps_of_rows(party.table.blocks(names), columns)
        return "; ".join(gaps_in_words(found, party.table.n_rows)).replace("gaps     ", "") or "no value is missing"


def _party(config: Path, kit: Kit | None, study: Study | None) -> str:
    with open_party(config) as party:
        if kit is not None and kit.role == "client" and kit.name != party.name:
            msg = f"{config} names {party.name!r}, but this kit is that of {kit.name!r}: use one name"
            raise UsageError(msg)
        if study is None:
            return f"{party.name!r}: {party.table.n_rows} rows, ledger and key in order"
        if party.helps:
            party.consider(compile_study(study), approved=True)
            return f"{party.name!r}: a helper without data, ledger and key in order"
        card = study.card(party.name)
        for what, theirs, ours in (
            ("rows", card.rows, party.declared.rows),
            ("columns", card.columns, party.declared.columns),
            ("labels", card.labels, party.declared.labels),
            ("key", card.key, party.declared.key),
        ):
            if theirs != ours:
                shown = f" ({theirs} there, {ours} here)" if what == "rows" else ""
                msg = f"the study's card of {party.name!r} has other {what} than this party{shown}: give the study the new card"
                raise UsageError(msg)
        plan = compile_study(study)
        party.consider(plan, approved=True)
        if (
            party.policy.approved is not None
            and plan.hash not in party.policy.approved
            and not party.ledger.approved(plan.hash)
        ):
            msg = f"{party.name!r}: the plan fits the policy, but nobody has approved it: `unpooled party check STUDY`"
            raise UsageError(msg)
        if other := party.other_data(plan):
            raise PolicyRefusal(other)
        return f"{party.name!r}: card, data, policy and ledger agree with the plan, which is approved"
