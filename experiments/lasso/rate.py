"""Theorem 3: the excess risk of Algorithm 2 falls like (n eps)^(-2/3) if T grows like (n eps)^(2/3). A slope fitted over n = 10^3 .. 10^6.

Score space (``_scores.py``); the library itself runs beside it where it is fast enough. Table 2's constants cannot be read in our copy: T = 5 (n eps / 1000)^(2/3).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from experiments.cells import kept
from experiments.common import curves, run, write_table
from experiments.lasso._scores import RADIUS, Moments, lasso, published, simulated, sound

EPSILON, SIZES = 1.0, (1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
Play = Callable[[Moments, np.random.Generator], np.ndarray]


def rounds(n: int) -> int:
    """Theorem 3's T, up to its constant."""
    return round(5 * (n * EPSILON / 1000) ** (2 / 3))


FORMS: dict[str, Play] = {
    "no noise, T as in the theorem": lambda d, rng: sound(d, lasso(float("inf"), rounds=rounds(d.n), refit=0.0), rng),
    "published": lambda d, rng: published(d, EPSILON, rounds(d.n), rng),
    "published, best party only": lambda d, rng: published(d, EPSILON, rounds(d.n), rng, vertices=1),
    "sound, rounds alone": lambda d, rng: sound(d, lasso(EPSILON, rounds=rounds(d.n), refit=0.0), rng),
    "sound": lambda d, rng: sound(d, lasso(EPSILON, rounds=rounds(d.n)), rng),
    "sound, T = 20": lambda d, rng: sound(d, lasso(EPSILON), rng),
}


def slope(sizes: np.ndarray, errors: np.ndarray) -> str:
    """Least squares of the logarithms, with its standard error over the repetitions."""
    x = np.log10(sizes)
    each = [np.polyfit(x, np.log10(np.maximum(e, 1e-9)), 1)[0] for e in errors.T]
    spread = np.std(each, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else 0.0
    return f"{np.mean(each):.2f} ± {spread:.2f}"


def main(full: bool) -> None:
    """Slopes of every form; the library beside score space."""
    repetitions, sizes = (20, SIZES) if full else (6, SIZES[::2])
    excess: dict[str, list[list[float]]] = {name: [] for name in FORMS}
    lengths = dict.fromkeys(FORMS, 0.0)
    for n in sizes:
        sets = [Moments.large(n, seed) for seed in range(repetitions)]
        for name, play in FORMS.items():

            def played(n: int = n, sets: list[Moments] = sets, play: Play = play) -> list[list[float]]:
                found = [play(data, np.random.default_rng([seed, n])) for seed, data in enumerate(sets)]
                each = zip(sets, found, strict=True)
                return [[float(data.excess(x, data.optimum())) for data, x in each], [float(np.abs(x).sum()) for x in found]]

            row, sums = kept([n, name], played)
            lengths[name] = max(lengths[name], max(sums) / RADIUS)
            excess[name].append(row)
    rows, drawn = [], {}
    for name, found in excess.items():
        values = np.array(found)
        middle = values.mean(axis=1)
        positive = bool((values > 0).all())
        fits = (
            [slope(np.array(sizes), values), slope(np.array(sizes[-3:]), values[-3:])]
            if positive
            else ["below the optimum"] * 2
        )
        rows.append([name, *(f"{v:.5f}" for v in middle), *fits, f"{lengths[name]:.2f}"])
        drawn[name] = (
            np.array(sizes),
            np.maximum(middle, 1e-5),
            np.maximum(np.quantile(values, [0.25, 0.75], axis=1), 1e-5),
        )
    write_table(
        "lasso/rate",
        f"Theorem 3: relative excess risk at eps = {EPSILON:g} and its slope in n; the theorem's is -2/3",
        ["form", *(f"n = {n}" for n in sizes), "slope", "slope, last three", "largest sum of coefficients / radius"],
        rows,
        f"d = 100, K = 4, unit attribute, {repetitions} data sets, means; T = {', '.join(str(rounds(n)) for n in sizes)}. 'published' is NOT private and leaves the ball.",
    )
    curves("lasso/rate", {"relative excess risk": drawn}, "n")
    rows = []
    for n in (1000, 10_000, 100_000) if full else (1000, 10_000):
        for name, options in (
            ("published", {"calibration": "published"}),
            ("sound", {}),
            ("sound, rounds alone", {"refit": 0.0}),
        ):

            def both(seed: int, n: int = n, name: str = name, options: dict[str, Any] = options) -> list[float]:
                A, y, _ = simulated(n, seed)
                data = Moments.of(A, y)
                best = data.optimum()
                model = lasso(EPSILON, seed, rounds=rounds(n), **options).fit(A, y)
                here = FORMS[name](data, np.random.default_rng(seed))
                return [float(data.excess(model.coef_, best)), float(data.excess(here, best))]

            found = [kept(["check", n, name, seed], partial(both, seed)) for seed in range(2 * repetitions)]
            mine, theirs = np.array(found).T
            rows.append([str(n), name, *(f"{v.mean():.3f} ± {v.std(ddof=1) / np.sqrt(v.size):.3f}" for v in (mine, theirs))])
    write_table(
        "lasso/rate_check",
        "Score space beside the library: relative excess risk",
        ["n", "form", "library", "score space"],
        rows,
    )


if __name__ == "__main__":
    run(main)
