"""Coverage of differences of restricted means and of survival at the end of follow-up, played on the law of the planned release.

The designs are those of ``survival_tests.py``, with a hazard ratio of .8. The target is the difference in the population: the area between two
exponential curves, which intervals see only at their ends.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from experiments.common import run, write_table
from experiments.inference.survival_tests import DESIGNS, EPSILONS, SIZES, planned, table

from unpooled.kernels import survival as survival_tests

RATIO, FULL, REDUCED = 0.8, 500, 60


def truth(design: tuple[int, float, int, float, float]) -> tuple[float, float]:
    """(difference of restricted means, of survival at the end) between the last arm and the first, strata in equal parts."""
    _, _, strata, events, _ = design
    base = -math.log(1 - events)
    hazards = [base, 2 * base][:strata]

    def area(hazard: float) -> float:
        return (1 - math.exp(-hazard)) / hazard

    apart = [(area(RATIO * h) - area(h), math.exp(-RATIO * h) - math.exp(-h)) for h in hazards]
    means, ends = (float(np.mean([one[k] for one in apart])) for k in (0, 1))
    return means, ends


def main(full: bool) -> None:
    """Write the coverage of every cell."""
    runs, lines, every = FULL if full else REDUCED, [], []
    for design, rows, epsilon in itertools.product(DESIGNS, SIZES, EPSILONS):
        intervals, deviation = planned(rows, epsilon, design[0], design[2])
        weights = survival_tests.areas(np.arange(1, intervals + 1) / intervals, intervals - 1)[1]
        last = np.eye(intervals)[-1]
        held = np.zeros(2)
        for seed in range(runs):
            rng = np.random.default_rng([seed, rows, design[0], 7])
            exact = table(rng, rows, design, intervals, RATIO)
            cells = exact + deviation * rng.normal(size=exact.shape)
            for k, (weight, target) in enumerate(zip((weights, last), truth(design), strict=True)):
                found = survival_tests.differences(cells, deviation, weight)
                error = math.sqrt(found.sampling[-1, -1] + found.noise[-1, -1])
                held[k] += abs(found.apart[-1] - target) <= 1.959964 * error
        shares = (held / runs).tolist()
        every += shares
        arms, share, strata, events, leave = design
        line = (f"{arms}", f"{share:.2g}", f"{strata}", f"{events:g}", f"{leave:g}", f"{rows:,}", f"{epsilon:g}")
        lines.append((*line, *(f"{one:.3f}" for one in shares)))
        print(*lines[-1], flush=True)
    off = sum(not 0.93 <= one <= 0.97 for one in every)
    head = ("arms", "share of the last", "strata", "events", "censored", "rows", "epsilon")
    write_table(
        "inference/survival_coverage",
        "Coverage of 95% intervals of differences between arms",
        (*head, "restricted means", "survival at the end"),
        lines,
        f"{runs} runs a cell, one site. {len(every)} cells, mean {np.mean(every):.3f}, from {min(every):.3f} to {max(every):.3f}, {off} outside .93 "
        "to .97.",
    )


if __name__ == "__main__":
    run(main)
