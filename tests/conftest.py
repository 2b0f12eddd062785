from __future__ import annotations

import itertools
import os
import sys
import zlib
from pathlib import Path
from typing import Any

# Before NumPy loads its BLAS: two test processes with a thread for each of two cores wait for one another, up to 20 times as long.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent))

import durations  # noqa: E402 - found through the line above
import lanes  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from _pytest.doctest import DoctestModule  # noqa: E402

from unpooled.privacy import budget  # noqa: E402

pytest_plugins = ["unpooled.testing"]


def pytest_addoption(parser: pytest.Parser) -> None:
    durations.add_options(parser)


class Examples:
    """A plugin of pytest, for all folders: modules without examples are not imported to look for some."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Any:
        found = yield
        return [one for one in found if not isinstance(one, DoctestModule) or b">>>" in file_path.read_bytes()]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(durations.Durations(config), "durations")
    config.pluginmanager.register(Examples(), "examples")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark parameters by their tests' lanes, and the tests that a module imports and names as part of the guarantee's."""
    lanes.mark(config, items)
    for item in items:
        if getattr(item, "originalname", None) in getattr(getattr(item, "module", None), "GUARANTEE", ()):
            item.add_marker("guarantee")


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
