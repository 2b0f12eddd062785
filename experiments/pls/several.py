"""PLS of several responses by rounds against its one release, a PLS of each response with its part of the budget, and no privacy, on declared shapes.

Scores are normal with deviations that fall from 1 to ``decay`` (1: whitened), or turned at random after that, so that coordinates are correlated. All
responses depend on the same few directions of the standardised scores; R^2 is that of each. R is the length that 95 % of rows stay below, each response has
a range of four deviations on each side. Test error is the root of the mean over responses of the mean squared error over 2,000 new rows in variances of the
response: medians of the seeds; 1 is the error of the mean. A PLS of each response has the part mu^2/q of the budget.

The rule (from which k on there are rounds, and from which on one release) was fixed on ``DEVELOPMENT`` and ``LARGE`` alone (``--development`` prints them);
the table is of ``REPORTED``, which was written before. Its first run was stopped after a few cells, because a PLS of each got other rows than PLS2; the rule
was not touched after that. Each cell has one combination of q, directions and R^2, so that all occur with all others. Below k = 3 the rule is that of one
response, with a direction for each; it came after the first run over these cells and was not made of them.
"""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from typing import NamedTuple

import numpy as np
from experiments.common import run, write_table
from scipy.optimize import brentq

from unpooled import Bounds, PrivatePLSRegression
from unpooled.privacy.accounting import budget_mu

DELTA, NEW = 1e-5, 2000
FALLING, TURNED = "falling", "turned"
SHAPES = ("whitened", FALLING, TURNED)
#: Combinations of responses, directions and R^2; cells take them in turn.
COMBINATIONS = tuple(itertools.product((2, 3, 5), (1, 2, 3), (0.2, 0.5, 0.8)))


class Cell(NamedTuple):
    """A declared shape of a study."""

    rows: int
    scores: int
    shape: str
    epsilon: float
    responses: int
    directions: int
    r2: float

    def __str__(self) -> str:
        return ", ".join(f"{value:g}" if isinstance(value, int | float) else value for value in self)


