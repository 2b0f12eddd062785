"""The registry: a row per system of our own, and the rows that distributions declare. A folder without a row fails the contract tests."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UsageError
from unpooled.protocol.registry import KEPT, LINK, OWN, check_own, entry_of, form_of, joined, maker, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Model

#: Our own rows, in the order in which they are listed, each with the package of its ``MODEL``. All other rows are found through entry points.
REGISTRY: dict[str, str] = {name: f"unpooled.models.{name}" for name in OWN}


def row_names() -> tuple[str, ...]:
    """Return the names of all rows: our own, then those that installed distributions declare."""
    check_own(REGISTRY | {LINK: "unpooled.linkage"})
    return (*REGISTRY, *names())


def load(name: str) -> Model:
    """Return the row of this name: a study's :attr:`~unpooled.privacy.plan.Study.row`."""
    if (home := REGISTRY.get(name, "unpooled.linkage" if name == LINK else None)) is not None:
        own: Model = importlib.import_module(home).MODEL
        return own
    system, _, form = name.rpartition("-")
    if system in REGISTRY:
        return form_of(system, form)
    row = joined(name)
    if row is None:
        msg = f"unknown model {name!r}: choose one of {', '.join(row for row in row_names() if row.rpartition('-')[0] not in REGISTRY)}, or {LINK!r}"
        raise UsageError(msg)
    return row


def check_runnable(listed: Sequence[str]) -> None:
    """Refuse a policy's list of models that is empty or holds a name that is no model here."""
    if not listed:
        raise UsageError("models lists no model, so no study could run: leave it out to run unpooled's own models")
    for name in listed:
        if name == LINK:
            raise UsageError('models does not list "link": psi = "intersection" allows it')
        if name not in REGISTRY and name in names() and not maker(name):
            msg = f"models lists {name!r}, which is a form of a model: list {name.rpartition('-')[0]!r}, and name the form under calibrations"
            raise UsageError(msg)
        if name not in REGISTRY and name not in names():
            msg = f"models lists {name!r}, which is no model here: install its package, or take it off the list"
            raise UsageError(msg)


def fitted(plan: Plan, result: Any) -> Any:  # noqa: ANN401 - a result of this model, an estimator of it
    """Return the estimator that a finished study amounts to; refused where no model left the parties."""
    if plan.links:
        raise UsageError('model "link" releases nothing that predicts: it makes row maps for later studies')
    home = f"{_package(plan.study.model)}.estimator"
    made = getattr(importlib.import_module(home), "fitted", None) if _exists(home) else None
    if made is None:
        msg = f"model {plan.study.model!r} releases nothing that predicts"
        if load(plan.study.row).coefficients == KEPT:
            msg += f": its coefficients stay at the parties, who predict in a study of their own: unpooled new {plan.study.model} --fitted STUDY (docs/tutorial-pride.md)"
        raise UsageError(msg)
    found = made(plan, result)
    if hasattr(found, "_record"):
        found._record = msgspec.msgpack.encode(result)  # noqa: SLF001 - of all estimators, whose summary reads it
    held = getattr(found, "_held_to", None)
    return found if held is None else held(plan)


def _exists(home: str) -> bool:
    try:
        return importlib.util.find_spec(home) is not None
    except ModuleNotFoundError:  # the model is one file, no package
        return False


def _package(name: str) -> str:
    """Return the package of a row's ``MODEL``."""
    if name in REGISTRY:
        return REGISTRY[name]
    entry = entry_of(name)
    assert entry is not None, "its plan was compiled"
    return entry.module


__all__ = ["LINK", "REGISTRY", "check_runnable", "fitted", "load", "row_names"]
