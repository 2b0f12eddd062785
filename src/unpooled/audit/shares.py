r"""How far two acts of one mechanism are apart, with equal noise and on neighbouring data, as a part of what is declared.

Vectors and parts of totals move by a distance, scores by the largest difference of one, and a minimiser by its privacy loss: the ratio of its
densities in both worlds, at what was drawn. With w the minimiser for the perturbation b, and b' the one for which the other world has the same w,

.. math:: \log\frac{p(b)}{p(b')} + \log\frac{|\partial w'/\partial b'|}{|\partial w/\partial b|}

holds at every w and must stay below a pure claim; of a Gaussian one |b - b'| and the determinants are each held against their own bound (S.11).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from unpooled.privacy.events import Event, Kind
from unpooled.privacy.mechanisms import (
    GaussianObjective,
    NoisyChoice,
    Objective,
    ObjectivePerturbation,
    ScaledGaussian,
    Scores,
    Vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.audit.witness import Act

    Solver = Callable[[NDArray[np.float64]], NDArray[np.float64]]

#: Objectives of more numbers than this are left to the tests of their mechanism: every column costs solutions on both sides.
MOST_COLUMNS = 12
#: Steps of Newton's method at most, after how many its slopes are old, and where it may stop: in units of the noise.
_STEPS, _STALE, _CLOSE = 60, 6, 1e-6
#: A difference quotient's width in units of the noise; and what such quotients make of a loss of nothing.
_WIDTH, _STILL = 1e-3, 1e-4


def share(one: Act, other: Act, declared: Event) -> float | None:
    """The part of what is declared by which two acts differ; None where nothing is declared or it cannot be measured."""
    mechanism = one.mechanism
    if declared.kind is Kind.UNBOUNDED:
        return None
    if isinstance(mechanism, ObjectivePerturbation):
        return _objective(one, other, declared)
    moved = mechanism.change(one.gave, other.gave)
    if isinstance(mechanism, NoisyChoice):
        moved = _choice(mechanism, one, other)
    if isinstance(mechanism, ScaledGaussian):
        moved = _scaled(mechanism, one, other)
    if moved is None:
        return None
    if not declared.value:
        return math.inf if moved else 0.0
    return moved / declared.value


def _choice(mechanism: NoisyChoice, one: Act, other: Act) -> float:
    """The epsilon of a choice whose scores moved so far."""
    ours, theirs = one.given, other.given
    assert isinstance(ours, Scores)
    assert isinstance(theirs, Scores)
    if (ours.sensitivity, ours.signed, ours.values.shape) != (theirs.sensitivity, theirs.signed, theirs.values.shape):
        return math.inf  # public by now, so the same in both worlds
    farthest = int(np.abs(ours.values - theirs.values).max())
    return dict(mechanism.epsilon)[mechanism.unit] * farthest / ours.sensitivity


def _scaled(mechanism: ScaledGaussian, one: Act, other: Act) -> float:
    """The mu of a vector that moved so far."""
    ours, theirs = one.given, other.given
    assert isinstance(ours, Vector)
    assert isinstance(theirs, Vector)
    if ours.sensitivity != theirs.sensitivity or ours.sensitivity is None:
        return math.inf
    return float(np.linalg.norm(ours.values - theirs.values)) / (mechanism.multiplier * ours.sensitivity)


# --- minimisers -------------------------------------------------------------------------------------------------------------


def _objective(one: Act, other: Act, declared: Event) -> float | None:
    mechanism = one.mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    assert isinstance(one.given, Objective)
    assert isinstance(other.given, Objective)
    if mechanism.size > MOST_COLUMNS:
        return None
    theirs, noise = other.given.solve, mechanism.scale
    assert one.perturbation is not None
    wanted, slopes = _recorded(one)
    same = _perturbation_for(theirs, wanted, one.perturbation, slopes, noise)
    if same is None:
        return math.inf  # no perturbation leads there: the other world's minimiser is another function of it altogether
    determinants = _log_determinant(_jacobian(theirs, same, noise)) - _log_determinant(slopes)
    parts = [np.split(term, mechanism.fits) for term in (one.perturbation, same)]
    if declared.tails and isinstance(mechanism, GaussianObjective):
        farthest = max(float(np.linalg.norm(a - b)) for a, b in zip(*parts, strict=True)) / noise
        bend = mechanism.fits * (declared.value - mechanism.covering)
        return max(farthest / declared.tails[0][1], abs(determinants) / bend if bend else 0.0)
    pulled = math.fsum(float(np.linalg.norm(b) - np.linalg.norm(a)) for a, b in zip(*parts, strict=True)) / noise
    loss = abs(pulled + determinants)
    if not declared.value:
        return math.inf if loss > _STILL else 0.0
    return loss / (declared.value * declared.count)


@lru_cache(maxsize=256)
def _recorded(act: Act) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The minimiser that was drawn, without what covers its residual, and its Jacobian: the same for every neighbour."""
    assert isinstance(act.given, Objective)
    assert act.perturbation is not None
    assert act.mechanism.scale is not None
    return act.given.solve(act.perturbation), _jacobian(act.given.solve, act.perturbation, act.mechanism.scale)


def _perturbation_for(
    solve: Solver, wanted: NDArray[np.float64], start: NDArray[np.float64], slopes: NDArray[np.float64], noise: float
) -> NDArray[np.float64] | None:
    """The perturbation whose minimiser is ``wanted``, by steps along another world's slopes: one row more or less changes them little.

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
    """Of the minimiser in the perturbation."""
    width = _WIDTH * noise
    ends = np.eye(term.size) * width
    return np.column_stack([(solve(term + end) - solve(term - end)) / (2 * width) for end in ends])


def _log_determinant(slopes: NDArray[np.float64]) -> float:
    return float(np.linalg.slogdet(slopes).logabsdet)


__all__ = ["MOST_COLUMNS", "share"]
