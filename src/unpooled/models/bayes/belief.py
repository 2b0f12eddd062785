"""Coefficients of which noise is about as large as they may be: their posterior under a prior for the variance that they explain."""

from __future__ import annotations

import numpy as np

#: The most of a variance that coefficients are believed to explain; of a relation its root is as likely anywhere below.
MOST_EXPLAINED = 0.6
_STEPS = 60


def believed(
    square: float, noise: float, free: int, explains: int, *, most: float = 0.0, likely: bool = False
) -> tuple[float, float]:
    """Return (the factor by which released coefficients are multiplied, the mean square of what is then wrong with each).

    ``square`` is the sum of squares of ``free`` released coefficients with noise of variance ``noise`` each, and ``explains`` the number of
    coefficients that explain one variance of 1 together; ``likely``: the share that they explain, and not its root, is as likely
    anywhere. The factor is that of the posterior mean, plus ``most`` of what it lacks to 1.
    """
    prior = np.linspace(0.0, 1.0, _STEPS + 1) ** 2 * MOST_EXPLAINED / max(explains, 1)
    noise = max(noise, 1e-12)
    log = -(free * np.log(prior + noise) + square / (prior + noise)) / 2
    weights = np.exp(log - log.max())
    if likely:
        weights *= np.sqrt(prior)  # the density of the share, over its root
    weights /= weights.sum()
    kept = prior / (prior + noise)
    mean = float(weights @ kept)
    factor = mean + most * (1 - mean)
    return factor, mean * noise + float(weights @ np.square(kept - factor)) * square / max(free, 1)
