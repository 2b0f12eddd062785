"""Earlier models that a study file cites, as the numbers that the study is about."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from unpooled.errors import StudyError
from unpooled.privacy.origin import PRIOR, SOURCE
from unpooled.study.cited_runs import RUN, Citations, CitedRun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from unpooled.privacy.origin import ReleasedInput
    from unpooled.privacy.plan import Card

_STACKING = "stacking"
#: The models whose ``prior`` names earlier models of coefficients.
_DRAWN = ("bayes", "effects", "glm", "lasso", "pls", "pride")
#: What must be alike for weights to mean the same: they are of scaled and coded rows.
_ALIKE: dict[str, Any] = {
    "classes": ["-1", "1"],
    "norm": None,
    "fit_intercept": True,
    "rows": "shorten",
    "importance": {},
    "split": "features",
}


def with_cited(
    model: str, parameters: Mapping[str, Any], cards: tuple[Card, ...], folder: Path
) -> tuple[dict[str, Any], tuple[ReleasedInput, ...]]:
    """Return the parameters with the numbers of what they cite, and the origin of these; ``folder`` is that of the study file."""
    found = dict(parameters)
    if model in _DRAWN:
        given = found.get(PRIOR)
        if any(isinstance(one, str) for one in (given if isinstance(given, list) else [given])):
            # Most studies cite none, and need no families of responses.
            from unpooled.study.earlier_models import with_earlier_models

            return with_earlier_models(model, found, cards, folder)
        Citations.of(PRIOR, found, folder, cites=False)
        return found, ()
    if model == _STACKING:
        _warn_of_former_words(found)
    key = SOURCE if SOURCE in found else PRIOR
    asked = found.get(key)
    cites = isinstance(asked, str) or (isinstance(asked, list) and any(isinstance(one, str) for one in asked))
    if not cites and model != _STACKING:
        return found, ()
    if model != _STACKING:
        msg = f"{key}: earlier models are for models {', '.join((*_DRAWN, _STACKING))}, not for {model!r}: leave it out"
        raise StudyError(msg)
    citations = Citations.of(key, found, folder, cites=cites)
    if not cites:
        return found, ()
    if not isinstance(asked, str) or not asked.startswith(RUN):
        msg = f'{key} is "{RUN}FOLDER" of an earlier run, or released weights per party'
        raise StudyError(msg)
    run = citations.read(asked)
    return found | {key: _weights(key, run, found, cards)}, run.origins


def _warn_of_former_words(parameters: Mapping[str, Any]) -> None:
    """Warn of the names that the version before had."""
    from unpooled.models.stacking.parameters import are_rates

    former = {name: name.replace(SOURCE, PRIOR, 1) for name in (SOURCE, f"{SOURCE}_rows", f"{SOURCE}_analysis")}
    if are_rates(parameters.get(PRIOR)):
        former[PRIOR] = "rates"
    for name, word in former.items():
        if name in parameters:
            warnings.warn(
                f"[parameters] {name} is {word} now; the former name works for one version", FutureWarning, stacklevel=4
            )


def _weights(key: str, cited: CitedRun, parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> dict[str, list[float]]:
    """Return the weights of every party's model of an earlier run; refused where they would mean something else in this study."""
    run, study = cited.folder, cited.plan.study
    if study.model != _STACKING:
        msg = f"{key}: {run} is a run of model {study.model!r}; a stack starts from a run of stacking, which releases models to start from"
        raise StudyError(msg)
    for name, default in _ALIKE.items():
        if parameters.get(name, default) != study.parameters.get(name, default):
            msg = f"{key}: {run} was run with another {name}, so its weights would mean something else here"
            raise StudyError(msg)
    weights = {model.party: list(model.weights) for model in cited.result.models}
    own = {card.name: card.columns for card in cards}
    for name in weights:
        if own.get(name) != study.card(name).columns:
            msg = f"{key}: {run} has a model of party {name!r}; this study needs a party of that name with the same declared columns"
            raise StudyError(msg)
    return weights
