"""Result of every iterative solver: coefficients, and a certificate of their accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Index = NDArray[np.int64]


@final
@dataclass(frozen=True)
class Iterate:
    """A point on the way of a solver, with only its nonzero coefficients: many of them may be kept."""

    indices: Index
    values: Vector
    #: Coefficients in all.
    size: int
    objective: float
    certificate: float
    #: Iterations made to get here.
    iterations: int

    @property
    def coefficients(self) -> Vector:
        """All coefficients."""
        full = np.zeros(self.size)
        full[self.indices] = self.values
        return full


@final
@dataclass(frozen=True)
class Solution:
    """Where a solver stopped."""

    coefficients: Vector
    #: The value of what is minimised.
    objective: float
    #: A duality gap (at least objective - minimum) or the norm of the gradient: each solver says which.
    certificate: float
    iterations: int
    #: Whether the certificate is within the tolerance that was asked for.
    converged: bool
    intercept: float = 0.0
    #: The dual variables of a solver that has them.
    dual: Vector | None = None
    #: The iterates that were asked to be kept.
    path: tuple[Iterate, ...] = ()
