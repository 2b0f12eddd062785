"""A user's side: hand a study to the coordinator, wait, and fetch its results."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from unpooled.errors import UsageError
from unpooled.network.kits import COORDINATOR_CLASS, PARTY_CLASS, RESULTS, Kit
from unpooled.network.service import PROPOSED
from unpooled.network.signing import again as raised_again
from unpooled.study.run import compile_study

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.network.signing import Proposal
    from unpooled.privacy.plan import Plan, Study

#: Told what is being waited for, in words without data.
Tell: TypeAlias = Callable[[str], None]

_POLL = 0.3
_ENDED = "FINISHED"


@contextmanager
def session(kit: Kit, patience: float = 10.0) -> Iterator[Any]:
    """A user's session with the server, certificates both ways."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    if kit.role != "admin":
        msg = f"{kit.folder} is the kit of a {kit.role}: give a user's kit, the folder with fed_admin.json"
        raise UsageError(msg)
    with contextlib.chdir(kit.folder), _quiet():  # the engine's working folders are relative
        try:
            opened = new_secure_session(
                kit.config["admin"]["username"], str(kit.folder), timeout=patience, auto_login_max_tries=1
            )
        except Exception as error:  # noqa: BLE001 - the engine raises a dozen kinds, some of them bare
            host, port = kit.address
            msg = f"no session with the server at {host}:{port} ({type(error).__name__}): see `unpooled doctor {kit.folder}`"
            raise UsageError(msg) from None
        try:
            yield opened
        except Exception as error:
            if not type(error).__module__.startswith("nvflare"):
                raise
            msg = f"the server did not do what was asked ({type(error).__name__}): see its log; a study is run again with --resume"
            raise UsageError(msg) from None
        finally:
            opened.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """The engine prints, logs and warns of its own affairs; with warnings as errors its threads could not even connect."""
    engine = logging.getLogger("nvflare")
    before = engine.level
    engine.setLevel(logging.CRITICAL + 1)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        engine.setLevel(before)


def connected(kit: Kit) -> set[str]:
    """Return the parties that are connected to the server now; empty while it cannot be reached."""
    try:
        socket.create_connection(kit.address, timeout=1.0).close()
        with session(kit, patience=2.0) as opened:
            return {client.name for client in opened.get_system_info().client_info}
    except (OSError, UsageError):
        return set()


def run_networked(
    study: Study, kit: Kit, folder: Path, tell: Tell, *, patience: float = 600.0, resume: bool = False
) -> Plan:
    """Run a study between the parties of a network; leaves result, statement and plan in ``folder``.

    A refusal or a usage error at the coordinator or at any party is raised here as the error it was there.
    """
    plan, folder = compile_study(study), folder.absolute()
    arguments = {"study": msgspec.msgpack.encode(study).hex(), "patience": patience, "resume": resume}
    with session(kit) as opened:
        _all_present(opened, study)
        _end_older_jobs(opened, plan, resume=resume)
        with _done(opened, _job_name(plan), study, arguments, tell, again=", then run again with --resume") as fetched:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(fetched, folder, dirs_exist_ok=True)
    return plan


def propose_networked(proposal: Proposal, kit: Kit, tell: Tell, *, patience: float = 60.0) -> tuple[str, ...]:
    """Lay a study into the inbox of every party of it; return the parties that were away. It has no effect there until their people decide."""
    study = proposal.study
    plan = compile_study(study)
    arguments = {
        "study": "",
        "patience": patience,
        "resume": False,
        "proposal": msgspec.msgpack.encode(proposal).hex(),
    }
    with session(kit) as opened:
        _all_present(opened, study)
        with _done(opened, f"unpooled-proposed-{plan.hash[:32]}", study, arguments, tell) as fetched:
            found = json.loads((fetched / PROPOSED).read_text())
    return tuple(found["away"])


