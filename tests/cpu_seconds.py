"""CPU seconds of each lane of tests by folder: every lane writes them, and ``make seconds`` puts them into ``tests/cpu_seconds.toml``.

Each issue sees in the difference of that file what it adds. Seconds depend on the machine, so nothing compares them with a clock while tests run;
``tests/contract/test_lanes.py`` holds their sums against the limits, and the numbers of tests against those that are collected.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import tomli_w

FILE = Path(__file__).with_name("cpu_seconds.toml")
#: Tests of the lane `test` that take more CPU seconds than this move to the lane `slow` (tests/slow.txt), where they stay, unless coverage needs them.
MOST = 0.8
SLOW = Path(__file__).with_name("slow.txt")
MEASURED = Path(__file__).with_name("measured.txt")
LANES = ("test", "slow", "audit", "network")


def folder(nodeid: str) -> str:
    """Return the folder of a test that its lane's seconds are counted for: two levels of tests, one of everything else."""
    parts = Path(nodeid.partition("::")[0]).parts
    return "/".join(parts[:2]) if parts[0] == "tests" else parts[0]


def read(lane: str) -> dict[str, float]:
    """Return the CPU seconds of every test of a lane, by its name without the group that workers add."""
    seconds: dict[str, float] = json.loads((Path(sys.argv[1]) / f"{lane}.json").read_text())
    return {nodeid.partition("@")[0]: spent for nodeid, spent in seconds.items()}


def main() -> None:
    """Read the seconds of every lane from a folder, and write the file."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for lane in LANES:
        seconds = read(lane)
        counts, sums = Counter(map(folder, seconds)), Counter[str]()
        for nodeid, spent in seconds.items():
            sums[folder(nodeid)] += spent
        found[lane] = {name: {"tests": counts[name], "seconds": round(sums[name])} for name in sorted(counts)}
    FILE.write_text(tomli_w.dumps(found))
    kept = set(MEASURED.read_text().splitlines())
    moved = {nodeid for nodeid, spent in read("test").items() if spent > MOST and nodeid.partition("[")[0] not in kept}
    SLOW.write_text("".join(f"{nodeid}\n" for nodeid in sorted(moved | set(SLOW.read_text().splitlines()))))


if __name__ == "__main__":
    main()
