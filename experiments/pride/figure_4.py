"""Figures 4 and D.2 of the PRIDE paper: the simulation of section D.1, every method's penalty by five-fold global cross-validation.

Two blocks of 200 columns, 800 training and 200 test rows, delta = 0.05, theta = 7.4118 (Table D.2's). Errors are |b - beta|^2 / |beta|^2.
Beside the paper's protocol: marginal likelihood (our default) and local cross-validation at m = 0.05 tau. ``figure_4_ordering`` says for every
(m, epsilon) whether DUAL-LOCO <= PRIDE(epsilon) <= PRIDE(the next smaller epsilon) <= semi-naive holds for the error of both blocks together.
"""

from __future__ import annotations

import numpy as np
from experiments.cells import kept
from experiments.common import curves, run, write_table
from experiments.pride._protocol import (
    EPSILONS,
    FIXED,
    FRACTIONS,
    PRIVATE,
    Problem,
    check_against_the_estimator,
    fit,
    mean_and_error,
    verdict,
)

from unpooled.datasets import make_confounded_field

THETA, TRAIN = 7.4118, 800
MEASURES = ("block X", "block C", "overall", "test MSE")
CHOICES = {"global-cv": FRACTIONS, "marginal-likelihood": (0.05,), "local-cv": (0.05,)}


def problem_of(seed: int) -> tuple[Problem, np.ndarray]:
    """The paper's simulation, and its true coefficients."""
    field = make_confounded_field(TRAIN + 200, seed=seed)
    half = field.block
    blocks = (np.arange(half), np.arange(half, 2 * half))
    rows, y = field.design, field.response
    return Problem(rows[:TRAIN], y[:TRAIN], rows[TRAIN:], y[TRAIN:], blocks), field.coefficients


def measures(
    problem: Problem, true: np.ndarray, method: str, fraction: float, epsilon: float, choice: str, seed: int
) -> list:
    """The four panels."""
    found = fit(problem, method, fraction, epsilon, choice, seed, THETA)
    difference = (found.coef - true) ** 2
    parts = [float(difference[b].sum() / (true[b] ** 2).sum()) for b in problem.blocks]
    residual = problem.y_test - found.predict(problem.X_test)
    return [*parts, float(difference.sum() / (true**2).sum()), float((residual**2).mean() / problem.y_test.var())]


def main(full: bool) -> None:
    """All cells, their table, the ordering, and a figure per m."""
    seeds = range(20 if full else 6)
    worlds = [problem_of(seed) for seed in seeds]
    check_against_the_estimator(worlds[0][0])
    found: dict[tuple, np.ndarray] = {}

    def cell(choice: str, method: str, fraction: float, epsilon: float) -> None:
        key = choice, method, fraction, epsilon
        found[key] = np.array(
            [
                kept([*key, seed], lambda seed=seed: measures(*worlds[seed], method, fraction, epsilon, choice, seed))
                for seed in seeds
            ]
        )

    for choice, fractions in CHOICES.items():
        for method in ("semi-naive", "pooled"):
            cell(choice, method, 0.0, np.inf)
        for fraction in fractions:
            cell(choice, "DUAL-LOCO", fraction, np.inf)
            for method in PRIVATE:
                for epsilon in EPSILONS:
                    cell(choice, method, fraction, epsilon)
    rows = [
        [
            *(choice, method, f"{fraction:g}", "" if epsilon == np.inf else f"{epsilon:g}"),
            *map(mean_and_error, values.T),
            *(f"{middle:.3f}" for middle in np.median(values, axis=0)),
        ]
        for (choice, method, fraction, epsilon), values in found.items()
    ]
    title = f"Figures 4 and D.2: the simulation, means of {len(seeds)} repetitions and their standard errors"
    write_table(
        "pride/figure_4",
        title,
        ["penalty by", "method", "m/tau", "epsilon", *MEASURES, *(f"{m}, median" for m in MEASURES)],
        rows,
    )
    ordering(found)
    gains(found)
    for fraction in FRACTIONS:
        panels = {measure: lines(found, fraction, i) for i, measure in enumerate(MEASURES)}
        curves(f"pride/figure_4_{fraction:g}", panels, "epsilon")


def lines(found: dict[tuple, np.ndarray], fraction: float, i: int) -> dict:
    """One panel: flat lines for what has no epsilon, means with two standard errors for the rest."""
    out = {}
    for method in FIXED:
        values = found["global-cv", method, fraction if method == "DUAL-LOCO" else 0.0, np.inf][:, i]
        out[method] = (np.array([1.0]), np.array([values.mean()]), np.zeros((2, 1)))
    for method in PRIVATE:
        stack = np.array([found["global-cv", method, fraction, epsilon][:, i] for epsilon in EPSILONS])
        middle, spread = stack.mean(axis=1), 2 * stack.std(axis=1, ddof=1) / np.sqrt(stack.shape[1])
        out[method] = (np.array(EPSILONS), middle, (middle - spread, middle + spread))
    return out


def ordering(found: dict[tuple, np.ndarray]) -> None:
    """Whether DUAL-LOCO <= PRIDE(eps) <= PRIDE(next smaller eps) <= ... <= semi-naive; paired, ties within two standard errors."""
    rows = []
    for fraction in FRACTIONS:
        overall = [found["global-cv", "PRIDE (paper)", fraction, epsilon][:, 2] for epsilon in EPSILONS]
        naive = found["global-cv", "semi-naive", 0.0, np.inf][:, 2]
        loco = found["global-cv", "DUAL-LOCO", fraction, np.inf][:, 2]
        for i, epsilon in enumerate(EPSILONS):
            said = [
                verdict(loco, overall[i]),
                verdict(overall[i], overall[i - 1] if i else naive),
                verdict(overall[i], naive),
            ]
            rows.append([f"{fraction:g}", f"{epsilon:g}", *said, "broken" if "NO" in said else "holds"])
    header = [
        "m/tau",
        "epsilon",
        "DUAL-LOCO <= PRIDE",
        "PRIDE <= PRIDE at the next smaller epsilon",
        "PRIDE <= semi-naive",
        "ordering",
    ]
    holds = sum(row[-1] == "holds" for row in rows)
    rows.append(["all", "", "", "", f"{holds} of {len(rows)}", "hold"])
    write_table("pride/figure_4_ordering", "Figure 4: the paper's ordering of the error over both blocks", header, rows)


def gains(found: dict[tuple, np.ndarray]) -> None:
    """What the calibrated form gains over the paper's, each under the paper's protocol: the mean paired ratio of errors."""
    rows = []
    for (choice, method, fraction, epsilon), values in found.items():
        if method not in PRIVATE[1:]:
            continue
        ratios = values / found[choice, PRIVATE[0], fraction, epsilon]
        rows.append([choice, method, f"{fraction:g}", f"{epsilon:g}", *map(mean_and_error, ratios.T)])
    header = ["penalty by", "method", "m/tau", "epsilon", *MEASURES]
    write_table("pride/figure_4_gain", "Figure 4: errors of our forms over those of the paper's form, paired", header, rows)


if __name__ == "__main__":
    run(main)
