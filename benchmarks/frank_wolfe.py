"""300 rounds of Frank-Wolfe over all columns, beside a plain SciPy loop that recomputes A x and A^T r, in one run.

Also the distance to the floor (one argmax over d numbers a round), and the time of a round that samples tau columns, for growing d: its
operations do not depend on d, but a small matrix lies in the processor's caches and the sampled columns of a large one come from memory (compare the last
two sizes). Noisy picks (the exponential mechanism) stand beside the same with all Gumbel noise drawn; the noise is given as a part of
the largest first score. Contenders take turns, with a pause between them; medians. One thread.
"""

from __future__ import annotations

import os

from board import note, rounds

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import time
from collections.abc import Callable

import numpy as np
from scipy.sparse import csc_array, random_array

from unpooled.kernels.columns import Columns
from unpooled.kernels.newton import Solution
from unpooled.papers.frank_wolfe import Sampling, frank_wolfe

STEPS, ROUNDS, TAU = 300, rounds(5), 64
#: Required by the project: at least this many times faster than the plain loop (sparse).
REQUIRED = 30
#: Noise of the picks, as a part of the largest first score; and how much longer than without noise rounds may take.
NOISE, NOISY = (0.1, 1.0), 3


def plain(matrix: np.ndarray | csc_array, y: np.ndarray, radius: float) -> np.ndarray:
    x, transposed = np.zeros(matrix.shape[1]), matrix.T
    for t in range(STEPS):
        g = transposed @ (matrix @ x - y)
        j, gamma = np.abs(g).argmax(), 2 / (t + 2)
        x *= 1 - gamma
        x[j] -= gamma * radius * np.sign(g[j])
    return x


def incremental(matrix: np.ndarray | csc_array, y: np.ndarray, radius: float, noise: float = 0.0) -> np.ndarray:
    """The residual alone kept up to date: half of the plain loop's work; with Gumbel noise on every score if asked for."""
    rng = np.random.default_rng(0)
    x, transposed, residual = np.zeros(matrix.shape[1]), matrix.T, -y
    for t in range(STEPS):
        g = transposed @ residual
        if noise:
            drawn = np.concatenate([g, -g]) / noise + rng.gumbel(size=2 * g.size)
            j, ahead = drawn.argmax() % g.size, drawn.argmax() < g.size
            g[j] = 1.0 if ahead else -1.0
        else:
            j = np.abs(g).argmax()
        gamma = 2 / (t + 2)
        step = -gamma * radius * np.sign(g[j])
        x *= 1 - gamma
        x[j] += step
        residual = (1 - gamma) * residual - gamma * y
        if isinstance(matrix, np.ndarray):
            residual += step * matrix[:, j]
        else:
            part = slice(matrix.indptr[j], matrix.indptr[j + 1])
            residual[matrix.indices[part]] += step * matrix.data[part]
    return x


def milliseconds(work: Callable[[], object]) -> float:
    time.sleep(0.2)
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def compare(matrix: np.ndarray | csc_array, y: np.ndarray, radius: float) -> None:
    numbers = np.random.default_rng(1).standard_normal(matrix.shape[1])
    top = float(np.abs(matrix.T @ y).max())

    def noisy(share: float) -> Solution:
        return frank_wolfe(matrix, y, radius, steps=STEPS, temperature=share * top / y.size, descend=False)

    work: dict[str, Callable[[], object]] = {
        "plain loop, all recomputed": lambda: plain(matrix, y, radius),
        "plain loop, residual kept": lambda: incremental(matrix, y, radius),
        "frank_wolfe": lambda: frank_wolfe(matrix, y, radius, steps=STEPS),
        "frank_wolfe, line search": lambda: frank_wolfe(matrix, y, radius, steps=STEPS, step_rule="line-search"),
        **{f"frank_wolfe, noisy picks ({share})": lambda s=share: noisy(s) for share in NOISE},
        **{f"all Gumbel noise drawn ({share})": lambda s=share: incremental(matrix, y, radius, s * top) for share in NOISE},
        "floor: argmax of |g|": lambda: [np.abs(numbers).argmax() for _ in range(STEPS)],
        "floor: argmax of g": lambda: [numbers.argmax() for _ in range(STEPS)],
    }
    fit = frank_wolfe(matrix, y, radius, steps=STEPS)
    apart = float(np.abs(plain(matrix, y, radius) - fit.coefficients).max())
    work["frank_wolfe, line search"]()
    noisy(1.0)
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, run in work.items():
            found[name].append(milliseconds(run))
    slow = statistics.median(found["plain loop, all recomputed"])
    floor = statistics.median(found["floor: argmax of |g|"])
    print(
        f"  same path to {apart:.0e}; {np.count_nonzero(fit.coefficients)} columns chosen; gap {2 * y.size * fit.certificate / (y @ y):.3f} f(0)"
    )
    free = statistics.median(found["frank_wolfe"])
    kind = "dense" if isinstance(matrix, np.ndarray) else "sparse"
    note(f"Frank-Wolfe, {kind}", "a SciPy loop", slow / free, f"{REQUIRED}", more_is_better=True)
    note(f"Frank-Wolfe, {kind}", "one argmax a round", free / floor)
    for share in NOISE:
        ratio = statistics.median(found[f"frank_wolfe, noisy picks ({share})"]) / free
        note(f"Frank-Wolfe, {kind}, noisy picks, noise {share}", "without noise", ratio, f"{NOISY}")
        print(f"  noise {share} of the largest first score: {ratio:.1f} x frank_wolfe (required: at most {NOISY})")
    for name, times in found.items():
        middle = statistics.median(times)
        print(
            f"  {name:<34}{middle:>9.2f} ms {slow / middle:>8.1f} x  {middle / floor:>7.1f} floors  (fastest {min(times):.2f})"
        )


