"""The registry: one row per system. A folder that is not listed here fails the contract tests."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from unpooled.protocol.step import Model

REGISTRY: tuple[str, ...] = ("describe", "pride", "bayes", "stacking", "lasso", "pls")


def load(name: str) -> Model:
    """The model of this name."""
    if name not in REGISTRY:
        msg = f"unknown model {name!r}: choose one of {', '.join(REGISTRY)}"
        raise UsageError(msg)
    model: Model = importlib.import_module(f"unpooled.models.{name}").MODEL
    return model
