"""The registry: a row per system, and one for each form that is kept as published. A folder without a row fails the contract tests."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Model

#: "pride" is the package ``models/pride``, "pride-published" its module ``published``: the paper's form, with steps and plan of its own.
REGISTRY: tuple[str, ...] = (
    "describe",
    "pride",
    "pride-published",
    "bayes",
    "bayes-published",
    "glm",
    "stacking",
    "stacking-published",
    "lasso",
    "lasso-published",
    "pls",
    "pls-published",
    "diagnose",
)

#: What a study may ask for that is no system: it links rows, releases nothing and predicts nothing.
LINK = "link"


def load(name: str) -> Model:
    """The row of this name: a study's :attr:`~unpooled.privacy.plan.Study.row`."""
    if name == LINK:
        linking: Model = importlib.import_module("unpooled.linkage").MODEL
        return linking
    if name not in REGISTRY:
        system, _, form = name.partition("-")
        if form and system in REGISTRY:
            msg = f"model {system!r} has no {form} form: leave calibration out"
            raise UsageError(msg)
        msg = f"unknown model {name!r}: choose one of {', '.join(row for row in REGISTRY if '-' not in row)}"
        raise UsageError(msg)
    model: Model = importlib.import_module(f"unpooled.models.{name.replace('-', '.')}").MODEL
    return model


def fitted(plan: Plan, result: Any) -> Any:  # noqa: ANN401 - a result of this model, an estimator of it
    """The estimator that a finished study amounts to; refused where no model left the parties."""
    if plan.links:
        raise UsageError('model "link" releases nothing that predicts: it makes row maps for later studies')
    home = f"unpooled.models.{plan.study.model}.fitted"
    if importlib.util.find_spec(home) is None:
        msg = f"model {plan.study.model!r} releases nothing that predicts"
        if plan.study.model == "pride":
            msg += ": its coefficients stay at the parties, who predict in a study of their own: unpooled new pride --fitted STUDY (docs/tutorial-pride.md)"
        raise UsageError(msg)
    return importlib.import_module(home).fitted(plan, result)
