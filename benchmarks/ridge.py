"""Ridge for 20 penalties and 5 folds beside 100 refits by scikit-learn, and one ridge three ways, in one run.

Prints seconds (median of interleaved rounds), the ratio to scikit-learn, and the floor: the Gram matrix's operations (half a
product: n^2 p multiplications and additions in all) at the rate of a large matrix product on the same machine. A busy
neighbour slows BLAS on several threads by far more than its share; the slowest and the fastest round tell.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np
from board import note, rounds
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV

from unpooled.families import FAMILIES
from unpooled.kernels.newton import NewtonPath
from unpooled.kernels.ridge import RidgePath, product
from unpooled.papers.sdca import sdca

ROWS, COLUMNS, FOLDS, ROUNDS = 849, 2982, 5, rounds(5)
#: Required by the project: at least this many times faster than refitting.
REQUIRED = 10


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(work: dict[str, Callable[[], object]], peer: str, rounds: int = ROUNDS) -> None:
    for run in work.values():
        run()  # compiles, and wakes the threads
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            found[name].append(seconds(run))
    slow = statistics.median(found[peer])
    for name, times in found.items():
        median = statistics.median(times)
        if name != peer:
            note(name, peer, slow / median, more_is_better=True)
        print(
            f"  {name:<44}{median:>10.4f} s  {slow / median:>8.1f} x  (fastest {min(times):.4f}, slowest {max(times):.4f})"
        )


def main() -> None:
    rng = np.random.default_rng(0)
    design = rng.standard_normal((ROWS, COLUMNS))
    target = design[:, :30].sum(axis=1) + 5 * rng.standard_normal(ROWS)
    labels = np.where(target > 0, 1.0, -1.0)
    folds = np.array_split(rng.permutation(ROWS), FOLDS)
    alphas = COLUMNS * np.logspace(-4, 4, 20)

    def refits() -> np.ndarray:
        predictions = np.empty((alphas.size, ROWS))
        for fold in folds:
            train = np.setdiff1d(np.arange(ROWS), fold)
            rows, values = design[train], target[train]
            for a, alpha in enumerate(alphas):
                predictions[a, fold] = Ridge(alpha=alpha).fit(rows, values).predict(design[fold])
        return predictions

    def path() -> np.ndarray:
        return RidgePath.of(design, target).held_out(alphas, folds)

    square = rng.standard_normal((2000, 2000))
    rate = 2 * 2000**3 / min(seconds(lambda: product(square, square)) for _ in range(5))
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, matrix product {rate / 1e9:.0f} GFlop/s")
    apart = np.abs(path() - refits()).max()
    print(f"20 penalties x {FOLDS} folds, {ROWS} x {COLUMNS} (required: {REQUIRED} x; largest difference {apart:.0e})")
    print(f"  {'floor: Gram matrix':<44}{ROWS**2 * COLUMNS / rate:>10.4f} s")
    interleaved(
        {"scikit-learn Ridge, 100 refits": refits, "RidgePath.of + held_out": path}, "scikit-learn Ridge, 100 refits"
    )
    once = seconds(lambda: RidgeCV(alphas, cv=FOLDS).fit(design, target))
    print(f"  {'scikit-learn RidgeCV(cv=5), once':<44}{once:>10.4f} s")

    alpha = float(COLUMNS)
    centred, values = design - design.mean(axis=0), target - target.mean()
    print("one ridge")
    interleaved(
        {
            "scikit-learn Ridge": lambda: Ridge(alpha=alpha).fit(design, target),
            "closed form, all penalties: RidgePath.solve": lambda: RidgePath.of(design, target).solve(alpha),
            "SDCA, gap 1e-6": lambda: sdca(centred, values, alpha, tolerance=1e-6),
            "SDCA, gap 1e-12": lambda: sdca(centred, values, alpha, tolerance=1e-12),
        },
        "scikit-learn Ridge",
    )
    print("one logistic regression")
    interleaved(
        {
            "scikit-learn LogisticRegression, lbfgs 1e-8": lambda: LogisticRegression(C=1 / alpha, tol=1e-8).fit(
                design, labels
            ),
            "NewtonPath.solve": lambda: NewtonPath.of(design, labels, FAMILIES["logistic"]).solve(alpha),
            "SDCA, gap 1e-12 (no intercept)": lambda: sdca(design, labels, alpha, loss="logistic", tolerance=1e-12),
        },
        "scikit-learn LogisticRegression, lbfgs 1e-8",
        3,
    )
    seconds_path = seconds(lambda: NewtonPath.of(design, labels, FAMILIES["logistic"]).held_out(alphas, folds))
    print(f"  {'NewtonPath, 20 penalties x 5 folds, once':<44}{seconds_path:>10.4f} s")


if __name__ == "__main__":
    main()