def sampled_round(
    matrix: np.ndarray | csc_array, y: np.ndarray, radius: float, sampling: Sampling, temperature: float = 0.0
) -> float:
    """Microseconds of one round: a long run less a short one."""
    held = Columns.of(matrix)
    short, long = (
        min(
            milliseconds(lambda s=steps: frank_wolfe(held, y, radius, sampling=sampling, temperature=temperature, steps=s))
            for _ in range(ROUNDS)
        )
        for steps in (100, 5100)
    )
    return (long - short) / 5


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; {STEPS} rounds, medians of {ROUNDS}")
    n, d = 20_000, 50_000
    sparse = random_array((n, d), density=1e-3, format="csc", rng=rng, data_sampler=rng.standard_normal)
    x = np.zeros(d)
    x[rng.choice(d, 50, replace=False)] = rng.standard_normal(50)
    print(f"sparse {n} x {d}, density 1e-3 (required: {REQUIRED} x)")
    compare(sparse, sparse @ x + 0.1 * rng.standard_normal(n), float(np.abs(x).sum()))
    n, d = 1000, 10_000
    dense = np.asfortranarray(rng.standard_normal((n, d)))
    x = np.zeros(d)
    x[:50] = rng.standard_normal(50)
    print(f"dense {n} x {d}")
    compare(dense, dense @ x + 0.1 * rng.standard_normal(n), float(np.abs(x).sum()))

    print(f"one round that searches {TAU} columns, in microseconds")
    n, each = 20_000, 20
    for d in (5_000, 50_000, 500_000):
        start = np.arange(0, d * each + 1, each)
        sparse = csc_array((rng.standard_normal(d * each), rng.integers(n, size=d * each), start), shape=(n, d))
        sparse.sum_duplicates()
        y, groups = rng.standard_normal(n), np.arange(d) % 4
        nice = sampled_round(sparse, y, 10.0, Sampling.nice(d, TAU))
        spread = sampled_round(sparse, y, 10.0, Sampling.distributed(groups, TAU // 4))
        noisy = sampled_round(sparse, y, 10.0, Sampling.nice(d, TAU), 10.0 / n)
        print(f"  sparse {n} x {d:>7}: nice {nice:7.1f}, four groups {spread:7.1f}, nice with noisy picks {noisy:7.1f}")
    n = 1000
    for d in (500, 5_000, 50_000):
        dense, y = np.asfortranarray(rng.standard_normal((n, d))), rng.standard_normal(n)
        nice = sampled_round(dense, y, 10.0, Sampling.nice(d, TAU))
        spread = sampled_round(dense, y, 10.0, Sampling.distributed(np.arange(d) % 4, TAU // 4))
        noisy = sampled_round(dense, y, 10.0, Sampling.nice(d, TAU), 10.0 / n)
        print(f"  dense  {n:>5} x {d:>7}: nice {nice:7.1f}, four groups {spread:7.1f}, nice with noisy picks {noisy:7.1f}")


if __name__ == "__main__":
    main()
