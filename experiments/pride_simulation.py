"""PRIDE on its simulation (section D.1): Figures 4 and D.2, and the gain of regression calibration.

    python experiments/pride_simulation.py [repetitions]
    python experiments/pride_simulation.py gain [sets] [repetitions]

Two blocks of 200 columns, 800 training and 200 test rows, delta = 0.05, public theta = 7.4118 (Table D.2's), unit attribute. Signs of
the components: drawn from the seed (`gain` compares them with "largest entry positive"). Errors are |b - beta|^2 / |beta|^2; medians over the repetitions.
"""

from __future__ import annotations

import sys

import numpy as np
from common import curves, write_table

from unpooled import PrideRegressor
from unpooled.datasets.confounded_field import ConfoundedField, make_confounded_field

THETA, DELTA, TRAIN = 7.4118, 0.05, 800
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
FRACTIONS = (0.01, 0.05, 0.1, 0.2)
PENALTIES = ("marginal-likelihood", "local-cv")
FIXED = {
    "semi-naive": {"sketch_dim": 0, "noise_model": "plain"},
    "DUAL-LOCO": {"epsilon": np.inf, "noise_model": "plain"},
    "pooled": {"parties": 1, "sketch_dim": 0},
}
PRIVATE = {
    "published": {"calibration": "published", "noise_model": "plain"},
    "sound": {"noise_model": "plain"},
    "sound + calibrated": {"noise_model": "calibrated"},
    "DCT + calibrated": {"noise_model": "calibrated", "sketch": "dct"},
}
MEASURES = ("block X", "block C", "overall", "test MSE")


def errors(field: ConfoundedField, options: dict, fraction: float, alpha: str, seed: int) -> list[float]:
    """The four measures of one fit."""
    parties = {"x": range(field.block), "c": range(field.block, field.design.shape[1])}
    settings = {
        "parties": parties,
        "bounds": (-THETA / 2, THETA / 2),
        "delta": DELTA,
        "alpha": alpha,
        "sketch_dim": fraction,
        "random_state": seed,
        "public_seed": seed,
        "grids": {"x": field.shape, "c": field.shape},
        **options,
    }
    model = PrideRegressor(**settings).fit(field.design[:TRAIN], field.response[:TRAIN])
    difference, true, b = model.coef_ - field.coefficients, field.coefficients, field.block
    rest = field.response[TRAIN:]
    predicted = model.predict(field.design[TRAIN:])
    return [
        float((difference[:b] ** 2).sum() / (true[:b] ** 2).sum()),
        float((difference[b:] ** 2).sum() / (true[b:] ** 2).sum()),
        float((difference**2).sum() / (true**2).sum()),
        float(((rest - predicted) ** 2).mean() / rest.var()),
    ]


def gain(sets: int = 5, repetitions: int = 20) -> None:
    """The gain at epsilon = 5, m = 0.05 tau in several disjoint sets of repetitions, for both conventions of the arbitrary signs."""
    rows = []
    for signs in ("random", "positive"):
        seeds = range(sets * repetitions)
        fields = [make_confounded_field(TRAIN + 200, seed=seed, signs=signs) for seed in seeds]
        for alpha in PENALTIES:
            methods = {**FIXED, **{name: {**options, "epsilon": 5.0} for name, options in PRIVATE.items()}}
            found = {
                name: np.array([errors(f, options, 0.05, alpha, s)[0] for s, f in zip(seeds, fields, strict=True)])
                for name, options in methods.items()
            }
            for name, values in found.items():
                paired = values / found["published"]
                medians = np.median(paired.reshape(sets, repetitions), axis=1)
                of_medians = np.median(values) / np.median(found["published"])
                cells = [
                    f"{np.median(values):.3f}",
                    f"{of_medians:.2f}",
                    f"{np.median(paired):.2f}",
                    f"{medians.min():.2f} .. {medians.max():.2f}",
                ]
                rows.append([signs, alpha, name, *cells])
            print(f"signs {signs}, alpha {alpha} done", flush=True)
    header = ["signs", "alpha", "method", "median block X error", "ratio of medians to published", "median paired ratio"]
    title = f"PRIDE at epsilon = 5, m = 0.05 tau: {sets * repetitions} repetitions"
    write_table("pride_gain", title, [*header, f"the same in {sets} disjoint sets of {repetitions}"], rows)


def fractions(alpha: str) -> tuple[float, ...]:
    """All of them by marginal likelihood; the smallest useful one by local cross-validation, which is slower."""
    return FRACTIONS if alpha == "marginal-likelihood" else (0.05,)


def main(repetitions: int = 20) -> None:
    fields = [make_confounded_field(TRAIN + 200, seed=seed) for seed in range(repetitions)]
    found: dict[tuple, np.ndarray] = {}
    for alpha in PENALTIES:
        for name, options in FIXED.items():
            for fraction in fractions(alpha) if name == "DUAL-LOCO" else (0.05,):
                found[alpha, name, fraction, None] = np.array(
                    [errors(f, options, fraction, alpha, s) for s, f in enumerate(fields)]
                )
        for fraction in fractions(alpha):
            for epsilon in EPSILONS:
                for name, options in PRIVATE.items():
                    key = alpha, name, fraction, epsilon
                    found[key] = np.array(
                        [errors(f, {**options, "epsilon": epsilon}, fraction, alpha, s) for s, f in enumerate(fields)]
                    )
            print(f"alpha {alpha}, m = {fraction} tau done", flush=True)
    rows = []
    for (alpha, name, fraction, epsilon), values in found.items():
        middle = np.median(values, axis=0)
        ratio = ""
        if epsilon is not None and name != "published":
            pairs = values[:, 0] / found[alpha, "published", fraction, epsilon][:, 0]
            ratio = f"{np.median(pairs):.2f} ({(pairs < 1).mean():.0%})"
        rows.append(
            [alpha, name, f"{fraction:g}", "" if epsilon is None else f"{epsilon:g}", *(f"{v:.3f}" for v in middle), ratio]
        )
    header = ["alpha", "method", "m/tau", "epsilon", *MEASURES, "block X against published (share of runs better)"]
    write_table("pride_simulation", f"PRIDE on the simulation, medians of {repetitions} repetitions", header, rows)
    for alpha in PENALTIES:
        for fraction in fractions(alpha):
            panels = {}
            for i, measure in enumerate(MEASURES):
                lines = {}
                for name in FIXED:
                    value = np.median(found[alpha, name, fraction if name == "DUAL-LOCO" else 0.05, None][:, i])
                    lines[name] = (np.array([1.0]), np.array([value]), np.zeros((2, 1)))
                for name in PRIVATE:
                    stack = np.array([found[alpha, name, fraction, epsilon][:, i] for epsilon in EPSILONS])
                    lines[name] = (np.array(EPSILONS), np.median(stack, axis=1), np.quantile(stack, [0.25, 0.75], axis=1))
                panels[measure] = lines
            curves(f"pride_simulation_{alpha}_{fraction:g}", panels, "epsilon")


if __name__ == "__main__":
    if sys.argv[1:2] == ["gain"]:
        gain(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
