"""Coverage of treatment effects by AIPW in 24 cells listed beforehand, next to the naive difference and to AIPW without privacy.

Studies are played on made-up people with the noise that their plans have. ``--full`` has more runs a cell; it continues
where it stopped.
"""

from __future__ import annotations

import json

import numpy as np
from experiments.common import RESULTS, run, write_table
from experiments.effects.designs import Design, played

#: The right formulas have x1 and the square of x0. One that is wrong leaves one of them out.
_NO_X1, _NO_SQUARE = "x0 + x2 + ward + I(x0**2)", "x0 + x1 + x2 + ward"
#: A and B: both models right. C: little overlap. D and E: one model wrong.
DESIGNS = {
    "A: weak confounding": Design("A", 0.4, 0.2),
    "B: strong confounding, two classes": Design("B", 1.0, 0.2, binary=True),
    "C: strong confounding, poor overlap": Design("C", 1.0, 1.5),
    "D: outcome model without x1": Design("D", 0.7, 0.2, outcome=_NO_X1),
    "E: propensity without the square": Design("E", 0.7, 0.2, propensity=_NO_SQUARE),
}
CELLS = [
    *((name, rows, epsilon) for name in DESIGNS for rows in (5000, 20_000) for epsilon in (1.0, 3.0)),
    *((name, 20_000, 0.5) for name in DESIGNS if not name.startswith("C")),
]
FULL, REDUCED = 100, 20
#: Finished runs, so that a stop loses a few of one cell.
RUNS = RESULTS.parents[1] / "build" / "effects"


def naive(data: dict[str, np.ndarray]) -> float:
    """Return the difference of the arms' means."""
    y = (data["y"] == "yes").astype(float) if data["y"].dtype.kind == "U" else data["y"]
    return float(y[data["arm"] == "new"].mean() - y[data["arm"] == "old"].mean())


def cell(name: str, rows: int, epsilon: float, runs: int) -> list[list[float]]:
    """Return (estimate, standard error, estimate without privacy, naive difference, share cut, weak) of every run; kept between calls."""
    path = RUNS / f"{name[0]}_{rows}_{epsilon:g}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text()) if path.is_file() else []
    design = DESIGNS[name]
    plan, exact = design.plan(rows, epsilon), design.plan(rows, float("inf"))
    for seed in range(len(found), runs):
        rng = np.random.default_rng([seed, rows, ord(name[0]), round(10 * epsilon)])
        data = design.data(rng, rows)
        result = played(plan, data, rng)
        free = played(exact, data, rng).effect.value if seed < runs // 10 else float("nan")
        one = result.effect
        told = (float("nan"), float("nan")) if one is None else (one.value, one.std_error)
        found.append([*told, free, naive(data), result.overlap.cut, float(result.overlap.weak)])
        if seed % 20 == 19:
            path.write_text(json.dumps(found))
    path.write_text(json.dumps(found))
    return found[:runs]


def main(full: bool) -> None:
    """Write the coverage of every cell."""
    runs, lines, ordinary, weak = FULL if full else REDUCED, [], [], []
    truths = {name: design.truth() for name, design in DESIGNS.items()}
    for name, rows, epsilon in CELLS:
        truth = truths[name]
        values, errors, free, apart, cut, flagged = np.array(cell(name, rows, epsilon, runs)).T
        told = np.isfinite(values)
        covered = float(np.mean(np.abs(values[told] - truth) <= 1.959964 * errors[told]))
        bias = float(np.mean(values[told]) - truth)
        often_weak = float(flagged.mean()) > 0.5
        (weak if often_weak else ordinary).append(covered)
        line = (
            name,
            f"{rows:,}",
            f"{epsilon:g}",
            f"{truth:.3f}",
            f"{np.mean(apart):.3f}",
            f"{np.nanmean(free):.3f} ± {np.nanstd(free):.3f}",
        )
        line += (
            f"{np.mean(values[told]):.3f} ± {np.std(values[told]):.3f}",
            f"{np.median(errors[told]):.3f}",
            f"{bias / np.median(errors[told]):+.2f}",
        )
        lines.append(
            (*line, f"{covered:.3f}", f"{1 - told.mean():.3f}", f"{np.mean(cut):.1%}", "weak" if often_weak else "")
        )
        print(*lines[-1], flush=True)
    off = sum(not 0.93 <= one <= 0.97 for one in ordinary)
    write_table(
        "effects/coverage",
        "Coverage of 95% intervals of treatment effects by AIPW",
        (
            "design",
            "rows",
            "epsilon",
            "truth",
            "naive",
            "AIPW without privacy",
            "private",
            "standard error",
            "bias / error",
            "coverage",
            "refused",
            "cut",
            "overlap",
        ),
        lines,
        f"{runs} runs a cell, one site, delta 1e-6, seven columns. Cells without weak overlap: mean coverage {np.mean(ordinary):.3f}, from {min(ordinary):.3f} to "
        f"{max(ordinary):.3f}, {off} of {len(ordinary)} outside .93 to .97"
        + (f"; cells with weak overlap: {min(weak):.3f} to {max(weak):.3f}." if weak else "."),
    )


if __name__ == "__main__":
    run(main)
