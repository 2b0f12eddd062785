r"""The spread between sites, and means over sites: random-effects meta-analysis, and the variance of random constants.

Estimates y of K sites have known (co)variances v, of sampling and of privacy noise together. y ~ N(mu, v + tau^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]

#: Prediction intervals need this many sites, means this many.
PREDICTED, POOLED = 3, 2


@dataclass(frozen=True)
class Pooled:
    """The mean over sites and what is around it."""

    #: Inverse-variance mean, and its variance if sites do not differ.
    fixed: tuple[float, float]
    #: Cochran's Q, its p-value, and the part of the variation that is between sites.
    q: float
    q_p_value: float
    i_squared: float
    tau_squared: float
    #: The mean with weights 1/(v + tau^2), its standard error by Hartung, Knapp, Sidik and Jonkman, and its interval.
    mean: float
    error: float
    interval: tuple[float, float]
    p_value: float
    #: The interval of the effect at a new site; None of fewer than three sites.
    predicted: tuple[float, float] | None


def pooled(values: Row, variances: Row, confidence: float) -> Pooled:
    """Return the meta-analysis of at least two estimates by DerSimonian and Laird's tau^2 and Hartung and Knapp's interval."""
    from scipy.special import chdtrc, stdtr, stdtrit

    sites = values.size
    weights = 1 / variances
    total = float(weights.sum())
    fixed = float(weights @ values) / total
    q = float(weights @ (values - fixed) ** 2)
    free = sites - 1
    spread = max(0.0, (q - free) / (total - float(weights @ weights) / total))
    weights = 1 / (variances + spread)
    total = float(weights.sum())
    mean = float(weights @ values) / total
    error = math.sqrt(float(weights @ (values - mean) ** 2) / free / total)
    half = float(stdtrit(free, 0.5 + confidence / 2)) * error
    p_value = 2 * float(stdtr(free, -abs(mean) / error)) if error else float(mean == 0)
    predicted = None
    if sites >= PREDICTED:
        far = float(stdtrit(sites - 2, 0.5 + confidence / 2)) * math.sqrt(spread + error**2)
        predicted = mean - far, mean + far
    i_squared = max(0.0, 1 - free / q) if q else 0.0
    tail = float(chdtrc(free, q))
    return Pooled(
        (fixed, 1 / float((1 / variances).sum())),
        q,
        tail,
        i_squared,
        spread,
        mean,
        error,
        (mean - half, mean + half),
        p_value,
        predicted,
    )


def reml(values: Row, covariance: Matrix) -> float:
    """Return the restricted maximum likelihood estimate of tau^2 of y ~ N(mu 1, C + tau^2 I)."""
    from scipy.optimize import minimize_scalar

    basis = np.linalg.qr(np.column_stack([np.ones(values.size), np.eye(values.size)[:, 1:]]))[0][:, 1:]
    # In the contrasts' eigenvectors C is diagonal, and tau^2 I stays what it is.
    noise, turned = np.linalg.eigh(basis.T @ covariance @ basis)
    squares = (turned.T @ (basis.T @ values)) ** 2

    def loss(spread: float) -> float:
        variances = np.maximum(noise + spread, 1e-300)
        return float((np.log(variances) + squares / variances).sum())

    most = 4 * float(squares.sum()) + 4 * float(np.abs(noise).max())
    if not most:
        return 0.0
    starts = np.concatenate([[0.0], most * 2.0 ** -np.arange(40.0)[::-1]])
    best = int(np.argmin([loss(float(at)) for at in starts]))
    low, high = float(starts[max(best - 1, 0)]), float(starts[min(best + 1, starts.size - 1)])
    found = float(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-10 * most}).x)
    return found if loss(found) < loss(0.0) else 0.0


def student_over_normal(free: int) -> float:
    """Return the half width of Student's 95 % interval with these degrees of freedom, over that of the normal law."""
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(free, 0.975) / ndtri(0.975))
