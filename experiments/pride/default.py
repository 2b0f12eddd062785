"""PRIDE by nothing but epsilon and bounds: the default estimator next to the printed form and to forms without privacy, on the data of Figures 4 and 6.

The default is ``PrideRegressor(epsilon=.., bounds=..)``, on expression with ``parties=4``; a seed makes its noise reproducible and changes nothing
else. The printed form has the paper's parameters: delta 0.05, global cross-validation, m = 0.2 tau (Figure 4) or 0.05 tau (Figure 6). All forms of a
repetition have the same rows, so differences are paired.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.pride._protocol import DELTA, Problem, fit, mean_and_error
from experiments.pride._real import selected
from experiments.pride.figure_4 import THETA, problem_of

from unpooled import PrideRegressor

EPSILONS = (0.1, 1.0, 5.0, 20.0)
DEFAULT, SILENT, PRINTED, LOCO, POOLED = "default", "default, nothing sent", "printed form", "DUAL-LOCO", "pooled"
#: Declared ranges of all columns: Table D.2's theta, and what holds every logarithm of an expression.
FIELD, EXPRESSION = (-THETA / 2, THETA / 2), (3.0, 15.0)
Arm = tuple[str, float]


def coefficients(
    problem: Problem,
    method: str,
    epsilon: float,
    seed: int,
    fraction: float,
    bounds: tuple[float, float],
    theta: float | None,
) -> tuple:
    """Coefficients in the data's own units, and predictions of the test rows."""
    if method in {DEFAULT, SILENT}:
        parties = {} if len(problem.blocks) == 2 else {"parties": len(problem.blocks)}
        sent = {} if method == DEFAULT else {"sketch_dim": 0}
        model = PrideRegressor(epsilon=epsilon, bounds=bounds, random_state=seed, **parties, **sent).fit(
            problem.X, problem.y
        )
        return model.coef_, model.predict(problem.X_test)
    found = fit(problem, "PRIDE (paper)" if method == PRINTED else method, fraction, epsilon, "global-cv", seed, theta)
    return found.coef, found.predict(problem.X_test)


def arms() -> list[Arm]:
    """Every form, and its epsilon."""
    private = [(method, epsilon) for epsilon in EPSILONS for method in (DEFAULT, PRINTED)]
    return [*private, (SILENT, 1.0), (DEFAULT, math.inf), (LOCO, math.inf), (POOLED, math.inf)]


def field(seed: int) -> list[list[float]]:
    """Errors of one draw of the simulation, against the true coefficients: of all of them, of block X, of block C; and of new rows."""
    problem, true = problem_of(seed)
    rows = []
    for method, epsilon in arms():
        coef, told = coefficients(problem, method, epsilon, seed, 0.2, FIELD, THETA)
        missed = (coef - true) ** 2
        parts = [float(missed[block].sum() / (true[block] ** 2).sum()) for block in (np.arange(true.size), *problem.blocks)]
        rows.append([*parts, float(((problem.y_test - told) ** 2).mean() / problem.y_test.var())])
    return rows


def expression(seed: int) -> list[list[float]]:
    """Distance and correlation of one split to the pooled ridge, on standardised columns, and the error of new rows."""
    problem = selected(seed)
    found = [coefficients(problem, method, epsilon, seed, 0.05, EXPRESSION, None) for method, epsilon in arms()]
    scale, base = problem.X.std(axis=0), ((problem.y_test - problem.y.mean()) ** 2).mean()
    pooled, rows = found[-1][0] * scale, []
    for coef, told in found:
        own = coef * scale
        distance = float(((own - pooled) ** 2).sum() / (pooled**2).sum())
        rows.append([distance, float(np.corrcoef(own, pooled)[0, 1]), float(((problem.y_test - told) ** 2).mean() / base)])
    return rows


SETS = {
    "field": ("the simulation of Figure 4", field, ("both blocks", "block X", "block C", "test MSE")),
    "expression": ("expression, 500 probes (Figure 6)", expression, ("distance to pooled", "correlation", "test MSE")),
}


def main(full: bool) -> None:
    """One table for each data set: means with standard errors, and the paired difference to the printed form at the same epsilon."""
    warnings.simplefilter("ignore", UserWarning)
    seeds = range(20 if full else 6)
    for name, (label, repetition, measures) in SETS.items():
        values = np.array([kept([name, seed], lambda seed=seed, made=repetition: made(seed)) for seed in seeds])
        places, rows = {arm: i for i, arm in enumerate(arms())}, []
        for (method, epsilon), i in places.items():
            own = values[:, i]
            printed = values[:, places[PRINTED, epsilon]] if (PRINTED, epsilon) in places and method == DEFAULT else None
            less = ["", ""] if printed is None else [mean_and_error(column) for column in (own - printed).T[[0, -1]]]
            alone = values[:, places[SILENT, 1.0], -1]
            less.append(mean_and_error(own[:, -1] - alone) if method == DEFAULT else "")
            said = "none" if math.isinf(epsilon) or method == SILENT else f"{epsilon:g}"
            rows.append([method, said, *map(mean_and_error, own.T), *less])
        write_table(
            f"pride/default_{name}",
            f"What the default gives on {label}: means of {len(seeds)} repetitions and their standard errors",
            [
                "form",
                "epsilon",
                *measures,
                f"{measures[0]}, less printed",
                "test MSE, less printed",
                "test MSE, less nothing sent",
            ],
            rows,
            f"Default: delta 1e-5, unit attribute, sound. Printed form: delta {DELTA}, promises nothing.",
        )


if __name__ == "__main__":
    run(main)
