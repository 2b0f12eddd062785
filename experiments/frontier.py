"""From which epsilon on the line of a treatment is there, and narrow: the frontier of every model that has a table, by whole fits.

Declared before any run: five columns (age, a related laboratory value, two others, a treatment of two levels) on ranges of about seven deviations, delta =
1e-6, replace. A line is there where four of five fits print it with a standard error of at most twice that without privacy, in the median; the least
epsilon of a grid that has it is found by halving. Estimators are asked for a table and nothing else, as a user would; a refusal before the fit is no line.
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from experiments.cells import kept
from experiments.common import run, write_table

import unpooled

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNS, DELTA, ROWS = 10, 1e-6, (400, 1000, 4000, 20_000)
GRID = (0.1, 0.14, 0.2, 0.28, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0)
KINDS = ("linear", "linear, three sites", "linear, focus", "logistic", "linear, columns at two parties")
BOUNDS = {"age": (20, 100), "lab": (0, 25), "bmi": (10, 50), "score": (0, 100), "arm": ["usual", "new"]}
LINE, SPREAD, EFFECT, ODDS = "arm: new - usual", 5.0, -2.0, -0.7
#: A line is there where so many fits of ten print it, with at most this many times the error without privacy.
PRINTED, NARROW = 8, 2.0


def people(n: int, seed: int) -> tuple[pd.DataFrame, NDArray[np.float64], NDArray[Any]]:
    """Return made-up people, a number and a class of each."""
    rng = np.random.default_rng([seed, n])
    arm, z = rng.random(n) < 0.5, rng.normal(size=(n, 4))
    z[:, 1] = 0.5 * z[:, 0] + math.sqrt(0.75) * z[:, 1]
    frame = pd.DataFrame(
        {
            "age": np.clip(60 + 12 * z[:, 0], 20, 100),
            "lab": np.clip(8 + 3 * z[:, 1], 0, 25),
            "bmi": np.clip(26 + 4 * z[:, 2], 10, 50),
            "score": np.clip(50 + 12 * z[:, 3], 0, 100),
            "arm": np.where(arm, "new", "usual"),
        }
    )
    line = 0.3 * z[:, 0] + 0.5 * z[:, 1] + 0.2 * z[:, 2]
    y = np.clip(130 + SPREAD * (line + rng.normal(size=n)) + EFFECT * arm, 80, 220)
    return frame, y, np.where(rng.logistic(size=n) < line + ODDS * (arm - 0.5), "yes", "no")


def without_privacy(kind: str, n: int) -> float:
    """Return the standard error of the line without privacy: of the sample that is as large, from the information."""
    frame, y, c = people(50_000, 0)
    X = np.column_stack([frame[["age", "lab", "bmi", "score"]], frame["arm"] == "new", np.ones(len(frame))]).astype(float)
    if kind == "logistic":
        b = np.zeros(6)
        for _ in range(12):  # Newton's steps to the maximum of the likelihood
            p = 1 / (1 + np.exp(-X @ b))
            information = (X.T * (p * (1 - p))) @ X
            b += np.linalg.solve(information, X.T @ ((c == "yes") - p))
        return float(np.sqrt(np.linalg.inv(information)[4, 4]) * math.sqrt(len(X) / n))
    left = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return float(np.sqrt(np.linalg.inv(X.T @ X)[4, 4] * left.var()) * math.sqrt(len(X) / n))


def error_of(kind: str, n: int, epsilon: float, seed: int) -> float:
    """Return the standard error that one fit prints of the line; nan where it prints none."""
    frame, y, c = people(n, seed)
    about: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "bounds": BOUNDS, "random_state": seed}
    given: dict[str, Any] = {}
    if kind == "logistic":
        model: Any = unpooled.PrivateGLM("logistic", classes=("no", "yes"), **about)
        y = c
    else:
        about |= {"y_bounds": (80, 220)}
        if kind == "linear, focus":
            about |= {"focus": ["arm"]}
        elif kind == "linear, columns at two parties":
            about |= {
                "parties": {"clinic": ["age", "bmi", "arm"], "laboratory": ["lab", "score"]},
                "response_at": "laboratory",
            }
            about |= {"method": "moments"}
            frame = frame.assign(y=y)
        model = unpooled.PrivateLinearRegression(**about)
        if kind == "linear, three sites":
            given["sites"] = np.array(["a", "b", "c"])[np.arange(n) % 3]
    try:
        fit = model.fit(frame, "y") if "y" in frame else model.fit(frame, y, **given)
        lines = {line.term: line.std_error for line in fit.summary().terms}
    except unpooled.UnpooledError:
        return math.nan
    found = lines.get(LINE)
    return math.nan if found is None else float(found)


def cell(kind: str, n: int, epsilon: float) -> list[float]:
    """Return the standard errors of the runs of a cell."""
    return [error_of(kind, n, epsilon, seed) for seed in range(RUNS)]


def there(kind: str, n: int, at: int) -> bool:
    """Return True where the line is there at this epsilon of the grid."""
    errors = np.array(kept([kind, n, GRID[at]], partial(cell, kind, n, GRID[at])))
    printed = errors[np.isfinite(errors)]
    return printed.size >= PRINTED and float(np.median(printed)) <= NARROW * kept(
        [kind, n], partial(without_privacy, kind, n)
    )


def frontier(kind: str, n: int) -> str:
    """Return the least epsilon of the grid at which the line is there, by halving."""
    low, high = -1, len(GRID)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if there(kind, n, middle) else (middle, high)
    return f"{GRID[high]:g}" if high < len(GRID) else f"above {GRID[-1]:g}"


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    rows = [[kind, *(frontier(kind, n) for n in ROWS)] for kind in KINDS]
    write_table(
        "frontier",
        "From which epsilon on the line of a treatment is printed and narrow",
        ("model", *(f"{n:,} rows" for n in ROWS)),
        rows,
        f"The least epsilon of {', '.join(f'{e:g}' for e in GRID)} at which {PRINTED} of {RUNS} fits print the line, with a median standard error of at most "
        f"{NARROW:g} times that without privacy. Five columns.",
    )


if __name__ == "__main__":
    run(main)
