"""Runs the chosen tests against one mutant after the other, each in a fork of a process that has the heavy libraries loaded already.

The parent has imported NumPy, SciPy, scikit-learn, pytest and the like, but nothing of the package. A child puts a finder in front that
compiles the mutated tree in the place of one module, then lets pytest run the chosen tests in its own process, cheapest first, up to the
first failure. It tells its parent over a pipe which test begins. A child that stays in one test far longer than the test takes without a
fault is killed, and so is every process of its group.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.util
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import hypothesis
import pytest
from mutators import mutated

#: What the forks need not load again. Some are optional: whatever is missing is loaded by whoever can.
HEAVY = [
    "numpy",
    "numpy.random",
    "numpy.testing",
    "scipy",
    "scipy.stats",
    "scipy.special",
    "scipy.optimize",
    "scipy.integrate",
    "scipy.linalg",
    "sklearn",
    "sklearn.base",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "sklearn.datasets",
    "sklearn.utils.validation",
    "numba",
    "msgspec",
    "polars",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.asymmetric.x25519",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "dp_accounting",
    "dp_accounting.rdp",
    "dp_accounting.pld",
    "hypothesis",
    "hypothesis.extra.numpy",
    "mpmath",
    "typer",
    "typer.testing",
    "rich",
    "rich.table",
    "jinja2",
    "tomli_w",
    "sqlite3",
    "matplotlib.pyplot",
    "rbcl",
    "_pytest.doctest",
    "_pytest.junitxml",
    "pytest_timeout",
    "opendp.prelude",
    "threadpoolctl",
]
#: A test that takes this many times as long as without a fault, and this many seconds, hangs.
TIMES, AT_LEAST = 20.0, 15.0
OPTIONS = [
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-m",
    "",
    "--no-header",
    "--tb=line",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]


class Verdict(NamedTuple):
    """What became of a mutant: ``killed``, ``timed out`` or ``survived``; by which test; how many of the chosen ones ran."""

    outcome: str
    test: str
    ran: int
    seconds: float


class _Mutant(SourceFileLoader, importlib.abc.MetaPathFinder):
    """Finds one module of the package, with a fault in it."""

    def __init__(self, module: str, file: Path, node: int, choice: int) -> None:
        super().__init__(module, str(file))
        self._file = file
        self._tree = mutated(file.read_text(), node, choice)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        inside = [str(self._file.parent)] if self._file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(fullname, self._file, loader=self, submodule_search_locations=inside)

    def get_code(self, fullname: str) -> object:
        return compile(self._tree, str(self._file), "exec", dont_inherit=True)


class _Reporter:
    """Tells the parent what begins and what failed, and stops when the time is used up."""

    def __init__(self, pipe: int, seconds: float, tests: list[str]) -> None:
        self._pipe, self._until = pipe, time.monotonic() + seconds
        self._place = {test: k for k, test in enumerate(tests)}

    def _say(self, *words: object) -> None:
        os.write(self._pipe, json.dumps(words).encode() + b"\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say("begins", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say("failed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say("failed", report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._say("ends", nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Only the chosen ones, in their order. One that a fault makes vanish (a parameter that is worked out) is no failure."""
        items[:] = sorted((item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if time.monotonic() > self._until:
            item.session.shouldstop = "the time for this mutant is used up"


def warm() -> None:
    """Load what every fork would load."""
    for name in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{name}_NUM_THREADS", "1")
    os.environ.setdefault("MPLBACKEND", "agg")
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    loaded = [name for name in sys.modules if name.split(".")[0] == "unpooled"]
    if loaded:
        msg = f"the package was loaded before any mutant: {loaded[:3]}"
        raise RuntimeError(msg)


def _child(pipe: int, root: Path, finder: _Mutant | None, tests: list[str], seconds: float, scratch: Path) -> None:
    os.setsid()
    scratch.mkdir(parents=True, exist_ok=True)
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in () if os.environ.get("LOUD") else (0, 1, 2):
        os.dup2(silent, stream)
    os.chdir(root)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(scratch / "hypothesis")
    hypothesis.settings.register_profile(
        "mutant", phases=[p for p in hypothesis.Phase if p.name in {"explicit", "generate"}], deadline=None
    )
    hypothesis.settings.load_profile("mutant")  # that it fails is enough: no search for the smallest example
    if finder is not None:
        sys.meta_path.insert(0, finder)
    files = dict.fromkeys(test.split("::")[0] for test in tests)
    code = pytest.main([*OPTIONS, f"--basetemp={scratch / 'tmp'}", *files], plugins=[_Reporter(pipe, seconds, tests)])
    os.write(pipe, json.dumps(["over", int(code)]).encode() + b"\n")


def run(
    root: Path, mutant: tuple[str, Path, int, int] | None, tests: dict[str, float], seconds: float, scratch: Path
) -> Verdict:
    """One mutant (None: the package as it is) against these tests, which take so many seconds each without a fault."""
    began = time.monotonic()
    finder = None if mutant is None else _Mutant(*mutant)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            _child(writing, root, finder, list(tests), seconds, scratch)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            sys.stdout.flush()
            os._exit(1)
    os.close(writing)
    try:
        outcome, test, ran = _watch(reading, tests, began + seconds + 120.0)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        shutil.rmtree(scratch, ignore_errors=True)
    return Verdict(outcome, test, ran, time.monotonic() - began)


def _watch(pipe: int, tests: dict[str, float], latest: float) -> tuple[str, str, int]:
    """Follow a child to the first failure, its end, or a test that does not end."""
    at, ran, rest, limit = "collection", 0, b"", time.monotonic() + 120.0
    while True:
        now = time.monotonic()
        if now > min(limit, latest) or not select.select([pipe], [], [], min(limit, latest) - now)[0]:
            return "timed out", at, ran
        said = os.read(pipe, 1 << 16)
        if not said:  # it died without a word: the interpreter itself, or a test that kills its process
            return "killed", at, ran
        *lines, rest = (rest + said).split(b"\n")
        for line in lines:
            what, value = json.loads(line)
            if what == "failed":
                return "killed", value, ran
            if what == "over":
                # 0, 2 and 5: all passed, our own time was used up, every chosen test vanished. Else pytest itself could not go on.
                return ("survived", "", ran) if value in (0, 2, 5) else ("killed", at, ran)
            if what == "begins":
                at = value
                limit = time.monotonic() + max(AT_LEAST, TIMES * tests.get(value, 0.0))
            if what == "ends":
                ran += 1
                limit = time.monotonic() + 120.0
