"""PRIDE, Figures 5 and 6: sea-level pressure and breast cancer expression, four parties, penalties by five-fold global cross-validation.

The truth is not known: coefficients are compared with those of the pooled ridge whose penalty is chosen in the same way.
"""

from __future__ import annotations

import numpy as np
from experiments.common import curves, run, write_table
from experiments.pride._protocol import DELTA, EPSILONS, FRACTIONS, PRIVATE, Fitted, Problem, fit, mean_and_error
from experiments.pride._real import SETS

MEASURES = ("error to pooled", "test MSE")


def measures(problem: Problem, pooled: Fitted, found: Fitted) -> list[float]:
    """Squared distance to the pooled coefficients, and squared error on new rows, both relative."""
    residual = problem.y_test - found.predict(problem.X_test)
    return [
        float(((found.coef - pooled.coef) ** 2).sum() / (pooled.coef**2).sum()),
        float((residual**2).mean() / ((problem.y_test - problem.y.mean()) ** 2).mean()),
    ]


def main(full: bool) -> None:
    """Ten repetitions (splits, sketches and noise) as in the paper, or twice that."""
    seeds = range(20 if full else 10)
    epsilons = EPSILONS if full else (0.1, 1.0, 5.0, 20.0)
    for name, load in SETS.items():
        found: dict[tuple, list] = {}
        for seed in seeds:
            problem = load(seed)
            pooled = fit(problem, "pooled", seed=seed)
            cells = [("pooled", 0.0, np.inf), ("semi-naive", 0.0, np.inf)]
            cells += [("DUAL-LOCO", fraction, np.inf) for fraction in FRACTIONS]
            cells += [(method, fraction, e) for method in PRIVATE for fraction in FRACTIONS for e in epsilons]
            for method, fraction, epsilon in cells:
                model = pooled if method == "pooled" else fit(problem, method, fraction, epsilon, seed=seed)
                found.setdefault((method, fraction, epsilon), []).append(measures(problem, pooled, model))
        values = {key: np.array(rows) for key, rows in found.items()}
        write_table(
            f"pride/figure_{5 if name == 'pressure' else 6}",
            f"Figure {5 if name == 'pressure' else 6}, {name}: means of {len(seeds)} repetitions and their standard errors",
            ["method", "m/tau", "epsilon", *MEASURES],
            [
                [method, f"{fraction:g}", "" if epsilon == np.inf else f"{epsilon:g}", *map(mean_and_error, rows.T)]
                for (method, fraction, epsilon), rows in values.items()
            ],
            f"delta = {DELTA}; every penalty by five-fold global cross-validation.",
        )
        panels = {}
        for i, measure in enumerate(MEASURES):
            lines = {}
            for method, fraction in (("pooled", 0.0), ("semi-naive", 0.0), ("DUAL-LOCO", 0.05)):
                if (method, i) != ("pooled", 0):
                    level = values[method, fraction, np.inf][:, i].mean()
                    lines[method] = (np.array([1.0]), np.array([level]), np.zeros((2, 1)))
            for method in PRIVATE:
                stack = np.array([values[method, 0.05, e][:, i] for e in epsilons])
                spread = stack.std(axis=1, ddof=1) / np.sqrt(stack.shape[1])
                middle = stack.mean(axis=1)
                lines[method] = (np.array(epsilons), middle, (middle - spread, middle + spread))
            panels[f"{measure}, m = 0.05 tau"] = lines
        curves(f"pride/figure_{5 if name == 'pressure' else 6}", panels, "epsilon")


if __name__ == "__main__":
    run(main)
