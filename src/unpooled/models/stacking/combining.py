"""Predictions of several models put together by public numbers: shares, votes, or log odds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def combined(each: Floats, shares: Sequence[float], combiner: str, rates: Sequence[float]) -> Floats:
    """Log probabilities of every class, but for a constant, from those of K models (rows x K x C)."""
    if combiner == "log-odds":
        return added_log_odds(each, rates)
    votes = each if combiner == "probability" else np.eye(each.shape[2])[each.argmax(axis=2)]
    weight = np.ones(each.shape[1]) if combiner == "majority" else np.asarray(shares)
    return np.asarray(np.log(np.clip(np.einsum("ikc,k->ic", votes, weight / weight.sum()), 1e-12, 1 - 1e-12)))


def added_log_odds(probabilities: Floats, rates: Sequence[float]) -> Floats:
    """The mean over K models (rows x K x C) of their log probabilities, less (K - 1)/K of the base rates'.

    Given the class, parts of a row are taken for independent: each model has counted the base rates once. Equal ones take nothing away.
    """
    inside = np.log(np.clip(probabilities, 1e-12, 1.0))
    models = inside.shape[1]
    return np.asarray((inside.sum(axis=1) - (models - 1) * np.log(rates)) / models)
