"""One stage of axes or two: excess of the fit over made-up Gram matrices (``models/lasso/THEORY.md``, 1c.1).

Forty columns at several parties, their own moments known exactly, products of two axes told with noise; two stages have each half of the budget, and
twice the noise (as where the noise of what is crossed prevails). Excess is what is lost of what the columns explain beside least squares:
predicting the mean has 1. "First axes" is the fit that ends after them, the rule before.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from experiments.common import run, write_table

from unpooled.models.lasso.moments_fit import OwnMoments, combined, fitting, shared_axes
from unpooled.models.lasso.moments_rows import AXIS_CAP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

COLUMNS, PARTIES, EXPLAINED = 40, (2, 4, 8), 0.6
NOISES = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 1.0)
KINDS = ("independent", "one factor, .5", "one factor, .9", "three factors", "eight factors", "chain", "shuffled chain")
#: What clipping leaves of products of two axes.
_KEPT = float(np.mean(np.square(np.clip(np.random.default_rng(0).normal(size=10**6), -AXIS_CAP, AXIS_CAP))))


def gram_of(kind: str, rng: np.random.Generator) -> Numbers:
    """Correlations of the columns."""
    if kind == "independent":
        return np.eye(COLUMNS)
    if kind.startswith("one factor"):
        level = float(kind.rsplit(maxsplit=1)[-1])
        return (1 - level) * np.eye(COLUMNS) + level
    if kind.endswith("chain"):
        place = rng.permutation(COLUMNS) if kind.startswith("shuffled") else np.arange(COLUMNS)
        return np.asarray(0.9 ** np.abs(place[:, None] - place), dtype=np.float64)
    count = {"three": 3, "eight": 8}[kind.split(maxsplit=1)[0]]
    loadings = rng.normal(size=(COLUMNS, count))
    covariance = loadings @ loadings.T / count + 0.5 * np.eye(COLUMNS)
    return np.asarray(covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal())), dtype=np.float64)


def solve(gram: Numbers, cross: Numbers, _: Numbers, scale: Numbers) -> tuple[Numbers, float]:
    """In a ball that does not matter."""
    return np.linalg.solve(gram, cross) * scale, 0.0


def excess(gram: Numbers, b: Numbers, parties: int, noise: float, stages: int, rng: np.random.Generator) -> float:
    """Of a fit with so many stages; 0: of one that ends after the first axes."""
    cross, parts = gram @ b, np.array_split(np.arange(COLUMNS), parties)
    owns = [OwnMoments(gram[np.ix_(part, part)], cross[part], 1e-9, 1e-9) for part in parts]

    def told(directions: list[Numbers], deviation: float) -> tuple[Numbers, Numbers]:
        along = np.zeros((COLUMNS, parties))
        for k, (part, direction) in enumerate(zip(parts, directions, strict=True)):
            along[part, k] = direction
        # Each pair is told twice: the mean of both has this noise.
        wrong = deviation * np.sqrt(2) * rng.normal(size=(parties, parties))
        return (along.T @ gram @ along + wrong) * _KEPT, np.full((parties, parties), 2 * (deviation * _KEPT) ** 2)

    if not stages:
        axes = [own.repaired[1] for own in owns]
        known = np.array([own.repaired[1] @ own.slopes(COLUMNS) for own in owns])
        left = np.linalg.solve(*combined(owns, shared_axes(*told(axes, noise), known), COLUMNS)) - b
        return float(left @ gram @ left / EXPLAINED)
    steps = fitting(owns, np.ones(COLUMNS), solve, stages)
    answer = None
    while True:
        try:
            asked = steps.send(answer)  # type: ignore[arg-type]
        except StopIteration as ended:
            left = ended.value[0] - b
            return float(left @ gram @ left / EXPLAINED)
        answer = told([axis.direction for axis in asked], noise * stages)


def main(full: bool) -> None:
    """A row for each noise: the mean over shapes and parties, and the worst of them."""
    rows = []
    for noise in NOISES:
        found: dict[int, list[float]] = {0: [], 1: [], 2: []}
        for kind, parties in itertools.product(KINDS, PARTIES):
            rng = np.random.default_rng([KINDS.index(kind), parties, int(1000 * noise)])
            losses: dict[int, list[float]] = {stages: [] for stages in found}
            for draw in range(200 if full else 40):
                gram, b = gram_of(kind, rng), np.zeros(COLUMNS)
                chosen = rng.choice(COLUMNS, 6 if draw % 2 else COLUMNS, replace=False)
                b[chosen] = rng.normal(size=chosen.size)
                b *= np.sqrt(EXPLAINED / (b @ gram @ b))
                for stages, values in losses.items():
                    values.append(excess(gram, b, parties, noise, stages, rng))
            for stages, values in losses.items():
                found[stages].append(float(np.mean(values)))
        rows.append([f"{noise:g}", *(f"{f(values):.2f}" for values in found.values() for f in (np.mean, max))])
        print(rows[-1], flush=True)
    write_table(
        "lasso/stages",
        "Excess by the number of stages, over made-up Gram matrices",
        [
            "noise",
            *(f"{name}, {what}" for name in ("first axes", "one stage", "two stages") for what in ("mean", "worst shape")),
        ],
        rows,
        "Noise: of a product of two axes, in one stage.",
    )


if __name__ == "__main__":
    run(main)
