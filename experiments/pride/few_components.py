"""PRIDE, Table E.1: on how many components the response rests decides whether the test error is flat over epsilon (global choice, m = 0.05 tau).

The stand-in for the climate has a response on 54 components. The paper does not say on how many its own rests. Here that number varies, and nothing
else: the spectrum of the columns and the explained part of the response stay.
"""

from __future__ import annotations

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.pride._climate import climate
from experiments.pride._dual import Dual
from experiments.pride._protocol import mean_and_error

COMPONENTS = (54, 20, 8, 3)
EPSILONS = (0.25, 1.0, 5.0, 20.0)
FRACTION = 0.05


def repetition(components: int, seed: int) -> list[float]:
    """Test errors without noise (nothing sent, DUAL-LOCO), at every epsilon, and at the first epsilon over that at the last; its penalties."""
    dual = Dual(climate(seed, components), seed)
    fixed = [dual.fit("semi-naive").test, dual.fit("DUAL-LOCO", FRACTION).test]
    private = [dual.fit("PRIDE (paper)", FRACTION, epsilon) for epsilon in EPSILONS]
    errors, penalties = [one.test for one in private], [one.penalties[0] for one in private]
    return [*fixed, *errors, errors[0] / errors[-1], penalties[0], penalties[-1]]


def main(full: bool) -> None:
    """A line for every number of components."""
    seeds, rows = range(20 if full else 3), []
    for count in COMPONENTS:
        found = np.array([kept([count, seed], lambda count=count, seed=seed: repetition(count, seed)) for seed in seeds])
        rows.append(
            [str(count), *map(mean_and_error, found[:, :-2].T), *(f"{np.median(one):.3g}" for one in found[:, -2:].T)]
        )
    header = ["components", "semi-naive", "DUAL-LOCO", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]
    write_table(
        "pride/few_components",
        f"Table E.1: test MSE by global cross-validation, over the components on which the response rests, {len(seeds)} repetitions",
        [*header, "epsilon 0.25 over 20", "penalty, epsilon 0.25", "penalty, epsilon 20"],
        rows,
        "The simulated climate, PRIDE as the paper has it, m = 0.05 tau, four parties; means with standard errors, penalties are medians.",
    )


if __name__ == "__main__":
    run(main)
