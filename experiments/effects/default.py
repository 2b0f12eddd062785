"""From which size on augmented weighting has an effect: how often it and partialling out print one, and the standard errors of both, on declared shapes.

The number ``aipw_from`` is the least of these rows times mu for each coefficient from which on, in every shape, augmented weighting prints an effect
in 95 % of its runs. It continues where it stopped.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
from experiments.common import RESULTS, run, write_table
from experiments.effects.designs import played
from experiments.effects.open_designs import EFFECT, Shape

from unpooled.models.effects.plan import strength_of

SHAPES = (
    Shape("few columns", 0, 1.0, 3, 1, 0.7, 0.3, 0.4),
    Shape("many columns", 0, 1.0, 5, 4, 0.7, 0.3, 0.3),
    Shape("unequal arms", 0, 1.0, 4, 2, 0.5, 0.2, 0.15),
)
#: Rows times mu for each coefficient, about; rows follow.
STRENGTHS = (50, 100, 150, 200, 300, 400)
EPSILONS = (1.0, 3.0)
FULL, REDUCED = 20, 5
RUNS = RESULTS.parents[1] / "build" / "effects"


def shapes() -> list[Shape]:
    """Return every shape with the rows that give it every strength."""
    made = []
    for shape in SHAPES:
        for epsilon in EPSILONS:
            per_row = strength_of(replace(shape, rows=10_000, epsilon=epsilon).plan(estimator="partial")) / 10_000
            made += [replace(shape, rows=100 * round(k / per_row / 100), epsilon=epsilon) for k in STRENGTHS]
    return [shape for shape in made if 400 <= shape.rows <= 60_000]


def cell(shape: Shape, runs: int) -> dict[str, list]:
    """Return (estimate, standard error) of every run of both estimators, and of some without privacy; kept between calls."""
    path = RUNS / f"default_{shape.name.replace(' ', '_')}_{shape.rows}_{shape.epsilon:g}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text()) if path.is_file() else {"aipw": [], "partial": [], "free": []}
    for seed in range(len(found["partial"]), runs):
        data = shape.data(np.random.default_rng([seed, shape.rows]))
        for name in ("aipw", "partial"):
            effect = played(shape.plan(estimator=name), data, np.random.default_rng([seed, 3])).effect
            found[name].append((math.nan, math.nan) if effect is None else (effect.value, effect.std_error))
        if len(found["free"]) < 2:
            # Without privacy an exactly singular model has no result; the effect of partialling out has nearly the same error then.
            exact = (shape.plan(epsilon=math.inf, estimator=name) for name in ("aipw", "partial"))
            effects = (played(plan, data, np.random.default_rng(0)).effect for plan in exact)
            found["free"].append(next(effect.std_error for effect in effects if effect is not None))
        path.write_text(json.dumps(found))
    return {name: values[:runs] for name, values in found.items()}


def main(full: bool) -> None:
    """Write how often both print an effect, and their errors."""
    runs, lines = FULL if full else REDUCED, []
    for shape in shapes():
        found = cell(shape, runs)
        floor = float(np.median(found["free"]))
        line = [shape.name, f"{shape.rows:,}", f"{shape.epsilon:g}", f"{strength_of(shape.plan(estimator='partial')):.0f}"]
        for name in ("aipw", "partial"):
            values, errors = np.array(found[name], dtype=float).T
            shown = np.isfinite(values)
            rms = f"{np.sqrt(np.mean((values[shown] - EFFECT) ** 2)) / floor:.2f}" if shown.any() else ""
            line += [f"{shown.mean():.2f}", f"{np.median(errors[shown]) / floor:.2f}" if shown.any() else "", rms]
        lines.append(tuple(line))
        print(*line, flush=True)
    heads = [f"{name}, {what}" for name in ("aipw", "partial") for what in ("printed", "standard error", "error")]
    write_table(
        "effects/default",
        "From which size on augmented weighting has an effect",
        ("shape", "rows", "epsilon", "rows times mu for each coefficient", *heads),
        lines,
        f"{runs} runs a cell, delta 1e-5. Standard errors (medians) and root mean square errors are in parts of the standard error of augmented weighting without privacy.",
    )


if __name__ == "__main__":
    run(main)
