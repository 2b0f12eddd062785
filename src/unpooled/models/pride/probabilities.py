"""Probabilities of classes from a row's decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


def probabilities(family: str, decisions: NDArray[np.float64]) -> Matrix:
    """Return the probabilities of the classes, from one decision (logistic), one for each class, or one for each level but the last.

    >>> probabilities("ordinal", np.array([[2.0, -2.0]])).round(2).tolist()
    [[0.12, 0.76, 0.12]]
    """
    if family == "multinomial":
        return np.asarray(softmax(decisions, axis=1))
    # Thresholds that are averages of parties' rise as each party's do.
    above = expit(decisions if decisions.ndim > 1 else decisions[:, None])
    padded = np.hstack([np.ones((above.shape[0], 1)), above, np.zeros((above.shape[0], 1))])
    return np.asarray(padded[:, :-1] - padded[:, 1:])
