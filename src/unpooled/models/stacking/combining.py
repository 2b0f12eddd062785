"""Predictions of several models put together by public numbers: shares, votes, or log odds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def combined(each: Floats, shares: Sequence[float], combiner: str) -> Floats:
    """Return the log probabilities of every class, but for a constant, from those of K models (rows x K x C)."""
    if combiner == "log-odds":
        # What all know of the base rate is counted once, and what each says beside it for a K-th: how much of that they share nobody knows.
        return np.asarray(np.log(np.clip(each, 1e-12, 1.0)).mean(axis=1))
    votes = each if combiner == "probability" else np.eye(each.shape[2])[each.argmax(axis=2)]
    weight = np.ones(each.shape[1]) if combiner == "majority" else np.asarray(shares)
    return np.asarray(np.log(np.clip(np.einsum("ikc,k->ic", votes, weight / weight.sum()), 1e-12, 1 - 1e-12)))
