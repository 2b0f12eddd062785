"""Faults of a real network on loopback: processes killed, sites and servers gone and back, a party that is slow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from faulty_network import Faulty, eventually, started

from unpooled.network.processes import stop

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]

VICTIM = "laboratory"


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
    with started(Faulty(tmp_path_factory.mktemp("faults"), "pride", VICTIM)) as made:
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
