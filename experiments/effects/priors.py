"""A treatment effect drawn to an earlier estimate of it, in 54 cells listed beforehand: good, useless and misleading, next to none.

Studies are played on made-up people with the noise that their plans have. A good estimate is off by 15 %, a useless one is another number of
the same size, a misleading one has the other sign. ``--full`` has more runs a cell; it continues where it stopped.
"""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.effects.designs import Design, played

from unpooled.inference.priors import EarlierModel
from unpooled.models.effects.declared import DeclaredEffect
from unpooled.models.effects.result import EffectNumber, drawn_effect

DESIGNS = {"a number": Design("A", 0.4, 0.2), "two classes": Design("B", 1.0, 0.2, binary=True)}
STUDIES = [(name, rows, epsilon) for name in DESIGNS for rows in (2000, 5000, 20_000) for epsilon in (0.5, 1.0, 3.0)]
EARLIER = ("good", "useless", "misleading")
FULL, REDUCED = 100, 40
#: A standard error that no study has: the effect is not identified.
_NONE = math.nan


def before(kind: str, truth: float, rng: np.random.Generator) -> float:
    """Return an earlier estimate of this kind."""
    return {"good": truth * (1 + 0.15 * rng.normal()), "useless": truth * rng.normal(), "misleading": -truth}[kind]


def alone(name: str, rows: int, epsilon: float, runs: int) -> tuple[DeclaredEffect, list[list[float]]]:
    """Return what a study declares, and (estimate, standard error) of every run without an earlier estimate."""
    plan = DESIGNS[name].plan(rows, epsilon)

    def one(seed: int) -> list[float]:
        rng = np.random.default_rng([seed, rows, len(name), round(10 * epsilon)])
        effect = played(plan, DESIGNS[name].data(rng, rows), rng).effect
        return [_NONE, _NONE] if effect is None else [effect.value, effect.std_error]

    return plan.design.declared, [kept((name, rows, epsilon, seed), lambda seed=seed: one(seed)) for seed in range(runs)]


def drawn(declared: DeclaredEffect, value: float, error: float, earlier: float) -> tuple[float, float]:
    """Return the mean and deviation of the effect that is drawn to this earlier one."""
    model = EarlierModel("before", {declared.parameters.estimand: earlier})
    parameters = msgspec.structs.replace(declared.parameters, prior=(model,))
    own = drawn_effect(replace(declared, parameters=parameters), EffectNumber("effect", value, error, 0.0))
    assert own is not None
    return own.value, own.deviation


def main(full: bool) -> None:
    """Write the errors and the coverage of every cell."""
    runs, lines = FULL if full else REDUCED, []
    truths = {name: design.truth() for name, design in DESIGNS.items()}
    for name, rows, epsilon in STUDIES:
        truth = truths[name]
        declared, told = alone(name, rows, epsilon, runs)
        found = np.array([one for one in told if math.isfinite(one[1])]).reshape(-1, 2)
        if not found.size:
            lines.append((name, "any", f"{epsilon:g}", f"{rows}", *["-"] * 6, f"0 of {runs}"))
            continue
        for kind in EARLIER:
            rng = np.random.default_rng([len(kind), rows])
            earlier = [before(kind, truth, rng) for _ in found]
            own = np.array([drawn(declared, *one, b) for one, b in zip(found.tolist(), earlier, strict=True)]).reshape(-1, 2)
            errors = [float(np.sqrt(np.mean(np.square(one - truth)))) for one in (own[:, 0], found[:, 0], np.array(earlier))]
            held = [float(np.mean(np.abs(one[:, 0] - truth) <= 1.959964 * one[:, 1])) for one in (own, found)]
            width = float(np.median(own[:, 1] / found[:, 1]))
            lines.append(
                (
                    name,
                    kind,
                    f"{epsilon:g}",
                    f"{rows}",
                    *(f"{one:.3f}" for one in errors),
                    *(f"{one:.3f}" for one in held),
                    f"{width:.2f}",
                    f"{found.shape[0]} of {runs}",
                )
            )
            print(*lines[-1], flush=True)
    header = (
        "outcome",
        "earlier estimate",
        "epsilon",
        "rows",
        "with",
        "without",
        "alone",
        "intervals that hold, with",
        "without it",
        "length of intervals, with over without",
        "runs with an effect",
    )
    notes = f"Root of the mean square of the error of the effect, over {runs} runs. The effect is {truths['a number']:.2f} of a number in -8 to 8 whose deviation is about 1.1, and {truths['two classes']:.3f} of a share."
    write_table("effects/priors", "Effects drawn to earlier estimates", header, lines, notes)


if __name__ == "__main__":
    run(main)
