"""``source = "run:FOLDER"`` in a study file: the models that an earlier run released, as the numbers that the study is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import StudyError, listed
from unpooled.models.analyses.coordinator import Failed
from unpooled.privacy.origin import OTHERS, SAME, SOURCE, ReleasedInput
from unpooled.study.record import RECORD, read_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from unpooled.models.stacking.coordinator import StackingResult
    from unpooled.privacy.plan import Card, Plan

_MARK = "run:"
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
    parameters: Mapping[str, Any], cards: tuple[Card, ...], folder: Path
) -> tuple[dict[str, Any], tuple[ReleasedInput, ...]]:
    """Return the parameters with the weights of the run they cite, and the origin of these; ``folder`` is that of the study file."""
    found = dict(parameters)
    source = found.get("source")
    analysis = "" if source is None else str(found.pop("source_analysis", ""))
    rows = SAME if source is None else found.pop("source_rows", SAME)
    if rows not in {SAME, OTHERS} or (rows == OTHERS and not isinstance(source, str)):
        msg = f'source_rows is "{OTHERS}" where the people of the cited run are not those of this study, else "{SAME}"'
        raise StudyError(msg)
    if not isinstance(source, str):
        return found, ()
    if not source.startswith(_MARK):
        msg = f'source is "{_MARK}FOLDER" of an earlier run, or released weights per party'
        raise StudyError(msg)
    run = folder / source.removeprefix(_MARK)
    if not (run / RECORD).is_file():
        msg = f"source: {run} holds no record of a run ({RECORD}): give the folder that `unpooled run` wrote"
        raise StudyError(msg)
    _, whole, result, _ = read_record(run)
    plan = whole.analysis(analysis) if analysis else whole
    own = result[analysis] if analysis else result
    if isinstance(own, Failed):
        msg = f"source: analysis {analysis!r} of {run} has no result: {own.failed}"
        raise StudyError(msg)
    weights = _weights(run, plan, own, found, cards)
    *inputs, origin = whole.origins(SOURCE)
    if rows == OTHERS:
        origin = msgspec.structs.replace(origin.of_others(), events=())
    elif not origin.holds:
        msg = (
            f"source: no guarantee holds for {run}, so none would hold here: start from a run that has one, or say source_rows = '{OTHERS}' if its "
            "people are not those of this study"
        )
        raise StudyError(msg)
    return found | {"source": weights}, (*inputs, origin)


def _weights(
    run: Path, plan: Plan, result: StackingResult, parameters: Mapping[str, Any], cards: tuple[Card, ...]
) -> dict[str, list[float]]:
    """Return the weights of every party's model of an earlier run; refused where they would mean something else in this study."""
    if plan.analyses:
        msg = f"source: {run} has several analyses: name one with source_analysis ({listed(list(plan.analyses))})"
        raise StudyError(msg)
    if plan.study.model != "stacking":
        msg = f"source: {run} is a run of model {plan.study.model!r}; a source is a run of stacking, which releases models to start from"
        raise StudyError(msg)
    earlier = plan.study.parameters
    for name, default in _ALIKE.items():
        if parameters.get(name, default) != earlier.get(name, default):
            msg = f"source: {run} was run with another {name}, so its weights would mean something else here"
            raise StudyError(msg)
    weights = {model.party: list(model.weights) for model in result.models}
    own = {card.name: card.columns for card in cards}
    for name in weights:
        if own.get(name) != plan.study.card(name).columns:
            msg = f"source: {run} has a model of party {name!r}; this study needs a party of that name with the same declared columns"
            raise StudyError(msg)
    return weights
