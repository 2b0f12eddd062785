"""Earlier models as priors: error of predictions with them, without them, and of the earlier model alone.

The 60 cells were listed before any of them was run: three kinds of earlier model (a good one; a useless one, whose slopes have another
direction and whose mean is off by half a deviation; a misleading one, half of whose slopes have the wrong sign and whose mean is off by one
deviation), five epsilons and four numbers of rows, 20 seeds each. Rows: seven columns with one common factor (correlation .5), one in two
of them skewed, half a declared range of 4.5 deviations, R^2 = .75. Constants were settled on other shapes (six independent normal columns,
half a range of 4 deviations, R^2 = .8; ``DEVELOP=1`` runs these). Two lists of cells
were run before this one (ten columns, correlation .4, half a range of 5 deviations, R^2 = .7; eight columns, .3, 6, .6); they settled which
method serves which budget, and nobody had run these when they were listed.
"""

from __future__ import annotations

import itertools
import json
import os
import warnings
from dataclasses import dataclass

import numpy as np
from experiments.common import RESULTS, run, write_table

from unpooled import PrivateLinearRegression

KINDS, EPSILONS, ROWS = ("good", "useless", "misleading"), (0.1, 0.3, 1.0, 3.0, 10.0), (200, 1000, 5000, 20000)
SEEDS, DELTA, NEW = 20, 1e-6, 4000
#: What is allowed, in parts of the variance of y.
ALLOWED = 0.02


@dataclass(frozen=True)
class Shape:
    """The law of made-up rows."""

    columns: int
    correlation: float
    r2: float
    half: float
    skewed: bool


REPORTED, DEVELOPED = Shape(7, 0.5, 0.75, 4.5, skewed=True), Shape(6, 0.0, 0.8, 4.0, skewed=False)


