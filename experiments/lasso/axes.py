"""What parties' directions have in common, believed from noisy correlations: the search that fixed the rule (``models/lasso/THEORY.md``, 1c.1).

No data of rows: directions of variance one with declared correlations, a response that they explain, correlations told with noise. Excess is what a
fit by believed moments loses, as a part of what the directions explain: predicting the mean has 1. "Zero" ties nothing; "raised" takes the noisy
correlations as they are, with eigenvalues of at least .1; "shrunk" is the rule before this one: empirical Bayes of the entries, which left
directions tied to nothing where noise was large.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from experiments.common import run, write_table

from unpooled.models.lasso.moments_fit import believed_moments

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Rule = Callable[[Numbers, float, Numbers], Numbers]

PARTIES, NOISES, LEVELS, EXPLAINED = (2, 4, 8, 16), (0.03, 0.1, 0.3, 1.0, 4.0), (0.5, 0.9), (0.2, 0.9)
KINDS = ("one factor", "the response's factor", "two blocks", "uneven")


def world(kind: str, count: int, level: float, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """(correlations, coefficients) of a declared shape."""
    weights = np.sqrt(level) * (rng.uniform(-1, 1, count) if kind == "uneven" else rng.choice([-1.0, 1.0], count))
    correlations = np.outer(weights, weights)
    if kind == "two blocks":
        block = rng.integers(0, 2, count)
        correlations[block[:, None] != block] = 0.0
    np.fill_diagonal(correlations, 1.0)
    if kind == "the response's factor" and level:
        return correlations, np.linalg.solve(correlations, weights)
    return correlations, rng.normal(size=count)


def raised(correlations: Numbers, noise: float, told: Numbers) -> Numbers:  # noqa: ARG001 - as other rules
    """As they are."""
    values, vectors = np.linalg.eigh(correlations)
    return np.asarray((vectors * np.maximum(values, 0.1)) @ vectors.T)


def zero(correlations: Numbers, noise: float, told: Numbers) -> Numbers:  # noqa: ARG001 - as other rules
    """Nothing."""
    return np.eye(told.size)


def shrunk(correlations: Numbers, noise: float, told: Numbers) -> Numbers:
    """Signal / (signal + noise) of each, the smallest eigenvalue kept above half a deviation of what stays unknown."""
    count = told.size
    off = ~np.eye(count, dtype=bool)
    signal = max(float(np.square(correlations[off]).mean()) - noise**2, 0.0)
    part = signal / (signal + noise**2)
    common = np.where(off, np.clip(correlations * part, -0.95, 0.95), 0.0)
    unknown, lowest = np.sqrt(part * count) * noise / 2, -float(np.linalg.eigvalsh(common)[0])
    common *= min(1.0, (1 - min(max(unknown, 0.05), 0.95)) / lowest) if lowest > 0 else 1.0
    return raised(common + np.eye(count), noise, told)


RULES: dict[str, Rule] = {"rule": believed_moments, "shrunk": shrunk, "zero": zero, "raised": raised}


def excess(rule: Rule, exact: Numbers, told_noise: Numbers, noise: float, b: Numbers) -> float:
    """Of one draw."""
    left = np.linalg.solve(rule(exact + told_noise, noise, exact @ b), exact @ b) - b
    return float(left @ exact @ left / (b @ exact @ b))


def main(full: bool) -> None:
    """A row for each number of parties and noise: mean excess over all shapes, and of the worst shape."""
    draws, rows = 400 if full else 60, []
    for count, noise in itertools.product(PARTIES, NOISES):
        shapes = [("one factor", 0.0), *itertools.product(KINDS, LEVELS)]
        found: dict[str, list[float]] = {name: [] for name in RULES}
        for (kind, level), explained in itertools.product(shapes, EXPLAINED):
            rng = np.random.default_rng([count, int(1000 * noise), int(100 * level), KINDS.index(kind), int(10 * explained)])
            losses: dict[str, list[float]] = {name: [] for name in RULES}
            for _ in range(draws):
                exact, b = world(kind, count, level, rng)
                b *= np.sqrt(explained / (b @ exact @ b))
                upper = np.triu(noise * rng.normal(size=exact.shape), 1)
                for name, rule in RULES.items():
                    losses[name].append(excess(rule, exact, upper + upper.T, noise, b))
            for name, values in losses.items():
                found[name].append(float(np.mean(values)))
        numbers = [f"{f(values):.2f}" for values in found.values() for f in (lambda v: np.mean(v[:2]), np.mean, max)]
        rows.append([f"{count}, {noise:g}", *numbers])
        print(rows[-1], flush=True)
    header = [f"{name}, {what}" for name in RULES for what in ("uncorrelated", "mean", "worst shape")]
    write_table(
        "lasso/axes",
        "Excess of a fit by what is believed in common, over declared shapes: the mean of the response has 1",
        ["parties, noise", *header],
        rows,
        "Noise: deviation of a told correlation. Numbers without an error agree within 0.6.",
    )


if __name__ == "__main__":
    run(main)
