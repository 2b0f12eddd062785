"""Approximation error of a sketched solution: Theorems 2 and 3 of the PRIDE paper, and the shape of a design that they speak of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Singular values below this share of the largest are numerical zeros.
_RANK = 1e-12


@dataclass(frozen=True)
class Shape:
    """The statistics of Table 1 of the PRIDE paper."""

    rank: int
    #: The smallest singular value that is not zero.
    d_min: float
    #: tr X'X / ||X||^2: how many directions matter.
    effective_rank: float
    #: Principal components that hold 80 % and 90 % of the variance.
    j80: int
    j90: int

    @classmethod
    def of(cls, design: NDArray[np.float64]) -> Shape:
        """Return the shape of a design whose columns are standardised."""
        values = np.linalg.svd(design, compute_uv=False)
        values = values[values > _RANK * values[0]]
        held = np.cumsum(values**2) / float((values**2).sum())
        j80, j90 = (int(np.searchsorted(held, part)) + 1 for part in (0.8, 0.9))
        effective = float((values**2).sum() / values[0] ** 2)
        return cls(values.size, float(values[-1]), effective, j80, j90)


def relative_error_bound(
    shape: Shape,
    sketched: int,
    sigma: float = 0.0,
    *,
    parties: int = 1,
    constant: float = 1.0,
    xi: float = 0.1,
) -> float:
    """Theorem 3 of the PRIDE paper: a bound on ``|b_k - b_k*| / |b_k*|``; with ``parties`` = K, Theorem 2's for all of them together.

    Parameters
    ----------
    shape : Shape
        Of the whole design, which Assumption 1 wants to have full rank, with no more rows than columns.
    sketched : int
        tau_K = (K - 1) tau_subs: the received columns.
    sigma : float, default 0.0
        The noise in them; 0 is DUAL-LOCO.
    parties : int, default 1
        K.
    constant, xi : float
        The theorem's absolute constants, which the paper does not give.

    Returns
    -------
    float
        Infinite where the theorem says nothing: where rho is 1/2 or more.

    """
    if sketched < 1 or parties < 1 or not 0 < xi < 1 or not constant > 0 or not sigma >= 0:
        raise UsageError(
            "sketched and parties are at least 1, xi lies between 0 and 1, constant is positive, sigma not negative"
        )
    rho = constant * math.sqrt(shape.rank * math.log(2 * shape.rank / xi) / sketched)
    if rho >= 0.5:  # noqa: PLR2004 - 1 - 2 rho is the denominator
        return math.inf
    noise = sigma / shape.d_min * (2 + (sigma * sketched + sigma * sketched**2) / shape.d_min)
    return math.sqrt(parties) * rho / (1 - 2 * rho) * (1 + noise)
