"""``source = "run:FOLDER"`` in a study file: the models that an earlier run released, as the numbers that the study is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.errors import StudyError
from unpooled.study.record import RECORD, read_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from unpooled.privacy.plan import Card

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


def with_cited(parameters: Mapping[str, Any], cards: tuple[Card, ...], folder: Path) -> dict[str, Any]:
    """The parameters, with what they cite of an earlier run in its place. ``folder`` is that of the study file."""
    found = dict(parameters)
    source = found.get("source")
    if not isinstance(source, str):
        return found
    if not source.startswith(_MARK):
        msg = f'source is "{_MARK}FOLDER" of an earlier run, or released weights per party'
        raise StudyError(msg)
    run = folder / source.removeprefix(_MARK)
    if not (run / RECORD).is_file():
        msg = f"source: {run} holds no record of a run ({RECORD}): give the folder that `unpooled run` wrote"
        raise StudyError(msg)
    _, plan, result, _ = read_record(run)
    if plan.study.model != "stacking":
        msg = f"source: {run} is a run of model {plan.study.model!r}; a source is a run of stacking, which releases models to start from"
        raise StudyError(msg)
    earlier = plan.study.parameters
    for name, default in _ALIKE.items():
        if found.get(name, default) != earlier.get(name, default):
            msg = f"source: {run} was run with another {name}, so its weights would mean something else here"
            raise StudyError(msg)
    weights = {model.party: list(model.weights) for model in result.models}
    own = {card.name: card.columns for card in cards}
    for name in weights:
        if own.get(name) != plan.study.card(name).columns:
            msg = f"source: {run} has a model of party {name!r}; this study needs a party of that name with the same declared columns"
            raise StudyError(msg)
    return found | {"source": weights}
