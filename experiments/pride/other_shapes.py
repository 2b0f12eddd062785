"""PRIDE's Gram rule with two, ten and unequal parties, and with m = 0.01, 0.1 and 0.2 tau, beside every other arm at epsilon 0.1, 1 and 10.

Everything but the split and the size of the sketches is as in ``every_epsilon``: sets, arms, noise, measures. Unequal parties hold columns in the
ratio 8 : 4 : 2 : 1, in the file's order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from experiments.common import run, write_table
from experiments.pride._protocol import Problem
from experiments.pride.every_epsilon import (
    ARMS,
    COMPETITORS,
    FRACTION,
    SET_ASIDE,
    SETS,
    Cells,
    is_near_best,
    measures,
    misses,
    over_own_halves,
    private_arms,
    silent_arms,
    standardised,
)

EPSILONS = (0.1, 1.0, 10.0)
UNEQUAL = (8, 4, 2, 1)
#: What is unlike the main table: (split, m over tau).
SHAPES = (("2", FRACTION), ("10", FRACTION), ("unequal", FRACTION), ("4", 0.01), ("4", 0.1), ("4", 0.2))


def split(problem: Problem, into: str) -> Problem:
    """The same rows with their columns dealt to other parties."""
    columns = np.arange(problem.X.shape[1])
    if into != "unequal":
        return replace(problem, blocks=tuple(np.array_split(columns, int(into))))
    ends = np.cumsum(UNEQUAL)[:-1] * columns.size // sum(UNEQUAL)
    return replace(problem, blocks=tuple(np.split(columns, ends)))


def measured(name: str, seeds: range) -> Iterator[tuple[str, float, str, float, dict[str, list[tuple[float, float]]]]]:
    """Every shape and epsilon of one set: its name, m over tau, the split, epsilon, and every arm's measures."""
    found: dict[tuple[str, float, float], dict[str, list[tuple[float, float]]]] = {}
    for seed in seeds:
        whole = standardised(SETS[name](0 if name == "pressure" else seed))
        for into in dict.fromkeys(into for into, _ in SHAPES):
            problem = split(whole, into)
            silent = silent_arms(problem)
            for fraction in [f for other, f in SHAPES if other == into]:
                for epsilon in EPSILONS:
                    arms = silent | private_arms(problem, epsilon, seed, fraction)
                    cell = found.setdefault((into, fraction, epsilon), {})
                    for arm in ARMS:
                        cell.setdefault(arm, []).append(measures(problem, arms[arm], silent["pooled"]))
    for (into, fraction, epsilon), cell in found.items():
        yield name, fraction, into, epsilon, cell


def main(full: bool) -> None:
    """Five repetitions (ten in the full size)."""
    seeds = range(10 if full else 5)
    notes = f"Means of {len(seeds)} repetitions; delta = 1e-5."
    header = ["set", "parties", "m / tau", "epsilon"]
    errors, tests, missed = [], [], []
    cells: Cells = {}
    for name in SETS:
        for _, fraction, into, epsilon, arms in measured(name, seeds):
            values = {arm: np.array(pairs) for arm, pairs in arms.items()}
            key = [name, into, f"{fraction:g}", f"{epsilon:g}"]
            cells[" ".join(key[:3]), epsilon] = values
            for i, table in enumerate((errors, tests)):
                table.append([*key, *(f"{values[arm][:, i].mean():.3f}" for arm in ARMS)])
            missed += [[*key, *miss, f"{over_own_halves(values):.3f}"] for miss in misses(values, 1.10)]
        print(name, "done", flush=True)
        write_table(
            "pride/other_shapes_error", "Error of the coefficients to the pooled ridge", [*header, *ARMS], errors, notes
        )
        write_table("pride/other_shapes_test", "Test error", [*header, *ARMS], tests, notes)
    rows = []
    for said, keys in (
        ("developed on", [k for k in cells if k[0].split()[0] not in SET_ASIDE]),
        ("set aside", [k for k in cells if k[0].split()[0] in SET_ASIDE]),
    ):
        rows += [
            [said, f"no miss at {f:.2f}", f"{np.mean([not misses(cells[k], f) for k in keys]):.2f}"] for f in (1.10, 1.25)
        ]
        rows += [
            [said, f"within 1.10 of the best in both: {arm}", f"{np.mean([is_near_best(cells[k], arm) for k in keys]):.2f}"]
            for arm in ("gram", *COMPETITORS)
        ]
        ratio, cell = max((over_own_halves(cells[k]), k) for k in keys)
        rows.append([said, "largest error over that of own halves", f"{ratio:.3f} ({cell[0]}, {cell[1]:g})"])
    write_table(
        "pride/other_shapes_shares", "What the Gram rule must show, in these shapes", ["sets", "what", "found"], rows, notes
    )
    columns = [*header, "measure", "arm that wins", "error over own halves'"]
    write_table("pride/other_shapes_missed", "Cells that the Gram rule misses at 1.10", columns, missed, notes)


if __name__ == "__main__":
    run(main)
