"""PRIDE, section 2: scenario A (one block is public, the other private) and scenario B (the response is known to one party), by the estimator.

The simulation of section D.1, m = 0.05 tau, delta = 0.05, sound noise. Penalties by global cross-validation, as in the paper, and in B, where one
party estimates and there is nothing to add up, by marginal likelihood. Errors are |b - beta|^2 / |beta|^2 of a block; in B party X predicts new
rows, from newly released sketches of them.
"""

from __future__ import annotations

import warnings

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.pride._protocol import DELTA, mean_and_error
from experiments.pride.figure_4 import THETA, problem_of

from unpooled import PrideRegressor

EPSILONS = (0.1, 1.0, 5.0, 20.0)
SEMI_NAIVE, LOCO = {"sketch_dim": 0, "noise_model": "plain"}, {"epsilon": np.inf, "noise_model": "plain"}
SCENARIOS = ("both private", "A: X public", "B: X has the response")
FORMS = {"plain": {"noise_model": "plain"}, "calibrated": {"noise_model": "calibrated"}}


def repetition(seed: int) -> list[tuple[str, str, str, list[float]]]:
    """All cells of one draw of the simulation: scenario, the others' columns, epsilon, and the errors."""
    problem, true = problem_of(seed)
    x, c = problem.blocks
    variance = problem.y_test.var()
    shared = {"parties": {"X": x, "C": c}, "bounds": (-THETA / 2, THETA / 2), "delta": DELTA}
    shared |= {"sketch_dim": 0.05, "random_state": seed, "public_seed": seed}
    found = []

    def fitted(**options) -> PrideRegressor:
        return PrideRegressor(**{**shared, **options}).fit(problem.X, problem.y)

    def of_block(model, block) -> float:
        return float(((model.coef_[block] - true[block]) ** 2).sum() / (true[block] ** 2).sum())

    cells = [("nothing is sent", "", SEMI_NAIVE)]
    cells += [(name, f"{e:g}", {"epsilon": e, **form}) for name, form in FORMS.items() for e in EPSILONS]
    cells += [("no noise", "", LOCO)]
    for name, epsilon, options in cells:
        for scenario, public in zip(SCENARIOS, ((), x), strict=False):
            if name == "nothing is sent" and scenario == SCENARIOS[1]:
                continue
            model = fitted(alpha="global-cv", public=public, **options)
            residual = problem.y_test - model.predict(problem.X_test)
            values = [of_block(model, x), of_block(model, c), float((residual**2).mean() / variance)]
            found.append((scenario, name, epsilon, values))
        model = fitted(alpha="marginal-likelihood", estimating=["X"], **options)
        residual = problem.y_test - model.predict_at("X", problem.X_test)
        found.append((SCENARIOS[2], name, epsilon, [of_block(model, x), np.nan, float((residual**2).mean() / variance)]))
    return found


def main(full: bool) -> None:
    """Both scenarios over epsilon."""
    warnings.simplefilter("ignore", UserWarning)  # delta = 0.05, as in the paper
    seeds = range(20 if full else 6)
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for seed in seeds:
        for scenario, name, epsilon, values in kept(seed, lambda seed=seed: repetition(seed)):
            found.setdefault((scenario, name, epsilon), []).append(values)
    rows = [
        [*key, *("" if np.isnan(column).any() else mean_and_error(column) for column in np.array(found[key]).T)]
        for key in sorted(found, key=lambda key: SCENARIOS.index(key[0]))
    ]
    header = ["scenario", "the others' columns", "epsilon", "block X", "block C", "test MSE"]
    title = f"Scenarios A and B on the simulation: means of {len(seeds)} repetitions and their standard errors"
    write_table("pride/scenarios", title, header, rows, f"m = 0.05 tau, delta = {DELTA}.")


if __name__ == "__main__":
    run(main)
