"""Coverage of the lines of tables where data are as the model assumes, and where they are not, by the rule of docs/inference.md.

The cells are listed in cells.py, before any run. Each run plays the study's own coordinator on exact totals of fresh rows with the noise that is
planned. Where the mean is misspecified, the true value of a line is that of the population's least squares or maximum likelihood fit.

``python -m experiments.inference.coverage`` makes 60 runs a cell, ``--full`` 500 (300 of cells under the default covariance next to a judged one).
``--jobs 2`` runs two processes, ``--runs 3`` makes another number of runs, ``--only poisson`` takes cells whose name contains the word. Runs continue
where they stopped: each cell is a file under build/inference. Runs of other code than today's are not continued: ``--fresh`` discards them.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import sys
import time
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from experiments.common import run, write_table
from experiments.inference.cells import CELLS, ROWS, Cell
from experiments.inference.designs import CURVED, SKEWED_CURVED, drawn
from experiments.inference.judging import Judged, judged, verdict
from experiments.inference.played import Quiet, code, played_tables
from experiments.inference.responses import Asked, asked
from experiments.inference.targets import population

from unpooled.errors import UnpooledError, UsageError
from unpooled.models import load

WHERE = Path("build/inference")
#: Runs of a judged cell and of its default: in full, and at reduced size.
FULL, REDUCED = (500, 300), (60, 30)
#: Runs between two savings of a cell.
_SAVED = 20
#: Errors that are recorded as a failure of the run.
_FAILURES = (ArithmeticError, AssertionError, ValueError, np.linalg.LinAlgError, UnpooledError)


def asked_of(cell: Cell, seed: int) -> Asked:
    """The study and the rows of one run; cells that differ in epsilon or covariance alone have the same rows."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{cell.family} {cell.design}".encode())])
    rows = drawn(cell.design, cell.family, cell.rows, rng)
    found = asked(cell.family, cell.design, cell.epsilon, rows, cell.parameters, rng)
    if cell.design in {CURVED, SKEWED_CURVED}:
        found.truth.update(population(cell.family, cell.design, WHERE))
    return found


def once(cell: Cell, seed: int, *, quiet: bool = False) -> dict[str, Any]:
    """The lines of a run (estimate, standard error, whether the interval holds the truth, p), and what the foot says."""
    one = asked_of(cell, seed)
    noise: Any = Quiet() if quiet else np.random.default_rng([seed, 1, zlib.crc32(f"{cell.epsilon}".encode())])
    about = {"truth": one.truth, "deviations": one.deviations} if quiet else {}
    plan = load(one.study.model).compile(one.study)
    try:
        tables = played_tables(plan, one.table, noise)
        summary = None if tables is None else tables.summary()
    except _FAILURES as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    if summary is None:
        return {"lines": {}, "tail": False, "target": False, **about}
    statement = summary.statement.splitlines()[0]
    foot = [line for line in str(summary).splitlines()[len(summary.terms) + 1 :] if line != statement]
    lines = {
        t.term: [
            float(f"{t.estimate:.7g}"),
            float(f"{t.std_error:.7g}"),
            int(t.conf_low <= one.truth[t.term] <= t.conf_high),
            float(f"{t.p_value:.4g}"),
        ]
        for t in summary.terms
        if t.term in one.truth
    }
    words = {name: any(re.search(rf"\b{name}s?\b", line) for line in foot) for name in ("tail", "target")}
    found = {"lines": lines, **words}
    return found | ({"foot": foot} | about if quiet else {})


def file_of(cell: Cell) -> Path:
    """The file of a cell's runs."""
    words = f"{cell.family}-{cell.design}-{cell.epsilon:g}-{cell.rows}-{cell.covariance or 'default'}"
    return WHERE / f"cell-{words.replace(' ', '-')}.json"


def saved(cell: Cell, found: dict[str, Any]) -> None:
    """Write a cell's file, whole or not at all."""
    file = file_of(cell)
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".part")
    new.write_text(json.dumps(found))
    new.replace(file)


def measured(cell: Cell, runs: int, version: str) -> dict[str, Any]:
    """The runs of a cell, those that are there already first; a study that is refused is recorded as "refused"."""
    file = file_of(cell)
    found = json.loads(file.read_text()) if file.exists() else {}
    if not found or "refused" in found:
        found = {"cell": list(cell), "code": version, "runs": [], "seconds": 0.0}
        try:
            plan = once(cell, 0, quiet=True)
        except UsageError as error:
            found["refused"] = str(error)
            saved(cell, found)
            return found
        if "failed" in plan:
            found["refused"] = plan["failed"]
            saved(cell, found)
            return found
        found |= {"planned": plan.pop("lines"), **plan}
    while len(found["runs"]) < runs:
        start = time.process_time()
        found["runs"].append(once(cell, len(found["runs"])))
        found["seconds"] += time.process_time() - start
        if len(found["runs"]) % _SAVED == 0 or len(found["runs"]) == runs:
            saved(cell, found)
    return found | {"runs": found["runs"][:runs]}


def finding(cell: Cell, runs: tuple[int, int], version: str) -> tuple[Cell, Judged | str, float]:
    """The cell, its findings (or why it was refused), and CPU seconds per run."""
    found = measured(cell, runs[cell.role == "default"], version)
    if "refused" in found:
        return cell, found["refused"], math.nan
    return cell, judged(found), found["seconds"] / max(len(found["runs"]), 1)


def refused(words: str) -> str:
    """A refusal in a cell of a table."""
    soon = "unknown field" in words or "Expected `float`" in words
    return "not yet" if soon else "refused: " + words[:60].replace("|", "/")


