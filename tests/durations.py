"""The CPU seconds of every test, kept in build/durations.json from run to run: ``--until`` starts with the quickest, and ``--cpu`` writes those of one run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

#: Where they are kept, from the root of the checkout.
KEPT = Path("build/durations.json")
#: The CPU seconds that a test is taken to need which was never run here.
UNKNOWN = 0.02


def bare(nodeid: str) -> str:
    """Return the name of a test without the group that workers add."""
    return nodeid.partition("@")[0]


def kept(root: Path) -> dict[str, float]:
    """Return the CPU seconds of every test that was ever run here."""
    found: dict[str, float] = json.loads((root / KEPT).read_text()) if (root / KEPT).exists() else {}
    return found


def _write(place: Path, seconds: dict[str, float]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    ready = place.with_name(f"{place.name}.{os.getpid()}")
    ready.write_text(json.dumps(seconds, indent=0))
    ready.replace(place)


def add_options(parser: pytest.Parser) -> None:
    """Add the two options of the command line."""
    parser.addoption("--cpu", type=Path, help="write the CPU seconds of every test of this run to this file")
    parser.addoption("--until", type=float, help="run the quickest tests first, and start none after this many seconds")


class Durations:
    """A plugin of pytest: measures, keeps, and stops in time."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seconds: dict[str, float] = {}
        self.left_out = 0
        self._start, self._last = time.monotonic(), self._now()

    @staticmethod
    def _now() -> float:
        """Return the CPU seconds of this process and of those of its children that have ended."""
        return sum(os.times()[:4])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.config.getoption("until") is not None:
            known = kept(self.config.rootpath)
            items.sort(key=lambda item: known.get(bare(item.nodeid), UNKNOWN))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        until = self.config.getoption("until")
        if until is None or time.monotonic() - self._start < until:
            return None
        self.left_out += 1
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        """Each report carries the CPU seconds since the one before it in this process."""
        report = yield
        now = self._now()
        report.cpu, self._last = now - self._last, now
        return report

    def pytest_collection_finish(self) -> None:
        self._last = self._now()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = bare(report.nodeid)
        self.seconds[name] = self.seconds.get(name, 0.0) + round(getattr(report, "cpu", 0.0), 3)

    def pytest_sessionfinish(self) -> None:
        """Kept by the one process that heard of all tests."""
        if hasattr(self.config, "workerinput") or not self.seconds:
            return
        _write(self.config.rootpath / KEPT, {**kept(self.config.rootpath), **self.seconds})
        if place := self.config.getoption("cpu"):
            _write(place, self.seconds)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        until = self.config.getoption("until")
        if until is not None:
            terminalreporter.write_line(f"{len(self.seconds)} tests ran within {until:.0f} seconds, the quickest first")
