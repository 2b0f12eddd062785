"""PRIDE as printed: columns standardised by their own moments, noise of a range read off them; no guarantee (THEORY.md, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.errors import UsageError
from unpooled.models import pride
from unpooled.models.pride.messages import Sketch
from unpooled.models.pride.parameters import Parameters
from unpooled.models.pride.party import sent
from unpooled.models.pride.plan import SKETCH, Own, Part, PrideDesign, check, coded, parts_of, plan_of
from unpooled.privacy import noise
from unpooled.privacy.mechanisms import ScaledGaussian, Vector
from unpooled.privacy.mechanisms.unpriced import Unpriced
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.unit import Unit
from unpooled.protocol.messages import Nothing
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.noise import RandomBits
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context


def published_sigma(theta: float, epsilon: float, delta: float, row_norm: float = 1.0) -> float:
    r"""Noise of PRIDE's Theorem 1 (P.3): :math:`\sigma = w\theta\epsilon^{-1}\sqrt{2(\ln(1/(2\delta))+\epsilon)}`.

    >>> round(published_sigma(7.4118, 1.0, 0.05), 2)
    19.05
    """
    return row_norm * theta / epsilon * math.sqrt(2 * (math.log(1 / (2 * delta)) + epsilon))


@dataclass(frozen=True, slots=True)
class PublishedNoise(Unpriced):
    """Gaussian noise whose theta is the largest range of a standardised column, read off the data."""

    size: int
    multiplier: float
    name: ClassVar[str] = "published Gaussian"

    def draw(self, given: Vector, bits: RandomBits) -> NDArray[np.float64]:
        """The sketch plus Gaussian noise of w theta times the multiplier, on a grid of 2^-18 of itself."""
        assert given.sensitivity is not None
        step = self.multiplier * given.sensitivity * 2.0**-18
        drawn = noise.rounded_gaussian(2.0**18, given.values.size, stream=bits)
        noisy: NDArray[np.float64] = given.values + step * drawn.reshape(given.values.shape)
        return noisy


def compile_plan(study: Study) -> Plan:
    """One sketch per party, with the noise of Theorem 1 of the PRIDE paper."""
    parameters: Parameters = check_parameters(study, Parameters)
    check(study, parameters)
    if Unit(study.unit) is not Unit.ATTRIBUTE or parameters.sketch != "srht":
        raise UsageError("the published calibration is for unit 'attribute' and the SRHT only")
    if study.delta == 0 or parameters.fitted is not None:
        raise UsageError("the published calibration needs delta > 0, and has no release for new rows")
    if parameters.publish:
        raise UsageError("the paper publishes no coefficients: publish needs calibration = 'sound'")
    parts = parts_of(study)
    releases = tuple(
        Release(SKETCH, part.card.name, SKETCH, _mechanism(study, part.card.rows * part.sketch.size))
        for part in parts
        if part.sketch is not None
    )
    return plan_of(study, releases, PrideDesign(parameters, parts, standardised))


def _mechanism(study: Study, numbers: int) -> ScaledGaussian | PublishedNoise:
    if study.epsilon == math.inf:
        return ScaledGaussian.silent(numbers)
    return PublishedNoise(numbers, published_sigma(1.0, study.epsilon, study.delta))


def standardised(part: Part, table: Table) -> Own:
    """Mean 0 and variance 1, read off the data."""
    real = coded(part, table).rows
    mean, deviation = real.mean(axis=0), real.std(axis=0)
    deviation[deviation == 0] = 1.0
    return Own((real - mean) / deviation, mean, deviation)


def sketch(context: Context, request: Nothing) -> Sketch:  # noqa: ARG001 - the request is no more than its name
    """Z_k = X_k Pi_k + W_k of standardised columns; theta is the largest range of one of them."""
    return sent(context, _statistic)


def _statistic(context: Context, part: Part) -> Vector:
    assert part.sketch is not None
    own = standardised(part, context.table).rows
    return Vector(part.sketch.apply_real(own).ravel(), float(np.ptp(own, axis=0).max()))


MODEL = replace(
    pride.MODEL,
    name="pride-published",
    compile_plan=compile_plan,
    steps=(Step(SKETCH, Nothing, Sketch, sketch), *(step for step in pride.MODEL.steps if step.name != SKETCH)),
)
