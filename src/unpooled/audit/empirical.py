"""A lower bound on epsilon by attack: run a release on two neighbours, and tell them apart as well as a threshold can."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.accounting import gaussian_epsilon

#: Confidence with which the first half chooses a threshold.
_CHOOSING = 0.8


def empirical_epsilon(
    release: Callable[[Any], Any],
    neighbour_a: Any,  # noqa: ANN401 - whatever the release takes
    neighbour_b: Any,  # noqa: ANN401
    *,
    runs: int = 2000,
    delta: float = 0.0,
    confidence: float = 0.95,
    law: str = "any",
) -> float:
    """Return an epsilon that the release exceeds with this confidence: a claim below it is refuted, one above it is not proved.

    ``release(data)`` gives a number or an array, with fresh noise each time. The first half of the runs chooses a direction (the difference of the
    means), a threshold and which neighbour exceeds it; the second half, untouched, bounds both probabilities by Clopper and Pearson.

    ``law="gaussian"`` takes the release for one whose neighbours are as hard to tell apart as two normal laws (the claim of every Gaussian mechanism):
    then any threshold refutes a mu, not only the rare events to which delta leaves an epsilon, and far fewer runs come close to the claim.

    >>> import numpy as np
    >>> from unpooled.audit import empirical_epsilon
    >>> rng = np.random.default_rng(0)
    >>> noisy = lambda value: value + rng.laplace(scale=0.5)  # epsilon = 2 for neighbours one apart
    >>> 1.0 < empirical_epsilon(noisy, 0.0, 1.0, runs=4000) < 2.0
    True
    """
    if law not in ("any", "gaussian"):
        raise UsageError('law must be "any" or "gaussian"')
    if runs < 8 or not 0 <= delta < 1 or not 0 < confidence < 1:  # noqa: PLR2004 - two halves of something
        raise UsageError("runs must be at least 8, delta in [0, 1) and confidence between 0 and 1")
    outputs = [np.array([np.ravel(release(data)) for _ in range(runs)], dtype=float) for data in (neighbour_a, neighbour_b)]
    half = runs // 2
    direction = outputs[0][:half].mean(axis=0) - outputs[1][:half].mean(axis=0)
    if not np.isfinite(direction).all():
        raise UsageError("the release must give finite numbers")
    direction = direction if direction.any() else np.ones_like(direction)
    scores = [values @ direction for values in outputs]
    learn, test = ([score[part] for score in scores] for part in (slice(half), slice(half, None)))
    best: tuple[float, int, float] = (-math.inf, 0, 0.0)
    for threshold in np.unique(np.quantile(np.concatenate(learn), np.linspace(0.002, 0.998, 499))).tolist():
        for one in (0, 1):
            sign = 1 if one == 0 else -1
            ours, theirs = (int((sign * score >= sign * threshold).sum()) for score in (learn[one], learn[1 - one]))
            # A milder confidence than at the end, but one that does not prefer rare events for their luck.
            bound = _bound(ours, theirs, half, delta, _CHOOSING, law)
            best = max(best, (bound, one, threshold))
    _, one, threshold = best
    sign = 1 if one == 0 else -1
    ours, theirs = (int((sign * score >= sign * threshold).sum()) for score in (test[one], test[1 - one]))
    return max(0.0, _bound(ours, theirs, runs - half, delta, confidence, law))


def _bound(ours: int, theirs: int, runs: int, delta: float, confidence: float, law: str) -> float:
    """Return the epsilon that the lower end of p and the upper end of q refute; each end fails with half of 1 - confidence.

    By log((p - delta) / q), which holds for every release; or by mu = quantile(p) - quantile(q) of the normal law.
    """
    from scipy.stats import beta, norm

    risk = (1 - confidence) / 2
    low = float(beta.ppf(risk, ours, runs - ours + 1)) if ours else 0.0
    high = float(beta.ppf(1 - risk, theirs + 1, runs - theirs)) if theirs < runs else 1.0
    if law == "gaussian":
        mu = float(norm.ppf(low) - norm.ppf(high))
        return gaussian_epsilon(delta, mu) if mu > 0 else -math.inf
    return math.log((low - delta) / high) if low > delta else -math.inf
