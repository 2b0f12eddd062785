"""Whether a focus of linear regression attenuates the slope of a treatment that depends on the covariates, next to partialling out.

Where the covariates do not move the outcome nothing confounds, so a mean below the effect is attenuation; where they do, what is left of the confounding adds
to it.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from experiments.common import run, write_table
from experiments.effects.designs import played
from experiments.effects.open_designs import EFFECT, Shape

import unpooled

CELLS = [
    Shape("moves nothing" if not explained else "moves the outcome too", rows, epsilon, 5, 2, 1.0, explained, 0.4)
    for explained in (0.0, 0.3)
    for rows in (2000, 5000, 20_000)
    for epsilon in (1.0, 3.0)
]
FULL, REDUCED = 40, 5


def focused(shape: Shape, data: dict[str, np.ndarray], seed: int) -> tuple[float, float]:
    """Return the slope of the treatment and its standard error by a focus."""
    frame = pd.DataFrame(data)
    bounds = {name: ends for name, ends in shape.bounds.items() if name != "y"}
    model = unpooled.PrivateLinearRegression(
        focus=["arm"], bounds=bounds, y_bounds=shape.bounds["y"], epsilon=shape.epsilon, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = model.fit(frame.drop(columns="y"), frame["y"]).summary().terms
    line = next(one for one in lines if one.term.startswith("arm"))
    return line.estimate, line.std_error


def main(full: bool) -> None:
    """Write the means and coverages of both."""
    runs, lines = FULL if full else REDUCED, []
    for shape in CELLS:
        found = []
        plan = shape.plan(estimator="partial")
        for seed in range(runs):
            data = shape.data(np.random.default_rng([seed, 23]))
            effect = played(plan, data, np.random.default_rng([seed, 29])).effect
            found.append((*focused(shape, data, seed), effect.value, effect.std_error))
        line = [shape.name, f"{shape.rows:,}", f"{shape.epsilon:g}"]
        for values, errors in (np.array(found).T[:2], np.array(found).T[2:]):
            ratio, doubt = values.mean() / EFFECT, values.std() / EFFECT / np.sqrt(runs)
            covered = float(np.mean(np.abs(values - EFFECT) < 1.959964 * errors))
            line += [f"{ratio:.2f} ± {doubt:.2f}", f"{values.std():.3f}", f"{np.median(errors):.3f}", f"{covered:.3f}"]
        lines.append(tuple(line))
        print(*line, flush=True)
    heads = [
        f"{name}, {what}"
        for name in ("focus", "partial")
        for what in ("mean / effect", "spread", "standard error", "coverage")
    ]
    write_table(
        "effects/focus",
        "Whether a focus attenuates the slope of a treatment",
        ("what drives the treatment", "rows", "epsilon", *heads),
        lines,
        f"{runs} runs a cell; an effect of {EFFECT:g}, five numbers and two columns of levels, log odds of treatment with a deviation of 1.",
    )


if __name__ == "__main__":
    run(main)
