"""Stacking as printed: the square of every Jacobian factor, and an exact minimiser taken for granted; no guarantee (THEORY.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import UsageError
from unpooled.models import stacking
from unpooled.models.stacking import declared
from unpooled.models.stacking.declared import COMBINERS, META_ROLE, SCALE, Fit, Meta, Parameters, expm1
from unpooled.models.stacking.plan import compile_plan as sound_plan
from unpooled.papers.settings import lacking, settings_of, with_settings
from unpooled.privacy.classes import DEFAULT
from unpooled.privacy.mechanisms import ObjectivePerturbation
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import Adjacency
from unpooled.protocol.registry import ModelForm, Template

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
        return declared.fits(study, sizes, penalty, epsilon)
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


#: Algorithms 2 to 4: no constant, half of the rows for the high level, which is learned from predictions as they are, and groups that are scaled.
SETTINGS = {
    "fit_intercept": False,
    "parts": SCALE,
    "high_share": 0.5,
    "meta": Meta.TRUSTED,
    "combiner": COMBINERS[0],
    "penalty": 0.01,
}
#: The paper protects one row of a pure epsilon, and has two classes.
LACKS = lacking(
    "adjacency delta fit_intercept formula noise rows multi_class ranks falling ranking_share "
    "probabilities_share predictions_share rates"
)


def compile_plan(study: Study) -> Plan:
    """Return the releases of a stacking study with the paper's noise, and the paper's settings where it names none."""
    if len(study.parameters.get("classes", DEFAULT)) > 2:  # noqa: PLR2004
        raise UsageError("the paper has two classes: use the sound calibration for more")
    if study.trust.get(META_ROLE) == Meta.PERTURBED:
        raise UsageError("noisy predictions are not in the paper: use the sound calibration")
    if study.adjacency != Adjacency.REPLACE:
        raise UsageError("the paper's neighbours differ in one element: adjacency = 'replace'")
    filled = with_settings(study, Parameters, SETTINGS, LACKS)
    if (
        filled.parameters.get("split") == "samples" and len(study.parties) > 1
    ):  # Algorithm 2: one set of rows learns the high level
        filled = msgspec.structs.replace(
            filled, parameters={"holder": study.parties[-1].name} | {k: v for k, v in filled.parameters.items() if v != ""}
        )
    plan = sound_plan(filled, fits, _VOIDS)
    return replace(
        plan,
        study=study,
        design=replace(plan.design, centred=False),
        notes=(*plan.notes, settings_of(filled, SETTINGS, {META_ROLE: _meta(filled)})),
    )


def _meta(study: Study) -> str:
    """Return how a study combines its models. Nobody is trusted with predictions whom the study does not name."""
    if study.parameters.get("split") == "samples":
        return Meta.TRUSTED if study.parameters.get("holder") else Meta.PUBLIC
    return study.trust.get(META_ROLE, Meta.PUBLIC)


#: The paper's own study.
TEMPLATE = Template(
    "Stacking of private logistic regressions as printed (Algorithm 3, PST-F). It protects nobody (THEORY.md).",
    "columns of the same people, or rows of different people (split)",
    "record",
    """\
response = "y"                      # every party's own label column, under `labels` in its party file
classes = ["-1", "1"]               # the two labels, as they stand in the data
split = "features"                  # PST-F; "samples": PST-S, rows of different people, of whom the last party learns the high level
fit_intercept = false               # the paper has no constant
parts = "scale"                     # every party's part of a row is multiplied by its importance; "shorten": longer ones are shortened to it
high_share = 0.5                    # the paper learns the high level on half of the rows
penalty = 0.01                      # lambda of the mean loss: the paper chooses it on validation rows
combiner = "probability"            # where no high level is learned: also "majority" and "weighted-majority"
# importance = {}                   # columns split: a public number for every party (PST-F(W)); without it equal ones (PST-F(U))
# holder = ""                       # the party that learns the high-level model; without it the first (columns), or the last (rows)
# norm = 1.0                        # bound on a centred row of one party; without it what the ranges allow
# prior = {}                        # released weights of a source model for a party (the transfer of section 3.3)
# noise, rows, ranks, ranking_share, rates, multi_class, predictions_share, probabilities_share and formula are not for this form""",
    calibration="published",
    trust='meta = "trusted"                    # the holder sees the parties\' predictions of the high-level rows',
)

MODEL = replace(
    stacking.MODEL,
    name="stacking-published",
    compile_plan=compile_plan,
    outlook=None,
    template=TEMPLATE,
    form=ModelForm(promises=False, defaults=SETTINGS, lacks=LACKS),
)
