"""Products of columns by squares of four times four beside BLAS, for several widths: up to which width squares are used (decision 0047).

One thread on both sides, CPU time, the two in turn. ``kernels.moments`` uses squares up to the largest width at which they win here.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time

import numpy as np
from board import kernels, note, rounds

from unpooled.kernels import moments

WIDTHS, ROWS, LARGEST, ROUNDS = (20, 40, 60, 80, 100, 128), 1 << 16, 1 << 20, rounds(15)


def seconds(block: np.ndarray, narrow: int) -> tuple[float, np.ndarray]:
    """CPU seconds of the products of a block where squares are used up to this width, and the products."""
    moments._NARROW = narrow  # noqa: SLF001 - both sides of the same function
    total = np.zeros((block.shape[1],) * 2, dtype=np.int64)
    start = time.process_time()
    moments.add_gram(block, LARGEST, total)
    return time.process_time() - start, total


def main() -> None:
    used, won = moments._NARROW, 0  # noqa: SLF001 - what is checked
    rng = np.random.default_rng(0)
    print(f"{ROWS} rows, kernels {', '.join(pool['kernel'] for pool in kernels())}; squares over BLAS, best of {ROUNDS}")
    for width in WIDTHS:
        block = np.asfortranarray(rng.integers(-LARGEST, LARGEST + 1, size=(ROWS, width)).astype(np.float64))
        found = [(seconds(block, width), seconds(block, 0)) for _ in range(ROUNDS + 1)][1:]
        assert all(np.array_equal(ours[1], theirs[1]) for ours, theirs in found), "squares and BLAS differ"
        ratio = min(ours[0] for ours, _ in found) / min(theirs[0] for _, theirs in found)
        won = width if ratio <= 1 else won
        note(f"products of {width} columns by squares", "BLAS", ratio, "1" if width <= used else "")
        print(f"{width:>4} columns: {ratio:.2f}")
    print(f"squares win up to {won} columns; the library uses them up to {used}")


if __name__ == "__main__":
    main()
