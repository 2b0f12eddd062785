"""Faults at the calls by which every contract case writes to disk: one fault, then a run without one to its end.

No space, a read-only disk, writes that are torn, processes that are killed before a call or within a write, and losses of power, at calls of the parties'
ledgers (SQLite's own included), of kept values, of the transcript and of the results; ``unpooled.testing.processes`` has the invariant. The reduced
size tries up to twelve calls for each fault, evenly spread; ``--full`` tries all of them.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests/contract")]

from experiments.cells import kept  # noqa: E402 - found through the line above
from experiments.common import run, write_table  # noqa: E402 - found through the line above
from test_hostile_parties import STUDIES  # noqa: E402 - found through the line above

from unpooled.testing.processes import FINDINGS, Campaign, DiskFault, campaign_of, points  # noqa: E402 - found through the line above

#: Calls that one fault is tried at, at reduced size.
POINTS = 12


def met(name: str, fault: DiskFault, most: int | None, made: Callable[[], Campaign]) -> dict[str, Any]:
    """Return the number of calls of this case's file layer, of runs with this fault, what was found, and where first."""
    campaign, found, first, tried = made(), Counter[str](), "", 0
    for at in points(campaign, fault, most):
        wrong, said = campaign.meet(fault, at)
        tried += 1
        found += wrong
        if wrong and not first:
            first = f"{name}: {fault} at {at} ({campaign.calm.calls[at]}): {dict(wrong)}. {said}"
            print(first, flush=True)
    return {"points": len(campaign.calm.calls), "runs": tried, "found": dict(found), "first": first}


def main(full: bool) -> None:
    """Write the table; a case is set up only if one of its cells is missing."""
    most, rows = None if full else POINTS, []
    for name, make in sorted(STUDIES.items()):
        with tempfile.TemporaryDirectory() as folder:
            opened: list[Any] = []

            @cache
            def campaign(folder: str = folder, make: Any = make, opened: list[Any] = opened) -> Campaign:
                opened.append(campaign_of(Path(folder) / "disk", make()))
                return opened[0].__enter__()

            try:
                cells = [kept([name, fault, most], lambda f=fault, n=name: met(n, f, most, campaign)) for fault in DiskFault]
            finally:
                for one in opened:
                    one.__exit__(None, None, None)
        total = sum((Counter(cell["found"]) for cell in cells), Counter[str]())
        numbers = [cells[0]["points"], len(cells), sum(cell["runs"] for cell in cells), *(total[what] for what in FINDINGS)]
        rows.append((name, *map(str, numbers)))
        print(*rows[-1], flush=True)
    runs = sum(int(row[3]) for row in rows)
    notes = (
        f"{runs} runs with a fault, each followed by one without. {sum(int(n) for row in rows for n in row[4:])} findings."
    )
    write_table(
        "audit/faults", "Faults at calls of the file layer", ("case", "points", "faults", "runs", *FINDINGS), rows, notes
    )


if __name__ == "__main__":
    run(main)
