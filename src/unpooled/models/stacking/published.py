"""Stacking as printed: the square of every Jacobian factor, and an exact minimiser taken for granted; no guarantee (THEORY.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.models import stacking
from unpooled.models.stacking import fits as sound_fits
from unpooled.models.stacking.fits import Fit, expm1
from unpooled.models.stacking.parameters import META_ROLE, Meta
from unpooled.models.stacking.plan import compile_plan as sound_plan
from unpooled.models.stacking.template import PUBLISHED_TEMPLATE
from unpooled.privacy.classes import DEFAULT
from unpooled.privacy.mechanisms import ObjectivePerturbation
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.sentence import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

_VOIDS = (
    Sentence(
        "stacking-published.minimiser",
        "The paper's proof needs the exact minimiser of the perturbed objective in real arithmetic. A computed minimiser is not covered.",
    ),
)


def fits(study: Study, sizes: Sequence[Fit], penalty: float, epsilon: float) -> list[ObjectivePerturbation]:
    """Eps' = eps - sum 2 ln(1 + q^2 / (4 n lambda)); where nothing is left, eps' = eps / 2 and the penalty that this takes."""
    if epsilon == math.inf:
        return sound_fits.fits(study, sizes, penalty, epsilon)
    rate, penalties = epsilon - math.fsum(2 * math.log1p(fit.bend / penalty) for fit in sizes), [penalty] * len(sizes)
    if rate <= 0:
        rate, penalties = epsilon / 2, [fit.bend / expm1(epsilon * fit.weight / 4) for fit in sizes]
    # The paper replaces a row: b has density prop. to exp(-rate |b| / 2).
    return [
        ObjectivePerturbation(
            fit.columns,
            fit.rows,
            fit.weight,
            own,
            2 / rate,
            2 * fit.weight,
            0.0,
            factors=2,
            centre=fit.source * penalty / own,
        )
        for fit, own in zip(sizes, penalties, strict=True)
    ]


def compile_plan(study: Study) -> Plan:
    """The releases of a stacking study with the paper's noise."""
    if len(study.parameters.get("classes", DEFAULT)) > 2:  # noqa: PLR2004
        raise UsageError("the paper has two classes: use the sound calibration for more")
    if study.trust.get(META_ROLE) == Meta.PERTURBED:
        raise UsageError("noisy predictions are not in the paper: use the sound calibration")
    return sound_plan(study, fits, _VOIDS)


MODEL = replace(
    stacking.MODEL, name="stacking-published", compile_plan=compile_plan, outlook=None, template=PUBLISHED_TEMPLATE
)
