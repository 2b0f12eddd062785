"""The rule of earlier models in PRIDE, on shapes other than those of `experiments/priors_pride.py`: its prior weight, and the looser kernel of P.14.

Seven shapes, 12 seeds each, epsilon 1, three kinds of earlier models. By this the prior weight of "no earlier model" was set to 0.8 (0.5 was the
other candidate), and the looser kernel was kept.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
from experiments.common import run, write_table
from experiments.priors import KINDS, earlier

from unpooled import PrideRegressor
from unpooled.models.pride import local
from unpooled.models.pride.gram import Kernel

#: Parties, columns of each, rows, correlation, whether all slopes are positive, R^2.
SHAPES = (
    (3, 3, 100, 0.0, False, 0.5),
    (3, 3, 100, 0.5, True, 0.5),
    (2, 20, 300, 0.5, True, 0.5),
    (2, 20, 60, 0.5, False, 0.5),
    (2, 2, 80, 0.3, True, 0.3),
    (5, 1, 150, 0.3, False, 0.5),
    (2, 8, 400, 0.3, False, 0.2),
)
SEEDS, NEW = 12, 1000
#: Prior weight of no earlier model, and whether the others' part of the kernel is loosened.
RULES: dict[str, tuple[float, bool]] = {"0.8": (0.8, True), "0.5": (0.5, True), "0.8, kernel as it is": (0.8, False)}


def rows(count: int, width: int, correlation: float, rng: np.random.Generator) -> np.ndarray:
    """Return columns with one common factor."""
    common = np.sqrt(correlation) * rng.normal(size=(count, 1))
    return np.asarray(common + np.sqrt(1 - correlation) * rng.normal(size=(count, width)))


def cell(
    kind: str, parties: int, width: int, count: int, correlation: float, positive: bool, r2: float
) -> dict[str, list[float]]:
    """Return the errors of joint predictions over the variance of y, by rule, without an earlier model, and of it alone."""
    found: dict[str, list[float]] = {name: [] for name in (*RULES, "no prior", "alone")}
    columns = parties * width
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, parties, width])
        b = rng.normal(size=columns)
        b = np.abs(b) if positive else b
        b /= (rows(20_000, columns, correlation, np.random.default_rng(0)) @ b).std()
        X = rows(count + NEW, columns, correlation, rng)
        y = X @ b + np.sqrt((1 - r2) / r2) * rng.normal(size=count + NEW)
        prior = earlier(kind, b, rng)
        other = np.array([prior[f"x{j}"] for j in range(columns)])
        new, scale = slice(count, None), float(y[count:].var())
        asked: dict[str, Any] = {"parties": parties, "epsilon": 1.0, "delta": 1e-5, "bounds": (-4, 4), "random_state": seed}
        for name, (weight, loosens) in ({"no prior": (1.0, True)} | RULES).items():
            with ExitStack() as patched:
                patched.enter_context(patch.object(local, "UNDRAWN", weight))
                if not loosens:
                    patched.enter_context(patch.object(Kernel, "loosened", lambda self, _: self))
                model = PrideRegressor(prior=None if name == "no prior" else prior, **asked).fit(X[:count], y[:count])
            found[name].append(float(np.mean((y[new] - model.predict(X[new])) ** 2)) / scale)
        found["alone"].append(float(np.mean((y[new] - X[new] @ other) ** 2)) / scale)
    return found


def main(full: bool) -> None:
    """Write the table."""
    del full
    warnings.simplefilter("ignore")
    lines = []
    for shape in SHAPES:
        for kind in KINDS:
            found = {name: float(np.mean(values)) for name, values in cell(kind, *shape).items()}
            parties, width, count, correlation, positive, r2 = shape
            words = (
                f"{parties} x {width}, {count} rows, correlation {correlation:g}{', slopes positive' * positive}, R2 {r2:g}"
            )
            each = [f"{found[name] - found['no prior']:+.3f}" for name in RULES]
            lines.append((words, kind, f"{found['no prior']:.3f}", f"{found['alone']:.3f}", *each))
            print(*lines[-1], flush=True)
    notes = "Squared error of joint predictions over the variance of y, means over 12 seeds: without an earlier model, of it alone, and by how much each rule is off more."
    write_table(
        "priors_pride_rule",
        "The rule of earlier models in PRIDE",
        ("shape", "earlier model", "no prior", "alone", *RULES),
        lines,
        notes,
    )


if __name__ == "__main__":
    run(main)
