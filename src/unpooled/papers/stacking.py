"""Stacking as printed: the square of every Jacobian factor, and an exact minimiser taken for granted; no guarantee (THEORY.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.models import stacking
from unpooled.models.stacking import fits as sound_fits
from unpooled.models.stacking.fits import Fit, Noise, expm1
from unpooled.models.stacking.parameters import COMBINERS, META_ROLE, Meta
from unpooled.models.stacking.plan import compile_plan as sound_plan
from unpooled.privacy.classes import DEFAULT
from unpooled.privacy.mechanisms import ObjectivePerturbation
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.sentence import Sentence
from unpooled.protocol.template import Template

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
    """Return the releases of a stacking study with the paper's noise."""
    if len(study.parameters.get("classes", DEFAULT)) > 2:  # noqa: PLR2004
        raise UsageError("the paper has two classes: use the sound calibration for more")
    if study.trust.get(META_ROLE) == Meta.PERTURBED:
        raise UsageError("noisy predictions are not in the paper: use the sound calibration")
    if study.parameters.get("formula"):
        raise UsageError(
            "a formula is not for this form: the paper's rows are the declared columns. Use the sound calibration"
        )
    if study.parameters.get("noise") == Noise.GAUSSIAN:
        raise UsageError("noise = 'gaussian' is for the sound form: leave it at 'auto' for the published one")
    if study.parameters.get("ranks"):
        raise UsageError("a private ranking is not in the paper: use the sound calibration")
    return sound_plan(study, fits, _VOIDS)


#: The paper's own study.
TEMPLATE = Template(
    "Stacking of private logistic regressions as printed (Algorithm 3, PST-F). It protects nobody (THEORY.md).",
    "columns of the same people, or rows of different people (split)",
    "record",
    """\
response = "y"                      # every party's own label column, under `labels` in its party file
classes = ["-1", "1"]               # the two labels, as they stand in the data
split = "features"                  # PST-F; "samples": PST-S, rows of different people
fit_intercept = false               # the paper has no constant
high_share = 0.5                    # the paper learns the high level on half of the rows
penalty = 0.01                      # lambda of the mean loss: the paper chooses it on validation rows
# importance = {}                   # columns split: a public number for every party (PST-F(W)); without it equal ones (PST-F(U))
# ranks = []                        # columns split: falling importance that is given out by noisy rank
# ranking_share = 0.1               # part of the budget that pays for these ranks
# holder = ""                       # the party that learns the high-level model; without it the first
# rows = "shorten"                  # or "unit": every row is scaled to the norm
# norm = 1.0                        # bound on a centred row of one party; without it what the ranges allow
# noise = "auto"                    # "gamma", as in the paper
# prior = {}                        # released weights of a source model for a party (the transfer of section 3.3)
# combiner = "auto"                 # new rows: "probability", "majority", "weighted-majority" or "log-odds"
# rates = 0.5                       # public rate of the second class; without it equal rates
# multi_class, predictions_share, probabilities_share and formula are not for this form""",
    calibration="published",
    trust='meta = "trusted"                    # the holder sees the parties\' predictions of the high-level rows',
)

MODEL = replace(
    stacking.MODEL,
    name="stacking-published",
    compile_plan=compile_plan,
    outlook=None,
    template=TEMPLATE,
    promises=False,
    defaults={"combiner": COMBINERS[0]},
)
