"""The rule of docs/inference.md, applied to the runs of cells."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from experiments.inference.cells import Cell
from scipy import stats

#: A line is due where its error from sampling and planned noise together is below this per deviation of its column.
DUE = 0.25
#: The levels at which p-values are counted, and the probability below which a count is outside its binomial law (on both sides together).
LEVELS, OUTSIDE = (0.01, 0.05, 0.1), 1e-5
#: With at least this number of rows and this epsilon, due lines have to be printed, and widths are bounded.
ENOUGH_ROWS, ENOUGH_EPSILON = 5000, 1.0
WIDEST, PRINTED = 1.3, 0.95


class Judged(NamedTuple):
    """The findings of a cell: shares of its lines or of its runs; nan where there is nothing to count."""

    lines: int
    coverage: float
    lowest: float
    lowest_line: str
    due: int
    printed: float
    width: float
    small_p: float
    #: The smallest probability that a binomial law gives to a count of p-values as far out as that of a line.
    least: float
    #: Shares of runs whose foot marks a tail, and whose foot names a target.
    tail: float
    target: float
    failed: int


def judged(found: dict[str, Any]) -> Judged:
    """The findings of a cell's runs."""
    truth, deviations, planned = found["truth"], found["deviations"], found["planned"]
    due = {name for name, line in planned.items() if line[1] * deviations[name] < DUE}
    hits: dict[str, list[int]] = {}
    p: dict[str, list[float]] = {}
    widths = []
    runs = [run for run in found["runs"] if "failed" not in run]
    for run in runs:
        for name, (_, error, hit, own) in run["lines"].items():
            hits.setdefault(name, []).append(hit)
            if truth[name] == 0:
                p.setdefault(name, []).append(own)
            if name in due:
                widths.append(error / planned[name][1])
    least = 1.0
    for line in p.values():
        for level in LEVELS:
            count, law = int((np.array(line) < level).sum()), stats.binom(len(line), level)
            least = min(least, float(law.cdf(count)), float(law.sf(count - 1)))
    every = [hit for line in hits.values() for hit in line]
    nulls = np.array([one for line in p.values() for one in line])
    worst = min(hits, key=lambda name: float(np.mean(hits[name])), default="")
    return Judged(
        lines=len(every),
        coverage=float(np.mean(every)) if every else math.nan,
        lowest=float(np.mean(hits[worst])) if worst else math.nan,
        lowest_line=worst,
        due=len(due),
        printed=len(widths) / (len(due) * len(runs)) if due and runs else math.nan,
        width=float(np.median(widths)) if widths else math.nan,
        small_p=float(np.mean(nulls < 0.05)) if nulls.size else math.nan,
        least=least,
        tail=float(np.mean([run["tail"] for run in runs])) if runs else math.nan,
        target=float(np.mean([run["target"] for run in runs])) if runs else math.nan,
        failed=len(found["runs"]) - len(runs),
    )


def counted(found: Judged) -> float:
    """The coverage of a cell as the rule counts it: too wide an interval is no fault where its width passes."""
    return 0.95 if found.coverage > 0.97 and found.width <= WIDEST else found.coverage


def verdict(cells: list[tuple[Cell, Judged]], missing: int) -> list[str]:
    """The findings of the rule, a sentence for each of its parts; ``missing``: judged cells that could not run."""
    covers = [counted(f) for _, f in cells if f.lines]
    if not covers:
        return [f"No cell could run ({missing} not yet)."]
    outside = sum(not 0.93 <= c <= 0.97 for c in covers)
    held = [f for cell, f in cells if f.due and cell.rows >= ENOUGH_ROWS and cell.epsilon >= ENOUGH_EPSILON]
    printed = [0.0 if math.isnan(f.printed) else f.printed for f in held]
    widest = max((f.width for f in held if not math.isnan(f.width)), default=math.nan)
    worst, mean, share = (
        min(f.least for _, f in cells),
        float(np.mean(covers)),
        float(np.mean(printed)) if printed else math.nan,
    )

    def said(words: str, *, holds: bool) -> str:
        return f"{words} ({'passes' if holds else 'FAILS'})."

    return [
        said(f"{len(covers)} cells judged, {missing} not yet or refused", holds=not missing),
        said(f"Mean coverage {mean:.3f}", holds=0.94 <= mean <= 0.96),
        said(f"{outside} cells outside .93 to .97, at most {len(covers) // 12} may be", holds=outside <= len(covers) // 12),
        said(f"Lowest cell {min(covers):.3f}", holds=min(covers) >= 0.90),
        said(f"Due lines printed {share:.3f}, lowest cell {min(printed, default=math.nan):.3f}", holds=share >= PRINTED),
        said(f"Largest median width {widest:.2f} of the planned one", holds=widest <= WIDEST),
        said(f"Count of p-values farthest out has probability {worst:.1e}", holds=worst > OUTSIDE / 2),
    ]
