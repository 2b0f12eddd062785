"""The penalty of the default form where no radius is named: excess of its fit over made-up rows (``models/lasso/THEORY.md``, 1c.1).

The penalty is a part of sqrt(2 log d) deviations of a product with the response, by the noise of its release and by the draw of the rows. Columns are
normal with one common factor; the studies are those of ``SHAPES``, with the noise of their plans. Excess is what is lost of what the columns explain
(two classes: of what the log loss falls by from the base rate to the truth): the mean has 1. "Ball" is the rule before, at a radius that just
holds the true coefficients, which nobody knows.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from experiments.common import run, write_table
from scipy.special import expit

from unpooled.kernels.l1_ball import TwoClasses, logistic_in_ball, logistic_with_penalty
from unpooled.models.lasso.moments_fit import fitting, in_ball, penalised
from unpooled.models.lasso.moments_rows import compile_standard
from unpooled.models.lasso.outlook import _noisy, _picked, _products
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Plan, Study

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.models.lasso.moments_fit import OwnMoments, Solve

    Numbers = NDArray[np.float64]

#: (unit, rows, epsilon, parties, columns).
SHAPES = (
    ("record", 2000, 10.0, 1, 24),
    ("record", 2000, 10.0, 4, 24),
    ("record", 4000, 1.0, 1, 8),
    ("record", 5000, 3.0, 2, 10),
    ("record", 20_000, 0.5, 2, 8),
    ("record", 20_000, 1.0, 1, 40),
    ("record", 20_000, 1.0, 4, 40),
    ("record", 2000, math.inf, 1, 40),
    ("record", 20_000, math.inf, 4, 40),
    ("attribute", 2000, 3.0, 4, 40),
    ("attribute", 20_000, 0.3, 4, 100),
)
PARTS = (0.01, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 1.0)
#: What columns explain of the response, or the deviation of the log odds.
EXPLAINED, ODDS = (0.05, 0.3, 0.8), (0.5, 1.5)
_BALL = "ball"


def plan_of(unit: str, rows: int, epsilon: float, parties: int, columns: int) -> Plan:
    """Return the plan of a study of this shape."""
    cards = tuple(
        Card(f"p{k}", rows, tuple(Column(f"x{k}_{j}", -1.0, 1.0) for j in range(columns // parties)), ("y",))
        for k in range(parties)
    )
    return compile_standard(
        Study("lasso", cards, epsilon, 1e-5, unit=unit, parameters={"method": "moments"}, simulation_seed=1, derived=())
    )


def fitted(
    plan: Plan, x: Numbers, y: Numbers, solves: dict[object, Solve], rng: np.random.Generator
) -> dict[object, Numbers]:
    """Return (coefficients of all columns, the constant last) for every rule, over the same noisy moments of standardised rows."""
    design, rows = plan.design, len(y)
    gram, cross = x.T @ x / rows, x.T @ y / rows
    owns: list[OwnMoments] = []
    chosen = []
    for name, own in zip(design.parties, np.array_split(np.arange(x.shape[1]), len(design.parties)), strict=True):
        kept = _picked(plan, name, own, cross, rng) if design.picks(name) else own
        chosen.append(kept)
        owns.append(_noisy(plan, name, gram[np.ix_(kept, kept)], cross[kept], rng))
    seed, found = int(rng.integers(1 << 30)), {}
    for rule, solve in solves.items():
        noise, answer = np.random.default_rng(seed), None
        ones, chance = np.ones(sum(map(len, chosen))), None if rule == _BALL else 1 / math.sqrt(rows)
        part = 0.0 if rule == _BALL else float(rule)  # type: ignore[arg-type]
        steps = fitting(owns, ones, solve, design.stages, chance, part)
        while True:
            try:
                axes = steps.send(answer)  # type: ignore[arg-type]
            except StopIteration as ended:
                found[rule] = np.zeros(x.shape[1] + 1)
                found[rule][np.concatenate(chosen)], found[rule][-1] = ended.value
                break
            answer = _products(plan, axes, [x[:, kept] for kept in chosen], noise)
    return found


def rows_of(count: int, truth: Numbers, correlation: float, rng: np.random.Generator) -> Numbers:
    """Return this many rows of columns with one common factor."""
    own, common = rng.normal(size=(count, truth.size)), rng.normal(size=(count, 1))
    return math.sqrt(1 - correlation) * own + math.sqrt(correlation) * common


def truth_of(columns: int, relevant: int, correlation: float, rng: np.random.Generator) -> Numbers:
    """Return coefficients of a linear predictor of variance 1."""
    truth = np.zeros(columns)
    truth[rng.choice(columns, relevant, replace=False)] = rng.uniform(0.5, 1, relevant) * rng.choice([-1, 1], relevant)
    return truth / math.sqrt((1 - correlation) * float(truth @ truth) + correlation * float(truth.sum()) ** 2)


def numbers(plan: Plan, truth: Numbers, r2: float, correlation: float, rng: np.random.Generator) -> dict[object, float]:
    """Return the excess of every rule, of a response of variance 1."""
    truth = truth * math.sqrt(r2)
    x = rows_of(plan.design.rows, truth, correlation, rng)
    y = x @ truth + math.sqrt(1 - r2) * rng.normal(size=len(x))
    radius = float(np.abs(truth).sum())
    solves: dict[object, Solve] = {_BALL: lambda g, c, _, w: (in_ball(g, c, w, radius), 0.0)}
    solves |= dict.fromkeys(PARTS, lambda g, c, p, w: (penalised(g, c, p, w), 0.0))
    lefts = {rule: b[:-1] - truth for rule, b in fitted(plan, x, y, solves, rng).items()}
    return {rule: float((1 - correlation) * (e @ e) + correlation * e.sum() ** 2) / r2 for rule, e in lefts.items()}


def classes(plan: Plan, truth: Numbers, odds: float, correlation: float, rng: np.random.Generator) -> dict[object, float]:
    """Return the excess of every rule, of a class that a quarter or so of the people have."""
    truth = truth * odds
    x = rows_of(plan.design.rows, truth, correlation, rng)
    y = (rng.random(len(x)) < expit(x @ truth - 1)).astype(float)
    share, radius = float(y.mean()), float(np.abs(truth).sum())
    spread = math.sqrt(share * (1 - share))

    def ball(g: Numbers, c: Numbers, _: Numbers, w: Numbers) -> tuple[Numbers, float]:
        return logistic_in_ball(TwoClasses.of(g, c * 2 * spread, share), w, radius)

    def penalty(g: Numbers, c: Numbers, p: Numbers, w: Numbers) -> tuple[Numbers, float]:
        b, constant = logistic_with_penalty(TwoClasses.of(g, c * 2 * spread, share), p * spread)
        return b * w, constant

    found = fitted(plan, x, (y - share) / spread, {_BALL: ball} | dict.fromkeys(PARTS, penalty), rng)
    new = rows_of(20_000, truth, correlation, rng)
    rate = expit(new @ truth - 1)

    def loss(predictor: Numbers) -> float:
        return float(np.mean(np.logaddexp(0, predictor) - rate * predictor))

    least, base = loss(new @ truth - 1), loss(np.full(len(new), math.log(share / (1 - share))))
    return {rule: (loss(new @ b[:-1] + b[-1]) - least) / (base - least) for rule, b in found.items()}


def excesses(
    play: Callable[..., dict[object, float]], strengths: tuple[float, ...], draws: int
) -> dict[object, list[float]]:
    """Return the mean excess of every rule for each shape, correlation, number of relevant columns and strength of the response."""
    found: dict[object, list[float]] = {rule: [] for rule in (_BALL, *PARTS)}
    for k, shape in enumerate(SHAPES):
        plan, columns = plan_of(*shape), shape[-1]
        for correlation, relevant, strength in itertools.product((0.0, 0.5), (2, columns), strengths):
            rng = np.random.default_rng([k, int(10 * correlation), relevant, int(100 * strength)])
            runs = [
                play(plan, truth_of(columns, relevant, correlation, rng), strength, correlation, rng) for _ in range(draws)
            ]
            for rule, values in found.items():
                values.append(float(np.mean([one[rule] for one in runs])))
    return found


def main(full: bool) -> None:
    """A row for each part: the mean over shapes, and the worst of them, of numbers and of two classes."""
    draws = 12 if full else 3
    both = [excesses(numbers, EXPLAINED, draws), excesses(classes, ODDS, draws)]
    rows = [
        [rule if rule == _BALL else f"{rule:g}", *(f"{f(found[rule]):.3f}" for found in both for f in (np.mean, max))]
        for rule in (_BALL, *PARTS)
    ]
    write_table(
        "lasso/penalty",
        "Excess by the part of the universal level that the penalty is, over made-up rows",
        ["part", "numbers, mean", "numbers, worst shape", "two classes, mean", "two classes, worst shape"],
        rows,
        f"{len(SHAPES)} studies, correlations 0 and .5, two or all columns relevant, means of {draws} draws. The mean of the response has 1.",
    )


if __name__ == "__main__":
    run(main)
