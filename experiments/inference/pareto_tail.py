"""Coverage of a mean whose long tails were clipped, with what ``kernels/pareto_tail.py`` adds (``models/bayes/THEORY.md``, section 9).

Residuals of mean 0 and deviation 1 are clipped; their noisy counts beyond one deviation, on both sides, tell of the mean that the clip took away. The
residuals' deviation is known in practice only as a clipped root mean square: it is also taken for a tenth too small and too large.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from experiments.common import run, write_table
from scipy import stats

from unpooled.kernels.pareto_tail import CUTS, missing_mean

ROWS, CLIPS, BUDGETS, UNITS = 20_000, (3.0, 6.0), (0.05, 0.15, 0.5), (1.0, 0.9, 1.1)
LAWS = {
    "exponential": stats.expon(),
    "log-normal 1": stats.lognorm(1.0),
    "gamma .3": stats.gamma(0.3),
    "normal": stats.norm(),
    "Student 3": stats.t(3),
}


def error(law: str, clip: float, mu: float, unit: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """Return how many standard errors the mean is off, the standard error in those of sampling, and the first number without the tails."""
    known = LAWS[law]
    r = (known.rvs(ROWS, random_state=rng) - known.mean()) / known.std() / unit
    sampling = 1 / (ROWS * unit**2)
    found, spread = float(np.clip(r, -clip, clip).mean()), sampling
    alone, noise = found / math.sqrt(sampling), math.sqrt(2) / mu
    for side in (1, -1):
        counts = np.histogram(side * r, [*CUTS, math.inf])[0] + noise * rng.normal(size=len(CUTS))
        mean, deviation = missing_mean(counts, CUTS, ROWS, noise**2, clip, math.inf)
        found, spread = found + side * mean, spread + deviation**2
    return found / math.sqrt(spread), math.sqrt(spread / sampling), alone


def main(full: bool) -> None:
    """100 samples a cell; 1,000 in full."""
    rows = []
    for law, clip, mu in itertools.product(LAWS, CLIPS, BUDGETS):
        rng = np.random.default_rng(0)
        found = [np.array([error(law, clip, mu, unit, rng) for _ in range(1000 if full else 100)]) for unit in UNITS]
        covered = [f"{(np.abs(each[:, 0]) < 1.96).mean():.3f}" for each in found]
        more = [f"{found[0][:, 1].mean():.2f}", f"{(np.abs(found[0][:, 2]) < 1.96).mean():.3f}"]
        rows.append([f"{law}, {clip:g}, {mu:g}", *covered, *more])
        print(rows[-1], flush=True)
    write_table(
        "inference/pareto_tail",
        f"Coverage of 95 % intervals for a mean whose tails are clipped ({ROWS} rows)",
        ["law, clip, mu of the counts", "covered", "unit too small", "unit too large", "half width", "clipped alone"],
        rows,
        "Clips are in deviations; units a tenth off; the half width is in that of sampling alone; the last column leaves the tails away.",
    )


if __name__ == "__main__":
    run(main)
