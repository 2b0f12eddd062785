"""PRIDE, Figures 5, 6, D.3 and D.4: all four panels on a simulated climate, sea-level pressure and expression, four parties, penalties by five-fold global cross-validation.

The truth is not known: coefficients are compared with those of the pooled ridge whose penalty is chosen in the same way. A mean is the paper's
figure; medians are given as well, because a penalty near zero in one run of twenty can decide a mean.
"""

from __future__ import annotations

import numpy as np
from experiments.cells import kept
from experiments.common import curves, run, write_table
from experiments.pride._climate import climate
from experiments.pride._dual import Dual, Found, check_against_the_paths
from experiments.pride._protocol import DELTA, EPSILONS, FRACTIONS, fit, mean_and_error
from experiments.pride._real import expression, pressure, selected

PAPER, OURS = "PRIDE (paper)", "sound + calibrated"
PANELS = ("correlation", "error to pooled", "training MSE", "test MSE")
#: The data, and the part of the columns whose four panels are drawn.
SETS = {
    "figure_5": ("the simulated climate", climate, (0.05,)),
    "figure_5_pressure": ("sea-level pressure", pressure, (0.05,)),
    "figure_6": ("expression, 500 probes selected by correlation", selected, (0.05, 0.2)),
    "figure_6_unselected": ("expression, all 1000 probes", expression, (0.05,)),
}


def panels(pooled: np.ndarray, coef: np.ndarray, train: float, test: float) -> list[float]:
    """Correlation with the pooled coefficients and squared distance to them, and the error on training and test rows, on standardised columns."""
    distance = float(((coef - pooled) ** 2).sum() / (pooled**2).sum())
    return [float(np.corrcoef(coef, pooled)[0, 1]), distance, train, test]


def repetition(name: str, seed: int) -> list[list[object]]:
    """All cells of one draw of rows, sketches and noise: method, part of the columns, epsilon, and the four panels."""
    problem = SETS[name][1](seed)
    dual = Dual(problem, seed)
    pooled = dual.fit("pooled")
    cells = [("pooled", 0.0, np.inf), ("semi-naive", 0.0, np.inf)]
    cells += [("DUAL-LOCO", fraction, np.inf) for fraction in FRACTIONS]
    cells += [(PAPER, fraction, epsilon) for fraction in FRACTIONS for epsilon in EPSILONS]
    found: list[list[object]] = []
    for method, fraction, epsilon in cells:
        one = pooled if method == "pooled" else dual.fit(method, fraction, epsilon)
        found.append([method, fraction, epsilon, panels(pooled.coef, one.coef, one.train, one.test)])
    if name.startswith(("figure_5_", "figure_6_")):
        found += [[OURS, 0.05, epsilon, ours(dual, pooled, epsilon, seed)] for epsilon in EPSILONS]
    return found


def ours(dual: Dual, pooled: Found, epsilon: float, seed: int) -> list[float]:
    """The panels of our form with calibrated columns."""
    problem = dual.problem
    model = fit(problem, OURS, 0.05, epsilon, seed=seed)
    errors = [
        float(((y - model.predict(X)) ** 2).mean() / ((y - problem.y.mean()) ** 2).mean())
        for X, y in ((problem.X, problem.y), (problem.X_test, problem.y_test))
    ]
    return panels(pooled.coef, model.coef * problem.X.std(axis=0), *errors)


def quartiles(values: np.ndarray) -> str:
    """The median and the quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.3f} ({low:.3f} .. {high:.3f})"


def main(full: bool) -> None:
    """Twenty repetitions (splits, sketches and noise), where the paper says no number; or three."""
    seeds = range(20 if full else 3)
    check_against_the_paths(selected(0))
    for name, (label, _, drawn) in SETS.items():
        runs = [kept([name, seed], lambda name=name, seed=seed: repetition(name, seed)) for seed in seeds]
        values = {tuple(cell[:3]): np.array([one[i][3] for one in runs]) for i, cell in enumerate(runs[0])}
        rows = [
            [method, f"{fraction:g}", "" if epsilon == np.inf else f"{epsilon:g}"]
            + [text for column in cells.T for text in (mean_and_error(column), quartiles(column))]
            for (method, fraction, epsilon), cells in values.items()
        ]
        header = ["method", "m/tau", "epsilon", *(f"{panel}, {kind}" for panel in PANELS for kind in ("mean", "median"))]
        title = f"Figure {name.split('_')[1]}: {label}, {len(seeds)} repetitions, means with standard errors and medians with quartiles"
        notes = f"delta = {DELTA}; every penalty by five-fold global cross-validation."
        write_table(f"pride/{name}", title, header, rows, notes)
        for fraction in drawn:
            lines = {panel: lines_of(values, fraction, i) for i, panel in enumerate(PANELS)}
            curves(f"pride/{name}" + (f"_{fraction:g}" if len(drawn) > 1 else ""), lines, "epsilon", logy=False)


def lines_of(values: dict[tuple, np.ndarray], fraction: float, i: int) -> dict[str, tuple[np.ndarray, ...]]:
    """One panel: the median of every method, and PRIDE's quartiles."""
    found = {}
    for method, of in (("pooled", 0.0), ("semi-naive", 0.0), ("DUAL-LOCO", fraction)):
        middle = np.array([np.median(values[method, of, np.inf][:, i])])
        found[method] = (np.array([1.0]), middle, np.zeros((2, 1)))
    for method in (PAPER, OURS):
        if (method, fraction, EPSILONS[0]) in values:
            stack = np.array([values[method, fraction, epsilon][:, i] for epsilon in EPSILONS])
            low, middle, high = np.quantile(stack, [0.25, 0.5, 0.75], axis=1)
            found[method] = (np.array(EPSILONS), middle, (low, high))
    return found


if __name__ == "__main__":
    run(main)