def row_of(cell: Cell, found: Judged | str, twin: Judged | str | None) -> list[str]:
    """The row of a cell; ``twin``: the findings under the default covariance, where the cell has another."""
    also = "" if twin is None else refused(twin) if isinstance(twin, str) else f"{twin.coverage:.3f}"
    if isinstance(found, str):
        return [cell.name, cell.covariance, "", "", refused(found), "", also, "", "", "", "", "", ""]
    low = f"{found.lowest:.3f} {found.lowest_line}"
    numbers = [f"{v:.3f}" for v in (found.printed, found.width, found.small_p)]
    shares = [f"{v:.2f}" for v in (found.tail, found.target)]
    cover = f"{found.coverage:.3f}" if found.lines else "no lines"
    return [
        cell.name,
        cell.covariance,
        str(found.lines),
        str(found.due),
        cover,
        low,
        also,
        *numbers,
        *shares,
        str(found.failed),
    ]


HEAD = (
    "family, design, epsilon",
    "covariance",
    "lines",
    "due",
    "coverage",
    "lowest line",
    "under the default",
    "due lines printed",
    "width / planned",
    "p < .05",
    "foot says tail",
    "foot names target",
    "failed runs",
)


def tabled(findings: dict[Cell, Judged | str], words: str, name: str = "") -> None:
    """Write the table of all cells, and that of designs; of some cells alone the first, with this name behind its own."""
    twins = {cell._replace(role="judged", covariance=""): f for cell, f in findings.items() if cell.role == "default"}
    rows, kept, missing = [], [], 0
    for cell, found in findings.items():
        if cell.role == "default":
            continue
        rows.append(row_of(cell, found, twins.get(cell._replace(covariance="")) if cell.covariance else None))
        if cell.role == "judged":
            if isinstance(found, str):
                missing += 1
            else:
                kept.append((cell, found))
    named = [f.target for cell, f in findings.items() if cell.role == "named" and not isinstance(f, str)]
    says = f"Skewed and curved is judged on the name of its target alone: the least share of runs whose table names its target is {min(named, default=math.nan):.2f}."
    title = "Coverage of intervals, cell by cell"
    write_table(f"inference/coverage{name}", title, HEAD, rows, " ".join([words, *verdict(kept, missing), says]))
    if name:
        return
    parts = []
    designs = dict.fromkeys(cell.design for cell in findings)
    for design in designs:
        own = [(cell, f) for cell, f in findings.items() if cell.design == design and cell.role != "default"]
        run_ = [f for _, f in own if not isinstance(f, str) and f.lines]
        alone = [f for cell, f in findings.items() if cell.design == design and cell.role == "default"]
        default = [f.coverage for f in alone if not isinstance(f, str) and f.lines]
        printed, widths = ([v for f in run_ if f.due and not math.isnan(v := getattr(f, k))] for k in ("printed", "width"))
        covers = [f.coverage for f in run_]
        numbers = [f"{v:.3f}" for v in (np.mean(covers), min(covers), max(covers))] if covers else [""] * 3
        numbers += [f"{np.mean(default):.3f}" if default else "", f"{np.mean(printed):.3f}" if printed else ""]
        numbers += [f"{max(widths):.2f}" if widths else "", f"{np.mean([f.target for f in run_]):.2f}" if run_ else ""]
        parts.append([design, str(len(own)), str(sum(isinstance(f, str) for _, f in own)), *numbers])
    head = [
        "design",
        "cells",
        "not yet or refused",
        "mean coverage",
        "lowest cell",
        "highest cell",
        "mean under the default",
    ]
    head += ["due lines printed", "largest width / planned", "foot names target"]
    write_table("inference/coverage_by_design", "Coverage of intervals, by design", head, parts, words)


def stale(cells: tuple[Cell, ...], version: str, *, fresh: bool) -> None:
    """Discard runs of other code, or refuse to mix them with today's."""
    for cell in cells:
        file = file_of(cell)
        found = json.loads(file.read_text()) if file.exists() else {"refused": ""}
        if "refused" not in found and found.get("code") != version:
            if not fresh:
                sys.exit(f"{file} holds runs of other code than today's: --fresh discards such runs, --keep continues them")
            file.unlink()


def main(full: bool, given: argparse.Namespace) -> None:
    """All cells, those of each design, and the verdict of the rule."""
    runs = (given.runs, given.runs) if given.runs else FULL if full else REDUCED
    cells = tuple(cell for cell in CELLS if given.only in cell.name)
    version = code()
    if not given.keep:
        stale(cells, version, fresh=given.fresh)
    work = partial(finding, runs=runs, version=version)
    findings: dict[Cell, Judged | str] = {}
    seconds: dict[str, list[float]] = {}
    if given.jobs > 1:
        os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        pool = multiprocessing.get_context("spawn").Pool(given.jobs)
        found = pool.imap(work, cells)
    else:
        pool, found = None, map(work, cells)
    for cell, one, cost in found:
        findings[cell] = one
        if not math.isnan(cost):
            seconds.setdefault(cell.family, []).append(cost)
        print(f"{cell.role}: {' | '.join(row_of(cell, one, None))}", flush=True)
    if pool is not None:
        pool.close()
    spent = ", ".join(f"{family} {np.mean(own):.3f}" for family, own in seconds.items())
    print(f"CPU seconds per run: {spent}", flush=True)
    if given.only and not given.name:
        return
    sizes = " and ".join(dict.fromkeys(str(r) for r in runs))
    tabled(findings, f"{sizes} runs a cell; {ROWS} rows unless the cell says another number.", given.name)


def arguments() -> argparse.Namespace:
    """The options of this script, which are taken off the command line before the common ones are read."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--name", default="", help="write the table of the cells of --only, with this behind its name")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--keep", action="store_true")
    found, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return found


if __name__ == "__main__":
    options = arguments()
    run(lambda full: main(full, options))
