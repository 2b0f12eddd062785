"""Which tests run which lines, and how long each takes: measured once, kept outside what is versioned."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from durations import bare, kept

PACKAGES = ("privacy", "totals", "products", "linear", "inference", "protocol", "linkage")
#: What may kill a mutant; the network engine's tests take too long for it.
TESTS = ("tests/unit", "tests/contract", "tests/audit", "tests/stats")
CONFIG = """[run]
branch = false
core = ctrace
source_pkgs =
""" + "".join(f"    unpooled.{package}\n" for package in PACKAGES)


#: Tests that took more CPU seconds than this, in whatever lane, are not asked: a mutant has a minute.
DEAREST = 1.5


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As a plugin of the measured run: tests that are known to be dear are left out, and slow ones that are not known."""
    took = kept(config.rootpath)
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        unknown = 2 * DEAREST if item.get_closest_marker("slow") else 0.0
        chosen[took.get(bare(item.nodeid), unknown) <= DEAREST].append(item)
    config.hook.pytest_deselected(items=chosen[False])
    items[:] = chosen[True]


class Map(NamedTuple):
    """Tests with their seconds; for each file and line the numbers of the tests that run it; the digests of the measured files."""

    tests: list[tuple[str, float]]
    lines: dict[str, dict[int, list[int]]]
    digests: dict[str, str]

    def of(self, file: str, lines: tuple[int, ...], *, current: bool = True) -> dict[str, float]:
        """The tests that run any of these lines. Lines that run at import belong to whatever runs anything of the file,
        and so do all lines of a file that has changed since (``current``)."""
        known = self.lines.get(file, {})
        numbers = {test for line in lines for test in known.get(line, ())} if current else set()
        if not numbers:
            numbers = {test for found in known.values() for test in found}
        return dict(sorted((self.tests[k] for k in numbers), key=lambda test: test[1]))


def sources(root: Path) -> dict[str, Path]:
    """The files that are mutated, by their names in reports."""
    package = root / "src" / "unpooled"
    files = [file for name in PACKAGES for file in sorted((package / name).rglob("*.py"))]
    return {str(file.relative_to(package)): file for file in files}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def measure(root: Path, folder: Path, arguments: tuple[str, ...] = TESTS) -> Map:
    """Run the tests once under measurement: about half an hour of one core; those of the slow lane too, where `build/durations.json` says what they take."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coveragerc").write_text(CONFIG)
    options = [
        "-q",
        "-p",
        "coverage_map",
        "-m",
        "not minutes and not network and not network_slow",
        "--cov",
        f"--cov-config={folder / 'coveragerc'}",
    ]
    options += ["--cov-context=test", "--cov-report=", f"--junitxml={folder / 'tests.xml'}", "-p", "no:cacheprovider"]
    environment = {**os.environ, "COVERAGE_FILE": str(folder / "coverage"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), environment.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-m", "pytest", *options, *arguments], cwd=root, env=environment, check=False)
    return convert(root, [(folder / "coverage", folder / "tests.xml")])


def convert(root: Path, measured: list[tuple[Path, Path]]) -> Map:
    """Measurements (a file of coverage, a file of durations) as one map. A test that failed is not asked about mutants, nor one that is
    gone."""
    from coverage import CoverageData

    seconds: dict[str, float] = {}
    broken: set[str] = set()
    for _, durations in measured:
        for case in ET.parse(durations).iter("testcase"):
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            seconds[name] = float(case.get("time", "0"))
            if any(part.tag in {"failure", "error", "skipped"} for part in case):
                broken.add(name)
    order = [(name, s) for name, s in seconds.items() if name not in broken]
    numbers = {name: k for k, (name, _) in enumerate(order)}
    lines: dict[str, dict[int, list[int]]] = {}
    files = sources(root)
    for coverage, _ in measured:
        data = CoverageData(str(coverage))
        data.read()
        for name, file in files.items():
            here = lines.setdefault(name, {})
            for line, contexts in data.contexts_by_lineno(str(file)).items():
                tests = {numbers[c.rpartition("|")[0]] for c in contexts if c.rpartition("|")[0] in numbers}
                here[line] = sorted({*here.get(line, ()), *tests})
    return Map(order, lines, {name: digest(file) for name, file in files.items()})


def save(found: Map, file: Path) -> None:
    file.write_text(json.dumps(found))


def load(file: Path) -> Map:
    tests, lines, digests = json.loads(file.read_text())
    by_line = {name: {int(line): numbers for line, numbers in here.items()} for name, here in lines.items()}
    return Map([(name, seconds) for name, seconds in tests], by_line, digests)
