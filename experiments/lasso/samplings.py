"""Algorithm 1 under every sampling beside Theorem 1's bound: the experiment that the paper does not have.

Least squares on simulated data (n = 2000, d = 96, six coefficients, radius 2), in one ball, where columns are sampled, and in 16 balls that belong
to four parties, where blocks are sampled: the product of sets of the paper. Excess is (f(x_t) - f*) / (f(0) - f*), the mean over draws of the
sampling; f* is from 100,000 rounds over all columns. The curvature is Propositions 3 and 4, with the exact Gram matrix. "As printed" always steps;
the library's default leaves a block where the vertex found leads uphill, which Theorem 1 needs where a ball is searched in part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from experiments.cells import kept
from experiments.common import curves, run, write_table

from unpooled.kernels.newton import Solution
from unpooled.papers.frank_wolfe import Sampling, bound, expected_curvature, frank_wolfe, interactions

ROWS, COLUMNS, RADIUS, PARTIES, BLOCKS = 2000, 96, 2.0, 4, 16
#: The law of a round, and the expected curvature from the constants of Propositions 3 and 4.
Parts = tuple[Sampling, Callable[[tuple[float, float, float]], float]]


def simulated() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    A = np.asfortranarray(np.clip(0.5 * rng.standard_normal((ROWS, COLUMNS)), -1, 1))
    x = np.zeros(COLUMNS)
    x[rng.choice(COLUMNS, 6, replace=False)] = rng.uniform(0.5, 1, 6) * rng.choice([-1, 1], 6)
    x *= RADIUS / np.abs(x).sum()
    return A, np.clip(A @ x + 0.3 * rng.standard_normal(ROWS), -2, 2)


def coins(size: int) -> tuple[Sampling, np.ndarray]:
    """Any law will do: every block by a coin of its own, from 0.1 to 0.5, whoever owns it."""
    chances = np.linspace(0.1, 0.5, size)
    return Sampling.of(lambda rng, _t: np.flatnonzero(rng.random(size) < chances), chances), chances


def of_coins(constants: tuple[float, float, float], chances: np.ndarray) -> float:
    """E|sum of the chosen blocks' moves|^2 for independent choices, bounded as the propositions are."""
    one, near, far = constants
    return float(chances.sum() * one + (chances.sum() ** 2 - (chances**2).sum()) * max(near, far))


def samplings(blocks: np.ndarray, owners: np.ndarray) -> dict[str, Parts]:
    """Every law of the paper's Table 1 (one ball is one block, however many of its columns are searched)."""
    if blocks.max() == 0:
        laws = {
            "all": Sampling.every(COLUMNS),
            "uniform serial": Sampling.uniform(COLUMNS),
            "tau-nice": Sampling.nice(COLUMNS, 24),
            "(K, tau)-distributed": Sampling.distributed(np.arange(COLUMNS) % PARTIES, 6),
            "arbitrary (coins)": coins(COLUMNS)[0],
        }
        return {name: (law, expected_curvature) for name, law in laws.items()}
    law, chances = coins(BLOCKS)
    return {
        "all": (Sampling.every(BLOCKS).of_blocks(blocks), partial(expected_curvature, tau=BLOCKS)),
        "uniform serial": (Sampling.uniform(BLOCKS).of_blocks(blocks), expected_curvature),
        "tau-nice": (Sampling.nice(BLOCKS, 4).of_blocks(blocks), partial(expected_curvature, tau=4)),
        "(K, tau)-distributed": (
            Sampling.distributed(owners, 1).of_blocks(blocks),
            partial(expected_curvature, groups=PARTIES),
        ),
        "arbitrary (coins)": (law.of_blocks(blocks), partial(of_coins, chances=chances)),
    }


