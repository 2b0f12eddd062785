"""The registry: a row per system, and one for each form that is kept as published. A folder without a row fails the contract tests."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from unpooled.protocol.step import Model

#: "pride" is the package ``models/pride``, "pride-published" its module ``published``: the paper's form, with steps and plan of its own.
REGISTRY: tuple[str, ...] = (
    "describe",
    "pride",
    "pride-published",
    "bayes",
    "bayes-published",
    "stacking",
    "stacking-published",
    "lasso",
    "lasso-published",
    "pls",
    "pls-published",
)


def load(name: str) -> Model:
    """The row of this name: a study's :attr:`~unpooled.privacy.plan.Study.row`."""
    if name not in REGISTRY:
        system, _, form = name.partition("-")
        if form and system in REGISTRY:
            msg = f"model {system!r} has no {form} form: leave calibration out"
            raise UsageError(msg)
        msg = f"unknown model {name!r}: choose one of {', '.join(row for row in REGISTRY if '-' not in row)}"
        raise UsageError(msg)
    model: Model = importlib.import_module(f"unpooled.models.{name.replace('-', '.')}").MODEL
    return model
