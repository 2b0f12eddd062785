"""PRIDE's Gram rule against the calibrated form: the time of a local solution, and a whole fit of 100,000 x 200 columns at each of four parties.

    python benchmarks/pride_gram.py

Both forms get the same received columns. A local solution is what one party computes once it has them, calibration and penalty included.
"""

from __future__ import annotations

import resource
import statistics
import time

import numpy as np
from board import note, rounds

from unpooled import PrideRegressor
from unpooled.families import FAMILIES
from unpooled.models.pride.gram import Heard
from unpooled.models.pride.local import DesignProblem, GramProblem, RegressionCalibration, choose_alpha

PARTIES, FRACTION, ROUNDS = 4, 0.05, rounds(3)
SHAPES = ((500, 600), (1000, 1000), (1000, 4000), (2000, 500), (20_000, 200))
LARGE = (100_000, 200)


def columns(n: int, p: int, seed: int = 0) -> np.ndarray:
    """Columns in [-1, 1] with five common factors."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)) @ rng.standard_normal((5, p)) + rng.standard_normal((n, p))
    X /= 10
    return np.clip(X, -1, 1, out=X)


def seconds(work, rounds: int = ROUNDS) -> float:
    """The median of a few rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def local(n: int, p: int) -> None:
    """One party's solution in both forms."""
    rng = np.random.default_rng(1)
    own, q = columns(n, p), (PARTIES - 1) * max(1, round(FRACTION * p))
    y = own @ rng.standard_normal(p) + rng.standard_normal(n)
    received = own @ rng.standard_normal((p, q)) / np.sqrt(p) + 7.0 * rng.standard_normal((n, q))
    noise = np.full(q, 7.0)

    def calibration() -> np.ndarray:
        return RegressionCalibration.fit(own, received, noise).apply(own, received, noise)

    def solved(problem: DesignProblem | GramProblem) -> None:
        path = problem.path(FAMILIES["squared"], y, fit_intercept=True)
        path.solve(choose_alpha(path, "marginal-likelihood", []))

    def gram() -> None:
        """With what the party keeps for new rows, as in a study."""
        sketched = np.ones(q, dtype=np.bool_)
        problem = GramProblem(own, Heard((PARTIES - 1) * p, received, noise, calibration(), sketched))
        solved(problem)
        solved(problem.at_home())

    before, after = seconds(lambda: solved(DesignProblem(own, calibration()))), seconds(gram)
    note(f"PRIDE's Gram form, {n} x {p}", "the calibrated form", after / before, "4")
    print(
        f"  {n:6} x {p:4}, {q:3} received: calibrated {before:7.2f} s, gram {after:7.2f} s, {after / before:.2f} times (aim: at most 4)"
    )


def main() -> None:
    """The ratio of the forms at several shapes; the large fit with its memory."""
    print("one party's solution")
    for n, p in SHAPES:
        local(n, p)
    n, p = LARGE
    X = columns(n, PARTIES * p)
    y = X @ np.random.default_rng(2).standard_normal(PARTIES * p)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for form in ("gram", "calibrated"):
        took = seconds(
            lambda form=form: PrideRegressor(
                parties=PARTIES, bounds=(-1, 1), delta=1e-6, sketch_dim=FRACTION, noise_model=form
            ).fit(X, y),
            1,
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        aim = "  (aim: below 60 s on two cores)" if form == "gram" else ""
        print(
            f"a whole fit, {PARTIES} parties of {n} x {p}, {form}: {took:.1f} s, peak memory {peak:.2f} GB, {before:.2f} GB of it data{aim}"
        )


if __name__ == "__main__":
    main()
