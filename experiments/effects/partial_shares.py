"""The shares of the budget of partialling out and the weight of the treatment in rows of covariates: root mean square errors on declared shapes.

The errors are in parts of the standard error without privacy. The shapes serve for nothing else.
"""

from __future__ import annotations

import math

import numpy as np
from experiments.common import run, write_table
from experiments.effects.designs import played
from experiments.effects.open_designs import EFFECT, Shape

from unpooled.models.effects import partial
from unpooled.models.effects import plan as effects_plan
from unpooled.models.effects.declared import Estimator

SHAPES = (
    Shape("small", 1500, 1.0, 4, 5, 0.6, 0.25, 0.26),
    Shape("trial", 400, 2.0, 2, 1, 0.0, 0.2, 0.5),
    Shape("middle", 5000, 1.0, 5, 3, 1.0, 0.3),
    Shape("skewed", 3000, 1.0, 3, 2, 0.7, 0.3, 0.4, skewed=True),
    Shape("alike", 3000, 2.0, 8, 2, 0.8, 0.3, correlation=0.6),
)
NAMES = ("scales", partial.RELATIONS, partial.RESIDUALS, partial.SCORES)
#: Tried, and the weights of the treatment.
SHARES = ((0.1, 0.35, 0.08, 0.47), (0.06, 0.42, 0.05, 0.47), (0.06, 0.49, 0.05, 0.4), (0.06, 0.56, 0.05, 0.33))
WEIGHTS = (1.0, 1.5, 2.0, 2.5)
FULL, REDUCED = 60, 10


def main(full: bool) -> None:
    """Write the error of every shape at every vector of shares and weight."""
    runs, lines = FULL if full else REDUCED, []
    usual = partial._TUNED  # noqa: SLF001 - what is tried
    for shares in SHARES:
        for weight in WEIGHTS:
            effects_plan._SHARES[Estimator.PARTIAL] = dict(zip(NAMES, shares, strict=True))  # noqa: SLF001 - what is tried
            partial._TUNED = usual.but(partial_treatment=weight)  # noqa: SLF001 - what is tried
            found = []
            for shape in SHAPES:
                plan, exact = (shape.plan(epsilon=epsilon, estimator="partial") for epsilon in (None, math.inf))
                values, floors = [], []
                for seed in range(runs):
                    rng = np.random.default_rng([seed, 5])
                    data = shape.data(rng)
                    effect = played(plan, data, rng).effect
                    values += [] if effect is None else [effect.value - EFFECT]
                    floors += [played(exact, data, rng).effect.std_error] if seed < 3 else []
                found.append((float(np.sqrt(np.mean(np.square(values)))) / float(np.median(floors)), len(values)))
            mean = math.exp(np.mean([math.log(rms) for rms, _ in found]))
            cells = (f"{rms:.2f}" + ("" if count == runs else f" ({count} printed)") for rms, count in found)
            lines.append((*(f"{share:g}" for share in shares), f"{weight:g}", *cells, f"{mean:.3f}"))
            print(*lines[-1], flush=True)
    write_table(
        "effects/partial_shares",
        "Shares of the budget of partialling out",
        (*NAMES, "weight of the treatment", *(f"{s.name}, {s.rows:,}, {s.epsilon:g}" for s in SHAPES), "geometric mean"),
        lines,
        f"{runs} runs a cell; root mean square errors in parts of the standard error without privacy. Rows and epsilon stand with each shape.",
    )


if __name__ == "__main__":
    run(main)
