"""Coverage of effects by partialling out in three cells listed beforehand, one of skewed residuals and one at the edge of what is printed, next to partialling out without privacy.

Studies are played on made-up people with the noise that their plans have. ``--full`` has 200 runs a cell; it continues where it stopped.
"""

from __future__ import annotations

import json
import math

import numpy as np
from experiments.common import RESULTS, run, write_table
from experiments.effects.designs import played
from experiments.effects.open_designs import EFFECT, Shape

CELLS = (
    Shape("few rows, nine columns", 1500, 1.0, 5, 4, 0.5, 0.2, 0.3),
    Shape("a small trial", 400, 2.0, 1, 1, 0.0, 0.2, 0.5),
    Shape("strong confounding", 5000, 1.0, 6, 2, 0.9, 0.3, 0.35),
    Shape("skewed residuals", 3000, 1.0, 4, 2, 0.6, 0.3, 0.4, skewed=True),
    Shape("the edge", 400, 1.0, 1, 1, 0.5, 0.2, 0.5),
)
FULL, REDUCED = 200, 20
RUNS = RESULTS.parents[1] / "build" / "effects"


def cell(shape: Shape, runs: int) -> list[list[float]]:
    """Return (estimate, standard error, both without privacy) of every run; kept between calls."""
    path = RUNS / f"partial_{shape.name.replace(' ', '_')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text()) if path.is_file() else []
    plan, exact = (shape.plan(epsilon=epsilon, estimator="partial") for epsilon in (None, math.inf))
    for seed in range(len(found), runs):
        rng = np.random.default_rng([seed, 77])
        data = shape.data(rng)
        effects = [played(one, data, rng).effect for one in (plan, exact)]
        found.append([math.nan if one is None else getattr(one, name) for one in effects for name in ("value", "std_error")])
        if seed % 20 == 19:
            path.write_text(json.dumps(found))
    path.write_text(json.dumps(found))
    return found[:runs]


def main(full: bool) -> None:
    """Write the coverage of every cell."""
    runs, lines = FULL if full else REDUCED, []
    for shape in CELLS:
        values, errors, free, floor = np.array(cell(shape, runs)).T
        told = np.isfinite(values)
        covered = float(np.mean(np.abs(values[told] - EFFECT) <= 1.959964 * errors[told]))
        lines.append(
            (
                shape.name,
                f"{shape.rows:,}",
                f"{shape.epsilon:g}",
                f"{np.mean(free):.3f} ± {np.std(free):.3f}",
                f"{np.median(floor):.3f}",
                f"{np.mean(values[told]):.3f} ± {np.std(values[told]):.3f}",
                f"{np.median(errors[told]):.3f}",
                f"{covered:.3f}",
                f"{1 - told.mean():.3f}",
            )
        )
        print(*lines[-1], flush=True)
    write_table(
        "effects/partial",
        "Coverage of 95% intervals of effects by partialling out",
        (
            "cell",
            "rows",
            "epsilon",
            "without privacy",
            "its standard error",
            "private",
            "standard error",
            "coverage",
            "refused",
        ),
        lines,
        f"{runs} runs a cell, one site, delta 1e-5; the effect is {EFFECT:g} deviations of what the outcome is without it. The uncertainty of a coverage is "
        f"{math.sqrt(0.95 * 0.05 / runs):.3f}.",
    )


if __name__ == "__main__":
    run(main)
