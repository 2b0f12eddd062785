"""Block-coordinate Frank-Wolfe under every sampling beside Theorem 1's bound (the paper's experiment that it does not have).

    python experiments/lasso_samplings.py [repetitions] [steps]

Least squares on simulated data (n = 2000, d = 96, six coefficients, radius 2), in one ball, where columns are sampled, and in 16 balls that belong
to four parties, where blocks are sampled. Excess is (f(x_t) - f*) / (f(0) - f*), the mean over draws of the sampling; f* is
from 100,000 rounds over all columns. The curvature is Propositions 3 and 4, with the exact Gram matrix.
"""

from __future__ import annotations

import sys

import numpy as np
from common import curves, write_table

from unpooled.kernels.frank_wolfe import Sampling, bound, expected_curvature, frank_wolfe, interactions
from unpooled.kernels.solution import Solution

ROWS, COLUMNS, RADIUS, PARTIES, BLOCKS = 2000, 96, 2.0, 4, 16
Parts = tuple[Sampling, int, int]


def simulated() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    A = np.asfortranarray(np.clip(0.5 * rng.standard_normal((ROWS, COLUMNS)), -1, 1))
    x = np.zeros(COLUMNS)
    x[rng.choice(COLUMNS, 6, replace=False)] = rng.uniform(0.5, 1, 6) * rng.choice([-1, 1], 6)
    x *= RADIUS / np.abs(x).sum()
    return A, np.clip(A @ x + 0.3 * rng.standard_normal(ROWS), -2, 2)


def samplings(blocks: np.ndarray, owners: np.ndarray) -> dict[str, Parts]:
    """The law of a round, and the tau and number of groups of its Proposition (of blocks; one ball is one block)."""
    if blocks.max() == 0:
        return {
            "all": (Sampling.every(COLUMNS), 1, 1),
            "uniform serial": (Sampling.uniform(COLUMNS), 1, 1),
            "tau-nice": (Sampling.nice(COLUMNS, 24), 1, 1),
            "(K, tau)-distributed": (Sampling.distributed(np.arange(COLUMNS) % PARTIES, 6), 1, 1),
        }
    return {
        "all": (Sampling.every(BLOCKS).of_blocks(blocks), BLOCKS, 1),
        "uniform serial": (Sampling.uniform(BLOCKS).of_blocks(blocks), 1, 1),
        "tau-nice": (Sampling.nice(BLOCKS, 4).of_blocks(blocks), 4, 1),
        "(K, tau)-distributed": (Sampling.distributed(owners, 1).of_blocks(blocks), 1, PARTIES),
    }


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    A, y = simulated()
    rounds = np.unique(np.geomspace(1, steps, 30).astype(int))
    owners = np.arange(BLOCKS) % PARTIES
    rows: list[list[str]] = []
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
    for shape, blocks in (("one ball", np.zeros(COLUMNS, dtype=int)), ("16 balls", np.arange(COLUMNS) % BLOCKS)):
        best = frank_wolfe(A, y, RADIUS, blocks=blocks, steps=100_000)
        lowest, start = best.objective, float(y @ y) / (2 * ROWS) - best.objective
        for name, (law, tau, groups) in samplings(blocks, owners).items():
            constants = interactions(A, RADIUS, blocks=blocks, groups=owners[blocks] if groups > 1 else None, exact=True)
            limit = bound(rounds, start, expected_curvature(constants, tau, groups), law.least) / start

            def run(rule: str, seed: int, descend: bool, law: Sampling = law, blocks: np.ndarray = blocks) -> Solution:
                return frank_wolfe(
                    A, y, RADIUS, blocks=blocks, sampling=law, step_rule=rule, steps=steps, seed=seed, descend=descend,
                    record=rounds.tolist(),
                )  # fmt: skip

            times = 1 if law.full else repetitions
            excess = {
                (rule, descend): np.array(
                    [
                        [(point.objective - lowest) / start for point in run(rule, seed, descend).path]
                        for seed in range(times)
                    ]
                )
                for rule, descend in (("standard", True), ("line-search", True), ("standard", False))
            }
            plain = excess["standard", True]
            for kind, values in (("excess", plain), ("excess / bound", plain / limit)):
                band = np.quantile(values, [0.25, 0.75], axis=0)
                panels.setdefault(f"{shape}: {kind}", {})[name] = (rounds, values.mean(axis=0), band)
            means = {key: values.mean(axis=0) for key, values in excess.items()}
            tightest = max(float((mean / limit).max()) for (_, descend), mean in means.items() if descend)
            at = [int(np.abs(rounds - wanted).argmin()) for wanted in (100, steps)]
            rows.append([
                shape, name, f"{law.least:.3f}", f"{limit[-1]:.3f}",
                *(f"{means['standard', True][k]:.4f}" for k in at), *(f"{means['line-search', True][k]:.4f}" for k in at),
                f"{means['standard', False][-1]:.4f}", f"{tightest:.3f}",
            ])  # fmt: skip
    header = ["set", "sampling", "p", f"bound, {steps} rounds", "standard, 100", f"standard, {steps}"]
    header += ["search, 100", f"search, {steps}", f"always step, {steps}", "largest excess / bound"]
    write_table("lasso_samplings", "Frank-Wolfe under every sampling: relative excess against Theorem 1", header, rows)
    curves("lasso_samplings", panels, "round")


if __name__ == "__main__":
    main()
