"""Reads studies as unpooled 0.2.0 wrote them, into saved models and records of runs."""

from __future__ import annotations

from typing import Any

import msgspec

from unpooled.privacy.events import UNBOUNDED
from unpooled.privacy.origin import BOUNDS_INPUT, PastEvent, ReleasedInput
from unpooled.privacy.study import Study


def earlier(what: str, plan: str, events: Any) -> ReleasedInput:  # noqa: ANN401, ARG001 - of a file: msgspec checks it
    """Return the origin of bounds that were paid for, from the record that named their price."""
    past = [PastEvent(unit, "", kind, value, count, tv) for unit, kind, value, count, tv in events]
    holds = all(one.kind != UNBOUNDED.kind.name for one in past)
    return ReleasedInput(BOUNDS_INPUT, plan, holds, tuple(past) if holds else ())


def read_study(raw: bytes) -> tuple[Study, bool]:
    """Return the study in these bytes, and whether unpooled 0.2.0 wrote it."""
    told = msgspec.msgpack.decode(raw)
    if not isinstance(told, dict) or "earlier" not in told:
        return msgspec.msgpack.decode(raw, type=Study, strict=True), False
    origins = [earlier(**one) for one in told.pop("earlier")]
    return _in_half_ranges(msgspec.structs.replace(msgspec.convert(told, Study, strict=True), origins=tuple(origins))), True


def _in_half_ranges(study: Study) -> Study:
    """Return the study with the radius of a sound LASSO, which was in units of the response, in half ranges of it."""
    if study.row != "lasso":
        return study
    parameters = dict(study.parameters)
    radius, half = parameters.pop("radius", 1.0), parameters.get("response_bound", 1.0)
    return msgspec.structs.replace(study, parameters=parameters | {"radius_in_half_ranges": radius / half})