def _cells(rows: tuple[int, ...], scores: tuple[int, ...], epsilons: tuple[float, ...], stride: int) -> list[Cell]:
    grid = itertools.product(scores, SHAPES, rows, epsilons)
    return [
        Cell(n, d, s, e, *COMBINATIONS[(k * stride + k // 3) % len(COMBINATIONS)]) for k, (d, s, n, e) in enumerate(grid)
    ]


DEVELOPMENT = _cells((300, 1500, 8000), (6, 14, 25), (0.5, 2.0, 7.0), 5)
#: Large k and R^2, where the noise of one release is small; of these, too, the rule was made.
LARGE = [Cell(n, d, s, e, 2, 2, 0.8) for d, s, n, e in itertools.product((6, 14), SHAPES, (8000, 16_000), (3.0, 9.0))]
REPORTED = _cells((200, 1000, 5000, 20_000), (5, 12, 30), (0.3, 1.0, 3.0, 10.0), 7)
#: Seeds of the table (reduced: the first few); the development has those below.
SEEDS, FEW, OWN = range(100, 105), 2, range(3)
HEAD = (
    "rows, scores, shape, epsilon, responses, directions, R^2",
    "k of each",
    "method",
    "PLS2",
    "one release",
    "PLS of each",
    "no privacy",
)


def data(cell: Cell, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return scores, responses and the bound on rows."""
    n, d, shape, _, q, h, r2 = cell
    rng = np.random.default_rng([seed, d, n, q, h])
    profile = np.geomspace(1.0, 1.0 if shape == "whitened" else 0.05, d)
    x = rng.normal(size=(n + NEW, d))
    signal = x @ rng.normal(size=(d, h)) @ rng.normal(size=(h, q))
    y = math.sqrt(r2) * signal / signal.std(axis=0) + math.sqrt(1 - r2) * rng.normal(size=(n + NEW, q))
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0] if shape == TURNED else np.eye(d)
    bound = math.sqrt(float(np.square(profile).sum())) * (1 + 1.65 / math.sqrt(2 * d))
    return x * profile @ turn, np.clip(y, -4, 4), bound


def part_of(epsilon: float, parts: int) -> float:
    """Return the epsilon of a part of the budget: mu^2 over the parts."""
    wanted = budget_mu(epsilon, DELTA) / math.sqrt(parts)
    return float(brentq(lambda e: budget_mu(e, DELTA) - wanted, 1e-4, epsilon))


def error(predicted: np.ndarray, y: np.ndarray) -> float:
    """Return the root of the mean squared error in variances of the responses."""
    return float(np.sqrt(np.mean(np.mean((predicted - y) ** 2, axis=0) / y.var(axis=0))))


def fitted(cell: Cell, seed: int, method: str, epsilon: float, responses: slice) -> tuple[PrivatePLSRegression, np.ndarray]:
    """Return a fit of some responses by this method, and its predictions of the new rows."""
    x, y, bound = data(cell, seed)
    y = y[:, responses]
    model = PrivatePLSRegression(
        basis="none",
        reference=np.zeros(cell.scores),
        epsilon=epsilon,
        delta=DELTA,
        bounds=Bounds(norm=bound),
        y_bounds=[(-4, 4)] * y.shape[1] if y.shape[1] > 1 else (-4, 4),
        method=method,
        random_state=seed + 1000 * (responses.start or 0),
    ).fit(x[: cell.rows], y[: cell.rows])
    return model, model.predict(x[cell.rows :]).reshape(NEW, -1)


def k_of(cell: Cell) -> float:
    """Return rows times mu per coefficient, over the root of the number of responses."""
    return cell.rows * budget_mu(cell.epsilon, DELTA) / (cell.scores + 1) / math.sqrt(cell.responses)


def once(cell: Cell, seed: int) -> tuple[list[float], str]:
    """Errors of PLS2, its one release, PLS of each and least squares; the method of the first."""
    x, y, _ = data(cell, seed)
    x, y, new, told = x[: cell.rows], y[: cell.rows], x[cell.rows :], y[cell.rows :]
    model, two = fitted(cell, seed, "auto", cell.epsilon, slice(None))
    one = two if model.method_ == "moments" else fitted(cell, seed, "moments", cell.epsilon, slice(None))[1]
    part = part_of(cell.epsilon, cell.responses)
    each = np.column_stack([fitted(cell, seed, "auto", part, slice(k, k + 1))[1] for k in range(cell.responses)])
    free = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y, rcond=None)[0]
    return [error(p, told) for p in (two, one, each, new @ free[:-1] + free[-1])], model.method_


def developed() -> None:
    """Print errors of gradients and of one release on the cells of development, by k."""
    for cell in sorted([*DEVELOPMENT, *LARGE], key=k_of):
        errors = np.array(
            [
                [
                    error(fitted(cell, s, m, cell.epsilon, slice(None))[1], data(cell, s)[1][cell.rows :])
                    for m in ("gradient", "moments")
                ]
                for s in OWN
            ]
        )
        numbers = (k_of(cell), *np.median(errors, axis=0), float(np.median(errors[:, 0] / errors[:, 1])))
        print(f"{cell} | " + " | ".join(f"{v:.3f}" for v in numbers), flush=True)


def main(full: bool) -> None:
    """All cells."""
    warnings.simplefilter("ignore")
    rows = []
    for cell in REPORTED:
        runs = [once(cell, seed) for seed in (SEEDS if full else SEEDS[:FEW])]
        numbers = np.median(np.array([errors for errors, _ in runs]), axis=0)
        rows.append([str(cell), f"{k_of(cell):.3g}", runs[0][1], *(f"{v:.3f}" for v in numbers)])
        print(" | ".join(rows[-1]), flush=True)
    write_table("pls/several", "Partial least squares of several responses by rounds", HEAD, rows)


if __name__ == "__main__":
    if "--development" in sys.argv:
        warnings.simplefilter("ignore")
        developed()
    else:
        run(main)
