"""Algorithm 2 line by line: what each line does as it stands, where the paper prints the same thing in two ways, and what its noise of picks covers.

Score space (``_scores.py``): K = 4, all columns searched, n = 20,000. The published form of the library is the first row. Each further row changes one line
of it to the letter of the paper, or to what problem (12) needs.
"""

from __future__ import annotations

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.lasso._scores import BOUND, COLUMNS, OWNED, PARTIES, RADIUS, Moments, lasso

ROWS, EPSILON, DELTA = 20_000, 1.0, 1e-5
#: Lines as they stand, and repairs that the published form does not have.
GRADIENT = "(13) and line 10: a.q - a.y, without 1/n on y"
ONE_SIDED = "line 11: the largest v, not the largest in magnitude"
UPHILL = "(14) and line 3: two minus signs"
SHORT = "line 5 and (15): no eta in q"
LATE = "line 5: the step of t - 1 for the index of t"
WHOLE = "G over all columns, not the party's own"
BEST = "line 3: one vertex a round, which stays in the ball (not printed)"
ALL = (GRADIENT, ONE_SIDED, SHORT)
FORMS: dict[str, tuple[str, ...]] = {
    "the published form": (),
    **{line: (line,) for line in (GRADIENT, ONE_SIDED, UPHILL, SHORT, LATE, WHOLE)},
    "lines 5, 10 and 11 as they stand": ALL,
    BEST: (BEST,),
}


def step(t: int) -> float:
    """Theorem 1's step at p = 1."""
    return 2 / (t + 2)


def picked(own: np.ndarray, gradient: np.ndarray, scale: float, printed: tuple[str, ...], rng: np.random.Generator) -> tuple:
    """(noisy score, column, sign of its vertex) of one party, by subroutine A or by the line that is printed otherwise."""
    largest = float(np.abs(gradient if WHOLE in printed else gradient[own]).max())
    if ONE_SIDED in printed:
        noisy = gradient[own] + scale * largest * rng.laplace(size=own.size)
        best = int(np.argmax(noisy))
        return float(abs(noisy[best])), int(own[best]), -1.0 if noisy[best] > 0 else 1.0
    signed = np.concatenate([-gradient[own], gradient[own]])
    noisy = signed + scale * largest * rng.laplace(size=signed.size)
    best = int(np.argmax(noisy))
    # idx has the sign of the gradient, and line 3 a minus; (14) has another one.
    sign = 1.0 if best < own.size else -1.0
    return float(noisy[best]), int(own[best % own.size]), -sign if UPHILL in printed else sign


def algorithm_2(
    data: Moments, epsilon: float, rounds: int, rng: np.random.Generator, printed: tuple[str, ...] = ()
) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """The iterate after these rounds, and for every round (largest entry of the gradient, sum of absolute coefficients)."""
    scale = noise = 0.0
    if epsilon < np.inf:
        plan = lasso(epsilon, calibration="published", rounds=rounds).plan(data.n, COLUMNS)
        scale, noise = (release.mechanism.multiplier for release in plan.releases[:2])
    root = np.linalg.cholesky(data.gram + 1e-12 * np.eye(COLUMNS))
    x, q, blurs, seen = np.zeros(COLUMNS), np.zeros(COLUMNS), {}, []
    for t in range(rounds):
        blur = sum((q[j] * own for j, own in blurs.items()), np.zeros(COLUMNS))
        gradient = data.gram @ q + blur - data.linear * (data.n if GRADIENT in printed else 1)
        seen.append((float(np.abs(gradient).max()), float(np.abs(x).sum())))
        bids = sorted(picked(own, gradient, scale, printed, rng) for own in OWNED)
        moves = [(j, sign) for _, j, sign in (bids[-1:] if BEST in printed else bids)]
        # q = A x / n is kept as the x that it is of.
        late = step(t - 1) if LATE in printed else step(t)
        x, q = x * (1 - step(t)), q * (1 - late)
        for j, sign in moves:
            x[j] += step(t) * RADIUS * sign
            q[j] += late * (1.0 if SHORT in printed else RADIUS) * sign
            if j not in blurs:
                blurs[j] = noise / np.sqrt(data.n) * (root @ rng.normal(size=COLUMNS))
    return x, seen


def pick_costs(data: Moments, rounds: int, seed: int) -> list[list[float]]:
    """Of each round: G, the most that one record can add to n times an entry, and how many times the claimed epsilon of a pick its noise costs."""
    _, seen = algorithm_2(data, EPSILON, rounds, np.random.default_rng(seed))
    plan = lasso(EPSILON, calibration="published", rounds=rounds).plan(data.n, COLUMNS)
    scale = plan.releases[0].mechanism.multiplier
    claimed = EPSILON / (2 * PARTIES) / 2 / np.sqrt(2 * rounds * np.log(2 / DELTA))
    found = []
    for largest, length in seen:
        own = length + BOUND  # |a| <= 1, |a.x| <= |x|_1, |y| <= BOUND
        found.append([largest, own, 2 * (2 * own / data.n) / (scale * largest) / claimed])
    return found


def stated(values: list[float]) -> str:
    """Mean and its standard error."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def main(full: bool) -> None:
    """Excess risk with and without noise; G and what a pick costs."""
    seeds = range(20 if full else 10)
    sets = [Moments.large(ROWS, seed) for seed in seeds]
    optima = [data.optimum() for data in sets]
    rows = []
    for name, printed in FORMS.items():
        cells, longest = [], 0.0
        for epsilon in (np.inf, EPSILON):
            for rounds in (20, 200):

                def played(epsilon: float = epsilon, rounds: int = rounds, printed: tuple[str, ...] = printed) -> list:
                    found = [
                        algorithm_2(d, epsilon, rounds, np.random.default_rng([s, rounds]), printed)[0]
                        for s, d in zip(seeds, sets, strict=True)
                    ]
                    each = zip(sets, found, optima, strict=True)
                    return [
                        [float(d.excess(x, best)) for d, x, best in each],
                        max(float(np.abs(x).sum()) for x in found) / RADIUS,
                    ]

                excess, length = kept([name, epsilon, rounds], played)
                cells.append(stated(excess))
                longest = max(longest, length)
        rows.append([name, *cells, f"{longest:.2f}"])
    header = [
        "form",
        "no noise, T = 20",
        "no noise, T = 200",
        "eps 1, T = 20",
        "eps 1, T = 200",
        "largest sum of coefficients / radius",
    ]
    title = f"Algorithm 2 line by line at n = {ROWS}: relative excess risk, {len(sets)} data sets"
    write_table("lasso/lines", title, header, rows, "0 is the optimum of (12), 1 is x = 0. None of these forms is private.")
    rounds, rows = 20, []
    found = np.array(
        [kept(["picks", s], lambda s=s, d=d: pick_costs(d, rounds, s)) for s, d in zip(seeds, sets, strict=True)]
    )
    for t in (1, 5, rounds):
        rows.append([str(t), *(stated(found[:, t - 1, k].tolist()) for k in range(3))])
    header = ["round", "G", "largest part of one record", "epsilon of a pick / what is claimed for it"]
    title = f"Noise of picks as printed, n = {ROWS}, eps = {EPSILON:g}, T = {rounds}, {len(sets)} data sets"
    write_table(
        "lasso/picks",
        title,
        header,
        rows,
        "A part is a column's value times the residual: columns in [-1, 1], y in [-2, 2]; one whole record is replaced.",
    )


if __name__ == "__main__":
    run(main)
