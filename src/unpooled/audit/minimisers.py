r"""The privacy loss of a minimiser that is published: the ratio of its densities over two neighbouring data sets, at what was drawn.

With w the minimiser for the perturbation b, and b' the one for which the other data have the same w, it is

.. math:: \log\frac{p(b)}{p(b')} + \log\frac{|\partial w'/\partial b'|}{|\partial w/\partial b|}
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from unpooled.privacy.mechanisms import Objective, ObjectivePerturbation

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.audit.witness import Act

    Vector = NDArray[np.float64]
    Solver = Callable[[Vector], Vector]

#: Objectives of more numbers than this are left to the tests of their mechanism: every column costs solutions on both sides.
MOST_COLUMNS = 12
#: Steps of Newton's method at most, after how many its slopes are old, and where it may stop: in units of the noise.
_STEPS, _STALE, _CLOSE = 60, 6, 1e-6
#: A difference quotient's width in units of the noise.
_WIDTH = 1e-3


def same_minimiser(one: Act, other: Act) -> tuple[list[tuple[Vector, Vector]], float] | None:
    """For every fit (b, b'), and the logarithm of the determinants' ratio; None if no perturbation leads to the same minimiser.

    Then the other world's minimiser is another function of its perturbation altogether.
    """
    mechanism = one.mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    assert isinstance(other.given, Objective)
    assert one.perturbation is not None
    wanted, slopes = _recorded(one)
    same = _perturbation_for(other.given.solve, wanted, one.perturbation, slopes, mechanism.scale)
    if same is None:
        return None
    determinants = _log_determinant(_jacobian(other.given.solve, same, mechanism.scale)) - _log_determinant(slopes)
    parts = [np.split(term, mechanism.fits) for term in (one.perturbation, same)]
    return list(zip(*parts, strict=True)), determinants


@lru_cache(maxsize=256)
def _recorded(act: Act) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the minimiser that was drawn, without what covers its residual, and its Jacobian: the same for every neighbour."""
    assert isinstance(act.given, Objective)
    assert act.perturbation is not None
    assert act.mechanism.scale is not None
    return act.given.solve(act.perturbation), _jacobian(act.given.solve, act.perturbation, act.mechanism.scale)


def _perturbation_for(
    solve: Solver, wanted: NDArray[np.float64], start: NDArray[np.float64], slopes: NDArray[np.float64], noise: float
) -> NDArray[np.float64] | None:
    """Return the perturbation whose minimiser is ``wanted``, by steps along another world's slopes: one row more or less changes them little.

    Where it changes them much, they are worked out anew every few steps.
    """
    term = start
    for k in range(_STEPS):
        if k % _STALE == _STALE - 1:
            slopes = _jacobian(solve, term, noise)
        try:
            step = np.linalg.solve(slopes, wanted - solve(term))
        except np.linalg.LinAlgError:
            return None
        term = term + step
        if np.linalg.norm(step) <= _CLOSE * noise:
            return term
    return None


def _jacobian(solve: Solver, term: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Return the Jacobian of the minimiser in the perturbation."""
    width = _WIDTH * noise
    ends = np.eye(term.size) * width
    return np.column_stack([(solve(term + end) - solve(term - end)) / (2 * width) for end in ends])


def _log_determinant(slopes: NDArray[np.float64]) -> float:
    return float(np.linalg.slogdet(slopes).logabsdet)


__all__ = ["MOST_COLUMNS", "same_minimiser"]
