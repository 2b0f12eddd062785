"""Choose the tests of `make test` that are run under coverage in CI, and write ``tests/measured.txt``: a line for each test function or page.

Measuring every test would take as long again as running it. What must be covered (``coverage_floor.py``) is covered by a small part of them. Of a
run that measured everything, every branch gets two tests, the cheapest for what they cover, or the only one that runs it. `make measured` does both.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter, defaultdict
from pathlib import Path

from coverage_floor import carries

FILE = Path(__file__).with_name("measured.txt")
#: Tests of every branch, so that an edit of one of them rarely uncovers anything; and what starting any test costs, in CPU seconds.
TESTS, START = 2, 0.3


def function(nodeid: str) -> str:
    """Return the test function or page of a test: without its parameters, its phase and its group of workers."""
    return nodeid.partition("|")[0].partition("[")[0].partition("@")[0]


def branches(database: Path) -> dict[tuple[str, int, int], set[str]]:
    """Return the tests that ran every branch that must be covered, of those that no import runs."""
    root, found = f"{Path.cwd()}/", defaultdict(set)
    with sqlite3.connect(database) as read:
        query = "SELECT path, context, fromno, tono FROM arc JOIN file ON file.id = file_id JOIN context ON context.id = context_id"
        for path, context, *arc in read.execute(query):
            if carries(path.removeprefix(root)):
                found[path, *arc].add(function(context))
    return {branch: tests for branch, tests in found.items() if "" not in tests}


def chosen(wanted: dict[tuple[str, int, int], set[str]], cost: Counter[str]) -> set[str]:
    """Return tests among which every branch has two, or as many as there are: always the one that adds most for its time."""
    runs = defaultdict(set)
    for branch, tests in wanted.items():
        for test in tests:
            runs[test].add(branch)
    missing = {branch: min(TESTS, len(tests)) for branch, tests in wanted.items()}
    found: set[str] = set()
    while missing:
        test = max(runs.keys() - found, key=lambda test: (len(runs[test] & missing.keys()) / (START + cost[test]), test))
        found.add(test)
        for branch in runs[test] & missing.keys():
            missing[branch] -= 1
            if not missing[branch]:
                del missing[branch]
    return found


def main() -> None:
    """Read the coverage and the CPU seconds of a run that measured everything."""
    cost: Counter[str] = Counter()
    for nodeid, seconds in json.loads(Path(sys.argv[1]).read_text()).items():
        cost[function(nodeid)] += seconds
    FILE.write_text("".join(f"{test}\n" for test in sorted(chosen(branches(Path(".coverage")), cost))))


if __name__ == "__main__":
    main()
