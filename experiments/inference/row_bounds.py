"""How a bound on rows and a clip of residuals divide what the noise affords, over declared shapes: the bias of slopes in standard errors.

The noise of the last round over the sampling error is nu = 2 c rho sqrt(D) / (sqrt(n) mu sqrt(share)) for residuals clipped to c deviations and rows
of at most rho typical lengths. Each rule spends the product c rho at which nu is a half. The bias is that of a population of 400,000 rows without
noise, the least squares fit of the same rows its target. A column that is exponential and has a square is left out: no rule reaches its target.
``python -m experiments.inference.row_bounds`` takes about a minute.
"""

from __future__ import annotations

import math

import numpy as np
from experiments.common import run, write_table

ROWS, COLUMNS, SHARE = 400_000, 5, 0.37
LENGTHS = (1.0, 1.26, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 8.0, 12.0)
CLIPS = (2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0, 10.0, 14.0, 20.0)
SIZES, STRENGTHS = (1000, 5000, 20_000, 100_000, 1_000_000), (0.14, 0.27, 0.7, 1.6, 5.0)
RULES = ("clip first", "both alike", "length first", "all for the clip")
Shape = tuple[str, bool, str, bool]


def columns(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Five standardised columns."""
    z = rng.normal(size=(ROWS, COLUMNS))
    if kind == "one factor":
        z = math.sqrt(0.5) * z + math.sqrt(0.5) * rng.normal(size=(ROWS, 1))
    elif kind == "t5":
        z = rng.standard_t(5, size=(ROWS, COLUMNS))
    elif kind == "exponential":
        z = rng.exponential(size=(ROWS, COLUMNS))
    return (z - z.mean(axis=0)) / z.std(axis=0)


def residuals(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Standardised residuals."""
    drawn = {
        "normal": lambda: rng.normal(size=ROWS),
        "t3": lambda: rng.standard_t(3, size=ROWS),
        "exponential": lambda: rng.exponential(size=ROWS),
        "log-normal": lambda: np.exp(0.6 * rng.normal(size=ROWS)),
    }[kind]()
    return (drawn - drawn.mean()) / drawn.std()


def biases(z: np.ndarray, y: np.ndarray) -> dict[tuple[float, float], float]:
    """The largest bias of a slope times sqrt(n) over its standard error, by (length, clip)."""
    rows = np.column_stack([z, np.full(ROWS, 0.7)])
    left = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    inverse = np.linalg.inv(rows.T @ rows / ROWS)
    errors = np.sqrt(np.diag(inverse @ ((rows * left[:, None] ** 2).T @ rows / ROWS) @ inverse))
    length = np.linalg.norm(rows, axis=1) / math.sqrt(COLUMNS + 0.49)
    found = {}
    for rho in LENGTHS:
        weight = np.minimum(1.0, rho / length)
        short = rows * weight[:, None]
        gram = short.T @ short / ROWS
        for clip in CLIPS:
            bound = clip * left.std()
            moved = np.linalg.solve(gram, short.T @ np.clip(weight * left, -bound, bound) / ROWS)
            found[rho, clip] = float((np.abs(moved) / errors)[:-1].max())
    return found


def divided(rule: str, n: int, mu: float) -> tuple[float, float, float]:
    """(clip, length, nu) of a rule."""
    root = math.sqrt(COLUMNS + 1)
    both = 0.5 * math.sqrt(n) * mu * math.sqrt(SHARE) / (2 * root)
    noise = 2 * root / (n * mu * math.sqrt(SHARE))
    first = max(3.0, 0.5 * noise ** (-1 / 3))
    alike = math.sqrt(max(both / 3, 1.0))
    clip, length = {
        "clip first": (first, max(1.0, both / first)),
        "both alike": (3 * alike, alike),
        "length first": (3.0, max(1.0, both / 3)),
        "all for the clip": (max(3.0, both), 1.0),
    }[rule]
    return clip, length, clip * length * noise * math.sqrt(n)


def below(value: float, grid: tuple[float, ...]) -> float:
    """The largest value of a grid that is not above this one."""
    return max([own for own in grid if own <= value * 1.0001], default=grid[0])


def main(full: bool) -> None:
    """The worst shape of every rule, size and strength."""
    del full
    rng = np.random.default_rng(0)
    every: dict[Shape, dict[tuple[float, float], float]] = {}
    for kind in ("normal", "one factor", "t5", "exponential"):
        z = columns(kind, rng)
        for square in (False, True):
            if square and kind == "exponential":
                continue
            mean = z @ np.full(COLUMNS, 0.4) + 0.2 * square * (z[:, 0] ** 2 - 1)
            for law in ("normal", "t3", "exponential", "log-normal"):
                for grows in (False, True):
                    own = residuals(law, rng) * np.exp(0.3 * grows * np.clip(z[:, 0], -3, 3))
                    every[kind, square, law, grows] = biases(z, mean + own / own.std())
    rows = []
    for n in SIZES:
        for mu in STRENGTHS:
            cells = []
            for rule in RULES:
                clip, length, nu = divided(rule, n, mu)
                at = below(length, LENGTHS), below(clip, CLIPS)
                worst = max(found[at] for found in every.values()) * math.sqrt(n) / math.sqrt(1 + nu**2)
                cells.append(f"{worst:.2f} (nu {nu:.2f})")
            rows.append([f"{n}, {mu:g}", *cells])
    words = f"{len(every)} shapes of {ROWS} rows; bias of the worst slope of the worst shape over its standard error, sampling and noise together."
    write_table(
        "inference/row_bounds", "Clip and length: how they divide what noise affords", ["rows, mu", *RULES], rows, words
    )


if __name__ == "__main__":
    run(main)
