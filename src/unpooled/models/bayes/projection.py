"""Algorithm 2: narrow the declared ranges to multiples of the (noisy) marginal deviations, the multiple from synthetic data.

Everything here is public: the deviations were released, the synthetic data come from the model and the public seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels import posterior as noise_aware
from unpooled.linear.moments import Moments
from unpooled.totals.total import Total

if TYPE_CHECKING:
    from unpooled.models.bayes.plan import BayesDesign
    from unpooled.privacy.plan import Plan

_MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
#: Synthetic rows and data sets: enough to rank nine multiples.
_ROWS, _REPEATS = 1000, 8
#: Deviation of y in the synthetic model.
_SPREAD = 1.25**0.5
#: Thresholds never fall below this part of the declared range: the paper's "small positive constant".
_FLOOR = 0.01


def thresholds(design: BayesDesign, total: Total, rows: int, multiple: float) -> tuple[float, ...]:
    """Return (low, high) per projected column, inside its declared range."""
    columns, grid = design.projected, design.layout.grid
    count = len(columns)
    first, second = total.values[:count] / grid / rows, total.values[count:] / grid**2 / rows
    middle = np.clip(first, -1, 1) if design.layout.intercept else np.zeros(count)
    noise = total.deviations[count:] / grid**2 / rows
    deviation = np.sqrt(np.maximum(np.maximum(second - middle**2, noise), _FLOOR**2))
    settings: list[float] = []
    for column, m, d in zip(columns, middle.tolist(), deviation.tolist(), strict=True):
        ends = max(-1.0, m - multiple * d), min(1.0, m + multiple * d)
        settings += [column.centre + column.half_width * end for end in ends]
    return tuple(settings)


def best_multiple(design: BayesDesign, plan: Plan, rows: int) -> float:
    """Return the multiple with the smallest error of the coefficients on synthetic data of the model with the noise of this plan."""
    if rows not in design.multiples:
        design.multiples[rows] = _simulated(design, plan, rows)
    return design.multiples[rows]


def _simulated(design: BayesDesign, plan: Plan, rows: int) -> float:
    rng = np.random.default_rng(plan.study.public_seed)
    d, n = design.layout.size - design.layout.intercept, min(rows, _ROWS)
    deviations = design.moments.deviations(plan) * (n / rows)  # as large beside n rows as they will be beside all
    variance = Moments.decode(design.layout, Total(np.zeros(deviations.size), deviations, ()), n).variance
    gram_variance, cross_variance = variance[:d, :d], variance[:d, -1]
    errors = np.zeros(len(_MULTIPLES))
    for _ in range(_REPEATS):
        # y = x.beta + e with deviation 1 of every feature, and half that of e beside that of x.beta.
        x, beta = rng.normal(size=(n, d)), rng.normal(size=d) / np.sqrt(d)
        y = (x @ beta + rng.normal(size=n) / 2) / _SPREAD
        symmetric = np.triu(rng.normal(size=(d, d)))
        gram_noise = np.sqrt(gram_variance) * (symmetric + np.triu(symmetric, 1).T)
        cross_noise = np.sqrt(cross_variance) * rng.normal(size=d)
        for k, multiple in enumerate(_MULTIPLES):
            z, t = np.clip(x / multiple, -1, 1), np.clip(y / multiple, -1, 1)
            mean, _ = noise_aware.posterior(
                z.T @ z + gram_noise,
                z.T @ t + cross_noise,
                gram_variance,
                cross_variance,
                np.full(d, d * _SPREAD**2),
                (2 * multiple * _SPREAD) ** 2,
            )
            errors[k] += float(np.square(mean * _SPREAD - beta).sum())
    return _MULTIPLES[int(errors.argmin())]
