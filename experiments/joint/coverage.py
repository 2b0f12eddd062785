"""Coverage of the lines of tables from joint moments, by the rule of docs/inference.md: columns at two parties and a helper, or at four parties.

Each run draws fresh rows, codes them as the parties do, adds up the exact integers, and adds ideal Gaussian noise of the planned deviations (the
budget by zCDP, times N / (N - 1) for the N members of the sum). The cells and their lines are in designs.py. Limits, shares and priors are those of
the program. ``--full`` makes 500 runs a cell, else 60. Runs continue where they stopped: each cell is a file under build/joint; ``--fresh`` discards
runs of other code. ``--only skewed`` takes cells whose name contains the words, ``--done`` writes the table of the cells that are there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from experiments.common import run, write_table
from experiments.inference.judging import Judged, judged, verdict
from experiments.inference.played import Quiet, sources
from experiments.joint.designs import CELLS, Cell, drawn
from experiments.joint.played import play

import unpooled

WHERE = Path("build/joint")
FULL, REDUCED, _SAVED = 500, 60, 20
HEAD = (
    "design, parties, rows, epsilon",
    "lines",
    "due",
    "coverage",
    "lowest line",
    "due lines printed",
    "width / planned",
    "p < .05",
)


def code(*more: str) -> str:
    """A hash of the code behind the runs; ``more`` names other parts of the package."""
    root, own = Path(unpooled.__file__).parent, Path(__file__).parent
    parts = ("inference", "kernels", "linear", "privacy", "products", "schedules", "totals", *more)
    files = sources(root, parts)
    total = hashlib.sha256()
    for file in (*files, own / "designs.py", own / "played.py"):
        total.update(file.read_bytes())
    return total.hexdigest()[:12]


def once(cell: Cell, seed: int, *, quiet: bool = False) -> dict[str, Any]:
    """The lines of one run; cells that differ in epsilon alone have the same rows."""
    words = f"{cell.design} {cell.parties} {cell.rows}"
    one = drawn(cell, np.random.default_rng([seed, zlib.crc32(words.encode())]))
    noise: Any = Quiet() if quiet else np.random.default_rng([seed, 1, zlib.crc32(cell.name.encode())])
    try:
        tables = play(one.design, one.tables, noise).tables()
        lines, _ = tables.estimates.lines(tables.printed(None, None))
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    found = {
        t.term: [
            float(f"{t.estimate:.7g}"),
            float(f"{t.std_error:.7g}"),
            int(t.conf_low <= one.truth[t.term] <= t.conf_high),
            float(f"{t.p_value:.4g}"),
        ]
        for t in lines
    }
    about = {"truth": one.truth, "deviations": one.deviations} if quiet else {}
    return {"lines": found, "tail": False, "target": False, **about}


def file_of(cell: Cell) -> Path:
    """The file of a cell's runs."""
    return WHERE / f"{cell.name.replace(', ', '-').replace(' ', '-')}.json"


def measured(cell: Cell, runs: int, version: str, *, fresh: bool) -> dict[str, Any]:
    """The runs of a cell, those that are there already first."""
    file = file_of(cell)
    found = json.loads(file.read_text()) if file.exists() else {}
    if found and found["code"] != version:
        if not fresh:
            sys.exit(f"{file} holds runs of other code than today's: --fresh discards such runs")
        found = {}
    if not found:
        plan = once(cell, 0, quiet=True)
        found = {"cell": list(cell), "code": version, "runs": [], "planned": plan.pop("lines"), **plan}
    while len(found["runs"]) < runs:
        found["runs"].append(once(cell, len(found["runs"])))
        if len(found["runs"]) % _SAVED == 0 or len(found["runs"]) == runs:
            file.parent.mkdir(parents=True, exist_ok=True)
            new = file.with_suffix(".part")
            new.write_text(json.dumps(found))
            new.replace(file)
    return found | {"runs": found["runs"][:runs]}


def row_of(cell: Cell, found: Judged) -> list[str]:
    """The row of a cell."""
    cover = f"{found.coverage:.3f}" if found.lines else "no lines"
    lowest = f"{found.lowest:.3f} {found.lowest_line}"
    numbers = [f"{value:.3f}" for value in (found.printed, found.width, found.small_p)]
    return [cell.name, str(found.lines), str(found.due), cover, lowest, *numbers]


def main(full: bool, given: argparse.Namespace) -> None:
    """All cells, and the verdict of the rule."""
    runs, version = given.runs or (FULL if full else REDUCED), code()
    found = []
    for cell in CELLS:
        if given.done and file_of(cell).exists():
            own = json.loads(file_of(cell).read_text())
            if len(own["runs"]) >= runs:
                found.append((cell, judged(own | {"runs": own["runs"][:runs]})))
        elif given.only in cell.name and not given.done:
            start = time.process_time()
            found.append((cell, judged(measured(cell, runs, version, fresh=given.fresh))))
            print(" | ".join(row_of(*found[-1])), f"({time.process_time() - start:.0f} s)", flush=True)
    if given.only:
        return
    title = "Coverage of intervals from joint moments, cell by cell"
    words = " ".join([f"{runs} runs a cell, {len(found)} of {len(CELLS)} cells.", *verdict(found, len(CELLS) - len(found))])
    write_table("joint/coverage", title, HEAD, [row_of(*one) for one in found], words)


def arguments() -> argparse.Namespace:
    """The options of this script, which are taken off the command line before the common ones are read."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--done", action="store_true")
    found, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return found


if __name__ == "__main__":
    options = arguments()
    run(lambda full: main(full, options))