def rows_of(shape: Shape, count: int, slopes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of variance 1 and responses of variance 1 and mean 3."""
    common = rng.normal(size=(count, 1))
    X = np.sqrt(shape.correlation) * common + np.sqrt(1 - shape.correlation) * rng.normal(size=(count, shape.columns))
    if shape.skewed:
        X[:, ::2] = np.exp(0.5 * X[:, ::2] - 0.125)
        X[:, ::2] = (X[:, ::2] - 1) / np.sqrt(np.exp(0.25) - 1)
    return X, X @ slopes + np.sqrt(1 - shape.r2) * rng.normal(size=count) + 3


def slopes_of(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return slopes that explain the shape's part of the variance."""
    found = rng.normal(size=shape.columns)
    X, _ = rows_of(shape, 20_000, np.zeros(shape.columns), np.random.default_rng(0))
    return found * np.sqrt(shape.r2) / (X @ found).std()


def earlier(kind: str, slopes: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Return an earlier model of this kind."""
    size = np.linalg.norm(slopes)
    if kind == "good":
        own, mean = slopes + 0.15 * size * rng.normal(size=slopes.size) / np.sqrt(slopes.size), 3.05
    elif kind == "useless":
        own = rng.normal(size=slopes.size)
        own -= slopes * (own @ slopes) / size**2
        own, mean = own * size / np.linalg.norm(own), 3.5
    else:
        own, mean = slopes * np.where(np.arange(slopes.size) % 2, 1.0, -1.0), 4.0
    return {f"x{j}": float(value) for j, value in enumerate(own)} | {"(intercept)": mean}


def cell(shape: Shape, kind: str, epsilon: float, rows: int, seeds: int) -> dict[str, list[float]]:
    """Return the errors of every seed over the variance of y: with the earlier model, without it, and of it alone."""
    found: dict[str, list[float]] = {"with": [], "without": [], "alone": [], "weight": []}
    for seed in range(seeds):
        rng = np.random.default_rng([seed, rows])
        slopes = slopes_of(shape, rng)
        prior = earlier(kind, slopes, rng)
        X, y = rows_of(shape, rows, slopes, rng)
        new, then = rows_of(shape, NEW, slopes, rng)
        asked = {"bounds": (-shape.half, shape.half), "y_bounds": (3 - shape.half, 3 + shape.half)}
        for name, own in (("with", prior), ("without", None)):
            model = PrivateLinearRegression(epsilon=epsilon, delta=DELTA, random_state=seed, prior=own, **asked).fit(X, y)
            found[name].append(float(np.mean((model.predict(new) - then) ** 2) / then.var()))
            if own is not None:
                found["weight"].append(model.drawn_.weights[0].weight)
        alone = new @ np.array([prior[f"x{j}"] for j in range(shape.columns)]) + prior["(intercept)"]
        found["alone"].append(float(np.mean((alone - then) ** 2) / then.var()))
    return found


def coverage(kind: str, epsilon: float, rows: int, seeds: int) -> tuple[float, float, float]:
    """Return (share of slopes inside their 95 % intervals, mean length of these, mean standard error without the earlier model times 3.92)."""
    inside, lengths, plain, shape = [], [], [], REPORTED
    for seed in range(seeds):
        rng = np.random.default_rng([seed, rows, 1])
        slopes = slopes_of(shape, rng)
        X, y = rows_of(shape, rows, slopes, rng)
        asked = {"bounds": (-shape.half, shape.half), "y_bounds": (3 - shape.half, 3 + shape.half), "method": "refinement"}
        prior = earlier(kind, slopes, rng)
        model = PrivateLinearRegression(epsilon=epsilon, delta=DELTA, random_state=seed, prior=prior, **asked).fit(X, y)
        low, high = model.credible_interval().T
        known = ~np.isnan(low)  # slopes that the release determines
        inside += ((low <= slopes) & (slopes <= high))[known].tolist()
        lengths += (high - low)[known].tolist()
        without = PrivateLinearRegression.from_moments(model.moments_)
        plain += (3.92 * np.sqrt(without.covariance_.diagonal()))[known].tolist()
    return float(np.mean(inside)), float(np.mean(lengths)), float(np.mean(plain))


def covered() -> None:
    """Write the table of intervals."""
    lines = []
    for kind, (epsilon, rows) in itertools.product(KINDS, ((10.0, 300), (3.0, 1000), (1.0, 5000), (0.3, 20000))):
        share, length, plain = coverage(kind, epsilon, rows, 60)
        lines.append((kind, f"{epsilon:g}", str(rows), f"{share:.3f}", f"{length:.3f}", f"{plain:.3f}"))
    header = ("earlier model", "epsilon", "rows", "inside", "length", "length without it")
    notes = "Slopes inside their 95 % credible intervals over 60 seeds, seven slopes each (one standard error: about .012)."
    write_table("priors_coverage", "Credible intervals with an earlier model", header, lines, notes)


def chosen() -> None:
    """Write the table of several earlier models: of which the release has to find the good one."""
    lines = []
    for epsilon, rows in itertools.product(EPSILONS, ROWS[:3]):
        found: dict[str, list[float]] = {"all three": [], **{kind: [] for kind in KINDS}}
        for seed in range(SEEDS):
            rng = np.random.default_rng([seed, rows, 2])
            slopes = slopes_of(REPORTED, rng)
            several = {kind: earlier(kind, slopes, rng) for kind in KINDS}
            X, y = rows_of(REPORTED, rows, slopes, rng)
            new, then = rows_of(REPORTED, NEW, slopes, rng)
            half = REPORTED.half
            asked = {"bounds": (-half, half), "y_bounds": (3 - half, 3 + half), "epsilon": epsilon, "delta": DELTA}
            for name, errors in found.items():
                prior = several if name == "all three" else several[name]
                model = PrivateLinearRegression(prior=prior, random_state=seed, **asked).fit(X, y)
                errors.append(float(np.mean((model.predict(new) - then) ** 2) / then.var()))
        gap = np.array(found["all three"]) - np.array(found["good"])
        means = (f"{np.mean(found[name]):.3f}" for name in found)
        lines.append((f"{epsilon:g}", str(rows), *means, f"{gap.mean():+.3f} +-{gap.std() / np.sqrt(gap.size - 1):.3f}"))
        print(*lines[-1], flush=True)
    header = ("epsilon", "rows", "all three", *KINDS, "all three - good")
    notes = f"Error of predictions over the variance of y, means over {SEEDS} seeds: a good, a useless and a misleading model together, and each alone."
    write_table("priors_chosen", "Several earlier models", header, lines, notes)


def main(full: bool) -> None:
    """Write the table; cells that are in the file are not run again."""
    del full
    warnings.simplefilter("ignore")
    developing = bool(os.environ.get("DEVELOP"))
    shape, seeds = (DEVELOPED, 10) if developing else (REPORTED, SEEDS)
    path = RESULTS / "priors.json"
    known = json.loads(path.read_text()) if path.is_file() and not developing else {}
    lines, held = [], [0, 0]
    for kind, epsilon, rows in itertools.product(KINDS, EPSILONS, ROWS):
        name = f"{kind} {epsilon:g} {rows}"
        if name not in known:
            known[name] = cell(shape, kind, epsilon, rows, seeds)
            if not developing:
                path.write_text(json.dumps(known))
        own = {arm: np.array(values) for arm, values in known[name].items()}
        gaps = [own["with"] - own["alone"], own["with"] - own["without"]]
        for k, gap in enumerate(gaps):
            held[k] += bool(gap.mean() <= ALLOWED)
        words = [f"{gap.mean():+.3f} +-{gap.std() / np.sqrt(gap.size - 1):.3f}" for gap in gaps]
        means = [f"{own[arm].mean():.3f}" for arm in ("with", "without", "alone", "weight")]
        lines.append((kind, f"{epsilon:g}", str(rows), *means, *words))
        print(*lines[-1], flush=True)
    count = len(lines)
    print(f"within {ALLOWED:g} of the earlier model alone: {held[0]} of {count}; of no prior: {held[1]} of {count}")
    if not developing:
        header = ("earlier model", "epsilon", "rows", "with", "without", "alone", "weight", "with - alone", "with - without")
        notes = (
            f"Error of predictions over the variance of y, means over {seeds} seeds. At most {ALLOWED:g} above the earlier model alone in {held[0]} "
            f"of {count} cells, and above no prior in {held[1]}."
        )
        write_table("priors", "Earlier models as priors", header, lines, notes)
        covered()
        chosen()


if __name__ == "__main__":
    run(main)
