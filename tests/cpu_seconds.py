"""CPU seconds of each lane of tests by folder: ``make seconds`` measures them and writes ``tests/cpu_seconds.toml``.

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
LANES = ("test", "slow", "audit", "network")


def folder(nodeid: str) -> str:
    """Return the folder of a test that its lane's seconds are counted for: two levels of tests, one of everything else."""
    parts = Path(nodeid.partition("::")[0]).parts
    return "/".join(parts[:2]) if parts[0] == "tests" else parts[0]


def main() -> None:
    """Read the seconds of every lane from a folder, and write the file."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for lane in LANES:
        seconds: dict[str, float] = json.loads((Path(sys.argv[1]) / f"{lane}.json").read_text())
        counts, sums = Counter(map(folder, seconds)), Counter[str]()
        for nodeid, spent in seconds.items():
            sums[folder(nodeid)] += spent
        found[lane] = {name: {"tests": counts[name], "seconds": round(sums[name])} for name in sorted(counts)}
    FILE.write_text(tomli_w.dumps(found))


if __name__ == "__main__":
    main()
