"""Made-up responses of any family: for audits by people who hold no data, and for what a study may achieve."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logit

from unpooled.families.gamma import Gamma
from unpooled.families.negative_binomial import NegativeBinomial
from unpooled.families.quantile import Quantile
from unpooled.kernels.survival import concordance
from unpooled.models.pride.joint import JointFamily
from unpooled.models.pride.levels import places
from unpooled.models.pride.parameters import Parameters
from unpooled.models.pride.probabilities import probabilities
from unpooled.privacy.bounds import text_of
from unpooled.privacy.plan import check_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.study import Study

    Vector = NDArray[np.float64]
    Labels = dict[str, NDArray[Any]]

#: The mean of made-up counts and positive numbers, the shape of the latter, the deviation of a linear predictor at most, and the rate of
#: censoring beside the hazard's.
_MEAN, _SHAPE, _STRONGEST, _CENSORING = 2.0, 2.0, 1.0, 0.5
#: No probability counts for less than this.
_LEAST = 1e-12


def responses(parameters: Parameters, signal: Vector, r2: float, rng: np.random.Generator) -> Labels:
    """Label columns of a family whose linear predictor is a signal of variance 1, as strong as would explain r2 of a normal response."""
    strength = math.sqrt(r2 / max(1 - r2, 1e-9))
    u, law, n = min(strength, _STRONGEST) * signal, parameters.law, signal.size
    if parameters.has_classes:
        texts = np.array([text_of(each) for each in parameters.classes], dtype=object)
        if parameters.named == "multinomial":
            towards = np.linspace(-1.0, 1.0, texts.size)
            chosen = np.argmax(np.outer(2 * u, towards) + rng.gumbel(size=(n, texts.size)), axis=1)
        else:
            cuts = logit(np.arange(1, texts.size) / texts.size)
            chosen = np.searchsorted(cuts, strength * signal + rng.logistic(size=n))
        return {parameters.response: texts[chosen]}
    if isinstance(law, JointFamily):
        time, censored = rng.exponential(np.exp(-u)), rng.exponential(1 / _CENSORING, n)
        found = np.minimum(time, censored) + 1e-9
        return {parameters.response: found, parameters.event: (time <= censored).astype(np.float64)}
    mean = _MEAN * np.exp(u)
    if parameters.named == "poisson":
        y = rng.poisson(mean).astype(np.float64)
    elif isinstance(law, NegativeBinomial):
        y = rng.poisson(mean * rng.gamma(1 / law.dispersion, law.dispersion, n)).astype(np.float64)
    elif isinstance(law, Gamma):
        y = mean * np.maximum(rng.gamma(_SHAPE, 1 / _SHAPE, n), 1e-6)
    else:
        y = math.sqrt(r2) * signal + math.sqrt(1 - r2) * rng.normal(size=n)
    return {parameters.response: y}


def admissible_labels(study: Study, count: int, rng: np.random.Generator) -> Mapping[str, NDArray[Any]]:
    """Label columns that a study takes and that mean nothing; none where -1 and 1 suit it."""
    parameters = check_parameters(study, Parameters)
    if parameters.named in ("squared", "huber", "quantile") or parameters.fitted is not None:
        return {}
    return responses(parameters, rng.normal(size=count), 0.5, rng)


def measure(parameters: Parameters) -> tuple[str, float]:
    """Return (what an outlook of a family counts, what that is where nothing but the base rate is known)."""
    if parameters.named == "cox":
        return "1 - concordance", 0.5
    words = "check loss" if isinstance(parameters.law, Quantile) else "deviance"
    return f"{words} of new rows / that of the base rate", 1.0


def error(parameters: Parameters, labels: Labels, new: slice, decisions: NDArray[np.float64]) -> float:
    """Return the error of the decisions for new rows, which are those of the labels behind ``new``; the others were fitted on."""
    law, y = parameters.law, labels[parameters.response]
    if parameters.has_classes:
        told = places(y, parameters.classes, parameters.response).astype(np.intp)
        counts = np.bincount(told[: new.start], minlength=len(parameters.classes)) + 0.5
        if decisions.ndim == 1:
            decisions = decisions[:, None]
        chances = probabilities(parameters.named, decisions)
        truth = chances[np.arange(decisions.shape[0]), told[new]]
        base = (counts / counts.sum())[told[new]]
        return float(np.log(np.maximum(truth, _LEAST)).sum() / np.log(base).sum())
    if isinstance(law, JointFamily):
        return 1 - concordance(y[new], labels[parameters.event][new], decisions)
    base = np.full(decisions.size, law.start(y[: new.start]))
    return float(law.excess(decisions, y[new]).sum() / law.excess(base, y[new]).sum())
