"""Faults of a real network on loopback: processes killed, sites and servers gone and back, a party that is slow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
from worlds import Rehearsal, World, kept_digests, make_rehearsal

from unpooled.network.kits import Kit
from unpooled.network.processes import start, stop, up
from unpooled.network.submit import connected
from unpooled.privacy.plan import Study

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]

VICTIM = "laboratory"


class Faulty:
    """A rehearsal whose parties can be held in a step, and whose processes can be killed."""

    def __init__(self, root: Path) -> None:
        self.holds = root / "holds"
        self.holds.mkdir()
        self.made: Rehearsal = make_rehearsal(root, "pride")
        self.world: World = self.made.worlds["pride"]
        self.root, self.processes = root, {}

    def run(self, study: Study, *words: str, patience: float = 60.0) -> subprocess.Popen[str]:
        self.world.approve(study)
        file = self.world.write_study(self.root / f"study{study.run}.toml", study)
        where = ["--network", str(self.made.user.folder), "--out", str(self.out(study)), "--patience", str(patience)]
        command = [str(Path(sys.executable).parent / "unpooled"), "run", str(file), *where, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def out(self, study: Study) -> Path:
        return self.root / f"out{study.run}"

    def restart(self, name: str) -> None:
        self.processes[name].wait(timeout=30)
        self.processes[name] = start(Kit.of(self.made.kits / name))
        eventually(lambda: connected(self.made.user) >= set(self.world.names), 90)

    def jobs(self, name: str) -> list[psutil.Process]:
        return psutil.Process(self.processes[name].pid).children(recursive=True)

    def kill(self, *family: psutil.Process) -> None:
        for process in family:
            process.send_signal(signal.SIGKILL)

    def held(self, step: str) -> Path:
        return self.holds / f"{VICTIM}-{step}"

    def finish(self, study: Study) -> None:
        """Resume: the bits of an unbroken run, each planned release charged once."""
        again = self.run(study, "--resume")
        said, _ = again.communicate(timeout=120)
        assert again.returncode == 0, said
        local = self.world.in_process(study)
        result = json.loads((self.out(study) / "result.json").read_text())
        assert msgspec.json.encode(result["result"]) == msgspec.json.encode(msgspec.to_builtins(local.result))
        assert result["communication"] == local.communication
        assert kept_digests(self.world, study) == self.world.kept_in_process
        assert self.world.charges(study) == self.world.planned(study)


def eventually(true: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


@contextmanager
def reached(faulty: Faulty, step: str) -> Iterator[None]:
    """The victim is in this step, and stays there inside the block."""
    eventually(faulty.held(step).with_suffix(".reached").exists, 60)
    try:
        yield
    finally:
        faulty.held(step).unlink()
        faulty.held(step).with_suffix(".reached").unlink()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    made = Faulty(tmp_path_factory.mktemp("faults"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNPOOLED_TEST_HOLD", str(made.holds))
        path = [str(Path(__file__).parent / "inside"), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(part for part in path if part))
        with up(made.made.kits) as processes:
            made.processes = processes
            yield made


@pytest.mark.parametrize(("step", "number"), [("sketch", 1), ("estimate", 2)])
def test_a_partys_process_is_killed(faulty: Faulty, step: str, number: int) -> None:
    study = faulty.world.variant(run=number)
    faulty.held(step).touch()
    running = faulty.run(study)
    with reached(faulty, step):
        faulty.kill(*faulty.jobs(VICTIM))
        said, _ = running.communicate(timeout=90)
    assert running.returncode == 2
    assert VICTIM in said
    assert "no answer" in said
    faulty.finish(study)


def test_a_slow_party_is_not_waited_for_beyond_the_patience(faulty: Faulty) -> None:
    study = faulty.world.variant(run=3)
    faulty.held("sketch").touch()
    began = time.monotonic()
    running = faulty.run(study, patience=3.0)
    with reached(faulty, "sketch"):
        said, _ = running.communicate(timeout=90)
        assert time.monotonic() - began < 60
    assert running.returncode == 2
    assert f"'{VICTIM}'" in said
    assert "needed more than 3 s" in " ".join(said.split())
    faulty.finish(study)


def test_a_whole_site_is_gone_and_comes_back(faulty: Faulty) -> None:
    study = faulty.world.variant(run=4)
    faulty.held("sketch").touch()
    running = faulty.run(study, patience=5.0)
    with reached(faulty, "sketch"):
        faulty.kill(*faulty.jobs(VICTIM), psutil.Process(faulty.processes[VICTIM].pid))
        said, _ = running.communicate(timeout=90)
    assert running.returncode == 2
    assert f"'{VICTIM}'" in said
    faulty.restart(VICTIM)
    faulty.finish(study)


def test_the_server_is_killed_and_started_again(faulty: Faulty) -> None:
    study = faulty.world.variant(run=5)
    faulty.held("sketch").touch()
    running = faulty.run(study)
    with reached(faulty, "sketch"):
        faulty.kill(*faulty.jobs("localhost"), psutil.Process(faulty.processes["localhost"].pid))
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 2, said
    assert "--resume" in said
    faulty.restart("localhost")
    faulty.finish(study)


def test_everything_that_was_started_is_stopped(faulty: Faulty) -> None:
    """The last test of this module: nothing that a rehearsal started outlives it."""
    family = [psutil.Process(p.pid) for p in faulty.processes.values()]
    family += [child for process in family for child in process.children(recursive=True)]
    stop(*faulty.processes.values())
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
