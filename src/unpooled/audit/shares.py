r"""Distance of two acts of one mechanism, with equal noise and on neighbouring data, as a part of what is declared.

Vectors and parts of totals move by a distance, scores by the largest difference of one, and a minimiser by its privacy loss
(:mod:`unpooled.audit.minimisers`): it must stay below a pure claim; of a Gaussian one the perturbations' distance and the determinants are each
held against their own bound (S.11).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.audit.minimisers import MOST_COLUMNS, same_minimiser
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.mechanisms import (
    GaussianObjective,
    NoisyChoice,
    ObjectivePerturbation,
    ScaledGaussian,
    Scores,
    Vector,
)

if TYPE_CHECKING:
    from unpooled.audit.witness import Act

#: What difference quotients make of a loss of nothing.
_STILL = 1e-4


def share(one: Act, other: Act, declared: Event) -> float | None:
    """Return the part of what is declared by which two acts differ; None where nothing is declared or it cannot be measured."""
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
    """Return the epsilon of a choice whose scores moved so far."""
    ours, theirs = one.given, other.given
    assert isinstance(ours, Scores)
    assert isinstance(theirs, Scores)
    if (ours.sensitivity, ours.signed, ours.values.shape) != (theirs.sensitivity, theirs.signed, theirs.values.shape):
        return math.inf  # public by now, so the same in both worlds
    farthest = int(np.abs(ours.values - theirs.values).max())
    return dict(mechanism.epsilon)[mechanism.unit] * farthest / ours.sensitivity


def _scaled(mechanism: ScaledGaussian, one: Act, other: Act) -> float:
    """Return the mu of a vector that moved so far."""
    ours, theirs = one.given, other.given
    assert isinstance(ours, Vector)
    assert isinstance(theirs, Vector)
    if ours.sensitivity != theirs.sensitivity or ours.sensitivity is None:
        return math.inf
    return float(np.linalg.norm(ours.values - theirs.values)) / (mechanism.multiplier * ours.sensitivity)


def _objective(one: Act, other: Act, declared: Event) -> float | None:
    mechanism = one.mechanism
    assert isinstance(mechanism, ObjectivePerturbation)
    if mechanism.size > MOST_COLUMNS:
        return None
    found = same_minimiser(one, other)
    if found is None:
        return math.inf
    parts, determinants = found
    if declared.tails and isinstance(mechanism, GaussianObjective):
        farthest = max(float(np.linalg.norm(a - b)) for a, b in parts) / mechanism.scale
        bend = mechanism.fits * (declared.value - mechanism.covering)
        return max(farthest / declared.tails[0][1], abs(determinants) / bend if bend else 0.0)
    pulled = math.fsum(float(np.linalg.norm(b) - np.linalg.norm(a)) for a, b in parts) / mechanism.scale
    loss = abs(pulled + determinants)
    if not declared.value:
        return math.inf if loss > _STILL else 0.0
    return loss / (declared.value * declared.count)


__all__ = ["share"]
