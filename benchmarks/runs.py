"""One benchmark script as a process of its own: its environment, its limit of time, and its result, kept until the sources change."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".peers"
KEPT = ROOT / ".bench"
#: Variables that would choose an older kernel for BLAS than the processor has: neither side is measured under them.
DROPPED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
#: The largest share of one core that other processes may take while two contenders are compared, and how often that is tried.
QUIET, TRIES = 0.05, 3


@dataclass(frozen=True)
class Part:
    """A part of the bench: a script with its arguments."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    #: Whether its contenders are in the environment of the peers of today's NumPy.
    beside_peers: bool = False

    @property
    def command(self) -> list[str]:
        """What is run: by the interpreter of the peers if the part has any and they are installed."""
        peers = PEERS / "new" / "bin" / "python"
        python = str(peers) if self.beside_peers and peers.exists() else sys.executable
        return [python, str(ROOT / "benchmarks" / f"{self.script}.py"), *self.arguments]

    def key(self, *, quick: bool) -> str:
        """Return a digest of the command and of all sources that a result depends on."""
        found = hashlib.sha256(json.dumps([self.command, quick]).encode())
        own = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").glob("unpooled/schedules/*.toml")]
        for path in [*sorted(own), *sorted((ROOT / "benchmarks").glob("*.py"))]:
            if path.parent.name != "benchmarks" or path.stem in {self.script, "board", "neighbours"}:
                found.update(path.read_bytes())
        return found.hexdigest()[:16]


@dataclass(frozen=True)
class Result:
    """What a part noted, and how it went."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    failed: bool = False
    day: str = ""

    @property
    def others(self) -> float:
        """The largest share of a core that other processes took while a row was measured."""
        return max((row["others"] for row in self.rows), default=0.0)

    @property
    def quiet(self) -> bool:
        """Whether other processes took so little that every row counts."""
        return self.others <= QUIET


def environment(board: Path, given: Mapping[str, str], *, quick: bool) -> dict[str, str]:
    """Return the environment of a script: the caller's without what chooses kernels, and where the peers of other versions are."""
    found = {key: value for key, value in given.items() if key not in DROPPED}
    for variable, place in (("DIFFPRIVLIB_PYTHON", "old"), ("UNPOOLED_OPENMINED", "psi")):
        python = PEERS / place / "bin" / "python"
        if python.exists():
            found.setdefault(variable, str(python))
    own = [str(ROOT / "src"), str(ROOT / "benchmarks"), *filter(None, [given.get("PYTHONPATH")])]
    found |= {"UNPOOLED_BOARD": str(board), "PYTHONPATH": os.pathsep.join(own)}
    return found | ({"UNPOOLED_BENCH_QUICK": "1"} if quick else {})


def measured(part: Part, seconds: float, *, quick: bool) -> Result:
    """Run a part once."""
    with tempfile.TemporaryDirectory() as folder:
        board, began, failed = Path(folder) / "board.jsonl", time.monotonic(), False
        board.touch()
        try:
            there = environment(board, os.environ, quick=quick)
            failed = subprocess.run(part.command, cwd=ROOT, env=there, timeout=seconds, check=False).returncode != 0
        except subprocess.TimeoutExpired:
            failed = True
        rows = [{"script": part.script, **json.loads(line)} for line in board.read_text(encoding="utf-8").splitlines()]
    return Result(rows, time.monotonic() - began, failed, f"{datetime.now(UTC):%Y-%m-%d}")


def quietest(measure: Callable[[], Result]) -> Result:
    """Measure until other processes leave the machine alone, at most ``TRIES`` times, and return the quietest result."""
    best = measure()
    for _ in range(TRIES - 1):
        if best.quiet or best.failed:
            break
        print(f"    other processes took {best.others:.0%} of a core: measured again", flush=True)
        best = min(best, measure(), key=lambda result: (result.failed, result.others))
    return best


def result_of(part: Part, seconds: float, *, again: bool, quick: bool) -> Result:
    """Return the result that was kept for these sources, or measure it; a complete and quiet one is kept."""
    place = KEPT / f"{part.name}-{part.key(quick=quick)}.json"
    if place.exists() and not again:
        print("    kept from an earlier run of the same sources", flush=True)
        return Result(**json.loads(place.read_text(encoding="utf-8")))
    result = quietest(lambda: measured(part, seconds, quick=quick)) if not quick else measured(part, seconds, quick=True)
    if result.quiet and not result.failed:
        KEPT.mkdir(exist_ok=True)
        part_file = place.with_suffix(".part")
        part_file.write_text(json.dumps(asdict(result)), encoding="utf-8")
        part_file.replace(place)
    return result
