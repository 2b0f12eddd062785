"""The shares of the budget of an effect by AIPW, on designs that serve for nothing else: root mean square errors."""

from __future__ import annotations

import numpy as np
from experiments.common import run, write_table
from experiments.effects.designs import WRONG, Design, played

from unpooled.models.effects import plan as effects_plan
from unpooled.models.effects.declared import OUTCOME, PROPENSITY, Estimator

DESIGNS = (
    Design("right", 0.7, 0.3),
    Design("outcome wrong", 0.8, 0.2, outcome=WRONG),
    Design("propensity wrong", 0.8, 0.2, propensity=WRONG),
    Design("two classes", 0.7, 0.3, binary=True),
    Design("little overlap", 0.9, 1.6),
)
SIZES = ((5000, 1.0), (12_000, 2.0))
NAMES = (
    PROPENSITY,
    OUTCOME,
    effects_plan.OVERLAP,
    effects_plan.SPREAD,
    effects_plan.SUMS,
    effects_plan.SLOPES,
    effects_plan.BALANCE,
)
#: Tried, the second of which is what plans have.
SHARES = (
    (0.25, 0.25, 0.03, 0.05, 0.28, 0.10, 0.04),
    (0.25, 0.25, 0.03, 0.12, 0.23, 0.08, 0.04),
    (0.30, 0.25, 0.03, 0.10, 0.20, 0.08, 0.04),
    (0.25, 0.30, 0.03, 0.10, 0.20, 0.08, 0.04),
    (0.20, 0.20, 0.03, 0.15, 0.28, 0.10, 0.04),
    (0.20, 0.20, 0.03, 0.10, 0.38, 0.05, 0.04),
)
FULL, REDUCED = 60, 15


def main(full: bool) -> None:
    """Write the error of every design at every vector of shares."""
    runs, lines = FULL if full else REDUCED, []
    for shares in SHARES:
        effects_plan._SHARES[Estimator.AIPW] = dict(zip(NAMES, shares, strict=True))  # noqa: SLF001 - what is tried
        ratios = []
        for design in DESIGNS:
            truth = design.truth(400_000)
            for rows, epsilon in SIZES:
                plan, values = design.plan(rows, epsilon), []
                for seed in range(runs):
                    rng = np.random.default_rng([seed, 7])
                    effect = played(plan, design.data(rng, rows), rng).effect
                    values += [] if effect is None else [(effect.value, effect.std_error)]
                value, error = np.array(values).T
                ratios.append((float(np.sqrt(np.mean((value - truth) ** 2))), float(np.median(error))))
        lines.append((*(f"{share:g}" for share in shares), *(f"{rms:.3f} ({error:.3f})" for rms, error in ratios)))
        print(*lines[-1], flush=True)
    head = [f"{design.name}, {rows:,}, {epsilon:g}" for design in DESIGNS for rows, epsilon in SIZES]
    write_table(
        "effects/shares",
        "Shares of the budget of an effect",
        (*NAMES, *head),
        lines,
        f"{runs} runs; root mean square error, and in parentheses the median standard error. Rows and epsilon stand with each design.",
    )


if __name__ == "__main__":
    run(main)
