"""A network on loopback whose parties can be held in a step, and whose processes are killed."""

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
from unpooled.network.processes import start, up
from unpooled.network.submit import connected
from unpooled.privacy.plan import Study


class Faulty:
    """A rehearsal whose parties can be held in a step, and whose processes can be killed."""

    def __init__(self, root: Path, model: str, victim: str) -> None:
        self.holds = root / "holds"
        self.holds.mkdir()
        self.made: Rehearsal = make_rehearsal(root, model, studies=40)
        self.world: World = self.made.worlds[model]
        self.root, self.victim, self.processes = root, victim, {}

    def run(self, study: Study, *words: str, patience: float = 60.0) -> subprocess.Popen[str]:
        self.world.approve(study)
        file = self.world.write_study(self.root / f"study{study.run}.toml", study)
        where = ["--network", str(self.made.user.folder), "--out", str(self.out(study)), "--patience", str(patience)]
        command = [str(Path(sys.executable).parent / "unpooled"), "run", str(file), "--force", *where, *words]
        # Parties hold, the user's own process does not: before it sends a study it may play it through with made-up data.
        env = {name: value for name, value in os.environ.items() if name != "UNPOOLED_TEST_HOLD"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)

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
        return self.holds / f"{self.victim}-{step}"

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
        assert self.world.fully_charged(study)


def eventually(true: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


@contextmanager
def started(made: Faulty) -> Iterator[Faulty]:
    """Its processes, up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNPOOLED_TEST_HOLD", str(made.holds))
        path = [str(Path(__file__).parent / "inside"), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(part for part in path if part))
        with up(made.made.kits) as processes:
            made.processes = processes
            yield made
