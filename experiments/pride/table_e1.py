"""PRIDE, Table E.1: local against global choice of the penalty at the paper's eight epsilons, on the simulated climate and on real data (m = 0.05 tau)."""

from __future__ import annotations

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.pride._climate import climate
from experiments.pride._dual import Dual
from experiments.pride._protocol import mean_and_error
from experiments.pride._real import pressure, selected

EPSILONS = (0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0)
SETS = {"climate": climate, "pressure": pressure, "expression": selected}


def repetition(name: str, seed: int) -> list[list[float]]:
    """For every epsilon: the global penalty and its test error, the test error of local penalties, and these."""
    dual, found = Dual(SETS[name](seed), seed), []
    for epsilon in EPSILONS:
        shared, local = (dual.fit("PRIDE (paper)", 0.05, epsilon, local=local) for local in (False, True))
        found.append([shared.penalties[0], shared.test, local.test, *local.penalties])
    return found


def spread(values: np.ndarray) -> str:
    """The median of penalties, with quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.3g} ({low:.3g} .. {high:.3g})"


def main(full: bool) -> None:
    """Penalties in units of n (the paper's lambda), and test errors."""
    seeds = range(20 if full else 3)
    rows = []
    for name in SETS:
        runs = np.array([kept([name, seed], lambda name=name, seed=seed: repetition(name, seed)) for seed in seeds])
        for i, epsilon in enumerate(EPSILONS):
            shared, test, local, *own = runs[:, i].T
            rows.append(
                [name, f"{epsilon:g}", spread(shared), mean_and_error(test), mean_and_error(local), *map(spread, own)]
            )
    header = ["data", "epsilon", "global penalty", "its test MSE", "test MSE of local penalties"]
    write_table(
        "pride/table_e1",
        f"Table E.1: penalties and test MSE by how the penalty is chosen, {len(seeds)} repetitions",
        [*header, *(f"local penalty, k = {k + 1}" for k in range(len(own)))],
        rows,
        "PRIDE as the paper has it, m = 0.05 tau, four parties; penalties are medians with quartiles, of 49 between 1e-5 and 1e7; errors are means with standard errors.",
    )


if __name__ == "__main__":
    run(main)