def main(full: bool) -> None:
    """Both sets, every law."""
    repetitions, steps = (100, 10_000) if full else (10, 3000)
    A, y = simulated()
    rounds = np.unique(np.geomspace(1, steps, 30).astype(int))
    owners = np.arange(BLOCKS) % PARTIES
    rows: list[list[str]] = []
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
    for shape, blocks in (("one ball", np.zeros(COLUMNS, dtype=int)), ("16 balls", np.arange(COLUMNS) % BLOCKS)):
        best = frank_wolfe(A, y, RADIUS, blocks=blocks, steps=100_000)
        lowest, start = best.objective, float(y @ y) / (2 * ROWS) - best.objective
        for name, (law, curvature) in samplings(blocks, owners).items():
            groups = owners[blocks] if "distributed" in name and blocks.max() else None
            constants = interactions(A, RADIUS, blocks=blocks, groups=groups, exact=True)
            limit = bound(rounds, start, curvature(constants), law.least) / start

            def play(rule: str, seed: int, descend: bool, law: Sampling = law, blocks: np.ndarray = blocks) -> Solution:
                return frank_wolfe(
                    A, y, RADIUS, blocks=blocks, sampling=law, step_rule=rule, steps=steps, seed=seed, descend=descend,
                    record=rounds.tolist(),
                )  # fmt: skip

            times = 1 if law.full else repetitions

            def paths(
                rule: str, descend: bool, play: Callable[..., Solution] = play, times: int = times
            ) -> list[list[float]]:
                return [[p.objective for p in play(rule, seed, descend).path] for seed in range(times)]

            excess = {
                key: (np.array(kept([shape, name, *key], partial(paths, *key))) - lowest) / start
                for key in (("standard", True), ("line-search", True), ("standard", False))
            }
            plain = excess["standard", True]
            for kind, values in (("excess", plain), ("excess / bound", plain / limit)):
                band = np.quantile(values, [0.25, 0.75], axis=0)
                panels.setdefault(f"{shape}: {kind}", {})[name] = (rounds, values.mean(axis=0), band)
            means = {key: values.mean(axis=0) for key, values in excess.items()}
            tightest = {key: float((mean / limit).max()) for key, mean in means.items()}
            at = [int(np.abs(rounds - wanted).argmin()) for wanted in (100, steps)]
            rows.append([
                shape, name, f"{law.least:.3f}", f"{limit[-1]:.3f}",
                *(f"{means['standard', True][k]:.4f}" for k in at), *(f"{means['line-search', True][k]:.4f}" for k in at),
                f"{means['standard', False][-1]:.4f}",
                *(f"{tightest[key]:.3f}" for key in (("standard", True), ("line-search", True), ("standard", False))),
            ])  # fmt: skip
    header = [
        "set",
        "sampling",
        "p",
        "bound, last",
        "standard, 100",
        "standard, last",
        "search, 100",
        "search, last",
        "as printed, last",
    ]
    header += ["largest excess / bound", "the same, search", "the same, as printed"]
    note = f"Last: after {steps} rounds; {repetitions} draws of the sampling."
    write_table("lasso/samplings", "Algorithm 1 under every sampling: relative excess against Theorem 1", header, rows, note)
    curves("lasso/samplings", panels, "round")
    uphill(full=full)


def uphill(*, full: bool) -> None:
    """A ball is one set of the paper's product: where part of it is searched, stepping always stops at a mean of vertices, above the bound."""
    A, y = simulated()
    rounds = [1000, 10_000, 100_000, 1_000_000 if full else 200_000]
    best = frank_wolfe(A, y, RADIUS, steps=100_000).objective
    start, law = float(y @ y) / (2 * ROWS) - best, Sampling.nice(COLUMNS, 24)
    limit = bound(rounds, start, expected_curvature(interactions(A, RADIUS)), law.least) / start
    rows = [["Theorem 1's bound", *(f"{value:.4f}" for value in limit)]]
    for name, descend in (("downhill only (default)", True), ("as printed", False)):
        play = partial(frank_wolfe, A, y, RADIUS, sampling=law, descend=descend, record=rounds, steps=rounds[-1])
        seeds = range(4)
        paths = [
            kept(["uphill", name, s], lambda s=s, play=play: [(p.objective - best) / start for p in play(seed=s).path])
            for s in seeds
        ]
        excess, spread = np.mean(paths, axis=0), np.std(paths, axis=0, ddof=1) / np.sqrt(len(paths))
        rows.append([name, *(f"{value:.4f} ± {error:.4f}" for value, error in zip(excess, spread, strict=True))])
    header = ["form", *(f"{t} rounds" for t in rounds)]
    write_table(
        "lasso/samplings_uphill",
        "One ball, 24 of 96 columns searched: relative excess after very many rounds, mean of 4 draws",
        header,
        rows,
    )


if __name__ == "__main__":
    run(main)
