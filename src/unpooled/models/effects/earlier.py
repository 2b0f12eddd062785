"""An effect with earlier estimates of the same effect: how far it is drawn to them. All of it is post-processing (THEORY.md, section 5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.inference.priors import (
    DrawnTo,
    Pull,
    Told,
    drawn_to,
    named,
    rows_of,
)
from unpooled.models.effects.result import DrawnEffect

if TYPE_CHECKING:
    from unpooled.models.effects.declared import DeclaredEffect
    from unpooled.models.effects.result import EffectNumber

#: A typical effect is one deviation of the outcome, whose declared range is about four.
_DEVIATIONS_OF_RANGE = 4.0


def drawn_effect(declared: DeclaredEffect, alone: EffectNumber | None) -> DrawnEffect | None:
    """Return the posterior of an effect about earlier ones; None without any, or where the data do not tell the effect."""
    p = declared.parameters
    if alone is None or not p.prior:
        return None
    # An effect without noise and without chance would have an endless precision.
    variance = max(alone.std_error, 1e-9 * declared.widest) ** 2
    told = Told(np.array([[1 / variance]]), np.array([alone.value / variance]))
    there = rows_of(p.prior, (p.estimand,), intercept=False)
    typical = declared.widest / _DEVIATIONS_OF_RANGE
    mean, covariance, weights, deviations = drawn_to(told, there, np.array([True]), typical)
    pull = Pull(p.estimand, float(mean[0]), alone.value)
    return DrawnEffect(float(mean[0]), math.sqrt(covariance[0, 0]), DrawnTo(named(p.prior, weights, deviations), (pull,)))
