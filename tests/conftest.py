from __future__ import annotations

import itertools
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

# Before NumPy loads its BLAS: two test processes with a thread for each of two cores wait for one another, up to 20 times as long.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

from unpooled.privacy import budget  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["unpooled.testing"]

#: Tests that took long when `make seconds` ran last: they are in `make test-slow`, a line each.
SLOW = Path(__file__).with_name("slow.txt")
#: Tests of the lanes `slow` and `audit` that CI leaves out (`make seconds`).
LONG = Path(__file__).with_name("long.txt")
#: Tests that `make test COVERAGE=1` runs under coverage (`make measured`); all others are marked no_cover.
MEASURED = Path(__file__).with_name("measured.txt")
#: Where the seconds that every test took when it was last run here are kept between runs.
SECONDS = "unpooled/seconds"
took: dict[str, float] = {}
#: The CPU seconds of every test of this run, children of its process included.
cpu: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """For the inner loop: `make check`."""
    parser.addoption("--cpu", type=Path, help="write the CPU seconds of every test to this file")
    parser.addoption(
        "--at-most", type=float, help="leave out tests that took more seconds than this when they were last run here"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that tests/slow.txt lists, and those that coverage does not need; for the inner loop, leave out what is known to take long and did not fail last."""
    for mark, file in (("slow", SLOW), ("long", LONG)):
        listed = set(file.read_text().splitlines())
        for item in items:
            if item.nodeid.partition("@")[0] in listed:
                item.add_marker(mark)
    if os.environ.get("MEASURED") != "all":
        measured = set(MEASURED.read_text().splitlines())
        for item in items:
            if item.nodeid.partition("@")[0].partition("[")[0] not in measured:
                item.add_marker("no_cover")
    most, cache = config.getoption("--at-most"), getattr(config, "cache", None)
    if most is None or cache is None:
        return
    known, failed = cache.get(SECONDS, {}), cache.get("cache/lastfailed", {})
    slow = [item for item in items if known.get(item.nodeid, 0.0) > most and item.nodeid not in failed]
    config.hook.pytest_deselected(items=slow)
    left_out = set(slow)
    items[:] = [item for item in items if item not in left_out]


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Each report carries the CPU seconds since the one before it in this process."""
    report = yield
    now = _cpu_seconds()
    report.cpu = now - _last.get("at", now)
    _last["at"] = now
    return report


_last: dict[str, float] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Once for setup, call and teardown each."""
    took[report.nodeid] = took.get(report.nodeid, 0.0) + report.duration
    cpu[report.nodeid] = cpu.get(report.nodeid, 0.0) + getattr(report, "cpu", 0.0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Kept by the one process that heard of all tests."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set(SECONDS, {**cache.get(SECONDS, {}), **took})
    place = session.config.getoption("--cpu")
    if place is not None and not hasattr(session.config, "workerinput"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(cpu, indent=0))


@pytest.fixture(scope="session")
def _states(tmp_path_factory: pytest.TempPathFactory) -> Any:
    base = tmp_path_factory.mktemp("states")
    return (str(base / str(number)) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_state(_states: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the ledgers of another one, or writes into the list of whoever runs it."""
    monkeypatch.setenv("XDG_STATE_HOME", next(_states))


@pytest.fixture(autouse=True)
def _own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is warned that another one fitted the same rows in this process."""
    monkeypatch.setattr(budget, "_memory", budget._Memory())


@pytest.fixture(autouse=True)
def _own_draws(request: pytest.FixtureRequest) -> None:
    """A module's generator starts anew for each test, from the test's name: what a test draws depends on neither order nor worker."""
    shared = getattr(request.module, "RNG", None)
    if isinstance(shared, np.random.Generator):
        shared.bit_generator.state = np.random.default_rng(zlib.crc32(request.node.nodeid.encode())).bit_generator.state
