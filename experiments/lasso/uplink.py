"""Corollary 1: bytes that the parties send, beside PRIDE's at equal error; as printed, sketched as printed, and in the sound form.

Error is that of the coefficients in predictions, |A(x - x*)|^2 / |A x*|^2. A LASSO publishes its coefficients; PRIDE's stay at the owners of the columns, who
fit them to their own columns as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.lasso._scores import PARTIES, lasso, sent, simulated

from unpooled import PrideRegressor, PrivateLasso

Make = Callable[[int], PrivateLasso | PrideRegressor]
LOOSELY = "Numbers without an error agree within 0.6."  # of a few draws each
DESIGNS = {"independent": 0, "five common causes": 5}


def pride(epsilon: float, seed: int, rows: float) -> PrideRegressor:
    """PRIDE with sketches of so many rows, as a part of the smallest block."""
    options = {"sketch_dim": rows, "noise_model": "calibrated", "random_state": seed}
    return PrideRegressor(PARTIES, bounds=(-1, 1), epsilon=epsilon, delta=1e-5, **options)


def makers(epsilon: float, *, full: bool, sketched: bool) -> dict[str, Make]:
    """Every method with its settings."""
    found: dict[str, Make] = {}
    for rounds in (5, 10, 20, 40) if full else (10, 20, 40):
        found[f"LASSO, T = {rounds}"] = lambda seed, r=rounds: lasso(epsilon, seed, rounds=r)
    for rounds in (5, 10, 20, 40) if full else (10, 40):
        found[f"published, T = {rounds}"] = lambda seed, r=rounds: lasso(epsilon, seed, rounds=r, calibration="published")
    if sketched:
        found["published, sketch of 100, T = 20"] = lambda seed: lasso(
            epsilon, seed, calibration="published", sketch_rows=100
        )
    for m in (0.05, 0.2, 0.5, 1.0) if full else (0.05, 0.2, 1.0):
        found[f"PRIDE, m = {m} tau"] = lambda seed, m=m: pride(epsilon, seed, m)
    return found


def main(full: bool) -> None:
    """All bytes and errors, and from them the least bytes of every method at the error of each PRIDE."""
    repetitions, rows, equal = 10 if full else 6, [], []
    for n in (5000, 20_000, 80_000) if full else (5000, 20_000):
        for design, factors in DESIGNS.items():
            sets = [simulated(n, seed, factors) for seed in range(repetitions)]
            for epsilon in (1.0, 10.0):
                cells: dict[str, tuple[float, float]] = {}
                stated: dict[str, str] = {}
                for name, make in makers(epsilon, full=full, sketched=full or not factors).items():

                    def errors(sets: list[tuple[np.ndarray, ...]] = sets, make: Make = make) -> list[tuple[float, float]]:
                        models = [(make(seed).fit(A, y), A, x) for seed, (A, y, x) in enumerate(sets)]
                        return [
                            (float(np.square(A @ (m.coef_ - x)).sum() / np.square(A @ x).sum()), float(sent(m)))
                            for m, A, x in models
                        ]

                    found = kept([n, design, epsilon, name], errors)
                    cells[name] = tuple(np.mean(found, axis=0))
                    spread = np.std(found, axis=0, ddof=1)[0] / np.sqrt(len(found))
                    stated[name] = f"{cells[name][0]:.4f} ± {spread:.4f}"
                    rows.append([str(n), design, f"{epsilon:g}", name, stated[name], f"{cells[name][1]:.2f}"])
                for name, (error, traffic) in cells.items():
                    if not name.startswith("PRIDE"):
                        continue
                    line = [str(n), design, f"{epsilon:g}", name.removeprefix("PRIDE, "), stated[name], f"{traffic:.2f}"]
                    for kind in ("LASSO", "published, T", "published, sketch"):
                        own = [found for method, found in cells.items() if method.startswith(kind)]
                        enough = [m for e, m in own if e <= error]
                        line.append(f"{min(enough):.2f}" if enough else "not reached" if own else "not run")
                    equal.append(line)
    title = f"Error of predictions (mean and its standard error) and bytes sent, unit attribute, {repetitions} data sets"
    write_table(
        "lasso/uplink", title, ["n", "design", "eps", "method", "relative error", "MB sent by the parties"], rows, LOOSELY
    )
    header = ["n", "design", "eps", "PRIDE", "relative error", "MB", "LASSO", "published", "published, sketched"]
    title = "Corollary 1 against PRIDE: the least MB of the settings above whose error is no larger than PRIDE's"
    write_table("lasso/corollary_1", title, header, equal, f"The published forms are NOT private. {LOOSELY}")


if __name__ == "__main__":
    run(main)
