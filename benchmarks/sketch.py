"""Time of the subsampled randomised Hadamard transform beside a dense Gaussian sketch (BLAS) and the C package fht-cpu.

All contenders run in turn, round after round; medians of 9 rounds. The floor is reading X once on the same threads. fht-cpu transforms in place
and knows neither signs nor columns, so its time includes writing X D into a padded array made beforehand and taking the columns.
It is not a dependency: ``pip install --no-deps --target DIR fht-cpu`` and ``PYTHONPATH=DIR`` make it take part.
"""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import board
import numpy as np
from numba import njit

from unpooled.kernels.hadamard import Srht

try:
    from fht_cpu import fht
except ImportError:
    fht = None

#: Before every timing: the threads of a BLAS keep a processor busy for a while after their work, which would be charged to the next.
PAUSE = 0.2
ROUNDS = board.rounds(9)
CASES = ((849, 10_368, 130), (849, 10_368, 518), (100_000, 2048, 128))
TYPES = (np.float64, np.float32, np.int32)
#: Required by the project for 849 x 10,368 -> 518 float64: this many times faster than BLAS, and faster than fht-cpu.
REQUIRED = 8
BOUND = 1000
THREADS = len(os.sched_getaffinity(0))


@njit(nogil=True)
def add_up(words):
    total = np.int64(0)
    for i in range(words.size):
        total += words[i]
    return total


def read_once(X):
    parts = np.array_split(X.reshape(-1).view(np.int64), THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(add_up, parts))


def contenders(n, tau, m):
    """What runs in one case, by (name, type)."""
    rng = np.random.default_rng(0)
    transform = Srht.draw(tau, m, 0)
    work = {}
    for dtype in TYPES:
        if dtype is np.int32:
            X = rng.integers(-BOUND, BOUND, (n, tau), dtype=dtype, endpoint=True)
            work["ours", dtype] = lambda X=X: transform.apply(X, bound=BOUND)
        else:
            X = rng.standard_normal((n, tau), dtype=dtype)
            G = rng.standard_normal((tau, m), dtype=dtype)
            work["ours", dtype] = lambda X=X: transform.apply(X)
            work["BLAS Gaussian", dtype] = lambda X=X, G=G: X @ G
            if fht is not None:
                padded = np.zeros((n, transform.padded), dtype=dtype)
                signs = transform.signs.astype(dtype)

                def by_fht(X=X, padded=padded, signs=signs):
                    np.multiply(X, signs, out=padded[:, :tau])
                    padded[:, tau:] = 0
                    return fht(padded)[:, transform.columns] / padded.dtype.type(m**0.5)

                assert np.allclose(by_fht(), transform.apply(X), atol=1e-3)
                work["fht-cpu", dtype] = by_fht
        work["floor: read X once", dtype] = lambda X=X: read_once(X)
    return work


def main() -> None:
    print(f"{THREADS} threads, median of {ROUNDS} rounds; x: how many times as long as ours in the same type and run")
    if fht is None:
        print("fht-cpu is NOT INSTALLED: not compared")
    for n, tau, m in CASES:
        work = contenders(n, tau, m)
        times = {key: [] for key in work}
        for run in work.values():
            run()  # compiles
        for _ in range(ROUNDS):
            for key, run in work.items():
                time.sleep(PAUSE)
                start = time.perf_counter()
                run()
                times[key].append(time.perf_counter() - start)
        medians = {key: statistics.median(found) for key, found in times.items()}
        required = f" (required in float64: {REQUIRED} x, and faster than fht-cpu)" if m == 518 else ""
        print(f"{n:,} x {tau:,} -> {m}{required}")
        for (name, dtype), found in times.items():
            ours, floor = medians["ours", dtype], medians["floor: read X once", dtype]
            if name == "ours":
                board.note(f"sketch of {n:,} x {tau:,} to {m}, {dtype.__name__}", "reading X once", ours / floor)
            elif not name.startswith("floor"):
                board.note(
                    f"sketch of {n:,} x {tau:,} to {m}, {dtype.__name__}",
                    name,
                    medians[name, dtype] / ours,
                    more_is_better=True,
                )
            note = f"{ours / floor:.1f} x its floor" if name == "ours" else f"{medians[name, dtype] / ours:.2f} x"
            print(
                f"  {dtype.__name__:<9}{name:<20}{medians[name, dtype] * 1e3:>9.2f} ms   {note:<18}"
                f"(fastest {min(found) * 1e3:.2f}, slowest {max(found) * 1e3:.2f})"
            )


if __name__ == "__main__":
    main()