def _all_present(opened: Any, study: Study) -> None:  # noqa: ANN401 - the engine ships no types
    present = {client.name for client in opened.get_system_info().client_info}
    missing = [card.name for card in study.members if card.name not in present]
    if missing:
        msg = (
            f"not connected: {', '.join(missing)}: nothing was sent. Ask them to start their kits (`unpooled network start`)"
        )
        raise UsageError(msg)


@contextmanager
def _done(
    opened: Any,  # noqa: ANN401 - the engine ships no types
    name: str,
    study: Study,
    arguments: dict[str, Any],
    tell: Tell,
    again: str = "",
) -> Iterator[Path]:
    """Submit a job of the study's members, wait for its end, and give the folder that it left; a no is raised as the error that it was there."""
    with tempfile.TemporaryDirectory(prefix="unpooled-job-") as folder:
        job = opened.submit_job(str(_write_job(Path(folder), name, study, arguments)))
        tell(f"submitted as job {job}")
        try:
            meta = _wait(opened, job, tell)
        except KeyboardInterrupt:
            opened.abort_job(job)
            raise
        fetched = Path(opened.download_job_result(job, folder)) / "workspace" / RESULTS
        if not fetched.is_dir():
            msg = f"job {job} ended as {meta['status']} without a result: see the coordinator's log{again}"
            raise UsageError(msg)
        refused = fetched / "refused.json"
        if refused.exists():
            reason = json.loads(refused.read_text())
            raise raised_again(reason["error"], reason["words"]).at(party=reason.get("party"))
        yield fetched


def _end_older_jobs(opened: Any, plan: Plan, *, resume: bool) -> None:  # noqa: ANN401 - the engine ships no types
    """A server that was killed lists its jobs as running for ever. Those of this study are ended before it is resumed."""
    from nvflare.fuel.flare_api.api_spec import InternalError, JobNotRunning

    for job in opened.list_jobs(name_prefix=_job_name(plan)) or []:
        if not str(job.get("status", _ENDED)).startswith(_ENDED):
            if not resume:
                msg = f"job {job['job_id']} runs this study already: wait for its end, or take it over with --resume"
                raise UsageError(msg)
            with contextlib.suppress(InternalError, JobNotRunning):  # listed, but its processes are gone
                opened.abort_job(job["job_id"])


def _wait(opened: Any, job: str, tell: Tell) -> dict[str, Any]:  # noqa: ANN401 - the engine ships no types
    began, shown = time.monotonic(), ""
    while True:
        meta: dict[str, Any] = opened.get_job_meta(job)
        status = str(meta.get("status"))
        if status != shown:
            tell(f"{status.lower()} after {time.monotonic() - began:.0f} s")
            shown = status
        if status.startswith(_ENDED):
            return meta
        time.sleep(_POLL)


def _job_name(plan: Plan) -> str:
    return f"unpooled-{plan.hash[:32]}"


def _write_job(folder: Path, name: str, study: Study, arguments: dict[str, Any]) -> Path:
    """A job is three JSON files that name installed classes; the study travels as an argument."""
    job = folder / name
    config = job / "app" / "config"
    config.mkdir(parents=True)
    names = [card.name for card in study.members]
    meta = {
        "name": job.name,
        "resource_spec": {},
        "min_clients": 1,  # who is missing is the coordinator's to judge, not the engine's
        "mandatory_clients": [],
        "deploy_map": {"app": ["server", *names]},
    }
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "controller",
                "path": "nvflare.collab.runtime.controller.CollabController",
                "args": {"server_obj_id": "_server"},
            }
        ],
        "components": [{"id": "_server", "path": COORDINATOR_CLASS, "args": arguments}],
    }
    executor = {"path": "nvflare.collab.runtime.executor.CollabExecutor", "args": {"client_obj_id": "_client"}}
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "components": [{"id": "_client", "path": PARTY_CLASS, "args": {}}],
    }
    (job / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    (config / "config_fed_client.json").write_text(json.dumps(client))
    return job
